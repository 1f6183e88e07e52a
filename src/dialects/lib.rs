//! Dialects: the protocols that clients speak. A dialect translates a client's frames to commands, and replies and
//! events to its frames, and knows nothing else of the server. No dialect knows another one.
//!
//! `v2` is the server's own vocabulary. [`v1`] translates the older protocol.
//!
//! A dialect over HTTP is a client of v2 [inside] the process. It comes in by the [`entrance`].

mod ai_sdk;
mod chat_completions;
pub mod entrance;
pub mod exchange;
pub mod http;
pub mod inside;
#[cfg(test)]
mod openapi;
mod responses;
pub mod v1;
mod v2;

use axum::{Router, extract::ws::Utf8Bytes, routing::any};
use entrance::Entrance;
use reseed_protocol::{CommandId, ErrorBody, SessionId, reply::Reply};
use std::sync::Arc;

/// Returns the routes of the dialects over HTTP.
pub fn routes(entrance: Arc<dyn Entrance>) -> Router {
    let of_openai = responses::routes(entrance.clone())
        .merge(chat_completions::routes(entrance.clone()))
        .route("/v1/{*address}", any(http::unknown_address))
        .method_not_allowed_fallback(http::wrong_method);
    of_openai.merge(ai_sdk::routes(entrance))
}

/// Returns true for an address of a dialect over HTTP.
#[must_use]
pub fn owns(path: &str) -> bool {
    path == "/ai" || path.starts_with("/ai/") || path.starts_with("/v1/")
}

/// The protocol version of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Speaks {
    /// No frame has been received yet.
    #[default]
    Undecided,
    /// v1.
    V1,
    /// v2.
    V2 {
        /// True once `hello` was answered.
        greeted: bool,
    },
}

/// The dialect of a connection. Until it is decided, the client is answered as in v1.
#[derive(Debug, Default)]
pub struct Dialect {
    /// The version, as far as it is known.
    pub speaks: Speaks,
    /// The state of v1's translation.
    pub v1: v1::Translator,
}

/// An event as a client gets it.
#[derive(Debug)]
pub enum Translated {
    /// As it is.
    Same(Utf8Bytes),
    /// As these frames.
    Frames(Vec<String>),
}

impl Dialect {
    fn is_v2(&self) -> bool {
        matches!(self.speaks, Speaks::V2 { .. })
    }

    /// Returns true if a connection outlives its sessions. Otherwise it has one session, and ends with it.
    #[must_use]
    pub fn has_many_sessions(&self) -> bool {
        self.is_v2()
    }

    /// Returns true if the client gets events that are not stored.
    #[must_use]
    pub fn has_ephemeral_events(&self) -> bool {
        self.is_v2()
    }

    /// Returns true once v2's `hello` was answered.
    #[must_use]
    pub fn is_greeted(&self) -> bool {
        self.speaks == Speaks::V2 { greeted: true }
    }

    /// Returns the frame that refuses a command.
    #[must_use]
    pub fn refusal(&self, session: Option<&SessionId>, id: Option<&CommandId>, error: ErrorBody) -> String {
        if self.is_v2() { v2::refusal(session, id, error) } else { v1::error_frame(error) }
    }

    /// Returns the frame of a session's reply, if the client gets one.
    #[must_use]
    pub fn reply(&self, session: &SessionId, id: &CommandId, reply: &Reply) -> Option<String> {
        if self.is_v2() { Some(v2::reply(session, id, reply)) } else { v1::reply(id, reply) }
    }

    /// Translates the frame of a durable event, for the connection with this number.
    #[must_use]
    pub fn durable(&mut self, connection: u64, frame: Utf8Bytes) -> Translated {
        if self.is_v2() { Translated::Same(frame) } else { Translated::Frames(self.v1.durable(connection, &frame)) }
    }
}
