//! The operator's routes, and the check that everyone who uses them is an operator.

use super::{backup, budgets, context, levers, mcp, metrics, minutes, nodes, requests, session_tree, sessions, usage};
use crate::server::{
    answers::problem,
    app::App,
    audit,
    auth::{Refusal, bearer},
};
use axum::{
    Router,
    extract::{ConnectInfo, Request, State},
    http::{Method, StatusCode},
    middleware::{self, Next},
    response::Response,
    routing::{delete, get, post},
};
use std::{net::SocketAddr, sync::Arc};

/// Returns the routes that `OPERATOR_PORT` takes away from the public port.
pub(in crate::server) fn routes(app: Arc<App>) -> Router<Arc<App>> {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/api/sessions", get(sessions))
        .route("/api/sessions/{id}/context", get(context::session_context))
        .route("/api/sessions/{id}/tree", get(session_tree))
        .route("/api/sessions/{id}/requests", get(requests::requests))
        .route("/api/nodes", get(nodes::nodes))
        .route("/api/usage", get(usage::usage))
        .route("/api/budgets", get(budgets::budgets))
        .route("/api/minutes", get(minutes::minutes))
        .route("/api/backup", get(backup::newest).post(backup::start))
        .route("/api/mcp", get(mcp::mcp))
        .route("/api/users/{name}", get(levers::users::user).delete(levers::users::delete))
        .route("/api/users/{name}/close", post(levers::users::close))
        .route("/api/sessions/{id}", delete(levers::sessions::delete))
        .route("/api/sessions/{id}/compact", post(levers::sessions::compact))
        .route("/api/sessions/{id}/preview", post(levers::sessions::preview))
        .route("/api/sessions/{id}/undo", post(levers::sessions::undo))
        .route("/api/sessions/{id}/cancel", post(levers::sessions::cancel))
        .route("/api/sessions/{id}/close", post(levers::sessions::close))
        .route("/api/drain", post(levers::drain))
        // Routes that are added below this line need no credentials.
        .route_layer(middleware::from_fn_with_state(app, identify))
}

/// Identifies the operator, and logs what they read.
async fn identify(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let Some(read) = audit::read(request.uri().path()) else { return next.run(request).await };
    let address = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip());
    let token = bearer(request.headers());
    let Some(operator) = app.auth.operator(token).await else {
        let refusal = token.map_or(Refusal::Missing, |_| Refusal::Wrong("not an operator's"));
        return match app.admission.refuse_credentials(address, read.0, refusal).await {
            // The endpoint answers that it needs an operator.
            Ok(()) => next.run(request).await,
            Err(error) => problem(StatusCode::TOO_MANY_REQUESTS, error),
        };
    };
    let name = operator.name.clone();
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    request.extensions_mut().insert(operator);
    let response = next.run(request).await;
    // Levers record what they do.
    if is_read {
        app.admission.audit.read(&name, read, response.status().as_u16(), address);
    }
    response
}
