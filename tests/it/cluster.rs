//! Several real servers on one real PostgreSQL: a session has one of them, and continues on another when that one
//! stops, is killed, or is paused for so long that it no longer counts.

mod failover;

use crate::support::{
    binary::run,
    client::Client,
    cluster::{LONG_LEASE, Node, database},
    gate::Gate,
    http::{self, get},
    json::present,
    polling::until,
    postgres,
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Opens a session as soon as its server gives it up, or no longer counts. Until then the refusal says when to try
/// again.
async fn opened(client: &mut Client, session: &Value) -> Value {
    until("open the session", async || {
        let opened = client.ask("open_session", json!({ "sessionId": session, "entries": 50 })).await;
        if opened["type"] == "session_opened" {
            return Ok(opened["payload"].clone());
        }
        assert_eq!(opened["payload"]["code"], "overloaded", "{opened}");
        assert_eq!(opened["payload"]["retriable"], true, "{opened}");
        let wait = opened["payload"]["retryAfterMs"].as_u64();
        assert!(wait.is_some_and(|millis| (1..=5_000).contains(&millis)), "{opened}");
        Err(opened.to_string())
    })
    .await
}

fn texts(opened: &Value) -> String {
    present(&opened["entries"]).to_string()
}

#[tokio::test]
async fn a_session_is_open_on_one_server_and_free_once_that_one_gives_it_up() {
    let address = database().await;
    let long = [LONG_LEASE];
    let (a, b) = (Node::alone(&address, "a", &long).await, Node::alone(&address, "b", &long).await);
    let (mut at_a, session) = a.session().await;
    at_a.turn("My cat is called Miso.").await;
    let mut at_b = b.client().await;
    let refused = at_b.ask("open_session", json!({ "sessionId": session })).await;
    assert_eq!((&refused["type"], &refused["payload"]["code"]), (&json!("error"), &json!("overloaded")), "{refused}");
    assert!(refused["payload"]["retryAfterMs"].is_u64(), "{refused}");
    // It can be read from everywhere, and is listed everywhere.
    let entries = at_b.ask("get_entries", json!({ "sessionId": session, "limit": 10 })).await;
    assert!(entries.to_string().contains("Miso"), "{entries}");
    // Nobody has it open any more, so no server need be waited for.
    at_a.ask("close_session", json!({})).await;
    let back = opened(&mut at_b, &session).await;
    assert!(texts(&back).contains("Miso"), "{back}");
    at_b.turn("Who is Miso?").await;
    let refused = at_a.ask("open_session", json!({ "sessionId": session })).await;
    assert_eq!(refused["payload"]["code"], "overloaded", "{refused}");
}

#[tokio::test]
async fn a_server_that_stops_gives_up_at_once_what_it_has_open() {
    let address = database().await;
    let long = [LONG_LEASE];
    let (a, b) = (Node::alone(&address, "a", &long).await, Node::alone(&address, "b", &long).await);
    let (mut at_a, session) = a.session().await;
    at_a.turn("My cat is called Miso.").await;
    let (mut idle, other) = a.session().await;
    a.server.terminate().await;
    assert_eq!((at_a.closed().await, idle.closed().await), (1012, 1012));
    assert_eq!(a.server.ended().await, Some(0));
    // The first attempt succeeds, although the lease lasts a minute.
    let mut at_b = b.client().await;
    for session in [session, other] {
        let opened = at_b.ask("open_session", json!({ "sessionId": session })).await;
        assert_eq!(opened["type"], "session_opened", "{opened}");
    }
}

#[tokio::test]
async fn a_session_of_a_killed_server_continues_on_another_after_the_lease() {
    let address = database().await;
    // Its answers take as long as the test.
    let a = Node::alone(&address, "a", &[("OFFLINE_WORD_MILLIS", "10000")]).await;
    let (b, c) = (Node::alone(&address, "b", &[]).await, Node::alone(&address, "c", &[]).await);
    let (mut at_a, session) = a.session().await;
    let accepted = at_a.ask("user_input", json!({ "input": "My cat is called Miso." })).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
    let began = at_a.event("turn_started").await;
    let (mut at_b, mut at_c) = (b.client().await, c.client().await);
    a.server.kill().await;
    let killed = Instant::now();
    // Two servers ask for it at once, and one gets it.
    let (at_b, at_c) = (&mut at_b, &mut at_c);
    let (first, second) = tokio::select! {
        opened = opened(at_b, &session) => (opened, "b"),
        opened = opened(at_c, &session) => (opened, "c"),
    };
    assert!(killed.elapsed() >= Duration::from_secs(1), "nobody is silent before the lease is over");
    assert!(texts(&first).contains("Miso"), "{first}");
    // Only its new server says so.
    assert_eq!(first["lastTurn"]["status"], "interrupted", "{first}");
    assert_eq!(present(&first["lastTurn"]["turnId"]), present(&began["payload"]["turnId"]), "{first}");
    let winner = if second == "b" { at_b } else { at_c };
    winner.turn("Who is Miso?").await;
    let count = winner.forget("turn_finished").len();
    assert_eq!(count, 0, "no turn ended twice");
}

#[tokio::test]
async fn a_paused_server_wakes_without_what_others_have_taken() {
    let address = database().await;
    let (a, b) = (Node::alone(&address, "a", &[]).await, Node::alone(&address, "b", &[]).await);
    // One client has a session, another has two.
    let (mut single, taken) = a.session().await;
    single.turn("My cat is called Miso.").await;
    let (mut several, also_taken) = a.session().await;
    let kept = several.ask("open_session", json!({})).await["payload"]["sessionId"].clone();
    // This client has something to write when the server wakes.
    let (mut busy, written) = a.session().await;
    a.signal("STOP").await;
    let mut at_b = b.client().await;
    for session in [&taken, &also_taken, &written] {
        opened(&mut at_b, session).await;
    }
    at_b.session = taken.as_str().map(str::to_owned);
    at_b.turn("Who is Miso?").await;
    busy.send("user_input", json!({ "input": "Too late." })).await;
    a.signal("CONT").await;
    assert_eq!((single.closed().await, busy.closed().await), (1012, 1012));
    // A socket with another session stays, and learns which session it has lost.
    let closed = several.event("session_closed").await;
    assert_eq!((present(&closed["sessionId"]), &closed["payload"]["code"]), (&also_taken, &json!("moved")), "{closed}");
    assert_eq!(closed["payload"]["retriable"], true, "{closed}");
    several.session = kept.as_str().map(str::to_owned);
    several.turn("This one is still here.").await;
    // What the paused server was sent is nowhere, and what the other one did is kept.
    let entries = at_b.ask("get_entries", json!({ "sessionId": written, "limit": 50 })).await;
    assert!(!entries.to_string().contains("Too late."), "{entries}");
    let entries = at_b.ask("get_entries", json!({ "sessionId": taken, "limit": 50 })).await;
    assert!(entries.to_string().contains("Who is Miso?"), "{entries}");
    // It serves again.
    a.ready().await;
    let again = a.client().await.ask("open_session", json!({ "sessionId": taken })).await;
    assert_eq!(again["payload"]["code"], "overloaded", "{again}");
}

/// Returns a proxy before the database that can cut one server off from it, and the address through it.
async fn split(database: &str) -> (Gate, String) {
    let gate = Gate::new().await;
    gate.open(postgres::socket().to_str().unwrap());
    let address = format!("postgres://reseed@{}/{}", gate.address, database.rsplit('/').next().unwrap());
    (gate, address)
}

#[tokio::test]
async fn a_server_that_is_cut_off_from_the_database_stops_serving_and_others_take_over() {
    let address = database().await;
    let (split, through) = split(&address).await;
    let a = Node::alone(&through, "a", &[("STORE_PATIENCE_SECS", "3")]).await;
    let b = Node::alone(&address, "b", &[]).await;
    let (mut at_a, session) = a.session().await;
    at_a.turn("My cat is called Miso.").await;
    let (mut idle, other) = a.session().await;
    split.close();
    at_a.send("user_input", json!({ "input": "Nobody hears this." })).await;
    let mut at_b = b.client().await;
    let back = opened(&mut at_b, &session).await;
    assert!(texts(&back).contains("Miso"), "{back}");
    at_b.turn("Who is Miso?").await;
    // Whether others have taken the sessions or not, the clients are better off elsewhere.
    assert_eq!((at_a.closed().await, idle.closed().await), (1012, 1012));
    let accepted = at_a.seen.iter().filter(|frame| frame["type"] == "accepted").count();
    assert_eq!(accepted, 1, "only what was written is acknowledged");
    assert_eq!(get(&a.server.address, "/readyz").await.status, 503);
    split.open(postgres::socket().to_str().unwrap());
    a.ready().await;
    let mut again = a.client().await;
    let refused = again.ask("open_session", json!({ "sessionId": session })).await;
    assert_eq!(refused["payload"]["code"], "overloaded", "{refused}");
    opened(&mut again, &other).await;
    let entries = at_b.ask("get_entries", json!({ "sessionId": session, "limit": 50 })).await;
    assert!(!entries.to_string().contains("Nobody hears this."), "{entries}");
}

#[tokio::test]
async fn what_waits_in_a_session_while_the_database_is_away_is_refused_together() {
    let (split, through) = split(&database().await).await;
    let node = Node::alone(&through, "a", &[("STORE_PATIENCE_SECS", "3")]).await;
    let (first, session) = node.session().await;
    let mut clients = vec![first];
    for _ in 0..4 {
        let mut other = node.client().await;
        opened(&mut other, &session).await;
        clients.push(other);
    }
    split.close();
    for client in &mut clients {
        client.send("user_input", json!({ "input": "Nobody hears this." })).await;
    }
    let mut refusals = Vec::new();
    for client in &mut clients {
        assert_eq!(client.closed().await, 1012);
        let refused: Vec<_> = client.seen.iter().filter(|frame| frame["type"] == "error").collect();
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert_eq!(refused[0]["payload"]["code"], "store_failed", "{refused:?}");
        refusals.push(refused[0]["payload"]["message"].to_string());
    }
    let waited = refusals.iter().filter(|message| message.contains("the store failed")).count();
    assert_eq!(waited, 1, "the others did not wait for the database, one after the other: {refusals:?}");
}

#[tokio::test]
async fn clients_that_come_back_at_once_find_one_loop() {
    let address = database().await;
    let (a, b) = (Node::alone(&address, "a", &[]).await, Node::alone(&address, "b", &[]).await);
    let (mut at_a, session) = a.session().await;
    at_a.turn("My cat is called Miso.").await;
    let mut clients = join_all((0..12).map(|_| b.client())).await;
    a.server.kill().await;
    // Some have asked who holds it before the first of them has opened it.
    join_all(clients.iter_mut().map(|client| opened(client, &session))).await;
    clients[0].turn("Who is Miso?").await;
    for client in &mut clients[1..] {
        client.event("turn_finished").await;
    }
    let closed = clients.iter().flat_map(|client| &client.seen).filter(|frame| frame["type"] == "session_closed");
    assert_eq!(closed.count(), 0);
}

#[tokio::test]
async fn a_ticket_that_cannot_be_checked_now_is_not_called_wrong() {
    let (split, through) = split(&database().await).await;
    let settings = [("STORE_PATIENCE_SECS", "3"), ("AUTH_TOKENS", "ada:token-of-ada-4f1c9a7be2d3")];
    let node = Node::alone(&through, "a", &settings).await;
    let headers = [("Authorization", "Bearer token-of-ada-4f1c9a7be2d3")];
    let ticket = http::send(&node.server.address, "POST", "/api/tickets", &headers, "").await.json()["ticket"].clone();
    split.close();
    let mut client = Client::connect(&node.server.ws()).await;
    let refused = client.ask("hello", json!({ "protocolVersion": 2, "ticket": ticket })).await;
    assert_eq!(refused["payload"]["code"], "store_failed", "{refused}");
    assert_eq!(refused["payload"]["retriable"], true, "{refused}");
    // Clients do not come back after the code for wrong credentials.
    assert_eq!(client.closed().await, 1013);
    split.open(postgres::socket().to_str().unwrap());
    until("the ticket is taken", async || {
        let mut client = Client::connect(&node.server.ws()).await;
        let reply = client.ask("hello", json!({ "protocolVersion": 2, "ticket": ticket })).await;
        if reply["type"] == "welcome" { Ok(()) } else { Err(reply.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_for_longer_than_the_lease_moves_and_closes_nothing() {
    // This server syncs: what it acknowledges survives being killed.
    let database = Arc::new(tokio::task::spawn_blocking(|| postgres::Server::start("")).await.unwrap());
    let control = async |arguments: &'static [&'static str]| {
        let database = database.clone();
        tokio::task::spawn_blocking(move || database.control(arguments)).await.unwrap();
    };
    let named = database.clone();
    let address = tokio::task::spawn_blocking(move || named.database("")).await.unwrap();
    let (a, b) = (Node::alone(&address, "a", &[]).await, Node::alone(&address, "b", &[]).await);
    let ((mut at_a, of_a), (mut at_b, of_b)) = (a.session().await, b.session().await);
    at_a.turn("My cat is called Miso.").await;
    at_b.turn("My dog is called Rex.").await;
    control(&["stop", "-m", "immediate"]).await;
    for node in [&a, &b] {
        // The lease has run out as far as each of them knows.
        until("it knows that it cannot renew", async || {
            let ready = get(&node.server.address, "/readyz").await;
            if ready.body.contains("the database is away") { Ok(()) } else { Err(ready.body) }
        })
        .await;
    }
    // Commands that are sent meanwhile wait.
    let waiting = at_a.send("user_input", json!({ "input": "Who is Miso?" })).await;
    control(&["start"]).await;
    let accepted = at_a.until(|frame| frame["re"] == waiting.as_str()).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
    at_a.event("turn_finished").await;
    at_b.turn("Who is Rex?").await;
    for (node, session) in [(&a, &of_b), (&b, &of_a)] {
        let refused = node.client().await.ask("open_session", json!({ "sessionId": session })).await;
        assert_eq!(refused["payload"]["code"], "overloaded", "{refused}");
        assert!(!node.log().contains("closing sessions"), "{}", node.log());
    }
}

#[tokio::test]
async fn a_server_that_is_killed_again_and_again_is_one_that_is_silent() {
    let address = database().await;
    let (mut a, b) = (Node::start(&address, "a", &[]).await, Node::start(&address, "b", &[]).await);
    let counted = async |node: &Node| {
        let metrics = get(&node.server.address, "/metrics").await.body;
        let of = |state: &str| {
            let name = format!("reseed_nodes{{state=\"{state}\"}} ");
            metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok())
        };
        (of("living"), of("silent"))
    };
    let counts = async |node: &Node, living: u64, silent: u64| {
        until("it counts them", async || {
            let found = counted(node).await;
            if found == (Some(living), Some(silent)) { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    };
    for _ in 0..3 {
        a.restart().await;
    }
    counts(&a, 2, 0).await;
    counts(&b, 2, 0).await;
    a.server.kill_now().await;
    counts(&b, 1, 1).await;
    // A server that starts now counts no dead row, judged or not.
    let c = Node::start(&address, "c", &[]).await;
    let mut most = 0;
    until("it has judged them", async || {
        let (living, silent) = counted(&c).await;
        most = most.max(living.unwrap_or(0));
        if silent == Some(1) { Ok(()) } else { Err(format!("{living:?} {silent:?}")) }
    })
    .await;
    assert_eq!(most, 2, "itself and `b`");
}

#[tokio::test]
async fn a_server_that_starts_again_waits_for_itself_and_an_import_joins() {
    let address = database().await;
    let node = Node::alone(&address, "a", &[]).await;
    let (mut client, session) = node.session().await;
    client.turn("My cat is called Miso.").await;
    let settings = [("DATABASE_URL", address.as_str()), ("UNSAFE_STORE", "true")];
    let file = node.folder.path().join("out.jsonl").display().to_string();
    let name = session.as_str().unwrap();
    for arguments in [&["export", name, "--output", &file][..], &["import", "--new-id", &file]] {
        let ended = run(node.folder.path(), arguments, &settings).await;
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
    }
    node.server.kill().await;
    let again = Node::alone(&address, "a", &[]).await;
    let mut client = again.client().await;
    let back = opened(&mut client, &session).await;
    assert!(texts(&back).contains("Miso"), "{back}");
    let listed = client.ask("list_sessions", json!({})).await;
    assert_eq!(listed["payload"]["items"].as_array().map(Vec::len), Some(2), "{listed}");
}
