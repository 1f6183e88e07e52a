//! Creates strategies by name. To add one, write a file in `strategies/` and a line in `BUILT_IN`; a program that
//! embeds the server adds its own with [`Strategies::with`].

use crate::{
    compaction::{
        ContextManager,
        strategies::{
            importance::Importance, manual::Manual, pipeline::Pipeline, sliding_window::SlidingWindow,
            threshold::Threshold, tool_results::ToolResults, truncate::Truncate,
        },
        strategy::{Options, Setting},
    },
    context::window::TOKENS_MAX,
};
use reseed_protocol::{ErrorBody, ErrorCode, compaction::StrategySettings};
use serde::Serialize;
use std::{fmt, ops::RangeInclusive, sync::Arc};

/// Creates a strategy from its settings. A strategy that is composed of others finds them in the second argument.
type Make = Arc<dyn Fn(Options, &Strategies) -> Box<dyn ContextManager> + Send + Sync>;

/// A built-in strategy: its short name, its aliases, and its constructor.
type BuiltIn = (&'static str, &'static [&'static str], fn(Options, &Strategies) -> Box<dyn ContextManager>);

const BUILT_IN: &[BuiltIn] = &[
    ("threshold", &[], |options, _| Box::new(Threshold::new(options))),
    ("manual", &["dummy", "none"], |options, _| Box::new(Manual::new(options))),
    ("sliding_window", &[], |options, _| Box::new(SlidingWindow::new(options))),
    ("tool_results", &[], |options, _| Box::new(ToolResults::new(options))),
    ("truncate", &[], |options, _| Box::new(Truncate::new(options))),
    ("importance", &[], |options, _| Box::new(Importance::new(options))),
    ("pipeline", &[], |options, all| Box::new(Pipeline::new(options.clone(), all.parts(&options)))),
];

/// Maximum bytes of a strategy's name.
const NAME_BYTES_MAX: usize = 40;

/// The strategies of a deployment: the built-in ones, and those that an embedding program added.
#[derive(Clone)]
pub struct Strategies {
    known: Arc<[Known]>,
}

#[derive(Clone)]
struct Known {
    name: &'static str,
    aliases: &'static [&'static str],
    make: Make,
}

/// The description of a strategy for users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Offered {
    /// The short name.
    pub name: &'static str,
    /// Other names that mean the same.
    #[serde(skip)]
    pub aliases: &'static [&'static str],
    /// A one-sentence description.
    pub about: &'static str,
    /// True if it compacts by itself.
    pub automatic: bool,
    /// The settings that it reads, starting with those that users change most.
    pub settings: &'static [Setting],
}

/// The reason a strategy cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAdded {
    /// The name cannot be written in settings and by clients.
    #[error("`{0}` is not a valid strategy name; allowed: 1 to {NAME_BYTES_MAX} of a-z 0-9 _")]
    BadName(&'static str),
    /// The name is taken.
    #[error("a strategy named `{0}` exists already")]
    NameTaken(&'static str),
}

impl Default for Strategies {
    /// Returns the built-in strategies.
    fn default() -> Self {
        let known = BUILT_IN.iter().map(|&(name, aliases, make)| Known { name, aliases, make: Arc::new(make) });
        Self { known: known.collect() }
    }
}

impl fmt::Debug for Strategies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.known.iter().map(|known| known.name)).finish()
    }
}

impl Strategies {
    /// Adds a strategy with a short name, which its `name` must return too, and aliases. `make` creates it for each
    /// session that uses it, from the session's settings merged over the deployment's.
    ///
    /// # Errors
    /// The name is taken or invalid.
    pub fn with(
        self,
        name: &'static str,
        aliases: &'static [&'static str],
        make: impl Fn(Options) -> Box<dyn ContextManager> + Send + Sync + 'static,
    ) -> Result<Self, NotAdded> {
        for new in std::iter::once(name).chain(aliases.iter().copied()) {
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            if !(1..=NAME_BYTES_MAX).contains(&new.len()) || !new.bytes().all(is_plain) {
                return Err(NotAdded::BadName(new));
            }
            if self.find(new).is_some() {
                return Err(NotAdded::NameTaken(new));
            }
        }
        let more = Known { name, aliases, make: Arc::new(move |options, _| make(options)) };
        Ok(Self { known: self.known.iter().cloned().chain(std::iter::once(more)).collect() })
    }

    /// Returns all names of strategies, aliases included.
    #[must_use]
    pub fn all_names(&self) -> Vec<&'static str> {
        self.known.iter().flat_map(|known| std::iter::once(known.name).chain(known.aliases.iter().copied())).collect()
    }

    /// Iterates over the short names, one per strategy.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.known.iter().map(|known| known.name)
    }

    /// Iterates over the descriptions of the strategies.
    pub fn offered(&self) -> impl Iterator<Item = Offered> {
        self.known.iter().map(|known| {
            let manager = (known.make)(Options::default(), self);
            let (about, settings) = (manager.about(), manager.reads());
            let automatic = manager.is_automatic();
            Offered { name: known.name, aliases: known.aliases, about, automatic, settings }
        })
    }

    /// Resolves a name or alias to the strategy's short name.
    ///
    /// # Errors
    /// `unknown_strategy`, listing the known ones; `field` is where the name was given.
    pub fn resolve(&self, name: &str, field: &str) -> Result<&'static str, ErrorBody> {
        self.find(name).map(|known| known.name).ok_or_else(|| self.unknown(name, field))
    }

    fn find(&self, name: &str) -> Option<&Known> {
        self.known.iter().find(|known| known.name == name || known.aliases.contains(&name))
    }

    /// Creates a strategy from its name and settings.
    ///
    /// # Errors
    /// `unknown_strategy`, listing the known ones; `invalid_field`, with the setting and what is allowed.
    pub fn make(
        &self,
        name: &str,
        settings: Option<&StrategySettings>,
        defaults: &Options,
    ) -> Result<Box<dyn ContextManager>, ErrorBody> {
        let found = self.find(name).ok_or_else(|| self.unknown(name, "strategy"))?;
        Ok((found.make)(self.options(settings, defaults)?, self))
    }

    /// Creates the strategies of a pipeline with its settings.
    fn parts(&self, options: &Options) -> Vec<Box<dyn ContextManager>> {
        let parts = options.steps.iter().filter_map(|name| self.find(name));
        parts.map(|part| (part.make)(options.clone(), self)).collect()
    }

    fn unknown(&self, name: &str, field: &str) -> ErrorBody {
        let shown: String = name.chars().take(NAME_BYTES_MAX).collect();
        let names: Vec<String> = self
            .known
            .iter()
            .map(|known| match known.aliases {
                [] => known.name.to_owned(),
                aliases => format!("{} (also called {})", known.name, aliases.join(" or ")),
            })
            .collect();
        let message = format!("there is no strategy `{shown}`; there are {}", names.join(", "));
        ErrorBody::new(ErrorCode::UnknownStrategy, message).with_field(field)
    }

    /// Merges a session's settings over the deployment's.
    ///
    /// # Errors
    /// `invalid_field` and `unknown_strategy`, as for [`Self::make`].
    pub fn options(&self, settings: Option<&StrategySettings>, defaults: &Options) -> Result<Options, ErrorBody> {
        let mut options = defaults.clone();
        let Some(settings) = settings else { return Ok(options) };
        let invalid = |field: &str, message: String| {
            Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field(format!("settings.{field}")))
        };
        let shares: [(&str, Option<f64>, RangeInclusive<f64>, &mut f64); 5] = [
            ("threshold", settings.threshold, 0.0..=1.0, &mut options.threshold),
            ("target", settings.target, f64::MIN_POSITIVE..=1.0, &mut options.target),
            ("background", settings.background, f64::MIN_POSITIVE..=1.0, &mut options.background),
            ("minGain", settings.min_gain, 0.0..=0.9, &mut options.min_gain),
            ("userShare", settings.user_share, 0.0..=1.0, &mut options.user_share),
        ];
        for (field, given, allowed, option) in shares {
            let Some(given) = given else { continue };
            if !allowed.contains(&given) {
                let least = if *allowed.start() > 0.0 { "above 0 and at most" } else { "0 to" };
                return invalid(field, format!("{field} must be {least} {}, not {given}", allowed.end()));
            }
            *option = given;
        }
        let mut reserve_tokens = options.reserve_tokens.unwrap_or_default();
        let counts: [(&str, Option<u64>, u64, &mut u64); 4] = [
            ("reserveTokens", settings.reserve_tokens, 0, &mut reserve_tokens),
            ("keepRecentTokens", settings.keep_recent_tokens, 1, &mut options.keep_recent_tokens),
            ("keepTurns", settings.keep_turns, 1, &mut options.keep_turns),
            ("keepToolResults", settings.keep_tool_results, 0, &mut options.keep_tool_results),
        ];
        for (field, given, least, option) in counts {
            let Some(given) = given else { continue };
            if !(least..=TOKENS_MAX).contains(&given) {
                return invalid(field, format!("{field} must be {least} to {TOKENS_MAX}, not {given}"));
            }
            *option = given;
        }
        options.summary_kind = settings.summary_kind.unwrap_or(options.summary_kind);
        options.summary_mode = settings.summary_mode.unwrap_or(options.summary_mode);
        if settings.reserve_tokens.is_some() {
            options.reserve_tokens = Some(reserve_tokens);
        }
        options.summarise = settings.summarise.unwrap_or(options.summarise);
        if let Some(steps) = &settings.steps {
            options.steps = self.check_steps(steps.iter().map(String::as_str))?;
        }
        Ok(options)
    }

    /// Checks the steps of a pipeline: each strategy once, neither `manual` nor `pipeline`.
    ///
    /// # Errors
    /// `unknown_strategy` and `invalid_field`, with the step.
    pub fn check_steps<'a>(&self, steps: impl Iterator<Item = &'a str>) -> Result<Vec<&'static str>, ErrorBody> {
        let mut checked = Vec::new();
        for step in steps {
            let name = self.resolve(step, "settings.steps")?;
            if matches!(name, "manual" | "pipeline") || checked.contains(&name) {
                let message =
                    format!("a pipeline may have each strategy once, but neither manual nor pipeline: `{name}`");
                return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("settings.steps"));
            }
            checked.push(name);
        }
        if checked.is_empty() {
            let message = "a pipeline needs at least one step";
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("settings.steps"));
        }
        Ok(checked)
    }
}
