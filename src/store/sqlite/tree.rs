//! The tree as SQLite stores it: its links.
//!
//! A child that follows its parent in the log is found there, all others in an index. Neither has a checksum, but each
//! record found has one and is compared with its link.

use super::{
    Fault,
    read::{self, int},
    record::{self, COLUMNS, ENTRY, PARENT},
};
use crate::{
    StoredRecord,
    walk::{Candidates, Link, Links, MISPLACED, run_of},
};
use reseed_protocol::SessionId;
use rusqlite::{Connection, Params, Row};
use std::future::ready;

/// The columns of a [`Link`]. The length of a body is in the header of its row, so the body itself is not read.
const LINK: &str = "seq, entry, parent, octet_length(body), follows";

/// The entries of one session.
pub(super) struct Tree<'a> {
    db: &'a Connection,
    session: &'a SessionId,
    number: i64,
}

/// The links up to an entry, newest first.
pub(super) fn run_sql() -> String {
    format!(
        "SELECT {LINK} FROM record WHERE session = ?1 AND entry IS NOT NULL \
         AND seq <= (SELECT seq FROM record WHERE session = ?1 AND entry = ?2) ORDER BY seq DESC LIMIT ?3"
    )
}

/// The links after a `seq`.
pub(super) fn after_sql() -> String {
    format!("SELECT {LINK} FROM record WHERE session = ?1 AND seq > ?2 AND entry IS NOT NULL ORDER BY seq LIMIT ?3")
}

/// The children of an entry that do not follow it in the log.
pub(super) fn children_sql() -> String {
    format!("SELECT {LINK} FROM record WHERE session = ?1 AND parent = ?2 AND follows IS NULL ORDER BY seq")
}

/// The roots. Roots with a missing parent are rare and not marked. But an entry that follows its parent is never a
/// root, so only the parents of the others are looked up.
pub(super) fn roots_sql() -> String {
    format!(
        "SELECT {LINK} FROM record INDEXED BY record_root WHERE session = ?1 AND parent IS NULL AND entry IS NOT NULL \
         UNION ALL \
         SELECT {LINK} FROM record AS below WHERE session = ?1 AND parent > '' AND follows IS NULL \
         AND NOT EXISTS (SELECT 1 FROM record AS above WHERE above.session = ?1 AND above.entry = below.parent)"
    )
}

fn link(row: &Row<'_>) -> Result<Link, Fault> {
    Ok(Link {
        seq: row.get::<_, i64>(0)?.cast_unsigned(),
        entry: row.get(1)?,
        parent: row.get(2)?,
        body_bytes: usize::try_from(row.get::<_, Option<i64>>(3)?.unwrap_or_default()).unwrap_or_default(),
        follows: row.get::<_, Option<i64>>(4)? == Some(1),
    })
}

impl<'a> Tree<'a> {
    /// Returns the tree of an existing session.
    pub(super) fn of(db: &'a Connection, session: &'a SessionId) -> Result<Self, Fault> {
        Ok(Self { db, session, number: read::number(db, session)? })
    }

    fn links(&self, sql: &str, params: impl Params) -> Result<Vec<Link>, Fault> {
        self.db.prepare_cached(sql)?.query_and_then(params, link)?.collect()
    }

    fn run_now(&self, entry: &str, limit: usize) -> Result<Vec<Link>, Fault> {
        let mut statement = self.db.prepare_cached(&run_sql())?;
        let links = statement.query_and_then((self.number, entry, int(limit as u64)), link)?;
        run_of(self.session, entry, links)
    }

    fn candidates_now(&self, parents: &[(u64, &str)]) -> Result<Vec<Candidates>, Fault> {
        let (children, after) = (children_sql(), after_sql());
        let each = parents.iter().map(|(seq, entry)| {
            let next = self.links(&after, (self.number, int(*seq), 1))?.pop();
            Ok((self.links(&children, (self.number, entry))?, next))
        });
        each.collect()
    }

    fn records_now(&self, links: &[Link]) -> Result<Vec<StoredRecord>, Fault> {
        let sql = format!("SELECT {COLUMNS} FROM record WHERE session = ?1 AND seq = ?2");
        let mut statement = self.db.prepare_cached(&sql)?;
        let each = links.iter().map(|link| {
            let mut rows = statement.query((self.number, int(link.seq)))?;
            let missing = || record::damaged(self.session, link.seq, "it is missing");
            let row = rows.next()?.ok_or_else(missing)?;
            let record = record::decode(self.session, row)?;
            let is = |column, wanted: Option<&str>| {
                row.get_ref(column).is_ok_and(|found| found.as_str_or_null().ok().flatten() == wanted)
            };
            match is(ENTRY, Some(&link.entry)) && is(PARENT, link.parent.as_deref()) {
                true => Ok(record),
                false => Err(record::damaged(self.session, link.seq, MISPLACED)),
            }
        });
        each.collect()
    }
}

impl Links for Tree<'_> {
    type Error = Fault;

    fn session(&self) -> &SessionId {
        self.session
    }

    fn run(&self, entry: &str, limit: usize) -> impl Future<Output = Result<Vec<Link>, Fault>> + Send {
        ready(self.run_now(entry, limit))
    }

    fn after(&self, seq: u64, limit: usize) -> impl Future<Output = Result<Vec<Link>, Fault>> + Send {
        ready(self.links(&after_sql(), (self.number, int(seq), int(limit as u64))))
    }

    fn candidates(&self, parents: &[(u64, &str)]) -> impl Future<Output = Result<Vec<Candidates>, Fault>> + Send {
        ready(self.candidates_now(parents))
    }

    fn roots(&self) -> impl Future<Output = Result<Vec<Link>, Fault>> + Send {
        ready(self.links(&roots_sql(), [self.number]))
    }

    fn records(&self, links: &[Link]) -> impl Future<Output = Result<Vec<StoredRecord>, Fault>> + Send {
        ready(self.records_now(links))
    }
}
