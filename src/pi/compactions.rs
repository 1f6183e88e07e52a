//! Tests of compactions that arrive as patches: the context that the model sees after them, and the exported file.

use super::{
    Exporter, Importer,
    json::Json,
    read::{Item, Reader},
};
use reseed_core::{
    context::seed::unseed,
    context::{build_context, counter::Counter},
    session::{IdSource, Node},
};
use reseed_protocol::{Entry, EntryData, Timestamp};
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Arc};

const WHY: &str = "invalidateCacheReason";

fn header() -> String {
    json!({ "type": "session", "version": 3, "id": "s-1", "timestamp": "2026-01-05T09:00:00.000Z", "cwd": "/" })
        .to_string()
}

/// Returns a line with this id and parent; `""` stands for the root.
fn line(id: &str, parent: &str, kind: &str, fields: Value) -> Value {
    let parent = if parent.is_empty() { Value::Null } else { parent.into() };
    let mut line = json!({ "type": kind, "id": id, "parentId": parent, "timestamp": "2026-01-05T09:00:01.000Z" });
    line.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    line
}

fn said(id: &str, parent: &str) -> Value {
    let message = if id.starts_with('a') {
        json!({ "role": "assistant", "content": [{ "type": "text", "text": id }], "stopReason": "stop" })
    } else {
        json!({ "role": "user", "content": id, "timestamp": 5 })
    };
    line(id, parent, "message", json!({ "message": message }))
}

fn apply(summary: &str, at: i64) -> Value {
    json!({ "op": "compaction_apply", "scope": "cached", "summary": summary, "timestamp": 5,
        "firstKeptMessageIndex": at, "tokensBefore": 9, WHY: "the window is full" })
}

fn transform(id: &str, parent: &str, patch: Value) -> Value {
    let fields = json!({ "schemaVersion": 1, "transformerName": "compaction", "patch": patch });
    line(id, parent, "context_transform", fields)
}

/// Returns u1, a1, u2 and a2, each the child of the previous one.
fn four() -> Vec<Value> {
    vec![said("u1", ""), said("a1", "u1"), said("u2", "a1"), said("a2", "u2")]
}

struct Read {
    entries: Vec<Entry>,
    notes: Vec<String>,
}

fn read(lines: &[Value]) -> Read {
    let mut reader = Reader::new(IdSource::seeded(1));
    let mut read = Read { entries: Vec::new(), notes: Vec::new() };
    let mut importer: Option<Importer> = None;
    for line in std::iter::once(header()).chain(lines.iter().map(Value::to_string)) {
        match reader.line(&line).unwrap() {
            Item::Header(header) => importer = Some(Importer::new(header, IdSource::seeded(2))),
            Item::Entry(line) => {
                let importer = importer.as_mut().unwrap();
                read.entries.push(importer.entry(&line));
                read.notes.extend(importer.take_notes().into_iter().map(|note| note.text));
            }
            Item::Blank => {}
        }
    }
    read
}

impl Read {
    /// Returns the texts that the model sees at the last line, with summaries in brackets.
    fn seen(&self) -> Vec<String> {
        let by_id: HashMap<_, &Entry> = self.entries.iter().map(|entry| (&entry.entry_id, entry)).collect();
        let up = |entry: &&Entry| entry.parent_id.as_ref().map(|parent| by_id[parent]);
        let mut path: Vec<&Entry> = std::iter::successors(self.entries.last(), up).collect();
        path.reverse();
        let counter = Counter::for_model("test");
        let nodes: Vec<_> = path.into_iter().map(|entry| Arc::new(Node::counted(entry.clone(), &counter))).collect();
        let text = |text: String| unseed(&text).map_or_else(|| text.clone(), |summary| format!("[{summary}]"));
        build_context(&nodes).messages.iter().map(|sent| text(sent.message.text())).collect()
    }

    fn written(&self) -> Vec<Json> {
        let mut exporter = Exporter::new("s-1".parse().unwrap(), Timestamp(0)).keeping(&[], &[]);
        let lines: Vec<String> = self.entries.iter().flat_map(|entry| exporter.entry(entry)).collect();
        // The first line is the header.
        lines[1..].iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[test]
fn a_compacting_patch_is_imported_as_a_compaction() {
    let with = |lines: &[Value]| [four(), lines.to_vec()].concat();
    let compaction = |id: &str, parent: &str, kept: &str| {
        let fields = json!({ "summary": "S", "firstKeptEntryId": kept, "tokensBefore": 9 });
        line(id, parent, "compaction", fields)
    };
    let custom = line("c", "a1", "custom", json!({ "customType": "x", "data": 1 }));
    let replace = json!({ "op": "messages_cached_replace", "scope": "cached", WHY: "r", "messages": [
        { "role": "user", "content": "x", "timestamp": 5 }, { "entryId": "u2" }, { "entryId": "a2" }] });
    let edit = json!({ "op": "messages_cached_edit", "scope": "cached", WHY: "r", "edits": [{ "entryId": "u1" }] });
    let table: Vec<(&str, Vec<Value>, Vec<&str>)> = vec![
        (
            "by position",
            with(&[transform("t", "a2", json!([apply("S", 2)])), said("u3", "t")]),
            vec!["[S]", "u2", "a2", "u3"],
        ),
        ("of all", with(&[transform("t", "a2", json!([apply("S", 9)])), said("u3", "t")]), vec!["[S]", "u3"]),
        ("of none", with(&[transform("t", "a2", json!([apply("S", -1)]))]), vec!["[S]", "u1", "a1", "u2", "a2"]),
        (
            "on a branch",
            with(&[transform("t", "a1", json!([apply("S", 1)])), said("u3", "t")]),
            vec!["[S]", "a1", "u3"],
        ),
        (
            "with entries between that are no messages",
            vec![
                said("u1", ""),
                said("a1", "u1"),
                custom,
                said("u2", "c"),
                transform("t", "u2", json!([apply("S", 2)])),
            ],
            vec!["[S]", "u2"],
        ),
        (
            "booked twice",
            with(&[transform("t", "a2", json!([apply("S", 2)])), compaction("b", "t", "u2"), said("u3", "b")]),
            vec!["[S]", "u2", "a2", "u3"],
        ),
        (
            "behind an earlier compaction",
            with(&[compaction("b", "a2", "u2"), said("u3", "b"), transform("t", "u3", json!([apply("T", 2)]))]),
            vec!["[T]", "a2", "u3"],
        ),
        (
            "behind an earlier patch",
            with(&[
                transform("s", "a2", json!([apply("S", 1)])),
                said("u3", "s"),
                transform("t", "u3", json!([apply("T", 3)])),
            ]),
            vec!["[T]", "a2", "u3"],
        ),
        (
            "twice in a patch",
            with(&[transform("t", "a2", json!([apply("S", 1), apply("T", 2)]))]),
            vec!["[T]", "u2", "a2"],
        ),
        (
            "behind another list",
            with(&[transform("r", "a2", json!([replace])), transform("t", "r", json!([apply("S", 2)]))]),
            vec!["[S]", "a2"],
        ),
        (
            "behind an edit",
            with(&[transform("r", "a2", json!([edit])), transform("t", "r", json!([apply("S", 1)]))]),
            vec!["[S]", "u2", "a2"],
        ),
    ];
    for (name, lines, expected) in table {
        let read = read(&lines);
        assert_eq!(read.seen(), expected, "{name}");
        assert_eq!(read.notes, Vec::<String>::new(), "{name}");
        let applied = read.entries.iter().filter(|entry| matches!(entry.data, EntryData::Compaction(_))).count();
        let transforms = lines.iter().filter(|line| line["patch"][0]["op"] == "compaction_apply").count();
        let booked = lines.iter().filter(|line| line["type"] == "compaction" && line["parentId"] != "t").count();
        assert_eq!(applied, transforms + booked, "{name}: none is there twice");
        let theirs: Vec<Json> = lines.iter().map(Json::from).collect();
        assert_eq!(read.written(), theirs, "{name}: the file comes back");
    }
}

#[test]
fn ops_of_a_patch_that_are_not_applied_are_noted() {
    let part = json!({ "op": "system_part_set", "scope": "cached", "partName": "p", "text": "P", WHY: "r" });
    let (mut unreasoned, mut newer) = (apply("S", 2), transform("t", "a2", json!([apply("S", 2)])));
    unreasoned[WHY] = json!(" ");
    newer["schemaVersion"] = json!(2);
    let replace = json!({ "op": "messages_cached_replace", "scope": "cached", WHY: "r", "messages": [
        { "role": "user", "content": "x", "timestamp": 5 }, { "entryId": "a2" }] });
    let whole = ["u1", "a1", "u2", "a2"];
    let mut elsewhere = apply("S", 0);
    elsewhere.as_object_mut().unwrap().remove("firstKeptMessageIndex");
    elsewhere["firstKeptEntryId"] = json!("t");
    let table: Vec<(Vec<Value>, Vec<&str>, &str)> = vec![
        (vec![transform("t", "a2", json!([part, apply("S", 2)]))], vec!["[S]", "u2", "a2"], "not system_part_set"),
        (vec![transform("t", "a2", json!([unreasoned]))], whole.to_vec(), "cannot be applied"),
        (vec![newer], whole.to_vec(), "cannot be applied"),
        (vec![transform("t", "a2", json!([{ "op": "dance" }]))], whole.to_vec(), "cannot be applied"),
        (
            vec![transform("r", "a2", json!([replace])), transform("t", "r", json!([apply("S", 0)]))],
            vec!["[S]", "a2"],
            "leaves out 1 messages",
        ),
        (vec![transform("t", "a2", json!([elsewhere]))], vec!["[S]"], "is not among them"),
    ];
    for (lines, expected, told) in table {
        let read = read(&[four(), lines.clone()].concat());
        assert_eq!(read.seen(), expected, "{lines:?}");
        assert!(read.notes.len() == 1 && read.notes[0].contains(told), "{lines:?}: {:?}", read.notes);
    }
}
