//! The entries that answer an input, and what says where they end.

use reseed_protocol::{CallId, Entry, EntryData, EntryId, Message, Part, Role};
use std::collections::HashSet;

/// The custom type of an entry that stands for an input without words, such as an answer to an approval.
pub const INPUT_MARK: &str = "input";

/// The custom type of an entry that says that an input, and the answer to it, is no longer shown. Its data is the id of
/// the input.
pub const DELETED_MARK: &str = "input_deleted";

/// Returns true for a message of a client: the model's answers may have details too.
pub fn is_said(message: &Message) -> bool {
    message.role == Role::User || (message.details.is_some() && message.model.is_none())
}

/// Returns true for what a client has said, which is no part of an answer.
pub(super) fn is_input(entry: &Entry) -> bool {
    match &entry.data {
        EntryData::Message(message) => is_said(message),
        EntryData::Custom(custom) => custom.custom_type == INPUT_MARK,
        _ => false,
    }
}

/// The entries that answer an input, by parent.
#[derive(Debug)]
pub(super) struct Chain {
    input: EntryId,
    last: EntryId,
    /// The tools whose results come from the client: they begin the next input.
    functions: Vec<String>,
    calls: HashSet<CallId>,
    entries: Vec<Entry>,
    is_over: bool,
    is_deleted: bool,
}

impl Chain {
    pub(super) fn after(input: &EntryId, functions: &[String]) -> Self {
        Self {
            input: input.clone(),
            last: input.clone(),
            functions: functions.to_vec(),
            calls: HashSet::new(),
            entries: Vec::new(),
            is_over: false,
            is_deleted: false,
        }
    }

    /// Adds an entry if it follows the last one. Entries come in the order in which they were appended, so the first
    /// that follows is of the answer, and later ones are branches.
    pub(super) fn add(&mut self, entry: Entry) {
        if let EntryData::Custom(custom) = &entry.data {
            let named = custom.data.as_ref().and_then(|data| data.as_str());
            self.is_deleted |= custom.custom_type == DELETED_MARK && named == Some(self.input.as_str());
        }
        if self.is_over || entry.parent_id.as_ref() != Some(&self.last) {
            return;
        }
        if is_input(&entry) || entry.message().is_some_and(|message| self.is_clients(message)) {
            self.is_over = true;
            return;
        }
        if let EntryData::Message(message) = &entry.data {
            let calls = message.tool_calls().filter(|(_, name, _)| self.functions.iter().any(|known| known == name));
            self.calls.extend(calls.map(|(id, _, _)| id.clone()));
        }
        self.last = entry.entry_id.clone();
        self.entries.push(entry);
    }

    /// Returns true for the result of a call that the client makes, unless the server says why it was not made.
    fn is_clients(&self, message: &Message) -> bool {
        message.content.iter().any(|part| match part {
            Part::ToolResult { call_id, is_error, .. } => !is_error && self.calls.contains(call_id),
            _ => false,
        })
    }

    /// Returns the entries; `None` if the input was deleted.
    pub(super) fn into_entries(self) -> Option<Vec<Entry>> {
        (!self.is_deleted).then_some(self.entries)
    }
}
