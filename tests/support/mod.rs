//! Shared by the tests: an in-process server, the real binary, clients, a model server, and test conversations.

pub(crate) mod binary;
pub(crate) mod client;
#[cfg(feature = "postgres")]
#[allow(dead_code, reason = "each binary of tests uses a part of it")]
pub(crate) mod cluster;
pub(crate) mod conversation;
pub(crate) mod fixed;
#[cfg(feature = "postgres")]
#[allow(dead_code, reason = "each binary of tests uses a part of it")]
pub(crate) mod gate;
pub(crate) mod http;
pub(crate) mod issuer;
pub(crate) mod json;
pub(crate) mod line;
#[allow(dead_code, reason = "`it` writes the notes and `outcomes` reads them")]
pub(crate) mod notes;
#[cfg(feature = "postgres")]
#[allow(dead_code, reason = "each binary of tests uses a part of it")]
pub(crate) mod polling;
#[cfg(feature = "postgres")]
#[allow(dead_code, reason = "each binary of tests uses a part of it")]
pub(crate) mod postgres;
pub(crate) mod scripted;
pub(crate) mod server;
pub(crate) mod talk;
pub(crate) mod time;
pub(crate) mod tools;
pub(crate) mod upstream;
pub(crate) mod webhook;
