//! Links between servers that end, and holders that do.

use super::{check_whole, durable, nodes, open};
use crate::support::{
    client::Client,
    cluster::{LONG_LEASE, Node, SHORT_LEASE, database},
    http::get,
    polling::{PATIENCE, until},
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::{
    array, fs,
    time::{Duration, Instant},
};

/// Opens a session again where this client left off, as soon as a server has it.
pub(super) async fn resumed(client: &mut Client, session: &Value, before: &Value) -> Value {
    let seq = durable(client, session).last().map_or(before["asOfSeq"].as_u64().unwrap(), |(seq, _)| *seq);
    let resume = json!({ "epoch": before["epoch"], "seq": seq });
    until("open the session again", async || {
        let opened = client.ask("open_session", json!({ "sessionId": session, "resume": resume })).await;
        if opened["type"] == "session_opened" {
            return Ok(opened["payload"].clone());
        }
        assert_eq!(opened["payload"]["retriable"], true, "{opened}");
        assert!(opened["payload"]["retryAfterMs"].is_u64(), "{opened}");
        Err(opened.to_string())
    })
    .await
}

#[tokio::test]
async fn a_killed_holder_ends_its_own_subscriptions_and_they_resume_elsewhere() {
    let [a, b] = nodes(&[SHORT_LEASE]).await;
    let (mut at_a, session) = a.session().await;
    at_a.turn("My cat is called Miso.").await;
    let mut client = b.client().await;
    let opened = open(&mut client, &session).await;
    let since = opened["asOfSeq"].as_u64().unwrap();
    client.turn("Who is Miso?").await;
    let own = client.ask("open_session", json!({})).await["payload"]["sessionId"].clone();
    a.server.kill().await;
    let closed = client.event("session_closed").await;
    assert_eq!((&closed["sessionId"], &closed["payload"]["code"]), (&session, &json!("moved")), "{closed}");
    assert_eq!(closed["payload"]["retriable"], true, "{closed}");
    // The other session continues meanwhile.
    client.session = own.as_str().map(str::to_owned);
    client.turn("Are you there?").await;
    let back = resumed(&mut client, &session, &opened).await;
    assert_eq!(back["resumed"], "replay", "{back}");
    client.session = session.as_str().map(str::to_owned);
    client.turn("And who is Miso now?").await;
    check_whole(&client, &session, since + 1);
}

#[tokio::test]
async fn a_holder_that_cannot_be_reached_is_asked_for_later() {
    let [a, b] = nodes(&[]).await;
    let (mut at_a, session) = a.session().await;
    at_a.turn("My cat is called Miso.").await;
    a.gate.close();
    let mut client = b.client().await;
    let began = Instant::now();
    for (kind, payload) in [
        ("open_session", json!({ "sessionId": session })),
        ("rename_session", json!({ "sessionId": session, "name": "Cats" })),
        ("delete_session", json!({ "sessionId": session })),
    ] {
        let refused = client.ask(kind, payload).await;
        assert_eq!(refused["payload"]["code"], "overloaded", "{refused}");
        assert_eq!(refused["payload"]["retriable"], true, "{refused}");
        assert!(refused["payload"]["retryAfterMs"].is_u64(), "{refused}");
    }
    for _ in 0..20 {
        let refused = client.ask("open_session", json!({ "sessionId": session })).await;
        assert_eq!(refused["payload"]["code"], "overloaded", "{refused}");
    }
    // The first is logged at once, and then one every two seconds.
    let lines = b.log().matches("another server cannot be reached").count() as u64;
    assert!((1..=1 + began.elapsed().as_secs() / 2).contains(&lines), "{lines}: {}", b.log());
    a.gate.open(&a.server.address);
    open(&mut client, &session).await;
    client.turn("Who is Miso?").await;
    at_a.turn("And here?").await;
}

#[tokio::test]
async fn what_a_client_sent_before_it_left_is_carried_out_although_the_holder_was_still_being_dialled() {
    let [a, b] = nodes(&[]).await;
    let ((mut renamed, kept), (mut deleted, removed)) = (a.session().await, a.session().await);
    let (mut renaming, mut deleting) = (b.client().await, b.client().await);
    // Connecting takes longer than leaving.
    a.gate.delay(Duration::from_secs(1));
    renaming.send("rename_session", json!({ "sessionId": kept, "name": "Cats" })).await;
    deleting.send("delete_session", json!({ "sessionId": removed })).await;
    renaming.hang_up();
    deleting.hang_up();
    until("both have left", async || {
        let metrics = get(&b.server.address, "/metrics").await.body;
        if metrics.contains("reseed_connections{dialect=\"v2\"} 0") { Ok(()) } else { Err(metrics) }
    })
    .await;
    a.gate.delay(Duration::ZERO);
    renamed.until(|frame| frame["type"] == "session_updated" && frame["payload"]["name"] == "Cats").await;
    let closed = deleted.event("session_closed").await;
    assert_eq!((&closed["sessionId"], &closed["payload"]["code"]), (&removed, &json!("deleted")), "{closed}");
}

#[tokio::test]
async fn a_holder_that_stops_hands_its_sessions_over() {
    let [a, b] = nodes(&[]).await;
    let (mut at_a, session) = a.session().await;
    at_a.turn("My cat is called Miso.").await;
    let mut client = b.client().await;
    let opened = open(&mut client, &session).await;
    a.server.terminate().await;
    let closed = client.event("session_closed").await;
    assert_eq!((&closed["sessionId"], &closed["payload"]["code"]), (&session, &json!("moved")), "{closed}");
    assert_eq!(at_a.closed().await, 1012);
    let back = resumed(&mut client, &session, &opened).await;
    assert_eq!(back["resumed"], "replay", "{back}");
    client.turn("Who is Miso?").await;
}

#[tokio::test]
async fn a_server_at_another_s_address_is_not_taken_for_it() {
    let [a, b, c] = nodes(&[]).await;
    let (mut at_b, session) = b.session().await;
    b.gate.open(&a.server.address);
    let mut client = c.client().await;
    let refused = client.ask("open_session", json!({ "sessionId": session })).await;
    assert_eq!(refused["payload"]["code"], "overloaded", "{refused}");
    assert!(c.log().contains("another server answers at its address"), "{}", c.log());
    b.gate.open(&b.server.address);
    open(&mut client, &session).await;
    client.turn("My cat is called Miso.").await;
    at_b.event("turn_finished").await;
}

/// Rounds in which each of three clients opens a session, writes, and leaves it.
const ROUNDS: usize = 12;

#[tokio::test]
async fn a_session_that_moves_all_the_time_loses_and_doubles_nothing() {
    let [a, b, c] = nodes(&[]).await;
    let (mut first, session) = a.session().await;
    first.ask("close_session", json!({})).await;
    let visits = [(&a, "a"), (&b, "b"), (&c, "c")].map(async |(node, name)| {
        let (mut client, mut written) = (node.client().await, Vec::new());
        for round in 0..ROUNDS {
            until("open a session that moves", async || {
                let opened = client.ask("open_session", json!({ "sessionId": session, "entries": 0 })).await;
                if opened["type"] == "session_opened" {
                    return Ok(());
                }
                assert_eq!(opened["payload"]["retriable"], true, "{opened}");
                Err(opened.to_string())
            })
            .await;
            let text = format!("{name} {round}");
            let added = client.ask("append_custom", json!({ "customType": "t", "data": text })).await;
            // Its holder may have left at this moment; then nothing was acknowledged.
            match added["type"] == "ok" {
                true => written.push(text),
                false => assert_eq!(added["payload"]["retriable"], true, "{added}"),
            }
            let closed = client.ask("close_session", json!({})).await;
            assert!(closed["type"] == "ok" || closed["payload"]["code"] == "no_session", "{closed}");
        }
        written
    });
    let written = join_all(visits).await.concat();
    let entries = first.ask("get_entries", json!({ "sessionId": session, "limit": 500 })).await;
    let stored: Vec<&str> =
        entries["payload"]["items"].as_array().unwrap().iter().filter_map(|entry| entry["data"].as_str()).collect();
    assert!(written.len() > 2 * ROUNDS, "most were acknowledged: {written:?}");
    for text in &written {
        assert_eq!(stored.iter().filter(|stored| *stored == text).count(), 1, "{text}: {stored:?}");
    }
}

/// Returns the resident memory of a process in KiB.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Returns the resident memory of each process in KiB: the minimum of ten measurements, one after each run of `work`.
///
/// One measurement is off by up to 20 MB, because buffers come and go, and the system joins pages to huge ones.
async fn least_resident(pids: [u32; 2], mut work: impl AsyncFnMut()) -> [u64; 2] {
    let mut least = [u64::MAX; 2];
    for _ in 0..10 {
        work().await;
        least = array::from_fn(|index| least[index].min(resident(pids[index])));
    }
    least
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_reader_that_stalls_costs_neither_server_memory() {
    let database = database().await;
    let more = [
        LONG_LEASE,
        // Neither server gives the client up within the test.
        ("SLOW_READER_SECS", "600"),
        ("CONTEXT_STRATEGY", "manual"),
        ("HEARTBEAT_SECS", "600"),
        // The allocator returns freed memory to the system at once.
        ("MIMALLOC_PURGE_DELAY", "0"),
    ];
    let (a, b) = (Node::start(&database, "a", &more).await, Node::start(&database, "b", &more).await);
    let long = "x".repeat(200_000);
    let append = async |at_a: &mut Client, count: usize| {
        for _ in 0..count {
            let added = at_a.ask("append_custom", json!({ "customType": "t", "data": { "text": long } })).await;
            assert_eq!(added["type"], "ok", "{}", added["payload"]["code"]);
            at_a.seen.clear();
            at_a.forget("");
        }
    };
    // Measures the cost of appends by themselves.
    append(&mut a.session().await.0, 50).await;
    let (mut at_a, session) = a.session().await;
    let mut stalled = b.client().await;
    open(&mut stalled, &session).await;
    // This is more than the buffers in between hold.
    append(&mut at_a, 50).await;
    let pids = [a.server.pid(), b.server.pid()];
    let before = least_resident(pids, async || append(&mut at_a, 5).await).await;
    append(&mut at_a, 250).await;
    let after = least_resident(pids, async || append(&mut at_a, 5).await).await;
    for (name, before, after) in [("holder", before[0], after[0]), ("edge", before[1], after[1])] {
        // At least 50 MB more were said meanwhile. Pages read from the store, and groups on their way to it, come and
        // go. What is kept shows if it is more than half of that.
        assert!(after < before + 25_000, "{name}: {before} KiB, then {after} KiB");
    }
    let began = Instant::now();
    // All of it arrives once it is read.
    let mut last = 0;
    while last < 400 {
        let frame = stalled.next_frame().await.unwrap();
        last += u64::from(frame["type"] == "entry_appended");
        stalled.seen.clear();
        assert!(began.elapsed() < PATIENCE, "{last} entries");
    }
}
