//! What clients get from Open Responses and from conversations. Objects may have more fields than are named.
#![expect(dead_code, reason = "only the schemas of these types are used")]

use serde_json::Value;
use utoipa::ToSchema;

/// An error in OpenAI's form.
#[derive(ToSchema)]
pub(super) struct Error {
    error: ErrorContent,
}

/// Why a request failed.
#[derive(ToSchema)]
pub(super) struct ErrorContent {
    /// What is wrong, for people.
    message: String,
    /// The kind of error, such as `invalid_request_error`.
    r#type: String,
    /// The field that it is about.
    #[schema(required)]
    param: Option<String>,
    /// The cause, for programs.
    #[schema(required)]
    code: Option<String>,
}

/// A response: one turn of a session.
#[derive(ToSchema)]
pub(super) struct Response {
    /// `resp_`, the session and its entry.
    id: String,
    #[schema(pattern = "^response$")]
    object: String,
    /// Seconds since 1970.
    created_at: u64,
    #[schema(required)]
    completed_at: Option<u64>,
    status: Status,
    #[schema(required)]
    incomplete_details: Option<Reason>,
    model: String,
    #[schema(required)]
    previous_response_id: Option<String>,
    #[schema(required)]
    instructions: Option<String>,
    output: Vec<Item>,
    #[schema(required)]
    error: Option<Failed>,
    #[schema(value_type = Vec<Object>)]
    tools: Vec<Value>,
    tool_choice: Value,
    truncation: String,
    parallel_tool_calls: bool,
    text: Text,
    top_p: f64,
    presence_penalty: f64,
    frequency_penalty: f64,
    temperature: f64,
    top_logprobs: u64,
    #[schema(required, value_type = Option<Object>)]
    reasoning: Option<Value>,
    #[schema(required)]
    usage: Option<Usage>,
    #[schema(required)]
    max_output_tokens: Option<u64>,
    #[schema(required)]
    max_tool_calls: Option<u64>,
    store: bool,
    background: bool,
    service_tier: String,
    #[schema(value_type = Object)]
    metadata: Value,
    #[schema(required)]
    safety_identifier: Option<String>,
    #[schema(required)]
    prompt_cache_key: Option<String>,
    conversation: Option<Named>,
}

/// How far a response is.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum Status {
    InProgress,
    Completed,
    Incomplete,
    Cancelled,
    Failed,
}

/// Why a response is incomplete.
#[derive(ToSchema)]
pub(super) struct Reason {
    /// `max_output_tokens` or `content_filter`.
    reason: String,
}

/// Why a response failed.
#[derive(ToSchema)]
pub(super) struct Failed {
    code: String,
    message: String,
}

/// The form of the answer's text.
#[derive(ToSchema)]
pub(super) struct Text {
    format: Format,
}

/// The format of a text.
#[derive(ToSchema)]
pub(super) struct Format {
    /// `text`, `json_object` or `json_schema`.
    r#type: String,
}

/// The tokens of a response.
#[derive(ToSchema)]
pub(super) struct Usage {
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
    input_tokens_details: InputDetails,
    output_tokens_details: OutputDetails,
}

/// The input's tokens that came from the provider's cache.
#[derive(ToSchema)]
pub(super) struct InputDetails {
    cached_tokens: u64,
}

/// The output's tokens that were reasoning.
#[derive(ToSchema)]
pub(super) struct OutputDetails {
    reasoning_tokens: u64,
}

/// Something that has an id.
#[derive(ToSchema)]
pub(super) struct Named {
    id: String,
}

/// An item: a message, reasoning, a call, a result, an approval or a compaction.
#[derive(ToSchema)]
pub(super) struct Item {
    r#type: String,
    id: String,
}

/// An event of a response.
#[derive(ToSchema)]
pub(super) struct Event {
    /// Its type, such as `response.output_text.delta`.
    r#type: String,
    /// Its place in the response; absent for `error`.
    sequence_number: Option<u64>,
}

/// A page of items.
#[derive(ToSchema)]
pub(super) struct ItemList {
    #[schema(pattern = "^list$")]
    object: String,
    data: Vec<Item>,
    #[schema(required)]
    first_id: Option<String>,
    #[schema(required)]
    last_id: Option<String>,
    has_more: bool,
}

/// A compaction for a new chain.
#[derive(ToSchema)]
pub(super) struct CompactedResponse {
    id: String,
    #[schema(pattern = "^response.compaction$")]
    object: String,
    /// Seconds since 1970.
    created_at: u64,
    output: Vec<Compaction>,
    usage: Usage,
}

/// A compaction: send it back as it is.
#[derive(ToSchema)]
pub(super) struct Compaction {
    #[schema(pattern = "^compaction$")]
    r#type: String,
    id: String,
    /// The sealed summary.
    encrypted_content: String,
    /// The summary, to read.
    summary: String,
}

/// The tokens of a request.
#[derive(ToSchema)]
pub(super) struct InputTokens {
    #[schema(pattern = "^response.input_tokens$")]
    object: String,
    input_tokens: u64,
}

/// Something that was deleted.
#[derive(ToSchema)]
pub(super) struct Deleted {
    id: String,
    object: String,
    deleted: bool,
}

/// A model.
#[derive(ToSchema)]
pub(super) struct Model {
    id: String,
    #[schema(pattern = "^model$")]
    object: String,
    created: u64,
    owned_by: String,
    /// Its context window in tokens, if it is known.
    context_window: Option<u64>,
}

/// The models.
#[derive(ToSchema)]
pub(super) struct ModelList {
    #[schema(pattern = "^list$")]
    object: String,
    data: Vec<Model>,
}

/// A conversation.
#[derive(ToSchema)]
pub(super) struct Conversation {
    /// `conv_` and the session.
    id: String,
    #[schema(pattern = "^conversation$")]
    object: String,
    /// Seconds since 1970.
    created_at: u64,
    #[schema(value_type = Object)]
    metadata: Value,
}

/// How full the window is: `context_info` of v2.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct Context {
    token_count: u64,
    max_tokens: u64,
}

/// A compaction of a conversation.
#[derive(ToSchema)]
pub(super) struct CompactedConversation {
    id: String,
    #[schema(pattern = "^conversation.compaction$")]
    object: String,
    summary: String,
    context: Context,
}

/// What a compaction would do: `compaction_preview` of v2, without what only its connection could apply.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct Preview {
    /// The step of the fallback chain that would make it.
    rung: String,
    summary: Option<String>,
    tokens_before: u64,
    tokens_after: u64,
}

/// The end of a branch.
#[derive(ToSchema)]
pub(super) struct Branch {
    #[schema(required)]
    id: Option<String>,
    #[schema(pattern = "^conversation.branch$")]
    object: String,
    conversation: String,
    is_current: bool,
}

/// The ends of the branches.
#[derive(ToSchema)]
pub(super) struct BranchList {
    #[schema(pattern = "^list$")]
    object: String,
    data: Vec<Branch>,
    has_more: bool,
}
