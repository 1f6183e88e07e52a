//! Replays a path: its messages, its newest compaction and its patches, each at its position, oldest first.
//!
//! The replay starts at the newest compaction, which is authoritative: it names what it keeps, and its own patch
//! contains the effect of earlier patches on that. So nothing older than what it keeps is needed, and replaying the
//! part of the path in memory gives the same result as replaying the whole path.
//!
//! Replaying never fails. A patch was checked when it was submitted; anything that it names but that is no longer
//! visible is ignored.

use crate::context::{
    messages::{Context, Counted, Kind},
    node::Node,
    pairing::{Pairing, mended},
    patch::{
        CarriedOps, StoredPatch,
        counted::{MessageItem, MessageOp},
        list::{Fate, List, StandFor},
    },
};
use reseed_protocol::{EntryData, EntryId, Role, compaction::Compaction};
use std::{
    collections::HashSet,
    sync::{Arc, OnceLock},
};

/// Returns the model's view of a path, before calls and results are paired.
#[must_use]
pub(crate) fn raw_context(path: &[Arc<Node>]) -> Context {
    Walk::over(path).finish()
}

/// Returns all messages on a path, including those that compactions hid: compactions are skipped and patches applied.
#[must_use]
pub(crate) fn uncompacted(path: &[Arc<Node>]) -> Vec<Counted> {
    let passed_over = |node: &Arc<Node>| match node.compaction() {
        Some(_) => Arc::new((**node).clone().passed_over()),
        None => node.clone(),
    };
    let path: Vec<Arc<Node>> = path.iter().map(passed_over).collect();
    raw_context(&path).messages
}

/// A replay kept with the path: a new message is added to it without replaying anything.
#[derive(Debug, Clone)]
pub(crate) struct Replay {
    raw: Arc<Context>,
    pairing: Pairing,
    mended: OnceLock<Arc<Context>>,
}

impl Replay {
    pub(crate) fn of(path: &[Arc<Node>]) -> Self {
        Self::from_raw(raw_context(path))
    }

    fn from_raw(raw: Context) -> Self {
        Self { pairing: Pairing::of(&raw.messages), raw: Arc::new(raw), mended: OnceLock::new() }
    }

    /// Returns the model's view.
    pub(crate) fn context(&self) -> Arc<Context> {
        if self.pairing.is_whole() {
            return self.raw.clone();
        }
        let mend = || Arc::new(Context { messages: mended(self.raw.messages.clone()), ..(*self.raw).clone() });
        self.mended.get_or_init(mend).clone()
    }

    /// Returns the context before calls and results are paired.
    pub(crate) fn raw(&self) -> &Context {
        &self.raw
    }

    /// Adds the next entry. Returns `false` if it changes older messages, so that the path must be replayed.
    pub(crate) fn extend(&mut self, node: &Node) -> bool {
        if matches!(node.entry.data, EntryData::Compaction(_)) {
            return false;
        }
        if matches!(node.entry.data, EntryData::ContextTransform(_)) {
            let raw = std::mem::take(&mut self.raw);
            let mut walk = Walk::from(Arc::unwrap_or_clone(raw));
            walk.step(node, &StandFor::new());
            *self = Self::from_raw(walk.finish());
            return true;
        }
        if let Some(counted) = counted(Kind::Recent, node) {
            self.pairing.take(&counted.message);
            Arc::make_mut(&mut self.raw).messages.push(counted);
            self.mended = OnceLock::new();
        }
        true
    }
}

/// A replay in progress.
#[derive(Debug, Default)]
struct Walk {
    list: List,
    carried: CarriedOps,
    unknown_patches: u64,
}

impl From<Context> for Walk {
    fn from(context: Context) -> Self {
        let Context { messages, carried, unknown_patches, uncached: _ } = context;
        Self { list: List::of(messages), carried, unknown_patches }
    }
}

impl Walk {
    fn over(path: &[Arc<Node>]) -> Self {
        let mut walk = Self::default();
        let newest = path.iter().enumerate().rev().find_map(|(at, node)| Some((at, node.compaction()?)));
        let begins = newest.map_or(0, |(at, compaction)| {
            walk.begin(&path[..at], &path[at], compaction);
            at + 1
        });
        let after = &path[begins..];
        let mut undone = mentioned_undone(after);
        let mut stand_for = StandFor::new();
        for (at, node) in after.iter().enumerate() {
            if undone.remove(node.id())
                && let EntryData::Compaction(compaction) = &node.entry.data
            {
                let hidden = hidden_by(&path[..begins + at], compaction, walk.list.settled());
                stand_for.insert(node.id().clone(), hidden);
            }
            walk.step(node, &stand_for);
        }
        walk
    }

    /// Starts with a compaction: with what it keeps of the path before it, as its own patch changed that.
    fn begin(&mut self, before: &[Arc<Node>], node: &Node, compaction: &Compaction) {
        let first = first_kept(before, compaction);
        let kept: HashSet<&EntryId> = compaction.kept_entry_ids.iter().collect();
        let settles = node.settles_messages();
        let mut beside: HashSet<EntryId> = HashSet::new();
        for (at, node) in before.iter().enumerate() {
            if at < first {
                // An entry pinned after the compaction had hidden it is restored unchanged. If there were message
                // patches, that may differ from what the model saw, so it is not restored.
                if !kept.contains(node.id()) && (settles || !node.pinned) {
                    continue;
                }
                beside.insert(node.id().clone());
            }
            // Older compactions are merged into the newest.
            if !matches!(node.entry.data, EntryData::Compaction(_)) {
                counted(Kind::Recent, node).into_iter().for_each(|counted| self.list.push(counted));
            }
        }
        let fate = |id: &EntryId| if beside.contains(id) { Fate::Beside } else { Fate::Tail };
        self.list.compact(counted(Kind::Summary, node), fate);
        if let Some(patch) = &node.patch {
            self.patch(patch, &StandFor::new());
        }
    }

    fn step(&mut self, node: &Node, stand_for: &StandFor) {
        match (&node.entry.data, &node.patch) {
            (EntryData::Compaction(_), _) => {}
            (EntryData::ContextTransform(_), Some(patch)) => self.patch(patch, stand_for),
            (EntryData::ContextTransform(_), None) => self.unknown_patches += 1,
            _ => {
                if let Some(counted) = counted(Kind::Recent, node) {
                    self.list.push(counted);
                }
            }
        }
    }

    fn patch(&mut self, patch: &StoredPatch, stand_for: &StandFor) {
        patch.others.iter().for_each(|op| self.carried.push(op));
        patch.messages.iter().for_each(|op| self.list.apply(op, stand_for));
    }

    fn finish(self) -> Context {
        let Self { list, carried, unknown_patches } = self;
        Context { messages: list.into_messages(), uncached: Vec::new(), carried, unknown_patches }
    }
}

/// Returns the start index of the tail that a compaction keeps of the path.
pub(crate) fn first_kept(before: &[Arc<Node>], compaction: &Compaction) -> usize {
    let first = compaction.first_kept_entry_id.as_ref();
    first.and_then(|first| before.iter().position(|node| node.id() == first)).unwrap_or(before.len())
}

/// Returns an entry's message as it appears in a context; `None` for an entry without one.
///
/// An imported answer that failed or was cut off is on the path and is shown. The program that it comes from did not
/// send it to a model again, and neither do we.
fn counted(kind: Kind, node: &Node) -> Option<Counted> {
    let message = node.message.clone()?;
    let failed_elsewhere = node.entry.imported.is_some() && message.role == Role::Assistant && message.incomplete;
    let is_input = node.entry.message().is_some_and(|message| message.role == Role::User);
    (!failed_elsewhere).then(|| Counted {
        entry_id: Some(node.id().clone()),
        is_result: message.role == Role::Tool,
        message,
        tokens: node.tokens,
        hash: node.hash,
        kind,
        pinned: node.pinned,
        cleared: node.cleared,
        is_input,
        patched: false,
        moved_from: None,
    })
}

/// Returns the undone compactions that a later replacement names, because it was made while they were in effect.
fn mentioned_undone(path: &[Arc<Node>]) -> HashSet<EntryId> {
    let mut undone: HashSet<EntryId> = path.iter().filter(|node| node.undone).map(|node| node.id().clone()).collect();
    if undone.is_empty() {
        return undone;
    }
    let ops = path.iter().filter_map(|node| node.patch.as_deref()).flat_map(|patch| &patch.messages);
    let items = ops.flat_map(|op| match op {
        MessageOp::Replace(items) => items.as_slice(),
        _ => &[],
    });
    let mentioned: HashSet<&EntryId> = items.filter_map(|MessageItem { entry_id, .. }| entry_id.as_ref()).collect();
    undone.retain(|id| mentioned.contains(id));
    undone
}

/// Returns which of these messages a compaction had hidden before it was undone.
fn hidden_by(before: &[Arc<Node>], compaction: &Compaction, messages: &[Counted]) -> HashSet<EntryId> {
    let first = first_kept(before, compaction);
    let older: HashSet<&EntryId> = before[..first].iter().map(|node| node.id()).collect();
    let hidden = messages.iter().filter(|counted| {
        let id = counted.entry_id.as_ref();
        counted.kind == Kind::Summary
            || id.is_some_and(|id| older.contains(id) && !compaction.kept_entry_ids.contains(id))
    });
    hidden.filter_map(|counted| counted.entry_id.clone()).collect()
}
