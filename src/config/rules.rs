//! Rules: how the text of a setting is parsed, and how the allowed values are described.

use super::{
    declare::variable,
    listed::is_this_machine,
    scopes::Scope,
    values::{Choice, ChosenStrategy, NamedToken, Origin, Retention, ScopedToken},
};
use crate::{
    core::{
        compaction::{factory::Strategies, strategy::Options, written::written},
        prices::{Price, Prices},
    },
    store::{Database, InvalidDatabase, may_be_shown},
};
use ipnet::IpNet;
use secrecy::SecretString;
use std::{collections::BTreeMap, fmt::Display, net::IpAddr, ops::RangeInclusive, path::PathBuf, str::FromStr};
use tracing_subscriber::filter::LevelFilter;

/// Maximum characters of a value that an error repeats. More would hide the message.
const SHOWN_CHARS_MAX: usize = 80;

/// Maximum characters of a model's name, as for MODEL.
const MODEL_CHARS_MAX: usize = 256;

/// The reason why a parser refuses a text: a few words for the message, or an empty string.
type Refusal = &'static str;

/// Parses a text, which is empty only if a setting has no default.
type Parse<T> = Box<dyn Fn(&str) -> Result<T, String>>;

/// The rule of a setting.
pub(super) struct Rule<T> {
    /// Its unit; empty if it is not a number.
    pub(super) unit: &'static str,
    /// The allowed values, shown after `allowed: `.
    pub(super) allowed: String,
    /// True if its value must never be shown.
    pub(super) secret: bool,
    /// True if a running server applies a new value.
    pub(super) reloaded: bool,
    /// Returns true if an error may repeat a refused value.
    may_be_shown: fn(&str) -> bool,
    parse: Parse<T>,
}

impl<T: 'static> Rule<T> {
    fn new(allowed: impl Into<String>, parse: impl Fn(&str) -> Result<T, Refusal> + 'static) -> Self {
        Self::telling(allowed, move |text| parse(text).map_err(str::to_owned))
    }

    /// Like [`Self::new`], with a parser that names what it refuses.
    fn telling(allowed: impl Into<String>, parse: impl Fn(&str) -> Result<T, String> + 'static) -> Self {
        let allowed = allowed.into();
        Self { unit: "", allowed, secret: false, reloaded: false, may_be_shown: |_| true, parse: Box::new(parse) }
    }

    fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    fn secret(mut self) -> Self {
        self.secret = true;
        self.may_be_shown = |_| false;
        self
    }

    /// Returns the rule of a setting some of whose values may contain a secret.
    fn shown_if(mut self, may_be_shown: fn(&str) -> bool) -> Self {
        self.may_be_shown = may_be_shown;
        self
    }

    /// Returns the rule of a setting that a running server applies when it reads its settings again.
    pub(super) fn reloaded(mut self) -> Self {
        self.reloaded = true;
        self
    }

    /// Returns the rule with an empty default that means none.
    pub(super) fn optional(self) -> Rule<Option<T>> {
        let parse = self.parse;
        Rule {
            unit: self.unit,
            allowed: self.allowed,
            secret: self.secret,
            reloaded: self.reloaded,
            may_be_shown: self.may_be_shown,
            parse: Box::new(move |text| if text.is_empty() { Ok(None) } else { parse(text).map(Some) }),
        }
    }

    /// Parses a field from the given text, or otherwise from its default. Adds an error if the text is refused.
    pub(super) fn read(&self, field: &str, given: Option<&str>, default: &str, faults: &mut Vec<String>) -> Option<T> {
        let text = given.unwrap_or(default);
        let refusal = match (self.parse)(text) {
            Ok(value) => return Some(value),
            Err(refusal) => refusal,
        };
        let variable = variable(field);
        let value = match (self.may_be_shown)(text) {
            true => format!("`{}`", shown(text)),
            false => "set to a value that is not allowed".to_owned(),
        };
        let why = if refusal.is_empty() { String::new() } else { format!(" ({refusal})") };
        faults.push(format!("{variable} is {value}{why}; allowed: {}", self.allowed));
        None
    }
}

/// Shortens a value for an error: to one line of limited length, without the user name and password of an address.
fn shown(text: &str) -> String {
    let text = match text.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, host)) => format!("{scheme}://…@{host}"),
        None => text.to_owned(),
    };
    let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect::<String>().escape_debug().to_string();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// Accepts a whole number of `unit` within a range.
pub(super) fn whole<T>(unit: &'static str, range: RangeInclusive<T>) -> Rule<T>
where
    T: FromStr + PartialOrd + Display + 'static,
{
    Rule::new(format!("a whole number from {} to {}", range.start(), range.end()), move |text| {
        text.parse().ok().filter(|number| range.contains(number)).ok_or("")
    })
    .unit(unit)
}

/// Accepts a ratio above 0 and at most 1.
pub(super) fn share() -> Rule<f64> {
    Rule::new("a number above 0 and at most 1", |text| {
        text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0).ok_or("")
    })
}

/// Accepts `true` or `false`.
pub(super) fn flag() -> Rule<bool> {
    Rule::new("true, false", |text| text.to_ascii_lowercase().parse().map_err(|_| ""))
}

/// Accepts one of several names, ignoring case.
pub(super) fn choice<T: Choice>() -> Rule<T> {
    let names: Vec<&str> = T::CHOICES.iter().map(|(name, _)| *name).collect();
    Rule::new(names.join(", "), |text| {
        T::CHOICES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, value)| *value).ok_or("")
    })
}

/// Accepts a ratio from 0 to `most`.
pub(super) fn share_upto(most: f64) -> Rule<f64> {
    Rule::new(format!("a number from 0 to {most}"), move |text| {
        text.parse().ok().filter(|share| (0.0..=most).contains(share)).ok_or("")
    })
}

/// Accepts a strategy under any of its names, alone or with settings.
pub(super) fn strategy(strategies: &Strategies) -> Rule<ChosenStrategy> {
    let strategies = strategies.clone();
    let names = strategies.all_names().join(", ");
    let allowed = format!("{names}; alone or with settings, as in threshold:userShare=0.5,background=1");
    Rule::telling(allowed, move |text| {
        let (name, settings) = written(text)?;
        if settings.as_ref().is_some_and(|settings| settings.threshold.is_some()) {
            return Err("CONTEXT_COMPACTION_THRESHOLD sets threshold".to_owned());
        }
        let name = strategies.resolve(&name.to_ascii_lowercase(), "").map_err(|_| String::new())?;
        let options = strategies.options(settings.as_ref(), &Options::default()).map_err(|error| error.message)?;
        Ok(ChosenStrategy { name, options })
    })
}

/// Accepts text of at most `chars_max` characters.
pub(super) fn text(chars_max: usize) -> Rule<String> {
    Rule::new(format!("text of at most {chars_max} characters"), move |text| {
        if text.chars().count() <= chars_max { Ok(text.to_owned()) } else { Err("too long") }
    })
}

/// Accepts a secret, which is never shown. It is sent in an HTTP header, so it must be printable ASCII.
pub(super) fn secret() -> Rule<SecretString> {
    Rule::new("printable ASCII without spaces", |text| {
        if is_token(text) { Ok(SecretString::from(text)) } else { Err("it contains other characters") }
    })
    .secret()
}

/// Accepts the secret that the servers of a cluster share.
pub(super) fn node_token() -> Rule<SecretString> {
    Rule::new("at least 32 characters of printable ASCII without spaces", |text| match text {
        _ if !is_token(text) => Err("it contains other characters"),
        _ if text.len() < 32 => Err("it is too short"),
        _ => Ok(SecretString::from(text)),
    })
    .secret()
}

/// Accepts the address at which other servers reach this one.
pub(super) fn node_address() -> Rule<String> {
    Rule::new(
        "ws:// or wss:// and a host, with a port if it is not the usual one, such as ws://10.0.0.5:8080",
        |text| {
            let rest = text.strip_prefix("wss://").or_else(|| text.strip_prefix("ws://"));
            let rest = rest.ok_or("it starts with neither ws:// nor wss://")?.trim_end_matches('/');
            match rest {
                "" => Err("it has no host"),
                _ if rest.contains(['/', '?', '#', '@']) => Err("it has more than a host and a port"),
                _ if !is_token(rest) => Err("it contains characters that are not allowed in an address"),
                _ => Ok(text.trim_end_matches('/').to_owned()),
            }
        },
    )
}

/// Accepts the name of a server, which logs and lists show.
pub(super) fn node_name() -> Rule<String> {
    Rule::new("1 to 64 characters of printable ASCII without spaces", |text| {
        if is_token(text) && text.len() <= 64 { Ok(text.to_owned()) } else { Err("") }
    })
}

/// Accepts the address of an API. A password in it would reach logs, so it is refused, and the value is not repeated.
pub(super) fn base_url(example: &str) -> Rule<String> {
    Rule::new(
        format!("an http:// or https:// address without user name, password, query or fragment, such as {example}"),
        |text| {
            let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
            let rest = rest.ok_or("it starts with neither http:// nor https://")?;
            let host = rest.split('/').next().unwrap_or_default();
            match rest {
                _ if host.is_empty() => Err("it has no host"),
                _ if rest.contains('@') => Err("it contains a user name or password; set the API key instead"),
                _ if rest.contains(['?', '#']) => Err("it contains a query or fragment"),
                _ if !is_token(rest) => Err("it contains characters that are not allowed in an address"),
                _ => Ok(text.trim_end_matches('/').to_owned()),
            }
        },
    )
    .secret()
}

/// Accepts an IP address to listen on.
pub(super) fn address() -> Rule<IpAddr> {
    Rule::new("an IP address such as 127.0.0.1, 0.0.0.0 or ::1, or localhost", |text| {
        if text.eq_ignore_ascii_case("localhost") {
            return Ok(IpAddr::from([127, 0, 0, 1]));
        }
        text.parse().map_err(|_| "")
    })
}

/// Accepts the path of a directory or file.
pub(super) fn path() -> Rule<PathBuf> {
    Rule::new("a path", |text| Ok(PathBuf::from(text)))
}

/// Accepts the address of a database that survives a restart.
pub(super) fn database() -> Rule<Database> {
    Rule::new(
        "sqlite:// and the path of a file, such as sqlite://./data/reseed.db or sqlite:///var/lib/reseed.db; or \
         postgres://user:password@host:5432/database",
        |text| match text.parse() {
            Ok(database @ (Database::Sqlite(_) | Database::Postgres(_))) => Ok(database),
            Err(InvalidDatabase::Scheme { .. }) if !may_be_shown(text) => {
                Err("it is not shown, as it may hold a password")
            }
            Ok(Database::Memory) | Err(InvalidDatabase::Scheme { .. }) => Err(""),
            Err(InvalidDatabase::Path { reason, .. } | InvalidDatabase::Postgres { reason }) => Err(reason),
        },
    )
    .shown_if(may_be_shown)
}

/// Accepts a log filter: a level, or a list of `target=level`.
pub(super) fn log_filter() -> Rule<String> {
    Rule::new("off, error, warn, info, debug, trace, or a list such as info,reseed::server=debug", |text| {
        let directive = |text: &str| match text.split_once('=') {
            // A bare word that is not a level would be taken as a target, so a misspelt level would silence the log.
            None => text.parse::<LevelFilter>().is_ok(),
            Some((target, level)) => !target.is_empty() && level.parse::<LevelFilter>().is_ok(),
        };
        if text.split(',').all(|part| directive(part.trim())) { Ok(text.to_owned()) } else { Err("") }
    })
}

/// Accepts a list of `name:token`, separated by commas.
pub(super) fn tokens() -> Rule<Vec<NamedToken>> {
    Rule::new("a list of name:token, separated by commas; names of 1 to 64 of A-Z a-z 0-9 . _ -", |text| {
        items(text).map(NamedToken::parse).collect()
    })
    .secret()
}

/// Accepts a list of services, as `name:token` or `name/scope:token`, separated by commas.
pub(super) fn services() -> Rule<Vec<ScopedToken>> {
    Rule::new(
        "a list of name:token or name/scope:token, separated by commas; names of 1 to 64 of A-Z a-z 0-9 . _ -, and as \
         scope sessions or read",
        |text| items(text).map(ScopedToken::of_service).collect(),
    )
    .secret()
}

/// Accepts a list of operators, as `name:token` or `name/write:token`, separated by commas.
pub(super) fn operators() -> Rule<Vec<ScopedToken>> {
    Rule::new(
        "a list of name:token or name/write:token, separated by commas; names of 1 to 64 of A-Z a-z 0-9 . _ -",
        |text| items(text).map(ScopedToken::of_operator).collect(),
    )
    .secret()
}

/// Accepts the address of a JWK set.
pub(super) fn jwks_url() -> Rule<String> {
    Rule::new(
        "an https:// address, or http:// to 127.0.0.0/8, [::1] or localhost, without user name and password",
        |text| {
            let Some((scheme, rest)) = text.split_once("://") else { return Err("it has no scheme") };
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let host = match authority.strip_prefix('[') {
                Some(v6) => v6.split(']').next().unwrap_or_default(),
                None => authority.split(':').next().unwrap_or_default(),
            };
            let is_here = is_this_machine(host);
            match scheme {
                _ if host.is_empty() || !is_token(text) => Err("it is not a valid address"),
                _ if authority.contains('@') => Err("it contains a user name or password"),
                "https" => Ok(text.to_owned()),
                "http" if is_here => Ok(text.to_owned()),
                "http" => Err("http:// is for this machine only"),
                _ => Err("it starts with neither https:// nor http://"),
            }
        },
    )
}

/// Accepts the issuer of tokens. It becomes a part of users' names, where `|` ends it.
pub(super) fn issuer() -> Rule<String> {
    Rule::new("1 to 256 printable ASCII characters other than `|`, not beginning with `service:`", |text| match text {
        _ if text.contains('|') => Err("it contains `|`"),
        _ if text.starts_with("service:") => Err("it begins with `service:`"),
        _ if !is_token(text) => Err("it contains other characters"),
        _ if text.len() > 256 => Err("too long"),
        _ => Ok(text.to_owned()),
    })
}

/// Accepts a list of words, separated by commas.
pub(super) fn words() -> Rule<Vec<String>> {
    Rule::new("a list of texts of 1 to 256 printable ASCII characters, separated by commas", |text| {
        let word = |item: &str| if is_token(item) && item.len() <= 256 { Ok(item.to_owned()) } else { Err("") };
        items(text).map(word).collect()
    })
}

/// Accepts the name of a claim, or a path to it.
pub(super) fn claim() -> Rule<String> {
    Rule::new("1 to 256 printable ASCII characters", |text| {
        if is_token(text) && text.len() <= 256 { Ok(text.to_owned()) } else { Err("") }
    })
}

/// Accepts a list of `value=scope`, separated by commas.
pub(super) fn scope_map() -> Rule<Vec<(String, Scope)>> {
    let names: Vec<&str> = Scope::ALL.iter().map(|scope| scope.name()).collect();
    Rule::new(format!("a list of value=scope, separated by commas; scopes are {}", names.join(", ")), |text| {
        let pair = |item: &str| {
            let (value, scope) = item.rsplit_once('=').ok_or("an item has no `=` between value and scope")?;
            let scope = Scope::named(scope.trim()).ok_or("an item's scope is unknown")?;
            Ok((value.trim().to_owned(), scope))
        };
        items(text).map(pair).collect()
    })
}

/// Accepts days, in general and by class.
pub(super) fn retention() -> Rule<Retention> {
    Rule::new(
        "a number of days from 0 to 36500, and class=days for classes of users, separated by commas, such as \
         90,guests=7,staff=0",
        |text| Retention::parse(items(text)),
    )
}

/// Accepts a list of web origins, separated by commas.
pub(super) fn origins() -> Rule<Vec<Origin>> {
    Rule::new("a list of origins such as https://chat.example.org, separated by commas", |text| {
        items(text).map(Origin::parse).collect()
    })
}

/// Accepts a list of addresses and networks, separated by commas.
pub(super) fn networks() -> Rule<Vec<IpNet>> {
    Rule::new("a list of addresses such as 192.0.2.7 and networks such as 10.0.0.0/8, separated by commas", |text| {
        items(text).map(|item| item.parse().or_else(|_| item.parse().map(IpAddr::into)).map_err(|_| "")).collect()
    })
}

/// Accepts model prices: a list of `model=input/cached/output`, with `/written` and `/hour` if they differ, separated
/// by commas.
pub(super) fn prices() -> Rule<Prices> {
    Rule::new(
        "a list of model=input/cached/output, optionally with /written or /written/hour, separated by commas; dollars per \
         million tokens, each from 0 to 1000000 with at most 6 decimals",
        |text| {
            let mut of = BTreeMap::new();
            for item in items(text) {
                let (model, price) = item.rsplit_once('=').ok_or("an item has no `=` between model and prices")?;
                if of.insert(model_name(model)?, Price::parse(price)?).is_some() {
                    return Err("a model is listed twice");
                }
            }
            Ok(Prices::new(of))
        },
    )
}

/// Accepts the names of models, separated by commas.
pub(super) fn models() -> Rule<Vec<String>> {
    Rule::new("a list of models, separated by commas", |text| items(text).map(model_name).collect())
}

/// Accepts model windows: a list of `model=tokens`, separated by commas.
pub(super) fn windows(range: RangeInclusive<u64>) -> Rule<BTreeMap<String, u64>> {
    let (least, most) = (*range.start(), *range.end());
    let allowed = format!("a list of model=tokens, separated by commas; each a whole number from {least} to {most}");
    Rule::new(allowed, move |text| {
        let mut of = BTreeMap::new();
        for item in items(text) {
            let (model, tokens) = item.rsplit_once('=').ok_or("an item has no `=` between model and tokens")?;
            let model = model_name(model)?;
            let tokens = tokens.trim().parse::<u64>().ok().filter(|tokens| range.contains(tokens));
            if of.insert(model, tokens.ok_or("an item's tokens are not such a number")?).is_some() {
                return Err("a model is listed twice");
            }
        }
        Ok(of)
    })
}

/// Parses a model name in a list.
fn model_name(text: &str) -> Result<String, Refusal> {
    let name = text.trim();
    let is_name = !name.is_empty() && name.chars().count() <= MODEL_CHARS_MAX;
    is_name.then(|| name.to_owned()).ok_or("an item's model name is invalid")
}

/// Splits a list. Blank items are skipped, so a list may end with a comma.
fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// Returns true if a text is printable ASCII without spaces and not empty.
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}
