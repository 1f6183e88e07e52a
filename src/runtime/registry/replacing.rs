//! Replaces parts that depend on the settings, while sessions are open.

use super::Registry;
use crate::tools::Toolset;
use crate::{
    core::{agent_loop::Deployment, prices::Prices},
    hooks::Hooks,
    provider::Provider,
    runtime::shared::Parts,
};
use std::sync::{Arc, PoisonError};
use tokio_util::sync::CancellationToken;

impl Registry {
    /// Returns the settings that sessions start from.
    #[must_use]
    pub fn deployment(&self) -> Arc<Deployment> {
        self.shared.deployment()
    }

    /// Returns the server's hooks.
    #[must_use]
    pub fn hooks(&self) -> Hooks {
        self.shared.parts().hooks.clone()
    }

    /// Applies new prices and hooks. An open session uses them from its next command, tick or answer. Requests and hook
    /// calls in progress end with the ones they began with.
    pub fn reconfigure(&self, prices: Prices, hooks: Hooks) {
        self.replace(|old| {
            let deployment = Deployment { prices, ..(*old.deployment).clone() };
            Parts::new(old.provider.clone(), hooks, old.tools.clone(), deployment)
        });
    }

    /// Sends all further requests to this provider.
    pub fn replace_provider(&self, provider: Arc<dyn Provider>) {
        self.replace(|old| {
            let (hooks, tools) = (old.hooks.clone(), old.tools.clone());
            Parts { provider, hooks, tools, deployment: old.deployment.clone() }
        });
    }

    /// Returns the token that is cancelled when the server is about to stop.
    pub(crate) fn stopping(&self) -> CancellationToken {
        self.shared.drain.clone()
    }

    /// Returns the tools that the server runs.
    #[must_use]
    pub fn tools(&self) -> Toolset {
        self.shared.parts().tools.clone()
    }

    /// Applies new server-side tools. A session offers them from its next turn or compaction on. A call of a tool that
    /// is gone fails.
    pub fn replace_tools(&self, tools: Toolset) {
        self.replace(|old| Parts::new(old.provider.clone(), old.hooks.clone(), tools, (*old.deployment).clone()));
    }

    fn replace(&self, with: impl FnOnce(&Parts) -> Parts) {
        let mut parts = self.shared.parts.write().unwrap_or_else(PoisonError::into_inner);
        *parts = Arc::new(with(&parts));
    }
}
