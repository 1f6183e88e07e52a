//! The holder's part of a [relay](super::super::relay): `/internal/relay`, where other nodes connect their clients.
//!
//! A relayed connection is an ordinary one that starts out greeted. Its user, rights and names come from the first
//! frame. The edge has counted the connection. It also limits the client's rate, refuses its bad frames, and warns it
//! when its credentials expire.

use crate::{
    runtime::{Identity, Keeper},
    server::{
        answers::problem,
        app::App,
        auth::{Refusal, bearer},
        closing::CLOSE_TIME,
        connection::{Connection, Link},
        door::Guest,
        handshake,
        relay::{
            SUBPROTOCOL, WRONG_NODE,
            wire::{Greeting, ToHolder},
        },
    },
    shares::Permit,
    store::NodeId,
};
use axum::{
    extract::{
        ConnectInfo, FromRequestParts as _, Request, State,
        ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade},
    },
    http::{StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use reseed_protocol::{ErrorBody, ErrorCode};
use secrecy::ExposeSecret as _;
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};
use subtle::ConstantTimeEq as _;
use tokio::time::timeout;

/// Admits another node, which authenticates with NODE_TOKEN. A server outside a cluster does not have these paths.
///
/// # Errors
/// The response to anyone else.
pub(super) async fn admit(app: &App, parts: &Parts, what: &'static str) -> Result<Arc<Keeper>, Response> {
    let (Some(token), Some(keeper)) = (app.peers.token(), app.registry.keeper()) else {
        return Err(StatusCode::NOT_FOUND.into_response());
    };
    // Only browsers send this header, and a node is not a browser.
    if parts.headers.contains_key(header::ORIGIN) {
        return Err((StatusCode::FORBIDDEN, "this address is for servers, not for web pages\n").into_response());
    }
    let given = bearer(&parts.headers);
    if given.is_some_and(|given| given.as_bytes().ct_eq(token.expose_secret().as_bytes()).into()) {
        return Ok(keeper.clone());
    }
    let refusal = given.map_or(Refusal::Missing, |_| Refusal::Wrong("not NODE_TOKEN"));
    Err(match app.admission.refuse_credentials(peer(parts), what, refusal).await {
        Err(error) => problem(StatusCode::TOO_MANY_REQUESTS, error),
        Ok(()) => {
            let error = ErrorBody::new(ErrorCode::Unauthenticated, "the token is not this server's NODE_TOKEN");
            problem(StatusCode::UNAUTHORIZED, error)
        }
    })
}

fn peer(parts: &Parts) -> Option<IpAddr> {
    parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip())
}

/// Handles a request for `/internal/relay`.
pub(in crate::server) async fn enter(State(app): State<Arc<App>>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    let keeper = match admit(&app, &parts, "relay").await {
        Ok(keeper) => keeper,
        Err(refused) => return refused,
    };
    let context = app.registry.traces().of_headers(&parts.headers);
    // Many links come from one address at once when clients reconnect, so they are not guests.
    let guest = parts.extensions.get::<Arc<Guest>>().cloned();
    guest.iter().for_each(|guest| guest.known_as(SUBPROTOCOL));
    if let Some(refused) = handshake::refuse(&parts.headers) {
        return refused;
    }
    let socket = match WebSocketUpgrade::from_request_parts(&mut parts, &app).await {
        Ok(socket) => socket,
        Err(refused) => return refused.into_response(),
    };
    if !socket.requested_protocols().any(|protocol| protocol.as_bytes() == SUBPROTOCOL.as_bytes()) {
        let message = format!("this server speaks {SUBPROTOCOL} with other nodes; they have another version\n");
        return (StatusCode::BAD_REQUEST, message).into_response();
    }
    let address = peer(&parts).unwrap_or_else(|| Ipv4Addr::UNSPECIFIED.into());
    handshake::sized(socket.protocols([SUBPROTOCOL]), app.admission.message_bytes_max).on_upgrade(move |socket| {
        guest.iter().for_each(|guest| guest.upgraded());
        let tracker = app.stopping.connections.clone();
        tracker.track_future(Box::pin(async move {
            let me = keeper.me();
            if let Some(mut connection) = greeted(app, socket, me, address, guest).await {
                connection.context = context;
                Box::pin(connection.run()).await;
            }
        }))
    })
}

/// Waits for the greeting, and creates the connection.
async fn greeted(
    app: Arc<App>,
    mut socket: WebSocket,
    me: NodeId,
    address: IpAddr,
    guest: Option<Arc<Guest>>,
) -> Option<Box<Connection>> {
    let first = tokio::select! {
        () = app.stopping.stop.cancelled() => return None,
        first = timeout(app.patience.hello, socket.recv()) => first.ok()??.ok()?,
    };
    let Message::Text(text) = first else { return None };
    let greeting = match serde_json::from_str(&text) {
        Ok(ToHolder::Greeting(greeting)) => *greeting,
        Ok(ToHolder::Renewal(_)) => return None,
        Err(error) => {
            tracing::warn!(%error, "another server's greeting cannot be read; are their versions adjacent?");
            return None;
        }
    };
    if greeting.node != me.0 {
        let frame = CloseFrame { code: WRONG_NODE, reason: "another node".into() };
        let closing = async {
            let _ = socket.send(Message::Close(Some(frame))).await;
            while let Some(Ok(_)) = socket.recv().await {}
        };
        let _ = timeout(CLOSE_TIME, closing).await;
        return None;
    }
    let Greeting { connection_id, client_id, client, name, rights, .. } = greeting;
    let grant = rights.grant(&app.auth, name);
    // The edge has already taken the place and the permit.
    let permits = (Permit::default(), None);
    let mut connection = Connection::new(app, Link::Socket(socket), Some(grant), true, address, permits, guest);
    connection.start_relayed(Identity { connection_id, client_id, software: client });
    Some(Box::new(connection))
}
