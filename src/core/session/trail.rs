//! What stands between an entry and the leaf, as far as it can have changed what the model sees of that entry.
//!
//! What a compaction took out of sight comes back as its entry says it. Where a patch had changed it or taken it out
//! before, that is not what the model saw: so it does not come back alone.

use reseed_protocol::{
    Entry, EntryData, EntryId,
    patch::{MessageEdit, PATCH_VERSION, PatchMessage, PatchOp},
};

/// The way from the leaf back to an entry.
#[derive(Debug, Default)]
pub struct Trail {
    newest_first: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    id: EntryId,
    /// What it makes of the messages before it.
    ops: Vec<PatchOp>,
    compaction: Option<Kept>,
}

/// What a compaction keeps of what stands before it.
#[derive(Debug)]
struct Kept {
    first: Option<EntryId>,
    single: Vec<EntryId>,
}

impl Trail {
    /// Takes the next entry towards the root.
    pub fn take(&mut self, entry: &Entry) {
        let (ops, compaction) = match &entry.data {
            EntryData::ContextTransform(kept) => {
                let known = kept.known().filter(|transform| transform.schema_version == PATCH_VERSION);
                (known.map(|transform| transform.patch.clone()).unwrap_or_default(), None)
            }
            EntryData::Compaction(compaction) => {
                let (first, single) = (compaction.first_kept_entry_id.clone(), compaction.kept_entry_ids.clone());
                (compaction.carried_patch.clone(), Some(Kept { first, single }))
            }
            _ => (Vec::new(), None),
        };
        self.newest_first.push(Step { id: entry.entry_id.clone(), ops, compaction });
    }

    /// Whether a patch changed what this entry says, or took it out while the model could see it.
    #[must_use]
    pub fn has_changed(&self, entry: &EntryId) -> bool {
        let steps: Vec<&Step> = self.newest_first.iter().take_while(|step| step.id != *entry).collect();
        steps.iter().enumerate().any(|(at, step)| {
            let hidden = || steps[at..].iter().enumerate().any(|(on, older)| older.hides(entry, &steps[at + on..]));
            step.ops.iter().any(|op| match op {
                PatchOp::MessagesCachedEdit { edits, .. } => {
                    edits.iter().any(|MessageEdit { entry_id, .. }| entry_id == entry)
                }
                PatchOp::MessagesCachedReplace { messages, .. } => {
                    let named = messages.iter().find(|item| item.entry_id.as_ref() == Some(entry));
                    named.map_or_else(|| !hidden(), |PatchMessage { message, .. }| message.is_some())
                }
                _ => false,
            })
        })
    }
}

impl Step {
    /// Whether this is a compaction that takes the entry, which is older than all of these, out of sight. It stands first
    /// among them.
    fn hides(&self, entry: &EntryId, older: &[&Self]) -> bool {
        let Some(Kept { first, single }) = &self.compaction else { return false };
        let in_tail = first.as_ref().is_some_and(|first| !older.iter().any(|step| step.id == *first));
        // Where the tail does not begin between the two, it begins with the entry or before it.
        !in_tail && !single.contains(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::context::testing::entries;

    #[test]
    fn what_was_changed_while_it_was_seen_is_told() {
        let table: &[(&[&str], bool)] = &[
            (&["a:user one", "b:user two"], false),
            (&["a:user one", "b:edit a=x"], true),
            (&["a:user one", "b:edit a"], true),
            (&["a:user one", "b:user two", "c:edit b=x"], false),
            (&["a:user one", "b:user two", "c:replace a b=x"], false),
            (&["a:user one", "b:user two", "c:replace a=x b"], true),
            // Taken out while it was seen; not named when it was out of sight already.
            (&["a:user one", "b:user two", "c:replace b"], true),
            (&["a:user one", "b:user two", "c:compaction S first=b", "d:replace c b"], false),
            (&["a:user one", "b:user two", "c:compaction S", "d:replace c"], false),
            (&["a:user one", "b:user two", "c:compaction S first=b keep=a", "d:replace c b"], true),
            (&["a:user one", "b:user two", "c:compaction S first=a", "d:replace c b"], true),
            (&["a:user one", "b:user two", "c:replace b", "d:compaction S first=b"], true),
        ];
        for (lines, expected) in table {
            let mut trail = Trail::default();
            entries(lines).iter().rev().for_each(|entry| trail.take(entry));
            assert_eq!(trail.has_changed(&"a".parse().unwrap()), *expected, "{lines:?}");
        }
    }
}
