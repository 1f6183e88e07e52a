//! The clients' actions: one at a time, chosen by the seed.

use crate::{
    client::{Client, Wish},
    world::World,
};
use fastrand::Rng;
use reseed_protocol::{
    CommandId, EntryId,
    command::Command,
    session::SessionRole,
    tools::{Approval, PendingCall, ToolOffer, ToolPlace},
};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Unanswered commands that one connection may have: fewer than its reply channel holds.
const WAITING_MAX: usize = 8;

/// The number of the undisturbed observer: it reads, never disconnects by itself, and writes nothing.
pub(crate) const UNDISTURBED: usize = 0;

pub(crate) fn writer() -> Wish {
    let tools = Some(vec![look()]);
    Wish { role: SessionRole::Writer, named: true, resume: true, tools, hooks: None, text: true }
}

pub(crate) fn observer() -> Wish {
    let (tools, hooks) = (None, None);
    Wish { role: SessionRole::Observer, named: false, resume: true, tools, hooks, text: true }
}

fn look() -> ToolOffer {
    let parameters = json!({ "type": "object", "properties": { "at": { "type": "string" } }, "required": ["at"] });
    ToolOffer::new("look", "Looks.", parameters)
}

/// Makes some client do something.
pub(crate) async fn act(world: &mut World) {
    // Writers have more to do than observers.
    let writers: Vec<usize> = (0..world.clients.len()).filter(|number| world.clients[*number].writes()).collect();
    let writer = world.wire.rng.choice(&writers).copied().filter(|_| world.wire.rng.u8(..100) < 65);
    let number = writer.unwrap_or_else(|| world.wire.rng.usize(..world.clients.len()));
    if world.clients[number].is_away() {
        if number != UNDISTURBED || !world.profile.alone {
            join(world, number);
        }
        return;
    }
    if world.clients[number].connection.is_none() {
        // It waits to join, and sometimes stops waiting.
        if number != UNDISTURBED && world.wire.rng.u8(..100) < world.profile.cuts {
            world.clients[number].cut(&mut world.wire);
        }
        return;
    }
    let chance = world.wire.rng.u8(..100);
    if number != UNDISTURBED && chance < world.profile.cuts {
        if world.wire.rng.bool() {
            let frames = world.wire.rng.usize(..6);
            world.clients[number].read(&mut world.wire, 64 * 1024, Some(frames)).await;
        }
        world.clients[number].cut(&mut world.wire);
        // Twice in a row: it reconnects and disconnects again before it has read anything.
        if world.wire.rng.u8(..4) == 0 {
            join(world, number);
        }
        return;
    }
    if chance < 35 || !world.clients[number].writes() {
        let bytes = [1, 300, 64 * 1024][world.wire.rng.usize(..3)];
        world.clients[number].read(&mut world.wire, bytes, None).await;
        return;
    }
    let waiting = world.clients[number].connection.as_ref().map_or(0, |connection| connection.waiting.len());
    if waiting < WAITING_MAX {
        write(world, number).await;
    }
}

fn join(world: &mut World, number: usize) {
    let Some(server) = world.server_for(number) else { return };
    let rng = &mut world.wire.rng;
    let wish = if number == UNDISTURBED {
        observer()
    } else {
        let writes = number <= 2 || rng.u8(..3) == 0;
        let tools = (writes && rng.u8(..4) > 0).then(|| vec![look()]);
        Wish {
            role: if writes { SessionRole::Writer } else { SessionRole::Observer },
            named: rng.u8(..4) > 0,
            resume: rng.u8(..5) > 0,
            tools,
            hooks: world.habits.offers().filter(|_| writes),
            text: rng.u8(..8) > 0,
        }
    };
    world.clients[number].join(&mut world.wire, &server, wish);
}

/// Makes a writer send a command: a new one, one of unknown outcome, or an answered one.
async fn write(world: &mut World, number: usize) {
    if answer_hook(world, number).await {
        return;
    }
    let rng = &mut world.wire.rng;
    let chance = rng.u8(..100);
    let client = &world.clients[number];
    if chance < 8 {
        let waits = |id: &CommandId| client.connection.as_ref().is_some_and(|c| c.waiting.contains(id));
        let open: Vec<_> = client.unanswered.iter().filter(|(id, _)| !waits(id)).collect();
        let answered: Vec<_> = client.answered.iter().collect();
        let again = rng.choice(&open).or(rng.choice(&answered)).map(|(id, command)| (id.clone(), command.clone()));
        if let Some((id, command)) = again {
            // Sometimes the same id with different content. Only for an id that is stored: while another command has
            // it, the protocol does not allow its use, and the answer depends on which of them is under way.
            let is_other = rng.u8(..6) == 0 && command.writes();
            let command = if is_other { say("something else", None) } else { command };
            world.clients[number].send(&mut world.wire, id, command).await;
        }
        return;
    }
    let Some(command) = command(world, number) else { return };
    send(world, number, command).await;
}

pub(crate) async fn send(world: &mut World, number: usize, command: Command) {
    world.commands += 1;
    let id = format!("client{number}-command{:04}", world.commands).parse().expect("an id");
    world.clients[number].send(&mut world.wire, id, command).await;
}

fn command(world: &mut World, number: usize) -> Option<Command> {
    let words = world.wire.rng.usize(1..world.profile.words);
    let told = world.commands + 1;
    let rng = &mut world.wire.rng;
    let view = &world.clients[number].view;
    let entry = rng.choice(view.entries.keys().collect::<Vec<_>>()).cloned();
    if let Some(approval) = rng.choice(&view.approvals).filter(|_| rng.u8(..100) < 40) {
        let review = ["allow_once", "allow_once", "allow_always", "reject_once", "reject_always", "reject_and_stop"];
        let review = review[rng.usize(..review.len())];
        return Some(decide(approval, review));
    }
    Some(match rng.u8(..172) {
        0..40 => {
            let when_busy = [None, Some("queue"), Some("steer"), Some("reject")][rng.usize(..4)];
            say(&format!("input {told} of {number}: {}", "word ".repeat(words)), when_busy)
        }
        40..60 => {
            let call = rng.choice(&view.pending)?.clone();
            if rng.u8(..6) == 0 {
                make("call_progress", json!({ "toolCallId": call.call_id, "message": "at work" }))
            } else {
                tool_result(&call, &"result ".repeat(words), rng.u8(..5) == 0)
            }
        }
        60..65 => make("cancel_turn", json!({})),
        65..71 => make("retry_turn", json!({})),
        71..78 => make("start_compaction", json!({})),
        78..81 => make("cancel_compaction", json!({})),
        81..84 => make("set_context_strategy", json!({ "strategy": some_strategy(rng) })),
        84..87 => make("set_model", json!({ "model": format!("test-{}", rng.u8(..3)) })),
        87..89 => make("set_instructions", json!({ "instructions": format!("Be kind {told}.") })),
        89..91 => make("rename_session", json!({ "name": format!("name {told}") })),
        91..93 => make("set_options", json!({ "temperature": 0.5 })),
        93..95 => make("register_tools", json!({ "tools": if rng.bool() { vec![look()] } else { Vec::new() } })),
        95..98 => make("get_context", json!({})),
        98..100 => make("get_context_info", json!({})),
        100..108 => {
            let mut payload = json!({ "input": format!("branch {told} of {number}: {}", "word ".repeat(words)) });
            match rng.u8(..3) {
                0 => payload["ifLeaf"] = place(&view.leaf),
                way => {
                    payload["parentId"] = place(&entry);
                    payload["summarize"] = json!(way == 2);
                }
            }
            make("user_input", payload)
        }
        108..110 => make("take_over_host", json!({})),
        110..120 => {
            let position = ["before", "at", "tip"][rng.usize(..3)];
            let mut payload = json!({ "entryId": place(&entry), "position": position, "summarize": rng.u8(..3) > 0 });
            if rng.u8(..3) == 0 {
                payload["label"] = json!(format!("label {told}"));
            }
            make("navigate", payload)
        }
        120..126 => {
            let mut ids: Vec<_> = view.queue.iter().map(|item| item.command_id.clone()).collect();
            rng.shuffle(&mut ids);
            let remove: Vec<_> = ids.split_off(rng.usize(..=ids.len()));
            if rng.bool() {
                make("edit_queue", json!({ "remove": remove, "order": ids }))
            } else {
                make("edit_queue", json!({ "remove": remove }))
            }
        }
        126..129 => make("set_label", json!({ "entryId": entry?, "label": format!("name {told}") })),
        144..149 => make("pin_entry", json!({ "entryId": entry? })),
        149..152 => {
            let pinned = rng.choice(&view.pins).map(|pin| pin.entry_id.clone());
            make("unpin_entry", json!({ "entryId": pinned.or(entry)? }))
        }
        129..131 | 152..156 => {
            let named = entry.filter(|_| rng.u8(..6) == 0);
            make("undo_compaction", named.map_or(json!({}), |entry| json!({ "entryId": entry })))
        }
        156..160 => match rng.bool() {
            true => make("preview_compaction", json!({})),
            false => make("preview_compaction", json!({ "strategy": some_strategy(rng) })),
        },
        160..164 => {
            let preview = world.clients[number].preview.clone()?;
            make("start_compaction", json!({ "previewId": preview }))
        }
        164..166 => make("start_compaction", json!({ "strategy": some_strategy(rng) })),
        168..170 => {
            let off = if rng.bool() { vec!["peek"] } else { Vec::new() };
            make("set_tools", json!({ "off": off }))
        }
        170..172 => {
            let standing = rng.choice(&view.standing)?.approval_id.clone();
            make("withdraw_approval", json!({ "approvalId": standing }))
        }
        166.. => make("start_compaction", json!({ "rebuild": true, "instructions": format!("Mind {told}.") })),
        140..144 => {
            let position = if rng.bool() { "before" } else { "at" };
            make("fork_session", json!({ "entryId": entry?, "position": position }))
        }
        131..134 => make("append_custom", json!({ "customType": "note", "data": { "number": told } })),
        _ => {
            let content = format!("note {told}: {}", "word ".repeat(words / 4));
            let details = json!({ "number": told });
            let note = json!({ "customType": "note", "content": content, "display": true, "details": details });
            make("append_custom_message", note)
        }
    })
}

/// Returns a place in the tree as it is written on the wire.
fn place(entry: &Option<EntryId>) -> Value {
    entry.as_ref().map_or(json!("root"), |entry| json!(entry))
}

/// Mostly one that compacts automatically.
fn some_strategy(rng: &mut Rng) -> &'static str {
    const STRATEGIES: &[&str] = &[
        "threshold",
        "threshold",
        "pipeline",
        "pipeline",
        "sliding_window",
        "tool_results",
        "truncate",
        "importance",
        "manual",
        "dummy",
    ];
    STRATEGIES[rng.usize(..STRATEGIES.len())]
}

pub(crate) fn say(text: &str, when_busy: Option<&str>) -> Command {
    let mut payload = json!({ "input": text });
    if let Some(when_busy) = when_busy {
        payload["whenBusy"] = when_busy.into();
    }
    make("user_input", payload)
}

pub(crate) fn tool_result(call: &PendingCall, output: &str, is_error: bool) -> Command {
    make("tool_result", json!({ "toolCallId": call.call_id, "output": output, "isError": is_error }))
}

pub(crate) fn decide(approval: &Approval, review: &str) -> Command {
    let (id, hash) = (&approval.approval_id, &approval.arguments_hash);
    make("approval_response", json!({ "approvalId": id, "review": review, "argumentsHash": hash }))
}

pub(crate) fn make(name: &str, payload: Value) -> Command {
    serde_json::from_value(json!({ "type": name, "payload": payload })).expect("a command of the protocol")
}

/// Makes a client handle the oldest call of its hooks, if any: it answers, or does not.
async fn answer_hook(world: &mut World, number: usize) -> bool {
    let calls = world.clients[number].connection.as_mut().map(|connection| &mut connection.calls);
    let Some(call) = calls.and_then(VecDeque::pop_front) else { return false };
    if let Some(mut answer) = world.habits.client_says(&call) {
        answer["hookCallId"] = json!(call.call_id);
        send(world, number, make("hook_result", answer)).await;
    }
    true
}

/// Makes the clients' tools and hooks answer, so that no turn waits for them, and releases what waits for a failed
/// move.
pub(crate) async fn answer_calls(world: &mut World) {
    for number in 0..world.clients.len() {
        while answer_hook(world, number).await {}
    }
    let Some(number) = world.clients.iter().position(Client::writes) else { return };
    let of_client = |call: &PendingCall| call.place == ToolPlace::Client;
    for call in world.clients[number].view.pending.clone().into_iter().filter(of_client) {
        send(world, number, tool_result(&call, "found", false)).await;
    }
    for approval in world.clients[number].view.approvals.clone() {
        send(world, number, decide(&approval, "allow_once")).await;
    }
    let view = &world.clients[number].view;
    if view.turn.is_none() && view.queue.iter().any(|item| item.after.is_some()) {
        let order: Vec<_> = view.queue.iter().map(|item| item.command_id.clone()).collect();
        send(world, number, make("edit_queue", json!({ "order": order }))).await;
    }
}
