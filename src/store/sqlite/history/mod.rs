//! The search index in SQLite; see [`crate::search::index`]. The writer fills it ([`super::writer`]).
//!
//! A damaged index is discarded and filled again; until then, searches read the entries. Damage that SQLite does not
//! notice only hides entries from searches, until `reseed vacuum` discards the index.

mod path;
mod slice;

pub(super) use slice::{DropOld, IndexSlice, Remake, discard, old, unindexed};

use super::{SqliteStore, is_damage, read};
use crate::{
    Error, ListQuery,
    search::{
        index::{Block, Index, Place},
        range::Range,
    },
};
use read::int;
use reseed_protocol::{EntryId, SessionId};
use rusqlite::Connection;
use std::{
    cmp::Ordering,
    sync::{Arc, atomic::AtomicBool},
};

/// Set when a search or the writer has found the index damaged. The writer then makes it again.
pub(super) type Broken = Arc<AtomicBool>;

/// Returns true if an error means that the index is damaged or missing.
fn is_of_index(error: &rusqlite::Error) -> bool {
    is_damage(error) || error.sqlite_error_code() == Some(rusqlite::ErrorCode::Unknown)
}

fn place(found: read::FoundHead) -> Place {
    Place { last_seq: int(found.head.last_seq), session: found.head.session, number: found.number }
}

impl Index for SqliteStore {
    async fn place(&self, session: &SessionId) -> Result<Place, Error> {
        self.readers.run_for(session, |db, session| Ok(place(read::head_without_state(db, session)?))).await
    }

    async fn places(&self, list: &ListQuery) -> Result<(Vec<Place>, Option<String>), Error> {
        let list = list.clone();
        let listed = self.readers.run(move |db| read::list_numbered(db, &list));
        let (found, next) = listed.await?;
        Ok((found.into_iter().map(place).collect(), next))
    }

    async fn blocks(&self, sessions: &[i64], needles: &[Vec<u8>]) -> Result<Vec<Block>, Error> {
        let (sessions, needles, broken) = (sessions.to_vec(), needles.to_vec(), self.broken.clone());
        let look = move |db: &Connection| {
            let mut found = Vec::new();
            for session in sessions {
                match blocks(db, session, &needles) {
                    Ok(blocks) => found.extend(blocks),
                    // The entries of this session are read.
                    Err(error) if is_of_index(&error) => broken.store(true, std::sync::atomic::Ordering::Relaxed),
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(found)
        };
        self.readers.run(look).await
    }

    async fn path(&self, session: i64, to: &EntryId) -> Result<Vec<Range>, Error> {
        let to = to.clone();
        self.readers.run(move |db| path::ranges(db, session, &to)).await
    }
}

fn blocks(db: &Connection, session: i64, needles: &[Vec<u8>]) -> rusqlite::Result<Vec<Block>> {
    let mut statement =
        db.prepare_cached("SELECT first_seq, last_seq, words FROM words WHERE session = ?1 ORDER BY first_seq")?;
    let mut rows = statement.query([session])?;
    let mut blocks = Vec::new();
    while let Some(row) = rows.next()? {
        let words = row.get_ref(2)?.as_blob().unwrap_or_default();
        let has = needles.iter().map(|needle| contains(words, needle)).collect();
        blocks.push(Block { session, records: Range { first: row.get(0)?, last: row.get(1)? }, has });
    }
    Ok(blocks)
}

/// Returns true if the words of a block contain a needle: a whole word with its separators, or the beginning of a word
/// after its separator. The words are in order.
fn contains(words: &[u8], needle: &[u8]) -> bool {
    let Some((separator, word)) = needle.split_first() else { return true };
    let whole = word.strip_suffix(std::slice::from_ref(separator));
    let word = whole.unwrap_or(word);
    let (mut low, mut high) = (0, words.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let start = words[low..middle].iter().rposition(|byte| byte == separator).map_or(low, |at| low + at + 1);
        let end = words[middle..high].iter().position(|byte| byte == separator).map_or(high, |at| middle + at);
        let found = &words[start..end];
        match found.cmp(word) {
            Ordering::Equal => return true,
            Ordering::Greater if whole.is_none() && found.starts_with(word) => return true,
            Ordering::Greater => high = start,
            Ordering::Less => low = end + 1,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::contains;
    use crate::search::index::Words;

    #[test]
    fn words_are_found_by_their_order() {
        let mut words = Words::default();
        words.add("a ab abc b zürich 東京 x1 x2 x3", usize::MAX);
        let words = words.joined();
        for word in ["a", "ab", "abc", "b", "zurich", "東京", "x1", "x3"] {
            assert!(contains(&words, format!("\n{word}\n").as_bytes()), "{word}");
            assert!(contains(&words, format!("\n{word}").as_bytes()), "{word}*");
        }
        for beginning in ["abc", "zur", "東", "x"] {
            assert!(contains(&words, format!("\n{beginning}").as_bytes()), "{beginning}*");
        }
        for word in ["aa", "abcd", "c", "zur", "x", "x4", "東", "0", "京都"] {
            assert!(!contains(&words, format!("\n{word}\n").as_bytes()), "{word}");
        }
        for beginning in ["abd", "c", "x4", "都", "0"] {
            assert!(!contains(&words, format!("\n{beginning}").as_bytes()), "{beginning}*");
        }
        assert!(!contains(b"\n", b"\na"));
        assert!(!contains(b"", b"\na\n"));
    }
}
