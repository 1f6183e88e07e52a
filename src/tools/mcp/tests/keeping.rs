//! Starting, failing, restarting and idling, on a clock that the tests move.

use super::{
    call, names, opened, played,
    script::{NEWEST, OLD, tool},
};
use crate::tools::{
    Output,
    mcp::{Mcp, ServerState, file::Listed, file::Spec},
};
use serde_json::json;
use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_come_up_says_why() {
    let silent = played("silent", |wire, _| async move {
        let _open = wire;
        pending::<()>().await;
    });
    let gone = played("gone", |mut wire, _| async move {
        let _ = wire.next().await;
    });
    let refusing = played("refusing", |mut wire, _| async move {
        while let Some(message) = wire.next().await {
            wire.refuse(&message, -32000, "the key hunter2 is wrong").await;
        }
    });
    let mut secret = refusing;
    secret.secrets.add("hunter2");
    let listless = played("listless", |mut wire, _| async move {
        while let Some(request) = wire.up_to_list().await {
            wire.refuse(&request, -32603, "no list today").await;
        }
    });
    let good = played("good", |mut wire, _| async move { while wire.up(NEWEST, &[tool("a")]).await.is_some() {} });
    let began = Instant::now();
    let mcp = opened(vec![good, gone, listless, secret, silent]).await;
    assert!(began.elapsed() < Duration::from_secs(61), "{:?}", began.elapsed());
    let status: Vec<_> = mcp.status().into_iter().map(|status| (status.name, status.error)).collect();
    let told = |name: &str, why: &str| (name.to_owned(), Some(why.to_owned()));
    assert_eq!(
        status,
        [
            told("gone", "closed the connection before it answered"),
            ("good".to_owned(), None),
            told("listless", "did not list its tools: it answered: no list today"),
            told("refusing", "refused the connection: the key *** is wrong"),
            told("silent", "did not come up within 60 s"),
        ]
    );
    assert_eq!(names(&mcp), ["good__a"]);
    let status = mcp.status();
    let good = &status[1];
    let about = (good.transport, good.protocol.as_deref(), good.software.as_deref(), &good.tools[..]);
    assert_eq!(about, ("scripted", Some(NEWEST), Some("scripted 1"), &["good__a".to_owned()][..]));
    let shown: Vec<_> = status.iter().map(|status| serde_json::to_value(status.shown()).unwrap()).collect();
    let failing = |name: &str, failure: &str| json!({ "name": name, "prefix": name, "state": "failing", "failure": failure, "restarts": 0 });
    assert_eq!(
        shown,
        [
            failing("gone", "disconnected"),
            json!({ "name": "good", "prefix": "good", "state": "ready", "restarts": 0 }),
            failing("listless", "wrong_answer"),
            failing("refusing", "refused"),
            failing("silent", "timeout"),
        ]
    );
    mcp.close().await;
    assert!(mcp.status().iter().all(|status| status.state == ServerState::Stopping));
}

#[tokio::test(start_paused = true)]
async fn settling_waits_for_a_bounded_time_and_what_comes_later_joins() {
    let late = played("late", |mut wire, _| async move {
        tokio::time::sleep(Duration::from_secs(20)).await;
        while wire.up(OLD, &[tool("a")]).await.is_some() {}
    });
    let mcp = Mcp::of(Listed { servers: vec![late], ..Listed::default() });
    let mut changed = mcp.changed();
    let began = Instant::now();
    mcp.settled(Duration::from_secs(5)).await;
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    assert_eq!((names(&mcp).len(), mcp.status()[0].state), (0, ServerState::Starting));
    changed.changed().await.unwrap();
    assert_eq!(names(&mcp), ["late__a"]);
    mcp.close().await;
}

#[tokio::test(start_paused = true)]
async fn an_old_server_that_hangs_up_on_the_new_question_is_asked_in_the_old_way() {
    let spec = played("s", |mut wire, connection| async move {
        if connection == 0 {
            let _ = wire.next().await;
            return;
        }
        while let Some(message) = wire.up(OLD, &[tool("a")]).await {
            wire.text(&message, "hi").await;
        }
    });
    let mcp = opened(vec![spec]).await;
    assert_eq!(call(&mcp, "s__a", json!({})).await, Output::text("hi"));
    assert_eq!(mcp.status()[0].error, None);
    mcp.close().await;
}

/// Returns a server that stays up for its first connections, and hangs up at once on later ones.
fn mortal(lives: usize, tries: &Arc<AtomicUsize>) -> Spec {
    let tries = tries.clone();
    played("s", move |mut wire, connection| {
        tries.fetch_add(1, Ordering::Relaxed);
        async move {
            if connection < lives
                && let Some(call) = wire.up(OLD, &[tool("a")]).await
            {
                wire.text(&call, "last words").await;
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn the_tools_of_a_server_that_stays_down_are_withdrawn_and_calls_are_told() {
    let tries = Arc::new(AtomicUsize::new(0));
    let mcp = opened(vec![mortal(1, &tries)]).await;
    let tool = mcp.tools().remove(0);
    let mut changed = mcp.changed();
    assert_eq!(call(&mcp, "s__a", json!({})).await, Output::text("last words"));
    let began = Instant::now();
    changed.changed().await.unwrap();
    assert_eq!(names(&mcp).len(), 0);
    // Each failed start makes two connections, because the older handshake is tried as well. The first of the ten
    // failures was the end of the first connection.
    assert_eq!(tries.load(Ordering::Relaxed), 1 + 2 * 9);
    assert!(began.elapsed() < Duration::from_secs(240), "{:?}", began.elapsed());

    // A call is answered at once, whatever the wait.
    let mut waits = 0;
    while waits < 3 {
        let began = Instant::now();
        let output = super::call_with(tool.clone(), json!({}), crate::tools::Progress::new(|_| {})).await;
        assert!(output.is_error && output.text.ends_with("The call was not made."), "{output:?}");
        assert!(output.text.contains("is down: it closed the connection before it answered"), "{output:?}");
        assert!(began.elapsed() <= Duration::from_secs(5), "{:?}", began.elapsed());
        tokio::time::advance(Duration::from_secs(20)).await;
        waits += 1;
    }
    mcp.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_back_is_offered_again() {
    let spec = played("s", |mut wire, connection| async move {
        // It is down for 12 failures, with two connections each.
        if (1..=24).contains(&connection) {
            return;
        }
        while let Some(call) = wire.up(OLD, &[tool("a")]).await {
            wire.text(&call, "hi").await;
            if connection == 0 {
                return;
            }
        }
    });
    let mcp = opened(vec![spec]).await;
    let mut changed = mcp.changed();
    assert_eq!(call(&mcp, "s__a", json!({})).await, Output::text("hi"));
    changed.changed().await.unwrap();
    assert_eq!(names(&mcp).len(), 0);
    changed.changed().await.unwrap();
    assert_eq!(names(&mcp), ["s__a"]);
    assert_eq!(call(&mcp, "s__a", json!({})).await, Output::text("hi"));
    mcp.close().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_server_is_stopped_and_the_next_call_starts_it() {
    let starts = Arc::new(AtomicUsize::new(0));
    let started = starts.clone();
    let spec = played("s", move |mut wire, _| {
        started.fetch_add(1, Ordering::Relaxed);
        async move {
            while let Some(call) = wire.up(OLD, &[tool("a")]).await {
                tokio::time::sleep(Duration::from_secs(500)).await;
                wire.text(&call, "hi").await;
            }
        }
    });
    let mcp = opened(vec![Spec { idle: Some(Duration::from_secs(300)), ..spec }]).await;
    let changed = mcp.changed();
    for n in 1..=2 {
        // The call takes longer than the idle time, but does not count as idle.
        assert_eq!(call(&mcp, "s__a", json!({})).await, Output::text("hi"));
        assert_eq!(starts.load(Ordering::Relaxed), n);
        tokio::time::sleep(Duration::from_secs(299)).await;
        assert_eq!(mcp.status()[0].state, ServerState::Ready);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(mcp.status()[0].state, ServerState::Idle);
        assert_eq!(names(&mcp), ["s__a"], "its tools stay");
    }
    assert!(!changed.has_changed().unwrap());
    mcp.close().await;
}

#[tokio::test]
async fn a_disabled_server_is_listed_and_never_started() {
    let mcp = Mcp::of(Listed { disabled: vec!["off".into()], ..Listed::default() });
    mcp.settled(Duration::from_secs(5)).await;
    let status = &mcp.status()[0];
    assert_eq!((status.name.as_str(), status.state), ("off", ServerState::Disabled));
    mcp.close().await;
}
