//! Writes a request for Chat Completions.
//!
//! It uses only what every server accepts: the system prompt with role `system`, never `developer`; an assistant's
//! `content` is text or absent, never `null`; plain text stays plain text. What the dialect cannot express (reasoning)
//! is left out.

use super::parts::{forbids_calls, joined_text};
use crate::core::model::ModelRequest;
use reseed_protocol::{Message, Part, Role};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;

/// The body. It borrows from the request: a long history is serialised once, straight into the bytes sent.
#[derive(Debug, Serialize)]
pub(super) struct ChatRequest<'a> {
    model: &'a str,
    messages: Vec<ChatMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct StreamOptions {
    /// Without it no usage is streamed.
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
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
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
}

#[derive(Debug, Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: &'a str,
}

#[derive(Debug, Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: ToolFunction<'a>,
}

#[derive(Debug, Serialize)]
struct ToolFunction<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

impl<'a> ChatRequest<'a> {
    /// Builds the body. `at_openai`: OpenAI renamed the output limit; elsewhere many servers know only the old name.
    pub(super) fn new(request: &'a ModelRequest, at_openai: bool) -> Self {
        let envelope = &request.envelope;
        let system = Some(envelope.system.compiled.as_str()).filter(|text| !text.is_empty());
        let mut messages: Vec<ChatMessage<'a>> =
            system.map(|content| ChatMessage::System { content }).into_iter().collect();
        // A result of a tool has no room for images here, so they follow as a user's, once all calls have their
        // results.
        let mut images: Vec<ContentPart<'a>> = Vec::new();
        for message in request.messages() {
            if message.message.role != Role::Tool {
                flush(&mut images, &mut messages);
            }
            write(&message.message, &mut messages);
            if message.message.role == Role::Tool {
                images.extend(message.message.content.iter().filter_map(image));
            }
        }
        flush(&mut images, &mut messages);
        let limit = envelope.options.max_output_tokens;
        Self {
            model: &request.model,
            messages,
            tools: envelope
                .tools
                .iter()
                .map(|tool| Tool {
                    r#type: "function",
                    function: ToolFunction {
                        name: &tool.name,
                        description: &tool.description,
                        parameters: &tool.parameters,
                    },
                })
                .collect(),
            tool_choice: forbids_calls(request),
            stream: true,
            stream_options: StreamOptions { include_usage: true },
            temperature: envelope.options.temperature,
            max_tokens: limit.filter(|_| !at_openai),
            max_completion_tokens: limit.filter(|_| at_openai),
            reasoning_effort: envelope.options.reasoning_effort.as_deref(),
        }
    }
}

/// Adds the images of tool results as a user's message, if there are any.
fn flush<'a>(images: &mut Vec<ContentPart<'a>>, messages: &mut Vec<ChatMessage<'a>>) {
    if !images.is_empty() {
        let note = ContentPart::Text { text: "These images belong to the tool results above." };
        let parts = std::iter::once(note).chain(images.drain(..)).collect();
        messages.push(ChatMessage::User { content: Content::Parts(parts) });
    }
}

fn image(part: &Part) -> Option<ContentPart<'_>> {
    match part {
        Part::Image { url, detail } => {
            Some(ContentPart::ImageUrl { image_url: ImageUrl { url, detail: detail.as_deref() } })
        }
        _ => None,
    }
}

/// Converts one of our messages to messages of the dialect: one, none if it is empty, or one per tool result.
fn write<'a>(message: &'a Message, messages: &mut Vec<ChatMessage<'a>>) {
    match message.role {
        Role::User => messages.extend(user_content(&message.content).map(|content| ChatMessage::User { content })),
        Role::Assistant => {
            let content = joined_text(&message.content);
            let tool_calls: Vec<Call<'a>> = message
                .tool_calls()
                .map(|(id, name, arguments)| Call {
                    id: id.as_str(),
                    r#type: "function",
                    function: Function { name, arguments },
                })
                .collect();
            if content.is_some() || !tool_calls.is_empty() {
                messages.push(ChatMessage::Assistant { content, tool_calls });
            }
        }
        Role::Tool => messages.extend(message.content.iter().filter_map(|part| match part {
            Part::ToolResult { call_id, output, .. } => {
                Some(ChatMessage::Tool { tool_call_id: call_id.as_str(), content: output })
            }
            _ => None,
        })),
    }
}

/// Converts a user message: plain text stays plain, and only images make it a list, which not every server accepts.
fn user_content(parts: &[Part]) -> Option<Content<'_>> {
    if !parts.iter().any(|part| matches!(part, Part::Image { .. })) {
        return joined_text(parts).map(Content::Text);
    }
    let parts = parts.iter().filter_map(|part| match part {
        Part::Text { text } if !text.is_empty() => Some(ContentPart::Text { text }),
        part => image(part),
    });
    Some(Content::Parts(parts.collect()))
}
