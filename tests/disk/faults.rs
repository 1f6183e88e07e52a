//! Single faults, each with what the store guarantees for it.

use super::{
    device::{Disk, Fault, Lie},
    vfs::Mounted,
};
use reseed::store::{
    Append, Error, Head, Lease, NewRecord, SessionStore,
    sqlite::{Options, SqliteStore},
};
use reseed_protocol::{SessionId, Timestamp};
use std::sync::Arc;

struct Bench {
    disk: Arc<Disk>,
    mounted: Mounted,
}

impl Bench {
    fn new(name: &str) -> Self {
        Self::seeded(name, 1)
    }

    fn seeded(name: &str, seed: u64) -> Self {
        let disk = Disk::new(seed, Lie::None);
        let mounted = Mounted::new(name.to_owned(), disk.clone());
        disk.begin(None, []);
        Self { disk, mounted }
    }

    /// Ends the process at once, so that nothing is checkpointed; what the system has accepted stays.
    fn kill(&self, store: SqliteStore) {
        self.disk.stop();
        drop(store);
        self.disk.begin(None, []);
    }

    fn open(&self, checkpoint_pages: u32) -> SqliteStore {
        let options = Options { vfs: Some(self.mounted.vfs()), checkpoint_pages, index: false, ..Options::default() };
        SqliteStore::open_with(&self.mounted.database(), options).unwrap()
    }
}

fn session() -> SessionId {
    "s".parse().unwrap()
}

fn append(body: &str) -> Append {
    let record = NewRecord { body: body.into(), entry: None };
    Append { records: vec![record], marks: Vec::new(), usage: Vec::new(), head: Head::default() }
}

async fn log(store: &SqliteStore) -> String {
    let records = store.read(&session(), 0, 99).await.unwrap();
    records.iter().map(|record| &record.body[..1]).collect()
}

async fn reopen(store: &SqliteStore) -> Lease {
    store.open(&session()).await.unwrap().0
}

fn is_unknown<T: std::fmt::Debug>(answer: Result<T, Error>) {
    assert!(matches!(answer, Err(Error::Unknown(_))), "{answer:?}");
}

/// A failed sync says nothing about the disk, and neither does a second one that succeeds.
#[tokio::test]
async fn after_a_failed_sync_nothing_is_written_until_the_store_is_opened_again() {
    let bench = Bench::new("failed-sync");
    let store = bench.open(4000);
    let lease = store.create(&session(), "", Timestamp(0)).await.unwrap();
    store.append(&lease, 1, append("a")).await.unwrap();
    bench.disk.fail_next(Fault::Sync);
    is_unknown(store.append(&lease, 2, append("b")).await);
    let operations = bench.disk.operations();
    for _ in 0..3 {
        is_unknown(store.append(&lease, 2, append("c")).await);
        is_unknown(store.open(&session()).await);
        is_unknown(store.create(&"t".parse().unwrap(), "", Timestamp(0)).await);
        is_unknown(store.delete(&session()).await);
    }
    assert_eq!(bench.disk.operations(), operations, "nothing was tried");
    assert_eq!(log(&store).await, "a", "reads go on, and show what was acknowledged");
    bench.kill(store);

    // What a reopened store shows is kept, although the sync that should have made it durable had failed: the power is
    // lost next.
    for round in 0..20 {
        let store = bench.open(4000);
        let lease = reopen(&store).await;
        let shown = log(&store).await;
        assert!(shown.starts_with('a'), "{shown}");
        store.append(&lease, lease.next_seq, append("d")).await.unwrap();
        bench.disk.fail_next(Fault::Sync);
        is_unknown(store.append(&lease, lease.next_seq + 1, append("e")).await);
        bench.kill(store);
        let store = bench.open(4000);
        let seen = log(&store).await;
        assert!(seen.starts_with(&format!("{shown}d")), "{shown} then {seen}");
        let lease = reopen(&store).await;
        store.append(&lease, lease.next_seq, append("f")).await.unwrap();
        bench.kill(store);
        bench.disk.lose_power();
        let store = bench.open(4000);
        assert_eq!(log(&store).await, format!("{seen}f"), "round {round}");
        drop(store);
    }
}

/// SQLite deletes the log when it closes, and does not sync that. An opening that found no log keeps it away, although
/// it writes nothing itself.
#[tokio::test]
async fn what_an_opening_did_not_find_does_not_come_back() {
    for seed in 0..200 {
        let bench = Bench::seeded(&format!("comes-back-{seed}"), seed);
        drop(bench.open(4000));
        // The first sync is that of the log's header and name.
        bench.disk.begin(None, [(6, Fault::Sync)]);
        let store = bench.open(4000);
        is_unknown(store.create(&session(), "", Timestamp(0)).await);
        drop(store);
        let store = bench.open(4000);
        let was_there = store.head(&session()).await.is_ok();
        bench.kill(store);
        bench.disk.lose_power();
        let is_there = bench.open(4000).head(&session()).await.is_ok();
        assert_eq!(is_there, was_there, "seed {seed}");
    }
}

/// The writer itself copies and syncs the frames that a round leaves, at different moments of these lives.
#[tokio::test]
async fn a_sync_that_fails_while_the_log_is_copied_back_ends_the_writer_too() {
    for before in 1..12 {
        let bench = Bench::new(&format!("failed-copy-{before}"));
        let store = bench.open(1);
        let lease = store.create(&session(), "", Timestamp(0)).await.unwrap();
        let mut acknowledged = String::new();
        for seq in 1..=before {
            store.append(&lease, seq, append("a")).await.unwrap();
            acknowledged.push('a');
        }
        assert!(!bench.disk.has_failed_to_sync());
        bench.disk.fail_next_sync_of("reseed.db");
        let mut seq = before + 1;
        // What is synced in the log is acknowledged; copying it comes after that.
        while store.append(&lease, seq, append("b")).await.is_ok() {
            acknowledged.push('b');
            seq += 1;
            assert!(seq < before + 10, "the log is not copied back");
        }
        assert!(bench.disk.has_failed_to_sync(), "{before}");
        is_unknown(store.append(&lease, seq, append("c")).await);
        assert_eq!(log(&store).await, acknowledged, "{before}");
        bench.kill(store);
        bench.disk.lose_power();
        assert_eq!(log(&bench.open(1)).await, acknowledged, "{before}");
    }
}

/// SQLite copies the rest of the log back when it closes. It must not remove the log then: of what was copied before, a
/// sync that failed has left nothing on the disk, and the next one says nothing of that.
#[tokio::test]
async fn after_a_sync_that_fails_between_two_parts_of_a_log_a_regular_end_loses_nothing() {
    for seed in 0..40 {
        let bench = Bench::seeded(&format!("failed-part-{seed}"), seed);
        let store = bench.open(10);
        let lease = store.create(&session(), "", Timestamp(0)).await.unwrap();
        // Each has pages of its own, which the next one does not write again.
        let long = "a".repeat(20_000);
        let mut acknowledged = String::new();
        while acknowledged.len() < 60 {
            if acknowledged.len() as u64 == seed {
                bench.disk.fail_next_sync_of("reseed.db");
            }
            if store.append(&lease, acknowledged.len() as u64 + 1, append(&long)).await.is_err() {
                break;
            }
            acknowledged.push('a');
        }
        assert!(bench.disk.has_failed_to_sync(), "seed {seed}");
        drop(store);
        bench.disk.lose_power();
        bench.disk.begin(None, []);
        assert_eq!(log(&bench.open(10)).await, acknowledged, "seed {seed}");
    }
}

#[tokio::test]
async fn a_full_disk_acknowledges_nothing_and_writing_goes_on_when_there_is_room() {
    let bench = Bench::new("full");
    let store = bench.open(4000);
    let lease = store.create(&session(), "", Timestamp(0)).await.unwrap();
    store.append(&lease, 1, append("a")).await.unwrap();
    bench.disk.fail_next(Fault::Full(30));
    let long = "b".repeat(50_000);
    for _ in 0..3 {
        is_unknown(store.append(&lease, 2, append(&long)).await);
        assert_eq!(log(&store).await, "a");
    }
    bench.disk.make_room();
    let lease = reopen(&store).await;
    assert_eq!(lease.next_seq, 2);
    store.append(&lease, 2, append(&long)).await.unwrap();
    bench.kill(store);
    bench.disk.lose_power();
    assert_eq!(log(&bench.open(4000)).await, "ab");
}

#[tokio::test]
async fn a_read_that_fails_is_told_and_the_next_one_works() {
    let bench = Bench::new("failed-read");
    let store = bench.open(1);
    let lease = store.create(&session(), "", Timestamp(0)).await.unwrap();
    store.append(&lease, 1, append(&"a".repeat(20_000))).await.unwrap();
    drop(store);
    let store = bench.open(1);
    bench.disk.fail_next(Fault::Read);
    is_unknown(store.read(&session(), 0, 9).await);
    assert_eq!(log(&store).await, "a");
}
