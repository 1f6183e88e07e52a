//! The shapes in which the bytes of an answer arrive: as any type, whole, cut anywhere; and faults that are
//! reported before the first word.

use super::{APIS, Shown, ask, hello, options, provider, request};
use crate::support::upstream::{Reply, Step, Upstream};
use reseed::provider::{
    Provider,
    openai::{ApiChoice, OpenAi},
};
use reseed_protocol::{ErrorCode, Message, Part, context::ToolDefinition};
use serde_json::{Value, json};

const EVENTS: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"A ship: 🚢.\"}}]}\n\n\
                      data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// Returns a response with these headers, whose body is sent in chunks.
fn response(headers: &str, chunks: &[&[u8]]) -> Reply {
    let mut bytes = format!("HTTP/1.1 200 OK\r\n{headers}transfer-encoding: chunked\r\n\r\n").into_bytes();
    for chunk in chunks {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    Reply::Raw(vec![Step::Bytes(bytes)])
}

#[tokio::test]
async fn an_answer_is_read_under_any_type_and_cut_anywhere() {
    let whole = json!({ "object": "chat.completion", "choices": [{ "message": { "content": "A ship: 🚢." }, "finish_reason": "stop" }] });
    let whole = whole.to_string();
    let returns = EVENTS.replace('\n', "\r");
    let bytes: Vec<&[u8]> = EVENTS.as_bytes().chunks(1).collect();
    for (name, reply) in [
        ("no type", response("", &[EVENTS.as_bytes()])),
        ("text", response("content-type: text/plain; charset=utf-8\r\n", &[EVENTS.as_bytes()])),
        ("lines", response("content-type: application/x-ndjson\r\n", &[EVENTS.as_bytes()])),
        ("json", response("content-type: application/json\r\n", &[EVENTS.as_bytes()])),
        ("a page", response("content-type: text/html\r\n", &[EVENTS.as_bytes()])),
        ("bytes", response("content-type: text/event-stream\r\n", &bytes)),
        ("carriage returns", response("", &[returns.as_bytes()])),
        ("whole", response("content-type: application/json\r\n", &[whole.as_bytes()])),
        ("whole as a stream", response("content-type: text/event-stream\r\n", &[whole.as_bytes()])),
    ] {
        let upstream = Upstream::replying([reply]).await;
        let (answer, shown) = ask(&provider(&upstream, ApiChoice::Chat), &hello()).await;
        let answer = answer.unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!(answer.parts, [Part::Text { text: "A ship: 🚢.".into() }], "{name}");
        assert_eq!(shown.0, ["A ship: 🚢."], "{name}");
    }
}

#[tokio::test]
async fn a_fault_before_the_first_word_is_asked_again_like_its_status() {
    let event = |event: Value| format!("data: {event}\n\n");
    let role = event(json!({ "choices": [{ "delta": { "role": "assistant", "content": "" } }] }));
    let word = event(json!({ "choices": [{ "delta": { "content": "Well" } }] }));
    let error = |code: u16| event(json!({ "choices": [], "error": { "code": code, "message": "x" } }));
    let ends = |reason: &str| event(json!({ "choices": [{ "delta": {}, "finish_reason": reason }] }));
    for (name, stream, then, code, asked) in [
        ("502", error(502), vec![], ErrorCode::UpstreamError, 4),
        ("429", error(429), vec![], ErrorCode::UpstreamRateLimited, 4),
        ("401", error(401), vec![], ErrorCode::UpstreamAuth, 1),
        ("a role, then 503", role.clone() + &error(503), vec![], ErrorCode::UpstreamOverloaded, 4),
        ("a role, then the end", role.clone(), vec![], ErrorCode::UpstreamTruncated, 4),
        ("a role, then a reset", role.clone(), vec![Step::Reset], ErrorCode::UpstreamUnreachable, 4),
        ("a role, then given up", role + &ends("network_error"), vec![], ErrorCode::UpstreamError, 4),
        ("a word, then 502", word.clone() + &error(502), vec![], ErrorCode::UpstreamError, 1),
        ("a word, then the end", word, vec![], ErrorCode::UpstreamTruncated, 1),
    ] {
        let upstream = Upstream::start(move |_| Reply::Stream(stream.clone(), then.clone())).await;
        let (answer, _) = ask(&provider(&upstream, ApiChoice::Chat), &hello()).await;
        assert_eq!((answer.unwrap_err().code, upstream.requests().len()), (code, asked), "{name}");
    }
}

#[tokio::test]
async fn the_names_of_the_tools_tell_pieces_of_a_name_from_another_call() {
    let call = |name: &str| {
        let call = json!({ "index": 0, "function": { "name": name, "arguments": "" } });
        format!("data: {}\n\n", json!({ "choices": [{ "delta": { "tool_calls": [call] } }] }))
    };
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n";
    let mut asking = request(vec![Message::user("hello")]);
    asking.envelope.tools = ["look", "now"]
        .map(|name| ToolDefinition {
            name: name.into(),
            description: String::new(),
            parameters: json!({ "type": "object", "properties": {} }),
        })
        .to_vec();
    for (names, expected) in [(["lo", "ok"], vec!["look()"]), (["look", "now"], vec!["look()", "now()"])] {
        let body = names.map(call).concat() + end;
        let upstream = Upstream::start(move |_| Reply::Stream(body.clone(), vec![])).await;
        let mut shown = Shown::default();
        let provider = OpenAi::new(options(upstream.base_url(), ApiChoice::Chat)).unwrap();
        let answer = provider.answer(&asking, &mut shown).await.unwrap();
        assert_eq!((answer.parts.len(), shown.0), (expected.len(), expected.iter().map(|&e| e.to_owned()).collect()));
    }
}

#[tokio::test]
async fn a_value_that_is_no_answer_is_malformed() {
    for api in APIS {
        for body in [r#"{"fine":true}"#, "[]", r#"{"choices":[]}"#] {
            let upstream = Upstream::start(move |_| Reply::error(200, body)).await;
            let fault = ask(&provider(&upstream, api), &hello()).await.0.unwrap_err();
            assert_eq!(fault.code, ErrorCode::UpstreamMalformed, "{body}");
        }
    }
}
