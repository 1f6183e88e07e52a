//! The observations of a test: what happened, what was sent, and what is pending.

use super::{World, all_of, kind_of, word};
use reseed_protocol::{CallId, Entry, Message, Part, event::Event, hooks::HookCall, reply::Reply, turn::TurnFinished};
use serde_json::{Value, json};

impl World {
    /// Returns the effects since the last call.
    pub(super) fn took(&mut self) -> Vec<String> {
        std::mem::take(&mut self.took)
    }

    #[track_caller]
    pub(super) fn check(&mut self, expected: &[&str]) -> &mut Self {
        assert_eq!(self.took(), expected);
        self
    }

    /// Returns the newest entry of this kind.
    pub(super) fn newest(&self, kind: &str) -> &Entry {
        self.entries.iter().rev().find(|entry| kind_of(entry) == kind).expect("there is such an entry")
    }

    /// Returns the text of the newest message of this kind.
    pub(super) fn said(&self, kind: &str) -> String {
        let message = self.newest(kind).message().expect("a message");
        let results = message.content.iter().filter_map(|part| match part {
            Part::ToolResult { output, .. } => Some(output.clone()),
            Part::Text { text } => Some(text.clone()),
            _ => None,
        });
        results.collect::<Vec<_>>().join("\n")
    }

    /// Returns the end of the newest turn.
    pub(super) fn ended(&self) -> &TurnFinished {
        let ended = self.events.iter().rev().find_map(|event| match event {
            Event::TurnFinished(finished) => Some(&**finished),
            _ => None,
        });
        ended.expect("a turn has ended")
    }

    /// Returns the newest reply.
    pub(super) fn reply(&self) -> &Reply {
        &self.replies.last().expect("a command was answered").1
    }

    /// Returns what the newest request sent, one line per message.
    pub(super) fn last_sent(&self) -> Vec<String> {
        let sent = self.sent.last().expect("something was sent");
        sent.messages()
            .map(|message| format!("{} {}", word(&json!(message.message.role)), all_of(&message.message)))
            .collect()
    }

    /// Checks that every call, made or refused, has exactly one result, and that nothing is pending.
    pub(super) fn check_at_rest(&self) {
        assert!(self.agent.is_idle() && self.open.is_empty() && self.asked.is_none(), "something still waits");
        let messages: Vec<&Message> = self.entries.iter().filter_map(Entry::message).collect();
        let calls = messages.iter().flat_map(|message| message.tool_calls().map(|(id, _, _)| id.clone()));
        let results = messages.iter().flat_map(|message| &message.content).filter_map(|part| match part {
            Part::ToolResult { call_id, .. } => Some(call_id.clone()),
            _ => None,
        });
        let (mut calls, mut results): (Vec<CallId>, Vec<CallId>) = (calls.collect(), results.collect());
        calls.sort();
        results.sort();
        assert_eq!(calls, results, "each call has one result");
    }

    /// Returns the oldest pending call.
    pub(super) fn question(&self) -> &HookCall {
        &self.open.front().expect("a hook is asked").1
    }

    /// Returns the oldest pending call in its wire format.
    pub(super) fn asked_for(&self) -> Value {
        serde_json::to_value(self.question()).unwrap()
    }
}
