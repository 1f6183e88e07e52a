//! Tests refusals in the words of many servers, and the part of a request that each is about.

use super::*;
use crate::core::need::Need::{
    Alternate, EmptyContent, NoDiagnostics, NoEffort, NoSystem, NoTemperature, NoToolChoice, OneCall, Signature,
};

/// The words of servers and their meaning. The table of the README is generated from this.
pub(in crate::provider) const EXAMPLES: &[(&str, Need, &str)] = &[
    ("DeepSeek", NoImages, r#"{"error":{"message":"messages[3]: unknown variant `image_url`, expected `text`"}}"#),
    ("OpenRouter", NoImages, r#"{"error":{"message":"No endpoints found that support image input","code":404}}"#),
    ("OpenAI", NoImages, r#"{"error":{"message":"Invalid value","param":"messages.[1].content.[1].type"}}"#),
    (
        "llama.cpp",
        NoImages,
        r#"{"error":{"message":"image input is not supported - hint: you may need to provide the mmproj","code":500}}"#,
    ),
    (
        "Anthropic",
        NoDiagnostics,
        r#"{"error":{"type":"invalid_request_error","message":"diagnostics: Extra inputs are not permitted"}}"#,
    ),
    (
        "Anthropic",
        NoDiagnostics,
        r#"{"error":{"message":"Unexpected value(s) `cache-diagnosis-2026-04-07` for the `anthropic-beta` header"}}"#,
    ),
    (
        "OpenAI",
        NoDiagnostics,
        r#"{"error":{"message":"Unsupported parameter: 'prompt_cache_options' is not supported with this model.","param":"prompt_cache_options"}}"#,
    ),
    ("vLLM, SGLang", NoImages, r#"{"object":"error","message":"m is not a multimodal model","code":400}"#),
    ("Ollama", NoImages, r#"{"error":"this model is missing data required for image input"}"#),
    ("LM Studio", NoImages, r#"{"error":{"message":"Model does not have vision capability"}}"#),
    (
        "vLLM, SGLang",
        EmptyContent,
        r#"{"detail":[{"loc":["body","messages",1,"content"],"msg":"str type expected","type":"x","input":"temperature"}]}"#,
    ),
    ("Ollama", NoTools, r#"{"error":{"message":"registry.ollama.ai/library/gemma does not support tools"}}"#),
    (
        "llama.cpp",
        NoTools,
        r#"{"error":{"code":500,"message":"tools param requires --jinja flag","type":"server_error"}}"#,
    ),
    ("OpenRouter", NoTools, r#"{"error":{"message":"No endpoints found that support tool use.","code":404}}"#),
    (
        "Gemini",
        NoTools,
        r#"{"error":{"message":"Function calling is not enabled for models/gemma-3-27b-it","code":400}}"#,
    ),
    ("Azure OpenAI", NoTools, r#"{"message":"Unrecognized request argument supplied: tools"}"#),
    (
        "Groq",
        NoTools,
        r#"{"error":{"message":"`tool calling` not supported by this model","type":"invalid_request_error"}}"#,
    ),
    (
        "vLLM, SGLang",
        NoToolChoice,
        r#"{"message":"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"}"#,
    ),
    (
        "OpenAI",
        NewLimit,
        r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","param":"max_tokens","code":"unsupported_parameter"}}"#,
    ),
    (
        "Mistral",
        OldLimit,
        r#"{"detail":[{"type":"extra_forbidden","loc":["body","max_completion_tokens"],"msg":"Extra inputs are not permitted"}]}"#,
    ),
    (
        "OpenAI",
        NoTemperature,
        r#"{"error":{"message":"Unsupported value: 'temperature' does not support 0.5 with this model."}}"#,
    ),
    ("Groq", NoEffort, r#"{"error":{"message":"property 'reasoning_effort' is unsupported"}}"#),
    (
        "Ollama",
        NoEffort,
        r#"{"error":"think value \"low\" is not supported for this model, which does not support thinking"}"#,
    ),
    (
        "Mistral",
        NoStreamOptions,
        r#"{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}"#,
    ),
    ("Groq", NoOwnFields, r#"{"error":{"message":"'messages.2' : property 'reasoning_content' is unsupported"}}"#),
    (
        "Gemini",
        NoOwnFields,
        r#"{"error":{"message":"Unknown name \"thoughts\" at 'messages[1]': Cannot find field."}}"#,
    ),
    (
        "OpenRouter",
        NoStreamOptions,
        r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"Unknown parameter: 'stream_options'\"}}"}}}"#,
    ),
    (
        "Kimi",
        ReasoningBack,
        r#"{"error":{"message":"thinking is enabled but reasoning_content is missing in assistant tool call message at index 2"}}"#,
    ),
    (
        "DeepSeek",
        ReasoningBack,
        r#"{"error":{"message":"The `reasoning_content` in the thinking mode must be passed back to the API."}}"#,
    ),
    (
        "Gemini",
        Signature,
        r#"[{"error":{"code":400,"message":"Function call is missing a thought_signature in functionCall parts."}}]"#,
    ),
    (
        "OpenAI",
        NoSealed,
        r#"{"error":{"message":"The encrypted content gAAA could not be verified.","code":"invalid_encrypted_content"}}"#,
    ),
    (
        "vLLM, SGLang",
        Alternate,
        r#"{"message":"After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."}"#,
    ),
    ("Mistral", Alternate, r#"{"message":"Unexpected role 'user' after role 'tool'","code":"3230"}"#),
    ("llama.cpp", OneCall, r#"{"error":{"code":500,"message":"This model only supports single tool-calls at once!"}}"#),
    ("llama.cpp", NoSystem, r#"{"error":{"code":500,"message":"Jinja Exception: System role not supported"}}"#),
    ("Mistral", ShortIds, r#"{"message":"Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9."}"#),
    (
        "Azure OpenAI",
        ShortIds,
        r#"{"error":{"message":"Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40"}}"#,
    ),
    ("Bedrock behind LiteLLM", ShortIds, r#"{"error":{"message":"messages: `tool_use` ids must be unique"}}"#),
    (
        "Groq",
        EmptyContent,
        r#"{"error":{"message":"'messages.2' : for 'role:assistant' the following must be satisfied: content is required"}}"#,
    ),
    (
        "Bedrock behind LiteLLM",
        NoImages,
        r#"{"error":{"message":"litellm.BadRequestError: BedrockException - {\"message\":\"This model doesn't support the image content block that you provided.\"}","code":"400"}}"#,
    ),
    (
        "Bedrock behind LiteLLM",
        NoTools,
        r#"{"error":{"message":"litellm.BadRequestError: BedrockException - {\"message\":\"This model doesn't support tool use.\"}","code":"400"}}"#,
    ),
    (
        "LM Studio",
        Alternate,
        r#"{"error":"Error rendering prompt with jinja template: \"Conversation roles must alternate user/assistant/user/assistant/...\""}"#,
    ),
    (
        "LM Studio",
        NoSystem,
        r#"{"error":"Error rendering prompt with jinja template: \"Only user and assistant roles are supported!\" (system message)"}"#,
    ),
    (
        "Ollama",
        NoImages,
        r#"{"error":{"message":"Failed to create new sequence: this model does not support images","type":"api_error"}}"#,
    ),
];

/// Parses a refusal of the whole request.
fn rejected(body: &str) -> Refusal {
    read(&Said::of(body.as_bytes()), ErrorCode::UpstreamRejected)
}

fn message(text: &str) -> String {
    serde_json::json!({ "error": { "message": text, "type": "invalid_request_error" } }).to_string()
}

#[test]
fn the_part_that_a_server_refused_is_named_by_its_words() {
    for (server, expected, body) in EXAMPLES {
        let refusal = rejected(body);
        assert_eq!(refusal.needs.first(), Some(expected), "{server}: {body}: {:?}", refusal.needs);
        // All of these are about what the model accepts, except for the sealed reasoning, which is one session's.
        assert_eq!(refusal.of_request.has(*expected), *expected == NoSealed, "{server}: {body}");
    }
}

#[test]
fn other_refusals_name_nothing() {
    for body in [
        "",
        "{}",
        "Bad Request",
        r#"{"error":{"message":"some other fault","type":"invalid_request_error"}}"#,
        "<html><title>Error: unknown content, images are not supported</title></html>",
    ] {
        assert_eq!(rejected(body), Refusal::default(), "{body}");
    }
    for body in [
        r#"{"detail":"Extra inputs are not permitted: max_tokens"}"#,
        r#"{"detail":[{"loc":["body","max_tokens"],"msg":"Input should be a valid integer"}]}"#,
        r#"{"error":{"message":"thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"}}"#,
    ] {
        assert!(is_of_form(&Said::of(body.as_bytes())), "{body}");
    }
    assert!(!is_of_form(&Said::of(br#"{"error":{"message":"maximum context length is 8 tokens"}}"#)));
}

/// Errors about one request: the part, and the maximum number of images where there are too many.
const OF_REQUEST: &[(Need, Option<u16>, &str)] = &[
    (NoImages, None, "Could not process image"),
    (NoImages, None, "messages.3.content.1.image: image size exceeds 5 MB"),
    (
        NoImages,
        None,
        "The image data you provided does not represent a valid image. Please check your input and try again with one of \
         the following image formats: ['image/jpeg', 'image/png', 'image/gif', 'image/webp'].",
    ),
    (
        NoImages,
        None,
        "You uploaded an unsupported image. Please make sure your image has of one the following formats: ['png', \
         'jpeg', 'gif', 'webp'].",
    ),
    (NoImages, None, "Unable to process input image. Please retry or report in https://example.com/support"),
    (NoImages, None, "Failed to load image or audio file"),
    (NoImages, None, "cannot identify image file <_io.BytesIO object>"),
    (NoImages, None, "Invalid image_url: the address could not be reached"),
    (NoImages, None, "image/bmp is not a supported media type"),
    (NoImages, Some(1), "At most 1 image(s) may be provided in one prompt."),
    (NoImages, Some(20), "Too many images: 25 > 20 maximum"),
    (NoImages, Some(10), "This model does not support more than 10 images, but 12 were sent"),
    (NoImages, Some(1), "Too many images in the request: it is not allowed"),
    (NoTools, None, "Invalid schema for function 'look': In context=(), object schema missing properties."),
    (
        NoTools,
        None,
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 140 \
         instead.",
    ),
    (
        NoTools,
        None,
        "GenerateContentRequest.tools[0].function_declarations[0].parameters.properties[x].enum: only allowed for \
         STRING type",
    ),
    (NoTools, None, "tools.3.custom.input_schema: JSON schema is invalid, it does not support this draft"),
    (NoTools, None, "Invalid tools: names must be unique"),
    (NoTools, None, "tools.0.custom.name: String should match pattern '^[a-z]{1,128}$'"),
    (NoImages, None, "messages.0.content.0.image.source.base64: it appears to be a image/png image"),
];

#[test]
fn what_is_wrong_with_one_request_is_told_from_what_its_model_takes() {
    for (need, images_max, text) in OF_REQUEST {
        let refusal = rejected(&message(text));
        let found = (refusal.needs.first(), refusal.of_request.has(*need), refusal.images_max);
        assert_eq!(found, (Some(need), true, *images_max), "{text}: {refusal:?}");
    }
    let param = r#"{"error":{"message":"Invalid value: 'max'.","param":"reasoning_effort","code":"invalid_value"}}"#;
    assert_eq!(rejected(param).needs.first(), Some(&NoEffort));
    for text in
        ["max_tokens is too large: 100000", "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"]
    {
        assert_eq!(*rejected(&message(text)).needs, [NoLimit], "{text}");
    }
    for (need, text) in [
        (NoImages, "At most 0 image(s) may be provided in one prompt."),
        (NoImages, "'messages[2].content' must be a string"),
        (NoTools, "tools are not supported by this model"),
        (NewLimit, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
    ] {
        let refusal = rejected(&message(text));
        assert!(refusal.needs.contains(&need) && !refusal.of_request.has(need), "{text}: {refusal:?}");
    }
}

#[test]
fn what_a_model_wrote_is_told_from_what_it_was_sent() {
    for (text, expected) in [
        ("Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.", true),
        ("error parsing tool call: raw='{\"a\": lo', err=invalid character 'l' looking for beginning of value", true),
        ("tool call validation failed: attempted to call tool 'x' which was not in request.tools", true),
        ("Failed to parse input at pos 42: <tool_call>{\"name\":", true),
        ("could not parse the function call: unexpected end of JSON at pos 17", true),
        ("The model generated a malformed answer", true),
        ("invalid tool call arguments: invalid character 'x' in literal true", true),
        ("this model does not support tool calls", false),
        ("messages[2].tool_calls[0].function.arguments: failed to parse tool call at pos 3", false),
        ("Invalid schema for function 'look'", false),
    ] {
        assert_eq!(is_of_sample(&Said::of(message(text).as_bytes())), expected, "{text}");
    }
    assert!(is_of_sample(&Said::of(br#"{"error":{"message":"x","code":"tool_use_failed"}}"#)));
}

#[test]
fn a_server_that_fails_refuses_only_what_it_names_in_json() {
    let failed = |body: &str| read(&Said::of(body.as_bytes()), ErrorCode::UpstreamError).needs;
    for body in [
        "<!doctype html><title>520: web server is returning an unknown error</title><p>content, images</p>",
        "unknown error: images are not supported",
        r#"{"error":{"message":"unknown error while content was generated"}}"#,
    ] {
        assert_eq!(*failed(body), [], "{body}");
    }
    assert_eq!(*failed(r#"{"error":{"message":"tools param requires --jinja flag"}}"#), [NoTools]);
    // Nothing is learnt for other sessions from a transient failure.
    for (body, is_of_request) in [
        (r#"{"error":{"message":"tools param requires --jinja flag"}}"#, false),
        (r#"{"error":{"message":"this model does not support tools"}}"#, false),
        (r#"{"error":{"message":"Unexpected error while handling tool calls"}}"#, true),
    ] {
        let refusal = read(&Said::of(body.as_bytes()), ErrorCode::UpstreamError);
        assert_eq!(refusal.of_request.has(NoTools), is_of_request, "{body}");
    }
}
