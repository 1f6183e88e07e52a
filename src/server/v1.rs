//! Protocol v1: a translator at the edge. Everything inside uses v2's vocabulary.
//!
//! The original client relies on the following. A turn consists of `loading_state true`, items, `loading_state false`,
//! `context_info`, and `agent_finished`, which comes once at the end even after a failure. Each item is sent once,
//! complete and with its own id. Nothing is sent that the client does not know.

mod approvals;

use super::{
    closing::{End, Flow},
    socket::Connection,
};
use crate::{
    core::agent_loop::Origin,
    metrics::{self, Outcome},
    runtime::Attach,
};
use reseed_protocol::{
    CloseCode, CommandId, ErrorBody, ErrorCode, Message, Part, Role, Timestamp,
    command::{Command, Empty},
    compaction::StartCompaction,
    content::Input,
    context::ContextInfo,
    event::Event,
    frame::{self, encode_v1},
    reply::Reply,
    session::SessionRole,
    turn::{TurnStatus, UserInput},
    v1::{self, AgentFinished, ItemContent, LoadingState, ResponseItem, strategy_name},
};
use std::collections::{HashMap, HashSet};

/// The tools that search the history. Their calls are not shown to v1 clients, because they concern only the model.
const HISTORY_TOOLS: [&str; 2] = ["history_search", "history_read"];

/// The id of error frames.
const ERROR_ID: &str = "s_error";

/// State needed to translate a turn's events.
#[derive(Default)]
pub(super) struct Translator {
    /// The start time of each open call, because v1 reports how long tools take. Bounded by a turn's open calls.
    calls: HashMap<String, Timestamp>,
    approvals: approvals::OpenApprovals,
    /// Calls of tools that are hidden from v1 clients. Bounded by a turn's open calls.
    hidden: HashSet<String>,
    frames: u64,
}

/// Returns a v1 error frame.
pub(super) fn error_frame(error: ErrorBody) -> String {
    let field = error.details.as_ref().and_then(|details| details["field"].as_str()).map(str::to_owned);
    let details = reseed_protocol::error::ErrorDetails {
        code: error.code,
        retriable: error.retriable,
        field,
        retry_after_ms: error.retry_after_ms,
    };
    encode_v1(ERROR_ID, &v1::Event::Error(v1::Error { message: error.message, details }))
}

/// Handles a text frame.
pub(super) async fn received(connection: &mut Connection, text: &str) -> Flow {
    if connection.name.is_none() {
        let message = "send your token as `Authorization: Bearer` or a ticket as `?ticket=` when connecting";
        connection.send(error_frame(ErrorBody::new(ErrorCode::Unauthenticated, message))).await?;
        connection.flush().await?;
        return Err(End::Close(CloseCode::Credentials, "credentials must be sent when connecting"));
    }
    let (id, command) = match frame::parse_v1(text) {
        Ok(parsed) => parsed,
        Err(_) if frame::peek_type(text).as_deref() == Some("hello") => {
            let message = "this connection already uses v1; hello must be the first frame";
            return connection.refuse(None, ErrorBody::new(ErrorCode::AlreadyGreeted, message)).await;
        }
        Err(refused) => return connection.refuse(None, refused.error).await,
    };
    connection.good_frame();
    connection.speaks_v1();
    let (name, handed) = match command {
        v1::Command::UserInput(input) => {
            let command = Command::UserInput(UserInput::plain(Input::Items(input.input)));
            ("user_input", talk(connection, command).await)
        }
        v1::Command::GetContextInfo if connection.subscriptions.is_empty() => {
            let info = translated(connection.app.empty_context_info());
            metrics::command_answered("get_context_info", Outcome::Ok);
            return connection
                .send(encode_v1(id.as_str(), &v1::Event::ContextInfo(Box::new(v1::ContextInfo::of(info)))))
                .await;
        }
        v1::Command::GetContextInfo => {
            ("get_context_info", hand_over(connection, id, Command::GetContextInfo(Empty {})).await)
        }
        v1::Command::ManualCompact if connection.subscriptions.is_empty() => {
            let error = ErrorBody::new(ErrorCode::NothingToCompact, "this connection has not sent any input yet");
            ("start_compaction", Err(error))
        }
        v1::Command::ManualCompact => {
            let id = fresh_id(connection);
            ("start_compaction", hand_over(connection, id, Command::StartCompaction(StartCompaction::default())).await)
        }
        v1::Command::ApprovalResponse(response) => match approvals::answered(connection, response).await {
            Ok(frames) => {
                for frame in frames {
                    connection.send(frame).await?;
                }
                ("approval_response", Ok(()))
            }
            Err(error) => ("approval_response", Err(error)),
        },
    };
    if let Err(error) = handed {
        metrics::command_answered(name, Outcome::Error(error.code));
        return connection.send(error_frame(error)).await;
    }
    Ok(())
}

/// Returns the prefix of the ids of a connection's commands.
fn own_prefix(origin: Origin) -> String {
    format!("v1-{}-", origin.0)
}

/// Returns true if this connection sent the command. A client is not told about failures of other clients' commands.
fn is_own(origin: Origin, command: &CommandId) -> bool {
    command.as_str().starts_with(&own_prefix(origin))
}

/// Returns a new command id. v1 ids are not idempotency keys.
fn fresh_id(connection: &mut Connection) -> CommandId {
    connection.v1.frames += 1;
    let text = format!("{}{}-command", own_prefix(connection.origin), connection.v1.frames);
    text.parse().expect("digits, letters and dashes are an id")
}

/// Sends input to the session, which the first input creates.
async fn talk(connection: &mut Connection, command: Command) -> Result<(), ErrorBody> {
    let may_create = |grant: &std::sync::Arc<super::auth::Grant>| {
        grant.session().is_none() && grant.scopes().allow(crate::config::Scope::Sessions)
    };
    if !connection.grant.as_ref().is_some_and(may_create) {
        let message = "v1 creates a session of its own, which these credentials do not allow; use v2";
        return Err(ErrorBody::new(ErrorCode::Forbidden, message));
    }
    if connection.subscriptions.is_empty() {
        if let Command::UserInput(input) = &command {
            crate::core::session::input::parts(input.input.clone())?;
        }
        let name = connection.name.clone().unwrap_or_default();
        let handle = connection.app.registry.create(&name).await?;
        let attach = Attach {
            origin: connection.origin,
            role: SessionRole::Writer,
            tools: None,
            hooks: None,
            outgoing: connection.outgoing.clone(),
            shared: connection.shared.clone(),
            resume: None,
        };
        let attached = handle.attach(attach).await;
        let attached =
            attached.map_err(|_| ErrorBody::new(ErrorCode::StoreFailed, "the session could not be opened"))??;
        connection.subscribe(handle, SessionRole::Writer, false, attached);
    }
    let id = fresh_id(connection);
    hand_over(connection, id, command).await
}

async fn hand_over(connection: &mut Connection, id: CommandId, command: Command) -> Result<(), ErrorBody> {
    let Some(subscription) = connection.subscriptions.first() else {
        return Err(ErrorBody::new(ErrorCode::NoSession, "this connection has not sent any input yet"));
    };
    let (handle, name) = (subscription.handle.clone(), command.name());
    let handed = handle.command(connection.origin, id.clone(), command, connection.outgoing.clone()).await;
    handed.map_err(|_| connection.app.session_gone())?;
    connection.expect_reply(id, &handle.id, name);
    Ok(())
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

    /// Translates a reply to v1, which has only requested context info and errors.
    pub(super) fn reply(&mut self, id: &CommandId, reply: &Reply) -> Option<String> {
        match reply {
            Reply::ContextInfo(info) => Some(encode_v1(
                id.as_str(),
                &v1::Event::ContextInfo(Box::new(v1::ContextInfo::of(translated((**info).clone())))),
            )),
            Reply::Error(error) => Some(error_frame(error.clone())),
            _ => None,
        }
    }

    /// Translates the frame of a durable event to v1, for the connection with this number.
    pub(super) fn durable(&mut self, origin: Origin, frame: &str) -> Vec<String> {
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
            // Only a client that requested the compaction is told.
            Event::CompactionFailed(failed) if failed.command_id.as_ref().is_some_and(|id| is_own(origin, id)) => {
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
