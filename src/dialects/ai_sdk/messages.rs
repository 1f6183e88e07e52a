//! The messages of a chat as the AI SDK sends them (`UIMessage`), and what they mean in a session.

use reseed_protocol::{
    CallId,
    content::{Input, InputContent, InputItem, InputPart, Message, Part, Role},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// A message.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct UiMessage {
    pub(super) id: String,
    pub(super) role: UiRole,
    pub(super) parts: Vec<UiPart>,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum UiRole {
    System,
    User,
    Assistant,
}

/// A part of a message. Parts of all types have these fields; most have few of them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct UiPart {
    #[serde(rename = "type")]
    kind: String,
    id: Option<String>,
    text: Option<String>,
    url: Option<String>,
    media_type: Option<String>,
    tool_name: Option<String>,
    tool_call_id: Option<String>,
    state: Option<String>,
    input: Option<Value>,
    output: Option<Value>,
    error_text: Option<String>,
    preliminary: Option<bool>,
    approval: Option<UiApproval>,
}

/// The approval of a tool call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct UiApproval {
    id: String,
    approved: Option<bool>,
    reason: Option<String>,
}

/// A person's answer to an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Approved {
    /// The approval.
    pub(super) id: String,
    /// The call, as the page knows it.
    pub(super) call: String,
    pub(super) approved: bool,
    pub(super) reason: Option<String>,
}

/// What a tool returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Output {
    /// The call, as the page knows it.
    pub(super) call: String,
    pub(super) text: String,
    pub(super) is_error: bool,
}

impl UiPart {
    fn is_tool(&self) -> bool {
        self.kind == "dynamic-tool" || self.kind.starts_with("tool-")
    }

    /// Returns the name of the tool that is called.
    fn tool(&self) -> Option<&str> {
        if self.kind == "dynamic-tool" { self.tool_name.as_deref() } else { self.kind.strip_prefix("tool-") }
    }

    /// Returns the output of a tool, if it is final.
    fn output(&self) -> Option<Output> {
        let call = self.tool_call_id.clone().filter(|_| self.is_tool())?;
        match self.state.as_deref()? {
            "output-available" if self.preliminary != Some(true) => {
                let text = match &self.output {
                    Some(Value::String(text)) => text.clone(),
                    Some(output) => output.to_string(),
                    None => String::new(),
                };
                Some(Output { call, text, is_error: false })
            }
            "output-error" => Some(Output { call, text: self.error_text.clone().unwrap_or_default(), is_error: true }),
            "output-denied" => Some(Output { call, text: "the user rejected this call.".to_owned(), is_error: true }),
            _ => None,
        }
    }

    fn approved(&self) -> Option<Approved> {
        let approval = self.approval.as_ref().filter(|_| self.is_tool())?;
        let (approved, call) = (approval.approved?, self.tool_call_id.clone()?);
        Some(Approved { id: approval.id.clone(), call, approved, reason: approval.reason.clone() })
    }
}

impl UiMessage {
    /// Returns its texts, joined by newlines.
    pub(super) fn text(&self) -> String {
        let texts: Vec<&str> =
            self.parts.iter().filter(|part| part.kind == "text").filter_map(|part| part.text.as_deref()).collect();
        texts.join("\n")
    }

    /// Returns the final outputs of its tools.
    pub(super) fn outputs(&self) -> Vec<Output> {
        self.parts.iter().filter_map(UiPart::output).collect()
    }

    /// Returns the answers to approvals.
    pub(super) fn approvals(&self) -> Vec<Approved> {
        self.parts.iter().filter_map(UiPart::approved).collect()
    }

    /// Returns all its tool calls, as the page knows them.
    pub(super) fn calls(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter(|part| part.is_tool()).filter_map(|part| part.tool_call_id.as_deref())
    }

    /// Returns the messages of the user that joined the turn, as the page knows them.
    pub(super) fn steered(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter(|part| part.kind == "steering-message").filter_map(|part| part.id.as_deref())
    }

    /// Returns the calls whose end the page knows.
    pub(super) fn ended_calls(&self) -> impl Iterator<Item = &str> {
        let ended = |part: &&UiPart| part.output().is_some();
        self.parts.iter().filter(ended).filter_map(|part| part.tool_call_id.as_deref())
    }

    /// Returns the content of a user's message. Sources, data and parts that only an assistant has are left out.
    ///
    /// # Errors
    /// A file that is no image, or nothing to say.
    pub(super) fn input(&self) -> Result<Vec<InputPart>, String> {
        let mut parts = Vec::new();
        for part in &self.parts {
            match (part.kind.as_str(), &part.text, &part.url) {
                ("text", Some(text), _) if !text.is_empty() => parts.push(InputPart::Text { text: text.clone() }),
                ("file", _, Some(url)) => {
                    let kind = part.media_type.as_deref().unwrap_or_default();
                    if kind != "image" && !kind.starts_with("image/") {
                        return Err(format!(
                            "a file of the type `{kind}` cannot be sent to the model; only images can"
                        ));
                    }
                    parts.push(InputPart::Image { url: url.clone(), detail: None });
                }
                _ => {}
            }
        }
        if parts.is_empty() { Err("the last message has neither a text nor an image".to_owned()) } else { Ok(parts) }
    }

    /// Returns the messages that stand for it in a session that has not seen it. Reasoning without the provider's own
    /// data would be of no use to the model, and is left out.
    ///
    /// # Errors
    /// A file that is no image, or an id of a tool call that is not one.
    pub(super) fn history(&self) -> Result<Vec<Message>, String> {
        match self.role {
            UiRole::System => Ok(Vec::new()),
            UiRole::User => {
                let content = self.input()?.into_iter().map(content).collect();
                Ok(vec![Message::new(Role::User, content)])
            }
            UiRole::Assistant => self.answers(),
        }
    }

    /// Returns the answers of the model in an assistant's message, each followed by the results of its tools.
    fn answers(&self) -> Result<Vec<Message>, String> {
        let mut messages = Vec::new();
        let (mut said, mut results) = (Vec::new(), Vec::new());
        let mut step = |said: &mut Vec<Part>, results: &mut Vec<Message>| {
            if !said.is_empty() {
                messages.push(Message::new(Role::Assistant, std::mem::take(said)));
                messages.append(results);
            }
        };
        for part in &self.parts {
            match part.kind.as_str() {
                "step-start" => step(&mut said, &mut results),
                "text" => {
                    // A text after results is another answer, whether or not a step begins there.
                    if !results.is_empty() {
                        step(&mut said, &mut results);
                    }
                    let text = part.text.clone().filter(|text| !text.is_empty());
                    said.extend(text.map(|text| Part::Text { text }));
                }
                _ => {
                    let (Some(name), Some(id)) = (part.tool(), &part.tool_call_id) else { continue };
                    let call_id: CallId = id.parse().map_err(|why| format!("the tool call id {id:?}: {why}"))?;
                    let arguments = match &part.input {
                        Some(Value::String(text)) => text.clone(),
                        Some(input) => input.to_string(),
                        None => "{}".to_owned(),
                    };
                    said.push(Part::ToolCall { call_id: call_id.clone(), name: name.to_owned(), arguments });
                    results.extend(part.output().map(|output| result(call_id, output)));
                }
            }
        }
        step(&mut said, &mut results);
        Ok(messages)
    }
}

/// Returns the message with the result of a tool call.
pub(super) fn result(call_id: CallId, output: Output) -> Message {
    Message::new(Role::Tool, vec![Part::ToolResult { call_id, output: output.text, is_error: output.is_error }])
}

/// Returns input of these parts.
pub(super) fn input(parts: Vec<InputPart>) -> Input {
    let content = InputContent::Parts(parts);
    Input::Items(vec![InputItem { kind: None, id: None, status: None, role: "user".to_owned(), content }])
}

/// Returns the parts of a message of the user.
pub(super) fn shown_parts(message: &Message) -> Vec<Value> {
    let shown = message.content.iter().filter_map(|part| match part {
        Part::Text { text } => Some(json!({ "type": "text", "text": text })),
        Part::Image { url, .. } => Some(json!({ "type": "file", "mediaType": media_type(url), "url": url })),
        Part::Reasoning { .. } | Part::ToolCall { .. } | Part::ToolResult { .. } => None,
    });
    shown.collect()
}

/// Returns the media type of an image, as far as its address tells it.
pub(super) fn media_type(url: &str) -> &str {
    url.strip_prefix("data:").and_then(|rest| rest.split([';', ',']).next()).unwrap_or("image")
}

fn content(part: InputPart) -> Part {
    match part {
        InputPart::Text { text } | InputPart::InputText { text } => Part::Text { text },
        InputPart::Image { url, detail } | InputPart::InputImage { image_url: url, detail } => {
            Part::Image { url, detail }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: &str, parts: Value) -> UiMessage {
        serde_json::from_value(json!({"id": "m", "role": role, "parts": parts, "metadata": {"x": 1}})).unwrap()
    }

    #[test]
    fn a_users_message_is_its_texts_and_images() {
        let parts = json!([
            {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AA==", "filename": "a.png"},
            {"type": "text", "text": "What is it?"},
            {"type": "text", "text": ""},
            {"type": "data-note", "id": "n", "data": {"text": "left out"}},
        ]);
        let expected = json!([
            {"type": "image", "url": "data:image/png;base64,AA=="},
            {"type": "text", "text": "What is it?"},
        ]);
        assert_eq!(serde_json::to_value(message("user", parts).input().unwrap()).unwrap(), expected);
        let pdf = json!([{"type": "file", "mediaType": "application/pdf", "url": "https://a.example/b.pdf"}]);
        assert!(message("user", pdf).input().unwrap_err().contains("application/pdf"));
        assert!(message("user", json!([])).input().is_err());
    }

    #[test]
    fn an_unknown_assistants_message_becomes_answers_and_results() {
        let parts = json!([
            {"type": "step-start"},
            {"type": "reasoning", "text": "hm", "state": "done"},
            {"type": "text", "text": "Let me look.", "state": "done"},
            {"type": "tool-look", "toolCallId": "c1", "state": "output-available", "input": {"at": 1}, "output": [2]},
            {"type": "dynamic-tool", "toolName": "dig", "toolCallId": "c2", "state": "output-error", "input": {},
             "errorText": "no spade"},
            {"type": "step-start"},
            {"type": "text", "text": "Done."},
        ]);
        let history = message("assistant", parts).history().unwrap();
        let expected = json!([
            {"role": "assistant", "content": [
                {"type": "text", "text": "Let me look."},
                {"type": "tool_call", "toolCallId": "c1", "name": "look", "arguments": "{\"at\":1}"},
                {"type": "tool_call", "toolCallId": "c2", "name": "dig", "arguments": "{}"},
            ]},
            {"role": "tool", "content": [{"type": "tool_result", "toolCallId": "c1", "output": "[2]"}]},
            {"role": "tool", "content": [
                {"type": "tool_result", "toolCallId": "c2", "output": "no spade", "isError": true},
            ]},
            {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
        ]);
        assert_eq!(serde_json::to_value(history).unwrap(), expected);
        let bad = json!([{"type": "tool-x", "toolCallId": "a b", "state": "input-available", "input": {}}]);
        assert!(message("assistant", bad).history().is_err());
    }

    #[test]
    fn outputs_and_approvals_are_those_that_are_final() {
        let parts = json!([
            {"type": "tool-a", "toolCallId": "1", "state": "input-available", "input": {}},
            {"type": "tool-a", "toolCallId": "2", "state": "output-available", "output": "text", "preliminary": true},
            {"type": "tool-a", "toolCallId": "3", "state": "output-available", "output": "text"},
            {"type": "tool-a", "toolCallId": "4", "state": "approval-requested", "approval": {"id": "p4"}},
            {"type": "tool-a", "toolCallId": "5", "state": "approval-responded",
             "approval": {"id": "p5", "approved": false, "reason": "no"}},
            {"type": "text", "text": "x", "toolCallId": "6", "state": "output-available"},
        ]);
        let message = message("assistant", parts);
        assert_eq!(message.outputs(), [Output { call: "3".into(), text: "text".into(), is_error: false }]);
        let answered = Approved { id: "p5".into(), call: "5".into(), approved: false, reason: Some("no".into()) };
        assert_eq!(message.approvals(), [answered]);
        assert_eq!(message.calls().collect::<Vec<_>>(), ["1", "2", "3", "4", "5"]);
        assert_eq!(message.ended_calls().collect::<Vec<_>>(), ["3"]);
    }
}
