//! Measures one replay: the tokens sent, how many of them a provider's cache could have served, and how much of the
//! conversation is kept.
//!
//! - *Cached* tokens are those in the longest common prefix with the previous turn request, for a provider cache that
//!   never evicts and has no minimum size. *Lost* tokens were in that request but are not in the prefix.
//! - A text is *kept* if the context contains all of it: as a message of its own, or within a text that is not from the
//!   record, such as a summary that quotes it. White space does not count.

use super::{
    lifetimes::{Asked, Lifetimes},
    recorded::{Recorded, Step, normal},
};
use crate::core::{
    context::{count::Fixed, counter::Counter},
    prices::Price,
};
use reseed_protocol::{
    Message, Part, Timestamp,
    context::{SystemPrompt, ToolDefinition},
};
use serde::Serialize;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// The tokens of all requests of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sent {
    pub(crate) requests: u64,
    /// Tokens sent, including those that a cache could have served.
    pub(crate) input_tokens: u64,
    /// Tokens that a cache could have served.
    pub(crate) cached_tokens: u64,
    /// Tokens of the previous request that are not in the common prefix.
    pub(crate) lost_tokens: u64,
    pub(crate) output_tokens: u64,
}

/// How much of the conversation is kept, in the context or in total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Kept {
    /// The number of kept sources of recorded questions; a source counts once per question that needs it.
    pub(crate) sources: u64,
    pub(crate) sources_said: u64,
    /// The kept tokens of the user's texts.
    pub(crate) user_tokens: u64,
    pub(crate) user_tokens_said: u64,
}

/// Dollars, in billionths, by class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Dollars {
    pub(crate) input_nano_usd: u64,
    pub(crate) cached_nano_usd: u64,
    pub(crate) output_nano_usd: u64,
    /// The cost of all requests for summaries.
    pub(crate) summaries_nano_usd: u64,
}

/// A request as it was sent.
pub(crate) struct Request<'a> {
    pub(crate) system: &'a SystemPrompt,
    pub(crate) tools: &'a [ToolDefinition],
    pub(crate) messages: Vec<&'a Arc<Message>>,
}

/// The measurements of one replay.
pub(crate) struct Meter<'a> {
    recorded: &'a Recorded,
    counter: Counter,
    said: HashSet<&'a str>,
    /// The tokens of each message, by address. Holding the message keeps its address from being reused.
    tokens: HashMap<usize, (Arc<Message>, u64)>,
    before: Option<SentBefore>,
    pub(crate) turns: Sent,
    pub(crate) summaries: Sent,
    /// The largest request.
    pub(crate) peak_tokens: u64,
    /// The time of the running turn's next request, if it is known.
    pub(crate) at: Option<Timestamp>,
    /// The requests of turns whose times are known.
    asked: Vec<Asked>,
}

/// The previous request.
struct SentBefore {
    system: String,
    tools: Vec<ToolDefinition>,
    fixed_tokens: u64,
    messages: Vec<Arc<Message>>,
    tokens: u64,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(recorded: &'a Recorded, counter: Counter) -> Self {
        Self {
            recorded,
            counter,
            said: recorded.texts.iter().map(|said| &*said.text).collect(),
            tokens: HashMap::new(),
            before: None,
            turns: Sent::default(),
            summaries: Sent::default(),
            peak_tokens: 0,
            at: None,
            asked: Vec::new(),
        }
    }

    /// Returns the tokens of a message.
    pub(crate) fn tokens(&mut self, message: &Arc<Message>) -> u64 {
        if let Some(tokens) = self.recorded.tokens(message) {
            return tokens;
        }
        let counter = self.counter;
        let count = || (message.clone(), counter.message(message).total());
        self.tokens.entry(Arc::as_ptr(message) as usize).or_insert_with(count).1
    }

    /// Adds the tokens of messages that were counted elsewhere.
    pub(crate) fn counted<'m>(&mut self, messages: impl Iterator<Item = (&'m Arc<Message>, u64)>) {
        for (message, tokens) in messages {
            self.tokens.entry(Arc::as_ptr(message) as usize).or_insert_with(|| (message.clone(), tokens));
        }
    }

    /// Records a turn's request and returns its tokens.
    pub(crate) fn turn(&mut self, request: &Request<'_>) -> u64 {
        let (fixed_tokens, tokens, cached) = self.measured(request);
        let lost = self.before.as_ref().map_or(0, |before| before.tokens - cached.min(before.tokens));
        self.turns.requests += 1;
        self.turns.input_tokens += tokens;
        self.turns.cached_tokens += cached;
        self.turns.lost_tokens += lost;
        self.asked.extend(self.at.map(|at| Asked { at, until: at, tokens, cached_tokens: cached.min(tokens) }));
        self.peak_tokens = self.peak_tokens.max(tokens);
        self.before = Some(SentBefore {
            system: request.system.compiled.clone(),
            tools: request.tools.to_vec(),
            fixed_tokens,
            messages: request.messages.iter().map(|message| (*message).clone()).collect(),
            tokens,
        });
        tokens
    }

    /// Records the answer to a turn's request.
    pub(crate) fn answered(&mut self, step: &Step) {
        self.turns.output_tokens += self.tokens(&step.answer);
        if let (Some(asked), Some(at)) = (self.asked.last_mut().filter(|_| self.at.is_some()), step.at) {
            (asked.until, self.at) = (at, Some(at));
        }
    }

    /// Records a request for a summary and returns its tokens.
    pub(crate) fn summary(&mut self, request: &Request<'_>) -> u64 {
        let (_, tokens, cached) = self.measured(request);
        self.summaries.requests += 1;
        self.summaries.input_tokens += tokens;
        self.summaries.cached_tokens += cached;
        tokens
    }

    /// Records the written summary.
    pub(crate) fn summarised(&mut self, parts: &[Part]) {
        for part in parts {
            if let Part::Text { text } = part {
                self.summaries.output_tokens += self.counter.text(text);
            }
        }
    }

    /// Returns the tokens of a request: those before its messages, all of them, and those in the common prefix with the
    /// previous request.
    fn measured(&mut self, request: &Request<'_>) -> (u64, u64, u64) {
        let same = self
            .before
            .as_ref()
            .filter(|before| before.system == request.system.compiled && before.tools == request.tools);
        let fixed_tokens = match same {
            Some(before) => before.fixed_tokens,
            None => Fixed::counted(&self.counter, &request.system.compiled, request.tools).total(),
        };
        let shared = same.map_or(0, |before| {
            let pairs = before.messages.iter().zip(&request.messages);
            pairs.take_while(|(a, b)| Arc::ptr_eq(a, b) || is_same(a, b)).count()
        });
        let is_same = same.is_some();
        let mut tokens = fixed_tokens;
        let mut cached = if is_same { fixed_tokens } else { 0 };
        for (at, message) in request.messages.iter().enumerate() {
            let own = self.tokens(message);
            tokens += own;
            if at < shared {
                cached += own;
            }
        }
        // The cache also serves the common beginning of the first message that differs.
        if is_same
            && let Some(message) = request.messages.get(shared)
            && let Some(other) = self.before.as_ref().and_then(|before| before.messages.get(shared))
            && other.role == message.role
        {
            let (text, other) = (message.text(), other.text());
            let common = text.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
            let own = self.tokens(message);
            cached += own * common as u64 / (text.len() as u64).max(1);
        }
        (fixed_tokens, tokens, cached)
    }

    /// Measures how much of the first `texts` texts a context keeps.
    pub(crate) fn kept<'m>(&self, context: impl Iterator<Item = &'m Message>, texts: usize) -> Kept {
        let (mut whole, mut others) = (HashSet::new(), Vec::new());
        for message in context {
            let mut parts: Vec<String> = message.content.iter().filter_map(text_of).map(normal).collect();
            if parts.len() > 1 {
                parts.push(parts.join(" "));
            }
            for text in parts {
                if self.said.contains(text.as_str()) {
                    whole.insert(text);
                } else {
                    others.push(text);
                }
            }
        }
        let mut kept = Kept::default();
        for said in &self.recorded.texts[..texts] {
            kept.sources_said += said.wanted;
            kept.user_tokens_said += if said.is_user { said.tokens } else { 0 };
            if said.wanted == 0 && !said.is_user {
                continue;
            }
            let is_kept = !said.text.is_empty()
                && (whole.contains(&*said.text) || others.iter().any(|other| other.contains(&*said.text)));
            if is_kept {
                kept.sources += said.wanted;
                kept.user_tokens += if said.is_user { said.tokens } else { 0 };
            }
        }
        kept
    }

    /// Returns the costs with a cache that forgets; `None` if the times are not known.
    pub(crate) fn lifetimes(&self, price: Price) -> Option<Lifetimes> {
        (!self.asked.is_empty()).then(|| Lifetimes::of(&self.asked, price))
    }

    /// Returns the cost.
    pub(crate) fn dollars(&self, price: Price) -> Dollars {
        let nano = |tokens: u64, pico: u64| {
            let nano = (u128::from(tokens) * u128::from(pico) + 500) / 1_000;
            u64::try_from(nano).unwrap_or(u64::MAX)
        };
        let of = |sent: &Sent| {
            // Tokens that are not in the cache are written to it.
            let input = nano(sent.input_tokens - sent.cached_tokens, price.written);
            (input, nano(sent.cached_tokens, price.cached), nano(sent.output_tokens, price.output))
        };
        let (input_nano_usd, cached_nano_usd, output_nano_usd) = of(&self.turns);
        let (input, cached, output) = of(&self.summaries);
        Dollars { input_nano_usd, cached_nano_usd, output_nano_usd, summaries_nano_usd: input + cached + output }
    }
}

/// Returns true if both look the same to a provider.
fn is_same(a: &Message, b: &Message) -> bool {
    a.role == b.role && a.content == b.content
}

/// Returns the text of a part.
fn text_of(part: &Part) -> Option<&str> {
    match part {
        Part::Text { text } => Some(text),
        _ => None,
    }
}

impl Sent {
    pub(crate) fn add(&mut self, more: &Self) {
        self.requests += more.requests;
        self.input_tokens += more.input_tokens;
        self.cached_tokens += more.cached_tokens;
        self.lost_tokens += more.lost_tokens;
        self.output_tokens += more.output_tokens;
    }
}

impl Kept {
    pub(crate) fn add(&mut self, more: &Self) {
        self.sources += more.sources;
        self.sources_said += more.sources_said;
        self.user_tokens += more.user_tokens;
        self.user_tokens_said += more.user_tokens_said;
    }
}

impl Dollars {
    pub(crate) fn total(&self) -> u64 {
        self.input_nano_usd + self.cached_nano_usd + self.output_nano_usd + self.summaries_nano_usd
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.input_nano_usd += more.input_nano_usd;
        self.cached_nano_usd += more.cached_nano_usd;
        self.output_nano_usd += more.output_nano_usd;
        self.summaries_nano_usd += more.summaries_nano_usd;
    }
}
