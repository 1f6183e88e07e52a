//! Enforces the grant of a connection's credentials, and ends the connection with it.

use super::{Connection, Speaks};
use crate::{
    server::{
        auth::{Ended, Grant},
        closing::{End, Flow},
    },
    shares::Share,
};
use reseed_protocol::{CloseCode, ErrorBody, event::EphemeralEvent, frame::encode_event, session::TokenExpiring};
use std::{sync::Arc, time::Duration};

impl Connection {
    /// Sets the client's grant and user. From now on, its connections and its rate are counted by the user's name, if
    /// there is one.
    ///
    /// # Errors
    /// `limit_reached`: the user has too many connections.
    pub(in crate::server) fn known_by(&mut self, grant: Arc<Grant>) -> Result<(), ErrorBody> {
        let name = grant.name().clone();
        // A renewal keeps its permit.
        if self.permit.is_none() || self.name.as_ref() != Some(&name) {
            self.permit = None;
            self.permit = Some(self.app.registry.shares().take(Share::Connections, &name, 1)?);
        }
        (self.grant, self.told_expiring) = (Some(grant), false);
        if !name.is_empty() {
            self.sender.clone_from(&name);
        }
        self.guest.iter().for_each(|guest| guest.known_as(&self.sender));
        self.name = Some(name);
        Ok(())
    }

    /// Returns when the client must be warned that its credentials expire, or when they do.
    pub(super) fn expiry_due(&self) -> Option<tokio::time::Instant> {
        let left = self.grant.as_ref()?.remaining()?;
        // A relayed client is warned by its edge.
        let tells = matches!(self.speaks, Speaks::V2 { greeted: true }) && !self.told_expiring && self.via.is_none();
        let until = if tells { left.saturating_sub(self.grant.as_ref()?.notice()) } else { left };
        Some(tokio::time::Instant::now() + until)
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

    /// Warns the client that its credentials expire soon. Ends the connection if they have expired.
    pub(super) async fn expiry(&mut self) -> Flow {
        self.still_granted()?;
        let Some(grant) = &self.grant else { return Ok(()) };
        let Some(left) = grant.remaining() else { return Ok(()) };
        if left > grant.notice()
            || self.told_expiring
            || self.via.is_some()
            || self.speaks != (Speaks::V2 { greeted: true })
        {
            return Ok(());
        }
        self.told_expiring = true;
        let expires_in_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let event = EphemeralEvent::TokenExpiring(TokenExpiring { expires_in_ms });
        self.send(encode_event(None, &event)).await?;
        self.flush().await
    }
}

/// Waits until the grant is ended early; indefinitely if there is no grant.
pub(super) async fn ended(grant: &Option<Arc<Grant>>) -> Ended {
    match grant {
        Some(grant) => grant.ended().await,
        None => std::future::pending().await,
    }
}
