//! The WebSocket handshake: turns an HTTP request into a connection with a protocol version and credentials.

use super::{
    answers::clip,
    app::App,
    auth::bearer,
    closing::{CLOSE_TIME, close},
    connection::{Connection, Link},
    door::Guest,
};
use crate::{metrics::limits::Limit, shares::Share};
use axum::{
    extract::{ConnectInfo, FromRequestParts, Query, State, ws::WebSocketUpgrade},
    http::{HeaderMap, HeaderValue, Request, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use reseed_protocol::{CloseCode, SUBPROTOCOL_V2};
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

/// Bytes read from a socket at once. tungstenite's default of 128 KiB is allocated for every connection, even an idle
/// one. Commands are short, and long ones are read in pieces.
const READ_BUFFER_BYTES: usize = 1024;
/// Bytes of frames that are collected before they are written.
const WRITE_BUFFER_BYTES: usize = 4 * 1024;
/// Bytes that may wait to be written. This exceeds the largest frame, because replies are written one by one.
const WRITE_BUFFER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The only WebSocket version, from RFC 6455.
const WEBSOCKET_VERSION: &str = "13";

const KEY_BYTES: usize = 16;

/// Handles a request for `/ws`.
pub(super) async fn upgrade(state: State<Arc<App>>, request: Request<axum::body::Body>) -> Response {
    if state.stopping.leave.is_cancelled() {
        // A load balancer tries another server.
        let message = "this server is stopping; connect to another one\n";
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], message).into_response();
    }
    let (mut parts, _) = request.into_parts();
    if let Some(refused) = refuse(&parts.headers) {
        return refused;
    }
    match WebSocketUpgrade::from_request_parts(&mut parts, &state).await {
        Ok(socket) => enter(state.0, socket, &parts).await,
        Err(refused) => refused.into_response(),
    }
}

/// Returns true if the request asks for a WebSocket, even in an invalid way.
pub(super) fn asks_for_socket(headers: &HeaderMap) -> bool {
    let protocols = headers.get_all(header::UPGRADE).into_iter().filter_map(|value| value.to_str().ok());
    protocols.flat_map(|value| value.split(',')).any(|protocol| protocol.trim().eq_ignore_ascii_case("websocket"))
}

/// Rejects an opening handshake that violates RFC 6455, section 4.2: it lacks exactly one key of 16 bytes, or has an
/// unknown version.
pub(super) fn refuse(headers: &HeaderMap) -> Option<Response> {
    if !asks_for_socket(headers) {
        let message = "this address accepts only WebSocket upgrades; the request has no `Upgrade: websocket`\n";
        return Some((StatusCode::BAD_REQUEST, message).into_response());
    }
    let Some(version) = headers.get(header::SEC_WEBSOCKET_VERSION) else {
        let message = format!("the upgrade has no Sec-WebSocket-Version; send {WEBSOCKET_VERSION}\n");
        return Some((StatusCode::BAD_REQUEST, message).into_response());
    };
    if version.as_bytes() != WEBSOCKET_VERSION.as_bytes() {
        let given = clip(version.to_str().unwrap_or("?"));
        let message = format!("Sec-WebSocket-Version is `{given}`; this server supports {WEBSOCKET_VERSION}\n");
        let wanted = [
            (header::SEC_WEBSOCKET_VERSION, WEBSOCKET_VERSION),
            // RFC 9110 requires this header with status 426.
            (header::UPGRADE, "websocket"),
            (header::CONNECTION, "upgrade"),
        ];
        return Some((StatusCode::UPGRADE_REQUIRED, wanted, message).into_response());
    }
    if headers.get(header::SEC_WEBSOCKET_KEY).is_none_or(HeaderValue::is_empty) {
        let message = "the upgrade has no Sec-WebSocket-Key; a proxy may have removed it\n";
        return Some((StatusCode::BAD_REQUEST, message).into_response());
    }
    let mut keys = headers.get_all(header::SEC_WEBSOCKET_KEY).into_iter();
    let is_key = |key: &HeaderValue| BASE64_STANDARD.decode(key.as_bytes()).is_ok_and(|key| key.len() == KEY_BYTES);
    if !keys.next().is_some_and(is_key) || keys.next().is_some() {
        let message = "Sec-WebSocket-Key must be present once, as 16 bytes in base64\n";
        return Some((StatusCode::BAD_REQUEST, message).into_response());
    }
    None
}

#[derive(serde::Deserialize)]
struct Credentials {
    ticket: Option<String>,
}

async fn enter(app: Arc<App>, socket: WebSocketUpgrade, parts: &Parts) -> Response {
    let negotiated = socket.requested_protocols().any(|protocol| protocol.as_bytes() == SUBPROTOCOL_V2.as_bytes());
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0);
    let ticket = Query::<Credentials>::try_from_uri(&parts.uri).ok().and_then(|query| query.0.ticket);
    let identity = match (bearer(&parts.headers), ticket) {
        (None, None) => Ok(app.auth.anonymous()),
        (token, ticket) => app.auth.check(token, ticket.as_deref()).await.map(Some),
    };
    let guest = parts.extensions.get::<Arc<Guest>>().cloned();
    let context = app.registry.traces().of_headers(&parts.headers);
    let bytes_max = app.admission.message_bytes_max;
    let socket = if negotiated { socket.protocols([SUBPROTOCOL_V2]) } else { socket };
    let address = peer.map_or_else(|| Ipv4Addr::UNSPECIFIED.into(), |peer| peer.ip());
    sized(socket, bytes_max).on_upgrade(move |socket| {
        guest.iter().for_each(|guest| guest.upgraded());
        let tracker = app.stopping.connections.clone();
        // Boxed, because deeply nested futures would make every idle connection as large as the busiest one.
        tracker.track_future(Box::pin(async move {
            let Ok(of_all) = app.admission.sockets.take("", 1) else {
                Limit::Connections.refused();
                close(socket, CloseCode::Overloaded, "too many open connections", CLOSE_TIME).await;
                return;
            };
            let grant = match identity {
                Ok(grant) => grant,
                Err(why) => {
                    // The close code carries the reason, because a handshake has no room for more.
                    let _ = app.admission.refuse_credentials(Some(address), "handshake", why).await;
                    close(socket, why.close_code(), why.error().1, CLOSE_TIME).await;
                    return;
                }
            };
            grant.iter().for_each(|grant| app.admission.audit.accepted(Some(address), "handshake", grant));
            let of_user = grant.as_ref().map(|grant| app.registry.shares().take(Share::Connections, grant.name(), 1));
            let Ok(of_user) = of_user.transpose() else {
                close(socket, CloseCode::Overloaded, "too many connections of this user", CLOSE_TIME).await;
                return;
            };
            let permits = (of_all, of_user);
            let mut connection = Connection::new(app, Link::Socket(socket), grant, negotiated, address, permits, guest);
            connection.context = context;
            Box::pin(Box::new(connection).run()).await;
        }))
    })
}

/// Sets the sizes of a socket's buffers, and of its largest message.
pub(super) fn sized(socket: WebSocketUpgrade, bytes_max: usize) -> WebSocketUpgrade {
    socket
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(WRITE_BUFFER_BYTES_MAX)
        .max_message_size(bytes_max)
        .max_frame_size(bytes_max)
}
