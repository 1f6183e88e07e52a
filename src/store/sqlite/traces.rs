//! Searches the files for what is left of a user, once the texts of deleted sessions are erased.

use super::{Fault, lock::Lock, scrub::read_at};
use crate::{Error, Traces, traces::is_searched_in_texts};
use aho_corasick::AhoCorasick;
use reseed_protocol::SessionId;
use rusqlite::Connection;
use std::{fs::File, io, path::PathBuf, sync::Arc};

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 1024 * 1024;

/// The columns that hold names of users.
const OWNERS: [&str; 3] = ["session", "usage", "model_usage"];

/// The database's file and the path of its write-ahead log. The file is the one that the lock has open: closing another
/// handle of it would release SQLite's locks.
#[derive(Clone)]
pub(super) struct Files {
    database: Arc<File>,
    log: PathBuf,
}

impl Files {
    pub(super) fn of(lock: &Lock) -> Option<Self> {
        lock.database().map(|(database, log)| Self { database: database.clone(), log })
    }

    /// Adds how often the ids and the name are in the files. A name that is short is not searched for.
    pub(super) fn search(&self, owner: &str, sessions: &[SessionId], traces: &mut Traces) -> Result<(), Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Unknown(format!("search the files: {error}"));
        let name = Some(owner).filter(|name| is_searched_in_texts(name));
        let wanted: Vec<&str> = sessions.iter().map(SessionId::as_str).chain(name).collect();
        let longest = wanted.iter().map(|text| text.len()).max().unwrap_or(0);
        let wanted = AhoCorasick::new(wanted).map_err(|error| failed(&error))?;
        let log = match File::open(&self.log) {
            Ok(log) => Some(log),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(&error)),
        };
        for (place, file) in [("database", Some(&*self.database)), ("write-ahead log", log.as_ref())] {
            let count = file.map_or(Ok(0), |file| count(file, &wanted, longest)).map_err(|error| failed(&error))?;
            traces.add(place, count);
        }
        Ok(())
    }
}

/// Counts the matches in a file. Each chunk begins with the end of the one before, where a match may begin.
fn count(file: &File, wanted: &AhoCorasick, longest: usize) -> io::Result<u64> {
    let (mut at, mut left, mut found) = (0, file.metadata()?.len(), 0);
    let mut chunk: Vec<u8> = Vec::new();
    while left > 0 {
        let kept = chunk.len().min(longest.saturating_sub(1));
        chunk.drain(..chunk.len() - kept);
        let more = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        chunk.resize(kept + more, 0);
        match read_at(file, &mut chunk[kept..], at) {
            Ok(()) => {}
            // The file was shortened meanwhile.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
        found += wanted.find_overlapping_iter(&chunk).filter(|found| found.end() > kept).count() as u64;
        (at, left) = (at + more as u64, left - more as u64);
    }
    Ok(found)
}

/// Adds how many rows name the owner.
pub(super) fn search_columns(db: &Connection, owner: &str, traces: &mut Traces) -> Result<(), Fault> {
    for table in OWNERS {
        let mut select = db.prepare_cached(&format!("SELECT count(*) FROM {table} WHERE owner = ?1"))?;
        traces.add(&format!("{table}.owner"), select.query_row([owner], |row| row.get::<_, i64>(0))?.cast_unsigned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_match_is_counted_once_wherever_the_chunks_end() {
        let wanted = AhoCorasick::new(["needle", "dle"]).unwrap();
        for before in [0, 10, CHUNK_BYTES - 5, CHUNK_BYTES - 1, CHUNK_BYTES, 2 * CHUNK_BYTES - 3] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&vec![b'.'; before]).unwrap();
            file.write_all(b"needle").unwrap();
            file.write_all(&vec![b'.'; CHUNK_BYTES]).unwrap();
            assert_eq!(count(&file, &wanted, 6).unwrap(), 2, "{before}");
        }
        assert_eq!(count(&tempfile::tempfile().unwrap(), &wanted, 6).unwrap(), 0);
    }
}
