//! A standby that takes over: if it has everything that was acknowledged, nobody notices; if it lacks the end,
//! everybody does.

use super::opened;
use crate::operating::alerts::{fires, has_promtool, samples};
use crate::support::{
    cluster::{LONG_LEASE, Node},
    http::get,
    json::present,
    polling::until,
    postgres::Server,
};
use serde_json::{Value, json};
use std::sync::Arc;

const CHANGES: &str = "reseed_store_timeline_changes_total";

/// A primary and its standby.
#[derive(Clone)]
struct Pair {
    primary: Arc<Server>,
    standby: Arc<Server>,
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

impl Pair {
    /// Starts both; also returns the address of a database, which names both.
    async fn start() -> (Self, String) {
        blocking(|| {
            let primary = Arc::new(Server::start("wal_keep_size = 64MB"));
            let database = primary.database("");
            let standby = Arc::new(primary.standby());
            let address = primary.address_or(&standby, database.rsplit('/').next().unwrap());
            (Self { primary, standby }, address)
        })
        .await
    }

    async fn primary(&self, arguments: &'static [&'static str]) {
        let primary = self.primary.clone();
        blocking(move || primary.control(arguments)).await;
    }

    async fn standby(&self, arguments: &'static [&'static str]) {
        let standby = self.standby.clone();
        blocking(move || standby.control(arguments)).await;
    }

    /// Queries the primary until it returns this answer.
    async fn primary_says(&self, sql: &'static str, wanted: &'static str) {
        until(sql, async || {
            let primary = self.primary.clone();
            let said = blocking(move || primary.sql("postgres", sql)).await;
            if said.trim() == wanted { Ok(()) } else { Err(said) }
        })
        .await;
    }

    /// Lets every commit wait for the standby.
    async fn synchronous(&self) {
        let primary = self.primary.clone();
        blocking(move || {
            primary.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
            primary.sql("postgres", "SELECT pg_reload_conf()");
        })
        .await;
        self.primary_says("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", "1").await;
    }

    /// Waits until the standby has everything, and lets it receive nothing more.
    async fn hold_back(&self) {
        let caught_up = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()";
        self.primary_says(caught_up, "1").await;
        let standby = self.standby.clone();
        blocking(move || {
            standby.sql("postgres", "ALTER SYSTEM SET primary_conninfo = ''");
            standby.sql("postgres", "SELECT pg_reload_conf()");
        })
        .await;
        self.primary_says("SELECT count(*) FROM pg_stat_replication", "0").await;
    }
}

fn leaf_text(opened: &Value) -> String {
    present(&opened["entries"]).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_is_behind_is_noticed_and_its_logs_have_new_epochs() {
    let (pair, address) = Pair::start().await;
    let (a, b) = (Node::alone(&address, "a", &[LONG_LEASE]).await, Node::alone(&address, "b", &[LONG_LEASE]).await);
    let ((mut whole, of_whole), (mut shorter, of_shorter)) = (a.session().await, a.session().await);
    let (mut idle, of_idle) = b.session().await;
    for client in [&mut whole, &mut shorter, &mut idle] {
        client.turn("My cat is called Miso.").await;
    }
    let samples_before = samples(&a.server.address).await;
    pair.hold_back().await;
    shorter.turn("My dog is called Rex.").await;
    idle.turn("My fish is called Bob.").await;
    let (mut new, of_new) = a.session().await;
    new.turn("Is this written?").await;
    // Nobody has this one open.
    assert_eq!(idle.ask("close_session", json!({})).await["type"], "ok");
    let before = [&shorter, &idle].map(|client| {
        let opened = client.seen.iter().find(|frame| frame["type"] == "session_opened").unwrap();
        let seq = client.seen.iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap();
        (present(&opened["payload"]["epoch"]).clone(), seq)
    });
    pair.primary(&["stop", "-m", "immediate"]).await;
    pair.standby(&["promote"]).await;
    // Nothing was said in them, so the server has looked by itself. What is whole stays as it is.
    assert_eq!((shorter.closed().await, new.closed().await), (1012, 1012));
    whole.turn("Who is Miso?").await;
    for (node, session, (epoch, seq), lost) in [(&a, &of_shorter, &before[0], "Rex"), (&b, &of_idle, &before[1], "Bob")]
    {
        let mut client = node.client().await;
        opened(&mut client, session).await;
        client.ask("close_session", json!({})).await;
        let resume = json!({ "epoch": epoch, "seq": seq });
        let back = client.ask("open_session", json!({ "sessionId": session, "resume": resume, "entries": 50 })).await;
        let back = &back["payload"];
        assert_ne!(present(&back["epoch"]), epoch, "{back}");
        assert_eq!(back["resumed"], "snapshot", "{back}");
        let text = leaf_text(back);
        assert!(text.contains("Miso") && !text.contains(lost), "{back}");
        client.turn("What was lost?").await;
    }
    let gone = a.client().await.ask("open_session", json!({ "sessionId": of_new })).await;
    assert_eq!(gone["payload"]["code"], "session_not_found", "{gone}");
    if has_promtool() {
        fires("ReseedTimelineChanged", 2, &samples_before, &samples(&a.server.address).await);
    }
    for node in [&a, &b] {
        assert_eq!(node.metric(CHANGES).await, 1);
        assert!(node.log().contains("ERROR") && node.log().contains("another timeline"), "{}", node.log());
    }
    assert!(a.log().contains("closing sessions"), "{}", a.log());

    // The primary that was replaced comes back and accepts writes. A server that starts now still uses the other one,
    // although the address names it second.
    pair.primary(&["start"]).await;
    let c = Node::alone(&address, "c", &[LONG_LEASE]).await;
    let (mut late, of_late) = c.session().await;
    late.turn("My goat is called Ada.").await;
    assert_eq!(c.metric(CHANGES).await, 0, "it has seen no other");
    c.server.terminate().await;
    assert_eq!((late.closed().await, c.server.ended().await), (1012, Some(0)));
    let found = opened(&mut a.client().await, &of_late).await;
    assert!(leaf_text(&found).contains("Ada"), "{found}");

    // Nothing is written to the replaced primary, however long the other one is away.
    pair.standby(&["stop", "-m", "immediate"]).await;
    let waiting = whole.send("user_input", json!({ "input": "Is this written?" })).await;
    until("the replaced primary is refused", async || {
        let log = a.log();
        if log.contains("stop the primary that was replaced") { Ok(()) } else { Err(log) }
    })
    .await;
    pair.primary(&["stop", "-m", "immediate"]).await;
    pair.standby(&["start"]).await;
    let accepted = whole.until(|frame| frame["re"] == waiting.as_str()).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
    whole.event("turn_finished").await;
    assert_eq!(a.metric(CHANGES).await, 1);
    assert!(whole.seen.iter().all(|frame| frame["sessionId"].is_null() || frame["sessionId"] == of_whole));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_standby_takes_over_within_the_lease_without_loss_and_nobody_is_disconnected() {
    let (pair, address) = Pair::start().await;
    let (a, b) = (Node::alone(&address, "a", &[LONG_LEASE]).await, Node::alone(&address, "b", &[LONG_LEASE]).await);
    pair.synchronous().await;
    let ((mut at_a, of_a), (mut at_b, of_b)) = (a.session().await, b.session().await);
    at_a.turn("My cat is called Miso.").await;
    at_b.turn("My dog is called Rex.").await;
    pair.primary(&["stop", "-m", "immediate"]).await;
    let waiting = at_a.send("user_input", json!({ "input": "Who is Miso?" })).await;
    pair.standby(&["promote"]).await;
    let accepted = at_a.until(|frame| frame["re"] == waiting.as_str()).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
    at_a.event("turn_finished").await;
    at_b.turn("Who is Rex?").await;
    for (node, client, session) in [(&a, &mut at_a, &of_a), (&b, &mut at_b, &of_b)] {
        until("it has noticed", async || if node.metric(CHANGES).await == 1 { Ok(()) } else { Err(node.log()) }).await;
        node.ready().await;
        assert!(!node.log().contains("closing sessions"), "{}", node.log());
        // Everything that the client received is there, each event once.
        let told: Vec<u64> = client.seen.iter().filter_map(|frame| frame["seq"].as_u64()).collect();
        let expected: Vec<u64> = (told[0]..told[0] + told.len() as u64).collect();
        assert_eq!(told, expected);
        let pong = client.ask("ping", json!({ "sessionId": session, "seq": told.last() })).await;
        assert_eq!(pong["payload"]["inSync"], true, "{pong}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_outlasts_the_lease_gives_every_log_a_new_epoch() {
    let (pair, address) = Pair::start().await;
    let a = Node::alone(&address, "a", &[]).await;
    pair.synchronous().await;
    let (mut client, session) = a.session().await;
    client.turn("My cat is called Miso.").await;
    let first = client.seen.iter().find(|frame| frame["type"] == "session_opened").unwrap();
    let epoch = present(&first["payload"]["epoch"]).clone();
    let seq = client.seen.iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap();
    pair.primary(&["stop", "-m", "immediate"]).await;
    // As far as this server knows, somebody else may have opened the session by now.
    until("its lease has run out", async || {
        let ready = get(&a.server.address, "/readyz").await;
        if ready.body.contains("the database is away") { Ok(()) } else { Err(ready.body) }
    })
    .await;
    pair.standby(&["promote"]).await;
    assert_eq!(client.closed().await, 1012);
    a.ready().await;
    let resume = json!({ "epoch": epoch, "seq": seq });
    let mut client = a.client().await;
    opened(&mut client, &session).await;
    client.ask("close_session", json!({})).await;
    let back = client.ask("open_session", json!({ "sessionId": session, "resume": resume, "entries": 50 })).await;
    let back = &back["payload"];
    assert_ne!(present(&back["epoch"]), &epoch, "{back}");
    assert_eq!(back["resumed"], "snapshot", "{back}");
    assert!(leaf_text(back).contains("Miso"), "{back}");
    assert!(a.log().contains("closing sessions"), "{}", a.log());
}
