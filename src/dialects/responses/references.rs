//! References to items of earlier responses, which stand for the items themselves.

use super::{create::summary_message, ids::ItemId, items::places, socket::Shared};
use crate::{
    exchange::{client, request},
    http::Failure,
};
use axum::http::StatusCode;
use reseed_client::{Client, Connect, To};
use reseed_protocol::{
    CallId, Entry, EntryData, ErrorCode, Message, Part, Role, SessionId, command::Command, reply::Reply,
    tree::GetEntries,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// References of one request.
const REFERENCES_MAX: usize = 256;

/// Bytes of all items that a request refers to.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// Entries before the result of a server's call, among which its call is.
const CALL_ENTRIES: u32 = 100;

/// The messages that references stand for, by the id of the item.
pub(super) type Found = HashMap<String, Vec<Message>>;

/// Returns the id in an item that is a reference.
pub(super) fn reference(item: &Value) -> Option<&str> {
    let is_one = match &item["type"] {
        Value::Null => item["role"].is_null(),
        kind => kind == "item_reference",
    };
    item["id"].as_str().filter(|_| is_one)
}

/// Reads the items that an input refers to. Ids that do not name their session are of `within`.
///
/// # Errors
/// `item_not_found` for an item that this user does not have, or why the sessions cannot be read.
pub(super) async fn find(
    connect: &Arc<dyn Connect>,
    input: Option<&Value>,
    within: Option<&SessionId>,
) -> Result<Found, Failure> {
    let items = input.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let named: Vec<(usize, &str)> =
        items.iter().enumerate().filter_map(|(at, item)| Some((at, reference(item)?))).collect();
    let mut found = Found::new();
    if named.is_empty() {
        return Ok(found);
    }
    if named.len() > REFERENCES_MAX {
        return Err(Failure::invalid(format!("it may have at most {REFERENCES_MAX} references")).at("input"));
    }
    // Each entry is read once, whatever the number of its items.
    let mut by_entry = BTreeMap::<_, Vec<(usize, &str, ItemId)>>::new();
    for (at, text) in named {
        // Requests for approval are the server's own, as when they are sent in full.
        if text.starts_with("mcpr_") {
            found.insert(text.to_owned(), Vec::new());
            continue;
        }
        let id = ItemId::parse(text, within).ok_or_else(|| unknown(at, text))?;
        by_entry.entry((id.session.clone(), id.entry.clone())).or_default().push((at, text, id));
    }
    let mut client = client(Box::new(Shared(connect.clone())));
    let mut bytes = 0;
    for ((session, entry), wanted) in by_entry {
        let (at, text, _) = &wanted[0];
        let get = GetEntries { entry_id: Some(entry), before: None, after: None, limit: None, path: None };
        let read = entries(&mut client, &session, get).await?;
        let entry = read.into_iter().next().ok_or_else(|| unknown(*at, text))?;
        for (at, text, id) in wanted {
            let messages = item(&mut client, &session, &entry, &id).await?.ok_or_else(|| unknown(at, text))?;
            bytes += serde_json::to_string(&messages).map_or(0, |text| text.len());
            if bytes > BYTES_MAX {
                let message = format!("the items that it refers to have more than {BYTES_MAX} bytes");
                return Err(Failure::invalid(message).with_status(StatusCode::PAYLOAD_TOO_LARGE).at("input"));
            }
            found.insert(text.to_owned(), messages);
        }
    }
    client.close().await;
    Ok(found)
}

fn unknown(at: usize, id: &str) -> Failure {
    let shown: String = id.chars().take(200).collect();
    Failure::not_found(format!("there is no item `{shown}`")).with_code("item_not_found").at(format!("input[{at}].id"))
}

/// Reads entries of a session, without opening it; none if this user has no such session or entry.
async fn entries(client: &mut Client, session: &SessionId, get: GetEntries) -> Result<Vec<Entry>, Failure> {
    match request(client, To::Id(session.clone()), &Command::GetEntries(get)).await {
        Ok(Reply::Entries(page)) => Ok(page.items),
        Ok(_) => Ok(Vec::new()),
        Err(error) if matches!(error.code, ErrorCode::SessionNotFound | ErrorCode::EntryNotFound) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Returns what an item of an entry says; `None` if there is no such item.
async fn item(
    client: &mut Client,
    session: &SessionId,
    entry: &Entry,
    id: &ItemId,
) -> Result<Option<Vec<Message>>, Failure> {
    let message = match &entry.data {
        EntryData::Message(message) => message,
        EntryData::Compaction(compaction) => return Ok(Some(vec![summary_message(&compaction.summary)])),
        _ => return Ok(None),
    };
    if message.role == Role::User {
        return Ok(Some(vec![Message::new(Role::User, message.content.clone())]));
    }
    // Calls of tools with free text are stored as all are.
    let prefix = if id.prefix == "ctc" { "fc" } else { id.prefix.as_str() };
    let kind = |part: &Part| match part {
        Part::Text { .. } => "msg",
        Part::Reasoning { .. } => "rs",
        Part::ToolCall { .. } => "fc",
        Part::ToolResult { .. } => "fco",
        Part::Image { .. } => "",
    };
    let is_made = id.prefix == "mcp";
    let numbered = places(message).into_iter().zip(&message.content);
    let part = numbered.into_iter().find(|(number, part)| {
        *number == id.place && (kind(part) == prefix || is_made && matches!(part, Part::ToolResult { .. }))
    });
    let Some((_, part)) = part else { return Ok(None) };
    let said = Message::new(message.role, vec![part.clone()]);
    match part {
        Part::ToolResult { call_id, .. } if is_made => {
            let call = call(client, session, entry, call_id).await?;
            Ok(call.map(|call| vec![Message::new(Role::Assistant, vec![call]), said]))
        }
        _ => Ok(Some(vec![said])),
    }
}

/// Returns the call that a result answers.
async fn call(
    client: &mut Client,
    session: &SessionId,
    result: &Entry,
    wanted: &CallId,
) -> Result<Option<Part>, Failure> {
    let before = Some(result.entry_id.clone());
    let get = GetEntries { before, path: Some(true), limit: Some(CALL_ENTRIES), after: None, entry_id: None };
    let path = entries(client, session, get).await?;
    let parts = path.iter().rev().filter_map(Entry::message).flat_map(|message| &message.content);
    let is_it = |part: &&Part| matches!(part, Part::ToolCall { call_id, .. } if call_id == wanted);
    Ok(parts.into_iter().find(is_it).cloned())
}
