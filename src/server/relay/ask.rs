//! What one node asks all others: to end the grants that a service takes back.

use super::holder::admit;
use crate::server::{app::App, auth::Revoked};
use axum::{
    Json,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures_util::future::join_all;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// The path at which a node learns what was taken back at another one.
pub(in crate::server) const REVOKE_PATH: &str = "/internal/revoke";

/// The time limit for another node's answer. A service waits for it.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// Bytes of a request between nodes.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// What a service takes back.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Revocation {
    service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ticket: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Ended {
    sockets: usize,
}

/// Has the other nodes end what a service takes back. Returns how many connections that ended, and the names of nodes
/// that did not answer.
pub(in crate::server) async fn revoke_elsewhere(app: &App, service: &str, whose: &Revoked<'_>) -> (usize, Vec<String>) {
    let others = app.registry.keeper().map(|keeper| keeper.others()).unwrap_or_default();
    let (ticket, user) = match whose {
        Revoked::Ticket(id) => (Some((*id).to_owned()), None),
        Revoked::User(name) => (None, Some((*name).to_owned())),
    };
    let body = &Revocation { service: service.to_owned(), ticket, user };
    let asked = others.iter().map(async |row| {
        let ended = match &row.node.address {
            Some(address) => ask(app, address, body).await,
            None => Err("it has no NODE_ADDRESS".to_owned()),
        };
        ended.map_err(|error| {
            tracing::warn!(node = %row.id, name = row.node.name, error, "another server did not hear of a revocation");
            row.node.name.clone()
        })
    });
    let (mut sockets, mut unanswered) = (0, Vec::new());
    for ended in join_all(asked).await {
        match ended {
            Ok(ended) => sockets += ended.sockets,
            Err(name) => unanswered.push(name),
        }
    }
    (sockets, unanswered)
}

async fn ask(app: &App, address: &str, body: &Revocation) -> Result<Ended, String> {
    let token = app.node_token.as_ref().ok_or("this server has no NODE_TOKEN")?;
    // `ws` becomes `http`, and `wss` `https`.
    let url = format!("http{}{REVOKE_PATH}", address.trim_start_matches("ws"));
    let builder = reqwest::Client::builder().timeout(ANSWER_TIME).no_proxy();
    let builder = if url.starts_with("http:") { builder.tls_certs_only([]) } else { builder };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = builder.build().map_err(|error| error.to_string())?;
    let body = serde_json::to_vec(body).map_err(|error| error.to_string())?;
    let sending = client.post(url).bearer_auth(token.expose_secret()).body(body).send();
    let answered = sending.await.and_then(reqwest::Response::error_for_status).map_err(|error| error.to_string())?;
    let body = answered.bytes().await.map_err(|error| error.to_string())?;
    serde_json::from_slice(&body).map_err(|error| error.to_string())
}

/// Handles `POST /internal/revoke`.
pub(in crate::server) async fn revoked_elsewhere(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if let Err(refused) = admit(&app, &parts, "revoke").await {
        return refused;
    }
    let Ok(body) = axum::body::to_bytes(body, BODY_BYTES_MAX).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let Ok(Revocation { service, ticket, user }) = serde_json::from_slice(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let whose = match (&ticket, &user) {
        (Some(id), None) => Revoked::Ticket(id),
        (None, Some(name)) => Revoked::User(name),
        _ => return StatusCode::BAD_REQUEST.into_response(),
    };
    let (_, sockets) = app.auth.end(&service, &whose).await;
    Json(Ended { sockets }).into_response()
}
