//! The search index for the text of entries: full-text tables of SQLite (FTS5), maintained by the writer's thread.
//!
//! - The words of the entries are in tables `history_N`, called shards. A shard stores no text, only the positions of
//!   words. A row's number combines the session's number and the `seq`, so the rows of a session form a range.
//! - `history_part` maps records of a session to shards. Records that it does not name are not indexed yet, and a
//!   search reads them instead. So nothing waits for the index: the writer fills it when idle, and otherwise spends a
//!   small part of its time on it ([`super::writer`]). A database of an older version is indexed in the same way while
//!   it is in use.
//! - To erase the words of a deleted session, its shards are emptied, and the other sessions in them are indexed again.
//!   FTS5 can also delete a single row with all its bytes (`secure-delete`), but that takes some 2 ms, and a shard of
//!   8,192 rows is refilled in a third of a second. That time is what bounds the size of a shard.
//! - Everything here derives from the records. A damaged shard is emptied or, if that fails, given up; its sessions are
//!   read until they are indexed again. Damage that FTS5 does not notice only hides entries from searches, until
//!   `reseed vacuum` discards the index.

mod find;
mod index;
mod likely;
mod path;

pub(super) use find::search;
pub(super) use index::{IndexSlice, Indexed};

use super::is_damage;
use crate::search::range::Range;
use reseed_protocol::{SessionId, tree::HitRole};
use rusqlite::{Connection, OptionalExtension as _};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The most rows of a shard, and bytes of the words in it. This much must be indexed again when a session in it is
/// deleted.
const SHARD_ROWS_MAX: i64 = 8192;
const SHARD_BYTES_MAX: i64 = 8 * 1024 * 1024;

/// The bits of a row's number that hold the `seq`.
const SEQ_BITS: u32 = 32;

/// Shards that a reader found damaged. The writer empties them.
#[derive(Debug, Clone, Default)]
pub(super) struct Suspects(Arc<Mutex<BTreeSet<i64>>>);

impl Suspects {
    fn add(&self, shard: i64) {
        self.shards().insert(shard);
    }

    pub(super) fn take(&self) -> Option<i64> {
        self.shards().pop_first()
    }

    fn shards(&self) -> MutexGuard<'_, BTreeSet<i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records that are in one shard, or in none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    records: Range,
    shard: Option<i64>,
}

/// Returns all records of a session as parts, in order.
fn parts(db: &Connection, number: i64, last_seq: i64) -> rusqlite::Result<Vec<Part>> {
    let mut statement =
        db.prepare_cached("SELECT first_seq, last_seq, shard FROM history_part WHERE session = ?1 ORDER BY first_seq")?;
    let mut rows = statement.query([number])?;
    let (mut parts, mut next) = (Vec::new(), 1);
    while let Some(row) = rows.next()? {
        let (first, last, shard) = (row.get(0)?, row.get::<_, i64>(1)?.min(last_seq), row.get(2)?);
        if first > next {
            parts.push(Part { records: Range { first: next, last: first - 1 }, shard: None });
        }
        if let Some(records) = (Range { first, last }).and(Range { first: next, last: last_seq }) {
            parts.push(Part { records, shard: Some(shard) });
            next = records.last + 1;
        }
    }
    if next <= last_seq {
        parts.push(Part { records: Range { first: next, last: last_seq }, shard: None });
    }
    Ok(parts)
}

/// Returns the row of a record.
fn row_of(number: i64, seq: i64) -> i64 {
    (number << SEQ_BITS) | seq
}

/// Returns the `seq` of a row's record.
fn seq_of(row: i64) -> i64 {
    row & ((1 << SEQ_BITS) - 1)
}

/// Returns true if the records of a session have rows.
fn has_rows(number: i64, last_seq: i64) -> bool {
    number < 1 << (63 - SEQ_BITS) && last_seq < 1 << SEQ_BITS
}

/// Returns the word that marks the entries of an author. It is a character that never occurs in the words of a text.
fn role_word(role: HitRole) -> &'static str {
    match role {
        HitRole::User => "\u{e000}",
        HitRole::Assistant => "\u{e001}",
        HitRole::Tool => "\u{e002}",
        HitRole::Summary => "\u{e003}",
    }
}

/// Creates a shard.
fn create_shard(db: &Connection) -> rusqlite::Result<i64> {
    let shard: i64 = db.query_row("SELECT coalesce(max(shard), 0) + 1 FROM history_shard", [], |row| row.get(0))?;
    // The words arrive separated by spaces and in lower case; the simplest tokenizer keeps them unchanged.
    db.execute_batch(&format!(
        "CREATE VIRTUAL TABLE history_{shard} USING fts5(words, content='', columnsize=0, tokenize='ascii')"
    ))?;
    db.execute("INSERT INTO history_shard (shard, entries, bytes) VALUES (?1, 0, 0)", [shard])?;
    Ok(shard)
}

/// Empties a shard: nothing in it can be found, and its words are overwritten. Returns the sessions to index again.
pub(super) fn empty_shard(db: &Connection, shard: i64) -> rusqlite::Result<Vec<SessionId>> {
    let sessions = {
        let mut statement = db.prepare_cached(
            "SELECT DISTINCT id FROM session, history_part WHERE history_part.session = number AND shard = ?1",
        )?;
        let ids = statement.query_map([shard], |row| row.get::<_, String>(0))?;
        // An invalid id is damage, which other reads report.
        ids.filter_map(|id| id.map(|id| id.parse().ok()).transpose()).collect::<rusqlite::Result<_>>()?
    };
    db.prepare_cached("DELETE FROM history_part WHERE shard = ?1")?.execute([shard])?;
    if db.execute_batch(&format!("INSERT INTO history_{shard} (history_{shard}) VALUES ('delete-all')")).is_ok() {
        db.prepare_cached("UPDATE history_shard SET entries = 0, bytes = 0 WHERE shard = ?1")?.execute([shard])?;
        return Ok(sessions);
    }
    match db.execute_batch(&format!("DROP TABLE IF EXISTS history_{shard}")) {
        Ok(()) => drop(db.execute("DELETE FROM history_shard WHERE shard = ?1", [shard])?),
        Err(error) => {
            tracing::error!(%error, shard, "a damaged part of the search index cannot be removed; try `reseed vacuum`");
            // The shard is marked as full, so that nothing is added.
            let give_up = "UPDATE history_shard SET entries = ?2 WHERE shard = ?1";
            db.execute(give_up, [shard, SHARD_ROWS_MAX])?;
        }
    }
    Ok(sessions)
}

/// Discards the whole index, as far as its tables can be removed. Tables that remain are not used.
pub(super) fn discard(db: &Connection) {
    let drop_all = || -> rusqlite::Result<()> {
        let mut names = db.prepare("SELECT shard FROM history_shard")?;
        let shards: Vec<i64> = names.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        db.execute_batch("DELETE FROM history_part")?;
        for shard in shards {
            db.execute_batch(&format!("DROP TABLE IF EXISTS history_{shard}"))?;
            db.execute("DELETE FROM history_shard WHERE shard = ?1", [shard])?;
        }
        Ok(())
    };
    if let Err(error) = drop_all() {
        tracing::warn!(%error, "the search index could not be discarded");
    }
}

/// Returns a shard that contains records of a session, if there is one.
pub(super) fn shard_of(db: &Connection, number: i64) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached("SELECT shard FROM history_part WHERE session = ?1 LIMIT 1")?
        .query_row([number], |row| row.get(0))
        .optional()
}

/// The number of sessions checked in one step of [`unindexed`].
const WALK_SESSIONS: u32 = 256;

/// Returns the sessions with unindexed records, among some after a number, and the number to continue from.
pub(super) fn unindexed(db: &Connection, after: i64) -> rusqlite::Result<(Vec<SessionId>, Option<i64>)> {
    let mut statement = db.prepare_cached(
        "SELECT number, id, last_seq > \
         (SELECT coalesce(sum(part.last_seq - part.first_seq + 1), 0) FROM history_part AS part \
         WHERE session = number) FROM session WHERE number > ?1 ORDER BY number LIMIT ?2",
    )?;
    let mut rows = statement.query((after, WALK_SESSIONS))?;
    let (mut sessions, mut count, mut last) = (Vec::new(), 0, after);
    while let Some(row) = rows.next()? {
        (count, last) = (count + 1, row.get(0)?);
        if row.get(2)?
            && let Ok(id) = row.get::<_, String>(1)?.parse()
        {
            sessions.push(id);
        }
    }
    Ok((sessions, (count == WALK_SESSIONS).then_some(last)))
}

/// Returns true if an error means that a shard is damaged or missing.
fn is_of_shard(error: &rusqlite::Error) -> bool {
    is_damage(error) || error.sqlite_error_code() == Some(rusqlite::ErrorCode::Unknown)
}
