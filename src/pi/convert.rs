//! Converts single entries between pi's format and ours, as far as each can express the other.
//!
//! Neither direction alone is lossless. `import` and `export` find what is lost by converting there and back, and store
//! it beside the entry.

use super::json::{Json, Object};
use reseed_core::{context::seed, session::fingerprint::fingerprint};
use reseed_protocol::{
    CallId, Entry, EntryData, EntryId, Message, Part, Role, StopReason, Timestamp, Usage, UsageSource,
    compaction::{Compaction, CompactionDetails},
    tree::{BranchSummary, Custom, CustomMessage, Foreign, Label, ModelChange, SessionInfo, ThinkingLevelChange},
};
use serde_json::Value;

/// The `customType` of an entry that holds a pi message without a counterpart here: one with a role that is never sent.
pub(super) const MESSAGE: &str = "pi.message";

/// The `customType` of lines for patches that have no line type of their own, and for all patches in files written by
/// earlier versions.
pub(super) const ENTRY: &str = "reseed.entry";

/// The key for call arguments that are not a JSON object; it holds them as the model wrote them.
const MALFORMED: &str = "malformed";

/// pi's parent id for continuing before the first entry.
const ROOT: &str = "root";

/// Maps an entry id in the file to ours.
pub(super) type Resolve<'a> = &'a dyn Fn(&str) -> Option<EntryId>;

/// Converts a line's content to our form.
pub(super) fn data(line: &Object, resolve: Resolve<'_>) -> EntryData {
    let kind = line.text("type").unwrap_or_default();
    known(kind, line, resolve).unwrap_or_else(|| foreign(line))
}

/// Converts a line's content to an entry that is stored but has no effect.
pub(super) fn foreign(line: &Object) -> EntryData {
    let mut data = line.clone();
    for field in ["type", "id", "parentId", "timestamp", super::export::MARK] {
        data.remove(field);
    }
    EntryData::Foreign(Foreign { foreign_type: line.text("type").unwrap_or_default().to_owned(), data: data.to_map() })
}

/// Converts a line of a known type; `None` if it lacks a required field.
fn known(kind: &str, line: &Object, resolve: Resolve<'_>) -> Option<EntryData> {
    let text = |name: &str| line.text(name).map(str::to_owned);
    Some(match kind {
        "message" => message(line.get("message")?)?,
        "compaction" => EntryData::Compaction(Compaction {
            summary: text("summary")?,
            first_kept_entry_id: line.text("firstKeptEntryId").and_then(resolve),
            kept_entry_ids: Vec::new(),
            cleared_entry_ids: Vec::new(),
            tokens_before: line.get("tokensBefore").and_then(Json::as_u64).unwrap_or(0),
            tokens_after: None,
            trigger: None,
            duration_ms: None,
            // An extension's details stay with the line, whatever their field names.
            details: line.get("details").filter(|_| !is_hooks(line)).and_then(details),
            ..Compaction::default()
        }),
        "branch_summary" => EntryData::BranchSummary(BranchSummary {
            from_id: line.text("fromId").filter(|id| *id != ROOT).and_then(resolve),
            left_leaf_id: None,
            summary: text("summary")?,
            details: line.get("details").and_then(details),
            ..BranchSummary::default()
        }),
        super::transform::TRANSFORM => super::transform::transform(line, resolve),
        super::transform::EPHEMERAL => super::transform::ephemeral(line, resolve),
        "custom" if line.text("customType") == Some(ENTRY) => super::export::own_entry(line.get("data")?)?,
        "custom" => EntryData::Custom(Custom { custom_type: text("customType")?, data: some_value(line.get("data")) }),
        "custom_message" => EntryData::CustomMessage(custom_message(line)?),
        "model_change" => EntryData::ModelChange(ModelChange { provider: text("provider"), model: text("modelId")? }),
        "thinking_level_change" => {
            EntryData::ThinkingLevelChange(ThinkingLevelChange { thinking_level: text("thinkingLevel")? })
        }
        "label" => EntryData::Label(Label { target_id: resolve(line.text("targetId")?)?, label: text("label") }),
        "session_info" => EntryData::SessionInfo(SessionInfo { name: text("name")? }),
        _ => return None,
    })
}

fn is_hooks(line: &Object) -> bool {
    line.get("fromHook").and_then(Json::as_bool) == Some(true)
}

/// Returns a value unless it is `null`, which would read back from the store as `None`.
fn some_value(value: Option<&Json>) -> Option<Value> {
    value.filter(|value| **value != Json::Null).map(Json::to_value)
}

/// Returns the file lists if the details consist of exactly those.
fn details(value: &Json) -> Option<CompactionDetails> {
    let list = |name: &str| -> Option<Vec<String>> {
        value.get(name)?.as_list()?.iter().map(|file| file.as_text().map(str::to_owned)).collect()
    };
    Some(CompactionDetails { read_files: list("readFiles")?, modified_files: list("modifiedFiles")? })
}

fn custom_message(fields: &Object) -> Option<CustomMessage> {
    Some(CustomMessage {
        custom_type: fields.text("customType")?.to_owned(),
        content: spoken(fields.get("content")?)?,
        display: fields.get("display").and_then(Json::as_bool).unwrap_or(false),
        details: some_value(fields.get("details")),
    })
}

/// Converts a pi message to our form.
pub(super) fn message(message: &Json) -> Option<EntryData> {
    let fields = message.as_object()?;
    let said = |content: Vec<Part>| Some(EntryData::message(Message::new(Role::User, content)));
    match fields.text("role")? {
        "user" => said(spoken(fields.get("content")?)?),
        "assistant" => Some(EntryData::message(answer(fields)?)),
        "toolResult" => {
            let call_id = call_id(fields.text("toolCallId")?);
            let output = texts(fields.get("content")?.as_list()?, "\n");
            let is_error = fields.get("isError").and_then(Json::as_bool).unwrap_or(false);
            let content = vec![Part::ToolResult { call_id, output, is_error }];
            Some(EntryData::message(Message::new(Role::Tool, content)))
        }
        "bashExecution" if fields.get("excludeFromContext").and_then(Json::as_bool) != Some(true) => {
            said(vec![Part::Text { text: super::message::shell_text(fields) }])
        }
        "custom" => Some(EntryData::CustomMessage(custom_message(fields)?)),
        "branchSummary" | "compactionSummary" => {
            said(vec![Part::Text { text: seed::seed_text(fields.text("summary")?) }])
        }
        _ => Some(EntryData::Custom(Custom { custom_type: MESSAGE.to_owned(), data: Some(message.to_value()) })),
    }
}

/// Converts text, or a list of text and image blocks; `None` if the list contains anything else.
fn spoken(content: &Json) -> Option<Vec<Part>> {
    match content {
        Json::Text(text) => Some(vec![Part::Text { text: text.clone() }]),
        Json::List(blocks) => blocks
            .iter()
            .map(|block| match block.text("type")? {
                "text" => Some(Part::Text { text: block.text("text")?.to_owned() }),
                "image" => {
                    let url = format!("data:{};base64,{}", block.text("mimeType")?, block.text("data")?);
                    Some(Part::Image { url, detail: None })
                }
                _ => None,
            })
            .collect(),
        _ => None,
    }
}

/// Joins the texts of blocks.
pub(super) fn texts(blocks: &[Json], between: &str) -> String {
    let texts: Vec<&str> = blocks
        .iter()
        .filter(|block| block.text("type") == Some("text"))
        .filter_map(|block| block.text("text"))
        .collect();
    texts.join(between)
}

fn answer(fields: &Object) -> Option<Message> {
    let content: Option<Vec<Part>> = fields.get("content")?.as_list()?.iter().map(answer_part).collect();
    let mut message = Message::new(Role::Assistant, content?);
    message.model = fields.text("model").map(str::to_owned);
    message.usage = fields.get("usage").and_then(usage);
    message.stop_reason = match fields.text("stopReason") {
        Some("stop") => Some(StopReason::Stop),
        Some("length") => Some(StopReason::Length),
        Some("toolUse") => Some(StopReason::ToolCalls),
        Some("aborted") => Some(StopReason::Cancelled),
        _ => None,
    };
    message.incomplete = has_failed(fields);
    Some(message)
}

/// Returns true if an answer failed or was cut off: it is shown, but never sent to a model again.
pub(super) fn has_failed(message: &Object) -> bool {
    matches!(message.text("stopReason"), Some("error" | "aborted"))
}

fn answer_part(block: &Json) -> Option<Part> {
    Some(match block.text("type")? {
        "text" => Part::Text { text: block.text("text")?.to_owned() },
        "thinking" => Part::Reasoning { text: block.text("thinking")?.to_owned(), payload: None },
        "toolCall" => Part::ToolCall {
            call_id: call_id(block.text("id")?),
            name: block.text("name")?.to_owned(),
            arguments: block.get("arguments")?.to_js_text(),
        },
        _ => return None,
    })
}

/// Converts a call id to a valid one of ours. Equal ids stay equal, so calls and results still match.
#[must_use]
pub fn call_id(text: &str) -> CallId {
    text.parse().unwrap_or_else(|_| {
        let (a, b) = (fingerprint(text.as_bytes()), fingerprint(format!("{text}#").as_bytes()));
        format!("pi-{a:016x}{b:016x}").parse().expect("hexadecimal digits are an id")
    })
}

/// Converts a usage report; `None` if nothing was counted, for example after a failure.
fn usage(usage: &Json) -> Option<Usage> {
    let tokens = |name: &str| usage.get(name).and_then(Json::as_u64).unwrap_or(0);
    let (input, output) = (tokens("input"), tokens("output"));
    let (read, written) = (tokens("cacheRead"), tokens("cacheWrite"));
    let input_tokens = input.checked_add(read)?.checked_add(written)?;
    (input_tokens + output > 0).then_some(Usage {
        input_tokens,
        cached_tokens: read,
        cache_write_tokens: Some(written),
        cache_write_hour_tokens: None,
        output_tokens: output,
        reasoning_tokens: None,
        prefix_tokens: None,
        further: None,
        cost_nano_usd: None,
        source: UsageSource::Reported,
    })
}

/// Converts one of our entries to a line.
pub(super) fn line(entry: &Entry) -> Object {
    let mut line = Object::of([
        ("type", entry.type_name().into()),
        ("id", entry.entry_id.as_str().into()),
        ("parentId", entry.parent_id.as_ref().map_or(Json::Null, |parent| parent.as_str().into())),
        ("timestamp", entry.timestamp.to_string().into()),
    ]);
    match &entry.data {
        EntryData::Message(message) => line.set("message", message_fields(message, entry.timestamp)),
        EntryData::Compaction(compaction) => {
            line.set("summary", compaction.summary.as_str());
            // pi keeps entries from this id on. The compaction's own id means that nothing before it is kept.
            let first_kept = compaction.first_kept_entry_id.as_ref().unwrap_or(&entry.entry_id);
            line.set("firstKeptEntryId", first_kept.as_str());
            line.set("tokensBefore", compaction.tokens_before);
            summary_details(
                &mut line,
                compaction.hook.as_deref(),
                compaction.hook_details.as_ref(),
                compaction.details.as_ref(),
            );
        }
        EntryData::BranchSummary(branch) => {
            line.set("fromId", branch.from_id.as_ref().map_or(ROOT, EntryId::as_str));
            line.set("summary", branch.summary.as_str());
            summary_details(&mut line, branch.hook.as_deref(), branch.hook_details.as_ref(), branch.details.as_ref());
        }
        EntryData::Custom(custom) if custom.custom_type == MESSAGE && custom.data.is_some() => {
            line.set("type", "message");
            line.set_some("message", custom.data.as_ref().map(Json::from));
        }
        EntryData::Custom(custom) => {
            line.set("customType", custom.custom_type.as_str());
            line.set_some("data", custom.data.as_ref().map(Json::from));
        }
        EntryData::CustomMessage(message) => {
            line.set("customType", message.custom_type.as_str());
            line.set("content", blocks(&message.content));
            line.set("display", message.display);
            line.set_some("details", message.details.as_ref().map(Json::from));
        }
        EntryData::ModelChange(change) => {
            line.set("provider", change.provider.as_deref().unwrap_or_default());
            line.set("modelId", change.model.as_str());
        }
        EntryData::ThinkingLevelChange(change) => line.set("thinkingLevel", change.thinking_level.as_str()),
        EntryData::Label(label) => {
            line.set("targetId", label.target_id.as_str());
            line.set_some("label", label.label.as_deref());
        }
        EntryData::SessionInfo(info) => line.set("name", info.name.as_str()),
        EntryData::Foreign(foreign) => {
            line.set("type", foreign.foreign_type.as_str());
            for (name, value) in &foreign.data {
                line.set(name, Json::from(value));
            }
        }
        EntryData::ContextTransform(kept) => {
            if !super::transform::write_transform(&mut line, kept, entry.timestamp) {
                own_fields(&mut line, entry, &**kept);
            }
        }
        EntryData::Ephemeral(kept) => {
            if !super::transform::write_ephemeral(&mut line, kept, entry.timestamp) {
                own_fields(&mut line, entry, &**kept);
            }
        }
    }
    line
}

/// Writes the fields of an entry that has no line type of its own.
fn own_fields(line: &mut Object, entry: &Entry, fields: &impl serde::Serialize) {
    line.set("type", "custom");
    line.set("customType", ENTRY);
    let mut data = Object::of([("type", entry.type_name().into())]);
    if let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(fields) {
        data.set("fields", Json::Object(Object::from(&fields)));
    }
    line.set("data", data);
}

/// Writes a summary's details: the hook's details if a hook supplied the summary, otherwise the files.
fn summary_details(line: &mut Object, hook: Option<&str>, own: Option<&Value>, files: Option<&CompactionDetails>) {
    if hook.is_none() {
        line.set_some("details", files.map(details_fields));
        return;
    }
    line.set_some("details", own.map(Json::from).or_else(|| files.map(details_fields)));
    line.set("fromHook", true);
}

fn details_fields(details: &CompactionDetails) -> Json {
    let list = |files: &[String]| Json::List(files.iter().map(|file| file.as_str().into()).collect());
    Json::object([("readFiles", list(&details.read_files)), ("modifiedFiles", list(&details.modified_files))])
}

fn millis(time: Timestamp) -> Json {
    time.0.into()
}

/// Converts one of our messages to pi's form.
pub(super) fn message_fields(message: &Message, time: Timestamp) -> Object {
    match message.role {
        Role::User => {
            Object::of([("role", "user".into()), ("content", blocks(&message.content)), ("timestamp", millis(time))])
        }
        Role::Assistant => answer_fields(message, time),
        Role::Tool => {
            let result = message.content.iter().find_map(|part| match part {
                Part::ToolResult { call_id, output, is_error } => Some((call_id.as_str(), output.as_str(), *is_error)),
                _ => None,
            });
            let (call_id, output, is_error) = result.unwrap_or_default();
            let text = Json::object([("type", "text".into()), ("text", output.into())]);
            Object::of([
                ("role", "toolResult".into()),
                ("toolCallId", call_id.into()),
                ("toolName", "".into()),
                ("content", vec![text].into()),
                ("isError", is_error.into()),
                ("timestamp", millis(time)),
            ])
        }
    }
}

fn answer_fields(message: &Message, time: Timestamp) -> Object {
    let stop_reason = match message.stop_reason {
        Some(StopReason::Stop) => "stop",
        Some(StopReason::Length | StopReason::ContentFilter) => "length",
        Some(StopReason::ToolCalls) => "toolUse",
        Some(StopReason::Cancelled) => "aborted",
        None if message.incomplete => "error",
        None => "stop",
    };
    let usage = message.usage.as_ref();
    let tokens = |of: fn(&Usage) -> u64| -> Json { usage.map_or(0, of).into() };
    let cost = ["input", "output", "cacheRead", "cacheWrite", "total"].map(|kind| (kind, Json::from(0u64)));
    let usage = Json::object([
        (
            "input",
            tokens(|usage| {
                usage.input_tokens.saturating_sub(usage.cached_tokens + usage.cache_write_tokens.unwrap_or(0))
            }),
        ),
        ("output", tokens(|usage| usage.output_tokens)),
        ("cacheRead", tokens(|usage| usage.cached_tokens)),
        ("cacheWrite", tokens(|usage| usage.cache_write_tokens.unwrap_or(0))),
        ("totalTokens", tokens(Usage::total_tokens)),
        ("cost", Json::object(cost)),
    ]);
    Object::of([
        ("role", "assistant".into()),
        ("content", blocks(&message.content)),
        ("api", "openai-completions".into()),
        ("provider", "reseed".into()),
        ("model", message.model.as_deref().unwrap_or_default().into()),
        ("usage", usage),
        ("stopReason", stop_reason.into()),
        ("timestamp", millis(time)),
    ])
}

fn blocks(parts: &[Part]) -> Json {
    Json::List(parts.iter().filter_map(block).collect())
}

fn block(part: &Part) -> Option<Json> {
    Some(match part {
        Part::Text { text } => Json::object([("type", "text".into()), ("text", text.as_str().into())]),
        Part::Image { url, .. } => match url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
            Some((kind, data)) => {
                Json::object([("type", "image".into()), ("data", data.into()), ("mimeType", kind.into())])
            }
            // pi does not support images by URL.
            None => Json::object([("type", "text".into()), ("text", format!("[picture {url}]").into())]),
        },
        Part::Reasoning { text, .. } => Json::object([("type", "thinking".into()), ("thinking", text.as_str().into())]),
        Part::ToolCall { call_id, name, arguments } => {
            let read = serde_json::from_str(arguments).ok().filter(|read: &Json| read.as_object().is_some());
            let read = read.unwrap_or_else(|| Json::object([(MALFORMED, arguments.as_str().into())]));
            Json::object([
                ("type", "toolCall".into()),
                ("id", call_id.as_str().into()),
                ("name", name.as_str().into()),
                ("arguments", read),
            ])
        }
        Part::ToolResult { .. } => return None,
    })
}
