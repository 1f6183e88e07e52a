//! What the HTTP endpoints share: who asks, the parameters, and errors.

use super::auth::Operator;
use axum::{
    Json,
    extract::{FromRequestParts, Query},
    http::{StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use reseed_protocol::{ErrorBody, ErrorCode};
use serde::{Deserialize, de::DeserializeOwned};
use std::error::Error as _;

pub(super) fn problem(status: StatusCode, error: ErrorBody) -> Response {
    let wait = error.retry_after_ms.map(|millis| millis.div_ceil(1_000));
    let mut response = (status, Json(error)).into_response();
    if let Some(seconds) = wait {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// Authenticates the operator before the request is handled. Everyone else gets an error response.
impl<S: Sync> FromRequestParts<S> for Operator {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        parts.extensions.remove::<Self>().ok_or_else(|| {
            let error = ErrorBody::new(
                ErrorCode::Unauthenticated,
                "send a token from OPERATOR_TOKENS as `Authorization: Bearer`",
            );
            let mut response = problem(StatusCode::UNAUTHORIZED, error);
            response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
            response
        })
    }
}

/// The port that got a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Port(pub(super) u16);

/// The query parameters of a request under `/api`. An unknown name is refused, because it was meant to change the
/// answer.
pub(super) struct Parameters<T>(pub(super) T);

/// The parameters of an endpoint that takes none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParameters {}

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for Parameters<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        Query::<T>::try_from_uri(&parts.uri).map(|Query(asked)| Self(asked)).map_err(|error| {
            let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            let message = format!("the query parameters of this address are wrong: {}", clip(&why));
            problem(StatusCode::BAD_REQUEST, ErrorBody::new(ErrorCode::InvalidField, message))
        })
    }
}

/// Returns the beginning of a client's text, for use in a message.
pub(super) fn clip(text: &str) -> String {
    text.chars().take(100).collect()
}
