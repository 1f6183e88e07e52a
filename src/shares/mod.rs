//! Limits what one user may take of the server, so that the others get their part.
//!
//! A user is the owner that credentials name. Shares apply only if there may be several users. [`quota`] counts what is
//! held at a time (connections, open sessions, forks), by [`Permit`]s. [`turns`] lets users take turns at the model,
//! and [`rates`] limits commands per minute. [`budgets`] limit what users spend on models.

pub(crate) mod budgets;
pub(crate) mod quota;
pub(crate) mod rates;
pub(crate) mod turns;

pub(crate) use self::quota::Permit;

use self::{
    quota::{Full, Quota},
    rates::Rate,
    turns::{Bounds, Turns},
};
use crate::{config::LimitSettings, metrics::limits::Limit, store::Spaced};
use reseed_protocol::{ErrorBody, ErrorCode};
use std::sync::Arc;

/// The most log lines of one kind that follow each other at once, if clients cause them.
pub(crate) const LINES_MAX: u32 = 30;

/// A resource that users share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Connections.
    Connections,
    /// Sessions in memory.
    OpenSessions,
    /// Forks in progress or waiting.
    Forks,
    /// Bytes of offered tools.
    OfferedBytes,
}

const SHARES: usize = 4;

impl Share {
    fn limit(self) -> Limit {
        match self {
            Self::Connections => Limit::ConnectionsPerUser,
            Self::OpenSessions => Limit::OpenSessionsPerUser,
            Self::Forks => Limit::ForksPerUser,
            Self::OfferedBytes => Limit::OfferedBytesPerUser,
        }
    }

    /// Returns what there is too much of, and what to do about it.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Connections => ("connections", "close one of them first"),
            Self::OpenSessions => ("sessions in memory", "close one that is idle first"),
            Self::Forks => ("forks in progress", "wait for one of them"),
            Self::OfferedBytes => {
                ("bytes of tools on offer, these included", "offer fewer, or close sessions that have some")
            }
        }
    }
}

/// Maximum number of one user's forks in progress or waiting. Each copies a whole conversation, and a person waits for
/// it.
pub(crate) const FORKS_PER_USER_MAX: u32 = 4;

/// Maximum number of forks in progress. Each holds a piece of its path in memory, and further ones wait.
const FORKS_MAX: usize = 16;

/// The shares that the users of a server hold.
#[derive(Debug)]
pub(crate) struct Shares {
    quotas: [Arc<Quota>; SHARES],
    /// Limits the log lines about refusals.
    lines: Spaced,
    turns: Arc<Turns>,
    reading: Arc<Turns>,
    forking: Arc<Turns>,
    /// The points of commands, by user, or by address; `None` means no limit.
    commands: Option<Rate>,
}

impl Shares {
    /// Creates the shares of a server. `has_several_users` says whether there may be more than one user.
    #[must_use]
    pub(crate) fn new(settings: &LimitSettings, has_several_users: bool) -> Arc<Self> {
        let share = |most: u64| if has_several_users { most } else { 0 };
        let turns = |most: u32, most_per_user: u32| {
            Turns::new(Bounds { most: most as usize, most_per_user: share(most_per_user.into()) as usize })
        };
        let quotas = [
            settings.connections_per_user().into(),
            settings.sessions_open_per_user().into(),
            FORKS_PER_USER_MAX.into(),
            settings.offered_bytes_per_user_max,
        ];
        Arc::new(Self {
            quotas: quotas.map(|most| Quota::new(0, share(most))),
            lines: Spaced::bursts(LINES_MAX),
            turns: turns(settings.model_requests_max, settings.model_requests_per_user()),
            reading: turns(0, 1),
            forking: Turns::new(Bounds { most: FORKS_MAX, most_per_user: 1 }),
            commands: Rate::new(settings.points_per_minute(has_several_users)),
        })
    }

    /// Returns the turns of requests to the model.
    pub(crate) fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    /// Returns the turns of reading history. Only one connection of a user reads at a time, so that nobody takes all
    /// processors. If there is only one user, nobody waits.
    pub(crate) fn reading(&self) -> &Arc<Turns> {
        &self.reading
    }

    /// Returns the turns of forking, which sessions take instead of users. Forks of one session wait for each other.
    pub(crate) fn forking(&self) -> &Arc<Turns> {
        &self.forking
    }

    /// Returns the rate of commands, if it is limited.
    pub(crate) fn commands(&self) -> Option<&Rate> {
        self.commands.as_ref()
    }

    /// Takes this much of a user's share.
    ///
    /// # Errors
    /// `limit_reached`: the user's share is used up.
    pub(crate) fn take(&self, share: Share, user: &str, count: u64) -> Result<Permit, ErrorBody> {
        self.exchange(share, user, count, &Permit::default())
    }

    /// Takes this much of a user's share in exchange for what another permit holds, as [`Quota::exchange`] does.
    ///
    /// # Errors
    /// `limit_reached`: the user's share is used up.
    pub(crate) fn exchange(&self, share: Share, user: &str, count: u64, old: &Permit) -> Result<Permit, ErrorBody> {
        self.quotas[share as usize].exchange(user, count, old).map_err(|Full { wanted, most }| {
            self.refused(share.limit(), user);
            let (what, remedy) = share.words();
            let has = if share == Share::OfferedBytes { wanted } else { wanted - count };
            let message = format!("you have {has} {what}, and may have {most}; {remedy}");
            limit_reached(share.limit(), most, message)
        })
    }

    /// Counts and logs a refusal because of a limit.
    pub(crate) fn refused(&self, limit: Limit, user: &str) {
        limit.refused();
        if let Some(left_out) = self.lines.admit() {
            let limit = limit.as_str();
            tracing::warn!(user, limit, left_out, "a limit is reached: refuse");
        }
    }
}

/// Returns the error for a limit that is reached.
pub(crate) fn limit_reached(limit: Limit, most: u64, message: impl Into<String>) -> ErrorBody {
    let details = serde_json::json!({ "limit": limit.as_str(), "max": most });
    ErrorBody::new(ErrorCode::LimitReached, message).with_details(details)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_share_of_each_total() {
        for (total, user_share, expected) in
            [(10_000, 0.25, 2_500), (50, 0.25, 13), (1, 0.25, 1), (50, 0.8, 40), (50, 1.0, 0), (0, 0.25, 0)]
        {
            let settings = LimitSettings {
                connections_max: total,
                sessions_open_max: total,
                model_requests_max: total,
                user_share,
                ..LimitSettings::default()
            };
            let of = [
                settings.connections_per_user(),
                settings.sessions_open_per_user(),
                settings.model_requests_per_user(),
            ];
            assert_eq!(of, [expected; 3], "{user_share} of {total}");
        }
    }

    fn shares(has_several_users: bool) -> Arc<Shares> {
        let settings = LimitSettings {
            connections_max: 12,
            user_share: 0.25,
            offered_bytes_per_user_max: 0,
            ..LimitSettings::default()
        };
        Shares::new(&settings, has_several_users)
    }

    #[tokio::test]
    async fn one_connection_of_a_user_reads_at_a_time() {
        let shares = shares(true);
        let first = shares.reading().take("ann").await;
        let mut second = std::pin::pin!(shares.reading().take("ann"));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(shares.reading().take("bob").await);
        drop(first);
        drop(second.await);
        let alone = super::tests::shares(false);
        let _first = alone.reading().take("").await;
        let _second = alone.reading().take("").await;
    }

    #[test]
    fn a_user_is_told_what_is_used_up() {
        let shares = shares(true);
        let _taken = shares.take(Share::Connections, "ann", 3).unwrap();
        let error = shares.take(Share::Connections, "ann", 1).unwrap_err();
        assert_eq!(
            (error.code, error.details),
            (ErrorCode::LimitReached, Some(serde_json::json!({ "limit": "connections_per_user", "max": 3 })))
        );
        assert_eq!(error.message, "you have 3 connections, and may have 3; close one of them first");
        assert!(shares.take(Share::Connections, "bob", 3).is_ok());
        assert!(shares.take(Share::OfferedBytes, "ann", 1_000).is_ok(), "0 is no limit");
        assert!(super::tests::shares(false).take(Share::Connections, "ann", 1_000).is_ok(), "one user has everything");
    }
}
