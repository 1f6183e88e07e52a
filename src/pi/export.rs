//! Converts our entries to pi's lines in version 3, including sessions that pi never had.
//!
//! An imported entry is written as its original line, equal as JSON. Any other entry becomes a line that pi
//! understands. Data for which pi has no field goes into the field `reseed`, which pi ignores and import reads.

use super::{
    convert, difference,
    import::{FIELDS, HEADER, HEADER_ALONE, LINE, WITHOUT},
    json::{Json, Object},
    read::VERSION,
};
use reseed_protocol::{CallId, Entry, EntryData, EntryId, Part, Role, SessionId, Timestamp, compaction::Pin};
use std::collections::{HashMap, HashSet};

/// The field of a line that holds the data for which pi has no field.
pub(super) const MARK: &str = "reseed";

/// The `customType` of the line after the last entry that names the leaf.
const LEAF: &str = "reseed.leaf";

/// The `customType` of an undone compaction's line. pi ignores it, as we do.
const UNDONE: &str = "reseed.undone";

/// The `customType` of the last line, which names the pinned entries.
const PINS: &str = "reseed.pins";

/// Writes a session's lines in the order of its log.
#[derive(Debug)]
pub struct Exporter {
    session: SessionId,
    created_at: Timestamp,
    has_header: bool,
    /// The tool that each call names. It is needed because pi stores the name with the result.
    tools: HashMap<CallId, String>,
    last: Option<EntryId>,
    undone: HashSet<EntryId>,
    pins: Vec<Pin>,
    /// The pins recorded by the last entry, if it is one of our lines for pins.
    told_pins: Option<Json>,
}

impl Exporter {
    /// Creates an exporter for a session.
    #[must_use]
    pub fn new(session: SessionId, created_at: Timestamp) -> Self {
        Self {
            session,
            created_at,
            has_header: false,
            tools: HashMap::new(),
            last: None,
            undone: HashSet::new(),
            pins: Vec::new(),
            told_pins: None,
        }
    }

    /// Sets the session's pins and undone compactions.
    #[must_use]
    pub fn keeping(mut self, pins: &[Pin], undone: &[EntryId]) -> Self {
        self.undone = undone.iter().cloned().collect();
        self.pins = pins.to_vec();
        self
    }

    /// Returns the lines of an entry, without line endings; the first call also returns the header.
    pub fn entry(&mut self, entry: &Entry) -> Vec<String> {
        let mut lines = Vec::new();
        let kept = |name: &str| entry.imported.as_ref().and_then(|imported| imported.get(name)?.as_object());
        if !self.has_header {
            let header = kept(HEADER).or_else(|| kept(HEADER_ALONE));
            lines.push(header.map_or_else(|| self.header(), |header| text(&Object::from(header))));
            self.has_header = true;
        }
        if kept(HEADER_ALONE).is_some() {
            return lines;
        }
        self.last = Some(entry.entry_id.clone());
        if let EntryData::Message(message) = &entry.data {
            self.tools.extend(message.tool_calls().map(|(call_id, name, _)| (call_id.clone(), name.to_owned())));
        }
        self.told_pins = match &entry.data {
            EntryData::Custom(custom) if custom.custom_type == PINS => custom.data.as_ref().map(Json::from),
            _ => None,
        };
        lines.push(match whole_line(entry) {
            _ if self.undone.contains(&entry.entry_id) => {
                let line = if is_pis(entry) { object(entry) } else { marked(entry, None) };
                text(&passed_over(line))
            }
            Some(line) => line.to_owned(),
            None if is_pis(entry) => text(&object(entry)),
            None => text(&marked(entry, tool_of(entry, &self.tools))),
        });
        lines
    }

    /// Returns the closing lines: the header if there was no entry, then the pins, then the leaf if it is not the last
    /// entry.
    ///
    /// `marker` is the id of the line for pins or leaf. No entry may have this id.
    #[must_use]
    pub fn finish(self, leaf: Option<&EntryId>, marker: EntryId, now: Timestamp) -> Vec<String> {
        if !self.has_header {
            return vec![self.header()];
        }
        let pins = (!self.pins.is_empty() || self.told_pins.is_some()).then(|| pins_data(&self.pins));
        let is_told = pins == self.told_pins;
        if leaf == self.last.as_ref() && is_told || self.last.is_none() {
            return Vec::new();
        }
        let mut line = Object::of([
            ("type", "custom".into()),
            ("id", marker.as_str().into()),
            ("parentId", leaf.map_or(Json::Null, |leaf| leaf.as_str().into())),
            ("timestamp", now.to_string().into()),
            ("customType", if pins.is_some() { PINS } else { LEAF }.into()),
        ]);
        line.set_some("data", pins);
        vec![text(&line)]
    }

    fn header(&self) -> String {
        text(&Object::of([
            ("type", "session".into()),
            ("version", VERSION.into()),
            ("id", self.session.as_str().into()),
            ("timestamp", self.created_at.to_string().into()),
            ("cwd", "/".into()),
        ]))
    }
}

/// Wraps the line of a compaction so that pi ignores it.
#[must_use]
pub fn passed_over(line: Object) -> Object {
    let named = |name: &str| line.get(name).cloned().unwrap_or(Json::Null);
    Object::of([
        ("type", "custom".into()),
        ("id", named("id")),
        ("parentId", named("parentId")),
        ("timestamp", named("timestamp")),
        ("customType", UNDONE.into()),
        ("data", Json::Object(line)),
    ])
}

/// Returns the undone compaction wrapped in a line.
pub(super) fn undone_in(line: &Object) -> Option<Object> {
    if line.text("customType") != Some(UNDONE) {
        return None;
    }
    let inner = line.get("data")?.as_object().filter(|inner| inner.text("type") == Some("compaction"))?;
    // If the line contains anything else, unwrapping would lose it.
    (passed_over(inner.clone()) == *line).then(|| inner.clone())
}

fn pins_data(pins: &[Pin]) -> Json {
    let value = serde_json::to_value(pins).expect("pins have text keys");
    Json::object([("pins", Json::from(&value))])
}

/// Returns the pins that an entry records, if it is a pins entry of ours.
pub(super) fn pins_in(data: &EntryData) -> Option<Vec<Pin>> {
    let EntryData::Custom(custom) = data else { return None };
    let pins = custom.data.as_ref().filter(|_| custom.custom_type == PINS)?.get("pins")?;
    serde_json::from_value(pins.clone()).ok()
}

/// Returns the line of an entry that did not come from pi. `tool` is the tool whose result it is.
pub(super) fn marked(entry: &Entry, tool: Option<&str>) -> Object {
    let entry = Entry { imported: None, ..entry.clone() };
    let mut line = convert::line(&entry);
    if let Some(Json::Object(message)) = line.get_mut("message")
        && message.text("role") == Some("toolResult")
        && let Some(tool) = tool
    {
        message.set("toolName", tool);
    }
    let again = Entry { data: convert::data(&line, &|id| id.parse().ok()), ..entry.clone() };
    line.set(MARK, difference::of_objects(&fields(&again), &fields(&entry)));
    line
}

fn tool_of<'a>(entry: &Entry, tools: &'a HashMap<CallId, String>) -> Option<&'a str> {
    let message = entry.message().filter(|message| message.role == Role::Tool)?;
    message.content.iter().find_map(|part| match part {
        Part::ToolResult { call_id, .. } => tools.get(call_id).map(String::as_str),
        _ => None,
    })
}

/// Restores an entry read from one of our lines.
pub(super) fn restore(entry: &mut Entry, mark: &Json) {
    let Some(mark) = mark.as_object() else { return };
    let mut restored = fields(entry);
    difference::apply_to_object(&mut restored, mark);
    if let Ok(read) = serde_json::from_value::<Entry>(serde_json::Value::Object(restored.to_map())) {
        // Ids and parent stay as imported: an id may have been replaced, and a parent may be missing.
        entry.data = read.data;
    }
}

/// Returns the entry in our storage format.
fn fields(entry: &Entry) -> Object {
    let value = serde_json::to_value(entry).expect("an entry has text keys and finite numbers");
    value.as_object().map(Object::from).unwrap_or_default()
}

/// Returns true if the entry was imported from a line that was not ours.
fn is_pis(entry: &Entry) -> bool {
    entry.imported.as_ref().is_some_and(|imported| imported.contains_key(FIELDS) || imported.contains_key(LINE))
}

/// Returns the original line of an entry, if it was kept whole.
fn whole_line(entry: &Entry) -> Option<&str> {
    entry.imported.as_ref()?.get(LINE)?.as_str()
}

/// Returns the line of an entry.
#[must_use]
pub fn object(entry: &Entry) -> Object {
    if let Some(whole) = whole_line(entry)
        && let Ok(super::read::Parsed { object, .. }) = super::read::parse_object(whole)
    {
        return object;
    }
    let mut line = convert::line(entry);
    if let Some(imported) = &entry.imported {
        let kept: serde_json::Map<_, _> = imported
            .iter()
            .filter(|(name, _)| matches!(name.as_str(), FIELDS | WITHOUT))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        difference::apply_to_object(&mut line, &Object::from(&kept));
    }
    line
}

fn text(object: &Object) -> String {
    serde_json::to_string(object).expect("JSON has text keys and finite numbers")
}

/// Parses a patch from the data that [`convert`] or an earlier version wrote for it.
pub(super) fn own_entry(data: &Json) -> Option<EntryData> {
    let fields = serde_json::Value::Object(data.get("fields")?.as_object()?.to_map());
    match data.text("type")? {
        "context_transform" => serde_json::from_value(fields).ok().map(EntryData::ContextTransform),
        "ephemeral" => serde_json::from_value(fields).ok().map(EntryData::Ephemeral),
        _ => None,
    }
}
