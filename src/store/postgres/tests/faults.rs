//! Lost connections and restarts of the server: nothing acknowledged is lost, nothing is written twice, and every
//! append gets its answer.

use super::{
    super::{OpenError, PostgresStore, SchemaError},
    server::{self, Server},
    settings,
    wire::{Way, Wire},
};
use crate::{
    Append, CommandMark, Database, SessionStore as _,
    conformance::{NOW, append_of, id, log},
    migrate::{Options, Progress, migrate},
    sqlite::SqliteStore,
};
use futures_util::future::join_all;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Sessions that append concurrently, so that they share groups.
const SESSIONS: u64 = 3;

/// Returns the byte counts after which a connection is cut: within a group's request and answer, and beyond.
fn places(way: Way) -> Vec<u32> {
    let mut random = fastrand::Rng::with_seed(16);
    match way {
        Way::Request => (0..40).map(|_| random.u32(1..4000)).collect(),
        Way::Answer => (0..60).chain((0..20).map(|_| random.u32(60..600))).collect(),
    }
}

#[tokio::test]
async fn an_append_whose_connection_is_cut_is_written_once() {
    let address = tokio::task::spawn_blocking(server::database).await.unwrap();
    let wire = Wire::before(server::socket());
    let name = address.rsplit('/').next().unwrap();
    let through = format!("postgres://reseed@{}/{name}", wire.folder().display().to_string().replace('/', "%2F"));
    let store = PostgresStore::open(&settings(&through), |_| {}).await.unwrap();
    let mut leases = Vec::new();
    for n in 0..SESSIONS {
        leases.push(store.create(&id(&format!("s{n}")), "", NOW).await.unwrap());
    }
    let (mut seq, mut cuts) = (0, [0, 0]);
    for (at, way) in [Way::Request, Way::Answer].into_iter().enumerate() {
        for bytes in places(way) {
            wire.cut_after(way, bytes);
            seq += 1;
            let body = format!("{seq}");
            // Every third append holds only a mark, so no `seq` distinguishes it from its copy.
            let mark = CommandMark { command_id: format!("c{seq}"), fingerprint: seq, reply: "{}".into() };
            let append = |n: u64| {
                let records = append_of([body.as_str()]);
                let marks = if n == 0 { vec![mark.clone()] } else { Vec::new() };
                Append { marks, ..records }
            };
            let written = join_all((0..).zip(&leases).map(|(n, lease)| store.append(lease, seq, append(n)))).await;
            assert!(written.iter().all(Result::is_ok), "{way:?} cut after {bytes} bytes: {written:?}");
            let only = CommandMark { command_id: format!("m{seq}"), fingerprint: seq, reply: "{}".into() };
            let only = Append { marks: vec![only], ..append_of([]) };
            store.append(&leases[0], seq + 1, only).await.unwrap_or_else(|error| panic!("{way:?} {bytes}: {error}"));
            cuts[at] += wire.stop(way);
        }
    }
    assert!(cuts[0] >= 30 && cuts[1] >= 60, "connections were cut: {cuts:?}");
    let want = (1..=seq).map(|seq| format!("{seq}:{seq}")).collect::<Vec<_>>().join(" ");
    for lease in &leases {
        assert_eq!(log(&store, &lease.session).await, want);
    }
    for seq in 1..=seq {
        for command in [format!("c{seq}"), format!("m{seq}")] {
            assert!(store.command(&leases[0].session, &command).await.unwrap().is_some(), "{command}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_server_is_a_pause() {
    // This server syncs the disk: what it acknowledges survives being killed.
    let server = Arc::new(tokio::task::spawn_blocking(|| Server::start("")).await.unwrap());
    let named = server.clone();
    let address = tokio::task::spawn_blocking(move || named.database("")).await.unwrap();
    let strict = crate::Postgres { allows_unsafe: false, ..settings(&address) };
    let store = Arc::new(PostgresStore::open(&strict, |_| {}).await.unwrap());
    let over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..8)
        .map(|n| {
            let (store, over) = (store.clone(), over.clone());
            tokio::spawn(async move {
                let lease = store.create(&id(&format!("s{n}")), "", NOW).await.unwrap();
                let (mut seq, mut left) = (0_u64, 20);
                while left > 0 {
                    seq += 1;
                    store.append(&lease, seq, append_of([seq.to_string().as_str()])).await.unwrap();
                    // Reads continue to work as well.
                    assert_eq!(store.read(&lease.session, seq - 1, 1).await.unwrap().len(), 1);
                    left -= u64::from(over.load(Ordering::SeqCst));
                }
                seq
            })
        })
        .collect();
    for _ in 0..3 {
        let server = server.clone();
        tokio::task::spawn_blocking(move || server.control(&["restart", "-m", "immediate"])).await.unwrap();
    }
    over.store(true, Ordering::SeqCst);
    for (n, writer) in writers.into_iter().enumerate() {
        let acknowledged = writer.await.unwrap();
        let want = (1..=acknowledged).map(|seq| format!("{seq}:{seq}")).collect::<Vec<_>>().join(" ");
        assert_eq!(log(&*store, &id(&format!("s{n}"))).await, want);
    }
}

/// The database may have restarted since the last session was compared, without the writes that it had not synced.
#[tokio::test]
async fn a_migration_fails_if_the_connection_that_completes_it_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("from.db");
    let source = SqliteStore::open(&path).unwrap();
    let lease = source.create(&id("s"), "ann", NOW).await.unwrap();
    source.append(&lease, 1, append_of(["a"])).await.unwrap();
    source.close().await.unwrap();
    let address = tokio::task::spawn_blocking(server::database).await.unwrap();
    let name = address.rsplit('/').next().unwrap();
    let to = Database::Postgres(Box::new(settings(&address)));
    let mut ended = 0;
    // The last statement of this connection looked for the mark.
    let end = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{name}' \
         AND query LIKE '%to_regclass%' AND pid <> pg_backend_pid()"
    );
    let progress = &mut |progress: &Progress| {
        if matches!(progress, Progress::Copying { .. }) {
            ended += server::sql(name, &end).trim().parse::<u32>().unwrap();
        }
    };
    let failed = migrate(&Database::Sqlite(path), &to, Options::default(), progress).await.unwrap_err();
    assert_eq!(ended, 1);
    assert!(failed.to_string().contains("the database may have lost what was written last"), "{failed}");
    let opened = PostgresStore::open(&settings(&address), |_| {}).await;
    assert!(matches!(opened.err(), Some(OpenError::Schema(SchemaError::Migrating { .. }))));
}
