//! What the tests share: a server in this process, a client, a model's server, and what they talk of.

pub mod client;
pub mod server;
pub(crate) mod talk;
pub(crate) mod upstream;
