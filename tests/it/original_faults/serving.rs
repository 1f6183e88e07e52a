//! The original's faults with its sockets, its sessions and the upstream's streams.

use super::{BOTH, asking, fill};
use crate::support::scripted::Gate;
use crate::support::{
    client::Client,
    conversation::{Conversation, Dialect},
    json::present,
    server::Server,
    talk::{is_summary, reply_to, words},
    upstream::{Reply, Upstream},
};
use serde_json::{Value, json};
use std::{collections::HashSet, time::Duration};

/// The time within which the upstream server must notice that nobody listens any more.
const PATIENCE: Duration = Duration::from_secs(30);

/// The fault: the client that connected last received the output of the first client's turn.
#[tokio::test]
async fn a_second_client_takes_nothing_over() {
    for (api, dialect) in BOTH {
        let gate = Gate::new();
        let held = gate.clone();
        let (_upstream, server) = asking(api, move |asked| {
            let said = asked.last_user_text();
            let reply = Reply::text(format!("You said: {said}")).in_pieces(4);
            if said == "I am the first." { reply.held_by(&held) } else { reply }
        })
        .await;
        let mut first = Conversation::begin(&server.ws(), dialect).await;
        first.send("I am the first.").await;
        let session = first.info().await["sessionId"].clone();

        let mut second = Conversation::begin(&server.ws(), dialect).await;
        second.talk("I am the second.").await;
        assert_ne!(*present(&second.info().await["sessionId"]), *present(&session));
        if dialect == Dialect::V2 {
            let mut third = Client::v2(&server.ws()).await;
            let joined = third.ask("open_session", json!({ "sessionId": session })).await;
            assert_eq!(joined["type"], "session_opened", "whoever asks for a session shares it: {joined}");
        }
        gate.open();
        assert_eq!(first.turn_end().await.error, None);
        let heard = |conversation: &Conversation| {
            let frames: Vec<String> = conversation.client.seen.iter().map(ToString::to_string).collect();
            let said = |who: &str| frames.iter().any(|frame| frame.contains(&format!("You said: I am the {who}.")));
            (said("first"), said("second"))
        };
        second.info().await;
        assert_eq!((heard(&first), heard(&second)), ((true, false), (false, true)), "{dialect:?}");
        first.talk("Still there?").await;
    }
}

/// The fault: clients keep items by id, so an answer whose id the upstream server had used before replaced another, or
/// was not shown at all.
#[tokio::test]
async fn ids_that_the_upstream_reuses_drop_no_answer() {
    for (api, dialect) in
        [("chat", Dialect::V1), ("responses", Dialect::V1), ("chat", Dialect::V2), ("responses", Dialect::V2)]
    {
        // Its ids are `msg_0`, `fc_1` and `call_0` in every answer.
        let (upstream, server) = asking(api, |asked| {
            if asked.ends_with_result() {
                Reply::text("Nothing to see.")
            } else {
                Reply::text("Looking.").and_call("look", "{}").and_call("look", "{}")
            }
        })
        .await;
        let mut conversation = Conversation::begin(&server.ws(), dialect).await;
        for turn in 0..3 {
            conversation.talk(&format!("Look, {turn}!")).await;
        }
        let items: Vec<Value> = match dialect {
            Dialect::V1 => conversation.came("response_item"),
            Dialect::V2 => {
                conversation.came("entry_appended").iter().map(|appended| appended["entry"].clone()).collect()
            }
        };
        let ids: HashSet<&str> =
            items.iter().map(|item| (item["id"].as_str().or(item["entryId"].as_str())).unwrap()).collect();
        assert_eq!(ids.len(), items.len(), "{dialect:?} {api}: {items:#?}");
        let said: Vec<&str> = items
            .iter()
            .filter(|item| item["role"] == "assistant")
            .filter_map(|item| item["content"][0]["text"].as_str())
            .collect();
        assert_eq!(said, ["Looking.", "Nothing to see."].repeat(3), "{dialect:?} {api}");
        upstream.assert_clean();
    }
}

/// The client's action that makes an answer unwanted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Unwanted {
    TurnCancelled,
    CompactionCancelled,
    SummaryOfTurnCancelled,
    SessionDeleted,
    SessionClosed,
    HungUp(Dialect),
}

/// The fault: an answer that nobody wanted any more was streamed, and paid for, to its end.
#[tokio::test]
async fn the_upstream_is_hung_up_on_when_the_client_cancels() {
    use Unwanted::{CompactionCancelled, HungUp, SessionClosed, SessionDeleted, SummaryOfTurnCancelled, TurnCancelled};
    let table = [
        TurnCancelled,
        CompactionCancelled,
        SummaryOfTurnCancelled,
        SessionDeleted,
        HungUp(Dialect::V1),
        HungUp(Dialect::V2),
        SessionClosed,
    ];
    for api in ["chat", "responses"] {
        for unwanted in table {
            let in_time = tokio::time::timeout(PATIENCE, hung_up_on(api, unwanted)).await;
            in_time.unwrap_or_else(|_| panic!("{api} {unwanted:?}: the request went on for {PATIENCE:?}"));
        }
    }
}

/// Makes an answer unwanted halfway and waits until the upstream server sees the hang-up.
async fn hung_up_on(api: &str, unwanted: Unwanted) {
    let (never, mut number) = (Gate::new(), 0);
    let held = never.clone();
    let upstream = Upstream::start(move |asked| {
        number += 1;
        let reply = reply_to(asked, number, 60).in_pieces(3);
        if is_summary(asked) || asked.last_user_text() == "Go on for ever." { reply.held_by(&held) } else { reply }
    })
    .await;
    let settings = [("OPENAI_API", api), ("DETACHED_TURN_SECS", "0")];
    let server = Server::facing(&upstream.base_url(), &settings).await;
    let dialect = if let Unwanted::HungUp(dialect) = unwanted { dialect } else { Dialect::V2 };
    let mut conversation = Conversation::begin(&server.ws(), dialect).await;
    fill(&mut conversation, 900).await;
    let asked = upstream.requests().len();
    match unwanted {
        Unwanted::CompactionCancelled => drop(conversation.client.send("start_compaction", json!({})).await),
        Unwanted::SummaryOfTurnCancelled => conversation.send(&words(91, 500)).await,
        _ => conversation.send("Go on for ever.").await,
    }
    upstream.wait_for_requests(asked + 1).await;
    let client = &mut conversation.client;
    let goes_on = match unwanted {
        Unwanted::TurnCancelled | Unwanted::SummaryOfTurnCancelled => {
            client.send("cancel_turn", json!({})).await;
            assert_eq!(client.event("turn_finished").await["payload"]["status"], "cancelled");
            true
        }
        Unwanted::CompactionCancelled => {
            client.send("cancel_compaction", json!({})).await;
            assert_eq!(client.event("compaction_failed").await["payload"]["error"]["code"], "compaction_cancelled");
            true
        }
        Unwanted::SessionDeleted => {
            let session = conversation.info().await["sessionId"].clone();
            conversation.client.send("delete_session", json!({ "sessionId": session })).await;
            false
        }
        Unwanted::SessionClosed => {
            client.send("close_session", json!({})).await;
            false
        }
        Unwanted::HungUp(_) => {
            conversation.client.hang_up();
            upstream.wait_for_hang_ups(1).await;
            return;
        }
    };
    upstream.wait_for_hang_ups(1).await;
    if goes_on {
        conversation.client.ask("set_context_strategy", json!({ "strategy": "manual" })).await;
        conversation.talk("Again.").await;
        upstream.assert_clean();
    }
}

/// The fault: a frame that could not be read got an error with empty details.
#[tokio::test]
async fn errors_of_malformed_frames_say_what_is_wrong() {
    // The frame, and the error's code and field.
    let table = [
        ("{", "invalid_json", None),
        ("[1]", "invalid_frame", None),
        (r#"{"id":"1"}"#, "invalid_frame", Some("type")),
        (r#"{"type":"user_input"}"#, "invalid_frame", Some("id")),
        (r#"{"id":"1","type":"sing"}"#, "unknown_command", Some("type")),
        (r#"{"id":"1","type":"user_input","payload":{}}"#, "missing_field", Some("input")),
        (r#"{"id":"1","type":"user_input","payload":{"input":[]}}"#, "empty_input", Some("input")),
        (
            r#"{"id":"1","type":"user_input","payload":{"input":[{"content":"x"}]}}"#,
            "missing_field",
            Some("input[0].role"),
        ),
        (r#"{"id":"1","type":"approval_response","payload":{"review":"perhaps"}}"#, "invalid_field", Some("review")),
    ];
    let (upstream, server) = asking("chat", |asked| reply_to(asked, 1, 5)).await;
    let mut conversation = Conversation::begin(&server.ws(), Dialect::V1).await;
    conversation.talk("Hello.").await;
    for (frame, code, field) in table {
        conversation.client.send_raw(frame).await;
        let error = conversation.client.event("error").await["payload"].clone();
        let details = &error["details"];
        assert_eq!((details["code"].as_str(), details["field"].as_str()), (Some(code), field), "{frame}: {error}");
        assert!(details["retriable"].is_boolean() && error["message"].as_str().unwrap().len() > 10, "{frame}: {error}");
        conversation.talk("Still there?").await;
    }
    assert_eq!(upstream.requests().len(), 1 + table.len(), "nothing malformed was asked");
}
