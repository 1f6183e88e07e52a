//! Limits what one user may take of the server, so that the others get their part.
//!
//! A user is the owner that credentials name. Shares apply only if there may be several users. [`Permit`]s count what
//! is held at a time (connections, open sessions, forks). [`turns`] lets users take turns at the model, and [`rates`]
//! limits commands per minute.

pub(crate) mod lines;
pub(crate) mod rates;
pub(crate) mod turns;

use self::{
    lines::Lines,
    rates::Rates,
    turns::{Bounds, Turns},
};
use crate::{config::LimitSettings, metrics::limits::Limit};
use dashmap::DashMap;
use reseed_protocol::{ErrorBody, ErrorCode};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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

/// The shares that the users of a server hold.
#[derive(Debug)]
pub(crate) struct Shares {
    most: [u64; SHARES],
    /// The users who hold something.
    users: DashMap<Arc<str>, Arc<Held>>,
    lines: Lines,
    turns: Arc<Turns>,
    rates: Rates,
    has_several_users: bool,
}

/// The shares that one user holds.
#[derive(Debug)]
struct Held {
    name: Arc<str>,
    counts: [AtomicU64; SHARES],
    /// Held by the connection of the user that is reading history.
    reading: Arc<Semaphore>,
}

/// A user's turn to read history, which ends on drop. The default belongs to nobody.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    turn: Option<(Arc<Shares>, Arc<Held>, OwnedSemaphorePermit)>,
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some((shares, held, permit)) = self.turn.take() {
            drop(permit);
            shares.forget(&held);
        }
    }
}

/// A part of a user's share, released on drop. The default is empty.
#[derive(Debug, Default)]
pub(crate) struct Permit {
    counted: Option<Counted>,
}

#[derive(Debug)]
struct Counted {
    shares: Arc<Shares>,
    held: Arc<Held>,
    share: Share,
    /// An exchange sets it to 0.
    count: AtomicU64,
}

impl Default for Shares {
    /// Without any limit.
    fn default() -> Self {
        Self {
            most: [0; SHARES],
            users: DashMap::new(),
            lines: Lines::default(),
            turns: Turns::new(Bounds { most: 0, most_per_user: 0 }),
            rates: Rates::new(0),
            has_several_users: false,
        }
    }
}

impl Shares {
    /// Creates the shares of a server. `has_several_users` says whether there may be more than one user.
    #[must_use]
    pub(crate) fn new(settings: &LimitSettings, has_several_users: bool) -> Arc<Self> {
        let share = |most: u64| if has_several_users { most } else { 0 };
        Arc::new(Self {
            most: [
                share(settings.connections_per_user().into()),
                share(settings.sessions_open_per_user().into()),
                share(FORKS_PER_USER_MAX.into()),
                share(settings.offered_bytes_per_user_max),
            ],
            users: DashMap::new(),
            lines: Lines::default(),
            turns: Turns::new(Bounds {
                most: settings.model_requests_max as usize,
                most_per_user: if has_several_users { settings.model_requests_per_user() as usize } else { 0 },
            }),
            rates: Rates::new(settings.points_per_minute(has_several_users)),
            has_several_users,
        })
    }

    pub(crate) fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    pub(crate) fn rates(&self) -> &Rates {
        &self.rates
    }

    /// Waits for the user's turn to read history. Only one connection of a user reads at a time, so that nobody takes
    /// all processors. If there is only one user, nobody waits.
    pub(crate) async fn reading(self: &Arc<Self>, user: &str) -> Reading {
        if !self.has_several_users {
            return Reading::default();
        }
        let held = self.held(user);
        // The semaphore is never closed.
        let permit = held.reading.clone().acquire_owned().await.ok();
        Reading { turn: permit.map(|permit| (self.clone(), held, permit)) }
    }

    /// Takes this much of a user's share.
    ///
    /// # Errors
    /// `limit_reached`: the user's share is used up.
    pub(crate) fn take(self: &Arc<Self>, share: Share, user: &str, count: u64) -> Result<Permit, ErrorBody> {
        self.exchange(share, user, count, &Permit::default())
    }

    /// Takes this much of a user's share in exchange for the part that another permit holds. That permit is then empty.
    /// If the exchange is refused, it keeps its part. Taking less than before is never refused.
    ///
    /// # Errors
    /// `limit_reached`: the user's share is used up.
    pub(crate) fn exchange(
        self: &Arc<Self>,
        share: Share,
        user: &str,
        count: u64,
        old: &Permit,
    ) -> Result<Permit, ErrorBody> {
        let most = self.most[share as usize];
        if most == 0 {
            return Ok(Permit { counted: None });
        }
        let held = self.held(user);
        let old = old.counted.as_ref().filter(|old| old.share == share && Arc::ptr_eq(&old.held, &held));
        let given = old.map_or(0, |old| old.count.swap(0, Ordering::Relaxed));
        // One atomic step, so that nobody counts both. The counts wrap around, and so does a negative difference.
        let before = held.counts[share as usize].fetch_add(count.wrapping_sub(given), Ordering::Relaxed);
        let now = before.wrapping_sub(given).wrapping_add(count);
        // If it is refused, dropping this releases what was added.
        let counted = Counted { shares: self.clone(), held, share, count: count.into() };
        if now > most && count > given {
            self.refused(share.limit(), user);
            if let Some(old) = old {
                counted.held.counts[share as usize].fetch_add(given, Ordering::Relaxed);
                old.count.store(given, Ordering::Relaxed);
            }
            let (what, remedy) = share.words();
            let has = if share == Share::OfferedBytes { now } else { now - count };
            let message = format!("you have {has} {what}, and may have {most}; {remedy}");
            return Err(limit_reached(share.limit(), most, message));
        }
        Ok(Permit { counted: Some(counted) })
    }

    /// Counts and logs a refusal because of a limit.
    pub(crate) fn refused(&self, limit: Limit, user: &str) {
        limit.refused();
        if let Some(left_out) = self.lines.admit() {
            let limit = limit.as_str();
            tracing::warn!(user, limit, left_out, "a limit is reached: refuse");
        }
    }

    fn held(&self, user: &str) -> Arc<Held> {
        if let Some(held) = self.users.get(user) {
            return held.clone();
        }
        let name: Arc<str> = user.into();
        let held = || {
            let (name, counts) = (name.clone(), Default::default());
            Arc::new(Held { name, counts, reading: Arc::new(Semaphore::new(1)) })
        };
        self.users.entry(name.clone()).or_insert_with(held).clone()
    }

    /// Forgets a user who holds nothing else.
    fn forget(&self, held: &Arc<Held>) {
        // The count of 2 is this reference and the map's. So nobody else holds anything of this user, or is about to.
        self.users.remove_if(&held.name, |_, held| Arc::strong_count(held) == 2);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.held.counts[self.share as usize].fetch_sub(*self.count.get_mut(), Ordering::Relaxed);
        self.shares.forget(&self.held);
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
        let first = shares.reading("ann").await;
        let mut second = std::pin::pin!(shares.reading("ann"));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(shares.reading("bob").await);
        drop(first);
        drop(second.await);
        assert!(shares.users.is_empty(), "who reads nothing is forgotten");
        let alone = super::tests::shares(false);
        let _first = alone.reading("").await;
        let _second = alone.reading("").await;
    }

    #[test]
    fn each_user_has_a_share_that_comes_back() {
        let shares = shares(true);
        let taken: Vec<Permit> = (0..9).filter_map(|_| shares.take(Share::Connections, "ann", 1).ok()).collect();
        assert_eq!(taken.len(), 3);
        let error = shares.take(Share::Connections, "ann", 1).unwrap_err();
        assert_eq!(
            (error.code, error.details),
            (ErrorCode::LimitReached, Some(serde_json::json!({ "limit": "connections_per_user", "max": 3 })))
        );
        let others = shares.take(Share::Connections, "bob", 3);
        assert!(others.is_ok() && shares.take(Share::OfferedBytes, "ann", 1_000).is_ok(), "0 is no limit");
        drop(taken);
        assert!(shares.take(Share::Connections, "ann", 3).is_ok());
        drop(others);
        assert!(shares.users.is_empty(), "who holds nothing is forgotten");
    }

    #[test]
    fn what_is_exchanged_counts_once() {
        let shares = shares(true);
        let held = || shares.users.get("ann").map_or(0, |held| held.counts[0].load(Ordering::Relaxed));
        let mut permit = shares.take(Share::Connections, "ann", 2).unwrap();
        // How much is taken in exchange, and whether it is refused.
        for (count, is_refused) in [(3, false), (4, true), (1, false), (0, false), (4, true), (3, false), (3, false)] {
            let before = held();
            match shares.exchange(Share::Connections, "ann", count, &permit) {
                Ok(new) => {
                    assert_eq!((held(), is_refused), (count, false));
                    drop(std::mem::replace(&mut permit, new));
                    assert_eq!(held(), count, "the old one gives back nothing");
                }
                Err(error) => assert_eq!((error.code, held(), is_refused), (ErrorCode::LimitReached, before, true)),
            }
        }
        // Another user's permit is not exchanged.
        let others = shares.exchange(Share::Connections, "bob", 1, &permit).unwrap();
        assert_eq!(held(), 3);
        drop((permit, others));
        assert!(shares.users.is_empty(), "who holds nothing is forgotten");
    }

    #[test]
    fn a_single_user_has_everything() {
        assert!(shares(false).take(Share::Connections, "ann", 1_000).is_ok());
    }
}
