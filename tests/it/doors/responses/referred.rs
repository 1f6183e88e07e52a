//! References to items of earlier responses.

use super::{Door, call, function, last};
use crate::support::{
    scripted::{Reply, Scripted},
    server::Server,
    talk::text_of,
};
use reseed_protocol::Part;
use serde_json::{Value, json};

fn reference(item: &Value) -> Value {
    json!({ "type": "item_reference", "id": item["id"] })
}

#[tokio::test]
async fn a_reference_stands_for_its_item_in_its_place() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let payload = json!({ "type": "reasoning", "summary": [], "encrypted_content": "sealed" });
    for thought in ["", "The tide turns."] {
        let reasoning = Part::Reasoning { text: thought.into(), payload: Some(payload.clone()) };
        let texts = ["One.", "Two."].map(|text| Part::Text { text: text.into() });
        let parts = [vec![reasoning.clone()], texts.to_vec(), vec![call("look")]].concat();
        model.push(Reply::parts(parts.clone()));
        let one = door.create(json!({ "input": "Look.", "tools": [function("look")] })).await;
        let mut input = vec![json!({ "role": "user", "content": "Look." })];
        input.extend(one["output"].as_array().unwrap().iter().map(|item| json!({ "id": item["id"] })));
        input.push(json!({ "type": "function_call_output", "call_id": one["output"][3]["call_id"], "output": "sea" }));
        model.push(Reply::text("Seen."));
        let two = door.create(json!({ "input": input, "tools": [function("look")] })).await;
        let request = last(&model);
        let sent = &request.messages().nth(1).unwrap().message.content;
        assert_eq!((&sent[..3], sent.len()), (&parts[..3], 4), "{thought:?}");
        // The next one refers to items of both.
        input.push(reference(&two["output"][0]));
        input.push(json!({ "role": "user", "content": "And?" }));
        model.push(Reply::text("Nothing."));
        door.create(json!({ "input": input, "tools": [function("look")] })).await;
        assert!(text_of(&last(&model)).ends_with("Seen.\nAnd?"), "{}", text_of(&last(&model)));
    }
}

#[tokio::test]
async fn a_reference_is_only_of_the_users_own_sessions_and_of_those_that_exist() {
    let model = Scripted::answering(|_| Reply::text("ok"));
    let tokens = ("AUTH_TOKENS", "ann:token-of-ann-16-chars,bob:token-of-bob-16-chars");
    let server = Server::start(model.clone(), &[tokens]).await;
    let ann = Door { address: server.address(), token: Some("token-of-ann-16-chars") };
    let bob = Door { address: server.address(), token: Some("token-of-bob-16-chars") };
    let one = ann.create(json!({ "input": "heron-74" })).await;
    let item = one["output"][0].clone();
    let gone = ann.create(json!({ "input": "x", "store": false })).await["output"][0].clone();
    let input = |item: &Value| json!({ "input": [{ "role": "user", "content": "x" }, item, { "role": "user", "content": "y" }] });
    ann.create(input(&reference(&item))).await;
    let text = item["id"].as_str().unwrap();
    let (elsewhere, unnamed) = (text.replace("msg_", "msg_a"), format!("msg_{}", text.rsplit('_').nth(1).unwrap()));
    let other_part = format!("{}7", text.strip_suffix('0').unwrap());
    let unknown = [elsewhere, unnamed, other_part, "msg".to_owned()].map(|id| (&ann, json!({ "id": id })));
    for (door, item) in unknown.into_iter().chain([(&bob, reference(&item))]) {
        let refused = door.ask("POST", "/v1/responses", &input(&item)).await;
        let error = refused.json()["error"].clone();
        assert_eq!(
            (refused.status, &error["code"], &error["param"]),
            (404, &json!("item_not_found"), &json!("input[1].id"))
        );
    }
    for _ in 0..100 {
        let refused = ann.ask("POST", "/v1/responses", &input(&reference(&gone))).await;
        if refused.status == 404 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(ann.ask("POST", "/v1/responses", &input(&reference(&gone))).await.status, 404);
    let many: Vec<Value> = (0..257).map(|_| reference(&item)).collect();
    assert_eq!(ann.ask("POST", "/v1/responses", &json!({ "input": many })).await.status, 400);
}
