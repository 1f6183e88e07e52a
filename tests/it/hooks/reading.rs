//! A client that is connected and does not read for a moment.

use crate::support::scripted::{Reply, Scripted};
use reseed::{
    config::LimitSettings,
    core::{
        agent_loop::{Deployment, Origin},
        context::windows::Windows,
        hook::check_hooks,
    },
    hooks::Hooks,
    internals::{
        Attach, ConnectionShare, Identity, Outbox, Outgoing, REPLIES_MAX, Registry, RegistryOptions, SystemClock,
    },
    store::memory::MemoryStore,
    tools::Toolset,
};
use reseed_protocol::{
    command::{Empty, SessionCommand},
    content::Input,
    hooks::HookOffer,
    session::SessionRole,
    turn::UserInput,
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// The longest wait for what should come at once.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_client_that_did_not_read_for_a_moment_is_asked_once_it_reads() {
    let deployment = Deployment {
        model: "test".into(),
        strategy: "threshold".into(),
        windows: Windows::new(Some(8_000), Vec::new()),
        tool_timeout_ms: 10_000,
        tool_rounds_max: 4,
        queue_items_max: 4,
        hook_away_ms: 3_600_000,
        ..Deployment::default()
    };
    let registry = Registry::new(RegistryOptions {
        store: Arc::new(MemoryStore::new()),
        provider: Arc::new(Scripted::answering(|_| Reply::text("It is."))),
        clock: Arc::new(SystemClock),
        hooks: Hooks::default(),
        tools: Toolset::default(),
        deployment,
        limits: LimitSettings { sessions_open_max: 8, ..LimitSettings::default() },
        has_several_users: false,
        detached_turn: PATIENCE,
        host_away: PATIENCE,
        cluster: None,
    });
    let handle = registry.create("").await.unwrap();
    let (outgoing, mut incoming) = Outbox::new(REPLIES_MAX);
    let offer: HookOffer = serde_json::from_value(json!({ "name": "policy", "point": "before_agent_start" })).unwrap();
    let identity = Identity { connection_id: "connection".parse().unwrap(), client_id: None, software: None };
    let attach = Attach {
        origin: Origin(1),
        role: SessionRole::Writer,
        tools: None,
        hooks: Some(check_hooks(vec![offer]).unwrap().into()),
        outgoing: outgoing.clone(),
        shared: ConnectionShare::new(identity),
        resume: None,
    };
    let _attached = handle.attach(attach).await.unwrap().unwrap();
    // Sends enough replies to leave no room for events, then an input on which its hook is called.
    let look = SessionCommand::GetContextInfo(Empty {});
    for number in 0..REPLIES_MAX / 2 {
        let id = format!("look-{number}").parse().unwrap();
        handle.command(Origin(1), id, look.clone(), outgoing.clone()).await.unwrap();
    }
    let say = SessionCommand::UserInput(UserInput::plain(Input::Text("Is the sea warm?".into())));
    handle.command(Origin(1), "input-00000000001".parse().unwrap(), say, outgoing.clone()).await.unwrap();
    assert!(handle.snapshot().await.unwrap().turn.is_some(), "the turn waits for its hook");
    let is_reply = |outgoing: &Outgoing| matches!(outgoing, Outgoing::Reply(..));
    for number in 0..=REPLIES_MAX / 2 {
        let came = incoming.recv().await.unwrap();
        assert!(is_reply(&came), "{number}: {came:?}");
    }
    let came = timeout(PATIENCE, incoming.recv()).await.expect("it is asked again").unwrap();
    let Outgoing::Event(event) = came else { panic!("{came:?}") };
    let call: Value = serde_json::from_str(&event.frame).unwrap();
    assert_eq!((&call["type"], &call["payload"]["hook"]), (&json!("hook_call"), &json!("policy")));
    registry.stop(Duration::ZERO).await;
}
