//! Responses that exist: retrieved, streamed again, cancelled and deleted. All of it comes from the session's log.

use super::{
    approve::calls_before,
    create::{not_found, stored_in},
    ids::{ResponseId, item_id},
    items::places,
    listing::Page,
    resource::Resource,
    running::Running,
    tools::Names,
    writer::Writer,
};
use crate::{
    exchange::{DELETED_MARK, Exchange, Place, client, is_said, request},
    http::Failure,
};
use axum::http::StatusCode;
use reseed_client::{Connect, To};
use reseed_protocol::{
    Entry, EntryData, EntryId, ErrorCode, Part, Role, SessionId,
    command::{Command, Empty},
    reply::Reply,
    session::SessionRole,
    tree::{AppendCustom, GetEntries},
    turn::CancelTurn,
};
use serde_json::{Value, json};

/// Entries of one page, when a whole session is searched.
const PAGE: u32 = 500;

/// Returns the error for a response that this user does not have.
fn unknown(id: &str) -> Failure {
    Failure { code: Some("response_not_found".to_owned()), ..not_found(id) }.with_status(StatusCode::NOT_FOUND).at("id")
}

/// Opens the session of a response, and follows the response from its beginning. `seen` is the number of the last event
/// that the client has.
///
/// # Errors
/// `response_not_found`, or why the session is not available.
pub(super) async fn open(
    connect: Box<dyn Connect>,
    id: &str,
    seen: Option<u64>,
    role: SessionRole,
) -> Result<Running, Failure> {
    let parsed = ResponseId::parse(id).ok_or_else(|| unknown(id))?;
    let place = Place::Session(parsed.session.clone());
    let opened = Exchange::open_as(connect, place, role).await;
    let mut exchange =
        opened.map_err(|error| if error.code == ErrorCode::SessionNotFound { unknown(id) } else { error.into() })?;
    let input = exchange.entry(&parsed.entry).await.map_err(|_| unknown(id))?;
    let stored = stored_in(&input).filter(|stored| stored["store"] != false).ok_or_else(|| unknown(id))?;
    exchange
        .follow(&parsed.entry, &Names::of_stored(&stored).joined())
        .await
        .map_err(|error| if error.code == ErrorCode::EntryNotFound { unknown(id) } else { error.into() })?;
    let without_answer = stored["without_answer"] == true;
    let resource = Resource {
        id: parsed.clone(),
        created_at: input.timestamp,
        model: exchange.snapshot().model.clone(),
        stored,
        output: Vec::new(),
        usage: None,
        ended: None,
    };
    let mut writer = Writer::new(resource, seen);
    if matches!(input.data, EntryData::Custom(_)) {
        writer.goes_on(calls_before(&mut exchange, &parsed.entry).await?);
    }
    if without_answer {
        writer.ends_without_answer();
    }
    Ok(Running { exchange, writer, id: parsed, forget: None })
}

/// As [`open`], at the end of its session, for a response that is to be compacted.
///
/// # Errors
/// As [`open`], with the error of a response that cannot be continued.
pub(super) async fn open_response(connect: Box<dyn Connect>, id: &str) -> Result<Running, Failure> {
    open(connect, id, None, SessionRole::Writer)
        .await
        .map_err(|failure| if failure.code.as_deref() == Some("response_not_found") { not_found(id) } else { failure })
}

/// Returns a response as it is now, without waiting for its end.
///
/// # Errors
/// As [`open`].
pub(super) async fn retrieve(connect: Box<dyn Connect>, id: &str) -> Result<Value, Failure> {
    let mut running = open(connect, id, None, SessionRole::Observer).await?;
    running.catch_up();
    running.exchange.close().await;
    Ok(running.writer.shown())
}

/// Cancels a response, and returns it. One that has ended stays as it is.
///
/// # Errors
/// As [`open`].
pub(super) async fn cancel(connect: Box<dyn Connect>, id: &str) -> Result<Value, Failure> {
    let mut running = open(connect, id, None, SessionRole::Writer).await?;
    running.catch_up();
    if !running.writer.is_over() {
        match running.exchange.request(&Command::CancelTurn(CancelTurn { turn_id: None })).await {
            Ok(_) => {}
            Err(error) if error.code == ErrorCode::NoTurn => {}
            Err(error) => return Err(error.into()),
        }
        while !running.writer.is_over() {
            running.step().await?;
        }
    }
    running.exchange.close().await;
    Ok(running.writer.shown())
}

/// Deletes a response. If its session was made for it and has no other, the session goes. Otherwise it can no longer be
/// retrieved or continued, but the responses that follow it keep what was said.
///
/// # Errors
/// As [`open`].
pub(super) async fn delete(connect: Box<dyn Connect>, id: &str) -> Result<Value, Failure> {
    let Running { mut exchange, writer, id: response, .. } = open(connect, id, None, SessionRole::Writer).await?;
    let is_alone = !writer.in_conversation() && has_one_input(&mut exchange, &response.entry).await?;
    if is_alone {
        exchange.request_to(To::Id(response.session), &Command::DeleteSession(Empty {})).await?;
    } else {
        let custom = AppendCustom { custom_type: DELETED_MARK.to_owned(), data: json!(response.entry) };
        exchange.request(&Command::AppendCustom(custom)).await?;
        exchange.close().await;
    }
    Ok(json!({ "id": id, "object": "response", "deleted": true }))
}

/// Returns true if nothing else was said in a session, on any branch, than the input of this entry.
async fn has_one_input(exchange: &mut Exchange, input: &EntryId) -> Result<bool, Failure> {
    let mut before = None;
    loop {
        let command =
            Command::GetEntries(GetEntries { before, after: None, limit: Some(PAGE), path: None, entry_id: None });
        let Reply::Entries(page) = exchange.request(&command).await? else { return Ok(false) };
        let is_other = |entry: &Entry| {
            let is_said = entry.message().is_some_and(is_said);
            entry.entry_id != *input && (is_said || stored_in(entry).is_some())
        };
        if page.items.iter().any(is_other) {
            return Ok(false);
        }
        match page.items.first() {
            Some(oldest) if page.more => before = Some(oldest.entry_id.clone()),
            _ => return Ok(true),
        }
    }
}

/// Returns the items that a response was made from: its input and everything before it.
///
/// # Errors
/// As [`open`].
pub(super) async fn input_items(connect: Box<dyn Connect>, id: &str, page: &Page) -> Result<Value, Failure> {
    let mut running = open(connect, id, None, SessionRole::Observer).await?;
    let items = page.of_path(&mut running.exchange, Some(&running.id.entry), running.writer.names()).await?;
    running.exchange.close().await;
    Ok(items)
}

/// Returns an entry as items of a conversation, with calls of these tools as its client has named them.
pub(super) fn shown_items(session: &SessionId, entry: &Entry, names: &Names) -> Vec<Value> {
    let id = |prefix: &str, part: usize| item_id(session, &entry.entry_id, part, prefix);
    let message = match &entry.data {
        EntryData::Message(message) => message,
        EntryData::Compaction(compaction) => {
            return vec![json!({
                "type": "compaction", "id": id("cmp", 0), "encrypted_content": "", "summary": compaction.summary,
            })];
        }
        _ => return Vec::new(),
    };
    if message.role == Role::User {
        let content: Vec<Value> = message
            .content
            .iter()
            .filter_map(|part| match part {
                Part::Text { text } => Some(json!({ "type": "input_text", "text": text })),
                Part::Image { url, detail } => Some(json!({
                    "type": "input_image", "image_url": url, "detail": detail.as_deref().unwrap_or("auto"),
                })),
                _ => None,
            })
            .collect();
        return vec![json!({
            "type": "message", "id": id("msg", 0), "status": "completed", "role": "user", "content": content,
        })];
    }
    let item = |(part, of): (usize, &Part)| {
        Some(match of {
            Part::Text { text } => json!({
                "type": "message", "id": id("msg", part), "status": "completed", "role": "assistant",
                "content": [super::items::text_part(text)],
            }),
            Part::Reasoning { text, payload } => {
                let summary = payload.as_ref().and_then(|payload| payload.get("summary")).cloned();
                let sealed = payload.as_ref().and_then(|payload| payload.get("encrypted_content")).cloned();
                let mut item = json!({
                    "type": "reasoning", "id": id("rs", part), "summary": summary.unwrap_or_else(|| json!([])),
                });
                if !text.is_empty() {
                    item["content"] = json!([super::items::reasoning_part(text)]);
                }
                if let Some(sealed) = sealed.filter(Value::is_string) {
                    item["encrypted_content"] = sealed;
                }
                item
            }
            Part::ToolCall { call_id, name, arguments } => {
                let named = names.named(name);
                named.call(&id(named.prefix(), part), call_id.as_str(), &named.given(arguments), "completed")
            }
            Part::ToolResult { call_id, output, .. } => json!({
                "type": "function_call_output", "id": id("fco", part), "call_id": call_id, "output": output,
                "status": "completed",
            }),
            Part::Image { .. } => return None,
        })
    };
    places(message).into_iter().zip(&message.content).filter_map(item).collect()
}

/// Deletes a session, whatever it is doing.
pub(super) async fn delete_session(connect: Box<dyn Connect>, session: SessionId) -> Result<(), Failure> {
    let mut client = client(connect);
    request(&mut client, session, &Command::DeleteSession(Empty {})).await?;
    client.close().await;
    Ok(())
}
