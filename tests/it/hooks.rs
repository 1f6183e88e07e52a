//! Hooks, over real sockets.

mod client;
mod client_away;
