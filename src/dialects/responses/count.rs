//! `POST /v1/responses/input_tokens`: how many tokens a request would send.
//!
//! The request is put into a copy of its chain in memory, counted there as every request is, and the copy is deleted.
//! The chain itself stays as it is.

use super::{
    Door, Forget,
    create::begin,
    ids::{conversation, conversation_id},
    request::{Conversation, Create},
    socket::Shared,
};
use crate::{
    exchange::{Exchange, Place},
    http::Failure,
};
use axum::{
    Json,
    extract::{Request, State},
};
use reseed_client::Connect;
use reseed_protocol::{
    ErrorBody, ErrorCode,
    command::{Command, Empty},
    reply::Reply,
    session::SessionRole,
};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) async fn input_tokens(State(door): State<Door>, request: Request) -> Result<Json<Value>, Failure> {
    let (connect, _, bytes) = door.read(request).await?;
    let create = Create::read(&bytes)?;
    let connect: Arc<dyn Connect> = Arc::from(connect);
    let mut create = Create { store: Some(false), generate: Some(false), ..create };
    // Both copies are deleted at the end: that of a conversation, and that of a chain, which the response has.
    let _copy = copy(&connect, &mut create).await?;
    let mut running = begin(Box::new(Shared(connect)), &create, None, &door.sealer, &|_| false).await?;
    let tokens = tokens(&mut running.exchange).await?;
    Ok(Json(json!({ "object": "response.input_tokens", "input_tokens": tokens })))
}

/// Copies the conversation that a request continues, which then continues the copy. Returns what deletes the copy.
async fn copy(connect: &Arc<dyn Connect>, create: &mut Create) -> Result<Option<Forget>, Failure> {
    let Some(named) = &create.conversation else { return Ok(None) };
    let place = Place::Session(conversation(named.id())?);
    let original = Exchange::open_as(Box::new(Shared(connect.clone())), place, SessionRole::Writer).await;
    let original = original.map_err(|error| Failure::from(error).at("conversation"))?;
    let Some(leaf) = original.snapshot().leaf_id.clone() else {
        create.conversation = None;
        return Ok(None);
    };
    let copy = original.into_unstored(leaf, None).await?;
    let session = copy.snapshot().session_id.clone();
    create.conversation = Some(Conversation::Id(conversation_id(&session)));
    Ok(Some(Forget { connect: Some(Box::new(Shared(connect.clone()))), session }))
}

async fn tokens(exchange: &mut Exchange) -> Result<u64, ErrorBody> {
    match exchange.request(&Command::GetContextInfo(Empty {})).await? {
        Reply::ContextInfo(info) => Ok(info.token_count),
        _ => Err(ErrorBody::new(ErrorCode::Internal, "the server has not counted")),
    }
}
