//! Restarting: a session is as before, whether the server was stopped or killed.

use super::{QUICK, folder, stopping::reopened};
use crate::support::scripted::Gate;
use crate::support::{
    binary::Binary,
    client::Client,
    json::present,
    talk::words,
    upstream::{Reply, Upstream},
};
use serde_json::{Value, json};
use std::path::Path;

/// Returns the part of `session_opened` that must not change: everything except what belongs to the process.
fn standing(opened: &Value) -> Value {
    let mut standing = opened.clone();
    for own in ["epoch", "presence", "resumed"] {
        standing.as_object_mut().unwrap().remove(own);
    }
    standing
}

#[tokio::test]
async fn a_session_stands_where_it_stood() {
    let folder = folder();
    let server = Binary::start(folder.path(), &QUICK).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    let changes = [
        ("rename_session", json!({ "name": "The ferry" })),
        ("set_instructions", json!({ "instructions": "Be brief." })),
        ("set_options", json!({ "temperature": 0.5, "maxOutputTokens": 300 })),
        ("set_model", json!({ "model": "offline-large", "reasoningEffort": "low" })),
        ("set_context_strategy", json!({ "strategy": "manual", "settings": { "keepRecentTokens": 200 } })),
    ];
    for (kind, payload) in changes {
        let reply = client.ask(kind, payload).await;
        assert_eq!(reply["type"], "ok", "{kind}: {reply}");
    }
    client.turn("My ferry is called Aurora.").await;
    client.turn(&words(1, 300)).await;
    client.turn("Thank you.").await;
    client.ask("start_compaction", json!({})).await;
    client.event("context_compacted").await;
    client.turn("Good night.").await;
    client.ask("close_session", json!({})).await;
    let before = client.ask("open_session", json!({ "sessionId": session })).await["payload"].clone();
    let expected = json!({
        "name": "The ferry", "model": "offline-large", "strategy": "manual", "state": "idle", "queue": [],
        "settings": {
            "instructions": "Be brief.", "temperature": 0.5, "maxOutputTokens": 300, "reasoningEffort": "low",
            "strategySettings": { "keepRecentTokens": 200 },
        },
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&before[name], value, "{name}");
    }
    assert_eq!(before["contextInfo"]["compactions"], 1, "{before}");
    let mut server = server;
    for by in ["asking", "killing", "killing"] {
        match by {
            "asking" => server.stop().await,
            _ => server.kill().await,
        }
        server = Binary::start(folder.path(), &QUICK).await;
        let (_client, after) = reopened(&server, &session).await;
        assert_eq!(standing(&after), standing(&before), "after {by}");
    }
    let (mut client, _) = reopened(&server, &session).await;
    client.turn("What is my ferry called?").await;
    let answer = client.ask("get_entries", json!({ "path": true })).await["payload"]["items"].clone();
    assert!(answer.as_array().unwrap().last().unwrap().to_string().contains("Aurora"), "{answer}");
}

#[tokio::test]
async fn what_waited_in_the_queue_is_answered_after_the_restart() {
    let (folder, gate) = (folder(), Gate::new());
    let never = Gate::new();
    let upstream = Upstream::replying([
        Reply::text("as far as it was shown").held_by(&never),
        Reply::text("second").held_by(&gate),
        Reply::text("third"),
    ])
    .await;
    let base_url = upstream.base_url();
    let settings = [("OPENAI_BASE_URL", base_url.as_str()), ("CONTEXT_WINDOW", "4000"), ("SHUTDOWN_GRACE_SECS", "0")];
    let server = Binary::start(folder.path(), &settings).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    for text in ["one", "two", "three"] {
        client.ask("user_input", json!({ "input": text })).await;
    }
    client.event("item_delta").await;
    server.stop().await;

    let server = Binary::start(folder.path(), &settings).await;
    let (mut client, opened) = reopened(&server, &session).await;
    assert_eq!(opened["queue"].as_array().map(Vec::len), Some(1), "{opened}");
    assert_eq!(opened["queue"][0]["content"][0]["text"], "three");
    gate.open();
    for _ in 0..2 {
        assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    }
    let entries = client.ask("get_entries", json!({ "path": true })).await["payload"]["items"].clone();
    let said: Vec<&str> =
        entries.as_array().unwrap().iter().map(|entry| entry["content"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(said, ["one", "as far as it was shown", "two", "second", "three", "third"]);
    upstream.assert_clean();
}

/// Returns the newest record's size, the size of the stored state, and the size of all records, in bytes.
fn stored_bytes(folder: &Path) -> (u32, u32, u32) {
    let file = rusqlite::Connection::open(folder.join("data/reseed.db")).unwrap();
    let size = |query: &str| -> u32 { file.query_row(query, [], |row| row.get(0)).unwrap() };
    (
        size("SELECT length(body) FROM record_all ORDER BY seq DESC LIMIT 1"),
        size("SELECT length(state) FROM session_state"),
        size("SELECT sum(length(body)) FROM record_all"),
    )
}

#[tokio::test]
async fn an_input_behind_a_full_queue_writes_only_itself_and_a_restart_finds_all_of_them() {
    const INPUTS: usize = 32;
    const BYTES: u32 = 100_000;
    let (folder, never) = (folder(), Gate::new());
    let upstream = Upstream::replying([Reply::text("not in this life").held_by(&never)]).await;
    let base_url = upstream.base_url();
    let settings = [("OPENAI_BASE_URL", base_url.as_str()), ("CONTEXT_WINDOW", "200000"), ("SHUTDOWN_GRACE_SECS", "0")];
    let server = Binary::start(folder.path(), &settings).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    client.ask("user_input", json!({ "input": "one" })).await;
    let mut before = stored_bytes(folder.path()).2;
    for number in 0..INPUTS {
        let input = format!("{number:04} {}", "cargo ".repeat(BYTES as usize / 6));
        let accepted = client.ask("user_input", json!({ "input": input })).await;
        assert_eq!(accepted["payload"]["queued"], true, "{accepted}");
        let (newest, state, all) = stored_bytes(folder.path());
        assert!((BYTES..BYTES + 1_000).contains(&newest), "input {number} is stored in {newest} bytes");
        assert_eq!(all - before, newest, "input {number} writes one record");
        assert!(state < 2_048, "behind {number} inputs the state has {state} bytes");
        before = all;
    }
    let full = client.ask("user_input", json!({ "input": "one too many" })).await;
    assert_eq!(full["payload"]["code"], "queue_full", "{full}");
    server.kill().await;

    let server = Binary::start(folder.path(), &settings).await;
    let mut client = Client::v2(&server.ws()).await;
    let observer = json!({ "sessionId": session, "role": "observer" });
    let opened = client.ask("open_session", observer).await["payload"].clone();
    // The first of them has started a turn.
    let queue = opened["queue"].as_array().unwrap();
    let numbers: Vec<&str> = queue.iter().map(|item| &item["content"][0]["text"].as_str().unwrap()[..4]).collect();
    let expected: Vec<String> = (INPUTS - numbers.len()..INPUTS).map(|number| format!("{number:04}")).collect();
    assert_eq!(numbers, expected);
    assert!(numbers.len() >= INPUTS - 1, "{numbers:?}");
}

#[tokio::test]
async fn a_kill_in_the_middle_of_an_answer_loses_nothing_that_was_acknowledged() {
    let (folder, never) = (folder(), Gate::new());
    let upstream = Upstream::replying([
        Reply::text("My name is Otto."),
        Reply::text("half of it").in_pieces(2).held_by(&never),
        Reply::text("a whole answer"),
    ])
    .await;
    let base_url = upstream.base_url();
    let settings = [("OPENAI_BASE_URL", base_url.as_str()), ("CONTEXT_WINDOW", "4000")];
    let server = Binary::start(folder.path(), &settings).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    client.turn("What is your name?").await;
    let id = client.send("user_input", json!({ "input": "And your age?" })).await;
    let accepted = client.until(|frame| frame["re"] == id.as_str()).await;
    client.until(|frame| frame["type"] == "item_delta" && frame["payload"]["text"].as_str() == Some("half ")).await;
    server.kill().await;
    let last = client.seen.iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap();

    let server = Binary::start(folder.path(), &settings).await;
    let mut client = Client::v2(&server.ws()).await;
    let listed = client.ask("list_sessions", json!({})).await;
    assert_eq!(listed["payload"]["items"][0]["state"], "idle", "what ran in a dead process runs no more: {listed}");
    let resume = json!({ "epoch": opened["epoch"], "seq": last });
    let back = client.ask("open_session", json!({ "sessionId": session, "resume": resume })).await["payload"].clone();
    assert_eq!((&back["resumed"], &back["epoch"]), (&json!("replay"), present(&opened["epoch"])), "{back}");
    let finished = client.event("turn_finished").await;
    assert_eq!((&finished["payload"]["status"], &finished["seq"]), (&json!("interrupted"), &json!(last + 1)));
    assert_eq!(*present(&finished["payload"]["turnId"]), accepted["payload"]["turnId"]);

    // The command is known. If it is sent once more, it is answered as before and nothing is said twice.
    client.send_as(&id, "user_input", json!({ "input": "And your age?" })).await;
    let again = client.until(|frame| frame["re"] == id.as_str()).await;
    assert_eq!(
        (&again["payload"]["duplicate"], &again["payload"]["entryId"]),
        (&json!(true), present(&accepted["payload"]["entryId"]))
    );
    client.ask("retry_turn", json!({})).await;
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    let entries = client.ask("get_entries", json!({ "path": true })).await["payload"]["items"].clone();
    let said: Vec<&str> =
        entries.as_array().unwrap().iter().map(|entry| entry["content"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(said, ["What is your name?", "My name is Otto.", "And your age?", "a whole answer"]);
    upstream.assert_clean();
}

#[tokio::test]
async fn who_resumes_across_a_restart_is_told_exactly_what_was_missed() {
    let folder = folder();
    let server = Binary::start(folder.path(), &QUICK).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    for text in ["My ferry is called Aurora.", "My train is called Boreas."] {
        client.turn(text).await;
    }
    let events: Vec<Value> = client.seen.iter().filter(|frame| frame["seq"].is_u64()).cloned().collect();
    let last = events.last().unwrap()["seq"].as_u64().unwrap();
    client.hang_up();
    server.stop().await;

    let server = Binary::start(folder.path(), &QUICK).await;
    let epoch = &opened["epoch"];
    // The position, its epoch, and whether the missed events are replayed.
    let table = [
        (json!({ "epoch": epoch, "seq": 1 }), true),
        (json!({ "epoch": epoch, "seq": 4 }), true),
        (json!({ "epoch": epoch, "seq": last }), true),
        (json!({ "epoch": epoch, "seq": last + 1 }), false),
        (json!({ "epoch": "0000000000000000", "seq": 4 }), false),
    ];
    for (resume, replays) in table {
        let mut client = Client::v2(&server.ws()).await;
        let open = json!({ "sessionId": session, "resume": resume });
        let back = client.ask("open_session", open).await["payload"].clone();
        assert_eq!(back["resumed"], if replays { "replay" } else { "snapshot" }, "{resume}");
        assert_eq!(back.get("entries").is_none(), replays, "{resume}");
        // All of it comes before the next reply.
        client.ask("ping", json!({})).await;
        let missed: Vec<Value> = client.seen.iter().filter(|frame| frame["seq"].is_u64()).cloned().collect();
        let from = resume["seq"].as_u64().unwrap();
        let expected: Vec<Value> =
            events.iter().filter(|event| replays && event["seq"].as_u64().unwrap() > from).cloned().collect();
        assert_eq!(missed, expected, "{resume}");
        client.ask("close_session", json!({})).await;
    }
}
