//! Conversations: their branches, their compactions, and their lists, a page at a time.

use super::{Door, last};
use crate::support::{
    json::{present, whole},
    scripted::{Reply, Scripted},
    server::Server,
    talk::text_of,
};
use serde_json::{Value, json};

async fn conversation(door: &Door, metadata: Value) -> String {
    let made = door.ask("POST", "/v1/conversations", &json!({ "metadata": metadata })).await;
    format!("/v1/conversations/{}", made.json()["id"].as_str().unwrap())
}

async fn say(door: &Door, path: &str, text: &str) -> Value {
    let id = path.rsplit('/').next().unwrap();
    door.create(json!({ "input": text, "conversation": id })).await
}

fn echo() -> Scripted {
    Scripted::answering(|request| {
        let text = text_of(request);
        Reply::text(format!("re: {}", text.lines().last().unwrap_or_default()))
    })
}

fn texts(list: &Value) -> Vec<&str> {
    list["data"].as_array().unwrap().iter().map(|item| item["content"][0]["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn lists_come_in_pages_whose_items_are_found_again() {
    let server = Server::start(echo(), &[]).await;
    let door = Door::of(&server);
    let path = conversation(&door, json!({})).await;
    let mut responses = Vec::new();
    // More than one read of the server returns.
    for turn in 0..60 {
        responses.push(say(&door, &path, &format!("turn {turn}")).await);
    }
    let said: Vec<String> = (0..60).flat_map(|turn| [format!("turn {turn}"), format!("re: turn {turn}")]).collect();
    let lists = [
        (format!("{path}/items"), said.clone()),
        (format!("/v1/responses/{}/input_items", responses[56]["id"].as_str().unwrap()), said[..113].to_vec()),
    ];
    for (list, expected) in lists {
        for (order, limit) in [("asc", 30), ("desc", 30), ("asc", 100), ("desc", 100)] {
            let (mut found, mut after) = (Vec::new(), String::new());
            loop {
                let page = door.get(&format!("{list}?order={order}&limit={limit}{after}")).await;
                found.extend(texts(&page).into_iter().map(str::to_owned));
                if page["has_more"] == false {
                    break;
                }
                assert_eq!(page["data"].as_array().unwrap().len(), limit, "{page}");
                assert_eq!(present(&page["first_id"]), present(&page["data"][0]["id"]));
                after = format!("&after={}", page["last_id"].as_str().unwrap());
            }
            if order == "desc" {
                found.reverse();
            }
            assert_eq!(found, expected, "{list} {order} {limit}");
        }
        for order in ["asc", "desc"] {
            for unknown in ["msg_nobody_0", "nonsense", "msg_"] {
                let answer = door.ask("GET", &format!("{list}?order={order}&after={unknown}"), &Value::Null).await;
                let error = answer.json()["error"].clone();
                assert_eq!((answer.status, &error["param"]), (400, &json!("after")), "{error}");
                assert_eq!(error["code"], "item_not_found");
            }
        }
        for wrong in ["limit=many", "order=sideways", "limit=-1"] {
            let answer = door.ask("GET", &format!("{list}?{wrong}"), &Value::Null).await;
            assert_eq!((answer.status, &answer.json()["error"]["type"]), (400, &json!("invalid_request_error")));
        }
    }
}

#[tokio::test]
async fn added_items_are_returned_and_retrieved() {
    let server = Server::start(echo(), &[]).await;
    let door = Door::of(&server);
    let path = conversation(&door, json!({})).await;
    say(&door, &path, "one").await;
    let items = json!([
        { "role": "developer", "content": "Be brief." }, { "role": "user", "content": "two" },
        { "role": "assistant", "content": "And three." }, { "role": "user", "content": "four" },
    ]);
    let added = door.ask("POST", &format!("{path}/items"), &json!({ "items": items })).await.json();
    assert_eq!(texts(&added), ["two", "And three.", "four"]);
    for item in added["data"].as_array().unwrap() {
        assert_eq!(door.get(&format!("{path}/items/{}", item["id"].as_str().unwrap())).await, *item);
    }
    let only_system = json!({ "items": [{ "type": "message", "role": "system", "content": "Be kind." }] });
    let added = door.ask("POST", &format!("{path}/items"), &only_system).await.json();
    assert_eq!(texts(&added), [""; 0], "what is not shown is not replaced by older items");
    for unknown in ["msg_nobody_0", "msg", "x"] {
        let answer = door.ask("GET", &format!("{path}/items/{unknown}"), &Value::Null).await;
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (404, &json!("item_not_found")), "{unknown}");
    }
}

#[tokio::test]
async fn only_the_newest_item_can_be_deleted_and_stays_in_the_history() {
    let model = echo();
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let path = conversation(&door, json!({ "topic": "sea" })).await;
    say(&door, &path, "one").await;
    say(&door, &path, "two").await;
    let items = door.get(&format!("{path}/items?order=asc")).await;
    let ids: Vec<&str> = items["data"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect();
    let older = door.ask("DELETE", &format!("{path}/items/{}", ids[1]), &Value::Null).await;
    assert_eq!((older.status, &older.json()["error"]["code"]), (400, &json!("item_not_newest")));
    // As the Agents SDK does to take back a turn.
    for id in [ids[3], ids[2]] {
        let deleted = door.ask("DELETE", &format!("{path}/items/{id}"), &Value::Null).await;
        assert_eq!((deleted.status, &deleted.json()["object"]), (200, &json!("conversation")), "{deleted:?}");
        assert_eq!(deleted.json()["metadata"], json!({ "topic": "sea" }));
    }
    assert_eq!(texts(&door.get(&format!("{path}/items?order=asc")).await), ["one", "re: one"]);
    say(&door, &path, "other").await;
    assert_eq!(text_of(&last(&model)), "one\nre: one\nother");
    assert_eq!(texts(&json!({ "data": [door.get(&format!("{path}/items/{}", ids[3])).await] })), ["re: two"]);
    let unknown = door.ask("DELETE", &format!("{path}/items/msg_nobody_0"), &Value::Null).await;
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (404, &json!("item_not_found")));
}

#[tokio::test]
async fn branches_are_listed_and_a_conversation_goes_on_from_any_of_them() {
    let model = echo();
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let path = conversation(&door, json!({})).await;
    say(&door, &path, "one").await;
    let items = door.get(&format!("{path}/items?order=asc")).await;
    let answer = items["data"][1]["id"].clone();
    say(&door, &path, "two").await;
    let moved = door.ask("POST", &format!("{path}/branches"), &json!({ "id": answer })).await;
    assert_eq!((moved.status, &moved.json()["is_current"]), (200, &json!(true)), "{moved:?}");
    say(&door, &path, "other").await;
    let branches = door.get(&format!("{path}/branches")).await;
    let listed: Vec<(&str, &Value)> = branches["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|branch| (branch["preview"].as_str().unwrap(), &branch["is_current"]))
        .collect();
    assert_eq!(listed, [("re: two", &json!(false)), ("re: other", &json!(true))]);
    let back = json!({ "id": branches["data"][0]["id"] });
    let moved = door.ask("POST", &format!("{path}/branches"), &back).await.json();
    assert_eq!(present(&moved["id"]), present(&branches["data"][0]["id"]));
    say(&door, &path, "three").await;
    assert_eq!(text_of(&last(&model)), "one\nre: one\ntwo\nre: two\nthree");
    // A question is edited: its words come back, and the conversation goes on before it.
    let question = door.get(&format!("{path}/items?order=asc")).await["data"][2]["id"].clone();
    let edit = json!({ "id": question, "position": "before" });
    let moved = door.ask("POST", &format!("{path}/branches"), &edit).await.json();
    assert_eq!(moved["input"], json!([{ "type": "input_text", "text": "two" }]));
    assert_eq!(texts(&door.get(&format!("{path}/items?order=asc")).await), ["one", "re: one"]);
    for (body, status) in [
        (json!({}), 400),
        (json!({ "id": "branch_nobody_0" }), 404),
        (json!({ "id": question, "position": "above" }), 400),
        (json!({ "id": 7 }), 400),
    ] {
        let refused = door.ask("POST", &format!("{path}/branches"), &body).await;
        assert_eq!(refused.status, status, "{body}: {refused:?}");
    }
}

#[tokio::test]
async fn a_compaction_is_previewed_made_and_undone() {
    let model = Scripted::answering(|_| Reply::text("A long answer about the sea. ".repeat(40)));
    let server = Server::start(model.clone(), &[("KEEP_RECENT_TOKENS", "200")]).await;
    let door = Door::of(&server);
    let path = conversation(&door, json!({})).await;
    let early = door.ask("POST", &format!("{path}/compact/preview"), &json!({})).await;
    assert_eq!((early.status, &early.json()["error"]["code"]), (400, &json!("nothing_to_compact")), "{early:?}");
    for turn in 0..6 {
        say(&door, &path, &format!("Question {turn}")).await;
    }
    let before = whole(&door.get(&format!("{path}/context")).await["tokenCount"]);
    let preview = door.ask("POST", &format!("{path}/compact/preview"), &json!({ "instructions": "Be brief." })).await;
    assert_eq!(preview.status, 200, "{preview:?}");
    let preview = preview.json();
    assert_eq!(whole(&preview["tokensBefore"]), before);
    assert!(whole(&preview["tokensAfter"]) < before, "{preview}");
    assert_eq!(whole(&door.get(&format!("{path}/context")).await["tokenCount"]), before, "nothing has changed");
    let made = door.ask("POST", &format!("{path}/compact"), &json!({ "instructions": "Be brief." })).await;
    assert_eq!(made.status, 200, "{made:?}");
    assert_eq!(made.json()["summary"], *present(&preview["summary"]), "the model says the same again");
    let after = whole(&door.get(&format!("{path}/context")).await["tokenCount"]);
    assert_eq!(after, whole(&preview["tokensAfter"]));
    let item = door.get(&format!("{path}/items/{}", made.json()["id"].as_str().unwrap())).await;
    assert_eq!(item["type"], "compaction");
    let undone = door.ask("POST", &format!("{path}/undo_compaction"), &json!({})).await;
    assert_eq!(undone.status, 204, "{undone:?}");
    assert_eq!(whole(&door.get(&format!("{path}/context")).await["tokenCount"]), before);
}

#[tokio::test]
async fn metadata_belong_to_the_conversation_on_every_branch() {
    let server = Server::start(echo(), &[]).await;
    let door = Door::of(&server);
    let path = conversation(&door, json!({ "topic": "sea" })).await;
    let made = door.get(&path).await;
    let one = say(&door, &path, "one").await;
    say(&door, &path, "two").await;
    let updated = door.ask("POST", &path, &json!({ "metadata": { "topic": "sky" } })).await.json();
    assert_eq!(updated["metadata"], json!({ "topic": "sky" }));
    assert_eq!(whole(&updated["created_at"]), whole(&made["created_at"]));
    door.create(json!({ "input": "other", "previous_response_id": one["id"] })).await;
    assert_eq!(door.get(&path).await["metadata"], json!({ "topic": "sky" }));
}
