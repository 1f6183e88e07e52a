//! What a strategy is: it decides when to compact, how far down, what may not be cut, and in which steps.

use crate::core::context::{
    Context, RequestCount,
    cut::{Cut, Keep, oldest_out},
    structure::Structure,
};
use reseed_protocol::{command::SummaryKind, context::CompactAtRule, event::CompactionTrigger};

/// Share of the window that is left for an answer where no setting says how long an answer may be: one part of this
/// many.
const ANSWER_WINDOW_PART: u64 = 50;

/// Tokens that are left for an answer at least where no setting says: a few paragraphs.
const ANSWER_TOKENS_MIN: u64 = 512;

/// What a strategy decides about the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It may go out as it is.
    Ready,
    /// It may go out, but the user should know that the window is nearly full.
    Warn,
    /// It may go out, and a compaction should be prepared meanwhile, to be held until it is due.
    Prepare,
    /// A compaction is due: what is held is committed before it goes out; where nothing is, it may go out, and one is
    /// made meanwhile.
    Due,
    /// It has to wait for a compaction.
    Compact,
}

/// Decides before every request, also between tool rounds, and after every turn. Pure; asked with the exact count of
/// the request. A new one is a file in `strategies/` and a line of the factory: it says what it is called and in which
/// steps it makes room; the rest follows from its settings unless it says otherwise.
///
/// ```
/// use reseed_core::context::{
///     ContextManager,
///     factory::Strategies,
///     strategy::{Options, Planning, Step},
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
///     fn options(&self) -> &Options {
///         &self.options
///     }
///
///     fn steps(&self, planning: &Planning<'_>) -> Vec<Step> {
///         planning.oldest_out().map(Step::Truncate).into_iter().collect()
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
    /// The short name, as settings and the wire have it.
    fn name(&self) -> &'static str;

    /// Its settings.
    fn options(&self) -> &Options;

    /// The steps by which room can be made here, gentle to drastic. The first that gets down to the target is taken. A
    /// step that drops without a summary stops at the target ([`Planning::oldest_out`]), and is left out where the
    /// target is met already.
    fn steps(&self, planning: &Planning<'_>) -> Vec<Step>;

    /// What to do about the next request, in a window of so many tokens. Called for every request: it must not look at
    /// the messages.
    fn before_request(&self, count: &RequestCount, window_tokens: u64) -> Decision {
        self.options().decide(count.tokens, window_tokens)
    }

    /// Requests of more tokens than this are compacted; `None` where it never does so by count.
    fn compact_at_tokens(&self, window_tokens: u64) -> Option<u64> {
        Some(self.options().trigger_in(window_tokens))
    }

    /// Which rule decides [`Self::compact_at_tokens`]; `None` where it never compacts by count, or by a count of its
    /// own.
    fn compact_at_rule(&self, window_tokens: u64) -> Option<CompactAtRule> {
        let (tokens, rule) = self.options().due_in(window_tokens);
        self.compact_at_tokens(window_tokens).filter(|at| *at == tokens).map(|_| rule)
    }

    /// Above which count a compaction is prepared in the background; `None` where none is.
    fn prepare_at_tokens(&self, window_tokens: u64) -> Option<u64> {
        let (soft, _) = self.options().limits_in(window_tokens);
        self.compact_at_tokens(window_tokens).filter(|trigger| soft < *trigger).map(|_| soft)
    }

    /// What a compaction must get down to.
    fn target_tokens(&self, window_tokens: u64) -> u64 {
        self.options().target_in(window_tokens)
    }

    /// Tokens it leaves free for the answer.
    fn reserved_tokens(&self, window_tokens: u64) -> u64 {
        self.options().reserve_in(window_tokens)
    }

    /// Tokens that a compaction keeps word for word, if it can.
    fn keep_tokens(&self, window_tokens: u64) -> u64 {
        self.options().keep_in(window_tokens)
    }

    /// What its own compactions are called.
    fn trigger(&self) -> CompactionTrigger {
        CompactionTrigger::Threshold
    }

    /// Whether it makes summaries at all: a compaction that a person asks for is then one, and nothing less.
    fn summarises(&self) -> bool {
        true
    }

    /// Whether it acts by itself, also on a refusal of the provider as too large.
    fn is_automatic(&self) -> bool {
        true
    }
}

/// What a strategy plans with. All tokens are in units of the estimate.
#[derive(Debug, Clone, Copy)]
pub struct Planning<'a> {
    /// What the model sees.
    pub context: &'a Context,
    /// Its structure.
    pub structure: &'a Structure,
    /// How much of the messages should stay.
    pub keep: Keep,
    /// All messages together may have so many, a summary included, for the target to be met.
    pub target_tokens: u64,
    /// What the summary may have of that.
    pub summary_tokens: u64,
}

/// Tokens of the note that something is missing, which stands in the place of what was left out.
const NOTE_TOKENS: u64 = 64;

impl Planning<'_> {
    /// Returns true if the messages are within the target already: then nothing is dropped without a summary.
    #[must_use]
    pub fn meets_target(&self) -> bool {
        self.structure.tokens() + self.structure.summary_tokens <= self.target_tokens
    }

    /// Tokens that messages may have beside what stands in the place of those that are left out without a summary: the
    /// summary there is, or a note.
    #[must_use]
    pub fn room_without_summary(&self) -> u64 {
        let beside = self.structure.summary_tokens.min(self.summary_tokens).max(NOTE_TOKENS);
        self.target_tokens.saturating_sub(beside)
    }

    /// The cut that leaves out the oldest turns until the target is met, and no more than that. This is the last step
    /// of a strategy whose summary saves too little.
    #[must_use]
    pub fn oldest_out(&self) -> Option<Cut> {
        if self.meets_target() {
            return None;
        }
        oldest_out(self.context, self.structure, self.room_without_summary())
    }
}

/// A way of making room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Put a short note in the place of these tool results, places in the context.
    Clear {
        /// The messages.
        results: Vec<usize>,
        /// Any sufficient gain will do, not only reaching the target.
        any_gain: bool,
    },
    /// Put a summary in the place of what the cut takes out: the model's, or else an extract by rule.
    Summarise(Cut),
    /// Leave out what the cut takes out.
    Truncate(Cut),
}

/// The deployment's settings, under which a session's stand.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Compact when more than this share of the window is used; 0 to 1.
    pub threshold: f64,
    /// Compact when less than this many tokens are free for an answer; absent for what `max_output_tokens` says.
    pub reserve_tokens: Option<u64>,
    /// Most tokens that an answer may have, where that is set: then as many are kept free.
    pub max_output_tokens: Option<u64>,
    /// About how many recent tokens stay word for word.
    pub keep_recent_tokens: u64,
    /// A compaction gets down to this share of the window, and to three quarters of the trigger at most.
    pub target: f64,
    /// From this share of the trigger on a compaction is prepared while turns go on; 1 for never.
    pub background: f64,
    /// A compaction saves at least this share of the request.
    pub min_gain: f64,
    /// `sliding_window` keeps so many of the newest turns.
    pub keep_turns: u64,
    /// So many of the newest tool results are never cleared.
    pub keep_tool_results: u64,
    /// Whether `importance` summarises what it takes out.
    pub summarise: bool,
    /// The strategies of a `pipeline`, by short name, gentle to drastic.
    pub steps: Vec<&'static str>,
    /// What the conversation is about, for its summaries.
    pub summary_kind: SummaryKind,
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
        }
    }
}

impl Options {
    /// The room that is left for an answer in a window, and the rule that decides it. A small window is not all room:
    /// where nothing is set it is at most a fifth of it, where the reserve is set at most half. An answer that may be
    /// longer still gets its room, up to three quarters of the window: strict servers refuse a request whose tokens and
    /// longest answer exceed the window together.
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

    /// Tokens of that room.
    #[must_use]
    pub fn reserve_in(&self, window_tokens: u64) -> u64 {
        self.answer_room_in(window_tokens).0
    }

    /// What is kept in a window: at most 25 % of it, so that a compaction always gets well below the trigger.
    #[must_use]
    pub fn keep_in(&self, window_tokens: u64) -> u64 {
        self.keep_recent_tokens.min(window_tokens / 4).max(1)
    }

    /// The count above which a compaction is due, and the rule that decides it: the earlier of the threshold's share
    /// and the window less the room for an answer.
    #[must_use]
    pub fn due_in(&self, window_tokens: u64) -> (u64, CompactAtRule) {
        let (room, rule) = self.answer_room_in(window_tokens);
        let (by_share, by_room) = (share(window_tokens, self.threshold), window_tokens - room);
        if by_share <= by_room { (by_share, CompactAtRule::Threshold) } else { (by_room, rule) }
    }

    /// The count above which a compaction is due.
    #[must_use]
    pub fn trigger_in(&self, window_tokens: u64) -> u64 {
        self.due_in(window_tokens).0
    }

    /// The count that a compaction must get down to: the target's share, and at most three quarters of the trigger, so
    /// that it does not come again at once, also where the threshold is below the target.
    #[must_use]
    pub fn target_in(&self, window_tokens: u64) -> u64 {
        share(window_tokens, self.target).min(self.trigger_in(window_tokens) / 4 * 3)
    }

    /// The count above which a compaction is prepared in the background, to be committed above the trigger, and the one
    /// above which requests wait for it: only when the reserve is touched, where there is time to prepare.
    #[must_use]
    pub fn limits_in(&self, window_tokens: u64) -> (u64, u64) {
        let trigger = self.trigger_in(window_tokens);
        if self.background >= 1.0 {
            return (trigger, trigger);
        }
        let soft = share(trigger, self.background).max(self.target_in(window_tokens));
        (soft.min(trigger), trigger.max(window_tokens - self.reserve_in(window_tokens)))
    }

    /// What these settings decide about a request of so many tokens.
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

/// A share of so many tokens, rounded down.
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
