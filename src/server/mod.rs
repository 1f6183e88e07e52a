//! WebSocket and HTTP: handshake, both protocol versions, authentication, limits, operator endpoints and the web page.
//!
//! - `listen`: accepts connections, and closes them when the server stops; `linger`: makes sure that last bytes arrive
//! - `closed`: answers connections before sessions can be taken
//! - `door`: admits connections, and bounds what clients hold before they have authenticated
//! - `app`: the routes, and the state shared by all connections
//! - `handshake`: turns a request into a connection; `closing`: ends connections
//! - `socket`: one WebSocket connection of either version; `v2` and `v1`: the versions
//! - `sessions`, `tree`: commands answered from the store: lists, entries, the shape of a session
//! - `audit`: logs refused credentials and what operators read
//! - [`auth`]: tokens and origins; `tickets`: one-time tickets for browsers
//! - `scope`: what credentials allow
//! - `relay`: connects clients to sessions that other nodes hold
//! - `limits`: the number of connections; `costs`: the cost of commands
//! - `operator`: health, metrics and statistics; `web`: the page; `offered`: the strategies that it lists

pub(crate) mod address;
mod alarm;
mod app;
mod audit;
pub(crate) mod auth;
mod bundle;
mod closed;
mod closing;
mod costs;
mod door;
mod granting;
mod guesses;
mod handshake;
mod history;
mod limits;
mod linger;
mod listen;
mod offered;
mod opening;
mod operator;
mod relay;
mod scope;
mod sessions;
mod socket;
mod tickets;
mod tree;
mod v1;
mod v2;
mod web;

pub(crate) use app::{App, AppOptions, Patience};
pub(crate) use closed::Closed;
pub(crate) use limits::Limits;
pub(crate) use listen::{Running, serve};
pub(crate) use operator::node_item;
