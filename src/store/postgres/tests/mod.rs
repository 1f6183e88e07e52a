//! The contract on a real PostgreSQL, and the guarantees that only this store gives.

mod answers;
mod faults;
mod plans;
mod refusals;
#[path = "../../../../tests/support/postgres.rs"]
mod server;
mod starts;
mod texts;
mod tls;
#[path = "../../../../tests/support/wire.rs"]
mod wire;

use super::{
    PostgresStore,
    connection::{Connection, Connector, Use},
    history::Indexer,
};
use crate::{
    Database, Postgres, Secret, SessionStore as _,
    conformance::{self, Subject, append_of, contract_suite, id, log},
};
use std::time::Duration;

/// Returns the settings of a database at an address. The test server does not sync the disk, and may be slow on a busy
/// machine.
fn settings(address: &str) -> Postgres {
    match address.parse().unwrap() {
        Database::Postgres(postgres) => {
            Postgres { allows_unsafe: true, patience: Duration::from_secs(60), readers: 4, ..*postgres }
        }
        other => panic!("{other:?}"),
    }
}

async fn open(address: &str) -> PostgresStore {
    PostgresStore::open(&settings(address), |_| {}).await.unwrap_or_else(|error| panic!("{address}: {error}"))
}

/// Connects as the store does.
async fn connected(address: &str) -> Connection {
    Connector::new(&settings(address), Use::Write, None).unwrap().connect().await.unwrap()
}

/// Returns the address of a new database.
async fn database(options: &'static str) -> String {
    tokio::task::spawn_blocking(move || server::database_with(options)).await.unwrap()
}

async fn build() -> Subject {
    Subject::new(open(&database("").await).await, ())
}

contract_suite!(build());

/// The contract of several servers.
mod nodes {
    use super::{database, open};
    use crate::{
        SessionStore as _,
        conformance::cluster::{Nodes, cluster_suite, join},
    };

    async fn build() -> Nodes {
        let address = database("").await;
        Nodes::new(open(&address).await, open(&address).await, ())
    }

    cluster_suite!(build());

    #[tokio::test]
    async fn a_server_is_numbered_above_all_that_the_database_has_even_if_it_lost_numbers() {
        let address = database("").await;
        let (a, b) = (open(&address).await, open(&address).await);
        for _ in 0..3 {
            join(&a, "a").await;
        }
        let name = address.rsplit('/').next().unwrap().to_owned();
        let lost = "SELECT setval(pg_get_serial_sequence('reseed.node', 'incarnation'), 1, false)";
        tokio::task::spawn_blocking(move || super::server::sql(&name, lost)).await.unwrap();
        let mut newest = a.cluster().unwrap().nodes().await.unwrap().iter().map(|row| row.id).max().unwrap();
        for _ in 0..2 {
            let next = join(&b, "b").await;
            assert!(next > newest, "{next} after {newest}");
            newest = next;
        }
    }
}

/// The contract of searching, with an index of small blocks that is complete before each search.
mod indexed {
    use super::{Indexer, PostgresStore, conformance::Subject, database, open};
    use crate::{
        SearchQuery, SessionStore as _,
        conformance::{
            NOW, append, contract_suite, id,
            tests::{self, searching::said},
        },
    };

    /// Returns a store whose blocks have this many records.
    async fn indexed(address: &str, block: u32) -> PostgresStore {
        let mut store = open(address).await;
        // The task scans all sessions once; this waits for that scan while there are none.
        store.indexer.take().unwrap().indexed().await;
        store.indexer = Some(Indexer::start(store.readers.clone(), block));
        store.waits_for_index = true;
        store
    }

    async fn build() -> Subject {
        Subject::new(indexed(&database("").await, 2).await, ())
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

    async fn sql(address: &str, sql: &'static str) -> String {
        let name = address.rsplit('/').next().unwrap().to_owned();
        tokio::task::spawn_blocking(move || super::server::sql(&name, sql)).await.unwrap().trim().to_owned()
    }

    #[tokio::test]
    async fn blocks_are_written() {
        let address = database("").await;
        let store = indexed(&address, 2).await;
        tests::searching::hits_are_the_newest_and_as_many_as_asked_for(&store).await;
        assert_eq!(sql(&address, "SELECT count(*) FROM reseed.words").await, "150");
    }

    #[tokio::test]
    async fn records_that_are_in_no_block_become_one_that_grows() {
        let address = database("").await;
        let mut store = indexed(&address, 4).await;
        store.indexer.take().unwrap().indexed().await;
        let lease = store.create(&id("s"), "ann", NOW).await.unwrap();
        let blocks = || {
            let blocks = "SELECT string_agg(first_seq || '-' || last_seq, ' ' ORDER BY first_seq) FROM reseed.words";
            sql(&address, blocks)
        };
        let looks = async || {
            let indexer = Indexer::start(store.readers.clone(), 4);
            indexer.indexed().await;
            indexer
        };
        // Each of them contains a word of its own.
        let written = async |range: std::ops::RangeInclusive<u64>| {
            let said = range.clone().map(|seq| said(&format!("e{seq}"), "", "user", &format!("word{seq}")));
            store.append(&lease, *range.start(), append(said.collect())).await.unwrap();
        };
        let all_are_found = async |count: u64| {
            for seq in 1..=count {
                let hits = store.search(SearchQuery::in_session(&id("s"), &format!("word{seq}"), 9)).await.unwrap();
                let found: Vec<_> = hits.items.iter().map(|hit| hit.entry.as_str()).collect();
                assert_eq!(found, [format!("e{seq}")]);
            }
        };
        written(1..=3).await;
        assert_eq!(blocks().await, "");
        for _ in 0..2 {
            drop(looks().await);
            assert_eq!(blocks().await, "1-3");
        }
        written(4..=6).await;
        let indexer = looks().await;
        assert_eq!(blocks().await, "1-4 5-6");
        all_are_found(6).await;
        // This also works without a scan, once the block is whole.
        for (seq, grown) in [(7, "1-4 5-6"), (8, "1-4 5-8")] {
            written(seq..=seq).await;
            indexer.add(&id("s"));
            indexer.indexed().await;
            assert_eq!(blocks().await, grown);
        }
        all_are_found(8).await;
        // An older version treats every block as whole, and two servers may scan at the same time.
        written(9..=10).await;
        drop(looks().await);
        written(11..=14).await;
        sql(&address, "UPDATE reseed.words SET first_seq = 10, last_seq = 10 WHERE first_seq = 9").await;
        drop(tokio::join!(looks(), looks()));
        assert_eq!(blocks().await, "1-4 5-8 10-13 14-14");
        all_are_found(14).await;
        // Its size ends a block.
        let large = |entry: &str| said(entry, "", "user", &"l".repeat(600 * 1024));
        store.append(&lease, 15, append(vec![large("e15"), large("e16")])).await.unwrap();
        drop(looks().await);
        written(17..=18).await;
        drop(looks().await);
        assert_eq!(blocks().await, "1-4 5-8 10-13 14-16 17-18");
    }
}

#[tokio::test]
async fn the_rows_of_a_deleted_session_are_removed() {
    let address = database("").await;
    let store = open(&address).await;
    let lease = store.create(&id("s"), "ann", conformance::NOW).await.unwrap();
    store.append(&lease, 1, append_of(["a", "b", "c"])).await.unwrap();
    let other = store.create(&id("t"), "ann", conformance::NOW).await.unwrap();
    store.append(&other, 1, append_of(["d"])).await.unwrap();
    store.delete(&id("s")).await.unwrap();
    store.settled().await;
    let name = address.rsplit('/').next().unwrap().to_owned();
    let counts = tokio::task::spawn_blocking(move || {
        server::sql(
            &name,
            "SELECT (SELECT count(*) FROM reseed.record) || ' ' || (SELECT count(*) FROM reseed.head) || ' ' || \
             (SELECT count(*) FROM reseed.removal)",
        )
    });
    assert_eq!(counts.await.unwrap().trim(), "1 1 0");
    assert_eq!(log(&store, &id("t")).await, "1:d");
}

#[tokio::test]
async fn a_reader_sees_what_a_server_writes_and_writes_nothing() {
    let address = database("").await;
    let store = open(&address).await;
    let lease = store.create(&id("s"), "ann", conformance::NOW).await.unwrap();
    store.append(&lease, 1, append_of(["a"])).await.unwrap();
    let reader = PostgresStore::open_read_only(&settings(&address)).await.unwrap();
    assert_eq!(log(&reader, &id("s")).await, "1:a");
    store.append(&lease, 2, append_of(["b"])).await.unwrap();
    assert_eq!(log(&reader, &id("s")).await, "1:a 2:b");
    let read_only = crate::Error::ReadOnly;
    assert_eq!(reader.append(&lease, 3, append_of(["c"])).await.unwrap_err(), read_only);
    assert_eq!(reader.delete(&id("s")).await.unwrap_err(), read_only);
    assert_eq!(reader.open(&id("s")).await.unwrap_err(), read_only);
    let (kept, other) = (Secret([7; 32]), Secret([8; 32]));
    assert_eq!(reader.secret("seal", other).await.unwrap_err(), read_only);
    assert_eq!(store.secret("seal", kept).await, Ok(kept));
    assert_eq!(reader.secret("seal", other).await, Ok(kept));
}
