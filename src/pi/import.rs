//! Converts pi's lines to our entries, one by one.
//!
//! Invariant: exporting an entry yields its line again, equal as JSON. Import tries this for every line. Data that our
//! format cannot express goes into `Entry::imported`; in the worst case that is the whole line.
//!
//! Valid ids are kept. An entry whose parent is not an earlier line becomes a root; the parent id in the file is
//! preserved.

use super::{
    convert, difference, export,
    json::{Json, Object},
    places::Places,
    read::{Header, Line},
    transform::{self, Compacting, FirstKept},
};
use reseed_core::{agent_loop::PINS_MAX, session::IdSource};
use reseed_protocol::{
    Entry, EntryData, EntryId, Timestamp,
    compaction::{Compaction, Pin},
    tree::{Custom, Kept},
};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// In `imported`: the line's fields beyond those of the entry.
pub(super) const FIELDS: &str = "fields";
/// In `imported`: the entry's fields that the line lacks.
pub(super) const WITHOUT: &str = "without";
/// In `imported`: the original line.
pub(super) const LINE: &str = "line";
/// In `imported` of the first entry: the file's header.
pub(super) const HEADER: &str = "header";
/// In `imported` of a placeholder entry: the header of a file without entries.
pub(super) const HEADER_ALONE: &str = "headerAlone";
/// The `customType` of the placeholder entry for the header of a file without entries.
const HEADER_ENTRY: &str = "pi.header";

/// A remark about a line for the person who imports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The line number, from 1.
    pub line: usize,
    /// The remark.
    pub text: String,
}

/// Converts lines to entries in the order of the file.
#[derive(Debug)]
pub struct Importer {
    source: IdSource,
    places: Places,
    /// The compactions that arrived as patches and that pi repeats in a line below.
    booked_twice: HashSet<EntryId>,
    /// For each replaced id in the file, the newest entry with it.
    renamed: HashMap<String, EntryId>,
    header: Option<Object>,
    header_time: Timestamp,
    last_time: Timestamp,
    notes: Vec<Note>,
    undone: Vec<EntryId>,
    pins: Vec<Pin>,
}

impl Importer {
    /// Creates an importer from the file's header. `source` supplies replacements for invalid ids.
    #[must_use]
    pub fn new(header: Header, source: IdSource) -> Self {
        let time = header.object.text("timestamp").and_then(time_of).unwrap_or_default();
        Self {
            source,
            places: Places::default(),
            booked_twice: HashSet::new(),
            renamed: HashMap::new(),
            header: Some(header.object),
            header_time: time,
            last_time: time,
            notes: Vec::new(),
            undone: Vec::new(),
            pins: Vec::new(),
        }
    }

    /// Returns the session's creation time from the header.
    #[must_use]
    pub fn created_at(&self) -> Timestamp {
        self.header_time
    }

    /// Returns the notes made since the last call.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Returns the compactions read so far that were undone before the file was written.
    #[must_use]
    pub fn undone(&self) -> &[EntryId] {
        &self.undone
    }

    /// Returns the pinned entries read so far.
    #[must_use]
    pub fn pins(&self) -> &[Pin] {
        &self.pins
    }

    /// Converts a line to an entry.
    pub fn entry(&mut self, line: &Line) -> Entry {
        if let Some(object) = export::undone_in(&line.object).filter(|_| line.raw.is_none()) {
            let entry = self.plain_entry(&Line { number: line.number, object, raw: None });
            self.undone.push(entry.entry_id.clone());
            return entry;
        }
        let entry = self.plain_entry(line);
        if let Some(pins) = export::pins_in(&entry.data) {
            let here = |id: EntryId| self.resolve(id.as_str()).filter(|id| self.places.has(id));
            let pin = |pin: Pin| {
                let (with, under) = (pin.with.and_then(here), pin.under.and_then(here));
                here(pin.entry_id).map(|entry_id| Pin { entry_id, with, under })
            };
            self.pins = pins.into_iter().filter_map(pin).take(PINS_MAX).collect();
        }
        entry
    }

    fn plain_entry(&mut self, line: &Line) -> Entry {
        let Line { number, object, raw } = line;
        let entry_id = self.entry_id(*number, object.text("id"));
        let parent_id = object.text("parentId").and_then(|parent| {
            let found = self.resolve(parent).filter(|id| self.places.has(id));
            if found.is_none() {
                self.notes.push(Note {
                    line: *number,
                    text: "its parent is not an earlier line; it becomes a root".to_owned(),
                });
            }
            found
        });
        let timestamp = object.text("timestamp").and_then(time_of).unwrap_or(self.last_time);
        self.last_time = timestamp;
        let data = self.data(*number, object, &entry_id, parent_id.as_ref());
        let mut entry = Entry { entry_id, parent_id, timestamp, imported: None, data };
        if let Some(mark) = object.get(export::MARK) {
            export::restore(&mut entry, mark);
        }
        entry.imported = imported(&entry, object, raw.as_deref());
        self.places.add(&entry);
        if let Some(header) = self.header.take() {
            let kept = entry.imported.get_or_insert_default();
            kept.insert(HEADER.to_owned(), Value::Object(header.to_map()));
        }
        entry
    }

    /// Converts a line's content.
    fn data(&mut self, number: usize, line: &Object, id: &EntryId, parent: Option<&EntryId>) -> EntryData {
        if let Some(compacting) = transform::compacting(line, &|id| self.resolve(id)) {
            if compacting.is_booked_twice {
                self.booked_twice.insert(id.clone());
            }
            return self.compaction(number, compacting, parent);
        }
        if line.text("type") == Some("compaction") && parent.is_some_and(|parent| self.booked_twice.contains(parent)) {
            return convert::foreign(line);
        }
        let data = convert::data(line, &|id| self.resolve(id));
        if let EntryData::ContextTransform(kept) = &data
            && matches!(**kept, Kept::Other(_))
        {
            let text = "its patch cannot be applied here; it is kept, and the model does not see it";
            self.notes.push(Note { line: number, text: text.to_owned() });
        }
        data
    }

    /// Converts a compacting patch: maps positions in the context at the line's parent to entries.
    fn compaction(&mut self, number: usize, compacting: Compacting, parent: Option<&EntryId>) -> EntryData {
        let Compacting { ops, others, .. } = compacting;
        let mut messages = self.places.messages(parent);
        let mut compaction = Compaction::default();
        for op in ops {
            let from = match op.kept {
                FirstKept::At(at) => Some(at.min(messages.len())),
                FirstKept::Entry(None) => Some(messages.len()),
                FirstKept::Entry(kept) => messages.iter().position(|id| *id == kept),
            };
            let from = from.unwrap_or_else(|| {
                let text =
                    "its compaction keeps messages from an entry on that is not among them: it keeps none".to_owned();
                self.notes.push(Note { line: number, text });
                messages.len()
            });
            messages.drain(..from);
            // Only an entry can be the first one that is kept.
            let left_out = messages.iter().take_while(|id| id.is_none()).count();
            if left_out > 0 {
                let text = format!("its compaction leaves out {left_out} messages that it kept and that no line holds");
                self.notes.push(Note { line: number, text });
            }
            messages.drain(..left_out);
            compaction.summary = op.summary;
            compaction.tokens_before = op.tokens_before;
            compaction.first_kept_entry_id = messages.first().cloned().flatten();
            messages.insert(0, None);
        }
        if !others.is_empty() {
            let text = format!("only the compaction of its patch is applied, not {}", others.join(", "));
            self.notes.push(Note { line: number, text });
        }
        EntryData::Compaction(compaction)
    }

    /// Returns a placeholder entry with the header, if the file had no entries.
    pub fn finish(mut self) -> Option<Entry> {
        let header = self.header.take()?;
        let imported = Map::from_iter([(HEADER_ALONE.to_owned(), Value::Object(header.to_map()))]);
        Some(Entry {
            entry_id: self.new_id(),
            parent_id: None,
            timestamp: self.header_time,
            imported: Some(Box::new(imported)),
            data: EntryData::Custom(Custom { custom_type: HEADER_ENTRY.to_owned(), data: None }),
        })
    }

    /// Returns the file's id if it can be kept, otherwise a new one.
    fn entry_id(&mut self, line: usize, written: Option<&str>) -> EntryId {
        let why = match written.map(str::parse::<EntryId>) {
            Some(Ok(id)) if !self.places.has(&id) => return id,
            None => "it has no id".to_owned(),
            Some(Ok(id)) => format!("its id `{id}` is that of an earlier line"),
            Some(Err(why)) => format!("its id is not valid here ({why})"),
        };
        let id = self.new_id();
        self.notes.push(Note { line, text: format!("{why}; its new id is `{id}`") });
        if let Some(written) = written {
            self.renamed.insert(written.to_owned(), id.clone());
        }
        id
    }

    fn new_id(&mut self) -> EntryId {
        loop {
            let id: EntryId = self.source.next_id();
            if !self.places.has(&id) {
                return id;
            }
        }
    }

    /// Maps an id of the file to the entry's id here.
    fn resolve(&self, written: &str) -> Option<EntryId> {
        self.renamed.get(written).cloned().or_else(|| written.parse().ok())
    }
}

/// Returns the data that must be stored beside the entry to restore the line.
fn imported(entry: &Entry, line: &Object, raw: Option<&str>) -> Option<Box<Map<String, Value>>> {
    let whole = |text: &str| Some(Box::new(Map::from_iter([(LINE.to_owned(), Value::from(text))])));
    if let Some(raw) = raw {
        return whole(raw);
    }
    if line.get(export::MARK).is_some()
        && export::marked(entry, line.get("message").and_then(|m| m.text("toolName"))) == *line
    {
        return None;
    }
    let beyond = difference::of_objects(&export::object(entry), line);
    let mut tried = entry.clone();
    let mut beyond = beyond.to_map();
    // The field is set even if empty, because it marks the line as pi's.
    beyond.entry(FIELDS).or_insert_with(|| Value::Object(Map::new()));
    tried.imported = Some(Box::new(beyond));
    if export::object(&tried) == *line {
        return tried.imported;
    }
    whole(&Json::Object(line.clone()).to_js_text())
}

fn time_of(text: &str) -> Option<Timestamp> {
    serde_json::from_value(Value::from(text)).ok()
}
