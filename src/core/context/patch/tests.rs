//! Tables of patches: their effects, their rejections, and their replay.

mod refused;

use super::*;
use crate::context::{
    build_context,
    counter::Counter,
    messages::Context,
    testing::{patch, path, printed},
};
use reseed_protocol::context::{PatchOp, RequestOptions, SystemPart, ToolDefinition};
use serde_json::{Value, json};

const OFFERED: &[&str] = &["read", "write"];

fn tool(name: &str) -> ToolDefinition {
    let parameters = json!({ "type": "object" });
    ToolDefinition { name: name.to_owned(), description: format!("does {name}"), parameters }
}

fn part(name: &str, text: &str) -> SystemPart {
    SystemPart { name: name.to_owned(), text: text.to_owned() }
}

/// Applies a test's patch to its lines, a system prompt of two parts, and two tools.
fn apply(lines: &[&str], ops: Vec<Value>, boundary: Boundary) -> (Context, Result<Applied, PatchRefused>) {
    let counter = Counter::for_model("test");
    let before = build_context(&path(lines, &counter));
    let parts = [part("base", "Be brief."), part("skills", "Cook.")];
    let offered: Vec<ToolDefinition> = OFFERED.iter().map(|name| tool(name)).collect();
    let around = Around { parts: &parts, offered: &offered, counter: &counter };
    let mut context = before.clone();
    let applied = read(ops).and_then(|ops| context.apply(&ops, boundary, &around));
    assert!(applied.is_ok() || context == before, "what is refused changes nothing");
    (context, applied)
}

const TALK: &[&str] = &["a:user one", "b:call x y", "c:result x 1", "d:result y 2", "e:assistant done", "f:user two"];

#[test]
fn messages_become_what_a_patch_says() {
    let (why, u) = ("tidy", |text: &str| json!({ "role": "user", "content": [{ "type": "text", "text": text }] }));
    let replace = |messages: Value| json!({ "op": "messages_cached_replace", "messages": messages, "invalidateCacheReason": why });
    let edit = |edits: Value| json!({ "op": "messages_cached_edit", "edits": edits, "invalidateCacheReason": why });
    let compact = |first: Value, kept: Value| {
        json!({ "op": "compaction_apply", "summary": "S", "firstKeptEntryId": first, "keptEntryIds": kept,
                "timestamp": "2026-01-01T00:00:00Z", "tokensBefore": 9, "invalidateCacheReason": why })
    };
    let all = ["a user one", "b call x y", "c result x 1", "d result y 2", "e assistant done", "f user two"];
    let table: &[(Vec<Value>, &[&str])] = &[
        (
            vec![edit(json!([{ "entryId": "a", "message": u("ONE") }]))],
            &["a user ONE", all[1], all[2], all[3], all[4], all[5]],
        ),
        (vec![edit(json!([{ "entryId": "e" }, { "entryId": "a" }]))], &[all[1], all[2], all[3], all[5]]),
        (vec![edit(json!([{ "entryId": "b" }, { "entryId": "c" }, { "entryId": "d" }]))], &[all[0], all[4], all[5]]),
        (
            vec![replace(
                json!([{ "message": u("new") }, { "entryId": "e" }, { "entryId": "f", "message": u("TWO") }]),
            )],
            &["- user new", all[4], "f user TWO"],
        ),
        (vec![replace(json!([]))], &[]),
        // Each op sees the result of the previous one.
        (vec![replace(json!([{ "entryId": "a" }, { "entryId": "f" }])), edit(json!([{ "entryId": "a" }]))], &[all[5]]),
        (
            vec![edit(json!([{ "entryId": "a", "message": u("ONE") }])), replace(json!([{ "entryId": "a" }]))],
            &["a user ONE"],
        ),
        (vec![compact(json!("e"), json!([]))], &["- summary S", all[4], all[5]]),
        (vec![compact(json!("f"), json!(["a"]))], &["- summary S", all[0], all[5]]),
        // A message added before an entry is moved together with it.
        (
            vec![
                replace(
                    json!([{ "message": u("new") }, { "entryId": "e" }, { "message": u("last") }, { "entryId": "f" }]),
                ),
                compact(json!("f"), json!([])),
            ],
            &["- summary S", "- user last", all[5]],
        ),
        (vec![compact(json!("f"), json!([])), compact(Value::Null, json!(["f"]))], &["- summary S", all[5]]),
    ];
    for (ops, expected) in table {
        let (context, applied) = apply(TALK, ops.clone(), Boundary::Ephemeral);
        let Applied { reasons, notes, changed, ops: _ } = applied.unwrap();
        assert_eq!((reasons, notes, changed), (vec![why.to_owned()], vec![], true), "{ops:?}");
        assert_eq!(printed(&context), *expected, "{ops:?}");
    }
}

/// Applies a replacement to the lines; returns the context and the ops as they are stored.
fn replaced(lines: &[&str], messages: Value) -> (Context, Vec<PatchOp>) {
    let op = json!({ "op": "messages_cached_replace", "messages": messages, "invalidateCacheReason": "order" });
    let (context, applied) = apply(lines, vec![op], Boundary::Durable);
    (context, applied.unwrap().ops)
}

#[test]
fn a_replacement_may_name_entries_in_another_order() {
    let ids = |context: &Context| -> Vec<String> {
        let sent = context.to_messages().cached;
        sent.iter().map(|sent| sent.entry_id.as_ref().map_or("-".into(), ToString::to_string)).collect()
    };
    let named = |order: &[&str]| json!(order.iter().map(|id| json!({ "entryId": id })).collect::<Vec<_>>());
    let table: &[&[&str]] = &[
        &["f", "a", "b", "c", "d", "e"],
        &["b", "c", "d", "a", "e", "f"],
        &["b", "d", "c", "e"],
        &["e", "f", "b", "c", "d", "a"],
        &["f", "e"],
    ];
    for order in table {
        let (context, ops) = replaced(TALK, named(order));
        assert_eq!(ids(&context), *order);
        // The replay gives the same result, and later messages follow.
        let lines: Vec<String> = TALK
            .iter()
            .map(|line| (*line).to_owned())
            .chain([format!("p:replace {}", order.join(" ")), "z:user later".into()])
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(
            ops,
            [patch("replace", &order.join(" "), TALK)
                .map(|mut op| {
                    op.invalidate_cache_reason_mut().unwrap().replace_range(.., "order");
                    op
                })
                .unwrap()]
        );
        let counter = Counter::for_model("test");
        let later = build_context(&path(&lines, &counter));
        assert_eq!(ids(&later), [*order, &["z"]].concat());
        assert_eq!(later.messages[..order.len()], context.messages[..]);
        // A moved message is found by its entry, and can be changed again.
        let edit = read(vec![json!({ "op": "messages_cached_edit", "edits": [{ "entryId": "f" }],
                                     "invalidateCacheReason": "r" })])
        .unwrap();
        let around = Around { parts: &[], offered: &[], counter: &counter };
        let mut edited = context.clone();
        if order.contains(&"f") {
            edited.apply(&edit, Boundary::Durable, &around).unwrap();
        }
        assert_eq!(ids(&edited), order.iter().filter(|id| **id != "f").copied().collect::<Vec<_>>());
    }
}

#[test]
fn the_summary_stays_in_front_and_what_is_handed_back_is_not_stored_again() {
    let lines = &["a:user one", "b:compaction S first=a", "c:assistant two"];
    let op = json!({ "op": "messages_cached_replace", "messages": [{ "entryId": "a" }, { "entryId": "b" }],
                     "invalidateCacheReason": "r" });
    let (_, refused) = apply(lines, vec![op], Boundary::Durable);
    assert!(refused.unwrap_err().why.contains("summary"));
    // A hook returns the messages that it was shown, with one appended.
    let (shown, _) = apply(TALK, Vec::new(), Boundary::Durable);
    let mut messages = serde_json::to_value(shown.to_messages().cached).unwrap();
    messages.as_array_mut().unwrap().push(json!({ "role": "user", "content": "[marker]", "timestamp": 5 }));
    let (context, ops) = replaced(TALK, messages);
    assert_eq!(printed(&context).last().unwrap(), "- user [marker]");
    let PatchOp::MessagesCachedReplace { messages, .. } = &ops[0] else { panic!("{ops:?}") };
    let carried: Vec<bool> = messages.iter().map(|message| message.message.is_some()).collect();
    assert_eq!(carried, [false, false, false, false, false, false, true]);
}

#[test]
fn the_forms_of_the_proposal_are_read_as_ours() {
    let table = [
        (
            json!({ "op": "messages_cached_replace", "scope": "cached", "invalidateCacheReason": "r", "messages": [
                { "role": "user", "content": "one", "timestamp": 1 }, { "entryId": "a" },
                { "entryId": "b", "message": { "role": "user", "content": "two" } }] }),
            json!({ "op": "messages_cached_replace", "invalidateCacheReason": "r", "messages": [
                { "message": { "role": "user", "content": [{ "type": "text", "text": "one" }] } }, { "entryId": "a" },
                { "entryId": "b", "message": { "role": "user", "content": [{ "type": "text", "text": "two" }] } }] }),
        ),
        (
            json!({ "op": "messages_cached_edit", "scope": "cached", "invalidateCacheReason": "r",
                    "edits": [{ "entryId": "a", "message": { "role": "user", "content": "x" } }] }),
            json!({ "op": "messages_cached_edit", "invalidateCacheReason": "r", "edits": [
                { "entryId": "a", "message": { "role": "user", "content": [{ "type": "text", "text": "x" }] } }] }),
        ),
        (
            json!({ "op": "messages_uncached_append", "scope": "uncached",
                    "messages": [{ "role": "user", "content": "now", "timestamp": 1 }] }),
            json!({ "op": "messages_uncached_append",
                    "messages": [{ "role": "user", "content": [{ "type": "text", "text": "now" }] }] }),
        ),
        (
            json!({ "op": "options_set", "scope": "cached", "reasoning": "high", "maxTokens": 9,
                    "invalidateCacheReason": "r" }),
            json!({ "op": "options_set", "reasoningEffort": "high", "maxOutputTokens": 9, "invalidateCacheReason": "r" }),
        ),
        (
            json!({ "op": "system_part_set", "scope": "cached", "partName": "p", "text": "t", "invalidateCacheReason": "r" }),
            json!({ "op": "system_part_set", "partName": "p", "text": "t", "invalidateCacheReason": "r" }),
        ),
    ];
    for (theirs, ours) in table {
        let found = read(vec![theirs.clone()]).unwrap();
        assert_eq!(serde_json::to_value(&found).unwrap(), json!([ours]), "{theirs}");
    }
}

#[test]
fn messages_for_one_request_come_last() {
    let said = json!({ "role": "user", "content": [{ "type": "text", "text": "It is noon." }], "model": "m" });
    let append = json!({ "op": "messages_uncached_append", "messages": [said] });
    let edit = json!({ "op": "messages_cached_edit", "edits": [{ "entryId": "a" }], "invalidateCacheReason": " r " });
    let (context, applied) = apply(TALK, vec![append.clone(), edit, append], Boundary::Ephemeral);
    assert_eq!(applied.unwrap().reasons, ["r"]);
    assert_eq!(context.messages.len(), TALK.len() - 1);
    assert_eq!(context.uncached.len(), 2);
    assert!(context.uncached.iter().all(|counted| counted.message.model.is_none() && counted.tokens.total() > 0));
    let sent = context.to_messages();
    assert_eq!((sent.cached.len(), sent.uncached.len()), (TALK.len() - 1, 2));
}

#[test]
fn the_system_prompt_the_tools_and_the_options_become_what_patches_say() {
    let base = [part("base", "Be brief."), part("skills", "Cook.")];
    let offered = [tool("read"), tool("write")];
    let options = RequestOptions { temperature: Some(1.0), ..RequestOptions::default() };
    let table: &[(Value, &str, &[&str], Value)] = &[
        (json!([]), "Be brief.Cook.", &["read", "write"], json!({ "temperature": 1.0 })),
        (
            json!([{ "op": "system_part_set", "partName": "base", "text": "Be long." },
                { "op": "system_part_set", "partName": "new", "text": "!" }]),
            "Be long.Cook.!",
            &["read", "write"],
            json!({ "temperature": 1.0 }),
        ),
        (
            json!([{ "op": "system_part_remove", "partName": "base" }, { "op": "system_part_set", "partName": "base", "text": "Z" }]),
            "Cook.Z",
            &["read", "write"],
            json!({ "temperature": 1.0 }),
        ),
        (
            json!([{ "op": "system_part_set", "partName": "new", "text": "!" },
                { "op": "system_parts_replace", "parts": [{ "name": "only", "text": "X" }] },
                { "op": "system_part_remove", "partName": "absent" }]),
            "X",
            &["read", "write"],
            json!({ "temperature": 1.0 }),
        ),
        (
            json!([{ "op": "tools_remove", "toolNames": ["read", "absent"] }, { "op": "options_set", "maxOutputTokens": 5 },
                { "op": "options_set", "temperature": 0.0 }]),
            "Be brief.Cook.",
            &["write"],
            json!({ "temperature": 0.0, "maxOutputTokens": 5 }),
        ),
        (
            json!([{ "op": "tools_remove", "toolNames": ["write"] }, { "op": "tools_replace", "tools": [tool("write")] }]),
            "Be brief.Cook.",
            &["write"],
            json!({ "temperature": 1.0 }),
        ),
    ];
    for (ops, compiled, names, set) in table {
        let ops: Vec<PatchOp> = serde_json::from_value(ops.clone()).unwrap();
        let carried = CarriedOps::of(&ops);
        assert_eq!(carried.system(&base).compiled, *compiled, "{ops:?}");
        let (tools, notes) = carried.tools(&offered);
        assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), *names, "{ops:?}");
        assert_eq!(notes, [""; 0]);
        assert_eq!(serde_json::to_value(carried.options(&options)).unwrap(), *set, "{ops:?}");
    }
    // A tool that is no longer offered is left out, with a note.
    let ops = json!([{ "op": "tools_replace", "tools": [tool("read"), tool("write")] }]);
    let ops: Vec<PatchOp> = serde_json::from_value(ops).unwrap();
    let (tools, notes) = CarriedOps::of(&ops).tools(&offered[..1]);
    assert_eq!((tools.len(), notes.len()), (1, 1));
    assert!(notes[0].contains("`write`"));
}

#[test]
fn a_patch_that_repeats_the_current_state_changes_nothing() {
    let ops = |reason: &str| {
        vec![
            json!({ "op": "system_part_set", "partName": "policy", "text": "P", "invalidateCacheReason": reason }),
            json!({ "op": "messages_cached_edit", "invalidateCacheReason": reason, "edits": [
                { "entryId": "a", "message": { "role": "user", "content": [{ "type": "text", "text": "X" }] } }] }),
        ]
    };
    let counter = Counter::for_model("test");
    let around = Around { parts: &[], offered: &[], counter: &counter };
    let mut context = build_context(&path(TALK, &counter));
    let mut changed = |reason| context.apply(&read(ops(reason)).unwrap(), Boundary::Durable, &around).unwrap().changed;
    assert!(changed("first"));
    assert!(!changed("again"));
}

#[test]
fn stored_patches_are_replayed_at_their_place() {
    let table: &[(&[&str], &[&str])] = &[
        (&["a:user one", "b:edit a=ONE", "c:user two"], &["a user ONE", "c user two"]),
        (&["a:user one", "b:user two", "c:edit a", "d:user three"], &["b user two", "d user three"]),
        (&["a:user one", "b:replace *new a", "c:user two"], &["- user new", "a user one", "c user two"]),
        (
            &["a:user one", "b:user two", "c:replace b *end", "d:user three"],
            &["b user two", "- user end", "d user three"],
        ),
        // An entry that is gone is ignored, along with messages added before it.
        (&["a:user one", "b:replace *x gone *y a *z"], &["- user y", "a user one", "- user z"]),
        (&["a:user one", "b:edit gone=x", "c:user two"], &["a user one", "c user two"]),
        // A compaction's own patch states what it keeps; these compactions have none.
        (
            &["a:user one", "b:user two", "c:edit b=TWO", "d:compaction S first=b", "e:edit d=T", "f:user x"],
            &["d summary ?", "b user two", "f user x"],
        ),
        (
            &[
                "a:user one",
                "b:user two",
                "c:compaction S first=b",
                "d:replace b *n",
                "e:user x",
                "f:compaction T first=b",
                "g:user y",
            ],
            &["f summary T", "b user two", "e user x", "g user y"],
        ),
    ];
    for (lines, expected) in table {
        let context = build_context(&path(lines, &Counter::for_model("test")));
        assert_eq!(printed(&context), *expected, "{lines:?}");
    }
}

#[test]
fn a_reference_to_an_undone_compaction_means_the_entries_it_had_hidden() {
    let table: &[(&[&str], &[&str])] = &[
        (
            &["a:user one", "b:user two", "c:user three", "d:compaction S first=c", "e:replace d c=3", "f:user x"],
            &["a user one", "b user two", "c user 3", "f user x"],
        ),
        (
            &["a:user one", "b:user two", "c:user three", "d:compaction S first=c", "e:replace c *n", "f:user x"],
            &["c user three", "- user n", "f user x"],
        ),
        (
            &["a:user one", "b:user two", "c:user three", "d:compaction S first=c keep=a", "e:replace *n d a=1 c"],
            &["a user 1", "- user n", "b user two", "c user three"],
        ),
        (
            &["a:user one", "b:user two", "d:compaction S", "e:edit d=X", "f:user x"],
            &["a user one", "b user two", "f user x"],
        ),
    ];
    for (lines, expected) in table {
        let mut path = path(lines, &Counter::for_model("test"));
        for node in &mut path {
            if node.compaction().is_some() {
                *node = std::sync::Arc::new((**node).clone().passed_over());
            }
        }
        assert_eq!(printed(&build_context(&path)), *expected, "{lines:?}");
    }
}

#[test]
fn a_patch_of_an_unknown_form_is_skipped_with_a_note() {
    let counter = Counter::for_model("test");
    let mut entries = crate::context::testing::entries(&["a:user one", "b:edit a", "c:edit a", "d:user two"]);
    let mut json = serde_json::to_value(&entries[1]).unwrap();
    json["patch"][0]["op"] = json!("dance");
    entries[1] = serde_json::from_value(json.clone()).unwrap();
    json["patch"] = json!([]);
    json["schemaVersion"] = json!(2);
    entries[2] = serde_json::from_value(json).unwrap();
    let path: Vec<_> = entries
        .into_iter()
        .map(|entry| std::sync::Arc::new(crate::context::node::Node::counted(entry, &counter)))
        .collect();
    let context = build_context(&path);
    assert_eq!(printed(&context), ["a user one", "d user two"]);
    assert_eq!(context.unknown_patches, 2);
    assert!(context.notes()[0].contains("2 stored patches"));
}

#[test]
fn a_patch_of_a_line_is_read_as_it_is_written() {
    let op = patch("replace", "a b=x *n", TALK).unwrap();
    let read = read(vec![serde_json::to_value(&op).unwrap()]).unwrap();
    assert_eq!(read, [op]);
}
