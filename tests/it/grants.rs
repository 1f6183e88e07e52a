//! A backend lets its own users in: what a minted ticket allows, for how long, and how it is taken back.

use crate::support::{
    client::Client,
    http,
    notes::{self, Kind},
    server::Server,
    talk::talker,
};
use http::Answered;
use serde_json::{Value, json};

const ADA: &str = "token-of-ada-4d1f9a73c2";
const SHOP: &str = "token-of-shop-c2ab5e01f7";
const VIEWER: &str = "token-of-viewer-8e21d4f09b";
const OPS: &str = "token-of-ops-77e3c0d8f4";
const SETTINGS: [(&str, &str); 4] = [
    ("AUTH_TOKENS", "ada:token-of-ada-4d1f9a73c2"),
    ("OPERATOR_TOKENS", "ops:token-of-ops-77e3c0d8f4"),
    ("SERVICE_TOKENS", "shop:token-of-shop-c2ab5e01f7,viewer/read:token-of-viewer-8e21d4f09b"),
    ("ALLOWED_ORIGINS", "https://shop.example"),
];

async fn start() -> Server {
    Server::start(talker(5), &SETTINGS).await
}

async fn call(server: &Server, method: &str, path: &str, token: &str, body: &str) -> Answered {
    let bearer = format!("Bearer {token}");
    http::send(&server.address(), method, path, &[("Authorization", &bearer)], body).await
}

/// Mints a ticket; returns the answer's body.
async fn mint(server: &Server, token: &str, wanted: Value) -> Value {
    let answered = call(server, "POST", "/api/tickets", token, &wanted.to_string()).await;
    assert_eq!(answered.status, 200, "{wanted}: {answered:?}");
    answered.json()
}

async fn greet(server: &Server, credentials: Value) -> Client {
    let mut client = Client::connect(&server.ws()).await;
    let mut hello = json!({ "protocolVersion": 2 });
    hello.as_object_mut().unwrap().extend(credentials.as_object().unwrap().clone());
    let welcome = client.ask("hello", hello).await;
    assert_eq!(welcome["type"], "welcome", "{welcome}");
    client
}

/// Connects with a ticket that a service mints.
async fn connect(server: &Server, token: &str, wanted: Value) -> Client {
    let minted = mint(server, token, wanted).await;
    greet(server, json!({ "ticket": minted["ticket"] })).await
}

async fn new_session(client: &mut Client) -> Value {
    client.ask("open_session", json!({})).await["payload"]["sessionId"].clone()
}

/// Sends commands and compares what each gets: the type of its reply, or the code of its error.
async fn gets(client: &mut Client, table: &[(&str, Value, &str)]) {
    for (command, payload, expected) in table {
        let reply = client.ask(command, payload.clone()).await;
        let got = if reply["type"] == "error" { &reply["payload"]["code"] } else { &reply["type"] };
        assert_eq!(got, expected, "{command} {payload}: {reply}");
    }
}

#[tokio::test]
async fn a_ticket_for_one_session_opens_no_other() {
    let server = start().await;
    let mut owner = connect(&server, SHOP, json!({ "principal": "17" })).await;
    let [one, other] = [new_session(&mut owner).await, new_session(&mut owner).await];
    let mut bound = connect(&server, SHOP, json!({ "principal": "17", "sessionId": one })).await;
    let of_other = json!({ "sessionId": other });
    gets(
        &mut bound,
        &[
            ("open_session", of_other.clone(), "forbidden"),
            ("open_session", json!({}), "forbidden"),
            ("list_sessions", json!({}), "forbidden"),
            ("list_sessions", json!({ "search": "word" }), "forbidden"),
            ("list_sessions", json!({ "watch": true }), "forbidden"),
            ("list_models", json!({}), "models"),
            ("search_history", json!({ "query": "word" }), "forbidden"),
            ("search_history", json!({ "query": "word", "sessionId": other }), "forbidden"),
            ("search_history", json!({ "query": "word", "sessionId": one }), "history_hits"),
            ("get_entries", of_other.clone(), "forbidden"),
            ("get_tree", of_other.clone(), "forbidden"),
            ("rename_session", json!({ "sessionId": other, "name": "mine" }), "forbidden"),
            ("delete_session", of_other, "forbidden"),
            ("ping", json!({}), "pong"),
            ("open_session", json!({ "sessionId": one }), "session_opened"),
            ("user_input", json!({ "input": "hello" }), "accepted"),
            ("get_entries", json!({}), "entries"),
        ],
    )
    .await;
    let answered = bound.event("turn_finished").await;
    assert_eq!(answered["payload"]["status"], "completed", "{answered}");
    gets(&mut bound, &[("fork_session", json!({ "entryId": "e1", "position": "at" }), "forbidden")]).await;

    let mut thief = connect(&server, SHOP, json!({ "principal": "18", "sessionId": one })).await;
    gets(&mut thief, &[("open_session", json!({ "sessionId": one }), "session_not_found")]).await;

    let ticket = mint(&server, SHOP, json!({ "principal": "17", "sessionId": one })).await;
    let url = format!("{}?ticket={}", server.ws(), ticket["ticket"].as_str().unwrap());
    let mut v1 = Client::connect(&url).await;
    let said = json!([{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "hello" }] }]);
    v1.send("user_input", json!({ "input": said })).await;
    let error = v1.event("error").await;
    assert_eq!(error["payload"]["details"]["code"], "forbidden", "v1 would create a session: {error}");
}

#[tokio::test]
async fn a_ticket_that_reads_changes_nothing() {
    let server = start().await;
    let mut owner = connect(&server, SHOP, json!({ "principal": "17" })).await;
    let session = new_session(&mut owner).await;
    owner.turn("hello").await;
    let mut reader = connect(&server, SHOP, json!({ "principal": "17", "scopes": ["read"] })).await;
    let about = |more: Value| {
        let mut payload = json!({ "sessionId": session });
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        payload
    };
    gets(
        &mut reader,
        &[
            ("list_sessions", json!({}), "sessions"),
            ("get_entries", about(json!({})), "entries"),
            ("search_history", json!({ "query": "hello" }), "history_hits"),
            ("search_history", about(json!({ "query": "hello" })), "history_hits"),
            ("open_session", json!({}), "read_only"),
            ("open_session", about(json!({ "role": "writer" })), "read_only"),
            ("rename_session", about(json!({ "name": "mine" })), "read_only"),
            ("delete_session", about(json!({})), "read_only"),
            ("open_session", about(json!({})), "session_opened"),
            ("user_input", json!({ "input": "hello" }), "read_only"),
            ("fork_session", json!({ "entryId": "e1", "position": "at" }), "read_only"),
            ("get_context_info", json!({}), "context_info"),
        ],
    )
    .await;
}

#[tokio::test]
async fn what_a_service_may_not_grant_is_refused() {
    let server = start().await;
    let long = "x".repeat(257);
    let table = [
        (SHOP, json!({}), 400, "missing_field"),
        (SHOP, json!({ "principal": "" }), 400, "invalid_field"),
        (SHOP, json!({ "principal": long }), 400, "invalid_field"),
        (SHOP, json!({ "principal": "a\nb" }), 400, "invalid_field"),
        (SHOP, json!({ "principal": "17", "scopes": [] }), 400, "invalid_field"),
        (SHOP, json!({ "principal": "17", "scopes": ["everything"] }), 400, "invalid_field"),
        (SHOP, json!({ "principal": "17", "scopes": ["operator"] }), 403, "forbidden"),
        (SHOP, json!({ "principal": "17", "scopes": ["sessions", "operator.content"] }), 403, "forbidden"),
        (VIEWER, json!({ "principal": "17", "scopes": ["sessions"] }), 403, "forbidden"),
        (SHOP, json!({ "principal": "17", "validForSecs": 0 }), 400, "invalid_field"),
        (SHOP, json!({ "principal": "17", "validForSecs": 86_401 }), 400, "invalid_field"),
        (SHOP, json!({ "principal": "17", "redeemWithinSecs": 3_601 }), 400, "invalid_field"),
        (ADA, json!({ "redeemWithinSecs": 3_600 }), 400, "invalid_field"),
        (SHOP, json!({ "principal": "17", "sessionId": "no such id" }), 400, "invalid_field"),
        (SHOP, json!({ "principal": "17", "admin": true }), 400, "invalid_field"),
        (SHOP, json!(["17"]), 400, "invalid_field"),
        (ADA, json!({ "principal": "bob" }), 403, "forbidden"),
        (ADA, json!({ "scopes": ["operator"] }), 403, "forbidden"),
        (OPS, json!({ "principal": "17" }), 403, "forbidden"),
        ("wrong", json!({ "principal": "17" }), 401, "unauthenticated"),
    ];
    for (token, wanted, status, code) in table {
        let answered = call(&server, "POST", "/api/tickets", token, &wanted.to_string()).await;
        assert_eq!((answered.status, &answered.json()["code"]), (status, &json!(code)), "{wanted}: {answered:?}");
    }
    for path in ["/metrics", "/api/sessions"] {
        assert_eq!(call(&server, "GET", path, SHOP, "").await.status, 401, "{path} is for operators");
    }
    let mut itself = Client::connect(&server.ws()).await;
    let refused = itself.ask("hello", json!({ "protocolVersion": 2, "token": SHOP })).await;
    assert_eq!((&refused["payload"]["code"], itself.closed().await), (&json!("forbidden"), 4401));
    let minted = mint(&server, VIEWER, json!({ "principal": "17" })).await;
    let welcome = Client::connect(&server.ws())
        .await
        .ask("hello", json!({ "protocolVersion": 2, "ticket": minted["ticket"] }))
        .await;
    assert_eq!(welcome["payload"]["scopes"], json!(["read"]), "at most the service's own");
}

#[tokio::test]
async fn no_minted_name_is_another_s() {
    let server = start().await;
    let mut ada = greet(&server, json!({ "token": ADA })).await;
    let mut user = connect(&server, SHOP, json!({ "principal": "17" })).await;
    let sessions = [new_session(&mut ada).await, new_session(&mut user).await];
    let names = [(SHOP, "ada"), (SHOP, "|ada"), (VIEWER, "17"), (VIEWER, "service:shop|17"), (SHOP, "service:shop|17")];
    for (token, name) in names {
        let mut other = connect(&server, token, json!({ "principal": name })).await;
        for session in &sessions {
            gets(&mut other, &[("get_entries", json!({ "sessionId": session }), "session_not_found")]).await;
        }
        let listed = other.ask("list_sessions", json!({})).await;
        assert_eq!(listed["payload"]["items"], json!([]), "{name}");
    }
}

#[tokio::test]
async fn a_socket_does_not_outlive_its_grant_unless_it_is_renewed() {
    let server = start().await;
    let fresh = mint(&server, SHOP, json!({ "principal": "17" })).await["ticket"].clone();
    let short = json!({ "principal": "17", "validForSecs": 4 });
    let mut renewed = connect(&server, SHOP, short.clone()).await;
    let mut left = connect(&server, SHOP, short).await;
    let session = new_session(&mut renewed).await;
    let expiring = renewed.event("token_expiring").await;
    assert!((1..=2_000).contains(&expiring["payload"]["expiresInMs"].as_u64().unwrap()), "{expiring}");
    gets(&mut renewed, &[("authenticate", json!({ "ticket": fresh }), "ok")]).await;
    left.event("token_expiring").await;
    assert_eq!(left.closed().await, 4401);
    gets(&mut renewed, &[("get_entries", json!({ "sessionId": session }), "entries")]).await;
}

#[tokio::test]
async fn credentials_that_renew_nothing_change_nothing() {
    let server = start().await;
    let ticket = async |wanted| json!({ "ticket": mint(&server, SHOP, wanted).await["ticket"] });
    let (fresh, others) = (ticket(json!({ "principal": "17" })).await, ticket(json!({ "principal": "18" })).await);
    let less = ticket(json!({ "principal": "17", "scopes": ["read"] })).await;
    let mut client = connect(&server, SHOP, json!({ "principal": "17" })).await;
    let both = json!({ "ticket": fresh["ticket"], "token": ADA });
    gets(
        &mut client,
        &[
            ("authenticate", json!({}), "missing_field"),
            ("authenticate", both, "missing_field"),
            ("authenticate", json!({ "ticket": "wrong" }), "unauthenticated"),
            ("authenticate", json!({ "token": SHOP }), "forbidden"),
            ("authenticate", json!({ "token": ADA }), "forbidden"),
            ("authenticate", others, "forbidden"),
            ("authenticate", less, "forbidden"),
            ("open_session", json!({}), "session_opened"),
            ("authenticate", fresh.clone(), "ok"),
            ("authenticate", fresh, "unauthenticated"),
        ],
    )
    .await;
    let short = ticket(json!({ "principal": "17", "validForSecs": 1 })).await;
    gets(&mut client, &[("authenticate", short, "ok")]).await;
    client.event("token_expiring").await;
    notes::note("authenticate", Kind::Event, "token_expiring");
    assert_eq!(client.closed().await, 4401, "the newest credentials count");
}

#[tokio::test]
async fn what_was_granted_is_taken_back_at_once() {
    let server = start().await;
    let revoke = async |path: &str, token: &str| call(&server, "DELETE", path, token, "").await;
    let minted = mint(&server, SHOP, json!({ "principal": "user/17" })).await;
    let by_ticket = format!("/api/tickets/{}", minted["id"].as_str().unwrap());
    let mut first = greet(&server, json!({ "ticket": minted["ticket"] })).await;
    let mut second = connect(&server, SHOP, json!({ "principal": "user/17" })).await;
    let mut other = connect(&server, SHOP, json!({ "principal": "18" })).await;
    for token in [ADA, OPS, "wrong"] {
        assert_eq!(revoke(&by_ticket, token).await.status, 401, "only services revoke");
    }
    let by_name = "/api/principals/user%2F17";
    for path in [&by_ticket, by_name] {
        let nothing = revoke(path, VIEWER).await.json();
        assert_eq!(nothing, json!({ "tickets": 0, "sockets": 0 }), "they are another service's");
    }
    assert_eq!(revoke(&by_ticket, SHOP).await.json(), json!({ "tickets": 0, "sockets": 1 }));
    assert_eq!(first.closed().await, 4403);
    gets(&mut second, &[("ping", json!({}), "pong")]).await;
    let unused = mint(&server, SHOP, json!({ "principal": "user/17" })).await;
    assert_eq!(revoke(by_name, SHOP).await.json(), json!({ "tickets": 1, "sockets": 1 }));
    assert_eq!(second.closed().await, 4403);
    let mut late = Client::connect(&server.ws()).await;
    let refused = late.ask("hello", json!({ "protocolVersion": 2, "ticket": unused["ticket"] })).await;
    assert_eq!(refused["payload"]["code"], "unauthenticated");
    gets(&mut other, &[("ping", json!({}), "pong")]).await;
}

#[tokio::test]
async fn a_page_may_send_a_body_for_its_ticket() {
    let server = start().await;
    let origin = [("Origin", "https://shop.example")];
    let answered = http::ask(&server.address(), "OPTIONS", "/api/tickets", &origin).await;
    for header in ["access-control-allow-origin: https://shop.example", "allow-headers: authorization, content-type"] {
        assert!(answered.head.contains(header), "{header}: {answered:?}");
    }
}

/// Entries of this size are together larger than what the kernel and the server buffer for a connection.
const NOTE_BYTES: usize = 900_000;
const NOTES: usize = 40;

#[tokio::test]
async fn a_slow_reader_gets_nothing_more_once_its_grant_is_taken_back() {
    let server = start().await;
    let mut writer = connect(&server, SHOP, json!({ "principal": "17" })).await;
    let session = new_session(&mut writer).await;
    let minted = mint(&server, SHOP, json!({ "principal": "17" })).await;
    let mut reader = greet(&server, json!({ "ticket": minted["ticket"] })).await;
    gets(&mut reader, &[("open_session", json!({ "sessionId": session }), "session_opened")]).await;
    let note = json!({ "customType": "note", "data": "x".repeat(NOTE_BYTES) });
    for _ in 0..NOTES {
        let appended = writer.ask("append_custom", note.clone()).await;
        assert_eq!(appended["type"], "ok", "{appended}");
    }
    // From here on the server always has more for it.
    for _ in 0..3 {
        reader.event("entry_appended").await;
    }
    let path = format!("/api/tickets/{}", minted["id"].as_str().unwrap());
    let revoked = call(&server, "DELETE", &path, SHOP, "").await.json();
    assert_eq!(revoked, json!({ "tickets": 0, "sockets": 1 }));
    // The client still receives the events that were on their way; then the connection ends.
    assert_eq!(reader.closed().await, 4403);
    let read = reader.seen.iter().filter(|frame| frame["type"] == "entry_appended").count();
    assert!(read < NOTES, "all {read} entries were sent to a reader without a grant");
}
