//! Writes sessions with a long history straight into the server's own store, as the server would have written them:
//! turns of a question and an answer, and compactions along the way.
//!
//! Whatever its length, a session with compactions ends the same way: a summary, some entries kept, some new ones. So
//! two of them differ in their history and in nothing that the model sees.

use reseed::{
    core::session::SessionState,
    store::{self, EntryColumns, Head, NewRecord, SessionStore},
};
use reseed_protocol::{
    Entry, EntryData, EntryId, Message, Part, Role, SessionId, StopReason, Timestamp, TurnId,
    compaction::{Compaction, CompactionTrigger},
    event::Event,
    session::SessionUpdated,
    tree::EntryAppended,
    turn::TurnStarted,
};
use serde_json::json;
use std::{path::Path, sync::Arc};

/// When the sessions began.
const STARTED_AT: Timestamp = Timestamp(1_780_000_000_000);

/// The model of the sessions; the server's own default, so that counting is as exact as it gets.
const MODEL: &str = "gpt-4.1-mini";

/// Messages between two compactions.
const COMPACTED_EVERY: usize = 80;

/// Messages that a compaction keeps, and messages after the last one.
const KEPT: usize = 20;

/// Records written in one step: a few hundred KiB.
const STEP_RECORDS: usize = 500;

/// A session that is being written.
struct Past {
    session: SessionId,
    state: SessionState,
    records: Vec<NewRecord>,
    /// The newest messages, oldest first.
    messages: Vec<EntryId>,
    turn: usize,
    at: Timestamp,
}

/// Creates a session of this name, for this model, with these messages and no compaction. A message of the user begins
/// a turn; the last of the model before the next one ends it.
pub(crate) async fn write_messages(
    database: &Path,
    name: &str,
    model: &str,
    messages: Vec<Message>,
) -> anyhow::Result<()> {
    let store = store::connect(&format!("sqlite://{}", database.display())).await?;
    let mut lease = store.create(&name.parse()?, "", STARTED_AT).await?;
    let mut past = Past::new(name, model)?;
    let mut left = messages.into_iter().peekable();
    while let Some(mut message) = left.next() {
        let ends = left.peek().is_none_or(|next| next.role == Role::User);
        let is_question = message.role == Role::User;
        if message.role == Role::Assistant {
            message.model = Some(model.to_owned());
            message.stop_reason = Some(if ends { StopReason::Stop } else { StopReason::ToolCalls });
        }
        past.write(message, is_question, ends && !is_question)?;
        if past.records.len() >= STEP_RECORDS || left.peek().is_none() {
            past.flush(&*store, &mut lease).await?;
        }
    }
    store.close().await?;
    Ok(())
}

/// Creates a session of this name with this many messages; its summaries are included among its entries or left out.
pub(crate) async fn write(database: &Path, name: &str, messages: usize, compacted: bool) -> anyhow::Result<()> {
    write_at(&format!("sqlite://{}", database.display()), name, messages, compacted).await
}

/// Does what [`write`] does in the database at this address.
pub(crate) async fn write_at(database: &str, name: &str, messages: usize, compacted: bool) -> anyhow::Result<()> {
    let store = store::connect(database).await?;
    let mut lease = store.create(&name.parse()?, "", STARTED_AT).await?;
    let mut past = Past::new(name, MODEL)?;
    for index in 0..messages {
        past.say(index)?;
        let said = index + 1;
        let ends = messages - KEPT;
        if compacted && said <= ends && (ends - said).is_multiple_of(COMPACTED_EVERY) {
            past.compact()?;
        }
        if past.records.len() >= STEP_RECORDS || said == messages {
            past.flush(&*store, &mut lease).await?;
        }
    }
    store.close().await?;
    Ok(())
}

impl Past {
    fn new(name: &str, model: &str) -> anyhow::Result<Self> {
        let (model, strategy) = (model.to_owned(), "threshold".to_owned());
        let state = SessionState { model, strategy, ..SessionState::default() };
        Ok(Self { session: name.parse()?, state, records: Vec::new(), messages: Vec::new(), turn: 0, at: STARTED_AT })
    }

    fn take(&mut self, event: &Event) -> anyhow::Result<()> {
        self.state.apply(event);
        let entry = EntryColumns::of(event);
        self.records.push(NewRecord { body: serde_json::to_string(event)?.into(), entry });
        Ok(())
    }

    fn append(&mut self, data: EntryData) -> anyhow::Result<EntryId> {
        self.at = self.at.plus_millis(1_000);
        let entry_id: EntryId = format!("e{:011}", self.state.entries).parse()?;
        let parent_id = self.state.leaf.clone();
        let entry = Entry { entry_id: entry_id.clone(), parent_id, timestamp: self.at, imported: None, data };
        self.take(&Event::EntryAppended(Box::new(EntryAppended { entry, turn_id: None, command_id: None })))?;
        Ok(entry_id)
    }

    /// Appends a question with the start of its turn, or an answer with the end of it.
    fn say(&mut self, index: usize) -> anyhow::Result<()> {
        let (question, text) = (index.is_multiple_of(2), text(index));
        let mut message = Message::new(if question { Role::User } else { Role::Assistant }, vec![Part::Text { text }]);
        if !question {
            message.model = Some(MODEL.to_owned());
            message.stop_reason = Some(StopReason::Stop);
        }
        self.write(message, question, !question)
    }

    /// Appends a message that begins a turn, ends one, or does neither.
    fn write(&mut self, message: Message, begins: bool, ends: bool) -> anyhow::Result<()> {
        let entry = self.append(EntryData::message(message))?;
        self.messages.push(entry.clone());
        self.turn += usize::from(begins);
        let turn_id: TurnId = format!("t{:011}", self.turn).parse()?;
        if begins {
            let started = TurnStarted { turn_id, command_ids: Vec::new(), generation: self.state.generation };
            return self.take(&Event::TurnStarted(started));
        }
        if !ends {
            return Ok(());
        }
        let breakdown = json!({ "system": 0, "tools": 0, "summary": 0, "user": 500, "assistant": 500, "reasoning": 0,
            "toolResults": 0, "images": 0, "uncached": 0 });
        let context_info = json!({ "tokenCount": 1000, "transcriptLength": 40, "maxTokens": 1_000_000,
            "strategy": "threshold", "usageRatio": 0.001, "source": "estimated", "usageTokens": 0,
            "trailingTokens": 1000, "errorBoundTokens": 10, "reservedTokens": 16_384, "compactAtTokens": 800_000,
            "cachedTokens": 0, "generation": self.state.generation, "compactions": self.state.compactions,
            "sessionId": self.session, "leafId": entry, "breakdown": breakdown });
        let finished = json!({ "type": "turn_finished", "payload": {
            "turnId": turn_id, "status": "completed", "finishReason": "stop", "contextInfo": context_info } });
        self.take(&serde_json::from_value(finished)?)
    }

    fn compact(&mut self) -> anyhow::Result<()> {
        let kept = self.messages.split_off(self.messages.len().saturating_sub(KEPT));
        self.messages = kept;
        let summary = (0..20).map(text).collect::<Vec<_>>().join("\n");
        let compaction = Compaction {
            summary,
            first_kept_entry_id: self.messages.first().cloned(),
            tokens_before: 4_000,
            tokens_after: Some(2_000),
            trigger: Some(CompactionTrigger::Threshold),
            duration_ms: Some(900),
            ..Compaction::default()
        };
        self.append(EntryData::Compaction(compaction))?;
        let generation = Some(self.state.generation + 1);
        let updated = SessionUpdated { generation, ..SessionUpdated::default() };
        self.take(&Event::SessionUpdated(Box::new(updated)))
    }

    async fn flush(&mut self, store: &dyn SessionStore, lease: &mut store::Lease) -> anyhow::Result<()> {
        let records = std::mem::take(&mut self.records);
        let written = records.len() as u64;
        let state: Arc<str> = serde_json::to_string(&self.state)?.into();
        let head = Head {
            created_at: STARTED_AT,
            updated_at: self.at,
            entries: self.state.entries,
            token_count: 1_000,
            window_tokens: 1_000_000,
            state: Some(state),
            ..Head::default()
        };
        store
            .append(lease, lease.next_seq, store::Append { records, marks: Vec::new(), usage: Vec::new(), head })
            .await?;
        lease.next_seq += written;
        Ok(())
    }
}

/// Returns the text at this index; always about as long.
fn text(index: usize) -> String {
    format!(
        "Message {index:06}: the shipment of order {:06} leaves the harbour on day {:03}, and whoever signs for it \
         keeps the receipt until the invoice has come.",
        index * 7 % 1_000_000,
        index % 365
    )
}
