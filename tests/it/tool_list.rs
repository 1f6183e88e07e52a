//! `list_tools`: the tools of a session with their tokens, of the server and of the host, also those switched off.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, json::present, server::Server};
use reseed::{
    store::memory::MemoryStore,
    tools::{Call, CallFuture, Output, Tool},
};
use reseed_protocol::tools::{ToolAnnotations, ToolOffer};
use serde_json::{Value, json};
use std::sync::Arc;

/// A tool with nothing but a name.
struct Named(&'static str);

impl Tool for Named {
    fn offer(&self) -> ToolOffer {
        let annotations = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
        let parameters = json!({ "type": "object" });
        ToolOffer { annotations: Some(annotations), ..ToolOffer::new(self.0, "Of the server.", parameters) }
    }

    fn call(&self, _: Call) -> CallFuture<'_> {
        Box::pin(async { Output::text("done") })
    }
}

fn offer(name: &str) -> Value {
    json!({ "name": name, "description": "Of the host.", "parameters": { "type": "object" } })
}

/// Returns the tools as `NAME PLACE on|off`, and the tokens.
async fn listed(client: &mut Client) -> (Vec<String>, u64) {
    let reply = client.ask("list_tools", json!({})).await;
    assert_eq!(reply["type"], "tools", "{reply}");
    let items = reply["payload"]["items"].as_array().unwrap();
    let on = items.iter().filter(|tool| tool["off"] != true);
    let sum: u64 = on.map(|tool| tool["tokens"].as_u64().unwrap()).sum();
    let tokens = reply["payload"]["tokens"].as_u64().unwrap();
    assert_eq!(tokens, sum, "{reply}");
    let rows = items.iter().map(|tool| {
        assert!(tool["tokens"].as_u64().unwrap() > 0, "{tool}");
        let place = tool["place"].as_str().unwrap_or("client");
        format!("{} {place} {}", tool["name"].as_str().unwrap(), if tool["off"] == true { "off" } else { "on" })
    });
    (rows.collect(), tokens)
}

#[tokio::test]
async fn tools_are_listed_with_their_tokens_and_switched_off_and_on() {
    let model = Scripted::new();
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(Named("clock")), Arc::new(Named("files__read"))];
    let server = Server::over_with_tools(model.clone(), Arc::new(MemoryStore::new()), tools, &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let of_server = ["clock server on", "files__read server on"];
    assert_eq!(listed(&mut client).await.0, of_server);
    // A tool of the host's replaces one of the server's.
    assert_eq!(client.ask("register_tools", json!({ "tools": [offer("look"), offer("clock")] })).await["type"], "ok");
    let (all, tokens) = listed(&mut client).await;
    assert_eq!(all, ["files__read server on", "look client on", "clock client on"]);
    let reply = client.ask("list_tools", json!({})).await;
    assert_eq!(present(&reply["payload"]["items"][0]["annotations"]), &json!({ "readOnly": true }));
    assert_eq!(client.ask("set_tools", json!({ "off": ["files__read", "look"] })).await["type"], "ok");
    let (rows, fewer) = listed(&mut client).await;
    assert_eq!(rows, ["files__read server off", "look client off", "clock client on"]);
    assert!(fewer < tokens, "{fewer} of {tokens}");
    model.push(Reply::text("Yes."));
    assert_eq!(client.ask("user_input", json!({ "input": "Are you there?" })).await["type"], "accepted");
    client.event("turn_finished").await;
    let sent = model.requests().pop().unwrap().envelope.tools;
    assert_eq!(sent.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["clock"], "what is off is not sent");
    assert_eq!(client.ask("set_tools", json!({ "off": [] })).await["type"], "ok");
    assert_eq!(listed(&mut client).await, (all, tokens));
}

#[tokio::test]
async fn a_server_without_tools_lists_none() {
    let server = Server::start(Scripted::new(), &[("TOOLS", "off")]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    assert_eq!(client.ask("register_tools", json!({ "tools": [offer("look")] })).await["type"], "ok");
    assert_eq!(listed(&mut client).await, (Vec::new(), 0));
}
