//! The HTTP client of one server. It adds what rmcp lacks: an error without an id is assigned to the request that it
//! answers.
//!
//! Servers that follow the examples of MCP's own libraries answer a request in a forgotten session with HTTP 400 and a
//! JSON-RPC error without an id. Nothing would match it to its request, and the call would wait for its time limit.
//! Every message is also repaired first, as over stdio.

use super::{MESSAGE_BYTES_MAX, file::Address, lenient};
use crate::{config::listed::is_this_machine, trace};
use futures_util::StreamExt as _;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage},
    transport::{
        common::client_side_sse::BoxedSseResponse,
        streamable_http_client::{StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse},
    },
};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// The time limit for connecting to an address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an idle HTTP connection is kept. Node closes its own after 5 s, and a call written at that moment may or
/// may not have been read.
const HTTP_IDLE: Duration = Duration::from_secs(4);

/// An HTTP client for one address.
#[derive(Clone)]
pub(super) struct Http(reqwest::Client);

type Headers = HashMap<HeaderName, HeaderValue>;
type Answer<T> = Result<T, StreamableHttpError<reqwest::Error>>;

impl Http {
    /// Creates the client.
    ///
    /// # Errors
    /// The HTTP client could not be created, for example because the system has no trusted certificates.
    pub(super) fn new(address: &Address) -> Result<Self, &'static str> {
        let builder = reqwest::Client::builder()
            .user_agent(concat!("reseed/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(HTTP_IDLE)
            // Headers with credentials go only where the file says, and a call is sent once.
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never());
        let builder =
            if is_this_machine(address.url.host_str().unwrap_or_default()) { builder.no_proxy() } else { builder };
        // Plain HTTP needs no certificates, so a machine without any works too.
        let builder = if address.url.scheme() == "http" { builder.tls_certs_only([]) } else { builder };
        // If another part of the process has already installed a provider, that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = builder.build();
        client
            .map(Self)
            .map_err(|_| "cannot be reached: there is no HTTP client; are the system's root certificates installed?")
    }
}

/// Returns the headers for the trace context of a call, which is in its `_meta`.
fn context(request: &ClientRequest) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let meta = match request {
        ClientRequest::CallToolRequest(call) => call.params.meta.as_ref(),
        _ => None,
    };
    let header = move |name: &'static str| {
        let value = meta?.0.0.get(name)?.as_str()?.parse().ok()?;
        Some((HeaderName::from_static(name), value))
    };
    [trace::TRACEPARENT, trace::TRACESTATE].into_iter().filter_map(header)
}

/// Gives an error without an id the id of the request that it answers. An error about a session means that the server
/// has forgotten the session and has not executed the request.
fn addressed(
    answer: StreamableHttpPostResponse,
    request: Option<rmcp::model::RequestId>,
    has_session: bool,
) -> Answer<StreamableHttpPostResponse> {
    match answer {
        StreamableHttpPostResponse::Sse(events, session) => {
            Ok(StreamableHttpPostResponse::Sse(mended(events), session))
        }
        StreamableHttpPostResponse::Json(message @ JsonRpcMessage::Response(_), session) => {
            Ok(StreamableHttpPostResponse::Json(lenient::message(message), session))
        }
        StreamableHttpPostResponse::Json(JsonRpcMessage::Error(mut error), session)
            if error.id.is_none() && request.is_some() =>
        {
            if has_session && error.error.message.to_ascii_lowercase().contains("session") {
                return Err(StreamableHttpError::SessionExpired);
            }
            error.id = request;
            Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), session))
        }
        answer => Ok(answer),
    }
}

/// Repairs the messages of a stream. An event without a message is passed on.
fn mended(events: BoxedSseResponse) -> BoxedSseResponse {
    events
        .map(|mut event| {
            if let Ok(event) = &mut event
                && let Some(data) = &mut event.data
                && let Ok(message) = String::from_utf8(lenient::lines(data.as_bytes()))
                && !message.is_empty()
            {
                // MCP has no events with several messages. The lines of an event belong to one message.
                *data = message.trim_end().to_owned();
            }
            event
        })
        .boxed()
}

impl StreamableHttpClient for Http {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        mut headers: Headers,
    ) -> Answer<StreamableHttpPostResponse> {
        let request = match &message {
            JsonRpcMessage::Request(request) => {
                headers.extend(context(&request.request));
                Some(request.id.clone())
            }
            _ => None,
        };
        let (has_session, inner) = (session.is_some(), &self.0);
        let answer =
            inner.post_message_with_max_sse_event_size(uri, message, session, token, headers, MESSAGE_BYTES_MAX);
        addressed(answer.await?, request, has_session)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Answer<()> {
        self.0.delete_session(uri, session, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Answer<BoxedSseResponse> {
        let inner = &self.0;
        let events =
            inner.get_stream_with_max_sse_event_size(uri, session, last_event, token, headers, MESSAGE_BYTES_MAX);
        Ok(mended(events.await?))
    }
}

#[cfg(test)]
mod tests {
    use super::addressed;
    use rmcp::{
        model::{RequestId, ServerJsonRpcMessage},
        transport::streamable_http_client::{StreamableHttpError, StreamableHttpPostResponse},
    };
    use serde_json::{Value, json};

    #[test]
    fn an_error_without_an_id_belongs_to_its_request() {
        let error = |id: Value, message: &str| json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32000, "message": message } });
        let lost = "Bad Request: No valid session ID provided";
        for (answer, has_session, expected) in [
            (error(json!(7), lost), true, Some(json!(7))),
            (error(Value::Null, "no such tool"), true, Some(json!(3))),
            (error(Value::Null, lost), false, Some(json!(3))),
            (error(Value::Null, lost), true, None),
        ] {
            let message: ServerJsonRpcMessage = serde_json::from_value(answer.clone()).unwrap();
            let answered =
                addressed(StreamableHttpPostResponse::Json(message, None), Some(RequestId::Number(3)), has_session);
            match (answered, expected) {
                (Ok(StreamableHttpPostResponse::Json(message, _)), Some(id)) => {
                    assert_eq!(serde_json::to_value(message).unwrap()["id"], id, "{answer}");
                }
                (Err(StreamableHttpError::SessionExpired), None) => {}
                (other, _) => panic!("{answer}: {other:?}"),
            }
        }
    }
}
