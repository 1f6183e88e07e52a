//! Words with which servers name the parts of a request and say what is wrong with them.

use crate::core::need::Need::{
    self, Alternate, EmptyContent, NewLimit, NoEffort, NoImages, NoLimit, NoOwnFields, NoSealed, NoStreamOptions,
    NoStrict, NoSystem, NoTemperature, NoToolChoice, NoTools, NullContent, OldLimit, OneCall, ReasoningBack, ShortIds,
    Signature,
};

/// Words of refusal.
pub(super) const REFUSES: &[&str] = &[
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
    "should be",
    "range",
    "too many",
    "too large",
    "too small",
    "too long",
    "not valid",
    "disabled",
    "corrupt",
];

/// API names, which have no other meaning.
pub(super) const NAMES: &[(&str, &[Need])] = &[
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
    ("image.source", &[NoImages]),
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

/// Words for the parts that can also mean something else.
pub(super) const WORDS: &[(&str, &[Need])] = &[
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
    ("tool name", &[NoTools]),
    ("tool use", &[NoTools]),
    ("tool call", &[NoTools]),
    ("tool_call", &[NoTools]),
    ("tool-call", &[NoTools]),
    ("tool_use", &[NoTools]),
    ("function call", &[NoTools]),
    ("function-call", &[NoTools]),
    ("function_call", &[NoTools]),
    ("functions", &[NoTools]),
    ("for function", &[NoTools]),
    ("function_declarations", &[NoTools]),
    ("input_schema", &[NoTools]),
    ("role 'tool'", &[NoTools]),
    ("role: tool", &[NoTools]),
    ("role `tool`", &[NoTools]),
    ("role \"tool\"", &[NoTools]),
    ("effort", &[NoEffort]),
    ("thinking", &[NoEffort, NoOwnFields, NoSealed]),
    ("reasoning", &[NoEffort, NoOwnFields, NoSealed]),
];

/// Words that occur in any kind of error. They count only if the server refuses the request, because failing servers
/// use them too.
pub(super) const LOOSE: &[(&str, &[Need])] =
    &[("content", &[EmptyContent, NullContent, NoImages]), ("role", &[Alternate, NoSystem])];

/// Words that report an unexpected field without a name that we know.
pub(super) const ONE_TOO_MANY: &[&str] = &[
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

/// Words that report a field with the wrong type or value.
pub(super) const WRONG_TYPE: &[&str] = &[
    "input should be",
    "invalid type",
    "type expected",
    "value is not a valid",
    "ensure this value",
    "should be greater than or equal",
    "should be less than or equal",
];

/// Words that report something missing rather than too much.
pub(super) const LACKING: &[&str] =
    &["missing", "must be passed", "is required", "are required", "must include", "be provided", "lacks"];

/// Words that report an option which the server does not know or the model does not accept.
pub(super) const UNKNOWN_OPTION: &[&str] = &[
    "unsupported",
    "not support",
    "n't support",
    "supported",
    "unknown",
    "unrecogni",
    "unexpected",
    "extra",
    "permitted",
    "not allowed",
    "not accept",
    "not available",
    "not enabled",
    "not implemented",
    "deprecated",
    "instead",
];

/// Words that report an accepted option with an invalid value.
pub(super) const OTHER_VALUE: &[&str] = &[
    "supported values",
    "valid values",
    "allowed values",
    "accepted values",
    "possible values",
    "invalid value",
    "one of",
    "should be",
    "range",
    "between",
    "too large",
    "too small",
    "too high",
    "too low",
    "at most",
    "at least",
    "greater than",
    "less than",
    "higher than",
    "lower than",
    "more than",
    "exceed",
    "maximum",
    "minimum",
    " > ",
    " < ",
    ">=",
    "<=",
];

/// Words that report that a model accepts no images or no tools at all.
pub(super) const NONE_TAKEN: &[&str] = &[
    "unsupported",
    "not support",
    "n't support",
    "no support",
    "that support",
    "support for",
    "supported",
    "only support",
    "not enabled",
    "not available",
    "not allowed",
    "not permitted",
    "not accept",
    "only accept",
    "not implemented",
    "capabilit",
    "multimodal",
    "multi-modal",
    "modalit",
    "vision",
    "text only",
    "text-only",
    "unknown",
    "unrecogni",
    "unexpected",
    "extra ",
    "require",
    "no endpoint",
    "disabled",
];

/// Words with which servers that answer 5xx say what a model accepts. llama.cpp, vLLM and Ollama do this.
pub(super) const SAYS_SO: &[&str] =
    &["not support", "n't support", "unsupported", "only support", "--jinja", "tool-call-parser", "mmproj"];

/// Words about an image itself.
pub(super) const OF_IMAGE: &[&str] = &[
    "format",
    "mime",
    "media type",
    "media_type",
    "image/",
    "size",
    "dimension",
    "pixel",
    "resolution",
    "byte",
    " mb",
    "base64",
    "decod",
    "corrupt",
    "truncated",
    "damaged",
    "too large",
    "too small",
    "too many",
    "download",
    "fetch",
    "upload",
    "valid image",
    "represent",
];

/// Words about a tool's definition, or about the number of tools.
pub(super) const OF_TOOL: &[&str] = &[
    "schema",
    "invalid_function_parameters",
    "function.parameters",
    "function_declarations",
    "duplicate",
    "unique",
    "too long",
    "too many",
    "at most",
    "maximum",
    "more than",
    "exceed",
    "array",
    "description",
    "pattern",
];

/// Words that report that the server could not read its model's output. The names of the codes are Groq's.
pub(super) const OF_SAMPLE: &[&str] = &[
    "tool_use_failed",
    "output_parse_failed",
    "failed_generation",
    "failed to call a function",
    "tool call validation failed",
    "attempted to call tool",
    "not in request.tools",
    "malformed_function_call",
    "malformed function call",
    "malformed tool call",
    "failed to parse input at pos",
];

/// Words for the model's output.
pub(super) const OUTPUTS: &[&str] = &[
    "model output",
    "model's output",
    "generated output",
    "model generated",
    "model produced",
    "generated by the model",
];
/// Words for a malformed text.
pub(super) const MALFORMED: &[&str] = &[
    "malformed",
    "could not be parsed",
    "not be parsed",
    "not valid json",
    "invalid json",
    "invalid content",
    "invalid tool",
    "parse",
];

/// Words for a call, and words for parsing it. Together, they also indicate the model's output, unless a message of the
/// request is named.
pub(super) const CALLS: &[&str] = &["tool call", "tool_call", "toolcall", "function call", "function_call"];
pub(super) const READINGS: &[&str] = &[
    "error parsing",
    "failed to parse",
    "could not parse",
    "couldn't parse",
    "cannot parse",
    "unable to parse",
    "parsing failed",
    "parse error",
    "invalid character",
    "unmarshal",
    "unexpected end of json",
];
/// Phrases from quoted model output.
pub(super) const QUOTES: &[&str] = &[
    "invalid character",
    "unexpected end of json",
    "raw=",
    "raw:",
    "err=",
    "<tool_call",
    "<function",
    "looking for beginning",
    "at pos",
];

/// Words that report too many images.
pub(super) const MANY_IMAGES: &[&str] = &[
    "image(s)",
    "too many image",
    "number of image",
    "images per",
    "image count",
    "more than",
    "at most",
    "maximum of",
    "up to",
];
