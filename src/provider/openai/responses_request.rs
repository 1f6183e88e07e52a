//! Writes a request for the Responses API.
//!
//! Each request contains the whole conversation. `previous_response_id` would tie the session to state that the
//! provider keeps, and many servers refuse it. OpenAI is asked to store nothing, and returns reasoning encrypted.

use super::{
    answer_form::{SchemaForm, ToolChoiceForm, tool_choice},
    options::Api,
    parts::joined_text,
};
use crate::{core::need::Need, provider::adapt::Plan};
use reseed_protocol::{Message, Part, Role, context::ToolDefinition};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;

/// The body. It borrows from the request, so that a long history is serialised once, directly into the sent bytes.
#[derive(Debug, Serialize)]
pub(super) struct ResponsesRequest<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    input: Vec<Item<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<ToolChoiceForm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    include: Option<[&'static str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_options: Option<CacheOptions<'a>>,
}

/// Options of the provider's cache.
#[derive(Debug, Serialize)]
struct CacheOptions<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison_response_id: Option<&'a str>,
    /// True if the request only fills the cache.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    prewarm: bool,
}

#[derive(Debug, Serialize)]
struct Text<'a> {
    format: TextFormat<'a>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum TextFormat<'a> {
    JsonObject,
    JsonSchema(SchemaForm<'a>),
}

#[derive(Debug, Serialize)]
struct Reasoning<'a> {
    effort: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Item<'a> {
    Ours(OurItem<'a>),
    /// The provider's own item, sent back unchanged.
    Theirs(&'a Value),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum OurItem<'a> {
    Message { role: &'static str, content: Vec<Content<'a>> },
    FunctionCall { call_id: &'a str, name: &'a str, arguments: &'a str },
    FunctionCallOutput { call_id: &'a str, output: Output<'a> },
}

/// A tool's output. Only images make it a list, because not every server accepts one.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Output<'a> {
    Text(&'a str),
    Parts(Vec<Content<'a>>),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Content<'a> {
    InputText {
        text: &'a str,
    },
    OutputText {
        text: Cow<'a, str>,
    },
    InputImage {
        image_url: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'a str>,
    },
}

#[derive(Debug, Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    #[serde(flatten)]
    definition: &'a ToolDefinition,
    /// Strict is the default of this API and refuses most schemas that people write.
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

impl<'a> ResponsesRequest<'a> {
    /// Builds the body. With `at_openai`, it asks OpenAI to store nothing and to encrypt reasoning, so that it can be
    /// sent back. Other servers may not know these fields.
    pub(super) fn new(plan: &'a Plan<'a>, at_openai: bool) -> Self {
        let envelope = &plan.request.envelope;
        let strict = (plan.has_tools() && !plan.does(Need::NoStrict)).then_some(false);
        let tool = |definition| Tool { r#type: "function", definition, strict };
        let comparison_response_id = plan.comparison().and_then(|comparison| comparison.with);
        let prewarm = plan.request.only_fills_cache();
        let seals = at_openai && !plan.does(Need::NoSealed);
        Self {
            model: plan.model,
            instructions: plan.system.as_deref(),
            input: input(plan),
            tools: if plan.has_tools() { envelope.tools.iter().map(tool).collect() } else { Vec::new() },
            tool_choice: tool_choice(plan, Api::Responses),
            parallel_tool_calls: plan.parallel_calls(),
            stream: !prewarm,
            store: at_openai.then_some(false),
            include: seals.then_some(["reasoning.encrypted_content"]),
            temperature: plan.temperature(),
            max_output_tokens: plan.output_limit(),
            top_p: plan.top_p(),
            text: plan.format().map(|format| Text {
                format: SchemaForm::of(format).map_or(TextFormat::JsonObject, TextFormat::JsonSchema),
            }),
            reasoning: plan.effort().map(|effort| Reasoning { effort }),
            prompt_cache_options: (prewarm || comparison_response_id.is_some())
                .then_some(CacheOptions { comparison_response_id, prewarm }),
        }
    }
}

/// Returns the items of a request: the provider's own form of the summary, then the messages.
pub(super) fn input<'a>(plan: &'a Plan<'a>) -> Vec<Item<'a>> {
    let mut input: Vec<Item<'a>> = plan.native.iter().map(Item::Theirs).collect();
    for message in &plan.messages {
        write(message, plan, &mut input);
    }
    input
}

/// Converts one of our messages to items, in the order of its parts.
fn write<'a>(message: &'a Message, plan: &'a Plan<'a>, input: &mut Vec<Item<'a>>) {
    match message.role {
        Role::User => {
            let content: Vec<Content<'a>> = message.content.iter().filter_map(user_content).collect();
            if !content.is_empty() {
                input.push(Item::Ours(OurItem::Message { role: "user", content }));
            }
        }
        Role::Assistant => {
            let readable = plan.can_unseal(message);
            let first = input.len();
            // Consecutive texts become one message. A call or reasoning between them keeps its position.
            for run in message.content.chunk_by(|a, b| is_text(a) && is_text(b)) {
                input.extend(assistant_item(run, readable, plan));
            }
            // Reasoning is refused without the item that it led to.
            while input.len() > first && matches!(input.last(), Some(Item::Theirs(_))) {
                input.pop();
            }
        }
        Role::Tool => {
            let images: Vec<&Part> = message.content.iter().filter(|part| matches!(part, Part::Image { .. })).collect();
            let mut images = images.into_iter();
            input.extend(message.content.iter().filter_map(|part| match part {
                Part::ToolResult { call_id, output, .. } => {
                    let pictures: Vec<Content<'a>> = images.by_ref().filter_map(user_content).collect();
                    let output = match pictures.is_empty() {
                        true => Output::Text(output),
                        false => {
                            let text = (!output.is_empty()).then_some(Content::InputText { text: output });
                            Output::Parts(text.into_iter().chain(pictures).collect())
                        }
                    };
                    Some(Item::Ours(OurItem::FunctionCallOutput { call_id: plan.ids.of_call(call_id), output }))
                }
                _ => None,
            }));
        }
    }
}

fn is_text(part: &Part) -> bool {
    matches!(part, Part::Text { .. })
}

fn assistant_item<'a>(run: &'a [Part], readable: bool, plan: &'a Plan<'a>) -> Option<Item<'a>> {
    match run.first()? {
        Part::Text { .. } => joined_text(run).map(|text| {
            Item::Ours(OurItem::Message { role: "assistant", content: vec![Content::OutputText { text }] })
        }),
        Part::Reasoning { payload: Some(payload), .. } if readable => Some(Item::Theirs(payload)),
        Part::ToolCall { call_id, name, arguments } => {
            Some(Item::Ours(OurItem::FunctionCall { call_id: plan.ids.of_call(call_id), name, arguments }))
        }
        Part::Reasoning { .. } | Part::Image { .. } | Part::ToolResult { .. } => None,
    }
}

fn user_content(part: &Part) -> Option<Content<'_>> {
    match part {
        Part::Text { text } if !text.is_empty() => Some(Content::InputText { text }),
        Part::Image { url, detail } => Some(Content::InputImage { image_url: url, detail: detail.as_deref() }),
        _ => None,
    }
}
