//! Arguments of tool calls that are no JSON object: sent wrapped, shown by `get_context` as sent, kept as written.

use crate::support::{
    client::Client,
    server::Server,
    upstream::{Api, Asked, Reply, Upstream},
};
use serde_json::{Value, json};

/// What a model writes, and what the next request sends of it.
const WRITTEN: [(&str, &str); 5] = [
    (r#"{"at":"sea"}"#, r#"{"at":"sea"}"#),
    (r#"{"at":"#, r#"{"malformed":"{\"at\":"}"#),
    ("[1]", r#"{"malformed":"[1]"}"#),
    ("7", r#"{"malformed":"7"}"#),
    ("look it up", r#"{"malformed":"look it up"}"#),
];

/// Returns the arguments of the calls in a request, in order.
fn sent(asked: &Asked) -> Vec<String> {
    let calls = asked.messages().iter().flat_map(|message| match asked.api {
        Api::Chat => message["tool_calls"].as_array().into_iter().flatten().map(|call| &call["function"]).collect(),
        Api::Responses if message["type"] == "function_call" => vec![message],
        Api::Responses | Api::Messages => Vec::new(),
    });
    calls.map(|call| call["arguments"].as_str().unwrap().to_owned()).collect()
}

/// Returns the arguments of the calls in messages of ours, in order.
fn arguments<'a>(messages: impl IntoIterator<Item = &'a Value>) -> Vec<String> {
    let parts = messages.into_iter().flat_map(|message| message["content"].as_array().into_iter().flatten());
    let calls = parts.filter(|part| part["type"] == "tool_call");
    calls.map(|call| call["arguments"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_context_shows_what_the_models_server_gets() {
    for api in ["chat", "responses"] {
        let calls = WRITTEN.iter().map(|(written, _)| Reply::call("smell", written));
        // The last question is only for the context that precedes it.
        let replies: Vec<Reply> = calls.chain(["I see.", "Yes."].map(Reply::text)).collect();
        let upstream = Upstream::replying(replies).await;
        let settings = [("OPENAI_API", api), ("CONTEXT_WINDOW", "8000")];
        let server = Server::facing(&upstream.base_url(), &settings).await;
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        let parameters = json!({ "type": "object" });
        let smell = json!({ "name": "look", "description": "Looks.", "parameters": parameters });
        client.ask("register_tools", json!({ "tools": [smell] })).await;
        assert_eq!(client.turn("How does it smell?").await["status"], "completed");

        let shown = client.ask("get_context", json!({})).await["payload"]["envelope"]["messages"].clone();
        let markdown = client.ask("get_context", json!({ "format": "markdown" })).await["payload"]["markdown"].clone();
        let entries = client.ask("get_entries", json!({})).await["payload"]["items"].clone();
        assert_eq!(client.turn("Really?").await["status"], "completed");
        upstream.assert_clean();
        let asked = sent(upstream.requests().last().unwrap());
        assert_eq!(asked, WRITTEN.map(|(_, sent)| sent), "{api}");
        let cached = shown["cached"].as_array().unwrap().iter().map(|message| &message["message"]);
        assert_eq!(arguments(cached), asked, "{api}: shown as sent, in {shown}");
        for arguments in &asked {
            assert!(markdown.as_str().unwrap().contains(arguments.as_str()), "{api}: {arguments} in {markdown}");
        }
        assert_eq!(arguments(entries.as_array().unwrap()), WRITTEN.map(|(written, _)| written), "{api}: as written");
    }
}
