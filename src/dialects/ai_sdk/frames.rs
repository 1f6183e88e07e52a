//! The frames of `WebSocketChatTransport`: what a client sends, checked as the AI SDK checks it, and what it gets.

use super::{chunks::Chunk, messages::UiMessage};
use crate::exchange::Wanted;
use reseed_protocol::{
    compaction::{SetContextStrategy, StrategySettings},
    session::{SessionSettings, SetOptions},
    tools::ToolOffer,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Maximum characters of a request's id and of a chat's. The AI SDK makes ids of 16 characters.
const ID_CHARS_MAX: usize = 256;

/// A frame of a client. Unknown fields are ignored, as the AI SDK ignores them.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub(super) enum ClientFrame {
    /// Asks for an answer.
    Send(Box<Send>),
    /// Asks for the answer that is being written.
    Resume(Box<Resume>),
    /// Stops reading an answer.
    Abort {
        /// The request.
        request_id: String,
    },
}

/// A request for an answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Send {
    pub(super) request_id: String,
    /// The chat.
    pub(super) id: String,
    pub(super) trigger: Trigger,
    /// With `submit-message`, the message that was edited, or the assistant's message that goes on. With
    /// `regenerate-message`, the assistant's message to write anew.
    #[serde(default)]
    pub(super) message_id: Option<String>,
    pub(super) messages: Vec<UiMessage>,
    #[serde(rename = "headers")]
    _headers: BTreeMap<String, String>,
    body: Map<String, Value>,
}

/// A request for the answer that is being written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resume {
    pub(super) request_id: String,
    /// The chat.
    pub(super) id: String,
    #[serde(default, rename = "lastSequence")]
    _last_sequence: Option<u64>,
    #[serde(rename = "headers")]
    _headers: BTreeMap<String, String>,
    body: Map<String, Value>,
}

/// Why a client sends its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Trigger {
    /// There is something new: a message, the output of a tool, the answer to an approval.
    SubmitMessage,
    /// The last answer is to be written anew.
    RegenerateMessage,
}

/// What an application may say in `body`. Its other fields are the application's own.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Wishes {
    /// The tools that the browser runs.
    #[serde(default)]
    pub(super) tools: Vec<BrowserTool>,
    /// What `abort` does to a turn.
    #[serde(default)]
    pub(super) on_abort: OnAbort,
    /// The model; absent for the session's.
    #[serde(default)]
    model: Option<String>,
    /// The reasoning effort, in the provider's terms.
    #[serde(default)]
    reasoning_effort: Option<String>,
    /// The system prompt; absent for the session's.
    #[serde(default)]
    pub(super) instructions: Option<String>,
    /// The context strategy; absent for the session's.
    #[serde(default)]
    strategy: Option<String>,
    /// The strategy's settings; absent for the deployment's.
    #[serde(default)]
    strategy_settings: Option<StrategySettings>,
    #[serde(default)]
    temperature: Option<f64>,
    #[serde(default)]
    top_p: Option<f64>,
    /// Maximum tokens of an answer, including its reasoning.
    #[serde(default)]
    max_output_tokens: Option<u64>,
}

impl Wishes {
    /// Returns the settings of the session that are wanted, for one with these.
    pub(super) fn settings(self, now: &SessionSettings) -> Wanted {
        let options = SetOptions {
            temperature: self.temperature.or(now.temperature),
            top_p: self.top_p.or(now.top_p),
            max_output_tokens: self.max_output_tokens.or(now.max_output_tokens),
            answer: now.answer.clone(),
        };
        let settings = self.strategy_settings;
        Wanted {
            model: self.model,
            reasoning_effort: self.reasoning_effort,
            instructions: self.instructions.map(Some),
            options: Some(options),
            strategy: self.strategy.map(|strategy| SetContextStrategy { strategy, settings }),
        }
    }
}

/// A tool that the browser runs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct BrowserTool {
    pub(super) name: String,
    #[serde(default)]
    description: String,
    /// JSON Schema of its input.
    #[serde(default)]
    parameters: Value,
}

impl BrowserTool {
    /// Returns the offer to the model. A call of the tool ends the turn.
    pub(super) fn offer(self) -> ToolOffer {
        ToolOffer { ends_turn: Some(true), ..ToolOffer::new(self.name, self.description, self.parameters) }
    }
}

/// What `abort` does to a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OnAbort {
    /// The turn goes on. A page that is left aborts too.
    #[default]
    Detach,
    /// The turn is cancelled.
    Cancel,
}

impl ClientFrame {
    /// Reads a frame.
    ///
    /// # Errors
    /// The reason why it is invalid, which ends the connection.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let frame: Self = serde_path_to_error::deserialize(&mut reader).map_err(|error| error.to_string())?;
        reader.end().map_err(|error| error.to_string())?;
        let (request, chat) = match &frame {
            Self::Send(send) => (&send.request_id, Some(&send.id)),
            Self::Resume(resume) => (&resume.request_id, Some(&resume.id)),
            Self::Abort { request_id } => (request_id, None),
        };
        for (name, id) in [("requestId", Some(request)), ("id", chat)] {
            if id.is_some_and(|id| id.is_empty() || id.chars().count() > ID_CHARS_MAX) {
                return Err(format!("`{name}` must have 1 to {ID_CHARS_MAX} characters"));
            }
        }
        Ok(frame)
    }
}

impl Send {
    /// Returns what the application says in `body`.
    ///
    /// # Errors
    /// The field that is wrong.
    pub(super) fn wishes(&mut self) -> Result<Wishes, String> {
        wishes(std::mem::take(&mut self.body))
    }
}

impl Resume {
    /// Returns what the application says in `body`.
    ///
    /// # Errors
    /// The field that is wrong.
    pub(super) fn wishes(&mut self) -> Result<Wishes, String> {
        wishes(std::mem::take(&mut self.body))
    }
}

fn wishes(body: Map<String, Value>) -> Result<Wishes, String> {
    serde_path_to_error::deserialize(Value::Object(body)).map_err(|error| format!("body: {error}"))
}

/// A frame of the server.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub(super) enum ServerFrame<'a> {
    /// An answer is being written: to `resume`.
    Start { request_id: &'a str },
    /// A chunk of the answer.
    Chunk { request_id: &'a str, sequence: u64, chunk: &'a Chunk },
    /// The answer is complete, or waits for the client.
    End { request_id: &'a str },
    /// The request failed.
    Error { request_id: &'a str, error_text: &'a str },
    /// No answer is being written: to `resume`.
    NoActive { request_id: &'a str },
}

impl ServerFrame<'_> {
    /// Returns the frame as text.
    pub(super) fn encode(&self) -> String {
        serde_json::to_string(self).expect("a frame has only text as keys")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn send() -> Value {
        json!({
            "type": "send", "requestId": "r1", "id": "chat", "trigger": "submit-message", "headers": {"a": "b"},
            "body": {"onAbort": "cancel", "theirs": 1}, "metadata": {"x": 1},
            "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}],
        })
    }

    #[test]
    fn valid_frames_are_read() {
        let ClientFrame::Send(mut read) = ClientFrame::parse(&send().to_string()).unwrap() else { panic!("no send") };
        assert_eq!((read.id.as_str(), read.trigger, read.messages.len()), ("chat", Trigger::SubmitMessage, 1));
        let wishes = read.wishes().unwrap();
        assert_eq!((wishes.on_abort, wishes.tools.len()), (OnAbort::Cancel, 0));
        let resume = json!({"type": "resume", "requestId": "r", "id": "c", "headers": {}, "body": {}});
        assert!(matches!(ClientFrame::parse(&resume.to_string()), Ok(ClientFrame::Resume(_))));
        let abort = json!({"type": "abort", "requestId": "r", "later": true});
        assert!(matches!(ClientFrame::parse(&abort.to_string()), Ok(ClientFrame::Abort { .. })));
    }

    #[test]
    fn invalid_frames_are_refused_as_the_ai_sdk_refuses_them() {
        let change = |key: &str, value: Value| {
            let mut frame = send();
            frame[key] = value;
            frame.to_string()
        };
        let without = |key: &str| {
            let mut frame = send();
            frame.as_object_mut().unwrap().remove(key);
            frame.to_string()
        };
        let bad = [
            "{".to_owned(),
            "[]".to_owned(),
            json!({"type": "greet", "requestId": "r"}).to_string(),
            change("requestId", json!(1)),
            change("requestId", json!("")),
            change("id", json!("x".repeat(257))),
            change("trigger", json!("resume-stream")),
            change("messageId", json!(1)),
            change("messages", json!({})),
            change("messages", json!([{"id": "m", "role": "robot", "parts": []}])),
            change("headers", json!({"a": 1})),
            change("body", json!([])),
            without("headers"),
            without("body"),
            without("messages"),
            json!({"type": "resume", "requestId": "r", "id": "c", "headers": {}, "body": {}, "lastSequence": -1})
                .to_string(),
            format!("{}{}", send(), send()),
        ];
        for frame in bad {
            assert!(ClientFrame::parse(&frame).is_err(), "{frame}");
        }
    }

    #[test]
    fn frames_of_the_server_are_those_of_the_ai_sdk() {
        let chunk = Chunk::TextDelta { id: "t".into(), delta: "Hi".into() };
        let frames = [
            (ServerFrame::Start { request_id: "r" }, json!({"type": "start", "requestId": "r"})),
            (
                ServerFrame::Chunk { request_id: "r", sequence: 3, chunk: &chunk },
                json!({
                    "type": "chunk", "requestId": "r", "sequence": 3,
                    "chunk": {"type": "text-delta", "id": "t", "delta": "Hi"},
                }),
            ),
            (ServerFrame::End { request_id: "r" }, json!({"type": "end", "requestId": "r"})),
            (
                ServerFrame::Error { request_id: "r", error_text: "no" },
                json!({"type": "error", "requestId": "r", "errorText": "no"}),
            ),
            (ServerFrame::NoActive { request_id: "r" }, json!({"type": "no-active", "requestId": "r"})),
        ];
        for (frame, expected) in frames {
            assert_eq!(serde_json::from_str::<Value>(&frame.encode()).unwrap(), expected);
        }
    }
}
