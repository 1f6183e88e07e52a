//! The connections of a session, and the one that hosts its tools and hooks.

use super::connection::Software;
use crate::ids::ConnectionId;

words! {
    /// The role of a connection in a session.
    enum SessionRole {
        /// May write. A session can have any number of writers.
        Writer,
        /// Receives the same events and may only read.
        Observer,
    }
}

open! {
    /// The connection that hosts a session's tools and hooks.
    #[derive(Eq)]
    struct Host {
        /// The connection; the last one if it is away.
        connection_id: ConnectionId,
        /// Its `clientId`. A new connection with the same id takes its place.
        client_id?: String,
        /// True if it is not connected.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        away: bool,
    }

    /// A connection that is subscribed to a session.
    #[derive(Eq, Hash)]
    struct Participant {
        /// The connection.
        connection_id: ConnectionId,
        /// Its `clientId`.
        client_id?: String,
        /// The client program.
        client?: Software,
        /// Its role.
        role: SessionRole,
        /// True if it offers tools or hooks: it hosts the session, or is on standby.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        offers: bool,
    }

    /// Payload of `host_changed`.
    #[derive(Eq)]
    struct HostChanged {
        /// The host; absent if there is none.
        host?: Host,
    }

    /// Payload of `presence_changed`.
    #[derive(Eq)]
    struct PresenceChanged {
        /// The current state of the connection.
        connection: Participant,
        /// True if it has left.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        left: bool,
    }
}
