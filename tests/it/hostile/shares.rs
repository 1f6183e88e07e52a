//! A user who takes as much of everything as it can get, and another one who finds that there is something left.

use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{client::Client, polling::until, server::Server};
use reseed::store::{SessionStore, memory::MemoryStore};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) const ADA: &str = "token-of-ada-4d1f9a73c2";
pub(super) const BOB: &str = "token-of-bob-90bb2e6a51";

/// Starts a server for two users, with these settings.
pub(super) async fn server(model: Scripted, settings: &[(&str, &str)]) -> Server {
    let tokens = format!("ada:{ADA},bob:{BOB}");
    let mut all = vec![("AUTH_TOKENS", tokens.as_str())];
    all.extend_from_slice(settings);
    Server::start(model, &all).await
}

/// Connects, and returns the reply to `hello`.
pub(super) async fn hello(server: &Server, token: &str) -> (Client, Value) {
    let mut client = Client::connect(&server.ws()).await;
    let reply = client.ask("hello", json!({ "protocolVersion": 2, "token": token })).await;
    (client, reply)
}

/// Connects and opens a new session; panics if that is refused.
pub(super) async fn session(server: &Server, token: &str) -> Client {
    let mut client = hello(server, token).await.0;
    let opened = client.ask("open_session", json!({})).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    client
}

/// Checks that a reply is the refusal at this limit.
pub(super) fn is_refused(reply: &Value, limit: &str, max: u64) {
    let error = &reply["payload"];
    assert_eq!((&error["code"], &error["retriable"]), (&json!("limit_reached"), &json!(true)), "{reply}");
    assert_eq!(error["details"], json!({ "limit": limit, "max": max }), "{reply}");
}

#[tokio::test]
async fn one_user_cannot_take_all_connections() {
    let server = server(Scripted::new(), &[("CONNECTIONS_MAX", "8")]).await;
    let (first, _second) = (hello(&server, ADA).await, hello(&server, ADA).await);
    let (mut third, refused) = hello(&server, ADA).await;
    is_refused(&refused, "connections_per_user", 2);
    assert_eq!(third.closed().await, 1013);
    assert_eq!(hello(&server, BOB).await.1["type"], "welcome", "others have theirs");
    first.0.hang_up();
    // The server notices within the handshake of a later connection.
    until("there is room again", async || {
        let (_client, said) = hello(&server, ADA).await;
        if said["type"] == "welcome" { Ok(()) } else { Err(said.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn one_user_cannot_take_all_sessions_in_memory() {
    let model = Scripted::answering(|_| Reply::text("Noted."));
    let server = server(model, &[("SESSIONS_OPEN_MAX", "8")]).await;
    let (mut first, mut second) = (session(&server, ADA).await, session(&server, ADA).await);
    is_refused(&second.ask("open_session", json!({})).await, "sessions_open_per_user", 2);
    session(&server, BOB).await;

    // A session that rests makes room for another one of the same user.
    assert_eq!(first.turn("My cat is called Miso.").await["status"], "completed");
    first.hang_up();
    until("the first one rests or has left", async || {
        let reply = second.ask("open_session", json!({})).await;
        if reply["type"] == "session_opened" { Ok(()) } else { Err(reply.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn one_user_cannot_start_forks_without_end() {
    let model = Scripted::answering(|_| Reply::text("yes"));
    let server = server(model, &[]).await;
    let mut client = session(&server, ADA).await;
    assert_eq!(client.turn("a path to fork").await["status"], "completed");
    let entry = client.ask("get_entries", json!({})).await["payload"]["leafId"].clone();
    const FORKS: usize = 20;
    for _ in 0..FORKS {
        client.send("fork_session", json!({ "entryId": entry, "position": "at" })).await;
    }
    let mut replies = Vec::new();
    while replies.len() < FORKS {
        let frame = client.next_frame().await.expect("a reply to each");
        if frame["type"] == "forked" || frame["type"] == "error" {
            replies.push(frame);
        }
    }
    let (refused, forked): (Vec<_>, Vec<_>) = replies.into_iter().partition(|reply| reply["type"] == "error");
    assert!(!refused.is_empty() && !forked.is_empty(), "{} refused, {} forked", refused.len(), forked.len());
    refused.iter().for_each(|reply| is_refused(reply, "forks_per_user", 4));
}

#[tokio::test]
async fn one_user_cannot_offer_tools_without_end() {
    let model = Scripted::answering(|_| Reply::text("yes"));
    let server = server(model, &[("OFFERED_BYTES_PER_USER_MAX", "5000")]).await;
    let tools = |chars: usize| {
        let parameters = json!({ "type": "object" });
        json!([{ "name": "look", "description": "x".repeat(chars), "parameters": parameters }])
    };
    let mut first = session(&server, ADA).await;
    assert_eq!(first.ask("register_tools", json!({ "tools": tools(3_000) })).await["type"], "ok");
    let mut second = hello(&server, ADA).await.0;
    let refused = second.ask("open_session", json!({ "tools": tools(3_000) })).await;
    is_refused(&refused, "offered_bytes_per_user", 5_000);
    assert_eq!(second.ask("open_session", json!({ "tools": tools(1_000) })).await["type"], "session_opened");
    is_refused(&second.ask("register_tools", json!({ "tools": tools(2_000) })).await, "offered_bytes_per_user", 5_000);
    let mut other = session(&server, BOB).await;
    assert_eq!(other.ask("register_tools", json!({ "tools": tools(3_000) })).await["type"], "ok");
    // Withdrawn tools free their space.
    assert_eq!(first.ask("register_tools", json!({ "tools": [] })).await["type"], "ok");
    assert_eq!(second.ask("register_tools", json!({ "tools": tools(2_000) })).await["type"], "ok");
    assert_eq!(second.turn("Still here?").await["status"], "completed");
}

#[tokio::test]
async fn tools_that_replace_others_take_only_the_difference() {
    let model = Scripted::answering(|_| Reply::text("yes"));
    let server = server(model, &[("OFFERED_BYTES_PER_USER_MAX", "5000")]).await;
    let tools = |chars: usize| {
        let parameters = json!({ "type": "object" });
        json!([{ "name": "look", "description": "x".repeat(chars), "parameters": parameters }])
    };
    let hello = json!({ "protocolVersion": 2, "token": ADA, "clientId": "page" });
    let mut first = Client::connect(&server.ws()).await;
    first.ask("hello", hello.clone()).await;
    let opened = first.ask("open_session", json!({ "tools": tools(3_000) })).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    for (chars, is_taken) in [(4_000, true), (6_000, false), (3_000, true), (4_500, true)] {
        let reply = first.ask("register_tools", json!({ "tools": tools(chars) })).await;
        match is_taken {
            true => assert_eq!(reply["type"], "ok", "{chars}: {reply}"),
            false => is_refused(&reply, "offered_bytes_per_user", 5_000),
        }
    }
    // The same client has a new connection, as after a cut that nobody has noticed.
    let mut second = Client::connect(&server.ws()).await;
    second.ask("hello", hello).await;
    let session = &opened["payload"]["sessionId"];
    let mut open = async |chars: usize| {
        let payload = json!({ "sessionId": session, "tools": tools(chars) });
        second.ask("open_session", payload).await
    };
    is_refused(&open(6_000).await, "offered_bytes_per_user", 5_000);
    let reopened = open(4_000).await;
    assert_eq!(reopened["type"], "session_opened", "{reopened}");
    // Tools on offer still count.
    let mut third = self::hello(&server, ADA).await.0;
    is_refused(&third.ask("open_session", json!({ "tools": tools(2_000) })).await, "offered_bytes_per_user", 5_000);
    let reply = third.ask("open_session", json!({ "tools": tools(500) })).await;
    assert_eq!(reply["type"], "session_opened", "{reply}");
}

#[tokio::test]
async fn one_user_cannot_take_all_places_at_the_model() {
    let gate = Gate::new();
    let model = Scripted::answering(|_| Reply::text("yes"));
    model.push(Reply::text("slowly").held_by(&gate));
    let server = server(model.clone(), &[("MODEL_REQUESTS_MAX", "4")]).await;
    let (mut first, mut second) = (session(&server, ADA).await, session(&server, ADA).await);
    let mut other = session(&server, BOB).await;
    first.ask("user_input", json!({ "input": "the first" })).await;
    while model.requests().is_empty() {
        first.ask("ping", json!({})).await;
    }
    second.ask("user_input", json!({ "input": "the second" })).await;
    assert_eq!(other.turn("and mine?").await["status"], "completed");
    assert_eq!(model.requests().len(), 2, "the second waits");
    gate.open();
    for client in [&mut first, &mut second] {
        assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    }
    assert_eq!(model.requests().len(), 3);
}

#[tokio::test]
async fn answers_are_no_longer_than_the_server_allows() {
    let model = Scripted::answering(|_| Reply::text("yes"));
    let server = Server::start(model.clone(), &[("OUTPUT_TOKENS_MAX", "100")]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    for (chosen, sent) in [(None, 100), (Some(40), 40), (Some(101), 40), (Some(100), 100)] {
        if let Some(chosen) = chosen {
            let reply = client.ask("set_options", json!({ "maxOutputTokens": chosen })).await;
            if chosen > 100 {
                is_refused(&reply, "output_tokens", 100);
            } else {
                assert_eq!(reply["type"], "ok", "{reply}");
            }
        }
        assert_eq!(client.turn("a question").await["status"], "completed");
        let requests = model.requests();
        assert_eq!(requests.last().unwrap().envelope.options.max_output_tokens, Some(sent), "{chosen:?}");
    }
}

#[tokio::test]
async fn sessions_use_only_models_that_the_server_allows() {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let model = Scripted::answering(|_| Reply::text("yes"));
    let windows = ("CONTEXT_WINDOW", "8000");
    let before = Server::over(model.clone(), store.clone(), &[windows]).await;
    let (mut client, opened) = Client::v2_session(&before.ws()).await;
    assert_eq!(client.ask("set_model", json!({ "model": "dear" })).await["type"], "ok");
    let session = opened["sessionId"].clone();
    client.hang_up();
    drop(before);

    let server = Server::over(model.clone(), store, &[windows, ("MODELS_ALLOWED", "small, medium")]).await;
    let mut client = Client::v2(&server.ws()).await;
    let opened = client.ask("open_session", json!({ "sessionId": session })).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    let finished = client.turn("with the dear one?").await;
    assert_eq!((&finished["status"], &finished["error"]["code"]), (&json!("failed"), &json!("unknown_model")));
    assert!(model.requests().is_empty(), "nothing was spent");
    for (name, reply) in [("dear", "error"), ("small", "ok")] {
        assert_eq!(client.ask("set_model", json!({ "model": name })).await["type"], reply, "{name}");
    }
    assert_eq!(client.turn("with the small one?").await["status"], "completed");
}
