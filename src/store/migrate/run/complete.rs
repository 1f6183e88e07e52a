//! Handles a target that holds sessions but no mark of a migration. It may be complete: a run that is cut off after its
//! last step leaves such a target. Running the same command again must then not report a failure.

use super::{Halt, Listed, MigrateError, Migrated, Run, User, Walked, Which, at, id_of};

impl Run<'_> {
    /// Verifies that the target holds exactly what a migration would leave there now. Writes nothing. `source_users`
    /// are the servers that the source listed before.
    ///
    /// # Errors
    /// [`MigrateError::NotEmpty`]: the target holds something else. [`MigrateError::Changed`]: a side is in use. The
    /// errors of both databases.
    pub(super) async fn complete(&mut self, source_users: &[User]) -> Result<Migrated, MigrateError> {
        let sessions = self.target.size().await.map_err(at("read the target"))?.sessions;
        let target_users = self.users("target").await?;
        self.of = self.source.size().await.map_err(at("read the source"))?;
        let other = MigrateError::NotEmpty { sessions };
        // The lists are compared first: a target in use for something else usually differs there already.
        let left_out = self.of.sessions.saturating_sub(sessions);
        if self.of.sessions < sessions || left_out > 0 && !self.options.skip_damaged {
            return Err(other);
        }
        let mut migrated = Migrated::default();
        for reads in [false, true] {
            let (mut after, mut missing) = (0, 0);
            loop {
                let page = self.source.list(after).await.map_err(at("list the source"))?;
                let Some(last) = page.last() else { break };
                after = last.number;
                for listed in page {
                    let there = self.target.find(&listed.id).await.map_err(at("read the target"))?;
                    match there {
                        Some(there) if !there.is_like(&listed) => return Err(other),
                        None if missing == left_out => return Err(other),
                        None => missing += 1,
                        Some(_) => {}
                    }
                    if reads && !self.compare(&listed, &mut migrated).await? {
                        return Err(other);
                    }
                }
            }
        }
        self.still_unused("source", source_users).await?;
        self.still_unused("target", &target_users).await?;
        if migrated.kept == sessions { Ok(migrated) } else { Err(other) }
    }

    /// Counts a session of the source that the target has too, or that is damaged and may have been left out. Returns
    /// false in all other cases.
    async fn compare(&mut self, listed: &Listed, migrated: &mut Migrated) -> Result<bool, MigrateError> {
        match self.kept(listed).await {
            Ok(Some(Walked { digest, size })) => {
                migrated.digest.add(&digest);
                migrated.kept += 1;
                migrated.verified.sessions += 1;
                migrated.verified.records += size.records;
                migrated.verified.marks += size.marks;
                self.done = migrated.verified;
            }
            // An earlier run left this session out, unless the target has more sessions than are counted here.
            Err(Halt::Damaged(reason)) if self.options.skip_damaged => migrated.damaged.add(reason),
            Ok(None) | Err(Halt::Damaged(_)) => return Ok(false),
            Err(Halt::Failed(error)) => return Err(error),
        }
        self.tell(0);
        Ok(true)
    }

    /// Returns what was read of a session in the source, if the target has an equal one.
    async fn kept(&mut self, listed: &Listed) -> Result<Option<Walked>, Halt> {
        let id = id_of(listed)?;
        match self.target.find(&listed.id).await.map_err(at("read the target"))? {
            Some(there) if there.is_like(listed) => self.same(listed, &there, &id).await,
            None if self.options.skip_damaged => {
                self.walk(Which::Source, listed.number, &id).await?;
                Ok(None)
            }
            Some(_) | None => Ok(None),
        }
    }
}
