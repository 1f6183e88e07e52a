//! Gives every session of a file a new epoch; see `store/restored.rs`.

use super::{
    OpenError,
    open::{self, Opened},
    read,
};
use crate::{
    Error, checksum,
    epoch::new_epoch,
    migrate::Listed,
    restored::{Renewed, RestoredError},
};
use std::{fs, path::Path};

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
        let page = read::listed(&db, after).map_err(failed)?;
        let Some(last) = page.last() else { return Ok(done) };
        after = last.number;
        let transaction = db.unchecked_transaction().map_err(failed)?;
        for Listed { number, id, .. } in &page {
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
