//! Ensures that every tool call is directly followed by its result, because no provider accepts anything else.

use crate::{
    context::{
        counter::MessageTokens,
        messages::{Context, Counted, Kind},
    },
    fingerprint::message_fingerprint,
};
use reseed_protocol::{CallId, Message, Part, Role};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// The placeholder result of a call that has none.
pub const NO_RESULT: &str = "No result: the call was not finished.";

/// Tracks whether the messages so far are paired.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Pairing {
    /// Calls without a result yet.
    open: HashSet<CallId>,
    /// True after a message that no later result can repair.
    is_broken: bool,
}

impl Pairing {
    pub(crate) fn of(messages: &[Counted]) -> Self {
        let mut pairing = Self::default();
        for counted in messages {
            pairing.take(&counted.message);
            if pairing.is_broken {
                break;
            }
        }
        pairing
    }

    /// Adds the next message.
    pub(crate) fn take(&mut self, message: &Message) {
        self.is_broken |= message.role != Role::Tool && !self.open.is_empty();
        for part in &message.content {
            match part {
                Part::ToolCall { call_id, .. } => {
                    self.open.insert(call_id.clone());
                }
                Part::ToolResult { call_id, .. } => self.is_broken |= !self.open.remove(call_id),
                _ => {}
            }
        }
    }

    /// Returns true if every call has its result and every result its call.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_broken && self.open.is_empty()
    }
}

/// Moves every tool result right after its call, adds a placeholder for a missing one, and removes results without a
/// call. Sessions that only this server wrote need no repair and are not copied.
pub(crate) fn paired(context: Context) -> Context {
    if Pairing::of(&context.messages).is_whole() {
        return context;
    }
    Context { messages: mended(context.messages), ..context }
}

/// Repairs the messages for [`paired`].
pub(crate) fn mended(messages: Vec<Counted>) -> Vec<Counted> {
    let mut results: Vec<Option<Counted>> = Vec::new();
    let mut answering: HashMap<CallId, Vec<usize>> = HashMap::new();
    let mut others = Vec::with_capacity(messages.len());
    for counted in messages {
        if counted.message.role != Role::Tool {
            others.push(counted);
            continue;
        }
        for part in &counted.message.content {
            if let Part::ToolResult { call_id, .. } = part {
                answering.entry(call_id.clone()).or_default().push(results.len());
            }
        }
        results.push(Some(counted));
    }
    let mut mended = Vec::with_capacity(others.len() + results.len());
    for counted in others {
        let calls: Vec<CallId> = counted.message.tool_calls().map(|(id, _, _)| id.clone()).collect();
        mended.push(counted);
        for call in calls {
            let found = answering.get(&call).and_then(|places| places.iter().find_map(|at| results[*at].take()));
            mended.push(found.unwrap_or_else(|| without_result(call)));
        }
    }
    mended
}

/// Creates the placeholder result of a call.
fn without_result(call: CallId) -> Counted {
    let message = missing_result(call);
    Counted {
        entry_id: None,
        hash: message_fingerprint(&message),
        message: Arc::new(message),
        tokens: MessageTokens { text: 16, ..MessageTokens::default() },
        kind: Kind::Recent,
        pinned: false,
        cleared: false,
        is_input: false,
        is_result: true,
        patched: false,
        moved_from: None,
    }
}

fn missing_result(call_id: CallId) -> Message {
    Message::new(Role::Tool, vec![Part::ToolResult { call_id, output: NO_RESULT.to_owned(), is_error: true }])
}
