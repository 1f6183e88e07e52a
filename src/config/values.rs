//! Types of settings that are more than a number or text.

use super::rules::is_token;
use secrecy::SecretString;
use std::{collections::BTreeMap, fmt, sync::Arc};

/// Most characters of a token's name, which is stored in every session's head.
const NAME_CHARS_MAX: usize = 64;

/// A value chosen by name.
pub trait Choice: Copy + 'static {
    /// Every name with its value; the first name of a value is canonical, the others are aliases.
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
        /// `openai` if a key or a base URL is set, `offline` otherwise.
        Auto = "auto",
        /// An OpenAI-compatible server.
        OpenAi = "openai",
        /// The built-in model.
        Offline = "offline",
    }

    /// `OPENAI_API`: the API to use.
    OpenAiApi {
        /// Responses at OpenAI's own address, Chat Completions elsewhere.
        Auto = "auto",
        /// The Responses API.
        Responses = "responses",
        /// Chat Completions.
        Chat = "chat",
    }

    /// `SUMMARY_REQUEST`: how a summary is requested.
    SummaryPlace {
        /// `cached_prefix` if the session's own model summarises and its provider has been seen to cache, else
        /// `quoted`.
        Auto = "auto",
        /// In a separate request.
        Quoted = "quoted",
        /// Appended to the request that the conversation would send.
        CachedPrefix = "cached_prefix",
    }

    /// `SUMMARY_KIND`: the kind of conversation.
    SummaryKind {
        /// Detected for each summary.
        Auto = "auto",
        /// People and what they say.
        Chat = "chat",
        /// Work on code.
        Code = "code",
        /// Finding the cause of a fault.
        Debugging = "debugging",
        /// Research.
        Research = "research",
    }

    /// `SUMMARY_FORM`: the form of summaries.
    SummaryForm {
        /// The six sections.
        Sections = "sections",
        /// Plain text.
        Free = "free",
    }

    /// `CONTEXT_ESTIMATOR`: how tokens are estimated.
    ContextEstimator {
        /// The model's tokenizer or character weights.
        Own = "own",
        /// pi's.
        Pi = "pi",
    }

    /// `CONTEXT_CUT_RULE`: the rule for where a compaction cuts.
    ContextCutRule {
        /// The valid cut that keeps closest to the configured amount.
        Own = "own",
        /// pi's.
        Pi = "pi",
    }

    /// `LOG_FORMAT`: the format of a log line.
    LogFormat {
        /// For people.
        Text = "text",
        /// One JSON object per line.
        Json = "json",
    }
}

/// Most characters of a tool's or argument's name; model servers accept no longer ones.
const TOOL_CHARS_MAX: usize = 128;

/// A tool whose calls name a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileTool {
    /// The tool's name.
    pub tool: String,
    /// The argument that holds the path.
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
            return Err("an item's tool or argument name is invalid");
        }
        Ok(Self { tool: tool.to_owned(), argument: argument.to_owned() })
    }
}

/// Variables that are not settings: a file can name one of them instead of containing a secret. They are never shown.
#[derive(Clone, Default)]
pub struct Variables(Arc<BTreeMap<String, SecretString>>);

impl Variables {
    pub(super) fn new(variables: impl Iterator<Item = (String, String)>) -> Self {
        Self(Arc::new(variables.map(|(name, value)| (name, SecretString::from(value))).collect()))
    }

    /// Returns the value of a variable; `None` if it is not set.
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

/// A user and the token that authenticates them.
#[derive(Debug, Clone)]
pub struct NamedToken {
    /// The name that owns what is created with this token.
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
            return Err("an item's name is invalid");
        }
        if !is_token(token) {
            return Err("an item's token is empty or contains characters other than printable ASCII");
        }
        Ok(Self { name: name.to_owned(), token: SecretString::from(token) })
    }
}

/// A web origin as browsers send it: `scheme://host` and, unless it is the scheme's default, `:port`; in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(String);

impl Origin {
    /// Returns the origin as it appears in an `Origin` header.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn parse(item: &str) -> Result<Self, &'static str> {
        let origin = item.to_ascii_lowercase();
        let (scheme, host) = origin.split_once("://").ok_or("an origin starts with https:// or http://")?;
        if !matches!(scheme, "http" | "https") {
            return Err("an origin starts with https:// or http://");
        }
        if host.contains('*') {
            return Err("`*` would admit every page; list each origin");
        }
        if host.contains(['/', '@', '?', '#']) || !is_token(host) {
            return Err("an origin is only scheme, host and port, without a trailing `/`");
        }
        let own_port = if scheme == "https" { ":443" } else { ":80" };
        let host = host.strip_suffix(own_port).unwrap_or(host);
        Ok(Self(format!("{scheme}://{host}")))
    }
}
