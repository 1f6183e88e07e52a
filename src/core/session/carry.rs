//! The record of earlier patches in a compaction, so that nothing older than what it keeps is needed: their combined
//! effect on system prompt, tools and options, and on the messages that it keeps.

use super::tree::SessionTree;
use crate::{
    compaction::summary_in,
    context::{
        messages::{Context, Counted, Kind},
        node::{Node, without_results},
        patch::list::{Fate, fates},
    },
};
use reseed_protocol::{
    EntryId, Message,
    compaction::Compaction,
    context::{MessageEdit, PatchMessage, PatchOp},
};
use std::{collections::HashSet, sync::Arc};

/// The reason why the messages that a compaction keeps differ from their entries.
const REASON: &str = "what patches made of these messages outlives the compaction";

/// Returns the patch for a compaction appended to the leaf of `before`; `after` is the tree with the compaction but
/// without the patch.
#[must_use]
pub(crate) fn carried_patch(before: &SessionTree, after: &SessionTree, compaction: &Compaction) -> Vec<PatchOp> {
    let mut ops = before.carried().ops().to_vec();
    let is_patched = |node: &Arc<Node>| node.patch.as_ref().is_some_and(|patch| !patch.messages.is_empty());
    let entry_id = after.leaf().filter(|_| before.path().iter().any(is_patched));
    ops.extend(entry_id.map(|id| messages(&before.context(), after.raw_context(), id, compaction)));
    ops
}

/// Returns the op that restores the kept messages as they were. It exists even if nothing needs restoring: it marks
/// that removed messages may have been changed, so that pinning does not restore them.
fn messages(before: &Context, after: &Context, entry_id: &EntryId, compaction: &Compaction) -> PatchOp {
    let kept: Vec<&EntryId> = after.messages.iter().filter_map(|counted| counted.entry_id.as_ref()).collect();
    let expected = expected(before, &kept, entry_id, compaction);
    let named: Vec<&EntryId> = expected.iter().filter_map(|message| message.entry_id.as_ref()).collect();
    let invalidate_cache_reason = REASON.to_owned();
    if named.len() < expected.len() || !is_within(&named, &kept) {
        return PatchOp::MessagesCachedReplace { messages: expected, invalidate_cache_reason };
    }
    let stays: HashSet<&EntryId> = named.iter().copied().collect();
    let out = kept.iter().filter(|id| !stays.contains(*id));
    let out = out.map(|id| MessageEdit { entry_id: (*id).clone(), message: None });
    let changed = expected.iter().filter_map(|PatchMessage { entry_id, message }| {
        Some(MessageEdit { entry_id: entry_id.clone()?, message: Some(message.clone()?) })
    });
    let edits = changed.chain(out).collect();
    PatchOp::MessagesCachedEdit { edits, invalidate_cache_reason }
}

/// Returns what the model should see after the summary: the messages of kept entries that it saw before, and the
/// messages that belong to them.
fn expected(before: &Context, kept: &[&EntryId], entry_id: &EntryId, compaction: &Compaction) -> Vec<PatchMessage> {
    let ids: HashSet<&EntryId> = kept.iter().copied().collect();
    // A compaction that only clears results keeps the existing summary, and a patch's additions before it stay.
    let same_summary = |counted: &Counted| summary_in(&counted.message) == compaction.summary;
    let fate = |counted: &Counted| match &counted.entry_id {
        _ if counted.kind == Kind::Summary => {
            if same_summary(counted) {
                Fate::Beside
            } else {
                Fate::Gone
            }
        }
        Some(id) if ids.contains(id) => Fate::Tail,
        _ => Fate::Gone,
    };
    let fates = fates(&before.messages, fate);
    // A placeholder for a result that has not arrived is created again each time.
    let is_stopgap = |counted: &Counted| counted.entry_id.is_none() && !counted.patched;
    let stays = before.messages.iter().zip(fates).filter(|(_, fate)| *fate != Fate::Gone);
    let stays = stays.filter(|(counted, _)| !is_stopgap(counted));
    let mut expected: Vec<PatchMessage> = stays.map(|(counted, _)| item(counted, entry_id, compaction)).collect();
    let is_summary = |message: &PatchMessage| message.entry_id.as_ref() == Some(entry_id);
    if ids.contains(entry_id) && !expected.iter().any(is_summary) {
        expected.insert(0, PatchMessage { entry_id: Some(entry_id.clone()), message: None });
    }
    expected
}

fn item(counted: &Counted, entry_id: &EntryId, compaction: &Compaction) -> PatchMessage {
    if counted.kind == Kind::Summary {
        return PatchMessage { entry_id: Some(entry_id.clone()), message: None };
    }
    let is_cleared = counted.entry_id.as_ref().is_some_and(|id| compaction.cleared_entry_ids.contains(id));
    let said = |message: &Message| Message::new(message.role, message.content.clone());
    let message = counted.patched.then(|| match is_cleared {
        true => said(&without_results(&counted.message)),
        false => said(&counted.message),
    });
    PatchMessage { entry_id: counted.entry_id.clone(), message }
}

/// Returns true if `some` is a subsequence of `all`.
fn is_within(some: &[&EntryId], all: &[&EntryId]) -> bool {
    let mut all = all.iter();
    some.iter().all(|id| all.any(|other| other == id))
}
