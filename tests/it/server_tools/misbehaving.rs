//! Models that misbehave: over both APIs, with a tool of the server and with one of a client.
//!
//! Whatever the model calls, each call has exactly one result, every later request is one that a strict server accepts
//! (`support/upstream/check.rs`), the turn ends with a status, and the session continues with the next message.

use super::{Seen, TestTool, ask, tool};
use crate::support::{
    client::Client,
    json::present,
    server::Server,
    talk::{is_summary, rides, summary},
    upstream::{Asked, Reply, Setup, Upstream},
};
use reseed::{
    core::tool::ToolPlace,
    provider::openai::{ApiChoice, OpenAi, OpenAiOptions},
    store::memory::MemoryStore,
    tools::Tool,
};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// What a tool of a client answers, and one of the server.
const SEEN: &str = "It is blue.";

/// The window of the model, which refuses what is larger.
const WINDOW_TOKENS: u64 = 32_000;

/// Arguments that fit the tool.
const FIT: &str = r#"{"at":"sea"}"#;

/// One way in which a model misbehaves, and what follows.
struct Case {
    what: &'static str,
    /// The answers of the model, in order. Then it answers with a text.
    answers: Vec<Reply>,
    /// The calls that reach the tool.
    made: usize,
    /// The beginnings of the results that the model has read in the end, in order. A repeated one is given with its
    /// number.
    results: Vec<(usize, &'static str)>,
    /// The error of the turn, if it fails.
    fails: Option<&'static str>,
}

fn case(what: &'static str, answer: Reply, made: usize, results: &[(usize, &'static str)]) -> Case {
    Case { what, answers: vec![answer], made, results: results.to_vec(), fails: None }
}

fn cases() -> Vec<Case> {
    let call = || Reply::call("peek", FIT);
    let calls = |ids: &[&str]| ids.iter().fold(Reply::text(""), |reply, id| reply.and_call_as(Some(id), "peek", FIT));
    let many = |count: usize, name: &str| (0..count).fold(Reply::text(""), |reply, _| reply.and_call(name, FIT));
    let deep = format!(r#"{{"at":{}1{}}}"#, "[".repeat(5_000), "]".repeat(5_000));
    let long_name = "peek".repeat(2_500);
    let no_json = "The arguments of `peek` are not JSON";
    let no_object = "The arguments of `peek` do not fit its schema";
    vec![
        case("an unknown tool", Reply::call("smell", FIT), 0, &[(1, "There is no tool `smell`; there are: peek.")]),
        case("unknown tools, a hundred times", many(100, "smell"), 0, &[(100, "There is no tool `smell`")]),
        case("a name that no API takes", Reply::call("functions.peek:0 ⚓", FIT), 0, &[(1, "There is no tool `f")]),
        case("a name without end", Reply::call(&long_name, FIT), 0, &[(1, "There is no tool `peekpeek")]),
        case("a name with lines", Reply::call("a\n> b", FIT), 0, &[(1, "There is no tool `a > b`")]),
        Case { fails: Some("upstream_malformed"), ..case("an empty name", Reply::call("", FIT), 0, &[]) },
        case("broken arguments", Reply::call("peek", r#"{"at":"se"#), 0, &[(1, no_json)]),
        case("one object twice as arguments", Reply::call("peek", r#"{"at":"sea"}{"at":"sea"}"#), 1, &[(1, SEEN)]),
        case("two objects as arguments", Reply::call("peek", r#"{"at":"sea"}{"at":"land"}"#), 0, &[(1, no_json)]),
        case("half a character in the arguments", Reply::call("peek", r#"{"at":"\ud83d"}"#), 1, &[(1, SEEN)]),
        case("a number beyond all", Reply::call("peek", r#"{"at":"sea","n":1e999}"#), 0, &[(1, no_json)]),
        case("arguments without bottom", Reply::call("peek", &deep), 0, &[(1, no_json)]),
        case("a list as arguments", Reply::call("peek", r#"["sea"]"#), 0, &[(1, no_object)]),
        case("a text as arguments", Reply::call("peek", r#""sea""#), 0, &[(1, no_object)]),
        case("null as arguments", Reply::call("peek", "null"), 1, &[(1, SEEN)]),
        case("no arguments", Reply::call("peek", ""), 1, &[(1, SEEN)]),
        case("a hundred calls at once", many(100, "peek"), 100, &[(100, SEEN)]),
        case("one id for all calls", calls(&["a", "a", "a"]), 3, &[(3, SEEN)]),
        case("empty ids", calls(&["", ""]), 2, &[(2, SEEN)]),
        case("ids that are none", calls(&["no id!", &"x".repeat(100)]), 2, &[(2, SEEN)]),
        Case { answers: vec![call(), call()], ..case("one id in two answers", call(), 2, &[(2, SEEN)]) },
        case("a text and calls", Reply::text("Let me see.").and_call("peek", FIT), 1, &[(1, SEEN)]),
        case(
            "good calls and bad ones",
            call().and_call("smell", FIT).and_call("peek", "{").and_call("peek", FIT),
            2,
            &[(1, "There is no"), (1, no_json), (2, SEEN)],
        ),
        Case {
            answers: (0..20).map(|_| call()).collect(),
            fails: Some("too_many_tool_rounds"),
            ..case("the same call for ever", call(), 3, &[(3, SEEN), (1, "Not called: this turn has had its 3 rounds")])
        },
    ]
}

/// Where the tool runs.
struct World {
    place: ToolPlace,
    api: ApiChoice,
}

impl World {
    /// Starts a model with these answers, until it is calmed, and a server with the tool. Also returns the client.
    async fn start(&self, answers: Vec<Reply>, calm: &Arc<AtomicBool>) -> (Upstream, Server, Client, Arc<Seen>) {
        let (mut answers, calm) = (answers.into_iter(), calm.clone());
        let next = move |asked: &Asked| {
            if is_summary(asked) || rides(asked) {
                return Reply::text(summary(&["The sea is blue"]));
            }
            let answer = answers.next().filter(|_| !calm.load(Ordering::SeqCst));
            answer.unwrap_or_else(|| Reply::text("Done."))
        };
        let setup = Setup { window_tokens: Some(WINDOW_TOKENS), ..Setup::default() };
        let upstream = Upstream::start_with(setup, next).await;
        let options = OpenAiOptions { base_url: upstream.base_url(), api: self.api, ..OpenAiOptions::default() };
        let seen = Arc::new(Seen::default());
        let mut offered = tool("peek", true, &seen);
        SEEN.clone_into(&mut offered.output.text);
        let parameters = offered.offer.parameters.clone();
        let of_server = || Arc::new(TestTool { ..offered }) as Arc<dyn Tool>;
        let tools: Vec<Arc<dyn Tool>> = if self.place == ToolPlace::Server { vec![of_server()] } else { Vec::new() };
        let window = WINDOW_TOKENS.to_string();
        let settings = [("TOOL_ROUNDS_MAX", "3"), ("CONTEXT_WINDOW", &*window), ("HISTORY_TOOLS", "off")];
        let store = Arc::new(MemoryStore::new());
        let server = Server::over_with_tools(OpenAi::new(options).unwrap(), store, tools, &settings).await;
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        if self.place == ToolPlace::Client {
            let peek = json!([{ "name": "peek", "description": "A tool.", "parameters": parameters }]);
            assert_eq!(client.ask("register_tools", json!({ "tools": peek })).await["type"], "ok");
        }
        (upstream, server, client, seen)
    }
}

/// What a client has seen of a turn.
#[derive(Default)]
struct Turn {
    /// The calls that were made.
    made: usize,
    /// The calls in the entries of answers, by id.
    called: Vec<Value>,
    /// The results in entries, by id.
    answered: Vec<Value>,
    /// The payload of `turn_finished`.
    end: Value,
}

/// Sends this, answers the calls that reach the client, and returns what the client saw.
async fn turn(client: &mut Client, text: &str) -> Turn {
    ask(client, text).await;
    let mut turn = Turn::default();
    loop {
        let frame = client.next_frame().await.expect("the server does not hang up");
        let payload = &frame["payload"];
        match frame["type"].as_str().unwrap() {
            "tool_call" => {
                turn.made += 1;
                if payload["place"] != "server" {
                    client.send("tool_result", json!({ "toolCallId": payload["toolCallId"], "output": SEEN })).await;
                }
            }
            "entry_appended" => {
                for part in payload["entry"]["content"].as_array().into_iter().flatten() {
                    match part["type"].as_str().unwrap() {
                        "tool_call" => turn.called.push(present(&part["toolCallId"]).clone()),
                        "tool_result" => turn.answered.push(present(&part["toolCallId"]).clone()),
                        _ => {}
                    }
                }
            }
            "turn_finished" => {
                turn.end = payload.clone();
                return turn;
            }
            "error" => panic!("{frame}"),
            _ => {}
        }
    }
}

/// Returns the results in a request, in order.
fn results(asked: &Asked) -> Vec<String> {
    let text = |message: &Value| {
        let output = if message["role"] == "tool" { &message["content"] } else { &message["output"] };
        output.as_str().map(str::to_owned)
    };
    asked.messages().iter().filter_map(text).collect()
}

/// Checks that a client has seen one result for each call.
fn check_pairs(turn: &Turn, name: &str) {
    let mut ids: Vec<String> = turn.called.iter().map(Value::to_string).collect();
    let mut answered: Vec<String> = turn.answered.iter().map(Value::to_string).collect();
    ids.sort();
    answered.sort();
    assert_eq!(ids, answered, "{name}: the client sees one result for each call");
    ids.dedup();
    assert_eq!(ids.len(), answered.len(), "{name}: ids are unique");
}

async fn check(world: &World, case: Case) {
    let name = format!("{}, {:?}, {:?}", case.what, world.place, world.api);
    let calm = Arc::new(AtomicBool::new(false));
    let (upstream, _server, mut client, seen) = world.start(case.answers, &calm).await;
    let first = turn(&mut client, "Look!").await;
    let error = &first.end["error"]["code"];
    match case.fails {
        None => assert_eq!(first.end["status"], "completed", "{name}: {}", first.end),
        Some(code) => assert_eq!((&first.end["status"], error), (&json!("failed"), &json!(code)), "{name}"),
    }
    assert_eq!(first.made, case.made, "{name}");
    let in_server = if world.place == ToolPlace::Server { case.made } else { 0 };
    assert_eq!(seen.started.load(Ordering::SeqCst), in_server, "{name}");
    check_pairs(&first, &name);

    calm.store(true, Ordering::SeqCst);
    let second = turn(&mut client, "And now?").await;
    assert_eq!(second.end["status"], "completed", "{name}: {}", second.end);
    upstream.assert_clean();
    let mut read = results(upstream.requests().last().unwrap());
    read.sort();
    let mut wanted: Vec<&str> = case.results.iter().flat_map(|(times, text)| vec![*text; *times]).collect();
    wanted.sort_unstable();
    assert_eq!(read.len(), wanted.len(), "{name}: {read:?}");
    for text in &read {
        let at = wanted.iter().position(|wanted| text.starts_with(wanted));
        wanted.remove(at.unwrap_or_else(|| panic!("{name}: nobody expects {text}; {wanted:?}")));
        assert!(text.len() < 1_000 && !text.contains('\n'), "{name}: {text}");
    }
}

#[tokio::test]
async fn a_model_that_misbehaves_hurts_its_own_turn_at_most() {
    for place in [ToolPlace::Server, ToolPlace::Client] {
        for api in [ApiChoice::Chat, ApiChoice::Responses] {
            for case in cases() {
                check(&World { place, api }, case).await;
            }
        }
    }
}

#[tokio::test]
async fn arguments_far_beyond_the_window_are_compacted_away() {
    for place in [ToolPlace::Server, ToolPlace::Client] {
        for api in [ApiChoice::Chat, ApiChoice::Responses] {
            let name = format!("{place:?}, {api:?}");
            let calm = Arc::new(AtomicBool::new(false));
            let huge = json!({ "at": "sea ".repeat(1024 * 1024 / 4) }).to_string();
            let answers = vec![Reply::call("peek", &huge), Reply::call("peek", &huge[..huge.len() - 2])];
            let (upstream, _server, mut client, _) = World { place, api }.start(answers, &calm).await;
            let first = turn(&mut client, "Look!").await;
            assert_eq!((first.made, first.called.len()), (1, 2), "{name}");
            check_pairs(&first, &name);
            assert_eq!(first.end["status"], "completed", "{name}: {}", first.end);
            let second = turn(&mut client, "And now?").await;
            assert_eq!(second.end["status"], "completed", "{name}: {}", second.end);
            assert_eq!(upstream.refused(), 0, "{name}");
            upstream.assert_clean();
        }
    }
}
