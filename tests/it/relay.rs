//! Any server accepts any client: three real servers on one real PostgreSQL, with clients at servers that do not hold
//! their sessions.

mod broken;
mod draining;
mod faults;
mod looking;
mod rights;

use crate::support::{
    client::Client,
    cluster::{LONG_LEASE, Node, database},
    json::present,
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::time::Duration;

/// Starts servers `a`, `b`, … Their lease is long, unless these settings say otherwise.
async fn nodes<const N: usize>(more: &[(&str, &str)]) -> [Node; N] {
    let database = &database().await;
    let names = ["a", "b", "c"];
    let more = &[&[LONG_LEASE], more].concat();
    let started = join_all(names[..N].iter().map(|name| Node::start(database, name, more))).await;
    started.try_into().unwrap_or_else(|_| panic!("{N} were started"))
}

async fn open(client: &mut Client, session: &Value) -> Value {
    let opened = client.ask("open_session", json!({ "sessionId": session, "entries": 50 })).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    opened["payload"].clone()
}

/// Returns the payload of a message that starts no turn.
fn said(text: &str) -> Value {
    json!({ "customType": "t", "content": text, "display": true })
}

/// Returns the number of a durable event; 0 for other frames.
fn number(frame: &Value) -> u64 {
    frame["seq"].as_u64().unwrap_or_default()
}

/// Returns the durable events of a session that a client got, with their numbers.
fn durable(client: &Client, session: &Value) -> Vec<(u64, String)> {
    let of_session = client.seen.iter().filter(|frame| frame["sessionId"] == *session);
    of_session.filter_map(|frame| Some((frame["seq"].as_u64()?, frame.to_string()))).collect()
}

/// Checks that a client got every event of a session from this number on, in order, each once.
fn check_whole(client: &Client, session: &Value, from: u64) {
    let numbers: Vec<u64> = durable(client, session).into_iter().map(|(seq, _)| seq).collect();
    let expected: Vec<u64> = (from..from + numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "no hole and nothing twice");
}

#[tokio::test]
async fn two_windows_at_two_servers_see_one_order() {
    let [a, b, c] = nodes(&[]).await;
    let (mut at_a, session) = a.session().await;
    at_a.turn("My cat is called Miso.").await;
    let (mut at_b, mut at_c) = (b.client().await, c.client().await);
    let opened = open(&mut at_b, &session).await;
    assert!(opened["entries"].to_string().contains("Miso"), "{opened}");
    let since = opened["asOfSeq"].as_u64().unwrap();
    open(&mut at_c, &session).await;
    // A turn through a relay, streamed to all three.
    at_b.turn("Who is Miso?").await;
    for client in [&mut at_a, &mut at_c] {
        client.until(|frame| frame["type"] == "turn_finished" && number(frame) > since).await;
    }
    assert!(at_b.seen.iter().any(|frame| frame["type"] == "item_delta"), "{:#?}", at_b.seen);
    // All of them send at once, from three servers.
    let together = [(&mut at_a, "one"), (&mut at_b, "two"), (&mut at_c, "three")].map(|(client, text)| async move {
        for n in 0..5 {
            let accepted = client.ask("append_custom_message", said(&format!("{text} {n}"))).await;
            assert_eq!(accepted["type"], "ok", "{accepted}");
        }
    });
    join_all(together).await;
    at_b.turn("And now?").await;
    let last = durable(&at_b, &session).last().unwrap().0;
    for client in [&mut at_a, &mut at_c] {
        if durable(client, &session).last().is_none_or(|(seq, _)| *seq < last) {
            client.until(|frame| number(frame) >= last).await;
        }
    }
    let told = |client: &Client| -> Vec<_> {
        durable(client, &session).into_iter().filter(|(seq, _)| (since + 1..=last).contains(seq)).collect()
    };
    check_whole(&at_b, &session, since + 1);
    assert_eq!(told(&at_a), told(&at_b), "one order");
    assert_eq!(told(&at_b), told(&at_c), "one order");
    // A position in a session is the holder's.
    let pong = at_c.ask("ping", json!({ "sessionId": session, "seq": last })).await;
    assert_eq!((&pong["payload"]["seq"], &pong["payload"]["inSync"]), (&json!(last), &json!(true)), "{pong}");
    assert_eq!(at_b.ask("close_session", json!({})).await["type"], "ok");
    let refused = at_b.ask("user_input", json!({ "input": "Gone?" })).await;
    assert_eq!(refused["payload"]["code"], "no_session", "{refused}");
    for node in [a, b, c] {
        assert!(!node.log().contains("Miso"), "the log holds no text");
    }
}

#[tokio::test]
async fn one_socket_has_sessions_of_three_servers() {
    let [a, b, c] = nodes(&[]).await;
    let ((mut at_a, of_a), (mut at_b, of_b)) = (a.session().await, b.session().await);
    let mut client = c.client().await;
    open(&mut client, &of_a).await;
    open(&mut client, &of_b).await;
    let of_c = client.ask("open_session", json!({})).await["payload"]["sessionId"].clone();
    let again = client.ask("open_session", json!({ "sessionId": of_a })).await;
    assert_eq!(again["payload"]["code"], "session_already_open", "{again}");
    for session in [&of_a, &of_b, &of_c] {
        client.session = session.as_str().map(str::to_owned);
        let id = client.send("user_input", json!({ "input": "Hello!" })).await;
        let accepted = client.until(|frame| frame["re"] == id.as_str()).await;
        assert_eq!((&accepted["type"], &accepted["sessionId"]), (&json!("accepted"), session), "{accepted}");
    }
    for session in [&of_a, &of_b, &of_c] {
        client.until(|frame| frame["type"] == "turn_finished" && frame["sessionId"] == *session).await;
        check_whole(&client, session, durable(&client, session)[0].0);
    }
    at_a.event("turn_finished").await;
    at_b.event("turn_finished").await;
    // Its connection has one name, wherever its sessions are.
    let shown = at_a.ask("open_session", json!({ "sessionId": of_c })).await;
    let welcome = &client.seen[0]["payload"]["connectionId"];
    assert!(shown["payload"]["presence"].to_string().contains(welcome.as_str().unwrap()), "{shown}");
    let others = at_a.seen.iter().rfind(|frame| frame["type"] == "presence_changed").unwrap();
    assert!(others.to_string().contains(welcome.as_str().unwrap()), "{others}");
}

#[tokio::test]
async fn tools_and_approvals_go_through_a_relay() {
    let [a, b] = nodes(&[]).await;
    let (mut at_a, session) = a.session().await;
    let mut host = b.client().await;
    let parameters = json!({ "type": "object", "properties": { "at": { "type": "string" } }, "required": ["at"] });
    let look = json!({ "name": "look", "description": "Looks.", "parameters": parameters, "timeoutMs": 600_000 });
    let opened = host.ask("open_session", json!({ "sessionId": session, "tools": [look] })).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    let rules = json!({ "rules": [{ "tool": "look", "policy": "ask" }] });
    assert_eq!(host.ask("set_tools", json!({ "approvals": rules })).await["type"], "ok");
    at_a.ask("user_input", json!({ "input": "use look at the sea" })).await;
    let approval = host.event("approval_request").await["payload"].clone();
    let allow = json!({
        "approvalId": approval["approvalId"], "argumentsHash": approval["argumentsHash"], "review": "allow_once",
    });
    assert_eq!(host.ask("approval_response", allow).await["type"], "ok");
    let call = host.event("run_tool").await;
    let result = json!({ "toolCallId": call["payload"]["toolCallId"], "output": "It is blue." });
    assert_eq!(host.ask("tool_result", result).await["type"], "ok");
    assert_eq!(at_a.event("turn_finished").await["payload"]["status"], "completed");
    let entries = host.ask("get_entries", json!({ "limit": 50 })).await;
    assert!(entries.to_string().contains("It is blue."), "{entries}");
    // Its part in the session ends with its socket.
    host.hang_up();
    let left = at_a.event("host_changed").await;
    assert_eq!(left["sessionId"], session, "{left}");
}

#[tokio::test]
async fn sessions_of_other_servers_are_renamed_deleted_and_found_again() {
    let [a, b] = nodes(&[]).await;
    let (mut at_a, session) = a.session().await;
    at_a.turn("My cat is called Miso.").await;
    let mut at_b = b.client().await;
    let renamed = at_b.ask("rename_session", json!({ "sessionId": session, "name": "Cats" })).await;
    assert_eq!(renamed["type"], "ok", "{renamed}");
    at_a.until(|frame| frame["type"] == "session_updated" && frame["payload"]["name"] == "Cats").await;
    // A repeated command finds the session that it created on another server.
    let id = at_a.id();
    at_a.send_as(&id, "open_session", json!({})).await;
    let made = at_a.until(|frame| frame["re"] == id.as_str()).await["payload"]["sessionId"].clone();
    at_b.send_as(&id, "open_session", json!({})).await;
    let found = at_b.until(|frame| frame["re"] == id.as_str()).await;
    assert_eq!(found["payload"]["sessionId"], *present(&made), "{found}");
    let deleted = at_b.ask("delete_session", json!({ "sessionId": session })).await;
    assert_eq!(deleted["type"], "ok", "{deleted}");
    let closed = at_a.event("session_closed").await;
    assert_eq!((&closed["sessionId"], &closed["payload"]["code"]), (&session, &json!("deleted")), "{closed}");
    let gone = at_b.ask("open_session", json!({ "sessionId": session })).await;
    assert_eq!(gone["payload"]["code"], "session_not_found", "{gone}");
    assert!(b.gate.passed() == 0 && a.gate.passed() >= 2, "b asked a");
}

#[tokio::test]
async fn a_message_of_a_mebibyte_goes_both_ways() {
    let [a, b] = nodes(&[]).await;
    let (_at_a, session) = a.session().await;
    let mut at_b = b.client().await;
    open(&mut at_b, &session).await;
    let long = "word and another one, ".repeat(1_000_000 / 22);
    let added = at_b.ask("append_custom", json!({ "customType": "t", "data": { "text": long } })).await;
    assert_eq!(added["type"], "ok", "{}", added.to_string().chars().take(300).collect::<String>());
    let told = at_b.event("entry_appended").await;
    assert!(told.to_string().contains(&long), "{} bytes", told.to_string().len());
    assert_eq!(at_b.ask("close_session", json!({})).await["type"], "ok");
    let opened = open(&mut at_b, &session).await;
    assert!(opened.to_string().contains(&long), "{} bytes", opened.to_string().len());
}

#[tokio::test]
async fn a_session_is_closed_and_opened_again_without_waiting() {
    let [a, b] = nodes(&[]).await;
    let (mut at_a, session) = a.session().await;
    let mut at_b = b.client().await;
    open(&mut at_b, &session).await;
    for _ in 0..2 {
        let closing = at_b.send("close_session", json!({ "sessionId": session })).await;
        let opening = at_b.send("open_session", json!({ "sessionId": session, "entries": 50 })).await;
        let closed = at_b.until(|frame| frame["re"] == closing.as_str()).await;
        assert_eq!(closed["type"], "ok", "{closed}");
        let opened = at_b.until(|frame| frame["re"] == opening.as_str()).await;
        assert_eq!(opened["type"], "session_opened", "{opened}");
    }
    // Sends several of both, before any is answered.
    let mut last = String::new();
    for _ in 0..3 {
        at_b.send("close_session", json!({ "sessionId": session })).await;
        last = at_b.send("open_session", json!({ "sessionId": session, "entries": 50 })).await;
    }
    let opened = at_b.until(|frame| frame["re"] == last.as_str()).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    at_b.turn("My cat is called Miso.").await;
    at_a.event("turn_finished").await;
    // Closed for good, it is closed at the holder too.
    let closed = at_b.ask("close_session", json!({ "sessionId": session })).await;
    assert_eq!(closed["type"], "ok", "{closed}");
    let refused = at_b.ask("user_input", json!({ "sessionId": session, "input": "No." })).await;
    assert_eq!(refused["type"], "error", "{refused}");
}

#[tokio::test]
async fn a_session_is_opened_again_while_one_of_two_closes_is_not_answered() {
    let [a, b] = nodes(&[]).await;
    let (mut at_a, session) = a.session().await;
    let mut at_b = b.client().await;
    open(&mut at_b, &session).await;
    // The first is answered while the others are on their way.
    a.gate.delay(Duration::from_millis(300));
    let closing = at_b.send("close_session", json!({ "sessionId": session })).await;
    assert_eq!(at_b.ask("ping", json!({})).await["type"], "pong");
    at_b.send("open_session", json!({ "sessionId": session })).await;
    at_b.send("close_session", json!({ "sessionId": session })).await;
    at_b.until(|frame| frame["re"] == closing.as_str()).await;
    let last = at_b.send("open_session", json!({ "sessionId": session })).await;
    let opened = at_b.until(|frame| frame["re"] == last.as_str()).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    a.gate.delay(Duration::ZERO);
    at_b.turn("My cat is called Miso.").await;
    at_a.event("turn_finished").await;
}
