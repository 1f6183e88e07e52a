//! The body of `POST /v1/responses`.

use super::{
    ids::ResponseId,
    tools::{Names, Tool, check, check_items, join},
};
use crate::http::{Failure, body};
use reseed_protocol::{
    ErrorCode,
    compaction::{SetContextStrategy, StrategySettings},
    context::{AnswerFormat, AnswerOptions, ToolChoice},
    session::SetOptions,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Maximum bytes of the request's fields that are stored with its input. Beyond it, the tools and the instructions are
/// not repeated when the response is retrieved.
const REPEATED_BYTES_MAX: usize = 16 * 1024;

/// The fewest tokens at which a client may set a compaction, as with OpenAI.
const COMPACT_THRESHOLD_MIN: u64 = 1_000;

/// Maximum pairs of `metadata`, and the maximum characters of their keys and values.
const METADATA_PAIRS_MAX: usize = 16;
const METADATA_KEY_CHARS_MAX: usize = 64;
const METADATA_VALUE_CHARS_MAX: usize = 512;

/// The metadata key that names the context strategy.
const STRATEGY_KEY: &str = "reseed_strategy";

/// A field that cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invalid {
    /// The field's path, as in `input[0].content`.
    pub(super) param: String,
    /// What is wrong with it.
    pub(super) message: String,
    /// The cause, for programs.
    code: Option<ErrorCode>,
}

impl Invalid {
    pub(super) fn at(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: param.into(), message: message.into(), code: None }
    }

    /// Says what is wrong with tools, as the server does when they are offered to it.
    pub(super) fn tools(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: Some(ErrorCode::InvalidTools), ..Self::at(param, message) }
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        let failure = Self::invalid(format!("`{}`: {}", invalid.param, invalid.message)).at(invalid.param);
        match invalid.code {
            Some(code) => failure.with_code(code.as_str()),
            None => failure,
        }
    }
}

/// The body. Unknown fields are accepted, because every client sends some of its own.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct Create {
    /// The model; absent for the deployment's, or that of the conversation.
    pub(super) model: Option<String>,
    /// A text, or items.
    pub(super) input: Option<Value>,
    /// The response to continue. An older one begins a branch.
    pub(super) previous_response_id: Option<String>,
    /// The conversation to continue, instead.
    pub(super) conversation: Option<Conversation>,
    /// The system prompt of this request.
    pub(super) instructions: Option<String>,
    /// Sends events.
    pub(super) stream: Option<bool>,
    /// `false` keeps nothing on the disk.
    pub(super) store: Option<bool>,
    /// Answers at once; the response is retrieved later.
    pub(super) background: Option<bool>,
    /// Up to 16 pairs of strings. `reseed_strategy` names a context strategy.
    #[cfg_attr(test, schema(value_type = Option<Object>))]
    pub(super) metadata: Option<Map<String, Value>>,
    /// 0 to 2.
    pub(super) temperature: Option<f64>,
    /// 0 to 1.
    pub(super) top_p: Option<f64>,
    /// Only 0.
    pub(super) presence_penalty: Option<f64>,
    /// Only 0.
    pub(super) frequency_penalty: Option<f64>,
    /// Only 0.
    pub(super) top_logprobs: Option<u64>,
    /// The maximum tokens of the answer.
    pub(super) max_output_tokens: Option<u64>,
    /// Accepted without effect.
    pub(super) max_tool_calls: Option<u64>,
    /// The client's functions, custom tools, and namespaces of both. Other tools are left out.
    pub(super) tools: Option<Vec<Tool>>,
    /// `auto`, `none`, `required`, a function, or a custom tool.
    pub(super) tool_choice: Option<Value>,
    /// Whether the model may call several tools at once.
    pub(super) parallel_tool_calls: Option<bool>,
    /// The format of the text.
    #[cfg_attr(test, schema(value_type = Option<Object>))]
    pub(super) text: Option<Map<String, Value>>,
    /// Accepted without effect.
    pub(super) truncation: Option<String>,
    /// How the model reasons.
    pub(super) reasoning: Option<Reasoning>,
    /// Accepted without effect.
    pub(super) service_tier: Option<String>,
    /// Accepted without effect.
    pub(super) safety_identifier: Option<String>,
    /// Names the lists that belong together, of a client that sends everything each time.
    pub(super) prompt_cache_key: Option<String>,
    /// When the context is compacted.
    pub(super) context_management: Option<Vec<ContextManagement>>,
    /// `false` stores the input without an answer.
    pub(super) generate: Option<bool>,
    /// The response that the rest of a known list continues, although the client has not named it.
    #[serde(skip)]
    #[cfg_attr(test, schema(ignore))]
    pub(super) continues: Option<ResponseId>,
}

/// How the context is kept in the window.
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ContextManagement {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) compact_threshold: Option<u64>,
}

/// The conversation to continue: its id, or an object with it.
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Conversation {
    Id(String),
    Object { id: String },
}

impl Conversation {
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Id(id) | Self::Object { id } => id,
        }
    }
}

/// How the model reasons.
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Reasoning {
    #[serde(default)]
    pub(super) effort: Option<String>,
}

impl Create {
    /// Reads a body.
    ///
    /// # Errors
    /// The first field that cannot be used.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Failure> {
        let read: Self = body::json(bytes)?;
        read.check()?;
        Ok(read)
    }

    fn check(&self) -> Result<(), Invalid> {
        if self.previous_response_id.is_some() && self.conversation.is_some() {
            return Err(Invalid::at("previous_response_id", "it cannot be used together with `conversation`"));
        }
        in_range("temperature", self.temperature, 0.0, 2.0)?;
        in_range("top_p", self.top_p, 0.0, 1.0)?;
        for (param, penalty) in
            [("presence_penalty", self.presence_penalty), ("frequency_penalty", self.frequency_penalty)]
        {
            if penalty.is_some_and(|penalty| penalty != 0.0) {
                return Err(Invalid::at(param, "only 0 is supported"));
            }
        }
        if self.top_logprobs.is_some_and(|count| count > 0) {
            return Err(Invalid::at("top_logprobs", "only 0 is supported"));
        }
        check(self.tools.as_deref().unwrap_or_default(), "tools")?;
        self.input.as_ref().map_or(Ok(()), |input| check_items(input, "input"))?;
        self.choice()?;
        self.format()?;
        self.strategy(u64::MAX)?;
        if self.max_output_tokens == Some(0) {
            return Err(Invalid::at("max_output_tokens", "it must be at least 1"));
        }
        self.metadata.as_ref().map_or(Ok(()), check_metadata)
    }

    /// Returns the sampling, the limits and the form of the answer.
    ///
    /// # Errors
    /// The first field that cannot be used.
    pub(super) fn options(&self) -> Result<SetOptions, Invalid> {
        let answer = AnswerOptions {
            tool_choice: self.choice()?,
            parallel_tool_calls: self.parallel_tool_calls,
            format: self.format()?,
            ..AnswerOptions::default()
        };
        Ok(SetOptions {
            temperature: self.temperature,
            top_p: self.top_p,
            max_output_tokens: self.max_output_tokens,
            answer: Some(answer).filter(|answer| *answer != AnswerOptions::default()),
        })
    }

    fn choice(&self) -> Result<Option<ToolChoice>, Invalid> {
        let choice = match &self.tool_choice {
            None => return Ok(None),
            Some(Value::String(word)) => match word.as_str() {
                "auto" => None,
                "none" => Some(ToolChoice::None),
                "required" => Some(ToolChoice::Required),
                _ => return Err(Invalid::at("tool_choice", "it must be auto, none, required or a function")),
            },
            Some(object) => match (object["type"].as_str(), object["name"].as_str()) {
                (Some("function" | "custom"), Some(name)) => {
                    Some(ToolChoice::Tool { name: join(object["namespace"].as_str(), name) })
                }
                _ => return Err(Invalid::at("tool_choice", "it must be auto, none, required or a function")),
            },
        };
        Ok(choice)
    }

    fn format(&self) -> Result<Option<AnswerFormat>, Invalid> {
        let Some(format) = self.text.as_ref().and_then(|text| text.get("format")) else { return Ok(None) };
        match format["type"].as_str() {
            None if format.is_null() => Ok(None),
            Some("text") => Ok(None),
            Some("json_object") => Ok(Some(AnswerFormat::JsonObject)),
            Some("json_schema") => {
                let Some(name) = format["name"].as_str() else {
                    return Err(Invalid::at("text.format.name", "it must be a string"));
                };
                if !format["schema"].is_object() {
                    return Err(Invalid::at("text.format.schema", "it must be a JSON Schema"));
                }
                Ok(Some(AnswerFormat::JsonSchema {
                    name: name.to_owned(),
                    description: format["description"].as_str().map(str::to_owned),
                    schema: format["schema"].clone(),
                    strict: format["strict"].as_bool(),
                }))
            }
            _ => Err(Invalid::at("text.format.type", "it must be text, json_object or json_schema")),
        }
    }

    /// Returns the context strategy that the request names, or how it sets the default one for this window.
    ///
    /// # Errors
    /// The first field that cannot be used.
    pub(super) fn strategy(&self, window_tokens: u64) -> Result<Option<SetContextStrategy>, Invalid> {
        let named = self.metadata.as_ref().and_then(|metadata| metadata.get(STRATEGY_KEY)).and_then(Value::as_str);
        let managed = self.context_management.iter().flatten();
        let mut compact_at = None;
        for (index, managed) in managed.enumerate() {
            if managed.kind != "compaction" {
                let param = format!("context_management[{index}].type");
                return Err(Invalid::at(param, "only `compaction` is supported"));
            }
            compact_at = managed.compact_threshold.or(compact_at);
        }
        if compact_at.is_some_and(|tokens| tokens < COMPACT_THRESHOLD_MIN) {
            let message = format!("it must be at least {COMPACT_THRESHOLD_MIN}");
            return Err(Invalid::at("context_management[0].compact_threshold", message));
        }
        if named.is_none() && compact_at.is_none() {
            return Ok(None);
        }
        let settings = compact_at.filter(|tokens| *tokens < window_tokens).map(|tokens| StrategySettings {
            threshold: Some(tokens as f64 / window_tokens as f64),
            ..StrategySettings::default()
        });
        Ok(Some(SetContextStrategy { strategy: named.unwrap_or("threshold").to_owned(), settings }))
    }

    /// Returns what is stored with the input: the fields that the response repeats, and the names of the tools.
    pub(super) fn stored(&self, names: &Names) -> Value {
        let mut stored = self.repeated();
        if stored.to_string().len() > REPEATED_BYTES_MAX {
            stored["tools"] = json!([]);
            stored["instructions"] = Value::Null;
            stored["text"] = json!({ "format": { "type": "text" } });
        }
        stored["functions"] = names.stored();
        stored
    }

    /// Returns the fields of the response that repeat the request.
    pub(super) fn repeated(&self) -> Value {
        let tools: Vec<Value> = self.tools.iter().flatten().filter_map(Tool::shown).collect();
        let text = self.text.clone().filter(|text| text.get("format").is_some_and(Value::is_object)).map(Value::Object);
        let effort = self.reasoning.as_ref().and_then(|reasoning| reasoning.effort.as_deref());
        json!({
            "previous_response_id": self.previous_response_id,
            "instructions": self.instructions,
            "tools": tools,
            "tool_choice": self.tool_choice.clone().unwrap_or_else(|| json!("auto")),
            "truncation": self.truncation.as_deref().unwrap_or("disabled"),
            "parallel_tool_calls": self.parallel_tool_calls.unwrap_or(true),
            "text": text.unwrap_or_else(|| json!({ "format": { "type": "text" } })),
            "top_p": self.top_p.unwrap_or(1.0),
            "presence_penalty": self.presence_penalty.unwrap_or(0.0),
            "frequency_penalty": self.frequency_penalty.unwrap_or(0.0),
            "top_logprobs": self.top_logprobs.unwrap_or(0),
            "temperature": self.temperature.unwrap_or(1.0),
            "reasoning": effort.map(|effort| json!({ "effort": effort, "summary": null })),
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": self.max_tool_calls,
            "store": self.store.unwrap_or(true),
            "background": self.background.unwrap_or(false),
            "service_tier": self.service_tier.as_deref().filter(|tier| *tier != "auto").unwrap_or("default"),
            "metadata": self.metadata.clone().unwrap_or_default(),
            "safety_identifier": self.safety_identifier,
            "prompt_cache_key": self.prompt_cache_key,
        })
    }
}

/// Checks the size of metadata, and that they are texts.
///
/// # Errors
/// What is wrong.
pub(super) fn check_metadata(metadata: &Map<String, Value>) -> Result<(), Invalid> {
    let fits = |(key, value): (&String, &Value)| {
        let is_text = value.as_str().is_some_and(|value| value.chars().count() <= METADATA_VALUE_CHARS_MAX);
        is_text && key.chars().count() <= METADATA_KEY_CHARS_MAX
    };
    if metadata.len() <= METADATA_PAIRS_MAX && metadata.iter().all(fits) {
        return Ok(());
    }
    let message = format!(
        "it has at most {METADATA_PAIRS_MAX} pairs of strings, of at most {METADATA_KEY_CHARS_MAX} and \
         {METADATA_VALUE_CHARS_MAX} characters"
    );
    Err(Invalid::at("metadata", message))
}

fn in_range(param: &str, value: Option<f64>, least: f64, most: f64) -> Result<(), Invalid> {
    match value {
        Some(value) if !(least..=most).contains(&value) => {
            Err(Invalid::at(param, format!("it is {value}, and must be {least} to {most}")))
        }
        _ => Ok(()),
    }
}
