//! The values that settings have where a number or a text would say too little.

use super::rules::is_token;
use secrecy::SecretString;
use std::{collections::BTreeMap, fmt, sync::Arc};

/// Characters of a token's name; it stands in every session's head.
const NAME_CHARS_MAX: usize = 64;

/// A value chosen by name.
pub trait Choice: Copy + 'static {
    /// Every name with its value; the first name of a value is its own, the others stand for it.
    const CHOICES: &'static [(&'static str, Self)];
}

macro_rules! choices {
    ($($(#[$doc:meta])* $Choice:ident { $($(#[$value_doc:meta])* $Value:ident = $($name:literal)|+,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $Choice { $($(#[$value_doc])* $Value,)+ }

        impl Choice for $Choice {
            const CHOICES: &'static [(&'static str, Self)] = &[$($(($name, Self::$Value),)+)+];
        }
    )+};
}

choices! {
    /// `MODEL_PROVIDER`, before it is resolved by [`super::ModelSettings::provider`].
    ProviderChoice {
        /// `openai` where a key or a base URL is set, `offline` otherwise.
        Auto = "auto",
        /// An OpenAI-compatible server.
        OpenAi = "openai",
        /// The built-in model.
        Offline = "offline",
    }

    /// `OPENAI_API`: which of the two APIs is spoken.
    OpenAiApi {
        /// Responses at OpenAI's own address, Chat Completions elsewhere.
        Auto = "auto",
        /// The Responses API.
        Responses = "responses",
        /// Chat Completions.
        Chat = "chat",
    }

    /// `SUMMARY_REQUEST`: where summaries are made.
    SummaryPlace {
        /// `cached_prefix` where the session's own model summarises and its provider was seen to cache, else `quoted`.
        Auto = "auto",
        /// In a request of their own.
        Quoted = "quoted",
        /// Behind the request that the conversation would send.
        CachedPrefix = "cached_prefix",
    }

    /// `SUMMARY_KIND`: what conversations are about.
    SummaryKind {
        /// Recognised for each summary.
        Auto = "auto",
        /// People and what they tell.
        Chat = "chat",
        /// Work on code.
        Code = "code",
        /// The search for a fault.
        Debugging = "debugging",
        /// Reading.
        Research = "research",
    }

    /// `SUMMARY_FORM`: the form that summaries are asked for in.
    SummaryForm {
        /// The six sections.
        Sections = "sections",
        /// Plain text.
        Free = "free",
    }

    /// `CONTEXT_ESTIMATOR`: whose way of estimating tokens.
    ContextEstimator {
        /// The model's tokenizer or character weights.
        Own = "own",
        /// pi's.
        Pi = "pi",
    }

    /// `CONTEXT_CUT_RULE`: whose rule says where a compaction cuts.
    ContextCutRule {
        /// The legal cut that keeps what is closest to the wish.
        Own = "own",
        /// pi's.
        Pi = "pi",
    }

    /// `LOG_FORMAT`: how a line of the log looks.
    LogFormat {
        /// For people.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

/// Characters of the name of a tool or of its argument; model servers take no longer ones.
const TOOL_CHARS_MAX: usize = 128;

/// A tool whose calls name a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileTool {
    /// The tool's name.
    pub tool: String,
    /// The argument that is the path.
    pub argument: String,
}

impl FileTool {
    pub(super) fn parse(item: &str) -> Result<Self, &'static str> {
        let (tool, argument) = item.split_once(':').ok_or("an item has no `:` between tool and argument")?;
        let (tool, argument) = (tool.trim(), argument.trim());
        let is_name = |name: &str| {
            (1..=TOOL_CHARS_MAX).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        if !is_name(tool) || !is_name(argument) {
            return Err("an item's tool or argument is not a name");
        }
        Ok(Self { tool: tool.to_owned(), argument: argument.to_owned() })
    }
}

/// Variables that are no settings: a file can name one of them in the place of a secret. They are never shown.
#[derive(Clone, Default)]
pub struct Variables(Arc<BTreeMap<String, SecretString>>);

impl Variables {
    pub(super) fn new(variables: impl Iterator<Item = (String, String)>) -> Self {
        Self(Arc::new(variables.map(|(name, value)| (name, SecretString::from(value))).collect()))
    }

    /// What a variable holds; `None` where it is not set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&SecretString> {
        self.0.get(name)
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Variables(..)")
    }
}

/// Who may come in, and by which token.
#[derive(Debug, Clone)]
pub struct NamedToken {
    /// The name that owns what this token makes.
    pub name: String,
    /// The token; compare it in constant time.
    pub token: SecretString,
}

impl NamedToken {
    pub(super) fn parse(item: &str) -> Result<Self, &'static str> {
        let (name, token) = item.split_once(':').ok_or("an item has no `:` between name and token")?;
        let (name, token) = (name.trim(), token.trim());
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.bytes().all(is_name) {
            return Err("an item's name is not one");
        }
        if !is_token(token) {
            return Err("an item's token is empty or has other characters than printable ASCII");
        }
        Ok(Self { name: name.to_owned(), token: SecretString::from(token) })
    }
}

/// A web origin as browsers send it: `scheme://host` and, where it is not the scheme's own, `:port`; lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(String);

impl Origin {
    /// The origin as it stands in an `Origin` header.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn parse(item: &str) -> Result<Self, &'static str> {
        let origin = item.to_ascii_lowercase();
        let (scheme, host) = origin.split_once("://").ok_or("an origin begins with https:// or http://")?;
        if !matches!(scheme, "http" | "https") {
            return Err("an origin begins with https:// or http://");
        }
        if host.contains('*') {
            return Err("`*` would let every page in; name each origin");
        }
        if host.contains(['/', '@', '?', '#']) || !is_token(host) {
            return Err("an origin is scheme, host and port only, without a `/` at its end");
        }
        let own_port = if scheme == "https" { ":443" } else { ":80" };
        let host = host.strip_suffix(own_port).unwrap_or(host);
        Ok(Self(format!("{scheme}://{host}")))
    }
}
