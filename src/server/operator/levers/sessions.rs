//! Levers on one session.

use super::{Lever, Outcome, read};
use crate::{
    server::{app::App, inside::Inside, node::orders, operator::session_id},
    store::SessionHead,
};
use axum::{
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use reseed_dialects::exchange::{Exchange, client, request};
use reseed_protocol::{
    CommandId, ErrorBody,
    command::{Command, Empty},
    compaction::{CancelCompaction, PreviewCompaction, StartCompaction, UndoCompaction},
    reply::Reply,
    session::Software,
    turn::CancelTurn,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

/// A lever on a session that exists.
struct Order {
    app: Arc<App>,
    head: SessionHead,
    address: Option<IpAddr>,
    /// The id of the command, if the request has a key.
    command: Option<CommandId>,
    reads_content: bool,
    body: Bytes,
}

/// Pulls a lever on a session.
async fn pull<W>(
    lever: Lever,
    app: Arc<App>,
    what: &'static str,
    (id, body): (String, Bytes),
    act: impl FnOnce(Order) -> W + Send + 'static,
) -> Response
where
    W: Future<Output = Outcome> + Send,
{
    let (puller, content) = (lever.clone(), format!("{id} {}", String::from_utf8_lossy(&body)));
    lever
        .once(&app.clone(), what, content, async move {
            let head = app.registry.find(&session_id(&id)?).await?;
            let Lever { command, address, .. } = puller.clone();
            let (reads_content, about) = (puller.operator.reads_content, head.clone());
            let order = Order { app: app.clone(), head, address, command, reads_content, body };
            puller.recorded(&app, what, (Some(&about.session), Some(&about.owner)), act(order)).await
        })
        .await
}

impl Order {
    /// Connects a client that acts for the session's owner.
    fn connect(&self) -> Inside {
        Inside {
            app: self.app.clone(),
            grant: self.app.auth.of_operator(&self.head.owner, &self.head.session),
            address: self.address.unwrap_or_else(|| Ipv4Addr::UNSPECIFIED.into()),
            dialect: "operator",
            context: None,
        }
    }

    /// Opens the session.
    async fn open(&self) -> Result<Exchange, ErrorBody> {
        let software = Software { name: "operator".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        Exchange::observe(self.connect(), self.head.session.clone(), software).await
    }

    /// Sends a command, and leaves the session again.
    async fn send(&self, mut exchange: Exchange, command: Command) -> Result<Reply, ErrorBody> {
        let reply = match &self.command {
            Some(id) => exchange.request_as(id.clone(), &command).await,
            None => exchange.request(&command).await,
        };
        exchange.close().await;
        reply
    }
}

/// Returns the payload of a reply.
fn shown(reply: &impl Serialize) -> Value {
    let mut shown = serde_json::to_value(reply).unwrap_or_default();
    shown.get_mut("payload").map(Value::take).unwrap_or_default()
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Compacting {
    instructions: Option<String>,
}

/// Compacts a session.
pub(in crate::server) async fn compact(
    lever: Lever,
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    pull(lever, app, "compact", (id, body), async |order| {
        let Compacting { instructions } = read(&order.body)?;
        let command = Command::StartCompaction(StartCompaction { instructions, ..StartCompaction::default() });
        let exchange = order.open().await?;
        Ok((StatusCode::ACCEPTED, shown(&order.send(exchange, command).await?)))
    })
    .await
}

/// Shows what a compaction would do. It cannot be applied later: it ends with its connection.
pub(in crate::server) async fn preview(
    lever: Lever,
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    pull(lever, app, "preview", (id, body), async |order| {
        let Compacting { instructions } = read(&order.body)?;
        let command = Command::PreviewCompaction(PreviewCompaction { instructions, ..PreviewCompaction::default() });
        let exchange = order.open().await?;
        let mut shown = shown(&order.send(exchange, command).await?);
        let texts = if order.reads_content { &[][..] } else { &["summary"] };
        if let Some(fields) = shown.as_object_mut() {
            fields.retain(|name, _| !["previewId", "expiresAt"].contains(&&**name) && !texts.contains(&&**name));
        }
        Ok((StatusCode::OK, shown))
    })
    .await
}

/// Undoes the compaction in effect.
pub(in crate::server) async fn undo(
    lever: Lever,
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    pull(lever, app, "undo", (id, body), async |order| {
        let Nothing {} = read(&order.body)?;
        let exchange = order.open().await?;
        let reply = order.send(exchange, Command::UndoCompaction(UndoCompaction::default())).await?;
        Ok((StatusCode::OK, shown(&reply)))
    })
    .await
}

/// The body of a request that needs none.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancelling {
    what: Option<Cancelled>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Cancelled {
    Turn,
    Compaction,
}

/// Cancels the running turn, or else the running compaction.
pub(in crate::server) async fn cancel(
    lever: Lever,
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    pull(lever, app, "cancel", (id, body), async |order| {
        let Cancelling { what } = read(&order.body)?;
        let exchange = order.open().await?;
        let snapshot = exchange.snapshot();
        let runs = match (&snapshot.turn, &snapshot.compaction) {
            (None, Some(_)) => Cancelled::Compaction,
            _ => Cancelled::Turn,
        };
        let command = match what.unwrap_or(runs) {
            Cancelled::Turn => {
                Command::CancelTurn(CancelTurn { turn_id: snapshot.turn.as_ref().map(|turn| turn.turn_id.clone()) })
            }
            Cancelled::Compaction => Command::CancelCompaction(CancelCompaction { job_id: None }),
        };
        Ok((StatusCode::OK, shown(&order.send(exchange, command).await?)))
    })
    .await
}

/// Closes a session wherever it is open. Its clients get `session_closed`, and it leaves memory.
pub(in crate::server) async fn close(
    lever: Lever,
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    pull(lever, app, "close", (id, body), async |order| {
        let Nothing {} = read(&order.body)?;
        let Order { app, head, .. } = order;
        let close = orders::Order::CloseSession(head.session.clone());
        let done = match app.registry.locate(&head.session, &head.owner).await? {
            None => orders::carry_out(&app, &close).await?,
            Some(row) => orders::send(&app, &row, &close).await.map_err(|error| {
                tracing::warn!(node = %row.id, error, "another server was not asked to close a session");
                app.registry.held_elsewhere(&head.session, row.id)
            })?,
        };
        Ok((StatusCode::OK, json!({ "sockets": done.sockets })))
    })
    .await
}

/// Deletes a session.
pub(in crate::server) async fn delete(
    lever: Lever,
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    pull(lever, app, "delete", (id, body), async |order| {
        let Nothing {} = read(&order.body)?;
        let (mut client, session) = (client(Box::new(order.connect())), order.head.session.clone());
        let deleted = request(&mut client, session.clone(), &Command::DeleteSession(Empty {})).await;
        client.close().await;
        deleted.map(|_| (StatusCode::OK, json!({ "sessionId": session })))
    })
    .await
}
