//! The credentials of a connection: its user, and the grant that bounds what it may do and for how long.

use crate::{
    server::{
        address::network,
        auth::{Ended, Grant, Name},
        closing::{End, Flow},
        door::Guest,
    },
    shares::{Permit, Share, Shares},
};
use reseed_protocol::{CloseCode, ErrorBody};
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::time::Instant;

pub(in crate::server) struct Credentials {
    /// The user, once known.
    pub(in crate::server) name: Option<Name>,
    /// The grant of its credentials, once they are known.
    pub(in crate::server) grant: Option<Arc<Grant>>,
    /// The client's address.
    pub(in crate::server) address: IpAddr,
    /// The key of its rate limit: the user's name, or the address if it has none.
    pub(super) sender: String,
    /// True if the client needs no warning that its credentials expire: it had one, or its edge sends it.
    is_warned: bool,
    /// Its part of the user's share of connections.
    permit: Option<Permit>,
}

impl Credentials {
    pub(super) fn new(
        grant: Option<Arc<Grant>>,
        address: IpAddr,
        permit: Option<Permit>,
        guest: Option<&Guest>,
    ) -> Self {
        let sender = network(address).to_string();
        let mut new = Self { name: None, grant: None, address, sender, is_warned: false, permit };
        if let Some(grant) = grant {
            new.become_known(grant, guest);
        }
        new
    }

    /// Sets the client's grant and user. From now on, its connections and its rate are counted by the user's name, if
    /// there is one.
    ///
    /// # Errors
    /// `limit_reached`: the user has too many connections.
    pub(super) fn known_by(
        &mut self,
        grant: Arc<Grant>,
        shares: &Arc<Shares>,
        guest: Option<&Guest>,
    ) -> Result<(), ErrorBody> {
        // A renewal keeps its permit.
        if self.permit.is_none() || self.name.as_ref() != Some(grant.name()) {
            self.permit = None;
            self.permit = Some(shares.take(Share::Connections, grant.name(), 1)?);
        }
        self.become_known(grant, guest);
        Ok(())
    }

    fn become_known(&mut self, grant: Arc<Grant>, guest: Option<&Guest>) {
        let name = grant.name().clone();
        if !name.is_empty() {
            self.sender.clone_from(&name);
        }
        guest.iter().for_each(|guest| guest.known_as(&self.sender));
        (self.name, self.grant, self.is_warned) = (Some(name), Some(grant), false);
    }

    /// Leaves it to the edge to warn the client. The edge may have renewed the grant.
    pub(super) fn leave_to_edge(&mut self, renewed: Option<Arc<Grant>>) {
        self.is_warned = true;
        self.grant = renewed.or_else(|| self.grant.take());
    }

    /// Returns the user whose sessions the connection sees. Empty if no credentials are required.
    pub(in crate::server) fn owner(&self) -> Name {
        self.name.clone().unwrap_or_default()
    }

    /// Ends the connection if its credentials have expired or were revoked. This is checked before each event is
    /// written, because a client that reads slowly can keep the connection in one round for as long as its sessions
    /// run.
    pub(in crate::server) fn still_granted(&self) -> Flow {
        let Some(grant) = &self.grant else { return Ok(()) };
        if let Some(ended) = grant.has_ended() {
            let (code, why) = ended.close();
            return Err(End::Close(code, why));
        }
        match grant.remaining() {
            Some(Duration::ZERO) => Err(End::Close(CloseCode::Credentials, "the credentials have expired")),
            _ => Ok(()),
        }
    }

    /// Returns when the credentials expire, or when the client must be warned of that, if it can be.
    pub(super) fn expiry(&self, can_warn: bool) -> Option<Instant> {
        let grant = self.grant.as_ref()?;
        let left = grant.remaining()?;
        let until = if can_warn && !self.is_warned { left.saturating_sub(grant.notice()) } else { left };
        Some(Instant::now() + until)
    }

    /// Returns the time that is left if the client must be warned now, which it is once.
    pub(super) fn warning(&mut self) -> Option<Duration> {
        let grant = self.grant.as_ref()?;
        let left = grant.remaining().filter(|left| !self.is_warned && *left <= grant.notice())?;
        self.is_warned = true;
        Some(left)
    }
}

/// Waits until the grant is ended early; indefinitely if there is no grant.
pub(in crate::server) async fn ended(grant: &Option<Arc<Grant>>) -> Ended {
    match grant {
        Some(grant) => grant.ended().await,
        None => std::future::pending().await,
    }
}
