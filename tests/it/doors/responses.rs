//! Open Responses: what its clients rely on.

mod approved;
mod carried;
mod conversed;
mod counted;
mod forgotten;
mod namespaces;
mod ordered;
mod referred;
mod reviewed;
mod steered;
mod streamed;

use super::door::Door;
use crate::support::{
    client::Client,
    http,
    json::present,
    scripted::{Gate, Reply, Scripted},
    server::Server,
    talk::text_of,
    tools::results,
};
use futures_util::{SinkExt as _, StreamExt as _};
use reseed::{core::model::ModelRequest, store::sqlite::SqliteStore};
use reseed_protocol::{Part, context::ToolChoice};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_tungstenite::tungstenite::Message;

fn text_in(response: &Value) -> String {
    let items = response["output"].as_array().unwrap();
    let texts = items.iter().filter(|item| item["type"] == "message").map(|item| item["content"][0]["text"].as_str());
    texts.map(|text| text.unwrap_or_default()).collect()
}

fn last(model: &Scripted) -> ModelRequest {
    model.requests().pop().unwrap()
}

fn function(name: &str) -> Value {
    json!({ "type": "function", "name": name, "description": name, "parameters": { "type": "object" } })
}

fn call(name: &str) -> Part {
    Part::ToolCall { call_id: "call_0".parse().unwrap(), name: name.into(), arguments: "{\"at\":1}".into() }
}

#[tokio::test]
async fn a_chain_goes_on_from_the_newest_response_and_branches_from_an_older_one() {
    let model = Scripted::answering(|request| Reply::text(format!("re: {}", text_of(request).lines().last().unwrap())));
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let one = door.create(json!({ "input": "one", "instructions": "Be brief.", "metadata": { "a": "b" } })).await;
    assert_eq!((&one["status"], &one["object"]), (&json!("completed"), &json!("response")));
    assert_eq!((text_in(&one), &one["instructions"]), ("re: one".to_owned(), &json!("Be brief.")));
    assert_eq!(one["metadata"], json!({ "a": "b" }));
    let required = [
        "id",
        "object",
        "created_at",
        "completed_at",
        "status",
        "incomplete_details",
        "model",
        "previous_response_id",
        "instructions",
        "output",
        "error",
        "tools",
        "tool_choice",
        "truncation",
        "parallel_tool_calls",
        "text",
        "top_p",
        "presence_penalty",
        "frequency_penalty",
        "temperature",
        "top_logprobs",
        "reasoning",
        "usage",
        "max_output_tokens",
        "max_tool_calls",
        "store",
        "background",
        "service_tier",
        "metadata",
        "safety_identifier",
        "prompt_cache_key",
    ];
    required.iter().for_each(|key| assert!(one.get(key).is_some(), "{key}: {one}"));
    assert_eq!(last(&model).envelope.system.compiled, "Be brief.");

    let two = door.create(json!({ "input": "two", "previous_response_id": one["id"] })).await;
    assert_eq!(text_of(&last(&model)), "one\nre: one\ntwo");
    let three = door.create(json!({ "input": "three", "previous_response_id": two["id"] })).await;
    assert_eq!(text_of(&last(&model)), "one\nre: one\ntwo\nre: two\nthree");
    let branch = door.create(json!({ "input": "other", "previous_response_id": one["id"] })).await;
    assert_eq!(text_of(&last(&model)), "one\nre: one\nother");
    let back = door.create(json!({ "input": "four", "previous_response_id": three["id"] })).await;
    assert_eq!(text_of(&last(&model)), "one\nre: one\ntwo\nre: two\nthree\nre: three\nfour");

    for made in [&one, &two, &three, &branch, &back] {
        let path = format!("/v1/responses/{}", made["id"].as_str().unwrap());
        assert_eq!(door.get(&path).await, *made, "retrieved as it was created");
    }
    let deleted = format!("/v1/responses/{}", three["id"].as_str().unwrap());
    assert_eq!(door.ask("DELETE", &deleted, &Value::Null).await.status, 200);
    assert_eq!(door.ask("GET", &deleted, &Value::Null).await.status, 404);
    let path = format!("/v1/responses/{}", back["id"].as_str().unwrap());
    assert_eq!(door.get(&path).await, back, "what follows it stays");
    let path = format!("/v1/responses/{}/input_items?order=asc", two["id"].as_str().unwrap());
    let items = door.get(&path).await;
    let roles: Vec<&Value> = items["data"].as_array().unwrap().iter().map(|item| &item["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
}

#[tokio::test]
async fn a_stream_is_resumed_after_any_event_also_by_another_server_process() {
    let folder = tempfile::tempdir().unwrap();
    let store = || Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let model = Scripted::new();
    let server = Server::over(model.clone(), store(), &[]).await;
    let thought = Part::Reasoning { text: "The tide… 🌊 turns.".to_owned(), payload: None };
    let said = Part::Text { text: "At five. ⛵ Go early, before the others.".to_owned() };
    model.push(Reply::parts(vec![thought, said, call("look")]).in_pieces(9));
    let body = json!({ "input": "When?", "stream": true, "tools": [function("look")] });
    let events = Door::of(&server).stream("POST", "/v1/responses", &body).await;
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let mut expected = kinds.clone();
    expected.dedup();
    assert_eq!(
        expected,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.reasoning.delta",
            "response.reasoning.done",
            "response.content_part.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    assert!(kinds.len() > expected.len(), "texts come in pieces");
    let number = |event: &Value| event["sequence_number"].as_u64().unwrap();
    assert!(events.is_sorted_by(|one, next| number(one) < number(next)));
    let id = events[0]["response"]["id"].as_str().unwrap().to_owned();
    server.service.stop().await;
    drop(server);

    let server = Server::over(model.clone(), store(), &[]).await;
    let door = Door::of(&server);
    let folded = |events: &[Value]| {
        let texts: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
        let others: Vec<Value> = events.iter().filter(|event| event["delta"].is_null()).cloned().collect();
        (texts, others)
    };
    for place in 0..events.len() {
        let path = format!("/v1/responses/{id}?stream=true&starting_after={}", number(&events[place]));
        let rest = door.stream("GET", &path, &Value::Null).await;
        let all = [&events[..=place], &rest].concat();
        assert_eq!(folded(&all), folded(&events), "after {place}");
    }
}

#[tokio::test]
async fn a_function_call_ends_a_response_and_its_output_comes_with_the_next() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    model.push(Reply::parts(vec![call("look"), call("look")]));
    let tools = json!([function("look")]);
    let choice = json!({ "type": "function", "name": "look" });
    let asked = json!({ "input": "Look twice.", "tools": tools, "tool_choice": choice, "parallel_tool_calls": true });
    let one = door.create(asked).await;
    let ids: Vec<&Value> = one["output"].as_array().unwrap().iter().map(|item| present(&item["call_id"])).collect();
    assert_eq!((one["status"].as_str(), ids.len()), (Some("completed"), 2));
    assert_ne!(ids[0], ids[1]);
    let answer = last(&model).envelope.options.answer.clone().unwrap();
    assert_eq!(answer.tool_choice, Some(ToolChoice::Tool { name: "look".to_owned() }));

    let output = |id: &Value, text: &str| json!({ "type": "function_call_output", "call_id": id, "output": text });
    let wrong = json!({ "previous_response_id": one["id"], "tools": tools, "input": [output(&json!("nobody"), "x")] });
    let refused = door.ask("POST", "/v1/responses", &wrong).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("unknown_call")));

    model.push(Reply::text("Calm and blue."));
    let input = json!([output(ids[0], "calm"), output(ids[1], "blue"), { "role": "user", "content": "Well?" }]);
    let two = json!({ "previous_response_id": one["id"], "tools": tools, "input": input });
    let two = door.create(two).await;
    assert_eq!(text_in(&two), "Calm and blue.");
    assert_eq!(results(&last(&model)), [("calm".to_owned(), false), ("blue".to_owned(), false)]);
    let path = format!("/v1/responses/{}", one["id"].as_str().unwrap());
    assert_eq!(door.get(&path).await, one, "the outputs belong to the next response");
    let branch = json!({ "previous_response_id": one["id"], "tools": tools, "input": [output(ids[0], "stormy")] });
    model.push(Reply::text("Stormy."));
    door.create(branch).await;
    let told = results(&last(&model));
    assert_eq!(told[0], ("stormy".to_owned(), false));
    assert!(told[1].1, "a call without an output has a placeholder");
}

#[tokio::test]
async fn a_conversation_is_a_session_whichever_door_opened_it() {
    let model = Scripted::answering(|request| Reply::text(format!("re: {}", text_of(request).lines().last().unwrap())));
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let items = json!([{ "type": "message", "role": "user", "content": "I live in Rome." }]);
    let made = door.ask("POST", "/v1/conversations", &json!({ "metadata": { "a": "b" }, "items": items })).await.json();
    let id = made["id"].as_str().unwrap();
    assert_eq!((&made["object"], &made["metadata"]), (&json!("conversation"), &json!({ "a": "b" })));
    let said = door.create(json!({ "conversation": id, "input": "Where?" })).await;
    assert_eq!(said["conversation"]["id"], id);
    assert_eq!(text_of(&last(&model)), "I live in Rome.\nWhere?");

    let mut page = Client::v2(&server.ws()).await;
    let opened = page.ask("open_session", json!({ "sessionId": &id["conv_".len()..] })).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    let accepted = page.ask("user_input", json!({ "input": "From the page." })).await;
    assert_eq!(accepted["type"], "accepted");
    page.event("turn_finished").await;
    let listed = door.get(&format!("/v1/conversations/{id}/items?order=asc")).await;
    let said: Vec<&Value> = listed["data"].as_array().unwrap().iter().map(|item| &item["content"][0]["text"]).collect();
    assert_eq!(said, ["I live in Rome.", "Where?", "re: Where?", "From the page.", "re: From the page."]);
    let context = door.get(&format!("/v1/conversations/{id}/context")).await;
    assert!(context["tokenCount"].as_u64().unwrap() > 0, "{context}");

    let updated = door.ask("POST", &format!("/v1/conversations/{id}"), &json!({ "metadata": { "c": "d" } })).await;
    assert_eq!(updated.json()["metadata"], json!({ "c": "d" }));
    assert_eq!(door.ask("DELETE", &format!("/v1/conversations/{id}"), &Value::Null).await.json()["deleted"], true);
    assert_eq!(door.ask("GET", &format!("/v1/conversations/{id}"), &Value::Null).await.status, 404);
}

#[tokio::test]
async fn a_response_in_the_background_is_cancelled_and_deleted() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    model.push(Reply::text("late").held_by(&gate));
    let made = door.create(json!({ "input": "one", "background": true })).await;
    assert_eq!((&made["status"], &made["output"]), (&json!("in_progress"), &json!([])));
    model.wait_for_requests(1).await;
    let path = format!("/v1/responses/{}", made["id"].as_str().unwrap());
    assert_eq!(door.get(&path).await["status"], "in_progress");
    let cancelled = door.ask("POST", &format!("{path}/cancel"), &Value::Null).await.json();
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
    assert_eq!(door.get(&path).await["status"], "cancelled");
    let deleted = door.ask("DELETE", &path, &Value::Null).await;
    assert_eq!((deleted.status, &deleted.json()["deleted"]), (200, &json!(true)));
    assert_eq!(door.ask("GET", &path, &Value::Null).await.status, 404);
    gate.open();
}

#[tokio::test]
async fn a_turn_keeps_its_tools_when_its_client_has_left() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let server = Server::start(model.clone(), &[("HOST_AWAY_SECS", "0")]).await;
    let door = Door::of(&server);
    model.push(Reply::parts(vec![call("look")]).held_by(&gate));
    let asked = json!({ "input": "Look.", "background": true, "tools": [function("look")] });
    let made = door.create(asked).await;
    model.wait_for_requests(1).await;
    let again = json!({ "input": "x", "previous_response_id": made["id"], "tools": [function("other")] });
    let busy = door.ask("POST", "/v1/responses", &again).await;
    assert_eq!((busy.status, &busy.json()["error"]["code"]), (409, &json!("turn_running")));
    gate.open();
    let path = format!("/v1/responses/{}?stream=true", made["id"].as_str().unwrap());
    let events = door.stream("GET", &path, &Value::Null).await;
    let output = &events.last().unwrap()["response"]["output"];
    assert_eq!(output[0]["type"], "function_call", "{output}");
}

#[tokio::test]
async fn options_images_and_schemas_reach_the_model() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    model.push(Reply::text("{}"));
    let format = json!({ "type": "json_schema", "name": "sea", "schema": { "type": "object" }, "strict": true });
    let image = json!({ "type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low" });
    let content = json!([{ "type": "input_text", "text": "What is it?" }, image]);
    let made = door
        .create(json!({
            "input": [{ "role": "developer", "content": "Be exact." }, { "role": "user", "content": content }],
            "text": { "format": format }, "temperature": 0.5, "top_p": 0.25, "max_output_tokens": 99,
            "reasoning": { "effort": "low" },
        }))
        .await;
    assert_eq!((&made["temperature"], &made["top_p"]), (&json!(0.5), &json!(0.25)));
    assert_eq!(made["text"]["format"], format);
    let request = last(&model);
    let options = &request.envelope.options;
    assert_eq!((options.temperature, options.top_p, options.max_output_tokens), (Some(0.5), Some(0.25), Some(99)));
    assert_eq!(options.reasoning_effort.as_deref(), Some("low"));
    assert_eq!(request.envelope.system.compiled, "Be exact.");
    let parts: Vec<Part> = request.messages().flat_map(|message| message.message.content.clone()).collect();
    assert!(matches!(&parts[1], Part::Image { detail: Some(detail), .. } if detail == "low"), "{parts:?}");
}

#[tokio::test]
async fn a_compaction_is_carried_to_a_new_chain_and_a_foreign_one_refused() {
    let model = Scripted::answering(|request| Reply::text(format!("re: {}", text_of(request).lines().last().unwrap())));
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let input = json!([{ "role": "user", "content": "I am Bob." }, { "role": "assistant", "content": "Hello Bob." }]);
    let made = door.ask("POST", "/v1/responses/compact", &json!({ "model": "scripted", "input": input })).await;
    assert_eq!(made.status, 200, "{made:?}");
    let made = made.json();
    assert_eq!(made["object"], "response.compaction");
    let mut carried = made["output"].as_array().unwrap().clone();
    assert_eq!((carried.len(), &carried[0]["type"]), (1, &json!("compaction")));
    carried.push(json!({ "role": "user", "content": "Who am I?" }));
    door.create(json!({ "input": carried })).await;
    assert!(text_of(&last(&model)).contains("I am Bob."));
    let mut triggered = input.as_array().unwrap().clone();
    triggered.push(json!({ "type": "compaction_trigger" }));
    let asked = json!({ "input": triggered, "tools": [{ "type": "web_search" }], "stream": true });
    let events = door.stream("POST", "/v1/responses", &asked).await;
    let output = &events.last().unwrap()["response"]["output"];
    assert_eq!((output.as_array().unwrap().len(), &output[0]["type"]), (1, &json!("compaction")), "{output}");
    carried[0]["encrypted_content"] = json!("1.eyJzdW1tYXJ5IjoiIn0.AAAA");
    let refused = door.ask("POST", "/v1/responses", &json!({ "input": carried })).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("invalid_compaction")));
    let without = door.ask("POST", "/v1/responses/compact", &json!({ "input": input })).await;
    assert_eq!((without.status, &without.json()["error"]["param"]), (400, &json!("model")));
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_in_openais_form() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let table = [
        (json!({ "input": 7 }), 400, "input"),
        (json!({}), 400, "input"),
        (json!({ "input": [{ "type": "surprise" }] }), 400, "input[0].type"),
        (json!({ "input": "x", "temperature": 3 }), 400, "temperature"),
        (json!({ "input": "x", "temperature": "warm" }), 400, "temperature"),
        (json!({ "input": "x", "tool_choice": "sometimes" }), 400, "tool_choice"),
        (json!({ "input": "x", "text": { "format": { "type": "xml" } } }), 400, "text.format.type"),
        (json!({ "input": "x", "previous_response_id": "resp_none_none" }), 400, "previous_response_id"),
        (json!({ "input": "x", "conversation": "elsewhere" }), 400, "conversation"),
        (
            json!({ "input": "x", "conversation": "conv_a", "previous_response_id": "resp_a_b" }),
            400,
            "previous_response_id",
        ),
        (json!({ "input": "x", "context_management": [{ "type": "magic" }] }), 400, "context_management[0].type"),
        (json!({ "input": "x", "metadata": { "a": 1 } }), 400, "metadata"),
    ];
    for (body, status, param) in table {
        let answer = door.ask("POST", "/v1/responses", &body).await;
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, error["param"].as_str()), (status, Some(param)), "{body}: {error}");
        assert!(error["message"].is_string() && error["type"] == "invalid_request_error", "{error}");
    }
    let broken = http::send(&door.address, "POST", "/v1/responses", &[("Content-Type", "application/json")], "{").await;
    assert_eq!(broken.status, 400, "{broken:?}");
    for path in ["/v1/responses/resp_a_b", "/v1/responses/nothing", "/v1/conversations/conv_a"] {
        assert_eq!(door.ask("GET", path, &Value::Null).await.status, 404, "{path}");
    }
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn users_are_apart() {
    let model = Scripted::answering(|_| Reply::text("secret"));
    let tokens = "ann:token-of-ann-16-chars,bob:token-of-bob-16-chars";
    let server = Server::start(model.clone(), &[("AUTH_TOKENS", tokens)]).await;
    let ann = Door { address: server.address(), token: Some("token-of-ann-16-chars") };
    let bob = Door { address: server.address(), token: Some("token-of-bob-16-chars") };
    let nobody = Door { address: server.address(), token: None };
    let made = ann.create(json!({ "input": "one" })).await;
    let id = made["id"].as_str().unwrap();
    let conversation = format!("conv_{}", id.split('_').nth(1).unwrap());
    let paths = [
        ("GET", format!("/v1/responses/{id}")),
        ("GET", format!("/v1/responses/{id}?stream=true")),
        ("GET", format!("/v1/responses/{id}/input_items")),
        ("POST", format!("/v1/responses/{id}/cancel")),
        ("DELETE", format!("/v1/responses/{id}")),
        ("GET", format!("/v1/conversations/{conversation}")),
        ("GET", format!("/v1/conversations/{conversation}/items")),
        ("GET", format!("/v1/conversations/{conversation}/context")),
        ("DELETE", format!("/v1/conversations/{conversation}")),
    ];
    for (method, path) in &paths {
        assert_eq!(bob.ask(method, path, &Value::Null).await.status, 404, "{method} {path}");
        assert_eq!(nobody.ask(method, path, &Value::Null).await.status, 401, "{method} {path}");
    }
    let stolen = bob.ask("POST", "/v1/responses", &json!({ "input": "x", "previous_response_id": id })).await;
    assert_eq!(stolen.json()["error"]["code"], "previous_response_not_found");
    let stolen = bob.ask("POST", "/v1/responses", &json!({ "input": "x", "conversation": conversation })).await;
    assert_eq!(stolen.status, 404);
    assert_eq!(ann.get(&format!("/v1/responses/{id}")).await, made);
}

#[tokio::test]
async fn on_a_socket_responses_follow_one_another_and_unstored_chains_stay_on_it() {
    let model = Scripted::answering(|request| Reply::text(format!("re: {}", text_of(request).lines().last().unwrap())));
    let server = Server::start(model.clone(), &[]).await;
    let url = format!("ws://{}/v1/responses", server.address());
    let (mut socket, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
    let (mut other, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
    type Socket = tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;
    async fn ask(socket: &mut Socket, frame: Value) -> Value {
        socket.send(Message::Text(frame.to_string().into())).await.unwrap();
        loop {
            let Message::Text(text) = socket.next().await.unwrap().unwrap() else { continue };
            let event: Value = serde_json::from_str(&text).unwrap();
            if ["response.completed", "response.failed", "response.incomplete", "error"]
                .contains(&event["type"].as_str().unwrap())
            {
                return event;
            }
        }
    }
    let create = |input: &str, previous: &Value| json!({ "type": "response.create", "input": input, "store": false, "previous_response_id": previous });
    let one = ask(&mut socket, create("one", &Value::Null)).await;
    assert_eq!(one["type"], "response.completed", "{one}");
    let id = one["response"]["id"].clone();
    let elsewhere = ask(&mut other, create("two", &id)).await;
    assert_eq!(elsewhere["error"]["code"], "previous_response_not_found", "{elsewhere}");
    let two = ask(&mut socket, create("two", &id)).await;
    assert_eq!(text_in(&two["response"]), "re: two");
    assert_eq!(text_of(&last(&model)), "one\nre: one\ntwo");
    let failed = json!({
        "type": "response.create", "store": false, "previous_response_id": two["response"]["id"],
        "input": [{ "type": "function_call_output", "call_id": "nobody", "output": "x" }],
    });
    assert_eq!(ask(&mut socket, failed).await["type"], "error");
    let evicted = ask(&mut socket, create("three", &two["response"]["id"])).await;
    assert_eq!(evicted["error"]["code"], "previous_response_not_found", "a failed continuation ends the chain");
    for wrong in [json!({ "type": "response.create", "background": true, "input": "x" }), json!({ "type": "what" })] {
        assert_eq!(ask(&mut socket, wrong).await["type"], "error");
    }
    let prepared = json!({ "type": "response.create", "input": "I am Ann.", "generate": false });
    let prepared = ask(&mut socket, prepared).await;
    assert_eq!((&prepared["type"], &prepared["response"]["output"]), (&json!("response.completed"), &json!([])));
    let goes_on = json!({
        "type": "response.create", "input": "Who?", "previous_response_id": prepared["response"]["id"],
    });
    ask(&mut other, goes_on).await;
    assert_eq!(text_of(&last(&model)), "I am Ann.\nWho?", "what is stored goes on anywhere");
}
