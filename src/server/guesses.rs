//! Limits wrong credentials by address, so that nobody can guess quickly, flood the log or overload the server.
//!
//! An address has an allowance of wrong attempts per minute. The first half is answered at once, and the second half
//! after a pause. Further attempts get a rate limit error after the same pause, because any quicker answer would reveal
//! as much as a refusal. Valid credentials are checked first, and are never refused because of other attempts from
//! their address.

use super::address::{Addresses, network};
use crate::{
    config::LimitSettings,
    metrics::limits::Limit,
    shares::{
        Shares, limit_reached,
        rates::{Rate, UsedUp},
    },
};
use reseed_protocol::ErrorBody;
use std::{net::IpAddr, num::NonZeroU32, sync::Arc, time::Duration};

/// The delay before a wrong attempt is answered, once there were many. An attacker has few connections before `hello`,
/// because one address gets at most an eighth of them. Each makes one attempt in this time.
const PAUSE: Duration = Duration::from_secs(1);

/// The wrong attempts of each address.
#[derive(Debug)]
pub(super) struct Guesses {
    /// The allowance that is answered at once.
    quick: Option<Rate>,
    /// The whole allowance.
    all: Option<Rate>,
    addresses: Arc<Addresses>,
}

/// The answer to a wrong attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    AtOnce,
    Later,
    Refused(UsedUp),
}

impl Guesses {
    pub(super) fn new(settings: &LimitSettings, addresses: Arc<Addresses>) -> Self {
        let per_minute = settings.wrong_credentials_per_minute;
        Self { quick: Rate::new(per_minute.div_ceil(2)), all: Rate::new(per_minute), addresses }
    }

    fn count(&self, address: IpAddr) -> Answer {
        let (Some(quick), Some(all)) = (&self.quick, &self.all) else { return Answer::AtOnce };
        // Behind a shared address, one client's attempts would delay another client.
        if self.addresses.is_shared(address) {
            return Answer::AtOnce;
        }
        let key = network(address).to_string();
        let is_quick = quick.take(&key, NonZeroU32::MIN).is_ok();
        match all.take(&key, NonZeroU32::MIN) {
            Err(used_up) => Answer::Refused(used_up),
            Ok(()) if is_quick => Answer::AtOnce,
            Ok(()) => Answer::Later,
        }
    }
}

impl Guesses {
    /// Counts a wrong attempt. Returns when the refusal may be sent.
    ///
    /// # Errors
    /// `limit_reached`: the address has sent too many wrong ones.
    pub(super) async fn refuse(&self, address: IpAddr, shares: &Shares) -> Result<(), ErrorBody> {
        match self.count(address) {
            Answer::AtOnce => {}
            Answer::Later => tokio::time::sleep(PAUSE).await,
            Answer::Refused(UsedUp { per_minute, wait }) => {
                tokio::time::sleep(PAUSE).await;
                shares.refused(Limit::WrongCredentials, &network(address).to_string());
                let message = format!(
                    "your address has sent {per_minute} wrong tokens or tickets within a minute, the limit; \
                     check the credentials"
                );
                let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
                let error = limit_reached(Limit::WrongCredentials, per_minute.into(), message);
                return Err(error.with_retry_after_ms(millis));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_answered_then_slowed_then_refused() {
        let settings = LimitSettings { wrong_credentials_per_minute: 5, ..LimitSettings::default() };
        let guesses = Guesses::new(&settings, Arc::new(Addresses::new(vec!["203.0.113.9/32".parse().unwrap()])));
        let answers = |addresses: &[&str]| -> String {
            let answer = |address: &&str| match guesses.count(address.parse().unwrap()) {
                Answer::AtOnce => 'a',
                Answer::Later => 'l',
                Answer::Refused(_) => 'r',
            };
            addresses.iter().map(answer).collect()
        };
        assert_eq!(answers(&["198.51.100.1"; 7]), "aaallrr");
        assert_eq!(answers(&["198.51.100.2"]), "a", "another address has its own");
        // A client has a whole /64 network.
        assert_eq!(answers(&["2001:470::1", "2001:470::2", "2001:470::3", "2001:470::4"]), "aaal");
        for shared in ["127.0.0.1", "10.0.0.1", "203.0.113.9", "::1"] {
            assert_eq!(answers(&[shared; 20]), "a".repeat(20), "{shared}");
        }
    }
}
