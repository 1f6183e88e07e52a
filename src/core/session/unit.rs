//! Units: entries that are kept or removed together, such as an answer with tool calls and all their results.

use reseed_protocol::{CallId, Entry, EntryData, EntryId, Part, Role};

/// Finds the unit of an entry, walking from the leaf to the root.
#[derive(Debug)]
pub struct UnitReader {
    wanted: EntryId,
    met: bool,
    /// Results since the newest answer, newest first, with the calls that they answer.
    results: Vec<(EntryId, Vec<CallId>)>,
    unit: Vec<EntryId>,
}

impl UnitReader {
    /// Creates a reader that looks for this entry.
    #[must_use]
    pub fn new(wanted: EntryId) -> Self {
        Self { wanted, met: false, results: Vec::new(), unit: Vec::new() }
    }

    /// Takes the next entry towards the root. Returns `false` once nothing further back is needed.
    pub fn take(&mut self, entry: &Entry) -> bool {
        let id = &entry.entry_id;
        let is_wanted = *id == self.wanted;
        self.met |= is_wanted;
        match &entry.data {
            EntryData::Message(message) if message.role == Role::Tool => {
                let answered = message.content.iter().filter_map(|part| match part {
                    Part::ToolResult { call_id, .. } => Some(call_id.clone()),
                    _ => None,
                });
                self.results.push((id.clone(), answered.collect()));
                true
            }
            EntryData::Message(message) if message.role == Role::Assistant => {
                let calls: Vec<&CallId> = message.tool_calls().map(|(call_id, _, _)| call_id).collect();
                let results = std::mem::take(&mut self.results);
                if self.met {
                    self.unit.push(id.clone());
                    let own =
                        results.into_iter().rev().filter(|(_, answered)| answered.iter().any(|id| calls.contains(&id)));
                    self.unit.extend(own.map(|(id, _)| id));
                    if !self.unit.contains(&self.wanted) {
                        // This is a result without a call, written by another program.
                        self.unit = vec![self.wanted.clone()];
                    }
                }
                !self.met
            }
            _ if is_wanted => {
                self.unit = vec![id.clone()];
                false
            }
            _ => true,
        }
    }

    /// Returns true if the entry was reached.
    #[must_use]
    pub fn has_met(&self) -> bool {
        self.met
    }

    /// Returns the unit's entries, oldest first; `None` if the wanted entry was not reached.
    #[must_use]
    pub fn finish(self) -> Option<Vec<EntryId>> {
        match self.met {
            false => None,
            true if self.unit.is_empty() => Some(vec![self.wanted]),
            true => Some(self.unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{counter::Counter, testing::path};

    #[test]
    fn a_call_is_found_with_all_its_results_and_nothing_else() {
        let lines = [
            "a:user one",
            "b:call x y",
            "c:result y 2",
            "d:note late",
            "e:result x 1",
            "f:call z",
            "g:result z 3",
            "h:assistant two",
            "i:user three",
            "j:result lost 4",
            "k:assistant four",
        ];
        let entries: Vec<Entry> =
            path(&lines, &Counter::for_model("test")).iter().map(|node| node.entry.clone()).collect();
        let table: &[(&str, Option<&[&str]>)] = &[
            ("a", Some(&["a"])),
            ("b", Some(&["b", "c", "e"])),
            ("c", Some(&["b", "c", "e"])),
            ("d", Some(&["d"])),
            ("e", Some(&["b", "c", "e"])),
            ("g", Some(&["f", "g"])),
            ("h", Some(&["h"])),
            ("j", Some(&["j"])),
            ("k", Some(&["k"])),
            ("z", None),
        ];
        for (wanted, expected) in table {
            let mut reader = UnitReader::new(wanted.parse().unwrap());
            let mut taken = 0;
            for entry in entries.iter().rev() {
                taken += 1;
                if !reader.take(entry) {
                    break;
                }
            }
            let found = reader.finish();
            let found: Option<Vec<&str>> = found.as_ref().map(|unit| unit.iter().map(EntryId::as_str).collect());
            assert_eq!(found, expected.map(<[&str]>::to_vec), "{wanted}");
            assert!(expected.is_some() || taken == entries.len(), "{wanted} is looked for everywhere");
        }
    }
}
