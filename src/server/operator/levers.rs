//! Levers: what operators change over HTTP. Each needs the right to write, happens once for its `Idempotency-Key`, and
//! is recorded in the audit log before it happens and after it.
//!
//! A lever on a session is a command of a client within the process, which acts for the session's owner as an observer.
//! So it works in a cluster too, and takes no role away from the owner's own clients.

pub(in crate::server::operator) mod sessions;
pub(in crate::server::operator) mod users;

use super::nodes::chosen;
use crate::server::{
    answers::{NoParameters, Parameters, Port, problem},
    app::App,
    audit::{ASKED, Act},
    auth::Operator,
    sessions::invalid,
};
use axum::{
    Json,
    body::Bytes,
    extract::{ConnectInfo, FromRequestParts, State},
    http::{StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use reseed_dialects::{exchange::command_id, http::errors::status};
use reseed_protocol::{CommandId, ErrorBody, ErrorCode, SessionId};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// The length of an `Idempotency-Key`. Shorter ones would collide.
const KEY_CHARS: std::ops::RangeInclusive<usize> = 16..=64;

/// The header by which browsers say where a request comes from, also if it has no `Origin`.
const FETCH_SITE: &str = "sec-fetch-site";

/// The result of a lever.
type Outcome = Result<(StatusCode, Value), ErrorBody>;

/// An operator's request to change something.
#[derive(Debug, Clone)]
pub(super) struct Lever {
    pub(super) operator: Operator,
    address: Option<IpAddr>,
    /// The id of the command, from the `Idempotency-Key`.
    command: Option<CommandId>,
    /// True if a page sends it that is not the server's own.
    is_foreign: bool,
}

impl FromRequestParts<Arc<App>> for Lever {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Response> {
        let operator = Operator::from_request_parts(parts, app).await?;
        Parameters::<NoParameters>::from_request_parts(parts, app).await?;
        let port = parts.extensions.get::<Port>().map_or(0, |port| port.0);
        let address = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip());
        let text = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let is_foreign = text(header::ORIGIN.as_str()).is_some_and(|origin| !app.auth.is_own_origin(origin, port))
            || text(FETCH_SITE).is_some_and(|site| !["same-origin", "none"].contains(&site));
        let key = text("idempotency-key");
        if key.is_some_and(|key| !KEY_CHARS.contains(&key.len())) {
            let error = invalid("Idempotency-Key", "an Idempotency-Key has 16 to 64 characters".to_owned());
            return Err(problem(StatusCode::BAD_REQUEST, error));
        }
        let command = key.map(|key| command_id(&format!("operator {}", operator.name), key));
        Ok(Self { operator, address, command, is_foreign })
    }
}

impl Lever {
    /// Does some work, once for the key of the request. It continues if the sender leaves, and a server that stops
    /// waits for it. `content` distinguishes requests.
    pub(super) async fn once(
        self,
        app: &App,
        what: &'static str,
        content: String,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) -> Response {
        if let Err(why) = self.check() {
            app.admission.audit.refused(self.address, what, why);
            return problem(StatusCode::FORBIDDEN, ErrorBody::new(ErrorCode::Forbidden, why));
        }
        // What is kept for an operator who reads texts is not for one who may not.
        let content = command_id(what, &format!("{} {content}", self.operator.reads_content));
        let place = self.command.as_ref().map(|key| app.repeats.place(key, content)).transpose();
        let done = match place {
            Err(error) => Err(error),
            Ok(place) => {
                let stopping = app.stopping.clone();
                let work = async move {
                    if stopping.is_draining() {
                        return Err(ErrorBody::new(ErrorCode::ShuttingDown, "the server is stopping; send it again"));
                    }
                    work.await
                };
                let working = app.stopping.connections.spawn(async move {
                    let Some(place) = place else { return work.await };
                    let mut answer = place.lock().await;
                    if let Some(answer) = &*answer {
                        return Ok(answer.clone());
                    }
                    let done = work.await?;
                    // The text of a preview is not kept.
                    *answer = Some(done.clone()).filter(|(_, body)| body.get("summary").is_none());
                    Ok(done)
                });
                let failed = |_| Err(ErrorBody::new(ErrorCode::Internal, "the request was not carried out"));
                working.await.unwrap_or_else(failed)
            }
        };
        match done {
            Ok((status, body)) => (status, Json(body)).into_response(),
            Err(error) => problem(status_of(&error), error),
        }
    }

    /// Refuses operators who only read. Without credentials, everyone on this machine is an operator, and so is every
    /// page that a browser here shows; only the server's own page may pull levers then.
    fn check(&self) -> Result<(), &'static str> {
        if !self.operator.writes {
            return Err(
                "this needs the scope `operator.write`; an operator of OPERATOR_TOKENS has it as `name/write:token`",
            );
        }
        if self.operator.name.is_empty() && self.is_foreign {
            return Err("pages of other origins need an operator's token with the scope `operator.write`");
        }
        Ok(())
    }

    /// Records an act before it happens and after it.
    async fn recorded(
        &self,
        app: &App,
        what: &'static str,
        about: (Option<&SessionId>, Option<&str>),
        act: impl Future<Output = Outcome>,
    ) -> Outcome {
        self.record(app, what, about, ASKED).await?;
        let done = act.await;
        let outcome = done.as_ref().map_or_else(|error| error.code.as_str(), |_| "done");
        self.record_outcome(app, what, about, outcome).await;
        done
    }

    /// Records how an act has ended.
    pub(super) async fn record_outcome(
        &self,
        app: &App,
        what: &'static str,
        about: (Option<&SessionId>, Option<&str>),
        outcome: &str,
    ) {
        if let Err(error) = self.record(app, what, about, outcome).await {
            tracing::error!(what, outcome, error = error.message, "the outcome of an act is not in the audit log");
        }
    }

    /// Records one line about an act.
    pub(super) async fn record(
        &self,
        app: &App,
        what: &'static str,
        (session, user): (Option<&SessionId>, Option<&str>),
        outcome: &str,
    ) -> Result<(), ErrorBody> {
        let (who, address) = (&*self.operator.name, self.address);
        let user = user.filter(|user| !user.is_empty());
        app.admission.audit.act(Act { who, what, session, user, address, outcome }).await
    }
}

/// Returns the HTTP status of an error.
fn status_of(error: &ErrorBody) -> StatusCode {
    use ErrorCode as Code;
    match error.code {
        Code::NoTurn | Code::NoCompaction | Code::NothingToCompact | Code::NothingToUndo => StatusCode::CONFLICT,
        Code::StoreFailed => StatusCode::SERVICE_UNAVAILABLE,
        code => status(code, error.retriable),
    }
}

/// Reads a body, which may be absent.
///
/// # Errors
/// `invalid_field`: it has other fields, or is not JSON.
fn read<T: Default + DeserializeOwned>(body: &Bytes) -> Result<T, ErrorBody> {
    if body.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(body)
        .map_err(|error| ErrorBody::new(ErrorCode::InvalidField, format!("the body cannot be used: {error}")))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Drained {
    node: Option<String>,
}

/// Asks a server to stop, as a signal would: this one, or the node with this name or number.
pub(super) async fn drain(lever: Lever, State(app): State<Arc<App>>, body: Bytes) -> Response {
    let (puller, content) = (lever.clone(), String::from_utf8_lossy(&body).into_owned());
    lever
        .once(&app.clone(), "drain", content, async move {
            let Drained { node } = read(&body)?;
            puller.recorded(&app, "drain", (None, None), asked_to_drain(&app, node)).await
        })
        .await
}

async fn asked_to_drain(app: &App, node: Option<String>) -> Outcome {
    let accepted = |name: &str| Ok((StatusCode::ACCEPTED, json!({ "node": name, "state": "draining" })));
    let Some(keeper) = app.registry.keeper() else {
        if node.is_some() {
            return Err(invalid("node", "this database is for one server; leave `node` out".to_owned()));
        }
        app.stopping.ask();
        return accepted("");
    };
    let fault = |error| app.registry.fault(&error);
    let rows: Vec<_> = keeper.nodes().await.map_err(fault)?.into_iter().map(|(row, _)| row).collect();
    let row = match &node {
        Some(name) => chosen(&rows, name).map_err(|why| invalid("node", why))?,
        None => rows.iter().find(|row| row.id == keeper.me()).ok_or_else(|| app.session_gone())?,
    };
    if row.id == keeper.me() {
        app.stopping.ask();
    } else if let Some(cluster) = app.registry.store().cluster() {
        cluster.ask_to_drain(row.id).await.map_err(fault)?;
    }
    accepted(&row.node.name)
}
