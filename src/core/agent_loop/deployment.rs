//! What the operator sets, the same for every session.

use crate::{
    context::{
        compaction::{SummaryRequest, Writing},
        counter::Estimator,
        cut::CutRule,
        factory::Strategies,
        strategy::Options,
        summary::FileTools,
        windows::Windows,
    },
    hook::HookSpec,
    prices::Prices,
};

/// Milliseconds a hook may take where neither it nor the settings say.
const HOOK_TIMEOUT_MS: u64 = 30_000;

/// Milliseconds a required hook is waited for while its client is away, where the settings do not say.
const HOOK_AWAY_MS: u64 = 120_000;

/// What the deployment says, the same for every session.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// The model of new sessions.
    pub model: String,
    /// The strategy of new sessions.
    pub strategy: String,
    /// The strategies there are.
    pub strategies: Strategies,
    /// The system prompt where a session has none of its own; empty for none.
    pub instructions: String,
    /// The strategies' settings where a session has none of its own.
    pub options: Options,
    /// How summaries are made.
    pub summaries: Summaries,
    /// Whose way of estimating is used.
    pub estimator: Estimator,
    /// Whose rule says where a compaction cuts.
    pub cut_rule: CutRule,
    /// Which window each model has.
    pub windows: Windows,
    /// What each model costs.
    pub prices: Prices,
    /// Milliseconds a tool may take where its offer does not say.
    pub tool_timeout_ms: u64,
    /// Answers with tool calls that one turn may have.
    pub tool_rounds_max: u64,
    /// Inputs that may wait in one session.
    pub queue_items_max: usize,
    /// The tools whose calls name files.
    pub file_tools: FileTools,
    /// The server's hooks, in the order in which they are asked; each is called by its place among them.
    pub hooks: Vec<HookSpec>,
    /// Milliseconds a hook may take where it does not say.
    pub hook_timeout_ms: u64,
    /// Milliseconds a required hook of a client is waited for while that client is away.
    pub hook_away_ms: u64,
}

impl Default for Deployment {
    fn default() -> Self {
        Self {
            model: String::new(),
            strategy: String::new(),
            strategies: Strategies::default(),
            instructions: String::new(),
            options: Options::default(),
            summaries: Summaries::default(),
            estimator: Estimator::default(),
            cut_rule: CutRule::default(),
            windows: Windows::default(),
            prices: Prices::default(),
            tool_timeout_ms: 0,
            tool_rounds_max: 0,
            queue_items_max: 0,
            file_tools: FileTools::default(),
            hooks: Vec::new(),
            hook_timeout_ms: HOOK_TIMEOUT_MS,
            hook_away_ms: HOOK_AWAY_MS,
        }
    }
}

/// How summaries are made.
#[derive(Debug, Clone, PartialEq)]
pub struct Summaries {
    /// The model that makes them; absent for the session's own.
    pub model: Option<String>,
    /// Where they are made.
    pub request: SummaryRequest,
    /// Most tokens of an answer that holds one; absent for what the window has room for.
    pub answer_tokens_max: Option<u64>,
    /// How long a compaction may take before it goes on without the model, in milliseconds.
    pub timeout_ms: u64,
    /// How they are written.
    pub writing: Writing,
}

impl Default for Summaries {
    fn default() -> Self {
        Self {
            model: None,
            request: SummaryRequest::Auto,
            answer_tokens_max: None,
            timeout_ms: 180_000,
            writing: Writing::default(),
        }
    }
}
