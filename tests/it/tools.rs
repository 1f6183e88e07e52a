//! Tools of the owner's client: offered, called, answered, and every way in which that fails.

use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{
    client::Client,
    json::present,
    server::Server,
    tools::{ask, finished, results},
};
use reseed::store::sqlite::SqliteStore;
use reseed_protocol::Part;
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

fn look(timeout_ms: u64) -> Value {
    let properties = json!({ "at": { "type": "string" }, "times": { "type": "integer", "minimum": 1 } });
    let parameters = json!({ "type": "object", "properties": properties, "required": ["at"] });
    json!({ "name": "look", "description": "Looks at something.", "parameters": parameters, "timeoutMs": timeout_ms })
}

/// A time limit that no test reaches.
const FAR_MS: u64 = 600_000;

/// Starts a server on this model, and a client that offers `look`.
async fn with_look(model: &Scripted, timeout_ms: u64, settings: &[(&str, &str)]) -> (Server, Client, Value) {
    let server = Server::start(model.clone(), settings).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let reply = client.ask("register_tools", json!({ "tools": [look(timeout_ms)] })).await;
    assert_eq!(reply["type"], "ok", "{reply}");
    (server, client, opened)
}

fn call(arguments: &str) -> Part {
    named("look", arguments)
}

fn named(name: &str, arguments: &str) -> Part {
    // The same id each time, as from a server that numbers from 0 in each answer.
    Part::ToolCall { call_id: "call_0".parse().unwrap(), name: name.into(), arguments: arguments.into() }
}

async fn answer(client: &mut Client, call: &Value, output: &str) -> Value {
    client.ask("tool_result", json!({ "toolCallId": call["payload"]["toolCallId"], "output": output })).await
}

#[tokio::test]
async fn a_call_goes_to_the_owner_and_its_result_to_the_model() {
    let model = Scripted::new();
    let (server, mut client, opened) = with_look(&model, FAR_MS, &[]).await;
    let mut observer = Client::v2(&server.ws()).await;
    let open = json!({ "sessionId": opened["sessionId"], "role": "observer" });
    assert_eq!(observer.ask("open_session", open).await["type"], "session_opened");
    for (is_error, outcome) in [(false, "answered"), (true, "failed")] {
        model.push(Reply::parts(vec![Part::Text { text: "Let me look.".into() }, call(r#"{"at":"sea"}"#)]));
        model.push(Reply::text("It is blue."));
        ask(&mut client, "How is the sea?").await;
        let called = client.event("tool_call").await;
        let payload = &called["payload"];
        assert_eq!((&payload["name"], &payload["arguments"]), (&json!("look"), &json!(r#"{"at":"sea"}"#)));
        assert!(payload["deadline"].is_string() && payload["turnId"].is_string(), "{payload}");
        let refused = answer(&mut observer, &called, "red").await;
        assert_eq!(refused["payload"]["code"], "read_only");
        let result = json!({ "toolCallId": payload["toolCallId"], "output": "blue", "isError": is_error });
        assert_eq!(client.ask("tool_result", result).await["type"], "ok");
        assert_eq!(client.event("call_resolved").await["payload"]["outcome"], outcome);
        assert_eq!(finished(&mut client).await["status"], "completed");
        let request = model.requests().pop().unwrap();
        assert_eq!(results(&request).pop(), Some(("blue".to_owned(), is_error)));
        assert_eq!(request.envelope.tools.len(), 1);
    }
}

#[tokio::test]
async fn calls_that_cannot_be_made_get_a_result_that_says_why() {
    let table = [
        (named("smell", "{}"), "no tool `smell`"),
        (named("smell", "{}"), "look"),
        (call("{"), "not JSON"),
        (call(""), "at"),
        (call("{}"), "at"),
        (call(r#"{"at":7}"#), "string"),
        (call(r#"{"at":"sea","times":0}"#), "minimum"),
        (call("[]"), "object"),
    ];
    for (part, expected) in table {
        let model = Scripted::new();
        let (_server, mut client, _) = with_look(&model, FAR_MS, &[]).await;
        model.push(Reply::parts(vec![part.clone()]));
        model.push(Reply::text("I see."));
        ask(&mut client, "Look!").await;
        assert_eq!(finished(&mut client).await["status"], "completed", "{part:?}");
        assert!(client.seen.iter().all(|frame| frame["type"] != "tool_call"), "{part:?}: nobody is called");
        let told = results(&model.requests()[1]);
        assert!(matches!(&told[..], [(text, true)] if text.contains(expected)), "{part:?}: {told:?}");
    }
}

#[tokio::test]
async fn a_schema_is_sent_as_model_servers_take_it_and_checked_as_it_was_offered() {
    let place = json!({ "anyOf": [
        { "properties": { "city": { "type": "str" } }, "required": ["city"] },
        { "properties": { "lat": { "type": "number" }, "lon": { "type": "number" } }, "required": ["lat", "lon"] },
    ] });
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let tools = json!([
        { "name": "bare", "description": "Takes nothing." },
        { "name": "look", "description": "Looks.", "parameters": place },
    ]);
    assert_eq!(client.ask("register_tools", json!({ "tools": tools })).await["type"], "ok");
    model.push(Reply::parts(vec![call(r#"{"lat":1}"#)]));
    model.push(Reply::parts(vec![call(r#"{"city":"Ys"}"#)]));
    model.push(Reply::text("It is gone."));
    ask(&mut client, "Look!").await;
    let called = client.event("tool_call").await;
    assert_eq!(called["payload"]["arguments"], r#"{"city":"Ys"}"#);
    answer(&mut client, &called, "nothing").await;
    assert_eq!(finished(&mut client).await["status"], "completed");
    let requests = model.requests();
    assert!(matches!(&results(&requests[1])[..], [(_, true)]), "what fits neither alternative is not called");
    let sent: Vec<&Value> = requests[0].envelope.tools.iter().map(|tool| &tool.parameters).collect();
    let number = json!({ "type": "number" });
    assert_eq!(
        sent,
        [
            &json!({ "type": "object", "properties": {} }),
            &json!({ "type": "object", "properties": { "city": { "type": "string" }, "lat": number, "lon": number } }),
        ]
    );
}

#[tokio::test]
async fn a_tool_that_does_not_answer_in_time_has_failed() {
    let model = Scripted::new();
    let (_server, mut client, _) = with_look(&model, 30, &[]).await;
    model.push(Reply::parts(vec![call(r#"{"at":"sea"}"#)]));
    model.push(Reply::text("I cannot see it."));
    ask(&mut client, "How is the sea?").await;
    let called = client.event("tool_call").await;
    assert_eq!(client.event("call_resolved").await["payload"]["outcome"], "timed_out");
    assert_eq!(finished(&mut client).await["status"], "completed");
    let told = results(&model.requests()[1]);
    assert!(matches!(&told[..], [(text, true)] if text.contains("did not answer within 30 ms")), "{told:?}");
    let late = answer(&mut client, &called, "too late").await["payload"].clone();
    assert_eq!((&late["code"], &late["details"]["outcome"]), (&json!("too_late"), &json!("timed_out")), "{late}");
    assert!(!model.requests().iter().any(|request| results(request).iter().any(|(text, _)| text == "too late")));
}

#[tokio::test]
async fn progress_moves_the_time_limit() {
    /// Long enough for a busy machine to get one command through, short enough to wait for.
    const LIMIT: Duration = Duration::from_secs(5);
    let model = Scripted::new();
    let (_server, mut client, _) = with_look(&model, LIMIT.as_millis() as u64, &[]).await;
    model.push(Reply::parts(vec![call(r#"{"at":"sea"}"#)]));
    model.push(Reply::text("It is blue."));
    ask(&mut client, "How is the sea?").await;
    let called = client.event("tool_call").await;
    let (began, mut deadline) = (Instant::now(), called["payload"]["deadline"].as_str().unwrap().to_owned());
    let first = deadline.clone();
    while began.elapsed() < LIMIT + LIMIT / 4 {
        let progress = json!({ "toolCallId": called["payload"]["toolCallId"], "message": "still looking" });
        assert_eq!(client.ask("call_progress", progress).await["type"], "ok");
        let progressed = client.event("call_progressed").await["payload"].clone();
        assert_eq!(progressed["message"], "still looking");
        let moved = progressed["deadline"].as_str().unwrap().to_owned();
        assert!(moved >= deadline, "{progressed} after {deadline}");
        deadline = moved;
    }
    assert!(deadline > first);
    assert_eq!(answer(&mut client, &called, "blue").await["type"], "ok");
    assert_eq!(finished(&mut client).await["status"], "completed");
    assert_eq!(results(&model.requests()[1]), [("blue".to_owned(), false)]);
    let late = client.ask("call_progress", json!({ "toolCallId": called["payload"]["toolCallId"] })).await;
    assert_eq!(late["payload"]["code"], "too_late");
}

#[tokio::test]
async fn a_result_may_be_repeated_but_not_invented() {
    let model = Scripted::new();
    let (_server, mut client, _) = with_look(&model, FAR_MS, &[]).await;
    model.push(Reply::parts(vec![call(r#"{"at":"sea"}"#)]));
    model.push(Reply::text("It is blue."));
    ask(&mut client, "How is the sea?").await;
    let called = client.event("tool_call").await;
    let payload = json!({ "toolCallId": called["payload"]["toolCallId"], "output": "blue" });
    let first = client.ask("tool_result", payload.clone()).await;
    finished(&mut client).await;
    let id = first["re"].as_str().unwrap().to_owned();
    client.send_as(&id, "tool_result", payload.clone()).await;
    let again = client.until(|frame| frame["re"] == id.as_str()).await;
    assert_eq!((&again["type"], &again["payload"]["duplicate"]), (&json!("ok"), &json!(true)));
    assert_eq!(client.ask("tool_result", payload).await["type"], "ok", "under another id as well");
    let invented = client.ask("tool_result", json!({ "toolCallId": "nobody", "output": "x" })).await;
    assert_eq!(
        (&invented["payload"]["code"], &invented["payload"]["details"]["field"]),
        (&json!("unknown_call"), &json!("toolCallId"))
    );
    assert_eq!(model.requests().len(), 2);
    assert_eq!(results(&model.requests()[1]).len(), 1);
}

#[tokio::test]
async fn cancelling_gives_the_open_calls_results() {
    let model = Scripted::new();
    let (_server, mut client, _) = with_look(&model, FAR_MS, &[]).await;
    model.push(Reply::parts(vec![call(r#"{"at":"sea"}"#), call(r#"{"at":"sky"}"#)]));
    model.push(Reply::text("Never mind."));
    ask(&mut client, "How are sea and sky?").await;
    let sea = client.event("tool_call").await;
    client.event("tool_call").await;
    assert_eq!(answer(&mut client, &sea, "blue").await["type"], "ok");
    assert_eq!(client.ask("cancel_turn", json!({})).await["type"], "ok");
    assert_eq!(finished(&mut client).await["status"], "cancelled");
    let outcomes: Vec<Value> =
        client.forget("call_resolved").iter().map(|frame| frame["payload"]["outcome"].clone()).collect();
    assert_eq!(outcomes, ["answered", "dropped"]);
    assert_eq!(client.turn("Go on.").await["status"], "completed");
    let told = results(&model.requests()[1]);
    assert_eq!(told[0], ("blue".to_owned(), false));
    assert!(told.len() == 2 && told[1].1, "{told:?}");
}

#[tokio::test]
async fn calls_of_one_answer_run_side_by_side() {
    let model = Scripted::new();
    let (_server, mut client, _) = with_look(&model, FAR_MS, &[]).await;
    let places = ["sea", "sky", "sand"];
    let calls = places.iter().map(|at| call(&json!({ "at": at }).to_string()));
    model.push(Reply::parts(calls.chain([named("smell", "{}")]).collect()));
    model.push(Reply::text("All blue."));
    ask(&mut client, "How is it?").await;
    let mut open = Vec::new();
    for _ in places {
        open.push(client.event("tool_call").await);
    }
    let ids: std::collections::HashSet<&str> =
        open.iter().map(|call| call["payload"]["toolCallId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 3, "the upstream gave all of them one id");
    for call in open.iter().rev() {
        assert_eq!(model.requests().len(), 1, "the model waits for all of them");
        let at: Value = serde_json::from_str(call["payload"]["arguments"].as_str().unwrap()).unwrap();
        answer(&mut client, call, at["at"].as_str().unwrap()).await;
    }
    assert_eq!(finished(&mut client).await["status"], "completed");
    let request = &model.requests()[1];
    let asked: Vec<_> = request
        .messages()
        .flat_map(|message| {
            message
                .message
                .tool_calls()
                .map(|(id, _, arguments)| (id.clone(), arguments.to_owned()))
                .collect::<Vec<_>>()
        })
        .collect();
    let mut answered = 0;
    for part in request.messages().flat_map(|message| message.message.content.clone()) {
        let Part::ToolResult { call_id, output, is_error } = part else { continue };
        let (_, arguments) = asked.iter().find(|(id, _)| *id == call_id).expect("a result has its call");
        assert!(is_error || arguments.contains(&output), "{arguments}: {output}");
        answered += 1;
    }
    assert_eq!(answered, 4);
}

#[tokio::test]
async fn a_model_that_only_calls_tools_is_stopped() {
    let model = Scripted::answering(|_| Reply::parts(vec![call(r#"{"at":"sea"}"#)]));
    let (_server, mut client, _) = with_look(&model, FAR_MS, &[("TOOL_ROUNDS_MAX", "3")]).await;
    ask(&mut client, "Look for ever.").await;
    for _ in 0..3 {
        let called = client.event("tool_call").await;
        answer(&mut client, &called, "blue").await;
    }
    let ended = finished(&mut client).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("too_many_tool_rounds")));
    assert_eq!(model.requests().len(), 4);
    // A call that was not made also has a result.
    model.push(Reply::text("Enough."));
    assert_eq!(client.turn("Stop it.").await["status"], "completed");
    assert_eq!(results(model.requests().last().unwrap()).len(), 4);
}

#[tokio::test]
async fn a_call_outlives_its_connection() {
    let model = Scripted::new();
    let (server, mut client, opened) = with_look(&model, FAR_MS, &[]).await;
    model.push(Reply::parts(vec![call(r#"{"at":"sea"}"#)]));
    model.push(Reply::text("It is blue."));
    ask(&mut client, "How is the sea?").await;
    let called = client.event("tool_call").await;
    client.hang_up();
    let mut client = Client::v2(&server.ws()).await;
    let open = json!({ "sessionId": opened["sessionId"] });
    let joined = client.ask("open_session", open).await["payload"].clone();
    assert_eq!(*present(&joined["pending"][0]["toolCallId"]), called["payload"]["toolCallId"], "{joined}");
    assert_eq!(joined["pending"][0]["arguments"], r#"{"at":"sea"}"#);
    assert_eq!(answer(&mut client, &called, "blue").await["type"], "ok");
    assert_eq!(finished(&mut client).await["status"], "completed");
    assert_eq!(model.requests()[1].envelope.tools.len(), 1, "and the tools are still on offer");
}

#[tokio::test]
async fn a_restart_ends_the_turn_and_its_calls() {
    let folder = tempfile::tempdir().unwrap();
    let store = || Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let model = Scripted::new();
    model.push(Reply::parts(vec![call(r#"{"at":"sea"}"#)]));
    let server = Server::over(model.clone(), store(), &[("SHUTDOWN_GRACE_SECS", "0")]).await;
    let mut client = Client::v2(&server.ws()).await;
    let opened = client.ask("open_session", json!({ "tools": [look(FAR_MS)] })).await["payload"].clone();
    ask(&mut client, "How is the sea?").await;
    client.event("tool_call").await;
    server.service.stop().await;
    drop(server);
    let server = Server::over(model.clone(), store(), &[]).await;
    let mut client = Client::v2(&server.ws()).await;
    let open = json!({ "sessionId": opened["sessionId"], "tools": [look(FAR_MS)] });
    let reopened = client.ask("open_session", open).await["payload"].clone();
    assert_eq!((&reopened["lastTurn"]["status"], &reopened["pending"]), (&json!("interrupted"), &json!([])));
    model.push(Reply::text("I was away."));
    client.ask("retry_turn", json!({})).await;
    assert_eq!(finished(&mut client).await["status"], "completed");
    let request = model.requests().pop().unwrap();
    assert!(matches!(&results(&request)[..], [(_, true)]), "{:?}", results(&request));
    assert_eq!(request.envelope.tools.len(), 1);
    server.service.stop().await;
}

#[tokio::test]
async fn offers_that_cannot_be_are_refused_by_name() {
    let server = Server::start(Scripted::new(), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let tool = |name: &str, parameters: Value| json!({ "name": name, "description": "d", "parameters": parameters });
    let object = || json!({ "type": "object" });
    let timed = |timeout: u64| json!({ "name": "a", "description": "d", "parameters": object(), "timeoutMs": timeout });
    let many: Vec<Value> = (0..200).map(|number| tool(&format!("t{number}"), object())).collect();
    for (tools, field) in [
        (vec![tool("", object())], "tools[0].name"),
        (vec![tool("a b", object())], "tools[0].name"),
        (vec![tool(&"a".repeat(65), object())], "tools[0].name"),
        (vec![tool("a", object()), tool("a", object())], "tools[1].name"),
        (vec![tool("a", json!([]))], "tools[0].parameters"),
        (vec![tool("a", json!({ "type": "nonsense" }))], "tools[0].parameters"),
        (vec![timed(0)], "tools[0].timeoutMs"),
        (many, "tools"),
    ] {
        let reply = client.ask("register_tools", json!({ "tools": tools })).await;
        assert_eq!(
            (&reply["payload"]["code"], &reply["payload"]["details"]["field"]),
            (&json!("invalid_tools"), &json!(field))
        );
    }
}

#[tokio::test]
async fn the_meter_moves_after_a_tools_result_and_between_rounds() {
    let model = Scripted::new();
    let (server, mut client, opened) = with_look(&model, FAR_MS, &[]).await;
    // Two calls at once, then one that no tool accepts, then the answer. A newer meter replaces one that is not read
    // yet, so the model waits until each has been read.
    let gates = [Gate::new(), Gate::new()];
    model.push(Reply::parts(vec![call(r#"{"at":"sea"}"#), call(r#"{"at":"sky"}"#)]));
    model.push(Reply::parts(vec![named("smell", "{}")]).held_by(&gates[0]));
    model.push(Reply::text("It is blue.").held_by(&gates[1]));
    ask(&mut client, "How is the sea?").await;
    let calls = [client.event("tool_call").await, client.event("tool_call").await];
    let before = client.ask("get_context_info", json!({})).await["payload"]["tokenCount"].as_u64().unwrap();
    let meter = |frame: &Value| frame["payload"]["contextInfo"]["tokenCount"].as_u64().unwrap();
    answer(&mut client, &calls[0], &"blue ".repeat(40)).await;
    let told = client.event("context_updated").await;
    assert_eq!(*present(&told["payload"]["turnId"]), calls[0]["payload"]["turnId"]);
    assert!(told.get("seq").is_none(), "it is decoration: {told}");
    let first = meter(&told);
    assert!(first > before + 20, "{first} after a result of 40 words, {before} before");
    let asked = client.ask("get_context_info", json!({})).await["payload"].clone();
    assert_eq!(*present(&told["payload"]["contextInfo"]), asked, "one count");
    answer(&mut client, &calls[1], &"grey ".repeat(40)).await;
    let second = meter(&client.event("context_updated").await);
    assert!(second > first + 20, "{second} after {first}");
    // The call that could not be made is announced before the request that follows it.
    gates[0].open();
    let third = meter(&client.event("context_updated").await);
    assert!(third > second, "{third} after {second}");
    gates[1].open();
    let finished = finished(&mut client).await;
    assert_eq!(finished["status"], "completed");
    let last = meter(&json!({ "payload": finished }));
    assert!(last > third, "{last} at the end, {third} before the answer");
    let told = client.seen.iter().filter(|frame| frame["type"] == "context_updated").map(meter);
    assert_eq!(told.collect::<Vec<_>>(), [first, second, third], "each count once");
    client.forget("context_updated");
    // A turn without tools reports it only at its end, and v1 has no such event.
    let mut old = Client::connect(&server.ws()).await;
    model.push(Reply::text("Yes."));
    client.turn("Really?").await;
    assert_eq!(client.forget("context_updated"), Vec::<Value>::new());
    model.push(Reply::text("Old."));
    let hello = json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Hello" }] });
    old.send("user_input", json!({ "input": [hello] })).await;
    old.event("agent_finished").await;
    assert!(old.seen.iter().all(|frame| frame["type"] != "context_updated"), "{:?}", old.seen);
    assert!(opened["contextInfo"]["tokenCount"].as_u64().unwrap() < before);
}
