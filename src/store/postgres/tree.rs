//! The tree as PostgreSQL stores it: its links, many with one statement.

use super::{
    fault::Fault,
    read,
    readers::Db,
    record::{self, COLUMNS, ENTRY, PARENT},
};
use crate::{
    StoredRecord,
    checksum::int,
    walk::{Candidates, Link, Links, MISPLACED, run_of},
};
use reseed_protocol::SessionId;
use std::collections::HashMap;
use tokio_postgres::Row;

/// The most bodies that one statement reads, and the bytes of them after which it ends.
const BODIES_MAX: usize = 1000;
const BODIES_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The columns of a [`Link`], of a record `r`.
const LINK: &str = "r.seq, r.entry, r.parent, octet_length(r.body), r.follows";

fn link(row: &Row) -> Result<Link, Fault> {
    Ok(Link {
        seq: row.try_get::<_, i64>(0)?.cast_unsigned(),
        entry: row.try_get(1)?,
        parent: row.try_get(2)?,
        body_bytes: usize::try_from(row.try_get::<_, i32>(3)?).unwrap_or_default(),
        follows: row.try_get(4)?,
    })
}

/// The entries of one session.
pub(super) struct Tree<'a> {
    db: &'a Db,
    session: &'a SessionId,
    number: i64,
}

impl<'a> Tree<'a> {
    /// Returns the tree of an existing session.
    pub(super) async fn of(db: &'a Db, session: &'a SessionId) -> Result<Self, Fault> {
        Ok(Self { db, session, number: read::number(db, session).await? })
    }

    fn damaged(&self, link: &Link, reason: &'static str) -> Fault {
        record::damaged(self.session, link.seq, reason)
    }

    /// Adds the records of links, which are few and small enough for one statement.
    async fn add(&self, links: &[Link], records: &mut Vec<StoredRecord>) -> Result<(), Fault> {
        let seqs: Vec<i64> = links.iter().map(|link| int(link.seq)).collect();
        let sql = format!("SELECT {COLUMNS} FROM record WHERE session = $1 AND seq = ANY($2::bigint[])");
        let mut rows = HashMap::new();
        for row in self.db.rows(&sql, &[&self.number, &seqs]).await? {
            rows.insert(row.try_get::<_, i64>(0)?, row);
        }
        for link in links {
            let row = rows.get(&int(link.seq)).ok_or_else(|| self.damaged(link, "it is missing"))?;
            records.push(record::decode(self.session, row)?);
            let columns: [Option<&str>; 2] = [row.try_get(ENTRY)?, row.try_get(PARENT)?];
            if columns != [Some(link.entry.as_str()), link.parent.as_deref()] {
                return Err(self.damaged(link, MISPLACED));
            }
        }
        Ok(())
    }
}

impl Links for Tree<'_> {
    type Error = Fault;

    fn session(&self) -> &SessionId {
        self.session
    }

    async fn run(&self, entry: &str, limit: usize) -> Result<Vec<Link>, Fault> {
        let sql = format!(
            "SELECT {LINK} FROM record r WHERE r.session = $1 AND r.entry IS NOT NULL \
             AND r.seq <= (SELECT seq FROM record WHERE session = $1 AND entry = $2) ORDER BY r.seq DESC LIMIT $3"
        );
        let rows = self.db.rows(&sql, &[&self.number, &entry, &int(limit as u64)]).await?;
        run_of(self.session, entry, rows.iter().map(link))
    }

    async fn after(&self, seq: u64, limit: usize) -> Result<Vec<Link>, Fault> {
        let sql = format!(
            "SELECT {LINK} FROM record r WHERE r.session = $1 AND r.seq > $2 AND r.entry IS NOT NULL \
             ORDER BY r.seq LIMIT $3"
        );
        let rows = self.db.rows(&sql, &[&self.number, &int(seq), &int(limit as u64)]).await?;
        rows.iter().map(link).collect()
    }

    async fn candidates(&self, parents: &[(u64, &str)]) -> Result<Vec<Candidates>, Fault> {
        let (seqs, ids): (Vec<i64>, Vec<&str>) = parents.iter().map(|(seq, entry)| (int(*seq), *entry)).unzip();
        let sql = format!(
            "SELECT {LINK}, i.at, false FROM unnest($2::bigint[], $3::text[]) WITH ORDINALITY AS i(seq, id, at) \
             JOIN record r ON r.session = $1 AND r.parent = i.id AND r.parent IS NOT NULL AND NOT r.follows \
             UNION ALL \
             SELECT {LINK}, i.at, true FROM unnest($2::bigint[], $3::text[]) WITH ORDINALITY AS i(seq, id, at) \
             JOIN LATERAL (SELECT * FROM record WHERE session = $1 AND seq > i.seq AND entry IS NOT NULL \
             ORDER BY seq LIMIT 1) r ON true"
        );
        let mut found = vec![(Vec::new(), None); parents.len()];
        for row in &self.db.rows(&sql, &[&self.number, &seqs, &ids]).await? {
            let at = usize::try_from(row.try_get::<_, i64>(5)? - 1).unwrap_or(usize::MAX);
            let Some((children, next)) = found.get_mut(at) else { continue };
            match row.try_get(6)? {
                true => *next = Some(link(row)?),
                false => children.push(link(row)?),
            }
        }
        Ok(found)
    }

    async fn roots(&self) -> Result<Vec<Link>, Fault> {
        let sql = format!(
            "SELECT {LINK} FROM record r WHERE r.session = $1 AND r.parent IS NULL AND r.entry IS NOT NULL \
             UNION ALL \
             SELECT {LINK} FROM record r WHERE r.session = $1 AND r.parent IS NOT NULL AND NOT r.follows \
             AND NOT EXISTS (SELECT FROM record a WHERE a.session = $1 AND a.entry = r.parent)"
        );
        self.db.rows(&sql, &[&self.number]).await?.iter().map(link).collect()
    }

    async fn records(&self, links: &[Link]) -> Result<Vec<StoredRecord>, Fault> {
        let (mut records, mut rest) = (Vec::with_capacity(links.len()), links);
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |link: &&Link| {
                bytes += link.body_bytes;
                bytes <= BODIES_BYTES_MAX
            };
            let some;
            (some, rest) = rest.split_at(rest.iter().take(BODIES_MAX).take_while(fits).count().max(1));
            self.add(some, &mut records).await?;
        }
        Ok(records)
    }
}
