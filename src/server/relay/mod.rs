//! Relays: a client's frames for a session that another node holds go to that node, and its frames come back.
//!
//! - `wire`: the frames that two nodes exchange in addition to the client's
//! - `link`: one WebSocket to a holder, in a task of its own
//! - `links`: the links of a client connection, with the sessions and commands that they carry
//!
//! This is the edge's part. What concerns its client is in [`connection`](super::connection)`/relayed.rs`, and the
//! holder's part in [`node`](super::node).
//!
//! Invariants:
//! - A link belongs to one client connection. Its holder sees a single user, and a slow client stalls nobody else.
//! - A holder never relays. It opens a session that no node holds. If another node holds it, the client gets a
//!   retriable error.
//! - Each queue between client and holder has room for one message. Backpressure reaches the sender, however many nodes
//!   are in between.
//! - A broken link ends its sessions only for its client, with a retriable `session_closed`. The client opens them
//!   again and resumes, as after losing its own connection.

pub(super) mod link;
pub(super) mod links;
pub(super) mod wire;

/// The WebSocket subprotocol between nodes.
pub(super) const SUBPROTOCOL: &str = "reseed.node.v2";

/// The path at which other nodes connect their clients.
pub(super) const PATH: &str = "/internal/relay";

/// Closes a link whose greeting names another node, because the address has a new owner. Never sent to a client.
pub(super) const WRONG_NODE: u16 = 4450;
