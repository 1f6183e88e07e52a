//! Files of older programs. `tests/fixtures/stored/tables-N.sql` is a database as a program left it: real sessions,
//! and the kinds of records that it stored. The first three have versions 1 to 3 of the tables; the fourth has the
//! same tables and newer kinds of records. The fifth has records of version 3, which tell of one queued input each.
//! Today's program opens each, reads each record as an event and folds the same sessions, as recorded in
//! `tables-N.txt`. Neither file is ever regenerated.
//!
//! The folds of `tables-3.txt` and `tables-4.txt` were printed by this test from the dump, after it was made: they hold
//! later programs to what the program of that day read, and are no independent record of what was written. The exports
//! beside them were written by the program that wrote the database.
//!
//! A folder `tables-N` has each session as the program of that time exported it; today's exports must be the same.
//!
//! The lines of a fold are of the records as they lie in the file, since the log is never rewritten; a record of an
//! older version is read in today's form. What was read is written again, and is the same byte for byte: a change to
//! the stored form of an entry, an event or a reply shows here. Together the files hold each kind of them: [`KINDS`],
//! and every event and entry in the protocol's schema. So a new kind needs a new file.

use reseed::{
    core::session::{IdSource, SessionState, fingerprint::fingerprint},
    internals::{export, read_stored},
    pi::{
        Importer,
        read::{Item, Reader},
    },
    store::{EntryQuery, ListQuery, SessionStore, SubtreeQuery, sqlite::SqliteStore},
};
use reseed_protocol::{Entry, SessionId, Timestamp, event::Event, reply::Reply};
use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

/// Returns the bodies of a session's records as they lie in the file.
fn stored_bodies(path: &Path, session: &SessionId) -> Vec<String> {
    let file = rusqlite::Connection::open(path).unwrap();
    let mut records = file
        .prepare("SELECT body FROM record_all WHERE session = (SELECT number FROM session WHERE id = ?1) ORDER BY seq")
        .unwrap();
    let bodies = records.query_map([session.as_str()], |row| row.get(0)).unwrap();
    bodies.map(Result::unwrap).collect()
}

/// Returns a file's content as text: each session with its fold, and a line for each record.
async fn print(store: &SqliteStore, path: &Path) -> String {
    let mut text = String::new();
    let mut sessions = store.list(ListQuery { limit: 100, ..ListQuery::default() }).await.unwrap().items;
    sessions.sort_by(|a, b| a.session.as_str().cmp(b.session.as_str()));
    for listed in sessions {
        let head = store.head(&listed.session).await.unwrap();
        let mut state = SessionState::default();
        let mut records = String::new();
        let bodies = stored_bodies(path, &listed.session);
        let read = store.read(&listed.session, 0, u32::MAX).await.unwrap();
        assert_eq!(read.len(), bodies.len(), "{}", listed.session);
        for (record, body) in read.iter().zip(&bodies) {
            let event: Event = serde_json::from_str(&record.body)
                .unwrap_or_else(|error| panic!("record {} of {}: {error}", record.seq, listed.session));
            assert_eq!(
                serde_json::to_string(&event).unwrap(),
                &*record.body,
                "record {} of {}, written again",
                record.seq,
                listed.session
            );
            state.apply(&event);
            let name: serde_json::Value = serde_json::from_str(body).unwrap();
            let kind = name["payload"]["entry"]["type"].as_str().unwrap_or("-");
            let name = name["type"].as_str().unwrap();
            writeln!(records, "  {} {name} {kind} {:016x}", record.seq, fingerprint(body.as_bytes())).unwrap();
        }
        // An older program's copy is ignored, and the log folded anew; to today's, its queued inputs are read back.
        let (_, read) = read_stored(store, &listed.session).await.unwrap();
        assert_eq!(read, state, "{}, as the server reads it", listed.session);
        let leaf = state.leaf.clone().unwrap();
        let path = EntryQuery::Path { from: leaf.clone(), limit: u32::MAX };
        let path = store.entries(&listed.session, path).await.unwrap();
        let whole = SubtreeQuery { root: None, depth: u32::MAX, limit: u32::MAX, bytes_max: usize::MAX };
        let nodes = store.subtree(&listed.session, whole).await.unwrap();
        assert_eq!(nodes.len() as u64, state.entries, "each entry is in the tree");
        assert_eq!(
            nodes.iter().map(|node| node.child_count).sum::<u64>() + roots(store, &listed.session).await,
            state.entries
        );
        let tip = EntryQuery::NewestLeaf { below: leaf.clone() };
        let tip_seq = store.entries(&listed.session, tip).await.unwrap()[0].seq;
        let goes_on = nodes.iter().any(|node| node.record.seq == path[0].seq && node.child_count > 0);
        // A session's leaf may be an entry that others continue from.
        assert!(if goes_on { tip_seq > path[0].seq } else { tip_seq == path[0].seq }, "the tip below {leaf}");
        writeln!(
            text,
            "session {} of {:?}, epoch {}, last seq {}",
            head.session, head.owner, head.epoch, head.last_seq
        )
        .unwrap();
        writeln!(text, "  name {:?} model {} strategy {}", state.name, state.model, state.strategy).unwrap();
        writeln!(
            text,
            "  leaf {leaf}, {} entries, {} on the path, generation {}, {} compactions",
            state.entries,
            path.len(),
            state.generation,
            state.compactions
        )
        .unwrap();
        let pending: Vec<&str> = state.pending.iter().map(|call| call.name.as_str()).collect();
        writeln!(
            text,
            "  running: {}, ended without an answer: {}, waiting inputs: {}, open calls: {pending:?}",
            state.turn.is_some(),
            state.last_turn.is_some(),
            state.queue.len()
        )
        .unwrap();
        text.push_str(&records);
    }
    text
}

/// Reads each mark through the store, and writes its reply again. Returns the number of marks.
async fn check_marks(store: &SqliteStore, path: &Path) -> usize {
    let marks: Vec<(String, String)> = {
        let file = rusqlite::Connection::open(path).unwrap();
        let mut marks =
            file.prepare("SELECT id, command FROM mark_all JOIN session ON session.number = mark_all.session").unwrap();
        let marks = marks.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        marks.map(Result::unwrap).collect()
    };
    for (session, command) in &marks {
        let mark = store.command(&session.parse().unwrap(), command).await.unwrap().unwrap();
        // A fork is marked by the server itself, which is no reply.
        if !command.starts_with("s_") {
            let reply: Reply = serde_json::from_str(&mark.reply).unwrap_or_else(|error| panic!("{command}: {error}"));
            // Older versions wrote the root as `null`.
            let today = mark.reply.replace("\"leafId\":null", "\"leafId\":\"root\"");
            assert_eq!(serde_json::to_string(&reply).unwrap(), today, "the reply to {command}, written again");
        }
    }
    marks.len()
}

/// Every kind of stored record, named as by [`kinds`].
const KINDS: &[&str] = &[
    // Events.
    "entry_appended",
    "turn_started",
    "turn_finished completed",
    "turn_finished cancelled",
    "tool_call",
    "call_resolved",
    "queue_changed",
    "queue_item_removed started",
    "queue_item_removed steered",
    "queue_item_removed appended",
    "queue_item_removed cancelled",
    "context_compacted",
    "turn_finished failed",
    "compaction_failed",
    "session_updated",
    "session_updated held",
    "session_updated hooks",
    "session_updated pins",
    "moved",
    "moved before the first",
    "compaction_undone",
    // Queue entries.
    "queued",
    "queued steer",
    "queued custom",
    "queued after",
    // Entries.
    "message user",
    "message assistant",
    "message tool",
    "message incomplete",
    "compaction",
    "compaction details",
    "compaction hookDetails",
    "compaction rung",
    "branch_summary",
    "branch_summary details",
    "context_transform",
    "ephemeral",
    "custom",
    "custom_message",
    "custom_message details",
    "model_change",
    "thinking_level_change",
    "label",
    "label cleared",
    "session_info",
    "foreign",
    "imported",
    // Parts.
    "part text",
    "part image",
    "part reasoning",
    "part tool_call",
    "part tool_result",
];

/// Returns every durable event and every kind of entry in the protocol's schema.
fn kinds_of_the_protocol() -> BTreeSet<String> {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("protocol/schema/reseed.v2.schema.json");
    let schema: serde_json::Value = serde_json::from_str(&fs::read_to_string(schema).unwrap()).unwrap();
    let definitions = schema["$defs"].as_object().unwrap();
    let is_durable = |definition: &serde_json::Value| definition["properties"]["seq"].is_object();
    let events = definitions.iter().filter(|(_, definition)| is_durable(definition));
    let events = events.filter_map(|(name, _)| name.strip_prefix("event.")).map(str::to_owned);
    let mut kinds: BTreeSet<String> = events.collect();
    assert!(kinds.len() >= 10, "the schema names the durable events {kinds:?}");
    let entries = definitions["Entry"]["oneOf"].as_array().expect("an entry is one of its kinds");
    assert!(entries.len() >= 12, "the schema names {} kinds of entries", entries.len());
    kinds.extend(entries.iter().map(|entry| entry["properties"]["type"]["const"].as_str().unwrap().to_owned()));
    // No older program wrote it: the next fixture will have it.
    kinds.remove("approval_request");
    kinds
}

/// Returns the kinds of records in a file, and those of the optional fields.
async fn kinds(store: &SqliteStore) -> BTreeSet<String> {
    let mut kinds = BTreeSet::new();
    for listed in store.list(ListQuery { limit: 100, ..ListQuery::default() }).await.unwrap().items {
        for record in store.read(&listed.session, 0, u32::MAX).await.unwrap() {
            let body: serde_json::Value = serde_json::from_str(&record.body).unwrap();
            let (name, payload) = (body["type"].as_str().unwrap(), &body["payload"]);
            kinds.insert(name.to_owned());
            if let Some(status) = payload["status"].as_str() {
                kinds.insert(format!("{name} {status}"));
            }
            match payload.get("leafId") {
                Some(leaf) if leaf == "root" => kinds.insert("moved before the first".into()),
                Some(_) => kinds.insert("moved".into()),
                None => false,
            };
            if let Some(reason) = payload["reason"].as_str() {
                kinds.insert(format!("{name} {reason}"));
            }
            for item in payload["items"].as_array().into_iter().flatten().chain(payload.get("item")) {
                kinds.insert("queued".into());
                let with = ["steer", "custom", "after"].into_iter().filter(|field| item.get(field).is_some());
                kinds.extend(with.map(|field| format!("queued {field}")));
            }
            if name == "session_updated" {
                let with = ["held", "hooks", "pins"].into_iter().filter(|field| payload.get(field).is_some());
                kinds.extend(with.map(|field| format!("{name} {field}")));
            }
            let Some(entry) = payload.get("entry") else { continue };
            let kind = entry["type"].as_str().unwrap();
            let detail = match kind {
                "message" => Some(entry["role"].as_str().unwrap()),
                "label" if entry.get("label").is_none() => Some("cleared"),
                _ => entry.get("details").map(|_| "details"),
            };
            kinds.insert(kind.to_owned());
            kinds.extend(detail.map(|detail| format!("{kind} {detail}")));
            let with = ["hookDetails", "rung"].into_iter().filter(|field| entry.get(field).is_some());
            kinds.extend(with.map(|field| format!("{kind} {field}")));
            if entry.get("incomplete").is_some() {
                kinds.insert("message incomplete".into());
            }
            if entry.get("imported").is_some() {
                kinds.insert("imported".into());
            }
            for part in entry["content"].as_array().into_iter().flatten() {
                kinds.insert(format!("part {}", part["type"].as_str().unwrap()));
            }
        }
    }
    kinds
}

/// Returns the entries of an export.
fn entries_of(exported: &str) -> Vec<Entry> {
    let mut reader = Reader::new(IdSource::seeded(1));
    let mut importer: Option<Importer> = None;
    let mut entries = Vec::new();
    for line in exported.lines() {
        match reader.line(line).unwrap() {
            Item::Blank => {}
            Item::Header(header) => importer = Some(Importer::new(header, IdSource::seeded(2))),
            Item::Entry(line) => {
                entries.push(Entry { imported: None, ..importer.as_mut().unwrap().entry(&line) });
            }
        }
    }
    entries
}

/// Returns a line without the fields that only reseed reads; the entries made of them are compared as a whole.
fn without_our_fields(line: &str) -> serde_json::Value {
    let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
    if let Some(line) = line.as_object_mut() {
        line.remove("reseed");
    }
    line
}

/// Compares every export in this folder with today's. Returns their number. Patches once had no line type of their own,
/// and some fields under `reseed` had other names: those lines are read as the same entries.
async fn check_exports(store: &SqliteStore, folder: &Path) -> usize {
    let Ok(files) = fs::read_dir(folder) else { return 0 };
    let mut compared = 0;
    for file in files {
        let path = file.unwrap().path();
        let session: SessionId = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        let want = fs::read_to_string(&path).unwrap();
        // An export may end with entries of its own, made when it was written.
        let last: serde_json::Value = serde_json::from_str(want.lines().last().unwrap()).unwrap();
        let now: Timestamp = serde_json::from_value(last["timestamp"].clone()).unwrap();
        let mut found = Vec::new();
        export(store, &session, now, &mut found).await.unwrap();
        let found = String::from_utf8(found).unwrap();
        for (number, (want, found)) in want.lines().zip(found.lines()).enumerate() {
            let is_patch = want.contains(r#""customType":"reseed.entry""#);
            let [want, found] = [want, found].map(without_our_fields);
            assert!(found == want || is_patch, "{}, line {}: {found}, not {want}", path.display(), number + 1);
        }
        assert_eq!(entries_of(&found), entries_of(&want), "{}", path.display());
        assert_eq!(found.lines().count(), want.lines().count(), "{}", path.display());
        compared += 1;
    }
    compared
}

async fn roots(store: &SqliteStore, session: &reseed_protocol::SessionId) -> u64 {
    let roots = EntryQuery::Children { of: None, after_seq: 0, limit: u32::MAX };
    store.entries(session, roots).await.unwrap().len() as u64
}

/// Deletes all sessions of a file, and checks that nothing of them is left.
async fn check_deletion(path: &Path) {
    let store = SqliteStore::open(path).unwrap();
    for listed in store.list(ListQuery { limit: 100, ..ListQuery::default() }).await.unwrap().items {
        store.delete(&listed.session).await.unwrap();
    }
    store.close().await.unwrap();
    let file = rusqlite::Connection::open(path).unwrap();
    for table in ["session", "record", "mark", "session_state", "deletion"] {
        let rows: i64 = file.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 0, "{table}");
    }
}

#[tokio::test]
async fn files_of_older_programs_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/stored");
    let (mut versions, mut exports) = (0, 0);
    let mut held = BTreeSet::new();
    for version in 1.. {
        let dump = folder.join(format!("tables-{version}.sql"));
        let Ok(dump) = fs::read_to_string(dump) else { break };
        versions += 1;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("reseed.db");
        rusqlite::Connection::open(&path).unwrap().execute_batch(&dump).unwrap();
        let store = SqliteStore::open(&path).unwrap();
        let found = print(&store, &path).await;
        let want = folder.join(format!("tables-{version}.txt"));
        let want = fs::read_to_string(&want).unwrap_or_else(|error| panic!("{}: {error}\n{found}", want.display()));
        assert_eq!(found, want, "version {version}");
        assert!(check_marks(&store, &path).await > 0, "version {version} has marks");
        exports += check_exports(&store, &folder.join(format!("tables-{version}"))).await;
        held.extend(kinds(&store).await);

        // The sessions can be continued: they are opened and appended to, and read the same after that.
        for listed in store.list(ListQuery { limit: 100, ..ListQuery::default() }).await.unwrap().items {
            let (lease, head) = store.open(&listed.session).await.unwrap();
            assert_eq!(lease.next_seq, head.last_seq + 1);
            let nothing =
                reseed::store::Append { records: Vec::new(), marks: Vec::new(), usage: Vec::new(), head: head.head };
            store.append(&lease, lease.next_seq, nothing).await.unwrap();
        }
        store.close().await.unwrap();
        assert_eq!(
            print(&SqliteStore::open_read_only(&path).unwrap(), &path).await,
            want,
            "version {version}, opened again"
        );
        check_deletion(&path).await;
    }
    assert!(versions >= 5, "there are {versions} fixtures in {}", folder.display());
    assert!(exports >= 11, "{exports} exports were compared");
    let wanted = KINDS.iter().map(|kind| (*kind).to_owned()).chain(kinds_of_the_protocol());
    let missing: Vec<String> = wanted.filter(|kind| !held.contains(kind)).collect();
    assert!(missing.is_empty(), "no fixture has {missing:?}: {held:?}");
}
