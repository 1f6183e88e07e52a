//! Compactions that leave the server, and sockets as Codex uses them.

use super::{Door, last};
use crate::support::{
    client::Client,
    json::present,
    scripted::{Reply, Scripted},
    server::Server,
    talk::{summary, text_of, words},
};
use crate::unstored::is_on_disk;
use futures_util::{SinkExt as _, StreamExt as _};
use reseed::{core::model::Purpose, store::sqlite::SqliteStore};
use serde_json::{Value, json};
use std::path::Path;
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};

/// Returns a model whose summaries tell which code words it was shown.
fn model() -> Scripted {
    Scripted::answering(|request| {
        let shown = text_of(request);
        let found: Vec<&str> =
            ["OLDSTONE", "BRISTLECONE", "LANTERN"].into_iter().filter(|c| shown.contains(c)).collect();
        Reply::text(match request.purpose {
            Purpose::Turn => "Noted.".to_owned(),
            Purpose::Summary => summary(&found),
        })
    })
}

fn conversation(turns: u64) -> Vec<Value> {
    let mut items = vec![json!({ "role": "user", "content": "The first word is OLDSTONE." })];
    for turn in 0..turns {
        items.push(json!({ "role": "assistant", "content": "Noted." }));
        items.push(json!({ "role": "user", "content": words(turn, 120) }));
    }
    items.push(json!({ "role": "assistant", "content": "Noted." }));
    items.push(json!({ "role": "user", "content": "The password is BRISTLECONE." }));
    items.push(json!({ "type": "function_call", "call_id": "c1", "name": "look", "arguments": r#"{"at":"LANTERN"}"# }));
    items.push(json!({ "type": "function_call_output", "call_id": "c1", "output": "It is dark." }));
    items
}

#[tokio::test]
async fn a_compaction_for_a_client_covers_all_that_it_was_given() {
    // Above and below half of the window, and what the session itself would keep word for word.
    for window in ["8000", "100000"] {
        let server = Server::start(model(), &[("CONTEXT_WINDOW", window)]).await;
        let door = Door::of(&server);
        let mut page = Client::v2(&server.ws()).await;
        let input = conversation(40);
        let whole = json!(input).to_string().len();
        let asked = json!({ "model": "scripted", "input": input });
        let compacted = door.ask("POST", "/v1/responses/compact", &asked).await.json();
        let mut triggered = input.clone();
        triggered.push(json!({ "type": "compaction_trigger" }));
        let response = door.create(json!({ "input": triggered, "store": false })).await;
        let kept = door.create(json!({ "input": triggered })).await;
        for made in [&compacted, &response, &kept] {
            let item = present(&made["output"][0]);
            assert_eq!((made["output"].as_array().unwrap().len(), &item["type"]), (1, &json!("compaction")));
            let summary = item["summary"].as_str().unwrap();
            for word in ["OLDSTONE", "BRISTLECONE", "LANTERN"] {
                assert!(summary.contains(word), "{word} is not in {summary}");
            }
            assert!(item.to_string().len() * 4 < whole, "{} of {whole} bytes", item.to_string().len());
        }
        // The stored chain goes on, and its client need not send the item.
        let on = json!({ "input": "What is it?", "previous_response_id": kept["id"] });
        assert_eq!(door.create(on).await["status"], "completed");
        let list = page.ask("list_sessions", json!({})).await;
        assert_eq!(present(&list["payload"]["items"]).as_array().unwrap().len(), 1, "copies are not sessions");
    }
}

#[tokio::test]
async fn a_short_conversation_is_returned_with_its_calls() {
    let model = model();
    let server = Server::start(model.clone(), &[]).await;
    let made = json!({ "model": "scripted", "input": conversation(0) });
    let made = Door::of(&server).ask("POST", "/v1/responses/compact", &made).await.json();
    let expected = "User: The first word is OLDSTONE.\nAssistant: Noted.\nUser: The password is BRISTLECONE.\n\
                    Assistant called look with {\"at\":\"LANTERN\"}\nTool: It is dark.";
    assert_eq!(made["output"][0]["summary"], expected);
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn a_socket_may_begin_with_instructions_only_and_sends_stream() {
    let model = model();
    let server = Server::start(model.clone(), &[]).await;
    let (mut socket, _) =
        tokio_tungstenite::connect_async(format!("ws://{}/v1/responses", server.address())).await.unwrap();
    let mut previous = Value::Null;
    let frames = [
        json!({ "generate": false, "input": [{ "type": "message", "role": "developer", "content": "Be brief." }] }),
        json!({ "generate": false, "input": [] }),
        json!({ "input": "Hello" }),
    ];
    for mut frame in frames {
        frame["type"] = "response.create".into();
        frame["store"] = false.into();
        frame["stream"] = true.into();
        frame["stream_id"] = "lane 1".into();
        frame["previous_response_id"] = previous;
        socket.send(Message::Text(frame.to_string().into())).await.unwrap();
        previous = loop {
            let Message::Text(text) = socket.next().await.unwrap().unwrap() else { continue };
            let event: Value = serde_json::from_str(&text).unwrap();
            assert_ne!(*present(&event["type"]), "error", "{event}");
            assert_eq!(event["stream_id"], "lane 1");
            if event["type"] == "response.completed" {
                break event["response"]["id"].clone();
            }
        };
    }
    assert_eq!(model.requests().len(), 1);
    assert_eq!(last(&model).envelope.system.compiled, "Be brief.");
    assert_eq!(text_of(&last(&model)), "Hello");
    let end = CloseFrame { code: CloseCode::Normal, reason: "done".into() };
    socket.close(Some(end.clone())).await.unwrap();
    let answer = loop {
        if let Message::Close(answer) = socket.next().await.unwrap().unwrap() {
            break answer;
        }
    };
    assert_eq!(answer.map(|answer| answer.code), Some(end.code), "a client that closes is answered");
}

#[tokio::test]
async fn a_list_that_is_sent_again_and_again_goes_on_in_memory() {
    let model = Scripted::answering(|request| Reply::text(format!("answer {}", request.messages().count())));
    let folder = tempfile::tempdir().unwrap();
    let store = std::sync::Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let settings = [("AUTH_TOKENS", "ann:token-of-ann-0001,bob:token-of-bob-0001"), ("CONTEXT_WINDOW", "4000")];
    let server = Server::over(model.clone(), store, &settings).await;
    let ann = Door { token: Some("token-of-ann-0001"), ..Door::of(&server) };
    let session = |response: &Value| response["id"].as_str().unwrap().split('_').nth(1).unwrap().to_owned();
    let ask = async |door: &Door, list: &Vec<Value>| {
        door.create(
            json!({ "input": list, "store": false, "prompt_cache_key": "thread-1", "instructions": "Be brief." }),
        )
        .await
    };
    let mut list = vec![json!({ "role": "user", "content": "heron-74" })];
    let mut sessions = std::collections::BTreeSet::new();
    for turn in 0..40 {
        let response = ask(&ann, &list).await;
        assert_eq!(response["previous_response_id"], Value::Null, "the client has named none");
        sessions.insert(session(&response));
        // As Codex does: without ids.
        let text = response["output"][0]["content"][0]["text"].clone();
        list.push(
            json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": text }] }),
        );
        list.push(json!({ "role": "user", "content": format!("turn {turn} {}", words(turn, 150)) }));
    }
    assert_eq!(sessions.len(), 1, "each request goes on where the one before it ended");
    let requests = model.requests();
    let summaries = requests.iter().filter(|request| request.purpose == Purpose::Summary).count();
    assert!((1..20).contains(&summaries), "{summaries} summaries: the whole list is not summarised each time");

    // The same list once more, a changed one, another user, and two at once.
    let (again, at_once) = tokio::join!(ask(&ann, &list), ask(&ann, &list));
    assert!(sessions.contains(&session(&again)) != sessions.contains(&session(&at_once)), "one of them goes on there");
    let bob = Door { token: Some("token-of-bob-0001"), ..Door::of(&server) };
    let of_bob = ask(&bob, &list).await;
    assert!(!sessions.contains(&session(&of_bob)));
    list[0] = json!({ "role": "user", "content": "heron-75" });
    let changed = ask(&ann, &list).await;
    assert!(!sessions.contains(&session(&changed)));
    assert!(!is_on_disk(folder.path(), "heron-7"));
}

#[tokio::test]
async fn a_compaction_is_taken_back_after_a_restart_and_when_a_key_is_set_later() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let start = async |folder: &Path, settings: &[(&str, &str)]| {
        let store = SqliteStore::open(&folder.join("reseed.db")).unwrap();
        Server::over(model(), std::sync::Arc::new(store), settings).await
    };
    let compact = async |server: &Server| {
        let asked = json!({ "model": "scripted", "input": conversation(0) });
        let made = Door::of(server).ask("POST", "/v1/responses/compact", &asked).await.json();
        present(&made["output"][0]).clone()
    };
    let server = start(elsewhere.path(), &[]).await;
    let foreign = compact(&server).await;
    server.service.stop().await;
    let key = [("SEAL_KEY", "the-key-that-an-operator-has-set-at-first")];
    let other = [("SEAL_KEY", "the-key-that-an-operator-has-set-later-on")];
    // The settings of each run, and whether it takes back the compactions of the runs before it.
    let settings: [&[_]; 5] = [&[], &[], &key, &other, &[]];
    let accepted: [&[bool]; 5] = [&[], &[true], &[true, true], &[true, true, false], &[true, true, false, false]];
    let mut made = Vec::new();
    for (run, (settings, accepted)) in settings.into_iter().zip(accepted).enumerate() {
        let server = start(folder.path(), settings).await;
        let door = Door::of(&server);
        for (item, accepted) in made.iter().zip(accepted).chain([(&foreign, &false)]) {
            let input = json!([item, { "role": "user", "content": "What is the password?" }]);
            let answer = door.ask("POST", "/v1/responses", &json!({ "input": input })).await;
            assert_eq!(answer.status, if *accepted { 200 } else { 400 }, "run {run}: {answer:?}");
            if !accepted {
                assert_eq!(answer.json()["error"]["code"], "invalid_compaction");
            }
        }
        made.push(compact(&server).await);
        server.service.stop().await;
    }
}
