//! The events that follow a command without naming it by an id.

use super::scene::{
    Before::{self, *},
    Scene, Stage, tools,
};
use crate::{
    commands::example,
    support::notes::{self, Kind},
};
use reseed_protocol::command::Command;
use serde_json::{Value, json};

/// A command, what was done before, and the events of its row that follow it. Nothing else happens in the session.
type Case = (&'static str, Before, &'static [&'static str]);

const CASES: &[Case] = &[
    ("open_session", Talk, &["session_changed"]),
    ("open_session", Closed, &["presence_changed", "host_changed", "item_aborted"]),
    ("open_session", ClosedAmidCall, &["run_tool"]),
    ("close_session", Hosting, &["presence_changed", "host_changed"]),
    ("list_sessions", Talk, &["session_changed"]),
    ("rename_session", Talk, &["session_changed"]),
    ("delete_session", Talk, &["session_closed", "session_changed"]),
    ("user_input", Talk, &["compaction_progress", "session_changed"]),
    ("user_input", Turn, &["queue_item_added"]),
    ("cancel_turn", Turn, &["entry_appended"]),
    ("edit_queue", Queued, &["queue_item_removed", "queue_reordered"]),
    ("edit_queue", LeftWaiting, &["queue_released"]),
    ("tool_result", Call, &["entry_appended", "call_resolved"]),
    ("call_progress", Call, &["call_progressed"]),
    ("navigate", Talk, &["compaction_progress"]),
    ("fork_session", Talk, &["session_changed"]),
    ("set_label", Talk, &["session_changed"]),
    ("append_custom", Talk, &["session_changed"]),
    ("append_custom_message", Talk, &["session_changed"]),
    ("append_custom_message", Turn, &["queue_item_added"]),
    ("preview_compaction", Talk, &["compaction_progress"]),
    ("preview_compaction", Preparing, &["compaction_failed"]),
    ("cancel_compaction", Compacting, &["compaction_failed"]),
    ("undo_compaction", PinnedBehind, &["session_updated"]),
    ("undo_compaction", PreparingAgain, &["compaction_failed"]),
    ("pin_entry", HeldAgain, &["compaction_failed"]),
    ("unpin_entry", HeldAgainPinned, &["compaction_failed"]),
    ("set_context_strategy", Preparing, &["compaction_failed"]),
    ("set_model", Preparing, &["context_warning", "compaction_failed"]),
    ("register_tools", Talk, &["presence_changed", "host_changed"]),
    ("register_tools", CallOfNobody, &["run_tool"]),
    ("register_hooks", Talk, &["presence_changed", "host_changed"]),
    ("take_over_host", CallOfOther, &["host_changed", "run_tool"]),
];

/// Returns the payload with which the command is sent, by default that of its example.
fn payload(command: &str, before: Before, scene: &Scene) -> Value {
    let entry = |at: usize| scene.entries[at]["entryId"].clone();
    match (command, before) {
        ("open_session", Closed) => {
            let seq = scene.client.seen.iter().filter_map(|frame| frame["seq"].as_u64()).max();
            // An item that is neither running nor in the log.
            let stranger = json!({ "itemId": "stranger", "part": 0, "offset": 3 });
            let resume = json!({ "epoch": scene.opened["epoch"], "seq": seq, "items": [stranger] });
            json!({ "sessionId": scene.opened["sessionId"], "tools": tools(), "resume": resume })
        }
        ("open_session", ClosedAmidCall) => json!({ "sessionId": scene.opened["sessionId"], "tools": tools() }),
        ("open_session" | "cancel_turn" | "preview_compaction" | "cancel_compaction" | "undo_compaction", _) => {
            json!({})
        }
        ("list_sessions", _) => json!({ "watch": true }),
        ("user_input", Talk) => json!({ "input": "once more", "parentId": "root", "summarize": true }),
        ("navigate", _) => json!({ "entryId": "root", "summarize": true }),
        ("edit_queue", Queued) => json!({ "remove": [scene.queued[0]], "order": [scene.queued[2], scene.queued[1]] }),
        ("edit_queue", _) => json!({}),
        ("tool_result", _) => json!({ "toolCallId": scene.call, "output": "done" }),
        ("call_progress", _) => json!({ "toolCallId": scene.call }),
        ("fork_session", _) => json!({ "entryId": entry(1), "position": "at" }),
        ("set_label", _) => json!({ "entryId": entry(1), "label": "here" }),
        ("pin_entry" | "unpin_entry", _) => json!({ "entryId": entry(0) }),
        ("set_context_strategy", _) => json!({ "strategy": "manual" }),
        ("set_model", _) => json!({ "model": "unheard-of" }),
        ("register_tools", _) => json!({ "tools": tools() }),
        _ => example(command),
    }
}

#[tokio::test]
async fn each_event_of_a_row_follows_its_command() {
    let stage = Stage::new().await;
    for (command, before, events) in CASES {
        let row = Command::spec_of(command).unwrap();
        let mut scene = stage.scene(*before).await;
        let payload = payload(command, *before, &scene);
        scene.client.send(command, payload).await;
        if *command == "list_sessions" {
            // It asks for what follows the changes of others.
            scene.other.ask("rename_session", json!({ "name": "new" })).await;
        }
        for event in *events {
            assert!(row.events.contains(event), "`{event}` is not in the row of `{command}`");
            let client = match *event {
                "session_changed" if *command == "list_sessions" => &mut scene.client,
                "presence_changed" | "host_changed" | "session_changed" | "session_closed" => &mut scene.other,
                _ => &mut scene.client,
            };
            client.event(event).await;
            notes::note(command, Kind::Event, event);
        }
        scene.let_go();
    }
}
