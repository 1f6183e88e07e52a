//! A user who requests tickets without end.

use crate::support::scripted::Scripted;
use crate::support::{client::Client, http, server::Server};
use serde_json::json;

#[tokio::test]
async fn one_user_cannot_take_all_tickets() {
    let tokens = ("AUTH_TOKENS", "ada:token-of-ada-4d1f9a73c2,bob:token-of-bob-90bb2e6a51");
    let server = Server::start(Scripted::new(), &[tokens, ("TICKETS_PER_USER_MAX", "5")]).await;
    let (address, ada, bob) = (server.address(), "Bearer token-of-ada-4d1f9a73c2", "Bearer token-of-bob-90bb2e6a51");
    let ask = async |token: &str| http::ask(&address, "POST", "/api/tickets", &[("Authorization", token)]).await;
    let mut tickets = Vec::new();
    for _ in 0..5 {
        tickets.push(ask(ada).await.json()["ticket"].as_str().expect("a ticket").to_owned());
    }
    let refused = ask(ada).await;
    assert_eq!(refused.status, 429, "{refused:?}");
    let error = refused.json();
    assert_eq!((&error["code"], &error["details"]["limit"]), (&json!("limit_reached"), &json!("tickets_per_user")));
    assert_eq!(ask(bob).await.status, 200, "others have theirs");
    let url = format!("{}?ticket={}", server.ws(), tickets[0]);
    let mut client = Client::connect(&url).await;
    assert_eq!(client.ask("hello", json!({ "protocolVersion": 2 })).await["type"], "welcome");
    assert_eq!(ask(ada).await.status, 200, "a used ticket makes room");
}

#[tokio::test]
async fn one_service_cannot_take_all_tickets() {
    let tokens = ("SERVICE_TOKENS", "shop:token-of-shop-c2ab5e01f7,desk:token-of-desk-51f0a9c2d8");
    let server = Server::start(Scripted::new(), &[tokens, ("TICKETS_PER_SERVICE_MAX", "3")]).await;
    let mint = async |token: &str, principal: usize| {
        let body = json!({ "principal": principal.to_string() }).to_string();
        http::send(&server.address(), "POST", "/api/tickets", &[("Authorization", token)], &body).await
    };
    let shop = "Bearer token-of-shop-c2ab5e01f7";
    for user in 0..3 {
        assert_eq!(mint(shop, user).await.status, 200);
    }
    let refused = mint(shop, 3).await;
    let limit = refused.json()["details"].clone();
    assert_eq!((refused.status, limit), (429, json!({ "limit": "tickets_per_service", "max": 3 })));
    assert_eq!(mint("Bearer token-of-desk-51f0a9c2d8", 0).await.status, 200, "others have theirs");
}
