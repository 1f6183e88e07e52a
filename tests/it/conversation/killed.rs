//! The same conversation on three real servers and a real PostgreSQL: every ten turns the server that has the session
//! is killed, and the client reconnects to any other.
//!
//! `TURNS=200` talks for that many turns. A takeover waits for the lease.

use super::{WINDOW_TOKENS, examine, model, question};
use crate::support::{
    client::Client,
    cluster::{Node, SHORT_LEASE, database},
    conversation::{Conversation, Dialect},
    json::present,
    polling::until,
    postgres,
    upstream::{Setup, Upstream},
};
use crate::surviving::number;
use futures_util::future::join_all;
use serde_json::{Value, json};

/// Turns in the normal run.
const TURNS: u64 = 50;

/// Turns between two kills.
const KILL_EVERY: u64 = 10;

/// Rounds of tool calls in each turn.
const ROUNDS: u64 = 2;

/// Returns the name of the server that has a session open.
async fn holder(address: &str, session: &str) -> String {
    let database = address.rsplit('/').next().unwrap().to_owned();
    let sql = format!(
        "SELECT n.name FROM reseed.session s JOIN reseed.node n ON n.incarnation = s.holder WHERE s.id = '{session}'"
    );
    let name = tokio::task::spawn_blocking(move || postgres::sql(&database, &sql)).await.unwrap();
    name.trim().to_owned()
}

/// Opens a session where a client left off, as soon as a server has it; returns the client.
async fn resumed(node: &Node, session: &str, resume: &Value) -> Client {
    let mut client = node.client().await;
    let opened = until("open the session again", async || {
        let open = json!({ "sessionId": session, "resume": resume });
        let opened = client.ask("open_session", open).await;
        if opened["type"] == "session_opened" {
            return Ok(opened["payload"].clone());
        }
        assert_eq!(opened["payload"]["retriable"], true, "{opened}");
        // The conversation itself has no errors.
        client.seen.pop();
        Err(opened.to_string())
    })
    .await;
    assert_eq!(opened["resumed"], "replay", "{opened}");
    client
}

#[tokio::test]
async fn a_conversation_survives_the_kill_of_its_server_every_ten_turns() {
    let setup = Setup { window_tokens: Some(WINDOW_TOKENS), ..Setup::default() };
    let upstream = Upstream::start_with(setup, model(ROUNDS)).await;
    let (address, base_url) = (database().await, upstream.base_url());
    let window = WINDOW_TOKENS.to_string();
    let settings = [
        ("OPENAI_BASE_URL", base_url.as_str()),
        ("OPENAI_API", "chat"),
        ("MODEL", "test"),
        ("CONTEXT_WINDOW", window.as_str()),
        ("strategy.userShare", "0"),
        SHORT_LEASE,
    ];
    let mut nodes = join_all(["a", "b", "c"].map(|name| Node::start(&address, name, &settings))).await;
    let mut random = fastrand::Rng::with_seed(16);
    let mut conversation = Conversation::begin(&nodes[0].server.ws(), Dialect::V2).await;
    let opened = conversation.came("session_opened").remove(0);
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    conversation.offer(|call| super::words(call, if call % 7 == 0 { 160 } else { 30 })).await;
    let turns = number("TURNS").unwrap_or(TURNS);
    for turn in 1..=turns {
        conversation.talk(&question(turn)).await;
        if turn % KILL_EVERY > 0 || turn == turns {
            continue;
        }
        // A summary in progress would be requested again.
        conversation.idle().await;
        let name = holder(&address, &session).await;
        let at = ["a", "b", "c"].iter().position(|other| *other == name).unwrap_or_else(|| panic!("{name} has it"));
        nodes[at].restart().await;
        let seq = conversation.client.seen.iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap();
        let resume = json!({ "epoch": present(&opened["epoch"]), "seq": seq });
        let elsewhere = (at + 1 + random.usize(..2)) % nodes.len();
        conversation.go_on(resumed(&nodes[elsewhere], &session, &resume).await);
        conversation.offer_again().await;
        assert_ne!(holder(&address, &session).await, name, "another server has it");
    }
    examine(&mut conversation, &upstream, turns, ROUNDS).await;
}
