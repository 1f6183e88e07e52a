//! Links between servers that break while their holder lives: clients do not notice.

use super::{check_whole, durable, faults::resumed, nodes, open, said};
use crate::support::{
    client::Client,
    cluster::{LONG_LEASE, Node, database},
    json::present,
    polling::until,
};
use reseed_client::fold::{Applied, Snapshot};
use reseed_protocol::{
    content::utf16_len,
    event::{EphemeralEvent, Event},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

/// Folds what a client got of a session, as its client does, and checks that it is what a client sees that opens the
/// session now. The text of answers must have come without a hole, and nothing of it twice.
async fn check_fold(client: &Client, opened: &Value, now: &mut Client) {
    let session = present(&opened["sessionId"]);
    let of_session = client.seen.iter().filter(|frame| frame["sessionId"] == *session && frame.get("re").is_none());
    let mut view = Snapshot::opened(serde_json::from_value(opened.clone()).unwrap());
    let mut shown: BTreeMap<String, u64> = BTreeMap::new();
    for frame in of_session {
        assert_ne!(present(&frame["type"]), "session_closed", "{frame}");
        match frame["seq"].as_u64() {
            Some(seq) => {
                let event: Event = serde_json::from_value(frame.clone()).unwrap();
                assert_eq!(view.apply(seq, &event), Applied::Next, "{frame}");
            }
            None => view.apply_ephemeral(&serde_json::from_value::<EphemeralEvent>(frame.clone()).unwrap()),
        }
        if frame["type"] == "item_delta" {
            let delta = &frame["payload"];
            let part = shown.entry(format!("{} {}", delta["itemId"], delta["part"])).or_default();
            assert_eq!(delta["offset"].as_u64(), Some(*part), "{frame}");
            *part += utf16_len(delta["text"].as_str().unwrap());
        }
    }
    let entries: Vec<Value> = view.path.iter().map(|entry| serde_json::to_value(entry).unwrap()).collect();
    let there = now.ask("get_entries", json!({ "sessionId": session, "limit": 500, "path": true })).await;
    assert_eq!(json!(entries), *present(&there["payload"]["items"]));
    assert!(view.items.is_empty(), "{:?}", view.items);
}

/// Starts servers `a` and `b`, and a client at each. A session of the first client's is open at both; returns what the
/// second one got of it.
async fn shared(more: &[(&str, &str)]) -> ([Node; 2], Client, Client, Value) {
    let [a, b] = nodes(more).await;
    let (at_a, session) = a.session().await;
    let mut at_b = b.client().await;
    let opened = open(&mut at_b, &session).await;
    ([a, b], at_a, at_b, opened)
}

/// Accepts the event of an entry that has this text.
fn adds(text: &str) -> impl Fn(&Value) -> bool {
    move |frame| frame["type"] == "entry_appended" && frame.to_string().contains(text)
}

/// Returns the places at which a client got the reply to a command and the events that it has caused.
fn places(client: &Client, id: &str, text: &str) -> (Vec<usize>, Vec<usize>) {
    let frames = || client.seen.iter().enumerate();
    let of_reply = frames().filter(|(_, frame)| frame["re"] == id).map(|(at, _)| at).collect();
    let is_event = adds(text);
    (of_reply, frames().filter(|(_, frame)| is_event(frame)).map(|(at, _)| at).collect())
}

#[tokio::test]
async fn a_cut_link_under_an_idle_subscription_is_not_noticed() {
    let ([a, _b], mut at_a, mut client, opened) = shared(&[]).await;
    at_a.until(|frame| frame["type"] == "presence_changed").await;
    for text in ["round 0", "round 1", "round 2"] {
        let passed = a.gate.passed();
        a.gate.cut();
        at_a.ask("append_custom_message", said(text)).await;
        client.until(adds(text)).await;
        assert_eq!(a.gate.passed(), passed + 1, "one connection more");
    }
    client.turn("My cat is called Miso.").await;
    at_a.event("turn_finished").await;
    check_fold(&client, &opened, &mut at_a).await;
    // The others see nothing of it either, and its place is free when it leaves.
    assert!(at_a.forget("presence_changed").is_empty());
    client.hang_up();
    let left = at_a.event("presence_changed").await;
    assert_eq!(left["payload"]["left"], true, "{left}");
}

#[tokio::test]
async fn a_cut_link_under_a_running_turn_is_not_noticed() {
    // A turn that nobody watches is cancelled at once.
    let more = [("OFFLINE_WORD_MILLIS", "30"), ("DETACHED_TURN_SECS", "0")];
    let ([a, _b], mut at_a, mut client, opened) = shared(&more).await;
    assert_eq!(at_a.ask("close_session", json!({})).await["type"], "ok");
    client.ask("user_input", json!({ "input": "Tell me a story about a cat called Miso." })).await;
    for _ in 0..3 {
        client.forget("");
        client.event("item_delta").await;
        a.gate.cut();
    }
    let finished = client.event("turn_finished").await;
    assert_eq!(finished["payload"]["status"], "completed", "{finished}");
    client.turn("And now?").await;
    check_whole(&client, present(&opened["sessionId"]), opened["asOfSeq"].as_u64().unwrap() + 1);
    check_fold(&client, &opened, &mut at_a).await;
}

#[tokio::test]
async fn commands_in_flight_are_carried_out_once_and_answered_first() {
    let ([a, _b], mut at_a, mut client, opened) = shared(&[]).await;
    // They do not arrive.
    a.gate.freeze();
    let lost = client.send("append_custom_message", said("the first")).await;
    let read = client.send("get_context_info", json!({})).await;
    a.gate.thaw();
    for id in [&lost, &read] {
        let answered = client.until(|frame| frame["re"] == id.as_str()).await;
        assert_ne!(present(&answered["type"]), "error", "{answered}");
    }
    // It arrives, and its reply does not.
    a.gate.delay(Duration::from_secs(2));
    let done = client.send("append_custom_message", said("the second")).await;
    at_a.until(adds("the second")).await;
    a.gate.delay(Duration::ZERO);
    a.gate.cut();
    let answered = client.until(|frame| frame["re"] == done.as_str()).await;
    assert_eq!((&answered["type"], &answered["payload"]["duplicate"]), (&json!("ok"), &json!(true)), "{answered}");
    client.turn("My cat is called Miso.").await;
    for (id, text) in [(&lost, "the first"), (&done, "the second")] {
        let (replies, events) = places(&client, id, text);
        assert_eq!((replies.len(), events.len()), (1, 1), "{text}: {:#?}", client.seen);
        assert!(replies[0] < events[0], "{text}: a reply comes before what its command causes");
    }
    check_fold(&client, &opened, &mut at_a).await;
}

#[tokio::test]
async fn a_link_on_which_nothing_comes_any_more_is_replaced() {
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
    // The other session goes on meanwhile.
    client.session = own.as_str().map(str::to_owned);
    client.turn("Are you there?").await;
    a.gate.thaw();
    let session = present(&opened["sessionId"]);
    client.until(|frame| frame["type"] == "turn_finished" && frame["sessionId"] == *session).await;
    check_fold(&client, &opened, &mut a.client().await).await;
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
    assert!(at_a.forget("host_changed").is_empty(), "the same host");
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
