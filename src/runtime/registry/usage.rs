//! What a user may have stored. The bounds are checked before something is begun, so that what is begun is finished: a
//! running answer or fork may exceed them once.

use super::Registry;
use crate::{metrics::limits::Limit, shares::limit_reached, store::Usage};
use reseed_protocol::{ErrorBody, command::Command};

impl Registry {
    /// Refuses a new session of a user who has stored all that one may store.
    pub(crate) async fn check_may_create(&self, owner: &str) -> Result<(), ErrorBody> {
        let bounds = [
            (Limit::StoredSessionsPerUser, self.limits.stored_sessions_per_user_max.into()),
            (Limit::EmptySessionsPerUser, self.limits.empty_sessions_per_user_max.into()),
            (Limit::StoredBytesPerUser, self.limits.stored_bytes_per_user_max),
        ];
        self.check_stored(owner, &bounds).await
    }

    /// Refuses a command that adds to what is stored, if its user has stored all that one may store.
    pub(crate) async fn check_may_store(&self, owner: &str, command: &Command) -> Result<(), ErrorBody> {
        if !adds_text(command) {
            return Ok(());
        }
        self.check_stored(owner, &[(Limit::StoredBytesPerUser, self.limits.stored_bytes_per_user_max)]).await
    }

    async fn check_stored(&self, owner: &str, bounds: &[(Limit, u64)]) -> Result<(), ErrorBody> {
        if !self.has_several_users || bounds.iter().all(|(_, most)| *most == 0) {
            return Ok(());
        }
        let Some(usage) = self.store().usage(owner).await.map_err(|error| self.fault(&error))? else { return Ok(()) };
        for &(limit, most) in bounds {
            let (stored, what, remedy) = stored(limit, usage);
            if most > 0 && stored >= most && self.shares().refuses(limit, owner) {
                let message = format!("you have stored {stored} {what}, and may have {most}; {remedy}");
                return Err(limit_reached(limit, most, message));
            }
        }
        Ok(())
    }
}

/// Returns how much of this a user has stored, in words too, and what to do about it.
fn stored(limit: Limit, usage: Usage) -> (u64, &'static str, &'static str) {
    match limit {
        Limit::EmptySessionsPerUser => (
            usage.empty,
            "sessions in which nothing was said",
            "say something in one, delete one, or wait: those that are not open are deleted after an hour",
        ),
        Limit::StoredBytesPerUser => (usage.bytes, "bytes of conversations", "delete one that you no longer need"),
        _ => (usage.sessions, "sessions", "delete one that you no longer need"),
    }
}

/// Returns true if a command adds text, or makes the model do so.
fn adds_text(command: &Command) -> bool {
    matches!(
        command,
        Command::UserInput(_)
            | Command::RetryTurn(_)
            | Command::AppendCustom(_)
            | Command::AppendCustomMessage(_)
            | Command::SetInstructions(_)
    )
}
