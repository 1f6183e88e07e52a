//! Patches in session files: `context_transform` and `ephemeral` entries, as proposed in pull request 383 of pi-mono.
//! Released versions of pi ignore both types.
//!
//! A transform that compacts is imported as a compaction: its op refers to messages by index, and the importer maps
//! these to entries. Any other transform that cannot be applied as written, for example because its version or an op is
//! unknown, is stored with all its fields but not applied.

use super::{
    convert::{self, Resolve},
    json::{Json, Object},
};
use reseed_core::context::patch;
use reseed_protocol::{
    EntryData, EntryId, Message, Timestamp,
    context::{ContextTransform, EphemeralChange, MessageEdit, PATCH_VERSION, PatchMessage, PatchOp},
    tree::{Kept, Opaque},
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The type of a line that holds a patch.
pub(super) const TRANSFORM: &str = "context_transform";

/// The type of a line that records a change to a single request.
pub(super) const EPHEMERAL: &str = "ephemeral";

/// The transformer name of transforms that pi repeats as a `compaction` line.
const COMPACTION: &str = "compaction";

/// The transformer name of an `ephemeral` line without one.
const UNNAMED: &str = "ephemeral";

/// The fields that every line has; all others belong to the entry.
const OF_EVERY_LINE: [&str; 5] = ["type", "id", "parentId", "timestamp", super::export::MARK];

/// Converts a `context_transform` line.
pub(super) fn transform(line: &Object, resolve: Resolve<'_>) -> EntryData {
    let read = known_transform(line, resolve);
    EntryData::ContextTransform(Box::new(read.map_or_else(|| Kept::Other(opaque(line)), Kept::Known)))
}

/// Converts an `ephemeral` line.
pub(super) fn ephemeral(line: &Object, resolve: Resolve<'_>) -> EntryData {
    let read = known_ephemeral(line, resolve);
    EntryData::Ephemeral(Box::new(read.map_or_else(|| Kept::Other(opaque(line)), Kept::Known)))
}

/// The compactions of a `context_transform` line, in order; never empty.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Compacting {
    /// The ops.
    pub ops: Vec<CompactingOp>,
    /// The names of the patch's other ops, which an entry cannot hold beside a compaction.
    pub others: Vec<String>,
    /// True if pi repeats the compaction in a `compaction` line below.
    pub is_booked_twice: bool,
}

/// A `compaction_apply` op.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CompactingOp {
    /// The summary.
    pub summary: String,
    /// The tokens of the request before it.
    pub tokens_before: u64,
    /// The first message that is kept.
    pub kept: FirstKept,
}

/// The first message that a compaction keeps.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FirstKept {
    /// The position in the context's messages; everything before it is replaced.
    At(usize),
    /// The entry; `None` if nothing is kept.
    Entry(Option<EntryId>),
}

/// Returns the compactions of a line; `None` if it is not a `context_transform`, or has no compaction that can be
/// applied.
pub(super) fn compacting(line: &Object, resolve: Resolve<'_>) -> Option<Compacting> {
    let version = line.get("schemaVersion")?.as_u64()?;
    if line.text("type") != Some(TRANSFORM) || version != u64::from(PATCH_VERSION) {
        return None;
    }
    let (mut ops, mut others) = (Vec::new(), Vec::new());
    for op in line.get("patch")?.as_list()? {
        match op.text("op")? {
            "compaction_apply" => ops.push(compacting_op(op, resolve)?),
            other => others.push(other.to_owned()),
        }
    }
    let is_booked_twice = line.text("transformerName") == Some(COMPACTION);
    (!ops.is_empty()).then_some(Compacting { ops, others, is_booked_twice })
}

fn compacting_op(op: &Json, resolve: Resolve<'_>) -> Option<CompactingOp> {
    let is_cached = op.text("scope").is_none_or(|scope| scope == "cached");
    let has_reason = !op.text("invalidateCacheReason")?.trim().is_empty();
    let kept = match (op.get("firstKeptMessageIndex"), op.text("firstKeptEntryId")) {
        // A position before the first message keeps all of them.
        (Some(at), _) => FirstKept::At(usize::try_from(at.to_value().as_i64()?.max(0)).ok()?),
        (None, Some(id)) => FirstKept::Entry(Some(resolve(id)?)),
        (None, None) => FirstKept::Entry(None),
    };
    let tokens_before = op.get("tokensBefore").and_then(Json::as_u64).unwrap_or(0);
    (is_cached && has_reason).then_some(CompactingOp { summary: op.text("summary")?.to_owned(), tokens_before, kept })
}

fn known_transform(line: &Object, resolve: Resolve<'_>) -> Option<ContextTransform> {
    let version = line.get("schemaVersion")?.as_u64()?;
    let patch = ops(line.get("patch")?, resolve)?;
    let lasts = |op: &PatchOp| !matches!(op, PatchOp::MessagesUncachedAppend { .. } | PatchOp::CompactionApply { .. });
    // The display mode does not affect the model: an unknown one is stored beside the entry.
    let display = line.get("display").and_then(|shown| serde_json::from_value(shown.to_value()).ok());
    (version == u64::from(PATCH_VERSION) && patch.iter().all(lasts)).then_some(ContextTransform {
        schema_version: PATCH_VERSION,
        transformer_name: line.text("transformerName")?.to_owned(),
        patch,
        display,
    })
}

fn known_ephemeral(line: &Object, resolve: Resolve<'_>) -> Option<EphemeralChange> {
    let patch = match line.get("patch") {
        Some(patch) => ops(patch, resolve)?,
        None => {
            let append = [("op", "messages_uncached_append".into()), ("messages", line.get("messages")?.clone())];
            ops(&Json::List(vec![Json::object(append)]), resolve)?
        }
    };
    Some(EphemeralChange { transformer_name: line.text("transformerName").unwrap_or(UNNAMED).to_owned(), patch })
}

fn opaque(line: &Object) -> Opaque {
    let mut fields = line.clone();
    OF_EVERY_LINE.iter().for_each(|name| {
        fields.remove(name);
    });
    Opaque { fields: fields.to_map() }
}

/// Parses the ops of a patch; `None` if one is unknown or names an entry that does not exist here.
fn ops(patch: &Json, resolve: Resolve<'_>) -> Option<Vec<PatchOp>> {
    let ours = |op: &Json| {
        let mut op = op.to_value();
        rename_entries(&mut op, resolve)?;
        for (list, within) in [("messages", false), ("edits", true)] {
            for item in op.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                let is_named = within || item.get("entryId").is_some() || item.get("message").is_some();
                let message = if is_named { item.get_mut("message") } else { Some(item) };
                if let Some(message) = message {
                    *message = message_of(message)?;
                }
            }
        }
        Some(op)
    };
    patch::read(patch.as_list()?.iter().map(ours).collect::<Option<_>>()?).ok()
}

/// Replaces the entry ids of an op by ours, which may differ from those in the file. Returns `None` if an entry is
/// missing.
fn rename_entries(op: &mut Value, resolve: Resolve<'_>) -> Option<()> {
    let rename = |id: &mut Value| -> Option<()> {
        if !id.is_null() {
            *id = Value::from(resolve(id.as_str()?)?.as_str());
        }
        Some(())
    };
    for list in ["messages", "edits"] {
        for item in op.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(id) = item.get_mut("entryId") {
                rename(id)?;
            }
        }
    }
    if let Some(id) = op.get_mut("firstKeptEntryId") {
        rename(id)?;
    }
    op.get_mut("keptEntryIds").and_then(Value::as_array_mut).into_iter().flatten().try_for_each(rename)
}

/// Converts a pi message to our form.
fn message_of(message: &Value) -> Option<Value> {
    match convert::message(&Json::from(message))? {
        EntryData::Message(message) => {
            let Message { role, content, .. } = Arc::unwrap_or_clone(message);
            serde_json::to_value(Message::new(role, content)).ok()
        }
        _ => None,
    }
}

/// Writes a transform's fields. Returns `false` if its line type cannot hold them.
pub(super) fn write_transform(line: &mut Object, kept: &Kept<ContextTransform>, time: Timestamp) -> bool {
    match kept {
        Kept::Known(transform) => {
            line.set("schemaVersion", u64::from(transform.schema_version));
            line.set("transformerName", transform.transformer_name.as_str());
            line.set("patch", written(&transform.patch, time));
            let display = transform.display.as_ref().and_then(|display| serde_json::to_value(display).ok());
            line.set_some("display", display.as_ref().map(Json::from));
            true
        }
        Kept::Other(opaque) => write_opaque(line, &opaque.fields),
    }
}

/// Writes the fields of an `ephemeral` entry. Returns `false` if its line type cannot hold them.
pub(super) fn write_ephemeral(line: &mut Object, kept: &Kept<EphemeralChange>, time: Timestamp) -> bool {
    match kept {
        Kept::Known(change) => {
            line.set("transformerName", change.transformer_name.as_str());
            let messages = |op: &PatchOp| match op {
                PatchOp::MessagesUncachedAppend { messages } => messages.clone(),
                _ => Vec::new(),
            };
            let appended: Vec<Message> = change.patch.iter().flat_map(messages).collect();
            line.set("messages", Json::List(appended.iter().map(|message| pis(message, time)).collect()));
            if !matches!(&change.patch[..], [PatchOp::MessagesUncachedAppend { .. }]) {
                line.set("patch", written(&change.patch, time));
            }
            true
        }
        Kept::Other(opaque) => write_opaque(line, &opaque.fields),
    }
}

fn write_opaque(line: &mut Object, fields: &Map<String, Value>) -> bool {
    if OF_EVERY_LINE.iter().any(|name| fields.contains_key(*name)) {
        return false;
    }
    fields.iter().for_each(|(name, value)| line.set(name, Json::from(value)));
    true
}

/// Returns the ops in the proposal's form, as far as it defines them. Entry ids in ops are our addition.
fn written(ops: &[PatchOp], time: Timestamp) -> Json {
    let op = |op: &PatchOp| {
        let mut fields = serde_json::to_value(op).unwrap_or_default();
        let is_uncached = matches!(op, PatchOp::MessagesUncachedAppend { .. });
        fields["scope"] = json!(if is_uncached { "uncached" } else { "cached" });
        let pis = |message: &Option<Message>| message.as_ref().map(|message| pis(message, time).to_value());
        match op {
            PatchOp::MessagesCachedReplace { messages, .. } => {
                let item = |item: &PatchMessage| match (&item.entry_id, pis(&item.message)) {
                    (None, Some(message)) => message,
                    (Some(id), Some(message)) => json!({ "entryId": id, "message": message }),
                    (id, None) => json!({ "entryId": id }),
                };
                fields["messages"] = messages.iter().map(item).collect();
            }
            PatchOp::MessagesCachedEdit { edits, .. } => {
                let edit = |edit: &MessageEdit| match pis(&edit.message) {
                    Some(message) => json!({ "entryId": edit.entry_id, "message": message }),
                    None => json!({ "entryId": edit.entry_id }),
                };
                fields["edits"] = edits.iter().map(edit).collect();
            }
            PatchOp::MessagesUncachedAppend { messages } => {
                fields["messages"] = messages.iter().map(|message| pis_value(message, time)).collect();
            }
            PatchOp::OptionsSet { .. } => {
                let fields = fields.as_object_mut().expect("an op is an object");
                for (ours, theirs) in [("reasoningEffort", "reasoning"), ("maxOutputTokens", "maxTokens")] {
                    if let Some(set) = fields.remove(ours) {
                        fields.insert(theirs.to_owned(), set);
                    }
                }
            }
            _ => {}
        }
        Json::from(&fields)
    };
    Json::List(ops.iter().map(op).collect())
}

fn pis(message: &Message, time: Timestamp) -> Json {
    Json::Object(convert::message_fields(message, time))
}

fn pis_value(message: &Message, time: Timestamp) -> Value {
    pis(message, time).to_value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{convert::data, export};
    use reseed_core::{
        context::{build_context, counter::Counter},
        session::Node,
    };
    use reseed_protocol::{Entry, EntryId};
    use std::sync::Arc;

    /// Converts a line to an entry as the importer does.
    fn entry(line: &Value) -> Entry {
        let object = Object::from(line.as_object().unwrap());
        Entry {
            entry_id: "e".parse().unwrap(),
            parent_id: None,
            timestamp: Timestamp(0),
            imported: None,
            data: data(&object, &|id| id.parse().ok()),
        }
    }

    fn line(kind: &str, fields: Value) -> Value {
        let mut line = json!({ "type": kind, "id": "e", "parentId": null, "timestamp": "1970-01-01T00:00:00.000Z" });
        line.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        line
    }

    fn patched(op: Value) -> Value {
        line(TRANSFORM, json!({ "schemaVersion": 1, "transformerName": "t", "patch": [op] }))
    }

    #[test]
    fn lines_of_the_proposal_are_patches_and_written_as_such() {
        let said = json!({ "role": "user", "content": "[marker]", "timestamp": 5 });
        let ours = json!({ "role": "user", "content": [{ "type": "text", "text": "[marker]" }] });
        let answer = json!({ "role": "assistant", "content": [{ "type": "thinking", "thinking": "hm" },
            { "type": "toolCall", "id": "c1", "name": "look", "arguments": { "at": "sea" } }], "stopReason": "toolUse" });
        let result = json!({ "role": "toolResult", "toolCallId": "c1", "toolName": "look", "isError": false,
            "content": [{ "type": "text", "text": "blue" }] });
        let why = "invalidateCacheReason";
        let table = [
            (
                json!({ "op": "messages_cached_replace", "scope": "cached", "messages": [said, answer, result], why: "r" }),
                json!({ "op": "messages_cached_replace", "messages": [{ "message": ours },
                    { "message": { "role": "assistant", "content": [{ "type": "reasoning", "text": "hm" },
                        { "type": "tool_call", "toolCallId": "c1", "name": "look", "arguments": "{\"at\":\"sea\"}" }] } },
                    { "message": { "role": "tool", "content": [
                        { "type": "tool_result", "toolCallId": "c1", "output": "blue" }] } }], why: "r" }),
            ),
            (
                json!({ "op": "options_set", "scope": "cached", "reasoning": "low", "maxTokens": 7, why: "r" }),
                json!({ "op": "options_set", "maxOutputTokens": 7, "reasoningEffort": "low", why: "r" }),
            ),
            (
                json!({ "op": "system_part_set", "scope": "cached", "partName": "policy", "text": "P", why: "r" }),
                json!({ "op": "system_part_set", "partName": "policy", "text": "P", why: "r" }),
            ),
        ];
        for (theirs, ours) in table {
            let entry = entry(&patched(theirs.clone()));
            let EntryData::ContextTransform(kept) = &entry.data else { panic!("{:?}", entry.data) };
            let transform = kept.known().unwrap_or_else(|| panic!("{theirs} is not read"));
            assert_eq!(json!(transform.patch), json!([ours]), "{theirs}");
            let written = export::marked(&entry, None);
            let op = |line: &Object| line.get("patch").and_then(Json::as_list).unwrap()[0].to_value();
            assert_eq!(written.text("type"), Some(TRANSFORM));
            for name in ["op", "scope", "reasoning", "maxTokens", "partName", "text", why] {
                assert_eq!(op(&written).get(name), theirs.get(name), "{name}");
            }
            let roles = |op: &Value| {
                let messages = op["messages"].as_array().cloned().unwrap_or_default();
                messages.iter().map(|message| message["role"].clone()).collect::<Vec<_>>()
            };
            assert_eq!(roles(&op(&written)), roles(&theirs));
        }
    }

    #[test]
    fn transforms_that_cannot_be_applied_are_stored_unchanged() {
        let why = "invalidateCacheReason";
        let mut newer = patched(json!({ "op": "tools_remove", "toolNames": [], why: "r" }));
        newer["schemaVersion"] = json!(2);
        let lines = [
            patched(json!({ "op": "dance", "scope": "cached", why: "r" })),
            patched(json!({ "op": "tools_remove", "scope": "uncached", "toolNames": [], why: "r" })),
            patched(json!({ "op": "messages_uncached_append", "scope": "uncached", "messages": [] })),
            newer,
            line(TRANSFORM, json!({})),
            line(EPHEMERAL, json!({ "messages": [{ "role": "custom", "content": "x", "customType": "c" }] })),
        ];
        for line in lines {
            let entry = entry(&line);
            let fields = match &entry.data {
                EntryData::ContextTransform(kept) if kept.known().is_none() => serde_json::to_value(kept).unwrap(),
                EntryData::Ephemeral(kept) if kept.known().is_none() => serde_json::to_value(kept).unwrap(),
                other => panic!("{line}: {other:?}"),
            };
            assert!(
                line.as_object()
                    .unwrap()
                    .iter()
                    .all(|(name, value)| { OF_EVERY_LINE.contains(&name.as_str()) || fields[name] == *value })
            );
            assert_eq!(Json::Object(convert::line(&entry)).to_value(), line);
        }
    }

    #[test]
    fn a_patch_names_entries_by_their_ids_here() {
        fn resolve(id: &str) -> Option<EntryId> {
            match id {
                "gone" => None,
                "a b" => "renamed".parse().ok(),
                id => id.parse().ok(),
            }
        }
        let why = "invalidateCacheReason";
        let edit = |id: &str| {
            json!({ "op": "messages_cached_edit", "edits": [{ "entryId": "e1" }, { "entryId": id }],
                why: "r" })
        };
        let replace = |id: &str| json!({ "op": "messages_cached_replace", "messages": [{ "entryId": id }], why: "r" });
        let compaction = |id: &str| {
            json!({ "op": "compaction_apply", "summary": "S", "firstKeptEntryId": "e1", "keptEntryIds": [id],
                "timestamp": "1970-01-01T00:00:00.000Z", "tokensBefore": 9, why: "r" })
        };
        let ephemeral = |op: Value| line(EPHEMERAL, json!({ "messages": [], "patch": [op] }));
        let table = [
            (patched(edit("a b")), patched(edit("gone")), edit("renamed")),
            (patched(replace("a b")), patched(replace("gone")), replace("renamed")),
            (ephemeral(compaction("a b")), ephemeral(compaction("gone")), compaction("renamed")),
        ];
        let read = |line: &Value| data(&Object::from(line.as_object().unwrap()), &resolve);
        for (named, gone, expected) in table {
            let patch = match read(&named) {
                EntryData::ContextTransform(kept) => kept.known().map(|transform| json!(transform.patch)),
                EntryData::Ephemeral(kept) => kept.known().map(|change| json!(change.patch)),
                other => panic!("{named}: {other:?}"),
            };
            assert_eq!(patch, Some(json!([expected])), "{named}");
            let fields = match read(&gone) {
                EntryData::ContextTransform(kept) if kept.known().is_none() => json!(kept),
                EntryData::Ephemeral(kept) if kept.known().is_none() => json!(kept),
                other => panic!("{gone}: {other:?}"),
            };
            assert_eq!(fields.get("patch"), Some(&gone["patch"]));
        }
    }

    #[test]
    fn an_imported_patch_is_applied_at_its_place() {
        let counter = Counter::for_model("test");
        let said = |text: &str| json!({ "role": "user", "content": text, "timestamp": 5 });
        let marker = json!({ "op": "messages_cached_replace", "scope": "cached", "messages": [said("[marker]")],
            "invalidateCacheReason": "r" });
        let lines = [
            line("message", json!({ "message": said("one") })),
            patched(marker),
            line(EPHEMERAL, json!({ "messages": [said("[request-only]")] })),
            line("message", json!({ "message": said("two") })),
        ];
        let path = lines.map(|line| Arc::new(Node::counted(entry(&line), &counter)));
        let texts: Vec<String> = build_context(&path).messages.iter().map(|sent| sent.message.text()).collect();
        assert_eq!(texts, ["[marker]", "two"]);
    }

    #[test]
    fn a_change_to_one_request_does_not_affect_later_ones() {
        let said = json!({ "role": "user", "content": "[request-only]", "timestamp": 5 });
        let entry = entry(&line(EPHEMERAL, json!({ "messages": [said] })));
        let EntryData::Ephemeral(kept) = &entry.data else { panic!("{:?}", entry.data) };
        let expected = EphemeralChange {
            transformer_name: UNNAMED.to_owned(),
            patch: vec![PatchOp::MessagesUncachedAppend { messages: vec![Message::user("[request-only]")] }],
        };
        assert_eq!(kept.known(), Some(&expected));
        let written = convert::line(&entry);
        assert_eq!(written.text("type"), Some(EPHEMERAL));
        assert!(written.get("patch").is_none());
    }
}
