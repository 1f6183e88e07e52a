//! Deployment settings, the same for every session.

use crate::{
    agent_loop::tools::Tools,
    approval::Policy,
    compaction::{
        SummaryRequest, Writing,
        cut_rules::{ByStrategy, CutRules},
        factory::Strategies,
        strategy::Options,
    },
    context::{
        counter::{Counter, CounterOf},
        window::base_model,
        windows::Windows,
    },
    hook::HookSpec,
    model::Takes,
    prices::Prices,
    text::files::FileTools,
};
use reseed_protocol::{
    ErrorBody, ErrorCode,
    session::{ModelItem, ModelPrice, Models},
};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum models listed. The largest provider has some 400.
const MODELS_MAX: usize = 1_000;

/// Default time limit of a tool call, in milliseconds: two minutes, enough for a build or a test. A tool can set its
/// own.
pub const TOOL_TIMEOUT_MS: u64 = 120_000;

/// The most calls of one turn that run in the server at the same time. Models seldom make more, and each may need a
/// process or a request of its own.
pub const TOOL_PARALLEL_MAX: usize = 8;

/// Default time limit of a hook, in milliseconds. A user waits for the hook, and the hook may call a model. A hook can
/// set its own.
pub const HOOK_TIMEOUT_MS: u64 = 30_000;

/// Default time to wait for a required hook's absent client, in milliseconds.
const HOOK_AWAY_MS: u64 = 120_000;

/// Default time for a person to answer an approval, in milliseconds: a day.
const APPROVAL_EXPIRY_MS: u64 = 24 * 60 * 60 * 1000;

/// The deployment's settings, the same for every session.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// The model of new sessions.
    pub model: String,
    /// The models that sessions may choose besides the deployment's own; empty for any.
    pub models_allowed: Vec<String>,
    /// Maximum tokens of an answer; absent for no limit.
    pub output_tokens_max: Option<u64>,
    /// The strategy of new sessions.
    pub strategy: String,
    /// The available strategies.
    pub strategies: Strategies,
    /// The default system prompt, for sessions that have none of their own; empty for none.
    pub instructions: String,
    /// The default strategy settings, for sessions that have none of their own.
    pub options: Options,
    /// Settings for making summaries.
    pub summaries: Summaries,
    /// The rules by which tokens are estimated.
    pub counter_of: CounterOf,
    /// The rules by which compactions cut.
    pub cut_rules: &'static dyn CutRules,
    /// The context window of each model.
    pub windows: Windows,
    /// The prices of each model.
    pub prices: Prices,
    /// True if the provider's cache is filled after compactions, and refreshed while the user is away.
    pub prewarms: bool,
    /// Default time limit of a tool, in milliseconds.
    pub tool_timeout_ms: u64,
    /// Maximum number of answers with tool calls in one turn.
    pub tool_rounds_max: u64,
    /// Maximum number of calls of one turn that run in the server at the same time.
    pub tool_parallel_max: usize,
    /// Maximum time of a turn in milliseconds, not counting the time that it waits for approvals; absent for no limit.
    pub turn_timeout_ms: Option<u64>,
    /// True if no request offers any tool.
    pub tools_are_off: bool,
    /// What each model accepts besides text, from the provider's list or from experience.
    pub models_take: BTreeMap<String, Takes>,
    /// Models that refused requests because tools were offered. No tools are offered to them.
    pub models_without_tools: BTreeSet<String>,
    /// Models that wrote calls as text. The tools that search the history are not offered to them.
    pub models_writing_calls: BTreeSet<String>,
    /// The tools that the server runs, and its MCP servers.
    pub server_tools: Tools,
    /// The tools that search the session's history.
    pub history_tools: HistoryTools,
    /// The policy that decides which calls a person must allow.
    pub approvals: Policy,
    /// Time in milliseconds after which an unanswered approval counts as refused.
    pub approval_expiry_ms: u64,
    /// Maximum number of queued inputs in one session.
    pub queue_items_max: usize,
    /// The tools whose calls name files.
    pub file_tools: FileTools,
    /// The server's hooks, in the order in which they are called. No two overlap, because a call names only one hook.
    pub hooks: Vec<HookSpec>,
    /// Default time limit of a hook, in milliseconds.
    pub hook_timeout_ms: u64,
    /// Time to wait for a required client hook's absent client, in milliseconds.
    pub hook_away_ms: u64,
}

impl Default for Deployment {
    fn default() -> Self {
        Self {
            model: String::new(),
            models_allowed: Vec::new(),
            output_tokens_max: None,
            strategy: String::new(),
            strategies: Strategies::default(),
            instructions: String::new(),
            options: Options::default(),
            summaries: Summaries::default(),
            counter_of: Counter::for_model,
            cut_rules: &ByStrategy,
            windows: Windows::default(),
            prices: Prices::default(),
            prewarms: false,
            tool_timeout_ms: TOOL_TIMEOUT_MS,
            tool_rounds_max: 0,
            tool_parallel_max: TOOL_PARALLEL_MAX,
            turn_timeout_ms: None,
            tools_are_off: false,
            models_take: BTreeMap::new(),
            models_without_tools: BTreeSet::new(),
            models_writing_calls: BTreeSet::new(),
            server_tools: Tools::default(),
            history_tools: HistoryTools::default(),
            approvals: Policy::default(),
            approval_expiry_ms: APPROVAL_EXPIRY_MS,
            queue_items_max: 0,
            file_tools: FileTools::default(),
            hooks: Vec::new(),
            hook_timeout_ms: HOOK_TIMEOUT_MS,
            hook_away_ms: HOOK_AWAY_MS,
        }
    }
}

impl Deployment {
    /// Returns the models that sessions may choose, with their known properties; the deployment's own comes first.
    #[must_use]
    pub fn models(&self) -> Models {
        let others = self.models_allowed.is_empty();
        let mut names: Vec<&str> = vec![&self.model];
        names.extend(self.models_allowed.iter().map(String::as_str));
        if others {
            names.extend(self.windows.models());
        } else {
            names.extend(self.summaries.model.as_deref());
        }
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(*name));
        names.truncate(MODELS_MAX);
        let items = names.into_iter().map(|name| self.model_item(name)).collect();
        Models { model: self.model.clone(), others, items }
    }

    fn model_item(&self, model: &str) -> ModelItem {
        // Prices are stored in picodollars per token.
        let nano = |pico: u64| pico.saturating_mul(1_000);
        let takes = self.models_take.get(model).or_else(|| self.models_take.get(base_model(model)?));
        let takes = takes.copied().unwrap_or_default();
        let has_no_tools = self.tools_are_off || self.models_without_tools.contains(model);
        ModelItem {
            id: model.to_owned(),
            window_tokens: self.windows.window(model).map(|window| window.tokens),
            price: self.prices.price(model).map(|price| ModelPrice {
                input_nano_usd: nano(price.input),
                cached_nano_usd: nano(price.cached),
                cache_write_nano_usd: nano(price.written),
                cache_write_hour_nano_usd: (price.written_hour != price.written).then(|| nano(price.written_hour)),
                output_nano_usd: nano(price.output),
            }),
            tools: if has_no_tools { Some(false) } else { takes.tools },
            images: takes.images,
        }
    }

    /// Checks that sessions may use this model.
    ///
    /// # Errors
    /// `unknown_model`.
    pub fn check_model(&self, model: &str) -> Result<(), ErrorBody> {
        let own = [Some(&self.model), self.summaries.model.as_ref()];
        let is_allowed = self.models_allowed.is_empty()
            || self.models_allowed.iter().any(|allowed| allowed == model)
            || own.into_iter().flatten().any(|allowed| allowed == model);
        if is_allowed {
            return Ok(());
        }
        let allowed: BTreeSet<&str> =
            self.models_allowed.iter().chain(own.into_iter().flatten()).map(String::as_str).collect();
        let allowed: Vec<&str> = allowed.into_iter().collect();
        let message = format!("this server does not allow the model `{model}`; choose one of: {}", allowed.join(", "));
        Err(ErrorBody::new(ErrorCode::UnknownModel, message).with_field("model"))
    }

    /// Returns the models that the settings name.
    #[must_use]
    pub fn configured_models(&self) -> BTreeSet<&str> {
        let own = [Some(&self.model), self.summaries.model.as_ref()].into_iter().flatten().map(String::as_str);
        own.chain(self.models_allowed.iter().map(String::as_str)).chain(self.prices.models()).collect()
    }

    /// Returns the maximum tokens of an answer to a request that asks for `asked`.
    #[must_use]
    pub fn output_tokens(&self, asked: Option<u64>) -> Option<u64> {
        match (asked, self.output_tokens_max) {
            (Some(asked), Some(most)) => Some(asked.min(most)),
            (asked, most) => asked.or(most),
        }
    }

    /// Returns the counter of a model.
    #[must_use]
    pub fn counter(&self, model: &str) -> Counter {
        (self.counter_of)(model)
    }
}

/// The tools that search a session's history, and when they are offered.
#[derive(Debug, Clone, Default)]
pub struct HistoryTools {
    /// When they are offered.
    pub offered: OfferHistory,
    /// The tools.
    pub tools: Tools,
}

/// The tools are offered automatically only if they take at most 1/`WINDOW_PART` of the window.
const WINDOW_PART: u64 = 20;

impl HistoryTools {
    /// Returns true if a session that was compacted this many times, undone or not, offers them. It then keeps offering
    /// them, so that the list of tools changes only when a compaction breaks the provider's cache anyway. If the tools
    /// would take more than a twentieth of the window in every request, the conversation needs that room.
    #[must_use]
    pub fn are_offered(&self, compactions: u64, tokens: u64, window_tokens: u64) -> bool {
        match self.offered {
            OfferHistory::Off => false,
            OfferHistory::Auto => compactions > 0 && tokens.saturating_mul(WINDOW_PART) <= window_tokens,
            OfferHistory::On => true,
        }
    }
}

/// When the tools that search the history are offered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OfferHistory {
    /// Never.
    Off,
    /// From a session's first compaction on, if the window is at least twenty times as large as the tools.
    #[default]
    Auto,
    /// Always.
    On,
}

/// Settings for making summaries.
#[derive(Debug, Clone, PartialEq)]
pub struct Summaries {
    /// The model that makes them; absent for the session's own.
    pub model: Option<String>,
    /// The kind of request used for them.
    pub request: SummaryRequest,
    /// Milliseconds after which a compaction continues without the model.
    pub timeout_ms: u64,
    /// The style that they are written in.
    pub writing: Writing,
}

impl Default for Summaries {
    fn default() -> Self {
        Self { model: None, request: SummaryRequest::Auto, timeout_ms: 180_000, writing: Writing::default() }
    }
}
