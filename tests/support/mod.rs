//! What the tests share: a server in this process and a client.

pub mod client;
pub mod server;
