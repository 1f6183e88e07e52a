//! The ring of minutes.

use super::{fault::Fault, readers::Readers};
use crate::{Error, MINUTES_KEPT, MinuteQuery, MinuteRow};

/// Writes a row, and removes old ones.
pub(super) async fn put(readers: &Readers, row: &MinuteRow) -> Result<(), Error> {
    let sql = "WITH gone AS (DELETE FROM minute WHERE minute < $1) \
               INSERT INTO minute (minute, process, body) VALUES ($2, $3, $4) \
               ON CONFLICT (minute, process) DO UPDATE SET body = excluded.body";
    let (first, body) = (&(row.minute - MINUTES_KEPT), &row.body.as_bytes());
    let MinuteRow { minute, process, .. } = row;
    readers.write(|db, _| async move { db.rows(sql, &[first, minute, process, body]).await.map(drop) }).await
}

/// Returns rows, oldest first.
pub(super) async fn rows(readers: &Readers, query: &MinuteQuery) -> Result<Vec<MinuteRow>, Error> {
    let MinuteQuery { from, to, after: (minute, process), limit } = query;
    let sql = "SELECT minute, process, body FROM minute WHERE minute >= $1 AND minute < $2 \
               AND (minute, process) > ($3, $4) ORDER BY minute, process LIMIT $5";
    let limit = &i64::from(*limit);
    let rows = readers.read(|db| async move { db.rows(sql, &[from, to, minute, process, limit]).await }).await?;
    let read = |row: &tokio_postgres::Row| {
        let body = String::from_utf8_lossy(row.try_get(2)?).into_owned();
        Ok::<_, Fault>(MinuteRow { minute: row.try_get(0)?, process: row.try_get(1)?, body })
    };
    Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
}
