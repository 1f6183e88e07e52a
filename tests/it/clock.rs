//! Time that passes, and a machine whose clock is set while the server runs.

use crate::support::scripted::{Reply, Scripted};
use reseed::{
    config::LimitSettings,
    core::{
        agent_loop::{Deployment, Origin, check_offers},
        context::windows::Windows,
    },
    hooks::Hooks,
    internals::{Attach, Clock, ConnectionShare, Identity, Outbox, Outgoing, REPLIES_MAX, Registry, RegistryOptions},
    store::{Append, Head, ListQuery, NewRecord, SessionStore, UNFINISHED, memory::MemoryStore},
    tools::Toolset,
};
use reseed_protocol::{
    CommandId, Part, Timestamp,
    command::{Empty, SessionCommand},
    content::Input,
    session::SessionRole,
    turn::UserInput,
};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use tokio::time::{Instant, advance};

const HOUR: Duration = Duration::from_hours(1);

/// tokio's clock, with a time of day that is wrong by this many milliseconds.
struct SetClock {
    began: Instant,
    off_by: AtomicI64,
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.elapsed().as_millis()).unwrap();
        Timestamp(1_767_225_600_000 + elapsed + self.off_by.load(Ordering::SeqCst))
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

fn registry(clock: Arc<SetClock>, model: Scripted, store: Arc<MemoryStore>) -> Arc<Registry> {
    let deployment = Deployment {
        model: "test".into(),
        windows: Windows::new(Some(8_000), Vec::new()),
        tool_rounds_max: 4,
        ..Deployment::default()
    };
    Registry::new(RegistryOptions {
        store,
        provider: Arc::new(model),
        clock,
        hooks: Hooks::default(),
        tools: Toolset::default(),
        deployment,
        limits: LimitSettings { sessions_open_max: 8, ..LimitSettings::default() },
        has_several_users: false,
        detached_turn: HOUR,
        host_away: HOUR,
        cluster: None,
    })
}

#[tokio::test(start_paused = true)]
async fn a_session_in_which_nothing_was_said_goes_after_an_hour_unless_it_is_open() {
    let clock = Arc::new(SetClock { began: Instant::now(), off_by: AtomicI64::new(0) });
    let store = Arc::new(MemoryStore::new());
    let created = async |id: &str, at| store.create(&id.parse().unwrap(), "ann", at).await.unwrap();
    let stored = async || {
        let listed = store.list(ListQuery { limit: 100, ..ListQuery::default() }).await.unwrap();
        let mut ids: Vec<String> = listed.items.into_iter().map(|head| head.session.to_string()).collect();
        ids.sort();
        ids
    };
    created("empty", clock.now()).await;
    created("unfinished", UNFINISHED).await;
    let lease = created("written", clock.now()).await;
    let head = Head { created_at: clock.now(), updated_at: clock.now(), ..Head::default() };
    let record = NewRecord { body: "{}".into(), entry: None };
    store
        .append(&lease, 1, Append { records: vec![record.clone(), record], marks: Vec::new(), usage: Vec::new(), head })
        .await
        .unwrap();
    let registry = registry(clock.clone(), Scripted::new(), store.clone());
    let open = registry.create("ann").await.unwrap();
    let (outgoing, _incoming) = Outbox::new(REPLIES_MAX);
    let identity = Identity { connection_id: "connection".parse().unwrap(), client_id: None, software: None };
    let attach = Attach {
        origin: Origin(1),
        role: SessionRole::Writer,
        tools: None,
        hooks: None,
        outgoing,
        shared: ConnectionShare::new(identity),
        resume: None,
    };
    let _attached = open.attach(attach).await.unwrap().unwrap();
    registry.keep_sweeping(0);
    // At the last sweep of the hour nothing is old enough.
    advance(HOUR - Duration::from_secs(1)).await;
    created("young", clock.now()).await;
    let mut all = vec![open.id.to_string(), "empty".into(), "written".into(), "young".into()];
    all.sort();
    assert_eq!(stored().await, all);
    let mut left = all;
    left.retain(|id| id != "empty");
    while stored().await != left {
        advance(Duration::from_secs(1)).await;
        assert!(clock.elapsed() < HOUR + HOUR / 6, "{:?}", stored().await);
    }
    assert!(clock.elapsed() > HOUR, "{:?}", clock.elapsed());
    assert!(store.head(&"unfinished".parse().unwrap()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_tool_keeps_its_time_when_the_clock_is_set() {
    let clock = Arc::new(SetClock { began: Instant::now(), off_by: AtomicI64::new(0) });
    let call = Part::ToolCall { call_id: "call_0".parse().unwrap(), name: "look".into(), arguments: "{}".into() };
    let model = Scripted::answering(|_| Reply::text("done"));
    model.push(Reply::parts(vec![call]));
    let registry = registry(clock.clone(), model, Arc::new(MemoryStore::new()));
    let handle = registry.create("").await.unwrap();
    let (outgoing, mut incoming) = Outbox::new(REPLIES_MAX);
    let identity = Identity { connection_id: "connection".parse().unwrap(), client_id: None, software: None };
    let offer = json!({ "name": "look", "description": "Looks.", "parameters": {}, "timeoutMs": 600_000 });
    let attach = Attach {
        origin: Origin(1),
        role: SessionRole::Writer,
        tools: Some(check_offers(serde_json::from_value(json!([offer])).unwrap()).unwrap()),
        hooks: None,
        outgoing: outgoing.clone(),
        shared: ConnectionShare::new(identity),
        resume: None,
    };
    let _attached = handle.attach(attach).await.unwrap().unwrap();
    let say = SessionCommand::UserInput(UserInput::plain(Input::Text("look".into())));
    handle.command(Origin(1), "input-00000000001".parse().unwrap(), say, outgoing.clone()).await.unwrap();
    while handle.snapshot().await.unwrap().pending.is_empty() {
        tokio::task::yield_now().await;
    }
    for hours in [-24, 24] {
        clock.off_by.store(hours * 3_600_000, Ordering::SeqCst);
        advance(Duration::from_secs(1)).await;
        // Each message wakes the session, which then looks whether a time limit has passed.
        for number in 0..2 {
            let look = SessionCommand::GetContextInfo(Empty {});
            let id: CommandId = format!("look-{hours}-{number}").parse().unwrap();
            handle.command(Origin(1), id.clone(), look, outgoing.clone()).await.unwrap();
            while !matches!(incoming.recv().await.unwrap(), Outgoing::Reply(replied) if replied.re == id) {}
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(handle.snapshot().await.unwrap().pending.len(), 1, "the tool still has its time, {hours} hours on");
    }
    registry.stop(Duration::ZERO).await;
}
