//! The changes that a model's server needs before it accepts a request.
//!
//! Servers of one API accept different parts of it. A need names a part and the change: the part is left out or written
//! differently. The provider makes the change; the receipt of the request names it.

use std::fmt;

macro_rules! needs {
    ($($(#[doc = $doc:literal])+ $need:ident = $name:literal,)*) => {
        /// A change that requests to a model need.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Need { $($(#[doc = $doc])+ $need,)* }

        impl Need {
            /// All needs, in the order in which the table of servers lists them.
            pub const ALL: &[Self] = &[$(Self::$need,)*];

            /// Returns the name of the part, as receipts and log lines show it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$need => $name,)* }
            }

            /// Returns a one-sentence description of the change.
            #[must_use]
            pub fn what(self) -> &'static str {
                match self { $(Self::$need => concat!($($doc),+).trim_ascii(),)* }
            }
        }
    };
}

needs! {
    /// The output limit is sent as `max_completion_tokens`.
    NewLimit = "max_completion_tokens",
    /// The output limit is sent as `max_tokens`.
    OldLimit = "max_tokens",
    /// No output limit is sent.
    NoLimit = "output_limit",
    /// `temperature` and `top_p` are left out.
    NoTemperature = "temperature",
    /// `top_p` is left out.
    NoTopP = "top_p",
    /// The reasoning effort is left out.
    NoEffort = "reasoning_effort",
    /// The model is not asked to think.
    NoThinking = "thinking",
    /// `stream_options` is left out, so usage may not be reported.
    NoStreamOptions = "stream_options",
    /// `tool_choice` is left out.
    NoToolChoice = "tool_choice",
    /// `strict` of tools is left out.
    NoStrict = "strict",
    /// Images are replaced by a note.
    NoImages = "images",
    /// Tools are left out; the calls and results of the history are sent as text.
    NoTools = "tools",
    /// Each of several calls made at once is sent as an answer of its own, followed by its result.
    OneCall = "parallel_tool_calls",
    /// Ids of calls are translated to nine letters and digits.
    ShortIds = "tool_call_ids",
    /// Users and answers alternate, and an answer stands between a result and the user: a short one is put in.
    Alternate = "roles",
    /// Messages of the user that follow one another are not joined: a short answer is put between them.
    Apart = "user_messages",
    /// The system prompt is sent at the beginning of the first user message.
    NoSystem = "system_role",
    /// An answer that only calls tools is sent with `content: ""`.
    EmptyContent = "empty_content",
    /// An answer that only calls tools is sent with `content: null`.
    NullContent = "null_content",
    /// Reasoning and other fields that came with answers are not sent back.
    NoOwnFields = "own_fields",
    /// Calls of answers without reasoning are sent with a word in its place.
    ReasoningBack = "missing_reasoning",
    /// Calls without a signature are sent with the one that Google documents for calls of other models.
    Signature = "missing_signature",
    /// Encrypted reasoning is neither asked for nor sent back.
    NoSealed = "encrypted_reasoning",
    /// Reasoning that another server or model has sealed is not sent.
    Foreign = "foreign_reasoning",
    /// The format of the answer is left out.
    NoFormat = "format",
    /// The probabilities of tokens are not asked for.
    NoLogprobs = "logprobs",
    /// The provider is not asked to compare the request with the previous one.
    NoDiagnostics = "cache_diagnostics",
    /// The provider is not asked for a compaction of its own.
    NoCompaction = "compaction",
    /// The provider's own form of a summary is not sent; the readable text is.
    NoNative = "compaction_item",
}

impl Need {
    /// Returns true if the request becomes smaller than it was counted. `Foreign` does so only until the model has
    /// reported a request.
    #[must_use]
    pub fn shrinks(self) -> bool {
        matches!(
            self,
            Self::NoImages | Self::NoTools | Self::NoOwnFields | Self::NoSealed | Self::NoNative | Self::Foreign
        )
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs(u32);

impl Needs {
    /// Creates a set of these needs.
    #[must_use]
    pub fn of(needs: &[Need]) -> Self {
        needs.iter().fold(Self::default(), |set, need| set.with(*need))
    }

    /// Returns true if it has this need.
    #[must_use]
    pub fn has(self, need: Need) -> bool {
        self.0 & bit(need) != 0
    }

    /// Returns the set with this need, and without the need that it contradicts.
    #[must_use]
    pub fn with(self, need: Need) -> Self {
        let other = match need {
            Need::NewLimit => Some(Need::OldLimit),
            Need::OldLimit => Some(Need::NewLimit),
            Need::EmptyContent => Some(Need::NullContent),
            Need::NullContent => Some(Need::EmptyContent),
            Need::ReasoningBack => Some(Need::NoOwnFields),
            Need::NoOwnFields => Some(Need::ReasoningBack),
            _ => None,
        };
        Self((self.0 | bit(need)) & !other.map_or(0, bit))
    }

    /// Returns the set without this need.
    #[must_use]
    pub fn without(self, need: Need) -> Self {
        Self(self.0 & !bit(need))
    }

    /// Returns the set with these needs too.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        others.iter().fold(self, Self::with)
    }

    /// Iterates over the needs.
    pub fn iter(self) -> impl Iterator<Item = Need> {
        Need::ALL.iter().copied().filter(move |need| self.has(*need))
    }

    /// Returns true if there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

fn bit(need: Need) -> u32 {
    1 << need as u32
}

/// A refusal of a part of a request, as far as the server's message tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The changes that may help, most likely first.
    pub needs: Box<[Need]>,
    /// Those that concern the content of this request (a damaged image, a tool's schema, the value of an option), not
    /// what the model accepts. They are not learned for other requests.
    pub of_request: Needs,
    /// The most images in one request, if there were too many.
    pub images_max: Option<u16>,
    /// The server could not parse its own model's output; the request is not at fault.
    pub of_sample: bool,
    /// The body has too many bytes, which says nothing about its tokens.
    pub of_bytes: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_excludes_its_opposite() {
        let set = Needs::of(&[Need::NewLimit, Need::NoTools]).with(Need::OldLimit);
        assert_eq!(set.iter().collect::<Vec<_>>(), [Need::OldLimit, Need::NoTools]);
        assert!(Need::ALL.len() <= 32 && Needs::default().is_empty());
    }
}
