//! Checks the properties that must hold after every operation.

use super::*;
use crate::context::{build_context, pairing::Pairing};
use reseed_protocol::context::{MessageEdit, PatchMessage};

impl World {
    pub(super) fn check(&self) {
        let seed = self.seed;
        let told = self.session.tree.context();
        let again = build_context(self.session.tree.path());
        self.same(&told, &again, "what was added to is not what is made anew");
        let read = self.read(self.session.state.leaf.as_ref());
        self.same(&told, &read.context(), "reopened, the model sees something else");
        let whole = build_context(&self.whole());
        self.same(&told, &whole, "the model sees something else than the history says");
        assert!(Pairing::of(&told.messages).is_whole(), "seed {seed}: a call without a result, or the other way round");
        assert!(told.uncached.is_empty());
        self.check_hidden(&told);
    }

    /// Prints the path as short lines, for a failure.
    pub(super) fn told(&self) -> String {
        let id = |id: &Option<EntryId>| id.as_ref().map_or("-".to_owned(), ToString::to_string);
        let op = |op: &PatchOp| match op {
            PatchOp::MessagesCachedEdit { edits, .. } => {
                let edit =
                    |edit: &MessageEdit| format!("{}{}", edit.entry_id, if edit.message.is_some() { "=" } else { "" });
                format!("edit {}", edits.iter().map(edit).collect::<Vec<_>>().join(" "))
            }
            PatchOp::MessagesCachedReplace { messages, .. } => {
                let item = |item: &PatchMessage| {
                    format!("{}{}", id(&item.entry_id), if item.message.is_some() { "=" } else { "" })
                };
                format!("replace {}", messages.iter().map(item).collect::<Vec<_>>().join(" "))
            }
            other => other.name().to_owned(),
        };
        let ops = |ops: &[PatchOp]| ops.iter().map(op).collect::<Vec<_>>().join("; ");
        let line = |entry: &Entry| {
            let what = match &entry.data {
                EntryData::Compaction(compaction) => {
                    let is_undone = self.session.state.undone.contains(&entry.entry_id);
                    let Compaction { first_kept_entry_id: first, kept_entry_ids: kept, carried_patch, .. } = compaction;
                    let first = id(first);
                    format!("compaction undone={is_undone} first={first} kept={kept:?} {}", ops(carried_patch))
                }
                EntryData::ContextTransform(kept) => ops(&kept.known().unwrap().patch),
                EntryData::Message(message) => format!("{:?}", message.role),
                _ => String::new(),
            };
            let is_pinned = self.session.state.pins.iter().any(|pin| pin.entry_id == entry.entry_id);
            format!("{}{}: {what}", entry.entry_id, if is_pinned { " pinned" } else { "" })
        };
        let mut lines: Vec<String> = self.way_back(self.session.state.leaf.as_ref()).map(line).collect();
        lines.reverse();
        lines.join("\n")
    }

    fn same(&self, told: &Context, other: &Context, what: &str) {
        assert_eq!(printed(told), printed(other), "seed {}: {what}:\n{}", self.seed, self.told());
        assert_eq!(told, other, "seed {}: {what}", self.seed);
    }

    /// Checks that what a patch changed or removed is not visible in its old form.
    fn check_hidden(&self, told: &Context) {
        let seed = self.seed;
        let mut hidden: HashSet<&EntryId> = HashSet::new();
        for entry in self.way_back(self.session.state.leaf.as_ref()) {
            let EntryData::ContextTransform(kept) = &entry.data else { continue };
            for op in kept.known().iter().flat_map(|transform| &transform.patch) {
                match op {
                    PatchOp::MessagesCachedEdit { edits, .. } => {
                        hidden.extend(edits.iter().map(|edit| &edit.entry_id));
                    }
                    PatchOp::MessagesCachedReplace { messages, .. } => {
                        let said = messages.iter().filter(|item| item.message.is_some());
                        hidden.extend(said.filter_map(|item| item.entry_id.as_ref()));
                    }
                    _ => {}
                }
            }
        }
        for counted in &told.messages {
            let Some(id) = counted.shown_id().filter(|id| hidden.contains(id)) else { continue };
            let said = self.entries[self.places[id]].message();
            let same = said.is_some_and(|said| said.content == counted.message.content);
            assert!(!same, "seed {seed}: `{id}` is seen as it was before a patch changed it:\n{}", self.told());
        }
    }
}
