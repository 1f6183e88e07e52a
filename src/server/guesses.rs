//! Wrong credentials: counted by address, so that nobody can guess fast or fill the log and the server with guesses.
//!
//! Of an address's allowance per minute the first half is answered at once and the second after a pause; further ones
//! are refused as such, after the same pause: a refusal tells that a guess was wrong as well as any other answer. Valid
//! credentials are looked at first, and never refused for an address's wrong ones.

use super::{
    address::{Addresses, network},
    app::App,
    auth::Refusal,
};
use crate::{
    config::LimitSettings,
    metrics::limits::Limit,
    shares::{
        limit_reached,
        rates::{Rate, UsedUp},
    },
};
use reseed_protocol::ErrorBody;
use std::{net::IpAddr, num::NonZeroU32, sync::Arc, time::Duration};

/// The time that the answer to a wrong attempt waits, once many were made. Who guesses has few connections before
/// `hello` (an eighth of them is the most for one address), and each makes one attempt in this time.
const PAUSE: Duration = Duration::from_secs(1);

/// The wrong credentials of each address.
#[derive(Debug)]
pub(super) struct Guesses {
    /// Those that are answered at once.
    quick: Option<Rate>,
    /// All that are answered.
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
        // Behind such an address one client's attempts would be another's delay.
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

impl App {
    /// Logs and counts refused credentials; `what` is what they were for. Returns when they may be answered.
    ///
    /// # Errors
    /// `limit_reached`: the answer to too many wrong ones of this address.
    pub(super) async fn refuse_credentials(
        &self,
        address: Option<IpAddr>,
        what: &'static str,
        refusal: Refusal,
    ) -> Result<(), ErrorBody> {
        self.audit.refused(address, what, refusal.reason());
        let Some(address) = address.filter(|_| matches!(refusal, Refusal::Wrong(_))) else { return Ok(()) };
        match self.guesses.count(address) {
            Answer::AtOnce => {}
            Answer::Later => tokio::time::sleep(PAUSE).await,
            Answer::Refused(UsedUp { per_minute, wait }) => {
                tokio::time::sleep(PAUSE).await;
                self.registry.shares().refused(Limit::WrongCredentials, &network(address).to_string());
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
        // One client has a network of 64 bits.
        assert_eq!(answers(&["2001:470::1", "2001:470::2", "2001:470::3", "2001:470::4"]), "aaal");
        for shared in ["127.0.0.1", "10.0.0.1", "203.0.113.9", "::1"] {
            assert_eq!(answers(&[shared; 20]), "a".repeat(20), "{shared}");
        }
    }
}
