//! The reply to `hello`: the server, this connection and the limits.

use crate::ConnectionId;
use serde::{Deserialize, Serialize};

replies! {
    /// Payload of `welcome`.
    struct Welcome {
        /// 2.
        protocol_version: u32,
        /// The server.
        server: Server,
        /// Optional features of this server, by name.
        features: Vec<String>,
        /// The permissions of these credentials: `sessions`, `operator`.
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
        #[serde(default, skip_serializing_if = "Option::is_none")]
        notice: Option<String>,
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
        /// Connections of one session that `presence` names.
        #[serde(default)]
        presence_max: u64,
        /// Entries of a page of `get_entries`.
        #[serde(default)]
        page_entries_max: u64,
        /// Durable events that a `resume` replays; after more it answers with a snapshot.
        #[serde(default)]
        replay_events_max: u64,
        /// Refused frames in a row after which the connection is closed.
        #[serde(default)]
        bad_frames_max: u64,
        /// Seconds for which a preview can be committed.
        #[serde(default)]
        preview_secs: u64,
        /// Seconds after which a connection on standby hosts in place of one that is away.
        #[serde(default)]
        host_away_secs: u64,
    }
}
