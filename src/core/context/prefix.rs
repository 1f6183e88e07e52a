//! The part of a request that a provider may have cached: the longest prefix shared with the session's previous
//! request.
//!
//! A cache belongs to one model, and reads a request in this order: tools, system prompt, messages, messages for one
//! request only. Requests are compared by fingerprints of these parts, which messages carry since they were counted. So
//! the cost of a comparison depends on the number of messages, not on their length.

use crate::{
    context::{count::Fixed, messages::Counted},
    fingerprint::{chain, chained, fingerprint},
};
use reseed_protocol::{
    EntryId, Message, UsageSource,
    context::{SystemPart, SystemPrompt, ToolDefinition},
    receipt::SentPart,
};

/// Name of the tools in a receipt.
pub const TOOLS_PART: &str = "tools";
/// Name of the cached messages in a receipt.
const MESSAGES_PART: &str = "messages";
/// Name of the messages for one request only in a receipt.
const UNCACHED_PART: &str = "uncached";
/// Prefix of the name of a system part.
const SYSTEM_PREFIX: &str = "system:";
/// Prefix of a message's entry id, and the name of a message without one.
const MESSAGE: &str = "message";

/// A request that is about to be sent, or might be.
#[derive(Debug, Clone)]
pub struct PlannedRequest<'a> {
    model: &'a str,
    tools: Vec<Piece<'a>>,
    system: Vec<Piece<'a>>,
    messages: Vec<Piece<'a>>,
    /// Number of cached messages.
    cached: usize,
    tokens: u64,
}

#[derive(Debug, Clone, Copy)]
struct Piece<'a> {
    name: Option<&'a str>,
    hash: u64,
    /// Estimated tokens, before calibration.
    tokens: u64,
}

/// A request that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentRequest {
    model: String,
    tools: Run,
    system: Vec<(String, u64)>,
    cached: Run,
    uncached: Run,
    tokens: u64,
    /// Its estimate, before calibration; `None` if the request is only known from its receipt.
    estimate: Option<u64>,
}

/// Fingerprints of consecutive parts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Run {
    /// One per part.
    Each(Vec<u64>),
    /// One for all: what a receipt records.
    Whole(u64),
}

/// The common prefix of two requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedPrefix {
    /// Tokens of the shared prefix.
    pub tokens: u64,
    /// The point where they diverge, and the earlier one's tokens after that point; `None` if the later one continues
    /// the earlier one.
    pub broke: Option<(Divergence, u64)>,
}

/// The point where two requests diverge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Divergence {
    /// The requests go to different models.
    Model,
    /// The tools.
    Tools,
    /// The named part of the system prompt.
    System(String),
    /// A message of the later request, with its entry if it has one.
    Message(Option<EntryId>),
    /// A message that was sent with one request only.
    Uncached,
}

impl Divergence {
    /// Returns the name used in a receipt.
    #[must_use]
    pub fn part(&self) -> String {
        match self {
            Self::Model => "model".to_owned(),
            Self::Tools => TOOLS_PART.to_owned(),
            Self::System(name) => format!("{SYSTEM_PREFIX}{name}"),
            Self::Message(Some(entry)) => format!("{MESSAGE}:{entry}"),
            Self::Message(None) | Self::Uncached => MESSAGE.to_owned(),
        }
    }
}

impl<'a> PlannedRequest<'a> {
    /// Starts with the parts before the messages; their tokens are distributed by length.
    #[must_use]
    pub fn new(model: &'a str, system: &'a SystemPrompt, tools: &'a [ToolDefinition], fixed: Fixed) -> Self {
        let tool = |tool: &'a ToolDefinition| {
            let text = serde_json::to_string(tool).expect("tool definitions have text keys");
            (tool.name.as_str(), fingerprint(text.as_bytes()), text.len())
        };
        let part = |part: &'a SystemPart| (part.name.as_str(), fingerprint(part.text.as_bytes()), part.text.len());
        Self {
            model,
            tools: pieces(tools.iter().map(tool), fixed.tools),
            // A part without text is not sent.
            system: pieces(system.parts.iter().filter(|part| !part.text.is_empty()).map(part), fixed.system),
            messages: Vec::new(),
            cached: 0,
            tokens: 0,
        }
    }

    /// Adds the messages: those that the next request sends again, and those for this request only.
    #[must_use]
    pub fn with_messages(mut self, cached: &'a [Counted], uncached: &'a [Counted]) -> Self {
        let model = self.model;
        let piece = |counted: &'a Counted| Piece {
            name: counted.entry_id.as_ref().map(EntryId::as_str),
            hash: counted.hash,
            tokens: counted.tokens_for(model).total(),
        };
        self.messages = cached.iter().chain(uncached).map(piece).collect();
        self.cached = cached.len();
        self
    }

    /// Sets the request's total token count.
    #[must_use]
    pub fn counted_at(self, tokens: u64) -> Self {
        Self { tokens, ..self }
    }

    /// Returns the request's total token count.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Returns true if it offers tools.
    #[must_use]
    pub fn has_tools(&self) -> bool {
        !self.tools.is_empty()
    }

    /// Compares with an earlier request.
    #[must_use]
    pub fn shares(&self, earlier: &SentRequest) -> SharedPrefix {
        let (whole, place) = match self.parting(earlier) {
            Ok(()) => return SharedPrefix { tokens: earlier.tokens.min(self.tokens), broke: None },
            Err(parting) => parting,
        };
        let same: u64 = self.pieces().take(whole).map(|piece| piece.tokens).sum();
        // The prefix is measured as the earlier request was, possibly by the provider.
        let (tokens, estimate) = match earlier.estimate {
            Some(estimate) => (earlier.tokens, estimate),
            None => (self.tokens, self.estimate()),
        };
        let part = u128::from(tokens) * u128::from(same) / u128::from(estimate.max(1));
        let tokens = u64::try_from(part).unwrap_or(u64::MAX).min(earlier.tokens).min(self.tokens);
        SharedPrefix { tokens, broke: Some((place, earlier.tokens - tokens)) }
    }

    /// Returns the number of equal parts before the first different one, and where that one is.
    fn parting(&self, earlier: &SentRequest) -> Result<(), (usize, Divergence)> {
        if earlier.model != self.model {
            return Err((0, Divergence::Model));
        }
        let tools: Vec<u64> = self.tools.iter().map(|piece| piece.hash).collect();
        let (same, whole) = earlier.tools.beginning(&tools);
        if !whole || same < tools.len() {
            return Err((same, Divergence::Tools));
        }
        let before = self.tools.len();
        let differs =
            |at: &usize| self.system.get(*at).map(|piece| piece.hash) != earlier.system.get(*at).map(|it| it.1);
        if let Some(at) = (0..self.system.len().max(earlier.system.len())).find(differs) {
            let gone = || earlier.system.get(at).map(|(name, _)| name.as_str());
            let stays = |name: &&str| self.system.iter().any(|piece| piece.name == Some(*name));
            let here = self.system.get(at).and_then(|piece| piece.name);
            let name = gone().filter(|gone| !stays(gone)).or(here).or_else(gone).unwrap_or_default();
            return Err((before + at, Divergence::System(name.to_owned())));
        }
        let before = before + self.system.len();
        let messages: Vec<u64> = self.messages.iter().map(|piece| piece.hash).collect();
        let (same, whole) = earlier.cached.beginning(&messages);
        if !whole {
            let entry = self.messages.get(same).and_then(|piece| piece.name).and_then(|name| name.parse().ok());
            return Err((before + same, Divergence::Message(entry)));
        }
        let (again, whole) = earlier.uncached.beginning(&messages[same..]);
        if whole { Ok(()) } else { Err((before + same + again, Divergence::Uncached)) }
    }

    fn estimate(&self) -> u64 {
        self.pieces().map(|piece| piece.tokens).sum()
    }

    fn pieces(&self) -> impl Iterator<Item = &Piece<'a>> {
        self.tools.iter().chain(&self.system).chain(&self.messages)
    }

    /// Converts to a request that was sent.
    #[must_use]
    pub fn sent(&self) -> SentRequest {
        let each = |pieces: &[Piece<'_>]| Run::Each(pieces.iter().map(|piece| piece.hash).collect());
        let named = |piece: &Piece<'_>| (piece.name.unwrap_or_default().to_owned(), piece.hash);
        let (cached, uncached) = self.messages.split_at(self.cached);
        SentRequest {
            model: self.model.to_owned(),
            tools: each(&self.tools),
            system: self.system.iter().map(named).collect(),
            cached: each(cached),
            uncached: each(uncached),
            tokens: self.tokens,
            estimate: Some(self.estimate()),
        }
    }
}

impl SentRequest {
    /// Reconstructs the request of an answer from its receipt; `None` without one.
    #[must_use]
    pub fn of_answer(answer: &Message) -> Option<Self> {
        let receipt = answer.receipt.as_deref().filter(|receipt| !receipt.sent.is_empty())?;
        let read = |part: &SentPart| u64::from_str_radix(&part.hash, 16).ok();
        let run = |name: &str| {
            let part = receipt.sent.iter().find(|part| part.part == name);
            part.map_or(Some(Run::Each(Vec::new())), |part| read(part).map(Run::Whole))
        };
        let system = receipt.sent.iter().filter_map(|part| Some((part.part.strip_prefix(SYSTEM_PREFIX)?, part)));
        let mut sent = Self {
            model: answer.model.clone()?,
            tools: run(TOOLS_PART)?,
            system: system.map(|(name, part)| Some((name.to_owned(), read(part)?))).collect::<Option<_>>()?,
            cached: run(MESSAGES_PART)?,
            uncached: run(UNCACHED_PART)?,
            tokens: receipt.tokens,
            estimate: None,
        };
        let reported = answer.usage.as_ref().filter(|usage| usage.source == UsageSource::Reported);
        if let Some(usage) = reported {
            sent.answered(usage.input_tokens);
        }
        Some(sent)
    }

    /// Records the provider's count of its input tokens.
    pub fn answered(&mut self, input_tokens: u64) {
        if input_tokens > 0 {
            self.tokens = input_tokens;
        }
    }

    /// Returns the model that was asked.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns the parts that a receipt records.
    #[must_use]
    pub fn parts(&self) -> Vec<SentPart> {
        let part = |name: String, hash: u64| SentPart { part: name, hash: format!("{hash:016x}") };
        let runs = |name: &str, run: &Run| run.whole().map(|hash| part(name.to_owned(), hash));
        let system = self.system.iter().map(|(name, hash)| part(format!("{SYSTEM_PREFIX}{name}"), *hash));
        let tools = runs(TOOLS_PART, &self.tools).into_iter();
        let messages = runs(MESSAGES_PART, &self.cached).into_iter().chain(runs(UNCACHED_PART, &self.uncached));
        tools.chain(system).chain(messages).collect()
    }
}

impl Run {
    /// Returns how many parts of `next` it starts with, and whether these are all of its own parts.
    fn beginning(&self, next: &[u64]) -> (usize, bool) {
        match self {
            Self::Each(hashes) => {
                let same = hashes.iter().zip(next).take_while(|(one, other)| one == other).count();
                (same, same == hashes.len())
            }
            Self::Whole(hash) => {
                let mut sum = chained([]);
                for (at, next) in next.iter().enumerate() {
                    if sum == *hash {
                        return (at, true);
                    }
                    sum = chain(sum, *next);
                }
                if sum == *hash { (next.len(), true) } else { (0, false) }
            }
        }
    }

    /// Returns the combined fingerprint; `None` if there are no parts.
    fn whole(&self) -> Option<u64> {
        match self {
            Self::Each(hashes) if hashes.is_empty() => None,
            Self::Each(hashes) => Some(chained(hashes.iter().copied())),
            Self::Whole(hash) => Some(*hash),
        }
    }
}

/// Creates parts from names and fingerprints, distributing the tokens by length.
fn pieces<'a>(parts: impl Iterator<Item = (&'a str, u64, usize)>, tokens: u64) -> Vec<Piece<'a>> {
    let parts: Vec<(&str, u64, usize)> = parts.collect();
    let all: u128 = parts.iter().map(|(_, _, bytes)| *bytes as u128).sum();
    let share = |bytes: usize| u64::try_from(u128::from(tokens) * bytes as u128 / all.max(1)).unwrap_or(u64::MAX);
    parts.into_iter().map(|(name, hash, bytes)| Piece { name: Some(name), hash, tokens: share(bytes) }).collect()
}

#[cfg(test)]
mod tests;
