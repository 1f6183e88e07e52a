//! If a server refuses a part of a request, the request is sent once more without it, and never with it again.

use super::{APIS, ask, call, hello, provider, request, result};
use crate::support::upstream::{Reply, Step, Upstream};
use reseed::{
    core::{
        model::{ModelRequest, OverflowHint},
        need::{Need, Needs, Refusal},
    },
    provider::openai::ApiChoice,
};
use reseed_protocol::{ErrorCode, Message, Part, Role, StopReason, context::ToolDefinition};
use serde_json::{Value, json};
use std::sync::Arc;

fn refusal(status: u16, message: &str) -> Reply {
    Reply::json(status, &json!({ "error": { "message": message, "type": "invalid_request_error" } }))
}

fn text(text: &str) -> Part {
    Part::Text { text: text.into() }
}

/// A request that has everything that can be refused.
fn rich() -> ModelRequest {
    let picture = Part::Image { url: "data:image/png;base64,AA==".into(), detail: None };
    let mut rich = request(vec![
        Message::new(Role::User, vec![Part::Text { text: "look".into() }, picture]),
        Message::new(Role::Assistant, vec![call("c1", "{}"), call("c2", "{}")]),
        Message::new(Role::Tool, vec![result("c1")]),
        Message::new(Role::Tool, vec![result("c2")]),
        Message::user("and now?"),
    ]);
    rich.envelope.tools = vec![ToolDefinition {
        name: "look".into(),
        description: "Looks.".into(),
        parameters: json!({ "type": "object", "properties": {} }),
    }];
    rich.envelope.options.temperature = Some(0.5);
    rich.envelope.options.max_output_tokens = Some(64);
    rich.envelope.options.reasoning_effort = Some("low".into());
    rich
}

#[tokio::test]
async fn a_refused_part_is_left_out_or_translated_from_then_on() {
    for (status, message, need) in [
        (400, "messages[0]: unknown variant `image_url`, expected `text`", Need::NoImages),
        (404, "No endpoints found that support image input", Need::NoImages),
        (422, "this endpoint does not support tools", Need::NoTools),
        (500, "tools param requires --jinja flag", Need::NoTools),
        (400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", Need::NewLimit),
        (400, "'temperature' does not support 0.5 with this model", Need::NoTemperature),
        (400, "reasoning_effort is not supported", Need::NoEffort),
        (422, "stream_options: Extra inputs are not permitted", Need::NoStreamOptions),
        (400, "Conversation roles must alternate user/assistant/user/assistant/...", Need::Alternate),
        (400, "Tool call id must be a-z, A-Z, 0-9, with a length of 9.", Need::ShortIds),
        (500, "This model only supports single tool-calls at once!", Need::OneCall),
        (400, "'messages.1.content' : value must not be missing", Need::EmptyContent),
    ] {
        // A server that fails is asked again before a part is suspected.
        let times = if status == 500 { 2 } else { 1 };
        let refusals = vec![refusal(status, message); times];
        let replies = refusals.into_iter().chain([Reply::text("yes"), Reply::text("again")]);
        let upstream = Upstream::replying(replies).await;
        let provider = provider(&upstream, ApiChoice::Chat);
        // What is refused of an option may be its value.
        let is_option = matches!(need, Need::NoTemperature | Need::NoEffort);
        let learnt = if is_option { Needs::default() } else { Needs::of(&[need]) };
        for (learnt, turn) in [(learnt, "first"), (Needs::default(), "second")] {
            let answer = ask(&provider, &rich()).await.0.unwrap();
            assert_eq!((answer.adapted, answer.learnt), (Needs::of(&[need]), learnt), "{turn} after {message}");
        }
        let sent = upstream.requests();
        assert_eq!(sent.len(), times + 2, "{message}");
        assert_ne!(sent[times - 1].body, sent[times].body, "{message}");
        assert_eq!(sent[times].body, sent[times + 1].body, "{message}");
    }
}

#[tokio::test]
async fn several_refused_parts_are_found_one_after_another() {
    let replies = [
        refusal(400, "Unknown parameter: 'stream_options'"),
        refusal(400, "image input is not supported"),
        refusal(400, "tool use is not supported"),
        Reply::text("yes"),
    ];
    let upstream = Upstream::replying(replies).await;
    let answer = ask(&provider(&upstream, ApiChoice::Chat), &rich()).await.0.unwrap();
    let expected = Needs::of(&[Need::NoStreamOptions, Need::NoImages, Need::NoTools]);
    assert_eq!((answer.adapted, answer.learnt), (expected, expected));
}

#[tokio::test]
async fn credentials_quota_and_what_was_said_are_not_tried_again() {
    for (status, message, code) in [
        (401, "the images and tools of this key are not supported", ErrorCode::UpstreamAuth),
        (402, "tools are not supported without credits", ErrorCode::UpstreamQuota),
        (400, "Your image was flagged by our safety system", ErrorCode::ContentFiltered),
        (400, "Content Exists Risk", ErrorCode::ContentFiltered),
        (400, "API key not valid. Please pass a valid API key.", ErrorCode::UpstreamAuth),
        (400, "insufficient balance: tools are not supported", ErrorCode::UpstreamQuota),
    ] {
        for api in APIS {
            let upstream = Upstream::replying([refusal(status, message)]).await;
            let fault = ask(&provider(&upstream, api), &rich()).await.0.unwrap_err();
            assert_eq!((fault.code, upstream.requests().len()), (code, 1), "{message}");
        }
    }
    // Nothing could be left out, so the request is sent only once.
    let upstream = Upstream::replying([refusal(400, "some other fault")]).await;
    let fault = ask(&provider(&upstream, ApiChoice::Chat), &hello()).await.0.unwrap_err();
    assert_eq!((fault.code, upstream.requests().len()), (ErrorCode::UpstreamRejected, 1));
}

#[tokio::test]
async fn what_is_wrong_with_one_request_is_worked_around_where_it_comes_again() {
    for (message, need) in [
        ("Could not process image", Need::NoImages),
        ("The image data you provided does not represent a valid image.", Need::NoImages),
        ("At most 1 image(s) may be provided in one prompt.", Need::NoImages),
        ("Invalid 'tools': array too long. Expected an array with maximum length 128.", Need::NoTools),
        ("max_tokens is too large: 64. This model supports at most 32 completion tokens.", Need::NoLimit),
        ("temperature: range: 0..0.1", Need::NoTemperature),
        ("Invalid value: 'low'. Supported values are: 'high'. (reasoning_effort)", Need::NoEffort),
    ] {
        let replies = [refusal(400, message), Reply::text("yes"), Reply::text("again"), Reply::text("another")];
        let upstream = Upstream::replying(replies).await;
        let provider = provider(&upstream, ApiChoice::Chat);
        let elsewhere = request(vec![Message::user("another session")]);
        let mut elsewhere = ModelRequest { envelope: rich().envelope, ..elsewhere };
        elsewhere.envelope.messages.cached.remove(0);
        // Another session with the same value of an option is refused for the same reason.
        let is_option = matches!(need, Need::NoLimit | Need::NoTemperature | Need::NoEffort);
        let adapted_elsewhere = if is_option { Needs::of(&[need]) } else { Needs::default() };
        for (asking, adapted) in
            [(rich(), Needs::of(&[need])), (rich(), Needs::of(&[need])), (elsewhere, adapted_elsewhere)]
        {
            let answer = ask(&provider, &asking).await.0.unwrap();
            assert_eq!((answer.adapted, answer.learnt), (adapted, Needs::default()), "{message}");
        }
        assert_eq!(upstream.requests().len(), 4, "{message}");
    }
}

#[tokio::test]
async fn only_the_images_that_are_new_are_left_out_where_one_is_damaged() {
    let picture = |name: &str| Part::Image { url: format!("data:image/png;base64,{name}"), detail: None };
    let said = Message { model: Some("test-model".into()), ..Message::new(Role::Assistant, vec![text("nice")]) };
    let asking = request(vec![
        Message::new(Role::User, vec![picture("AA==")]),
        said,
        Message::new(Role::User, vec![picture("BB==")]),
    ]);
    let upstream = Upstream::replying([refusal(400, ""), Reply::text("yes"), Reply::text("again")]).await;
    let provider = provider(&upstream, ApiChoice::Chat);
    for _ in 0..2 {
        assert_eq!(ask(&provider, &asking).await.0.unwrap().adapted, Needs::of(&[Need::NoImages]));
    }
    let sent: Vec<_> = upstream.requests().iter().map(|asked| asked.body.to_string()).collect();
    let shows: Vec<_> = sent.iter().map(|body| (body.contains("AA=="), body.contains("BB=="))).collect();
    assert_eq!(shows, [(true, true), (true, false), (true, false)]);
}

#[tokio::test]
async fn what_a_model_wrote_wrongly_is_asked_again_as_it_was() {
    for (status, message) in [
        (400, "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details."),
        (400, "tool call validation failed: attempted to call tool 'x' which was not in request.tools"),
        (500, "error parsing tool call: raw='{', err=unexpected end of JSON input"),
        (500, "Failed to parse input at pos 7: <tool_call>"),
    ] {
        let upstream = Upstream::replying([refusal(status, message), Reply::text("yes")]).await;
        let answer = ask(&provider(&upstream, ApiChoice::Chat), &rich()).await.0.unwrap();
        assert_eq!((answer.adapted, answer.learnt), Default::default(), "{message}");
        let sent = upstream.requests();
        assert_eq!((sent.len(), &sent[0].body), (2, &sent[1].body), "{message}");
    }
}

#[tokio::test]
async fn a_failure_in_between_teaches_nothing() {
    let overloaded = || Reply::json(503, &json!({ "error": { "message": "overloaded" } }));
    let replies = [
        refusal(400, "unknown field: images or tools are not supported"),
        overloaded(),
        refusal(400, "unknown field: tools or images are not supported"),
        Reply::text("yes"),
    ];
    let upstream = Upstream::replying(replies).await;
    let answer = ask(&provider(&upstream, ApiChoice::Chat), &rich()).await.0.unwrap();
    assert_eq!((answer.adapted, answer.learnt), (Needs::of(&[Need::NoTools]), Needs::of(&[Need::NoTools])));
}

#[tokio::test]
async fn a_page_of_a_proxy_is_no_refusal() {
    let page = |status: u16, text: &str| {
        let body = format!("<!doctype html><title>{text}</title><p>unknown content, images, tools</p>");
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
        Reply::Raw(vec![Step::Bytes([head.as_bytes(), body.as_bytes()].concat())])
    };
    let upstream = Upstream::replying([page(520, "520"), Reply::text("yes")]).await;
    let answer = ask(&provider(&upstream, ApiChoice::Chat), &rich()).await.0.unwrap();
    assert_eq!((answer.adapted, answer.learnt), Default::default());
    let sent = upstream.requests();
    assert_eq!((sent.len(), &sent[0].body), (2, &sent[1].body));
    // This is a proxy's limit of bytes. Images are what makes a body large.
    let mut large = rich();
    let picture = Part::Image { url: format!("data:image/png;base64,{}", "A".repeat(4_000)), detail: None };
    large.envelope.messages.cached[0].message = Arc::new(Message::new(Role::User, vec![picture]));
    for (asking, adapted) in [(large, Some(Needs::of(&[Need::NoImages]))), (hello(), None)] {
        let upstream = Upstream::replying([page(413, "413 Request Entity Too Large"), Reply::text("yes")]).await;
        let answer = ask(&provider(&upstream, ApiChoice::Chat), &asking).await.0;
        match (answer, adapted) {
            (Ok(answer), Some(adapted)) => assert_eq!((answer.adapted, answer.learnt), (adapted, Needs::default())),
            (Err(fault), None) => {
                assert_eq!((fault.code, fault.overflow), (ErrorCode::ContextOverflow, OverflowHint::default()));
                assert!(fault.refusal.of_bytes);
            }
            (answer, _) => panic!("{answer:?}"),
        }
    }
}

#[tokio::test]
async fn a_refusal_that_nothing_cures_names_nothing() {
    let upstream = Upstream::start(|_| refusal(400, "invalid: the content is beyond what is permitted")).await;
    let fault = ask(&provider(&upstream, ApiChoice::Chat), &rich()).await.0.unwrap_err();
    assert_eq!((fault.code, fault.refusal), (ErrorCode::UpstreamRejected, Refusal::default()));
}

#[tokio::test]
async fn a_call_goes_back_with_the_id_that_its_server_gave() {
    let replies = [Reply::text("").and_call_as(Some("D681PevKs"), "look", "{}"), Reply::text("done")];
    let upstream = Upstream::replying(replies).await;
    let provider = provider(&upstream, ApiChoice::Chat);
    let answer = ask(&provider, &hello()).await.0.unwrap();
    assert_eq!(answer.stop_reason, StopReason::ToolCalls);
    let mut said = Message::new(Role::Assistant, answer.parts);
    let ours: reseed_protocol::CallId = "k7m2q9xw4hfa".parse().unwrap();
    let mut payload = answer.payload.unwrap();
    payload.calls[0].call_id = ours.clone();
    for part in &mut said.content {
        if let Part::ToolCall { call_id, .. } = part {
            *call_id = ours.clone();
        }
    }
    said.model = Some("test-model".into());
    said.payload = Some(payload);
    let next = request(vec![Message::user("hello"), said, Message::new(Role::Tool, vec![result("k7m2q9xw4hfa")])]);
    ask(&provider, &next).await.0.unwrap();
    let body: Value = upstream.requests()[1].body.clone();
    let sent = (&body["messages"][2]["tool_calls"][0]["id"], &body["messages"][3]["tool_call_id"]);
    assert_eq!(sent, (&json!("D681PevKs"), &json!("D681PevKs")));
}
