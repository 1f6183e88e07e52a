//! Stored histories with patches in `tests/fixtures/envelopes/`, and the next request of each, as JSON and as Markdown.
//! `UPDATE=1` rewrites the envelopes. A difference means that such a history now sends something else, and that every
//! provider's cache of it is lost.

use super::{SessionState, tree::PathReader};
use crate::context::{
    build_context,
    counter::Counter,
    envelope::{Compiled, envelope, markdown, tokens_by_part},
    node::Node,
};
use reseed_protocol::{
    Entry, EntryId,
    context::{EnvelopeMeta, RequestOptions, SystemPart, ToolDefinition},
};
use serde_json::{Value, json};
use std::{fs, path::Path, sync::Arc};

/// The fields that are compared.
const SENT: &[&str] = &["envelope", "markdown", "notes"];

#[test]
fn stored_histories_always_send_the_same_request() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/envelopes");
    let mut read = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let mut golden: Value = serde_json::from_str(&text).unwrap();
        let sent = sent(&golden);
        read += 1;
        if std::env::var_os("UPDATE").is_some() {
            SENT.iter().for_each(|part| golden[*part] = sent[*part].clone());
            fs::write(&path, serde_json::to_string_pretty(&golden).unwrap() + "\n").unwrap();
            continue;
        }
        for part in SENT {
            assert_eq!(sent[*part], golden[*part], "{}: {part}", path.display());
        }
    }
    assert!(read >= 3, "{read} histories");
}

fn sent(golden: &Value) -> Value {
    let of = |name: &str| golden[name].clone();
    let counter = Counter::for_model("test");
    let undone: Vec<EntryId> = serde_json::from_value(of("undone")).unwrap();
    let state = SessionState { undone, ..SessionState::default() };
    let entries: Vec<Entry> = serde_json::from_value(of("entries")).unwrap();
    let node = |entry: &Entry| Arc::new(Node::counted(entry.clone(), &counter).marked(&state));
    let mut reader = PathReader::new(&state, &counter);
    let more = entries.iter().rev().take_while(|entry| reader.take((*entry).clone())).count();
    let tree = reader.finish();
    let context = tree.context();
    let whole: Vec<Arc<Node>> = entries.iter().map(node).collect();
    assert_eq!(*context, build_context(&whole), "all {} entries, of which {more} were read", entries.len());

    let parts: Vec<SystemPart> = serde_json::from_value(of("parts")).unwrap();
    let offered: Vec<ToolDefinition> = serde_json::from_value(of("tools")).unwrap();
    let options: RequestOptions = serde_json::from_value(of("options")).unwrap();
    let compiled = Compiled::of(&parts, &offered, tree.carried(), &counter);
    let tokens = context.messages.iter().map(|counted| counted.tokens.total()).sum::<u64>() + 100;
    let parts = tokens_by_part(&compiled, &context, &counter, (tokens, false));
    let each = parts.system.iter().chain(&parts.tools).chain(&parts.cached).chain(&parts.uncached);
    assert_eq!(parts.frame + each.sum::<u64>(), tokens, "the parts do not add up");
    let meta = EnvelopeMeta { model: "test".into(), tokens, parts: Some(parts), ..EnvelopeMeta::default() };
    let envelope = envelope(&compiled, &context, &options, meta);
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    json!({ "markdown": lines(&markdown(&envelope)), "envelope": envelope, "notes": compiled.notes })
}
