//! What the dialects over HTTP need of the server: to let their clients in.

use axum::{
    extract::ws::Message,
    http::{StatusCode, request::Parts},
};
use reseed_client::{Connect, Pending};
use reseed_protocol::ErrorBody;
use std::{sync::Arc, time::Duration};

/// The server, as dialects over HTTP see it.
pub trait Entrance: Send + Sync + 'static {
    /// Authenticates the sender of a request and admits it. Each connection that is made then counts and is limited
    /// like any other connection of this user.
    ///
    /// # Errors
    /// The answer to a request that is not admitted.
    fn enter<'a>(self: Arc<Self>, parts: &'a Parts, dialect: Name) -> Pending<'a, Result<Box<dyn Connect>, Refused>>;

    /// Returns the secrets of this deployment, at least one: the first one signs, and what any of them has signed is
    /// accepted. They are the same on all of its servers, and after a restart.
    fn seal_keys(&self) -> Vec<[u8; 32]>;

    /// Returns what bounds the messages of the WebSocket that this request becomes.
    fn watch(&self, parts: &Parts) -> Option<Arc<dyn Watch>>;

    /// Returns the maximum bytes of a request's body, after decoding.
    fn body_bytes_max(&self) -> usize;

    /// Returns how long a client may take to read a frame of its WebSocket.
    fn patience(&self) -> Duration;

    /// Returns how many sessions are kept for a user whose client never asked to keep any.
    fn stateless_sessions(&self) -> usize;
}

/// Bounds the bytes of messages that a WebSocket has received in part. It must hear of each complete one.
pub trait Watch: Send + Sync {
    /// Records that the connection is now a WebSocket.
    fn upgraded(&self);

    /// Records that a message was received.
    fn received(&self, message: &Message);
}

/// A dialect over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// Open Responses.
    Responses,
    /// Chat Completions.
    ChatCompletions,
    /// The AI SDK.
    AiSdk,
}

impl Name {
    /// Returns its name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Responses => "responses",
            Self::ChatCompletions => "chat_completions",
            Self::AiSdk => "ai_sdk",
        }
    }
}

/// A request that is not admitted.
#[derive(Debug)]
pub struct Refused {
    /// The HTTP status.
    pub status: StatusCode,
    /// Why.
    pub error: ErrorBody,
}
