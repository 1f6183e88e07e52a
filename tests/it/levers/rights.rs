//! Who may pull levers, and what is refused before anything happens.

use super::{ANN, READER, SETTINGS, WRITER, model, pull, pull_once, session_of};
use crate::support::{
    binary::Binary,
    client::Client,
    http,
    issuer::{Issuer, claims},
    json::present,
    polling::until,
    server::Server,
};
use serde_json::json;

const UNKNOWN: &str = "k7m2q9xw4hfatz8n";

/// Every lever, with the method and the path.
fn levers(session: &str) -> Vec<(&'static str, String)> {
    let on_session = ["compact", "preview", "undo", "cancel", "close"];
    let mut all: Vec<_> = on_session.iter().map(|lever| ("POST", format!("/api/sessions/{session}/{lever}"))).collect();
    all.push(("DELETE", format!("/api/sessions/{session}")));
    all.push(("POST", "/api/users/ann-of-the-harbour/close".to_owned()));
    all.push(("DELETE", "/api/users/ann-of-the-harbour".to_owned()));
    all.push(("POST", "/api/drain".to_owned()));
    all.push(("POST", "/api/backup".to_owned()));
    all
}

#[tokio::test]
async fn only_operators_who_write_pull_levers() {
    let server = Server::start(model(), &SETTINGS).await;
    let (mut ann, session) = session_of(&server.ws(), ANN, json!({})).await;
    for (method, path) in levers(&session) {
        for (token, status, code) in
            [(None, 401, "unauthenticated"), (Some(ANN), 401, "unauthenticated"), (Some(READER), 403, "forbidden")]
        {
            let bearer = format!("Bearer {}", token.unwrap_or_default());
            let headers = [("Authorization", &*bearer)];
            let headers = if token.is_some() { &headers[..] } else { &[] };
            let refused = http::send(&server.address(), method, &path, headers, "").await;
            assert_eq!((refused.status, refused.json()["code"].as_str()), (status, Some(code)), "{method} {path}");
            assert!(status != 403 || refused.body.contains("operator.write"), "{refused:?}");
        }
    }
    ann.turn("Nothing has happened.").await;
    server.service.stop().await;
}

#[tokio::test]
async fn scopes_of_an_identity_provider_are_told_apart() {
    let issuer = Issuer::start().await;
    let more = [("AUTH_JWT_SCOPES_CLAIM", "scope"), ("CONTEXT_STRATEGY", "manual")];
    let server = Server::start(model(), &issuer.settings(&more)).await;
    let (_ann, session) =
        session_of(&server.ws(), &issuer.sign(&claims(json!({ "scope": "sessions" }))), json!({})).await;
    for (scope, reads, writes) in [
        ("sessions", 401, 401),
        ("operator", 200, 403),
        ("operator.content", 200, 403),
        ("operator.write", 200, 200),
        ("operator.content operator.write", 200, 200),
    ] {
        let bearer = format!("Bearer {}", issuer.sign(&claims(json!({ "scope": scope }))));
        let ask = async |method: &str, path: &str| {
            http::send(&server.address(), method, path, &[("Authorization", &bearer)], "").await.status
        };
        let close = format!("/api/sessions/{session}/close");
        assert_eq!((ask("GET", "/api/sessions").await, ask("POST", &close).await), (reads, writes), "{scope}");
    }
    // A name may contain what separates the parts of an address.
    let bearer = issuer.sign(&claims(json!({ "scope": "operator" })));
    let shown = http::get_as(&server.address(), "/api/users/https%3A%2F%2Fid.example%7C17", &bearer).await;
    assert_eq!(shown.json()["user"], "https://id.example|17", "{shown:?}");
    server.service.stop().await;
}

#[tokio::test]
async fn what_is_wrong_is_refused_before_anything_happens() {
    let server = Server::start(model(), &SETTINGS).await;
    let (mut ann, session) = session_of(&server.ws(), ANN, json!({})).await;
    let bearer = format!("Bearer {WRITER}");
    let compact = format!("/api/sessions/{session}/compact");
    let unknown = |lever: &str| format!("/api/sessions/{UNKNOWN}/{lever}");
    for (method, path, body, key, status, part) in [
        ("POST", format!("{compact}?force=1"), "", None, 400, "force"),
        ("DELETE", format!("/api/sessions/{session}?sure=1"), "", None, 400, "sure"),
        ("GET", "/api/users/ann-of-the-harbour?all=1".to_owned(), "", None, 400, "all"),
        ("POST", compact.clone(), r#"{ "instruction": "Be brief." }"#, None, 400, "instruction"),
        ("POST", compact.clone(), "no JSON", None, 400, "body"),
        ("POST", format!("/api/sessions/{session}/cancel"), r#"{ "what": "all" }"#, None, 400, "all"),
        ("POST", compact.clone(), "", Some("short"), 400, "Idempotency-Key"),
        ("POST", unknown("compact"), "", None, 404, "session_not_found"),
        ("POST", unknown("close"), "", None, 404, "session_not_found"),
        ("POST", "/api/sessions/%20/undo".to_owned(), "", None, 404, "session_not_found"),
        ("DELETE", format!("/api/sessions/{UNKNOWN}"), "", None, 404, "session_not_found"),
        ("DELETE", "/api/users/a%00b".to_owned(), "", None, 400, "control"),
        ("DELETE", "/api/users/(deleted)".to_owned(), "", None, 400, "deleted"),
    ] {
        let headers = [("Authorization", &*bearer), ("Idempotency-Key", key.unwrap_or_default())];
        let headers = if key.is_some() { &headers[..] } else { &headers[..1] };
        let refused = http::send(&server.address(), method, &path, headers, body).await;
        assert_eq!(refused.status, status, "{method} {path} {body}: {refused:?}");
        assert!(refused.body.contains(part), "{method} {path} {body}: {refused:?}");
    }
    ann.turn("Nothing has happened.").await;
    server.service.stop().await;
}

#[tokio::test]
async fn without_credentials_only_the_servers_own_page_pulls_levers() {
    let server = Server::start(model(), &[("ALLOWED_ORIGINS", "https://chat.example")]).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let address = server.address();
    let own = format!("http://{address}");
    let close = format!("/api/sessions/{}/close", opened["sessionId"].as_str().unwrap());
    // Browsers send an origin with every POST. The others are what one could leave out or make up.
    let foreign: &[&[(&str, &str)]] = &[
        &[("Origin", "https://evil.example")],
        &[("Origin", "null")],
        &[("Origin", "http://127.0.0.1:1")],
        &[("Origin", "https://evil.example"), ("Content-Type", "text/plain")],
        &[("Origin", "https://evil.example"), ("Content-Type", "application/x-www-form-urlencoded")],
        &[("Content-Type", "text/plain"), ("Sec-Fetch-Site", "cross-site")],
        &[("Sec-Fetch-Site", "same-site")],
        // Its pages may chat, but they are not the operator's.
        &[("Origin", "https://chat.example")],
        &[("Host", "evil.example"), ("Origin", &own)],
    ];
    for headers in foreign {
        for (method, path) in [("POST", &*close), ("DELETE", close.trim_end_matches("/close")), ("POST", "/api/drain")]
        {
            let refused = http::send(&address, method, path, headers, "").await;
            assert!([403, 421].contains(&refused.status), "{method} {path} {headers:?}: {refused:?}");
        }
    }
    client.turn("It is still open.").await;
    let own: &[&[(&str, &str)]] = &[
        &[],
        &[("Origin", &own)],
        &[("Origin", &own), ("Sec-Fetch-Site", "same-origin")],
        &[("Sec-Fetch-Site", "none")],
    ];
    for headers in own {
        let closed = http::send(&address, "POST", &close, headers, "").await;
        assert_eq!(closed.status, 200, "{headers:?}: {closed:?}");
    }
    client.event("session_closed").await;
    server.service.stop().await;
}

#[tokio::test]
async fn a_server_that_stops_pulls_no_more_levers() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [&SETTINGS[..], &[("SHUTDOWN_NOTICE_SECS", "3600")]].concat();
    let server = Binary::start(folder.path(), &settings).await;
    let (address, close) = (&server.address, "/api/users/ann-of-the-harbour/close");
    let once = async || pull_once(address, "POST", close, "", "a-key-of-16-chars").await;
    let closed = once().await;
    assert_eq!(closed.status, 200, "{closed:?}");
    server.terminate().await;
    let refused = until("the server stops", async || {
        let answered = pull(address, "POST", close, "").await;
        if answered.status == 200 { Err("it pulls levers".to_owned()) } else { Ok(answered) }
    });
    let refused = refused.await;
    assert_eq!((refused.status, present(&refused.json()["code"])), (503, &json!("shutting_down")), "{refused:?}");
    let again = once().await;
    assert_eq!((again.status, again.json()), (200, closed.json()), "the same answer");
    server.stop().await;
}
