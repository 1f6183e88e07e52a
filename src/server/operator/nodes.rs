//! The servers that share the database.

use crate::{
    server::{
        answers::{NoParameters, Parameters, problem},
        app::App,
        auth::Operator,
    },
    store::NodeRow,
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns every server that shares the database, as this one sees them. The list is empty without a cluster.
pub(in crate::server) async fn nodes(
    _: Operator,
    _: Parameters<NoParameters>,
    State(app): State<Arc<App>>,
) -> Response {
    let Some(keeper) = app.registry.keeper() else { return Json(json!({ "items": [] })).into_response() };
    match keeper.nodes().await {
        Ok(rows) => {
            let me = keeper.me();
            let items: Vec<Value> = rows
                .iter()
                .map(|(row, is_silent)| {
                    let mut shown = item(row);
                    shown["self"] = (row.id == me).into();
                    if *is_silent {
                        shown["state"] = "silent".into();
                    }
                    shown
                })
                .collect();
            Json(json!({ "items": items })).into_response()
        }
        Err(error) => problem(StatusCode::SERVICE_UNAVAILABLE, app.registry.fault(&error)),
    }
}

/// Returns a server in the form that lists show.
pub(crate) fn item(row: &NodeRow) -> Value {
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    // A program that only reads the table has no clock but the database's.
    let state = match row {
        row if row.age >= row.node.lease * 2 => "silent",
        row if row.pulse.draining => "draining",
        _ => "living",
    };
    json!({
        "node": row.id.0, "name": row.node.name, "address": row.node.address, "version": row.node.version,
        "state": state, "sessions": row.pulse.sessions, "connections": row.pulse.connections,
        "leaseMs": millis(row.node.lease), "beatAgeMs": millis(row.age),
    })
}
