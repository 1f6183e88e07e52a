//! Recognises which part of a request a server refused.
//!
//! Servers share no error codes for this, and each has its own sentences. What they share are the names of the API:
//! `image_url`, `tools`, `messages[1].content[0].type`. So the table below has names. A name of the API counts wherever
//! it stands; a plain word (`image`, `tools`) counts only beside a word of refusal. The names are only guesses of what
//! helps: the provider tries them, and keeps what did.

use crate::core::need::{
    Need::{
        self, Alternate, EmptyContent, NewLimit, NoEffort, NoImages, NoLimit, NoOwnFields, NoSealed, NoStreamOptions,
        NoStrict, NoSystem, NoTemperature, NoToolChoice, NoTools, NullContent, OldLimit, OneCall, ReasoningBack,
        ShortIds, Signature,
    },
    Refusal,
};
use serde_json::Value;

/// Most bytes of an error that are read for names: what follows is an echo of the request.
const TEXT_BYTES_MAX: usize = 4 * 1024;
/// Most levels of an error's JSON that are read.
const DEPTH_MAX: usize = 12;

/// Fields of errors that say what is wrong. Others echo the request (`input`).
const TELLING: &[&str] = &[
    "error", "errors", "message", "msg", "detail", "details", "param", "code", "type", "raw", "metadata", "loc",
    "reason", "title", "field", "status", "body",
];

/// Words of refusal.
const REFUSES: &[&str] = &[
    "support",
    "unknown",
    "unrecogni",
    "unexpected",
    "extra ",
    "invalid",
    "permitted",
    "allowed",
    "must ",
    "only ",
    "require",
    "cannot",
    "can't",
    "unable",
    "not accept",
    "not available",
    "not enabled",
    "no endpoint",
    "expected",
    "deprecated",
    "deserialize",
    "not implemented",
    "missing",
    "failed",
    "does not ",
    "doesn't ",
    "is not ",
    "are not ",
    "could not",
    "couldn't",
    "exceed",
    "at most ",
];

/// The parts by the names of the API, which mean nothing else.
const NAMES: &[(&str, &[Need])] = &[
    ("invalid_encrypted_content", &[NoSealed]),
    ("encrypted_content", &[NoSealed]),
    ("encrypted content", &[NoSealed]),
    ("thought_signature", &[Signature, NoOwnFields]),
    ("max_completion_tokens", &[OldLimit, NewLimit, NoLimit]),
    ("max_output_tokens", &[NoLimit]),
    ("max_tokens", &[NewLimit, OldLimit, NoLimit]),
    ("temperature", &[NoTemperature]),
    ("reasoning_effort", &[NoEffort]),
    ("reasoning.effort", &[NoEffort]),
    ("stream_options", &[NoStreamOptions]),
    ("include_usage", &[NoStreamOptions]),
    ("tool_choice", &[NoToolChoice, NoTools]),
    ("tool choice", &[NoToolChoice, NoTools]),
    ("image_url", &[NoImages]),
    ("input_image", &[NoImages]),
    ("mmproj", &[NoImages]),
    ("reasoning_content", &[NoOwnFields, ReasoningBack]),
    ("reasoning_details", &[NoOwnFields]),
    ("extra_content", &[NoOwnFields]),
    ("tool_call_id", &[ShortIds]),
    ("tool call id", &[ShortIds]),
    ("tool_use id", &[ShortIds]),
    ("tool_use` id", &[ShortIds]),
    ("call_id", &[ShortIds]),
    (".strict", &[NoStrict]),
    ("'strict'", &[NoStrict]),
    ("`strict`", &[NoStrict]),
    ("parallel_tool_calls", &[OneCall]),
    ("--jinja", &[NoTools]),
    ("tool-call-parser", &[NoTools]),
];

/// The parts by words that can also mean something else.
const WORDS: &[(&str, &[Need])] = &[
    ("alternat", &[Alternate]),
    ("single tool", &[OneCall]),
    ("one tool", &[OneCall]),
    ("parallel", &[OneCall]),
    ("system role", &[NoSystem]),
    ("system message", &[NoSystem]),
    ("role 'system'", &[NoSystem]),
    ("role: system", &[NoSystem]),
    ("role `system`", &[NoSystem]),
    ("role \"system\"", &[NoSystem]),
    ("after role", &[Alternate]),
    ("message order", &[Alternate]),
    ("message_order", &[Alternate]),
    ("image", &[NoImages]),
    ("vision", &[NoImages]),
    ("visual", &[NoImages]),
    ("picture", &[NoImages]),
    ("multimodal", &[NoImages]),
    ("multi-modal", &[NoImages]),
    ("modalit", &[NoImages]),
    ("text only", &[NoImages]),
    ("text-only", &[NoImages]),
    ("tools", &[NoTools]),
    ("tool use", &[NoTools]),
    ("tool call", &[NoTools]),
    ("tool_call", &[NoTools]),
    ("tool-call", &[NoTools]),
    ("tool_use", &[NoTools]),
    ("function call", &[NoTools]),
    ("function-call", &[NoTools]),
    ("function_call", &[NoTools]),
    ("functions", &[NoTools]),
    ("role 'tool'", &[NoTools]),
    ("role: tool", &[NoTools]),
    ("role `tool`", &[NoTools]),
    ("role \"tool\"", &[NoTools]),
    ("effort", &[NoEffort]),
    ("thinking", &[NoEffort, NoOwnFields, NoSealed]),
    ("reasoning", &[NoEffort, NoOwnFields, NoSealed]),
    ("content", &[EmptyContent, NullContent, NoImages]),
    ("role", &[Alternate, NoSystem]),
];

/// Words by which a server says that a field is one too many, without our knowing its name.
const ONE_TOO_MANY: &[&str] = &[
    "extra inputs",
    "extra fields",
    "extra_forbidden",
    "additional propert",
    "unknown field",
    "unrecognized field",
    "unrecognized request argument",
    "unknown name",
    "unexpected keyword",
    "unknown parameter",
    "unexpected field",
    "is unsupported",
    "unrecognized key",
];

/// Words by which a server says that a field has a value of another type.
const WRONG_TYPE: &[&str] = &["input should be a valid", "invalid type", "type expected", "value is not a valid"];

/// Words by which a server says that something is lacking rather than too much.
const LACKING: &[&str] =
    &["missing", "must be passed", "is required", "are required", "must include", "be provided", "lacks"];

/// Words about what an image or a schema is, not about whether the model takes any.
const OF_REQUEST: &[&str] = &[
    "could not process",
    "couldn't process",
    "decode",
    "base64",
    "corrupt",
    "download",
    "fetch",
    "size",
    "dimension",
    "pixel",
    "too large",
    "too small",
    "too many",
    "bytes",
    "media type",
    "media_type",
    "schema",
    "invalid_function_parameters",
    "function.parameters",
    "duplicate",
    "mime",
];

/// Words of a refusal of what was said.
const OF_CONTENT: &[&str] = &[
    "flagged",
    "safety",
    "moderation",
    "usage policy",
    "usage policies",
    "violates our",
    "violating our",
    "blocked by",
    "harmful",
];

/// Returns true if an error is about the form of a field, and so not about the size of the request.
#[must_use]
pub(super) fn is_of_form(body: &[u8]) -> bool {
    let said = Said::of(body);
    let has = |words: &[&str]| words.iter().any(|word| said.text.contains(word));
    has(ONE_TOO_MANY) || has(WRONG_TYPE)
}

/// Reads an error's body: which parts of the request it may be about.
#[must_use]
pub(super) fn read(body: &[u8]) -> Refusal {
    let said = Said::of(body);
    let has = |words: &[&str]| words.iter().any(|word| said.text.contains(word));
    if has(OF_CONTENT) {
        return Refusal { of_content: true, ..Refusal::default() };
    }
    let mut needs: Vec<Need> = Vec::new();
    let mut add = |found: &[Need]| {
        found.iter().for_each(|need| {
            if !needs.contains(need) {
                needs.push(*need)
            }
        })
    };
    // The field that the server names comes first, then the names in the order in which it says them.
    for text in [&said.param, &said.text] {
        // Only images give parts of contents.
        if is_path(text, ".type") && text.contains("content") {
            add(&[NoImages]);
        }
        if is_path(text, ".id") {
            add(&[ShortIds]);
        }
        names_in(text).for_each(&mut add);
    }
    if has(REFUSES) {
        WORDS.iter().filter(|(word, _)| said.text.contains(word)).for_each(|(_, found)| add(found));
    }
    if has(ONE_TOO_MANY) {
        add(&[NoOwnFields, NoStreamOptions]);
    }
    if has(LACKING)
        && let Some(at) = needs.iter().position(|need| *need == ReasoningBack)
    {
        needs.remove(at);
        needs.insert(0, ReasoningBack);
    }
    let of_request = has(OF_REQUEST) && needs.first().is_some_and(|need| matches!(need, NoImages | NoTools));
    Refusal { needs, of_request, of_content: false }
}

/// Returns the needs of the names that occur, in the order of their places.
fn names_in(text: &str) -> impl Iterator<Item = &'static [Need]> {
    let mut found: Vec<(usize, &'static [Need])> =
        NAMES.iter().filter_map(|(name, needs)| Some((text.find(name)?, *needs))).collect();
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, needs)| needs)
}

/// Returns true if the text names a field of a message by its path, such as `messages[1].content[0].type`.
fn is_path(text: &str, field: &str) -> bool {
    text.split(|c: char| c.is_whitespace() || "'`\",()".contains(c)).any(|path| {
        let path = path.trim_end_matches(['.', ':']);
        path.starts_with("messages") && path.ends_with(field)
    })
}

/// What an error says, in lower case.
#[derive(Default)]
struct Said {
    /// The field that it names as wrong.
    param: String,
    /// All of it.
    text: String,
}

impl Said {
    fn of(body: &[u8]) -> Self {
        let mut said = Self::default();
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => said.read("", &value, DEPTH_MAX),
            Err(_) => said.text.push_str(&String::from_utf8_lossy(body)),
        }
        let mut end = said.text.len().min(TEXT_BYTES_MAX);
        while !said.text.is_char_boundary(end) {
            end -= 1;
        }
        said.text.truncate(end);
        Self { param: said.param.to_lowercase(), text: said.text.to_lowercase() }
    }

    fn read(&mut self, field: &str, value: &Value, depth: usize) {
        match value {
            _ if depth == 0 => {}
            Value::String(text) => {
                if field == "param" {
                    self.param.push_str(text);
                }
                // Routers pass on a server's error as text.
                match serde_json::from_str::<Value>(text) {
                    Ok(inner @ (Value::Object(_) | Value::Array(_))) => self.read(field, &inner, depth - 1),
                    _ => {
                        self.text.push_str(text);
                        self.text.push('\n');
                    }
                }
            }
            Value::Array(items) if field == "loc" => {
                let names: Vec<String> =
                    items.iter().map(|item| item.as_str().map_or(item.to_string(), str::to_owned)).collect();
                self.text.push_str(&names.join("."));
                self.text.push('\n');
            }
            Value::Array(items) => items.iter().for_each(|item| self.read(field, item, depth - 1)),
            Value::Object(fields) => {
                for (name, value) in fields.iter().filter(|(name, _)| TELLING.contains(&name.as_str())) {
                    self.read(name, value, depth - 1);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What servers say, and what it means: the table of the README is printed from it.
    pub(in crate::provider) const EXAMPLES: &[(&str, Need, &str)] = &[
        ("DeepSeek", NoImages, r#"{"error":{"message":"messages[3]: unknown variant `image_url`, expected `text`"}}"#),
        ("OpenRouter", NoImages, r#"{"error":{"message":"No endpoints found that support image input","code":404}}"#),
        ("OpenAI", NoImages, r#"{"error":{"message":"Invalid value","param":"messages.[1].content.[1].type"}}"#),
        (
            "llama.cpp",
            NoImages,
            r#"{"error":{"message":"image input is not supported - hint: you may need to provide the mmproj","code":500}}"#,
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
        (
            "llama.cpp",
            OneCall,
            r#"{"error":{"code":500,"message":"This model only supports single tool-calls at once!"}}"#,
        ),
        ("llama.cpp", NoSystem, r#"{"error":{"code":500,"message":"Jinja Exception: System role not supported"}}"#),
        (
            "Mistral",
            ShortIds,
            r#"{"message":"Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9."}"#,
        ),
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

    #[test]
    fn the_part_that_a_server_refused_is_named_by_its_words() {
        for (server, expected, body) in EXAMPLES {
            let refusal = read(body.as_bytes());
            assert_eq!(refusal.needs.first(), Some(expected), "{server}: {body}: {:?}", refusal.needs);
        }
    }

    #[test]
    fn other_refusals_name_nothing_or_nothing_to_learn() {
        for body in
            ["", "{}", "Bad Request", r#"{"error":{"message":"some other fault","type":"invalid_request_error"}}"#]
        {
            assert_eq!(read(body.as_bytes()), Refusal::default(), "{body}");
        }
        for body in [
            r#"{"detail":"Extra inputs are not permitted: max_tokens"}"#,
            r#"{"detail":[{"loc":["body","max_tokens"],"msg":"Input should be a valid integer"}]}"#,
        ] {
            assert!(is_of_form(body.as_bytes()), "{body}");
        }
        assert!(!is_of_form(br#"{"error":{"message":"maximum context length is 8 tokens"}}"#));
        let flagged =
            r#"{"error":{"message":"Your image was flagged by the safety system","code":"moderation_blocked"}}"#;
        assert!(read(flagged.as_bytes()).of_content);
        for body in [
            r#"{"error":{"message":"Could not process image"}}"#,
            r#"{"error":{"message":"messages.3.content.1.image: image size exceeds 5 MB"}}"#,
            r#"{"error":{"message":"Invalid schema for function 'look'","param":"tools[0].function.parameters"}}"#,
        ] {
            let refusal = read(body.as_bytes());
            assert!(refusal.of_request && !refusal.needs.is_empty(), "{body}: {refusal:?}");
        }
    }
}
