//! Requests to other nodes over HTTP. They end grants that a service revokes, and fetch the compactions of sessions
//! that other nodes hold.

use super::holder::admit;
use crate::{
    server::{app::App, auth::Revoked, peers::ANSWER_TIME},
    store::SessionHead,
};
use axum::{
    Json,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures_util::future::join_all;
use reseed_protocol::SessionId;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The path at which a node learns of a revocation at another node.
pub(in crate::server) const REVOKE_PATH: &str = "/internal/revoke";

/// The path at which a node returns the compactions of sessions that it holds.
pub(in crate::server) const COMPACTIONS_PATH: &str = "/internal/compactions";

/// Maximum bytes of a request between nodes.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// What a service revokes.
#[derive(Debug, Serialize, Deserialize)]
struct Revocation {
    service: String,
    #[serde(flatten)]
    whose: Revoked,
}

#[derive(Debug, Serialize, Deserialize)]
struct Ended {
    sockets: usize,
}

/// The sessions that a node is asked about, at most one page of a list.
#[derive(Debug, Serialize, Deserialize)]
struct Held {
    sessions: Vec<SessionId>,
}

/// Makes the other nodes end what a service revokes. Returns the number of connections that this ended, and the names
/// of nodes that did not answer.
pub(in crate::server) async fn revoke_elsewhere(app: &App, service: &str, whose: &Revoked) -> (usize, Vec<String>) {
    let others = app.registry.keeper().map(|keeper| keeper.others()).unwrap_or_default();
    let body = &Revocation { service: service.to_owned(), whose: whose.clone() };
    let asked = others.iter().map(async |row| {
        let ended = match &row.node.address {
            Some(address) => ask::<Ended>(app, address, REVOKE_PATH, body).await,
            None => Err("it has no NODE_ADDRESS".to_owned()),
        };
        ended.map_err(|error| {
            tracing::warn!(node = %row.id, name = row.node.name, error, "another server was not notified of a revocation");
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

/// Returns the model, the strategy and the compactions of sessions that other nodes hold. Sends one request per node,
/// and skips nodes that do not answer in time.
pub(in crate::server) async fn compactions_elsewhere(app: &App, heads: &[SessionHead]) -> BTreeMap<SessionId, Value> {
    let others = app.registry.keeper().map(|keeper| keeper.others()).unwrap_or_default();
    let asked = others.iter().filter_map(|row| {
        let of_node = heads.iter().filter(|head| head.holder == Some(row.id)).map(|head| head.session.clone());
        let body = Held { sessions: of_node.collect() };
        let address = row.node.address.as_ref().filter(|_| !body.sessions.is_empty())?;
        Some(async move {
            ask(app, address, COMPACTIONS_PATH, &body).await.unwrap_or_else(|error| {
                tracing::debug!(node = %row.id, error, "another server did not report the compactions of its sessions");
                BTreeMap::new()
            })
        })
    });
    join_all(asked).await.into_iter().flatten().collect()
}

/// Handles `POST /internal/compactions`.
pub(in crate::server) async fn compactions_here(State(app): State<Arc<App>>, request: Request) -> Response {
    let Held { sessions } = match body_of(&app, request, "compactions").await {
        Ok(held) => held,
        Err(refused) => return refused,
    };
    let told = sessions.into_iter().filter_map(|id| {
        let row = app.registry.open_row(&id)?;
        Some((id, row))
    });
    Json(told.collect::<BTreeMap<_, _>>()).into_response()
}

pub(super) async fn ask<T: DeserializeOwned>(
    app: &App,
    address: &str,
    path: &str,
    body: &impl Serialize,
) -> Result<T, String> {
    ask_for(app, address, path, body, ANSWER_TIME).await
}

/// As [`ask`], for an answer that may take longer.
pub(super) async fn ask_for<T: DeserializeOwned>(
    app: &App,
    address: &str,
    path: &str,
    body: &impl Serialize,
    time: Duration,
) -> Result<T, String> {
    let token = app.peers.token().ok_or("this server has no NODE_TOKEN")?;
    // `ws` becomes `http`, and `wss` becomes `https`.
    let url = format!("http{}{path}", address.trim_start_matches("ws"));
    let client = app.peers.client(&url)?;
    let body = serde_json::to_vec(body).map_err(|error| error.to_string())?;
    let sending = client.post(url).bearer_auth(token.expose_secret()).timeout(time).body(body).send();
    let answered = sending.await.and_then(reqwest::Response::error_for_status).map_err(|error| error.to_string())?;
    let body = answered.bytes().await.map_err(|error| error.to_string())?;
    serde_json::from_slice(&body).map_err(|error| error.to_string())
}

/// Handles `POST /internal/revoke`.
pub(in crate::server) async fn revoked_elsewhere(State(app): State<Arc<App>>, request: Request) -> Response {
    let Revocation { service, whose } = match body_of(&app, request, "revoke").await {
        Ok(revocation) => revocation,
        Err(refused) => return refused,
    };
    let sockets = app.auth.end(&service, &whose).await;
    Json(Ended { sockets }).into_response()
}

/// Authenticates another node and parses its request.
///
/// # Errors
/// The response to anyone else, or to a request that cannot be parsed.
pub(super) async fn body_of<T: DeserializeOwned>(
    app: &App,
    request: Request,
    what: &'static str,
) -> Result<T, Response> {
    let (parts, body) = request.into_parts();
    admit(app, &parts, what).await?;
    let body = axum::body::to_bytes(body, BODY_BYTES_MAX).await;
    let body = body.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE.into_response())?;
    serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST.into_response())
}
