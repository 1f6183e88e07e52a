//! Small commands that ask for pages of large entries: the server reads no more than it answers with.

use crate::support::scripted::Scripted;
use crate::support::{client::Client, server::Server};
use reseed::{
    internals::Faulty,
    store::{Append, EntryColumns, Head, NewRecord, SessionStore, memory::MemoryStore},
};
use reseed_protocol::{Timestamp, event::Event};
use serde_json::{Value, json};
use std::sync::Arc;

const ENTRIES: usize = 60;
const ENTRY_BYTES: usize = 300 * 1024;
/// The entry in the middle is larger than a page.
const GIANT: (usize, usize) = (30, 9 * 1024 * 1024);
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Returns a store with a session `large`, whose entries hang from each other.
async fn store() -> Arc<Faulty<MemoryStore>> {
    let store = Faulty::new(MemoryStore::new());
    let lease = store.create(&"large".parse().unwrap(), "", Timestamp(0)).await.unwrap();
    let record = |at: usize| {
        let text = "x".repeat(if at == GIANT.0 { GIANT.1 } else { ENTRY_BYTES });
        let entry = json!({
            "entryId": format!("e{at}"), "parentId": at.checked_sub(1).map(|above| format!("e{above}")),
            "timestamp": "2026-11-21T09:15:00.300Z", "type": "message", "role": "user",
            "content": [{ "type": "text", "text": text }],
        });
        let event: Event =
            serde_json::from_value(json!({ "type": "entry_appended", "payload": { "entry": entry } })).unwrap();
        NewRecord { body: serde_json::to_string(&event).unwrap().into(), entry: EntryColumns::of(&event) }
    };
    let head = Head { entries: ENTRIES as u64, ..Head::default() };
    let append = Append { records: (0..ENTRIES).map(record).collect(), marks: Vec::new(), usage: Vec::new(), head };
    store.append(&lease, 1, append).await.unwrap();
    store.release(&lease).await.unwrap();
    Arc::new(store)
}

fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().expect("a page has items");
    items.iter().map(|entry| entry["entryId"].as_str().expect("an entry has an id").to_owned()).collect()
}

#[tokio::test]
async fn pages_of_large_entries_are_read_no_further_than_they_are_answered() {
    let store = store().await;
    let server = Server::over(Scripted::new(), store.clone(), &[]).await;
    let mut client = Client::v2(&server.ws()).await;
    // Finding the leaf of a session that is not open reads its context, as every command about it does.
    client.ask("open_session", json!({ "sessionId": "large", "entries": 0 })).await;
    for (path, direction) in [(true, "before"), (true, "after"), (false, "before"), (false, "after")] {
        let mut found = if direction == "after" { vec!["e0".to_owned()] } else { Vec::new() };
        let mut alone = false;
        loop {
            let place = if direction == "after" { found.last() } else { found.first() };
            let mut get = json!({ "sessionId": "large", "limit": 100, "path": path });
            if let Some(place) = place {
                get[direction] = json!(place);
            }
            let read = store.entry_bytes();
            let reply = client.ask("get_entries", get.clone()).await;
            assert_eq!(reply["type"], "entries", "{get}");
            let read = store.entry_bytes() - read;
            let page = ids(&reply["payload"]);
            let giant = [format!("e{}", GIANT.0)];
            alone |= page == giant;
            // Before an entry, a path is read from this entry on.
            let passed = page == giant || path && place.is_some_and(|place| *place == giant[0]);
            let bound = PAGE_BYTES_MAX + if passed { GIANT.1 + 1024 } else { 0 };
            assert!(read <= bound, "{get} reads {read} bytes");
            assert!(!page.is_empty(), "{get} gets nothing, although there is more");
            if direction == "after" {
                found.extend(page);
            } else {
                found.splice(0..0, page);
            }
            if reply["payload"]["more"] != true {
                break;
            }
        }
        let all: Vec<String> = (0..ENTRIES).map(|at| format!("e{at}")).collect();
        assert_eq!(found, all, "{direction} {path}");
        assert!(alone, "{direction} {path}: the giant entry has a page of its own");
    }
}
