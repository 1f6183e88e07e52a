//! Fills the index in the background.

use super::{SEPARATOR, find};
use crate::store::{
    Error,
    postgres::{
        fault::Fault,
        read,
        readers::{Db, Readers},
    },
    search::spaced,
};
use reseed_protocol::SessionId;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// Records of a block. The newest records of a session, fewer than this, are in no block.
pub(in crate::store::postgres) const BLOCK: u32 = 64;

/// Bytes of the bodies of a block: a block ends early if it has more.
const BLOCK_BYTES: usize = 1024 * 1024;

/// Sessions that wait to be indexed. Further ones are found by the next look at all sessions.
const WAITING_MAX: usize = 10_000;

/// Sessions looked at in one statement.
const LOOK_SESSIONS: i64 = 256;

/// The pause between two looks at what was written: appends of a moment are indexed together.
const PAUSE: Duration = Duration::from_millis(500);

/// The interval at which all sessions are looked at, for what other servers left.
const LOOK: Duration = Duration::from_secs(600);

/// The way to the background task, which ends with this.
pub(in crate::store::postgres) struct Indexer {
    waiting: Arc<Mutex<BTreeSet<SessionId>>>,
    /// Counts what was asked for.
    asked: watch::Sender<u64>,
    /// Counts as far as that is done.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests wait for it"))]
    done: watch::Receiver<u64>,
}

impl Indexer {
    pub(in crate::store::postgres) fn start(readers: Arc<Readers>, block: u32) -> Self {
        let ((asked, due), (ended, done)) = (watch::channel(1), watch::channel(0));
        let waiting: Arc<Mutex<BTreeSet<SessionId>>> = Arc::default();
        tokio::spawn(run(readers, waiting.clone(), due, ended, block));
        Self { waiting, asked, done }
    }

    /// Says that entries were added to a session.
    pub(in crate::store::postgres) fn add(&self, session: &SessionId) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING_MAX && waiting.insert(session.clone()) {
            self.asked.send_modify(|asked| *asked += 1);
        }
    }

    /// Waits until everything added so far is indexed.
    #[cfg(test)]
    pub(in crate::store::postgres) async fn indexed(&self) {
        let asked = *self.asked.borrow();
        let _ = self.done.clone().wait_for(|done| *done >= asked).await;
    }
}

async fn run(
    readers: Arc<Readers>,
    waiting: Arc<Mutex<BTreeSet<SessionId>>>,
    mut due: watch::Receiver<u64>,
    ended: watch::Sender<u64>,
    block: u32,
) {
    let mut looks_at_all = true;
    loop {
        let asked = *due.borrow_and_update();
        let sessions = std::mem::take(&mut *waiting.lock().unwrap_or_else(PoisonError::into_inner));
        let work = async {
            if std::mem::take(&mut looks_at_all) {
                index_all(&readers, block).await?;
            }
            index_some(&readers, &sessions.into_iter().collect::<Vec<_>>(), block).await
        };
        match work.await {
            Ok(()) => drop(ended.send_replace(asked)),
            Err(_) if readers.is_closed() => return,
            Err(error) => {
                tracing::warn!(%error, "entries are indexed later; searches read them until then");
                looks_at_all = true;
            }
        }
        tokio::time::sleep(PAUSE).await;
        match tokio::time::timeout(LOOK, due.changed()).await {
            Ok(Ok(())) => {}
            // The store is gone.
            Ok(Err(_)) => return,
            Err(_) => looks_at_all = true,
        }
    }
}

/// A session with records that are in no block: its id, number, and the newest `seq` that is in one.
type Due = (SessionId, i64, i64);

const DUE: &str = "SELECT s.id, s.number, coalesce((SELECT last_seq FROM words WHERE session = s.number \
                   ORDER BY first_seq DESC LIMIT 1), 0), (SELECT seq FROM head WHERE session = s.number \
                   ORDER BY seq DESC LIMIT 1) FROM session s WHERE";

async fn index_all(readers: &Readers, block: u32) -> Result<(), Error> {
    let mut after = 0_i64;
    loop {
        let sql = format!("{DUE} s.number > $1 ORDER BY s.number LIMIT $2");
        let sql = &sql;
        let rows = readers.read(|db| async move { db.rows(sql, &[&after, &LOOK_SESSIONS]).await }).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = last.try_get(1).map_err(Fault::from)?;
        index_rows(readers, &rows, block).await?;
    }
}

async fn index_some(readers: &Readers, sessions: &[SessionId], block: u32) -> Result<(), Error> {
    for sessions in sessions.chunks(LOOK_SESSIONS as usize) {
        let ids: Vec<&str> = sessions.iter().map(SessionId::as_str).collect();
        let (sql, ids) = (&format!("{DUE} s.id = ANY($1::text[])"), &ids);
        let rows = readers.read(|db| async move { db.rows(sql, &[ids]).await }).await?;
        index_rows(readers, &rows, block).await?;
    }
    Ok(())
}

async fn index_rows(readers: &Readers, rows: &[tokio_postgres::Row], block: u32) -> Result<(), Error> {
    for row in rows {
        let due = due(row, block)?;
        let Some(due) = &due else { continue };
        let done = readers.read(|db| async move { index(&db, due, block).await }).await;
        match done {
            // Deleted meanwhile, or not readable: a search reads what it can.
            Err(Error::NotFound(_) | Error::Damaged { .. }) => {}
            done => done?,
        }
    }
    Ok(())
}

fn due(row: &tokio_postgres::Row, block: u32) -> Result<Option<Due>, Fault> {
    let (indexed, last): (i64, Option<i64>) = (row.try_get(2)?, row.try_get(3)?);
    let is_due = last.is_some_and(|last| last - indexed >= block.into());
    // An id that is none is damage, which other reads report.
    Ok(match row.try_get::<_, &str>(0)?.parse() {
        Ok(session) if is_due => Some((session, row.try_get(1)?, indexed)),
        _ => None,
    })
}

/// Indexes all whole blocks of a session.
async fn index(db: &Db, (session, number, indexed): &Due, block: u32) -> Result<(), Fault> {
    let mut after = *indexed;
    loop {
        let records = read::records(db, session, after.cast_unsigned(), block, BLOCK_BYTES).await?;
        let bytes: usize = records.iter().map(|record| record.body.len()).sum();
        let (Some(first), Some(last)) = (records.first(), records.last()) else { return Ok(()) };
        if records.len() < block as usize && bytes < BLOCK_BYTES {
            return Ok(());
        }
        let mut words = BTreeSet::new();
        for record in &records {
            if let Some(document) = find::document(db, session, record).await? {
                words.extend(spaced(&document.text, usize::MAX).split(' ').map(str::to_owned));
            }
        }
        words.remove("");
        let words: Vec<u8> = joined(&words).into_bytes();
        let (first, last) = (first.seq.cast_signed(), last.seq.cast_signed());
        // The lock orders this with the session's deletion: a row is never left behind.
        let sql = "INSERT INTO words (session, first_seq, last_seq, words) \
                   SELECT number, $2, $3, $4 FROM session WHERE number = $1 FOR KEY SHARE ON CONFLICT DO NOTHING";
        db.rows(sql, &[number, &first, &last, &words]).await?;
        after = last;
    }
}

fn joined(words: &BTreeSet<String>) -> String {
    let mut joined = String::from(SEPARATOR);
    for word in words {
        joined.push_str(word);
        joined.push(SEPARATOR);
    }
    joined
}
