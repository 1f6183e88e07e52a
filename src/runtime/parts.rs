//! The provider, hooks, tools and settings that sessions use. They can be replaced while the server runs.

use crate::{
    core::{
        agent_loop::{Deployment, HistoryTools},
        prices::Prices,
    },
    hooks::Hooks,
    provider::Provider,
    tools::Toolset,
};
use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, RwLock},
};

/// Maximum number of models about which a restriction is remembered, which is more than any deployment has. If
/// CONTEXT_WINDOW is set, every name is accepted as a model, so clients could otherwise fill memory with names.
pub(super) const MODELS_MAX: usize = 1_000;

/// The parts in use, replaced as a whole.
pub struct Parts(RwLock<Arc<InUse>>);

/// The parts at one moment. A caller that does several things with them keeps them meanwhile.
#[derive(Clone)]
pub(super) struct InUse {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) hooks: Hooks,
    pub(super) tools: Toolset,
    pub(super) deployment: Arc<Deployment>,
}

impl InUse {
    fn new(provider: Arc<dyn Provider>, hooks: Hooks, tools: Toolset, deployment: Deployment) -> Self {
        // The core names hooks and tools that the shell must find, so both use the same lists.
        let history_tools = HistoryTools { tools: tools.history().clone(), ..deployment.history_tools };
        let server_tools = tools.checked().clone();
        let deployment = Deployment { hooks: hooks.specs(), server_tools, history_tools, ..deployment };
        Self { provider, hooks, tools, deployment: Arc::new(deployment) }
    }
}

impl Parts {
    pub(super) fn new(provider: Arc<dyn Provider>, hooks: Hooks, tools: Toolset, deployment: Deployment) -> Self {
        Self(RwLock::new(Arc::new(InUse::new(provider, hooks, tools, deployment))))
    }

    pub(super) fn in_use(&self) -> Arc<InUse> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the settings that sessions start from.
    #[must_use]
    pub fn deployment(&self) -> Arc<Deployment> {
        self.in_use().deployment.clone()
    }

    /// Returns the server's hooks.
    #[must_use]
    pub fn hooks(&self) -> Hooks {
        self.in_use().hooks.clone()
    }

    /// Returns the tools that the server runs.
    #[must_use]
    pub fn tools(&self) -> Toolset {
        self.in_use().tools.clone()
    }

    /// Applies new prices and hooks. An open session uses them from its next command, tick or answer. Requests and hook
    /// calls in progress end with the ones they began with.
    pub fn reconfigure(&self, prices: Prices, hooks: Hooks) {
        self.replace(|old| {
            let deployment = Deployment { prices, ..(*old.deployment).clone() };
            Some(InUse::new(old.provider.clone(), hooks, old.tools.clone(), deployment))
        });
    }

    /// Sends all further requests to this provider.
    pub fn replace_provider(&self, provider: Arc<dyn Provider>) {
        self.replace(|old| Some(InUse { provider, ..old.clone() }));
    }

    /// Applies new server-side tools. A session offers them from its next turn or compaction on. A call of a tool that
    /// is gone fails.
    pub fn replace_tools(&self, tools: Toolset) {
        self.replace(|old| Some(InUse::new(old.provider.clone(), old.hooks.clone(), tools, (*old.deployment).clone())));
    }

    /// Remembers that a model takes no tools, for all sessions until the server stops.
    pub(super) fn takes_no_tools(&self, model: &str) {
        self.learn(|deployment| {
            let is_new = learn_model(&mut deployment.models_without_tools, model);
            if is_new {
                tracing::warn!(
                    model,
                    "the model refused a request because it offered tools; it will not be offered any"
                );
            }
            is_new
        });
    }

    /// Remembers that a model takes no images. Model lists show this until the server stops.
    pub(super) fn takes_no_images(&self, model: &str) {
        self.learn(|deployment| {
            let known = &mut deployment.models_take;
            if known.len() >= MODELS_MAX && !known.contains_key(model) {
                return false;
            }
            known.entry(model.to_owned()).or_default().images.replace(false) != Some(false)
        });
    }

    /// Remembers that a model writes calls as text, for all sessions until the server stops.
    pub(super) fn writes_calls(&self, model: &str) {
        self.learn(|deployment| {
            let is_new = learn_model(&mut deployment.models_writing_calls, model);
            if is_new {
                tracing::warn!(
                    model,
                    "the model wrote a tool call as text instead of making it; it is no longer offered the tools that \
                     search the history"
                );
            }
            is_new
        });
    }

    /// Changes the deployment if `learn` returns true.
    fn learn(&self, learn: impl FnOnce(&mut Deployment) -> bool) {
        self.replace(|old| {
            let mut deployment = (*old.deployment).clone();
            learn(&mut deployment).then(|| InUse { deployment: Arc::new(deployment), ..old.clone() })
        });
    }

    fn replace(&self, with: impl FnOnce(&InUse) -> Option<InUse>) {
        let mut in_use = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(new) = with(&in_use) {
            *in_use = Arc::new(new);
        }
    }
}

/// Adds a model to a list of known ones. Returns false if it is already there, or if the list is full.
fn learn_model(known: &mut BTreeSet<String>, model: &str) -> bool {
    known.len() < MODELS_MAX && known.insert(model.to_owned())
}
