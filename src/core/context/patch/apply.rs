//! Applies a submitted patch.

use super::{
    carried::CarriedOps,
    check,
    counted::{CountedMessage, MessageOp},
    list::{List, StandFor},
    rules::{Boundary, OPS_MAX, PATCH_BYTES_MAX, PatchRefused},
};
use crate::context::{
    counter::Counter,
    messages::{Context, Counted},
    pairing::Pairing,
};
use reseed_protocol::{
    Message,
    context::{PatchMessage, PatchOp, SystemPart, ToolDefinition},
};

/// The surroundings in which a patch is applied.
#[derive(Debug, Clone, Copy)]
pub struct Around<'a> {
    /// The parts of the system prompt before any patch.
    pub parts: &'a [SystemPart],
    /// The offered tools.
    pub offered: &'a [ToolDefinition],
    /// Counts the messages that the patch carries.
    pub counter: &'a Counter,
}

/// The outcome of a patch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Applied {
    /// The ops as they are stored, without messages that repeat existing content.
    pub ops: Vec<PatchOp>,
    /// The reasons for invalidating the provider's cache: trimmed, distinct and in order. Empty if the cache stays
    /// valid.
    pub reasons: Vec<String>,
    /// Notes on requests that could not be fulfilled.
    pub notes: Vec<String>,
    /// True if anything changed. A patch that changes nothing need not be stored.
    pub changed: bool,
}

impl Context {
    /// Applies a patch in order, all or nothing.
    ///
    /// # Errors
    /// The first op that cannot be applied, and the reason; the context is then unchanged.
    pub fn apply(&mut self, ops: &[PatchOp], boundary: Boundary, around: &Around<'_>) -> Result<Applied, PatchRefused> {
        let refused = |index: usize, why| PatchRefused { index, op: ops[index].name().to_owned(), why };
        if ops.len() > OPS_MAX {
            return Err(refused(OPS_MAX, format!("a patch has at most {OPS_MAX} ops, not {}", ops.len())));
        }
        let mut draft = Draft { carried: self.carried.clone(), messages: None, uncached: Vec::new() };
        let mut reasons: Vec<String> = Vec::new();
        let mut bytes = 0;
        let mut shortest = Vec::with_capacity(ops.len());
        for (index, op) in ops.iter().enumerate() {
            check::message_bounds(op).map_err(|why| refused(index, why))?;
            let op = &draft.without_echoes(op.clone(), self);
            bytes +=
                serde_json::to_vec(op).map_or(usize::MAX, |json| json.len()).saturating_sub(self.bytes_replaced(op));
            if bytes > PATCH_BYTES_MAX {
                return Err(refused(index, format!("the patch has more than {PATCH_BYTES_MAX} bytes at this op")));
            }
            let reason = check::reason(op, boundary).map_err(|why| refused(index, why))?;
            draft.take(op, self, around).map_err(|why| refused(index, why))?;
            if let Some(reason) = reason.filter(|reason| !reasons.iter().any(|known| known == reason)) {
                reasons.push(reason.to_owned());
            }
            shortest.push(op.clone());
        }
        let Draft { carried, messages, uncached } = draft;
        let mut changed = !carried.does_the_same(&self.carried) || !uncached.is_empty();
        if let Some(messages) = messages.map(List::into_messages) {
            changed |= !same_messages(&messages, &self.messages);
            self.messages = messages;
        }
        self.uncached.extend(uncached);
        let notes = carried.tools(around.offered).1;
        self.carried = carried;
        Ok(Applied { ops: shortest, reasons, notes, changed })
    }
}

impl Context {
    /// Returns the bytes of the messages that an op replaces. They do not count towards the limit, so that a message of
    /// any size can be edited.
    fn bytes_replaced(&self, op: &PatchOp) -> usize {
        let PatchOp::MessagesCachedEdit { edits, .. } = op else { return 0 };
        let edited = |counted: &&Counted| edits.iter().any(|edit| counted.shown_id() == Some(&edit.entry_id));
        let bytes = |counted: &Counted| serde_json::to_vec(&*counted.message).map_or(0, |json| json.len());
        self.messages.iter().filter(edited).map(bytes).sum()
    }
}

/// Returns true if both lists send the same messages.
fn same_messages(a: &[Counted], b: &[Counted]) -> bool {
    let same = |(a, b): (&Counted, &Counted)| a.shown_id() == b.shown_id() && a.message == b.message;
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// A context being changed.
struct Draft {
    carried: CarriedOps,
    /// The cached messages; `None` until an op touches them.
    messages: Option<List>,
    /// Messages added for one request only.
    uncached: Vec<Counted>,
}

impl Draft {
    fn take(&mut self, op: &PatchOp, before: &Context, around: &Around<'_>) -> Result<(), String> {
        let Some(counted) = MessageOp::of(op, around.counter) else {
            check::other(op, around.offered)?;
            self.carried.push(op);
            return check::whole(&self.carried, op, around.parts);
        };
        if let MessageOp::Append(messages) = counted {
            let messages: Vec<Counted> = messages.iter().map(CountedMessage::inserted).collect();
            if !Pairing::of(&messages).is_whole() {
                return Err(check::UNPAIRED.to_owned());
            }
            self.uncached.extend(messages);
            return Ok(());
        }
        let list = self.list(before);
        check::messages(&counted, list)?;
        list.apply(&counted, &StandFor::new());
        if Pairing::of(list.settled()).is_whole() { Ok(()) } else { Err(check::UNPAIRED.to_owned()) }
    }

    fn list(&mut self, before: &Context) -> &mut List {
        self.messages.get_or_insert_with(|| List::of(before.messages.clone()))
    }

    /// Removes from an op the messages that repeat an entry's existing content. A hook that replaces all messages
    /// returns most of them unchanged. Stored in full, each such patch would be as large as the history.
    fn without_echoes(&mut self, mut op: PatchOp, before: &Context) -> PatchOp {
        let PatchOp::MessagesCachedReplace { messages, .. } = &mut op else { return op };
        let list = self.list(before);
        for PatchMessage { entry_id, message } in messages {
            let place = entry_id.as_ref().and_then(|id| list.place(id));
            let is_echo = |said: &Message, there: &Message| said.role == there.role && said.content == there.content;
            message.take_if(|said| place.is_some_and(|at| is_echo(said, &list.at(at).message)));
        }
        op
    }
}
