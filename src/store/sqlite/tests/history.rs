//! The search index: it is filled while the store is in use, loses deleted text, and can itself be lost.

use super::{FILE_PAGE_BYTES, OLDER, place, tamper};
use crate::{
    Append, Head, Lease, SearchQuery, SessionStore,
    conformance::{NOW, Subject, append, id, tests::searching::said},
    sqlite::{SqliteStore, vacuum},
};
use rusqlite::Connection;
use std::path::Path;

async fn create(store: &SqliteStore, session: &str, owner: &str, texts: impl IntoIterator<Item = String>) -> Lease {
    let lease = store.create(&id(session), owner, NOW).await.unwrap();
    let records = texts.into_iter().enumerate().map(|(n, text)| said(&format!("e{n}"), "", "user", &text)).collect();
    let head = Head { updated_at: NOW, ..Head::default() };
    store.append(&lease, 1, Append { head, ..append(records) }).await.unwrap();
    lease
}

/// Returns the `seq` of the hits.
async fn found(store: &SqliteStore, session: &str, text: &str) -> Vec<u64> {
    let hits = store.search(SearchQuery::in_session(&id(session), text, 100)).await.unwrap();
    hits.items.iter().map(|hit| hit.seq).collect()
}

fn count(path: &Path, sql: &str) -> i64 {
    Connection::open(path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

/// The contract of searches, with every entry in the index.
mod indexed {
    use super::{SqliteStore, Subject, place};
    use crate::conformance::contract_suite;

    async fn build() -> Subject {
        let (dir, path) = place();
        let mut store = SqliteStore::open(&path).unwrap();
        store.waits_for_index = true;
        Subject::new(store, dir)
    }

    contract_suite!(build();
        searching: words_are_found_in_any_language,
        searching: no_query_is_an_error,
        searching: a_search_covers_what_was_said_and_done,
        searching: a_path_and_a_position_bound_a_search,
        searching: hits_are_the_newest_and_as_many_as_asked_for,
        searching: a_search_stays_with_its_session_and_owner,
        searching: an_old_session_among_others_is_found,
        searching: an_old_session_among_thousands_is_found,
    );
}

/// The number of indexed records.
const INDEXED: &str = "SELECT sum(last_seq - first_seq + 1) FROM words";

/// The index of an older program.
const OLD_INDEX: &str = "
INSERT INTO history_shard VALUES (1, 1, 9), (2, 1, 9);
CREATE VIRTUAL TABLE history_1 USING fts5(words, content='', columnsize=0, tokenize='ascii');
CREATE VIRTUAL TABLE history_2 USING fts5(words, content='', columnsize=0, tokenize='ascii');
INSERT INTO history_1 (rowid, words) VALUES (4294967297, 'oldsecret');
INSERT INTO history_2 (rowid, words) VALUES (4294967298, 'oldsecret');
PRAGMA user_version = 10;";

#[tokio::test]
async fn entries_are_indexed_while_the_store_is_used_and_after_a_restart() {
    let (dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    create(&store, "s", "", (0..1500).map(|n| format!("word{n} common"))).await;
    store.indexed().await;
    assert_eq!((count(&path, INDEXED), count(&path, "SELECT count(*) FROM words")), (1500, 24));
    let lease = store.open(&id("s")).await.unwrap().0;
    store.append(&lease, 1501, append(vec![said("x", "e1499", "user", "word1501 common")])).await.unwrap();
    assert_eq!(found(&store, "s", "word7").await, [8]);
    assert_eq!(found(&store, "s", "word1501").await, [1501], "what is not indexed yet is read");
    store.indexed().await;
    assert_eq!((count(&path, INDEXED), count(&path, "SELECT count(*) FROM words")), (1501, 24), "a block grows");
    store.close().await.unwrap();

    tamper(&path, OLDER);
    tamper(&path, super::STAGES);
    tamper(&path, OLD_INDEX);
    let holders = || super::erasure::holders(dir.path(), "oldsecret");
    assert!(!holders().is_empty());
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(found(&store, "s", "word7").await, [8], "at once");
    store.indexed().await;
    assert_eq!(count(&path, INDEXED), 1501);
    assert_eq!(found(&store, "s", "word7").await, [8]);
    assert_eq!(found(&store, "s", "common").await.len(), 100);
    store.settled().await;
    assert_eq!(holders(), [""; 0], "the old index is dropped and erased");
    assert_eq!(count(&path, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'history!__!_%' ESCAPE '!'"), 0);
    let check: String =
        Connection::open(&path).unwrap().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

/// Large records end a block early, and it stays as it is.
#[tokio::test]
async fn the_bytes_of_records_end_a_block() {
    let (_dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let large = |n| format!("word{n} {}", "l".repeat(600 * 1024));
    let lease = create(&store, "s", "", (0..3).map(large)).await;
    let blocks = || {
        let blocks =
            "SELECT group_concat(first_seq || '-' || last_seq, ' ') FROM (SELECT * FROM words ORDER BY first_seq)";
        Connection::open(&path).unwrap().query_row(blocks, [], |row| row.get::<_, String>(0)).unwrap()
    };
    store.indexed().await;
    assert_eq!(blocks(), "1-2 3-3");
    for seq in 4..=5 {
        let entry = said(&format!("e{seq}"), "", "user", &large(seq));
        store.append(&lease, seq, append(vec![entry])).await.unwrap();
        store.indexed().await;
    }
    assert_eq!(blocks(), "1-2 3-4 5-5");
    assert_eq!(found(&store, "s", "word5").await, [5]);
}

#[tokio::test]
async fn the_words_of_a_deleted_session_are_erased() {
    let (dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    for session in ["s", "t", "u"] {
        create(&store, session, "", (0..300).map(|n| format!("secretof{session} number{n}"))).await;
    }
    store.indexed().await;
    let holders = |text: &str| super::erasure::holders(dir.path(), text);
    assert!(!holders("secretoft").is_empty());
    store.delete(&id("t")).await.unwrap();
    store.settled().await;
    assert_eq!(holders("secretoft"), [""; 0]);
    for session in ["s", "u"] {
        assert_eq!(found(&store, session, "number7").await, [8], "{session}");
    }
    assert_eq!(count(&path, INDEXED), 600);
    store.close().await.unwrap();

    vacuum(&path).unwrap();
    assert_eq!(count(&path, "SELECT count(*) FROM words"), 0);
    let store = SqliteStore::open(&path).unwrap();
    store.indexed().await;
    assert_eq!(found(&store, "s", "secretofs number7").await, [8], "the index is rewritten with the rest");
    assert_eq!(count(&path, INDEXED), 600);
}

/// Whatever is wrong with the index, entries are found, appends are written, and the index is made again.
#[tokio::test]
async fn a_damaged_index_is_made_again() {
    let damages = [
        "DROP TABLE words",
        "DELETE FROM words",
        "DROP INDEX words_first",
        "UPDATE words SET last_seq = 'x'",
        "DELETE FROM words WHERE first_seq = 1",
    ];
    // They wait for the index at the same time.
    futures_util::future::join_all(damages.map(async |damage| {
        let (_dir, path) = place();
        let store = SqliteStore::open(&path).unwrap();
        create(&store, "s", "", (0..600).map(|n| format!("word{n}"))).await;
        store.indexed().await;
        store.close().await.unwrap();
        tamper(&path, damage);
        let store = SqliteStore::open(&path).unwrap();
        assert_eq!(found(&store, "s", "word7").await, [8], "{damage}");
        let lease = store.open(&id("s")).await.unwrap().0;
        for seq in 601..=602 {
            let text = format!("word{seq}");
            store.append(&lease, seq, append(vec![said(&format!("x{seq}"), "e599", "user", &text)])).await.unwrap();
            store.indexed().await;
            assert_eq!(found(&store, "s", "word7").await, [8], "{damage}");
            assert_eq!(found(&store, "s", &text).await, [seq], "{damage}");
        }
        assert_eq!(store.read(&id("s"), 0, 9999).await.unwrap().len(), 602, "{damage}");
        if !damage.ends_with("= 1") {
            assert_eq!(count(&path, INDEXED), 602, "{damage}");
        }
        assert!(store.failure().is_none(), "{damage}");
        store.close().await.unwrap();
    }))
    .await;
}

/// The table cannot be dropped, so entries are read.
#[tokio::test]
async fn an_index_on_a_damaged_page_hides_nothing_and_stops_no_append() {
    let (_dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    create(&store, "s", "", (0..600).map(|n| format!("word{n}"))).await;
    store.indexed().await;
    store.close().await.unwrap();
    let root = count(&path, "SELECT rootpage FROM sqlite_master WHERE name = 'words'");
    let mut bytes = std::fs::read(&path).unwrap();
    let page = FILE_PAGE_BYTES as usize;
    bytes[(root as usize - 1) * page..root as usize * page].fill(0xff);
    std::fs::write(&path, bytes).unwrap();

    let store = SqliteStore::open(&path).unwrap();
    let lease = store.open(&id("s")).await.unwrap().0;
    for seq in 601..=603 {
        assert_eq!(found(&store, "s", "word7").await, [8]);
        let text = format!("word{seq}");
        store.append(&lease, seq, append(vec![said(&format!("x{seq}"), "", "user", &text)])).await.unwrap();
        assert_eq!(found(&store, "s", &text).await, [seq]);
        // The writer meets the damage, and stops indexing.
        store.indexed().await;
    }
    assert!(store.failure().is_none());
}
