//! Tests of loading sessions of many pages.

use super::{PATH_PAGE, PATH_PAGE_BYTES, PATH_PAGE_MAX, load, path_to};
use crate::{
    core::session::{SessionState, SessionTree},
    store::{Append, EntryColumns, Head, Lease, NewRecord, SessionHead, SessionStore, memory::MemoryStore},
};
use reseed_protocol::{
    Entry, EntryData, EntryId, Message, Part, Role, SessionId, Timestamp, event::Event, tree::EntryAppended,
};
use serde_json::json;
use std::sync::Arc;

fn entry_id(n: usize) -> EntryId {
    format!("e{n:011}").parse().unwrap()
}

fn record(n: usize, data: EntryData) -> NewRecord {
    let parent_id = n.checked_sub(1).map(entry_id);
    let entry = Entry { entry_id: entry_id(n), parent_id, timestamp: Timestamp(1), imported: None, data };
    let event = Event::EntryAppended(Box::new(EntryAppended { entry, turn_id: None, command_id: None }));
    NewRecord { body: serde_json::to_string(&event).unwrap().into(), entry: EntryColumns::of(&event) }
}

fn message(n: usize, bytes: usize) -> NewRecord {
    record(n, EntryData::message(Message::new(Role::User, vec![Part::Text { text: "x".repeat(bytes) }])))
}

/// Returns a store with a session of these records.
async fn stored(records: Vec<NewRecord>) -> (MemoryStore, SessionHead) {
    let (store, id) = (MemoryStore::new(), "s".parse::<SessionId>().unwrap());
    let lease: Lease = store.create(&id, "", Timestamp(1)).await.unwrap();
    if !records.is_empty() {
        store
            .append(&lease, 1, Append { records, marks: Vec::new(), usage: Vec::new(), head: Head::default() })
            .await
            .unwrap();
    }
    let head = store.head(&id).await.unwrap();
    (store, head)
}

/// Returns a store with a session of messages of this size, each a child of the one before.
async fn session(messages: usize, bytes: usize) -> (MemoryStore, SessionHead) {
    stored((0..messages).map(|n| message(n, bytes)).collect()).await
}

fn ids(tree: &SessionTree) -> Vec<EntryId> {
    tree.path().iter().map(|node| node.id().clone()).collect()
}

#[tokio::test]
async fn a_path_of_any_length_is_loaded_whole() {
    paths_of_any_length().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_whose_pages_are_parsed_on_other_threads_is_loaded_whole() {
    paths_of_any_length().await;
    // The error for an entry that cannot be read comes from here.
    let mut records: Vec<NewRecord> = (0..5 * PATH_PAGE as usize).map(|n| message(n, 10)).collect();
    records[1].body = r#"{"type":"entry_appended","payload":{}}"#.into();
    let (store, head) = stored(records).await;
    let error = load(&store, &head).await.unwrap_err().to_string();
    assert!(error.contains("record 2 of session `s`"), "{error}");
}

async fn paths_of_any_length() {
    let (first, largest) = (PATH_PAGE as usize, PATH_PAGE_MAX as usize);
    let lengths =
        [0, 1, first - 1, first, first + 1, 2 * first, 2 * first + 1, 4 * first, 3 * largest, 3 * largest + 5];
    for (messages, bytes) in lengths.map(|length| (length, 10)).into_iter().chain([(20, PATH_PAGE_BYTES / 3)]) {
        let (store, head) = session(messages, bytes).await;
        let loaded = load(&store, &head).await.unwrap();
        assert!(ids(&loaded.tree) == (0..messages).map(entry_id).collect::<Vec<_>>(), "{messages} of {bytes} bytes");
    }
}

#[tokio::test]
async fn a_long_path_ends_where_it_meets_a_known_one() {
    let messages = 5 * PATH_PAGE as usize;
    let (store, head) = session(messages, 10).await;
    let state = SessionState::default();
    let to = async |n: usize, known: &SessionTree| {
        path_to(&store, &head.session, Some(entry_id(n)), &state, known).await.unwrap()
    };
    for known in [0, 1, 127, 128, 300, messages - 1] {
        let upto = to(known, &SessionTree::default()).await;
        let whole = to(messages - 1, &upto).await;
        assert!(ids(&whole) == (0..messages).map(entry_id).collect::<Vec<_>>(), "from {known}");
        assert!(Arc::ptr_eq(&whole.path()[0], &upto.path()[0]), "the rest is taken from the known path");
    }
}

#[tokio::test]
async fn nothing_is_read_behind_what_a_compaction_needs() {
    // The compaction is on the third page. What is behind its page cannot be read, and need not be.
    let (first, damaged) = (PATH_PAGE as usize, 1_000);
    let at = damaged + 3 * first;
    let mut records: Vec<NewRecord> = (0..=at + 2 * first + 10).map(|n| message(n, 10)).collect();
    records[damaged].body = r#"{"type":"entry_appended","payload":{}}"#.into();
    let summary = json!({ "type": "compaction", "summary": "cats", "firstKeptEntryId": entry_id(at - 1),
        "tokensBefore": 1, "keptEntryIds": [entry_id(5)] });
    records[at] = record(at, serde_json::from_value(summary).unwrap());
    let (store, head) = stored(records).await;
    let leaf = entry_id(at + 2 * first + 10);
    let (state, none) = (SessionState::default(), SessionTree::default());
    let path = path_to(&store, &head.session, Some(leaf), &state, &none).await.unwrap();
    let expected = [5].into_iter().chain(at - 1..=at + 2 * first + 10).map(entry_id);
    assert!(ids(&path) == expected.collect::<Vec<_>>(), "{:?}", &ids(&path)[..4]);
}
