//! Runs the server's tools for a session.

use super::{handle::WeakMailbox, shared::Shared};
use crate::{
    core::agent_loop::{CallTool, Input},
    metrics::calls::ToolCallMeter,
    tools::{Call, Output, Progress},
    trace::{Span, within},
};
use reseed_protocol::{CallId, SessionId};
use std::{collections::BTreeMap, sync::Arc};
use tokio::task::AbortHandle;

/// A session's calls of the server's tools. Dropping it cancels them.
pub(super) struct ToolCalls {
    shared: Arc<Shared>,
    session: SessionId,
    mailbox: WeakMailbox,
    /// Bounded by [`TOOL_PARALLEL_MAX`](crate::core::agent_loop::TOOL_PARALLEL_MAX), because the loop starts no more.
    running: BTreeMap<CallId, Running>,
}

struct Running(AbortHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ToolCalls {
    pub(super) fn new(shared: Arc<Shared>, session: SessionId, mailbox: WeakMailbox) -> Self {
        Self { shared, session, mailbox, running: BTreeMap::new() }
    }

    /// Starts a call. Its answer arrives in the mailbox, even if the tool panics.
    pub(super) fn start(&mut self, call: CallTool, span: Span) {
        self.running.retain(|_, running| !running.0.is_finished());
        let CallTool { call_id, name, arguments, leaf, .. } = call;
        let tools = self.shared.parts.in_use().tools.clone();
        let (id, mailbox) = (call_id.clone(), self.mailbox.clone());
        let progress = self.progress(call_id.clone());
        let session = self.session.clone();
        let task = tokio::spawn(async move {
            let meter = ToolCallMeter::new(&name);
            let output = match serde_json::from_str(if arguments.trim().is_empty() { "{}" } else { &arguments }) {
                Ok(arguments) => {
                    let call = Call { call_id: call_id.clone(), session, leaf, arguments, progress };
                    within(span.context(), tools.call(&name, call)).await
                }
                Err(error) => Output::error(format!("The arguments are not JSON: {error}.")),
            };
            meter.ended(output.is_error);
            if output.is_error {
                span.fail("tool_failed")
            } else {
                span.end()
            }
            mailbox.tell(Input::ToolAnswered { call_id, output }).await;
        });
        self.running.insert(id, Running(task.abort_handle()));
    }

    /// Returns a sink that passes a call's progress to the loop. A full mailbox drops it, because the next update will
    /// do.
    fn progress(&self, call_id: CallId) -> Progress {
        let mailbox = self.mailbox.clone();
        Progress::new(move |message| {
            mailbox.try_tell(Input::ToolProgressed { call_id: call_id.clone(), message: message.map(bounded) });
        })
    }

    pub(super) fn cancel(&mut self, call_id: &CallId) {
        self.running.remove(call_id);
    }

    pub(super) fn cancel_all(&mut self) {
        self.running.clear();
    }
}

/// Shortens a progress message to a line that a person can read.
fn bounded(message: String) -> String {
    const CHARS_MAX: usize = 500;
    match message.char_indices().nth(CHARS_MAX) {
        Some((at, _)) => format!("{}…", &message[..at]),
        None => message,
    }
}
