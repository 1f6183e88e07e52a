//! A target that no migration marks, though it holds sessions: all of them may have come from this source. A run that
//! is cut off after its last step leaves such a target, and the same command again must not call that a failure.

use super::{Halt, Listed, MigrateError, Migrated, Run, Walked, Which, at, id_of};

impl Run<'_> {
    /// Verifies that the target holds exactly what a migration would leave there now. Writes nothing.
    ///
    /// # Errors
    /// [`MigrateError::NotEmpty`]: it holds something else. The errors of both databases.
    pub(super) async fn complete(&mut self) -> Result<Migrated, MigrateError> {
        let sessions = self.target.size().await.map_err(at("read the target"))?.sessions;
        self.of = self.source.size().await.map_err(at("read the source"))?;
        let mut migrated = Migrated::default();
        let mut after = 0;
        loop {
            let page = self.source.list(after).await.map_err(at("list the source"))?;
            let Some(last) = page.last() else { break };
            after = last.number;
            for listed in page {
                match self.kept(&listed).await {
                    Ok(Some(Walked { digest, size })) => {
                        migrated.digest.add(&digest);
                        migrated.kept += 1;
                        migrated.verified.sessions += 1;
                        migrated.verified.records += size.records;
                        migrated.verified.marks += size.marks;
                        self.done = migrated.verified;
                    }
                    // An earlier run has left it out, unless the target has more sessions than are counted here.
                    Err(Halt::Damaged(reason)) if self.options.skip_damaged => migrated.damaged.add(reason),
                    Ok(None) | Err(Halt::Damaged(_)) => return Err(MigrateError::NotEmpty { sessions }),
                    Err(Halt::Failed(error)) => return Err(error),
                }
                self.tell(0);
            }
        }
        if migrated.kept == sessions { Ok(migrated) } else { Err(MigrateError::NotEmpty { sessions }) }
    }

    /// Returns what a session of the source holds, if the target has the same.
    async fn kept(&mut self, listed: &Listed) -> Result<Option<Walked>, Halt> {
        let id = id_of(listed)?;
        match self.target.find(&listed.id).await.map_err(at("read the target"))? {
            // The lists come first: most of the databases that are not empty are others, and found out at once.
            Some(there) if there.is_like(listed) => self.same(listed, &there, &id).await,
            None if self.options.skip_damaged => {
                self.walk(Which::Source, listed.number, &id).await?;
                Ok(None)
            }
            Some(_) | None => Ok(None),
        }
    }
}
