//! Finds the sessions that may have an answer: it asks each shard once, instead of once for each session.

use super::{SEQ_BITS, Suspects, find::asked, is_of_shard, parts, role_word};
use crate::store::{SearchQuery, sqlite::Fault};
use rusqlite::Connection;
use std::collections::{HashMap, HashSet};

/// Shards that are asked; the sessions in others may all have an answer. These hold some eight million entries.
const SHARDS_MAX: usize = 1024;

/// Holds what the shards say. One is asked when the first session in it is looked at.
pub(super) struct Likely<'a> {
    db: &'a Connection,
    suspects: &'a Suspects,
    /// The expression of FTS5 that every entry fits which may be a hit; `None` if there is none.
    wanted: Option<String>,
    /// By shard, the numbers of the sessions with an entry that may fit; `None` if it is damaged.
    answers: HashMap<i64, Option<HashSet<i64>>>,
}

impl<'a> Likely<'a> {
    pub(super) fn new(db: &'a Connection, query: &SearchQuery, suspects: &'a Suspects) -> Self {
        Self { db, suspects, wanted: wanted(query), answers: HashMap::new() }
    }

    /// Returns true if a session may have an answer: a shard says so, or none knows all of its records.
    pub(super) fn may_have(&mut self, number: i64, last_seq: i64) -> Result<bool, Fault> {
        for part in parts(self.db, number, last_seq)? {
            let Some(shard) = part.shard else { return Ok(true) };
            if self.answer(shard)?.is_none_or(|sessions| sessions.contains(&number)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the sessions that a shard names, if it can say.
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
    // Not kept: the statements of all shards would push out those of all other reads.
    let mut statement = db.prepare(&format!("SELECT rowid FROM history_{shard} WHERE history_{shard} MATCH ?1"))?;
    let rows = statement.query_map([wanted], |row| row.get::<_, i64>(0))?;
    rows.map(|row| row.map(|row| row >> SEQ_BITS)).collect()
}

/// Returns the expression of FTS5 that every entry fits which may be a hit; `None` if the index cannot answer.
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
