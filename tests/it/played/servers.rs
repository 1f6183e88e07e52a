//! The simulated servers. Each rule is one that the real server has, in its own words. The comment at a server
//! describes what is known of it.

use super::{
    engine::{Calls, Overflow, Played, Style, Thoughts, UsageIn},
    rules::{Forbids, rule, rule_of},
};

/// The models of a server whose list has no windows.
const PLAIN_LIST: &str =
    r#"{"object":"list","data":[{"id":"first","object":"model"},{"id":"second","object":"model"}]}"#;
const MODELS: [&str; 2] = ["first", "second"];

/// A style that most servers share.
const PLAIN: Style = Style {
    head: "",
    line_end: "\n",
    reasoning: Thoughts::Field("reasoning_content"),
    calls: Calls::Pieces,
    id: |n| format!("call_{n:024}"),
    reasons: ["stop", "tool_calls"],
    usage: UsageIn::LastChunk,
};

/// Models that reason accept neither the old name of the output limit nor a temperature. Ids have at most 40
/// characters. The stream begins with the filter's results.
pub(crate) const AZURE: Played = Played {
    name: "Azure",
    models: MODELS,
    list: PLAIN_LIST,
    rules: &[
        rule(
            Forbids::Field("max_tokens"),
            400,
            r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}"#,
        ),
        rule(
            Forbids::Field("temperature"),
            400,
            r#"{"error":{"message":"Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported.","type":"invalid_request_error","param":"temperature","code":"unsupported_value"}}"#,
        ),
        rule(
            Forbids::LongIds,
            400,
            r#"{"error":{"message":"Invalid 'messages[{}].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 46 instead.","type":"invalid_request_error","param":"messages[{}].tool_calls[0].id","code":"string_above_max_length"}}"#,
        ),
        rule(
            Forbids::BareSchema,
            400,
            r#"{"error":{"message":"Invalid schema for function 'look': In context=(), object schema missing properties.","type":"invalid_request_error","param":"tools[0].function.parameters","code":"invalid_function_parameters"}}"#,
        ),
        rule_of(
            "second",
            Forbids::Field("stream_options"),
            400,
            r#"{"error":{"message":"Unrecognized request argument supplied: stream_options","type":"invalid_request_error","param":null,"code":null}}"#,
        ),
    ],
    style: Style {
        head: "data: {\"choices\":[],\"created\":0,\"id\":\"\",\"model\":\"\",\"object\":\"\",\"prompt_filter_results\":[{\"prompt_index\":0,\"content_filter_results\":{}}]}\n\n",
        reasoning: Thoughts::Nowhere,
        ..PLAIN
    },
    overflow: Overflow::Refused(
        400,
        r#"{"error":{"message":"This model's maximum context length is {w} tokens. However, your messages resulted in {n} tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
    ),
};

/// Ids have nine letters and digits. No user message follows a result. Unknown fields are refused. Reasoning models
/// send lists as content.
pub(crate) const MISTRAL: Played = Played {
    name: "Mistral",
    models: MODELS,
    list: r#"{"object":"list","data":[{"id":"first","max_context_length":32768},{"id":"second","max_context_length":32768}]}"#,
    rules: &[
        rule(
            Forbids::IdsNotOfNine,
            400,
            r#"{"object":"error","message":"Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.","type":"invalid_function_call","param":null,"code":"3280"}"#,
        ),
        rule(
            Forbids::UserAfterTool,
            400,
            r#"{"object":"error","message":"Unexpected role 'user' after role 'tool'","type":"invalid_request_message_order","param":null,"code":"3230"}"#,
        ),
        rule(
            Forbids::Field("stream_options"),
            422,
            r#"{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted","input":{"include_usage":true}}]}"#,
        ),
        rule(
            Forbids::Field("max_completion_tokens"),
            422,
            r#"{"detail":[{"type":"extra_forbidden","loc":["body","max_completion_tokens"],"msg":"Extra inputs are not permitted","input":500}]}"#,
        ),
        rule(
            Forbids::Field("reasoning_effort"),
            422,
            r#"{"detail":[{"type":"extra_forbidden","loc":["body","reasoning_effort"],"msg":"Extra inputs are not permitted","input":"low"}]}"#,
        ),
        rule_of(
            "second",
            Forbids::Images,
            400,
            r#"{"object":"error","message":"Image input is not enabled for this model","type":"invalid_request_image","param":null,"code":"3051"}"#,
        ),
    ],
    style: Style {
        reasoning: Thoughts::Content,
        calls: Calls::Whole,
        id: |n| format!("D681P{n:04}"),
        usage: UsageIn::Finish,
        ..PLAIN
    },
    overflow: Overflow::Refused(
        400,
        r#"{"object":"error","message":"Prompt contains {n} tokens and 0 draft tokens, too large for model with {w} maximum context length","type":"invalid_request_prompt","param":null,"code":"3051"}"#,
    ),
};

/// Reasoning must be sent back with the calls of the turn. Images are refused. The reasoner accepts no consecutive
/// messages of one role.
pub(crate) const DEEPSEEK: Played = Played {
    name: "DeepSeek",
    models: MODELS,
    list: PLAIN_LIST,
    rules: &[
        rule(
            Forbids::Images,
            400,
            r#"{"error":{"message":"Failed to deserialize the JSON body into the target type: messages[{}]: unknown variant `image_url`, expected `text` at line 1 column 300","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
        ),
        rule(
            Forbids::LostField("reasoning_content"),
            400,
            r#"{"error":{"message":"Missing `reasoning_content` field in the assistant message at message index {}. For more information, please refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
        ),
        rule(
            Forbids::ForeignIds,
            400,
            r#"{"error":{"message":"Invalid tool_call_id in messages[{}]","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
        ),
        rule_of(
            "second",
            Forbids::SameRoleTwice,
            400,
            r#"{"error":{"message":"deepseek-reasoner does not support successive user or assistant messages (messages[{}] in your input). You should interleave the user/assistant messages in the message sequence.","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
        ),
    ],
    style: Style { head: ": keep-alive\n\n", usage: UsageIn::Finish, ..PLAIN },
    overflow: Overflow::Refused(
        400,
        r#"{"error":{"message":"This model's maximum context length is {w} tokens. However, you requested {n} tokens ({n} in the messages, 0 in the completion). Please reduce the length of the messages or completion.","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
    ),
};

/// Calls are signed, and the signature must be sent back. All calls have index 0. Schemas of objects need properties.
/// Errors come in a list.
pub(crate) const GEMINI: Played = Played {
    name: "Gemini",
    models: MODELS,
    list: PLAIN_LIST,
    rules: &[
        rule(
            Forbids::LostCallField("extra_content"),
            400,
            r#"[{"error":{"code":400,"message":"Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance.","status":"INVALID_ARGUMENT"}}]"#,
        ),
        rule(
            Forbids::Blank,
            400,
            r#"[{"error":{"code":400,"message":"Unable to submit request because it must have a text parameter. Add a text parameter and try again.","status":"INVALID_ARGUMENT"}}]"#,
        ),
        rule(
            Forbids::BareSchema,
            400,
            r#"[{"error":{"code":400,"message":"* GenerateContentRequest.tools[0].function_declarations[0].parameters.properties: should be non-empty for OBJECT type\n","status":"INVALID_ARGUMENT"}}]"#,
        ),
    ],
    style: Style {
        reasoning: Thoughts::Nowhere,
        calls: Calls::Signed,
        id: |n| format!("function-call-{:020}", 4_000_000 + n),
        reasons: ["stop", "stop"],
        usage: UsageIn::Finish,
        ..PLAIN
    },
    overflow: Overflow::Refused(
        400,
        r#"[{"error":{"code":400,"message":"The input token count ({n}) exceeds the maximum number of tokens allowed ({w}).","status":"INVALID_ARGUMENT"}}]"#,
    ),
};

/// A prompt beyond the window is truncated silently. The other model accepts no tools.
pub(crate) const OLLAMA: Played = Played {
    name: "Ollama",
    models: MODELS,
    list: PLAIN_LIST,
    rules: &[
        rule(
            Forbids::NoContent,
            400,
            r#"{"error":{"message":"invalid message content type: <nil>","type":"invalid_request_error","param":null,"code":null}}"#,
        ),
        rule_of(
            "second",
            Forbids::Tools,
            400,
            r#"{"error":{"message":"registry.ollama.ai/library/second:latest does not support tools","type":"api_error","param":null,"code":null}}"#,
        ),
        rule_of(
            "second",
            Forbids::Field("reasoning_effort"),
            400,
            r#"{"error":{"message":"\"second\" does not support thinking","type":"api_error","param":null,"code":null}}"#,
        ),
    ],
    style: Style {
        reasoning: Thoughts::Field("reasoning"),
        calls: Calls::Whole,
        id: |n| format!("call_{n:08}"),
        ..PLAIN
    },
    overflow: Overflow::Cut,
};

/// Templates require alternating user and assistant messages. An overflow is reported in a stream that began well.
pub(crate) const LM_STUDIO: Played = Played {
    name: "LM Studio",
    models: MODELS,
    list: PLAIN_LIST,
    rules: &[
        rule(
            Forbids::SameRoleTwice,
            400,
            r#"{"error":"Error rendering prompt with jinja template: \"Conversation roles must alternate user/assistant/user/assistant/...\". This is usually an issue with the model's prompt template."}"#,
        ),
        rule(
            Forbids::LateSystem,
            400,
            r#"{"error":"Error rendering prompt with jinja template: \"System message must be at the beginning.\"."}"#,
        ),
        rule_of(
            "second",
            Forbids::Images,
            400,
            r#"{"error":"Model does not support images. Please use a model that does."}"#,
        ),
    ],
    style: Style { id: |n| format!("{n:09}"), usage: UsageIn::EmptyDelta, ..PLAIN },
    overflow: Overflow::Streamed(
        r#"{"error":{"message":"Trying to keep the first {n} tokens when context the overflows. However, the model is loaded with context length of only {w} tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input"}}"#,
    ),
};

/// Templates are strict, and report that with 500. A model without its projector accepts no images. The list has the
/// window.
pub(crate) const LLAMA_CPP: Played = Played {
    name: "llama.cpp",
    models: MODELS,
    list: r#"{"object":"list","data":[{"id":"first","meta":{"n_ctx_train":32768}},{"id":"second","meta":{"n_ctx_train":32768}}]}"#,
    rules: &[
        rule(
            Forbids::Images,
            500,
            r#"{"error":{"code":500,"message":"image input is not supported - hint: if this is unexpected, you may need to provide the mmproj","type":"server_error"}}"#,
        ),
        rule(
            Forbids::SameRoleTwice,
            500,
            r#"{"error":{"code":500,"message":"\n------------\nWhile executing CallExpression at line 3, column 12 in source:\nError: Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/...","type":"server_error"}}"#,
        ),
        rule(
            Forbids::NoContent,
            400,
            r#"{"error":{"code":400,"message":"Assistant message must contain either 'content' or 'tool_calls'!","type":"invalid_request_error"}}"#,
        ),
    ],
    style: Style { id: |n| format!("{n:032}"), ..PLAIN },
    overflow: Overflow::Refused(
        400,
        r#"{"error":{"code":400,"message":"request ({n} tokens) exceeds the available context size ({w} tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":{n},"n_ctx":{w}}}"#,
    ),
};

/// Prompt and answer must fit together. The other model was started without a parser for calls. Ids are long.
pub(crate) const VLLM: Played = Played {
    name: "vLLM",
    models: MODELS,
    list: PLAIN_LIST,
    rules: &[
        rule(
            Forbids::SameRoleTwice,
            400,
            r#"{"object":"error","message":"After the optional system message, conversation roles must alternate user/assistant/user/assistant/...","type":"BadRequestError","param":null,"code":400}"#,
        ),
        rule_of(
            "second",
            Forbids::Tools,
            400,
            r#"{"object":"error","message":"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set","type":"BadRequestError","param":null,"code":400}"#,
        ),
        rule_of(
            "second",
            Forbids::Images,
            400,
            r#"{"object":"error","message":"At most 0 image(s) may be provided in one prompt.","type":"BadRequestError","param":null,"code":400}"#,
        ),
        rule(
            Forbids::OutputBeyondWindow,
            400,
            r#"{"object":"error","message":"'max_tokens' or 'max_completion_tokens' is too large: {m}. This model's maximum context length is {w} tokens and your request has {n} input tokens ({m} > {w} - {n}).","type":"BadRequestError","param":null,"code":400}"#,
        ),
    ],
    style: Style { id: |n| format!("chatcmpl-tool-{n:032}"), ..PLAIN },
    overflow: Overflow::Refused(
        400,
        r#"{"object":"error","message":"This model's maximum context length is {w} tokens. However, your request has {n} input tokens. Please reduce the length of the input messages.","type":"BadRequestError","param":null,"code":400}"#,
    ),
};

/// Each piece of a call repeats everything that was written so far.
pub(crate) const SGLANG: Played = Played {
    name: "SGLang",
    models: MODELS,
    list: PLAIN_LIST,
    rules: &[rule_of(
        "second",
        Forbids::Field("reasoning_effort"),
        400,
        r#"{"object":"error","message":"1 validation error for ChatCompletionRequest\nreasoning_effort\n  Input should be 'medium' or 'high' [type=literal_error]","type":"BadRequest","param":null,"code":400}"#,
    )],
    style: Style { calls: Calls::Cumulative, id: |n| format!("call_{n:024x}"), ..PLAIN },
    overflow: Overflow::Refused(
        400,
        r#"{"object":"error","message":"Requested token count exceeds the model's maximum context length of {w} tokens. You requested a total of {n} tokens: {n} tokens from the input messages and 0 tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.","type":"BadRequestError","param":null,"code":400}"#,
    ),
};

/// Signed reasoning must be sent back with the calls. Comments come before the first chunk. The other model has no
/// endpoint with images. The reason of an overflow is in `metadata.raw`.
pub(crate) const OPENROUTER: Played = Played {
    name: "OpenRouter",
    models: MODELS,
    list: r#"{"data":[{"id":"first","context_length":32768,"supported_parameters":["tools"]},{"id":"second","context_length":32768}]}"#,
    rules: &[
        rule(
            Forbids::LostField("reasoning_details"),
            400,
            r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"messages.{}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`\"}}","provider_name":"Anthropic"}}}"#,
        ),
        rule(
            Forbids::Blank,
            400,
            r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"messages.{}: text content blocks must contain non-whitespace text\"}}","provider_name":"Anthropic"}}}"#,
        ),
        rule(
            Forbids::OddIds,
            400,
            r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"messages.{}.content.1.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'\"}}","provider_name":"Anthropic"}}}"#,
        ),
        rule_of(
            "second",
            Forbids::Images,
            404,
            r#"{"error":{"message":"No endpoints found that support image input","code":404}}"#,
        ),
    ],
    style: Style {
        head: ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n",
        reasoning: Thoughts::Details,
        id: |n| format!("toolu_{n:024}"),
        ..PLAIN
    },
    overflow: Overflow::Refused(
        400,
        r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"provider_name":"X","raw":"{\"error\":{\"message\":\"This model's maximum context length is {w} tokens. However, your request has {n} input tokens. Please reduce the length of the input messages.\",\"code\":400}}"}}}"#,
    ),
};

/// Unknown fields of an assistant's message are refused. A request that is too large is refused for its tokens per
/// minute.
pub(crate) const GROQ: Played = Played {
    name: "Groq",
    models: MODELS,
    list: r#"{"object":"list","data":[{"id":"first","context_window":32768},{"id":"second","context_window":32768}]}"#,
    rules: &[
        rule(
            Forbids::AssistantField("reasoning_content"),
            400,
            r#"{"error":{"message":"'messages.{}' : for 'role:assistant' the following must be satisfied[('messages.{}' : property 'reasoning_content' is unsupported)]","type":"invalid_request_error"}}"#,
        ),
        rule_of(
            "second",
            Forbids::AssistantField("reasoning"),
            400,
            r#"{"error":{"message":"'messages.{}' : for 'role:assistant' the following must be satisfied[('messages.{}' : property 'reasoning' is unsupported)]","type":"invalid_request_error"}}"#,
        ),
        rule_of(
            "second",
            Forbids::Field("reasoning_effort"),
            400,
            r#"{"error":{"message":"reasoning_effort is not supported with this model","type":"invalid_request_error"}}"#,
        ),
        rule_of(
            "second",
            Forbids::Images,
            400,
            r#"{"error":{"message":"'messages[{}].content' must be a string","type":"invalid_request_error"}}"#,
        ),
    ],
    style: Style {
        reasoning: Thoughts::Field("reasoning"),
        calls: Calls::Bare,
        id: |n| format!("fc_{n:026}"),
        usage: UsageIn::Finish,
        ..PLAIN
    },
    overflow: Overflow::Refused(
        413,
        r#"{"error":{"message":"Request too large for model `first` in organization `org_1` service tier `on_demand` on tokens per minute (TPM): Limit {w}, Requested {n}, please reduce your message size and try again.","type":"tokens","code":"rate_limit_exceeded"}}"#,
    ),
};

/// Blank texts are refused. Calls in the history require tools on offer. Errors are texts within texts.
pub(crate) const BEDROCK: Played = Played {
    name: "Bedrock behind LiteLLM",
    models: MODELS,
    list: PLAIN_LIST,
    rules: &[
        rule(
            Forbids::Blank,
            400,
            r#"{"error":{"message":"litellm.BadRequestError: BedrockException - {\"message\":\"The text field in the ContentBlock object at messages.{}.content.0 is blank. Add text to the text field, and try again.\"}. Received Model Group=first","type":"invalid_request_error","param":null,"code":"400"}}"#,
        ),
        rule(
            Forbids::CallsWithoutTools,
            400,
            r#"{"error":{"message":"litellm.UnsupportedParamsError: Bedrock doesn't support tool calling without `tools=` param specified. Pass `tools=` param OR set `litellm.modify_params = True` // `litellm_settings::modify_params: True` to add dummy tool to the request.","type":"invalid_request_error","param":null,"code":"400"}}"#,
        ),
        rule(
            Forbids::Field("reasoning_effort"),
            400,
            r#"{"error":{"message":"litellm.UnsupportedParamsError: bedrock does not support parameters: ['reasoning_effort'], for model=first. To drop these, set `litellm.drop_params=True` or for proxy:\n\n`litellm_settings:\n drop_params: true`","type":"None","param":null,"code":"400"}}"#,
        ),
    ],
    style: Style { id: |n| format!("tooluse_{n:022}"), usage: UsageIn::EmptyDelta, line_end: "\r\n", ..PLAIN },
    overflow: Overflow::Refused(
        400,
        r#"{"error":{"message":"litellm.ContextWindowExceededError: litellm.BadRequestError: BedrockException: Context Window Error - {\"message\":\"Input is too long for requested model.\"}. Received Model Group=first","type":null,"param":null,"code":"400"}}"#,
    ),
};
