//! Conversations: sessions, whichever door opened them.

use super::{
    Door, asked, branches,
    create::{as_input, stored_in},
    ids::{conversation_id, normal},
    input::Input as Added,
    listing::{Back, Page, entry_of, list, root},
    place::From,
    references::Found,
    request::{Invalid, check_metadata},
    resource::{details, secs},
    retrieve::shown_items,
    tools::{Names, Tool, Tools, check_items},
};
use crate::{
    exchange::{Exchange, INPUT_MARK, Place, command_id},
    http::{Failure, body},
};
use axum::{
    Json, Router,
    extract::{Path, Query, Request, State, rejection::QueryRejection},
    http::request::Parts,
    routing::{get, post},
};
use reseed_protocol::{
    Entry, EntryData, ErrorBody, ErrorCode, SessionId,
    command::{Command, Empty},
    content::Input,
    reply::{Done, Reply},
    session::SessionRole,
    tools::RegisterTools,
    tree::{AppendCustom, Navigate, NavigatePosition, SetLabel, TreeNode},
    turn::{UserInput, WhenBusy},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The custom type of the entries that hold a conversation's metadata.
const METADATA: &str = "conversation_metadata";

pub(super) fn routes() -> Router<Door> {
    Router::new()
        .route("/v1/conversations", post(create))
        .route("/v1/conversations/{id}", get(retrieve).post(update).delete(delete))
        .route("/v1/conversations/{id}/items", get(list_items).post(add_items))
        .route("/v1/conversations/{id}/items/{item}", get(item).delete(delete_item))
        .route("/v1/conversations/{id}/context", get(branches::context))
        .route("/v1/conversations/{id}/compact", post(branches::compact))
        .route("/v1/conversations/{id}/compact/preview", post(branches::preview))
        .route("/v1/conversations/{id}/undo_compaction", post(branches::undo))
        .route("/v1/conversations/{id}/branches", get(branches::branches).post(branches::go_to))
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
    pub(super) instructions: Option<String>,
    /// The strategy of a compaction.
    pub(super) strategy: Option<String>,
    /// The branch or the item to go on from.
    pub(super) id: Option<String>,
    /// At it, before it, or at the newest end behind it: `at`, `before`, `tip`.
    #[cfg_attr(test, schema(value_type = Option<String>))]
    pub(super) position: Option<NavigatePosition>,
    /// Summarises the branch that is left.
    pub(super) summarize: Option<bool>,
}

pub(super) fn read(bytes: &[u8]) -> Result<Wanted, Failure> {
    if bytes.is_empty() {
        return Ok(Wanted::default());
    }
    let read = body::json::<Wanted>(bytes)?;
    read.metadata.as_ref().map_or(Ok(()), check_metadata)?;
    Ok(read)
}

fn unknown() -> Failure {
    Failure::not_found("there is no such conversation").with_code("conversation_not_found").at("id")
}

pub(super) async fn open(door: &Door, parts: &Parts, id: &str, role: SessionRole) -> Result<Exchange, Failure> {
    let session: SessionId = id.strip_prefix("conv_").and_then(|id| id.parse().ok()).ok_or_else(unknown)?;
    let connect = door.enter(parts).await?;
    let opened = Exchange::open_as(connect, Place::Session(session), role).await;
    opened.map_err(|error| if error.code == ErrorCode::SessionNotFound { unknown() } else { error.into() })
}

async fn shown(exchange: &mut Exchange) -> Result<Value, Failure> {
    let root = root(exchange).await?;
    let metadata = match &root {
        Some(root) => metadata(exchange, root).await?,
        None => None,
    };
    Ok(json!({
        "id": conversation_id(&exchange.snapshot().session_id), "object": "conversation",
        "created_at": root.map_or(0, |root| secs(root.timestamp)), "metadata": metadata.unwrap_or_else(|| json!({})),
    }))
}

/// Returns the metadata of a conversation. One that was created here begins with them, and the label of its first entry
/// names newer ones. Others are searched from the end.
async fn metadata(exchange: &mut Exchange, root: &TreeNode) -> Result<Option<Value>, Failure> {
    let Some(first) = metadata_in(exchange.entry(&root.entry_id).await?) else {
        let leaf = exchange.snapshot().leaf_id.clone();
        let mut back = Back::to(leaf.as_ref());
        while let Some(entry) = back.next(exchange).await? {
            if let Some(found) = metadata_in(entry) {
                return Ok(Some(found));
            }
        }
        return Ok(None);
    };
    let newer = root.label.as_deref().and_then(|label| label.parse().ok());
    Ok(match newer {
        Some(newer) => exchange.entry(&newer).await.ok().and_then(metadata_in).or(Some(first)),
        None => Some(first),
    })
}

fn metadata_in(entry: Entry) -> Option<Value> {
    match entry.data {
        EntryData::Custom(custom) if custom.custom_type == METADATA => custom.data,
        _ => None,
    }
}

async fn set_metadata(exchange: &mut Exchange, metadata: Map<String, Value>) -> Result<(), Failure> {
    let root = root(exchange).await?;
    let data = Value::Object(metadata);
    let command = Command::AppendCustom(AppendCustom { custom_type: METADATA.to_owned(), data });
    let Reply::Ok(Done { entry_id: Some(newest), .. }) = exchange.request(&command).await? else { return Ok(()) };
    exchange.appended(&newest).await?;
    if let Some(root) = root
        && metadata_in(exchange.entry(&root.entry_id).await?).is_some()
    {
        let label = Some(newest.to_string());
        exchange.request(&Command::SetLabel(SetLabel { entry_id: root.entry_id, label })).await?;
    }
    Ok(())
}

async fn add(door: &Door, exchange: &mut Exchange, items: Vec<Value>) -> Result<(), Failure> {
    let items = Value::Array(items);
    check_items(&items, "items")?;
    let added = Added::read_at("items", &items, &Found::new())?;
    let (history, parts) = (door.sealer.unseal(added.history, &added.compactions)?, as_input(added.parts));
    // As an input of this dialect, whose system prompt and tools the next response has too. It is no response itself.
    let mut from = From::end(exchange, None).await?;
    from.system.extend(added.system);
    from.bring(&added.tools);
    if !added.tools.is_empty() {
        check_offer(exchange, &from.tools).await?;
    }
    let mut stored = json!({ "store": false, "in_conversation": true, "functions": from.names.stored() });
    from.store(&mut stored).map_err(|invalid| Invalid::at("items", invalid.message))?;
    let details = details(stored);
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

/// Lets the server check tools before they are stored, as it will with each response that has them. Another client that
/// offers tools stays the one that runs them.
///
/// # Errors
/// `invalid_tools`. Refuses with `turn_running` during a turn, whose tools these could replace.
async fn check_offer(exchange: &mut Exchange, tools: &[Tool]) -> Result<(), Failure> {
    let offers = Tools::of(tools, &[]).offers;
    if offers.is_empty() {
        return Ok(());
    }
    if exchange.snapshot().turn.is_some() {
        let message = "a response of this conversation is being made; add tools when it has ended";
        return Err(ErrorBody::new(ErrorCode::TurnRunning, message).into());
    }
    let offered = exchange.request(&Command::RegisterTools(RegisterTools { tools: offers })).await;
    offered.map(drop).map_err(|error| Failure::from(error).at("items"))
}

/// Returns the names of the tools of a conversation's newest input, if that is among the entries that were opened.
fn names(exchange: &Exchange) -> Names {
    let newest = exchange.snapshot().path.iter().rev().find_map(|entry| stored_in(entry));
    newest.map(|stored| Names::of_stored(&stored)).unwrap_or_default()
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

async fn list_items(
    State(door): State<Door>,
    Path(id): Path<String>,
    page: Result<Query<Page>, QueryRejection>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let page = asked(page)?;
    let (parts, _) = request.into_parts();
    let mut exchange = open(&door, &parts, &id, SessionRole::Observer).await?;
    let leaf = exchange.snapshot().leaf_id.clone();
    let names = names(&exchange);
    let items = page.of_path(&mut exchange, leaf.as_ref(), &names).await?;
    exchange.close().await;
    Ok(Json(items))
}

async fn add_items(State(door): State<Door>, Path(id): Path<String>, request: Request) -> Result<Json<Value>, Failure> {
    let (_, parts, bytes) = door.read(request).await?;
    let wanted = read(&bytes)?;
    let mut exchange = open(&door, &parts, &id, SessionRole::Writer).await?;
    let items = wanted.items.unwrap_or_default();
    let before = exchange.snapshot().leaf_id.clone();
    if !items.is_empty() {
        add(&door, &mut exchange, items).await?;
    }
    let leaf = exchange.snapshot().leaf_id.clone();
    let names = names(&exchange);
    let (mut back, mut added) = (Back::to(leaf.as_ref()), Vec::new());
    while let Some(entry) = back.next(&mut exchange).await?
        && Some(&entry.entry_id) != before.as_ref()
    {
        added.extend(shown_items(&exchange.snapshot().session_id, &entry, &names).into_iter().rev());
    }
    exchange.close().await;
    added.reverse();
    Ok(Json(list(added, false)))
}

fn unknown_item() -> Failure {
    Failure::not_found("there is no such item").with_code("item_not_found").at("item")
}

async fn item(
    State(door): State<Door>,
    Path((id, item)): Path<(String, String)>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let (parts, _) = request.into_parts();
    let mut exchange = open(&door, &parts, &id, SessionRole::Observer).await?;
    let entry = entry_of(&mut exchange, &item).await?.ok_or_else(unknown_item)?;
    let item = normal(&exchange.snapshot().session_id, &item);
    let names = names(&exchange);
    let found =
        shown_items(&exchange.snapshot().session_id, &entry, &names).into_iter().find(|known| known["id"] == item);
    exchange.close().await;
    found.map(Json).ok_or_else(unknown_item)
}

/// Goes back to before the newest item. It stays in the history, on a branch of its own. Others cannot be deleted.
async fn delete_item(
    State(door): State<Door>,
    Path((id, item)): Path<(String, String)>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let (parts, _) = request.into_parts();
    let mut exchange = open(&door, &parts, &id, SessionRole::Writer).await?;
    let entry = entry_of(&mut exchange, &item).await?.ok_or_else(unknown_item)?;
    let session = exchange.snapshot().session_id.clone();
    let item = normal(&session, &item);
    let names = names(&exchange);
    if !shown_items(&session, &entry, &names).iter().any(|known| known["id"] == item) {
        return Err(unknown_item());
    }
    let leaf = exchange.snapshot().leaf_id.clone();
    let mut back = Back::to(leaf.as_ref());
    let newest = loop {
        match back.next(&mut exchange).await? {
            Some(newest) if shown_items(&session, &newest, &names).is_empty() => {}
            newest => break newest,
        }
    };
    if newest.is_none_or(|newest| newest.entry_id != entry.entry_id) {
        let message = "history is never rewritten: only the newest message can be deleted; go on from a branch instead";
        return Err(Failure::invalid(message).with_code("item_not_newest").at("item"));
    }
    let navigate = Navigate {
        entry_id: entry.parent_id,
        position: Some(NavigatePosition::At),
        summarize: None,
        instructions: None,
        replace_instructions: None,
        label: None,
    };
    exchange.request(&Command::Navigate(navigate)).await?;
    let shown = shown(&mut exchange).await?;
    exchange.close().await;
    Ok(Json(shown))
}

/// Returns a reply of v2 as it is.
pub(super) fn answered(reply: &impl Serialize) -> Result<Json<Value>, Failure> {
    serde_json::to_value(reply).map(Json).map_err(|_| super::lost())
}
