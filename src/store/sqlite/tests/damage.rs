//! Damage by bad disks: it is detected, reported precisely, and does not affect other sessions.

use super::{FILE_PAGE_BYTES, place, tamper, written};
use crate::{
    Append, CommandMark, EntryQuery, Error, Head, ListQuery, Part, SessionStore, SubtreeQuery,
    conformance::{NOW, append, append_of, entry, id, log, short},
    sqlite::SqliteStore,
};
use std::{fs, path::Path};
use tempfile::TempDir;

#[tokio::test]
async fn damage_is_found_named_and_confined() {
    let cases = [
        ("body = 'E2'", "checksum mismatch"),
        ("body = CAST(x'ff' AS TEXT)", "checksum mismatch"),
        // SQLite converts the number to text, because the column is text.
        ("body = 2", "checksum mismatch"),
        ("body = x'6532'", "a column is not text"),
        ("entry = 'f2'", "checksum mismatch"),
        ("parent = 'e0'", "checksum mismatch"),
        ("parent = NULL", "checksum mismatch"),
        ("kind = 'custom'", "checksum mismatch"),
        ("checksum = checksum + 1", "checksum mismatch"),
        ("checksum = 'x'", "checksum mismatch"),
        ("version = 9", "unknown format version"),
    ];
    for (change, reason) in cases {
        let (_dir, path) = written().await;
        tamper(&path, &format!("UPDATE record SET {change} WHERE seq = 2"));
        let store = SqliteStore::open(&path).unwrap();
        let damaged = Error::Damaged { session: id("s"), part: Part::Record(2), reason };
        assert_eq!(store.read(&id("s"), 0, 9).await.unwrap_err(), damaged, "{change}");
        assert_eq!(short(&store.read(&id("s"), 0, 1).await.unwrap()), "1:e1", "{change}");
        assert_eq!(short(&store.read(&id("s"), 2, 9).await.unwrap()), "3:e3", "{change}");
        if !change.starts_with("entry") {
            let path = EntryQuery::Path { from: id("e3"), limit: 9 };
            assert_eq!(store.entries(&id("s"), path).await.unwrap_err(), damaged, "{change}");
        }
    }
}

/// A walk only passes the entries between a page and the leaf, so it does not even read their bodies.
#[tokio::test]
async fn damage_beyond_a_page_after_an_entry_does_not_matter_unless_it_hides_the_way() {
    for (change, limit, is_read) in [
        ("body = 'E3'", 1, true),
        ("body = 'E3'", 2, false),
        ("parent = NULL", 1, false),
        ("parent = 'gone'", 1, false),
    ] {
        let (_dir, path) = written().await;
        tamper(&path, &format!("UPDATE record SET {change} WHERE seq = 3"));
        let store = SqliteStore::open(&path).unwrap();
        let query = EntryQuery::PathAfter { after: id("e1"), to: id("e3"), steps: 9, limit };
        let found = store.entries(&id("s"), query).await.map(|records| short(&records));
        let damaged = Error::Damaged { session: id("s"), part: Part::Record(3), reason: "checksum mismatch" };
        assert_eq!(found, if is_read { Ok("2:e2".to_owned()) } else { Err(damaged) }, "{change} {limit}");
    }
}

/// Returns a file with sessions `s` and `t`, each with two entries, a mark and a state.
async fn two_sessions() -> (TempDir, std::path::PathBuf) {
    let (dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    for name in ["s", "t"] {
        let lease = store.create(&id(name), "alice", NOW).await.unwrap();
        let full = Append {
            marks: vec![CommandMark { command_id: "c".into(), fingerprint: 7, reply: "{}".into() }],
            head: Head { name: name.into(), updated_at: NOW, state: Some("{\"seq\":2}".into()), ..Head::default() },
            ..append(vec![entry("e1", ""), entry("e2", "e1")])
        };
        store.append(&lease, 1, full).await.unwrap();
    }
    store.close().await.unwrap();
    (dir, path)
}

/// Checks that every operation works on session `t`.
async fn other_works(store: &SqliteStore) {
    let (lease, head) = store.open(&id("t")).await.unwrap();
    assert_eq!((head.last_seq, head.head.state.as_deref()), (2, Some("{\"seq\":2}")));
    store.append(&lease, 3, append(vec![entry("e3", "e2")])).await.unwrap();
    assert_eq!(log(store, &id("t")).await, "1:e1 2:e2 3:e3");
    assert!(store.command(&id("t"), "c").await.unwrap().is_some());
    let whole = SubtreeQuery { root: None, depth: 9, limit: 9, bytes_max: usize::MAX };
    assert_eq!(store.subtree(&id("t"), whole).await.unwrap().len(), 3);
    let mine = ListQuery { owner: Some("alice".into()), limit: 9, ..ListQuery::default() };
    assert!(store.list(mine).await.unwrap().items.iter().any(|item| item.session == id("t")));
}

#[tokio::test]
async fn a_damaged_head_closes_its_session_and_is_listed_for_operators_alone() {
    let changes = [
        "owner = 'mallory'",
        "epoch = 'other'",
        "term = 0",
        "last_seq = 1",
        "last_seq = last_seq + 1",
        "name = 'x'",
        "name = x'ff'",
        "created_at = 1",
        "entries = 9",
        "token_count = 9",
        "window_tokens = 9",
        "cost_nano_usd = 9",
        "unpriced_requests = 9",
        "running = 1",
        "running = 'often'",
        "checksum = checksum + 1",
    ];
    for change in changes {
        let (_dir, path) = two_sessions().await;
        tamper(&path, &format!("UPDATE session SET {change} WHERE id = 's'"));
        let store = SqliteStore::open(&path).unwrap();
        let damaged = Error::Damaged { session: id("s"), part: Part::Head, reason: "checksum mismatch" };
        assert_eq!(store.open(&id("s")).await.unwrap_err(), damaged, "{change}");
        assert_eq!(store.head(&id("s")).await.unwrap_err(), damaged, "{change}");
        let lease = crate::Lease { session: id("s"), term: 1, next_seq: 3, epoch: String::new() };
        assert_eq!(store.append(&lease, 3, append_of(["x"])).await.unwrap_err(), damaged, "{change}");
        // Undamaged records can still be read.
        assert_eq!(short(&store.read(&id("s"), 0, 2).await.unwrap()), "1:e1 2:e2", "{change}");

        for owner in ["alice", "mallory"] {
            let list = ListQuery { owner: Some(owner.into()), limit: 9, ..ListQuery::default() };
            let page = store.list(list).await.unwrap();
            assert!(page.items.iter().all(|item| item.session == id("t")), "{change}: {page:?}");
            assert_eq!(page.damaged, [], "{change}");
        }
        let page = store.list(ListQuery { limit: 9, ..ListQuery::default() }).await.unwrap();
        assert_eq!((page.items.len(), page.damaged), (1, vec![id("s")]), "{change}");
        // Pages of one row each get past the damage.
        let first = store.list(ListQuery { limit: 1, ..ListQuery::default() }).await.unwrap();
        let next = ListQuery { limit: 1, cursor: first.next_cursor.clone(), ..ListQuery::default() };
        let second = store.list(next).await.unwrap();
        assert_eq!(first.items.len() + second.items.len(), 1, "{change}");
        assert_eq!(first.damaged.len() + second.damaged.len(), 1, "{change}");
        other_works(&store).await;
        store.delete(&id("s")).await.unwrap();
    }
}

#[tokio::test]
async fn a_damaged_state_is_left_out_so_that_the_log_is_folded() {
    for change in ["state = '{\"seq\":1}'", "state = x'ff'", "state = ''", "checksum = 1"] {
        let (_dir, path) = two_sessions().await;
        tamper(&path, &format!("UPDATE session_state SET {change} WHERE session = 1"));
        let store = SqliteStore::open(&path).unwrap();
        assert_eq!(store.head(&id("s")).await.unwrap().head.state, None, "{change}");
        let (lease, head) = store.open(&id("s")).await.unwrap();
        assert_eq!((head.last_seq, head.head.state.clone()), (2, None), "{change}");
        let whole = Head { state: Some("folded".into()), ..head.head };
        store.append(&lease, 3, Append { head: whole, ..append_of(["x"]) }).await.unwrap();
        assert_eq!(store.head(&id("s")).await.unwrap().head.state.as_deref(), Some("folded"), "{change}");
        other_works(&store).await;
    }
}

#[tokio::test]
async fn a_damaged_mark_gives_no_reply() {
    for change in ["fingerprint = 8", "reply = '{\"ok\":1}'", "reply = x'ff'", "checksum = 1"] {
        let (_dir, path) = two_sessions().await;
        tamper(&path, &format!("UPDATE mark SET {change} WHERE session = 1"));
        let store = SqliteStore::open(&path).unwrap();
        let found = store.command(&id("s"), "c").await;
        assert!(matches!(&found, Err(Error::Damaged { session, .. }) if *session == id("s")), "{change}: {found:?}");
        other_works(&store).await;
    }
}

#[tokio::test]
async fn a_missing_record_is_noticed() {
    for (seq, missing) in [(1, 1), (2, 2)] {
        let (_dir, path) = two_sessions().await;
        tamper(&path, &format!("DELETE FROM record WHERE session = 1 AND seq = {seq}"));
        let store = SqliteStore::open(&path).unwrap();
        let damaged = Error::Damaged { session: id("s"), part: Part::Record(missing), reason: "it is missing" };
        assert_eq!(store.read(&id("s"), 0, 9).await.unwrap_err(), damaged);
        assert_eq!(store.read(&id("s"), 0, u32::MAX).await.unwrap_err(), damaged);
        assert_eq!(store.read(&id("s"), 2, 9).await.unwrap(), []);
        other_works(&store).await;
    }
}

/// An entry that followed its parent in the log had a parent: a path that ends there, or a subtree without it, is
/// damaged.
#[tokio::test]
async fn a_missing_entry_is_noticed_where_it_led_to_others() {
    let damaged = Error::Damaged { session: id("s"), part: Part::Record(3), reason: "the entry before it is missing" };
    let path_after = |after: &str| EntryQuery::PathAfter { after: id(after), to: id("e3"), steps: 9, limit: 9 };
    let queries = [
        EntryQuery::Path { from: id("e3"), limit: 9 },
        path_after("e1"),
        path_after("gone"),
        EntryQuery::Children { of: Some(id("e1")), after_seq: 0, limit: 9 },
        EntryQuery::NewestLeaf { below: id("e1") },
    ];
    // Either the row is gone, or only what leads to it.
    for change in ["DELETE FROM record WHERE seq = 2", "UPDATE record SET entry = NULL WHERE seq = 2"] {
        let (_dir, path) = written().await;
        tamper(&path, change);
        let store = SqliteStore::open(&path).unwrap();
        for query in &queries {
            let found = store.entries(&id("s"), query.clone()).await.map(|records| short(&records));
            assert_eq!(found, Err(damaged.clone()), "{change}: {query:?}");
        }
        let below = SubtreeQuery { root: Some(id("e1")), depth: 9, limit: 9, bytes_max: usize::MAX };
        assert_eq!(store.subtree(&id("s"), below).await.unwrap_err(), damaged, "{change}");
        let whole = SubtreeQuery { root: None, depth: 9, limit: 9, bytes_max: usize::MAX };
        assert_eq!(store.subtree(&id("s"), whole).await.unwrap_err(), damaged, "{change}");
    }
}

/// Rows written by an older program have no checksums yet.
#[tokio::test]
async fn rows_without_a_checksum_are_accepted_and_get_one_when_written() {
    let (_dir, path) = two_sessions().await;
    tamper(
        &path,
        "UPDATE session SET checksum = NULL; UPDATE mark SET checksum = NULL; UPDATE session_state SET checksum = NULL",
    );
    let store = SqliteStore::open(&path).unwrap();
    other_works(&store).await;
    store.close().await.unwrap();
    tamper(&path, "UPDATE session SET name = 'x' WHERE id = 't'");
    let store = SqliteStore::open(&path).unwrap();
    assert!(matches!(store.open(&id("t")).await, Err(Error::Damaged { part: Part::Head, .. })));
}

/// Overwrites the pages of the file that contain `text` and returns how many there were.
fn overwrite_pages_with(path: &Path, text: &str) -> usize {
    overwrite_pages(path, |page| page.windows(text.len()).any(|bytes| bytes == text.as_bytes()))
}

fn overwrite_pages(path: &Path, is_meant: impl Fn(&[u8]) -> bool) -> usize {
    let mut file = fs::read(path).unwrap();
    let mut overwritten = 0;
    // The first page is never overwritten, because without it there is no database.
    for page in file.chunks_mut(FILE_PAGE_BYTES as usize).skip(1) {
        if is_meant(page) {
            page.fill(0xa5);
            overwritten += 1;
        }
    }
    fs::write(path, file).unwrap();
    overwritten
}

#[tokio::test]
async fn pages_that_the_database_cannot_read_are_damage_of_their_session_alone() {
    let (_dir, path) = two_sessions().await;
    let store = SqliteStore::open(&path).unwrap();
    // Session `big` has leaf pages of its own, and `t` gets some after them.
    let lease = store.create(&id("big"), "alice", NOW).await.unwrap();
    let body = |n: u64| format!("spoiled {n} {}", "x".repeat(3000));
    for n in 1..=40 {
        store.append(&lease, n, append_of([body(n).as_str()])).await.unwrap();
    }
    store.close().await.unwrap();
    assert!(overwrite_pages_with(&path, "spoiled 20 ") > 0);

    let store = SqliteStore::open(&path).unwrap();
    let damaged = Error::Damaged { session: id("big"), part: Part::Pages, reason: "the database cannot read it" };
    assert_eq!(store.read(&id("big"), 0, 99).await.unwrap_err(), damaged);
    other_works(&store).await;
    // Deleting hides the session. Its rows cannot be removed, but no other write fails because of that.
    let (big, new) = (id("big"), id("new"));
    let (first, second) = futures_util::join!(store.delete(&big), store.create(&new, "", NOW));
    assert_eq!((first, second.map(|lease| lease.term)), (Ok(()), Ok(1)));
    store.settled().await;
    assert_eq!(store.head(&big).await.unwrap_err(), Error::NotFound(big));
    store.create(&id("newer"), "", NOW).await.unwrap();
    assert_eq!(store.failure(), None);
    let found = store.entries(&id("t"), EntryQuery::Path { from: id("e3"), limit: 9 }).await.unwrap();
    assert_eq!(short(&found), "3:e3 2:e2 1:e1");
}

#[tokio::test]
async fn a_damaged_page_of_an_index_ends_the_writes_of_its_session_alone() {
    let (_dir, path) = two_sessions().await;
    let store = SqliteStore::open(&path).unwrap();
    // Session `big` has leaf pages of its own in the index of entries.
    let lease = store.create(&id("big"), "alice", NOW).await.unwrap();
    let name = |n: u64| if n == 0 { String::new() } else { format!("entry-of-big-{n:04}") };
    store.append(&lease, 1, append((1..=1_000).map(|n| entry(&name(n), &name(n - 1))).collect())).await.unwrap();
    store.close().await.unwrap();
    const LEAF_OF_INDEX: u8 = 0x0a;
    let is_last = |page: &[u8]| {
        page[0] == LEAF_OF_INDEX && page.windows(name(1_000).len()).any(|bytes| bytes == name(1_000).as_bytes())
    };
    assert_eq!(overwrite_pages(&path, is_last), 1);

    let store = SqliteStore::open(&path).unwrap();
    let (lease, _) = store.open(&id("big")).await.unwrap();
    let (other, _) = store.open(&id("t")).await.unwrap();
    let damaged = Error::Damaged { session: id("big"), part: Part::Pages, reason: "the database cannot read it" };
    let (refused, written) = futures_util::join!(
        store.append(&lease, 1_001, append(vec![entry(&name(1_001), &name(1_000))])),
        store.append(&other, 3, append(vec![entry("e3", "e2")])),
    );
    assert_eq!((refused, written), (Err(damaged), Ok(())));
    assert_eq!(store.failure(), None);
    assert_eq!(log(&store, &id("t")).await, "1:e1 2:e2 3:e3");
}

#[tokio::test]
async fn a_damaged_page_that_is_in_the_way_of_shortening_the_file_ends_no_write() {
    let (_dir, path) = two_sessions().await;
    let store = SqliteStore::open(&path).unwrap();
    for (name, bytes, count) in [("early", 1024 * 1024, 8), ("late", 3000, 40)] {
        let lease = store.create(&id(name), "alice", NOW).await.unwrap();
        for n in 1..=count {
            store.append(&lease, n, append_of([format!("{name} {n} {}", "x".repeat(bytes)).as_str()])).await.unwrap();
        }
    }
    store.close().await.unwrap();
    assert!(overwrite_pages_with(&path, "late 20 ") > 0);

    let store = SqliteStore::open(&path).unwrap();
    store.delete(&id("early")).await.unwrap();
    store.settled().await;
    store.create(&id("newer"), "", NOW).await.unwrap();
    assert_eq!(store.failure(), None);
    other_works(&store).await;
}
