//! Protocol v1.
//!
//! The original client relies on the following. A turn consists of `loading_state true`, items, `loading_state false`,
//! `context_info`, and `agent_finished`, which comes once at the end even after a failure. Each item is sent once,
//! complete and with its own id. Nothing is sent that the client does not know.

mod approvals;

use reseed_protocol::{
    CommandId, ErrorBody, Message, Part, Role, Timestamp,
    command::{Empty, SessionCommand},
    compaction::StartCompaction,
    content::Input,
    context::ContextInfo,
    event::Event,
    frame::encode_v1,
    reply::Reply,
    turn::{TurnStatus, UserInput},
    v1::{self, AgentFinished, ItemContent, LoadingState, ResponseItem, strategy_name},
};
use std::collections::{HashMap, HashSet};

/// The tools that search the history. Their calls are not shown to v1 clients, because they concern only the model.
const HISTORY_TOOLS: [&str; 2] = ["history_search", "history_read"];

/// The id of error frames.
const ERROR_ID: &str = "s_error";

/// State needed to translate a turn's events.
#[derive(Debug, Default)]
pub struct Translator {
    /// The start time of each open call, because v1 reports how long tools take. Bounded by a turn's open calls.
    calls: HashMap<String, Timestamp>,
    approvals: approvals::OpenApprovals,
    /// Calls of tools that are hidden from v1 clients. Bounded by a turn's open calls.
    hidden: HashSet<String>,
    frames: u64,
    commands: u64,
}

/// Returns a v1 error frame.
#[must_use]
pub fn error_frame(error: ErrorBody) -> String {
    let field = error.details.as_ref().and_then(|details| details["field"].as_str()).map(str::to_owned);
    let details = reseed_protocol::error::ErrorDetails {
        code: error.code,
        retriable: error.retriable,
        field,
        retry_after_ms: error.retry_after_ms,
    };
    encode_v1(ERROR_ID, &v1::Event::Error(v1::Error { message: error.message, details }))
}

/// Returns true if this connection sent the command. A client does not see failures of other clients' commands.
fn is_own(connection: u64, command: &CommandId) -> bool {
    command.as_str().starts_with(&own_prefix(connection))
}

/// Returns the prefix of the ids of a connection's commands.
fn own_prefix(connection: u64) -> String {
    format!("v1-{connection}-")
}

/// Returns the frame of context info that answers a command.
#[must_use]
pub fn context_info(id: &CommandId, info: ContextInfo) -> String {
    encode_v1(id.as_str(), &v1::Event::ContextInfo(Box::new(v1::ContextInfo::of(translated(info)))))
}

/// Translates a reply to v1, which has only requested context info and errors.
#[must_use]
pub fn reply(id: &CommandId, reply: &Reply) -> Option<String> {
    match reply {
        Reply::ContextInfo(info) => Some(context_info(id, (**info).clone())),
        Reply::Error(error) => Some(error_frame(error.clone())),
        _ => None,
    }
}

fn translated(mut info: ContextInfo) -> ContextInfo {
    info.strategy = strategy_name(&info.strategy);
    info.compact_at_rule = None;
    info
}

impl Translator {
    fn frame(&mut self, event: &v1::Event) -> String {
        self.frames += 1;
        encode_v1(&format!("s_{}", self.frames), event)
    }

    /// Returns the command that a frame stands for. Returns `None` if the client wants the outstanding approval
    /// explained, which [`Translator::explained`] does.
    ///
    /// # Errors
    /// The name of a well-formed command that cannot be given now, and why.
    pub fn asked(
        &mut self,
        connection: u64,
        (id, command): (CommandId, v1::Command),
    ) -> Result<Option<(CommandId, SessionCommand)>, (&'static str, ErrorBody)> {
        let command = match command {
            v1::Command::UserInput(input) => SessionCommand::UserInput(UserInput::plain(Input::Items(input.input))),
            v1::Command::GetContextInfo => return Ok(Some((id, SessionCommand::GetContextInfo(Empty {})))),
            v1::Command::ManualCompact => SessionCommand::StartCompaction(StartCompaction::default()),
            v1::Command::ApprovalResponse(response) => {
                match self.answer(response).map_err(|error| ("approval_response", error))? {
                    Some(command) => command,
                    None => return Ok(None),
                }
            }
        };
        // v1 ids are not idempotency keys.
        self.commands += 1;
        let id = format!("{}{}-command", own_prefix(connection), self.commands);
        Ok(Some((id.parse().expect("digits, letters and dashes are an id"), command)))
    }

    /// Translates the frame of a durable event to v1, for the connection with this number.
    #[must_use]
    pub fn durable(&mut self, connection: u64, frame: &str) -> Vec<String> {
        let Ok(event) = serde_json::from_str::<Event>(frame) else { return Vec::new() };
        match event {
            Event::TurnStarted(_) => vec![self.frame(&v1::Event::LoadingState(LoadingState { loading: true }))],
            Event::EntryAppended(appended) => {
                let entry = appended.entry;
                let items = match entry.message() {
                    Some(message) => self.items(entry.entry_id.as_str(), entry.timestamp, message),
                    None => Vec::new(),
                };
                items.into_iter().map(|item| self.frame(&v1::Event::ResponseItem(item))).collect()
            }
            Event::TurnFinished(finished) => {
                self.calls.clear();
                self.hidden.clear();
                self.approvals_are_over();
                let mut frames = Vec::with_capacity(4);
                if let Some(error) = finished.error.filter(|_| finished.status != TurnStatus::Completed) {
                    frames.push(error_frame(error));
                }
                frames.push(self.frame(&v1::Event::LoadingState(LoadingState { loading: false })));
                let info = v1::ContextInfo::of(translated(finished.context_info));
                frames.push(self.frame(&v1::Event::ContextInfo(Box::new(info))));
                let response_id = finished.turn_id.to_string();
                frames.push(self.frame(&v1::Event::AgentFinished(AgentFinished { response_id })));
                frames
            }
            // Only the client that requested the compaction gets the error.
            Event::CompactionFailed(failed) if failed.command_id.as_ref().is_some_and(|id| is_own(connection, id)) => {
                vec![error_frame(failed.error)]
            }
            Event::ContextCompacted(mut compacted) => {
                // v1 does not have this field.
                compacted.compact_at_tokens = None;
                compacted.strategy = strategy_name(&compacted.strategy);
                vec![self.frame(&v1::Event::ContextCompacted(Box::new((*compacted).into())))]
            }
            Event::ApprovalRequest(approval) => self.approval_requested(*approval),
            Event::CallResolved(resolved) => self.approval_resolved(&resolved),
            Event::ToolCall(_)
            | Event::QueueItemAdded(_)
            | Event::QueueItemRemoved(_)
            | Event::QueueReordered(_)
            | Event::QueueReleased(_)
            | Event::QueueChanged(_)
            | Event::SessionUpdated(_)
            | Event::CompactionUndone(_)
            | Event::CompactionFailed(_)
            | Event::Unknown(_) => Vec::new(),
        }
    }

    /// Returns the items of a message. Each part of an answer has its own id. User messages are not echoed.
    fn items(&mut self, entry: &str, at: Timestamp, message: &Message) -> Vec<ResponseItem> {
        let mut items = Vec::new();
        for (index, part) in message.content.iter().enumerate() {
            let id = format!("{entry}_{index}");
            let item = match (message.role, part) {
                (Role::Assistant, Part::Text { text }) => ResponseItem::Message {
                    id,
                    role: "assistant".to_owned(),
                    content: vec![ItemContent::OutputText { text: text.clone() }],
                },
                (Role::Assistant, Part::Reasoning { text, .. }) if !text.is_empty() => ResponseItem::Reasoning {
                    id,
                    content: vec![ItemContent::InputText { text: text.clone() }],
                    summary: Vec::new(),
                },
                (Role::Assistant, Part::ToolCall { call_id, name, .. }) if HISTORY_TOOLS.contains(&name.as_str()) => {
                    self.hidden.insert(call_id.to_string());
                    continue;
                }
                (Role::Tool, Part::ToolResult { call_id, .. }) if self.hidden.remove(call_id.as_str()) => continue,
                (Role::Assistant, Part::ToolCall { call_id, name, arguments }) => {
                    self.calls.insert(call_id.to_string(), at);
                    ResponseItem::FunctionCall {
                        id,
                        call_id: call_id.to_string(),
                        name: name.clone(),
                        arguments: arguments.clone(),
                    }
                }
                (Role::Tool, Part::ToolResult { call_id, output, is_error }) => {
                    let began = self.calls.remove(call_id.as_str()).unwrap_or(at);
                    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a tool, shown in seconds")]
                    let seconds = at.millis_since(began) as f64 / 1000.0;
                    let metadata =
                        serde_json::json!({ "exit_code": i32::from(*is_error), "duration_seconds": seconds });
                    let output = match is_in_v1s_form(output) {
                        true => output.clone(),
                        false => serde_json::json!({ "output": output, "metadata": metadata }).to_string(),
                    };
                    ResponseItem::FunctionCallOutput { id, call_id: call_id.to_string(), output }
                }
                _ => continue,
            };
            items.push(item);
        }
        items
    }
}

/// Returns true if a tool has written its output in v1's form, with its own exit code and duration.
fn is_in_v1s_form(output: &str) -> bool {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Form {
        #[serde(rename = "output")]
        _output: String,
        #[serde(rename = "metadata")]
        _metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    struct Metadata {
        #[serde(rename = "exit_code")]
        _exit_code: i64,
        #[serde(rename = "duration_seconds")]
        _duration_seconds: f64,
    }
    output.starts_with('{') && serde_json::from_str::<Form>(output).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_said_to_have_taken_the_time_between_its_call_and_its_result() {
        let call = |id: &str| Part::ToolCall {
            call_id: id.parse().expect("an id"),
            name: "look".to_owned(),
            arguments: "{}".to_owned(),
        };
        let result = |id: &str, is_error| Part::ToolResult {
            call_id: id.parse().expect("an id"),
            output: "seen".to_owned(),
            is_error,
        };
        let mut translator = Translator::default();
        let calls = Message::new(Role::Assistant, vec![call("first"), call("second")]);
        assert_eq!(translator.items("a", Timestamp(1_000), &calls).len(), 2);
        for (id, at, is_error, expected) in [
            ("second", 1_250, false, r#"{"exit_code":0,"duration_seconds":0.25}"#),
            ("first", 61_500, true, r#"{"exit_code":1,"duration_seconds":60.5}"#),
            // Its call was made before this connection began.
            ("earlier", 70_000, false, r#"{"exit_code":0,"duration_seconds":0.0}"#),
        ] {
            let items = translator.items("b", Timestamp(at), &Message::new(Role::Tool, vec![result(id, is_error)]));
            let [ResponseItem::FunctionCallOutput { call_id, output, .. }] = &items[..] else { panic!("{items:?}") };
            let output: serde_json::Value = serde_json::from_str(output).expect("JSON");
            assert_eq!((call_id.as_str(), &output["output"]), (id, &serde_json::json!("seen")));
            assert_eq!(output["metadata"], serde_json::from_str::<serde_json::Value>(expected).expect("JSON"));
        }
        assert!(translator.calls.is_empty(), "what is answered is forgotten");
    }
}
