//! Tests of a session's hook calls: answered, failed, cancelled and observing.

use super::*;
use crate::{
    clock::ManualClock,
    config::LimitSettings,
    core::agent_loop::Deployment,
    hooks::{Hook, on},
    provider::offline::Offline,
    runtime::{
        handle::{Mailbox, Message},
        model_server_load::ModelServerLoad,
        parts::Parts,
        resting::Resting,
        stored_shares::StoredShares,
    },
    shares::{
        Shares,
        budgets::{Budgets, Rules},
    },
    store::memory::MemoryStore,
    tools::Toolset,
};
use dashmap::DashMap;
use reseed_protocol::hooks::{HookEvent, HookPoint};
use serde_json::json;
use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

const AT: HookPoint = HookPoint::ToolCall;

fn calls(hooks: Vec<Arc<dyn Hook>>) -> (HookCalls, Mailbox, mpsc::Receiver<Box<Message>>) {
    let parts = Parts::new(
        Arc::new(Offline::new(Default::default())),
        Hooks::new(hooks).unwrap(),
        Toolset::default(),
        Deployment::default(),
    );
    let (store, limits) = (Arc::new(MemoryStore::new()), LimitSettings::default());
    let shares = Shares::new(&limits, false);
    let clock = Arc::new(ManualClock::default());
    let shared = Shared {
        traces: OnceLock::new(),
        budgets: Budgets::new(Rules::default(), store.clone(), clock.clone(), false),
        model_server: ModelServerLoad::new(crate::provider::Slots::Several),
        stored: StoredShares::new(store.clone(), shares.clone(), &limits, false),
        unstored: Arc::default(),
        shares,
        store,
        parts,
        clock,
        detached_turn: Duration::ZERO,
        host_away: Duration::ZERO,
        drain: CancellationToken::new(),
        stop: CancellationToken::new(),
        calibrations: DashMap::new(),
        damaged: DashMap::new(),
        resting: Resting::default(),
        cluster: None,
    };
    let (sender, receiver) = Mailbox::new();
    (HookCalls::new(Arc::new(shared), "session1".parse().unwrap(), sender.downgrade()), sender, receiver)
}

fn call(hook: &str, id: usize) -> HookCall {
    let call = json!({
        "hookCallId": format!("call{id}"), "hook": hook, "sessionId": "session1", "point": "tool_call",
        "deadline": "1970-01-01T00:00:05.000Z", "toolCallId": "t1", "name": "look", "arguments": "{}",
    });
    serde_json::from_value(call).unwrap()
}

fn answered(message: Option<Box<Message>>) -> (String, Result<HookAnswer, HookFault>) {
    match message.map(|message| *message) {
        Some(Message::Input(Input::HookAnswered { call_id, answer })) => (call_id.to_string(), *answer),
        _ => panic!("no answer"),
    }
}

#[tokio::test]
async fn an_answer_and_a_panic_come_into_the_mailbox() {
    let hooks = vec![
        on([HookSpec::new("answers", AT)], |call: HookCall| async move {
            let HookEvent::ToolCall { name, .. } = call.event else { return Err(HookFault::failed("another event")) };
            Ok(HookAnswer::block(name))
        }),
        on([HookSpec::new("panics", AT)], async |_| panic!("secret")),
    ];
    let (mut calls, _kept, mut mailbox) = calls(hooks);
    calls.ask(call("answers", 1), true, Span::default());
    assert_eq!(answered(mailbox.recv().await), ("call1".into(), Ok(HookAnswer::block("look"))));
    calls.ask(call("panics", 2), true, Span::default());
    let (id, answer) = answered(mailbox.recv().await);
    assert_eq!((id.as_str(), answer.unwrap_err().code), ("call2", ErrorCode::HookFailed));
}

/// Counts dropped values.
struct Dropped(Arc<AtomicUsize>, Arc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.1.notify_one();
    }
}

/// Returns a hook that never answers. Also returns the number of its calls started, the number dropped, and a
/// notification of both.
fn endless(spec: HookSpec) -> (Arc<dyn Hook>, Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<Notify>) {
    let (begun, dropped, news) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (counted, ended, told) = (begun.clone(), dropped.clone(), news.clone());
    let hook = on([spec], move |_| {
        let guard = Dropped(ended.clone(), told.clone());
        counted.fetch_add(1, Ordering::SeqCst);
        told.notify_one();
        async move {
            let _guard = guard;
            std::future::pending().await
        }
    });
    (hook, begun, dropped, news)
}

async fn until(count: &AtomicUsize, expected: usize, news: &Notify) {
    while count.load(Ordering::SeqCst) != expected {
        news.notified().await;
    }
}

#[tokio::test]
async fn a_cancelled_hook_is_dropped_and_says_nothing() {
    let (hook, begun, dropped, news) = endless(HookSpec::new("endless", AT));
    let (mut calls, _kept, mut mailbox) = calls(vec![hook]);
    for id in 1..=3 {
        calls.ask(call("endless", id), true, Span::default());
    }
    until(&begun, 3, &news).await;
    calls.cancel(Timestamp(5_000), &call("endless", 1).call_id);
    until(&dropped, 1, &news).await;
    calls.cancel(Timestamp(5_000), &call("endless", 1).call_id);
    calls.cancel_all();
    until(&dropped, 3, &news).await;
    assert!(mailbox.try_recv().is_err());
}

#[tokio::test]
async fn a_session_that_leaves_memory_cancels_what_it_waits_for_and_not_what_it_tells() {
    let (hook, begun, dropped, news) = endless(HookSpec::new("endless", AT));
    let (mut calls, _kept, _mailbox) = calls(vec![hook]);
    calls.ask(call("endless", 1), true, Span::default());
    calls.ask(call("endless", 2), false, Span::default());
    until(&begun, 2, &news).await;
    drop(calls);
    until(&dropped, 1, &news).await;
    tokio::task::yield_now().await;
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn observers_are_told_until_their_time_is_over_and_passed_over_when_they_fall_behind() {
    let (hook, begun, dropped, news) = endless(HookSpec::new("observer", AT).observing().within(2_000));
    let (mut calls, _kept, mut mailbox) = calls(vec![hook]);
    for id in 0..OBSERVERS_MAX + 3 {
        calls.ask(call("observer", id), false, Span::default());
    }
    until(&dropped, OBSERVERS_MAX, &news).await;
    assert_eq!(begun.load(Ordering::SeqCst), OBSERVERS_MAX);
    // There is room again.
    calls.ask(call("observer", 1_000), false, Span::default());
    until(&begun, OBSERVERS_MAX + 1, &news).await;
    assert!(mailbox.try_recv().is_err());
}

#[tokio::test]
async fn more_calls_than_a_session_can_have_are_refused_by_a_fault() {
    let (hook, ..) = endless(HookSpec::new("endless", AT));
    let (mut calls, _kept, mut mailbox) = calls(vec![hook]);
    for id in 0..=CALLS_MAX {
        calls.ask(call("endless", id), true, Span::default());
    }
    let (id, answer) = answered(mailbox.recv().await);
    assert_eq!(id, format!("call{CALLS_MAX}"));
    assert_eq!(answer.unwrap_err().message, "256 hook calls of this session are already running");
}

#[tokio::test]
async fn a_hook_that_was_removed_is_unavailable() {
    let (mut calls, _kept, mut mailbox) = calls(Vec::new());
    calls.ask(call("gone", 1), false, Span::default());
    calls.ask(call("gone", 2), true, Span::default());
    let (id, answer) = answered(mailbox.recv().await);
    assert_eq!((id.as_str(), answer.unwrap_err().code), ("call2", ErrorCode::HookUnavailable));
}
