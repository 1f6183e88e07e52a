//! Servers that start while others use the same tables.

use super::{connected, database, open, server, settings};
use crate::{
    SessionStore as _,
    postgres::{connection::Connection, schema::lock_key},
};
use std::time::Duration;
use tokio::time::timeout;

/// Reverts the tables to before the last step.
const OLDER: &str = "DROP TABLE reseed.minute; DELETE FROM reseed.schema_step WHERE step = 8";

/// Waits until the program that opens the store waits for a lock of another.
async fn waits(db: &Connection, wait_event: &str) {
    let sql = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = $1 AND \
               datname = current_database()";
    let waits = async { while db.rows(sql, &[&wait_event]).await.unwrap().is_empty() {} };
    timeout(Duration::from_secs(60), waits).await.expect("the start waits");
}

#[tokio::test]
async fn a_start_that_comes_second_locks_no_tables() {
    let address = database("").await;
    open(&address).await.close().await.unwrap();
    let (first, watch) = (connected(&address).await, connected(&address).await);
    let key = lock_key(&settings(&address).schema);
    first.batch(&format!("{OLDER}; SELECT pg_advisory_lock({key})")).await.unwrap();
    let first_is_done = async {
        waits(&watch, "advisory").await;
        // The other program has changed the tables, and is writing to them.
        first.batch("INSERT INTO reseed.schema_step (step, harmless) VALUES (8, true)").await.unwrap();
        first.batch("BEGIN; LOCK TABLE reseed.record, reseed.schema_step IN ROW EXCLUSIVE MODE").await.unwrap();
        first.batch(&format!("SELECT pg_advisory_unlock({key})")).await.unwrap();
    };
    let second = timeout(Duration::from_secs(60), open(&address));
    let (second, ()) = tokio::join!(second, first_is_done);
    second.expect("it starts while the first writes").close().await.unwrap();
    first.batch("COMMIT").await.unwrap();
}

#[tokio::test]
async fn a_start_aborted_by_a_deadlock_retries() {
    let address = database("").await;
    open(&address).await.close().await.unwrap();
    // The starting server should be the one that detects the deadlock, so the other must start waiting within this
    // time.
    let name = address.rsplit('/').next().unwrap().to_owned();
    let set = format!("ALTER DATABASE {name} SET deadlock_timeout = '2s'");
    tokio::task::spawn_blocking(move || server::sql(&name, &set)).await.unwrap();
    let (writer, watch) = (connected(&address).await, connected(&address).await);
    writer.batch(&format!("{OLDER}; SET deadlock_timeout = '10min'; SET lock_timeout = 0")).await.unwrap();
    writer.batch("BEGIN; LOCK TABLE reseed.record IN ROW EXCLUSIVE MODE").await.unwrap();
    let writes = async {
        waits(&watch, "relation").await;
        writer.batch("LOCK TABLE reseed.schema_step IN ROW EXCLUSIVE MODE; COMMIT").await.unwrap();
    };
    let (store, ()) = tokio::join!(timeout(Duration::from_secs(60), open(&address)), writes);
    store.expect("it starts").close().await.unwrap();
    let sql = "SELECT 1 FROM pg_stat_database WHERE datname = current_database() AND deadlocks = 1";
    let told = async { while watch.rows(sql, &[]).await.unwrap().is_empty() {} };
    timeout(Duration::from_secs(60), told).await.expect("there was a deadlock");
}
