//! Answers that are lost, late or misleading, and how the store handles each.

use super::{
    super::{
        PostgresStore,
        append::{self, AppendAt, Fate},
        connection::{Connector, Use},
        readers::Readers,
    },
    connected, database, open,
    server::Server,
    settings,
};
use crate::{
    Append, CommandMark, Error, LeasedSession, NewNode, Pulse, SessionStore as _,
    conformance::{NOW, append_of, id, log},
};
use futures_util::future::join;
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

fn marks(commands: &[&str]) -> Append {
    let mark = |command: &&str| CommandMark { command_id: (*command).into(), fingerprint: 7, reply: "{}".into() };
    Append { marks: commands.iter().map(mark).collect(), ..append_of([]) }
}

#[tokio::test]
async fn an_append_without_an_answer_counts_only_as_a_whole_and_under_its_own_term() {
    let address = database("").await;
    let (store, db) = (open(&address).await, connected(&address).await);
    let lease = store.create(&id("s"), "", NOW).await.unwrap();
    store.append(&lease, 1, append_of(["a", "b"])).await.unwrap();
    store.append(&lease, 3, marks(&["c1"])).await.unwrap();
    let fate = async |lease: &crate::Lease, first_seq, append: Append, was_sent| {
        let at = AppendAt { lease: lease.clone(), first_seq, append };
        append::fates(&db, &[(&at, was_sent)]).await.unwrap().pop().unwrap()
    };
    assert_eq!(fate(&lease, 1, append_of(["a", "b"]), true).await, Fate::Written);
    assert_eq!(fate(&lease, 3, marks(&["c1"]), true).await, Fate::Written);
    // Another append that begins in the same way.
    assert!(matches!(fate(&lease, 1, append_of(["a", "other"]), true).await, Fate::Refused(Error::Fenced { .. })));
    assert_eq!(fate(&lease, 3, marks(&["c1", "c2"]), true).await, Fate::Free);
    let both = Append { marks: marks(&["c3"]).marks, ..append_of(["a", "b"]) };
    assert!(matches!(fate(&lease, 1, both, true).await, Fate::Refused(Error::Fenced { .. })));
    // It is unknown whether it was written before another server opened the session. If it was never sent, it was not
    // written.
    store.open(&id("s")).await.unwrap();
    assert!(matches!(fate(&lease, 1, append_of(["a", "b"]), true).await, Fate::Refused(Error::Unknown(_))));
    assert!(matches!(fate(&lease, 3, append_of(["c"]), false).await, Fate::Refused(Error::Fenced { .. })));
}

#[tokio::test]
async fn a_session_that_somebody_has_locked_does_not_hold_up_the_others() {
    let address = database("").await;
    let store = Arc::new(open(&address).await);
    // These sessions are in one lane, so they share a group.
    let lane = |name: &str| crc32fast::hash(name.as_bytes()) % 2;
    let names: Vec<String> = (0..).map(|n| format!("s{n}")).filter(|name| lane(name) == 0).take(3).collect();
    let mut leases = Vec::new();
    for name in &names {
        leases.push(store.create(&id(name), "", NOW).await.unwrap());
    }
    let lock = connected(&address).await;
    let sql = format!(
        "SET idle_in_transaction_session_timeout = 0; BEGIN; SELECT 1 FROM session WHERE id = '{}' FOR UPDATE",
        names[0]
    );
    lock.batch(&sql).await.unwrap();
    let locked = tokio::spawn({
        let (store, lease) = (store.clone(), leases[0].clone());
        async move { store.append(&lease, 1, append_of(["a"])).await }
    });
    let (first, second) =
        join(store.append(&leases[1], 1, append_of(["b"])), store.append(&leases[2], 1, append_of(["c"]))).await;
    assert_eq!((first, second), (Ok(()), Ok(())));
    for seq in 2..10 {
        store.append(&leases[1], seq, append_of(["d"])).await.unwrap();
    }
    assert!(!locked.is_finished());
    lock.batch("COMMIT").await.unwrap();
    locked.await.unwrap().unwrap();
    assert_eq!(log(&*store, &id(&names[0])).await, "1:a");
}

#[tokio::test]
async fn a_connection_whose_read_was_dropped_is_not_reused() {
    let address = database("").await;
    let connector = Connector::new(&settings(&address), Use::Write, None).unwrap();
    let readers = Readers::new(connector, 1, Duration::from_secs(60)).unwrap();
    let pid = || async {
        let read = readers.read(|db| async move {
            Ok(db.row("SELECT pg_backend_pid()", &[]).await?.map(|row| row.get::<_, i32>(0)))
        });
        read.await.unwrap().unwrap()
    };
    let first = pid().await;
    assert_eq!(pid().await, first);
    let slow = readers.read(|db| async move { db.row("SELECT 1 FROM pg_sleep(60)", &[]).await });
    // The query has been sent once the watching connection sees it.
    let watch = connected(&address).await;
    let running = async {
        let sql = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'";
        while watch.rows(sql, &[&first]).await.unwrap().is_empty() {}
    };
    let running = async { timeout(Duration::from_secs(30), running).await.expect("it is seen at work") };
    tokio::select! {
        slow = slow => panic!("{slow:?}"),
        () = running => {}
    }
    assert_ne!(pid().await, first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_stopped_waiting_for_its_standby_is_not_acknowledged() {
    timeout(Duration::from_secs(120), no_success_without_standby()).await.expect("every wait ends");
}

async fn no_success_without_standby() {
    let server = Arc::new(tokio::task::spawn_blocking(|| Server::start("")).await.unwrap());
    let sql = async |sql: &'static str| {
        let server = server.clone();
        tokio::task::spawn_blocking(move || server.sql("postgres", sql)).await.unwrap()
    };
    let standby = async |set: &'static str| {
        sql(set).await;
        sql("SELECT pg_reload_conf()").await;
    };
    let named = server.clone();
    let address = tokio::task::spawn_blocking(move || named.database("")).await.unwrap();
    let store = Arc::new(PostgresStore::open(&settings(&address), |_| {}).await.unwrap());
    let lease = store.create(&id("s"), "", NOW).await.unwrap();
    let waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'reseed'";
    for n in 0..2 {
        standby("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").await;
        // The server's processes read their settings again one after the other. From the first commit that waits, all
        // commits do.
        loop {
            let probed = server.clone();
            let write = "CREATE TABLE IF NOT EXISTS probe (n int); INSERT INTO probe VALUES (1)";
            let probe = tokio::task::spawn_blocking(move || probed.sql("postgres", write));
            let waits = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%probe%'";
            while !probe.is_finished() && sql(waits).await.trim().is_empty() {}
            let is_waiting = !probe.is_finished();
            sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").await;
            probe.await.unwrap();
            if is_waiting {
                break;
            }
        }
        let (store, lease) = (store.clone(), lease.clone());
        let write = tokio::spawn(async move {
            match n {
                0 => store.append(&lease, 1, append_of(["a"])).await,
                _ => store.create(&id("t"), "", NOW).await.map(drop),
            }
        });
        // After two cancellations, success has still not been reported.
        for _ in 0..2 {
            while sql(waiting).await.trim().is_empty() {
                assert!(!write.is_finished(), "{n}: {:?}", write.await);
            }
            sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").await;
        }
        while sql(waiting).await.trim().is_empty() {
            assert!(!write.is_finished(), "{n}: {:?}", write.await);
        }
        standby("ALTER SYSTEM RESET synchronous_standby_names").await;
        write.await.unwrap().unwrap();
    }
    assert_eq!(log(&*store, &id("s")).await, "1:a");
}

#[tokio::test]
async fn a_second_close_waits_for_the_first() {
    let address = database("").await;
    let store = open(&address).await;
    let lease = store.create(&id("s"), "", NOW).await.unwrap();
    let append = store.append(&lease, 1, append_of(["a"]));
    let (written, (first, second)) = join(append, join(store.close(), store.close())).await;
    assert_eq!((first, second), (Ok(()), Ok(())));
    let reader = PostgresStore::open_read_only(&settings(&address)).await.unwrap();
    assert_eq!(log(&reader, &id("s")).await, if written.is_ok() { "1:a" } else { "" });
}

#[tokio::test]
async fn a_log_on_another_timeline_gets_a_new_name_and_fences_what_came_before() {
    let address = database("").await;
    let (store, db) = (open(&address).await, connected(&address).await);
    let old = store.create(&id("s"), "", NOW).await.unwrap();
    store.append(&old, 1, append_of(["a"])).await.unwrap();
    let lost = async |lease: &crate::Lease, last_seq| {
        let (session, epoch, term) = (lease.session.clone(), lease.epoch.clone(), lease.term);
        store.cluster().unwrap().lost(&[LeasedSession { session, epoch, term, last_seq }]).await.unwrap().len()
    };
    assert_eq!((lost(&old, 1).await, lost(&old, 2).await), (0, 1), "a log that was longer has lost its end");
    // A standby took over that lacks part of this, even the last opening: the same term is assigned again.
    db.batch("UPDATE session SET timeline = '00000000', term = 0").await.unwrap();
    let (new, head) = store.open(&id("s")).await.unwrap();
    assert_eq!(new.term, old.term);
    assert_eq!((lost(&old, 1).await, lost(&new, 1).await), (1, 0), "the term is granted twice");
    assert_ne!(new.epoch, old.epoch);
    assert_eq!(head.epoch, new.epoch);
    assert!(matches!(store.append(&old, 2, append_of(["stale"])).await, Err(Error::Fenced { .. })));
    store.append(&new, 2, append_of(["b"])).await.unwrap();
    assert_eq!(store.open(&id("s")).await.unwrap().0.epoch, new.epoch);
}

fn node(name: &str) -> NewNode {
    let address = Some(format!("ws://{name}:8080"));
    NewNode { name: name.into(), address, version: "0.1.0".into(), lease: Duration::from_secs(5) }
}

#[tokio::test]
async fn a_server_unknown_to_a_standby_is_not_confused_with_one_that_joins_there() {
    let address = database("").await;
    let (a, b, db) = (open(&address).await, open(&address).await, connected(&address).await);
    let (of_a, of_b) = (a.cluster().unwrap(), b.cluster().unwrap());
    let at_a = of_a.join(&node("a")).await.unwrap();
    a.create(&id("s"), "", NOW).await.unwrap();
    // A standby took over that lacks all this, so it does not know that the number was assigned.
    db.batch("UPDATE session SET holder = NULL; DELETE FROM node; ALTER TABLE node ALTER incarnation RESTART")
        .await
        .unwrap();
    assert_eq!(a.open(&id("s")).await.unwrap_err(), Error::NotMember(at_a), "what it opened would be anybody's");
    let at_b = of_b.join(&node("b")).await.unwrap();
    assert_ne!(at_b, at_a);
    assert_eq!(of_a.beat(Pulse::default()).await.unwrap(), None);
    of_a.leave().await.unwrap();
    assert!(of_b.beat(Pulse::default()).await.unwrap().is_some(), "the other's row is still there");
    let again = of_a.join(&node("a")).await.unwrap();
    assert!(again != at_a && again != at_b);
    a.open(&id("s")).await.unwrap();
}

#[tokio::test]
async fn servers_that_start_at_once_make_the_tables_once_and_bring_older_ones_up_to_date() {
    let address = database("").await;
    let (one, other) = join(open(&address), open(&address)).await;
    let lease = one.create(&id("s"), "ann", NOW).await.unwrap();
    one.append(&lease, 1, append_of(["a"])).await.unwrap();
    assert_eq!(log(&other, &id("s")).await, "1:a");
    // This is how the version before clusters left the rows.
    let db = connected(&address).await;
    let older = "DROP TABLE node, ticket, deletion, secret, model_usage, minute; ALTER TABLE session DROP holder; \
                 DELETE FROM schema_step WHERE step >= 2";
    db.batch(older).await.unwrap();
    let (one, other) = join(open(&address), open(&address)).await;
    assert_eq!(one.open(&id("s")).await.unwrap().1.holder, None);
    assert_eq!(log(&other, &id("s")).await, "1:a");
}
