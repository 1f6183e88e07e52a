//! Preparing a compaction: the data that a job needs, and its first state.

use super::{Job, State};
use crate::compaction::segments::Room;
use crate::{
    compaction::{
        ask::Task,
        given::HookSupply,
        order::{Order, Writing},
        strategy::FallbackStep,
        summary,
    },
    context::{
        counter::Counter,
        messages::{Context, Counted, Kind},
    },
    model::ModelRequest,
    prices::Prices,
    text::files::FileTools,
};
use reseed_protocol::{
    EntryId, Message, Timestamp,
    compaction::{Compaction, CompactionDetails, SummaryKind},
};
use std::sync::Arc;

/// The data that a job needs about its surroundings.
#[derive(Debug, Clone)]
pub struct Surroundings<'a> {
    /// The model that summarises.
    pub model: &'a str,
    /// Its window in estimated tokens.
    pub window_tokens: u64,
    /// The counter for that model.
    pub counter: Counter,
    /// True if the model is known to reason before it answers.
    pub reasons: bool,
    /// The compaction in effect.
    pub earlier: Option<&'a Compaction>,
    /// Files recorded by earlier compactions.
    pub details: Option<CompactionDetails>,
    /// The tools whose calls name files.
    pub file_tools: FileTools,
    /// The current time.
    pub now: Timestamp,
    /// When waiting for the model ends.
    pub deadline: Timestamp,
    /// Random text that delimits the quoted conversation.
    pub delimiter: String,
    /// True if the model may be asked.
    pub asks_model: bool,
    /// The room of each part of the summary.
    pub room: Room,
    /// The request that the conversation would send, if summary requests extend it.
    pub conversation: Option<ModelRequest>,
    /// The same request, if the provider is to compact it in its own form.
    pub native: Option<ModelRequest>,
    /// The price of each model.
    pub prices: Prices,
    /// How summaries are written.
    pub writing: Writing,
}

impl Job {
    /// Prepares a compaction of a context in these steps. `originals` returns the original content of a message whose
    /// tool result was cleared.
    #[must_use]
    pub fn stage(
        mut order: Order,
        base: Option<EntryId>,
        context: &Context,
        originals: impl Fn(&EntryId) -> Option<Arc<Message>>,
        steps: Vec<FallbackStep>,
        around: Surroundings<'_>,
    ) -> Self {
        let original = |counted: &Counted| {
            let words = counted.entry_id.as_ref().filter(|_| counted.cleared).and_then(&originals);
            (counted.entry_id.clone(), words.unwrap_or_else(|| counted.message.clone()))
        };
        let tail = context.messages.iter().filter(|counted| !matches!(counted.kind, Kind::Summary | Kind::Beside));
        let task = Task {
            model: around.model.to_owned(),
            counter: around.counter,
            window_tokens: around.window_tokens,
            summary_tokens_max: around.room.new_tokens,
            instructions: order.instructions.clone().filter(|_| !order.free_form),
            prompt: match &order.instructions {
                Some(instructions) if order.free_form => Some(instructions.as_str().into()),
                _ => around.writing.prompt,
            },
            is_clients: order.free_form,
            kind: match around.writing.kind {
                SummaryKind::Auto => summary::recognise(context.messages.iter().map(|counted| &*counted.message)),
                kind => kind,
            },
            split_turn: false,
            reasons: around.reasons,
            delimiter: around.delimiter,
            messages: Vec::new(),
            keeps_words: false,
            keeps_earlier: false,
        };
        let raw = order.rebuild.take();
        Self {
            order,
            started_at: around.now,
            deadline: around.deadline,
            base,
            steps: steps.into(),
            messages: context.messages.iter().map(original).collect(),
            inputs: (0..context.messages.len()).filter(|at| context.messages[*at].is_input).collect(),
            begins: tail.filter_map(|counted| counted.entry_id.clone()).next(),
            earlier: around.earlier.cloned(),
            noted: around.details,
            file_tools: around.file_tools,
            task,
            asks_model: around.asks_model,
            room: around.room,
            conversation: around.conversation,
            native: around.native,
            usual_room: None,
            raw,
            at: State::Between,
            failed: Vec::new(),
            best: None,
            usage: None,
            unreported: false,
            tried: None,
            prices: around.prices,
            given: HookSupply::default(),
        }
    }
}
