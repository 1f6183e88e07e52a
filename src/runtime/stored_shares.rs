//! Limits on what a user may have stored. They are checked before something begins, so that it can be finished. A
//! running answer or fork may therefore exceed them once. A repeated command gets its earlier reply, whatever has been
//! stored since.

use super::errors::store_error;
use crate::{
    config::LimitSettings,
    metrics::limits::Limit,
    shares::{Shares, limit_reached},
    store::{SessionStore, Usage},
};
use reseed_protocol::{ErrorBody, command::SessionCommand};
use std::sync::Arc;

/// The maximum that each user may have stored; 0 means no limit.
pub(super) struct StoredShares {
    store: Arc<dyn SessionStore>,
    shares: Arc<Shares>,
    sessions: u64,
    empty: u64,
    bytes: u64,
}

impl StoredShares {
    /// Takes the limits from the settings. With a single user, the limits per user do not apply.
    pub(super) fn new(
        store: Arc<dyn SessionStore>,
        shares: Arc<Shares>,
        limits: &LimitSettings,
        has_several_users: bool,
    ) -> Self {
        let share = |most: u64| if has_several_users { most } else { 0 };
        Self {
            store,
            shares,
            sessions: share(limits.stored_sessions_per_user_max.into()),
            empty: share(limits.empty_sessions_per_user_max.into()),
            bytes: share(limits.stored_bytes_per_user_max),
        }
    }

    /// Refuses a new session if the user has reached a limit on stored data.
    pub(super) async fn check_may_create(&self, owner: &str) -> Result<(), ErrorBody> {
        let bounds = [
            (Limit::StoredSessionsPerUser, self.sessions),
            (Limit::EmptySessionsPerUser, self.empty),
            (Limit::StoredBytesPerUser, self.bytes),
        ];
        self.check(owner, &bounds).await
    }

    /// Refuses a command that adds to the stored data, if its user has reached a limit.
    pub(super) async fn check_may_store(&self, owner: &str, command: &SessionCommand) -> Result<(), ErrorBody> {
        if !adds_text(command) {
            return Ok(());
        }
        self.check(owner, &[(Limit::StoredBytesPerUser, self.bytes)]).await
    }

    async fn check(&self, owner: &str, bounds: &[(Limit, u64)]) -> Result<(), ErrorBody> {
        if bounds.iter().all(|(_, most)| *most == 0) {
            return Ok(());
        }
        let Some(usage) = self.store.usage(owner).await.map_err(|error| store_error(&error))? else { return Ok(()) };
        for &(limit, most) in bounds {
            let (stored, what, remedy) = stored(limit, usage);
            if most > 0 && stored >= most {
                self.shares.refused(limit, owner);
                let message = format!("you have stored {stored} {what}, and may have {most}; {remedy}");
                return Err(limit_reached(limit, most, message));
            }
        }
        Ok(())
    }
}

/// Returns how much a user has stored, as a number and in words, and what to do about it.
fn stored(limit: Limit, usage: Usage) -> (u64, &'static str, &'static str) {
    match limit {
        Limit::EmptySessionsPerUser => (
            usage.empty,
            "empty sessions",
            "use one, delete one, or wait: those that are not open are deleted after an hour",
        ),
        Limit::StoredBytesPerUser => (usage.bytes, "bytes of conversations", "delete one that you no longer need"),
        _ => (usage.sessions, "sessions", "delete one that you no longer need"),
    }
}

/// Returns true if a command adds text, or makes the model do so. A change of settings records all settings, including
/// the instructions.
pub(super) fn adds_text(command: &SessionCommand) -> bool {
    matches!(
        command,
        SessionCommand::UserInput(_)
            | SessionCommand::RetryTurn(_)
            | SessionCommand::AppendCustom(_)
            | SessionCommand::AppendCustomMessage(_)
            | SessionCommand::SetInstructions(_)
            | SessionCommand::SetOptions(_)
            | SessionCommand::SetContextStrategy(_)
    )
}
