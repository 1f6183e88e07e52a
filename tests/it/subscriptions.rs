//! One socket and many sessions: what each subscription receives, how it ends, and that a session is created once.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, json::present, server::Server};
use reseed::{
    internals::{Fault, Faulty},
    store::{SessionStore, memory::MemoryStore},
};
use serde_json::{Value, json};
use std::sync::Arc;

async fn server() -> Server {
    Server::start(Scripted::answering(|_| Reply::text("Noted.")), &[]).await
}

/// Opens a session and returns its id: a new one, or the one that `open` names.
async fn open(client: &mut Client, open: Value) -> String {
    let opened = client.ask("open_session", open).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    assert_eq!(*present(&opened["sessionId"]), opened["payload"]["sessionId"]);
    opened["sessionId"].as_str().unwrap().to_owned()
}

/// Returns the number of entries of a session.
async fn entries(client: &mut Client, session: &str) -> usize {
    let page = client.ask("get_entries", json!({ "sessionId": session })).await;
    assert_eq!(*present(&page["sessionId"]), session, "{page}");
    page["payload"]["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn one_socket_carries_several_sessions_each_in_its_order() {
    let server = server().await;
    let mut client = Client::v2(&server.ws()).await;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(open(&mut client, json!({})).await);
    }
    for turn in 0..4 {
        // All at once.
        for session in &sessions {
            let say = json!({ "sessionId": session, "input": format!("turn {turn} of {session}") });
            client.send("user_input", say).await;
        }
        for session in &sessions {
            client.until(|frame| frame["type"] == "turn_finished" && frame["sessionId"] == session.as_str()).await;
        }
    }
    for session in &sessions {
        let of_it = || client.seen.iter().filter(|frame| frame["sessionId"] == session.as_str());
        let seqs: Vec<u64> = of_it().filter_map(|frame| frame["seq"].as_u64()).collect();
        assert_eq!(seqs, (seqs[0]..seqs[0] + seqs.len() as u64).collect::<Vec<_>>(), "each once, in order");
        let said = of_it()
            .filter(|frame| frame["payload"]["entry"]["role"] == "user")
            .map(|frame| frame["payload"]["entry"]["content"][0]["text"].as_str().unwrap().to_owned());
        assert_eq!(
            said.collect::<Vec<_>>(),
            (0..4).map(|turn| format!("turn {turn} of {session}")).collect::<Vec<_>>()
        );
    }
    // One subscription ends, and the others continue.
    let (closed, open) = (&sessions[0], &sessions[1]);
    assert_eq!(client.ask("close_session", json!({ "sessionId": closed })).await["type"], "ok");
    let refused = client.ask("user_input", json!({ "sessionId": closed, "input": "hello?" })).await;
    assert_eq!((&refused["sessionId"], &refused["payload"]["code"]), (&json!(closed), &json!("no_session")));
    client.send("user_input", json!({ "sessionId": open, "input": "hello?" })).await;
    client.until(|frame| frame["type"] == "turn_finished" && frame["sessionId"] == open.as_str()).await;
    assert_eq!((entries(&mut client, closed).await, entries(&mut client, open).await), (8, 10));
}

#[tokio::test]
async fn a_connection_subscribes_to_a_session_once_and_to_so_many() {
    let server = server().await;
    let mut client = Client::connect(&server.ws()).await;
    let welcome = client.ask("hello", json!({ "protocolVersion": 2 })).await;
    let most = welcome["payload"]["limits"]["subscriptionsMax"].as_u64().unwrap();
    let mut sessions = Vec::new();
    for _ in 0..most {
        sessions.push(open(&mut client, json!({})).await);
    }
    let refused = client.ask("open_session", json!({})).await;
    assert_eq!(refused["payload"]["code"], "too_many_subscriptions", "{refused}");
    client.ask("close_session", json!({ "sessionId": sessions[0] })).await;
    let refused = client.ask("open_session", json!({ "sessionId": sessions[1] })).await;
    assert_eq!(refused["payload"]["code"], "session_already_open", "{refused}");
    assert_eq!(open(&mut client, json!({ "sessionId": sessions[0] })).await, sessions[0]);
}

#[tokio::test]
async fn a_session_that_is_deleted_ends_its_subscriptions_alone() {
    let server = server().await;
    let (mut first, mut second) = (Client::v2(&server.ws()).await, Client::v2(&server.ws()).await);
    let deleted = open(&mut first, json!({})).await;
    let kept = open(&mut first, json!({})).await;
    open(&mut second, json!({ "sessionId": deleted, "role": "observer" })).await;
    let mut third = Client::v2(&server.ws()).await;
    assert_eq!(third.ask("delete_session", json!({ "sessionId": deleted })).await["type"], "ok");
    for client in [&mut first, &mut second] {
        let closed = client.event("session_closed").await;
        assert_eq!(*present(&closed["sessionId"]), deleted.as_str());
        let payload = json!({ "code": "deleted", "message": "the session was deleted", "retriable": false });
        assert_eq!((closed.get("seq"), closed.get("re"), &closed["payload"]), (None, None, &payload));
        assert_eq!(client.ask("ping", json!({})).await["type"], "pong", "the connection continues");
    }
    first.send("user_input", json!({ "sessionId": kept, "input": "still there?" })).await;
    first.event("turn_finished").await;
}

#[tokio::test]
async fn a_ping_is_about_the_connection_or_about_a_session() {
    let server = server().await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.turn("hello").await;
    let seq = client.seen.iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap();
    let pong = client.ask("ping", json!({})).await;
    assert_eq!((pong.get("sessionId"), pong["payload"].get("seq"), pong["payload"].get("inSync")), (None, None, None));
    for (seen, in_sync) in [(seq, true), (seq - 1, false)] {
        let pong = client.ask("ping", json!({ "seq": seen })).await["payload"].clone();
        assert_eq!((&pong["seq"], &pong["inSync"]), (&json!(seq), &json!(in_sync)));
    }
}

/// Hooks of a client that has many sessions are answered over the same socket on which its inputs wait for them.
#[tokio::test]
async fn inputs_of_many_sessions_that_wait_for_hooks_do_not_hold_up_the_answers() {
    let server = server().await;
    let mut client = Client::v2(&server.ws()).await;
    let hook = json!({ "name": "censor", "point": "message" });
    let mut sessions = Vec::new();
    for _ in 0..40 {
        sessions.push(open(&mut client, json!({ "hooks": [hook] })).await);
    }
    for session in &sessions {
        client.send("user_input", json!({ "sessionId": session, "input": "hello" })).await;
    }
    let mut calls = Vec::new();
    while calls.len() < sessions.len() {
        let call = client.event("hook_call").await;
        calls.push((call["sessionId"].clone(), call["payload"]["hookCallId"].clone()));
    }
    for (session, call) in calls {
        client.send("hook_result", json!({ "sessionId": session, "hookCallId": call })).await;
    }
    for session in &sessions {
        client.until(|frame| frame["type"] == "turn_finished" && frame["sessionId"] == session.as_str()).await;
    }
}

#[tokio::test]
async fn two_sessions_answer_the_same_id_each_for_itself() {
    let server = server().await;
    let mut client = Client::v2(&server.ws()).await;
    let sessions = [open(&mut client, json!({})).await, open(&mut client, json!({})).await];
    let id = "00000002-same-id-twice";
    for session in &sessions {
        client.send_as(id, "user_input", json!({ "sessionId": session, "input": session })).await;
    }
    for session in &sessions {
        let of_it = |frame: &Value| frame["sessionId"] == session.as_str();
        let reply = client.until(|frame| frame["re"] == id && of_it(frame)).await;
        let appended = client.until(|frame| frame["payload"]["commandId"] == id && of_it(frame)).await;
        assert_eq!(reply["payload"]["entryId"], *present(&appended["payload"]["entry"]["entryId"]));
    }
}

/// A command that waits for a hook is answered when its session fails.
#[tokio::test]
async fn what_a_failed_session_leaves_unanswered_is_answered() {
    let store = Arc::new(Faulty::new(MemoryStore::new()));
    let server = Server::over(Scripted::answering(|_| Reply::text("Noted.")), store.clone(), &[]).await;
    let mut client = Client::v2(&server.ws()).await;
    let hook = json!({ "name": "censor", "point": "message" });
    let session = open(&mut client, json!({ "hooks": [hook] })).await;
    let waits = client.send("user_input", json!({ "input": "hello" })).await;
    client.event("hook_call").await;
    store.fail_append(1, Fault::Before);
    client.send("append_custom", json!({ "customType": "note", "data": {} })).await;
    let closed = client.event("session_closed").await["payload"].clone();
    assert_eq!((&closed["code"], &closed["retriable"]), (&json!("failed"), &json!(true)), "{closed}");
    let reply = client.until(|frame| frame["re"] == waits.as_str()).await;
    assert_eq!((&reply["payload"]["code"], &reply["payload"]["retriable"]), (&json!("store_failed"), &json!(true)));
    // The socket continues, and so does the session, from what is stored.
    assert_eq!(open(&mut client, json!({ "sessionId": session })).await, session);
    assert_eq!(client.turn("and now?").await["status"], "completed");
}

/// An append is synced first; then its command is answered, and then its events are published.
#[tokio::test]
async fn what_the_store_does_not_take_is_neither_acknowledged_nor_shown() {
    let store = Arc::new(Faulty::new(MemoryStore::new()));
    let server = Server::over(Scripted::answering(|_| Reply::text("Noted.")), store.clone(), &[]).await;
    let mut client = Client::v2(&server.ws()).await;
    let session = open(&mut client, json!({})).await;
    client.turn("This is kept.").await;
    store.fail_append(1, Fault::Before);
    let reply = client.ask("user_input", json!({ "input": "This is lost." })).await;
    assert_eq!((&reply["type"], &reply["payload"]["code"]), (&json!("error"), &json!("store_failed")), "{reply}");
    client.event("session_closed").await;
    let shown = client.seen.iter().find(|frame| frame.to_string().contains("This is lost."));
    assert_eq!(shown, None);
    assert_eq!(entries(&mut client, &session).await, 2);
}

#[tokio::test]
async fn a_lost_reply_leaves_no_orphan_also_after_a_restart() {
    let store = Arc::new(MemoryStore::new());
    let model = || Scripted::answering(|_| Reply::text("Noted."));
    let start = || async { Server::over(model(), store.clone(), &[]).await };
    let (first, other) = ("00000000-open-of-this-test", "00000001-open-of-this-test");
    let server = start().await;
    let mut made = Vec::new();
    for (id, url) in [(first, server.ws()), (first, server.ws()), (other, server.ws())] {
        // The reply is never read by the one that hangs up.
        let mut client = Client::v2(&url).await;
        client.send_as(id, "open_session", json!({})).await;
        let opened = client.until(|frame| frame["re"] == id).await;
        made.push(opened["payload"]["sessionId"].as_str().unwrap().to_owned());
        client.hang_up();
    }
    assert!(made[0] == made[1] && made[1] != made[2], "{made:?}");
    // On one connection it is already open.
    let mut client = Client::v2(&server.ws()).await;
    for expected in ["session_opened", "error"] {
        client.send_as(first, "open_session", json!({})).await;
        let reply = client.until(|frame| frame["re"] == first).await;
        assert_eq!(reply["type"], expected, "{reply}");
    }
    drop((client, server));
    let server = start().await;
    let mut client = Client::v2(&server.ws()).await;
    client.send_as(first, "open_session", json!({})).await;
    assert_eq!(*present(&client.until(|frame| frame["re"] == first).await["sessionId"]), made[0].as_str());
    let listed = client.ask("list_sessions", json!({})).await["payload"]["items"].as_array().unwrap().len();
    assert_eq!(listed, 2);
    assert_eq!(store.list(reseed::store::ListQuery { limit: 10, ..Default::default() }).await.unwrap().items.len(), 2);
}

#[tokio::test]
async fn the_id_that_created_a_session_opens_it_in_any_role_and_at_any_position() {
    let server = server().await;
    let id = "creates-a-session-once-1";
    let open = async |client: &mut Client, payload: Value| {
        client.send_as(id, "open_session", payload).await;
        client.until(|frame| frame["re"] == id).await
    };
    let mut first = Client::v2(&server.ws()).await;
    for payload in [json!({ "role": "observer" }), json!({ "resume": { "epoch": "x", "seq": 0 } })] {
        let refused = open(&mut first, payload).await;
        assert_eq!(refused["payload"]["code"], "missing_field", "there is none yet: {refused}");
    }
    let opened = open(&mut first, json!({})).await["payload"].clone();
    let resume = json!({ "epoch": present(&opened["epoch"]), "seq": 0 });
    let table = [
        (json!({ "role": "observer" }), "observer", Value::Null),
        (json!({ "resume": resume }), "writer", json!("replay")),
        (json!({ "role": "observer", "resume": resume }), "observer", json!("replay")),
        (json!({}), "writer", Value::Null),
    ];
    for (payload, role, resumed) in table {
        let mut client = Client::v2(&server.ws()).await;
        let again = open(&mut client, payload.clone()).await;
        assert_eq!(again["type"], "session_opened", "{payload}: {again}");
        let again = &again["payload"];
        assert_eq!((present(&again["sessionId"]), &again["role"]), (&opened["sessionId"], &json!(role)), "{payload}");
        assert_eq!(again["resumed"], resumed, "{payload}");
    }
}
