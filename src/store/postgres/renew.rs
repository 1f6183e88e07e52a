//! Gives every session of a schema a new epoch; see `store/restored.rs`.

use super::{
    OpenError, PostgresStore,
    fault::Fault,
    prepared,
    read::{HEAD_COLUMNS, HEAD_OF, session_head},
    timeline::LINEAGE,
    transfer::{refuse_marked, replicated},
};
use crate::{
    ConnectError, Postgres, SessionStore as _,
    epoch::new_epoch,
    migrate::{Watched, watch},
    restored::{Renewed, RestoredError},
};
use std::sync::Arc;

/// The number of sessions that one statement renews.
const PAGE: i64 = 1000;

/// Renews the epochs in a database's schema, which no server may be using. It also deletes the backup's rows about
/// servers, the sessions that those had open, and tickets that may have been used since.
pub(crate) async fn renew(
    database: &Postgres,
    announce: &mut (dyn FnMut(String, u64) + Send),
) -> Result<Renewed, RestoredError> {
    let (connector, db) = prepared(database, &Arc::default()).await.map_err(ConnectError::from)?;
    refuse_marked(&db, &database.schema).await.map_err(|error| ConnectError::from(OpenError::from(error)))?;
    let store = PostgresStore::without_writer(connector.clone(), database).map_err(ConnectError::from)?;
    if let Watched::Alive(servers) = watch(store.cluster(), announce).await? {
        return Err(RestoredError::InUse(servers));
    }
    let (mut done, mut after) = (Renewed::default(), 0_i64);
    let page = format!(
        "SELECT {HEAD_COLUMNS} FROM session s LEFT JOIN {HEAD_OF} ON true WHERE s.number > $1 ORDER BY s.number LIMIT $2"
    );
    loop {
        let rows = db.rows(&page, &[&after, &PAGE]).await.map_err(crate::Error::from)?;
        let numbers = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>().map_err(Fault::from);
        let numbers = numbers.map_err(crate::Error::from)?;
        let Some(last) = numbers.last() else { break };
        after = *last;
        let epochs = numbers.iter().map(|_| new_epoch()).collect::<Result<Vec<String>, _>>()?;
        let sql = format!(
            "UPDATE session s SET epoch = i.epoch, timeline = {LINEAGE}, holder = NULL \
             FROM unnest($1::bigint[], $2::text[]) AS i(number, epoch) WHERE s.number = i.number"
        );
        db.rows(&sql, &[&numbers, &epochs]).await.map_err(crate::Error::from)?;
        // A damaged one gets a new epoch too, in case its head is repaired.
        let whole = rows.iter().filter(|row| matches!(session_head(row), Ok(Some(_)))).count();
        done.renewed += whole as u64;
        done.damaged += (rows.len() - whole) as u64;
    }
    for sql in ["DELETE FROM ticket", "DELETE FROM node"] {
        db.rows(sql, &[]).await.map_err(crate::Error::from)?;
    }
    replicated(&connector).map_err(crate::Error::from)?;
    Ok(done)
}
