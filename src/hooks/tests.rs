//! Tests of Rust hooks: which are accepted, how they are called, and what happens when one fails.

use super::{Access, AccessFuture, Hook, HookFuture, Hooks, Session, on};
use crate::{
    core::{
        agent_loop::Snapshot,
        hook::{HOOKS_MAX, HookFault, HookSpec},
    },
    metrics::calls::HookKind,
};
use reseed_protocol::{
    Entry, EntryId, ErrorBody, ErrorCode,
    command::SessionCommand,
    context::{Context, GetContext},
    hooks::{ContextReason, HookAnswer, HookCall, HookEvent, HookPoint},
    reply::Reply,
};
use serde_json::json;
use std::sync::Arc;

/// A session that has left memory.
fn nowhere() -> Session {
    struct Nowhere;
    fn gone<T>() -> AccessFuture<'static, T>
    where
        T: Send + 'static,
    {
        Box::pin(std::future::ready(Err(ErrorBody::new(ErrorCode::SessionNotFound, "it is gone"))))
    }
    impl Access for Nowhere {
        fn command(&self, _: SessionCommand) -> AccessFuture<'_, Reply> {
            gone()
        }
        fn now(&self) -> AccessFuture<'_, Snapshot> {
            gone()
        }
        fn context(&self, _: GetContext) -> AccessFuture<'_, Context> {
            gone()
        }
        fn path(&self, _: EntryId, _: u32) -> AccessFuture<'_, Vec<Entry>> {
            gone()
        }
    }
    Session::new(Arc::new(Nowhere))
}

/// Returns a call for a tool call.
pub(super) fn call() -> HookCall {
    let call = json!({
        "hookCallId": "call1", "hook": "test", "sessionId": "session1", "point": "tool_call", "toolCallId": "t1",
        "name": "delete", "arguments": "{}",
    });
    serde_json::from_value(call).unwrap()
}

fn silent(specs: &[HookSpec]) -> Arc<dyn Hook> {
    on(specs, async |_| Ok(HookAnswer::default()))
}

fn context(name: &str, reasons: &[ContextReason]) -> HookSpec {
    HookSpec::new(name, HookPoint::Context).for_reasons(reasons)
}

#[test]
fn a_hook_that_may_not_be_so_is_refused_by_its_place_and_name() {
    use ContextReason::{BeforeRequest, Ephemeral};
    let message = |name: &str| HookSpec::new(name, HookPoint::Message);
    let refused: Vec<(Vec<HookSpec>, &str)> = vec![
        (vec![message("a b")], "hook 2 (`a b`): a hook's name must be 1 to 64 of A-Za-z0-9._-, not `a b`"),
        (vec![message("")], "hook 2 (``): a hook's name must be"),
        (vec![message("a").within(0)], "hook 2 (`a`): the time limit of `a` must be 1 to 600000 ms"),
        (vec![message("a").for_reasons(&[Ephemeral])], "hook 2 (`a`): only `context` hooks have reasons"),
        (vec![message("first")], "hook 2 (`first`): a hook of this name is already called for `message`"),
        (
            vec![context("a", &[]), context("a", &[Ephemeral])],
            "hook 2 (`a`): a hook of this name is already called for `context`",
        ),
        (
            vec![HookSpec { required: true, ..message("a").observing() }],
            "hook 2 (`a`): `a` is an observer that nobody waits for, so it cannot be required",
        ),
    ];
    for (specs, expected) in refused {
        let error = Hooks::new(vec![silent(&[message("first")]), silent(&specs)]).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let hooks = Hooks::new(vec![
        silent(&[message("first"), context("a", &[BeforeRequest])]),
        silent(&[context("a", &[Ephemeral]), message("a")]),
        silent(&[]),
    ]);
    let hooks = hooks.unwrap();
    let names: Vec<String> = hooks.specs().into_iter().map(|spec| spec.name).collect();
    assert_eq!((names, hooks.count(HookKind::Rust)), (["first", "a", "a", "a"].map(str::to_owned).to_vec(), 2));
    assert_eq!(hooks.count(HookKind::Webhook), 0);
    let shown = format!("{hooks:?}");
    assert!(shown.contains("Rust") && shown.contains("first"), "{shown}");
}

#[test]
fn there_is_a_most_number_of_hooks() {
    let specs: Vec<HookSpec> = (0..HOOKS_MAX).map(|at| HookSpec::new(format!("h{at}"), HookPoint::Message)).collect();
    assert_eq!(Hooks::new(vec![silent(&specs)]).unwrap().specs().len(), HOOKS_MAX);
    let one = [HookSpec::new("more", HookPoint::Message)];
    let error = Hooks::new(vec![silent(&specs), silent(&one)]).map(|_| ()).unwrap_err().to_string();
    assert_eq!(error, "hook 2 (`more`): a server can have at most 32 hook registrations");
}

#[tokio::test]
async fn a_hook_answers_from_the_parts_of_its_call() {
    let hook = on([HookSpec::new("guard", HookPoint::ToolCall)], |call: HookCall| async move {
        match call.event {
            HookEvent::ToolCall { name, .. } if name == "delete" => Ok(HookAnswer::block(format!("no {name}"))),
            _ => Ok(HookAnswer::default()),
        }
    });
    let hooks = Hooks::new(vec![hook]).unwrap();
    assert_eq!(hooks.call(0, call(), nowhere()).await, Ok(HookAnswer::block("no delete")));
    assert_eq!(hooks.call(1, call(), nowhere()).await.unwrap_err().code, ErrorCode::HookUnavailable);
}

/// Panics before it returns its future.
struct PanicsAtOnce;

impl Hook for PanicsAtOnce {
    fn specs(&self) -> Vec<HookSpec> {
        vec![HookSpec::new("at_once", HookPoint::ToolCall)]
    }

    fn call(&self, _: HookCall) -> HookFuture<'_> {
        panic!("secret words")
    }
}

#[tokio::test]
async fn a_panic_is_a_fault_that_repeats_nothing_and_the_hook_is_asked_again() {
    let later = on([HookSpec::new("later", HookPoint::ToolCall)], |_| async {
        tokio::task::yield_now().await;
        panic!("secret words")
    });
    let hooks = Hooks::new(vec![Arc::new(PanicsAtOnce), later]).unwrap();
    for at in [0, 1, 0, 1] {
        let fault = hooks.call(at, call(), nowhere()).await.unwrap_err();
        assert_eq!(fault, HookFault::failed("it panicked; see the server's log"));
    }
}

#[tokio::test]
async fn a_fault_has_a_hooks_code_and_is_one_short_line() {
    let hook = on([HookSpec::new("odd", HookPoint::ToolCall)], async |_| {
        Err(HookFault { code: ErrorCode::StoreFailed, message: format!("a\nb\u{1b}[2J{}", "c".repeat(10_000)) })
    });
    let fault = Hooks::new(vec![hook]).unwrap().call(0, call(), nowhere()).await.unwrap_err();
    assert_eq!((fault.code, fault.message.len()), (ErrorCode::HookFailed, 500));
    assert!(fault.message.starts_with("a b [2Jccc"), "{fault}");
}
