//! To code of others': hooks written in Rust, and webhooks. A client's own hooks go through its socket instead.

use crate::core::hook::{HookFault, HookSpec};
use reseed_protocol::hook::{HookAnswer, HookCall};
use std::{future::Future, pin::Pin, sync::Arc};

/// What [`Hook::call`] returns.
pub type HookFuture<'a> = Pin<Box<dyn Future<Output = Result<HookAnswer, HookFault>> + Send + 'a>>;

/// Code that is asked at defined points.
///
/// Contract, the same for every hook:
/// - `specs` is asked once, when the server starts; the hook is called only for what it says there;
/// - dropping the future cancels the call: the turn was cancelled, or the time limit is over;
/// - what an answer leaves out stays as it is, so [`HookAnswer::default`] changes nothing.
pub trait Hook: Send + Sync {
    /// Where and how it is asked.
    fn specs(&self) -> Vec<HookSpec>;

    /// Asks it.
    fn call<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a>;
}

/// The server's hooks, in the order in which they are asked.
#[derive(Clone, Default)]
pub struct Hooks {
    hooks: Arc<Vec<(HookSpec, Arc<dyn Hook>)>>,
}

impl Hooks {
    /// These hooks, each with all that it is asked for.
    #[must_use]
    pub fn new(hooks: Vec<Arc<dyn Hook>>) -> Self {
        let each = |hook: &Arc<dyn Hook>| {
            let hook = hook.clone();
            hook.specs().into_iter().map(move |spec| (spec, hook.clone())).collect::<Vec<_>>()
        };
        Self { hooks: Arc::new(hooks.iter().flat_map(each).collect()) }
    }

    /// Where each is asked, by its place.
    #[must_use]
    pub fn specs(&self) -> Vec<HookSpec> {
        self.hooks.iter().map(|(spec, _)| spec.clone()).collect()
    }

    /// Asks the hook at that place.
    ///
    /// # Errors
    /// What it answers as its failure; `hook_unavailable` where there is none at that place.
    pub async fn call(&self, at: usize, call: &HookCall) -> Result<HookAnswer, HookFault> {
        match self.hooks.get(at) {
            Some((_, hook)) => hook.call(call).await,
            None => Err(HookFault::unavailable(format!("there is no hook at place {at}"))),
        }
    }
}
