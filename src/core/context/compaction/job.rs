//! The ladder of one compaction.

mod hooked;
mod outcomes;
mod said;

pub use hooked::{Given, Wishes};

use super::{
    Basis, Held, Order, Outcome, Raw, Writing,
    asking::{Asking, Task},
};
use crate::core::{
    context::{
        build::{Context, Counted, Kind},
        counter::{Counter, Method},
        cut::Cut,
        strategy::Step,
        summary::{self, FileTools},
    },
    model::{Answer, ModelRequest},
    prices::Prices,
    session::state::add_usage,
};
use reseed_protocol::{
    EntryId, Message, Timestamp, Usage, UsageSource,
    command::SummaryKind,
    entry::{Compaction, CompactionDetails, SummaryForm},
    event::{CompactionRung, FailedRung},
};
use std::{
    borrow::Cow,
    collections::{HashSet, VecDeque},
    sync::Arc,
};

/// What a job needs to know of its surroundings.
#[derive(Debug, Clone)]
pub struct Surroundings<'a> {
    /// The model that will summarise.
    pub model: &'a str,
    /// Its window in units of the estimate.
    pub window_tokens: u64,
    /// Counts for it.
    pub counter: Counter,
    /// How the context was counted: [`Counter::method`].
    pub counted_by: Method,
    /// Most tokens of the summary, in units of the estimate.
    pub summary_tokens_max: u64,
    /// Most tokens of an answer that holds one, where that is set.
    pub answer_tokens_max: Option<u64>,
    /// The compaction in effect.
    pub earlier: Option<&'a Compaction>,
    /// Files that earlier compactions noted.
    pub details: Option<CompactionDetails>,
    /// The tools whose calls name files.
    pub file_tools: FileTools,
    /// Now.
    pub now: Timestamp,
    /// When the model is not waited for any longer.
    pub deadline: Timestamp,
    /// Random text that quotes the conversation.
    pub delimiter: String,
    /// Whether the model may be asked.
    pub asks_model: bool,
    /// Most tokens of the facts that are put back into a summary, in units of the estimate.
    pub restored_tokens_max: u64,
    /// What the conversation would send, where summaries are to ride on it.
    pub conversation: Option<ModelRequest>,
    /// What each model costs.
    pub prices: Prices,
    /// How summaries are written.
    pub writing: Writing,
    /// The system prompt and the tools' descriptions: constraints may come from there.
    pub rules: Vec<String>,
}

/// What a job wants next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Ask the model.
    Ask(Box<ModelRequest>),
    /// Look at this: it is taken, or refused by [`Job::refuse`].
    Offer(Box<Outcome>),
    /// There is no further step.
    Exhausted,
}

/// A compaction at work.
#[derive(Debug, Clone)]
pub struct Job {
    /// What asked for it.
    pub order: Order,
    /// When it began.
    pub started_at: Timestamp,
    /// When the model is not waited for any longer.
    pub deadline: Timestamp,
    /// The compaction whose context was read.
    pub base: Option<EntryId>,
    steps: VecDeque<Step>,
    /// The messages of the context as they were said, with their entries.
    messages: Vec<(Option<EntryId>, Arc<Message>)>,
    /// The first of them that stands neither in front nor was kept one by one: where a tail that keeps all begins.
    begins: Option<EntryId>,
    /// Places of those whose words are longer than what the context counts: their results are shown as a note.
    cleared: HashSet<usize>,
    /// How the context was counted.
    context_method: Method,
    earlier: Option<Compaction>,
    noted: Option<CompactionDetails>,
    file_tools: FileTools,
    task: Task,
    asks_model: bool,
    restored_tokens_max: u64,
    conversation: Option<ModelRequest>,
    rules: Vec<String>,
    /// The summary is made anew, from these words.
    raw: Option<Arc<Raw>>,
    at: At,
    failed: Vec<FailedRung>,
    best: Option<(u64, Box<Outcome>)>,
    usage: Option<Usage>,
    /// There was an answer of which nobody told what it cost.
    unreported: bool,
    /// What came of asking the model, until it is looked at.
    tried: Option<Tried>,
    prices: Prices,
    /// What hooks give it.
    given: Given,
}

/// What came of asking the model for a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    /// It made one.
    Summarised,
    /// It made none that can be used: room is made by rule.
    Failed,
}

/// How long a summary by rule may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// As long as the model's.
    Full,
    /// At most half of what it replaces: the full one was no smaller.
    Half,
}

/// Where on the ladder a job is.
#[derive(Debug, Clone)]
enum At {
    /// Between two steps.
    Between,
    /// The model is summarising what this cut takes out.
    Asking(Box<Asking>, Cut),
    /// A summary by rule is due of what this cut takes out, merged into this text.
    ByRule(Cut, Option<String>, Extent),
    /// What this cut's summary came to is being looked at.
    Offered(CompactionRung, Option<(Cut, Option<String>, Extent)>),
}

impl Job {
    /// Stages a compaction of a context in these steps. `originals` gives the words of a message whose tool result is
    /// shown as a note.
    #[must_use]
    pub fn stage(
        mut order: Order,
        base: Option<EntryId>,
        context: &Context,
        originals: impl Fn(&EntryId) -> Option<Arc<Message>>,
        steps: Vec<Step>,
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
            summary_tokens_max: around.summary_tokens_max,
            answer_tokens_max: around.answer_tokens_max,
            instructions: order.instructions.clone().filter(|_| !order.free_form),
            form: around.writing.form,
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
            delimiter: around.delimiter,
            messages: Vec::new(),
            messages_tokens: None,
        };
        let raw = order.rebuild.take();
        Self {
            order,
            started_at: around.now,
            deadline: around.deadline,
            base,
            steps: steps.into(),
            messages: context.messages.iter().map(original).collect(),
            cleared: (0..context.messages.len()).filter(|at| context.messages[*at].cleared).collect(),
            context_method: around.counted_by,
            begins: tail.filter_map(|counted| counted.entry_id.clone()).next(),
            earlier: around.earlier.cloned(),
            noted: around.details,
            file_tools: around.file_tools,
            task,
            asks_model: around.asks_model,
            restored_tokens_max: around.restored_tokens_max,
            conversation: around.conversation,
            rules: around.rules,
            raw,
            at: At::Between,
            failed: Vec::new(),
            best: None,
            usage: None,
            unreported: false,
            tried: None,
            prices: around.prices,
            given: Given::default(),
        }
    }

    /// The model that summarises.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.task.model
    }

    /// How many pieces are summarised, and how many there are.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        match &self.at {
            At::Asking(asking, _) => asking.progress(),
            _ => (0, 1),
        }
    }

    /// What it wants next.
    #[must_use]
    pub fn advance(&mut self) -> Next {
        loop {
            match std::mem::replace(&mut self.at, At::Between) {
                At::Between => match self.steps.pop_front().map(|step| (self.given_summary(&step), step)) {
                    None => return Next::Exhausted,
                    Some((Some(outcome), _)) => return Next::Offer(Box::new(outcome)),
                    Some((None, Step::Clear { results, any_gain })) => {
                        self.at = At::Offered(CompactionRung::ClearToolResults, None);
                        return Next::Offer(Box::new(self.clearing(&results, any_gain)));
                    }
                    Some((None, Step::Truncate(cut))) => {
                        self.at = At::Offered(CompactionRung::Truncate, None);
                        return Next::Offer(Box::new(self.truncated(&cut)));
                    }
                    Some((None, Step::Summarise(cut))) => {
                        let previous = self.previous(&cut);
                        if !self.asks_model {
                            self.at = At::ByRule(cut, previous, Extent::Full);
                            continue;
                        }
                        let split_turn = cut.turn_prefix.is_some();
                        let messages = self.taken_out(&cut);
                        let messages_tokens = self.counted(&cut);
                        let task = Task { messages, messages_tokens, split_turn, ..self.task.clone() };
                        let ride = self.ride(&cut);
                        self.at = At::Asking(Box::new(Asking::stage(task, previous, ride)), cut);
                    }
                },
                At::Asking(asking, cut) => {
                    if let Some(request) = asking.next_request() {
                        self.at = At::Asking(asking, cut);
                        return Next::Ask(Box::new(request));
                    }
                    let rung = asking.rung();
                    let text = asking.summary.clone().unwrap_or_default();
                    let outcome = Outcome { form: Some(asking.form), ..self.summarised(&cut, &text, rung) };
                    self.at = At::Offered(rung, Some((cut, asking.summary, Extent::Full)));
                    return Next::Offer(Box::new(outcome));
                }
                At::ByRule(cut, previous, extent) => {
                    let text = self.extract(&cut, previous.as_deref(), extent);
                    let form = Some(SummaryForm::Sections);
                    let outcome = Outcome { form, ..self.summarised(&cut, &text, CompactionRung::Extract) };
                    let shorter = (extent == Extent::Full).then_some((cut, previous, Extent::Half));
                    self.at = At::Offered(CompactionRung::Extract, shorter);
                    return Next::Offer(Box::new(outcome));
                }
                // Whoever asks twice without refusing gives it up.
                At::Offered(..) => {}
            }
        }
    }

    /// Takes the model's answer to the last request. One that cannot be used (cut off, empty, a refusal) is replaced by
    /// an extract of everything, so that a model that cannot summarise does not stop the conversation.
    pub fn take(&mut self, answer: &Answer) {
        match answer.usage {
            Some(reported) => {
                let usage = self.prices.priced(&self.task.model, reported.usage(UsageSource::Reported));
                self.usage = Some(add_usage(self.usage.take(), &usage));
            }
            None => self.unreported = true,
        }
        let At::Asking(asking, _) = &mut self.at else { return };
        match asking.take(answer) {
            Err(why) => self.fall_back(why),
            Ok(()) if asking.is_done() => self.tried = Some(Tried::Summarised),
            Ok(()) => {}
        }
    }

    /// What came of asking the model, told once.
    pub fn tried(&mut self) -> Option<Tried> {
        self.tried.take()
    }

    /// A request was refused as too large: the model is asked in smaller pieces, or not again.
    pub fn too_large(&mut self) {
        if let At::Asking(asking, _) = &mut self.at {
            let rung = asking.rung();
            if asking.settle() {
                self.tried = asking.is_done().then_some(Tried::Summarised);
                return;
            }
            if asking.get_off() || asking.halve() {
                self.note(rung, "context_overflow");
            } else {
                self.fall_back("context_overflow");
            }
        }
    }

    /// Goes on by rule instead of by the model, because of this.
    pub fn fall_back(&mut self, why: &str) {
        if let At::Asking(asking, _) = &mut self.at
            && asking.settle()
            && (self.asks_model || asking.next_request().is_none())
        {
            // What the model wrote first is a summary, also without the sections that it was asked for again.
            self.tried = asking.is_done().then_some(Tried::Summarised);
            return;
        }
        if let At::Asking(asking, _) = &mut self.at
            && self.asks_model
            && asking.get_off()
        {
            // What does not do beside the conversation may do in a request of its own.
            self.note(CompactionRung::ModelSummary, why);
            return;
        }
        if let At::Asking(asking, cut) = std::mem::replace(&mut self.at, At::Between) {
            self.note(asking.rung(), why);
            self.tried = Some(Tried::Failed);
            let previous = self.previous(&cut);
            self.at = At::ByRule(cut, previous, Extent::Full);
        }
    }

    /// Returns true if the model has answered already, with a summary or not, and is only asked for the sections that
    /// its answer lacks.
    #[must_use]
    pub fn is_completing(&self) -> bool {
        matches!(&self.at, At::Asking(asking, _) if asking.is_completing())
    }

    /// Returns true if the model has written a summary already, and is only asked for the sections that it lacks.
    #[must_use]
    pub fn has_draft(&self) -> bool {
        matches!(&self.at, At::Asking(asking, _) if asking.has_draft())
    }

    /// Asks the model no more: time is up.
    pub fn out_of_time(&mut self) {
        self.asks_model = false;
        self.fall_back("timeout");
    }

    /// What was offered does not do: it would leave so many tokens.
    pub fn refuse(&mut self, outcome: Box<Outcome>, why: &str, tokens: u64) {
        let At::Offered(rung, summary) = std::mem::replace(&mut self.at, At::Between) else { return };
        self.note(rung, why);
        if self.best.as_ref().is_none_or(|(least, _)| tokens < *least) {
            self.best = Some((tokens, outcome));
        }
        if let Some((cut, text, extent)) = summary {
            self.at = At::ByRule(cut, text, extent);
        }
    }

    /// Of what was refused, the least, with the tokens it would leave; the ways that failed are all of them.
    #[must_use]
    pub fn best(&mut self) -> Option<(u64, Box<Outcome>)> {
        let (tokens, mut outcome) = self.best.take()?;
        outcome.failed = self.failed.clone();
        outcome.failed.retain(|failed| failed.rung != outcome.rung);
        Some((tokens, outcome))
    }

    /// The newest entry that was read.
    #[must_use]
    pub fn last_read(&self) -> Option<&EntryId> {
        self.messages.iter().rev().find_map(|(id, _)| id.as_ref())
    }

    /// Begins with what another compaction has cost, whose summary it merges. That one is in no provider's cache.
    pub fn merge(&mut self, held: &Held) {
        self.usage.clone_from(&held.outcome.usage);
        self.conversation = None;
    }

    /// What its outcome needs to be committed.
    #[must_use]
    pub fn basis(&self) -> Basis {
        Basis {
            order: self.order.clone(),
            started_at: self.started_at,
            ended_at: None,
            base: self.base.clone(),
            last_read: self.last_read().cloned(),
            failed: self.failed.clone(),
            is_rebuild: self.is_rebuild(),
            wishes: self.given.wishes.clone(),
        }
    }

    /// The ways that did not do so far.
    #[must_use]
    pub fn failed(&self) -> &[FailedRung] {
        &self.failed
    }

    fn note(&mut self, rung: CompactionRung, why: &str) {
        self.failed.push(FailedRung { rung, reason: why.to_owned() });
    }

    /// Whether the summary is made anew: it takes the place of another, and need not gain anything.
    #[must_use]
    pub fn is_rebuild(&self) -> bool {
        self.raw.is_some()
    }
}

/// The summary in a message that stands for one, without the words around it; what a patch put there has none.
pub(super) fn told_by(message: &Message) -> String {
    let text = message.text();
    summary::unseed(&text).map(Cow::into_owned).unwrap_or(text)
}
