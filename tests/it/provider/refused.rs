//! A server that refuses a part of a request is asked once more without it, and never with it again.

use super::{APIS, ask, call, hello, provider, request, result};
use crate::support::upstream::{Reply, Upstream};
use reseed::{
    core::{
        model::ModelRequest,
        need::{Need, Needs},
    },
    provider::openai::ApiChoice,
};
use reseed_protocol::{ErrorCode, Message, Part, Role, StopReason, context::ToolDefinition};
use serde_json::{Value, json};

fn refusal(status: u16, message: &str) -> Reply {
    Reply::json(status, &json!({ "error": { "message": message, "type": "invalid_request_error" } }))
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
        let upstream = Upstream::replying([refusal(status, message), Reply::text("yes"), Reply::text("again")]).await;
        let provider = provider(&upstream, ApiChoice::Chat);
        for (learnt, turn) in [(Needs::of(&[need]), "first"), (Needs::default(), "second")] {
            let answer = ask(&provider, &rich()).await.0.unwrap();
            assert_eq!((answer.adapted, answer.learnt), (Needs::of(&[need]), learnt), "{turn} after {message}");
        }
        let sent = upstream.requests();
        assert_eq!(sent.len(), 3, "{message}");
        assert_ne!(sent[0].body, sent[1].body, "{message}");
        assert_eq!(sent[1].body, sent[2].body, "{message}");
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
        (400, "Your image was flagged by our safety system", ErrorCode::UpstreamRejected),
    ] {
        for api in APIS {
            let upstream = Upstream::replying([refusal(status, message)]).await;
            let fault = ask(&provider(&upstream, api), &rich()).await.0.unwrap_err();
            assert_eq!((fault.code, upstream.requests().len()), (code, 1), "{message}");
        }
    }
    // Nothing that could be left out: asked once.
    let upstream = Upstream::replying([refusal(400, "some other fault")]).await;
    let fault = ask(&provider(&upstream, ApiChoice::Chat), &hello()).await.0.unwrap_err();
    assert_eq!((fault.code, upstream.requests().len()), (ErrorCode::UpstreamRejected, 1));
}

#[tokio::test]
async fn a_damaged_image_is_left_out_of_its_request_alone() {
    let upstream = Upstream::replying([refusal(400, "Could not process image"), Reply::text("yes")]).await;
    let answer = ask(&provider(&upstream, ApiChoice::Chat), &rich()).await.0.unwrap();
    assert_eq!((answer.adapted, answer.learnt), (Needs::of(&[Need::NoImages]), Needs::default()));
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
