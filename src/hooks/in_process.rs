//! Hooks that run in this process: made of closures, and kept from taking others down with them.

use super::{Hook, HookFuture};
use crate::core::hook::{HookFault, HookSpec};
use reseed_protocol::hook::{HookAnswer, HookCall};
use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Poll,
};

/// A hook of a closure.
///
/// ```
/// use reseed::{core::hook::HookSpec, hooks};
/// use reseed_protocol::hook::{HookAnswer, HookEvent, HookPoint};
///
/// // Nobody may delete anything.
/// let guard = hooks::on([HookSpec::new("no_delete", HookPoint::ToolCall)], |call| async move {
///     Ok(match call.event {
///         HookEvent::ToolCall { name, .. } if name == "delete" => HookAnswer::block("deleting is not allowed here"),
///         _ => HookAnswer::default(),
///     })
/// });
/// assert!(hooks::Hooks::new(vec![guard]).is_ok());
/// ```
pub fn on<A, F>(specs: impl Into<Vec<HookSpec>>, ask: A) -> Arc<dyn Hook>
where
    A: Fn(HookCall) -> F + Send + Sync + 'static,
    F: Future<Output = Result<HookAnswer, HookFault>> + Send + 'static,
{
    Arc::new(Closure { specs: specs.into(), ask })
}

struct Closure<A> {
    specs: Vec<HookSpec>,
    ask: A,
}

impl<A, F> Hook for Closure<A>
where
    A: Fn(HookCall) -> F + Send + Sync,
    F: Future<Output = Result<HookAnswer, HookFault>> + Send + 'static,
{
    fn specs(&self) -> Vec<HookSpec> {
        self.specs.clone()
    }

    fn call(&self, call: HookCall) -> HookFuture<'_> {
        Box::pin((self.ask)(call))
    }
}

/// The hook panicked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Panicked;

/// What a hook answers, or that it panicked: before it returned its future, or in it.
pub(super) async fn isolated<'a>(
    call: impl FnOnce() -> HookFuture<'a>,
) -> Result<Result<HookAnswer, HookFault>, Panicked> {
    // Nothing of a hook that panicked is looked at again but the hook itself, which says by its types that it can be
    // shared: a lock that it left poisoned is its own.
    let mut future = catch_unwind(AssertUnwindSafe(call)).map_err(|_| Panicked)?;
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(answer)) => Poll::Ready(Ok(answer)),
        Err(_) => Poll::Ready(Err(Panicked)),
    })
    .await
}
