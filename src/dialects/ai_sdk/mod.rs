//! The AI SDK 7: a WebSocket at `/ai` that speaks the frames of `WebSocketChatTransport`, so that `useChat` needs no
//! further package.
//!
//! Each file is one step from a frame to an answer:
//! - `frames`, `messages`: what a page sends
//! - `socket`: its connection, and the requests on it
//! - `request`: compares the messages with the session, and asks
//! - `chat`: the session
//! - `stream`, `writer`, `chunks`: what the page gets

mod chat;
mod chunks;
mod frames;
mod messages;
mod request;
mod socket;
mod stream;
mod writer;

use crate::entrance::{Entrance, Name};
use axum::{
    Router,
    extract::{Request, State, WebSocketUpgrade},
    http::StatusCode,
    response::Response,
    routing::get,
};
use chat::Way;
use reseed_client::Lost;
use reseed_protocol::CloseCode;
use std::sync::Arc;

/// Bytes read from a socket at once.
const READ_BUFFER_BYTES: usize = 4 * 1024;

/// Returns the route of this dialect.
pub(super) fn routes(entrance: Arc<dyn Entrance>) -> Router {
    Router::new().route("/ai", get(upgrade)).with_state(entrance)
}

/// How a request ends early.
#[derive(Debug)]
enum Outcome {
    /// It failed, for this reason. The connection goes on.
    Failed(String),
    /// The chat has no session yet.
    NoSession,
    /// The server ended the connection of its client, and so ends the page's.
    Closed(Lost),
    /// Nobody reads the answer any more.
    Left,
}

/// Returns true if the end of a client's connection ends the page's too: the server stops or is full, or the
/// credentials are over. A page that connects again then finds another server, or says what is wrong.
fn ends_socket(lost: &Lost) -> bool {
    let codes = [CloseCode::Restarting, CloseCode::Overloaded, CloseCode::Credentials, CloseCode::Revoked];
    codes.iter().any(|code| code.code() == lost.code())
}

async fn upgrade(State(entrance): State<Arc<dyn Entrance>>, socket: WebSocketUpgrade, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let bytes_max = entrance.body_bytes_max();
    let socket = socket.read_buffer_size(READ_BUFFER_BYTES).max_message_size(bytes_max).max_frame_size(bytes_max);
    let watch = entrance.watch(&parts);
    let entered = entrance.enter(&parts, Name::AiSdk).await;
    socket.on_upgrade(move |socket| async move {
        watch.iter().for_each(|watch| watch.upgraded());
        match entered {
            Ok(connect) => Box::pin(socket::serve(socket, Way(Arc::from(connect)), watch)).await,
            // A browser cannot read why an upgrade was refused, but it can read why a socket was closed.
            Err(refused) => {
                let code = match refused.status {
                    StatusCode::TOO_MANY_REQUESTS => CloseCode::RateLimit,
                    StatusCode::SERVICE_UNAVAILABLE => CloseCode::Restarting,
                    _ => CloseCode::Credentials,
                };
                socket::close(socket, code.code(), refused.error.message).await;
            }
        }
    })
}
