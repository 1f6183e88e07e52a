//! Reads the body of a request: what the client says, and how it wants to be answered.

use super::said::{Call, Said};
use crate::http::Failure;
use reseed_protocol::{
    Part,
    context::{AnswerFormat, AnswerOptions, ToolChoice},
    session::SetOptions,
    tools::ToolOffer,
};
use serde_json::{Map, Value};

/// A request, as far as the session needs it.
#[derive(Debug, PartialEq)]
pub(super) struct Request {
    pub(super) model: String,
    /// The system prompts, joined; `None` if there are none.
    pub(super) instructions: Option<String>,
    /// All other messages. The last one is by the user, or a result.
    pub(super) list: Vec<Said>,
    pub(super) tools: Vec<ToolOffer>,
    pub(super) options: SetOptions,
    pub(super) reasoning_effort: Option<String>,
    pub(super) prompt_cache_key: Option<String>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
}

impl Request {
    /// Returns the names of the client's tools.
    pub(super) fn functions(&self) -> Vec<String> {
        self.tools.iter().map(|tool| tool.name.clone()).collect()
    }
}

/// Reads a body.
///
/// # Errors
/// Returns the first field that is missing, has a wrong type, or asks for what this server does not do.
pub(super) fn read(body: &[u8]) -> Result<Request, Failure> {
    let body: Value = serde_json::from_slice(body).map_err(|error| {
        let message = format!("the body is not JSON: line {}, column {}", error.line(), error.column());
        Failure::invalid(message).with_code("invalid_json")
    })?;
    let Value::Object(body) = body else {
        return Err(Failure::invalid("the body must be a JSON object").with_code("invalid_json"));
    };
    let body = Fields { fields: &body, at: String::new() };
    refuse_unsupported(&body)?;
    let (list, instructions) = messages(&body)?;
    let stream_options = body.object("stream_options")?;
    Ok(Request {
        model: body.text("model")?.ok_or_else(|| body.missing("model"))?.to_owned(),
        instructions,
        list,
        tools: tools(&body)?,
        options: options(&body)?,
        reasoning_effort: body.text("reasoning_effort")?.map(str::to_owned),
        prompt_cache_key: body.text("prompt_cache_key")?.map(str::to_owned),
        stream: body.flag("stream")?.unwrap_or(false),
        include_usage: match stream_options {
            Some(options) => options.flag("include_usage")?.unwrap_or(false),
            None => false,
        },
    })
}

/// The fields of an object in the body, with its place for errors.
struct Fields<'a> {
    fields: &'a Map<String, Value>,
    /// Empty for the body, or such as `messages[3].`.
    at: String,
}

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn param(&self, name: &str) -> String {
        format!("{}{name}", self.at)
    }

    fn missing(&self, name: &str) -> Failure {
        let param = self.param(name);
        Failure::invalid(format!("`{param}` is missing")).with_code("missing_required_parameter").at(param)
    }

    fn wrong(&self, name: &str, expected: &str) -> Failure {
        let param = self.param(name);
        Failure::invalid(format!("`{param}` must be {expected}")).with_code("invalid_type").at(param)
    }

    fn unsupported(&self, name: &str, why: &str) -> Failure {
        let param = self.param(name);
        Failure::invalid(format!("`{param}`: {why}")).with_code("unsupported_parameter").at(param)
    }

    fn typed<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| self.wrong(name, expected)),
        }
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, Failure> {
        self.typed(name, "a text", Value::as_str)
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, Failure> {
        self.typed(name, "true or false", Value::as_bool)
    }

    fn number(&self, name: &str) -> Result<Option<f64>, Failure> {
        self.typed(name, "a number", Value::as_f64)
    }

    fn count(&self, name: &str) -> Result<Option<u64>, Failure> {
        self.typed(name, "a whole number, at least 0", Value::as_u64)
    }

    fn object(&self, name: &str) -> Result<Option<Fields<'a>>, Failure> {
        let fields = self.typed(name, "an object", Value::as_object)?;
        Ok(fields.map(|fields| Fields { fields, at: format!("{}{name}.", self.at) }))
    }

    fn objects(&self, name: &str) -> Result<Vec<Fields<'a>>, Failure> {
        let items = self.typed(name, "a list", Value::as_array)?.map_or(&[][..], Vec::as_slice);
        let object = |(n, item): (usize, &'a Value)| {
            let place = format!("{name}[{n}]");
            let fields = item.as_object().ok_or_else(|| self.wrong(&place, "an object"))?;
            Ok(Fields { fields, at: format!("{}{place}.", self.at) })
        };
        items.iter().enumerate().map(object).collect()
    }
}

/// Refuses what would change the answer and is not done here.
fn refuse_unsupported(body: &Fields<'_>) -> Result<(), Failure> {
    let is_zero = |value: &Value| value.as_f64() == Some(0.0) || *value == false;
    let is_empty = |value: &Value| match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    let only_text = |value: &Value| value.as_array().is_some_and(|kinds| kinds.iter().all(|kind| kind == "text"));
    let one = |value: &Value| value.as_f64() == Some(1.0);
    type Harmless<'a> = &'a dyn Fn(&Value) -> bool;
    let table: [(&str, Harmless<'_>, &str); 11] = [
        ("n", &one, "one answer is given; send another request for another one"),
        ("presence_penalty", &is_zero, "penalties are not available"),
        ("frequency_penalty", &is_zero, "penalties are not available"),
        ("logit_bias", &is_empty, "a bias for tokens is not available"),
        ("stop", &is_empty, "texts that stop the answer are not available"),
        ("audio", &|_| false, "audio is not available"),
        ("modalities", &only_text, "only text is available"),
        ("functions", &is_empty, "use `tools` instead"),
        ("function_call", &|value| value == "none" || value == "auto", "use `tool_choice` instead"),
        ("web_search_options", &|_| false, "search is not available; offer a tool for it"),
        ("moderation", &|_| false, "moderation is not available"),
    ];
    for (name, is_harmless, why) in table {
        if body.get(name).is_some_and(|value| !is_harmless(value)) {
            return Err(body.unsupported(name, why));
        }
    }
    Ok(())
}

fn options(body: &Fields<'_>) -> Result<SetOptions, Failure> {
    let most = match body.count("max_completion_tokens")? {
        Some(most) => Some(most),
        None => body.count("max_tokens")?,
    };
    let answer = AnswerOptions {
        tool_choice: tool_choice(body)?,
        parallel_tool_calls: body.flag("parallel_tool_calls")?,
        format: format(body)?,
        top_logprobs: match body.flag("logprobs")? {
            Some(true) => Some(u32::try_from(body.count("top_logprobs")?.unwrap_or(0)).unwrap_or(u32::MAX)),
            _ => None,
        },
    };
    Ok(SetOptions {
        temperature: body.number("temperature")?,
        top_p: body.number("top_p")?,
        max_output_tokens: most,
        answer: Some(answer).filter(|answer| *answer != AnswerOptions::default()),
    })
}

fn tool_choice(body: &Fields<'_>) -> Result<Option<ToolChoice>, Failure> {
    let Some(value) = body.get("tool_choice") else { return Ok(None) };
    match value.as_str() {
        Some("auto") => return Ok(Some(ToolChoice::Auto)),
        Some("none") => return Ok(Some(ToolChoice::None)),
        Some("required") => return Ok(Some(ToolChoice::Required)),
        Some(_) => return Err(body.wrong("tool_choice", "`auto`, `none`, `required` or a function")),
        None => {}
    }
    let choice = body.object("tool_choice")?.ok_or_else(|| body.missing("tool_choice"))?;
    if choice.text("type")? != Some("function") {
        return Err(body.unsupported("tool_choice", "only `function` can be chosen by name"));
    }
    let function = choice.object("function")?.ok_or_else(|| choice.missing("function"))?;
    let name = function.text("name")?.ok_or_else(|| function.missing("name"))?.to_owned();
    Ok(Some(ToolChoice::Tool { name }))
}

fn format(body: &Fields<'_>) -> Result<Option<AnswerFormat>, Failure> {
    let Some(format) = body.object("response_format")? else { return Ok(None) };
    match format.text("type")?.ok_or_else(|| format.missing("type"))? {
        "text" => Ok(None),
        "json_object" => Ok(Some(AnswerFormat::JsonObject)),
        "json_schema" => {
            let schema = format.object("json_schema")?.ok_or_else(|| format.missing("json_schema"))?;
            Ok(Some(AnswerFormat::JsonSchema {
                name: schema.text("name")?.ok_or_else(|| schema.missing("name"))?.to_owned(),
                description: schema.text("description")?.map(str::to_owned),
                schema: schema.get("schema").cloned().ok_or_else(|| schema.missing("schema"))?,
                strict: schema.flag("strict")?,
            }))
        }
        _ => Err(format.unsupported("type", "it must be `text`, `json_object` or `json_schema`")),
    }
}

fn tools(body: &Fields<'_>) -> Result<Vec<ToolOffer>, Failure> {
    let offer = |tool: Fields<'_>| {
        if tool.text("type")?.unwrap_or("function") != "function" {
            return Err(tool.unsupported("type", "only tools of the type `function` are available"));
        }
        let function = tool.object("function")?.ok_or_else(|| tool.missing("function"))?;
        let name = function.text("name")?.ok_or_else(|| function.missing("name"))?;
        let parameters = function.object("parameters")?.map_or(Value::Null, |fields| fields.fields.clone().into());
        let description = function.text("description")?.unwrap_or_default();
        Ok(ToolOffer { ends_turn: Some(true), ..ToolOffer::new(name, description, parameters) })
    };
    body.objects("tools")?.into_iter().map(offer).collect()
}

/// Returns the messages, and the system prompts among them.
fn messages(body: &Fields<'_>) -> Result<(Vec<Said>, Option<String>), Failure> {
    if body.get("messages").is_none() {
        return Err(body.missing("messages"));
    }
    let mut prompts = Vec::new();
    let mut list = Vec::new();
    for message in body.objects("messages")? {
        match message.text("role")?.ok_or_else(|| message.missing("role"))? {
            "system" | "developer" => prompts.push(plain(&message)?),
            "user" => list.extend(Some(user_parts(&message)?).filter(|parts| !parts.is_empty()).map(Said::User)),
            "assistant" => list.extend(answer(&message)?),
            "tool" => {
                let call = message.text("tool_call_id")?.ok_or_else(|| message.missing("tool_call_id"))?.to_owned();
                list.push(Said::Result { call, output: plain(&message)? });
            }
            "function" => return Err(message.unsupported("role", "use the role `tool` instead")),
            _ => return Err(message.wrong("role", "`system`, `developer`, `user`, `assistant` or `tool`")),
        }
    }
    if list.is_empty()
        && let Some(last) = prompts.pop()
    {
        // Some programs put all that they say into a system prompt.
        list.push(Said::User(vec![Part::Text { text: last }]));
    }
    match list.last() {
        None => Err(body.wrong("messages", "a list with a message")),
        Some(Said::Answer { .. }) => {
            Err(body.unsupported("messages", "the last message must be of the role `user` or `tool`"))
        }
        Some(_) => Ok((list, Some(prompts.join("\n\n")).filter(|_| !prompts.is_empty()))),
    }
}

/// Returns the text of a message that has only text.
fn plain(message: &Fields<'_>) -> Result<String, Failure> {
    let Some(content) = message.get("content") else { return Ok(String::new()) };
    if let Some(text) = content.as_str() {
        return Ok(text.to_owned());
    }
    if !content.is_array() {
        return Err(message.wrong("content", "a text or a list of parts"));
    }
    let text = |part: Fields<'_>| match part.text("type")?.ok_or_else(|| part.missing("type"))? {
        "text" => Ok(part.text("text")?.ok_or_else(|| part.missing("text"))?.to_owned()),
        "refusal" => Ok(part.text("refusal")?.ok_or_else(|| part.missing("refusal"))?.to_owned()),
        _ => Err(part.unsupported("type", "this message can have only `text`")),
    };
    let texts: Result<Vec<String>, Failure> = message.objects("content")?.into_iter().map(text).collect();
    Ok(texts?.concat())
}

fn user_parts(message: &Fields<'_>) -> Result<Vec<Part>, Failure> {
    let content = message.get("content").ok_or_else(|| message.missing("content"))?;
    if let Some(text) = content.as_str() {
        return Ok(vec![Part::Text { text: text.to_owned() }]);
    }
    if !content.is_array() {
        return Err(message.wrong("content", "a text or a list of parts"));
    }
    let part = |part: Fields<'_>| match part.text("type")?.ok_or_else(|| part.missing("type"))? {
        "text" => Ok(Part::Text { text: part.text("text")?.ok_or_else(|| part.missing("text"))?.to_owned() }),
        "image_url" => {
            let image = part.object("image_url")?.ok_or_else(|| part.missing("image_url"))?;
            let url = image.text("url")?.ok_or_else(|| image.missing("url"))?;
            if !(url.starts_with("https://") || url.starts_with("data:image/")) {
                return Err(image.wrong("url", "an address that begins with https:// or data:image/"));
            }
            Ok(Part::Image { url: url.to_owned(), detail: image.text("detail")?.map(str::to_owned) })
        }
        _ => Err(part.unsupported("type", "only `text` and `image_url` are available")),
    };
    message.objects("content")?.into_iter().map(part).collect()
}

/// Returns an answer, unless it says nothing.
fn answer(message: &Fields<'_>) -> Result<Option<Said>, Failure> {
    let mut text = plain(message)?;
    text.push_str(message.text("refusal")?.unwrap_or_default());
    if message.get("function_call").is_some() {
        return Err(message.unsupported("function_call", "use `tool_calls` instead"));
    }
    let call = |call: Fields<'_>| {
        if call.text("type")?.unwrap_or("function") != "function" {
            return Err(call.unsupported("type", "only calls of the type `function` are available"));
        }
        let function = call.object("function")?.ok_or_else(|| call.missing("function"))?;
        Ok(Call {
            id: call.text("id")?.unwrap_or_default().to_owned(),
            name: function.text("name")?.ok_or_else(|| function.missing("name"))?.to_owned(),
            arguments: function.text("arguments")?.unwrap_or_default().to_owned(),
        })
    };
    let calls: Vec<Call> = message.objects("tool_calls")?.into_iter().map(call).collect::<Result<_, _>>()?;
    Ok((!text.trim().is_empty() || !calls.is_empty()).then_some(Said::Answer { text, calls }))
}

#[cfg(test)]
mod tests;
