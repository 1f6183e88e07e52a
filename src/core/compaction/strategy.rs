//! Strategies: when to compact, how far down, what must be kept, and in which steps.

use crate::{
    compaction::{
        cut::{Cut, Keep, oldest_out},
        structure::Structure,
    },
    context::{count::RequestCount, messages::Context},
};
use reseed_protocol::{
    compaction::{CompactionTrigger, StrategySettings, SummaryKind, SummaryMode},
    context::CompactAtRule,
};
use serde::Serialize;

/// The fraction of the window reserved for an answer if no setting limits its length: one part in this many.
const ANSWER_WINDOW_PART: u64 = 50;

/// Minimum tokens reserved for an answer if no setting limits its length: a few paragraphs.
const ANSWER_TOKENS_MIN: u64 = 512;

/// A strategy's decision about the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Send it unchanged.
    Ready,
    /// Send it, but warn the user that the window is nearly full.
    Warn,
    /// Send it, and prepare a compaction meanwhile, to be held until it is due.
    Prepare,
    /// A compaction is due: apply a held one before sending. Without one, send it and make one meanwhile.
    Due,
    /// The request must wait for a compaction.
    Compact,
}

/// A strategy. It decides before every request, including those between tool rounds, and after every turn. It is pure
/// and receives the exact count of the request. To add one, write a file in `strategies/` and a line in the factory: it
/// must provide its name and its compaction steps; the rest follows from its settings unless overridden. The page and
/// the documents list it by its name, [`about`](Self::about) and [`reads`](Self::reads).
///
/// ```
/// use reseed_core::compaction::{
///     ContextManager,
///     factory::Strategies,
///     strategy::{FallbackStep, Options, Planning},
/// };
///
/// /// Drops the oldest turns and never summarises.
/// #[derive(Debug)]
/// struct Forgetful {
///     options: Options,
/// }
///
/// impl ContextManager for Forgetful {
///     fn name(&self) -> &'static str {
///         "forgetful"
///     }
///
///     fn about(&self) -> &'static str {
///         "Drops the oldest turns and never summarises."
///     }
///
///     fn options(&self) -> &Options {
///         &self.options
///     }
///
///     fn steps(&self, planning: &Planning<'_>) -> Vec<FallbackStep> {
///         planning.oldest_out().map(FallbackStep::Truncate).into_iter().collect()
///     }
///
///     fn summarises(&self) -> bool {
///         false
///     }
/// }
///
/// let strategies = Strategies::default()
///     .with("forgetful", &[], |options| Box::new(Forgetful { options }))
///     .expect("the name is free");
/// // Pass these to `reseed::config::Settings::with_strategies`; sessions then choose it by name.
/// assert!(strategies.names().any(|name| name == "forgetful"));
/// ```
pub trait ContextManager: Send + std::fmt::Debug {
    /// Returns the short name used in settings and on the wire.
    fn name(&self) -> &'static str;

    /// Returns a one-sentence description for users.
    fn about(&self) -> &'static str {
        ""
    }

    /// Returns the settings that it reads, starting with those that users change most. Others are not offered for it.
    fn reads(&self) -> &'static [Setting] {
        Setting::ALL
    }

    /// Returns its settings.
    fn options(&self) -> &Options;

    /// Returns the compaction steps possible here, from gentle to drastic. The first that reaches the target is taken.
    /// A step that drops messages without a summary stops at the target ([`Planning::oldest_out`]), and is omitted if
    /// the target is already met.
    fn steps(&self, planning: &Planning<'_>) -> Vec<FallbackStep>;

    /// Decides about the next request. Called for every request, so it must not look at the messages.
    fn before_request(&self, count: &RequestCount, window_tokens: u64) -> Decision {
        self.options().decide(count.tokens, window_tokens)
    }

    /// Returns the count above which requests are compacted; `None` if it never compacts by count.
    fn compact_at_tokens(&self, window_tokens: u64) -> Option<u64> {
        Some(self.options().trigger_in(window_tokens))
    }

    /// Returns the rule behind [`Self::compact_at_tokens`]; `None` if it never compacts by count, or uses its own
    /// count.
    fn compact_at_rule(&self, window_tokens: u64) -> Option<CompactAtRule> {
        let (tokens, rule) = self.options().due_in(window_tokens);
        self.compact_at_tokens(window_tokens).filter(|at| *at == tokens).map(|_| rule)
    }

    /// Returns the count above which a compaction is prepared in the background; `None` if none is.
    fn prepare_at_tokens(&self, window_tokens: u64) -> Option<u64> {
        let (soft, _) = self.options().limits_in(window_tokens);
        self.compact_at_tokens(window_tokens).filter(|trigger| soft < *trigger).map(|_| soft)
    }

    /// Returns the count that a compaction must reach.
    fn target_tokens(&self, window_tokens: u64) -> u64 {
        self.options().target_in(window_tokens)
    }

    /// Returns the tokens reserved for the answer.
    fn reserved_tokens(&self, window_tokens: u64) -> u64 {
        self.options().reserve_in(window_tokens)
    }

    /// Returns the tokens that a compaction keeps verbatim if it can.
    fn keep_tokens(&self, window_tokens: u64) -> u64 {
        self.options().keep_in(window_tokens)
    }

    /// Returns the trigger recorded for its own compactions.
    fn trigger(&self) -> CompactionTrigger {
        CompactionTrigger::Threshold
    }

    /// Returns true if it makes summaries; a compaction that a person requests is then always a summary.
    fn summarises(&self) -> bool {
        true
    }

    /// Returns true if it compacts by itself, including when the provider refuses a request as too large.
    fn is_automatic(&self) -> bool {
        true
    }
}

/// The inputs of a strategy's plan. All tokens are estimates.
#[derive(Debug, Clone, Copy)]
pub struct Planning<'a> {
    /// The model's view of the session.
    pub context: &'a Context,
    /// The structure of the context.
    pub structure: &'a Structure,
    /// How much of the messages should stay.
    pub keep: Keep,
    /// The tokens of all messages, summary included, that meet the target.
    pub target_tokens: u64,
    /// The part of that available for the summary.
    pub summary_tokens: u64,
}

/// Tokens of the note that replaces omitted messages.
const NOTE_TOKENS: u64 = 64;

impl Planning<'_> {
    /// Returns true if the messages already meet the target; nothing is then dropped without a summary.
    #[must_use]
    pub fn meets_target(&self) -> bool {
        self.structure.tokens() + self.structure.summary_tokens <= self.target_tokens
    }

    /// Returns the tokens available for messages besides the existing summary, or besides the note for messages that
    /// are dropped without a new summary.
    #[must_use]
    pub fn room_without_summary(&self) -> u64 {
        let beside = self.structure.summary_tokens.min(self.summary_tokens).max(NOTE_TOKENS);
        self.target_tokens.saturating_sub(beside)
    }

    /// Drops the oldest turns until the target is met, and no more. This is the last step of a strategy whose summary
    /// saves too little.
    #[must_use]
    pub fn oldest_out(&self) -> Option<Cut> {
        if self.meets_target() {
            return None;
        }
        oldest_out(self.context, self.structure, self.room_without_summary())
    }
}

/// A compaction step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FallbackStep {
    /// Replace these tool results, given by index, with a short note.
    Clear {
        /// The messages.
        results: Vec<usize>,
        /// Accept any sufficient gain, even if the target is not met.
        any_gain: bool,
    },
    /// Replace what the cut removes with a summary: the model's, otherwise an extract by rule.
    Summarise(Cut),
    /// Drop what the cut removes.
    Truncate(Cut),
}

/// A setting of the strategies. Serialised as its name on the wire, where it is a field of [`StrategySettings`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Setting {
    /// [`Options::threshold`].
    Threshold,
    /// [`Options::reserve_tokens`].
    ReserveTokens,
    /// [`Options::keep_recent_tokens`].
    KeepRecentTokens,
    /// [`Options::target`].
    Target,
    /// [`Options::background`].
    Background,
    /// [`Options::min_gain`].
    MinGain,
    /// [`Options::keep_turns`].
    KeepTurns,
    /// [`Options::keep_tool_results`].
    KeepToolResults,
    /// [`Options::summarise`].
    Summarise,
    /// [`Options::steps`].
    Steps,
    /// [`Options::summary_kind`].
    SummaryKind,
    /// [`Options::user_share`].
    UserShare,
    /// [`Options::summary_mode`].
    SummaryMode,
}

impl Setting {
    /// Every setting.
    pub const ALL: &'static [Self] = &[
        Self::Threshold,
        Self::ReserveTokens,
        Self::KeepRecentTokens,
        Self::Target,
        Self::Background,
        Self::MinGain,
        Self::KeepTurns,
        Self::KeepToolResults,
        Self::Summarise,
        Self::Steps,
        Self::SummaryKind,
        Self::UserShare,
        Self::SummaryMode,
    ];
}

/// The deployment's settings, which a session's settings override.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Compact above this share of the window; 0 to 1.
    pub threshold: f64,
    /// Compact when fewer tokens are free for an answer; `None` to use `max_output_tokens`.
    pub reserve_tokens: Option<u64>,
    /// Maximum tokens of an answer, if set; as many are kept free.
    pub max_output_tokens: Option<u64>,
    /// Tokens of recent messages to keep verbatim, approximately.
    pub keep_recent_tokens: u64,
    /// Share of the window that a compaction must reach; capped at three quarters of the trigger.
    pub target: f64,
    /// Share of the trigger above which a compaction is prepared while turns continue; 1 for never.
    pub background: f64,
    /// Minimum share of the request that a compaction must save.
    pub min_gain: f64,
    /// Newest turns that `sliding_window` keeps.
    pub keep_turns: u64,
    /// Newest tool results that are never cleared.
    pub keep_tool_results: u64,
    /// True if `importance` summarises what it removes.
    pub summarise: bool,
    /// The strategies of a `pipeline` by short name, gentle to drastic.
    pub steps: Vec<&'static str>,
    /// The kind of conversation, which shapes its summaries.
    pub summary_kind: SummaryKind,
    /// Share of a compaction's target that may hold the user's own messages verbatim. The model's older text gives way
    /// to them.
    pub user_share: f64,
    /// How a compaction treats earlier summaries.
    pub summary_mode: SummaryMode,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threshold: 0.8,
            reserve_tokens: None,
            max_output_tokens: None,
            keep_recent_tokens: 20_000,
            target: 0.6,
            background: 0.85,
            min_gain: 0.05,
            keep_turns: 8,
            keep_tool_results: 4,
            summarise: true,
            steps: vec!["tool_results", "threshold", "truncate"],
            summary_kind: SummaryKind::Auto,
            user_share: 1.0,
            summary_mode: SummaryMode::Segments,
        }
    }
}

impl Options {
    /// Returns these values in wire format.
    #[must_use]
    pub fn on_the_wire(&self) -> StrategySettings {
        StrategySettings {
            threshold: Some(self.threshold),
            reserve_tokens: self.reserve_tokens,
            keep_recent_tokens: Some(self.keep_recent_tokens),
            target: Some(self.target),
            background: Some(self.background),
            min_gain: Some(self.min_gain),
            keep_turns: Some(self.keep_turns),
            keep_tool_results: Some(self.keep_tool_results),
            summarise: Some(self.summarise),
            steps: Some(self.steps.iter().map(|step| (*step).to_owned()).collect()),
            summary_kind: Some(self.summary_kind),
            user_share: Some(self.user_share),
            summary_mode: Some(self.summary_mode),
        }
    }

    /// Returns the tokens reserved for an answer, and the rule behind them. In a small window the reserve is capped: at
    /// a fifth of the window by default, at half if the reserve is set. A longer answer limit still gets its room, up
    /// to three quarters of the window, because strict servers refuse a request that exceeds the window together with
    /// its longest possible answer.
    #[must_use]
    pub fn answer_room_in(&self, window_tokens: u64) -> (u64, CompactAtRule) {
        match (self.reserve_tokens, self.max_output_tokens) {
            (Some(reserve), _) => (reserve.min(window_tokens / 2), CompactAtRule::ReserveTokens),
            (None, Some(answer)) => (answer.min(window_tokens / 4 * 3), CompactAtRule::MaxOutputTokens),
            (None, None) => {
                let room = (window_tokens / ANSWER_WINDOW_PART).max(ANSWER_TOKENS_MIN);
                (room.min(window_tokens / 5), CompactAtRule::AnswerRoom)
            }
        }
    }

    /// Returns the tokens reserved for an answer.
    #[must_use]
    pub fn reserve_in(&self, window_tokens: u64) -> u64 {
        self.answer_room_in(window_tokens).0
    }

    /// Returns the tokens to keep verbatim: at most 25 % of the window. Cut rules keep less where the summary needs the
    /// room.
    #[must_use]
    pub fn keep_in(&self, window_tokens: u64) -> u64 {
        self.keep_recent_tokens.min(window_tokens / 4).max(1)
    }

    /// Returns the count above which a compaction is due, and the rule that decides it: the lower of the threshold's
    /// share and the window minus the answer reserve.
    #[must_use]
    pub fn due_in(&self, window_tokens: u64) -> (u64, CompactAtRule) {
        let (room, rule) = self.answer_room_in(window_tokens);
        let (by_share, by_room) = (share(window_tokens, self.threshold), window_tokens - room);
        if by_share <= by_room { (by_share, CompactAtRule::Threshold) } else { (by_room, rule) }
    }

    /// Returns the count above which a compaction is due.
    #[must_use]
    pub fn trigger_in(&self, window_tokens: u64) -> u64 {
        self.due_in(window_tokens).0
    }

    /// Returns the count that a compaction must reach: the target's share, capped at three quarters of the trigger. So
    /// the next compaction is not due at once, even with a threshold below the target.
    #[must_use]
    pub fn target_in(&self, window_tokens: u64) -> u64 {
        share(window_tokens, self.target).min(self.trigger_in(window_tokens) / 4 * 3)
    }

    /// Returns two counts. Above the first, a compaction is prepared in the background, to be applied above the
    /// trigger. Above the second, requests wait for it. With preparation, requests wait only once the reserve is
    /// touched.
    #[must_use]
    pub fn limits_in(&self, window_tokens: u64) -> (u64, u64) {
        let trigger = self.trigger_in(window_tokens);
        if self.background >= 1.0 {
            return (trigger, trigger);
        }
        let soft = share(trigger, self.background).max(self.target_in(window_tokens));
        (soft.min(trigger), trigger.max(window_tokens - self.reserve_in(window_tokens)))
    }

    /// Decides about a request of this many tokens.
    #[must_use]
    pub fn decide(&self, tokens: u64, window_tokens: u64) -> Decision {
        let (soft, hard) = self.limits_in(window_tokens);
        match tokens {
            tokens if tokens > hard => Decision::Compact,
            tokens if tokens > self.trigger_in(window_tokens) => Decision::Due,
            tokens if tokens > soft => Decision::Prepare,
            _ => Decision::Ready,
        }
    }
}

/// Returns a share of a token count, rounded down.
#[must_use]
pub fn share(tokens: u64, share: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a window, far below 2^53"
    )]
    let tokens = (tokens as f64 * share) as u64;
    tokens
}
