//! Open Responses, the API of OpenAI's SDKs, over HTTP and over a WebSocket at the same address.
//!
//! A response is one turn. Its id names the session and the entry of its input, so a chain of responses is a path in
//! the session's tree, and an older `previous_response_id` begins a branch. Everything that is retrieved later comes
//! from the session's log.
//!
//! - [`request`], [`input`], [`references`], [`tools`]: what a client sends; [`items`], [`resource`], [`events`]: what
//!   it gets
//! - [`create`], [`place`], [`approve`]: ask; [`running`]: follows the turn, which [`writer`] writes as a response;
//!   [`retrieve`]: reads it again
//! - [`conversations`], [`branches`], [`listing`]: sessions as conversations; [`compact`]: summaries that a client may
//!   carry on; [`count`]: tokens of a request; [`socket`]

mod approve;
mod branches;
mod compact;
mod conversations;
mod count;
mod create;
mod events;
mod ids;
mod input;
mod items;
mod listing;
mod place;
mod recent;
mod references;
mod request;
mod resource;
mod retrieve;
mod running;
mod socket;
mod steering;
mod tools;
mod writer;

#[cfg(test)]
pub(crate) use self::{conversations::Wanted as ConversationRequest, request::Create as CreateRequest};
use crate::{
    entrance::{Entrance, Name},
    exchange::{client, request as ask},
    http::{Failure, body, sse},
};
use axum::{
    Json, Router,
    extract::{Path, Query, Request, State, rejection::QueryRejection},
    http::{StatusCode, request::Parts},
    response::{IntoResponse, Response},
    routing::{get, post},
};

use compact::Sealer;
use ids::ResponseId;
use listing::Page;
use recent::{Ending, Recent};
use request::Create;
use reseed_client::Connect;
use reseed_protocol::{
    command::{Command, Empty},
    reply::Reply,
    session::SessionRole,
};
use running::Running;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// The entrance, and what this dialect keeps.
#[derive(Clone)]
struct Door {
    entrance: Arc<dyn Entrance>,
    sealer: Sealer,
    recent: Recent,
}

/// Returns the routes of this dialect.
pub(crate) fn routes(entrance: Arc<dyn Entrance>) -> Router {
    let sealer = Sealer::new(&entrance.seal_keys());
    Router::new()
        .route("/v1/responses", post(create_response).get(socket::upgrade))
        .route("/v1/responses/compact", post(compact_response))
        .route("/v1/responses/input_tokens", post(count::input_tokens))
        .route("/v1/responses/{id}", get(get_response).delete(delete_response))
        .route("/v1/responses/{id}/cancel", post(cancel_response))
        .route("/v1/responses/{id}/input_items", get(input_items))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .merge(conversations::routes())
        .with_state(Door { entrance, sealer, recent: Recent::default() })
}

/// Returns the parameters of an address.
fn asked<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Failure> {
    query.map(|query| query.0).map_err(|rejection| Failure::invalid(rejection.body_text()))
}

impl Door {
    async fn enter(&self, parts: &Parts) -> Result<Box<dyn Connect>, Failure> {
        self.entrance.clone().enter(parts, Name::Responses).await.map_err(Failure::from)
    }

    /// Admits the sender of a request, and reads its body.
    async fn read(&self, request: Request) -> Result<(Box<dyn Connect>, Parts, bytes::Bytes), Failure> {
        let (parts, body) = request.into_parts();
        let connect = self.enter(&parts).await?;
        let bytes = body::read(body, &parts.headers, self.entrance.body_bytes_max()).await?;
        Ok((connect, parts, bytes))
    }
}

async fn create_response(State(door): State<Door>, request: Request) -> Result<Response, Failure> {
    let (connect, parts, bytes) = door.read(request).await?;
    let mut create = Create::read(&bytes)?;
    if create.background == Some(true) && create.store == Some(false) {
        return Err(Failure::invalid("a response in the background must be stored").at("store"));
    }
    let key = parts.headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let (listed, known) = door.recent.find(&mut create, &parts.headers, bytes.len());
    let going_on = match known {
        Some((rest, forget)) => {
            let may_continue = |id: &ResponseId| rest.continues.as_ref() == Some(id);
            let connect = door.enter(&parts).await?;
            // If it cannot go on there, the whole list is taken.
            let begun = create::begin(connect, &rest, key, &door.sealer, &may_continue).await;
            begun.ok().map(|running| (running, Some(forget)))
        }
        None => None,
    };
    let (running, forget) = match going_on {
        Some(going_on) => going_on,
        None => {
            let mut running = create::begin(connect, &create, key, &door.sealer, &|_| false).await?;
            let forget = running.forget.take();
            (running, forget)
        }
    };
    let ending = forget.map(|forget| Ending::new(forget, listed));
    if create.stream == Some(true) {
        return Ok(streamed(running, ending));
    }
    let mut followed = Followed(Some(running));
    let Some(running) = followed.0.as_mut() else { return Err(lost()) };
    while !running.writer.is_over() && create.background != Some(true) {
        running.step().await?;
    }
    let (id, shown) = (running.id.clone(), running.writer.shown());
    followed.end().await;
    if let Some(ending) = ending {
        ending.ended(&id, &shown);
    }
    Ok(Json(shown).into_response())
}

fn lost() -> Failure {
    Failure::invalid("the response is lost").with_status(StatusCode::INTERNAL_SERVER_ERROR)
}

/// A response that is being read. If its reader leaves, it is still followed to its end, because its turn may need the
/// tools that this connection offers.
struct Followed(Option<Running>);

impl Followed {
    /// Closes the connection, if the response has ended.
    async fn end(mut self) {
        if self.0.as_ref().is_some_and(|running| running.writer.is_over())
            && let Some(running) = self.0.take()
        {
            running.exchange.close().await;
        }
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let Some(mut running) = self.0.take().filter(|running| !running.writer.is_over()) else { return };
        tokio::spawn(async move {
            while !running.writer.is_over() && running.step().await.is_ok() {
                drop(running.writer.take());
            }
            running.exchange.close().await;
        });
    }
}

/// Streams a response to its end.
fn streamed(running: Running, ending: Option<Ending>) -> Response {
    sse::stream(move |events| async move {
        let id = running.id.clone();
        let mut ending = ending;
        let mut followed = Followed(Some(running));
        while let Some(running) = followed.0.as_mut() {
            // Before the client knows the end, because it may go on at once.
            if let Some(ending) = running.writer.is_over().then(|| ending.take()).flatten() {
                ending.ended(&id, &running.writer.shown());
            }
            for event in running.writer.take() {
                events.send(event["type"].as_str(), &event).await;
            }
            if running.writer.is_over() {
                break;
            }
            if let Err(error) = running.step().await {
                // The turn may go on, so the response has not failed: its client can retrieve the rest.
                let mut event = Failure::from(error).shown();
                event["type"] = "error".into();
                events.send(Some("error"), &event).await;
                return;
            }
        }
        events.done().await;
        followed.end().await;
    })
}

/// Deletes a session that was not to be stored, once its response has ended or its client is gone.
struct Forget {
    connect: Option<Box<dyn Connect>>,
    session: reseed_protocol::SessionId,
}

impl Drop for Forget {
    fn drop(&mut self) {
        // Without a runtime, the server has ended, and all sessions in memory with it.
        if let (Some(connect), Ok(runtime)) = (self.connect.take(), tokio::runtime::Handle::try_current()) {
            let session = self.session.clone();
            runtime.spawn(async move {
                // If that fails, the session is deleted when nobody has used it for an hour.
                let _ = retrieve::delete_session(connect, session).await;
            });
        }
    }
}

#[derive(Debug, Default, Deserialize)]
struct Again {
    #[serde(default)]
    stream: bool,
    starting_after: Option<u64>,
}

async fn get_response(
    State(door): State<Door>,
    Path(id): Path<String>,
    again: Result<Query<Again>, QueryRejection>,
    request: Request,
) -> Result<Response, Failure> {
    let again = asked(again)?;
    let (parts, _) = request.into_parts();
    let connect = door.enter(&parts).await?;
    if again.stream {
        let running = retrieve::open(connect, &id, again.starting_after, SessionRole::Observer).await?;
        return Ok(streamed(running, None));
    }
    Ok(Json(retrieve::retrieve(connect, &id).await?).into_response())
}

async fn cancel_response(
    State(door): State<Door>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let (parts, _) = request.into_parts();
    Ok(Json(retrieve::cancel(door.enter(&parts).await?, &id).await?))
}

async fn delete_response(
    State(door): State<Door>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let (parts, _) = request.into_parts();
    Ok(Json(retrieve::delete(door.enter(&parts).await?, &id).await?))
}

async fn input_items(
    State(door): State<Door>,
    Path(id): Path<String>,
    page: Result<Query<Page>, QueryRejection>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let page = asked(page)?;
    let (parts, _) = request.into_parts();
    Ok(Json(retrieve::input_items(door.enter(&parts).await?, &id, &page).await?))
}

async fn compact_response(State(door): State<Door>, request: Request) -> Result<Json<Value>, Failure> {
    let (connect, _, bytes) = door.read(request).await?;
    let create = Create::read(&bytes)?;
    Ok(Json(compact::compact(&door, connect, create).await?))
}

async fn models(State(door): State<Door>, request: Request) -> Result<Json<Value>, Failure> {
    let (parts, _) = request.into_parts();
    let data = all_models(door.enter(&parts).await?).await?;
    Ok(Json(json!({ "object": "list", "data": data, "models": [] })))
}

async fn model(State(door): State<Door>, Path(id): Path<String>, request: Request) -> Result<Json<Value>, Failure> {
    let (parts, _) = request.into_parts();
    let models = all_models(door.enter(&parts).await?).await?;
    let found = models.into_iter().find(|model| model["id"] == id.as_str());
    let unknown = || Failure::not_found("there is no such model").with_code("model_not_found").at("model");
    found.map(Json).ok_or_else(unknown)
}

async fn all_models(connect: Box<dyn Connect>) -> Result<Vec<Value>, Failure> {
    let mut client = client(connect);
    let reply = ask(&mut client, reseed_client::To::Server, &Command::ListModels(Empty {})).await?;
    client.close().await;
    let Reply::Models(models) = reply else {
        return Err(Failure::invalid("the models are not known").with_status(StatusCode::BAD_GATEWAY));
    };
    let shown = models.items.into_iter().map(|model| {
        let mut shown = json!({ "id": model.id, "object": "model", "created": 0, "owned_by": "reseed" });
        if let Some(tokens) = model.window_tokens {
            shown["context_window"] = tokens.into();
        }
        shown
    });
    Ok(shown.collect())
}
