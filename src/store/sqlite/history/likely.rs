//! Finds the sessions that may match by querying each shard once, instead of once per session.

use super::{SEQ_BITS, Suspects, find::asked, is_of_shard, parts, role_word};
use crate::{SearchQuery, sqlite::Fault};
use rusqlite::Connection;
use std::collections::{HashMap, HashSet};

/// The most shards that are queried; any session in the others may match. These shards hold some eight million entries.
const SHARDS_MAX: usize = 1024;

/// Caches the answers of the shards. A shard is queried when the first session in it is considered.
pub(super) struct Likely<'a> {
    db: &'a Connection,
    suspects: &'a Suspects,
    /// The FTS5 expression that every possible hit matches; `None` if there is none.
    wanted: Option<String>,
    /// For each shard, the numbers of the sessions with an entry that may match; `None` if the shard is damaged.
    answers: HashMap<i64, Option<HashSet<i64>>>,
}

impl<'a> Likely<'a> {
    pub(super) fn new(db: &'a Connection, query: &SearchQuery, suspects: &'a Suspects) -> Self {
        Self { db, suspects, wanted: wanted(query), answers: HashMap::new() }
    }

    /// Returns true if a session may match: a shard names it, or no shard covers all of its records.
    pub(super) fn may_have(&mut self, number: i64, last_seq: i64) -> Result<bool, Fault> {
        for part in parts(self.db, number, last_seq)? {
            let Some(shard) = part.shard else { return Ok(true) };
            if self.answer(shard)?.is_none_or(|sessions| sessions.contains(&number)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the sessions that a shard names; `None` if it cannot answer.
    fn answer(&mut self, shard: i64) -> Result<Option<&HashSet<i64>>, Fault> {
        let Some(wanted) = &self.wanted else { return Ok(None) };
        if !self.answers.contains_key(&shard) {
            if self.answers.len() >= SHARDS_MAX {
                return Ok(None);
            }
            let answer = match ask(self.db, shard, wanted) {
                Ok(sessions) => Some(sessions),
                Err(error) if is_of_shard(&error) => {
                    self.suspects.add(shard);
                    None
                }
                Err(error) => return Err(error.into()),
            };
            self.answers.insert(shard, answer);
        }
        Ok(self.answers.get(&shard).and_then(Option::as_ref))
    }
}

fn ask(db: &Connection, shard: i64, wanted: &str) -> rusqlite::Result<HashSet<i64>> {
    // The statement is not cached: those of all shards would evict the statements of other reads.
    let mut statement = db.prepare(&format!("SELECT rowid FROM history_{shard} WHERE history_{shard} MATCH ?1"))?;
    let rows = statement.query_map([wanted], |row| row.get::<_, i64>(0))?;
    rows.map(|row| row.map(|row| row >> SEQ_BITS)).collect()
}

/// Returns the FTS5 expression that every possible hit matches; `None` if the index cannot answer.
fn wanted(query: &SearchQuery) -> Option<String> {
    let terms = query.query.terms.iter().map(asked);
    let words = match query.any {
        true => terms.collect::<Option<Vec<_>>>()?.join(" OR "),
        // Terms that the index cannot answer do not narrow the search.
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
