//! What clients of Chat Completions and of the AI SDK send and get. Objects may have more fields than are named.
#![expect(dead_code, reason = "only the schemas of these types are used")]

use serde_json::Value;
use utoipa::ToSchema;

/// A list of messages to answer.
#[derive(ToSchema)]
pub(super) struct ChatRequest {
    model: String,
    /// All messages, as always with this API. What the server knows is not sent to the model again.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Value>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    #[schema(value_type = Option<Object>)]
    response_format: Option<Value>,
    #[schema(maximum = 2, minimum = 0)]
    temperature: Option<f64>,
    #[schema(maximum = 1, minimum = 0)]
    top_p: Option<f64>,
    max_completion_tokens: Option<u64>,
    reasoning_effort: Option<String>,
    /// Keeps conversations apart that begin with the same message.
    prompt_cache_key: Option<String>,
    /// Only 1.
    n: Option<u64>,
}

/// Options of a stream.
#[derive(ToSchema)]
pub(super) struct StreamOptions {
    /// Sends the usage at the end.
    include_usage: Option<bool>,
}

/// An answer.
#[derive(ToSchema)]
pub(super) struct ChatCompletion {
    id: String,
    #[schema(pattern = "^chat.completion$")]
    object: String,
    /// Seconds since 1970.
    created: u64,
    model: String,
    choices: Vec<Choice>,
    #[schema(required)]
    usage: Option<ChatUsage>,
}

/// The only choice.
#[derive(ToSchema)]
pub(super) struct Choice {
    index: u64,
    message: ChatMessage,
    /// `stop`, `length`, `tool_calls` or `content_filter`.
    finish_reason: String,
}

/// The message of an answer.
#[derive(ToSchema)]
pub(super) struct ChatMessage {
    role: String,
    #[schema(required)]
    content: Option<String>,
    #[schema(value_type = Option<Vec<Object>>)]
    tool_calls: Option<Vec<Value>>,
}

/// What the provider counted.
#[derive(ToSchema)]
pub(super) struct ChatUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

/// A piece of an answer.
#[derive(ToSchema)]
pub(super) struct ChatCompletionChunk {
    id: String,
    #[schema(pattern = "^chat.completion.chunk$")]
    object: String,
    created: u64,
    model: String,
    #[schema(value_type = Vec<Object>)]
    choices: Vec<Value>,
}

/// A message of the AI SDK.
#[derive(ToSchema)]
pub(super) struct UiMessage {
    id: String,
    role: String,
    #[schema(value_type = Vec<Object>)]
    parts: Vec<Value>,
}
