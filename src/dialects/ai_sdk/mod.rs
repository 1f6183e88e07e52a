//! The AI SDK 7: a WebSocket at `/ai` that speaks the frames of `WebSocketChatTransport`, so that `useChat` needs no
//! further package.
//!
//! Each file is one step from a frame to an answer:
//! - `frames`, `messages`: what a page sends
//! - `socket`: its connection, and the requests on it
//! - `request`: compares the messages with the session, and asks
//! - `chat`: the session
//! - `stream`, `writer`, `chunks`: what the page gets
//! - `history`: what it gets when it is loaded, over HTTP

mod chat;
mod chunks;
mod frames;
mod history;
mod messages;
mod request;
mod socket;
mod stream;
mod writer;

use crate::{
    entrance::{Entrance, Name},
    http::Failure,
};
use axum::{
    Json, Router,
    extract::{Path, Query, Request, State, WebSocketUpgrade, rejection::QueryRejection},
    http::StatusCode,
    response::Response,
    routing::get,
};
use chat::{Chat, Way};
use reseed_client::Lost;
use reseed_protocol::{CloseCode, ErrorBody, ErrorCode};
use serde_json::Value;
use std::sync::Arc;

/// Bytes read from a socket at once.
const READ_BUFFER_BYTES: usize = 4 * 1024;

/// Returns the route of this dialect.
pub(super) fn routes(entrance: Arc<dyn Entrance>) -> Router {
    Router::new().route("/ai", get(upgrade)).route("/ai/chats/{id}", get(messages)).with_state(entrance)
}

/// How a request ends early.
#[derive(Debug)]
enum Outcome {
    /// It failed. The connection goes on, unless the server is stopping.
    Failed(ErrorBody),
    /// The chat has no session yet.
    NoSession,
    /// Nobody reads the answer any more.
    Left,
}

impl Outcome {
    /// The request cannot be used, for this reason.
    fn invalid(why: impl Into<String>) -> Self {
        Self::Failed(ErrorBody::new(ErrorCode::InvalidField, why))
    }
}

impl From<ErrorBody> for Outcome {
    fn from(error: ErrorBody) -> Self {
        Self::Failed(error)
    }
}

/// Returns true if the end of a client's connection ends the page's too: the server stops or is full, or the
/// credentials are over. A page that connects again then finds another server, or says what is wrong.
fn ends_socket(lost: &Lost) -> bool {
    let codes = [CloseCode::Restarting, CloseCode::Overloaded, CloseCode::Credentials, CloseCode::Revoked];
    codes.iter().any(|code| code.code() == lost.code())
}

/// Returns the messages of a chat.
async fn messages(
    State(entrance): State<Arc<dyn Entrance>>,
    Path(id): Path<String>,
    wanted: Result<Query<history::Wanted>, QueryRejection>,
    request: Request,
) -> Result<Json<Vec<Value>>, Failure> {
    let Query(wanted) = wanted.map_err(|rejection| Failure::invalid(rejection.body_text()))?;
    let (parts, _) = request.into_parts();
    let connect = entrance.enter(&parts, Name::AiSdk).await?;
    let read = async {
        let mut chat = Chat::open(&Way(Arc::from(connect)), &id, None).await?;
        history::read(&mut chat, &wanted).await
    };
    match read.await {
        Ok(Some(messages)) => Ok(Json(messages)),
        Ok(None) => Err(Failure::not_found("the chat has no such message").with_code("message_not_found").at("before")),
        Err(Outcome::NoSession) => Err(Failure::not_found("you have no such chat").with_code("chat_not_found")),
        Err(Outcome::Failed(error)) => Err(error.into()),
        Err(Outcome::Left) => Err(ErrorBody::new(ErrorCode::Overloaded, "the request was given up").into()),
    }
}

async fn upgrade(State(entrance): State<Arc<dyn Entrance>>, socket: WebSocketUpgrade, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let bytes_max = entrance.body_bytes_max();
    let socket = socket.read_buffer_size(READ_BUFFER_BYTES).max_message_size(bytes_max).max_frame_size(bytes_max);
    let (watch, patience) = (entrance.watch(&parts), entrance.patience());
    let entered = entrance.enter(&parts, Name::AiSdk).await;
    socket.on_upgrade(move |socket| async move {
        watch.iter().for_each(|watch| watch.upgraded());
        match entered {
            Ok(connect) => Box::pin(socket::serve(socket, Way(Arc::from(connect)), watch, patience)).await,
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
