//! Admits clients: the limits on connections, on those that have not authenticated, and on wrong credentials.

use super::{address::Addresses, audit::Audit, auth::Refusal, door::Door, guesses::Guesses};
use crate::{
    config::LimitSettings,
    shares::{Shares, quota::Quota},
    store::Spaced,
};
use reseed_protocol::ErrorBody;
use std::{net::IpAddr, sync::Arc};

pub(crate) struct Admission {
    /// The bytes of the largest message that a client may send.
    pub(super) message_bytes_max: usize,
    /// The sessions that are kept for a user whose client never asked to keep any.
    pub(super) stateless_sessions: usize,
    /// All connections.
    pub(super) sockets: Arc<Quota>,
    pub(super) door: Arc<Door>,
    pub(super) addresses: Arc<Addresses>,
    pub(crate) audit: Audit,
    guesses: Guesses,
    shares: Arc<Shares>,
    /// Limits the log lines about pages that were refused.
    refused_pages: Spaced,
}

impl Admission {
    #[must_use]
    pub(crate) fn new(limits: &LimitSettings, addresses: Addresses, shares: Arc<Shares>, audit: Audit) -> Self {
        let addresses = Arc::new(addresses);
        Self {
            message_bytes_max: usize::try_from(limits.message_bytes_max).unwrap_or(usize::MAX),
            stateless_sessions: limits.stateless_sessions as usize,
            sockets: Quota::new(limits.connections_max.into(), 0),
            door: Door::new(limits, addresses.clone()),
            guesses: Guesses::new(limits, addresses.clone()),
            addresses,
            audit,
            shares,
            refused_pages: Spaced::default(),
        }
    }

    /// Logs that a page was refused, at most once per interval, because a page repeats its attempts.
    pub(super) fn log_refused(&self, origin: &str) {
        if let Some(left_out) = self.refused_pages.admit() {
            tracing::warn!(?origin, left_out, "refuse a page; if it is yours, add its origin to ALLOWED_ORIGINS");
        }
    }

    /// Logs and counts refused credentials. `what` is what they were for. Returns when the refusal may be sent.
    ///
    /// # Errors
    /// `limit_reached`: the address has sent too many wrong ones.
    pub(super) async fn refuse_credentials(
        &self,
        address: Option<IpAddr>,
        what: &'static str,
        refusal: Refusal,
    ) -> Result<(), ErrorBody> {
        self.audit.refused(address, what, refusal.reason());
        match (address, refusal) {
            (Some(address), Refusal::Wrong(_)) => self.guesses.refuse(address, &self.shares).await,
            _ => Ok(()),
        }
    }
}
