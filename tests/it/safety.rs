//! Who may connect, who may see what, and what never reaches the log.

use crate::support::{
    binary::{self, Binary},
    client::Client,
    http,
    server::Server,
    talk::{summary, talker, words},
    upstream::{Reply, Upstream},
};
use serde_json::{Value, json};

const ADA: &str = "token-of-ada-4d1f9a73c2";
const BOB: &str = "token-of-bob-90bb2e6a51";
const OPS: &str = "token-of-ops-77e3c0d8f4";
const TOKENS: [(&str, &str); 2] =
    [("AUTH_TOKENS", "ada:token-of-ada-4d1f9a73c2,bob:token-of-bob-90bb2e6a51"), OPERATORS];
const OPERATORS: (&str, &str) = ("OPERATOR_TOKENS", "ops:token-of-ops-77e3c0d8f4");

fn hello(more: Value) -> Value {
    let mut payload = json!({ "protocolVersion": 2 });
    payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    payload
}

/// Returns a one-time ticket for the client of this token.
async fn ticket(server: &Server, token: &str) -> String {
    let bearer = format!("Bearer {token}");
    let answered = http::ask(&server.address(), "POST", "/api/tickets", &[("Authorization", &bearer)]).await;
    assert_eq!(answered.status, 200, "{answered:?}");
    answered.json()["ticket"].as_str().unwrap().to_owned()
}

/// Connects a v2 client that gave this token in `hello`.
async fn known(server: &Server, token: &str) -> Client {
    let mut client = Client::connect(&server.ws()).await;
    let welcome = client.ask("hello", hello(json!({ "token": token }))).await;
    assert_eq!(welcome["type"], "welcome", "{welcome}");
    client
}

/// Connects a client that has sent nothing yet, with these credentials in the handshake.
async fn arrives(server: &Server, bearer: Option<&str>, in_url: Option<&str>) -> Client {
    let url = in_url.map_or(server.ws(), |ticket| format!("{}?ticket={ticket}", server.ws()));
    let bearer = bearer.map(|token| format!("Bearer {token}"));
    let headers: Vec<(&'static str, &str)> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
    Client::connect_with(&url, &headers).await
}

async fn session(client: &mut Client) -> String {
    let opened = client.ask("open_session", json!({})).await;
    opened["payload"]["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned()
}

#[tokio::test]
async fn tokens_and_tickets_open_v2_and_anything_else_is_closed_with_4401() {
    let server = Server::start(talker(5), &TOKENS).await;
    let used = ticket(&server, ADA).await;
    let mut first = Client::connect(&server.ws()).await;
    assert_eq!(first.ask("hello", hello(json!({ "ticket": used }))).await["type"], "welcome");
    let (fresh, in_url, both) = (ticket(&server, ADA).await, ticket(&server, BOB).await, ticket(&server, BOB).await);
    // The credentials of the handshake (bearer, `?ticket=`) and of hello. `None` in hello: nothing is sent, since wrong
    // credentials in the handshake are enough to be closed.
    let enough = [
        (Some(ADA), None, json!({})),
        (Some(BOB), None, json!({ "token": ADA })),
        (None, None, json!({ "token": ADA })),
        (None, None, json!({ "ticket": fresh })),
        (None, Some(in_url.as_str()), json!({})),
    ];
    for (bearer, in_url, greeting) in enough {
        let mut client = arrives(&server, bearer, in_url).await;
        let welcome = client.ask("hello", hello(greeting.clone())).await;
        assert_eq!(welcome["type"], "welcome", "bearer {bearer:?}, ticket {in_url:?}, hello {greeting}");
        session(&mut client).await;
    }
    let wrong = [
        (Some("wrong"), None, None),
        (Some(OPS), None, None),
        (None, Some(used.as_str()), None),
        (None, Some(&in_url), None),
        (None, Some("wrong"), None),
        (Some("wrong"), Some(&both), None),
        (None, None, Some(json!({}))),
        (None, None, Some(json!({ "token": "wrong" }))),
        (None, None, Some(json!({ "token": OPS }))),
        (None, None, Some(json!({ "token": "" }))),
        (None, None, Some(json!({ "ticket": used }))),
        (None, None, Some(json!({ "ticket": ADA }))),
        (Some(ADA), None, Some(json!({ "token": "wrong" }))),
    ];
    for (bearer, in_url, greeting) in wrong {
        let case = format!("bearer {bearer:?}, ticket {in_url:?}, hello {greeting:?}");
        let mut client = arrives(&server, bearer, in_url).await;
        if let Some(greeting) = greeting {
            let code = if greeting["token"] == OPS { "forbidden" } else { "unauthenticated" };
            let error = client.ask("hello", hello(greeting)).await;
            assert_eq!((&error["type"], &error["payload"]["code"]), (&json!("error"), &json!(code)), "{case}");
        }
        let (code, why) = client.closed_because().await;
        assert_eq!((code, why.contains("operator's token")), (4401, case.contains(OPS)), "{case}: {why}");
    }
}

#[tokio::test]
async fn v1_takes_a_bearer_or_a_ticket_when_connecting() {
    let server = Server::start(talker(5), &TOKENS).await;
    let ticket = ticket(&server, ADA).await;
    let bearer = format!("Bearer {ADA}");
    let with_ticket = format!("ws://{}/?ticket={ticket}", server.address());
    let headers = [("authorization", bearer.as_str())];
    for (url, headers) in [(&server.ws(), &headers[..]), (&with_ticket, &[])] {
        let mut client = Client::connect_with(url, headers).await;
        assert_eq!(client.ask("get_context_info", json!({})).await["type"], "context_info");
    }
    assert_eq!(Client::connect(&with_ticket).await.closed().await, 4401, "a ticket is good once");
    let mut stranger = Client::connect(&server.ws()).await;
    stranger.send("get_context_info", json!({})).await;
    assert_eq!(stranger.event("error").await["payload"]["details"]["code"], "unauthenticated");
    assert_eq!(stranger.closed().await, 4401);
}

#[tokio::test]
async fn a_ticket_needs_a_token_and_ends_by_itself() {
    let server = Server::start(talker(5), &[TOKENS[0], OPERATORS]).await;
    let address = server.address();
    let refusals =
        [(None, 401, "unauthenticated"), (Some("wrong"), 401, "unauthenticated"), (Some(OPS), 403, "forbidden")];
    for (token, status, code) in refusals {
        let bearer = format!("Bearer {}", token.unwrap_or_default());
        let headers = [("Authorization", bearer.as_str())];
        let answered = http::ask(&address, "POST", "/api/tickets", &headers[..token.iter().count()]).await;
        assert_eq!((answered.status, &answered.json()["code"]), (status, &json!(code)), "{token:?}");
    }
    let bearer = format!("Bearer {ADA}");
    let answered = http::ask(&address, "POST", "/api/tickets", &[("Authorization", &bearer)]).await;
    assert_eq!(answered.json()["expiresInSecs"], 60);
    assert!(answered.head.contains("cache-control: no-store"), "{}", answered.head);
}

#[tokio::test]
async fn who_must_say_hello_and_does_not_is_closed_with_4408() {
    let second = ("HELLO_TIMEOUT_SECS", "1");
    let open = Server::start(talker(5), &[second]).await;
    let closed = Server::start(talker(5), &[TOKENS[0], second]).await;
    let v2 = ("sec-websocket-protocol", "reseed.v2");
    for (server, headers) in [(&open, &[v2][..]), (&closed, &[v2]), (&closed, &[])] {
        let mut client = Client::connect_with(&server.ws(), headers).await;
        assert_eq!(client.closed().await, 4408, "{headers:?}");
    }
}

#[tokio::test]
async fn pages_of_foreign_origins_and_foreign_names_are_refused_before_the_upgrade() {
    let server = Server::start(talker(5), &[("ALLOWED_ORIGINS", "https://chat.example.org")]).await;
    let address = server.address();
    let port = address.rsplit_once(':').unwrap().1;
    let own = [format!("http://localhost:{port}"), format!("http://127.0.0.1:{port}")];
    let names = [format!("localhost:{port}"), format!("evil.example:{port}")];
    let table: [(&str, &str, u16); 11] = [
        ("Origin", &own[0], 200),
        ("Origin", &own[1], 200),
        ("Origin", "https://chat.example.org", 200),
        ("Origin", "http://chat.example.org", 403),
        ("Origin", "https://evil.example", 403),
        ("Origin", "http://localhost:1", 403),
        ("Origin", "null", 403),
        ("Host", &names[0], 200),
        ("Host", "[::1]", 200),
        ("Host", &names[1], 421),
        ("Host", "chat.example.org.evil.example", 421),
    ];
    for (header, value, status) in table {
        for path in ["/", "/ws", "/metrics", "/api/sessions"] {
            // `/ws` accepts upgrades only. It answers other permitted requests with 400.
            let expected = if path == "/ws" && status == 200 { 400 } else { status };
            let answered = http::ask(&address, "GET", path, &[(header, value)]).await;
            assert_eq!(answered.status, expected, "{path} with {header}: {value}: {}", answered.body);
            let upgrade = [
                (header, value),
                ("Connection", "Upgrade"),
                ("Upgrade", "websocket"),
                ("Sec-WebSocket-Version", "13"),
                ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ];
            if matches!(path, "/" | "/ws") {
                let expected = if status == 200 { 101 } else { status };
                assert_eq!(http::ask(&address, "GET", path, &upgrade).await.status, expected, "{path}, {value}");
            }
        }
        let answered = http::ask(&address, "OPTIONS", "/api/tickets", &[(header, value)]).await;
        assert_eq!(answered.status, if status == 200 { 204 } else { status }, "{header}: {value}");
    }
}

#[tokio::test]
async fn a_server_that_others_can_reach_needs_tokens_and_origins() {
    let folder = tempfile::tempdir().unwrap();
    let origins = ("ALLOWED_ORIGINS", "https://chat.example.org");
    let table = [
        (vec![], vec!["AUTH_TOKENS", "ALLOWED_ORIGINS"]),
        (vec![TOKENS[0]], vec!["ALLOWED_ORIGINS"]),
        (vec![origins], vec!["AUTH_TOKENS"]),
    ];
    for (settings, missing) in table {
        let settings = [settings, vec![("HOST", "0.0.0.0")]].concat();
        let ended = binary::run(folder.path(), &[], &settings).await;
        assert_eq!((ended.code, ended.printed.as_str()), (Some(1), ""), "{settings:?}");
        let expected: String = missing
            .iter()
            .map(|variable| {
                format!(
                    "\n  HOST is `0.0.0.0`, which is reachable from other machines, and {variable} is not set; set \
                {variable}, or set HOST to 127.0.0.1 or ::1"
                )
            })
            .collect();
        assert_eq!(ended.faults, format!("reseed: invalid settings:{expected}\n"));
        assert!(!folder.path().join("data").exists(), "nothing is made by a server that does not start");
    }
}

#[tokio::test]
async fn a_session_of_one_name_does_not_exist_for_another() {
    let server = Server::start(talker(5), &TOKENS).await;
    let (mut ada, mut bob) = (known(&server, ADA).await, known(&server, BOB).await);
    let owned = session(&mut ada).await;
    ada.turn("My ferry is called Aurora.").await;
    for owner_is_there in [true, false] {
        let of = |id: &str| {
            [
                ("open_session", json!({ "sessionId": id })),
                ("open_session", json!({ "sessionId": id, "role": "observer" })),
                ("open_session", json!({ "sessionId": id })),
                ("open_session", json!({ "sessionId": id, "resume": { "epoch": "x", "seq": 1 } })),
                ("get_entries", json!({ "sessionId": id })),
                ("search_history", json!({ "sessionId": id, "query": "Aurora" })),
                ("rename_session", json!({ "sessionId": id, "name": "mine" })),
                ("delete_session", json!({ "sessionId": id })),
            ]
        };
        for ((kind, payload), (_, unknown)) in of(&owned).into_iter().zip(of("nosuchsession2345")) {
            let refused = bob.ask(kind, payload.clone()).await["payload"].to_string();
            assert!(refused.contains(r#""code":"session_not_found""#), "{kind} {payload}: {refused}");
            let expected = bob.ask(kind, unknown).await["payload"].to_string();
            assert_eq!(refused.replace(&owned, "nosuchsession2345"), expected, "{kind} {payload}");
        }
        for search in [json!({}), json!({ "search": "Aurora" })] {
            assert_eq!(bob.ask("list_sessions", search).await["payload"]["items"], json!([]));
        }
        if owner_is_there {
            assert_eq!(ada.ask("close_session", json!({})).await["type"], "ok");
        }
    }
    let listed = ada.ask("list_sessions", json!({})).await;
    assert_eq!(listed["payload"]["items"][0]["sessionId"], owned.as_str(), "{listed}");
    let opened = ada.ask("open_session", json!({ "sessionId": owned })).await;
    assert_eq!(opened["payload"]["entries"].as_array().map(Vec::len), Some(2), "{opened}");
}

#[tokio::test]
async fn operators_see_numbers_and_names_only_where_they_may_read_content() {
    for (reads, name) in [("false", ""), ("true", "The ferry Aurora")] {
        let server = Server::start(talker(5), &[TOKENS[0], OPERATORS, ("OPERATORS_READ_CONTENT", reads)]).await;
        let mut ada = known(&server, ADA).await;
        let owned = session(&mut ada).await;
        ada.turn("What I say is nobody's business.").await;
        ada.ask("rename_session", json!({ "name": "The ferry Aurora" })).await;
        let context = format!("/api/sessions/{owned}/context");
        for path in ["/metrics", "/api/sessions", &context, "/api/sessions/unknown/context"] {
            assert_eq!(http::get(&server.address(), path).await.status, 401, "{path}");
            for token in [ADA, "wrong", ""] {
                let answered = http::get_as(&server.address(), path, token).await;
                assert_eq!(answered.status, 401, "{path} with {token:?}");
                assert!(answered.head.contains("www-authenticate: bearer"), "{}", answered.head);
            }
            let answered = http::get_as(&server.address(), path, OPS).await;
            assert_eq!(answered.status, if path.contains("unknown") { 404 } else { 200 }, "{path}");
            assert!(!answered.body.contains("business"), "{path}: {}", answered.body);
        }
        let listed = http::get_as(&server.address(), "/api/sessions", OPS).await.json();
        let item = &listed["items"][0];
        assert_eq!((&item["sessionId"], &item["owner"]), (&json!(owned), &json!("ada")), "{listed}");
        assert_eq!((&item["name"], &item["entries"], &item["open"]), (&json!(name), &json!(3), &json!(true)));
        assert!(item["tokenCount"].as_u64().is_some_and(|tokens| tokens > 0), "{listed}");
        for path in ["/healthz", "/readyz"] {
            assert_eq!(http::get(&server.address(), path).await.status, 200, "{path} is for everyone");
        }
    }
}

#[tokio::test]
async fn neither_what_was_said_nor_a_secret_is_in_the_log_or_the_metrics() {
    // What must not be found: text of a user, of the model, of the upstream server's errors; tokens, right and wrong.
    let marks =
        ["zebra-said", "walrus-answered", "heron-refused", "otter-key-8d20cc41", "token-of-", "lemur-guessed-3ac"];
    let folder = tempfile::tempdir().unwrap();
    let mut asked = 0;
    let upstream = Upstream::start(move |_| {
        asked += 1;
        match asked {
            2 => Reply::error(400, r#"{"error":{"message":"heron-refused: zebra-said otter-key-8d20cc41"}}"#),
            3 => Reply::error(401, r#"{"error":{"message":"the key otter-key-8d20cc41 is wrong: heron-refused"}}"#),
            // A compaction takes it as a summary, a turn as an answer.
            _ => Reply::text(summary(&["walrus-answered"])),
        }
    })
    .await;
    let base_url = upstream.base_url();
    let settings = [
        &TOKENS[..],
        &[
            ("LOG_LEVEL", "trace"),
            ("OPENAI_API_KEY", "otter-key-8d20cc41"),
            ("OPENAI_BASE_URL", &base_url),
            ("CONTEXT_WINDOW", "2000"),
            ("INSTRUCTIONS", "zebra-said in the instructions"),
        ],
    ]
    .concat();
    let server = Binary::start(folder.path(), &settings).await;

    let mut v2 = Client::connect(&server.ws()).await;
    v2.ask("hello", hello(json!({ "token": ADA, "clientId": "page" }))).await;
    session(&mut v2).await;
    let statuses = ["completed", "failed", "failed", "completed", "completed"];
    for status in statuses {
        assert_eq!(v2.turn("zebra-said over v2").await["status"], status);
    }
    v2.ask("rename_session", json!({ "name": "zebra-said in a name" })).await;
    v2.ask("user_input", json!({ "input": "zebra-said", "nonsense": "zebra-said" })).await;
    v2.send_raw("zebra-said, and no JSON").await;
    v2.ask("start_compaction", json!({ "instructions": "zebra-said to the summary" })).await;
    v2.event("context_compacted").await;

    let bearer = format!("Bearer {BOB}");
    let mut v1 = Client::connect_with(&server.ws(), &[("authorization", &bearer)]).await;
    let text = format!("zebra-said over v1: {}", words(1, 150));
    let content = json!([{ "type": "input_text", "text": text }]);
    let said = json!([{ "type": "message", "role": "user", "content": content }]);
    let v1_turns = 4;
    for _ in 0..v1_turns {
        v1.send("user_input", json!({ "input": said })).await;
        v1.event("agent_finished").await;
    }
    v1.send_raw("zebra-said, and no JSON").await;
    v1.event("error").await;
    v1.send("manual_compact", json!({})).await;
    v1.event("context_compacted").await;

    let guess = format!("{}?ticket=lemur-guessed-3ac", server.ws());
    assert_eq!(Client::connect(&guess).await.closed().await, 4401);
    http::get_as(&server.address, "/api/sessions", "lemur-guessed-3ac").await;
    let listed = http::get_as(&server.address, "/api/sessions/zebra-said/tree", OPS).await;
    assert_eq!(listed.status, 404);
    let metrics = http::get_as(&server.address, "/metrics", OPS).await.body;
    server.stop().await;

    let log = binary::logged(folder.path());
    assert_eq!(log.matches("turn finished").count(), statuses.len() + v1_turns, "the log is one:\n{log}");
    assert!(log.contains(" compact") && metrics.contains("reseed_turns_total"), "{log}\n{metrics}");
    for refused in ["handshake", "sessions"] {
        let line = log.lines().find(|line| line.contains("refuse credentials") && line.contains(refused));
        assert!(line.is_some_and(|line| line.contains("127.0.0.1")), "{refused}:\n{log}");
    }
    assert!(log.lines().any(|line| line.contains("an operator reads") && line.contains("404")), "{log}");
    for (name, text) in [("log", &log), ("metrics", &metrics)] {
        for mark in marks {
            let found = text.lines().find(|line| line.contains(mark));
            assert_eq!(found, None, "`{mark}` is in the {name}");
        }
    }
    assert!(upstream.requests().iter().any(|asked| asked.contains("zebra-said to the summary")));
}
