//! Policies: the strategies of reseed with their settings, and the published rules of other systems as data.
//!
//! A policy is written as CONTEXT_STRATEGY is, such as `threshold:userShare=0.5,background=1`.

use crate::core::{
    agent_loop::Deployment,
    compaction::{factory::Strategies, strategy::share, written::written},
};
use anyhow::anyhow;
use reseed_protocol::compaction::StrategySettings;

/// A policy that manages a conversation's context.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    /// The policy as the user wrote it.
    pub(crate) label: String,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// A strategy of reseed, with the settings that differ from the deployment's.
    Own { strategy: &'static str, settings: Option<Box<StrategySettings>> },
    /// Another system's rules.
    Other(&'static Rules),
}

/// The rules of another system: when it compacts, what it keeps verbatim, and whether a summary replaces the rest. Its
/// prompts and estimates are not imitated: all policies use the same counter and the same summariser.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// Describes it in one sentence, with its source.
    pub(crate) about: &'static str,
    pub(crate) trigger: Trigger,
    pub(crate) checks: Checks,
    pub(crate) keeps: Keeps,
    /// The limit of the summary that replaces the rest; `None` if there is no summary.
    pub(crate) summary: Option<SummaryMax>,
}

/// The count above which a system compacts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Trigger {
    /// The window without a reserve.
    WindowMinus(u64),
    /// A share of the window.
    Share(f64),
    /// A number of messages, or the window.
    Messages(usize),
    /// Never.
    Never,
}

/// When a system checks the count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checks {
    /// At the end of a turn.
    AfterTurns,
    /// Before every request.
    BeforeRequests,
}

/// What a system keeps verbatim.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keeps {
    /// The newest messages that together have this many tokens; they follow the summary.
    Recent(u64),
    /// The user's messages, newest first, up to this many tokens; the last of them is cut in its middle. They precede
    /// the summary.
    UserMessages(u64),
    /// The newest messages that stay below the trigger.
    Fitting,
}

/// The most tokens of a system's summary.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SummaryMax(pub(crate) u64);

/// The other systems.
pub(crate) const OTHERS: &[Rules] = &[
    // This is not `manual`, although that also never compacts: with `manual`, turns fail at the end of the window.
    Rules {
        name: "none",
        about: "Never compacts and goes on above the window: ENDS is where that ends.",
        trigger: Trigger::Never,
        checks: Checks::AfterTurns,
        keeps: Keeps::Fitting,
        summary: None,
    },
    // https://github.com/badlogic/pi-mono, packages/coding-agent/src/core/compaction/compaction.ts:
    // DEFAULT_COMPACTION_SETTINGS has reserveTokens 16384 and keepRecentTokens 20000; shouldCompact compares with the
    // window minus the reserve after a turn; a summary has at most 0.8 of the reserve.
    Rules {
        name: "pi",
        about: "Above the window minus 16,384 tokens, after a turn: a summary, and about 20,000 recent tokens \
                (pi-mono, compaction.ts).",
        trigger: Trigger::WindowMinus(16_384),
        checks: Checks::AfterTurns,
        keeps: Keeps::Recent(20_000),
        summary: Some(SummaryMax(13_107)),
    },
    // https://github.com/openai/codex, codex-rs/core/src/compact.rs: COMPACT_USER_MESSAGE_MAX_TOKENS is 20_000 and
    // build_compacted_history walks the user's messages from the newest, cuts the one that does not fit, and puts the
    // summary behind them; codex-rs/protocol/src/openai_models.rs: auto_compact_token_limit is 90 % of the window.
    Rules {
        name: "codex",
        about: "Above 0.9 of the window: the user's newest messages up to 20,000 tokens, and a summary (openai/codex, \
                compact.rs).",
        trigger: Trigger::Share(0.9),
        checks: Checks::BeforeRequests,
        keeps: Keeps::UserMessages(20_000),
        summary: Some(SummaryMax(8_192)),
    },
    // https://platform.openai.com/docs/api-reference/responses/create, `truncation: auto`: items at the beginning of
    // the conversation are dropped until the request fits the window. The room for an answer, a twentieth, is our
    // choice.
    Rules {
        name: "truncation",
        about: "Drops the oldest messages until the request fits 0.95 of the window (OpenAI, truncation: auto).",
        trigger: Trigger::Share(0.95),
        checks: Checks::BeforeRequests,
        keeps: Keeps::Fitting,
        summary: None,
    },
    // https://strandsagents.com, SlidingWindowConversationManager, the default manager: window_size is 40 messages,
    // checked after each invocation; on an overflow the oldest messages are dropped.
    Rules {
        name: "sliding",
        about: "Keeps the newest 40 messages (Strands Agents, SlidingWindowConversationManager).",
        trigger: Trigger::Messages(40),
        checks: Checks::AfterTurns,
        keeps: Keeps::Fitting,
        summary: None,
    },
];

impl Rules {
    /// Returns the count above which it compacts.
    pub(crate) fn limit(&self, window_tokens: u64) -> u64 {
        match self.trigger {
            Trigger::WindowMinus(reserve) => window_tokens.saturating_sub(reserve),
            Trigger::Share(part) => share(window_tokens, part),
            Trigger::Messages(_) => window_tokens,
            Trigger::Never => u64::MAX,
        }
    }
}

impl Policy {
    /// Parses a policy.
    ///
    /// # Errors
    /// The name or a setting is unknown.
    pub(crate) fn parse(text: &str, deployment: &Deployment) -> anyhow::Result<Self> {
        let (name, settings) = written(text).map_err(|why| anyhow!("the policy `{text}`: {why}"))?;
        let label = text.to_owned();
        if let Some(rules) = OTHERS.iter().find(|rules| rules.name == name) {
            anyhow::ensure!(settings.is_none(), "the policy `{name}` has no settings");
            return Ok(Self { label, kind: Kind::Other(rules) });
        }
        let strategies: &Strategies = &deployment.strategies;
        let strategy = strategies.resolve(name, "policy").map_err(|error| {
            let others: Vec<&str> = OTHERS.iter().map(|rules| rules.name).collect();
            anyhow!("{}; other systems are {}", error.message, others.join(", "))
        })?;
        // This refuses values that are out of bounds.
        strategies
            .make(strategy, settings.as_ref(), &deployment.options)
            .map_err(|error| anyhow!("the policy `{text}`: {}", error.message))?;
        Ok(Self { label, kind: Kind::Own { strategy, settings: settings.map(Box::new) } })
    }

    /// Returns true if it may request summaries.
    pub(crate) fn summarises(&self, deployment: &Deployment) -> bool {
        match &self.kind {
            Kind::Other(rules) => rules.summary.is_some(),
            Kind::Own { strategy, settings } => {
                let made = deployment.strategies.make(strategy, settings.as_deref(), &deployment.options);
                made.is_ok_and(|manager| manager.summarises() && manager.is_automatic())
            }
        }
    }
}
