//! How a connection ends, and with which code.

use crate::metrics;
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use reseed_protocol::CloseCode;
use std::time::Duration;
use tokio::time::{error::Elapsed, timeout};
use tokio_tungstenite::tungstenite::{Error, error::ProtocolError};

/// How long the client may take to read a close frame, and to answer with its own.
pub(super) const CLOSE_TIME: Duration = Duration::from_millis(500);

/// What one round of the connection's loop came to: go on, or close so.
pub(super) type Flow = Result<(), End>;

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// The client is gone.
    Gone,
    /// The server closes.
    Close(CloseCode, &'static str),
}

/// Closes a socket with a code, which the client may take so long to read. After a fault tungstenite reads no more: that the frame still arrives is `linger`'s work.
pub(super) async fn close(mut socket: WebSocket, code: CloseCode, reason: &str, patience: Duration) {
    metrics::closed(code);
    let frame = CloseFrame { code: code.code(), reason: reason.into() };
    let _ = timeout(patience, socket.send(Message::Close(Some(frame)))).await;
    let _ = timeout(CLOSE_TIME, async { while let Some(Ok(_)) = socket.recv().await {} }).await;
}

/// What writing came to.
pub(super) fn written(outcome: Result<Result<(), axum::Error>, Elapsed>) -> Flow {
    match outcome {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(End::Gone),
        Err(_) => Err(End::Close(CloseCode::SlowReader, "too slow a reader; reconnect and resume")),
    }
}

/// tungstenite ends the stream on a fault and sends nothing: the code that RFC 6455 asks for is ours to send.
pub(super) fn protocol_fault(error: &axum::Error) -> End {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = source {
        if let Some(fault) = cause.downcast_ref::<Error>() {
            return match fault {
                Error::Capacity(_) => End::Close(CloseCode::TooLarge, "the message is larger than MESSAGE_BYTES_MAX"),
                Error::Utf8(_) => End::Close(CloseCode::InvalidUtf8, "a text frame is not UTF-8"),
                Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => End::Gone,
                Error::Protocol(_) => End::Close(CloseCode::Protocol, "the frame breaks RFC 6455"),
                _ => End::Gone,
            };
        }
        source = cause.source();
    }
    End::Gone
}
