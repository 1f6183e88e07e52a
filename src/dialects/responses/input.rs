//! The `input` of a request: earlier messages that the client kept, the user's new words, results of its functions.

use super::{
    references::{Found, reference},
    request::Invalid,
    tools::{SEARCH, Tool, arguments_of, found, join},
};
use reseed_protocol::{CallId, Message, Part, Role};
use serde::Deserialize as _;
use serde_json::Value;

/// The input of a request, taken apart.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Input {
    /// The texts of `system` and `developer` messages, in order.
    pub(super) system: Vec<String>,
    /// The messages before the new words of the user.
    pub(super) history: Vec<Message>,
    /// The new words: the user's messages at the end.
    pub(super) parts: Vec<Part>,
    /// Compactions of an earlier chain, sealed, each with the number of messages before it.
    pub(super) compactions: Vec<(usize, String)>,
    /// Answers to approvals.
    pub(super) approvals: Vec<Approved>,
    /// Tools that are in force from here on.
    pub(super) tools: Vec<Tool>,
    /// True if the client asks for a compaction now.
    pub(super) compacts: bool,
}

/// An answer to an approval.
#[derive(Debug, PartialEq)]
pub(super) struct Approved {
    pub(super) id: String,
    pub(super) approve: bool,
    pub(super) reason: Option<String>,
}

impl Input {
    /// Reads the field `input`, with what its references stand for.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub(super) fn read(input: &Value, found: &Found) -> Result<Self, Invalid> {
        Self::read_at("input", input, found)
    }

    /// Reads a field with this name.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn read_at(name: &str, input: &Value, found: &Found) -> Result<Self, Invalid> {
        let items = match input {
            Value::String(text) => {
                return Ok(Self { parts: vec![Part::Text { text: text.clone() }], ..Self::default() });
            }
            Value::Array(items) => items,
            _ => return Err(Invalid::at(name, "it must be a string or a list of items")),
        };
        let mut read = Self::default();
        for (index, item) in items.iter().enumerate() {
            match reference(item) {
                Some(id) => read.referred(found.get(id), &format!("{name}[{index}]"))?,
                None => read.item(item, &format!("{name}[{index}]"))?,
            }
        }
        // The user's messages at the end are new; those before belong to the history.
        let new = read.history.iter().rev().take_while(|message| message.role == Role::User).count();
        let new = read.history.split_off(read.history.len() - new);
        read.parts = new.into_iter().flat_map(|message| message.content).collect();
        Ok(read)
    }

    fn item(&mut self, item: &Value, at: &str) -> Result<(), Invalid> {
        let kind = match (&item["type"], &item["role"]) {
            (Value::String(kind), _) => kind.as_str(),
            (Value::Null, Value::String(_)) => "message",
            _ => return Err(Invalid::at(format!("{at}.type"), "it names the kind of item")),
        };
        match kind {
            "message" => self.message(item, at),
            "reasoning" => {
                let text = texts(&item["content"], &format!("{at}.content"))?.join("\n");
                self.answer(Part::Reasoning { text, payload: Some(item.clone()) });
                Ok(())
            }
            "function_call" | "custom_tool_call" => {
                let (call_id, name) = (call_id(item, at)?, text(&item["name"], &format!("{at}.name"))?);
                let arguments = match kind {
                    "function_call" => text(&item["arguments"], &format!("{at}.arguments"))?,
                    _ => arguments_of(&text(&item["input"], &format!("{at}.input"))?),
                };
                self.answer(Part::ToolCall { call_id, name: join(item["namespace"].as_str(), &name), arguments });
                Ok(())
            }
            "tool_search_call" => {
                let (name, arguments) = (SEARCH.to_owned(), item["arguments"].to_string());
                self.answer(Part::ToolCall { call_id: call_id(item, at)?, name, arguments });
                Ok(())
            }
            "additional_tools" | "tool_search_output" => {
                let tools: Vec<Tool> = Vec::deserialize(&item["tools"])
                    .map_err(|error| Invalid::at(format!("{at}.tools"), error.to_string()))?;
                if kind == "tool_search_output" {
                    let (call_id, output) = (call_id(item, at)?, found(&tools));
                    let result = Part::ToolResult { call_id, output, is_error: false };
                    self.history.push(Message::new(Role::Tool, vec![result]));
                }
                self.tools.extend(tools);
                Ok(())
            }
            "function_call_output" | "custom_tool_call_output" => {
                let (output, images) = output_parts(&item["output"], &format!("{at}.output"))?;
                let mut content = vec![Part::ToolResult { call_id: call_id(item, at)?, output, is_error: false }];
                content.extend(images);
                self.history.push(Message::new(Role::Tool, content));
                Ok(())
            }
            "mcp_approval_response" => {
                let id = text(&item["approval_request_id"], &format!("{at}.approval_request_id"))?;
                let approved = item["approve"].as_bool();
                let approve =
                    approved.ok_or_else(|| Invalid::at(format!("{at}.approve"), "it must be true or false"))?;
                let reason = item["reason"].as_str().map(str::to_owned);
                self.approvals.push(Approved { id: id.trim_start_matches("mcpr_").to_owned(), approve, reason });
                Ok(())
            }
            "compaction" | "compaction_summary" => {
                self.compactions
                    .push((self.history.len(), text(&item["encrypted_content"], &format!("{at}.encrypted_content"))?));
                Ok(())
            }
            // What the server did is in its own history.
            "mcp_call" | "mcp_approval_request" | "mcp_list_tools" => Ok(()),
            "compaction_trigger" => {
                self.compacts = true;
                Ok(())
            }
            other => {
                let known = "message, reasoning, function_call, function_call_output, custom_tool_call, \
                             custom_tool_call_output, additional_tools, tool_search_call, tool_search_output, compaction, \
                             compaction_trigger, \
                             mcp_approval_response";
                Err(Invalid::at(format!("{at}.type"), format!("`{other}` is not supported; there are {known}")))
            }
        }
    }

    fn referred(&mut self, found: Option<&Vec<Message>>, at: &str) -> Result<(), Invalid> {
        let unknown = || Invalid::at(at, "references are not supported here; send the item itself");
        for message in found.ok_or_else(unknown)? {
            match message.role {
                Role::Assistant => message.content.iter().cloned().for_each(|part| self.answer(part)),
                Role::User | Role::Tool => self.history.push(message.clone()),
            }
        }
        Ok(())
    }

    /// Adds a part of an answer. Parts of one answer are items that follow one another.
    fn answer(&mut self, part: Part) {
        match self.history.last_mut() {
            Some(message) if message.role == Role::Assistant => message.content.push(part),
            _ => self.history.push(Message::new(Role::Assistant, vec![part])),
        }
    }

    fn message(&mut self, item: &Value, at: &str) -> Result<(), Invalid> {
        let (content, at_content) = (&item["content"], format!("{at}.content"));
        match item["role"].as_str() {
            Some("user") => {
                let parts = user_parts(content, &at_content)?;
                self.history.push(Message::new(Role::User, parts));
            }
            Some("assistant") => {
                for text in texts(content, &at_content)? {
                    self.answer(Part::Text { text });
                }
            }
            Some("system" | "developer") => self.system.extend(texts(content, &at_content)?),
            _ => return Err(Invalid::at(format!("{at}.role"), "it must be user, assistant, system or developer")),
        }
        Ok(())
    }
}

fn text(value: &Value, at: &str) -> Result<String, Invalid> {
    value.as_str().map(str::to_owned).ok_or_else(|| Invalid::at(at, "it must be a string"))
}

fn call_id(item: &Value, at: &str) -> Result<CallId, Invalid> {
    let at = format!("{at}.call_id");
    text(&item["call_id"], &at)?.parse().map_err(|error| Invalid::at(at, format!("{error}")))
}

/// Returns the texts of a content: a string, or a list of parts with texts.
fn texts(content: &Value, at: &str) -> Result<Vec<String>, Invalid> {
    match content {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(parts) => {
            let text_of = |(index, part): (usize, &Value)| {
                let text = part["text"].as_str().or(part["refusal"].as_str()).map(str::to_owned);
                text.ok_or_else(|| Invalid::at(format!("{at}[{index}]"), "only parts with text are supported here"))
            };
            parts.iter().enumerate().map(text_of).collect()
        }
        _ => Err(Invalid::at(at, "it must be a string or a list of parts")),
    }
}

/// Returns the text of a result, and its images.
fn output_parts(output: &Value, at: &str) -> Result<(String, Vec<Part>), Invalid> {
    if output.is_null() {
        return Ok((String::new(), Vec::new()));
    }
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for part in user_parts(output, at)? {
        match part {
            Part::Text { text } => texts.push(text),
            image => images.push(image),
        }
    }
    if texts.is_empty() && !images.is_empty() {
        texts.push("[image]".to_owned());
    }
    Ok((texts.join("\n"), images))
}

/// Returns the parts of a user's message.
fn user_parts(content: &Value, at: &str) -> Result<Vec<Part>, Invalid> {
    let Value::Array(parts) = content else {
        return Ok(vec![Part::Text { text: text(content, at)? }]);
    };
    let read = |(index, part): (usize, &Value)| {
        let at = format!("{at}[{index}]");
        match part["type"].as_str() {
            Some("input_text" | "output_text" | "text") => {
                Ok(Part::Text { text: text(&part["text"], &format!("{at}.text"))? })
            }
            Some("input_image") => {
                let url = text(&part["image_url"], &format!("{at}.image_url"))?;
                Ok(Part::Image { url, detail: part["detail"].as_str().map(str::to_owned) })
            }
            Some(other) => {
                let message = format!("`{other}` is not supported; there are input_text and input_image");
                Err(Invalid::at(format!("{at}.type"), message))
            }
            None => Err(Invalid::at(format!("{at}.type"), "it names the kind of part")),
        }
    };
    parts.iter().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(input: Value) -> Result<Input, String> {
        Input::read(&input, &Found::new()).map_err(|invalid| format!("{}: {}", invalid.param, invalid.message))
    }

    #[test]
    fn the_messages_at_the_end_are_new_and_the_others_history() {
        let input = read(json!([
            { "role": "system", "content": "Be brief." },
            { "type": "message", "role": "user", "content": "My name is Alice." },
            { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" },
            { "type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}" },
            { "type": "function_call_output", "call_id": "call_1", "output": [{ "type": "input_text", "text": "sea" }] },
            { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Hello Alice!" }] },
            { "role": "user", "content": [
                { "type": "input_text", "text": "Who am I?" },
                { "type": "input_image", "image_url": "https://sea.example/a.png", "detail": "low" },
            ] },
        ]))
        .expect("it can be read");
        let roles: Vec<Role> = input.history.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant]);
        assert_eq!(input.history[1].content.len(), 2, "reasoning and its call are one answer");
        assert_eq!((input.system, input.parts.len()), (vec!["Be brief.".to_owned()], 2));
    }

    #[test]
    fn results_alone_continue_a_turn() {
        let input = read(json!([
            { "type": "function_call_output", "call_id": "call_1", "output": "sea" },
            { "type": "function_call_output", "call_id": "call_2", "output": "land" },
        ]))
        .expect("it can be read");
        let roles: Vec<Role> = input.history.iter().map(|message| message.role).collect();
        assert_eq!((roles, input.parts.len()), (vec![Role::Tool, Role::Tool], 0));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let table = [
            (json!(7), "input: it must be a string or a list of items"),
            (json!([7]), "input[0].type: it names the kind of item"),
            (
                json!([{ "type": "surprise" }]),
                "input[0].type: `surprise` is not supported; there are message, reasoning, function_call, function_call_output, custom_tool_call, custom_tool_call_output, additional_tools, tool_search_call, tool_search_output, compaction, compaction_trigger, mcp_approval_response",
            ),
            (
                json!([{ "role": "critic", "content": "x" }]),
                "input[0].role: it must be user, assistant, system or developer",
            ),
            (json!([{ "role": "user", "content": 7 }]), "input[0].content: it must be a string"),
            (
                json!([{ "role": "user", "content": [{ "type": "input_audio" }] }]),
                "input[0].content[0].type: `input_audio` is not supported; there are input_text and input_image",
            ),
            (
                json!([{ "role": "assistant", "content": [{ "type": "output_text" }] }]),
                "input[0].content[0]: only parts with text are supported here",
            ),
            (json!([{ "type": "function_call_output", "output": "x" }]), "input[0].call_id: it must be a string"),
        ];
        for (input, expected) in table {
            assert_eq!(read(input).expect_err(expected), expected);
        }
    }
}
