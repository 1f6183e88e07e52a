//! The search index: it is filled while the store is in use, loses deleted text, and can itself be lost.

use super::{WITHOUT_VIEWS, place, tamper};
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

#[tokio::test]
async fn entries_are_indexed_while_the_store_is_used_and_after_a_restart() {
    let (_dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    create(&store, "s", "", (0..1500).map(|n| format!("word{n} common"))).await;
    store.indexed().await;
    assert_eq!(count(&path, "SELECT sum(last_seq - first_seq + 1) FROM history_part"), 1500);
    assert_eq!(count(&path, "SELECT sum(entries) FROM history_shard"), 1500);
    let lease = store.open(&id("s")).await.unwrap().0;
    store.append(&lease, 1501, append(vec![said("x", "e1499", "user", "word1501 common")])).await.unwrap();
    assert_eq!(found(&store, "s", "word7").await, [8]);
    assert_eq!(found(&store, "s", "word1501").await, [1501], "what is not indexed yet is read");
    store.close().await.unwrap();

    // An older program leaves a file like this.
    tamper(&path, WITHOUT_VIEWS);
    tamper(&path, "DROP TABLE history_1; DROP TABLE history_part; DROP TABLE history_shard; PRAGMA user_version = 8;");
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(found(&store, "s", "word7").await, [8], "at once");
    store.indexed().await;
    assert_eq!(count(&path, "SELECT sum(last_seq - first_seq + 1) FROM history_part"), 1501);
    assert_eq!(found(&store, "s", "word7").await, [8]);
    assert_eq!(found(&store, "s", "common").await.len(), 100);
    let check: String =
        Connection::open(&path).unwrap().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

#[tokio::test]
async fn sessions_that_share_a_shard_are_indexed_again_when_one_is_deleted() {
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
    store.indexed().await;
    assert_eq!(count(&path, "SELECT sum(entries) FROM history_shard"), 600);
    assert_eq!(found(&store, "u", "number7").await, [8]);
    assert_eq!(holders("secretoft"), [""; 0]);
    store.close().await.unwrap();

    vacuum(&path).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    store.indexed().await;
    assert_eq!(found(&store, "s", "secretofs number7").await, [8], "the index is rewritten with the rest");
    assert_eq!(count(&path, "SELECT sum(entries) FROM history_shard"), 600);
}

/// Whatever is wrong with the index, entries are found, and the index is rebuilt.
#[tokio::test]
async fn a_damaged_index_is_made_again() {
    let damages = [
        "UPDATE history_1_data SET block = x'ffffffffffffffff'",
        "DELETE FROM history_1_data",
        "DELETE FROM history_1_config",
        "DROP TABLE history_1",
        "DROP TABLE history_1_data",
        "UPDATE history_part SET shard = 9",
    ];
    for damage in damages {
        let (_dir, path) = place();
        let store = SqliteStore::open(&path).unwrap();
        create(&store, "s", "", (0..600).map(|n| format!("word{n}"))).await;
        store.indexed().await;
        store.close().await.unwrap();
        tamper(&path, damage);
        let store = SqliteStore::open(&path).unwrap();
        assert_eq!(found(&store, "s", "word7").await, [8], "{damage}");
        let lease = store.open(&id("s")).await.unwrap().0;
        store.append(&lease, 601, append(vec![said("x", "e599", "user", "word601")])).await.unwrap();
        assert_eq!(store.read(&id("s"), 0, 9999).await.unwrap().len(), 601, "{damage}");
        // The writer hears of the damage with the next append, and the slice after that handles it.
        for seq in 602..610 {
            store.indexed().await;
            assert_eq!(found(&store, "s", "word7").await, [8], "{damage}");
            let text = format!("word{seq}");
            store.append(&lease, seq, append(vec![said(&format!("x{seq}"), "x", "user", &text)])).await.unwrap();
        }
        store.indexed().await;
        assert_eq!(found(&store, "s", "word605").await, [605], "{damage}");
        assert!(store.failure().is_none(), "{damage}");
        store.close().await.unwrap();
    }
}
