//! How many tokens a request would send.

use super::{Door, function};
use crate::support::{
    client::Client,
    json::{present, whole},
    scripted::{Reply, Scripted},
    server::Server,
};
use serde_json::{Value, json};

async fn counted(door: &Door, body: &Value) -> u64 {
    let answer = door.ask("POST", "/v1/responses/input_tokens", body).await;
    assert_eq!(answer.status, 200, "{body}: {answer:?}");
    let answer = answer.json();
    assert_eq!(answer["object"], "response.input_tokens");
    whole(&answer["input_tokens"])
}

/// Returns the tokens of a conversation's next request.
async fn in_context(door: &Door, conversation: &Value) -> u64 {
    let path = format!("/v1/conversations/{}/context", conversation.as_str().unwrap());
    whole(&door.get(&path).await["tokenCount"])
}

fn session_of(response: &Value) -> String {
    format!("conv_{}", response["id"].as_str().unwrap().split('_').nth(1).unwrap())
}

#[tokio::test]
async fn a_request_is_counted_as_it_would_be_sent_and_nothing_is_kept_of_it() {
    let server = Server::start(Scripted::answering(|_| Reply::text("It is blue, and calm.")), &[]).await;
    let door = Door::of(&server);
    let mut page = Client::v2(&server.ws()).await;
    let list = async |page: &mut Client| page.ask("list_sessions", json!({})).await["payload"]["items"].clone();
    let one = door.create(json!({ "input": "How is the sea?" })).await;
    door.create(json!({ "input": "And the sky?", "previous_response_id": one["id"] })).await;
    let conversation = door.ask("POST", "/v1/conversations", &json!({})).await.json()["id"].clone();
    door.create(json!({ "input": "Who are you?", "conversation": conversation })).await;
    let items = |conversation: &Value| format!("/v1/conversations/{}/items", conversation.as_str().unwrap());
    let (before, said) = (list(&mut page).await, door.get(&items(&conversation)).await);

    let history = json!([
        { "role": "developer", "content": "Be exact, and speak of nothing but the sea." },
        { "role": "user", "content": "Hello!" }, { "role": "assistant", "content": "Hello. How can I help?" },
        { "role": "user", "content": "Tell me about tides." },
    ]);
    let requests = [
        json!({ "input": "short" }),
        json!({ "input": "short", "instructions": "You are a sailor of many years, and you say so." }),
        json!({ "input": history, "tools": [function("look"), function("listen")] }),
        json!({ "input": "What else?", "previous_response_id": one["id"] }),
        json!({ "input": "What else?", "conversation": conversation, "tools": [function("look")] }),
        json!({ "previous_response_id": one["id"] }),
    ];
    let mut counts = Vec::new();
    for request in &requests {
        counts.push(counted(&door, request).await);
    }
    assert!(counts[0] < counts[1] && counts[0] < counts[2] && counts[0] < counts[3], "{counts:?}");
    let again = counted(&door, &requests[4]).await;
    assert_eq!(again, counts[4], "a count changes nothing");
    let unstamped = |list: &Value| -> Vec<(Value, Value)> {
        let items = list.as_array().unwrap();
        items.iter().map(|item| (present(&item["sessionId"]).clone(), present(&item["entries"]).clone())).collect()
    };
    assert_eq!(unstamped(&list(&mut page).await), unstamped(&before), "nothing is left of it");
    assert_eq!(door.get(&items(&conversation)).await, said);

    for (request, count) in requests.iter().zip(counts) {
        let mut stored = request.clone();
        stored["generate"] = false.into();
        let stored = door.create(stored).await;
        let conversation = request.get("conversation").cloned().unwrap_or_else(|| session_of(&stored).into());
        // Tools belong to the connection that offers them, which is closed by now.
        if request.get("tools").is_none() {
            assert_eq!(in_context(&door, &conversation).await, count, "{request}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_counted_is_refused_as_it_would_be() {
    let server = Server::start(Scripted::answering(|_| Reply::text("ok")), &[]).await;
    let door = Door::of(&server);
    let one = door.create(json!({ "input": "one" })).await;
    let output = json!([{ "type": "function_call_output", "call_id": "nobody", "output": "x" }]);
    let table = [
        (json!({ "input": 7 }), 400, "input"),
        (json!({ "input": "x", "previous_response_id": "resp_a_b" }), 400, "previous_response_id"),
        (json!({ "input": "x", "conversation": "conv_a" }), 404, "conversation"),
        (json!({ "input": "x", "conversation": "elsewhere" }), 400, "conversation"),
        (json!({ "input": output, "previous_response_id": one["id"] }), 400, "input"),
    ];
    let mut page = Client::v2(&server.ws()).await;
    for (body, status, param) in table {
        let answer = door.ask("POST", "/v1/responses/input_tokens", &body).await;
        assert_eq!((answer.status, answer.json()["error"]["param"].as_str()), (status, Some(param)), "{body}");
    }
    let left = page.ask("list_sessions", json!({})).await;
    assert_eq!(left["payload"]["items"].as_array().unwrap().len(), 1, "{left}");
}
