//! The ring of minutes.

use super::{Fault, writer::Write};
use crate::{MINUTES_KEPT, MinuteQuery, MinuteRow};
use rusqlite::{Connection, params};

/// Writes a row, and removes old ones.
pub(super) struct Put(pub(super) MinuteRow);

impl Write for Put {
    type Output = ();

    fn write(&self, db: &Connection) -> Result<(), Fault> {
        let MinuteRow { minute, process, body } = &self.0;
        db.prepare_cached("DELETE FROM minute WHERE minute < ?1")?.execute([minute - MINUTES_KEPT])?;
        let sql = "INSERT OR REPLACE INTO minute (minute, process, body) VALUES (?1, ?2, ?3)";
        db.prepare_cached(sql)?.execute((minute, process, body))?;
        Ok(())
    }
}

/// Returns rows, oldest first.
pub(super) fn rows(db: &Connection, query: &MinuteQuery) -> Result<Vec<MinuteRow>, Fault> {
    let MinuteQuery { from, to, after: (minute, process), limit } = query;
    let mut select = db.prepare_cached(
        "SELECT minute, process, body FROM minute WHERE minute >= ?1 AND minute < ?2 AND (minute, process) > (?3, ?4) \
         ORDER BY minute, process LIMIT ?5",
    )?;
    let rows = select.query_map(params![from, to, minute, process, limit], |row| {
        Ok(MinuteRow { minute: row.get(0)?, process: row.get(1)?, body: row.get(2)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
