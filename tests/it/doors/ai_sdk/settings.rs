//! What `body` says about the session.

use super::{Page, text};
use crate::support::{
    client::Client as V2,
    scripted::{Gate, Reply, Scripted},
    server::Server,
};
use serde_json::json;

#[tokio::test]
async fn the_body_sets_the_strategy_and_the_options_of_answers() {
    let model = Scripted::answering(|_| Reply::text("Yes."));
    let server = Server::start(model.clone(), &[]).await;
    let mut page = Page::open(&server, "chat").await;
    page.body = json!({
        "strategy": "manual", "instructions": "Be brief.", "temperature": 0.5, "topP": 0.9, "maxOutputTokens": 100,
    });
    let chunks = page.say("u1", "Is it?").await;
    page.body = json!({"temperature": 0.25});
    page.say("u2", "And now?").await;
    let requests = model.requests();
    let sent = requests.iter().map(|request| {
        let options = &request.envelope.options;
        (options.temperature, options.top_p, options.max_output_tokens)
    });
    let expected = [(Some(0.5), Some(0.9), Some(100)), (Some(0.25), Some(0.9), Some(100))];
    assert_eq!(sent.collect::<Vec<_>>(), expected, "what is absent stays");
    let session = chunks.last().unwrap()["messageMetadata"]["sessionId"].clone();
    let opened = V2::v2(&server.ws()).await.ask("open_session", json!({"sessionId": session})).await;
    let (strategy, settings) = (&opened["payload"]["strategy"], &opened["payload"]["settings"]);
    assert_eq!((strategy, &settings["instructions"]), (&json!("manual"), &json!("Be brief.")));

    page.body = json!({"strategy": "nonsense"});
    page.said("u3", "Still?");
    page.send("submit-message", None).await;
    let error = page.frame().await;
    assert!(error["type"] == "error" && error["errorText"].as_str().unwrap().contains("nonsense"), "{error}");
}

#[tokio::test]
async fn settings_wait_for_the_turn_that_is_running() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let server = Server::start(model.clone(), &[]).await;
    let (mut one, mut two) = (Page::open(&server, "chat").await, Page::open(&server, "chat").await);
    model.push(Reply::text("one two three four").in_pieces(4).held_by(&gate));
    model.push(Reply::text("Five."));
    one.said("u1", "Count.");
    one.send("submit-message", None).await;
    one.chunk("text-delta").await;
    two.body = json!({"temperature": 0.5});
    two.said("u2", "Go on.");
    two.send("submit-message", None).await;
    gate.open();
    assert_eq!(text(&two.chunks().await), "Five.");
    assert_eq!(model.requests()[1].envelope.options.temperature, Some(0.5));
    one.chunks().await;
}
