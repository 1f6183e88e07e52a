//! Writes a request for Chat Completions.
//!
//! It uses only what every server accepts. The system prompt has the role `system`, never `developer`. An assistant's
//! `content` is a string or absent, unless the model needs something else. Plain text stays a plain string. Reasoning
//! is sent back only to the server that produced it, in the field in which it came.

use super::{
    answer_form::{SchemaForm, ToolChoiceForm, tool_choice},
    options::Api,
    parts::joined_text,
};
use crate::{
    core::need::Need,
    provider::{adapt::Plan, upstream::Fields},
};
use reseed_protocol::{CallId, Message, Part, Role, context::ToolDefinition};
use serde::Serialize;
use std::borrow::Cow;

/// Replaces reasoning for an answer that has none from this server.
const NO_REASONING: &str = "(not recorded)";
/// The signature that Google documents for calls made by another model.
const UNSIGNED: &str = r#"{"extra_content":{"google":{"thought_signature":"skip_thought_signature_validator"}}}"#;

/// The body. It borrows from the request, so that a long history is serialised once, directly into the sent bytes.
#[derive(Debug, Serialize)]
pub(super) struct ChatRequest<'a> {
    model: &'a str,
    messages: Vec<ChatMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<ToolChoiceForm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<ResponseFormat<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat<'a> {
    JsonObject,
    JsonSchema { json_schema: SchemaForm<'a> },
}

#[derive(Debug, Serialize)]
struct StreamOptions {
    /// Without this, usage is not streamed.
    include_usage: bool,
}

#[derive(Debug, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum ChatMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Content<'a>,
    },
    Assistant {
        /// The inner value is `null` if absent.
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<Option<Cow<'a, str>>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
        /// Fields that the server has sent for its own use.
        #[serde(flatten)]
        own: Fields,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<ContentPart<'a>>),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentPart<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: ImageUrl<'a> },
}

#[derive(Debug, Serialize)]
struct ImageUrl<'a> {
    url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Call<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Function<'a>,
    /// Fields that the server has sent for its own use.
    #[serde(flatten)]
    own: Fields,
}

#[derive(Debug, Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: &'a str,
}

#[derive(Debug, Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: &'a ToolDefinition,
}

impl<'a> ChatRequest<'a> {
    /// Builds the body.
    pub(super) fn new(plan: &'a Plan<'a>) -> Self {
        let envelope = &plan.request.envelope;
        let system = plan.system.as_deref().map(|content| ChatMessage::System { content });
        let mut messages: Vec<ChatMessage<'a>> = system.into_iter().collect();
        for message in &plan.messages {
            write(message, plan, &mut messages);
        }
        let tool = |function| Tool { r#type: "function", function };
        let limit = plan.output_limit();
        let is_new = limit.is_some() && !plan.does(Need::OldLimit) && plan.does(Need::NewLimit);
        Self {
            model: plan.model,
            messages,
            tools: if plan.has_tools() { envelope.tools.iter().map(tool).collect() } else { Vec::new() },
            tool_choice: tool_choice(plan, Api::Chat),
            parallel_tool_calls: plan.parallel_calls(),
            stream: true,
            stream_options: (!plan.does(Need::NoStreamOptions)).then_some(StreamOptions { include_usage: true }),
            temperature: plan.temperature(),
            max_tokens: limit.filter(|_| !is_new),
            max_completion_tokens: limit.filter(|_| is_new),
            top_p: plan.top_p(),
            logprobs: plan.top_logprobs().map(|_| true),
            top_logprobs: plan.top_logprobs().filter(|count| *count > 0),
            response_format: plan.format().map(|format| match SchemaForm::of(format) {
                None => ResponseFormat::JsonObject,
                Some(json_schema) => ResponseFormat::JsonSchema { json_schema },
            }),
            reasoning_effort: plan.effort(),
        }
    }
}

/// Converts one of our messages to the dialect: to one message, to none if it is empty, or to one per tool result.
fn write<'a>(message: &'a Message, plan: &'a Plan<'a>, messages: &mut Vec<ChatMessage<'a>>) {
    match message.role {
        Role::User => messages.extend(user_content(&message.content).map(|content| ChatMessage::User { content })),
        Role::Assistant => {
            let text = joined_text(&message.content);
            let tool_calls: Vec<Call<'a>> = message
                .tool_calls()
                .map(|(id, name, arguments)| Call {
                    id: plan.ids.of_call(id),
                    r#type: "function",
                    function: Function { name, arguments },
                    own: own_of_call(message, id, plan),
                })
                .collect();
            if text.is_some() || !tool_calls.is_empty() {
                let content = match text {
                    Some(text) => Some(Some(text)),
                    None if plan.does(Need::EmptyContent) => Some(Some(Cow::Borrowed(""))),
                    None if plan.does(Need::NullContent) => Some(None),
                    None => None,
                };
                messages.push(ChatMessage::Assistant { content, tool_calls, own: own_of(message, plan) });
            }
        }
        Role::Tool => messages.extend(message.content.iter().filter_map(|part| match part {
            Part::ToolResult { call_id, output, .. } => {
                Some(ChatMessage::Tool { tool_call_id: plan.ids.of_call(call_id), content: output })
            }
            _ => None,
        })),
    }
}

/// Returns the fields that are sent back with an answer.
fn own_of(message: &Message, plan: &Plan<'_>) -> Fields {
    let own = plan.own(message);
    let mut fields = own.and_then(|own| own.fields.as_deref()).map(Fields::of).unwrap_or_default();
    let thought: String = message
        .content
        .iter()
        .filter_map(|part| match part {
            Part::Reasoning { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    let field = own.and_then(|own| own.reasoning.as_deref()).filter(|_| !thought.is_empty());
    if let Some(field) = field {
        fields.put_text(field, &thought);
    } else if message.tool_calls().next().is_some() && plan.does(Need::ReasoningBack) {
        fields.put_text("reasoning_content", NO_REASONING);
    }
    fields
}

/// Returns the fields that are sent back with a call.
fn own_of_call(message: &Message, id: &CallId, plan: &Plan<'_>) -> Fields {
    let own = plan.own(message).and_then(|own| own.calls.iter().find(|call| call.call_id == *id));
    let fields = own.and_then(|own| own.fields.as_deref()).map(Fields::of).unwrap_or_default();
    if fields.is_empty() && plan.does(Need::Signature) {
        return Fields::of(UNSIGNED);
    }
    fields
}

/// Converts a user message. Only images make it a list, because not every server accepts one.
fn user_content(parts: &[Part]) -> Option<Content<'_>> {
    if !parts.iter().any(|part| matches!(part, Part::Image { .. })) {
        return joined_text(parts).map(Content::Text);
    }
    let parts = parts.iter().filter_map(|part| match part {
        Part::Text { text } if !text.is_empty() => Some(ContentPart::Text { text }),
        Part::Image { url, detail } => {
            Some(ContentPart::ImageUrl { image_url: ImageUrl { url, detail: detail.as_deref() } })
        }
        _ => None,
    });
    Some(Content::Parts(parts.collect()))
}
