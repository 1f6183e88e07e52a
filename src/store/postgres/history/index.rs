//! Fills the index in the background.
//!
//! If a session's newest records are fewer than a block, they stay outside until all sessions have been checked. Then
//! they form a block that can still grow.

use crate::{
    Error, StoredRecord,
    postgres::{
        fault::Fault,
        read,
        readers::{Db, Readers},
    },
    search::{
        Document,
        index::{BLOCK_BYTES, Words},
    },
    whole_mark,
};
use reseed_protocol::SessionId;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

/// The most sessions that wait to be indexed. The next scan of all sessions finds further ones.
const WAITING_MAX: usize = 10_000;

/// The number of sessions that one statement checks.
const LOOK_SESSIONS: i64 = 256;

/// The pause between two rounds of indexing, so that appends made close together are indexed together.
const PAUSE: Duration = Duration::from_millis(500);

/// The interval at which all sessions are scanned, for records that other servers left or that are in no block yet.
const LOOK: Duration = Duration::from_secs(600);

/// The time after which a failed scan starts again.
const RETRY: Duration = Duration::from_secs(10);

/// The number of consecutive sessions that fail to be indexed before the database is assumed to be away.
const FAILURES_MAX: u32 = 3;

/// The handle of the background task, which ends when this is dropped.
pub(in crate::postgres) struct Indexer {
    waiting: Arc<Mutex<BTreeSet<SessionId>>>,
    /// Counts the requests.
    asked: watch::Sender<u64>,
    /// The count of requests up to which all are done.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests wait for it"))]
    done: watch::Receiver<u64>,
}

impl Indexer {
    pub(in crate::postgres) fn start(readers: Arc<Readers>, block: u32) -> Self {
        let ((asked, due), (ended, done)) = (watch::channel(1), watch::channel(0));
        let waiting: Arc<Mutex<BTreeSet<SessionId>>> = Arc::default();
        tokio::spawn(run(readers, waiting.clone(), due, ended, block));
        Self { waiting, asked, done }
    }

    /// Records that entries were added to a session.
    pub(in crate::postgres) fn add(&self, session: &SessionId) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING_MAX && waiting.insert(session.clone()) {
            self.asked.send_modify(|asked| *asked += 1);
        }
    }

    /// Waits until everything added so far is indexed.
    #[cfg(test)]
    pub(in crate::postgres) async fn indexed(&self) {
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
    let mut look = Look { at: Instant::now(), after: 0 };
    loop {
        let asked = *due.borrow_and_update();
        let sessions = std::mem::take(&mut *waiting.lock().unwrap_or_else(PoisonError::into_inner));
        let some = index_some(&readers, &sessions.into_iter().collect::<Vec<_>>(), block).await;
        let all = if some.is_ok() && look.at <= Instant::now() { look.go_on(&readers, block).await } else { Ok(()) };
        match some.and(all) {
            Ok(()) if look.after == 0 => drop(ended.send_replace(asked)),
            Ok(()) => {}
            Err(_) if readers.is_closed() => return,
            Err(error) => {
                tracing::warn!(%error, "entries are indexed later; searches read them until then");
                look = Look { at: Instant::now() + RETRY, after: 0 };
            }
        }
        tokio::time::sleep(PAUSE).await;
        // The store was dropped.
        if let Ok(Err(_)) = tokio::time::timeout_at(look.at, due.changed()).await {
            return;
        }
    }
}

/// A scan of all sessions, a few at a time. Recent writes are indexed in between.
struct Look {
    /// The time at which it continues.
    at: Instant,
    /// The number of the session scanned last; 0 before the first one.
    after: i64,
}

impl Look {
    async fn go_on(&mut self, readers: &Readers, block: u32) -> Result<(), Error> {
        let (sql, after) = (&due_sql("s.number > $1 ORDER BY s.number LIMIT $2", block), self.after);
        let rows = readers.read(|db| async move { db.rows(sql, &[&after, &LOOK_SESSIONS]).await }).await?;
        index_rows(readers, &rows, block, Extent::All).await?;
        *self = match rows.last() {
            Some(last) => Self { at: self.at, after: last.try_get(1).map_err(Fault::from)? },
            None => Self { at: Instant::now() + LOOK, after: 0 },
        };
        Ok(())
    }
}

/// How much of a session is indexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Only whole blocks.
    Whole,
    /// All records.
    All,
}

/// A session with records outside any block.
#[derive(Debug, Clone)]
struct Due {
    session: SessionId,
    number: i64,
    /// The `seq` after which blocks are built. A last block that can still grow is built again.
    after: i64,
    extent: Extent,
}

/// Returns the query for sessions that may be due. For each it returns the last block and the last record. If the last
/// block has room for more records and others follow it, it also returns that block's bytes.
fn due_sql(which: &str, block: u32) -> String {
    format!(
        "SELECT s.id, s.number, coalesce(w.first_seq, 1), coalesce(w.last_seq, 0), \
         h.seq, CASE WHEN w.last_seq < h.seq AND w.last_seq - w.first_seq + 1 < {block} \
         THEN (SELECT coalesce(sum(octet_length(body)), 0)::bigint FROM record WHERE session = s.number \
         AND seq BETWEEN w.first_seq AND w.last_seq) END FROM session s \
         LEFT JOIN LATERAL (SELECT first_seq, last_seq FROM words WHERE session = s.number \
         ORDER BY first_seq DESC LIMIT 1) w ON true \
         LEFT JOIN LATERAL (SELECT seq FROM head WHERE session = s.number ORDER BY seq DESC LIMIT 1) h ON true \
         WHERE {which}"
    )
}

async fn index_some(readers: &Readers, sessions: &[SessionId], block: u32) -> Result<(), Error> {
    for sessions in sessions.chunks(LOOK_SESSIONS as usize) {
        let ids: Vec<&str> = sessions.iter().map(SessionId::as_str).collect();
        let (sql, ids) = (&due_sql("s.id = ANY($1::text[])", block), &ids);
        let rows = readers.read(|db| async move { db.rows(sql, &[ids]).await }).await?;
        index_rows(readers, &rows, block, Extent::Whole).await?;
    }
    Ok(())
}

async fn index_rows(readers: &Readers, rows: &[tokio_postgres::Row], block: u32, extent: Extent) -> Result<(), Error> {
    let mut failures = 0;
    for row in rows {
        let due = due(row, block, extent)?;
        let Some(due) = &due else { continue };
        let done =
            readers.read(|db| async move { index(&db, due, block).await.map_err(|fault| fault.of(&due.session)) });
        match done.await {
            Ok(()) => failures = 0,
            // The session was deleted meanwhile, or is unreadable: a search reads what it can.
            Err(Error::NotFound(_) | Error::Damaged { .. }) => {}
            // One failing session must not keep the others from being indexed.
            Err(error) if failures < FAILURES_MAX && !readers.is_closed() => {
                failures += 1;
                tracing::debug!(session = %due.session, %error, "a session could not be indexed");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn due(row: &tokio_postgres::Row, block: u32, extent: Extent) -> Result<Option<Due>, Fault> {
    let (first, indexed, last): (i64, i64, Option<i64>) = (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
    let block = i64::from(block);
    let after = resumes_after(first, indexed, row.try_get(5)?);
    let is_due = last.is_some_and(|last| match extent {
        Extent::Whole => last - after >= block,
        Extent::All => last > indexed,
    });
    // An invalid id is damage, which other reads report.
    Ok(match row.try_get::<_, &str>(0)?.parse() {
        Ok(session) if is_due => Some(Due { session, number: row.try_get(1)?, after, extent }),
        _ => None,
    })
}

/// Returns the `seq` after which blocks are built, given the bytes of the last block. They are `None` if that block has
/// all its records, or if no records follow it.
fn resumes_after(first: i64, last: i64, bytes: Option<i64>) -> i64 {
    let may_grow = bytes.is_some_and(|bytes| bytes < BLOCK_BYTES as i64);
    if may_grow { first - 1 } else { last }
}

/// Indexes a session.
async fn index(db: &Db, due: &Due, block: u32) -> Result<(), Fault> {
    let Due { session, number, mut after, extent } = due.clone();
    loop {
        let records = read::records(db, &session, after.cast_unsigned(), block, BLOCK_BYTES).await?;
        let bytes: usize = records.iter().map(|record| record.body.len()).sum();
        let (Some(first), Some(last)) = (records.first(), records.last()) else { return Ok(()) };
        let is_whole = records.len() >= block as usize || bytes >= BLOCK_BYTES;
        if !is_whole && extent == Extent::Whole {
            return Ok(());
        }
        let mut words = Words::default();
        for record in &records {
            if let Some(document) = document(db, &session, record).await? {
                words.add(&document.text, usize::MAX);
            }
        }
        let words = words.joined();
        let (first, last) = (first.seq.cast_signed(), last.seq.cast_signed());
        // The lock orders this with the session's deletion, so that no row is left behind.
        let sql = "INSERT INTO words AS w (session, first_seq, last_seq, words) \
                   SELECT number, $2, $3, $4 FROM session WHERE number = $1 FOR KEY SHARE \
                   ON CONFLICT (session, first_seq) DO UPDATE SET last_seq = excluded.last_seq, words = excluded.words \
                   WHERE w.last_seq < excluded.last_seq";
        db.rows(sql, &[&number, &first, &last, &words]).await?;
        if !is_whole {
            // The next scan adds later records to this block.
            return Ok(());
        }
        after = last;
    }
}

/// Returns the searched text of a record. If the record holds only a part of a tool's result, the whole result is
/// included.
async fn document(db: &Db, session: &SessionId, record: &StoredRecord) -> Result<Option<Document>, Fault> {
    let Some(mut document) = Document::of(&record.body) else { return Ok(None) };
    if document.is_cut
        && let Some(mark) = read::command(db, session, &whole_mark(&document.entry)).await?
    {
        document.text = mark.reply.to_string();
    }
    Ok(Some(document))
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_BYTES, resumes_after};

    #[test]
    fn a_block_is_built_again_until_it_is_whole() {
        let ended = Some(BLOCK_BYTES as i64);
        let cases = [
            ("there is none", 1, 0, None, 0),
            ("it has all its records", 65, 128, None, 128),
            ("it may grow", 65, 70, Some(3_000), 64),
            ("its bytes have ended it", 65, 70, ended, 70),
        ];
        for (case, first, last, bytes, want) in cases {
            assert_eq!(resumes_after(first, last, bytes), want, "{case}");
        }
    }
}
