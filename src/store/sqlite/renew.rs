//! Gives every session of a file a new epoch; see `store/restored.rs`.

use super::{
    OpenError,
    open::{self, Opened},
    read,
};
use crate::{
    Error, checksum,
    epoch::new_epoch,
    restored::{Renewed, RestoredError},
};
use reseed_protocol::SessionId;
use rusqlite::{Connection, types::ValueRef};
use std::{fs, path::Path};

/// The number of sessions in one transaction.
const PAGE: u32 = 1000;

/// Renews the epochs in the file at `path`, which no server may have open.
pub(crate) fn renew(path: &Path) -> Result<Renewed, RestoredError> {
    // Opening would create the file.
    let missing = |source| OpenError::Io { path: path.to_owned(), source };
    fs::metadata(path).map_err(missing).map_err(crate::ConnectError::from)?;
    // The lock is released after the connection is closed.
    let opened = open::open(path, open::Beside::Nothing, None).map_err(crate::ConnectError::from)?;
    let Opened { lock: _lock, writer: db, found, .. } = opened;
    if found.is_marked {
        let error = OpenError::Migrating { path: path.to_owned() };
        return Err(crate::ConnectError::from(error).into());
    }
    let (mut done, mut after) = (Renewed::default(), 0);
    loop {
        let failed = |error: rusqlite::Error| Error::Unknown(format!("write to `{}`: {error}", path.display()));
        let page = page(&db, after).map_err(failed)?;
        let Some((last, _)) = page.last() else { return Ok(done) };
        after = *last;
        let transaction = db.unchecked_transaction().map_err(failed)?;
        for (number, id) in &page {
            match id.as_ref().map(|id| read::head_without_state(&transaction, id).map_err(|fault| fault.reading(id))) {
                Some(Ok(mut found)) => {
                    found.head.epoch = new_epoch()?;
                    let checksum = checksum::head(&found.head, found.term, found.last_entry.as_deref());
                    let sql = "UPDATE session SET epoch = ?2, checksum = ?3 WHERE number = ?1";
                    let params = (number, &found.head.epoch, checksum);
                    transaction.prepare_cached(sql).and_then(|mut sql| sql.execute(params)).map_err(failed)?;
                    done.renewed += 1;
                }
                Some(Err(fault)) => match Error::from(fault) {
                    Error::Damaged { .. } => done.damaged += 1,
                    error => return Err(error.into()),
                },
                None => done.damaged += 1,
            }
        }
        transaction.commit().map_err(failed)?;
    }
}

/// Returns sessions with larger numbers; an unreadable id is `None`.
fn page(db: &Connection, after: i64) -> rusqlite::Result<Vec<(i64, Option<SessionId>)>> {
    let mut statement =
        db.prepare_cached("SELECT number, id FROM session WHERE number > ?1 ORDER BY number LIMIT ?2")?;
    let rows = statement.query_map((after, PAGE), |row| {
        let id = match row.get_ref(1)? {
            ValueRef::Text(id) => str::from_utf8(id).ok().and_then(|id| id.parse().ok()),
            _ => None,
        };
        Ok((row.get(0)?, id))
    })?;
    rows.collect()
}
