//! Conversations: sessions, whichever door opened them.

use super::{
    Door, Page, asked,
    create::{as_input_items, newest_system},
    ids::conversation_id,
    resource::details,
    retrieve::{path_to, shown_items},
};
use crate::{
    exchange::{Exchange, INPUT_MARK, Place, command_id},
    http::Failure,
};
use axum::{
    Json, Router,
    extract::{Path, Query, Request, State, rejection::QueryRejection},
    http::{StatusCode, request::Parts},
    routing::{get, post},
};
use reseed_protocol::{
    ErrorCode, SessionId,
    command::{Command, Empty},
    compaction::{StartCompaction, UndoCompaction},
    content::Input,
    reply::{Done, Reply},
    session::SessionRole,
    tree::AppendCustom,
    turn::{UserInput, WhenBusy},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The custom type of the entries that hold a conversation's metadata. The newest is valid.
const METADATA: &str = "conversation_metadata";

pub(super) fn routes() -> Router<Door> {
    Router::new()
        .route("/v1/conversations", post(create))
        .route("/v1/conversations/{id}", get(retrieve).post(update).delete(delete))
        .route("/v1/conversations/{id}/items", get(list_items).post(add_items))
        .route("/v1/conversations/{id}/items/{item}", get(item))
        .route("/v1/conversations/{id}/context", get(context))
        .route("/v1/conversations/{id}/compact", post(compact))
        .route("/v1/conversations/{id}/undo_compaction", post(undo))
}

/// The body of a request about a conversation. Each address reads its own fields.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema), schema(as = ConversationRequest))]
pub(crate) struct Wanted {
    /// Up to 16 pairs of strings.
    #[cfg_attr(test, schema(value_type = Option<Object>))]
    metadata: Option<Map<String, Value>>,
    /// Items to add.
    #[cfg_attr(test, schema(value_type = Option<Vec<Object>>))]
    items: Option<Vec<Value>>,
    /// The focus of a summary.
    instructions: Option<String>,
    /// The strategy of a compaction.
    strategy: Option<String>,
}

fn read(bytes: &[u8]) -> Result<Wanted, Failure> {
    if bytes.is_empty() {
        return Ok(Wanted::default());
    }
    let read = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(bytes));
    read.map_err(|error| Failure::invalid(error.inner().to_string()).at(error.path().to_string()))
}

fn unknown() -> Failure {
    Failure::not_found("there is no such conversation").with_code("conversation_not_found").at("id")
}

async fn open(door: &Door, parts: &Parts, id: &str, role: SessionRole) -> Result<Exchange, Failure> {
    let session: SessionId = id.strip_prefix("conv_").and_then(|id| id.parse().ok()).ok_or_else(unknown)?;
    let connect = door.enter(parts).await?;
    let opened = Exchange::open_as(connect, Place::Session(session), role).await;
    opened.map_err(|error| if error.code == ErrorCode::SessionNotFound { unknown() } else { error.into() })
}

async fn shown(exchange: &mut Exchange) -> Result<Value, Failure> {
    let leaf = exchange.snapshot().leaf_id.clone();
    let path = match &leaf {
        Some(leaf) => path_to(exchange, leaf).await?,
        None => Vec::new(),
    };
    let metadata = path.iter().rev().find_map(|entry| match &entry.data {
        reseed_protocol::EntryData::Custom(custom) if custom.custom_type == METADATA => custom.data.clone(),
        _ => None,
    });
    let created_at = path.first().map_or(0, |entry| super::resource::secs(entry.timestamp));
    Ok(json!({
        "id": conversation_id(&exchange.snapshot().session_id), "object": "conversation", "created_at": created_at,
        "metadata": metadata.unwrap_or_else(|| json!({})),
    }))
}

async fn set_metadata(exchange: &mut Exchange, metadata: Map<String, Value>) -> Result<(), Failure> {
    let data = Value::Object(metadata);
    let command = Command::AppendCustom(AppendCustom { custom_type: METADATA.to_owned(), data });
    if let Reply::Ok(Done { entry_id: Some(entry), .. }) = exchange.request(&command).await? {
        exchange.appended(&entry).await?;
    }
    Ok(())
}

async fn add(door: &Door, exchange: &mut Exchange, items: Vec<Value>) -> Result<(), Failure> {
    let (system, history, parts) = as_input_items(&Value::Array(items), &door.sealer)?;
    // As an input of this dialect, whose system prompt the next response has too. It is no response itself.
    let mut all = newest_system(exchange).await?;
    all.extend(system);
    let details = details(json!({ "system": all, "store": false, "in_conversation": true }));
    if history.is_empty() && matches!(&parts, Input::Items(items) if items.is_empty()) {
        let command = Command::AppendCustom(AppendCustom { custom_type: INPUT_MARK.to_owned(), data: details });
        if let Reply::Ok(Done { entry_id: Some(entry), .. }) = exchange.request(&command).await? {
            exchange.appended(&entry).await?;
        }
        return Ok(());
    }
    let said = UserInput {
        history: Some(history).filter(|history| !history.is_empty()),
        details: Some(details),
        generate: Some(false),
        when_busy: Some(WhenBusy::Reject),
        ..UserInput::plain(parts)
    };
    let accepted = exchange.ask(said, None).await?;
    if let Some(entry) = accepted.entry_id {
        exchange.appended(&entry).await?;
    }
    Ok(())
}

async fn create(State(door): State<Door>, request: Request) -> Result<Json<Value>, Failure> {
    let (connect, parts, bytes) = door.read(request).await?;
    let wanted = read(&bytes)?;
    let key = parts.headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let place = key.map_or(Place::New, |key| Place::Once(command_id("conversations", key)));
    let mut exchange = Exchange::open(connect, place, Vec::new()).await?;
    // An entry makes the session durable, and says when it began.
    set_metadata(&mut exchange, wanted.metadata.unwrap_or_default()).await?;
    if let Some(items) = wanted.items.filter(|items| !items.is_empty()) {
        add(&door, &mut exchange, items).await?;
    }
    let shown = shown(&mut exchange).await?;
    exchange.close().await;
    Ok(Json(shown))
}

async fn retrieve(State(door): State<Door>, Path(id): Path<String>, request: Request) -> Result<Json<Value>, Failure> {
    let (parts, _) = request.into_parts();
    let mut exchange = open(&door, &parts, &id, SessionRole::Observer).await?;
    let shown = shown(&mut exchange).await?;
    exchange.close().await;
    Ok(Json(shown))
}

async fn update(State(door): State<Door>, Path(id): Path<String>, request: Request) -> Result<Json<Value>, Failure> {
    let (_, parts, bytes) = door.read(request).await?;
    let wanted = read(&bytes)?;
    let mut exchange = open(&door, &parts, &id, SessionRole::Writer).await?;
    set_metadata(&mut exchange, wanted.metadata.unwrap_or_default()).await?;
    let shown = shown(&mut exchange).await?;
    exchange.close().await;
    Ok(Json(shown))
}

async fn delete(State(door): State<Door>, Path(id): Path<String>, request: Request) -> Result<Json<Value>, Failure> {
    let (parts, _) = request.into_parts();
    let mut exchange = open(&door, &parts, &id, SessionRole::Writer).await?;
    let session = exchange.snapshot().session_id.clone();
    exchange.request_to(session.into(), &Command::DeleteSession(Empty {})).await?;
    Ok(Json(json!({ "id": id, "object": "conversation.deleted", "deleted": true })))
}

async fn items(exchange: &mut Exchange) -> Result<Vec<Value>, Failure> {
    let Some(leaf) = exchange.snapshot().leaf_id.clone() else { return Ok(Vec::new()) };
    Ok(path_to(exchange, &leaf).await?.iter().flat_map(shown_items).collect())
}

async fn list_items(
    State(door): State<Door>,
    Path(id): Path<String>,
    page: Result<Query<Page>, QueryRejection>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let page = asked(page)?;
    let (parts, _) = request.into_parts();
    let mut exchange = open(&door, &parts, &id, SessionRole::Observer).await?;
    let items = items(&mut exchange).await?;
    exchange.close().await;
    Ok(Json(page.of(items)))
}

async fn add_items(State(door): State<Door>, Path(id): Path<String>, request: Request) -> Result<Json<Value>, Failure> {
    let (_, parts, bytes) = door.read(request).await?;
    let wanted = read(&bytes)?;
    let mut exchange = open(&door, &parts, &id, SessionRole::Writer).await?;
    let added = wanted.items.unwrap_or_default();
    let count = added.len();
    if count > 0 {
        add(&door, &mut exchange, added).await?;
    }
    let all = items(&mut exchange).await?;
    exchange.close().await;
    let newest: Vec<Value> = all[all.len().saturating_sub(count)..].to_vec();
    Ok(Json(Page { order: Some("asc".to_owned()), limit: Some(super::ITEMS_MAX), after: None }.of(newest)))
}

async fn item(
    State(door): State<Door>,
    Path((id, item)): Path<(String, String)>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let (parts, _) = request.into_parts();
    let mut exchange = open(&door, &parts, &id, SessionRole::Observer).await?;
    let found = items(&mut exchange).await?.into_iter().find(|known| known["id"] == item.as_str());
    exchange.close().await;
    found.map(Json).ok_or_else(|| Failure::not_found("there is no such item").with_code("item_not_found").at("item"))
}

async fn context(State(door): State<Door>, Path(id): Path<String>, request: Request) -> Result<Json<Value>, Failure> {
    let (parts, _) = request.into_parts();
    let mut exchange = open(&door, &parts, &id, SessionRole::Observer).await?;
    let reply = exchange.request(&Command::GetContextInfo(Empty {})).await?;
    exchange.close().await;
    let Reply::ContextInfo(info) = reply else { return Err(unknown()) };
    serde_json::to_value(info).map(Json).map_err(|_| unknown())
}

async fn compact(State(door): State<Door>, Path(id): Path<String>, request: Request) -> Result<Json<Value>, Failure> {
    let (_, parts, bytes) = door.read(request).await?;
    let Wanted { instructions, strategy, .. } = read(&bytes)?;
    let mut exchange = open(&door, &parts, &id, SessionRole::Writer).await?;
    let entry = exchange.compact(StartCompaction { instructions, strategy, ..StartCompaction::default() }).await?;
    let info = exchange.snapshot().context_info.clone();
    exchange.close().await;
    let summary = match &entry.data {
        reseed_protocol::EntryData::Compaction(compaction) => compaction.summary.as_str(),
        _ => "",
    };
    Ok(Json(json!({
        "id": format!("cmp_{}", entry.entry_id), "object": "conversation.compaction", "summary": summary,
        "context": info,
    })))
}

async fn undo(State(door): State<Door>, Path(id): Path<String>, request: Request) -> Result<StatusCode, Failure> {
    let (parts, _) = request.into_parts();
    let mut exchange = open(&door, &parts, &id, SessionRole::Writer).await?;
    exchange.request(&Command::UndoCompaction(UndoCompaction::default())).await?;
    exchange.close().await;
    Ok(StatusCode::NO_CONTENT)
}
