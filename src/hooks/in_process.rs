//! In-process hooks, built from closures. Panics are isolated.

use super::{Hook, HookFuture, Session};
use crate::core::hook::{HookFault, HookSpec};
use reseed_protocol::hooks::{HookAnswer, HookCall};
use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Poll,
};

/// Creates a hook from a closure.
///
/// ```
/// use reseed::{core::hook::HookSpec, hooks};
/// use reseed_protocol::hooks::{HookAnswer, HookEvent, HookPoint};
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

/// Creates a hook from a closure that also receives a handle to the session.
///
/// ```
/// use reseed::{core::hook::HookSpec, hooks};
/// use reseed_protocol::{hooks::{HookAnswer, HookPoint}, tree::AppendCustom};
///
/// // Notes in the history that a compaction is due.
/// let note = hooks::on_session([HookSpec::new("note", HookPoint::BeforeCompaction)], |_, session| async move {
///     let data = serde_json::json!({ "reason": "a compaction" });
///     let custom = AppendCustom { custom_type: "note".into(), data };
///     session.append_custom(custom).await.map_err(|error| reseed::core::hook::HookFault::failed(error.message))?;
///     Ok(HookAnswer::default())
/// });
/// assert!(hooks::Hooks::new(vec![note]).is_ok());
/// ```
pub fn on_session<A, F>(specs: impl Into<Vec<HookSpec>>, ask: A) -> Arc<dyn Hook>
where
    A: Fn(HookCall, Session) -> F + Send + Sync + 'static,
    F: Future<Output = Result<HookAnswer, HookFault>> + Send + 'static,
{
    Arc::new(InSession { specs: specs.into(), ask })
}

struct InSession<A> {
    specs: Vec<HookSpec>,
    ask: A,
}

impl<A, F> Hook for InSession<A>
where
    A: Fn(HookCall, Session) -> F + Send + Sync,
    F: Future<Output = Result<HookAnswer, HookFault>> + Send + 'static,
{
    fn specs(&self) -> Vec<HookSpec> {
        self.specs.clone()
    }

    fn call(&self, _: HookCall) -> HookFuture<'_> {
        Box::pin(std::future::ready(Err(HookFault::failed("this hook must be called with its session"))))
    }

    fn call_in(&self, call: HookCall, session: Session) -> HookFuture<'_> {
        Box::pin((self.ask)(call, session))
    }
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

/// Returns a hook's answer, or that it panicked. The panic may occur before it returns its future, or in the future.
pub(super) async fn isolated<'a>(
    call: impl FnOnce() -> HookFuture<'a>,
) -> Result<Result<HookAnswer, HookFault>, Panicked> {
    // After a panic, only the hook itself is used again. Its types say that it can be shared, so any lock that it
    // poisoned is its own concern.
    let mut future = catch_unwind(AssertUnwindSafe(call)).map_err(|_| Panicked)?;
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(answer)) => Poll::Ready(Ok(answer)),
        Err(_) => Poll::Ready(Err(Panicked)),
    })
    .await
}
