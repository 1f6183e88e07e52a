//! The copy, from any store to any other.

use super::{
    MigrateError, Size,
    bulk::{Bulk, Listed},
    error::Damaged,
    watch::{Beat, Watched, beats, names, watch},
};
use crate::{Append, Created, Error, SessionHead, UsageBy, UsageQuery};
use std::collections::BTreeSet;

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
    /// The size of what was copied and verified.
    pub verified: Size,
    /// The damaged sessions that were left out.
    pub damaged: Damaged,
}

type Tell<'a> = &'a mut (dyn FnMut(&Progress) + Send);

/// Copies all sessions into an empty target, which is marked from the first one on.
pub(super) async fn run(
    source: &dyn Bulk,
    target: &dyn Bulk,
    options: Options,
    progress: Tell<'_>,
) -> Result<Migrated, MigrateError> {
    let source_users = silent(source, "source", progress).await?;
    let target_users = silent(target, "target", progress).await?;
    let of = source.size().await.map_err(at(READ))?;
    let sessions = target.size().await.map_err(at(READ_BACK))?.sessions;
    if sessions > 0 {
        return Err(MigrateError::NotEmpty { sessions });
    }
    target.mark().await.map_err(at("mark the target"))?;
    // A server that was started on the target may have made secrets there. Clients hold what the source's have signed.
    for (name, secret) in source.secrets().await.map_err(at(READ))? {
        target.put_secret(&name, secret).await.map_err(at(WRITE))?;
    }
    let mut copy = Copy { source, target, progress, of, done: Size::default() };
    let (mut damaged, mut skipped, mut after) = (Damaged::default(), BTreeSet::new(), 0);
    loop {
        let page = source.listed(after).await.map_err(at(READ))?;
        let Some(last) = page.last() else { break };
        after = last.number;
        for listed in page {
            match copy.session(&listed).await {
                Ok(()) => {}
                Err(Halt::Damaged(reason)) => {
                    damaged.add(reason);
                    skipped.insert(listed.number);
                    copy.discard(&listed).await?;
                }
                Err(Halt::Failed(error)) => return Err(error),
            }
        }
    }
    copy.unchanged(&skipped).await?;
    copy_usage(source, target).await?;
    unused(source, "source", &source_users).await?;
    unused(target, "target", &target_users).await?;
    if damaged.count > 0 && !options.skip_damaged {
        return Err(MigrateError::Damaged(damaged));
    }
    Ok(Migrated { verified: copy.done, damaged })
}

/// Copies the operator's account, and compares its sums.
async fn copy_usage(source: &dyn Bulk, target: &dyn Bulk) -> Result<(), MigrateError> {
    let mut after = 0;
    loop {
        let page = source.usage_page(after).await.map_err(at(READ))?;
        let Some((last, _)) = page.last() else { break };
        after = *last;
        target.add_usage(page.into_iter().map(|(_, row)| row).collect()).await.map_err(at(WRITE))?;
    }
    let total = || UsageQuery { by: UsageBy::Total, limit: 1, ..UsageQuery::default() };
    let there = target.usage_sums(total()).await.map_err(at(READ_BACK))?;
    match source.usage_sums(total()).await.map_err(at(READ))? == there {
        true => Ok(()),
        false => Err(MigrateError::Changed { what: "the usage of models has changed".to_owned() }),
    }
}

const READ: &str = "read the source";
const READ_BACK: &str = "read the target";
const WRITE: &str = "write to the target";

fn at(doing: &'static str) -> impl Fn(Error) -> MigrateError {
    move |error| MigrateError::Store { doing, error }
}

/// Returns the servers that a database lists, after checking that none of them is alive.
async fn silent(store: &dyn Bulk, side: &'static str, progress: Tell<'_>) -> Result<Vec<Beat>, MigrateError> {
    let announce = &mut |servers, secs| progress(&Progress::Watching { side, servers, secs });
    match watch(store.cluster(), announce).await.map_err(at("list the servers"))? {
        Watched::Silent(users) => Ok(users),
        Watched::Alive(servers) => Err(MigrateError::InUse { side, servers }),
    }
}

/// Fails if a server uses a side now that did not use it before.
async fn unused(store: &dyn Bulk, side: &'static str, before: &[Beat]) -> Result<(), MigrateError> {
    let Some(cluster) = store.cluster() else { return Ok(()) };
    let now = cluster.nodes().await.map_err(at("list the servers"))?;
    if beats(&now).iter().any(|beat| !before.contains(beat)) {
        return Err(MigrateError::Changed { what: format!("the {side} is in use by {}", names(&now)) });
    }
    Ok(())
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
        Self::Failed(error)
    }
}

fn reading(error: Error) -> Halt {
    match error {
        Error::Damaged { .. } => Halt::Damaged(error.to_string()),
        error => Halt::Failed(at(READ)(error)),
    }
}

/// Returns what both sides must have in common: everything but the epoch and the holder.
fn shared(head: SessionHead) -> SessionHead {
    SessionHead { epoch: String::new(), holder: None, ..head }
}

struct Copy<'a> {
    source: &'a dyn Bulk,
    target: &'a dyn Bulk,
    progress: Tell<'a>,
    of: Size,
    done: Size,
}

impl Copy<'_> {
    /// Copies one session, page by page, and reads each page back.
    async fn session(&mut self, listed: &Listed) -> Result<(), Halt> {
        let invalid = || Halt::Damaged(format!("the id of session number {} is not valid", listed.number));
        let id = listed.id.as_ref().ok_or_else(invalid)?;
        let found = self.source.head(id).await.map_err(reading)?;
        let created = self.target.create_copy(&found, listed.created_by.as_ref()).await.map_err(at(WRITE))?;
        let Created::Now(lease) = created else { return Err(MigrateError::Differs(id.clone()).into()) };
        let (mut size, mut command) = (Size { sessions: 1, ..Size::default() }, String::new());
        loop {
            let page = self.source.page(id, size.records, &command).await.map_err(reading)?;
            let is_last = page.records.is_empty() && page.marks.is_empty();
            // The head of a session without records is written too.
            if is_last && (size.records, size.marks) != (0, 0) {
                break;
            }
            let (records, marks) = (page.records.clone(), page.marks.clone());
            let append = Append { records, marks, usage: Vec::new(), head: found.head.clone() };
            self.target.append(&lease, size.records + 1, append).await.map_err(at(WRITE))?;
            match self.target.page(id, size.records, &command).await {
                Ok(there) if there == page => {}
                Ok(_) | Err(Error::Damaged { .. }) => return Err(MigrateError::Differs(id.clone()).into()),
                Err(error) => return Err(at(READ_BACK)(error).into()),
            }
            size.records += page.records.len() as u64;
            size.marks += page.marks.len() as u64;
            command = page.marks.last().map_or(command, |mark| mark.command_id.clone());
            (self.progress)(&Progress::Copying { of: self.of, done: self.done.plus(size) });
            if is_last {
                break;
            }
        }
        let there = self.target.head(id).await.map_err(at(READ_BACK))?;
        if shared(there) != shared(found) {
            return Err(MigrateError::Differs(id.clone()).into());
        }
        self.done = self.done.plus(size);
        Ok(())
    }

    /// Removes what was copied of a damaged session.
    async fn discard(&self, listed: &Listed) -> Result<(), MigrateError> {
        let Some(id) = &listed.id else { return Ok(()) };
        match self.target.delete(id).await {
            Ok(()) | Err(Error::NotFound(_)) => Ok(()),
            Err(error) => Err(at(WRITE)(error)),
        }
    }

    /// Checks that nobody has written to either database since its sessions were copied.
    async fn unchanged(&self, skipped: &BTreeSet<i64>) -> Result<(), MigrateError> {
        let changed = |what: String| Err(MigrateError::Changed { what });
        let (mut after, mut sessions) = (0, 0);
        loop {
            let page = self.source.listed(after).await.map_err(at(READ))?;
            let Some(last) = page.last() else { break };
            after = last.number;
            for listed in page.into_iter().filter(|listed| !skipped.contains(&listed.number)) {
                let Some(id) = &listed.id else { continue };
                let found = self.source.head(id).await.map_err(at(READ))?;
                match self.target.head(id).await {
                    Ok(there) if shared(there.clone()) == shared(found) => sessions += 1,
                    Ok(_) | Err(Error::NotFound(_)) => {
                        return changed(format!("session `{id}` of the source has changed"));
                    }
                    Err(error) => return Err(at(READ_BACK)(error)),
                }
            }
        }
        let there = self.target.size().await.map_err(at(READ_BACK))?.sessions;
        match sessions == self.done.sessions && there == sessions {
            true => Ok(()),
            false => changed("sessions have been created or deleted".to_owned()),
        }
    }
}

impl Size {
    fn plus(self, other: Self) -> Self {
        Self {
            sessions: self.sessions + other.sessions,
            records: self.records + other.records,
            marks: self.marks + other.marks,
        }
    }
}
