//! Errors that several files of the runtime return to clients.

use crate::store::{Error as StoreError, Part};
use reseed_protocol::{ErrorBody, ErrorCode};

/// How long to wait before asking again for a session that another node has open, if nothing is known of that node.
const HELD_RETRY_MS: u64 = 1_000;

/// Converts a store error to a wire error.
#[must_use]
pub fn store_error(error: &StoreError) -> ErrorBody {
    match error {
        StoreError::NotFound(id) => {
            ErrorBody::new(ErrorCode::SessionNotFound, format!("you have no session `{id}`")).with_field("sessionId")
        }
        StoreError::Damaged { session, part, reason } => {
            let message = format!(
                "{part} of session `{session}` is damaged ({reason}), so it is read-only: read the rest \
                 with get_entries (without `path`), restore the database from a backup, or delete the session"
            );
            let body = ErrorBody::new(ErrorCode::SessionDamaged, message);
            match part {
                Part::Record(seq) => body.with_details(serde_json::json!({ "seq": seq })),
                Part::Head | Part::Mark | Part::Pages => body,
            }
        }
        StoreError::Held { session, .. } => {
            let message = format!("session `{session}` is open on another server; try again");
            ErrorBody::new(ErrorCode::Overloaded, message).with_retry_after_ms(HELD_RETRY_MS)
        }
        // Internal causes go to the operator's log only.
        other => {
            tracing::error!(error = %other, "the store failed");
            ErrorBody::new(ErrorCode::StoreFailed, "the store failed; nothing was acknowledged, try again")
        }
    }
}

/// Returns the error for anything that a stopping server no longer starts.
pub(super) fn stopping() -> ErrorBody {
    ErrorBody::new(ErrorCode::ShuttingDown, "the server is stopping; reconnect and resume")
}
