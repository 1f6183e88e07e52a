//! Which sessions may have an answer: one question to each shard instead of one to each session.

use super::{SEQ_BITS, Suspects, find::asked, is_of_shard, parts, role_word};
use crate::store::{SearchQuery, sqlite::Fault};
use rusqlite::Connection;
use std::collections::HashSet;

/// Shards that are asked, the newest; the sessions of others may all have an answer. These hold some eight million
/// entries, and each takes a fraction of a millisecond, or about one where every entry has the words.
const SHARDS_MAX: u32 = 1024;

/// What the shards say.
pub(super) struct Likely {
    /// The numbers of the sessions with an entry that may fit.
    sessions: HashSet<i64>,
    /// The shards that were asked.
    shards: HashSet<i64>,
}

impl Likely {
    /// Asks the shards. One that is damaged says nothing.
    pub(super) fn ask(db: &Connection, query: &SearchQuery, suspects: &Suspects) -> Result<Self, Fault> {
        let mut likely = Self { sessions: HashSet::new(), shards: HashSet::new() };
        let Some(wanted) = wanted(query) else { return Ok(likely) };
        let mut newest = db.prepare_cached("SELECT shard FROM history_shard ORDER BY shard DESC LIMIT ?1")?;
        let shards: Vec<i64> = newest.query_map([SHARDS_MAX], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        for shard in shards {
            match likely.ask_one(db, shard, &wanted) {
                Ok(()) => drop(likely.shards.insert(shard)),
                Err(error) if is_of_shard(&error) => suspects.add(shard),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(likely)
    }

    fn ask_one(&mut self, db: &Connection, shard: i64, wanted: &str) -> rusqlite::Result<()> {
        // Not kept: the statements of all shards would push out those of all other reads.
        let mut statement = db.prepare(&format!("SELECT rowid FROM history_{shard} WHERE history_{shard} MATCH ?1"))?;
        let mut rows = statement.query([wanted])?;
        while let Some(row) = rows.next()? {
            self.sessions.insert(row.get::<_, i64>(0)? >> SEQ_BITS);
        }
        Ok(())
    }

    /// Returns true if a session may have an answer: a shard has said so, or does not know all of its records.
    pub(super) fn may_have(&self, db: &Connection, number: i64, last_seq: i64) -> rusqlite::Result<bool> {
        let is_known = |shard: Option<i64>| shard.is_some_and(|shard| self.shards.contains(&shard));
        Ok(self.sessions.contains(&number)
            || parts(db, number, last_seq)?.into_iter().any(|part| !is_known(part.shard)))
    }
}

/// Returns what FTS5 is asked: every entry that may fit has it. `None` if the index cannot say.
fn wanted(query: &SearchQuery) -> Option<String> {
    let terms = query.query.terms.iter().map(asked);
    let words = match query.any {
        true => terms.collect::<Option<Vec<_>>>()?.join(" OR "),
        // Those that it cannot say narrow it no further.
        false => terms.flatten().collect::<Vec<_>>().join(" AND "),
    };
    if words.is_empty() {
        return None;
    }
    Some(match query.role {
        Some(role) => format!("({words}) AND \"{}\"", role_word(role)),
        None => words,
    })
}
