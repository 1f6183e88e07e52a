//! Types of settings that are more than a number or text.

use super::{
    rules::is_token,
    scopes::{Scope, Scopes},
};
use crate::core::{
    agent_loop::OfferHistory,
    compaction::{SummaryRequest, strategy::Options},
};
use secrecy::SecretString;
use std::{collections::BTreeMap, fmt, sync::Arc};

/// Maximum characters of a token's name, which is stored in the head of every session.
const NAME_CHARS_MAX: usize = 64;

/// A value chosen by name.
pub(super) trait Choice: Copy + 'static {
    /// Every name with its value. The first name of a value is canonical, and the others are aliases.
    const CHOICES: &'static [(&'static str, Self)];
}

/// Gives an enum its names, in one place and for every variant.
macro_rules! choices {
    ($($Choice:ident { $($Value:ident = $($name:literal)|+,)+ })+) => {$(
        impl Choice for $Choice {
            const CHOICES: &'static [(&'static str, Self)] = {
                // A variant without a name does not compile.
                let _: fn(Self) = |choice| match choice { $(Self::$Value => {})+ };
                &[$($(($name, Self::$Value),)+)+]
            };
        }
    )+};
}

choices! {
    ProviderChoice { Auto = "auto", OpenAi = "openai", Anthropic = "anthropic", }
    CacheTtl { Minutes = "5m", Hour = "1h", }
    DiagnosticsChoice { Auto = "auto", On = "on", Off = "off", }
    ApiChoice { Auto = "auto", Responses = "responses", Chat = "chat", }
    SummaryRequest { Auto = "auto", Quoted = "quoted", CachedPrefix = "cached_prefix", ProviderNative = "provider_native", }
    LogFormat { Text = "text", Json = "json", }
    Switch { Off = "off", On = "on", }
    OfferHistory { Off = "off", Auto = "auto", On = "on", }
}

/// `CONTEXT_STRATEGY`: the strategy of new sessions, with settings.
#[derive(Debug, Clone, PartialEq)]
pub struct ChosenStrategy {
    /// Its short name.
    pub name: &'static str,
    /// The settings of strategies that hold if a session sets none. Those that other variables set have their defaults.
    pub options: Options,
}

/// `MODEL_PROVIDER`: the provider of models whose names do not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderChoice {
    /// OpenAI's API if it is configured, otherwise Anthropic's.
    Auto,
    /// OpenAI's API.
    OpenAi,
    /// Anthropic's API.
    Anthropic,
}

/// `ANTHROPIC_CACHE_TTL`: how long the provider's cache keeps what a request writes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheTtl {
    /// Five minutes after its last use.
    Minutes,
    /// An hour after its last use.
    Hour,
}

/// `CACHE_DIAGNOSTICS`: whether providers are asked to compare each request with the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiagnosticsChoice {
    /// OpenAI's and Anthropic's own servers are.
    Auto,
    /// All are.
    On,
    /// None is.
    Off,
}

/// `OPENAI_API`: the API to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiChoice {
    /// Responses at OpenAI's own address, Chat Completions elsewhere.
    Auto,
    /// Always Responses.
    Responses,
    /// Always Chat Completions.
    Chat,
}

/// `LOG_FORMAT`: the format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// A setting that is either off or on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// It is off.
    Off,
    /// It is on.
    On,
}

impl Switch {
    /// Returns true if it is on.
    #[must_use]
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

/// Variables that are not settings. A file can name one of them instead of containing a secret. They are never shown.
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
    /// The name that owns everything created with this token.
    pub name: String,
    /// The token, which must be compared in constant time.
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

/// The most days of a retention: a hundred years.
const DAYS_MAX: u32 = 36_500;

/// A token with scopes: of an operator, or of a service, which is a backend that grants its own users access.
#[derive(Debug, Clone)]
pub struct ScopedToken {
    /// Its name, which for a service precedes the names of its users, and its token.
    pub named: NamedToken,
    /// The scopes of an operator, or those that a service can grant at most.
    pub scopes: Scopes,
}

impl ScopedToken {
    /// Parses a service's `name:token`, or `name/scope:token` with the maximum scope that the service can grant.
    pub(super) fn of_service(item: &str) -> Result<Self, &'static str> {
        Self::parse(item, |scope| match Scope::named(scope.unwrap_or(Scope::Sessions.name())) {
            Some(scope @ (Scope::Sessions | Scope::Read)) => Ok(scope),
            Some(_) => Err("a service never acts for operators"),
            None => Err("an item's scope is unknown"),
        })
    }

    /// Parses an operator's `name:token`, or `name/write:token` if they may change something.
    pub(super) fn of_operator(item: &str) -> Result<Self, &'static str> {
        Self::parse(item, |scope| match scope {
            None => Ok(Scope::Operator),
            Some("write") => Ok(Scope::OperatorWrite),
            Some(_) => Err("an item's scope is not `write`"),
        })
    }

    fn parse(item: &str, scope: impl Fn(Option<&str>) -> Result<Scope, &'static str>) -> Result<Self, &'static str> {
        let (name, token) = item.split_once(':').ok_or("an item has no `:` between name and token")?;
        let (name, given) = name.split_once('/').map_or((name, None), |(name, scope)| (name, Some(scope.trim())));
        Ok(Self { scopes: scope(given)?.into(), named: NamedToken::parse(&format!("{name}:{token}"))? })
    }
}

/// How many days sessions are kept after their last change; 0 for indefinitely.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retention {
    /// For owners of any other class.
    pub days: u32,
    /// For owners of these classes.
    pub classes: BTreeMap<String, u32>,
}

impl Retention {
    /// Parses `90`, or `90,guests=7,staff=0`.
    pub(super) fn parse<'a>(items: impl Iterator<Item = &'a str>) -> Result<Self, &'static str> {
        let (mut retention, mut has_days) = (Self::default(), false);
        for item in items {
            let (class, days) = item.split_once('=').map_or((None, item), |(class, days)| (Some(class.trim()), days));
            let days = days.trim().parse().ok().filter(|days| *days <= DAYS_MAX).ok_or("an item has no such number")?;
            let is_first = match class {
                Some("") => return Err("an item has no class before its `=`"),
                Some(class) => retention.classes.insert(class.to_owned(), days).is_none(),
                None => {
                    retention.days = days;
                    !std::mem::replace(&mut has_days, true)
                }
            };
            if !is_first {
                return Err("a class, or the number without one, is repeated");
            }
        }
        Ok(retention)
    }

    /// Returns the days for a class. If it is not known, they are the most of any.
    #[must_use]
    pub fn days_of(&self, class: Option<&str>) -> u32 {
        match class {
            Some(class) => self.classes.get(class).copied().unwrap_or(self.days),
            None => self.all().find(|days| *days == 0).unwrap_or_else(|| self.all().max().unwrap_or(0)),
        }
    }

    /// Returns the fewest days after which any session is deleted; `None` if none ever is.
    #[must_use]
    pub fn shortest(&self) -> Option<u32> {
        self.all().filter(|days| *days > 0).min()
    }

    fn all(&self) -> impl Iterator<Item = u32> {
        self.classes.values().copied().chain([self.days])
    }
}

/// A web origin as browsers send it: `scheme://host` in lower case, followed by `:port` unless it is the scheme's
/// default.
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
