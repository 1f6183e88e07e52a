//! A client's connection: its state, and how replies, events and refusals are written to it.
//!
//! Each part belongs to one file:
//! - `wire`: the WebSocket, or the channels within the process
//! - `credentials`: the user and the grant
//! - `subscriptions`: the sessions that the client reads, and the commands that they have not answered
//! - `timers`: what the connection waits for
//!
//! The others work on all of them:
//! - `feed`: writes the events of the subscribed sessions
//! - `replies`: writes the replies of sessions
//! - `refusals`: refuses frames
//! - `leaving`: leaves a server that is stopping
//! - `relayed`: forwards commands to other nodes

mod credentials;
mod feed;
pub(super) mod leaving;
mod refusals;
mod relayed;
mod replies;
mod subscriptions;
mod timers;
mod wire;

pub(super) use self::{
    credentials::{Credentials, ended},
    subscriptions::{Subscriptions, listed},
    timers::{Timer, Timers},
    wire::{BAD_FRAMES_MAX, Link, Wire},
};

use super::{app::App, auth::Grant, closing::Flow, door::Guest, relay::links::Links};
use crate::{
    core::agent_loop::Origin,
    metrics::{self, CONNECTIONS, CONNECTIONS_TOTAL, Held, Outcome, RELAYED_CONNECTIONS},
    runtime::{ConnectionShare, Identity, encoded::FrameText},
    shares::Permit,
    trace::SpanContext,
};
use reseed_dialects::{Dialect, Speaks};
use reseed_protocol::{ErrorBody, event::EphemeralEvent, frame::encode_event, reply::Reply, session::TokenExpiring};
use std::{net::IpAddr, pin::Pin, sync::Arc};
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;

pub(super) struct Connection {
    pub(super) app: Arc<App>,
    pub(super) origin: Origin,
    pub(super) dialect: Dialect,
    pub(super) wire: Wire,
    pub(super) credentials: Credentials,
    pub(super) subscriptions: Subscriptions,
    /// The connections to nodes that hold sessions of this client.
    pub(super) links: Option<Box<Links>>,
    /// Set if another node relays this client. The edge limits its rate, and warns it when its credentials expire.
    pub(super) via: Option<Held>,
    /// The dialect over HTTP whose client this is.
    inside: Option<&'static str>,
    /// The trace context with which the client connected.
    pub(super) context: Option<Box<SpanContext>>,
    pub(super) timers: Timers,
    /// Signals that the server is stopping: first that clients should leave, then that they must.
    pub(super) stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    /// True while the connection is leaving a server that is stopping.
    is_leaving: bool,
}

impl Connection {
    pub(super) fn new(
        app: Arc<App>,
        link: Link,
        grant: Option<Arc<Grant>>,
        negotiated: bool,
        address: IpAddr,
        (of_all, of_user): (Permit, Option<Permit>),
        guest: Option<Arc<Guest>>,
    ) -> Self {
        let origin = app.next_origin();
        let shared = ConnectionShare::new(Identity {
            connection_id: app.connection_id(origin),
            client_id: None,
            software: None,
        });
        let now = Instant::now();
        let patience = app.patience;
        let mut timers = Timers::new(now + patience.hello.min(patience.heartbeat));
        timers.set(Timer::Beat, Some(now + patience.heartbeat));
        if negotiated || grant.is_none() {
            timers.set(Timer::Hello, Some(now + patience.hello));
        }
        grant.iter().for_each(|grant| app.note_class(grant));
        let credentials = Credentials::new(grant, address, of_user, guest.as_deref());
        timers.set(Timer::Expiry, credentials.expiry(false));
        CONNECTIONS_TOTAL.add([], 1);
        let mut connection = Self {
            origin,
            dialect: Dialect::default(),
            wire: Wire::new(link, patience.slow_reader, CONNECTIONS.hold(["none"]), guest, of_all),
            credentials,
            subscriptions: Subscriptions::new(shared),
            links: None,
            via: None,
            inside: None,
            context: None,
            timers,
            // Kept for the life of the connection, because all connections share one list of waiters.
            stopped: Box::pin(app.stopping.leave.clone().cancelled_owned()),
            is_leaving: false,
            app,
        };
        if negotiated {
            connection.speaks(Speaks::V2 { greeted: false });
        }
        connection
    }

    /// Makes this the connection of a client that another node relays. It starts out greeted.
    pub(super) fn start_relayed(&mut self, identity: Identity) {
        self.via = Some(RELAYED_CONNECTIONS.hold(["holder"]));
        self.wire.be_patient();
        self.credentials.leave_to_edge(None);
        self.greeted(identity);
        self.wire.counted = CONNECTIONS.hold(["relay"]);
    }

    /// Makes this the connection of a dialect over HTTP.
    pub(super) fn start_inside(&mut self, dialect: &'static str) {
        self.inside = Some(dialect);
        self.wire.counted = CONNECTIONS.hold([dialect]);
    }

    /// Sets the client's grant after `hello` or `authenticate`.
    ///
    /// # Errors
    /// `limit_reached`: the user has too many connections.
    pub(super) fn known_by(&mut self, grant: Arc<Grant>) -> Result<(), ErrorBody> {
        self.app.note_class(&grant);
        self.credentials.known_by(grant, self.app.registry.shares(), self.wire.guest.as_deref())?;
        self.timers.set(Timer::Expiry, self.credentials.expiry(self.dialect.is_greeted()));
        Ok(())
    }

    /// Sets the client's grant that its edge has renewed.
    pub(super) fn renewed_by_edge(&mut self, grant: Arc<Grant>) {
        self.app.note_class(&grant);
        self.credentials.leave_to_edge(Some(grant));
        self.timers.set(Timer::Expiry, self.credentials.expiry(false));
    }

    /// Records that `hello` was answered.
    pub(super) fn greeted(&mut self, identity: Identity) {
        self.subscriptions.shared = ConnectionShare { operates: self.operates(), ..ConnectionShare::new(identity) };
        self.speaks(Speaks::V2 { greeted: true });
        self.wire.good_frame();
        self.timers.set(Timer::Expiry, self.credentials.expiry(true));
    }

    /// Returns true if an operator acts for the user.
    pub(super) fn operates(&self) -> bool {
        self.credentials.grant.as_ref().is_some_and(|grant| grant.is_operator())
    }

    /// Records which protocol the client speaks.
    pub(super) fn speaks(&mut self, speaks: Speaks) {
        if self.dialect.speaks == speaks {
            return;
        }
        self.dialect.speaks = speaks;
        match speaks {
            Speaks::Undecided => {}
            Speaks::V1 => self.wire.counted = CONNECTIONS.hold(["v1"]),
            Speaks::V2 { .. } => self.wire.counted = CONNECTIONS.hold([self.inside.unwrap_or("v2")]),
        }
        if matches!(speaks, Speaks::V1 | Speaks::V2 { greeted: true }) {
            self.timers.set(Timer::Hello, None);
        }
    }

    /// Warns the client that its credentials expire soon. Ends the connection if they have expired.
    pub(super) async fn expiry(&mut self) -> Flow {
        self.credentials.still_granted()?;
        let can_warn = self.dialect.is_greeted();
        let left = if can_warn { self.credentials.warning() } else { None };
        self.timers.set(Timer::Expiry, self.credentials.expiry(can_warn));
        let Some(left) = left else { return Ok(()) };
        let expires_in_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let event = EphemeralEvent::TokenExpiring(TokenExpiring { expires_in_ms });
        self.send(encode_event(None, &event)).await?;
        self.flush().await
    }

    /// Adds a frame to the write buffer. Disconnects a client that does not read for too long.
    pub(super) async fn send(&mut self, frame: impl Into<FrameText>) -> Flow {
        self.wire.send(frame).await
    }

    pub(super) async fn flush(&mut self) -> Flow {
        self.wire.flush().await
    }
}

/// Counts the reply to a command.
pub(super) fn count_reply(name: &'static str, reply: &Reply) {
    let outcome = match reply {
        Reply::Error(error) => Outcome::Error(error.code),
        _ => Outcome::Ok,
    };
    metrics::command_answered(name, outcome);
}
