//! The server's own tools inside a response, and calls that a person must allow.

use super::{Door, function, last, text_in};
use crate::support::{
    json::present,
    scripted::{Gate, Reply, Scripted},
    server::Server,
    tools::results,
};
use reseed::{
    store::memory::MemoryStore,
    tools::{Call, CallFuture, Output, Tool},
};
use reseed_protocol::{
    Part,
    tools::{ToolAnnotations, ToolOffer},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// A tool of the server that repeats its arguments, once its gate is open.
struct Own {
    name: &'static str,
    is_harmless: bool,
    gate: Gate,
}

impl Tool for Own {
    fn offer(&self) -> ToolOffer {
        let annotations = ToolAnnotations { read_only: Some(self.is_harmless), ..ToolAnnotations::default() };
        ToolOffer {
            annotations: Some(annotations),
            ..ToolOffer::new(self.name, "A tool.", json!({ "type": "object", "properties": {} }))
        }
    }

    fn call(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move {
            self.gate.passed().await;
            Output::text(format!("{} got {}", self.name, call.arguments))
        })
    }
}

/// Returns a server with the tools `peek`, which runs without asking, and `dig`, which does not.
pub(super) async fn server(model: &Scripted, gate: &Gate) -> Server {
    let tool = |name, is_harmless| Arc::new(Own { name, is_harmless, gate: gate.clone() }) as Arc<dyn Tool>;
    let tools = vec![tool("sea__peek", true), tool("sea__dig", false)];
    Server::over_with_tools(model.clone(), Arc::new(MemoryStore::new()), tools, &[]).await
}

pub(super) fn open_gate() -> Gate {
    let gate = Gate::new();
    gate.open();
    gate
}

pub(super) fn calls(of: &[(&str, &str)]) -> Reply {
    let call = |(at, (name, arguments)): (usize, &(&str, &str))| Part::ToolCall {
        call_id: format!("call_{at}").parse().unwrap(),
        name: (*name).into(),
        arguments: (*arguments).into(),
    };
    Reply::parts(of.iter().enumerate().map(call).collect())
}

pub(super) fn kinds(response: &Value) -> Vec<&str> {
    response["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect()
}

pub(super) fn of_kind<'a>(response: &'a Value, kind: &str) -> &'a Value {
    let mut items = response["output"].as_array().unwrap().iter();
    items.find(|item| item["type"] == kind).unwrap_or_else(|| panic!("no {kind} in {response}"))
}

pub(super) fn allowed(request: &Value, approve: bool) -> Value {
    json!({ "type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve })
}

pub(super) fn path_of(response: &Value) -> String {
    format!("/v1/responses/{}", response["id"].as_str().unwrap())
}

#[tokio::test]
async fn a_tool_of_the_server_runs_inside_the_response() {
    let model = Scripted::new();
    let server = server(&model, &open_gate()).await;
    let door = Door::of(&server);
    model.push(calls(&[("sea__peek", r#"{"at":1}"#)]));
    model.push(Reply::text("Blue."));
    let events = door.stream("POST", "/v1/responses", &json!({ "input": "Look.", "stream": true })).await;
    let response = &events.last().unwrap()["response"];
    assert_eq!(kinds(response), ["mcp_call", "message"]);
    let call = of_kind(response, "mcp_call");
    let shown = [&call["server_label"], &call["name"], &call["arguments"], &call["output"], &call["error"]];
    assert_eq!(json!(shown), json!(["sea", "sea__peek", r#"{"at":1}"#, r#"sea__peek got {"at":1}"#, null]));
    assert_eq!((call["status"].as_str(), text_in(response)), (Some("completed"), "Blue.".to_owned()));
    let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
    assert_eq!(done.map(|event| present(&event["item"]["type"])).collect::<Vec<_>>(), ["mcp_call", "message"]);
    assert_eq!(door.get(&path_of(response)).await["output"], *present(&response["output"]));
}

#[tokio::test]
async fn a_call_is_made_once_it_is_allowed_and_not_if_it_is_refused() {
    for (approve, output, error) in [
        (true, json!("sea__dig got {}"), Value::Null),
        (false, Value::Null, json!("the user rejected this call. Not today.")),
    ] {
        for streams in [false, true] {
            let model = Scripted::new();
            let server = server(&model, &open_gate()).await;
            let door = Door::of(&server);
            model.push(calls(&[("sea__dig", "{}")]));
            let one = door.create(json!({ "input": "Dig." })).await;
            assert_eq!((kinds(&one), one["status"].as_str()), (vec!["mcp_approval_request"], Some("completed")));
            let request = of_kind(&one, "mcp_approval_request");
            assert_eq!((&request["server_label"], &request["name"]), (&json!("sea"), &json!("sea__dig")));
            let waiting = door.get(&path_of(&one)).await;
            assert_eq!(of_kind(&waiting, "mcp_approval_request"), request, "it is shown as long as it waits");
            model.push(Reply::text("Done."));
            let mut answer = allowed(request, approve);
            answer["reason"] = json!("Not today.");
            let asked = json!({ "input": [answer], "previous_response_id": one["id"], "stream": streams });
            let two = match streams {
                true => door.stream("POST", "/v1/responses", &asked).await.pop().unwrap()["response"].clone(),
                false => door.create(asked).await,
            };
            assert_eq!(kinds(&two), ["mcp_call", "message"], "{two}");
            let call = of_kind(&two, "mcp_call");
            assert_eq!((&call["output"], text_in(&two)), (&output, "Done.".to_owned()), "{call}");
            assert_eq!(call["error"].is_null(), error.is_null(), "{call}");
            assert_eq!(results(&last(&model)).len(), 1);
            assert_eq!(door.get(&path_of(&two)).await, two);
            assert_eq!(
                kinds(&door.get(&path_of(&one)).await),
                [""; 0],
                "the call belongs to the response that made it"
            );
            let three = json!({ "input": "On.", "previous_response_id": two["id"] });
            model.push(Reply::text("Gladly."));
            assert_eq!(text_in(&door.create(three).await), "Gladly.");
        }
    }
}

#[tokio::test]
async fn all_calls_that_wait_are_asked_together_and_those_that_are_left_again() {
    let model = Scripted::new();
    let server = server(&model, &open_gate()).await;
    let door = Door::of(&server);
    model.push(calls(&[("sea__dig", r#"{"at":1}"#), ("sea__dig", r#"{"at":2}"#)]));
    let one = door.create(json!({ "input": "Dig twice." })).await;
    assert_eq!(kinds(&one), ["mcp_approval_request"; 2]);
    let answer = allowed(&one["output"][0], true);
    let two = door.create(json!({ "input": [answer], "previous_response_id": one["id"] })).await;
    assert_eq!(of_kind(&two, "mcp_approval_request"), &one["output"][1], "{two}");
    model.push(Reply::text("Done."));
    let answer = allowed(&one["output"][1], true);
    let three = door.create(json!({ "input": [answer], "previous_response_id": two["id"] })).await;
    assert_eq!(text_in(&three), "Done.");
    assert_eq!(results(&last(&model)).len(), 2, "both calls have their results");
    let late = json!({ "input": [allowed(&one["output"][1], true)], "previous_response_id": three["id"] });
    let late = door.ask("POST", "/v1/responses", &late).await;
    assert_eq!((late.status, &late.json()["error"]["param"]), (400, &json!("input")), "{late:?}");
}

#[tokio::test]
async fn a_function_beside_a_call_that_waits_is_the_clients_to_make() {
    let model = Scripted::new();
    let server = server(&model, &open_gate()).await;
    let door = Door::of(&server);
    let tools = json!([function("look")]);
    for together in [true, false] {
        model.push(calls(&[("sea__dig", "{}"), ("look", "{}")]));
        let one = door.create(json!({ "input": "Dig and look.", "tools": tools })).await;
        assert_eq!(kinds(&one), ["function_call", "mcp_approval_request"], "{one}");
        let answer = allowed(of_kind(&one, "mcp_approval_request"), true);
        let call_id = present(&of_kind(&one, "function_call")["call_id"]);
        let output = json!({ "type": "function_call_output", "call_id": call_id, "output": "calm" });
        let previous = present(&one["id"]);
        let said = if together {
            model.push(Reply::text("Both done."));
            door.create(json!({ "input": [answer, output], "previous_response_id": previous, "tools": tools })).await
        } else {
            let asked = json!({ "input": [answer], "previous_response_id": previous, "tools": tools });
            let two = door.create(asked).await;
            assert_eq!(kinds(&two), ["mcp_call"], "the function was shown before");
            model.push(Reply::text("Both done."));
            door.create(json!({ "input": [output], "previous_response_id": two["id"], "tools": tools })).await
        };
        assert_eq!(text_in(&said), "Both done.");
        let told = results(&last(&model));
        assert!(told.contains(&("calm".to_owned(), false)), "{told:?}");
        assert!(told.contains(&("sea__dig got {}".to_owned(), false)), "{told:?}");
    }
}
