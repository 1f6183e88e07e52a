//! The boundary of `input_too_large`: what is accepted fits the window with everything sent beside it and an answer.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, json::whole, server::Server, talk::words};
use serde_json::{Value, json};

const WINDOW_TOKENS: u64 = 2_000;

/// Says this many words in a session of its own. Returns the reply, and the tokens of the request.
async fn said(window_tokens: u64, count: usize) -> (Value, Option<u64>) {
    let model = Scripted::answering(|_| Reply::text("Yes."));
    let window = window_tokens.to_string();
    let server = Server::start(model.clone(), &[("CONTEXT_WINDOW", &window)]).await;
    let mut client = Client::v2(&server.ws()).await;
    let look = json!({ "name": "look", "description": words(7, 60), "parameters": { "type": "object" } });
    client.ask("open_session", json!({ "tools": [look] })).await;
    let reply = client.ask("user_input", json!({ "input": words(1, count) })).await;
    if reply["type"] == "error" {
        return (reply["payload"].clone(), None);
    }
    let finished = client.event("turn_finished").await["payload"].clone();
    assert_eq!(finished["status"], "completed", "{count} words: {finished}");
    (reply, Some(model.requests()[0].envelope.meta.tokens))
}

#[tokio::test]
async fn an_input_is_refused_as_soon_as_it_leaves_no_room_for_the_answer() {
    let reserved = {
        let settings = [("CONTEXT_WINDOW", &*WINDOW_TOKENS.to_string())];
        let server = Server::start(Scripted::new(), &settings).await;
        let (_client, opened) = Client::v2_session(&server.ws()).await;
        whole(&opened["contextInfo"]["reservedTokens"])
    };
    assert!(reserved > 0);
    let (mut fits, mut refused) = (0, 3_000);
    while refused - fits > 1 {
        let middle = usize::midpoint(fits, refused);
        match said(WINDOW_TOKENS, middle).await.1 {
            Some(_) => fits = middle,
            None => refused = middle,
        }
    }
    let largest = said(WINDOW_TOKENS, fits).await.1.unwrap();
    assert!(largest + reserved <= WINDOW_TOKENS, "{fits} words: {largest} tokens and {reserved} for the answer");
    let (error, _) = said(WINDOW_TOKENS, refused).await;
    assert_eq!((&error["code"], &error["retriable"]), (&json!("input_too_large"), &json!(false)), "{error}");
    assert!(error["message"].as_str().unwrap().contains(&format!("{reserved} are reserved for the answer")), "{error}");
    // In a larger window, the request with it is counted: it would not have fitted.
    let too_large = said(2 * WINDOW_TOKENS, refused).await.1.unwrap();
    assert!(too_large + reserved > WINDOW_TOKENS, "{refused} words: {too_large} tokens");
    assert!(too_large - largest < 10, "the boundary is sharp: {largest} and {too_large} tokens");
}
