//! Errors in OpenAI's form, `{"error": {message, type, param, code}}`, with the statuses at which its SDKs try again.

use crate::entrance::Refused;
use axum::{
    Json,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use reseed_protocol::{ErrorBody, ErrorCode};
use serde_json::{Value, json};

/// OpenAI's SDKs obey it before they look at the status.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// An error that a client gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The HTTP status.
    pub status: StatusCode,
    /// The kind of error, such as `invalid_request_error`.
    pub kind: &'static str,
    /// The cause, for programs.
    pub code: Option<String>,
    /// The field that it is about, such as `input[0].content`.
    pub param: Option<String>,
    /// What is wrong, for people.
    pub message: String,
    /// True if the same request may succeed later.
    pub retriable: bool,
    /// How long to wait before.
    pub retry_after_ms: Option<u64>,
}

impl Failure {
    /// Returns the error for a request that cannot be used as it is.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "invalid_request_error",
            code: None,
            param: None,
            message: message.into(),
            retriable: false,
            retry_after_ms: None,
        }
    }

    /// Returns the error for something that this user does not have.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::invalid(message).with_status(StatusCode::NOT_FOUND)
    }

    /// Sets the status.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Sets the code.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Names the field that the error is about.
    #[must_use]
    pub fn at(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Returns the content of the field `error`.
    #[must_use]
    pub fn shown(&self) -> Value {
        json!({ "message": self.message, "type": self.kind, "param": self.param, "code": self.code })
    }
}

/// Answers a request to an address of OpenAI's API that is not served.
pub async fn unknown_address() -> Failure {
    Failure::not_found("there is no such address").with_code("unknown_url")
}

/// Answers a request with a method that its address does not have.
pub async fn wrong_method() -> Failure {
    Failure::invalid("this address does not have this method").with_status(StatusCode::METHOD_NOT_ALLOWED)
}

impl From<ErrorBody> for Failure {
    fn from(error: ErrorBody) -> Self {
        let (status, kind) = class(error.code, error.retriable);
        let code = match error.code {
            ErrorCode::ContextOverflow => "context_length_exceeded",
            ErrorCode::UnknownModel => "model_not_found",
            ErrorCode::UpstreamQuota | ErrorCode::BudgetExhausted => "insufficient_quota",
            ErrorCode::RateLimited | ErrorCode::UpstreamRateLimited => "rate_limit_exceeded",
            ErrorCode::Unauthenticated => "invalid_api_key",
            code => code.as_str(),
        };
        let field = error.details.as_ref().and_then(|details| details["field"].as_str());
        Self {
            status,
            kind,
            code: Some(code.to_owned()),
            param: field.map(str::to_owned),
            message: error.message,
            retriable: error.retriable,
            retry_after_ms: error.retry_after_ms,
        }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::from(refused.error).with_status(refused.status)
    }
}

/// Returns the HTTP status of an error.
#[must_use]
pub fn status(code: ErrorCode, retriable: bool) -> StatusCode {
    class(code, retriable).0
}

/// Returns the status and the kind of an error.
fn class(code: ErrorCode, retriable: bool) -> (StatusCode, &'static str) {
    use ErrorCode as Code;
    let invalid = "invalid_request_error";
    match code {
        Code::Unauthenticated => (StatusCode::UNAUTHORIZED, "authentication_error"),
        Code::Forbidden | Code::ReadOnly => (StatusCode::FORBIDDEN, "permission_error"),
        Code::SessionNotFound | Code::EntryNotFound | Code::UnknownModel => (StatusCode::NOT_FOUND, invalid),
        Code::IdempotencyConflict
        | Code::LeafMoved
        | Code::TurnRunning
        | Code::CompactionRunning
        | Code::NavigationCancelled
        | Code::QueueFull => (StatusCode::CONFLICT, invalid),
        Code::InputTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, invalid),
        Code::RateLimited
        | Code::LimitReached
        | Code::UpstreamRateLimited
        | Code::UpstreamQuota
        | Code::BudgetExhausted => (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error"),
        Code::Overloaded | Code::ShuttingDown | Code::UpstreamOverloaded => {
            (StatusCode::SERVICE_UNAVAILABLE, "server_error")
        }
        Code::UpstreamTimeout | Code::TurnTimeout => (StatusCode::GATEWAY_TIMEOUT, "server_error"),
        Code::UpstreamUnreachable
        | Code::UpstreamAuth
        | Code::UpstreamNotFound
        | Code::UpstreamError
        | Code::UpstreamTruncated
        | Code::UpstreamEmpty
        | Code::UpstreamMalformed => (StatusCode::BAD_GATEWAY, "server_error"),
        _ if retriable => (StatusCode::INTERNAL_SERVER_ERROR, "server_error"),
        _ => (StatusCode::BAD_REQUEST, invalid),
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(json!({ "error": self.shown() }))).into_response();
        let headers = response.headers_mut();
        let retried = if self.retriable { "true" } else { "false" };
        headers.insert(SHOULD_RETRY, HeaderValue::from_static(retried));
        if let Some(millis) = self.retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(millis.div_ceil(1_000)));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_openais_form_and_status() {
        let table = [
            (ErrorCode::SessionNotFound, 404, "session_not_found"),
            (ErrorCode::TurnRunning, 409, "turn_running"),
            (ErrorCode::ContextOverflow, 400, "context_length_exceeded"),
            (ErrorCode::UpstreamRateLimited, 429, "rate_limit_exceeded"),
            (ErrorCode::UpstreamUnreachable, 502, "upstream_unreachable"),
            (ErrorCode::StoreFailed, 500, "store_failed"),
            (ErrorCode::InvalidField, 400, "invalid_field"),
        ];
        for (code, status, name) in table {
            let failure = Failure::from(ErrorBody::new(code, "why").with_field("model"));
            assert_eq!(failure.status.as_u16(), status, "{name}");
            assert_eq!(failure.shown()["code"], name);
            assert_eq!(failure.shown()["param"], "model");
        }
    }
}
