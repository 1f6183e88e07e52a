//! A record on disk that is damaged: its session is read-only, says why, and everything else continues.

use crate::support::{binary::Binary, client::Client, json::present};
use serde_json::{Value, json};
use std::{fs, path::Path};

/// The offline model without pauses, in a window that holds the whole conversation.
const SETTINGS: [(&str, &str); 2] = [("OFFLINE_WORD_MILLIS", "0"), ("CONTEXT_WINDOW", "100000")];

/// So many turns that opening a compacted session does not read its first entries.
const MANY: usize = 80;

/// Says this many things, each in words of its own, in a new session; returns its id and its entries.
async fn spoken(server: &Binary, name: &str, count: usize) -> (String, Vec<Value>) {
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    for number in 0..count {
        client.turn(&format!("Sentence {number} of {name} is zebra{number}{name}.")).await;
    }
    let entries = client.ask("get_entries", json!({ "limit": 500 })).await["payload"]["items"].clone();
    (opened["sessionId"].as_str().unwrap().to_owned(), entries.as_array().unwrap().clone())
}

/// Flips a bit in the text of an entry's record, wherever the file has it, and nothing else.
fn spoil(folder: &Path, entry: &Value) {
    let path = folder.join("data/reseed.db");
    let mut bytes = fs::read(&path).unwrap();
    // A record's body begins like this; an answer that quotes the text, a queue or a state does not.
    let needle = format!(r#"{{"type":"entry_appended","payload":{{"entry":{{"entryId":{}"#, entry["entryId"]);
    let at: Vec<usize> = bytes
        .windows(needle.len())
        .enumerate()
        .filter(|(_, found)| *found == needle.as_bytes())
        .map(|(at, _)| at)
        .collect();
    assert!(!at.is_empty(), "{needle} is not in the file");
    for at in at {
        bytes[at + needle.len() + 20] ^= 1;
    }
    fs::write(&path, bytes).unwrap();
}

fn text(entry: &Value) -> &str {
    entry["content"][0]["text"].as_str().unwrap()
}

/// Reads all entries of a session, page by page from the newest; also returns the positions that cannot be read.
async fn read_back(client: &mut Client, session: &str, limit: u64) -> (Vec<Value>, Vec<Value>) {
    let (mut entries, mut damaged): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    loop {
        let mut get = json!({ "sessionId": session, "limit": limit });
        if let Some(first) = entries.first() {
            get["before"] = first["entryId"].clone();
        }
        let reply = client.ask("get_entries", get).await;
        assert_eq!(reply["type"], "entries", "{reply}");
        let page = &reply["payload"];
        for seq in page["damaged"].as_array().into_iter().flatten() {
            if !damaged.contains(seq) {
                damaged.insert(0, seq.clone());
            }
        }
        entries.splice(0..0, page["items"].as_array().unwrap().iter().cloned());
        if page["more"] == false {
            return (entries, damaged);
        }
    }
}

#[tokio::test]
async fn a_damaged_session_is_read_only_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = Binary::start(folder.path(), &SETTINGS).await;
    let (bad, entries) = spoken(&server, "bad", 6).await;
    let (good, _) = spoken(&server, "good", 2).await;
    server.stop().await;
    // Two of the questions, which the model would have to see.
    for at in [4, 6] {
        spoil(folder.path(), &entries[at]);
    }
    let server = Binary::start(folder.path(), &SETTINGS).await;
    let mut client = Client::v2(&server.ws()).await;
    for role in ["writer", "observer"] {
        let refused = client.ask("open_session", json!({ "sessionId": bad, "role": role })).await["payload"].clone();
        assert_eq!((&refused["code"], &refused["retriable"]), (&json!("session_damaged"), &json!(false)), "{refused}");
        let (message, seq) = (refused["message"].as_str().unwrap(), &refused["details"]["seq"]);
        for named in [bad.as_str(), &format!("record {seq}"), "get_entries", "backup", "delete"] {
            assert!(message.contains(named), "{named}: {message}");
        }
    }
    // What can be read is returned, whatever the page size. What cannot is named.
    let rest: Vec<Value> = [&entries[..4], &entries[5..6], &entries[7..]].concat();
    for limit in [1, 2, 3, 5, 50] {
        let (read, damaged) = read_back(&mut client, &bad, limit).await;
        assert_eq!(read, rest, "by {limit}");
        assert_eq!(damaged.len(), 2, "by {limit}: {damaged:?}");
    }
    let get = json!({ "sessionId": bad, "after": entries[1]["entryId"], "limit": 4 });
    let page = client.ask("get_entries", get).await["payload"].clone();
    assert_eq!(
        page["items"].as_array().unwrap()[..],
        [&entries[2..4], &entries[5..6], &entries[7..8]].concat(),
        "{page}"
    );
    assert_eq!((page["damaged"].as_array().map(Vec::len), &page["more"]), (Some(2), &json!(true)));

    let listed = client.ask("list_sessions", json!({})).await["payload"]["items"].clone();
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    let opened = client.ask("open_session", json!({ "sessionId": good })).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    client.turn("Another sentence.").await;
    client.ask("close_session", json!({})).await;
    assert_eq!(client.ask("delete_session", json!({ "sessionId": bad })).await["type"], "ok");
    server.stop().await;
}

#[tokio::test]
async fn damage_that_is_found_while_the_session_is_open_stops_its_writes() {
    let folder = tempfile::tempdir().unwrap();
    let server = Binary::start(folder.path(), &SETTINGS).await;
    let (session, entries) = spoken(&server, "old", MANY).await;
    let mut client = Client::v2(&server.ws()).await;
    let open = json!({ "sessionId": session, "entries": 2 });
    let opened = client.ask("open_session", open.clone()).await["payload"].clone();
    assert_eq!(
        client
            .ask("set_context_strategy", json!({ "strategy": "manual", "settings": { "keepRecentTokens": 20 } }))
            .await["type"],
        "ok"
    );
    client.ask("start_compaction", json!({})).await;
    client.event("context_compacted").await;
    client.ask("close_session", json!({})).await;
    server.stop().await;
    // The model no longer sees this entry, so opening the session does not read it.
    spoil(folder.path(), &entries[1]);

    let server = Binary::start(folder.path(), &SETTINGS).await;
    let mut client = Client::v2(&server.ws()).await;
    let mut watch = Client::v2(&server.ws()).await;
    assert_eq!(client.ask("open_session", open.clone()).await["type"], "session_opened");
    client.turn("Is all well?").await;
    let (read, damaged) = read_back(&mut client, &session, 100).await;
    assert_eq!(damaged.len(), 1);
    assert!(!read.iter().any(|entry| entry["entryId"] == *present(&entries[1]["entryId"])));
    for (kind, payload) in [
        ("user_input", json!({ "input": "And now?" })),
        ("rename_session", json!({ "name": "new" })),
        ("start_compaction", json!({})),
    ] {
        let refused = client.ask(kind, payload).await;
        assert_eq!(refused["payload"]["code"], "session_damaged", "{kind}: {refused}");
    }
    assert_eq!(client.ask("get_context_info", json!({})).await["type"], "context_info");
    // Observers can still join; what they have missed is not replayed across the damage, but sent as a snapshot.
    let resume = json!({ "epoch": opened["epoch"], "seq": 1 });
    let observe = json!({ "sessionId": session, "role": "observer", "entries": 2, "resume": resume });
    let back = watch.ask("open_session", observe).await;
    assert_eq!(back["payload"]["resumed"], "snapshot", "{back}");
    assert_eq!(text(&back["payload"]["entries"][0]), "Is all well?");
    client.ask("close_session", json!({})).await;
    let refused = client.ask("open_session", open).await;
    assert_eq!(refused["payload"]["code"], "session_damaged", "{refused}");
    server.stop().await;
}

#[tokio::test]
async fn damage_that_a_resume_comes_upon_is_told_and_not_jumped_over() {
    let folder = tempfile::tempdir().unwrap();
    let server = Binary::start(folder.path(), &SETTINGS).await;
    let (session, entries) = spoken(&server, "old", MANY).await;
    let mut client = Client::v2(&server.ws()).await;
    let open = json!({ "sessionId": session });
    let opened = client.ask("open_session", open.clone()).await["payload"].clone();
    client.ask("set_context_strategy", json!({ "strategy": "manual", "settings": { "keepRecentTokens": 20 } })).await;
    client.ask("start_compaction", json!({})).await;
    client.event("context_compacted").await;
    client.ask("close_session", json!({})).await;
    server.stop().await;
    spoil(folder.path(), &entries[5]);

    let server = Binary::start(folder.path(), &SETTINGS).await;
    let mut client = Client::v2(&server.ws()).await;
    let mut resume = open;
    resume["resume"] = json!({ "epoch": opened["epoch"], "seq": 1 });
    let back = client.ask("open_session", resume.clone()).await;
    assert_eq!(back["payload"]["resumed"], "replay", "nobody knows yet: {back}");
    let closed = client.event("session_closed").await["payload"].clone();
    assert_eq!((&closed["code"], &closed["retriable"]), (&json!("failed"), &json!(false)), "{closed}");
    assert_eq!(closed["error"]["code"], "session_damaged", "{closed}");
    assert_eq!(client.ask("ping", json!({})).await["type"], "pong", "the connection continues");
    let seqs: Vec<u64> = client.seen.iter().filter_map(|frame| frame["seq"].as_u64()).collect();
    let bad = closed["error"]["details"]["seq"].as_u64().unwrap();
    assert!(seqs.iter().all(|seq| *seq < bad), "nothing behind the damage: {seqs:?} {bad}");
    let mut client = Client::v2(&server.ws()).await;
    let refused = client.ask("open_session", resume).await;
    assert_eq!(refused["payload"]["code"], "session_damaged", "{refused}");
    server.stop().await;
}
