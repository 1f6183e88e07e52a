//! Hooks: external code called at fixed extension points. This folder contains hooks written in Rust and webhooks. A
//! client's own hooks are called through its socket.
//!
//! A hook's failure is isolated. Whatever it does wrong, including a panic, becomes a [`HookFault`]. The fault ends
//! only the operation for which the hook was called.
//!
//! One responsibility stays with the hook's author. A hook runs on the server's threads. If it computes for long, or
//! blocks without `.await`, it keeps such a thread from all sessions. Its time limit and a cancellation take effect
//! only where it awaits. Blocking work belongs in [`tokio::task::spawn_blocking`].

pub(crate) mod webhook;

mod in_process;
mod session;

pub use in_process::{on, on_session};
pub use session::{Access, AccessFuture, Session};

use crate::{
    core::hook::{HOOKS_MAX, HookFault, HookSpec},
    metrics::calls::HookKind,
};
use reseed_protocol::{
    ErrorCode,
    frame::{DEPTH_MAX, nests_too_deep},
    hooks::{HookAnswer, HookCall, HookEvent},
};
use std::{fmt, future::Future, pin::Pin, sync::Arc};
use webhook::Webhook;

/// Maximum characters of a fault's message. A longer one would be the hook's input or a stack trace.
const FAULT_CHARS_MAX: usize = 500;

/// The future that [`Hook::call`] returns.
pub type HookFuture<'a> = Pin<Box<dyn Future<Output = Result<HookAnswer, HookFault>> + Send + 'a>>;

/// External code called at fixed extension points.
///
/// Every hook must keep this contract:
/// - `specs` is called once, when the server starts. The hook is called only for the points listed there.
/// - Several calls may run at once, for as many sessions.
/// - Dropping the future cancels the call, because the turn was cancelled or the time limit has passed.
/// - Parts that an answer leaves out stay unchanged, so [`HookAnswer::default`] changes nothing.
///
/// [`on`] makes a hook from a closure. [`on_session`] makes one from a closure that needs the session.
///
/// ```
/// use reseed::{
///     core::hook::HookSpec,
///     hooks::{Hook, HookFuture, Hooks},
/// };
/// use reseed_protocol::{
///     Message,
///     context::PatchOp,
///     hooks::{ContextReason, HookAnswer, HookCall, HookPoint},
/// };
/// use std::sync::Arc;
///
/// /// Tells the model where the user is, for one request at a time.
/// struct Place(String);
///
/// impl Hook for Place {
///     fn specs(&self) -> Vec<HookSpec> {
///         vec![HookSpec::new("place", HookPoint::Context).for_reasons(&[ContextReason::Ephemeral])]
///     }
///
///     fn call(&self, _: HookCall) -> HookFuture<'_> {
///         let messages = vec![Message::user(format!("I am at {}.", self.0))];
///         Box::pin(async { Ok(HookAnswer::patch(vec![PatchOp::MessagesUncachedAppend { messages }])) })
///     }
/// }
///
/// let hooks = Hooks::new(vec![Arc::new(Place("the harbour".into()))]).expect("its name and point are allowed");
/// assert_eq!(hooks.specs()[0].name, "place");
/// ```
pub trait Hook: Send + Sync {
    /// Returns where and how the hook is called. A hook is required unless [`HookSpec::optional`] or
    /// [`HookSpec::observing`] says otherwise. If a required hook fails, the operation for which it was called does not
    /// happen.
    fn specs(&self) -> Vec<HookSpec>;

    /// Calls the hook. It owns the call, so its answer may reuse the call's parts.
    fn call(&self, call: HookCall) -> HookFuture<'_>;

    /// Calls the hook with a handle to the session, for hooks that read the session or add to it. The server always
    /// calls this method.
    fn call_in(&self, call: HookCall, session: Session) -> HookFuture<'_> {
        let _ = session;
        self.call(call)
    }
}

/// The reason why hooks cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct InvalidHooks {
    /// The hook, or the file and the position in it.
    pub place: String,
    /// The error, and the allowed values.
    pub message: String,
}

/// The server's hooks, in the order in which they are called.
#[derive(Clone, Default)]
pub struct Hooks {
    hooks: Arc<Vec<Registered>>,
}

/// A hook with one of its specs.
#[derive(Clone)]
struct Registered {
    spec: HookSpec,
    kind: HookKind,
    /// Its number among the hooks of its kind, from 1.
    number: usize,
    hook: Arc<dyn Hook>,
}

impl Hooks {
    /// Creates the registry with these Rust hooks, each with all of its specs.
    ///
    /// # Errors
    /// The invalid hook, or the first one beyond the limit.
    pub fn new(hooks: Vec<Arc<dyn Hook>>) -> Result<Self, InvalidHooks> {
        Self::default().and(HookKind::Rust, hooks)
    }

    /// Adds webhooks after the existing hooks.
    ///
    /// # Errors
    /// The invalid hook, or the first one beyond the limit.
    pub(crate) fn with_webhooks(self, webhooks: Vec<Webhook>) -> Result<Self, InvalidHooks> {
        self.and(HookKind::Webhook, webhooks.into_iter().map(|webhook| Arc::new(webhook) as Arc<dyn Hook>).collect())
    }

    fn and(self, kind: HookKind, more: Vec<Arc<dyn Hook>>) -> Result<Self, InvalidHooks> {
        let mut hooks = Arc::unwrap_or_clone(self.hooks);
        for (at, hook) in more.into_iter().enumerate() {
            for spec in hook.specs() {
                let invalid = |message| InvalidHooks {
                    place: match kind {
                        HookKind::Webhook => format!("webhook {} (`{}`)", at + 1, spec.name),
                        _ => format!("hook {} (`{}`)", at + 1, spec.name),
                    },
                    message,
                };
                spec.check().map_err(|(_, message)| invalid(message))?;
                if hooks.iter().any(|other| other.spec.overlaps(&spec)) {
                    return Err(invalid(format!(
                        "a hook of this name is already called for `{}`",
                        spec.point.as_str()
                    )));
                }
                if hooks.len() == HOOKS_MAX {
                    return Err(invalid(format!("a server can have at most {HOOKS_MAX} hook registrations")));
                }
                hooks.push(Registered { spec, kind, number: at + 1, hook: hook.clone() });
            }
        }
        Ok(Self { hooks: Arc::new(hooks) })
    }

    /// Returns these hooks with their webhooks replaced.
    ///
    /// # Errors
    /// As [`Self::with_webhooks`].
    pub(crate) fn with_other_webhooks(&self, webhooks: Vec<Webhook>) -> Result<Self, InvalidHooks> {
        let others = self.hooks.iter().filter(|hook| hook.kind != HookKind::Webhook).cloned().collect();
        Self { hooks: Arc::new(others) }.with_webhooks(webhooks)
    }

    /// Returns the index of the hook that a call is for; `None` if it has been removed.
    #[must_use]
    pub(crate) fn find(&self, call: &HookCall) -> Option<usize> {
        let point = call.event.point();
        let reason = match &call.event {
            HookEvent::Context { reason, .. } => Some(*reason),
            _ => None,
        };
        self.hooks.iter().position(|hook| hook.spec.name == call.hook && hook.spec.is_asked(point, reason))
    }

    /// Returns the specs of all hooks, in order.
    #[must_use]
    pub fn specs(&self) -> Vec<HookSpec> {
        self.hooks.iter().map(|hook| hook.spec.clone()).collect()
    }

    /// Returns the spec and kind of the hook at this index.
    #[must_use]
    pub(crate) fn get(&self, at: usize) -> Option<(&HookSpec, HookKind)> {
        self.hooks.get(at).map(|hook| (&hook.spec, hook.kind))
    }

    /// Returns the number of hooks of this kind, each counted once.
    #[must_use]
    pub(crate) fn count(&self, kind: HookKind) -> usize {
        let mut numbers: Vec<usize> =
            self.hooks.iter().filter(|hook| hook.kind == kind).map(|hook| hook.number).collect();
        numbers.dedup();
        numbers.len()
    }

    /// Calls the hook at this index. There is no time limit here, and dropping the future cancels the call.
    ///
    /// # Errors
    /// The failure that the hook returns, or its panic; `hook_unavailable` if there is no hook at this index.
    pub async fn call(&self, at: usize, call: HookCall, session: Session) -> Result<HookAnswer, HookFault> {
        let Some(registered) = self.hooks.get(at) else {
            return Err(HookFault::unavailable(format!("there is no hook at index {at}")));
        };
        let answer = in_process::isolated(|| registered.hook.call_in(call, session)).await.unwrap_or_else(
            |in_process::Panicked| {
                // The panic message may contain user text.
                tracing::error!(hook = registered.spec.name, "a hook panicked");
                Err(HookFault::failed("it panicked; see the server's log"))
            },
        );
        match answer {
            Ok(answer) if nests_too_deep(&answer) => {
                Err(HookFault::failed(format!("its answer is nested more than {DEPTH_MAX} deep")))
            }
            answer => answer.map_err(sanitised),
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.hooks.iter().map(|hook| (hook.kind, &hook.spec))).finish()
    }
}

/// Sanitises a fault. Gives it a hook's error code and a message of one line and limited length.
fn sanitised(fault: HookFault) -> HookFault {
    let code = match fault.code {
        code @ (ErrorCode::HookTimeout | ErrorCode::HookUnavailable) => code,
        _ => ErrorCode::HookFailed,
    };
    let letters = fault.message.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    HookFault { code, message: letters.take(FAULT_CHARS_MAX).collect() }
}

#[cfg(test)]
mod tests;
