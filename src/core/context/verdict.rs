//! The provider's verdict on its cache: what it says about a request and the previous one, and whether our receipt
//! agrees.
//!
//! Both compare the same two requests, in the order model, tools, system prompt, messages. A provider names the first
//! of these that differs. Receipts name the message too, which providers do not say.

use reseed_protocol::receipt::{CacheVerdict, PrefixBreak, ProviderVerdict};

/// The reasons of Anthropic (`diagnostics.cache_miss_reason`) and OpenAI (`prompt_cache_diagnostics`), and the part
/// that each is about. A conversation that OpenAI itself has compacted has other messages.
const REASONS: &[(&str, &str)] = &[
    ("model_changed", MODEL),
    ("tools_changed", TOOLS),
    ("system_changed", SYSTEM),
    ("messages_changed", MESSAGES),
    ("context_compacted", MESSAGES),
    ("input_changed", INPUT),
    ("prompt_cache_key_changed", OPTIONS),
    ("text_format_changed", OPTIONS),
    ("reasoning_effort_changed", OPTIONS),
    ("verbosity_changed", OPTIONS),
    ("service_tier_changed", OPTIONS),
];

const MODEL: &str = "model";
const TOOLS: &str = super::prefix::TOOLS_PART;
const SYSTEM: &str = "system";
const MESSAGES: &str = "messages";
/// The system prompt or the messages, which OpenAI does not tell apart.
const INPUT: &str = "input";
/// What receipts do not compare.
const OPTIONS: &str = "options";

/// Maximum characters of a reason. Known ones have 30.
const REASON_CHARS_MAX: usize = 64;

/// What a provider said about a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// True if it said that the request starts with the previous one.
    pub is_hit: bool,
    /// Its reason why not, or why it cannot tell; `None` if it gave none or is not ready.
    pub reason: Option<String>,
    /// The tokens that it could not reuse, as it estimates.
    pub lost_tokens: Option<u64>,
}

impl Diagnosis {
    /// Creates the diagnosis of a request that starts with the previous one.
    #[must_use]
    pub fn hit() -> Self {
        Self { is_hit: true, ..Self::default() }
    }

    /// Creates a diagnosis with a reason, if there is one. Anything that is not a plain word is left out.
    #[must_use]
    pub fn because(reason: Option<&str>, lost_tokens: Option<u64>) -> Self {
        let is_plain = |word: &&str| {
            word.len() <= REASON_CHARS_MAX && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        Self { is_hit: false, reason: reason.filter(is_plain).map(str::to_owned), lost_tokens }
    }

    /// Returns the verdict for a receipt in which the prefix broke here.
    #[must_use]
    pub fn verdict(&self, broke: Option<&PrefixBreak>) -> ProviderVerdict {
        let known = REASONS.iter().find(|(reason, _)| self.reason.as_deref() == Some(*reason));
        let part = known.map(|(_, part)| *part).filter(|_| !self.is_hit);
        let verdict = match part {
            _ if self.is_hit => CacheVerdict::Hit,
            Some(_) => CacheVerdict::Miss,
            None => CacheVerdict::Unknown,
        };
        let ours = broke.map(|broke| part_of(&broke.part));
        let agrees = match part {
            None if self.is_hit => Some(ours.is_none()),
            None | Some(OPTIONS) => None,
            Some(INPUT) => Some(matches!(ours, Some(SYSTEM | MESSAGES))),
            part => Some(part == ours),
        };
        let reason = self.reason.clone();
        ProviderVerdict { verdict, reason, part: part.map(str::to_owned), lost_tokens: self.lost_tokens, agrees }
    }
}

/// Returns the provider's name for a part of a receipt.
#[must_use]
pub fn part_of(part: &str) -> &'static str {
    match part.split_once(':').map_or(part, |(kind, _)| kind) {
        MODEL => MODEL,
        TOOLS => TOOLS,
        SYSTEM => SYSTEM,
        _ => MESSAGES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::receipt::BreakReason;

    #[test]
    fn a_verdict_agrees_if_it_names_the_same_part() {
        use CacheVerdict::{Hit, Miss, Unknown};
        let broke = |part: &str| {
            let (part, reason) = (part.to_owned(), BreakReason::Unknown);
            (!part.is_empty()).then_some(PrefixBreak { part, reason, detail: None, lost_tokens: 1 })
        };
        // What the provider says, the part in the receipt, the verdict, the provider's part, whether they agree.
        type Case = (&'static str, &'static str, CacheVerdict, Option<&'static str>, Option<bool>);
        let table: &[Case] = &[
            ("", "", Hit, None, Some(true)),
            ("", "message:m1", Hit, None, Some(false)),
            ("model_changed", "model", Miss, Some("model"), Some(true)),
            ("model_changed", "", Miss, Some("model"), Some(false)),
            ("tools_changed", "tools", Miss, Some("tools"), Some(true)),
            ("tools_changed", "system:base", Miss, Some("tools"), Some(false)),
            ("system_changed", "system:base", Miss, Some("system"), Some(true)),
            ("system_changed", "message:m1", Miss, Some("system"), Some(false)),
            ("messages_changed", "message:m1", Miss, Some("messages"), Some(true)),
            ("messages_changed", "message", Miss, Some("messages"), Some(true)),
            ("context_compacted", "message:m1", Miss, Some("messages"), Some(true)),
            ("input_changed", "message", Miss, Some("input"), Some(true)),
            ("input_changed", "system:time", Miss, Some("input"), Some(true)),
            ("input_changed", "tools", Miss, Some("input"), Some(false)),
            ("input_changed", "", Miss, Some("input"), Some(false)),
            ("reasoning_effort_changed", "", Miss, Some("options"), None),
            ("service_tier_changed", "message:m1", Miss, Some("options"), None),
            ("unavailable", "", Unknown, None, None),
            ("previous_message_not_found", "model", Unknown, None, None),
            ("comparison_response_not_found", "", Unknown, None, None),
            ("a_word_of_next_year", "tools", Unknown, None, None),
        ];
        for (said, part, verdict, theirs, agrees) in table {
            let diagnosis = if said.is_empty() { Diagnosis::hit() } else { Diagnosis::because(Some(said), Some(7)) };
            let found = diagnosis.verdict(broke(part).as_ref());
            let expected = (*verdict, theirs.map(str::to_owned), *agrees);
            assert_eq!((found.verdict, found.part, found.agrees), expected, "{said} {part}");
            assert_eq!(found.reason.as_deref().unwrap_or_default(), *said);
        }
        let unclear = Diagnosis::because(Some("a sentence, with \"text\""), None).verdict(None);
        assert_eq!((unclear.verdict, unclear.reason), (Unknown, None));
    }
}
