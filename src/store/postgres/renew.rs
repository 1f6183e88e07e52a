//! Gives every session of a schema a new epoch; see `store/restored.rs`.

use super::{
    OpenError, SchemaError,
    fault::Fault,
    read::{HEAD_COLUMNS, HEAD_OF, session_head},
    timeline::LINEAGE,
    transfer::PostgresSide,
};
use crate::{
    ConnectError, Postgres,
    epoch::new_epoch,
    migrate::{Watched, watch},
    restored::{Renewed, RestoredError},
};

/// The number of sessions that one statement renews.
const PAGE: i64 = 1000;

/// Renews the epochs in a database's schema, which no server may be using. It also deletes the backup's rows about
/// servers, the sessions that those had open, and tickets that may have been used since.
pub(crate) async fn renew(
    database: &Postgres,
    announce: &mut (dyn FnMut(String, u64) + Send),
) -> Result<Renewed, RestoredError> {
    let mut side = PostgresSide::open_target(database).await.map_err(ConnectError::from)?;
    if side.has_mark().await? {
        let error: OpenError = SchemaError::Migrating { schema: database.schema.clone() }.into();
        return Err(ConnectError::from(error).into());
    }
    if let Watched::Alive(servers) = watch(&mut side, announce).await? {
        return Err(RestoredError::InUse(servers));
    }
    let (mut done, mut after) = (Renewed::default(), 0_i64);
    let page = format!(
        "SELECT {HEAD_COLUMNS} FROM session s LEFT JOIN {HEAD_OF} ON true WHERE s.number > $1 ORDER BY s.number LIMIT $2"
    );
    loop {
        let rows = side.rows(&page, &[&after, &PAGE]).await?;
        let numbers = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>().map_err(Fault::from);
        let numbers = numbers.map_err(crate::Error::from)?;
        let Some(last) = numbers.last() else { break };
        after = *last;
        let epochs = numbers.iter().map(|_| new_epoch()).collect::<Result<Vec<String>, _>>()?;
        let sql = format!(
            "UPDATE session s SET epoch = i.epoch, timeline = {LINEAGE}, holder = NULL \
             FROM unnest($1::bigint[], $2::text[]) AS i(number, epoch) WHERE s.number = i.number"
        );
        side.write(&sql, &[&numbers, &epochs]).await?;
        // A damaged one gets a new epoch too, in case its head is repaired.
        let whole = rows.iter().filter(|row| matches!(session_head(row), Ok(Some(_)))).count();
        done.renewed += whole as u64;
        done.damaged += (rows.len() - whole) as u64;
    }
    for sql in ["DELETE FROM ticket", "DELETE FROM node"] {
        side.write_durably(sql).await?;
    }
    // This commit is synced, and with it everything before. The other statements may have deleted nothing, which syncs
    // nothing.
    side.write_durably("SELECT pg_logical_emit_message(true, 'reseed', '')::text").await?;
    Ok(done)
}
