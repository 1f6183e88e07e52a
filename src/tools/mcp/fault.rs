//! Describes what went wrong with a server, without repeating secrets.

use super::variables::Secrets;
use reseed_protocol::tools::ToolServerFailure as Class;
use rmcp::{
    ServiceError,
    service::ClientInitializeError,
    transport::{DynamicTransportError, streamable_http_client::StreamableHttpError},
};
use std::{error::Error, io};

/// Maximum characters of what a server says about itself.
const SAID_CHARS_MAX: usize = 2_000;

/// The reason why a server did not come up. It is a predicate, and the caller supplies its subject, the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Down {
    pub(super) why: String,
    /// The class of the failure, which reveals nothing of the server's own text.
    pub(super) class: Class,
    /// True if the older handshake may help on a new connection.
    pub(super) try_older: bool,
}

impl Down {
    pub(super) fn new(class: Class, why: impl Into<String>) -> Self {
        Self { why: why.into(), class, try_older: false }
    }

    fn of_protocol(class: Class, why: impl Into<String>) -> Self {
        Self { why: why.into(), class, try_older: true }
    }
}

/// The reason why a call got no answer. The texts are predicates too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallFault {
    /// The server cannot have seen the call, which may be sent again.
    NotSent(String),
    /// The connection is gone, and the call may have been executed.
    Lost(String),
    /// The server refused the call, or its answer was invalid.
    Refused(String),
}

/// Describes why a connection was not made.
pub(super) fn not_up(error: &ClientInitializeError, secrets: &Secrets) -> Down {
    match error {
        ClientInitializeError::ConnectionClosed(_) => {
            Down::of_protocol(Class::Disconnected, "closed the connection before it answered")
        }
        ClientInitializeError::JsonRpcError(error) => {
            Down::of_protocol(Class::Refused, format!("refused the connection: {}", said(&error.message, secrets)))
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            Down { try_older: false, ..not_up(fallback, secrets) }
        }
        ClientInitializeError::TransportError { error, .. } => {
            let (kind, why) = of_transport(error);
            let class = match kind {
                Kind::NotSent => Class::Unreachable,
                Kind::Lost => Class::Disconnected,
                Kind::Answered => Class::WrongAnswer,
                Kind::Credentials => Class::Refused,
            };
            Down { why, class, try_older: kind == Kind::Answered }
        }
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            Down::of_protocol(Class::WrongAnswer, "speaks no revision of MCP that this client knows")
        }
        _ => Down::of_protocol(Class::WrongAnswer, "gave an answer that is not MCP's"),
    }
}

/// Describes why the tools could not be listed.
pub(super) fn not_listed(error: &ServiceError, secrets: &Secrets) -> String {
    match of_call(error, secrets) {
        CallFault::NotSent(why) | CallFault::Lost(why) | CallFault::Refused(why) => {
            format!("did not list its tools: it {why}")
        }
    }
}

/// Describes why a call got no answer.
pub(super) fn of_call(error: &ServiceError, secrets: &Secrets) -> CallFault {
    match error {
        ServiceError::McpError(error) => CallFault::Refused(format!("answered: {}", said(&error.message, secrets))),
        ServiceError::TransportSend(error) => match of_transport(error) {
            (Kind::NotSent, why) => CallFault::NotSent(why),
            (Kind::Lost, why) => CallFault::Lost(why),
            (Kind::Answered | Kind::Credentials, why) => CallFault::Refused(why),
        },
        ServiceError::UnexpectedResponse => CallFault::Refused("gave an answer that is not MCP's".to_owned()),
        _ => CallFault::Lost("closed the connection".to_owned()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    NotSent,
    Lost,
    Answered,
    Credentials,
}

/// Describes an error of a transport. Its own text may contain the address and the server's output, so only its kind is
/// reported.
fn of_transport(error: &DynamicTransportError) -> (Kind, String) {
    let Some(error) = error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() else {
        let kind = error.error.downcast_ref::<io::Error>().map(io::Error::kind);
        return (
            Kind::Lost,
            format!("closed the connection{}", kind.map_or_else(String::new, |kind| format!(" ({kind})"))),
        );
    };
    match error {
        StreamableHttpError::Client(error) if error.is_connect() => {
            (Kind::NotSent, format!("cannot be reached{}", io_kind(error)))
        }
        StreamableHttpError::Client(error) => match error.status() {
            Some(status) => (Kind::Answered, format!("answered with HTTP {}", status.as_u16())),
            None if error.is_decode() => (Kind::Answered, "gave an answer that is not MCP's".to_owned()),
            None => (Kind::Lost, format!("closed the connection{}", io_kind(error))),
        },
        StreamableHttpError::HttpStatus(status) => (Kind::Answered, format!("answered with HTTP {}", status.status)),
        StreamableHttpError::AuthRequired(_) => {
            (Kind::Credentials, "requires credentials (HTTP 401); set them in `headers`".to_owned())
        }
        StreamableHttpError::InsufficientScope(_) => {
            (Kind::Credentials, "refuses these credentials (HTTP 403)".to_owned())
        }
        StreamableHttpError::SessionExpired => (Kind::NotSent, "no longer knows this connection".to_owned()),
        StreamableHttpError::ResponseBodyTooLarge { max_size } => {
            (Kind::Answered, format!("gave an answer of more than {max_size} bytes"))
        }
        StreamableHttpError::UnexpectedServerResponse(text) => {
            // This text begins with the server's status.
            let status = text
                .strip_prefix("HTTP ")
                .and_then(|text| text.get(..3))
                .filter(|status| status.bytes().all(|b| b.is_ascii_digit()));
            (
                Kind::Answered,
                status.map_or("gave an answer that is not MCP's".to_owned(), |status| {
                    format!("answered with HTTP {status}")
                }),
            )
        }
        StreamableHttpError::UnexpectedContentType(_) | StreamableHttpError::Deserialize(_) => {
            (Kind::Answered, "gave an answer that is not MCP's".to_owned())
        }
        _ => (Kind::Lost, "closed the connection".to_owned()),
    }
}

/// Returns the kind of the innermost error of the system.
fn io_kind(error: &(dyn Error + 'static)) -> String {
    let mut found = None;
    let mut source = Some(error);
    while let Some(error) = source {
        found = error.downcast_ref::<io::Error>().map(io::Error::kind).or(found);
        source = error.source();
    }
    match found {
        Some(kind) if kind != io::ErrorKind::Other => format!(" ({kind})"),
        _ => String::new(),
    }
}

/// Returns the server's own text, with limited length and without secrets.
pub(super) fn said(text: &str, secrets: &Secrets) -> String {
    let text: String = text.chars().take(SAID_CHARS_MAX).collect();
    secrets.mask(text.trim())
}
