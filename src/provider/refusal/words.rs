//! Words with which servers name the parts of a request and say what is wrong with them. Words for parts and calls are
//! written as `joined` leaves them: without spaces, hyphens, underscores and quotes.

use crate::core::need::Need::{
    self, Alternate, EmptyContent, NewLimit, NoDiagnostics, NoEffort, NoFormat, NoImages, NoLimit, NoNative,
    NoOwnFields, NoSealed, NoStreamOptions, NoStrict, NoSystem, NoTemperature, NoToolChoice, NoTools, NullContent,
    OldLimit, OneCall, ReasoningBack, ShortIds, Signature,
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
    ("encryptedcontent", &[NoSealed, NoNative]),
    ("compaction", &[NoNative]),
    ("invalidsignature", &[NoSealed]),
    ("redactedthinking", &[NoSealed]),
    ("outputconfig.format", &[NoFormat]),
    ("thoughtsignature", &[Signature, NoOwnFields]),
    ("maxcompletiontokens", &[OldLimit, NewLimit, NoLimit]),
    ("maxoutputtokens", &[NoLimit]),
    ("maxtokens", &[NewLimit, OldLimit, NoLimit]),
    ("temperature", &[NoTemperature]),
    ("topp", &[NoTemperature]),
    ("reasoningeffort", &[NoEffort]),
    ("reasoning.effort", &[NoEffort]),
    ("streamoptions", &[NoStreamOptions]),
    ("includeusage", &[NoStreamOptions]),
    ("toolchoice", &[NoToolChoice, NoTools]),
    ("imageurl", &[NoImages]),
    ("inputimage", &[NoImages]),
    ("image.source", &[NoImages]),
    ("mmproj", &[NoImages]),
    ("reasoningcontent", &[NoOwnFields, ReasoningBack]),
    ("reasoningdetails", &[NoOwnFields]),
    ("extracontent", &[NoOwnFields]),
    ("callid", &[ShortIds]),
    ("tooluseid", &[ShortIds]),
    (".strict", &[NoStrict]),
    ("paralleltoolcalls", &[OneCall]),
    ("toolcallparser", &[NoTools]),
    ("promptcacheoptions", &[NoDiagnostics]),
    ("comparisonresponseid", &[NoDiagnostics]),
    ("previousmessageid", &[NoDiagnostics]),
    ("cachediagnosis", &[NoDiagnostics]),
];

/// Words for the parts that can also mean something else.
pub(super) const WORDS: &[(&str, &[Need])] = &[
    ("diagnostics", &[NoDiagnostics]),
    ("alternat", &[Alternate]),
    ("singletool", &[OneCall]),
    ("onetool", &[OneCall]),
    ("parallel", &[OneCall]),
    ("systemrole", &[NoSystem]),
    ("systemmessage", &[NoSystem]),
    ("rolesystem", &[NoSystem]),
    ("afterrole", &[Alternate]),
    ("messageorder", &[Alternate]),
    ("image", &[NoImages]),
    ("vision", &[NoImages]),
    ("visual", &[NoImages]),
    ("picture", &[NoImages]),
    ("multimodal", &[NoImages]),
    ("modalit", &[NoImages]),
    ("textonly", &[NoImages]),
    ("tools", &[NoTools]),
    ("toolname", &[NoTools]),
    ("tooluse", &[NoTools]),
    ("toolcall", &[NoTools]),
    ("functioncall", &[NoTools]),
    ("functions", &[NoTools]),
    ("forfunction", &[NoTools]),
    ("functiondeclarations", &[NoTools]),
    ("inputschema", &[NoTools]),
    ("roletool", &[NoTools]),
    ("strict", &[NoStrict]),
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

/// Words that report a value that is out of range.
pub(super) const OUT_OF_RANGE: &[&str] =
    &["too large", "too small", "too high", "range", "at most", "at least", "exceed", " > "];

/// Words that report that a model accepts no images or no tools at all.
pub(super) const NONE_TAKEN: &[&str] = &[
    "supported",
    "not support",
    "n't support",
    "no support",
    "that support",
    "support for",
    "only support",
    "not enabled",
    "not available",
    "not allowed",
    "not permitted",
    "not accept",
    "only accept",
    "not implemented",
    "capabilit",
    "modal",
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
    "tool_result",
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
    "toolusefailed",
    "outputparsefailed",
    "failedgeneration",
    "failedtocallafunction",
    "toolcallvalidationfailed",
    "attemptedtocalltool",
    "notinrequest.tools",
    "malformedfunctioncall",
    "malformedtoolcall",
    "failedtoparseinputatpos",
];

/// Words for the model's output.
pub(super) const OUTPUTS: &[&str] =
    &["modeloutput", "modelsoutput", "generatedoutput", "modelgenerated", "modelproduced", "generatedbythemodel"];
/// Words for a malformed text.
pub(super) const MALFORMED: &[&str] =
    &["malformed", "pars", "notvalidjson", "invalidjson", "invalidcontent", "invalidtool"];

/// Words for a call, and words for parsing it. Together, they also indicate the model's output, unless a message of the
/// request is named.
pub(super) const CALLS: &[&str] = &["toolcall", "functioncall"];
pub(super) const READINGS: &[&str] = &["pars", "invalidcharacter", "unmarshal", "unexpectedendofjson"];
/// Phrases from quoted model output.
pub(super) const QUOTES: &[&str] = &[
    "invalidcharacter",
    "unexpectedendofjson",
    "raw=",
    "err=",
    "<toolcall",
    "<function",
    "lookingforbeginning",
    "atpos",
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
