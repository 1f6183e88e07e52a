//! Chat Completions: what its clients, which send everything each time, rely on.

use crate::support::{
    client::Client,
    http::{self, Answered},
    scripted::{Gate, Reply, Scripted},
    server::Server,
    talk::{facts, summaries, summary, text_of, words},
    tools::results,
};
use reseed::{
    core::model::{ModelFault, ModelRequest, Purpose},
    store::{memory::MemoryStore, sqlite::SqliteStore},
    tools::{Call, CallFuture, Output, Tool},
};
use reseed_protocol::{
    ErrorCode, Part, Role,
    context::ToolChoice,
    tools::{ToolAnnotations, ToolOffer},
};
use serde_json::{Value, json};
use std::sync::Arc;

const PATH: &str = "/v1/chat/completions";

/// A program that keeps its messages itself.
struct Program {
    address: String,
    headers: Vec<(&'static str, String)>,
    messages: Vec<Value>,
    /// Further fields of each request.
    fields: Value,
    /// The session of the last answer.
    session: String,
}

impl Program {
    fn of(server: &Server) -> Self {
        let headers = vec![("Content-Type", "application/json".to_owned())];
        Self { address: server.address(), headers, messages: Vec::new(), fields: json!({}), session: String::new() }
    }

    fn with(mut self, header: &'static str, value: &str) -> Self {
        self.headers.push((header, value.to_owned()));
        self
    }

    fn add(&mut self, role: &str, content: &str) {
        self.messages.push(json!({ "role": role, "content": content }));
    }

    fn body(&self) -> Value {
        let mut body = json!({ "model": "test", "messages": self.messages });
        body.as_object_mut().unwrap().extend(self.fields.as_object().unwrap().clone());
        body
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        self.headers.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    async fn post(&self) -> Answered {
        let answer = http::send(&self.address, "POST", PATH, &self.headers(), &self.body().to_string()).await;
        super::described::check("POST", PATH, &answer);
        answer
    }

    /// Asks, keeps the answer, and returns the response.
    async fn ask(&mut self) -> Value {
        let answer = self.post().await;
        assert_eq!(answer.status, 200, "{answer:?}");
        self.session = header(&answer, "x-reseed-session");
        let response = answer.json();
        self.messages.push(response["choices"][0]["message"].clone());
        response
    }

    /// Says something, and returns the answer's text.
    async fn say(&mut self, text: &str) -> String {
        self.add("user", text);
        text_in(&self.ask().await)
    }

    /// Returns the events of a streamed answer, without the last one.
    async fn stream(&self) -> Vec<Value> {
        let body = self.body().to_string();
        let mut events = http::events(&self.address, "POST", PATH, &self.headers(), &body).await;
        assert_eq!(events.pop(), Some(json!("[DONE]")), "{events:?}");
        events
    }
}

fn header(answer: &Answered, name: &str) -> String {
    let found = answer.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    found.unwrap_or_else(|| panic!("no {name} in {}", answer.head)).to_owned()
}

fn text_in(response: &Value) -> String {
    response["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
}

/// Returns a model that repeats the last text.
fn echo() -> Scripted {
    let last = |request: &ModelRequest| text_of(request).lines().last().unwrap().to_owned();
    Scripted::answering(move |request| Reply::text(format!("re: {}", last(request))).usage(9, 2))
}

/// Returns the roles and texts of the last request, one message per line.
fn last(model: &Scripted) -> String {
    let request = model.requests().pop().unwrap();
    let line = |role: Role, text: String| format!("{}: {text}", format!("{role:?}").to_lowercase());
    let lines: Vec<String> = request.messages().map(|sent| line(sent.message.role, sent.message.text())).collect();
    lines.join("\n")
}

fn function(name: &str) -> Value {
    let function = json!({ "name": name, "description": name, "parameters": { "type": "object" } });
    json!({ "type": "function", "function": function })
}

fn call(name: &str, at: u32) -> Part {
    let call_id = format!("call_{at}").parse().unwrap();
    Part::ToolCall { call_id, name: name.into(), arguments: format!("{{\"at\":{at}}}") }
}

async fn entries(server: &Server, session: &str) -> Vec<Value> {
    let mut client = Client::v2(&server.ws()).await;
    client.session = Some(session.to_owned());
    let page = client.ask("get_entries", json!({ "sessionId": session, "limit": 500 })).await;
    page["payload"]["items"].as_array().unwrap_or_else(|| panic!("{page}")).clone()
}

#[tokio::test]
async fn an_answer_is_an_object_or_a_stream() {
    let model = echo();
    let server = Server::start(model.clone(), &[]).await;
    let mut program = Program::of(&server);
    program.add("system", "Be brief.");
    program.add("user", "Hello");
    let answer = program.post().await;
    let response = answer.json();
    assert_eq!((&response["object"], &response["model"]), (&json!("chat.completion"), &json!("test")), "{response}");
    let message = json!({ "role": "assistant", "content": "re: Hello", "refusal": null });
    let choice = json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": "stop" });
    assert_eq!(response["choices"], json!([choice]));
    assert_eq!(response["usage"]["total_tokens"], 11);
    assert!(response["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert!(response["created"].as_u64().unwrap() > 1_700_000_000);
    assert!(header(&answer, "x-reseed-context").contains("window=2000, compactions=0"), "{}", answer.head);
    assert!(format!("{:?}", model.requests()[0].envelope.system).contains("Be brief."));

    program.messages.push(response["choices"][0]["message"].clone());
    program.add("user", "More");
    program.fields = json!({ "stream": true, "stream_options": { "include_usage": true } });
    model.push(
        Reply::parts(vec![
            Part::Reasoning { text: "hm".into(), payload: None },
            Part::Text { text: "One two three".into() },
        ])
        .in_pieces(3)
        .usage(20, 3),
    );
    let chunks = program.stream().await;
    let deltas = |name: &str| -> String {
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"][name].as_str()).collect()
    };
    assert_eq!(
        (deltas("role"), deltas("content"), deltas("reasoning_content")),
        ("assistant".into(), "One two three".into(), "hm".into())
    );
    let end = &chunks[chunks.len() - 2];
    assert_eq!((&end["choices"][0]["finish_reason"], &end["usage"]), (&json!("stop"), &Value::Null));
    let usage = &chunks[chunks.len() - 1];
    assert_eq!((&usage["choices"], &usage["usage"]["prompt_tokens"]), (&json!([]), &json!(20)));
    let id = chunks[0]["id"].as_str().unwrap();
    assert!(chunks.iter().all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk["id"] == id));
    assert_eq!(last(&model), "user: Hello\nassistant: re: Hello\nuser: More");
}

#[tokio::test]
async fn tools_are_called_and_answered_over_several_rounds() {
    let model = echo();
    let server = Server::start(model.clone(), &[]).await;
    let mut program = Program::of(&server);
    program.fields = json!({ "tools": [function("look")], "tool_choice": "required", "parallel_tool_calls": true });
    program.add("user", "Look around");
    model.push(Reply::parts(vec![Part::Text { text: "I look.".into() }, call("look", 1), call("look", 2)]));
    let response = program.ask().await;
    assert_eq!(response["choices"][0]["finish_reason"], "tool_calls");
    let calls = response["choices"][0]["message"]["tool_calls"].as_array().unwrap().clone();
    assert_eq!(calls[1]["function"], json!({ "name": "look", "arguments": "{\"at\":2}" }));
    let options = model.requests()[0].envelope.options.clone();
    assert_eq!(options.answer.unwrap().tool_choice, Some(ToolChoice::Required));

    // The results come in another order, and the next answer is streamed.
    for (at, result) in [(1, "a boat"), (0, "a gull")] {
        program.messages.push(json!({ "role": "tool", "tool_call_id": calls[at]["id"], "content": result }));
    }
    model.push(Reply::parts(vec![call("look", 3)]).in_pieces(2));
    program.fields = json!({ "tools": [function("look")], "stream": true });
    let chunks = program.stream().await;
    assert_eq!(results(&model.requests()[1]), [("a boat".into(), false), ("a gull".into(), false)]);
    let calls: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0]).collect();
    let streamed = *calls.iter().find(|call| call.is_object()).unwrap();
    assert_eq!(
        (&streamed["index"], &streamed["function"]["arguments"]),
        (&json!(0), &json!("{\"at\":3}")),
        "{chunks:?}"
    );
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    program.messages.push(json!({ "role": "assistant", "content": null, "tool_calls": [streamed] }));
    program.messages.push(json!({ "role": "tool", "tool_call_id": streamed["id"], "content": "a storm" }));
    program.fields = json!({});
    program.ask().await;
    let requests = model.requests();
    assert_eq!(results(&requests[2]).len(), 3);
    assert!(requests[2].envelope.tools.is_empty(), "this request has no tools");
    let first = program.session.clone();
    assert_eq!(program.say("Thanks").await, "re: Thanks");
    assert_eq!(program.session, first);
    assert_eq!(entries(&server, &first).await.iter().filter(|entry| entry["type"] == "message").count(), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_may_grow_past_the_window() {
    let mut asked = 0;
    let model = Scripted::answering(move |request| {
        asked += 1;
        Reply::text(match request.purpose {
            Purpose::Turn => words(asked, 30),
            Purpose::Summary => summary(&facts(&text_of(request))),
        })
    });
    let server = Server::start(model.clone(), &[]).await;
    let mut program = Program::of(&server);
    program.say("FACT the ferry is called Aurora").await;
    let session = program.session.clone();
    for number in 0..60 {
        program.say(&words(number, 40)).await;
        assert_eq!(program.session, session, "turn {number}");
    }
    assert!(summaries(&model.requests()) > 0, "it was compacted");
    program.add("user", "What is the ferry called?");
    let answer = program.post().await;
    assert!(!header(&answer, "x-reseed-context").contains("compactions=0"), "{}", answer.head);
    let turns: Vec<ModelRequest> =
        model.requests().into_iter().filter(|request| request.purpose == Purpose::Turn).collect();
    assert!(text_of(turns.last().unwrap()).contains("Aurora"), "the first fact is known");
    assert!(turns.last().unwrap().messages().count() < 60, "the model gets the compacted view");
}

#[tokio::test]
async fn edits_and_repeats_branch_within_the_session() {
    let model = echo();
    let server = Server::start(model.clone(), &[]).await;
    let mut program = Program::of(&server);
    for text in ["one", "two", "three"] {
        program.say(text).await;
    }
    let session = program.session.clone();
    program.messages[2] = json!({ "role": "user", "content": "zwei" });
    program.messages.truncate(3);
    program.ask().await;
    assert_eq!(last(&model), "user: one\nassistant: re: one\nuser: zwei");
    assert_eq!(program.session, session);

    // The same list again asks for another answer.
    program.messages.pop();
    program.ask().await;
    assert_eq!(last(&model), "user: one\nassistant: re: one\nuser: zwei");
    // An edit in the middle, with what followed it.
    program.say("drei").await;
    program.messages[1] = json!({ "role": "assistant", "content": "eins" });
    assert_eq!(program.say("vier").await, "re: vier");
    let list =
        "user: one\nassistant: eins\nuser: zwei\nassistant: re: zwei\nuser: drei\nassistant: re: drei\nuser: vier";
    assert_eq!(last(&model), list);
    assert_eq!(program.say("five").await, "re: five");
    assert_eq!(program.session, session);
    // A new system prompt is no branch.
    let before = entries(&server, &session).await.len();
    program.messages.insert(0, json!({ "role": "system", "content": "Sing." }));
    program.say("six").await;
    assert_eq!(program.session, session);
    let added = entries(&server, &session).await.len() - before;
    assert_eq!(added, 2, "the question and the answer");
}

#[tokio::test]
async fn a_restart_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = || Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let model = echo();
    let server = Server::over(model.clone(), store(), &[]).await;
    let mut program = Program::of(&server);
    program.say("one").await;
    program.say("two").await;
    let session = program.session.clone();
    server.service.stop().await;
    drop(server);

    let server = Server::over(model.clone(), store(), &[]).await;
    program.address = server.address();
    program.say("three").await;
    assert_eq!(program.session, session);
    let messages = entries(&server, &session).await.into_iter().filter(|entry| entry["type"] == "message").count();
    assert_eq!(messages, 6, "nothing was imported again");
}

/// A tool of the server that reads the tide.
struct Tide;

impl Tool for Tide {
    fn offer(&self) -> ToolOffer {
        let annotations = Some(ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() });
        ToolOffer { annotations, ..ToolOffer::new("tide", "Reads the tide.", json!({ "type": "object" })) }
    }

    fn call(&self, _call: Call) -> CallFuture<'_> {
        Box::pin(async { Output::text("high water at five") })
    }
}

#[tokio::test]
async fn all_of_a_large_session_is_known_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = || Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let settings = [("CONTEXT_WINDOW", "100000")];
    let server = Server::over(echo(), store(), &settings).await;
    let mut program = Program::of(&server).with("X-Session", "mine");
    // More entries than a page has.
    for n in 0..300 {
        program.add("user", &format!("question {n}"));
        program.add("assistant", &format!("answer {n}"));
    }
    program.say("The last one.").await;
    let first = program.session.clone();
    server.service.stop().await;
    drop(server);

    let model = echo();
    let server = Server::over(model.clone(), store(), &settings).await;
    let before = entries(&server, &first).await;
    let mut edited = Program::of(&server).with("X-Session", "mine");
    edited.messages = program.messages[..2].to_vec();
    edited.say("Something else.").await;
    assert_eq!(edited.session, first);
    assert_eq!(last(&model), "user: question 0\nassistant: answer 0\nuser: Something else.");
    let after = entries(&server, &first).await;
    let known = |entry: &Value| before.iter().any(|old| old["entryId"] == *entry["entryId"].as_str().unwrap());
    assert_eq!(after.iter().filter(|entry| !known(entry)).count(), 2, "the question and the answer");

    let mut other = Program::of(&server).with("X-Session", "mine");
    other.say("Unheard of.").await;
    assert_eq!(last(&model), "user: Unheard of.");
}

#[tokio::test]
async fn tools_of_the_server_run_unseen_within_one_answer() {
    let model = echo();
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(Tide)];
    let server = Server::over_with_tools(model.clone(), Arc::new(MemoryStore::new()), tools, &[]).await;
    let mut program = Program::of(&server);
    program.fields = json!({ "tools": [function("look")] });
    model.push(Reply::parts(vec![Part::Text { text: "Let me see.".into() }, call("tide", 1)]));
    model.push(Reply::parts(vec![Part::Text { text: "At five.".into() }, call("look", 2)]));
    program.add("user", "When does it turn?");
    let response = program.ask().await;
    let message = &response["choices"][0]["message"];
    assert_eq!(message["content"], "Let me see.\n\nAt five.");
    assert_eq!(message["tool_calls"].as_array().unwrap().len(), 1, "{message}");
    let result = json!({ "role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "a boat" });
    program.messages.push(result);
    program.ask().await;
    program.say("Thanks").await;
    let messages = entries(&server, &program.session).await.into_iter().filter(|entry| entry["type"] == "message");
    let roles: Vec<String> = messages.map(|entry| entry["role"].as_str().unwrap_or("?").to_owned()).collect();
    let expected = ["user", "assistant", "tool", "assistant", "tool", "assistant", "user", "assistant"];
    assert_eq!(roles, expected, "everything was found again");
}

#[tokio::test]
async fn an_unknown_history_is_imported_and_then_known() {
    let model = echo();
    let server = Server::start(model.clone(), &[]).await;
    let mut program = Program::of(&server);
    let called =
        json!({ "id": "x", "type": "function", "function": { "name": "look", "arguments": "{\"b\":1, \"a\":2}" } });
    for _ in 0..2 {
        program.add("user", "Look");
        program.messages.push(json!({ "role": "assistant", "content": null, "tool_calls": [called] }));
        program.messages.push(json!({ "role": "tool", "tool_call_id": "x", "content": "a boat" }));
        program.add("assistant", "I see a boat.");
    }
    assert_eq!(program.say("Whose?").await, "re: Whose?");
    assert_eq!(results(&model.requests()[0]).len(), 2);
    assert!(model.requests()[0].is_paired());
    program.say("Sure?").await;
    let messages =
        entries(&server, &program.session).await.into_iter().filter(|entry| entry["type"] == "message").count();
    assert_eq!(messages, 12, "it was imported once");
    // A list without its oldest messages is another one.
    let first = program.session.clone();
    program.messages.drain(..4);
    program.messages[0] = json!({ "role": "user", "content": "Look here" });
    program.say("And now?").await;
    assert_ne!(program.session, first);
}

#[tokio::test]
async fn two_requests_at_once_are_both_answered() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let server = Server::start(model.clone(), &[]).await;
    for _ in 0..2 {
        model.push(Reply::text("Hello there").in_pieces(2).held_by(&gate));
    }
    let mut program = Program::of(&server);
    program.add("user", "Hello");
    let both = async {
        let first = program.post();
        let second = async {
            model.wait_for_requests(1).await;
            program.post().await
        };
        tokio::join!(first, second)
    };
    let open = async {
        model.wait_for_requests(2).await;
        gate.open();
    };
    let ((one, two), ()) = tokio::join!(both, open);
    assert_eq!([text_in(&one.json()), text_in(&two.json())], ["Hello there", "Hello there"]);
    assert_ne!(header(&one, "x-reseed-session"), header(&two, "x-reseed-session"));
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_turn_unless_it_comes_back_with_its_key() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let server = Server::start(model.clone(), &[]).await;
    let mut program = Program::of(&server);
    program.add("user", "Hello");
    model.push(Reply::text("Hello there").in_pieces(2).held_by(&gate));
    tokio::select! {
        answer = program.post() => panic!("{answer:?}"),
        () = model.wait_for_requests(1) => {}
    }
    model.wait_for_dropped(1).await;

    let mut program = Program::of(&server).with("Idempotency-Key", "a-key").with("X-Session", "mine");
    program.add("user", "Hello again");
    model.push(Reply::text("One answer").in_pieces(2).held_by(&gate));
    tokio::select! {
        answer = program.post() => panic!("{answer:?}"),
        () = model.wait_for_requests(2) => {}
    }
    let open = async { gate.open() };
    let (again, ()) = tokio::join!(program.post(), open);
    assert_eq!(text_in(&again.json()), "One answer");
    assert_eq!(text_in(&program.post().await.json()), "One answer");
    assert_eq!(model.requests().len(), 2, "the model was asked once for each");
}

#[tokio::test]
async fn errors_have_openais_form_and_a_status() {
    let model = echo();
    let server = Server::start(model.clone(), &[("MODELS_ALLOWED", "test")]).await;
    let mut program = Program::of(&server);
    program.add("user", "Hello");
    let error = |answer: &Answered| {
        let error = answer.json()["error"].clone();
        (answer.status, error["code"].as_str().unwrap().to_owned(), error["param"].clone())
    };
    for (fields, status, code, param) in [
        (json!({ "n": 2 }), 400, "unsupported_parameter", json!("n")),
        (json!({ "temperature": 3 }), 400, "invalid_field", json!("temperature")),
        (json!({ "model": "another" }), 404, "model_not_found", json!("model")),
        (json!({ "messages": [] }), 400, "invalid_type", json!("messages")),
        (
            json!({ "messages": [{ "role": "user", "content": "x" },
                { "role": "tool", "tool_call_id": "x", "content": "x" }] }),
            400,
            "invalid_tool_result",
            json!("messages"),
        ),
        (json!({ "tools": [function("not a name")] }), 400, "invalid_tools", json!("tools[0].name")),
    ] {
        program.fields = fields;
        let answer = program.post().await;
        assert_eq!(error(&answer), (status, code.to_owned(), param), "{}", program.fields);
    }
    assert!(model.requests().is_empty());
    program.fields = json!({});
    for (fault, status, code) in [
        (ErrorCode::UpstreamQuota, 429, "insufficient_quota"),
        (ErrorCode::UpstreamRejected, 400, "upstream_rejected"),
        (ErrorCode::UpstreamError, 502, "upstream_error"),
    ] {
        for stream in [false, true] {
            program.fields = json!({ "stream": stream });
            model.push(Reply::fault(ModelFault::new(fault, "no")));
            let answer = program.post().await;
            assert_eq!((error(&answer).0, error(&answer).1), (status, code.to_owned()));
        }
    }
    // After the first text, the error is an event.
    program.fields = json!({ "stream": true });
    model.push(Reply::text("Half an").then_fault(ModelFault::new(ErrorCode::UpstreamQuota, "no")));
    let body = program.body().to_string();
    let events = http::events(&program.address, "POST", PATH, &program.headers(), &body).await;
    assert_eq!(events.last().unwrap()["error"]["code"], "insufficient_quota", "{events:?}");
    // The conversation goes on all the same.
    program.fields = json!({});
    assert_eq!(text_in(&program.ask().await), "re: Hello");
    let not_json = http::send(&program.address, "POST", PATH, &program.headers(), "{").await;
    assert_eq!(error(&not_json).1, "invalid_json");
}

#[tokio::test]
async fn users_are_apart_and_nothing_is_kept_if_a_client_says_so() {
    let model = echo();
    let tokens = ("AUTH_TOKENS", "ann:ann-0123456789abcdef,ben:ben-0123456789abcdef");
    let server = Server::start(model.clone(), &[tokens]).await;
    let program = |token: &str| Program::of(&server).with("Authorization", &format!("Bearer {token}-0123456789abcdef"));
    let (mut ann, mut ben) = (program("ann"), program("ben"));
    ann.say("Hello").await;
    ben.say("Hello").await;
    assert_ne!(ann.session, ben.session);
    let mut stranger = program("eve");
    stranger.add("user", "Hello");
    let refused = stranger.post().await;
    assert_eq!((refused.status, refused.json()["error"]["code"].clone()), (401, json!("invalid_api_key")));

    let mut private = program("ann").with("X-Reseed-Store", "none");
    private.say("Keep this to yourself").await;
    let found = ann_sessions(&server).await;
    assert!(found.contains(&ann.session) && !found.contains(&private.session), "{found:?}");
}

async fn ann_sessions(server: &Server) -> Vec<String> {
    let headers = [("Authorization", "Bearer ann-0123456789abcdef")];
    let mut client = Client::connect_with(&server.ws(), &headers).await;
    client.ask("hello", json!({ "protocolVersion": 2 })).await;
    let list = client.ask("list_sessions", json!({})).await;
    let items = list["payload"]["items"].as_array().unwrap_or_else(|| panic!("{list}"));
    items.iter().map(|item| item["sessionId"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_name_for_the_session_is_kept_to_and_images_and_forms_pass() {
    let model = echo();
    let server = Server::start(model.clone(), &[]).await;
    let (mut one, mut two) =
        (Program::of(&server).with("X-Session", "boats"), Program::of(&server).with("X-Session", "boats"));
    one.say("First").await;
    two.say("Second").await;
    assert_eq!(one.session, two.session);
    assert_eq!(last(&model), "user: Second", "it begins at the root");

    let schema = json!({ "type": "object", "properties": { "boat": { "type": "string" } } });
    let image = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA", "detail": "low" } });
    one.messages.push(json!({ "role": "user", "content": [{ "type": "text", "text": "What?" }, image] }));
    one.fields = json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "s", "schema": schema } },
        "max_tokens": 40, "top_p": 0.5 });
    one.ask().await;
    let request = model.requests().pop().unwrap();
    let said = request.messages().last().unwrap().message.content.clone();
    assert!(matches!(&said[1], Part::Image { url, .. } if url.starts_with("data:image/png")), "{said:?}");
    let options = request.envelope.options;
    assert_eq!((options.max_output_tokens, options.top_p), (Some(40), Some(0.5)));
    assert!(format!("{:?}", options.answer).contains("JsonSchema"));
}
