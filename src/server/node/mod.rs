//! What this node does for other nodes, which authenticate with NODE_TOKEN.
//!
//! - `holder`: `/internal/relay`, where other nodes connect their clients; each becomes an ordinary connection
//! - `ask`: requests between nodes over HTTP; `orders`: what operators order all nodes to do

pub(super) mod ask;
pub(super) mod holder;
pub(super) mod orders;

/// The prefix of the paths for other nodes. These paths reject browsers.
pub(super) const INTERNAL: &str = "/internal/";
