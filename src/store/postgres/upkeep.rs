//! Deletes the rows of deleted sessions in the background, in slices, so that no statement takes long.

use super::{changes, fault::Fault, readers::Db, readers::Readers};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

/// The number of rows that one statement deletes.
const SLICE: i64 = 1000;

/// The pause after a failed step, and the interval at which a server looks for rows that others left.
const RETRY: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_secs(300);

/// The handle of the background task, which ends when this is dropped.
pub(super) struct Upkeep {
    /// Counts the requests.
    asked: watch::Sender<u64>,
    /// The count of requests up to which all are done.
    done: watch::Receiver<u64>,
}

impl Upkeep {
    pub(super) fn start(readers: Arc<Readers>) -> Self {
        let ((asked, due), (ended, done)) = (watch::channel(1), watch::channel(0));
        tokio::spawn(run(readers, due, ended));
        Self { asked, done }
    }

    /// Records that a session was deleted.
    pub(super) fn wake(&self) {
        self.asked.send_modify(|asked| *asked += 1);
    }

    /// Waits until everything deleted so far is removed.
    pub(super) async fn settled(&self) {
        let asked = *self.asked.borrow();
        // An error means that the task has ended.
        let _ = self.done.clone().wait_for(|done| *done >= asked).await;
    }
}

async fn run(readers: Arc<Readers>, mut due: watch::Receiver<u64>, ended: watch::Sender<u64>) {
    loop {
        let asked = *due.borrow_and_update();
        let wait = match readers.write(|db, _| async move { remove_all(&db).await }).await {
            Ok(()) => {
                ended.send_replace(asked);
                LOOK
            }
            Err(_) if readers.is_closed() => return,
            Err(error) => {
                tracing::warn!(%error, "the rows of deleted sessions are removed later");
                RETRY
            }
        };
        // An error means that the store was dropped.
        if let Ok(Err(_)) = tokio::time::timeout(wait, due.changed()).await {
            return;
        }
    }
}

async fn remove_all(db: &Db) -> Result<(), Fault> {
    changes::forget_old(db).await?;
    while let Some(row) = db.row("SELECT session FROM removal LIMIT 1", &[]).await? {
        let number: i64 = row.try_get(0)?;
        for (table, key) in [("record", "seq"), ("mark", "command"), ("words", "first_seq"), ("head", "seq")] {
            let sql = format!(
                "WITH gone AS (DELETE FROM {table} WHERE session = $1 AND {key} IN (SELECT {key} FROM {table} \
                 WHERE session = $1 ORDER BY {key} LIMIT $2) RETURNING 1) SELECT count(*) FROM gone"
            );
            let rest = format!("SELECT 1 FROM {table} WHERE session = $1 LIMIT 1");
            while let Some(row) = db.row(&sql, &[&number, &SLICE]).await? {
                // Another server may be removing the same session, and may have been faster with this slice.
                let is_short = row.try_get::<_, i64>(0)? < SLICE;
                if is_short && db.row(&rest, &[&number]).await?.is_none() {
                    break;
                }
            }
        }
        let last = "WITH s AS (DELETE FROM state WHERE session = $1) DELETE FROM removal WHERE session = $1";
        db.rows(last, &[&number]).await?;
    }
    Ok(())
}
