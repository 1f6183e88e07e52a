//! `navigate`.

use super::{Talk, refused, said};
use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{client::Client, json::present, server::Server, talk};
use reseed::core::model::{ModelFault, ModelRequest, Purpose};
use reseed_protocol::ErrorCode;
use serde_json::{Value, json};

#[tokio::test]
async fn every_position_leads_where_it_says() {
    let mut talk = Talk::of(&["one", "two"]).await;
    let [first, re_one, second, re_two] = [0, 1, 2, 3].map(|at| talk.entries[at].clone());
    // The target, the new leaf, the returned input.
    let table: &[(Value, Value, Option<&str>)] = &[
        (json!({ "entryId": second, "position": "before" }), json!(re_one), Some("two")),
        (json!({ "entryId": re_two, "position": "before" }), json!(second), None),
        (json!({ "entryId": first, "position": "at" }), json!(first), None),
        (json!({ "entryId": first }), json!(first), None),
        (json!({ "entryId": first, "position": "before" }), json!("root"), Some("one")),
        (json!({ "entryId": first, "position": "tip" }), json!(re_two), None),
        (json!({ "entryId": "root", "position": "at" }), json!("root"), None),
        (json!({ "entryId": re_one, "position": "tip" }), json!(re_two), None),
    ];
    for (payload, leaf, input) in table {
        let reply = talk.client.ask("navigate", payload.clone()).await;
        assert_eq!(reply["type"], "navigated", "{payload}: {reply}");
        assert_eq!(reply["payload"].get("leafId"), Some(leaf), "{payload}: {reply}");
        assert_eq!(reply["payload"]["input"][0]["text"].as_str(), *input, "{payload}");
        let moved = talk.client.event("session_updated").await;
        assert_eq!(moved["payload"].get("leafId"), Some(leaf), "{payload}: {moved}");
    }
    refused(&talk.client.ask("navigate", json!({ "entryId": "nowhere" })).await, "entry_not_found", Some("entryId"));
    refused(&talk.client.ask("navigate", json!({ "position": "at" })).await, "missing_field", Some("entryId"));
    talk.client.ask("navigate", json!({ "entryId": re_one })).await;
    talk.client.turn("three").await;
    assert_eq!(talk.last_said(), ["one", "re: one", "three"]);
}

#[tokio::test]
async fn the_branch_that_is_left_is_summarised_where_the_session_goes_on() {
    let mut talk = Talk::of(&["one", "two about tea", "three about tea"]).await;
    let [re_one, left] = [1, 5].map(|at| talk.entries[at].clone());
    let payload =
        json!({ "entryId": re_one, "summarize": true, "instructions": "Mind the tea.", "label": "without tea" });
    let reply = talk.client.ask("navigate", payload).await;
    assert_eq!(reply["type"], "navigated", "{reply}");
    let summary_id = reply["payload"]["branchSummaryEntryId"].clone();
    let asked = talk.model.requests().pop().unwrap();
    assert_eq!(asked.purpose, Purpose::Summary);
    let prompt = said(&asked).join("\n");
    assert!(prompt.contains("two about tea") && prompt.contains("re: three about tea"), "{prompt}");
    assert!(!prompt.contains("[User]: one"), "what both branches share is not summarised: {prompt}");
    assert!(prompt.contains("Mind the tea.") && prompt.contains("## Goal"), "{prompt}");
    let entry = talk.client.until(|frame| frame["payload"]["entry"]["type"] == "branch_summary").await;
    let entry = &entry["payload"]["entry"];
    assert_eq!(*present(&entry["entryId"]), summary_id);
    assert_eq!([&entry["parentId"], &entry["fromId"]], [re_one.as_str(); 2]);
    assert_eq!(entry["leftLeafId"], left.as_str());
    let label = talk.client.until(|frame| frame["payload"]["entry"]["type"] == "label").await;
    assert_eq!(*present(&label["payload"]["entry"]["targetId"]), summary_id);
    assert_eq!(*present(&label["payload"]["entry"]["entryId"]), reply["payload"]["leafId"], "the label is the leaf");
    talk.client.turn("four").await;
    let told = talk.last_said();
    assert_eq!((told.len(), told[1].as_str(), told[3].as_str()), (4, "re: one", "four"), "{told:?}");
    assert!(told[2].contains("the branch was about tea"), "{told:?}");
}

#[tokio::test]
async fn instructions_can_take_the_place_of_ours_and_nothing_is_asked_where_nothing_was_said() {
    let mut talk = Talk::of(&["one", "two"]).await;
    let [first, re_one] = [0, 1].map(|at| talk.entries[at].clone());
    let payload =
        json!({ "entryId": first, "summarize": true, "instructions": "One line only.", "replaceInstructions": true });
    talk.client.ask("navigate", payload).await;
    let prompt = said(&talk.model.requests().pop().unwrap()).join("\n");
    assert!(prompt.contains("One line only.") && !prompt.contains("## Goal"), "{prompt}");
    // Moving forwards along the same path abandons nothing.
    let asked = talk.model.requests().len();
    let path = talk.path().await;
    let reply = talk.client.ask("navigate", json!({ "entryId": path.last().unwrap().0, "summarize": true })).await;
    assert!(reply["payload"]["branchSummaryEntryId"].is_null(), "{reply}");
    talk.client.ask("navigate", json!({ "entryId": first })).await;
    let reply = talk.client.ask("navigate", json!({ "entryId": re_one, "summarize": true })).await;
    assert!(reply["payload"]["branchSummaryEntryId"].is_null(), "{reply}");
    assert_eq!(talk.model.requests().len(), asked, "the model was asked about nothing");
}

/// Returns a session of two turns whose next summary is held until the gate opens.
async fn held(reply: Reply) -> (Server, Client, Gate, Scripted, Vec<String>) {
    let (model, gate) = (Scripted::new(), Gate::new());
    model.push(Reply::text("re: one"));
    model.push(Reply::text("re: two"));
    model.push(reply.held_by(&gate));
    let server = Server::start(model.clone(), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.turn("one").await;
    client.turn("two").await;
    let page = client.ask("get_entries", json!({ "path": true })).await;
    let ids = page["payload"]["items"].as_array().unwrap().iter();
    let ids = ids.map(|entry| entry["entryId"].as_str().unwrap().to_owned()).collect();
    (server, client, gate, model, ids)
}

#[tokio::test]
async fn nothing_sent_while_a_branch_is_summarised_is_lost() {
    let (_server, mut client, gate, model, ids) = held(Reply::text(talk::summary(&["tea"]))).await;
    let payload = json!({ "entryId": ids[1], "summarize": true });
    let move_id = client.send("navigate", payload.clone()).await;
    let progress = client.event("compaction_progress").await;
    assert_eq!(progress["payload"]["phase"], "summarising_branch");
    let queued = client.ask("user_input", json!({ "input": "three" })).await;
    assert_eq!(queued["payload"]["queued"], true, "{queued}");
    let note = json!({ "customType": "note", "content": "it rains", "display": true });
    assert_eq!(client.ask("append_custom_message", note).await["type"], "ok");
    for (kind, payload) in [("navigate", json!({ "entryId": ids[0] })), ("start_compaction", json!({}))] {
        refused_as(&client.ask(kind, payload).await, "compaction_running");
    }
    refused_as(&client.ask("user_input", json!({ "input": "x", "parentId": ids[0] })).await, "compaction_running");
    model.push(Reply::text("re: three"));
    gate.open();
    let reply = client.until(|frame| frame["re"] == move_id.as_str()).await;
    assert_eq!(reply["type"], "navigated", "{reply}");
    client.event("turn_finished").await;
    let told = said(&model.requests().pop().unwrap());
    assert_eq!((told.len(), &told[..2]), (5, &["one".to_owned(), "re: one".to_owned()][..]), "{told:?}");
    assert!(told[2].contains("tea") && told[3] == "it rains" && told[4] == "three", "{told:?}");
    // Repeated after it was done, it is not executed twice.
    client.send_as(&move_id, "navigate", payload).await;
    let again = client.until(|frame| frame["re"] == move_id.as_str()).await;
    assert_eq!(again["payload"]["duplicate"], true, "{again}");
}

#[track_caller]
fn refused_as(reply: &Value, code: &str) {
    assert_eq!(reply["payload"]["code"], code, "{reply}");
}

#[tokio::test]
async fn a_move_that_is_cancelled_or_fails_leaves_everything_as_it_was() {
    let table: [(Reply, bool, &str); 3] = [
        (Reply::text("never"), true, "navigation_cancelled"),
        (Reply::fault(ModelFault::new(ErrorCode::UpstreamAuth, "no")), false, "upstream_auth"),
        (Reply::fault(ModelFault::new(ErrorCode::UpstreamError, "no")), false, "upstream_error"),
    ];
    for (reply, cancel, code) in table {
        let (_server, mut client, gate, model, ids) = held(reply).await;
        let move_id = client.send("navigate", json!({ "entryId": ids[0], "summarize": true })).await;
        let job = client.event("compaction_progress").await["payload"]["jobId"].clone();
        if cancel {
            let stopped = client.ask("cancel_compaction", json!({ "jobId": job })).await;
            assert_eq!(stopped["type"], "ok", "{stopped}");
        } else {
            gate.open();
        }
        refused_as(&client.until(|frame| frame["re"] == move_id.as_str()).await, code);
        let failed = client.event("compaction_failed").await;
        assert_eq!(
            (present(&failed["payload"]["jobId"]), failed["payload"]["error"]["code"].as_str()),
            (&job, Some(code)),
            "{failed}"
        );
        model.push(Reply::text("re: three"));
        client.turn("three").await;
        let told = said(&model.requests().pop().unwrap());
        assert_eq!(told, ["one", "re: one", "two", "re: two", "three"], "after {code}");
    }
}

#[tokio::test]
async fn a_summary_that_cannot_be_used_is_extracted_by_rule() {
    let fault = |code| Reply::fault(ModelFault::new(code, "it broke"));
    let prose = "The user asked about two, and the assistant answered.";
    // What the model answers, what it answers when it is asked once more, and the text that is accepted.
    let table: [(Reply, Option<Reply>, Option<&str>); 5] = [
        (Reply::text(" \n"), Some(Reply::text("")), None),
        (fault(ErrorCode::ContentFiltered), Some(Reply::text(" \n")), None),
        (fault(ErrorCode::ContextOverflow), None, None),
        (Reply::text(" \n"), Some(Reply::text(prose)), Some(prose)),
        (Reply::text(prose), None, Some(prose)),
    ];
    for (at, (reply, rest, taken)) in table.into_iter().enumerate() {
        let (_server, mut client, gate, model, ids) = held(reply).await;
        let asked = model.requests().len() + 1 + usize::from(rest.is_some());
        rest.into_iter().for_each(|rest| model.push(rest));
        gate.open();
        let moved = client.ask("navigate", json!({ "entryId": ids[1], "summarize": true })).await;
        assert_eq!(moved["type"], "navigated", "{at}: {moved}");
        let entry = client.until(|frame| frame["payload"]["entry"]["type"] == "branch_summary").await;
        let summary = entry["payload"]["entry"]["summary"].as_str().unwrap();
        assert!(summary.contains(taken.unwrap_or("- User: two")), "{at}: {summary}");
        assert_eq!(model.requests().len(), asked, "{at}: it is asked for once more");
    }
}

#[tokio::test]
async fn there_is_no_moving_during_a_turn() {
    let (model, gate) = (Scripted::new(), Gate::new());
    model.push(Reply::text("slow").held_by(&gate));
    let server = Server::start(model.clone(), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let accepted = client.ask("user_input", json!({ "input": "one" })).await;
    let entry = accepted["payload"]["entryId"].clone();
    refused_as(&client.ask("navigate", json!({ "entryId": entry })).await, "turn_running");
    gate.open();
    client.event("turn_finished").await;
    assert_eq!(client.ask("navigate", json!({ "entryId": entry })).await["type"], "navigated");
}

#[tokio::test]
async fn what_is_said_for_a_place_that_is_not_reached_waits_until_somebody_looks() {
    let (_server, mut client, _gate, model, ids) = held(Reply::text("never")).await;
    let move_id = client.send("navigate", json!({ "entryId": ids[1], "summarize": true })).await;
    client.event("compaction_progress").await;
    let said = client.ask("user_input", json!({ "input": "for the other place" })).await;
    let queued = client.event("queue_item_added").await;
    assert_eq!(queued["payload"]["item"]["after"], move_id.as_str());
    client.ask("cancel_compaction", json!({})).await;
    refused_as(&client.until(|frame| frame["re"] == move_id.as_str()).await, "navigation_cancelled");
    // The session continues where it is, and input meant for elsewhere is not sent here.
    model.push(Reply::text("re: here"));
    client.turn("here").await;
    assert_eq!(super::said(&model.requests().pop().unwrap()).last().unwrap(), "here");
    // Another move arrives: now it is sent.
    model.push(Reply::text("re: there"));
    assert_eq!(client.ask("navigate", json!({ "entryId": ids[1] })).await["type"], "navigated");
    client.event("turn_finished").await;
    assert_eq!(super::said(&model.requests().pop().unwrap()), ["one", "re: one", "for the other place"]);
    let of_it = |frame: &Value| frame["payload"]["commandId"] == *present(&said["re"]);
    let removed = client.until(|frame| frame["type"] == "queue_item_removed" && of_it(frame)).await;
    let entry = client.until(|frame| frame["type"] == "entry_appended" && of_it(frame)).await;
    assert_eq!(entry["payload"]["entry"]["parentId"], ids[1].as_str());
    let (entry, turn) = (&entry["payload"]["entry"]["entryId"], &entry["payload"]["turnId"]);
    let fate = json!({ "commandId": said["re"], "reason": "started", "turnId": turn, "entryId": entry });
    assert_eq!(removed["payload"], fate);
}

#[tokio::test]
async fn an_id_is_used_once_also_while_its_move_is_at_work() {
    let (server, mut client, gate, _model, ids) = held(Reply::text(talk::summary(&["tea"]))).await;
    let payload = json!({ "entryId": ids[1], "summarize": true });
    let move_id = client.send("navigate", payload.clone()).await;
    client.event("compaction_progress").await;
    for (kind, other) in [
        ("set_label", json!({ "entryId": ids[0], "label": "x" })),
        ("navigate", json!({ "entryId": ids[0], "summarize": true })),
        ("user_input", json!({ "input": "x" })),
    ] {
        client.send_as(&move_id, kind, other).await;
        refused_as(&client.until(|frame| frame["re"] == move_id.as_str()).await, "idempotency_conflict");
    }
    // The connection is lost; the same command on another one gets the reply.
    client.hang_up();
    let mut client = Client::v2(&server.ws()).await;
    let list = client.ask("list_sessions", json!({})).await;
    let session = list["payload"]["items"][0]["sessionId"].clone();
    let opened = client.ask("open_session", json!({ "sessionId": session })).await;
    assert_eq!(opened["payload"]["compaction"]["phase"], "summarising_branch", "{opened}");
    client.send_as(&move_id, "navigate", payload).await;
    client.ask("ping", json!({})).await;
    client.ask("get_context_info", json!({})).await;
    gate.open();
    let reply = client.until(|frame| frame["re"] == move_id.as_str()).await;
    assert_eq!(reply["type"], "navigated", "{reply}");
    assert!(reply["payload"]["branchSummaryEntryId"].is_string(), "{reply}");
}

#[tokio::test]
async fn a_question_that_one_moves_to_can_be_asked_again() {
    let mut talk = Talk::of(&["one", "two"]).await;
    refused_as(&talk.client.ask("retry_turn", json!({})).await, "nothing_to_retry");
    let second = talk.entries[2].clone();
    talk.client.ask("navigate", json!({ "entryId": second })).await;
    let accepted = talk.client.ask("retry_turn", json!({})).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
    talk.client.event("turn_finished").await;
    assert_eq!(talk.last_said(), ["one", "re: one", "two"]);
    let all = talk.client.ask("get_entries", json!({})).await;
    let siblings =
        all["payload"]["items"].as_array().unwrap().iter().filter(|entry| entry["parentId"] == second.as_str());
    assert_eq!(siblings.count(), 2, "two answers to one question");
}

/// The summary of an abandoned branch is limited by the window, newest first, however long the branch is.
#[tokio::test]
async fn a_long_branch_is_summarised_within_the_window() {
    let model = Scripted::answering(|request: &ModelRequest| {
        Reply::text(match request.purpose {
            Purpose::Turn => talk::words(7, 150),
            Purpose::Summary => talk::summary(&["long"]),
        })
    });
    let settings = [("CONTEXT_WINDOW", "2000"), ("CONTEXT_STRATEGY", "threshold")];
    let server = Server::start(model.clone(), &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    for number in 0..25 {
        client.turn(&format!("question {number}")).await;
    }
    let reply = client.ask("navigate", json!({ "entryId": "root", "summarize": true })).await;
    assert_eq!(reply["type"], "navigated", "{reply}");
    let asked = model.requests().into_iter().filter(|asked| asked.purpose == Purpose::Summary);
    let prompts: Vec<String> = asked.map(|asked| said(&asked).join("\n")).collect();
    assert!(prompts.iter().any(|prompt| prompt.contains("question 24")), "the newest is in it: {prompts:?}");
    let info = client.ask("get_context_info", json!({})).await;
    assert!(info["payload"]["tokenCount"].as_u64().unwrap() < 1_000, "{info}");
    client.turn("and now?").await;
}
