//! The order of items, and requests that are repeated.

use super::{Door, function};
use crate::support::{
    http,
    json::present,
    scripted::{Reply, Scripted},
    server::Server,
};
use reseed_protocol::Part;
use serde_json::{Value, json};

fn sealed(name: &str) -> Part {
    let payload = json!({ "type": "reasoning", "summary": [], "encrypted_content": name });
    Part::Reasoning { text: String::new(), payload: Some(payload) }
}

fn call(at: usize) -> Part {
    Part::ToolCall { call_id: format!("call_{at}").parse().unwrap(), name: "look".into(), arguments: "{}".into() }
}

fn kinds(response: &Value) -> Vec<&str> {
    response["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn items_have_the_order_of_the_provider() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let text = || Part::Text { text: "Hello.".to_owned() };
    let table = [
        (vec![sealed("a"), text()], vec!["reasoning", "message"]),
        (vec![sealed("a"), text(), call(0)], vec!["reasoning", "message", "function_call"]),
        (
            vec![sealed("a"), call(0), sealed("b"), call(1)],
            vec!["reasoning", "function_call", "reasoning", "function_call"],
        ),
        (vec![text(), sealed("a"), call(0)], vec!["message", "reasoning", "function_call"]),
    ];
    for (parts, expected) in table {
        let body = json!({ "input": "x", "tools": [function("look")] });
        model.push(Reply::parts(parts.clone()));
        let made = door.create(body.clone()).await;
        assert_eq!(kinds(&made), expected);
        assert_eq!(door.get(&format!("/v1/responses/{}", made["id"].as_str().unwrap())).await, made);
        let mut streamed = body;
        streamed["stream"] = true.into();
        model.push(Reply::parts(parts));
        let events = door.stream("POST", "/v1/responses", &streamed).await;
        let ended = &events.last().unwrap()["response"];
        for event in events.iter().filter(|event| event["type"] == "response.output_item.done") {
            let place = usize::try_from(event["output_index"].as_u64().unwrap()).unwrap();
            assert_eq!(ended["output"][place], *present(&event["item"]), "a stream has its own order");
        }
        let retrieved = door.get(&format!("/v1/responses/{}", ended["id"].as_str().unwrap())).await;
        assert_eq!(kinds(&retrieved), expected);
        for item in ended["output"].as_array().unwrap() {
            assert!(retrieved["output"].as_array().unwrap().contains(item), "{item}");
        }
    }
}

#[tokio::test]
async fn a_request_with_new_system_messages_is_repeated_too() {
    let model = Scripted::answering(|_| Reply::text("ok"));
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let conversation = door.ask("POST", "/v1/conversations", &json!({})).await.json()["id"].clone();
    let input = |text: &str| json!([{ "role": "developer", "content": text }, { "role": "user", "content": "Hello." }]);
    door.create(json!({ "input": input("Be kind."), "conversation": conversation })).await;
    let headers = [("Content-Type", "application/json"), ("Idempotency-Key", "the-same-key-0003")];
    let body = json!({ "input": input("Be brief."), "conversation": conversation }).to_string();
    let mut answers = Vec::new();
    for _ in 0..3 {
        let answer = http::send(&door.address, "POST", "/v1/responses", &headers, &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answers.push(answer.json());
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(model.requests().len(), 2);
    assert_eq!(model.requests()[1].envelope.system.compiled, "Be kind.\n\nBe brief.");
}
