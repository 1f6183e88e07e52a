//! Streams one assistant's message: what the session has of it, and what comes.

use super::{
    Outcome,
    chat::Chat,
    chunks::{Chunk, Counted, FinishReason, Gauge, Metadata},
    frames::{OnAbort, ServerFrame},
    writer::Writer,
};
use reseed_client::{SessionEvent, Update};
use reseed_protocol::{
    Entry, EntryId,
    content::{Role, StopReason, Usage},
    event::{EphemeralEvent, Event},
    session::Resumed,
    tools::Approval,
    turn::{TurnFinished, TurnStatus},
};
use std::{collections::BTreeSet, sync::Arc};
use tokio::sync::{mpsc, oneshot};

/// Where the frames of one request go.
pub(super) struct Out {
    pub(super) request: String,
    pub(super) sequence: u64,
    pub(super) frames: mpsc::Sender<String>,
}

/// Tells that the client no longer reads the answer. Dropped if the connection ends.
pub(super) type Aborted = oneshot::Receiver<()>;

impl Out {
    /// Sends a frame. Waits while the client does not read.
    pub(super) async fn frame(&self, frame: ServerFrame<'_>) -> Result<(), Outcome> {
        self.frames.send(frame.encode()).await.map_err(|_| Outcome::Left)
    }

    async fn chunk(&mut self, chunk: &Chunk) -> Result<(), Outcome> {
        let (request_id, sequence) = (self.request.as_str(), self.sequence);
        self.frame(ServerFrame::Chunk { request_id, sequence, chunk }).await?;
        self.sequence += 1;
        Ok(())
    }
}

/// The stream of a message.
pub(super) struct Stream<'a> {
    pub(super) chat: &'a mut Chat,
    pub(super) out: &'a mut Out,
    pub(super) writer: Writer,
    /// The input whose answer is streamed, until it was appended.
    awaits: Option<EntryId>,
    /// The newest entry that the page has.
    last: Option<EntryId>,
    /// The entries and approvals that were shown.
    shown: BTreeSet<String>,
    /// True once the message is complete, or waits for the page.
    is_over: bool,
}

impl<'a> Stream<'a> {
    /// Begins the message with this id, or goes on with it.
    pub(super) fn new(chat: &'a mut Chat, out: &'a mut Out, mut writer: Writer, message_id: String) -> Self {
        writer.add(Chunk::Start { message_id });
        writer.add(Gauge::chunk(&chat.snapshot().context_info));
        Self { chat, out, writer, awaits: None, last: None, shown: BTreeSet::new(), is_over: false }
    }

    /// Streams the answer to an input that was just accepted.
    pub(super) fn answering(mut self, input: Option<EntryId>) -> Self {
        self.awaits = input;
        self
    }

    /// Streams what follows this entry of the path.
    pub(super) fn from(mut self, entry: &EntryId) -> Self {
        self.last = Some(entry.clone());
        self.compacted_before(entry);
        self.catch_up();
        self
    }

    /// Streams until the message is complete, or waits for the page.
    ///
    /// # Errors
    /// Why it ends early.
    pub(super) async fn run(mut self, mut aborted: Aborted, on_abort: OnAbort) -> Result<(), Outcome> {
        loop {
            for chunk in self.writer.take() {
                self.out.chunk(&chunk).await?;
            }
            if self.is_over {
                return self.out.frame(ServerFrame::End { request_id: &self.out.request }).await;
            }
            tokio::select! {
                biased;
                left = &mut aborted => {
                    if left.is_ok() && on_abort == OnAbort::Cancel {
                        self.chat.cancel().await?;
                    }
                    return Err(Outcome::Left);
                }
                update = self.chat.next() => self.update(update?),
            }
        }
    }

    fn update(&mut self, update: Update) {
        match update {
            Update::Event { event: SessionEvent::Durable(_, event), .. } => self.durable(event),
            Update::Event { event: SessionEvent::Ephemeral(event), .. } if self.awaits.is_none() => {
                self.ephemeral(event);
            }
            // Events were missed. The snapshot has what they did.
            Update::Opened { opened, .. } if opened.resumed != Some(Resumed::Replay) => self.catch_up(),
            _ => return,
        }
        if self.awaits.is_none() && !self.is_over {
            self.wait_for_page();
        }
    }

    fn durable(&mut self, event: Event) {
        if let Event::EntryAppended(appended) = &event
            && self.awaits.as_ref() == Some(&appended.entry.entry_id)
        {
            self.last = self.awaits.take();
            self.compacted_before(&appended.entry.entry_id);
            return;
        }
        if self.awaits.is_some() {
            return;
        }
        match event {
            Event::EntryAppended(appended) => self.entry(&appended.entry),
            Event::TurnFinished(finished) => self.finished(&finished),
            Event::ApprovalRequest(approval) => self.approval(&approval),
            Event::CallResolved(resolved) => self.writer.resolved(&resolved),
            Event::CompactionFailed(failed) => self.writer.compaction_failed(failed.error.message.clone()),
            _ => {}
        }
    }

    fn ephemeral(&mut self, event: EphemeralEvent) {
        let item = match event {
            EphemeralEvent::ItemStarted(started) => started.item_id,
            EphemeralEvent::ItemDelta(delta) => delta.item_id,
            EphemeralEvent::ItemFinished(finished) => finished.item_id,
            EphemeralEvent::ItemAborted(aborted) => return self.writer.aborted(&aborted.item_id),
            EphemeralEvent::ContextUpdated(updated) => return self.writer.add(Gauge::chunk(&updated.context_info)),
            EphemeralEvent::CompactionStarted(started) if !started.background => {
                return self.writer.compacting(None, None);
            }
            EphemeralEvent::CompactionProgress(progress) => {
                let job = self.chat.snapshot().compaction.as_ref();
                if job.is_some_and(|job| !job.background && job.job_id == progress.job_id) {
                    self.writer.compacting(Some(progress.done), Some(progress.total));
                }
                return;
            }
            _ => return,
        };
        if let Some(item) = self.chat.snapshot().item(&item) {
            self.writer.item(item);
        }
    }

    fn entry(&mut self, entry: &Entry) {
        self.last = Some(entry.entry_id.clone());
        if self.shown.insert(entry.entry_id.to_string()) {
            self.writer.entry(entry);
        }
    }

    /// Shows the compactions since the last message before an input.
    fn compacted_before(&mut self, input: &EntryId) {
        let path = self.chat.snapshot().path.iter().rev();
        let before = path.skip_while(|entry| entry.entry_id != *input).skip(1);
        let between: Vec<Arc<Entry>> = before.take_while(|entry| entry.message().is_none()).cloned().collect();
        between.iter().rev().for_each(|entry| self.writer.entry(entry));
    }

    fn approval(&mut self, approval: &Approval) {
        if self.shown.insert(approval.approval_id.to_string()) {
            self.writer.approval(approval);
        }
    }

    /// Shows what the snapshot has after the newest entry that the page has.
    fn catch_up(&mut self) {
        let snapshot = self.chat.snapshot();
        let last = self.awaits.as_ref().or(self.last.as_ref());
        let Some(place) = snapshot.path.iter().position(|entry| Some(&entry.entry_id) == last) else {
            // The input is still queued, or the session has moved to another branch.
            self.is_over = self.awaits.is_none();
            return;
        };
        if let Some(input) = self.awaits.take() {
            self.last = Some(input);
        }
        let entries: Vec<Arc<Entry>> = self.chat.snapshot().path.iter().skip(place + 1).cloned().collect();
        entries.iter().for_each(|entry| self.entry(entry));
        let snapshot = self.chat.snapshot();
        snapshot.items.iter().filter(|item| item.aborted().is_none()).for_each(|item| self.writer.item(item));
        let approvals = snapshot.approvals.clone();
        approvals.iter().for_each(|approval| self.approval(approval));
        let snapshot = self.chat.snapshot();
        if snapshot.turn.is_some() {
            return self.wait_for_page();
        }
        let answer =
            entries.iter().rev().filter_map(|entry| entry.message()).find(|message| message.role == Role::Assistant);
        let (usage, reason) = answer.map_or((None, None), |answer| (answer.usage.clone(), answer.stop_reason));
        match snapshot.last_turn.clone() {
            None => self.end(TurnStatus::Completed, None, usage.as_ref(), reason),
            Some(turn) => {
                let error = turn.error.map(|error| error.message);
                self.end(turn.status, error, usage.as_ref(), reason);
            }
        }
    }

    /// Ends the stream if only the page can go on.
    fn wait_for_page(&mut self) {
        let snapshot = self.chat.snapshot();
        if self.awaits.is_none() && snapshot.pending.is_empty() && self.writer.waits_for_page(&snapshot.approvals) {
            self.end(TurnStatus::Completed, None, None, Some(StopReason::ToolCalls));
        }
    }

    fn finished(&mut self, finished: &TurnFinished) {
        self.writer.add(Gauge::chunk(&finished.context_info));
        let error = finished.error.as_ref().map(|error| error.message.clone());
        self.end(finished.status, error, finished.usage.as_ref(), finished.finish_reason);
    }

    fn end(&mut self, status: TurnStatus, error: Option<String>, usage: Option<&Usage>, reason: Option<StopReason>) {
        self.is_over = true;
        self.writer.end_step();
        let snapshot = self.chat.snapshot();
        let message_metadata = Metadata {
            session_id: snapshot.session_id.to_string(),
            model: snapshot.model.clone(),
            usage: usage.map(Counted::from),
        };
        let finish_reason = match status {
            TurnStatus::Failed => {
                let error_text = error.unwrap_or_else(|| "the turn failed".to_owned());
                return self.writer.add(Chunk::Error { error_text });
            }
            TurnStatus::Cancelled => {
                return self.writer.add(Chunk::Abort { reason: "the turn was cancelled".to_owned() });
            }
            TurnStatus::Interrupted => FinishReason::Interrupted,
            _ => reason.into(),
        };
        self.writer.add(Chunk::Finish { finish_reason, message_metadata });
    }
}
