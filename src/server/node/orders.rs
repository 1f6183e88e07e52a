//! What operators order all nodes to do, or the node that holds a session, and what no command of a client does.

use super::ask::{ask_for, body_of};
use crate::{
    server::{answers::problem, app::App, peers::ANSWER_TIME},
    store::NodeRow,
};
use axum::{
    Json,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use futures_util::future::join_all;
use reseed_protocol::{ErrorBody, SessionId};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// The path at which a node takes orders.
pub(in crate::server) const PATH: &str = "/internal/orders";

/// The time limit for a node to carry out an order. It may have to close thousands of sessions, each with a commit.
const ORDER_TIME: Duration = Duration::from_secs(60);

/// An order.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::server) enum Order {
    /// Close this session.
    CloseSession(SessionId),
    /// Count the connections and the open sessions of this user.
    CountUser(String),
    /// Close them.
    CloseUser(String),
    /// Close them, and forget what only this node's memory has of the user: the class, and sessions that are not
    /// stored.
    ForgetUser(String),
}

/// What an order concerned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::server) struct Concerned {
    /// Connections of clients.
    pub(in crate::server) sockets: usize,
    /// Open sessions.
    pub(in crate::server) open: usize,
    /// Sessions that were deleted.
    pub(in crate::server) deleted: usize,
}

/// Carries out an order on this node.
///
/// # Errors
/// The store's.
pub(in crate::server) async fn carry_out(app: &App, order: &Order) -> Result<Concerned, ErrorBody> {
    let (registry, mut done) = (&app.registry, Concerned::default());
    match order {
        Order::CloseSession(session) => {
            done.sockets = registry.close(session).await;
        }
        Order::CountUser(user) => {
            (done.sockets, done.open) = (app.auth.connections_of(user), registry.opened_of(user).len());
        }
        Order::CloseUser(user) => {
            (done.sockets, done.open) = (app.auth.end_user(user).await, registry.close_all_of(user).await);
        }
        Order::ForgetUser(user) => {
            (done.sockets, done.open) = (app.auth.end_user(user).await, registry.close_all_of(user).await);
            done.deleted = registry.delete_unstored_of(user).await.map_err(|error| registry.fault(&error))?;
            registry.budgets().forget(user);
        }
    }
    Ok(done)
}

/// Has all nodes carry out an order, this one included. Returns the sum, and the names of nodes that did not answer.
///
/// # Errors
/// As [`carry_out`].
pub(in crate::server) async fn everywhere(app: &App, order: &Order) -> Result<(Concerned, Vec<String>), ErrorBody> {
    // A node that has just started is not known here yet, but in the database.
    let others: Vec<NodeRow> = match app.registry.keeper() {
        Some(keeper) => {
            let rows = keeper.nodes().await.map_err(|error| app.registry.fault(&error))?;
            let is_other = |row: &NodeRow, is_silent: bool| row.id != keeper.me() && !is_silent;
            rows.into_iter().filter(|(row, is_silent)| is_other(row, *is_silent)).map(|(row, _)| row).collect()
        }
        None => Vec::new(),
    };
    let mut sum = carry_out(app, order).await?;
    let mut unanswered = Vec::new();
    for (row, done) in others.iter().zip(join_all(others.iter().map(|row| send(app, row, order))).await) {
        match done {
            Ok(Concerned { sockets, open, deleted }) => {
                sum.sockets += sockets;
                sum.open += open;
                sum.deleted += deleted;
            }
            Err(error) => {
                tracing::warn!(node = %row.id, name = row.node.name, error, "another server did not carry out an order");
                unanswered.push(row.node.name.clone());
            }
        }
    }
    Ok((sum, unanswered))
}

/// Has another node carry out an order.
///
/// # Errors
/// Why it did not answer.
pub(in crate::server) async fn send(app: &App, row: &NodeRow, order: &Order) -> Result<Concerned, String> {
    let address = row.node.address.as_ref().ok_or("it has no NODE_ADDRESS")?;
    let time = if matches!(order, Order::CountUser(_)) { ANSWER_TIME } else { ORDER_TIME };
    ask_for(app, address, PATH, order, time).await
}

/// Handles `POST /internal/orders`.
pub(in crate::server) async fn received(State(app): State<Arc<App>>, request: Request) -> Response {
    let order: Order = match body_of(&app, request, "orders").await {
        Ok(order) => order,
        Err(refused) => return refused,
    };
    match carry_out(&app, &order).await {
        Ok(done) => Json(done).into_response(),
        Err(error) => problem(StatusCode::SERVICE_UNAVAILABLE, error),
    }
}
