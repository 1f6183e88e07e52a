//! The search index in PostgreSQL; see [`crate::search::index`].

mod index;

pub(super) use index::Indexer;

use super::{PostgresStore, fault::Fault, read, readers::Db};
use crate::{
    Error, ListQuery,
    checksum::int,
    search::{
        index::{Block, Index, Place},
        range::{Range, on_path},
    },
};
use reseed_protocol::{EntryId, SessionId};
use std::{collections::BTreeMap, sync::Arc};

fn place(found: read::FoundHead) -> Place {
    Place { last_seq: int(found.head.last_seq), session: found.head.session, number: found.number }
}

impl Index for PostgresStore {
    async fn place(&self, session: &SessionId) -> Result<Place, Error> {
        let head = |db: Arc<Db>| async move { read::head(&db, session).await.map_err(|fault| fault.of(session)) };
        self.readers.read(head).await.map(place)
    }

    async fn places(&self, list: &ListQuery) -> Result<(Vec<Place>, Option<String>), Error> {
        let (found, next) = self.readers.read(|db| async move { read::list_numbered(&db, list).await }).await?;
        Ok((found.into_iter().map(place).collect(), next))
    }

    async fn blocks(&self, sessions: &[i64], needles: &[Vec<u8>]) -> Result<Vec<Block>, Error> {
        // The result is parallel to `needles`; `position` compares bytes.
        let sql = "SELECT session, first_seq, last_seq, ARRAY(SELECT position(n.needle IN w.words) > 0 \
                   FROM unnest($2::bytea[]) WITH ORDINALITY AS n(needle, at) ORDER BY n.at) \
                   FROM unnest($1::bigint[]) AS i(number) JOIN words w ON w.session = i.number \
                   ORDER BY session, first_seq";
        let rows = self.readers.read(|db| async move { db.rows(sql, &[&sessions, &needles]).await }).await?;
        let block = |row: &tokio_postgres::Row| {
            let records = Range { first: row.try_get(1)?, last: row.try_get(2)? };
            Ok(Block { session: row.try_get(0)?, records, has: row.try_get(3)? })
        };
        Ok(rows.iter().map(block).collect::<Result<_, Fault>>()?)
    }

    async fn path(&self, session: i64, to: &EntryId) -> Result<Vec<Range>, Error> {
        // The positions where a range may start, and the position of the parent there.
        let jumps = "SELECT r.seq, p.seq FROM record r LEFT JOIN record p ON p.session = $1 AND p.entry = r.parent \
                     WHERE r.session = $1 AND r.parent IS NOT NULL AND NOT r.follows \
                     UNION ALL SELECT r.seq, NULL FROM record r WHERE r.session = $1 AND r.parent IS NULL \
                     AND r.entry IS NOT NULL";
        let path = |db: Arc<Db>| async move {
            let sql = "SELECT seq FROM record WHERE session = $1 AND entry = $2";
            let Some(row) = db.row(sql, &[&session, &to.as_str()]).await? else { return Ok(Vec::new()) };
            let mut starts = BTreeMap::new();
            for row in db.rows(jumps, &[&session]).await? {
                starts.insert(row.try_get(0)?, row.try_get(1)?);
            }
            Ok(on_path(starts, row.try_get(0)?))
        };
        self.readers.read(path).await
    }
}
