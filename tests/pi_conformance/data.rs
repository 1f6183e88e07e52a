//! The cases and their sessions, imported as the server imports them.

use reseed::{
    core::session::{IdSource, Node},
    pi::{
        self, Importer,
        json::{Json, Object},
        read::{Item, Reader},
    },
};
use reseed_protocol::{Entry, EntryId};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The result of a case.
pub(crate) enum Outcome {
    Passed,
    /// Different from pi, for a reason in the table, and checked to be better.
    Deviating(&'static str),
    Failed(String),
}

/// Returns a pass, or the difference.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), Outcome> {
    if found == expected {
        return Ok(());
    }
    let short = |value: &T| {
        let text = format!("{value:?}");
        if text.len() > 600 { format!("{}…", text.chars().take(600).collect::<String>()) } else { text }
    };
    Err(Outcome::Failed(format!("{what} is {}, expected {}", short(found), short(expected))))
}

/// Returns the outcome of checks that stop at the first failure.
pub(crate) fn outcome(checks: impl FnOnce() -> Result<(), Outcome>) -> Outcome {
    checks().err().unwrap_or(Outcome::Passed)
}

/// Returns what a developer needs to find a case.
pub(crate) fn title(case: &Value) -> String {
    ["name", "session", "leaf", "oldLeaf", "target", "keepRecentTokens"]
        .iter()
        .filter_map(|field| Some(format!("{field}={}", case.get(field)?)))
        .collect::<Vec<_>>()
        .join(" ")
}

/// A session file, imported.
pub(crate) struct Session {
    /// The header's line, in the form of version 3.
    pub(crate) header: Object,
    /// The version stated in the file.
    pub(crate) version: u64,
    /// Lines in the form of version 3, by number from 0.
    pub(crate) lines: BTreeMap<usize, Object>,
    /// Lines that are broken.
    pub(crate) broken: Vec<usize>,
    /// All lines, blank and broken ones too.
    pub(crate) physical_lines: usize,
    /// The entries, in the order of the file.
    pub(crate) entries: Vec<Entry>,
    /// The entry that holds the header of a file without entries.
    pub(crate) closing: Option<Entry>,
    nodes: HashMap<EntryId, Arc<Node>>,
    numbers: HashMap<EntryId, usize>,
    ids: HashMap<usize, EntryId>,
}

impl Session {
    fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut reader = Reader::new(IdSource::seeded(7));
        let mut importer: Option<Importer> = None;
        let counter = pi::estimate::counter("any");
        let mut session = Self {
            header: Object::default(),
            version: 0,
            lines: BTreeMap::new(),
            broken: Vec::new(),
            physical_lines: text.strip_suffix('\n').unwrap_or(&text).split('\n').count(),
            entries: Vec::new(),
            closing: None,
            nodes: HashMap::new(),
            numbers: HashMap::new(),
            ids: HashMap::new(),
        };
        for (number, line) in text.split('\n').enumerate() {
            match reader.line(line) {
                Ok(Item::Blank) => {}
                Ok(Item::Header(header)) => {
                    session.header = header.object.clone();
                    session.version = header.version;
                    importer = Some(Importer::new(header, IdSource::seeded(8)));
                }
                Ok(Item::Entry(line)) => {
                    let entry = importer.as_mut().ok_or("an entry before the header")?.entry(&line);
                    // As the store returns it.
                    let stored = serde_json::to_string(&entry).map_err(|error| error.to_string())?;
                    let entry: Entry = serde_json::from_str(&stored).map_err(|error| error.to_string())?;
                    session.lines.insert(number, line.object);
                    session.numbers.insert(entry.entry_id.clone(), number);
                    session.ids.insert(number, entry.entry_id.clone());
                    let node = Arc::new(Node::counted(entry.clone(), &counter));
                    session.nodes.insert(entry.entry_id.clone(), node);
                    session.entries.push(entry);
                }
                Err(_) => session.broken.push(number),
            }
        }
        session.closing = importer.and_then(Importer::finish);
        Ok(session)
    }

    /// Returns the path to a leaf, oldest first; `None` for a leaf that does not exist.
    pub(crate) fn path(&self, leaf: &Value) -> Option<Vec<Arc<Node>>> {
        let mut next = match leaf {
            Value::String(name) if name == "none" => None,
            Value::String(name) if name == "default" => self.entries.last().map(|entry| entry.entry_id.clone()),
            Value::Null => None,
            Value::Number(line) => Some(self.id(usize::try_from(line.as_u64()?).ok()?)?.clone()),
            _ => return None,
        };
        let mut path = Vec::new();
        while let Some(id) = next {
            let node = self.nodes.get(&id)?;
            next = node.entry.parent_id.clone();
            path.push(node.clone());
        }
        path.reverse();
        Some(path)
    }

    /// Returns the line of an entry.
    pub(crate) fn number(&self, id: &EntryId) -> Option<usize> {
        self.numbers.get(id).copied()
    }

    /// Returns the entry of a line.
    pub(crate) fn id(&self, line: usize) -> Option<&EntryId> {
        self.ids.get(&line)
    }
}

/// Every case and session of a folder.
pub(crate) struct Data {
    folder: PathBuf,
    sessions: BTreeMap<String, Session>,
}

impl Data {
    pub(crate) fn open(folder: &Path) -> Result<Self, String> {
        let mut data = Self { folder: folder.to_owned(), sessions: BTreeMap::new() };
        for case in data.cases("index")? {
            let name = case["session"].as_str().ok_or("a session without a name in the index")?.to_owned();
            let session = Session::read(&folder.join("sessions").join(&name))?;
            data.sessions.insert(name, session);
        }
        Ok(data)
    }

    pub(crate) fn cases(&self, group: &str) -> Result<Vec<Value>, String> {
        let path = self.folder.join(format!("{group}.json"));
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(&path).map_err(|error| told(&error))?;
        let mut file: Value = serde_json::from_str(&text).map_err(|error| told(&error))?;
        match file["cases"].take() {
            Value::Array(mut cases) => {
                // The one kind of a group that is left out (`LEFT_OUT`).
                cases.retain(|case| case["kind"] != "shouldCompact");
                Ok(cases)
            }
            _ => Err(told(&"it has no list `cases`")),
        }
    }

    /// Returns the session file of a case.
    pub(crate) fn file(&self, case: &Value) -> PathBuf {
        self.folder.join("sessions").join(case["session"].as_str().unwrap())
    }

    /// Returns the session of a case.
    pub(crate) fn session(&self, case: &Value) -> &Session {
        let name = case["session"].as_str().unwrap_or_else(|| panic!("the case names no session"));
        self.sessions.get(name).unwrap_or_else(|| panic!("the index has no session {name}"))
    }

    /// Returns the session's path to the case's leaf.
    pub(crate) fn path(&self, case: &Value) -> Vec<Arc<Node>> {
        self.session(case).path(&case["leaf"]).unwrap_or_else(|| panic!("there is no leaf {}", case["leaf"]))
    }
}

/// Returns a path in pi's form.
pub(crate) fn lines(path: &[Arc<Node>]) -> Vec<Object> {
    path.iter().map(|node| pi::export::object(&node.entry)).collect()
}

/// Returns pi's messages of what the newest compaction of a path leaves, each with its entry.
pub(crate) fn messages(path: &[Arc<Node>]) -> Vec<(EntryId, Object)> {
    reseed::core::context::build::remaining(path)
        .into_iter()
        .filter_map(|(_, node)| Some((node.id().clone(), pi::message::of_entry(&node.entry)?)))
        .collect()
}

pub(crate) fn whole(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no whole number"))
}

pub(crate) fn place(value: &Value) -> usize {
    usize::try_from(whole(value)).unwrap()
}

pub(crate) fn json(value: &Value) -> Json {
    Json::from(value)
}
