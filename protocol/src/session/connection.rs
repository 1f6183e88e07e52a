//! The connection: its greeting, its credentials, the server and its limits.

use crate::{ids::ConnectionId, time::Timestamp};

closed! {
    /// Payload of `hello`.
    struct Hello {
        /// 2.
        protocol_version: u32,
        /// Stable within a tab, and different in every tab. A newer connection with the same id takes over the tools
        /// and hooks that the older one hosted.
        client_id?: String,
        /// The client program, for the operator.
        client?: Software,
        /// A one-time ticket from `POST /api/tickets`.
        ticket?: String,
        /// A token from `AUTH_TOKENS`, or a signed one (JWT).
        token?: String,
    }

    /// Payload of `authenticate`: exactly one of its fields.
    struct Authenticate {
        /// A one-time ticket from `POST /api/tickets`.
        ticket?: String,
        /// A token from `AUTH_TOKENS`, or a signed one (JWT).
        token?: String,
    }

    /// A program and its version.
    #[derive(Eq, Hash)]
    struct Software {
        /// Its name.
        name: String,
        /// Its version.
        version: String,
    }

    /// Payload of `ping`.
    struct Ping {
        /// The last durable event that this client received.
        seq?: u64,
    }
}

open! {
    /// Payload of `welcome`.
    struct Welcome {
        /// 2.
        protocol_version: u32,
        /// The server.
        server: Server,
        /// Optional features of this server, by name.
        features: Vec<String>,
        /// The permissions of these credentials, except those that others imply: `sessions`, `read`, `operator`,
        /// `operator.content`.
        scopes: Vec<String>,
        /// Identifies this connection among those that are subscribed to a session.
        connection_id: ConnectionId,
        /// The interval between the server's pings in milliseconds.
        heartbeat_ms: u64,
        /// The server's limits.
        limits: Limits,
    }

    /// The server.
    struct Server {
        /// `reseed`.
        name: String,
        /// Its version.
        version: String,
        /// Identifies this process; changes after a restart.
        instance: String,
        /// The provider: `offline` or `openai`.
        provider: String,
        /// A sentence for the user, for instance about the offline model.
        notice?: String,
    }

    /// The server's limits.
    struct Limits {
        /// Bytes of a frame.
        message_bytes_max: u64,
        /// Nesting of arrays and objects in a frame.
        depth_max: u64,
        /// Queued inputs.
        queue_items_max: u64,
        /// Tools that one client may offer.
        tools_max: u64,
        /// Hooks that one client may offer.
        #[serde(default)]
        hooks_max: u64,
        /// Sessions that one connection may subscribe to.
        #[serde(default)]
        subscriptions_max: u64,
        /// Connections of one session that `presence` lists.
        #[serde(default)]
        presence_max: u64,
        /// Entries of a page of `get_entries`.
        #[serde(default)]
        page_entries_max: u64,
        /// Durable events that a `resume` replays; beyond that, it returns a snapshot.
        #[serde(default)]
        replay_events_max: u64,
        /// Consecutive refused frames after which the connection is closed.
        #[serde(default)]
        bad_frames_max: u64,
        /// Seconds for which a preview can be applied.
        #[serde(default)]
        preview_secs: u64,
        /// Seconds after which a connection on standby replaces a host that is away.
        #[serde(default)]
        host_away_secs: u64,
    }

    /// Payload of `pong`.
    struct Pong {
        /// The session's newest durable event; absent if the ping named no session.
        seq?: u64,
        /// True if the client has seen it; if `false`, open the session again with `resume`. Absent if the ping named
        /// no session.
        in_sync?: bool,
        /// The server's time.
        server_time: Timestamp,
    }

    /// Payload of `token_expiring`.
    #[derive(Eq, Copy)]
    struct TokenExpiring {
        /// The milliseconds until the server closes the connection with 4401, unless the credentials are renewed.
        expires_in_ms: u64,
    }
}
