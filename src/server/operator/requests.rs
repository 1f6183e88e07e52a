//! The requests and compactions of a session's branch: tokens, cost, receipts and steps. It contains no text, except
//! the detail of a prefix break for operators who may read content.

use super::{answer_of, session_id};
use crate::server::{
    answers::Parameters,
    app::App,
    auth::Operator,
    sessions::{Asker, ENTRIES_LIMIT, limit, path_back},
};
use axum::{
    extract::{Path, State},
    response::Response,
};
use reseed_protocol::{Entry, ErrorBody, ErrorCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The fields of an entry and of its receipt that contain no text.
const FIELDS: &[&str] = &[
    "entryId",
    "parentId",
    "timestamp",
    "type",
    "role",
    "model",
    "usage",
    "stopReason",
    "incomplete",
    "receipt",
    "tokensBefore",
    "tokensAfter",
    "trigger",
    "durationMs",
    "rung",
    "failedRungs",
    "hook",
    "summaryUsage",
    "leftOut",
];
const RECEIPT_FIELDS: &[&str] = &["request", "tokens", "prefixTokens", "broke", "hooks", "adapted", "provider"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::server) struct Wanted {
    /// Only what is older than this entry.
    before: Option<String>,
    /// The most entries to look at.
    limit: Option<u32>,
}

/// Returns a page of the session's newest requests and compactions, oldest first, and where the next page begins.
pub(in crate::server) async fn requests(
    operator: Operator,
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Parameters(wanted): Parameters<Wanted>,
) -> Response {
    answer_of(page(&app, &id, wanted, operator.reads_content).await)
}

async fn page(app: &App, id: &str, wanted: Wanted, with_content: bool) -> Result<Value, ErrorBody> {
    let head = app.registry.find(&session_id(id)?).await?;
    let before = wanted.before.map(|before| before.parse()).transpose().map_err(|error| {
        ErrorBody::new(ErrorCode::EntryNotFound, format!("`before` is not an entry id: {error}")).with_field("before")
    })?;
    let (count, is_before) = (limit(wanted.limit, ENTRIES_LIMIT)?, before.is_some());
    let from = match before {
        Some(before) => Some(before),
        None => app.registry.leaf(&head).await?,
    };
    let Some(from) = from else { return Ok(json!({ "items": [], "more": false })) };
    let asker = Asker { app, owner: &head.owner };
    let mut page = path_back(&asker, &head.session, from, count + u32::from(is_before)).await?;
    if is_before {
        page.items.pop();
    }
    let oldest = page.items.first().map(|entry| entry.entry_id.clone());
    let items: Vec<Value> = page.items.iter().filter_map(|entry| shown(entry, with_content)).collect();
    Ok(json!({ "items": items, "more": page.more, "oldest": oldest }))
}

/// Returns a request or a compaction in the form that operators get; `None` for other entries.
fn shown(entry: &Entry, with_content: bool) -> Option<Value> {
    let mut entry = serde_json::to_value(entry).ok()?;
    let is_request = entry["role"] == "assistant";
    if !is_request && entry["type"] != "compaction" {
        return None;
    }
    keep(&mut entry, FIELDS);
    if let Some(receipt) = entry.get_mut("receipt") {
        keep(receipt, RECEIPT_FIELDS);
        // A client may have written it: a patch's reason may quote the conversation.
        if let Some(broke) = receipt.get_mut("broke").and_then(Value::as_object_mut).filter(|_| !with_content) {
            broke.remove("detail");
        }
    }
    Some(entry)
}

fn keep(value: &mut Value, fields: &[&str]) {
    if let Some(object) = value.as_object_mut() {
        let kept: Map<String, Value> =
            std::mem::take(object).into_iter().filter(|(name, _)| fields.contains(&name.as_str())).collect();
        *object = kept;
    }
}
