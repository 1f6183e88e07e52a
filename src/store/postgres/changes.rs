//! Finds the changes to the sessions of certain users, for clients that watch the list. That takes two statements,
//! however many users there are, and a third for users whose list is new.
//!
//! Changes are found by the time that their writers gave them. Deletions have rows of their own for a while, with the
//! time of the database.

use super::{
    fault::Fault,
    read::{HEAD_COLUMNS, HEAD_OF, listed_at, session_head},
    readers::{Db, Readers},
};
use crate::{
    Changes, Error, SessionHead,
    cluster::{CHANGES_MAX, DELETED_KEPT},
};
use reseed_protocol::{SessionId, Timestamp};
use std::time::Duration;
use tokio_postgres::{Row, types::ToSql};

/// Deletions are kept for the time of [`DELETED_KEPT`].
const KEPT: &str = "DELETE FROM deletion WHERE deleted_at < clock_timestamp() - interval '1 hour'";

pub(super) async fn since(
    readers: &Readers,
    owners: &[String],
    since: Timestamp,
    within: Duration,
) -> Result<Changes, Error> {
    let owners: &Vec<&[u8]> = &owners.iter().map(String::as_bytes).collect();
    readers
        .read(|db| async move {
            let (heads, heads_cut) = heads(&db, owners, since).await?;
            let (deleted, deleted_cut) = deleted(&db, owners, within).await?;
            Ok(Changes { heads, deleted, is_cut: heads_cut || deleted_cut })
        })
        .await
}

/// Returns sessions that a node holds and that have a running turn. They need a query of their own, because a turn that
/// waits for a tool writes nothing.
pub(super) async fn running(readers: &Readers, owners: &[String]) -> Result<Vec<SessionHead>, Error> {
    let owners: &Vec<&[u8]> = &owners.iter().map(String::as_bytes).collect();
    let sql = &format!(
        "SELECT {HEAD_COLUMNS} FROM session s CROSS JOIN {HEAD_OF} WHERE s.owner = ANY ($1) AND s.holder IS NOT NULL \
         AND h.running ORDER BY h.updated_at DESC LIMIT $2"
    );
    readers.read(|db| async move { whole(&db.rows(sql, &[owners, &i64::from(CHANGES_MAX)]).await?) }).await
}

/// Reads rows of [`HEAD_COLUMNS`] and skips damaged ones.
fn whole(rows: &[Row]) -> Result<Vec<SessionHead>, Fault> {
    rows.iter().filter_map(|row| session_head(row).transpose()).map(|found| Ok(found?.head)).collect()
}

/// Returns the sessions written to last, and whether there are more. Both conditions are equivalent for a session, but
/// only the first has an index.
async fn heads(db: &Db, owners: &(dyn ToSql + Sync), since: Timestamp) -> Result<(Vec<SessionHead>, bool), Fault> {
    let sql = format!(
        "SELECT {HEAD_COLUMNS} FROM session s CROSS JOIN {HEAD_OF} WHERE s.owner = ANY ($1) AND s.listed_at >= $2 \
         AND h.updated_at >= $3 ORDER BY h.updated_at DESC LIMIT $4"
    );
    let (listed, most) = (listed_at(since), i64::from(CHANGES_MAX));
    let params: [&(dyn ToSql + Sync); 4] = [owners, &listed, &since.0, &most];
    let rows = db.rows(&sql, &params).await?;
    Ok((whole(&rows)?, is_full(&rows)))
}

/// Returns true if a query was cut off at [`CHANGES_MAX`].
fn is_full(rows: &[Row]) -> bool {
    u32::try_from(rows.len()).is_ok_and(|count| count >= CHANGES_MAX)
}

async fn deleted(
    db: &Db,
    owners: &(dyn ToSql + Sync),
    within: Duration,
) -> Result<(Vec<(SessionId, String)>, bool), Fault> {
    // Older deletions are gone anyway, and the database rejects times before its earliest one.
    let within = i64::try_from(within.min(DELETED_KEPT).as_millis()).unwrap_or(i64::MAX);
    let sql = "SELECT id, owner FROM deletion \
               WHERE deleted_at > clock_timestamp() - $3::bigint * interval '1 millisecond' \
               AND owner = ANY ($1) ORDER BY deleted_at DESC LIMIT $2";
    let rows = db.rows(sql, &[owners, &i64::from(CHANGES_MAX), &within]).await?;
    // An invalid id belongs to no session that was ever listed.
    let deleted = rows.iter().filter_map(|row| {
        let id = row.try_get::<_, &str>(0).ok()?.parse().ok()?;
        Some((id, str::from_utf8(row.try_get(1).ok()?).ok()?.to_owned()))
    });
    Ok((deleted.collect(), is_full(&rows)))
}

/// Deletes old rows of deletions.
pub(super) async fn forget_old(db: &Db) -> Result<(), Fault> {
    db.rows(KEPT, &[]).await.map(drop)
}
