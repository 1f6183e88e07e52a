//! What operators see of a session's next request: all of it, or its shape and its numbers.

use crate::support::{
    client::Client,
    http,
    json::present,
    server::Server,
    talk::{talker, words},
};
use reseed::{
    core::hook::HookSpec,
    hooks::{Hook, HookFuture},
    store::sqlite::SqliteStore,
};
use reseed_protocol::{
    context::PatchOp,
    hooks::{ContextReason, HookAnswer, HookCall, HookPoint},
};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Content that must not be shown if operators may not read it.
const SAID: [&str; 5] = ["Aurora", "in verse", "Looks at", "harbourside", "lantern"];

fn tool() -> Value {
    let parameters = json!({ "type": "object", "properties": { "harbourside": { "type": "string" } } });
    json!({ "name": "look", "description": "Looks at something.", "parameters": parameters })
}

/// Says a few things and returns the session's id.
async fn talk(client: &mut Client, opened: &Value) -> String {
    client.ask("set_instructions", json!({ "instructions": "Answer in verse." })).await;
    client.ask("set_options", json!({ "temperature": 0.5 })).await;
    client.turn("My ferry is called Aurora.").await;
    client.turn(&words(1, 300)).await;
    opened["sessionId"].as_str().unwrap().to_owned()
}

async fn own(client: &mut Client, format: &str) -> Value {
    client.ask("get_context", json!({ "format": format })).await["payload"].clone()
}

#[tokio::test]
async fn who_may_read_content_reads_what_the_client_is_shown_whether_the_session_is_open_or_not() {
    let folder = super::folder();
    let open = || Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let settings = [("OPERATORS_READ_CONTENT", "true")];
    let server = Server::over(talker(60), open(), &settings).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let id = talk(&mut client, &opened).await;
    let path = format!("/api/sessions/{id}/context");
    client.ask("register_tools", json!({ "tools": [tool()] })).await;
    let shown = http::get(&server.address(), &format!("{path}?format=envelope")).await;
    assert!(shown.head.contains("cache-control: no-store"), "{}", shown.head);
    assert_eq!(shown.json(), own(&mut client, "envelope").await);
    let shown = http::get(&server.address(), &format!("{path}?format=markdown&ephemeral=true")).await;
    assert!(shown.head.contains("content-type: text/markdown"), "{}", shown.head);
    assert_eq!(json!(shown.body), own(&mut client, "markdown").await["markdown"]);
    SAID.iter().for_each(|said| assert!(shown.body.contains(said), "{said}: {}", shown.body));

    client.ask("register_tools", json!({ "tools": [] })).await;
    let (envelope, markdown) = (own(&mut client, "envelope").await, own(&mut client, "markdown").await);
    client.hang_up();
    server.service.stop().await;
    drop(server);
    let server = Server::over(talker(60), open(), &settings).await;
    let shown = http::get(&server.address(), &format!("{path}?format=envelope")).await.json();
    assert_eq!(shown, envelope, "closed");
    let shown = http::get(&server.address(), &format!("{path}?format=markdown")).await.body;
    assert_eq!(json!(shown), markdown["markdown"], "closed");
    let listed = http::get(&server.address(), "/api/sessions").await.json();
    assert_eq!(listed["openSessions"], 0, "looking opens nothing");
}

#[tokio::test]
async fn who_may_not_sees_who_spoke_and_what_it_costs() {
    let server = Server::start(talker(60), &[]).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let id = talk(&mut client, &opened).await;
    client.ask("register_tools", json!({ "tools": [tool()] })).await;
    let whole = own(&mut client, "envelope").await;
    let path = format!("/api/sessions/{id}/context");
    let shown = http::get(&server.address(), &format!("{path}?format=envelope")).await;
    let text = http::get(&server.address(), &format!("{path}?format=markdown")).await;
    for body in [&shown.body, &text.body] {
        SAID.iter().for_each(|said| assert!(!body.contains(said), "{said}: {body}"));
    }
    let shown = shown.json();
    assert_eq!((&shown["withoutContent"], &shown["tokens"]), (&json!(true), present(&whole["tokens"])));
    for of in ["meta", "options"] {
        assert_eq!(*present(&shown["envelope"][of]), whole["envelope"][of], "{of}");
    }
    let (shown, whole) = (&shown["envelope"], &whole["envelope"]);
    assert_eq!(shown["system"], json!({ "parts": [{ "name": "base", "text": "" }], "compiled": "" }));
    assert_eq!(shown["tools"], json!([{ "name": "look", "description": "", "parameters": {} }]));
    let (shown, whole) = (&shown["messages"]["cached"], &whole["messages"]["cached"]);
    assert_eq!(shown.as_array().unwrap().len(), 4);
    for (shown, whole) in shown.as_array().unwrap().iter().zip(whole.as_array().unwrap()) {
        let role = &whole["message"]["role"];
        assert_eq!(*shown, json!({ "entryId": whole["entryId"], "message": { "role": role, "content": [] } }));
    }
    for name in ["# system: base", "# tool: look", "# user", "# assistant"] {
        assert!(text.body.contains(name), "{name}: {}", text.body);
    }
}

/// A hook whose patch changes each time, and says why in words that quote the user.
struct Quoting(AtomicU64);

impl Hook for Quoting {
    fn specs(&self) -> Vec<HookSpec> {
        vec![HookSpec::new("quoting", HookPoint::Context).for_reasons(&[ContextReason::TurnEnd])]
    }

    fn call(&self, _: HookCall) -> HookFuture<'_> {
        let op = PatchOp::SystemPartSet {
            part_name: "time".to_owned(),
            text: format!("It is 17:{:02}.", self.0.fetch_add(1, Ordering::Relaxed)),
            invalidate_cache_reason: "the user named the Aurora".to_owned(),
        };
        Box::pin(async move { Ok(HookAnswer::patch(vec![op])) })
    }
}

#[tokio::test]
async fn the_reason_of_a_patch_is_content() {
    for reads in ["false", "true"] {
        let hook = Arc::new(Quoting(AtomicU64::new(0)));
        let settings = [("OPERATORS_READ_CONTENT", reads), ("CONTEXT_WINDOW", "100000")];
        let server = Server::with_hooks(talker(60), vec![hook], &settings).await;
        let (mut client, opened) = Client::v2_session(&server.ws()).await;
        let id = talk(&mut client, &opened).await;
        let own = own(&mut client, "envelope").await;
        let detail = own["receipt"]["broke"]["detail"].as_str().expect("the client is told why").to_owned();
        assert!(detail.contains("Aurora"), "{detail}");
        let shown = http::get(&server.address(), &format!("/api/sessions/{id}/context?format=envelope")).await;
        assert_eq!(shown.body.contains(&detail), reads == "true", "{}", shown.body);
        assert_eq!(*present(&shown.json()["receipt"]["broke"]["reason"]), own["receipt"]["broke"]["reason"]);
        let requests = http::get(&server.address(), &format!("/api/sessions/{id}/requests")).await;
        assert_eq!(requests.body.contains("Aurora"), reads == "true", "{}", requests.body);
        assert_eq!(*present(&requests.json()["items"][1]["receipt"]["broke"]["reason"]), json!("patch"));
    }
}

#[tokio::test]
async fn requests_are_paged_and_have_numbers_only() {
    let server = Server::start(talker(60), &[("CONTEXT_WINDOW", "100000")]).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let id = talk(&mut client, &opened).await;
    let read = async |query: String| http::get(&server.address(), &format!("/api/sessions/{id}/requests{query}")).await;
    let all = read(String::new()).await;
    SAID.iter().for_each(|said| assert!(!all.body.contains(said), "{said}: {}", all.body));
    let all = all.json();
    let items = all["items"].as_array().unwrap();
    assert_eq!((items.len(), &all["more"]), (2, &json!(false)), "{all}");
    for item in items {
        for part in [&item["usage"]["inputTokens"], &item["receipt"]["tokens"], &item["model"], &item["timestamp"]] {
            present(part);
        }
        assert!(item["content"].is_null() && item["receipt"]["sent"].is_null(), "{item}");
    }
    let (mut found, mut query) = (Vec::new(), "?limit=1".to_owned());
    loop {
        let page = read(query).await.json();
        found.splice(0..0, page["items"].as_array().unwrap().clone());
        if page["more"] == false {
            break;
        }
        query = format!("?limit=1&before={}", page["oldest"].as_str().unwrap());
    }
    assert_eq!(json!(found), all["items"]);
}

#[tokio::test]
async fn what_is_not_there_or_not_known_is_refused() {
    let server = Server::start(talker(5), &[("OPERATOR_TOKENS", "op:a-long-enough-secret-1")]).await;
    let (_client, opened) = Client::v2_session(&server.ws()).await;
    let id = opened["sessionId"].as_str().unwrap();
    let token = "a-long-enough-secret-1";
    let path = |query: &str| format!("/api/sessions/{id}/context?{query}");
    assert_eq!(http::get(&server.address(), &path("format=envelope")).await.status, 401);
    assert_eq!(http::get_as(&server.address(), &path("format=envelope"), token).await.status, 200);
    assert_eq!(http::get_as(&server.address(), &path("format=html"), token).await.status, 400);
    let none = "/api/sessions/nosuchsession2345/context?format=markdown";
    let answered = http::get_as(&server.address(), none, token).await;
    assert_eq!((answered.status, &answered.json()["code"]), (404, &json!("session_not_found")));
}
