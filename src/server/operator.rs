//! HTTP endpoints for operators: health, metrics, session statistics, usage, budgets, minutes, the context of a
//! session, backups, and MCP servers.

pub(super) mod backup;
pub(super) mod budgets;
pub(super) mod context;
mod levers;
pub(super) mod mcp;
pub(super) mod minutes;
pub(super) mod nodes;
pub(super) mod requests;
pub(super) mod routes;
pub(super) mod usage;

use super::{
    answers::{Parameters, problem},
    app::App,
    auth::Operator,
    node::ask::compactions_elsewhere,
    sessions::item,
    tree,
};
use crate::{
    runtime::store_error,
    store::{Error, ListQuery},
};
use axum::{
    Json,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use reseed_protocol::{ErrorBody, ErrorCode, SessionId, tree::Tree};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// Sessions per page: default and maximum.
const LIST_LIMIT: (u32, u32) = (100, 1_000);

/// Reports that the process is running.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// The time limit for the store's readiness check, which is polled every few seconds.
const READY_TIME: Duration = Duration::from_secs(3);

/// Reports that the server accepts sessions: its store can be read and written, and the server is not about to stop.
pub(super) async fn readyz(State(app): State<Arc<App>>) -> Response {
    if app.stopping.is_draining() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    if !app.registry.is_trusted() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the database is away\n").into_response();
    }
    let ready = tokio::time::timeout(READY_TIME, store_ready(&app)).await;
    ready.unwrap_or_else(|_| (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n").into_response())
}

async fn store_ready(app: &App) -> Response {
    let store = app.registry.store();
    if let Err(error) = store.check_writable().await {
        // The failure was logged when it happened, and this is polled every few seconds.
        tracing::debug!(%error, "the store accepts no writes");
        let remedy = match store.failure() {
            Some(_) => "the store failed; check its disk and restart the server\n",
            None => "the store cannot write; check its disk\n",
        };
        return (StatusCode::SERVICE_UNAVAILABLE, remedy).into_response();
    }
    match app.registry.store().list(ListQuery { limit: 1, ..ListQuery::default() }).await {
        Ok(_) => (StatusCode::OK, "ready\n").into_response(),
        Err(error) => {
            tracing::error!(%error, "the store cannot be read");
            (StatusCode::SERVICE_UNAVAILABLE, "the store cannot be read\n").into_response()
        }
    }
}

/// Returns the metrics in Prometheus' format.
pub(super) async fn metrics(_: Operator, State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], app.metrics.render()).into_response()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listing {
    owner: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// Returns statistics of every session, or of one user's, newest first. Session names derive from conversation text, so
/// only operators who may read content see them.
pub(super) async fn sessions(
    operator: Operator,
    State(app): State<Arc<App>>,
    Parameters(listing): Parameters<Listing>,
) -> Response {
    let limit = listing.limit.unwrap_or(LIST_LIMIT.0);
    if !(1..=LIST_LIMIT.1).contains(&limit) {
        let message = format!("limit must be 1 to {}, not {limit}", LIST_LIMIT.1);
        return problem(StatusCode::BAD_REQUEST, ErrorBody::new(ErrorCode::InvalidField, message).with_field("limit"));
    }
    let query = ListQuery { owner: listing.owner, cursor: listing.cursor, limit, ..ListQuery::default() };
    let page = match app.registry.store().list(query).await {
        Ok(page) => page,
        Err(Error::Cursor(_)) => {
            let error =
                ErrorBody::new(ErrorCode::InvalidField, "the cursor is not from this server").with_field("cursor");
            return problem(StatusCode::BAD_REQUEST, error);
        }
        Err(error) => return problem(StatusCode::SERVICE_UNAVAILABLE, store_error(&error)),
    };
    let elsewhere = compactions_elsewhere(&app, &page.items).await;
    let items: Vec<serde_json::Value> = page
        .items
        .iter()
        .map(|head| {
            let mut shown = item(&app, head);
            if !operator.reads_content {
                shown.name.clear();
            }
            let mut shown = serde_json::to_value(shown).unwrap_or_default();
            shown["owner"] = head.owner.clone().into();
            shown["windowTokens"] = head.head.window_tokens.into();
            let node = app.registry.keeper().and_then(|keeper| keeper.name_of(head.holder));
            shown["open"] = (node.is_some() || app.registry.opened(&head.session).is_some()).into();
            if let Some(node) = node {
                shown["node"] = node.into();
            }
            let here = app.registry.open_row(&head.session);
            let here = here.map(|row| serde_json::to_value(row).unwrap_or_default());
            if let Some(mut row) = here.or_else(|| elsewhere.get(&head.session).cloned()) {
                for name in ["model", "strategy"] {
                    if let Some(value) = row.as_object_mut().and_then(|row| row.remove(name)) {
                        shown[name] = value;
                    }
                }
                shown["compaction"] = row;
            }
            shown
        })
        .collect();
    let open = app.registry.open_count();
    let Operator { name, reads_content, writes } = &operator;
    let me = serde_json::json!({ "name": name, "readsContent": reads_content, "writes": writes });
    let mut body = serde_json::json!({ "items": items, "openSessions": open, "operator": me });
    if let Some(cursor) = page.next_cursor {
        body["nextCursor"] = cursor.into();
    }
    Json(body).into_response()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TreePart {
    root: Option<String>,
    depth: Option<u32>,
}

/// Returns the shape of a session's tree. It includes previews and labels only if operators may read content.
pub(super) async fn session_tree(
    operator: Operator,
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Parameters(part): Parameters<TreePart>,
) -> Response {
    answer_of(tree_of(&app, &id, part, operator.reads_content).await)
}

async fn tree_of(app: &App, id: &str, part: TreePart, with_content: bool) -> Result<Tree, ErrorBody> {
    let id = session_id(id)?;
    let head = app.registry.find(&id).await?;
    let root = part.root.map(|root| root.parse()).transpose().map_err(|error| {
        ErrorBody::new(ErrorCode::EntryNotFound, format!("`root` is not an entry id: {error}")).with_field("root")
    })?;
    let mut tree = tree::tree(app, &head, tree::Part { root, depth: part.depth }, "root").await?;
    if !with_content {
        for node in &mut tree.nodes {
            node.preview.clear();
            node.label = None;
        }
    }
    Ok(tree)
}

fn session_id(text: &str) -> Result<SessionId, ErrorBody> {
    text.parse().map_err(|error| ErrorBody::new(ErrorCode::SessionNotFound, format!("not a session id: {error}")))
}

fn answer_of<T: Serialize>(answer: Result<T, ErrorBody>) -> Response {
    match answer {
        Ok(found) => Json(found).into_response(),
        Err(error) => {
            let status = match error.code {
                ErrorCode::SessionNotFound | ErrorCode::EntryNotFound => StatusCode::NOT_FOUND,
                ErrorCode::InvalidField => StatusCode::BAD_REQUEST,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            problem(status, error)
        }
    }
}
