//! What the tests share: a server in this process, a client, a model's server, and what they talk of.

pub(crate) mod client;
pub(crate) mod conversation;
pub(crate) mod server;
pub(crate) mod talk;
pub(crate) mod upstream;
