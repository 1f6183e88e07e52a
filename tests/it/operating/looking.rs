//! `reseed sessions` and `reseed inspect`: read the database, even while a server runs on it.

use super::{QUICK, folder};
use crate::support::{
    binary::{self, Binary, Ended},
    client::Client,
    json::present,
    talk::words,
};
use serde_json::{Value, json};
use std::path::Path;

async fn run(folder: &Path, arguments: &[&str]) -> Ended {
    binary::run(folder, arguments, &QUICK).await
}

/// Returns the output of a command that must succeed and write nothing to stderr.
async fn printed(folder: &Path, arguments: &[&str]) -> String {
    let ended = run(folder, arguments).await;
    assert_eq!((ended.code, ended.faults.as_str()), (Some(0), ""), "{arguments:?}: {}", ended.printed);
    ended.printed
}

async fn printed_json(folder: &Path, arguments: &[&str]) -> Value {
    let printed = printed(folder, arguments).await;
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
}

#[tokio::test]
async fn a_session_is_listed_drawn_and_its_context_shown_while_its_server_runs_and_after() {
    let folder = folder();
    let folder = folder.path();
    let server = Binary::start(folder, &QUICK).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let id = opened["sessionId"].as_str().unwrap();
    client.ask("set_instructions", json!({ "instructions": "Be brief." })).await;
    let first = client.ask("user_input", json!({ "input": "My ferry is called Aurora." })).await;
    let first = first["payload"]["entryId"].as_str().unwrap().to_owned();
    let finished = client.event("turn_finished").await;
    let answer = finished["payload"]["contextInfo"]["leafId"].as_str().unwrap().to_owned();
    client.turn("This branch is left.").await;
    client.ask("set_label", json!({ "entryId": first, "label": "the ferry" })).await;
    client.ask("user_input", json!({ "input": words(1, 300), "parentId": answer })).await;
    client.event("turn_finished").await;
    client.turn(&words(2, 200)).await;
    client.ask("start_compaction", json!({})).await;
    let compacted = client.event("context_compacted").await["payload"].clone();
    client.turn("What is my ferry called?").await;
    let (mut other, _) = Client::v2_session(&server.ws()).await;
    other.turn("Something else").await;
    let own = client.ask("get_context", json!({})).await["payload"].clone();
    let tree = client.ask("get_tree", json!({})).await["payload"].clone();
    let listed = client.ask("list_sessions", json!({})).await["payload"]["items"].clone();

    {
        let list = printed(folder, &["sessions"]).await;
        let lines: Vec<&str> = list.lines().collect();
        assert_eq!(lines.len(), 3, "{list}");
        assert!(lines[0].starts_with("SESSION") && lines[1].ends_with("Something else"), "{list}");
        assert!(lines[2].starts_with(id) && lines[2].ends_with("My ferry is called Aurora."), "{list}");
        let found = printed(folder, &["sessions", "--search", "FERRY"]).await;
        assert_eq!(found.lines().nth(1), Some(lines[2]));
        assert_eq!(printed(folder, &["sessions", "--limit", "1"]).await.lines().count(), 2);
        assert_eq!(printed(folder, &["sessions", "--search", "nothing"]).await, "no session matches\n");
        let items = printed_json(folder, &["sessions", "--json"]).await["items"].clone();
        for (item, listed) in items.as_array().unwrap().iter().zip(listed.as_array().unwrap()) {
            for field in ["sessionId", "name", "createdAt", "updatedAt", "entries", "tokenCount", "usageRatio"] {
                assert_eq!(*present(&item[field]), listed[field], "{field}");
            }
        }

        let drawn = printed(folder, &["inspect", id]).await;
        let graph: Vec<&str> = drawn.lines().filter(|line| line.contains("* ")).collect();
        let nodes = tree["nodes"].as_array().unwrap();
        assert_eq!(graph.len(), nodes.len(), "{drawn}");
        assert!(graph[0].starts_with(&format!("* {first}  user ")) && graph[0].contains("[the ferry]"), "{drawn}");
        assert!(graph[1].starts_with(&format!("* {answer}  assistant ")), "{drawn}");
        assert!(graph[2].starts_with("|-* ") && graph[2].ends_with("This branch is left."), "{drawn}");
        assert!(graph[3].starts_with("| * ") && graph[5].starts_with("* "), "{drawn}");
        let change = format!("({} -> {} tokens)", compacted["tokensBefore"], compacted["tokensAfter"]);
        let entry = compacted["entryId"].as_str().unwrap();
        assert!(graph.iter().any(|line| line.contains(entry) && line.contains(&change)), "{drawn}");
        assert!(graph.last().unwrap().ends_with("<- leaf"), "{drawn}");
        assert_eq!(drawn.matches("<- leaf").count(), 1);
        let whole = printed_json(folder, &["inspect", id, "--json"]).await;
        assert_eq!((present(&whole["leafId"]), present(&whole["asOfSeq"])), (&tree["leafId"], &tree["asOfSeq"]));
        for node in nodes {
            let found =
                whole["nodes"].as_array().unwrap().iter().find(|found| found["entryId"] == *present(&node["entryId"]));
            let found = found.unwrap_or_else(|| panic!("{node} in {whole}"));
            for field in ["parentId", "type", "preview", "label", "timestamp"] {
                assert_eq!(found.get(field), node.get(field), "{field} of {node}");
            }
        }

        let shown = client.ask("get_context", json!({ "format": "markdown" })).await["payload"]["markdown"].clone();
        let context = printed(folder, &["inspect", id, "--context"]).await;
        assert_eq!(context.trim_end(), shown.as_str().unwrap().trim_end(), "exactly what get_context gives");
        assert!(context.contains("Be brief.") && context.contains("What is my ferry called?"), "{context}");
        let whole = printed_json(folder, &["inspect", id, "--context", "--json"]).await;
        assert_eq!(*present(&whole["envelope"]), own["envelope"], "exactly what get_context gives");
    }
    server.stop().await;
    assert!(printed(folder, &["inspect", id]).await.contains("<- leaf"), "without a server too");
}

#[tokio::test]
async fn what_is_wrong_is_told_with_what_to_do() {
    let folder = folder();
    let folder = folder.path();
    let ended = run(folder, &["sessions"]).await;
    assert_eq!((ended.code, ended.printed.as_str()), (Some(1), ""));
    assert!(ended.faults.contains("DATABASE_URL") && ended.faults.contains("reseed.db"), "{}", ended.faults);
    assert!(!folder.join("data").exists(), "it only looks");
    let server = Binary::start(folder, &QUICK).await;
    assert_eq!(printed(folder, &["sessions"]).await, "there are no sessions\n");
    assert_eq!(printed_json(folder, &["sessions", "--json"]).await, json!({ "items": [] }));
    for id in ["nosuchsession2345", "no id at all"] {
        let ended = run(folder, &["inspect", id]).await;
        assert_eq!((ended.code, ended.printed.as_str()), (Some(1), ""), "{id}");
        let told = format!("there is no session `{id}` in ");
        assert!(
            ended.faults.contains(&told) && ended.faults.contains("`reseed sessions` lists them"),
            "{}",
            ended.faults
        );
    }
    for arguments in [&["sessions", "--limit", "0"][..], &["sessions", "--limit", "x"], &["inspect"]] {
        assert_eq!(run(folder, arguments).await.code, Some(2), "{arguments:?}");
    }
    server.stop().await;
}
