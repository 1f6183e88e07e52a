//! Traces: what a collector gets of a server's work, and which context goes to others. Each test has a collector of its
//! own, which decodes what it receives.

mod outside;
#[cfg(feature = "postgres")]
mod relayed;

use crate::support::{
    client::Client,
    http,
    json::{present, whole},
    scripted::Scripted,
    server::Server,
    talk::{is_summary, summary, talker, words},
    upstream::{Asked, Reply, Upstream},
    webhook,
};
use outside::{Outside, Span};
use serde_json::{Value, json};
use std::{fs, time::Instant};
use tokio::net::TcpListener;

/// A phrase in every text, which no span has.
const CANARY: &str = "xylophone-heron";

const CLIENT: &str = "00-11111111111111111111111111111111-2222222222222222-01";
const COMMAND: &str = "00-33333333333333333333333333333333-4444444444444444-01";

/// Answers in words, uses a tool when told to, and summarises.
fn answer(asked: &Asked) -> Reply {
    match asked {
        asked if is_summary(asked) => Reply::text(summary(&[CANARY])).with_usage(900, 90),
        asked if asked.ends_with_result() => Reply::text(CANARY).with_usage(70, 7).with_cached(20),
        asked if asked.last_user_text().contains("Use the tool") => {
            Reply::call("out__do", &json!({ "text": CANARY }).to_string()).with_usage(60, 6)
        }
        _ => Reply::text(words(1, 60)),
    }
}

/// Sends an input with this context, and waits for the end of its turn.
async fn turn(client: &mut Client, text: &str, traceparent: Value) -> Value {
    let id = client.id();
    let mut frame = client.frame(&id, "user_input", json!({ "input": text }));
    frame["traceparent"] = traceparent;
    client.send_raw(frame.to_string()).await;
    client.until(|frame| frame["re"] == id).await;
    client.event("turn_finished").await["payload"].clone()
}

/// Returns the spans below this one, as indented lines in the order of their start, without store commits.
fn tree(spans: &[Span], parent: &str, depth: usize) -> String {
    let children = spans.iter().filter(|span| span.parent == parent && span.name != "store commit");
    let line = |span: &Span| format!("{:depth$}{}\n{}", "", span.name, tree(spans, &span.id, depth + 2));
    children.map(line).collect()
}

#[tokio::test]
async fn a_turn_is_a_tree_of_spans_whose_context_reaches_everybody() {
    let outside = Outside::start().await;
    let upstream = Upstream::start(answer).await;
    let folder = tempfile::tempdir().unwrap();
    let points = json!([{ "point": "before_compaction" }, { "point": "tool_call" }]);
    let hooks = webhook::file(folder.path(), &[webhook::hook("gate", &outside.url("/hook"), points)]);
    let mcp = folder.path().join("mcp.json");
    fs::write(&mcp, json!({ "mcpServers": { "out": { "type": "http", "url": outside.url("/mcp") } } }).to_string())
        .unwrap();
    let settings = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", outside.url("")),
        ("HOOKS_FILE", hooks),
        ("MCP_FILE", mcp.to_str().unwrap().to_owned()),
        ("strategy.background", "1".to_owned()),
    ];
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let server = Server::facing(&upstream.base_url(), &settings).await;
    let mut client = Client::connect_with(&server.ws(), &[("traceparent", CLIENT), ("tracestate", "a=b")]).await;
    client.ask("hello", json!({ "protocolVersion": 2 })).await;
    let opened = client.ask("open_session", json!({})).await;
    let session = present(&opened["payload"]["sessionId"]).as_str().unwrap().to_owned();
    client.ask("rename_session", json!({ "name": CANARY })).await;
    // The tool joins at a turn, once its server is up.
    while !present(&client.ask("list_tools", json!({})).await["payload"]["items"]).to_string().contains("out__do") {
        client.turn("Go on.").await;
    }
    while whole(&client.turn(&words(2, 60)).await["contextInfo"]["tokenCount"]) < 1_400 {}
    let finished = turn(&mut client, &format!("{} Use the tool. {CANARY}", words(3, 250)), json!(COMMAND)).await;
    assert_eq!(finished["status"], "completed", "{finished}");
    let results = client.seen.iter().filter(|frame| frame["payload"]["entry"]["role"] == "tool").count();
    assert_eq!(results, 1, "{:#?}", client.seen);
    server.service.stop().await;
    upstream.assert_clean();

    let spans = outside.spans();
    let of_command: Vec<Span> = spans.iter().filter(|span| span.trace == COMMAND[3..35]).cloned().collect();
    let expected = "turn
  compaction
    hook before_compaction
    chat test
    chat test
  chat test
  hook tool_call
  execute_tool out__do
  chat test
";
    assert_eq!(tree(&of_command, &COMMAND[36..52], 0), expected);
    let of_client = tree(&spans, &CLIENT[36..52], 0);
    assert!(of_client.starts_with("turn\n  chat test\n"), "{of_client}");
    let named = |name: &str| -> Vec<&Span> { of_command.iter().filter(|span| span.name == name).collect() };
    let (turn, compaction) = (named("turn")[0], named("compaction")[0]);
    let commits = named("store commit");
    assert!(commits.iter().filter(|commit| commit.parent == turn.id).count() >= 4, "{commits:#?}");
    assert_eq!(turn.attribute("gen_ai.conversation.id"), session);
    assert_eq!(turn.attribute("reseed.turn.status"), "completed");
    for (name, value) in [
        ("reseed.compaction.trigger", "threshold"),
        ("reseed.compaction.background", "false"),
        ("reseed.compaction.step", "chunked_summary"),
    ] {
        assert_eq!(compaction.attribute(name), value, "{compaction:#?}");
    }
    let requests = named("chat test");
    for (name, values) in [
        ("gen_ai.operation.name", ["chat"; 4]),
        ("gen_ai.provider.name", ["openai"; 4]),
        ("gen_ai.request.model", ["test"; 4]),
        ("gen_ai.conversation.id", [session.as_str(); 4]),
        ("gen_ai.conversation.compacted", ["false", "false", "true", "true"]),
        ("gen_ai.response.finish_reasons", ["stop", "stop", "tool_calls", "stop"]),
        ("gen_ai.usage.input_tokens", ["900", "900", "60", "70"]),
        ("gen_ai.usage.output_tokens", ["90", "90", "6", "7"]),
        ("gen_ai.usage.cache_read.input_tokens", ["0", "0", "0", "20"]),
        ("reseed.purpose", ["summary", "summary", "turn", "turn"]),
    ] {
        let found: Vec<&str> = requests.iter().map(|request| request.attribute(name)).collect();
        assert_eq!(found, values, "{name}");
    }
    assert!(requests.iter().all(|request| !request.attribute("gen_ai.response.time_to_first_chunk").is_empty()));
    assert_eq!(named("execute_tool out__do")[0].attribute("gen_ai.tool.name"), "out__do");

    // The context of each span went to the one that it called.
    let sent = |span: &Span| format!("00-{}-{}-01", span.trace, span.id);
    let asked = upstream.requests();
    let asked: Vec<&str> = asked[asked.len() - 4..].iter().map(|asked| asked.header("traceparent").unwrap()).collect();
    assert_eq!(asked, requests.iter().map(|span| sent(span)).collect::<Vec<_>>());
    let hooks = [named("hook before_compaction")[0], named("hook tool_call")[0]];
    assert_eq!(outside.contexts("/hook"), hooks.map(sent));
    let tool = sent(named("execute_tool out__do")[0]);
    assert_eq!(outside.meta(), [json!(tool)], "the field of the call");
    assert_eq!(outside.contexts("/mcp"), [tool], "the header of the call");
    let first = &upstream.requests()[0];
    assert_eq!(first.header("tracestate"), Some("a=b"));

    assert!(!outside.has(CANARY), "text was exported");
    let metrics = outside.metrics();
    for name in ["gen_ai.client.inference.duration", "reseed_turns_total", "gen_ai.client.inference.usage.input_tokens"]
    {
        assert!(metrics.contains(name), "{name} is not among {metrics:?}");
    }
}

#[tokio::test]
async fn a_compaction_in_the_background_is_linked_to_its_turn() {
    let outside = Outside::start().await;
    let endpoint = outside.url("/");
    let server = Server::start(talker(60), &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    while whole(&client.turn(&words(2, 60)).await["contextInfo"]["tokenCount"]) < 1_300 {}
    client.turn(&words(4, 80)).await;
    client.event("compaction_prepared").await;
    server.service.stop().await;
    let spans = outside.spans();
    let compactions: Vec<&Span> = spans.iter().filter(|span| span.name == "compaction").collect();
    let [compaction] = compactions[..] else { panic!("{compactions:#?}") };
    assert_eq!(compaction.parent, "");
    assert_eq!(compaction.attribute("reseed.compaction.held"), "true");
    let turn = spans.iter().find(|span| compaction.links.contains(&span.id)).expect("a link");
    assert_eq!((turn.name.as_str(), turn.parent.as_str()), ("turn", ""));
    assert_ne!(turn.trace, compaction.trace);
    // There are two requests: in this small window, one is not enough.
    assert_eq!(tree(&spans, &compaction.id, 0), "chat test\nchat test\n");
}

#[tokio::test]
async fn a_malformed_context_is_ignored() {
    let outside = Outside::start().await;
    let endpoint = outside.url("");
    let server = Server::start(talker(2), &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]).await;
    let mut client = Client::connect_with(&server.ws(), &[("traceparent", "00-1-2-3")]).await;
    client.ask("hello", json!({ "protocolVersion": 2 })).await;
    client.ask("open_session", json!({})).await;
    let malformed = [json!("00-1-2-3"), json!(""), json!(7), json!(null), json!({ "a": [CLIENT] }), json!([])];
    for traceparent in &malformed {
        let finished = turn(&mut client, "Aye?", traceparent.clone()).await;
        assert_eq!(finished["status"], "completed", "{traceparent}");
    }
    server.service.stop().await;
    let spans = outside.spans();
    let turns: Vec<&str> = spans.iter().filter(|span| span.name == "turn").map(|span| span.parent.as_str()).collect();
    assert_eq!(turns, vec![""; malformed.len()]);
}

#[tokio::test]
async fn a_request_of_a_dialect_over_http_has_its_own_context() {
    let outside = Outside::start().await;
    let endpoint = outside.url("");
    let server = Server::start(talker(2), &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]).await;
    let body = json!({ "model": "test", "input": "Aye?" }).to_string();
    let headers = [("content-type", "application/json"), ("traceparent", CLIENT)];
    let answered = http::send(&server.address(), "POST", "/v1/responses", &headers, &body).await;
    assert_eq!(answered.status, 200, "{}", answered.body);
    server.service.stop().await;
    assert_eq!(tree(&outside.spans(), &CLIENT[36..52], 0), "turn\n  chat test\n");
}

#[tokio::test]
async fn without_an_endpoint_no_context_is_sent() {
    let upstream = Upstream::start(answer).await;
    let server = Server::facing(&upstream.base_url(), &[]).await;
    let mut client = Client::connect_with(&server.ws(), &[("traceparent", CLIENT)]).await;
    client.ask("hello", json!({ "protocolVersion": 2 })).await;
    client.ask("open_session", json!({})).await;
    assert_eq!(turn(&mut client, "Aye?", json!(COMMAND)).await["status"], "completed");
    assert!(upstream.requests().iter().all(|asked| asked.header("traceparent").is_none()));
}

#[tokio::test]
async fn a_collector_that_is_away_or_silent_delays_nothing() {
    // Nobody accepts, so that what is sent is never answered.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    for endpoint in ["http://127.0.0.1:1", &silent] {
        let model: Scripted = talker(2);
        let server = Server::start(model, &[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)]).await;
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        for _ in 0..20 {
            assert_eq!(client.turn("Aye?").await["status"], "completed");
        }
        let began = Instant::now();
        server.service.stop().await;
        assert!(began.elapsed().as_secs() < 8, "{endpoint}: {:?}", began.elapsed());
    }
}
