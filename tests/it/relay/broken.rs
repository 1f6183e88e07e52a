//! Links between servers that break while the holder lives: the sessions end, and clients resume without a gap.

use super::{check_whole, durable, faults::resumed, nodes, open, said};
use crate::support::{
    client::Client,
    cluster::{LONG_LEASE, Node, database},
    json::present,
    polling::until,
};
use serde_json::{Value, json};

/// Starts servers `a` and `b`, and a client at each. A session of the first client's is open at both; returns what the
/// second one got of it.
async fn shared(more: &[(&str, &str)]) -> ([Node; 2], Client, Client, Value) {
    let [a, b] = nodes(more).await;
    let (at_a, session) = a.session().await;
    let mut at_b = b.client().await;
    let opened = open(&mut at_b, &session).await;
    ([a, b], at_a, at_b, opened)
}

/// Waits until the session has ended for this client, and resumes it.
async fn resumed_after_the_end(client: &mut Client, opened: &Value) -> Value {
    let session = present(&opened["sessionId"]);
    let closed = client.event("session_closed").await;
    assert_eq!((&closed["sessionId"], &closed["payload"]["code"]), (session, &json!("moved")), "{closed}");
    assert_eq!(closed["payload"]["retriable"], true, "{closed}");
    let back = resumed(client, session, opened).await;
    assert_eq!(back["resumed"], "replay", "{back}");
    back
}

/// Accepts the event of an entry that has this text.
fn adds(text: &str) -> impl Fn(&Value) -> bool {
    move |frame| frame["type"] == "entry_appended" && frame.to_string().contains(text)
}

#[tokio::test]
async fn a_subscription_over_a_cut_link_ends_and_resumes_without_a_hole() {
    let ([a, _b], mut at_a, mut client, opened) = shared(&[]).await;
    let (session, since) = (present(&opened["sessionId"]), opened["asOfSeq"].as_u64().unwrap());
    for text in ["round 0", "round 1", "round 2"] {
        a.gate.cut();
        at_a.ask("append_custom_message", said(text)).await;
        resumed_after_the_end(&mut client, &opened).await;
        if !client.seen.iter().any(adds(text)) {
            client.until(adds(text)).await;
        }
    }
    client.turn("My cat is called Miso.").await;
    at_a.event("turn_finished").await;
    check_whole(&client, session, since + 1);
}

#[tokio::test]
async fn a_turn_goes_on_while_the_link_of_its_only_reader_is_cut() {
    let ([a, _b], mut at_a, mut client, opened) = shared(&[("OFFLINE_WORD_MILLIS", "30")]).await;
    assert_eq!(at_a.ask("close_session", json!({})).await["type"], "ok");
    client.ask("user_input", json!({ "input": "Tell me a story about a cat called Miso." })).await;
    client.event("item_delta").await;
    a.gate.cut();
    let back = resumed_after_the_end(&mut client, &opened).await;
    assert!(back["turn"].is_object(), "{back}");
    let finished = client.event("turn_finished").await;
    assert_eq!(finished["payload"]["status"], "completed", "{finished}");
    check_whole(&client, present(&opened["sessionId"]), opened["asOfSeq"].as_u64().unwrap() + 1);
}

#[tokio::test]
async fn a_command_in_flight_is_refused_as_retriable_and_carried_out_once() {
    let ([a, _b], mut at_a, mut client, opened) = shared(&[]).await;
    // The first does not arrive; the second arrives, and its reply does not.
    a.gate.freeze();
    let lost = client.send("append_custom_message", said("the first")).await;
    a.gate.cut();
    a.gate.thaw();
    for (id, text) in [(lost, "the first"), (client.id(), "the second")] {
        if text == "the second" {
            client.send_as(&id, "append_custom_message", said(text)).await;
            at_a.until(adds(text)).await;
            a.gate.cut();
        }
        client.until(|frame| frame["re"] == id.as_str()).await;
        resumed_after_the_end(&mut client, &opened).await;
        client.forget("");
        client.send_as(&id, "append_custom_message", said(text)).await;
        let answered = client.until(|frame| frame["re"] == id.as_str()).await;
        assert_eq!(answered["type"], "ok", "{answered}");
    }
    client.turn("My cat is called Miso.").await;
    for text in ["the first", "the second"] {
        let is_event = adds(text);
        assert_eq!(client.seen.iter().filter(|frame| is_event(frame)).count(), 1, "{text}: {:#?}", client.seen);
    }
    check_whole(&client, present(&opened["sessionId"]), opened["asOfSeq"].as_u64().unwrap() + 1);
}

#[tokio::test]
async fn a_link_on_which_nothing_comes_any_more_is_given_up() {
    let ([a, b], mut at_a, mut client, opened) = shared(&[("HEARTBEAT_SECS", "1")]).await;
    let own = client.ask("open_session", json!({})).await["payload"]["sessionId"].clone();
    a.gate.freeze();
    at_a.turn("My cat is called Miso.").await;
    until("the link is given up", async || {
        // A client that does not read answers no pings, and would be given up itself.
        assert_eq!(client.ask("ping", json!({})).await["type"], "pong");
        let log = b.log();
        if log.contains("a connection to another server has ended") { Ok(()) } else { Err(log) }
    })
    .await;
    // The other session continues meanwhile.
    client.session = own.as_str().map(str::to_owned);
    client.turn("Are you there?").await;
    a.gate.thaw();
    let session = present(&opened["sessionId"]);
    resumed(&mut client, session, &opened).await;
    client.until(|frame| frame["type"] == "turn_finished" && frame["sessionId"] == *session).await;
    check_whole(&client, session, opened["asOfSeq"].as_u64().unwrap() + 1);
}

#[tokio::test]
async fn a_host_opens_its_session_itself_and_goes_on_hosting() {
    let [a, b] = nodes(&[]).await;
    let (mut at_a, session) = a.session().await;
    let mut host = b.client().await;
    let look = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
    let opened = host.ask("open_session", json!({ "sessionId": session, "tools": [look] })).await["payload"].clone();
    at_a.event("host_changed").await;
    a.gate.cut();
    let closed = host.event("session_closed").await;
    assert_eq!((&closed["sessionId"], &closed["payload"]["code"]), (&session, &json!("moved")), "{closed}");
    let back = resumed(&mut host, &session, &opened).await;
    assert_eq!((&back["resumed"], &back["host"]), (&json!("replay"), present(&opened["host"])), "{back}");
    at_a.turn("My cat is called Miso.").await;
    // The host was away for a moment, and is the same one.
    let host = present(&opened["host"]["connectionId"]);
    let seen = at_a.forget("host_changed");
    let is_it = |frame: &Value| present(&frame["payload"]["host"]["connectionId"]) == host;
    assert!(seen.iter().all(is_it), "{seen:#?}");
    assert!(seen.last().is_none_or(|frame| frame["payload"]["host"].get("away").is_none()), "{seen:#?}");
}

#[tokio::test]
async fn a_link_that_stays_broken_ends_its_own_subscriptions_and_answers_what_waits() {
    // Nobody is silent within the test, so the outage alone ends it.
    let database = database().await;
    let (a, b) = (Node::start(&database, "a", &[LONG_LEASE]).await, Node::start(&database, "b", &[LONG_LEASE]).await);
    let (mut at_a, session) = a.session().await;
    let mut client = b.client().await;
    let opened = open(&mut client, &session).await;
    let own = client.ask("open_session", json!({})).await["payload"]["sessionId"].clone();
    client.session = session.as_str().map(str::to_owned);
    a.gate.freeze();
    let waiting = client.send("append_custom", json!({ "customType": "t", "data": 1 })).await;
    a.gate.close();
    let refused = client.until(|frame| frame["re"] == waiting.as_str()).await;
    assert_eq!((&refused["type"], &refused["payload"]["retriable"]), (&json!("error"), &json!(true)), "{refused}");
    let closed = client.event("session_closed").await;
    assert_eq!((&closed["sessionId"], &closed["payload"]["retriable"]), (&session, &json!(true)), "{closed}");
    let refused = client.ask("cancel_turn", json!({ "sessionId": session })).await;
    assert_eq!(refused["payload"]["code"], "no_session", "{refused}");
    at_a.turn("My cat is called Miso.").await;
    client.session = own.as_str().map(str::to_owned);
    client.turn("Are you there?").await;
    a.gate.thaw();
    a.gate.open(&a.server.address);
    let back = resumed(&mut client, &session, &opened).await;
    assert_eq!(back["resumed"], "replay", "{back}");
    client.until(|frame| frame["type"] == "turn_finished" && frame["sessionId"] == session).await;
    assert!(durable(&client, &session).len() > 2);
    check_whole(&client, &session, opened["asOfSeq"].as_u64().unwrap() + 1);
}

#[tokio::test]
async fn the_reply_to_a_close_is_the_last_frame_of_its_session() {
    let ([a, _b], mut at_a, mut client, opened) = shared(&[]).await;
    let session = present(&opened["sessionId"]);
    let made = at_a.ask("open_session", json!({})).await;
    let other = present(&made["payload"]["sessionId"]);
    open(&mut client, other).await;
    a.gate.freeze();
    let closing = client.send("close_session", json!({ "sessionId": session })).await;
    // Once this server has answered, the close is on its way too.
    assert_eq!(client.ask("ping", json!({})).await["type"], "pong");
    a.gate.thaw();
    let closed = client.event("session_closed").await;
    assert_eq!((&closed["sessionId"], &closed["payload"]["code"]), (other, &json!("moved")), "{closed}");
    let replied = client.until(|frame| frame["re"] == closing.as_str()).await;
    assert_eq!(replied["type"], "ok", "{replied}");
    assert_eq!(client.ask("ping", json!({})).await["type"], "pong");
    let last = client.seen.iter().rfind(|frame| frame["sessionId"] == *session);
    assert_eq!(last, Some(&replied), "{:#?}", client.seen);
}
