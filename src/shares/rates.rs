//! Limits what a client may request of the server per minute. Commands are weighted by their cost.

use governor::{
    Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
    state::keyed::DashMapStateStore,
};
use std::{num::NonZeroU32, time::Duration};

/// Maximum number of senders whose rate is tracked. Senders with their full allowance are dropped first.
const SENDERS_MAX: usize = 100_000;

type Limiter = RateLimiter<String, DashMapStateStore<String>, DefaultClock>;

/// An allowance per minute for each sender.
#[derive(Debug)]
pub(crate) struct Rate {
    limiter: Limiter,
    per_minute: NonZeroU32,
}

/// Reports that an allowance is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UsedUp {
    /// The allowance per minute.
    pub(crate) per_minute: u32,
    /// The time after which the same request may be tried again.
    pub(crate) wait: Duration,
}

impl Rate {
    /// Creates an allowance; `None` for 0, which means no limit.
    pub(crate) fn new(per_minute: u32) -> Option<Self> {
        let per_minute = NonZeroU32::new(per_minute)?;
        Some(Self { limiter: RateLimiter::dashmap(Quota::per_minute(per_minute)), per_minute })
    }

    /// Deducts points from a key's allowance. More points than the whole allowance count as the whole.
    ///
    /// # Errors
    /// The allowance is used up.
    pub(crate) fn take(&self, key: &String, points: NonZeroU32) -> Result<(), UsedUp> {
        if self.limiter.len() >= SENDERS_MAX {
            self.limiter.retain_recent();
        }
        let taken = self.limiter.check_key_n(key, points.min(self.per_minute));
        let wait = match taken {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(not_yet)) => not_yet.wait_time_from(DefaultClock::default().now()),
            Err(_more_than_all) => Duration::from_secs(60),
        };
        Err(UsedUp { per_minute: self.per_minute.get(), wait })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NonZeroU32 = NonZeroU32::MIN;

    #[test]
    fn an_allowance_is_used_up_by_weight_and_each_sender_has_its_own() {
        let rate = Rate::new(60).unwrap();
        let (ann, bob) = ("ann".to_owned(), "bob".to_owned());
        let thirty = NonZeroU32::new(30).unwrap();
        assert_eq!((rate.take(&ann, thirty), rate.take(&ann, thirty)), (Ok(()), Ok(())));
        let used_up = rate.take(&ann, thirty).unwrap_err();
        assert_eq!(used_up.per_minute, 60);
        assert!(used_up.wait <= Duration::from_secs(30) && used_up.wait > Duration::from_secs(20), "{used_up:?}");
        assert!(rate.take(&bob, ONE).is_ok());
    }

    #[test]
    fn what_costs_more_than_an_allowance_takes_all_of_it() {
        let (rate, ann) = (Rate::new(10).unwrap(), "ann".to_owned());
        assert!(rate.take(&ann, NonZeroU32::new(500).unwrap()).is_ok());
        assert!(rate.take(&ann, ONE).is_err());
    }
}
