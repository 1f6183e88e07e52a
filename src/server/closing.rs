//! Ends connections with the right close codes.

use super::door::Refusal;
use crate::metrics;
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use reseed_protocol::CloseCode;
use std::{io, time::Duration};
use tokio::time::{error::Elapsed, timeout};
use tokio_tungstenite::tungstenite::{Error, error::ProtocolError};

/// The time limit for the client to read a close frame and to answer it.
pub(super) const CLOSE_TIME: Duration = Duration::from_millis(500);

/// The result of one round of a connection's loop. An error ends the connection.
pub(super) type Flow = Result<(), End>;

/// The reason why a connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// The client has disconnected.
    Gone,
    /// The server closes the connection with this code.
    Close(CloseCode, &'static str),
}

impl End {
    /// Returns the end of a connection whose client does not read.
    pub(super) fn slow_reader() -> Self {
        Self::Close(CloseCode::SlowReader, "the client reads too slowly; reconnect and resume")
    }
}

/// Closes a socket with a code. The client has `patience` to read the close frame. After a protocol error, tungstenite
/// reads no more, and [`linger`](super::linger) makes sure that the frame still arrives.
pub(super) async fn close(mut socket: WebSocket, code: CloseCode, reason: &str, patience: Duration) {
    tell_closed(&mut socket, code, reason, patience).await;
    let _ = timeout(CLOSE_TIME, async { while let Some(Ok(_)) = socket.recv().await {} }).await;
}

/// Sends the close frame.
async fn tell_closed(socket: &mut WebSocket, code: CloseCode, reason: &str, patience: Duration) {
    metrics::CLOSES_TOTAL.add([metrics::word(code.code())], 1);
    let frame = CloseFrame { code: code.code(), reason: reason.into() };
    let _ = timeout(patience, socket.send(Message::Close(Some(frame)))).await;
}

/// Converts the result of a write.
pub(super) fn written(outcome: Result<Result<(), axum::Error>, Elapsed>) -> Flow {
    match outcome {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(End::Gone),
        Err(_) => Err(End::slow_reader()),
    }
}

/// Returns the close code for a read error. tungstenite ends the stream without sending the code that RFC 6455
/// requires.
pub(super) fn protocol_fault(error: &axum::Error) -> End {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = source {
        if let Some(fault) = cause.downcast_ref::<Error>() {
            return match fault {
                Error::Capacity(_) => End::Close(CloseCode::TooLarge, "the message is larger than MESSAGE_BYTES_MAX"),
                Error::Utf8(_) => End::Close(CloseCode::InvalidUtf8, "a text frame is not UTF-8"),
                Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => End::Gone,
                Error::Protocol(_) => End::Close(CloseCode::Protocol, "the frame violates RFC 6455"),
                Error::Io(error) => refused(error),
                _ => End::Gone,
            };
        }
        source = cause.source();
    }
    End::Gone
}

/// Returns the close code for a refusal by the door. Any other error means that the client is gone.
fn refused(error: &io::Error) -> End {
    let refusal = error.get_ref().and_then(|cause| cause.downcast_ref::<Refusal>());
    let (code, why) = match refusal {
        // A connection that must make room is dropped at once.
        None | Some(Refusal::Room) => return End::Gone,
        Some(Refusal::GuestMessage) => {
            (CloseCode::TooLarge, "before hello with credentials, a message may have 16 KiB")
        }
        Some(Refusal::Partial) => (CloseCode::Overloaded, "too many bytes of partly received messages"),
    };
    End::Close(code, why)
}
