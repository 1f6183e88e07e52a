//! The socket and HTTP: handshake, the two dialects, credentials, limits, the operator's endpoints and the web page.
//!
//! - `listen`: accepts connections, and lets go of them when the server stops; `linger`: so that last words arrive
//! - `app`: the routes, and what every connection shares
//! - `handshake`: from a request to a connection; `closing`: how it ends
//! - `socket`: one WebSocket connection, whatever it speaks; `v2` and `v1`: its dialects
//! - `sessions`, `tree`: commands that the store answers: lists, entries, the shape of a session
//! - [`auth`]: tokens, tickets and origins; `limits`: how many and how fast
//! - `operator`: health, metrics and numbers; `web`: the page

mod alarm;
mod app;
pub mod auth;
mod bundle;
mod closing;
mod handshake;
mod limits;
mod linger;
mod listen;
mod operator;
mod sessions;
mod socket;
mod tree;
mod v1;
mod v2;
mod web;

pub use app::{App, AppOptions, Patience};
pub use limits::{Limits, LimitsOptions};
pub use listen::{Running, serve};
