//! Limits wrong credentials by address, so that nobody can guess quickly, flood the log or overload the server.
//!
//! An address has an allowance of wrong attempts per minute. Further attempts get a rate limit error after a pause, so
//! that an attacker's few connections do not become many attempts. Valid credentials are checked first, and are never
//! refused because of other attempts from their address.

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

/// The delay before an attempt beyond the allowance is answered. An attacker has few connections before `hello`,
/// because one address gets at most an eighth of them. Each makes one attempt in this time.
const PAUSE: Duration = Duration::from_secs(1);

/// The wrong attempts of each address.
#[derive(Debug)]
pub(super) struct Guesses {
    allowed: Option<Rate>,
    addresses: Arc<Addresses>,
}

impl Guesses {
    pub(super) fn new(settings: &LimitSettings, addresses: Arc<Addresses>) -> Self {
        Self { allowed: Rate::new(settings.wrong_credentials_per_minute), addresses }
    }

    fn count(&self, address: IpAddr) -> Result<(), UsedUp> {
        // Behind a shared address, one client's attempts would delay another client.
        match self.allowed.as_ref().filter(|_| !self.addresses.is_shared(address)) {
            Some(allowed) => allowed.take(&network(address).to_string(), NonZeroU32::MIN),
            None => Ok(()),
        }
    }
}

impl Guesses {
    /// Counts a wrong attempt. Returns when the refusal may be sent.
    ///
    /// # Errors
    /// `limit_reached`: the address has sent too many wrong ones.
    pub(super) async fn refuse(&self, address: IpAddr, shares: &Shares) -> Result<(), ErrorBody> {
        let Err(UsedUp { per_minute, wait }) = self.count(address) else { return Ok(()) };
        tokio::time::sleep(PAUSE).await;
        shares.refused(Limit::WrongCredentials, &network(address).to_string());
        let message = format!(
            "your address has sent {per_minute} wrong tokens or tickets within a minute, the limit; check the \
             credentials"
        );
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
        let error = limit_reached(Limit::WrongCredentials, per_minute.into(), message);
        Err(error.with_retry_after_ms(millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_answered_and_then_refused() {
        let settings = LimitSettings { wrong_credentials_per_minute: 3, ..LimitSettings::default() };
        let guesses = Guesses::new(&settings, Arc::new(Addresses::new(vec!["203.0.113.9/32".parse().unwrap()])));
        let allowed = |addresses: &[&str]| -> usize {
            addresses.iter().filter(|address| guesses.count(address.parse().unwrap()).is_ok()).count()
        };
        assert_eq!(allowed(&["198.51.100.1"; 7]), 3);
        assert_eq!(allowed(&["198.51.100.2"]), 1, "another address has its own");
        // A client has a whole /64 network.
        assert_eq!(allowed(&["2001:470::1", "2001:470::2", "2001:470::3", "2001:470::4"]), 3);
        for shared in ["127.0.0.1", "10.0.0.1", "203.0.113.9", "::1"] {
            assert_eq!(allowed(&[shared; 20]), 20, "{shared}");
        }
    }
}
