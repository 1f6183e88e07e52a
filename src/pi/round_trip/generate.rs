//! Generators: lines as pi writes them, and trees of our entries.

use super::Contents;
use proptest::prelude::*;
use reseed_protocol::{
    Entry, EntryData, EntryId, Message, NativeCompaction, Part, Role, StopReason, Timestamp, Usage, UsageSource,
    compaction::{Compaction, CompactionDetails, CompactionTrigger, Pin, SummaryForm},
    context::{ContextTransform, EphemeralChange, MessageEdit, PATCH_VERSION, PatchMessage, PatchOp, TransformDisplay},
    tree::{
        BranchSummary, Custom, CustomMessage, Foreign, Kept, Label, ModelChange, Opaque, SessionInfo,
        ThinkingLevelChange,
    },
};
use serde_json::{Map, Value, json};

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..3).prop_map(Value::from),
        prop_oneof![Just(0.5), Just(1.0), Just(1e300)].prop_map(|float: f64| json!(float)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::btree_map("(type|text|set|[a-b0-9])", inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn text() -> impl Strategy<Value = String> {
    "(\\PC|\n|\u{2028}|\"){0,6}"
}

/// Generates a content block of a pi message.
fn block() -> impl Strategy<Value = Value> {
    prop_oneof![
        text().prop_map(|text| json!({ "type": "text", "text": text })),
        text().prop_map(|text| json!({ "type": "thinking", "thinking": text, "thinkingSignature": "x" })),
        (text(), any_value())
            .prop_map(|(id, given)| json!({ "type": "toolCall", "id": id, "name": "read", "arguments": given })),
        Just(json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" })),
        any_value(),
    ]
}

fn pi_message() -> impl Strategy<Value = Value> {
    let content = prop_oneof![text().prop_map(Value::from), prop::collection::vec(block(), 0..4).prop_map(Value::from)];
    let role = prop::sample::select(vec![
        "user",
        "assistant",
        "toolResult",
        "bashExecution",
        "custom",
        "branchSummary",
        "compactionSummary",
        "other",
    ]);
    (role, content, text(), any::<bool>(), prop::sample::select(vec!["stop", "toolUse", "error", "aborted", "odd"]))
        .prop_map(|(role, content, text, truth, stop)| match role {
            "user" => json!({ "role": role, "content": content, "timestamp": 5 }),
            "assistant" => json!({ "role": role, "content": content, "api": "a", "provider": "p", "model": text,
                "usage": { "input": 3, "output": 1, "cacheRead": 2, "cacheWrite": 0, "totalTokens": 6 },
                "stopReason": stop, "timestamp": 5 }),
            "toolResult" => json!({ "role": role, "toolCallId": text, "toolName": "read", "content": content,
                "isError": truth, "timestamp": 5 }),
            "bashExecution" => json!({ "role": role, "command": text, "output": "x", "exitCode": 1,
                "excludeFromContext": truth, "timestamp": 5 }),
            "custom" => json!({ "role": role, "customType": "c", "content": content, "display": truth }),
            "branchSummary" | "compactionSummary" => json!({ "role": role, "summary": text, "fromId": "x" }),
            _ => json!({ "role": role, "content": content }),
        })
}

/// Generates a patch op in the form proposed for pi.
fn pi_op() -> impl Strategy<Value = Value> {
    let scope = || prop::sample::select(vec!["cached", "cached", "cached", "uncached"]);
    let why = "invalidateCacheReason";
    prop_oneof![
        (prop::collection::vec(pi_message(), 0..3), scope()).prop_map(move |(messages, scope)| json!({
            "op": "messages_cached_replace", "scope": scope, "messages": messages, why: "r" })),
        (text(), scope()).prop_map(move |(text, scope)| json!({ "op": "system_part_set", "scope": scope,
            "partName": "p", "text": text, why: "r" })),
        (0..3u8, any_value()).prop_map(move |(tokens, odd)| json!({ "op": "options_set", "maxTokens": tokens,
            "reasoning": "high", why: odd })),
        any_value().prop_map(move |tools| json!({ "op": "tools_replace", "tools": [tools], why: "r" })),
        Just(json!({ "op": "compaction_apply", "summary": "S", "firstKeptMessageIndex": 2, "timestamp": 5 })),
        (-1..5i8, any_value()).prop_map(move |(at, odd)| json!({ "op": "compaction_apply", "summary": "S",
            "firstKeptMessageIndex": at, "timestamp": 5, "tokensBefore": odd, why: "r" })),
        any_value(),
    ]
}

/// Generates the fields of a line besides id, parent and time.
fn fields() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => pi_message().prop_map(|message| json!({ "type": "message", "message": message })),
        1 => (text(), id(), any_value()).prop_map(|(summary, id, details)| json!({ "type": "compaction",
            "summary": summary, "firstKeptEntryId": id, "tokensBefore": 7, "details": details, "fromHook": true })),
        1 => (text(), id()).prop_map(|(summary, id)| json!({ "type": "branch_summary", "fromId": id,
            "summary": summary, "details": { "readFiles": ["a"], "modifiedFiles": [] } })),
        1 => (text(), any_value()).prop_map(|(kind, data)| json!({ "type": "custom", "customType": kind, "data": data })),
        1 => (text(), any_value()).prop_map(|(content, details)| json!({ "type": "custom_message", "customType": "c",
            "content": content, "display": true, "details": details })),
        1 => text().prop_map(|name| json!({ "type": "session_info", "name": name })),
        1 => id().prop_map(|id| json!({ "type": "label", "targetId": id, "label": "here" })),
        1 => text().prop_map(|model| json!({ "type": "model_change", "provider": "p", "modelId": model })),
        1 => text().prop_map(|level| json!({ "type": "thinking_level_change", "thinkingLevel": level })),
        1 => (text(), any_value()).prop_map(|(kind, more)| json!({ "type": kind, "more": more })),
        1 => any_value().prop_map(|data| json!({ "type": "custom", "customType": "reseed.entry", "data": data })),
        2 => (pi_op(), any_value()).prop_map(|(op, display)| json!({ "type": "context_transform", "schemaVersion": 1,
            "transformerName": "t", "patch": [op], "display": display })),
        1 => (pi_op(), text()).prop_map(|(op, title)| json!({ "type": "context_transform", "schemaVersion": 1,
            "transformerName": "t", "patch": [op], "display": { "title": title, "odd": 1 } })),
        2 => prop::collection::vec(pi_message(), 0..3).prop_map(|said| json!({ "type": "ephemeral", "messages": said })),
        1 => any_value().prop_map(|mark| json!({ "type": "session_info", "name": "x", "reseed": mark })),
    ]
}

/// Generates ids from a small pool: some are repeated, missing, or not valid here.
fn id() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => (0..8u32).prop_map(|n| json!(format!("0000000{n}"))),
        1 => Just(json!("not an id!")),
        1 => Just(Value::Null),
        1 => Just(json!("root")),
    ]
}

/// Generates a line as pi would write it, sometimes with one field changed.
pub(super) fn line() -> impl Strategy<Value = String> {
    let time = prop::sample::select(vec!["2026-01-05T09:01:33.066Z", "2026-01-05T09:01:33Z", "2026-13-05", ""]);
    let change = prop_oneof![
        3 => Just(None),
        1 => (prop::sample::select(vec!["id", "parentId", "timestamp", "type", "message", "summary", "odd"]),
            prop::option::of(any_value())).prop_map(Some),
    ];
    (fields(), id(), id(), time, change).prop_map(|(mut fields, id, parent, time, change)| {
        fields["id"] = id;
        fields["parentId"] = parent;
        fields["timestamp"] = json!(time);
        match change {
            Some((name, Some(value))) => fields[name] = value,
            Some((name, None)) => {
                fields.as_object_mut().unwrap().remove(name);
            }
            None => {}
        }
        fields.to_string()
    })
}

fn part() -> impl Strategy<Value = Part> {
    let call = || "c[0-3]".prop_map(|id| id.parse().unwrap());
    prop_oneof![
        text().prop_map(|text| Part::Text { text }),
        Just(Part::Image { url: "https://a.example/b.png".into(), detail: Some("low".into()) }),
        Just(Part::Image { url: "data:image/png;base64,AAAA".into(), detail: None }),
        (text(), prop::option::of(Just(json!({ "sealed": 1 }))))
            .prop_map(|(text, payload)| Part::Reasoning { text, payload }),
        (call(), "(\\{\"a\":1\\}|\\{ |[a-z]{0,3})").prop_map(|(call_id, arguments)| Part::ToolCall {
            call_id,
            name: "read".into(),
            arguments
        }),
        (call(), text(), any::<bool>()).prop_map(|(call_id, output, is_error)| Part::ToolResult {
            call_id,
            output,
            is_error
        }),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let role = prop::sample::select(vec![Role::User, Role::Assistant, Role::Tool]);
    let stop = prop::sample::select(vec![None, Some(StopReason::Stop), Some(StopReason::ContentFilter)]);
    (role, prop::collection::vec(part(), 0..4), stop, any::<bool>()).prop_map(|(role, content, stop_reason, odd)| {
        Message {
            model: odd.then(|| "m".to_owned()),
            usage: odd.then_some(Usage {
                input_tokens: 5,
                cached_tokens: 2,
                cache_write_tokens: None,
                cache_write_hour_tokens: None,
                further: None,
                output_tokens: 3,
                reasoning_tokens: Some(1),
                prefix_tokens: odd.then_some(4),
                cost_nano_usd: odd.then_some(7),
                source: UsageSource::Estimated,
            }),
            envelope_key: odd.then(|| "k".to_owned()),
            stop_reason,
            incomplete: odd,
            ..Message::new(role, content)
        }
    })
}

/// Generates a message inside a patch.
fn carried() -> impl Strategy<Value = Message> {
    message().prop_map(|message| Message::new(message.role, message.content))
}

/// Generates ops that carry messages or set options.
fn any_op() -> impl Strategy<Value = PatchOp> {
    let id = || (0..3u32).prop_map(|n| format!("e{n}").parse::<EntryId>().unwrap());
    let item = || {
        let item = (prop::option::of(id()), prop::option::of(carried()));
        item.prop_map(|(entry_id, message)| PatchMessage { entry_id, message })
    };
    prop_oneof![
        prop::collection::vec(item(), 0..3).prop_map(|messages| PatchOp::MessagesCachedReplace {
            messages,
            invalidate_cache_reason: "why".to_owned()
        }),
        prop::collection::vec(carried(), 0..3).prop_map(|messages| PatchOp::MessagesUncachedAppend { messages }),
        (prop::option::of(1..9u64), prop::option::of(text())).prop_map(|(max_output_tokens, reasoning_effort)| {
            let (temperature, invalidate_cache_reason) = (Some(0.5), "why".to_owned());
            PatchOp::OptionsSet { temperature, max_output_tokens, reasoning_effort, invalidate_cache_reason }
        }),
    ]
}

/// Returns a patch with one op per region.
fn ops() -> Vec<PatchOp> {
    let invalidate_cache_reason = "why".to_owned();
    let edit = MessageEdit { entry_id: "e0".parse().unwrap(), message: Some(Message::user("x")) };
    vec![
        PatchOp::SystemPartSet {
            part_name: "policy".into(),
            text: "Be kind.".into(),
            invalidate_cache_reason: invalidate_cache_reason.clone(),
        },
        PatchOp::MessagesCachedEdit { edits: vec![edit], invalidate_cache_reason },
    ]
}

fn data() -> impl Strategy<Value = EntryData> {
    let some_id = || (0..6u32).prop_map(|n| format!("e{n}").parse::<EntryId>().unwrap());
    let value = || any_value().prop_filter("null is as none", |value| !value.is_null());
    let map = || any_value().prop_map(|value| Map::from_iter([("x".to_owned(), value)]));
    prop_oneof![
        4 => message().prop_map(EntryData::message),
        1 => (text(), prop::option::of(some_id()), prop::collection::vec(some_id(), 0..3), 0..3u8).prop_map(
            |(summary, first_kept_entry_id, kept_entry_ids, summary_from)| EntryData::Compaction(Compaction {
                summary,
                first_kept_entry_id,
                cleared_entry_ids: kept_entry_ids.clone(),
                kept_entry_ids,
                tokens_before: 9,
                tokens_after: Some(4),
                trigger: Some(CompactionTrigger::Overflow),
                duration_ms: None,
                details: Some(CompactionDetails { read_files: vec!["a".into()], modified_files: Vec::new() }),
                hook: (summary_from % 3 > 0).then(|| "h".to_owned()),
                hook_details: (summary_from == 2).then(|| serde_json::json!({ "mine": true })),
                carried_patch: if summary_from == 1 { ops() } else { Vec::new() },
                form: (summary_from > 0).then_some(SummaryForm::Free),
                native: (summary_from == 2).then(|| NativeCompaction { items: "[{}]".to_owned(), tokens: Some(7), ..NativeCompaction::default() }),
                constraints: if summary_from == 1 { vec!["Never push to main.".to_owned()] } else { Vec::new() },
                ..Compaction::default()
            })
        ),
        1 => (prop::option::of(some_id()), text()).prop_map(|(from_id, summary)| EntryData::BranchSummary(BranchSummary {
            left_leaf_id: from_id.clone(), from_id, summary, ..BranchSummary::default() })),
        1 => (text(), prop::option::of(value())).prop_map(|(custom_type, data)| EntryData::Custom(Custom { custom_type, data })),
        1 => (prop::sample::select(vec!["pi.message", "pi.header", "reseed.entry"]), value())
            .prop_map(|(kind, data)| EntryData::Custom(Custom { custom_type: kind.into(), data: Some(data) })),
        1 => (prop::collection::vec(part(), 0..3), prop::option::of(value())).prop_map(|(content, details)| {
            EntryData::CustomMessage(CustomMessage { custom_type: "c".into(), content, display: true, details })
        }),
        1 => (prop::option::of(text()), text())
            .prop_map(|(provider, model)| EntryData::ModelChange(ModelChange { provider, model })),
        1 => text().prop_map(|thinking_level| EntryData::ThinkingLevelChange(ThinkingLevelChange { thinking_level })),
        1 => (some_id(), prop::option::of(text())).prop_map(|(target_id, label)| EntryData::Label(Label { target_id, label })),
        1 => text().prop_map(|name| EntryData::SessionInfo(SessionInfo { name })),
        1 => (prop::sample::select(vec!["odd", "message", "custom", ""]), map())
            .prop_map(|(kind, data)| EntryData::Foreign(Foreign { foreign_type: kind.into(), data })),
        1 => map().prop_map(|fields| EntryData::ContextTransform(Box::new(Kept::Other(Opaque { fields })))),
        1 => text().prop_map(|title| EntryData::ContextTransform(Box::new(Kept::Known(ContextTransform {
            schema_version: PATCH_VERSION,
            transformer_name: "t".into(),
            patch: ops(),
            display: Some(TransformDisplay {
                title,
                summary: None,
                markdown: None,
                renderer_id: None,
                renderer_props: None,
                show_in_chat: Some(true),
            }),
        })))),
        1 => prop::collection::vec(any_op(), 0..3).prop_map(|patch| EntryData::ContextTransform(Box::new(Kept::Known(
            ContextTransform { schema_version: PATCH_VERSION, transformer_name: "t".into(), patch, display: None },
        )))),
        1 => prop::collection::vec(any_op(), 0..3).prop_map(|patch| EntryData::Ephemeral(Box::new(Kept::Known(
            EphemeralChange { transformer_name: "t".into(), patch },
        )))),
        1 => Just(()).prop_map(|()| EntryData::Ephemeral(Box::new(Kept::Known(EphemeralChange {
            transformer_name: "t".into(),
            patch: ops(),
        })))),
        1 => map().prop_map(|fields| EntryData::Ephemeral(Box::new(Kept::Other(Opaque { fields })))),
    ]
}

/// Generates a tree: each entry's parent is an earlier one, or none.
fn tree() -> impl Strategy<Value = Vec<Entry>> {
    prop::collection::vec((data(), any::<prop::sample::Index>(), any::<bool>(), 0i64..2_000_000_000_000), 1..12)
        .prop_map(|made| {
            let id = |at: usize| -> EntryId { format!("e{at}").parse().unwrap() };
            made.into_iter()
                .enumerate()
                .map(|(at, (data, parent, root, time))| Entry {
                    entry_id: id(at),
                    parent_id: (at > 0 && !root).then(|| id(parent.index(at))),
                    timestamp: Timestamp(time),
                    imported: None,
                    data,
                })
                .collect()
        })
}

/// Generates a tree with some entries pinned and some compactions undone.
pub(super) fn contents() -> impl Strategy<Value = Contents> {
    let pins = prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..3);
    (tree(), pins, any::<u16>()).prop_map(|(entries, pins, undone)| {
        let id = |index: &prop::sample::Index| entries[index.index(entries.len())].entry_id.clone();
        let mut chosen: Vec<Pin> = Vec::new();
        for (index, goes_with) in &pins {
            let with = chosen.first().filter(|_| *goes_with).map(|pin| pin.entry_id.clone());
            chosen.push(Pin { entry_id: id(index), under: with.clone(), with });
        }
        let compactions = entries.iter().filter(|entry| matches!(entry.data, EntryData::Compaction(_)));
        let undone = compactions.enumerate().filter(|(at, _)| undone & 1 << at != 0);
        let undone = undone.map(|(_, entry)| entry.entry_id.clone()).collect();
        Contents { pins: chosen, undone, entries }
    })
}
