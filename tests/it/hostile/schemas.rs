//! Schemas of tools whose patterns are made to be expensive.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, server::Server};
use reseed_protocol::Part;
use serde_json::{Value, json};

/// Returns a tool whose argument `text` must match all patterns.
fn tool(name: &str, patterns: &[String]) -> Value {
    let all: Vec<Value> = patterns.iter().map(|pattern| json!({ "pattern": pattern })).collect();
    let parameters = json!({ "type": "object", "properties": { "text": { "allOf": all } } });
    json!({ "name": name, "description": "d", "parameters": parameters })
}

/// Returns the replies to an offer: to `register_tools` and to `open_session`.
async fn offered(tools: &[Value]) -> [Value; 2] {
    let server = Server::start(Scripted::new(), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let registered = client.ask("register_tools", json!({ "tools": tools })).await;
    assert_eq!(registered["type"], "ok", "{registered}");
    let mut other = Client::v2(&server.ws()).await;
    let opened = other.ask("open_session", json!({ "tools": tools })).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    [registered, opened].map(|reply| reply["payload"]["uncheckedPatterns"].clone())
}

#[tokio::test]
async fn patterns_that_compile_to_gigabytes_are_not_checked_and_the_offer_is_taken() {
    let giant = |at: usize| format!("(\\p{{L}}{{1000}}){{999}}{at}");
    let tools = [tool("giant", &(0..300).map(giant).collect::<Vec<_>>()), tool("plain", &["^[a-z]+$".to_owned()])];
    for unchecked in offered(&tools).await {
        let told = unchecked.as_array().expect("patterns are told");
        assert_eq!(told.len(), 32, "the first are told");
        let first = json!({ "tool": "giant", "at": "/properties/text/allOf/0/pattern", "reason": "too_large" });
        assert_eq!(told[0], first);
    }
}

#[tokio::test]
async fn a_pattern_with_a_lookahead_is_told_and_the_tool_works() {
    let tools = [tool("mail", &["^(?!\\.).+@x$".to_owned(), "^[a-z.@]+$".to_owned()])];
    for unchecked in offered(&tools).await {
        let place = "/properties/text/allOf/0/pattern";
        assert_eq!(unchecked, json!([{ "tool": "mail", "at": place, "reason": "unsupported" }]));
    }
    let plain = [tool("plain", &["^[a-z]+$".to_owned()])];
    assert_eq!(offered(&plain).await, [Value::Null, Value::Null], "nothing is told where everything is checked");
}

/// Twelve patterns that a backtracking engine needs ages for, on twelve texts.
#[tokio::test]
async fn arguments_that_would_make_an_engine_backtrack_are_checked() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[("CONTEXT_WINDOW", "200000")]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let patterns: Vec<Value> =
        (0..12).map(|at| json!({ "pattern": format!("^(a|a|aa)*(a|aa)*x{{{}}}$", at + 1) })).collect();
    let parameters = json!({ "type": "object", "additionalProperties": { "anyOf": patterns } });
    let tools = json!([{ "name": "look", "description": "d", "parameters": parameters }]);
    assert_eq!(client.ask("register_tools", json!({ "tools": tools })).await["type"], "ok");
    let texts = |text: String| (0..12).map(|at| (format!("k{at}"), json!(text))).collect::<serde_json::Map<_, _>>();
    for (text, fits) in [("a".repeat(4_000), false), (format!("{}xx", "a".repeat(4_000)), true)] {
        let arguments = Value::from(texts(text)).to_string();
        let call = Part::ToolCall { call_id: "call_0".parse().unwrap(), name: "look".into(), arguments };
        model.push(Reply::parts(vec![call]));
        model.push(Reply::text("So it is."));
        client.ask("user_input", json!({ "input": "Look." })).await;
        if fits {
            let called = client.event("run_tool").await["payload"]["toolCallId"].clone();
            client.ask("tool_result", json!({ "toolCallId": called, "output": "sea" })).await;
        }
        let finished = client.event("turn_finished").await;
        assert_eq!(finished["payload"]["status"], "completed", "{finished}");
        let request = model.requests().pop().expect("the model was asked");
        let told = format!("{:?}", request.messages().last());
        let misfit = "The arguments of `look` do not fit its schema";
        assert_eq!(told.contains(misfit), !fits, "{}", told.chars().take(300).collect::<String>());
        assert!(told.len() < 10_000, "what does not fit is told briefly");
    }
}
