//! Forks: a session copied from one path of another, and the links between its entries.
//!
//! Invariants of what [`PathCopy`] returns: it is a chain, so each entry's parent is the previous one; ids are kept; no
//! entry references one outside the copy, except as a record of where a branch started (`fromId`).

use super::state::SessionState;
use reseed_protocol::{Entry, EntryData, EntryId, compaction::Pin};
use std::collections::{BTreeMap, BTreeSet};

/// The suffix of a fork's name.
const MARK: &str = "fork";

/// Maximum characters of a session's name.
const NAME_CHARS_MAX: usize = 200;

/// Copies a path entry by entry, starting at the root.
#[derive(Debug, Default)]
pub struct PathCopy {
    last: Option<EntryId>,
    /// Entries omitted since the last copied one.
    left_out: Vec<EntryId>,
    /// For each omitted entry, the next copied one. A kept range that began at the omitted entry now begins there.
    next_of: BTreeMap<EntryId, EntryId>,
    /// For each entry labelled in the copy: true if its newest label entry sets a label, false if it removes one.
    named: BTreeMap<EntryId, bool>,
}

/// Returns the entries that an entry references besides its parent; the copy must know which of them are on the path.
#[must_use]
pub fn mentions(entry: &Entry) -> Vec<EntryId> {
    match &entry.data {
        EntryData::Label(label) => vec![label.target_id.clone()],
        EntryData::Compaction(compaction) => {
            let kept = compaction.first_kept_entry_id.iter().chain(&compaction.kept_entry_ids);
            kept.chain(&compaction.cleared_entry_ids).cloned().collect()
        }
        EntryData::BranchSummary(branch) => branch.left_leaf_id.iter().cloned().collect(),
        _ => Vec::new(),
    }
}

impl PathCopy {
    /// Returns the next entry of the path as it appears in the copy; `there` are those of its [`mentions`] that are on
    /// the path. Returns `None` for a label of an entry outside the path, which is omitted.
    pub fn take(&mut self, mut entry: Entry, there: &BTreeSet<EntryId>) -> Option<Entry> {
        match &mut entry.data {
            EntryData::Label(label) => {
                if !there.contains(&label.target_id) {
                    self.left_out.push(entry.entry_id);
                    return None;
                }
                self.named.insert(label.target_id.clone(), label.label.is_some());
            }
            EntryData::Compaction(compaction) => {
                let first = compaction.first_kept_entry_id.take();
                compaction.first_kept_entry_id = match first {
                    // Everything before it was omitted, so the kept range begins with the compaction itself.
                    Some(first) if self.left_out.contains(&first) => None,
                    Some(first) => self.next_of.get(&first).cloned().or(there.contains(&first).then_some(first)),
                    None => None,
                };
                compaction.kept_entry_ids.retain(|kept| there.contains(kept) && !self.is_left_out(kept));
                compaction.cleared_entry_ids.retain(|cleared| there.contains(cleared));
            }
            EntryData::BranchSummary(branch) => {
                branch.left_leaf_id = branch.left_leaf_id.take().filter(|left| there.contains(left));
            }
            _ => {}
        }
        Some(self.hang(entry))
    }

    /// Appends a label entry of another branch to the end of the copy; `None` if it would change nothing.
    pub fn take_label(&mut self, entry: Entry) -> Option<Entry> {
        let EntryData::Label(label) = &entry.data else { return None };
        let was_named = self.named.get(&label.target_id).copied().unwrap_or(false);
        if label.label.is_none() && !was_named {
            return None;
        }
        self.named.insert(label.target_id.clone(), label.label.is_some());
        Some(self.hang(entry))
    }

    fn hang(&mut self, mut entry: Entry) -> Entry {
        let next = &entry.entry_id;
        self.next_of.extend(self.left_out.drain(..).map(|left_out| (left_out, next.clone())));
        entry.parent_id = self.last.replace(entry.entry_id.clone());
        entry
    }

    fn is_left_out(&self, entry: &EntryId) -> bool {
        self.left_out.contains(entry) || self.next_of.contains_key(entry)
    }
}

/// Returns the entries that a session's pins and undone compactions reference; the copy must know which are on the
/// path.
#[must_use]
pub fn marks_mention(state: &SessionState) -> Vec<EntryId> {
    let pins = state.pins.iter().flat_map(|pin| [Some(&pin.entry_id), pin.with.as_ref(), pin.under.as_ref()]);
    pins.flatten().chain(&state.undone).cloned().collect()
}

/// Returns the copy's pins and undone compactions; `there` are those of [`marks_mention`] that are on the path.
#[must_use]
pub fn marks_of(state: &SessionState, there: &BTreeSet<EntryId>) -> (Vec<Pin>, Vec<EntryId>) {
    let known = |id: &Option<EntryId>| id.clone().filter(|id| there.contains(id));
    let here = state.pins.iter().filter(|pin| there.contains(&pin.entry_id));
    let mut pins: Vec<Pin> = here
        .map(|pin| Pin { entry_id: pin.entry_id.clone(), with: known(&pin.with), under: known(&pin.under) })
        .collect();
    // A path that ends among an answer's results may lack the entry through which they were all pinned. The answer,
    // which comes first, then takes its place.
    for pin in &mut pins {
        let was_with = state.pins.iter().find(|was| was.entry_id == pin.entry_id).and_then(|was| was.with.as_ref());
        if let Some(lost) = was_with.filter(|with| !there.contains(with)) {
            let first = state.pins.iter().find(|was| was.with.as_ref() == Some(lost) && there.contains(&was.entry_id));
            pin.with = first.map(|first| first.entry_id.clone()).filter(|first| *first != pin.entry_id);
        }
    }
    (pins, state.undone.iter().filter(|id| there.contains(id)).cloned().collect())
}

/// Returns the name of a fork: the session's name with a suffix, or with the next number if it already has one. Forks
/// of an unnamed session stay unnamed and take their name from the first message.
#[must_use]
pub fn fork_name(name: &str) -> String {
    if name.is_empty() {
        return String::new();
    }
    let (base, number) = marked(name).unwrap_or((name, 0));
    let mark = if number == 0 { format!(" ({MARK})") } else { format!(" ({MARK} {})", number + 1) };
    let room = NAME_CHARS_MAX - mark.chars().count();
    let base: String = base.chars().take(room).collect();
    format!("{}{mark}", base.trim_end())
}

/// Splits a fork's name into the text before the suffix and its number.
fn marked(name: &str) -> Option<(&str, u32)> {
    let (base, mark) = name.strip_suffix(')')?.rsplit_once(" (")?;
    let number = mark.strip_prefix(MARK)?;
    let number = if number.is_empty() { 1 } else { number.strip_prefix(' ')?.parse().ok()? };
    Some((base, number)).filter(|(_, number)| (1..u32::MAX).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Parses `id type key=value …` into an entry; ids in lists are separated by commas.
    fn entry(text: &str) -> Entry {
        let mut words = text.split(' ');
        let (id, kind) = (words.next().unwrap(), words.next().unwrap());
        let mut value =
            json!({ "entryId": id, "parentId": "elsewhere", "timestamp": "2026-11-21T09:15:00Z", "type": kind });
        if kind == "message" {
            value["role"] = json!("user");
            value["content"] = json!([]);
        }
        for word in words {
            let (key, text) = word.split_once('=').unwrap();
            value[key] = match key {
                "keptEntryIds" | "clearedEntryIds" => text.split(',').map(Value::from).collect(),
                "tokensBefore" => json!(1),
                _ => json!(text),
            };
        }
        serde_json::from_value(value).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Prints an entry as `parent>id` and the ids that it references.
    fn short(entry: &Entry) -> String {
        let parent = entry.parent_id.as_ref().map_or("", EntryId::as_str);
        let names = mentions(entry).iter().map(|id| format!(" {id}")).collect::<String>();
        format!("{parent}>{}{names}", entry.entry_id)
    }

    #[test]
    fn a_copy_is_a_chain_without_dangling_references() {
        let compaction = |rest: &str| format!("c compaction summary=S tokensBefore=1 {rest}");
        let table: &[(&[&str], &[&str], &[&str])] = &[
            (&["a message", "b message"], &[], &[">a", "a>b"]),
            (&["a message", "l label targetId=a label=x", "b message"], &[], &[">a", "a>l a", "l>b"]),
            (&["a message", "l label targetId=z label=x", "b message"], &[], &[">a", "a>b"]),
            (&["l label targetId=z label=x", "m label targetId=y", "b message"], &[], &[">b"]),
            (
                &["a message", "b message", &compaction("firstKeptEntryId=b keptEntryIds=a,z"), "d message"],
                &[],
                &[">a", "a>b", "b>c b a", "c>d"],
            ),
            (
                &[
                    "a message",
                    "l label targetId=z",
                    "m label targetId=z",
                    "b message",
                    &compaction("firstKeptEntryId=l"),
                ],
                &[],
                &[">a", "a>b", "b>c b"],
            ),
            (
                &["a message", "l label targetId=z", &compaction("firstKeptEntryId=l keptEntryIds=l,a")],
                &[],
                &[">a", "a>c a"],
            ),
            (&["a message", &compaction("firstKeptEntryId=z")], &[], &[">a", "a>c"]),
            (&["a message", &compaction("firstKeptEntryId=c")], &[], &[">a", "a>c c"]),
            (
                &["a message", "b message", &compaction("firstKeptEntryId=a clearedEntryIds=z,b")],
                &[],
                &[">a", "a>b", "b>c a b"],
            ),
            (&["a message", "s branch_summary fromId=a summary=S leftLeafId=z"], &[], &[">a", "a>s"]),
            (&["a message", "s branch_summary fromId=a summary=S leftLeafId=a"], &[], &[">a", "a>s a"]),
            (
                &["a message", "b message"],
                &["l label targetId=a label=x", "m label targetId=b", "n label targetId=a"],
                &[">a", "a>b", "b>l a", "l>n a"],
            ),
            (&["a message", "k label targetId=a label=x"], &["l label targetId=a"], &[">a", "a>k a", "k>l a"]),
        ];
        for (path, labels, expected) in table {
            let entries: Vec<Entry> = path.iter().map(|text| entry(text)).collect();
            let on_path: BTreeSet<EntryId> = entries.iter().map(|entry| entry.entry_id.clone()).collect();
            let mut copy = PathCopy::default();
            let mut made: Vec<String> =
                entries.into_iter().filter_map(|entry| copy.take(entry, &on_path)).map(|entry| short(&entry)).collect();
            made.extend(labels.iter().filter_map(|text| copy.take_label(entry(text))).map(|entry| short(&entry)));
            assert_eq!(made, *expected, "{path:?} {labels:?}");
        }
    }

    #[test]
    fn pins_and_undone_compactions_go_with_the_entries_that_they_name() {
        let pin = |text: &str| {
            let ids: Vec<Option<EntryId>> = text.split(' ').map(|id| id.parse().ok().filter(|_| id != "-")).collect();
            Pin { entry_id: ids[0].clone().unwrap(), with: ids[1].clone(), under: ids[2].clone() }
        };
        /// Pins and undone compactions of the session, what is on the path, and the copy's.
        type Case<'a> = [&'a [&'a str]; 5];
        let table: &[Case<'_>] = &[
            [&["a - -", "b - c"], &["c", "d"], &["a", "b", "c", "d"], &["a - -", "b - c"], &["c", "d"]],
            [&["a - -", "b - c"], &["c", "d"], &["b", "d"], &["b - -"], &["d"]],
            [&["a r -", "q r -", "r - -"], &[], &["a", "q", "r"], &["a r -", "q r -", "r - -"], &[]],
            [&["a r -", "q r -", "r - -"], &[], &["a", "q"], &["a - -", "q a -"], &[]],
            [&["a r c", "r - c"], &[], &[], &[], &[]],
        ];
        for [pins, undone, there, expected, expected_undone] in table {
            let ids = |ids: &[&str]| ids.iter().map(|id| id.parse().unwrap()).collect::<Vec<EntryId>>();
            let state = SessionState {
                pins: pins.iter().map(|text| pin(text)).collect(),
                undone: ids(undone),
                ..SessionState::default()
            };
            let there: BTreeSet<EntryId> = ids(there).into_iter().collect();
            let expected: Vec<Pin> = expected.iter().map(|text| pin(text)).collect();
            assert_eq!(marks_of(&state, &there), (expected, ids(expected_undone)), "{pins:?} {undone:?}");
        }
    }

    #[test]
    fn a_fork_has_its_sessions_name_with_a_mark() {
        let long = "é".repeat(200);
        let table = [
            ("", "".to_owned()),
            ("Ferries", "Ferries (fork)".to_owned()),
            ("Ferries (fork)", "Ferries (fork 2)".to_owned()),
            ("Ferries (fork 9)", "Ferries (fork 10)".to_owned()),
            ("Ferries (fork x)", "Ferries (fork x) (fork)".to_owned()),
            ("Ferries (fork -1)", "Ferries (fork -1) (fork)".to_owned()),
            ("Ferries (fork 4294967295)", "Ferries (fork 4294967295) (fork)".to_owned()),
            ("(fork)", "(fork) (fork)".to_owned()),
            (&long, format!("{} (fork)", "é".repeat(193))),
        ];
        for (name, expected) in table {
            assert_eq!(fork_name(name), expected);
            assert!(fork_name(name).chars().count() <= NAME_CHARS_MAX);
        }
    }
}
