//! The tree as PostgreSQL stores it: paths, children, subtrees.
//!
//! Nearly every entry is a child of the previous entry in the log, and is marked as such (`follows`). All others are
//! called *jumps* and are indexed by their parent. A walk finds the jumps that it needs in that index, level by level,
//! and reads everything else from ranges of the log.

use super::{
    fault::Fault,
    read::{self, bounded, bytes},
    readers::Db,
    record::{self, COLUMNS, ENTRY, PARENT},
};
use crate::{
    StoredNode, StoredRecord, SubtreeQuery,
    checksum::int,
    page::{EntriesPage, Filling},
};
use reseed_protocol::{EntryId, SessionId};
use std::collections::{HashMap, HashSet, VecDeque};
use tokio_postgres::Row;

/// The number of records in the first range that a path reads, and in the later ones. Most paths are short.
const RANGE_FIRST: u32 = 128;
const RANGE: u32 = 1000;

/// The number of bodies of a subtree that one statement reads.
const BODIES: usize = 256;

/// The bytes of bodies that one statement reads beyond those that a query asks for.
const BODIES_BYTES: i64 = 4 * 1024 * 1024;

/// The entry followed its parent in the log, but the previous entry is now a different one.
const ORPHANED: &str = "the entry before it is missing";

/// The index leads to an intact record, but not to the requested one.
const MISPLACED: &str = "index mismatch";

/// The entries of one session.
pub(super) struct Tree<'a> {
    db: &'a Db,
    session: &'a SessionId,
    number: i64,
}

/// An entry without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Link {
    seq: i64,
    entry: String,
    parent: Option<String>,
    body_bytes: i64,
}

impl Link {
    fn of(row: &Row) -> Result<Self, Fault> {
        Ok(Self {
            seq: row.try_get(0)?,
            entry: row.try_get(1)?,
            parent: row.try_get(2)?,
            body_bytes: row.try_get::<_, i32>(3)?.into(),
        })
    }
}

/// The columns of a [`Link`], of a record `r`.
const LINK: &str = "r.seq, r.entry, r.parent, octet_length(r.body)";

impl<'a> Tree<'a> {
    /// Returns the tree of an existing session.
    pub(super) async fn of(db: &'a Db, session: &'a SessionId) -> Result<Self, Fault> {
        Ok(Self { db, session, number: read::number(db, session).await? })
    }

    pub(super) fn new(db: &'a Db, session: &'a SessionId, number: i64) -> Self {
        Self { db, session, number }
    }

    fn damaged(&self, seq: i64, reason: &'static str) -> Fault {
        record::damaged(self.session, seq.cast_unsigned(), reason)
    }

    /// Returns an entry and its `seq`, without its body.
    async fn link(&self, entry: &str) -> Result<Option<Link>, Fault> {
        let sql = format!("SELECT {LINK} FROM record r WHERE r.session = $1 AND r.entry = $2");
        self.db.row(&sql, &[&self.number, &entry]).await?.as_ref().map(Link::of).transpose()
    }

    /// Reads the path from an entry to its root. It reads the log backwards while each entry is a child of the previous
    /// one, and otherwise jumps to the parent. A missing parent ends the path, unless it used to exist; `limit` ends
    /// the path even if damage has created a cycle.
    pub(super) async fn path(&self, from: &EntryId, limit: u32, bytes_max: usize) -> Result<EntriesPage, Fault> {
        let mut page = Filling::new(bytes_max);
        let mut next = Some(from.as_str().to_owned());
        let (mut range, mut left, mut bytes_left) = (RANGE_FIRST, limit, bytes_max);
        let at = bounded(
            COLUMNS,
            "seq <= (SELECT seq FROM record WHERE session = $1 AND entry = $3) AND entry IS NOT NULL \
             ORDER BY seq DESC LIMIT $4",
            "DESC",
        );
        // The parent that comes next, and the `seq` of the entry that names it.
        let mut below: Option<i64> = None;
        while let Some(entry) = next.take().filter(|_| left > 0) {
            let most = bytes(bytes_left).min(BODIES_BYTES);
            let rows = self.db.rows(&at, &[&self.number, &most, &entry, &i64::from(range.min(left))]).await?;
            if rows.is_empty() {
                if let Some(below) = below {
                    self.check_orphan(below).await?;
                }
                break;
            }
            let mut want = entry;
            for (n, row) in rows.iter().enumerate() {
                let found: &str = row.try_get(ENTRY)?;
                if found != want {
                    let seq = row.try_get(0)?;
                    if n == 0 {
                        return Err(self.damaged(seq, MISPLACED));
                    }
                    // The path leaves the range here and continues elsewhere.
                    next = Some(want);
                    break;
                }
                if !page.add(|| record::decode(self.session, row))? {
                    return Ok(page.done());
                }
                left -= 1;
                bytes_left = bytes_left.saturating_sub(row.try_get::<_, &[u8]>(6)?.len());
                below = Some(row.try_get(0)?);
                match row.try_get::<_, Option<&str>>(PARENT)? {
                    Some(parent) => want = parent.to_owned(),
                    None => return Ok(page.done()),
                }
                if n + 1 == rows.len() {
                    next = Some(want.clone());
                }
            }
            range = RANGE;
        }
        Ok(page.done())
    }

    /// Checks that the entry at a `seq` may have a missing parent.
    async fn check_orphan(&self, seq: i64) -> Result<(), Fault> {
        let sql = "SELECT follows FROM record WHERE session = $1 AND seq = $2";
        match self.db.row(sql, &[&self.number, &seq]).await? {
            Some(row) if row.try_get(0)? => Err(self.damaged(seq, ORPHANED)),
            _ => Ok(()),
        }
    }

    /// Reads the path from `after`, which is left out, to `to`, oldest first.
    pub(super) async fn path_after(
        &self,
        (after, to): (&EntryId, &EntryId),
        steps: u32,
        limit: u32,
        bytes_max: usize,
    ) -> Result<EntriesPage, Fault> {
        let places = self.places_after((after, to), steps, limit).await?;
        let mut page = Filling::new(bytes_max);
        for places in places.chunks(BODIES) {
            let places: Vec<(i64, Option<&str>)> =
                places.iter().map(|(seq, entry)| (*seq, Some(entry.as_str()))).collect();
            if !self.add_places(&places, ENTRY, &mut page).await? {
                break;
            }
        }
        Ok(page.done())
    }

    /// Returns the first positions of the path after `after`, found by walking back from `to`.
    async fn places_after(
        &self,
        (after, to): (&EntryId, &EntryId),
        steps: u32,
        limit: u32,
    ) -> Result<Vec<(i64, String)>, Fault> {
        let sql = format!(
            "SELECT {LINK} FROM record r WHERE r.session = $1 AND r.entry IS NOT NULL \
             AND r.seq <= (SELECT seq FROM record WHERE session = $1 AND entry = $2) ORDER BY r.seq DESC LIMIT $3"
        );
        let mut found: VecDeque<(i64, String)> = VecDeque::new();
        let (mut want, mut left, mut range) = (to.as_str().to_owned(), steps, RANGE_FIRST);
        while left > 0 {
            if want == after.as_str() {
                return Ok(found.into());
            }
            let rows = self.db.rows(&sql, &[&self.number, &want, &i64::from(range.min(left))]).await?;
            if rows.is_empty() {
                if let Some((below, _)) = found.front() {
                    self.check_orphan(*below).await?;
                }
                break;
            }
            range = RANGE;
            for (n, row) in rows.iter().enumerate() {
                let link = Link::of(row)?;
                if link.entry != want && n == 0 {
                    return Err(self.damaged(link.seq, MISPLACED));
                }
                if link.entry != want {
                    break;
                }
                left -= 1;
                found.push_front((link.seq, link.entry));
                found.truncate(limit.max(1) as usize);
                let Some(parent) = link.parent else {
                    return Ok(Vec::new());
                };
                want = parent;
                if want == after.as_str() {
                    found.truncate(limit as usize);
                    // Reaching `after` counts as a step.
                    return Ok(if left > 0 { found.into() } else { Vec::new() });
                }
            }
        }
        Ok(Vec::new())
    }

    /// Adds the records at some positions to a page, in the order given, and checks one column of each. Returns false
    /// if the page is full.
    async fn add_places(
        &self,
        places: &[(i64, Option<&str>)],
        column: usize,
        page: &mut Filling,
    ) -> Result<bool, Fault> {
        let seqs: Vec<i64> = places.iter().map(|(seq, _)| *seq).collect();
        let sql = bounded(COLUMNS, "seq = ANY($3::bigint[])", "ASC");
        let rows = self.db.rows(&sql, &[&self.number, &BODIES_BYTES, &seqs]).await?;
        let found: HashMap<i64, Row> =
            rows.into_iter().map(|row| Ok((row.try_get(0)?, row))).collect::<Result<_, Fault>>()?;
        for (seq, wanted) in places {
            let row = match found.get(seq) {
                Some(row) => row,
                // It was left out because of the bytes before it, or is lost.
                None => &self.record_at(*seq).await?,
            };
            if let Some(wanted) = wanted
                && row.try_get::<_, Option<&str>>(column)? != Some(wanted)
            {
                return Err(self.damaged(*seq, MISPLACED));
            }
            if !page.add(|| record::decode(self.session, row))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn record_at(&self, seq: i64) -> Result<Row, Fault> {
        let sql = format!("SELECT {COLUMNS} FROM record WHERE session = $1 AND seq = $2");
        let row = self.db.row(&sql, &[&self.number, &seq]).await?;
        row.ok_or_else(|| self.damaged(seq, "it is missing"))
    }

    /// Returns the children of entries, in log order each. The child that follows an entry is looked up in the log, the
    /// others in the index by parent.
    async fn children_of(&self, parents: &[(i64, &str)]) -> Result<Vec<Vec<Link>>, Fault> {
        let (seqs, ids): (Vec<i64>, Vec<&str>) = parents.iter().copied().unzip();
        let sql = format!(
            "SELECT {LINK}, i.at, false FROM unnest($2::bigint[], $3::text[]) WITH ORDINALITY AS i(seq, id, at) \
             JOIN record r ON r.session = $1 AND r.parent = i.id AND r.parent IS NOT NULL AND NOT r.follows \
             UNION ALL \
             SELECT {LINK}, i.at, true FROM unnest($2::bigint[], $3::text[]) WITH ORDINALITY AS i(seq, id, at) \
             JOIN LATERAL (SELECT * FROM record WHERE session = $1 AND seq > i.seq AND entry IS NOT NULL \
             ORDER BY seq LIMIT 1) r ON r.follows"
        );
        let rows = self.db.rows(&sql, &[&self.number, &seqs, &ids]).await?;
        let mut children = vec![Vec::new(); parents.len()];
        for row in &rows {
            let (link, follows) = (Link::of(row)?, row.try_get(5)?);
            let at = usize::try_from(row.try_get::<_, i64>(4)? - 1).unwrap_or(usize::MAX);
            let Some((children, (_, id))) = children.get_mut(at).zip(parents.get(at)) else { continue };
            if follows && link.parent.as_deref() != Some(id) {
                return Err(self.damaged(link.seq, ORPHANED));
            }
            children.push(link);
        }
        children.iter_mut().for_each(|links: &mut Vec<Link>| links.sort_by_key(|link| link.seq));
        Ok(children)
    }

    /// Returns the roots in log order: entries without a parent, and entries whose parent is not in the session. An
    /// entry that follows its parent is never a root, so only the parents of the others are looked up.
    async fn roots(&self) -> Result<Vec<Link>, Fault> {
        let sql = format!(
            "SELECT {LINK} FROM record r WHERE r.session = $1 AND r.parent IS NULL AND r.entry IS NOT NULL \
             UNION ALL \
             SELECT {LINK} FROM record r WHERE r.session = $1 AND r.parent IS NOT NULL AND NOT r.follows \
             AND NOT EXISTS (SELECT FROM record a WHERE a.session = $1 AND a.entry = r.parent)"
        );
        let rows = self.db.rows(&sql, &[&self.number]).await?;
        let mut roots: Vec<Link> = rows.iter().map(Link::of).collect::<Result<_, _>>()?;
        roots.sort_by_key(|link| link.seq);
        Ok(roots)
    }

    /// Reads children of an entry, or roots, in log order.
    pub(super) async fn children(
        &self,
        of: Option<&EntryId>,
        after_seq: u64,
        limit: u32,
        bytes_max: usize,
    ) -> Result<EntriesPage, Fault> {
        let mut links = match of {
            None => self.roots().await?,
            Some(of) => {
                // An entry that is not in the session has no child that follows it.
                let seq = self.link(of.as_str()).await?.map_or(i64::MAX, |link| link.seq);
                self.children_of(&[(seq, of.as_str())]).await?.pop().unwrap_or_default()
            }
        };
        links.retain(|link| link.seq > int(after_seq));
        links.truncate(limit as usize);
        let mut page = Filling::new(bytes_max);
        for links in links.chunks(BODIES) {
            let places: Vec<(i64, Option<&str>)> =
                links.iter().map(|link| (link.seq, of.and(link.parent.as_deref()))).collect();
            if !self.add_places(&places, PARENT, &mut page).await? {
                break;
            }
        }
        Ok(page.done())
    }

    /// Reads a part of the tree, breadth first; empty if its root does not exist.
    pub(super) async fn subtree(&self, query: &SubtreeQuery) -> Result<Vec<StoredNode>, Fault> {
        let mut part =
            Part { room: query.limit, bytes_left: bytes(query.bytes_max), seen: HashSet::new(), nodes: Vec::new() };
        let first = match &query.root {
            Some(root) => self.link(root.as_str()).await?.into_iter().collect(),
            None => self.roots().await?,
        };
        let mut level: Vec<Link> = part.add(first);
        for _ in 0..query.depth {
            if level.is_empty() || part.is_full() {
                break;
            }
            let parents: Vec<(i64, &str)> = level.iter().map(|link| (link.seq, link.entry.as_str())).collect();
            let children = self.children_of(&parents).await?;
            level = part.add(children.into_iter().flatten().collect());
        }
        let nodes = part.nodes;
        let mut page = Filling::new(usize::MAX);
        let mut counts = Vec::with_capacity(nodes.len());
        for links in nodes.chunks(BODIES) {
            let places: Vec<(i64, Option<&str>)> =
                links.iter().map(|link| (link.seq, Some(link.entry.as_str()))).collect();
            self.add_places(&places, ENTRY, &mut page).await?;
            let parents: Vec<(i64, &str)> = links.iter().map(|link| (link.seq, link.entry.as_str())).collect();
            counts.extend(self.child_counts(&parents).await?);
        }
        let records = page.done().records.into_iter();
        Ok(records.zip(counts).map(|(record, child_count)| StoredNode { record, child_count }).collect())
    }

    /// Returns the number of children of each entry.
    async fn child_counts(&self, parents: &[(i64, &str)]) -> Result<Vec<u64>, Fault> {
        let (seqs, ids): (Vec<i64>, Vec<&str>) = parents.iter().copied().unzip();
        let sql = "SELECT (SELECT count(*) FROM record r WHERE r.session = $1 AND r.parent = i.id \
                   AND r.parent IS NOT NULL AND NOT r.follows) + coalesce((SELECT f.follows::int FROM \
                   (SELECT follows FROM record WHERE session = $1 AND seq > i.seq AND entry IS NOT NULL \
                   ORDER BY seq LIMIT 1) f), 0) \
                   FROM unnest($2::bigint[], $3::text[]) WITH ORDINALITY AS i(seq, id, at) ORDER BY i.at";
        let rows = self.db.rows(sql, &[&self.number, &seqs, &ids]).await?;
        rows.iter().map(|row| Ok(row.try_get::<_, i64>(0)?.cast_unsigned())).collect()
    }

    /// Returns the newest entry without children at or below an entry. Except in some imported files, children come
    /// after their parents, so one pass over the links after the entry suffices.
    pub(super) async fn newest_leaf(&self, below: &EntryId) -> Result<Option<StoredRecord>, Fault> {
        let Some(top) = self.link(below.as_str()).await? else { return Ok(None) };
        let sql = format!(
            "SELECT {LINK} FROM record r WHERE r.session = $1 AND r.seq > $2 AND r.entry IS NOT NULL \
             ORDER BY r.seq LIMIT $3"
        );
        let mut inside = HashSet::from([top.entry.clone()]);
        let (mut newest, mut after) = (top.clone(), top.seq);
        loop {
            let rows = self.db.rows(&sql, &[&self.number, &after, &i64::from(RANGE)]).await?;
            for row in &rows {
                let link = Link::of(row)?;
                after = link.seq;
                if link.parent.as_ref().is_some_and(|parent| inside.contains(parent)) {
                    inside.insert(link.entry.clone());
                    newest = link;
                }
            }
            if rows.len() < RANGE as usize {
                break;
            }
        }
        if !self.children_of(&[(newest.seq, &newest.entry)]).await?.concat().is_empty() {
            // A child comes before its parent.
            newest = self.newest_leaf_by_links(top).await?;
        }
        let mut page = Filling::new(usize::MAX);
        self.add_places(&[(newest.seq, Some(&newest.entry))], ENTRY, &mut page).await?;
        Ok(page.done().records.pop())
    }

    /// Finds the newest leaf by following all links. A cycle has no leaf; then it returns the entry at which it began.
    async fn newest_leaf_by_links(&self, top: Link) -> Result<Link, Fault> {
        let mut seen = HashSet::from([top.seq]);
        let (mut level, mut newest) = (vec![top.clone()], None::<Link>);
        while !level.is_empty() {
            let parents: Vec<(i64, &str)> = level.iter().map(|link| (link.seq, link.entry.as_str())).collect();
            let children = self.children_of(&parents).await?;
            for (link, children) in level.iter().zip(&children) {
                if children.is_empty() && newest.as_ref().is_none_or(|newest| newest.seq < link.seq) {
                    newest = Some(link.clone());
                }
            }
            level = children.into_iter().flatten().filter(|link| seen.insert(link.seq)).collect();
        }
        Ok(newest.unwrap_or(top))
    }
}

/// The part of a tree that has been chosen so far.
struct Part {
    room: u32,
    bytes_left: i64,
    seen: HashSet<i64>,
    nodes: Vec<Link>,
}

impl Part {
    fn is_full(&self) -> bool {
        self.room == 0 || self.bytes_left == 0
    }

    /// Adds the entries of a level that fit, and returns them.
    fn add(&mut self, links: Vec<Link>) -> Vec<Link> {
        let before = self.nodes.len();
        for link in links {
            if self.is_full() {
                break;
            }
            if self.seen.insert(link.seq) {
                self.room -= 1;
                self.bytes_left = (self.bytes_left - link.body_bytes).max(0);
                self.nodes.push(link);
            }
        }
        self.nodes[before..].to_vec()
    }
}
