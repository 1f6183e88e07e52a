//! Tools that come in namespaces or in the input, and tools that take free text, as Codex offers them.

use super::{Door, function, last};
use crate::doors::door::Lane;
use crate::support::{
    json::present,
    scripted::{Reply, Scripted},
    server::Server,
    talk::summary,
    tools::results,
};
use reseed::{
    core::model::{ModelRequest, Purpose},
    store::sqlite::SqliteStore,
};
use reseed_protocol::{Part, context::ToolChoice};
use serde_json::{Value, json};
use std::sync::Arc;

fn namespace(name: &str, tools: &[Value]) -> Value {
    json!({ "type": "namespace", "name": name, "description": format!("All of {name}."), "tools": tools })
}

fn custom(name: &str) -> Value {
    json!({ "type": "custom", "name": name, "description": "Runs code." })
}

/// Returns the tools of a chain as Codex sends them first, and only once over a WebSocket.
fn additional() -> Value {
    let tools = [
        namespace("functions", &[custom("exec"), function("wait")]),
        namespace("mcp__every", &[function("echo"), function(&"x".repeat(60))]),
    ];
    json!({ "type": "additional_tools", "role": "developer", "tools": tools })
}

/// Calls each of these tools, whose argument is a text.
fn calling(calls: &[(&str, &str)]) -> Reply {
    let call = |(at, (name, text)): (usize, &(&str, &str))| Part::ToolCall {
        call_id: format!("call_{at}").parse().unwrap(),
        name: (*name).to_owned(),
        arguments: json!({ "input": text }).to_string(),
    };
    Reply::parts(calls.iter().enumerate().map(call).collect())
}

fn offered(request: &ModelRequest) -> Vec<String> {
    request.envelope.tools.iter().map(|tool| tool.name.clone()).collect()
}

fn called(request: &ModelRequest) -> Vec<(String, String)> {
    let parts = request.messages().flat_map(|message| message.message.content.clone());
    let call = |part| match part {
        Part::ToolCall { name, arguments, .. } => Some((name, arguments)),
        _ => None,
    };
    parts.filter_map(call).collect()
}

/// Returns the type, the namespace and the name of each call in a list of items.
fn calls(items: &Value) -> Vec<(&str, Option<&str>, &str)> {
    let calls = items.as_array().unwrap().iter().filter(|item| item["name"].is_string());
    calls
        .map(|item| (item["type"].as_str().unwrap(), item["namespace"].as_str(), item["name"].as_str().unwrap()))
        .collect()
}

fn outputs(response: &Value) -> Vec<Value> {
    let items = response["output"].as_array().unwrap().iter();
    items
        .filter(|item| item["call_id"].is_string())
        .map(|item| {
            let kind = format!("{}_output", item["type"].as_str().unwrap());
            json!({ "type": kind, "call_id": item["call_id"], "output": [{ "type": "input_text", "text": "done" }] })
        })
        .collect()
}

const CODE: &str = "text(\"⛵\")\n{}";

#[tokio::test]
async fn a_namespace_and_free_text_reach_the_model_and_its_calls_the_client() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let long = "x".repeat(60);
    let tools = json!([function("look"), custom("run"), namespace("mcp__every", &[function("echo"), function(&long)])]);
    let body = json!({
        "input": "Go.", "tools": [tools[0], tools[1], tools[2], { "type": "web_search" }],
        "tool_choice": { "type": "function", "name": "echo", "namespace": "mcp__every" },
    });
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    // The name that the model gets for a name that is too long.
    model.push(Reply::text("Hello."));
    door.create(body.clone()).await;
    let request = last(&model);
    let names = offered(&request);
    assert_eq!(names[..3], ["look", "run", "mcp__every__echo"]);
    assert!(names[3].len() == 64 && names[3].starts_with("mcp__every__xxx"), "{names:?}");
    let described: Vec<&str> = request.envelope.tools.iter().map(|tool| tool.description.as_str()).collect();
    assert_eq!(described[2], "The tools of `mcp__every`: All of mcp__every.\n\necho");
    assert_eq!(described[1], "Runs code.\n\nIts argument `input` is the raw text.");
    let answer = request.envelope.options.answer.unwrap();
    assert_eq!(answer.tool_choice, Some(ToolChoice::Tool { name: "mcp__every__echo".to_owned() }));

    let made = [("look", "a"), ("run", CODE), ("mcp__every__echo", "b"), (names[3].as_str(), "c")];
    model.push(calling(&made).in_pieces(3));
    let events = door.stream("POST", "/v1/responses", &streamed).await;
    let response = &events.last().unwrap()["response"];
    let expected = [
        ("function_call", None, "look"),
        ("custom_tool_call", None, "run"),
        ("function_call", Some("mcp__every"), "echo"),
        ("function_call", Some("mcp__every"), long.as_str()),
    ];
    assert_eq!(calls(&response["output"]), expected);
    let run = &response["output"][1];
    assert_eq!((&run["input"], run.get("arguments")), (&json!(CODE), None));
    assert!(run["id"].as_str().unwrap().starts_with("ctc_"), "{run}");
    let of_run: Vec<&Value> = events.iter().filter(|event| event["item_id"] == *present(&run["id"])).collect();
    assert_eq!(of_run[0]["type"], "response.custom_tool_call_input.delta");
    assert_eq!(
        (&of_run[1]["type"], &of_run[1]["input"]),
        (&json!("response.custom_tool_call_input.done"), &json!(CODE))
    );
    assert_eq!(response["tools"].as_array().unwrap()[1..], [tools[1].clone(), tools[2].clone()]);
    let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    assert_eq!(door.get(&path).await, *response);

    // The results by the chain, and the whole list without one.
    let mut input = outputs(response);
    model.push(Reply::text("So."));
    let next = json!({ "input": input, "tools": tools, "previous_response_id": response["id"] });
    let next = door.create(next).await;
    assert_eq!(results(&last(&model)), vec![("done".to_owned(), false); 4]);
    let path = format!("/v1/responses/{}/input_items?order=asc", next["id"].as_str().unwrap());
    let items = door.get(&path).await;
    assert_eq!(calls(&items["data"]), expected);
    assert!(items["data"].as_array().unwrap().contains(run), "an item is the same wherever it is shown");
    let rest = door.get(&format!("{path}&after={}", run["id"].as_str().unwrap())).await;
    assert_eq!(calls(&rest["data"]), expected[2..]);

    input.splice(0..0, response["output"].as_array().unwrap().clone());
    input.insert(0, json!({ "role": "user", "content": "Go." }));
    input.push(json!({ "role": "user", "content": "And?" }));
    for list in [input.clone(), referred(&input)] {
        model.push(Reply::text("So."));
        door.create(json!({ "input": list, "tools": tools, "store": false })).await;
        let sent: Vec<(String, String)> =
            made.iter().map(|(name, text)| ((*name).to_owned(), json!({ "input": text }).to_string())).collect();
        assert_eq!(called(&last(&model)), sent);
    }
}

/// Returns a list with references to its calls.
fn referred(list: &[Value]) -> Vec<Value> {
    let item = |item: &Value| match item["name"].is_string() {
        true => json!({ "type": "item_reference", "id": item["id"] }),
        false => item.clone(),
    };
    list.iter().map(item).collect()
}

/// Goes on with a chain on a socket, whose first frame has its tools and asks nothing. Returns its last response.
async fn chain_on_a_socket(server: &Server, model: &Scripted, stored: bool) -> Value {
    let mut lane = Lane::of(server).await;
    let frame = |input: &Value, previous: &Value| json!({ "type": "response.create", "store": stored, "input": input, "previous_response_id": previous });
    let mut first = frame(&json!([additional(), { "role": "user", "content": "Go." }]), &Value::Null);
    first["generate"] = false.into();
    let mut previous = lane.end_of(&first).await["response"]["id"].clone();
    for round in 0..3 {
        model.push(calling(&[("exec", CODE), ("wait", "x")]));
        let asked = frame(&json!([{ "role": "user", "content": format!("Round {round}.") }]), &previous);
        let response = lane.end_of(&asked).await["response"].clone();
        assert_eq!(response["tools"], json!([]), "the request has none of its own");
        let expected = [("custom_tool_call", Some("functions"), "exec"), ("function_call", Some("functions"), "wait")];
        assert_eq!(calls(&response["output"]), expected);
        let ended = lane.end_of(&frame(&json!(outputs(&response)), &response["id"])).await;
        previous = ended["response"]["id"].clone();
    }
    previous
}

#[tokio::test]
async fn tools_in_the_input_hold_for_the_rest_of_the_chain() {
    let model = Scripted::answering(|request| match request.purpose {
        Purpose::Turn => Reply::text("ok"),
        Purpose::Summary => Reply::text(summary(&["harbour"])),
    });
    let folder = tempfile::tempdir().unwrap();
    let store = || Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let server = Server::over(model.clone(), store(), &[]).await;
    chain_on_a_socket(&server, &model, false).await;
    let mut previous = chain_on_a_socket(&server, &model, true).await;
    let expected = offered(&last(&model));
    assert_eq!(expected[..3], ["exec", "wait", "mcp__every__echo"]);
    assert!(model.requests().iter().all(|request| offered(request) == expected));
    server.service.stop().await;
    drop(server);

    // After a restart, and after a compaction.
    let server = Server::over(model.clone(), store(), &[]).await;
    let door = Door::of(&server);
    for compacts in [false, true] {
        if compacts {
            let asked = json!({ "model": "scripted", "previous_response_id": previous });
            assert_eq!(door.ask("POST", "/v1/responses/compact", &asked).await.status, 200);
        }
        previous = door.create(json!({ "input": "On.", "previous_response_id": previous })).await["id"].clone();
        assert_eq!(offered(&last(&model)), expected);
    }
    // In a copy that is not stored, and with more tools.
    door.create(json!({ "input": "On.", "previous_response_id": previous, "store": false })).await;
    assert_eq!(offered(&last(&model)), expected);
    let more = json!({ "type": "additional_tools", "tools": [namespace("mcp__every", &[function("other")])] });
    let input = json!([more, { "role": "user", "content": "More." }]);
    let made = json!({ "input": input, "previous_response_id": previous, "tools": [function("look")] });
    let made = door.create(made).await;
    let more = [&expected[..], &["mcp__every__other".to_owned()]].concat();
    assert_eq!(offered(&last(&model)), [&more[..], &["look".to_owned()]].concat());
    door.create(json!({ "input": "On.", "previous_response_id": made["id"] })).await;
    assert_eq!(offered(&last(&model)), more);
    door.create(json!({ "input": "Other.", "previous_response_id": previous })).await;
    assert_eq!(offered(&last(&model)), expected, "a branch has what was in force before it");
}

#[tokio::test]
async fn a_search_finds_tools_that_hold_from_then_on() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let tool = json!({ "type": "tool_search", "execution": "client", "parameters": { "type": "object" } });
    let tools = json!([tool, { "type": "tool_search", "name": "hosted" }]);
    let (mut list, mut previous) = (vec![json!({ "role": "user", "content": "Go." })], Value::Null);
    let mut input = list.clone();
    for (found, now) in [("sum", vec!["mcp__every__sum"]), ("echo", vec!["mcp__every__sum", "mcp__every__echo"])] {
        model.push(calling(&[("tool_search", found)]));
        let asked = json!({ "input": input, "tools": tools, "previous_response_id": previous, "stream": true });
        let events = door.stream("POST", "/v1/responses", &asked).await;
        let response = &events.last().unwrap()["response"];
        assert_eq!(response["tools"], json!([tool_as_shown(&tool)]));
        let call = &response["output"][0];
        assert_eq!((&call["type"], &call["execution"]), (&json!("tool_search_call"), &json!("client")));
        assert_eq!(call["arguments"], json!({ "input": found }));
        assert!(events.iter().all(|event| event["delta"].is_null()), "its arguments are no text");
        let of_every = namespace("mcp__every", &[function(found)]);
        let output = json!({ "type": "tool_search_output", "call_id": call["call_id"], "tools": [of_every] });
        list.extend([call.clone(), output.clone()]);
        input = vec![output, json!({ "role": "user", "content": "On." })];
        list.push(input[1].clone());
        model.push(Reply::text("ok"));
        let asked = json!({ "input": input, "tools": tools, "previous_response_id": response["id"] });
        previous = door.create(asked).await["id"].clone();
        let told = format!("These tools can be called now: mcp__every__{found}");
        assert_eq!(results(&last(&model)).pop(), Some((told, false)));
        assert_eq!(offered(&last(&model)), [now, vec!["tool_search"]].concat());
        input = vec![json!({ "role": "user", "content": "More." })];
        list.push(json!({ "role": "assistant", "content": "ok" }));
        list.push(input[0].clone());
    }
    model.push(Reply::text("ok"));
    door.create(json!({ "input": list, "tools": tools })).await;
    assert_eq!(offered(&last(&model)), ["mcp__every__sum", "mcp__every__echo", "tool_search"]);
    let sent = ["sum", "echo"].map(|text| ("tool_search".to_owned(), json!({ "input": text }).to_string()));
    assert_eq!(called(&last(&model)), sent);
}

fn tool_as_shown(tool: &Value) -> Value {
    let mut shown = tool.clone();
    shown["name"] = "".into();
    shown["description"] = Value::Null;
    shown
}

#[tokio::test]
async fn a_list_that_goes_on_in_memory_has_its_tools() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let mut list = vec![additional(), json!({ "role": "user", "content": "Go." })];
    let mut sessions = std::collections::BTreeSet::new();
    for _ in 0..3 {
        model.push(calling(&[("mcp__every__echo", "a"), ("exec", CODE)]));
        let asked = json!({ "input": list, "store": false, "prompt_cache_key": "thread-1" });
        let response = door.create(asked).await;
        sessions.insert(response["id"].as_str().unwrap().split('_').nth(1).unwrap().to_owned());
        assert_eq!(offered(&last(&model))[..3], ["exec", "wait", "mcp__every__echo"]);
        list.extend(response["output"].as_array().unwrap().clone());
        list.extend(outputs(&response));
    }
    assert_eq!(sessions.len(), 1);
    assert_eq!(called(&last(&model)).len(), 4);
}

#[tokio::test]
async fn tools_in_a_conversation_hold_and_its_items_name_them() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let made = door.ask("POST", "/v1/conversations", &json!({ "items": [additional()] })).await.json();
    let path = format!("/v1/conversations/{}", made["id"].as_str().unwrap());
    model.push(calling(&[("mcp__every__echo", "a"), ("exec", CODE)]));
    let response = door.create(json!({ "conversation": made["id"], "input": "Go." })).await;
    let expected = [("function_call", Some("mcp__every"), "echo"), ("custom_tool_call", Some("functions"), "exec")];
    assert_eq!(calls(&response["output"]), expected);
    let items = json!({ "items": outputs(&response) });
    assert_eq!(door.ask("POST", &format!("{path}/items"), &items).await.status, 200);
    let listed = door.get(&format!("{path}/items?order=asc")).await;
    assert_eq!(calls(&listed["data"]), expected);
    let item = &response["output"][1];
    assert_eq!(door.get(&format!("{path}/items/{}", item["id"].as_str().unwrap())).await, *item);
    model.push(Reply::text("So."));
    door.create(json!({ "conversation": made["id"], "input": "And?" })).await;
    assert_eq!(offered(&last(&model))[..3], ["exec", "wait", "mcp__every__echo"]);
}

#[tokio::test]
async fn tools_that_cannot_be_taken_are_refused() {
    let server = Server::start(Scripted::new(), &[]).await;
    let door = Door::of(&server);
    let noise: String = (0..90_000_u64).map(|at| char::from(b'a' + (at * at * 7_919 / 13 % 26) as u8)).collect();
    let large = json!({ "type": "function", "name": "x", "description": noise });
    let table = [
        (json!([{ "type": "additional_tools" }]), "input[0].tools"),
        (json!([{ "type": "additional_tools", "tools": [{ "name": "x" }] }]), "input[0].tools"),
        (json!([{ "type": "additional_tools", "tools": [large] }]), "input"),
        (json!([{ "type": "custom_tool_call", "call_id": "c", "name": "x" }]), "input[0].input"),
    ];
    for (input, param) in table {
        let refused = door.ask("POST", "/v1/responses", &json!({ "input": input })).await;
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(param)), "{refused:?}");
    }
    let twice = json!([function("a__b"), namespace("a", &[function("b")])]);
    let refused = door.ask("POST", "/v1/responses", &json!({ "input": "x", "tools": twice })).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("invalid_tools")));
}

/// Functions with numbers from `first` on.
fn numbered(first: usize, count: usize) -> Vec<Value> {
    (first..first + count).map(|at| function(&format!("t{at}"))).collect()
}

fn bringing(tools: &[Value]) -> Value {
    json!([{ "type": "additional_tools", "tools": tools }, { "role": "user", "content": "Go." }])
}

#[tokio::test]
async fn a_long_list_of_tools_is_answered_at_once() {
    let model = Scripted::answering(|_| Reply::text("ok"));
    let server = Server::start(model.clone(), &[("CONTEXT_WINDOW", "100000")]).await;
    let door = Door::of(&server);
    // Tools of other servers are left out, wherever they are. They have 0.8 MiB.
    let others: Vec<Value> = (0..30_000).map(|at| json!({ "type": "x", "name": at.to_string() })).collect();
    let others = [&others[..], &[function("look")]].concat();
    let made = door.create(json!({ "input": "Go.", "tools": others })).await;
    assert_eq!(made["tools"].as_array().map(Vec::len), Some(1));
    for input in [bringing(&others), bringing(&[namespace("functions", &others)])] {
        door.create(json!({ "input": input })).await;
        assert_eq!(offered(&last(&model)), ["look"]);
    }

    let many = numbered(0, 129);
    let in_a_namespace = [function("look"), namespace("a", &many[..128])];
    let output = json!([{ "type": "tool_search_output", "call_id": "c", "tools": many }]);
    let table = [
        ("responses", json!({ "input": "Go.", "tools": many }), "tools"),
        ("responses", json!({ "input": "Go.", "tools": in_a_namespace }), "tools"),
        ("responses", json!({ "input": bringing(&many) }), "input[0].tools"),
        ("responses", json!({ "input": output }), "input[0].tools"),
        ("responses/input_tokens", json!({ "input": "Go.", "tools": many }), "tools"),
        ("conversations", json!({ "items": bringing(&many) }), "items[0].tools"),
    ];
    for (path, body, param) in table {
        let refused = door.ask("POST", &format!("/v1/{path}"), &body).await;
        let error = refused.json()["error"].clone();
        let expected = (400, &json!("invalid_tools"), &json!(param));
        assert_eq!((refused.status, &error["code"], &error["param"]), expected, "{refused:?}");
    }
    door.create(json!({ "input": "Go.", "tools": numbered(0, 128) })).await;
    assert_eq!(offered(&last(&model)).len(), 128);
}

#[tokio::test]
async fn a_later_tool_of_another_type_takes_the_place_of_an_earlier_one() {
    let model = Scripted::answering(|_| Reply::text("ok"));
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let mut previous = Value::Null;
    let tools = [
        function("apply_patch"),
        custom("apply_patch"),
        namespace("functions", &[custom("apply_patch")]),
        function("apply_patch"),
    ];
    for tool in tools {
        let asked = json!({ "input": bringing(&[tool]), "previous_response_id": previous });
        previous = door.create(asked).await["id"].clone();
        assert_eq!(offered(&last(&model)), ["apply_patch"]);
    }
    model.push(calling(&[("apply_patch", CODE)]));
    let own = json!({ "input": "On.", "previous_response_id": previous, "tools": [custom("apply_patch")] });
    let response = door.create(own).await;
    assert_eq!(calls(&response["output"]), [("custom_tool_call", None, "apply_patch")]);
}

#[tokio::test]
async fn a_conversation_takes_only_tools_that_can_be_offered() {
    let model = Scripted::answering(|_| Reply::text("ok"));
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let made = door.ask("POST", "/v1/conversations", &json!({})).await.json();
    let path = format!("/v1/conversations/{}/items", made["id"].as_str().unwrap());
    let no_schema = json!({ "type": "function", "name": "x", "parameters": { "type": "string" } });
    let table = [
        (vec![function("not a name")], "items[0].tools[0].name"),
        (vec![function("a__b"), namespace("a", &[function("b")])], "items[0].tools[1].tools[0].name"),
        (numbered(0, 129), "items[0].tools"),
        (vec![no_schema], "items"),
    ];
    for (tools, param) in table {
        let item = json!({ "type": "additional_tools", "tools": tools });
        let refused = door.ask("POST", &path, &json!({ "items": [item] })).await;
        let error = refused.json()["error"].clone();
        let expected = (400, &json!("invalid_tools"), &json!(param));
        assert_eq!((refused.status, &error["code"], &error["param"]), expected, "{refused:?}");
    }
    let items = json!({ "items": [{ "type": "additional_tools", "tools": [function("look")] }] });
    assert_eq!(door.ask("POST", &path, &items).await.status, 200);
    door.create(json!({ "conversation": made["id"], "input": "Go." })).await;
    assert_eq!(offered(&last(&model)), ["look"]);
}

#[tokio::test]
async fn a_chain_with_too_many_tools_drops_the_oldest() {
    let model = Scripted::answering(|_| Reply::text("ok"));
    let server = Server::start(model.clone(), &[("CONTEXT_WINDOW", "100000")]).await;
    let door = Door::of(&server);
    let named = |range: std::ops::Range<usize>| range.map(|at| format!("t{at}")).collect::<Vec<String>>();
    let first = door.create(json!({ "input": bringing(&numbered(0, 100)) })).await;
    let asked = json!({ "input": bringing(&numbered(100, 100)), "previous_response_id": first["id"] });
    let second = door.create(asked).await;
    assert_eq!(offered(&last(&model)), named(72..200));
    let own = json!({ "input": "On.", "previous_response_id": second["id"], "tools": numbered(500, 8) });
    door.create(own).await;
    assert_eq!(offered(&last(&model)), [named(80..200), named(500..508)].concat());
    door.create(json!({ "input": "On.", "previous_response_id": second["id"] })).await;
    assert_eq!(offered(&last(&model)), named(72..200), "a request's own tools hold for it alone");
}
