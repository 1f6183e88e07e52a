//! Queries that follow the tree, shared by all stores: a path, the children of an entry, the subtree below it, and its
//! newest leaf. A walk first reads links, which have no bodies, and then the bodies of the entries that it returns.
//!
//! Nearly every entry is a child of the previous entry in the log, and is marked as such (`follows`). Databases index
//! only the others by their parent. An entry whose parent is not in the session counts as a root. Entries that are
//! each other's ancestors (possible in an imported file) have no root; a walk that meets such a cycle visits each entry
//! once.

use super::{EntryQuery, Error, StoredNode, StoredRecord, page::EntriesPage, record::damaged};
use reseed_protocol::{EntryId, SessionId};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    pin::pin,
    task::{Context, Poll, Waker},
};

/// Selects the part of a tree to read, breadth first: an entry or the roots, then their children, and so on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubtreeQuery {
    /// The root of the subtree; `None` for all roots of the session.
    pub root: Option<EntryId>,
    /// Levels below the root; 0 for the root alone.
    pub depth: u32,
    /// The most nodes to return. Child counts show what was left out.
    pub limit: u32,
    /// No node is added once the bodies read reach this many bytes, so that a tree of large entries is never held in
    /// memory as a whole.
    pub bytes_max: usize,
}

/// The number of links in the first run that a path reads, and in the later ones. Most paths are short.
const RUN_FIRST: usize = 128;
const RUN: usize = 1000;

/// The number of levels of a subtree that are read one by one before all links are. Most requested trees are small.
const LEVELS_ALONE: u32 = 32;

/// The most links that are read for each requested entry of a subtree; above that, reading level by level is faster.
const LINKS_FOR_EACH: u32 = 128;

/// The entry followed its parent in the log, but the previous entry is now a different one.
const ORPHANED: &str = "the entry before it is missing";

/// The index leads to an intact record, but not to the requested one.
pub(crate) const MISPLACED: &str = "index mismatch";

/// An entry without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) seq: u64,
    pub(crate) entry: String,
    pub(crate) parent: Option<String>,
    pub(crate) body_bytes: usize,
    /// True if it is marked as a child of the previous entry in the log.
    pub(crate) follows: bool,
}

impl Link {
    fn node(&self) -> (u64, &str) {
        (self.seq, &self.entry)
    }

    fn check_follows(&self, session: &SessionId, before: &str) -> Result<(), Error> {
        match self.follows && self.parent.as_deref() != Some(before) {
            true => Err(damaged(session, self.seq, ORPHANED)),
            false => Ok(()),
        }
    }
}

/// The children of an entry that are not marked as following it, in any order and perhaps twice, and the next entry in
/// the log.
pub(crate) type Candidates = (Vec<Link>, Option<Link>);

/// Access to one session's entries. The reads of a store without a network are immediate; see [`immediate`].
pub(crate) trait Links {
    type Error: From<Error>;

    fn session(&self) -> &SessionId;

    /// Returns an entry and the entries before it in the log, newest first, as long as each is the parent of the one
    /// after it; at most `limit`. Returns none if the entry does not exist. [`run_of`] does this for rows.
    fn run(&self, entry: &str, limit: usize) -> impl Future<Output = Result<Vec<Link>, Self::Error>> + Send;

    /// Returns entries with larger `seq` in log order.
    fn after(&self, seq: u64, limit: usize) -> impl Future<Output = Result<Vec<Link>, Self::Error>> + Send;

    /// Returns where the children of each of these entries may be.
    fn candidates(&self, parents: &[(u64, &str)]) -> impl Future<Output = Result<Vec<Candidates>, Self::Error>> + Send;

    /// Returns the roots in any order: entries without a parent, and entries whose parent is not in the session.
    fn roots(&self) -> impl Future<Output = Result<Vec<Link>, Self::Error>> + Send;

    /// Reads the records of these links, in this order. A record with another entry or parent is [`MISPLACED`].
    fn records(&self, links: &[Link]) -> impl Future<Output = Result<Vec<StoredRecord>, Self::Error>> + Send;
}

/// Returns the result of a walk whose reads are all immediate.
pub(crate) fn immediate<T>(walk: impl Future<Output = T>) -> T {
    match pin!(walk).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("a walk waits only for its reads"),
    }
}

/// Takes the run that begins at `entry` from links in descending order of the log.
pub(crate) fn run_of<E: From<Error>>(
    session: &SessionId,
    entry: &str,
    mut links: impl Iterator<Item = Result<Link, E>>,
) -> Result<Vec<Link>, E> {
    let (mut run, mut want) = (Vec::new(), entry.to_owned());
    while let Some(link) = links.next().transpose()? {
        if link.entry != want {
            if run.is_empty() {
                return Err(damaged(session, link.seq, MISPLACED).into());
            }
            break;
        }
        let parent = link.parent.clone();
        run.push(link);
        let Some(parent) = parent else { break };
        want = parent;
    }
    Ok(run)
}

/// Answers a query that follows the tree; `None` for the others.
pub(crate) async fn entries<L: Links>(
    links: &L,
    query: &EntryQuery,
    bytes_max: usize,
) -> Result<Option<EntriesPage>, L::Error> {
    Ok(Some(match query {
        EntryQuery::Path { from, limit } => path(links, from, *limit, bytes_max).await?,
        EntryQuery::PathAfter { after, to, steps, limit } => {
            path_after(links, (after, to), *steps, *limit as usize, bytes_max).await?
        }
        EntryQuery::Children { of, after_seq, limit } => {
            let mut found = match of {
                None => roots(links).await?,
                Some(of) => {
                    // An entry that is not in the session has no child that follows it.
                    let seq = links.run(of.as_str(), 1).await?.first().map_or(u64::MAX, |link| link.seq);
                    children(links, &[(seq, of.as_str())]).await?.concat()
                }
            };
            found.retain(|link| link.seq > *after_seq);
            found.truncate(*limit as usize);
            fill(links, found, bytes_max).await?
        }
        EntryQuery::NewestLeaf { below } => match newest_leaf(links, below).await? {
            Some(leaf) => fill(links, vec![leaf], usize::MAX).await?,
            None => EntriesPage::default(),
        },
        EntryQuery::Log { .. } | EntryQuery::Kind { .. } => return Ok(None),
    }))
}

/// Reads the bodies of the first links that fit.
async fn fill<L: Links>(links: &L, mut chosen: Vec<Link>, bytes_max: usize) -> Result<EntriesPage, L::Error> {
    let mut bytes_left = bytes_max;
    let fits = |(at, link): &(usize, &Link)| {
        let fits = *at == 0 || bytes_left > 0 && link.body_bytes <= bytes_left;
        bytes_left = bytes_left.saturating_sub(link.body_bytes);
        fits
    };
    let count = chosen.iter().enumerate().take_while(fits).count();
    let cut = count < chosen.len();
    chosen.truncate(count);
    Ok(EntriesPage { records: links.records(&chosen).await?, cut })
}

/// How a walk towards the root ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// At the entry that it was to find.
    Found,
    /// At an entry without a parent.
    Root,
    /// At an entry whose parent is not in the session.
    Orphan,
    /// After its steps or bytes.
    Stopped,
}

/// Walks from an entry towards its root until it meets `until`, which counts as a step but is not returned. Returns at
/// most the last `kept` links, newest first. Stops once the bodies exceed `bytes_max`.
async fn back<L: Links>(
    links: &L,
    (from, until): (&EntryId, Option<&EntryId>),
    steps: u32,
    kept: usize,
    bytes_max: usize,
) -> Result<(VecDeque<Link>, End), L::Error> {
    let (mut path, mut want, mut bytes) = (VecDeque::new(), from.as_str().to_owned(), 0);
    let (mut left, mut most) = (steps as usize, RUN_FIRST);
    let is_found = |want: &str| until.is_some_and(|until| until.as_str() == want);
    // The first entry fits, however large; the one that does not fit is needed to tell.
    let is_spent = |left: usize, bytes: usize| bytes > bytes_max && steps as usize - left > 1;
    while left > 0 && !is_spent(left, bytes) {
        if is_found(&want) {
            return Ok((path, End::Found));
        }
        let run = links.run(&want, most.min(left)).await?;
        if run.is_empty() {
            return Ok((path, End::Orphan));
        }
        most = RUN;
        for link in run {
            let parent = link.parent.clone();
            (left, bytes) = (left - 1, bytes.saturating_add(link.body_bytes));
            path.push_back(link);
            if path.len() > kept.max(1) {
                path.pop_front();
            }
            let Some(parent) = parent else { return Ok((path, End::Root)) };
            want = parent;
            if is_found(&want) || is_spent(left, bytes) {
                break;
            }
        }
    }
    Ok((path, End::Stopped))
}

/// Reads the path from an entry to its root. A missing parent ends the path, unless it used to exist; `limit` ends the
/// path even if damage has created a cycle.
pub(crate) async fn path<L: Links>(
    links: &L,
    from: &EntryId,
    limit: u32,
    bytes_max: usize,
) -> Result<EntriesPage, L::Error> {
    let (path, end) = back(links, (from, None), limit, usize::MAX, bytes_max).await?;
    let last = path.back().cloned().filter(|_| end == End::Orphan);
    let page = fill(links, path.into(), bytes_max).await?;
    if let Some(last) = last.filter(|_| !page.cut) {
        last.check_follows(links.session(), "")?;
    }
    Ok(page)
}

/// Reads the path from `after`, which is left out, to `to`; see [`EntryQuery::PathAfter`].
async fn path_after<L: Links>(
    links: &L,
    (after, to): (&EntryId, &EntryId),
    steps: u32,
    limit: usize,
    bytes_max: usize,
) -> Result<EntriesPage, L::Error> {
    let (mut path, end) = back(links, (to, Some(after)), steps, limit, usize::MAX).await?;
    if end != End::Found {
        // Reading the entry at which the path ends shows whether the cause is damage.
        if let Some(last) = path.pop_back().filter(|_| end != End::Stopped) {
            links.records(std::slice::from_ref(&last)).await?;
            if end == End::Orphan {
                last.check_follows(links.session(), "")?;
            }
        }
        path.clear();
    }
    let mut path: Vec<Link> = path.into_iter().rev().collect();
    path.truncate(limit);
    fill(links, path, bytes_max).await
}

async fn roots<L: Links>(links: &L) -> Result<Vec<Link>, L::Error> {
    let mut roots = links.roots().await?;
    roots.sort_unstable_by_key(|link| link.seq);
    Ok(roots)
}

/// Returns the children of entries, in log order each.
async fn children<L: Links>(links: &L, parents: &[(u64, &str)]) -> Result<Vec<Vec<Link>>, L::Error> {
    let mut all = Vec::with_capacity(parents.len());
    for ((mut children, next), (_, parent)) in links.candidates(parents).await?.into_iter().zip(parents) {
        if let Some(next) = next {
            next.check_follows(links.session(), parent)?;
            children.extend((next.parent.as_deref() == Some(*parent)).then_some(next));
        }
        // Entries written by an older version are in the index even if they follow their parent.
        children.sort_unstable_by_key(|link| link.seq);
        children.dedup_by_key(|link| link.seq);
        all.push(children);
    }
    Ok(all)
}

/// The part of a tree that has been chosen so far.
struct Part {
    room: u32,
    bytes_left: usize,
    seen: HashSet<u64>,
    nodes: Vec<Link>,
}

impl Part {
    fn is_full(&self) -> bool {
        self.room == 0 || self.bytes_left == 0
    }

    /// Adds the entries of a level that fit.
    fn add(&mut self, links: impl IntoIterator<Item = Link>) {
        for link in links {
            if self.is_full() {
                break;
            }
            if self.seen.insert(link.seq) {
                self.room -= 1;
                self.bytes_left = self.bytes_left.saturating_sub(link.body_bytes);
                self.nodes.push(link);
            }
        }
    }
}

/// The children of every entry of a session.
type All = HashMap<String, Vec<Link>>;

/// Reads all links of a session; `None` if there are too many for a walk of `limit` entries, or if one is damaged.
async fn all<L: Links>(links: &L, limit: u32) -> Result<Option<All>, L::Error> {
    let (mut all, mut before, mut left) = (All::new(), (0, String::new()), limit.saturating_mul(LINKS_FOR_EACH));
    loop {
        let page = links.after(before.0, RUN).await?;
        let is_last = page.len() < RUN;
        for link in page {
            left = left.saturating_sub(1);
            if left == 0 || link.check_follows(links.session(), &before.1).is_err() {
                return Ok(None);
            }
            before = (link.seq, link.entry.clone());
            if let Some(parent) = link.parent.clone() {
                all.entry(parent).or_default().push(link);
            }
        }
        if is_last {
            return Ok(Some(all));
        }
    }
}

/// Reads the subtree that `query` selects; empty if its root does not exist. Finding the children of one level takes a
/// few statements, and a conversation has as many levels as entries, so a large part is read with all links.
pub(crate) async fn subtree<L: Links>(links: &L, query: &SubtreeQuery) -> Result<Vec<StoredNode>, L::Error> {
    let mut part = Part { room: query.limit, bytes_left: query.bytes_max, seen: HashSet::new(), nodes: Vec::new() };
    match &query.root {
        Some(root) => part.add(links.run(root.as_str(), 1).await?),
        None => part.add(roots(links).await?),
    }
    let (mut counts, mut known, mut levels) = (Vec::new(), None, 0);
    loop {
        // The nodes whose children are not known are those of the last level.
        let level: Vec<(u64, &str)> = part.nodes[counts.len()..].iter().map(Link::node).collect();
        if level.is_empty() {
            break;
        }
        if levels == LEVELS_ALONE {
            known = all(links, query.limit).await?;
        }
        let below: Vec<Vec<Link>> = match &known {
            Some(all) => level.iter().map(|(_, entry)| all.get(*entry).cloned().unwrap_or_default()).collect(),
            None => children(links, &level).await?,
        };
        counts.extend(below.iter().map(|children| children.len() as u64));
        if levels < query.depth && !part.is_full() {
            part.add(below.into_iter().flatten());
        }
        levels += 1;
    }
    let records = links.records(&part.nodes).await?;
    Ok(records.into_iter().zip(counts).map(|(record, child_count)| StoredNode { record, child_count }).collect())
}

/// Returns the newest entry without children at or below an entry. Except in some imported files, children come after
/// their parents, so one pass over the links after the entry suffices.
async fn newest_leaf<L: Links>(links: &L, below: &EntryId) -> Result<Option<Link>, L::Error> {
    let Some(top) = links.run(below.as_str(), 1).await?.pop() else { return Ok(None) };
    let mut inside = HashSet::from([top.entry.clone()]);
    let (mut newest, mut before) = (top.clone(), top.clone());
    loop {
        let page = links.after(before.seq, RUN).await?;
        let is_last = page.len() < RUN;
        for link in page {
            link.check_follows(links.session(), &before.entry)?;
            if link.parent.as_ref().is_some_and(|parent| inside.contains(parent)) {
                inside.insert(link.entry.clone());
                newest = link.clone();
            }
            before = link;
        }
        if is_last {
            break;
        }
    }
    match children(links, &[newest.node()]).await?.concat().is_empty() {
        true => Ok(Some(newest)),
        // A child comes before its parent.
        false => newest_leaf_by_links(links, top).await.map(Some),
    }
}

/// Finds the newest leaf by following all links. A cycle has no leaf; then it returns the entry at which it began.
async fn newest_leaf_by_links<L: Links>(links: &L, top: Link) -> Result<Link, L::Error> {
    let mut seen = HashSet::from([top.seq]);
    let (mut level, mut newest) = (vec![top.clone()], None::<Link>);
    while !level.is_empty() {
        let below = children(links, &level.iter().map(Link::node).collect::<Vec<_>>()).await?;
        for (link, children) in level.iter().zip(&below) {
            if children.is_empty() && newest.as_ref().is_none_or(|newest| newest.seq < link.seq) {
                newest = Some(link.clone());
            }
        }
        level = below.into_iter().flatten().filter(|link| seen.insert(link.seq)).collect();
    }
    Ok(newest.unwrap_or(top))
}
