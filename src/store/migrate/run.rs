//! One run of a migration, from any source to any target.

mod complete;

use super::{
    Digest, MigrateError, Size,
    error::Damaged,
    rows::{Hasher, Listed, Record, Session, User},
    side::{Begun, Source, Target},
    watch::{Watched, names, watch},
};
use crate::{Database, Error, Part, epoch::new_epoch};
use reseed_protocol::SessionId;
use std::{collections::BTreeSet, fs};

/// The options of a migration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Leaves out damaged sessions instead of failing.
    pub skip_damaged: bool,
}

/// The progress of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The migration checks whether the servers that a database lists are still alive.
    Watching {
        /// `source` or `target`.
        side: &'static str,
        /// The servers' names.
        servers: String,
        /// The time that this takes, in seconds.
        secs: u64,
    },
    /// The migration copies and verifies sessions.
    Copying {
        /// The size of the source; marks are not counted in advance.
        of: Size,
        /// The part of it that is done.
        done: Size,
    },
}

/// The result of a migration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Migrated {
    /// The size of the verified part of the target.
    pub verified: Size,
    /// The digest of everything verified, the same on both sides.
    pub digest: Digest,
    /// The number of sessions that an earlier run had copied, and that were still equal.
    pub kept: u64,
    /// The number of sessions that an earlier run had copied, and that were copied again.
    pub replaced: u64,
    /// The number of sessions that an earlier run had copied, and that the source no longer has.
    pub removed: u64,
    /// The damaged sessions that were left out.
    pub damaged: Damaged,
}

pub(super) async fn run(
    (source, target): (&mut dyn Source, &mut dyn Target),
    from: &Database,
    options: Options,
    progress: &mut (dyn FnMut(&Progress) + Send),
) -> Result<Migrated, MigrateError> {
    let mut run = Run { source, target, progress, options, of: Size::default(), done: Size::default() };
    let source_users = run.settled("source").await?;
    let begun = run.target.begin(&name_of(from)).await.map_err(at("mark the target"))?;
    match begun {
        Begun::New | Begun::Again => {}
        Begun::Other(source_name) => return Err(MigrateError::Other { source_name }),
        Begun::Full => return run.complete(&source_users).await,
    }
    let target_users = match run.settled("target").await {
        Err(error) if begun == Begun::New => {
            // This leaves the target as it was.
            run.target.finish().await.map_err(at("write to the target"))?;
            return Err(error);
        }
        users => users?,
    };
    run.target.sweep().await.map_err(at("clear the target"))?;
    let mut migrated = run.all().await?;
    // A server that began to use the target meanwhile may have acknowledged writes. Those are not removed.
    run.still_unused("target", &target_users).await?;
    migrated.removed = run.remove_others().await?;
    run.target.sweep().await.map_err(at("clear the target"))?;
    run.unchanged(&migrated.skipped, (&source_users, &target_users)).await?;
    let Totals { verified, digest, kept, replaced, removed, damaged, .. } = migrated;
    if damaged.count > 0 && !options.skip_damaged {
        return Err(MigrateError::Damaged(damaged));
    }
    run.target.finish().await.map_err(at("complete the target"))?;
    Ok(Migrated { verified, digest, kept, replaced, removed, damaged })
}

/// Returns the name under which the target remembers its source.
fn name_of(database: &Database) -> String {
    match database {
        Database::Sqlite(path) => fs::canonicalize(path).unwrap_or_else(|_| path.clone()).display().to_string(),
        Database::Postgres(_) | Database::Memory => database.to_string(),
    }
}

/// Returns the id of a session, unless damage has made it invalid.
fn id_of(listed: &Listed) -> Result<SessionId, Halt> {
    let invalid = |_| Halt::Damaged(format!("the id of session number {} is not valid", listed.number));
    listed.id.parse().map_err(invalid)
}

fn at(doing: &'static str) -> impl Fn(Error) -> MigrateError {
    move |error| MigrateError::Store { doing, error }
}

struct Run<'a> {
    source: &'a mut dyn Source,
    target: &'a mut dyn Target,
    progress: &'a mut (dyn FnMut(&Progress) + Send),
    options: Options,
    of: Size,
    done: Size,
}

/// The totals of a run so far.
struct Totals {
    verified: Size,
    digest: Digest,
    kept: u64,
    replaced: u64,
    removed: u64,
    damaged: Damaged,
    /// The numbers of damaged sessions.
    skipped: BTreeSet<i64>,
}

/// How a session got into the target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    Kept,
    Copied,
    Replaced,
}

impl Run<'_> {
    /// Returns the servers that a database lists, after checking that none of them is alive.
    async fn settled(&mut self, side: &'static str) -> Result<Vec<User>, MigrateError> {
        let database: &mut dyn Source = if side == "source" { &mut *self.source } else { &mut *self.target };
        let progress = &mut self.progress;
        let announce = &mut |servers, secs| progress(&Progress::Watching { side, servers, secs });
        match watch(database, announce).await.map_err(at("list the servers"))? {
            Watched::Silent(users) => Ok(users),
            Watched::Alive(servers) => Err(MigrateError::InUse { side, servers }),
        }
    }

    async fn users(&mut self, side: &'static str) -> Result<Vec<User>, MigrateError> {
        let users = if side == "source" { self.source.users().await } else { self.target.users().await };
        users.map_err(at("list the servers"))
    }

    fn tell(&mut self, records: u64) {
        let done = Size { records: self.done.records + records, ..self.done };
        (self.progress)(&Progress::Copying { of: self.of, done });
    }

    /// Copies every session.
    async fn all(&mut self) -> Result<Totals, MigrateError> {
        self.of = self.source.size().await.map_err(at("read the source"))?;
        let mut totals = Totals {
            verified: Size::default(),
            digest: Digest::default(),
            kept: 0,
            replaced: 0,
            removed: 0,
            damaged: Damaged::default(),
            skipped: BTreeSet::new(),
        };
        let mut after = 0;
        loop {
            let page = self.source.list(after).await.map_err(at("list the source"))?;
            let Some(last) = page.last() else { return Ok(totals) };
            after = last.number;
            for listed in page {
                match self.one(&listed).await {
                    Ok((walk, came)) => {
                        totals.digest.add(&walk.digest);
                        totals.verified.sessions += 1;
                        totals.verified.records += walk.size.records;
                        totals.verified.marks += walk.size.marks;
                        totals.kept += u64::from(came == Came::Kept);
                        totals.replaced += u64::from(came == Came::Replaced);
                        self.done = totals.verified;
                    }
                    Err(Halt::Damaged(reason)) => {
                        totals.damaged.add(reason);
                        totals.skipped.insert(listed.number);
                        if self.options.skip_damaged
                            && self.target.find(&listed.id).await.map_err(at("read the target"))?.is_some()
                        {
                            self.target.withdraw(&listed.id).await.map_err(at("clear the target"))?;
                        }
                    }
                    Err(Halt::Failed(error)) => return Err(error),
                }
                self.tell(0);
            }
        }
    }

    /// Copies one session and verifies it. A damaged session is not published.
    async fn one(&mut self, listed: &Listed) -> Result<(Walked, Came), Halt> {
        let id = id_of(listed)?;
        let there = self.target.find(&listed.id).await.map_err(at("read the target"))?;
        let mut came = Came::Copied;
        if let Some(there) = there {
            if let Some(ours) = self.same(listed, &there, &id).await? {
                return Ok((ours, Came::Kept));
            }
            self.target.withdraw(&listed.id).await.map_err(at("clear the target"))?;
            came = Came::Replaced;
        }
        let ours = self.copy(listed.number, &id).await?;
        let there = self.target.find(&listed.id).await.map_err(at("read the target"))?;
        let there = there.ok_or_else(|| MigrateError::Differs(id.clone()))?;
        match self.walk(Which::Target, there.number, &id).await {
            Ok(theirs) if theirs.digest == ours.digest => Ok((ours, came)),
            Ok(_) | Err(MigrateError::Store { error: Error::Damaged { .. }, .. }) => {
                Err(Halt::Failed(MigrateError::Differs(id)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns what was read of a session in the source, if the one in the target is equal. Otherwise it has changed
    /// since, or is damaged.
    async fn same(&mut self, listed: &Listed, there: &Listed, id: &SessionId) -> Result<Option<Walked>, Halt> {
        let ours = self.walk(Which::Source, listed.number, id).await?;
        match self.walk(Which::Target, there.number, id).await {
            Ok(theirs) if theirs.digest == ours.digest => Ok(Some(ours)),
            Ok(_) | Err(MigrateError::Store { error: Error::Damaged { .. }, .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn copy(&mut self, number: i64, id: &SessionId) -> Result<Walked, MigrateError> {
        let (read, write) = (at("read the source"), at("write to the target"));
        let mut session = self.source.session(id).await.map_err(&read)?;
        let mut walk = Walk::of(&session);
        let new = self.target.reserve(id).await.map_err(&write)?;
        loop {
            let page = self.source.records(number, id, walk.last_seq()).await.map_err(&read)?;
            if page.is_empty() {
                break;
            }
            walk.records(id, &page).map_err(&read)?;
            self.target.put_records(new, &page).await.map_err(&write)?;
            self.tell(walk.size.records);
        }
        let mut after = String::new();
        loop {
            let page = self.source.marks(number, id, &after).await.map_err(&read)?;
            let Some(last) = page.last() else { break };
            after.clone_from(&last.command);
            page.iter().for_each(|mark| walk.mark(mark));
            self.target.put_marks(new, &page).await.map_err(&write)?;
        }
        let (walked, bytes) = walk.end(&session).map_err(&read)?;
        session.head.epoch = new_epoch().map_err(&write)?;
        self.target.publish(new, &session, bytes).await.map_err(&write)?;
        Ok(walked)
    }

    /// Reads all of a session and returns its digest.
    async fn walk(&mut self, which: Which, number: i64, id: &SessionId) -> Result<Walked, MigrateError> {
        let side: &mut dyn Source = match which {
            Which::Source => &mut *self.source,
            Which::Target => &mut *self.target,
        };
        let read = at(match which {
            Which::Source => "read the source",
            Which::Target => "read the target",
        });
        let session = side.session(id).await.map_err(&read)?;
        let mut walk = Walk::of(&session);
        loop {
            let page = side.records(number, id, walk.last_seq()).await.map_err(&read)?;
            if page.is_empty() {
                break;
            }
            walk.records(id, &page).map_err(&read)?;
        }
        let mut after = String::new();
        loop {
            let page = side.marks(number, id, &after).await.map_err(&read)?;
            let Some(last) = page.last() else { break };
            after.clone_from(&last.command);
            page.iter().for_each(|mark| walk.mark(mark));
        }
        Ok(walk.end(&session).map_err(&read)?.0)
    }

    /// Removes sessions of earlier runs that the source no longer has. Returns their number.
    async fn remove_others(&mut self) -> Result<u64, MigrateError> {
        let (mut after, mut removed) = (0, 0);
        loop {
            let page = self.target.list(after).await.map_err(at("list the target"))?;
            let Some(last) = page.last() else { return Ok(removed) };
            after = last.number;
            for listed in page {
                if self.source.find(&listed.id).await.map_err(at("read the source"))?.is_none() {
                    self.target.withdraw(&listed.id).await.map_err(at("clear the target"))?;
                    removed += 1;
                }
            }
        }
    }

    /// Checks that nobody has written to either database since its sessions were verified.
    async fn unchanged(
        &mut self,
        skipped: &BTreeSet<i64>,
        (source, target): (&[User], &[User]),
    ) -> Result<(), MigrateError> {
        let changed = |what: String| Err(MigrateError::Changed { what });
        let mut after = 0;
        loop {
            let page = self.source.list(after).await.map_err(at("list the source"))?;
            let Some(last) = page.last() else { break };
            after = last.number;
            for listed in page.iter().filter(|listed| !skipped.contains(&listed.number)) {
                let there = self.target.find(&listed.id).await.map_err(at("read the target"))?;
                if !there.is_some_and(|there| there.is_like(listed)) {
                    return changed(format!("session `{}` of the source has changed", listed.id));
                }
            }
        }
        self.still_unused("source", source).await?;
        self.still_unused("target", target).await
    }

    /// Fails if a server uses a side now that did not use it before.
    async fn still_unused(&mut self, side: &'static str, before: &[User]) -> Result<(), MigrateError> {
        let now = self.users(side).await?;
        if now.iter().any(|user| !before.contains(user)) {
            return Err(MigrateError::Changed { what: format!("the {side} is in use by {}", names(&now)) });
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Which {
    Source,
    Target,
}

/// The reason a session was not copied.
enum Halt {
    /// It is damaged in the source. The other sessions are not affected.
    Damaged(String),
    /// The migration cannot continue.
    Failed(MigrateError),
}

impl From<MigrateError> for Halt {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::Store { error: error @ Error::Damaged { .. }, .. } => Self::Damaged(error.to_string()),
            error => Self::Failed(error),
        }
    }
}

/// The result of reading a whole session.
struct Walked {
    digest: Digest,
    size: Size,
}

/// A session that is being read from its first record to its last.
struct Walk {
    hasher: Hasher,
    size: Size,
    bytes: u64,
}

impl Walk {
    fn of(session: &Session) -> Self {
        Self { hasher: Hasher::of(session), size: Size { sessions: 1, ..Size::default() }, bytes: 0 }
    }

    fn last_seq(&self) -> i64 {
        self.size.records.cast_signed()
    }

    /// Adds records. A log has no gaps, so a missing record was lost.
    fn records(&mut self, session: &SessionId, page: &[Record]) -> Result<(), Error> {
        for record in page {
            let seq = self.size.records + 1;
            if record.seq.cast_unsigned() != seq {
                return Err(missing(session, seq));
            }
            self.hasher.record(record);
            self.size.records = seq;
            self.bytes += record.body.len() as u64;
        }
        Ok(())
    }

    fn mark(&mut self, mark: &super::Mark) {
        self.hasher.mark(mark);
        self.size.marks += 1;
    }

    /// Returns the result, and the bytes of the records.
    fn end(self, session: &Session) -> Result<(Walked, u64), Error> {
        if self.size.records != session.head.last_seq {
            return Err(missing(&session.head.session, self.size.records.min(session.head.last_seq) + 1));
        }
        Ok((Walked { digest: self.hasher.end(), size: self.size }, self.bytes))
    }
}

fn missing(session: &SessionId, seq: u64) -> Error {
    let reason = "it is missing, or does not belong there";
    Error::Damaged { session: session.clone(), part: Part::Record(seq), reason }
}
