//! What the tests share: a server in this process, a client, and a model's server.

pub mod client;
pub mod server;
pub(crate) mod upstream;
