//! Errors of the Rust client, as errors of the server.

use reseed_client::{Error, Lost, NotTaken, SessionEnd, Stop, Unanswered};
use reseed_protocol::{CloseCode, ErrorBody, ErrorCode, reply::Reply};

/// Returns the error for a command without a reply.
#[must_use]
pub fn error_of(error: Error) -> ErrorBody {
    match error {
        Error::Unanswered(unanswered) => of_unanswered(unanswered),
        Error::SessionEnd(end) => of_end(end),
        Error::Stopped(stop) => of_stop(stop),
        Error::NotOpened { error, .. } => error.unwrap_or_else(|| overloaded("the session is not available now")),
        Error::NotTaken(NotTaken::Bytes(_) | NotTaken::Commands(_) | NotTaken::Unpolled(_) | NotTaken::Own(_)) => {
            overloaded("too many commands are waiting")
        }
    }
}

fn of_unanswered(unanswered: Unanswered) -> ErrorBody {
    match unanswered {
        Unanswered::Refused(error) => error,
        Unanswered::TooLarge { bytes, bytes_max, .. } => {
            let message = format!("what is new in the request has {bytes} bytes, and the server accepts {bytes_max}");
            ErrorBody::new(ErrorCode::InputTooLarge, message)
        }
        Unanswered::Lost => overloaded("the connection within the server was lost before the reply"),
        Unanswered::SessionClosed => ErrorBody::new(ErrorCode::SessionNotFound, "the session was closed"),
        Unanswered::Stopped(stop) => of_stop(stop),
    }
}

/// Returns the error for a session that ended.
pub(super) fn of_end(end: SessionEnd) -> ErrorBody {
    match end {
        SessionEnd::Refused(error) => error,
        SessionEnd::Deleted => ErrorBody::new(ErrorCode::SessionNotFound, "the session was deleted"),
        SessionEnd::TooLarge { bytes, bytes_max } => {
            let message = format!("the tools have {bytes} bytes, and the server accepts {bytes_max}; offer less");
            ErrorBody::new(ErrorCode::InputTooLarge, message).with_field("tools")
        }
        SessionEnd::OpenAlready | SessionEnd::Unreadable => {
            ErrorBody::new(ErrorCode::Internal, "the session cannot be opened by this program")
        }
    }
}

/// Returns the error for a client that stopped.
pub(super) fn of_stop(stop: Stop) -> ErrorBody {
    match stop {
        Stop::Refused(error) => error,
        Stop::Credentials(message) => ErrorBody::new(ErrorCode::Unauthenticated, message),
        Stop::Lost(lost) => of_loss(&lost),
        Stop::Closed => overloaded("the connection within the server was closed"),
    }
}

/// Returns the error for a connection that ended.
pub(super) fn of_loss(lost: &Lost) -> ErrorBody {
    let is_shed = lost.code() == CloseCode::Overloaded.code();
    let code = if is_shed { ErrorCode::Overloaded } else { ErrorCode::ShuttingDown };
    ErrorBody::new(code, lost.to_string()).with_retry_after_ms(1_000)
}

/// Returns true if the server asks its clients to go elsewhere. A request cannot: its own client sends it again.
pub(super) fn is_final(lost: &Lost) -> bool {
    matches!(lost, Lost::Closed { .. })
}

/// Returns the error for a reply that the command cannot have.
pub(super) fn of_reply(reply: &Reply) -> ErrorBody {
    ErrorBody::new(ErrorCode::Internal, format!("the server answered with `{}`", reply.name()))
}

fn overloaded(message: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::Overloaded, message).with_retry_after_ms(1_000)
}
