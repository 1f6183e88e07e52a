//! Words that come while a response is made.

use super::{
    Door,
    approved::{allowed, calls, kinds, of_kind, open_gate, path_of, server},
    call, function, last, text_in,
};
use crate::{
    doors::door::Lane,
    support::{
        json::present,
        scripted::{Gate, Reply, Scripted},
        server::Server,
        talk::text_of,
        tools::results,
    },
};
use reseed::core::model::ModelFault;
use reseed_protocol::ErrorCode;
use serde_json::{Value, json};

fn steer(to: &Value, input: impl Into<Value>) -> Value {
    json!({ "type": "response.steer", "previous_response_id": to, "input": input.into() })
}

/// Sends words for a response, and returns the id that they got.
async fn accepted(lane: &mut Lane, to: &Value, input: &str) -> Value {
    lane.send(&steer(to, input)).await;
    let accepted = lane.until("response.steer.accepted").await;
    assert_eq!(accepted["steer"]["previous_response_id"], *present(to));
    assert!(accepted["sequence_number"].is_u64(), "{accepted}");
    present(&accepted["steer"]["id"]).clone()
}

/// Sends a request, and returns the id of its response.
async fn begun(lane: &mut Lane, request: &Value) -> Value {
    lane.send(request).await;
    present(&lane.until("response.created").await["response"]["id"]).clone()
}

/// Returns the next response as it is at its end.
async fn ended(lane: &mut Lane) -> Value {
    let end = lane.rest().await.pop().unwrap();
    assert!(end["response"].is_object(), "{end}");
    end["response"].clone()
}

#[tokio::test]
async fn words_begin_the_next_response_with_the_same_settings() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let server = server(&model, &gate).await;
    let (door, mut lane) = (Door::of(&server), Lane::of(&server).await);
    model.push(calls(&[("sea__peek", "{}")]));
    model.push(Reply::text("I have looked."));
    model.push(Reply::text("Very well."));
    let id = begun(&mut lane, &json!({ "type": "response.create", "input": "Look.", "metadata": { "a": "b" } })).await;
    model.wait_for_requests(1).await;
    let result = json!([{ "type": "function_call_output", "call_id": "call_0", "output": "no" }]);
    let failures = [
        (json!("resp_a_b"), json!("x"), "response_not_active"),
        (id.clone(), json!(7), "invalid_input"),
        (id.clone(), json!(""), "invalid_input"),
        (id.clone(), json!([]), "invalid_input"),
        (id.clone(), json!([{ "role": "assistant", "content": "no" }]), "invalid_input"),
        (id.clone(), json!([{ "role": "system", "content": "no" }]), "invalid_input"),
        (id.clone(), result, "invalid_input"),
    ];
    for (of, input, code) in failures {
        lane.send(&steer(&of, input.clone())).await;
        let failed = lane.until("response.steer.failed").await;
        assert_eq!((&failed["error"]["code"], &failed["steer"]["input"]), (&json!(code), &input));
    }
    accepted(&mut lane, &id, "And be brief.").await;
    gate.open();
    let first = ended(&mut lane).await;
    assert_eq!((&first["id"], kinds(&first)), (&id, vec!["mcp_call", "message"]));
    let second = ended(&mut lane).await;
    assert_eq!((&second["status"], text_in(&second)), (&json!("completed"), "Very well.".to_owned()));
    assert_eq!((&second["previous_response_id"], &second["metadata"]), (&id, &json!({ "a": "b" })));
    assert!(text_of(&last(&model)).ends_with("I have looked.\nAnd be brief."), "{}", text_of(&last(&model)));
    for response in [&first, &second] {
        assert_eq!(door.get(&path_of(response)).await, *response);
    }
    let said = door.get(&format!("{}/input_items", path_of(&second))).await;
    assert_eq!(said["data"][0]["content"][0]["text"], "And be brief.");
    lane.send(&steer(&id, "Too late.")).await;
    assert_eq!(lane.until("response.steer.failed").await["error"]["code"], "response_not_active");
}

#[tokio::test]
async fn words_for_the_last_answer_are_answered_by_a_response_of_their_own() {
    for functions in [json!([]), json!([function("look")])] {
        for store in [true, false] {
            let (model, gate) = (Scripted::new(), Gate::new());
            let server = Server::start(model.clone(), &[]).await;
            let (door, mut lane) = (Door::of(&server), Lane::of(&server).await);
            model.push(Reply::text("The sea is blue.").in_pieces(2).held_by(&gate));
            model.push(Reply::text("So is the sky."));
            let create = json!({ "type": "response.create", "input": "Look.", "tools": functions, "store": store });
            let id = begun(&mut lane, &create).await;
            lane.until("response.output_text.delta").await;
            accepted(&mut lane, &id, "And the sky?").await;
            accepted(&mut lane, &id, "And be brief.").await;
            gate.open();
            let first = ended(&mut lane).await;
            assert_eq!((&first["id"], text_in(&first)), (&id, "The sea is blue.".to_owned()));
            let second = ended(&mut lane).await;
            assert_eq!((&second["previous_response_id"], text_in(&second)), (&id, "So is the sky.".to_owned()));
            assert_eq!(second["tools"].as_array().unwrap().len(), functions.as_array().unwrap().len());
            assert_eq!(model.requests().len(), 2, "both are answered together");
            assert_eq!(text_of(&last(&model)), "Look.\nThe sea is blue.\nAnd the sky?\nAnd be brief.");
            if store {
                assert_eq!(door.get(&path_of(&first)).await, first);
                assert_eq!(door.get(&path_of(&second)).await, second);
            }
            model.push(Reply::text("Good."));
            let next = json!({
                "type": "response.create", "input": "Thanks.", "previous_response_id": second["id"], "store": store,
            });
            assert_eq!(text_in(&lane.end_of(&next).await["response"]), "Good.");
            assert!(text_of(&last(&model)).ends_with("And be brief.\nSo is the sky.\nThanks."));
        }
    }
}

#[tokio::test]
async fn words_wait_for_the_results_of_the_clients_functions() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let server = Server::start(model.clone(), &[]).await;
    let mut lane = Lane::of(&server).await;
    model.push(Reply::parts(vec![call("look")]).held_by(&gate));
    let tools = json!([function("look")]);
    let id = begun(&mut lane, &json!({ "type": "response.create", "input": "Look.", "tools": tools })).await;
    model.wait_for_requests(1).await;
    let steered = accepted(&mut lane, &id, "And be brief.").await;
    gate.open();
    assert_eq!(kinds(&ended(&mut lane).await), ["function_call"]);
    let pending = lane.until("response.steer.pending").await;
    assert_eq!(pending["steer"], json!({ "id": steered, "previous_response_id": id }));
    let mut output = pending["required_input"][0].clone();
    assert_eq!((&output["type"], &output["name"]), (&json!("function_call_output"), &json!("look")));
    output["output"] = json!("calm");
    let next = json!({
        "type": "response.create", "previous_response_id": id, "tools": tools,
        "input": [output, { "role": "user", "content": "Well?" }],
    });
    model.push(Reply::text("Calm."));
    assert_eq!(text_in(&lane.end_of(&next).await["response"]), "Calm.");
    assert_eq!(results(&last(&model)), [("calm".to_owned(), false)]);
    assert!(text_of(&last(&model)).ends_with("And be brief.\nWell?"), "{}", text_of(&last(&model)));
}

#[tokio::test]
async fn words_wait_for_what_a_person_decides() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let server = server(&model, &open_gate()).await;
    let mut lane = Lane::of(&server).await;
    model.push(calls(&[("sea__dig", "{}")]).held_by(&gate));
    let id = begun(&mut lane, &json!({ "type": "response.create", "input": "Dig." })).await;
    model.wait_for_requests(1).await;
    accepted(&mut lane, &id, "And be brief.").await;
    gate.open();
    let first = ended(&mut lane).await;
    let pending = lane.until("response.steer.pending").await;
    let asked = of_kind(&first, "mcp_approval_request");
    let required = json!([{ "type": "mcp_approval_response", "approval_request_id": asked["id"] }]);
    assert_eq!(pending["required_input"], required);
    model.push(Reply::text("Dug."));
    model.push(Reply::text("Very well."));
    let next = json!({ "type": "response.create", "input": [allowed(asked, true)], "previous_response_id": id });
    assert_eq!(text_in(&lane.end_of(&next).await["response"]), "Very well.");
    assert!(text_of(&last(&model)).ends_with("And be brief."), "{}", text_of(&last(&model)));
}

#[tokio::test]
async fn words_that_cannot_be_said_are_given_back() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let server = Server::start(model.clone(), &[]).await;
    let mut lane = Lane::of(&server).await;
    model.push(Reply::text("The s").then_fault(ModelFault::new(ErrorCode::UpstreamQuota, "no")).held_by(&gate));
    let id = begun(&mut lane, &json!({ "type": "response.create", "input": "Look." })).await;
    model.wait_for_requests(1).await;
    let steered = accepted(&mut lane, &id, "And be brief.").await;
    gate.open();
    assert_eq!(ended(&mut lane).await["status"], "failed");
    let failed = lane.until("response.steer.failed").await;
    assert_eq!(failed["error"]["code"], "successor_creation_failed");
    let given_back = json!({ "id": steered, "previous_response_id": id, "input": "And be brief." });
    assert_eq!(failed["steer"], given_back);
    // So are those that a request could not take along.
    let tools = json!([function("look")]);
    let gate = Gate::new();
    model.push(Reply::parts(vec![call("look")]).held_by(&gate));
    let id = begun(&mut lane, &json!({ "type": "response.create", "input": "Look.", "tools": tools })).await;
    model.wait_for_requests(2).await;
    let steered = accepted(&mut lane, &id, "And be brief.").await;
    gate.open();
    ended(&mut lane).await;
    lane.until("response.steer.pending").await;
    let output = json!([{ "type": "function_call_output", "call_id": "call_7", "output": "calm" }]);
    let wrong = json!({ "type": "response.create", "previous_response_id": id, "input": output });
    assert_eq!(lane.end_of(&wrong).await["type"], "error");
    assert_eq!(lane.until("response.steer.failed").await["steer"]["id"], steered);
    model.push(Reply::text("Good."));
    assert_eq!(text_in(&lane.end_of(&json!({ "type": "response.create", "input": "Hi." })).await["response"]), "Good.");
}

#[tokio::test]
async fn so_many_words_may_wait() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let server = Server::start(model.clone(), &[]).await;
    let mut lane = Lane::of(&server).await;
    model.push(Reply::text("The sea is blue.").held_by(&gate));
    model.push(Reply::text("Very well."));
    let id = begun(&mut lane, &json!({ "type": "response.create", "input": "Look." })).await;
    model.wait_for_requests(1).await;
    for number in 0..8 {
        accepted(&mut lane, &id, &format!("Word {number}.")).await;
    }
    lane.send(&steer(&id, "One more.")).await;
    assert_eq!(lane.until("response.steer.failed").await["error"]["code"], "too_many_pending_steers");
    gate.open();
    ended(&mut lane).await;
    assert_eq!(text_in(&ended(&mut lane).await), "Very well.");
    assert!(text_of(&last(&model)).ends_with("Word 6.\nWord 7."), "{}", text_of(&last(&model)));
}
