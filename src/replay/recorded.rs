//! A recorded conversation: its turns, and the texts by which policies are judged.
//!
//! Invariants, kept by [`Builder`]:
//! - a turn begins with the user's input, and each of its steps is one answer with the results of its calls;
//! - every call of a step has a result in that step;
//! - texts are in the order in which they were said.

use crate::core::context::counter::Counter;
use reseed_protocol::{CallId, Message, Part, Role, Timestamp};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// The result of a call for which the record has none.
const NO_RESULT: &str = "No result was recorded.";

/// A recorded conversation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorded {
    /// Its name in the record.
    pub(crate) name: String,
    /// The system prompt; empty if the record has none.
    pub(crate) instructions: String,
    /// Its turns, in order.
    pub(crate) turns: Vec<Turn>,
    /// The texts of users and the model, in order.
    pub(crate) texts: Vec<Said>,
    /// The names of the tools that are called.
    pub(crate) tools: BTreeSet<String>,
    /// The number of recorded questions that have a source.
    pub(crate) questions: u64,
    /// The summaries in the record, each with the number of texts before it.
    pub(crate) summaries: Vec<(usize, String)>,
    /// Describes what was left out, for people.
    pub(crate) notes: Vec<String>,
    /// The tokens of each message, by its address. They are counted once for all runs.
    tokens: HashMap<usize, u64>,
}

impl Recorded {
    /// Returns the tokens of a message, if it is one of the record's own.
    pub(crate) fn tokens(&self, message: &Arc<Message>) -> Option<u64> {
        self.tokens.get(&(Arc::as_ptr(message) as usize)).copied()
    }
}

/// A turn: from one input of the user to the next.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    /// The user's input.
    pub(crate) input: Arc<Message>,
    /// The model's answers.
    pub(crate) steps: Vec<Step>,
    /// The number of texts up to and including the input.
    pub(crate) texts: usize,
    /// When the input was recorded, if that is known.
    pub(crate) at: Option<Timestamp>,
}

/// An answer, and the results of its calls.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The answer.
    pub(crate) answer: Arc<Message>,
    /// The results of its calls in order, each a message of its own.
    pub(crate) results: Vec<Arc<Message>>,
    /// The number of texts up to and including the answer.
    pub(crate) texts: usize,
    /// When the answer was recorded, if that is known.
    pub(crate) at: Option<Timestamp>,
}

/// A text that a user or the model said.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    /// The text with its white space normalised.
    pub(crate) text: Arc<str>,
    /// True if a user said it.
    pub(crate) is_user: bool,
    /// Its tokens.
    pub(crate) tokens: u64,
    /// The number of recorded questions whose answer needs it.
    pub(crate) wanted: u64,
}

/// A question of the record: the ids of the messages that its answer needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources(pub(crate) Vec<String>);

/// Builds a recorded conversation from messages in order.
#[derive(Debug)]
pub(crate) struct Builder {
    counter: Counter,
    recorded: Recorded,
    /// The index of the text of each message that has an id.
    ids: HashMap<String, usize>,
    /// Parts in the user's role that wait for the next input of the user.
    waiting: Vec<Part>,
    /// The calls of the newest step that have no result yet, by their ids in the record.
    open: HashMap<CallId, usize>,
    early: u64,
    /// The time of the next message, if it is known.
    at: Option<Timestamp>,
}

impl Builder {
    /// Creates a builder that counts with this counter.
    pub(crate) fn new(name: impl Into<String>, counter: Counter) -> Self {
        let recorded = Recorded { name: name.into(), ..Recorded::default() };
        Self { counter, recorded, ids: HashMap::new(), waiting: Vec::new(), open: HashMap::new(), early: 0, at: None }
    }

    /// Sets the time of the next messages.
    pub(crate) fn at(&mut self, at: Timestamp) {
        self.at = Some(at);
    }

    /// Adds to the system prompt.
    pub(crate) fn instructions(&mut self, text: &str) {
        let instructions = &mut self.recorded.instructions;
        if !instructions.is_empty() {
            instructions.push_str("\n\n");
        }
        instructions.push_str(text);
    }

    /// Adds a message.
    pub(crate) fn message(&mut self, id: Option<String>, message: Message) {
        match message.role {
            Role::User => self.user(id, message.content),
            Role::Assistant => self.assistant(id, message),
            Role::Tool => self.results(message.content),
        }
    }

    /// Adds text in the user's role that the user did not say. It is sent with the user's next input.
    pub(crate) fn aside(&mut self, parts: Vec<Part>) {
        self.waiting.extend(parts);
    }

    /// Adds a summary of the conversation so far.
    pub(crate) fn summary(&mut self, text: String) {
        self.recorded.summaries.push((self.recorded.texts.len(), text));
    }

    /// Adds a note for people.
    pub(crate) fn note(&mut self, note: String) {
        self.recorded.notes.push(note);
    }

    /// Returns the conversation, with the sources of its questions marked.
    pub(crate) fn finish(mut self, questions: &[Sources]) -> Recorded {
        self.settle();
        let counter = self.counter;
        let steps = |turn: &Turn| {
            let steps = turn.steps.iter().flat_map(|step| step.results.iter().chain([&step.answer]));
            steps
                .chain([&turn.input])
                .map(|message| (Arc::as_ptr(message) as usize, counter.message(message).total()))
                .collect::<Vec<_>>()
        };
        self.recorded.tokens = self.recorded.turns.iter().flat_map(steps).collect();
        let mut unknown = 0;
        for Sources(ids) in questions {
            self.recorded.questions += u64::from(!ids.is_empty());
            for id in ids {
                match self.ids.get(id) {
                    Some(at) => self.recorded.texts[*at].wanted += 1,
                    None => unknown += 1,
                }
            }
        }
        if unknown > 0 {
            self.recorded.notes.push(format!("{unknown} sources name no message of it"));
        }
        if self.early > 0 {
            self.recorded.notes.push(format!("{} messages before the first one of a user are left out", self.early));
        }
        self.recorded
    }

    fn user(&mut self, id: Option<String>, parts: Vec<Part>) {
        self.settle();
        self.said(id, &parts, true);
        let mut input = std::mem::take(&mut self.waiting);
        input.extend(parts.into_iter().filter(|part| matches!(part, Part::Text { .. } | Part::Image { .. })));
        if input.iter().all(|part| matches!(part, Part::Text { text } if text.trim().is_empty())) {
            return;
        }
        let input = Arc::new(Message::new(Role::User, input));
        self.recorded.turns.push(Turn { input, steps: Vec::new(), texts: self.recorded.texts.len(), at: self.at });
    }

    fn assistant(&mut self, id: Option<String>, message: Message) {
        let is_text = |part: &Part| matches!(part, Part::Text { text } if !text.trim().is_empty());
        let parts: Vec<Part> = message
            .content
            .into_iter()
            // Reasoning is only useful in a form that its own provider can read, so it is left out.
            .filter(|part| is_text(part) || matches!(part, Part::ToolCall { .. }))
            // An answer that broke off is shown, but its calls were not made.
            .filter(|part| !message.incomplete || is_text(part))
            .collect();
        if parts.is_empty() {
            return;
        }
        if self.recorded.turns.is_empty() {
            self.early += 1;
            return;
        }
        self.said(id, &parts, false);
        let texts = self.recorded.texts.len();
        let last = self.recorded.turns.last().and_then(|turn| turn.steps.last());
        let follows_calls = last.is_none_or(|step| !step.results.is_empty());
        if follows_calls {
            self.settle();
        }
        let calls = parts.iter().filter_map(|part| match part {
            Part::ToolCall { call_id, name, .. } => Some((call_id, name)),
            _ => None,
        });
        let mut results = Vec::new();
        for (call_id, name) in calls {
            self.open.insert(call_id.clone(), results.len());
            self.recorded.tools.insert(name.clone());
            results.push(result(call_id.clone(), NO_RESULT.to_owned(), true));
        }
        let Some(turn) = self.recorded.turns.last_mut() else { return };
        match turn.steps.last_mut() {
            // Two consecutive answers, as after a retry, are merged.
            Some(step) if !follows_calls => {
                Arc::make_mut(&mut step.answer).content.extend(parts);
                step.results = results;
                step.texts = texts;
            }
            _ => {
                let answer = Arc::new(Message::new(Role::Assistant, parts));
                turn.steps.push(Step { answer, results, texts, at: self.at });
            }
        }
    }

    fn results(&mut self, parts: Vec<Part>) {
        let Some(step) = self.recorded.turns.last_mut().and_then(|turn| turn.steps.last_mut()) else { return };
        for part in parts {
            if let Part::ToolResult { call_id, output, is_error } = part
                && let Some(at) = self.open.remove(&call_id)
                && let Some(waiting) = step.results.get_mut(at)
            {
                *waiting = result(call_id, output, is_error);
            }
        }
    }

    /// Gives up on results for the calls that are still open.
    fn settle(&mut self) {
        self.open.clear();
    }

    fn said(&mut self, id: Option<String>, parts: &[Part], is_user: bool) {
        let text = Message::new(Role::User, parts.to_vec()).text();
        let normal = normal(&text);
        let at = self.recorded.texts.len();
        if let Some(id) = id {
            self.ids.insert(id, at);
        }
        let tokens = self.counter.text(&text);
        self.recorded.texts.push(Said { text: normal.into(), is_user, tokens, wanted: 0 });
    }
}

fn result(call_id: CallId, output: String, is_error: bool) -> Arc<Message> {
    Arc::new(Message::new(Role::Tool, vec![Part::ToolResult { call_id, output, is_error }]))
}

/// Returns a text with every run of white space replaced by one space, and none at its ends, so that the same words in
/// another layout compare equal.
pub(crate) fn normal(text: &str) -> String {
    let mut normal = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !normal.is_empty() {
            normal.push(' ');
        }
        normal.push_str(word);
    }
    normal
}
