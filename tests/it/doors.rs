//! The dialects over HTTP, over real sockets.

mod ai_sdk;
mod attacked;
mod chat_completions;
mod chat_keeping;
mod compliance;
mod described;
mod door;
mod probabilities;
mod responses;

use crate::support::{
    http,
    scripted::{Reply, Scripted},
    server::Server,
};

#[tokio::test]
async fn a_page_of_an_allowed_origin_may_ask_every_door_and_others_may_not() {
    let settings = [("ALLOWED_ORIGINS", "https://shop.example")];
    let server = Server::start(Scripted::answering(|_| Reply::text("ok")), &settings).await;
    let asked = "authorization,content-type,x-stainless-lang";
    for path in ["/v1/responses", "/v1/responses/x/cancel", "/v1/conversations", "/v1/chat/completions", "/v1/models"] {
        for (origin, status) in [("https://shop.example", 204), ("https://other.example", 403)] {
            let headers = [
                ("Origin", origin),
                ("Access-Control-Request-Method", "POST"),
                ("Access-Control-Request-Headers", asked),
            ];
            let answered = http::ask(&server.address(), "OPTIONS", path, &headers).await;
            assert_eq!(answered.status, status, "{path}: {answered:?}");
            let allows = answered.head.contains(&format!("access-control-allow-headers: {asked}"))
                && answered.head.contains(&format!("access-control-allow-origin: {origin}"));
            assert_eq!(allows, status == 204, "{path}: {answered:?}");
        }
    }
    let headers = [("Origin", "https://shop.example"), ("Content-Type", "application/json")];
    let body = r#"{"model":"scripted","messages":[{"role":"user","content":"Hello"}]}"#;
    let answered = http::send(&server.address(), "POST", "/v1/chat/completions", &headers, body).await;
    assert_eq!(answered.status, 200, "{answered:?}");
    for header in
        ["access-control-allow-origin: https://shop.example", "access-control-expose-headers: x-reseed-session"]
    {
        assert!(answered.head.contains(header), "{header}: {answered:?}");
    }
    let operator = [("Origin", "https://shop.example"), ("Access-Control-Request-Method", "GET")];
    let answered = http::ask(&server.address(), "OPTIONS", "/api/sessions", &operator).await;
    assert!(!answered.head.contains("access-control-allow-methods"), "operators have no pages elsewhere: {answered:?}");
}
