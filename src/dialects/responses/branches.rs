//! The branches of a conversation, and its compactions: commands of v2 that OpenAI's conversations lack.

use super::{
    Door,
    conversations::{Wanted, answered, open, read},
    ids::{conversation_id, item_id},
    listing::{entry_of, list},
};
use crate::http::Failure;
use axum::{
    Json,
    extract::{Path, Request, State},
    http::StatusCode,
};
use reseed_protocol::{
    EntryData, EntryId, Part,
    command::{Command, Empty},
    compaction::{PreviewCompaction, StartCompaction, UndoCompaction},
    reply::Reply,
    session::SessionRole,
    tree::{GetTree, Navigate, NavigatePosition, TreeNode},
};
use serde_json::{Value, json};

/// Returns the context's size.
pub(super) async fn context(
    State(door): State<Door>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let (parts, _) = request.into_parts();
    let mut exchange = open(&door, &parts, &id, SessionRole::Observer).await?;
    let reply = exchange.request(&Command::GetContextInfo(Empty {})).await?;
    exchange.close().await;
    if let Reply::ContextInfo(info) = reply { answered(&info) } else { Err(super::lost()) }
}

/// Compacts now.
pub(super) async fn compact(
    State(door): State<Door>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let (_, parts, bytes) = door.read(request).await?;
    let Wanted { instructions, strategy, .. } = read(&bytes)?;
    let mut exchange = open(&door, &parts, &id, SessionRole::Writer).await?;
    let command = StartCompaction { instructions, strategy, ..StartCompaction::default() };
    let entry = exchange.compact(command).await?;
    let info = exchange.snapshot().context_info.clone();
    let session = exchange.snapshot().session_id.clone();
    exchange.close().await;
    let summary = match &entry.data {
        EntryData::Compaction(compaction) => compaction.summary.as_str(),
        _ => "",
    };
    Ok(Json(json!({
        "id": item_id(&session, &entry.entry_id, 0, "cmp"), "object": "conversation.compaction", "summary": summary,
        "context": info,
    })))
}

/// Shows what a compaction would do. It cannot be applied later: it ends with its connection.
pub(super) async fn preview(
    State(door): State<Door>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let (_, parts, bytes) = door.read(request).await?;
    let Wanted { instructions, strategy, .. } = read(&bytes)?;
    let mut exchange = open(&door, &parts, &id, SessionRole::Writer).await?;
    let command = PreviewCompaction { instructions, strategy, ..PreviewCompaction::default() };
    let reply = exchange.request(&Command::PreviewCompaction(command)).await?;
    exchange.close().await;
    let Reply::CompactionPreview(preview) = reply else { return Err(super::lost()) };
    let Json(mut shown) = answered(&preview)?;
    if let Some(fields) = shown.as_object_mut() {
        fields.remove("previewId");
        fields.remove("expiresAt");
    }
    Ok(Json(shown))
}

/// Undoes the last compaction.
pub(super) async fn undo(
    State(door): State<Door>,
    Path(id): Path<String>,
    request: Request,
) -> Result<StatusCode, Failure> {
    let (parts, _) = request.into_parts();
    let mut exchange = open(&door, &parts, &id, SessionRole::Writer).await?;
    exchange.request(&Command::UndoCompaction(UndoCompaction::default())).await?;
    exchange.close().await;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the ends of the branches, oldest first.
pub(super) async fn branches(
    State(door): State<Door>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let (parts, _) = request.into_parts();
    let mut exchange = open(&door, &parts, &id, SessionRole::Observer).await?;
    let reply = exchange.request(&Command::GetTree(GetTree { root_id: None, depth: None })).await?;
    exchange.close().await;
    let Reply::Tree(tree) = reply else { return Err(super::lost()) };
    let is_end = |node: &&TreeNode| node.child_count == 0 || Some(&node.entry_id) == tree.leaf_id.as_ref();
    let branch = |node: &TreeNode| branch(&id, &node.entry_id, tree.leaf_id.as_ref(), Some(node));
    Ok(Json(list(tree.nodes.iter().filter(is_end).map(branch).collect(), tree.more)))
}

fn branch(conversation: &str, entry: &EntryId, leaf: Option<&EntryId>, node: Option<&TreeNode>) -> Value {
    let mut shown = json!({
        "id": branch_id(entry), "object": "conversation.branch", "conversation": conversation,
        "is_current": Some(entry) == leaf,
    });
    if let Some(node) = node {
        shown["created_at"] = super::resource::secs(node.timestamp).into();
        shown["preview"] = node.preview.as_str().into();
    }
    shown
}

fn branch_id(entry: &EntryId) -> String {
    format!("branch_{entry}_0")
}

/// Goes on from a branch, or from an item of any branch.
pub(super) async fn go_to(
    State(door): State<Door>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let (_, parts, bytes) = door.read(request).await?;
    let Wanted { id: to, position, summarize, instructions, .. } = read(&bytes)?;
    let to = to.ok_or_else(|| Failure::invalid("`id` is the id of a branch or of an item").at("id"))?;
    let mut exchange = open(&door, &parts, &id, SessionRole::Writer).await?;
    let unknown = || Failure::not_found("there is no such branch or item").with_code("item_not_found").at("id");
    let entry = entry_of(&mut exchange, &to).await?.ok_or_else(unknown)?;
    let navigate = Navigate {
        entry_id: Some(entry.entry_id),
        position: Some(position.unwrap_or(NavigatePosition::At)),
        summarize,
        instructions,
        replace_instructions: None,
        label: None,
    };
    let reply = exchange.request(&Command::Navigate(navigate)).await?;
    let conversation = conversation_id(&exchange.snapshot().session_id);
    exchange.close().await;
    let Reply::Navigated(navigated) = reply else { return Err(super::lost()) };
    let content = |part: &Part| match part {
        Part::Text { text } => Some(json!({ "type": "input_text", "text": text })),
        Part::Image { url, detail } => Some(json!({ "type": "input_image", "image_url": url, "detail": detail })),
        _ => None,
    };
    let input = navigated.input.map(|parts| parts.iter().filter_map(content).collect::<Vec<Value>>());
    Ok(Json(json!({
        "id": navigated.leaf_id.as_ref().map(branch_id), "object": "conversation.branch",
        "conversation": conversation, "is_current": true, "input": input,
    })))
}
