//! To code of others': hooks written in Rust, and webhooks. A client's own hooks go through its socket instead.
//!
//! A hook's failure is its own: what it does wrong, a panic too, becomes a [`HookFault`] that ends what it was asked for
//! and nothing else.
//!
//! One thing is left to its author: a hook runs on the server's threads, which nobody can take away from it. One that
//! computes for long, or waits without `.await`, keeps such a thread from all sessions, and its time limit and a cancel
//! reach it only where it awaits. What cannot await belongs into [`tokio::task::spawn_blocking`].

pub mod webhook;

mod in_process;
mod session;

pub use in_process::{on, on_session};
pub use session::{Access, AccessFuture, Session};

use crate::{
    core::hook::{HOOKS_MAX, HookFault, HookSpec},
    metrics::hooks::HookKind,
};
use reseed_protocol::{
    ErrorCode,
    hook::{HookAnswer, HookCall},
};
use std::{fmt, future::Future, pin::Pin, sync::Arc};
use webhook::Webhook;

/// Characters of a fault's message that are told; more would be what the hook was given, or a trace.
const FAULT_CHARS_MAX: usize = 500;

/// What [`Hook::call`] returns.
pub type HookFuture<'a> = Pin<Box<dyn Future<Output = Result<HookAnswer, HookFault>> + Send + 'a>>;

/// Code that is asked at defined points.
///
/// Contract, the same for every hook:
/// - `specs` is asked once, when the server starts; the hook is called only for what it says there;
/// - several calls may be under way at once, of as many sessions;
/// - dropping the future cancels the call: the turn was cancelled, or the time limit is over;
/// - what an answer leaves out stays as it is, so [`HookAnswer::default`] changes nothing.
///
/// [`on`] makes one of a closure, [`on_session`] of one that has to do with the session it is asked about.
///
/// ```
/// use reseed::{
///     core::hook::HookSpec,
///     hooks::{Hook, HookFuture, Hooks},
/// };
/// use reseed_protocol::{
///     Message,
///     hook::{ContextReason, HookAnswer, HookCall, HookPoint},
///     patch::PatchOp,
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
    /// Where and how it is asked. A hook is required unless [`HookSpec::optional`] or [`HookSpec::observing`] says
    /// otherwise: when it fails, what it was asked about does not happen.
    fn specs(&self) -> Vec<HookSpec>;

    /// Asks it. The call is its own: what it answers may be made of the call's parts.
    fn call(&self, call: HookCall) -> HookFuture<'_>;

    /// The same with a handle to the session that it is asked about, for a hook that reads it or adds to it. The server
    /// calls this one.
    fn call_in(&self, call: HookCall, session: Session) -> HookFuture<'_> {
        let _ = session;
        self.call(call)
    }
}

/// Why hooks cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct InvalidHooks {
    /// Which hook, or the file and the place in it.
    pub place: String,
    /// What is wrong with it, and what is allowed.
    pub message: String,
}

/// The server's hooks, in the order in which they are asked.
#[derive(Clone, Default)]
pub struct Hooks {
    hooks: Arc<Vec<Registered>>,
}

/// A hook and one thing that it is asked for.
#[derive(Clone)]
struct Registered {
    spec: HookSpec,
    kind: HookKind,
    /// Which hook of its kind it is, from 1.
    number: usize,
    hook: Arc<dyn Hook>,
}

impl Hooks {
    /// These hooks in Rust, each with all that it is asked for.
    ///
    /// # Errors
    /// The hook that may not be as it is, or one too many.
    pub fn new(hooks: Vec<Arc<dyn Hook>>) -> Result<Self, InvalidHooks> {
        Self::default().and(HookKind::Rust, hooks)
    }

    /// The same, followed by these webhooks.
    ///
    /// # Errors
    /// The hook that may not be as it is, or one too many.
    pub fn with_webhooks(self, webhooks: Vec<Webhook>) -> Result<Self, InvalidHooks> {
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
                    return Err(invalid(format!("a hook of this name is asked for `{}` already", spec.point.as_str())));
                }
                if hooks.len() == HOOKS_MAX {
                    return Err(invalid(format!("a server's hooks may be asked for {HOOKS_MAX} things in all")));
                }
                hooks.push(Registered { spec, kind, number: at + 1, hook: hook.clone() });
            }
        }
        Ok(Self { hooks: Arc::new(hooks) })
    }

    /// Where each is asked, by its place.
    #[must_use]
    pub fn specs(&self) -> Vec<HookSpec> {
        self.hooks.iter().map(|hook| hook.spec.clone()).collect()
    }

    /// Where the hook at that place is asked, and what kind it is.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<(&HookSpec, HookKind)> {
        self.hooks.get(at).map(|hook| (&hook.spec, hook.kind))
    }

    /// How many of that kind there are, each counted once.
    #[must_use]
    pub fn count(&self, kind: HookKind) -> usize {
        let mut numbers: Vec<usize> =
            self.hooks.iter().filter(|hook| hook.kind == kind).map(|hook| hook.number).collect();
        numbers.dedup();
        numbers.len()
    }

    /// Asks the hook at that place. There is no time limit here: dropping the future cancels the call.
    ///
    /// # Errors
    /// What it answers as its failure, or that it panicked; `hook_unavailable` where there is none at that place.
    pub async fn call(&self, at: usize, call: HookCall, session: Session) -> Result<HookAnswer, HookFault> {
        let Some(registered) = self.hooks.get(at) else {
            return Err(HookFault::unavailable(format!("there is no hook at place {at}")));
        };
        let answer = in_process::isolated(|| registered.hook.call_in(call, session)).await.unwrap_or_else(
            |in_process::Panicked| {
                // What it panicked with may be what was said.
                tracing::error!(hook = registered.spec.name, "a hook panicked");
                Err(HookFault::failed("it panicked; see the server's log"))
            },
        );
        answer.map_err(told)
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.hooks.iter().map(|hook| (hook.kind, &hook.spec))).finish()
    }
}

/// A fault as it is told: with a code that is a hook's, in one line that is not too long.
fn told(fault: HookFault) -> HookFault {
    let code = match fault.code {
        code @ (ErrorCode::HookTimeout | ErrorCode::HookUnavailable) => code,
        _ => ErrorCode::HookFailed,
    };
    let letters = fault.message.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    HookFault { code, message: letters.take(FAULT_CHARS_MAX).collect() }
}

#[cfg(test)]
mod tests;
