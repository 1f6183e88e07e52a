//! Relays: a client's frames for a session that another node holds go to that node, and its frames come back.
//!
//! - `holder`: `/internal/relay`, where other nodes bring their clients; it makes an ordinary connection of each
//! - `wire`: the frames that the two nodes send each other beside the client's own
//! - `peek`: what the edge reads of a frame that it passes on
//! - `link`: one WebSocket to a holder, in a task of its own
//! - `ask`: what one node asks others, over HTTP
//! - `routes`: the links of a client connection, and which of its sessions goes over which
//! - `edge`: a client connection with its links: what goes to which holder, and what comes back
//! - `ends`: the end of a link: which commands are sent on, and which sessions end
//!
//! Invariants:
//! - A link belongs to one client connection: its holder knows one user by it, and a slow client stalls nobody else.
//! - A holder never relays. It answers `wrong_node` for a session that is not its own, and the edge looks again.
//! - Each queue between client and holder has room for one message, or for one batch of frames. Whoever does not read
//!   stops the sender on the other side, however many nodes are in between.
//! - A link that breaks ends its sessions for the client alone: `session_closed`, retriable. The client opens them
//!   again and resumes, as after a lost connection of its own.

mod ask;
mod edge;
mod ends;
mod holder;
mod link;
mod peek;
mod routes;
mod wire;

pub(super) use self::{
    ask::{
        Asking, COMPACTIONS_PATH, REVOKE_PATH, compactions_elsewhere, compactions_here, revoke_elsewhere,
        revoked_elsewhere,
    },
    holder::{Via, enter},
    routes::{Relays, Resend, arrived},
};

/// The subprotocol between nodes.
pub(super) const SUBPROTOCOL: &str = "reseed.node.v1";

/// Begins the paths for other nodes, which prove themselves by NODE_TOKEN, and refuse browsers.
pub(super) const INTERNAL: &str = "/internal/";

/// The path at which other nodes bring their clients.
pub(super) const PATH: &str = "/internal/relay";

/// Closes a link whose greeting is for another node: the address has a new owner. Never sent to a client.
const WRONG_NODE: u16 = 4450;
