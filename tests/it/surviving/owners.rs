//! One owner a session, and observers: who may do what, what each sees, and what continues while the owner is away.

use super::fold::Folder;
use crate::support::{client::Client, http, json::present, server::Server, talk::talker, time::StoppedTime};
use reseed::provider::scripted::{Gate, Reply, Scripted};
use reseed_protocol::Part;
use serde_json::{Value, json};

fn look() -> Value {
    json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } })
}

fn call() -> Reply {
    let arguments = "{}".to_owned();
    Reply::parts(vec![Part::ToolCall { call_id: "call_0".parse().unwrap(), name: "look".into(), arguments }])
}

/// Connects as this client and opens a session.
async fn joined(server: &Server, client_id: &str, open: Value) -> (Client, Value) {
    let mut client = Client::connect(&server.ws()).await;
    client.ask("hello", json!({ "protocolVersion": 2, "clientId": client_id })).await;
    let opened = client.ask("open_session", open).await;
    (client, opened)
}

#[tokio::test]
async fn one_connection_owns_and_another_takes_over_only_when_it_says_so() {
    let server = Server::start(talker(5), &[]).await;
    let (mut first, opened) = joined(&server, "tab-one", json!({ "tools": [look()] })).await;
    let session = opened["payload"]["sessionId"].clone();
    assert_eq!(opened["payload"]["role"], "owner");

    let (mut second, refused) = joined(&server, "tab-two", json!({ "sessionId": session })).await;
    assert_eq!(
        (&refused["payload"]["code"], &refused["payload"]["retriable"]),
        (&json!("session_owned"), &json!(false))
    );
    // Refused for another reason, it has changed nothing.
    let wrong = json!({ "sessionId": session, "takeover": true, "tools": [{ "name": "", "description": "", "parameters": {} }] });
    assert_eq!(second.ask("open_session", wrong).await["payload"]["code"], "invalid_tools");
    assert_eq!(first.turn("Are you mine?").await["status"], "completed");

    let taken = second.ask("open_session", json!({ "sessionId": session, "takeover": true })).await;
    assert_eq!((&taken["type"], &taken["payload"]["role"]), (&json!("session_opened"), &json!("owner")));
    assert_eq!(first.event("role_changed").await["payload"], json!({ "role": "observer" }));
    assert_eq!(second.turn("And now?").await["status"], "completed");
    first.event("turn_finished").await;
    let refused = first.ask("user_input", json!({ "input": "And I?" })).await;
    assert_eq!(refused["payload"]["code"], "read_only", "it observes from now on: {refused}");
    assert!(!second.seen.iter().any(|frame| frame["type"] == "role_changed"), "told to one client");

    // The same client replaces its own connection without asking for a takeover, and keeps its tools.
    second.ask("register_tools", json!({ "tools": [look()] })).await;
    let (mut third, replaced) = joined(&server, "tab-two", json!({ "sessionId": session })).await;
    assert_eq!(replaced["payload"]["role"], "owner", "{replaced}");
    assert_eq!(second.event("role_changed").await["payload"], json!({ "role": "observer" }));
    let context = third.ask("get_context", json!({})).await;
    assert_eq!(context["payload"]["envelope"]["tools"].as_array().map(Vec::len), Some(1), "{context}");
}

#[tokio::test]
async fn observers_see_what_the_owner_sees_and_write_nothing() {
    let (model, gate) = (Scripted::new(), Gate::new());
    model.push(Reply::text("A long answer").in_pieces(2).held_by(&gate));
    let server = Server::start(model, &[]).await;
    let mut owner = Folder::new("owner-0000000000", json!({}));
    owner.connect(&server.ws()).await;
    while owner.fold.session.is_empty() {
        owner.step().await.unwrap();
    }
    let session = json!(owner.fold.session);
    let mut watch = Folder::new("watch-0000000000", json!({ "role": "observer", "sessionId": session }));
    watch.connect(&server.ws()).await;
    while watch.fold.session.is_empty() {
        watch.step().await.unwrap();
    }
    owner.command("user_input", json!({ "input": "Tell me." })).await;
    while watch.step().await.unwrap()["type"] != "item_delta" {}

    let mut client = Client::v2(&server.ws()).await;
    client.ask("open_session", json!({ "sessionId": session, "role": "observer" })).await;
    let writes = [
        ("user_input", json!({ "input": "Me too." })),
        ("cancel_turn", json!({})),
        ("retry_turn", json!({})),
        ("tool_result", json!({ "toolCallId": "c", "output": "" })),
        ("call_progress", json!({ "toolCallId": "c" })),
        ("start_compaction", json!({})),
        ("cancel_compaction", json!({})),
        ("set_context_strategy", json!({ "strategy": "manual" })),
        ("set_model", json!({ "model": "test" })),
        ("set_instructions", json!({ "instructions": "" })),
        ("set_options", json!({})),
        ("register_tools", json!({ "tools": [] })),
        ("rename_session", json!({ "name": "mine" })),
        ("rename_session", json!({ "sessionId": session, "name": "mine" })),
        ("delete_session", json!({ "sessionId": session })),
    ];
    for (kind, payload) in writes {
        let refused = client.ask(kind, payload).await;
        assert_eq!((&refused["type"], &refused["payload"]["code"]), (&json!("error"), &json!("read_only")), "{kind}");
    }
    let reads = [
        ("get_context_info", "context_info"),
        ("get_context", "context"),
        ("get_entries", "entries"),
        ("list_sessions", "sessions"),
        ("ping", "pong"),
    ];
    for (kind, reply) in reads {
        assert_eq!(client.ask(kind, json!({})).await["type"], reply);
    }
    gate.open();
    while owner.fold.count("turn_finished") == 0 {
        owner.step().await.unwrap();
    }
    watch.reach(owner.fold.seq).await;
    assert_eq!(watch.fold, owner.fold);
}

#[tokio::test]
async fn what_runs_waits_and_is_called_lives_on_without_its_owner() {
    let (model, gate) = (Scripted::new(), Gate::new());
    model.push(call());
    model.push(Reply::text("It is blue.").held_by(&gate));
    model.push(Reply::text("You are welcome."));
    let server = Server::start(model.clone(), &[]).await;
    let (mut first, opened) = joined(&server, "tab-one", json!({ "tools": [look()] })).await;
    let (session, epoch) = (opened["payload"]["sessionId"].clone(), opened["payload"]["epoch"].clone());
    first.ask("user_input", json!({ "input": "How is the sea?" })).await;
    let called = first.event("tool_call").await["payload"].clone();
    first.ask("user_input", json!({ "input": "Thank you." })).await;
    let seq = first.seen.iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap();
    first.hang_up();

    // The call is delivered again, to a client that resumes and to one that starts anew; waiting calls still wait.
    for resume in [json!({ "epoch": epoch, "seq": seq }), json!({ "epoch": "another", "seq": seq })] {
        let open = json!({ "sessionId": session, "resume": resume, "tools": [look()] });
        let (client, back) = joined(&server, "tab-one", open).await;
        let back = &back["payload"];
        assert_eq!((&back["state"], back["queue"].as_array().map(Vec::len)), (&json!("running"), Some(1)), "{back}");
        let pending = &back["pending"][0];
        for field in ["toolCallId", "turnId", "name", "arguments", "deadline"] {
            assert_eq!(*present(&pending[field]), called[field], "{back}");
        }
        client.hang_up();
    }
    let open = json!({ "sessionId": session, "resume": { "epoch": epoch, "seq": seq }, "tools": [look()] });
    let (mut last, _) = joined(&server, "tab-one", open).await;
    let result = json!({ "toolCallId": called["toolCallId"], "output": "blue" });
    assert_eq!(last.ask("tool_result", result).await["type"], "ok");
    last.hang_up();
    gate.open();
    model.wait_for_requests(3).await;
    let (mut watch, _) = joined(&server, "watcher", json!({ "sessionId": session, "role": "observer" })).await;
    loop {
        let entries = watch.ask("get_entries", json!({})).await["payload"]["items"].clone();
        let said: Vec<&Value> = entries.as_array().unwrap().iter().map(|entry| &entry["content"][0]["text"]).collect();
        if said.last() == Some(&&json!("You are welcome.")) {
            assert_eq!(entries.as_array().unwrap().len(), 6, "question, call, result, answer, question, answer");
            break;
        }
    }
}

#[tokio::test]
async fn a_turn_that_may_not_go_on_alone_is_cancelled_when_its_client_leaves_and_the_queue_waits_for_the_next() {
    let (model, never) = (Scripted::new(), Gate::new());
    model.push(Reply::text("As far as it was shown").in_pieces(2).held_by(&never));
    model.push(Reply::text("Here I am."));
    let server = Server::start(model.clone(), &[("DETACHED_TURN_SECS", "0")]).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    client.ask("user_input", json!({ "input": "Tell me." })).await;
    client.event("item_delta").await;
    client.ask("user_input", json!({ "input": "Are you there?" })).await;
    client.hang_up();
    model.wait_for_dropped(1).await;
    assert_eq!(model.requests().len(), 1, "what waits is not asked while nobody is here");

    let mut client = Client::v2(&server.ws()).await;
    let back = client.ask("open_session", json!({ "sessionId": opened["sessionId"] })).await["payload"].clone();
    let ended = &back["unansweredTurns"][0];
    assert_eq!((&ended["status"], ended.get("error")), (&json!("cancelled"), None), "{back}");
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    let entries = client.ask("get_entries", json!({})).await["payload"]["items"].clone();
    assert_eq!(entries[1]["incomplete"], true, "what was shown is kept: {entries}");
    assert_eq!(entries[3]["content"][0]["text"], "Here I am.", "{entries}");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_nobody_waits_for_ends_in_time_and_what_waits_goes_on_when_someone_is_back() {
    let time = StoppedTime::new();
    let (model, never) = (Scripted::new(), Gate::new());
    model.push(Reply::text("As far as it was shown").in_pieces(2).held_by(&never));
    model.push(Reply::text("Here I am."));
    let server = Server::start(model.clone(), &[("DETACHED_TURN_SECS", "60"), ("HEARTBEAT_SECS", "3600")]).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    client.ask("user_input", json!({ "input": "Tell me." })).await;
    client.ask("user_input", json!({ "input": "Are you there?" })).await;
    client.event("item_delta").await;
    client.hang_up();
    // While a request is answered, the server notices what has happened.
    http::get(&server.address(), "/healthz").await;
    let mut waited = 0;
    while !tokio::select! { biased; () = model.wait_for_dropped(1) => true, () = std::future::ready(()) => false } {
        assert!(waited < 62, "the turn goes on after {waited} s");
        time.pass(1).await;
        waited += 1;
        http::get(&server.address(), "/healthz").await;
    }
    assert!(waited >= 60, "the turn ended after {waited} s");
    assert_eq!(model.requests().len(), 1, "what waits is not asked while nobody is here");

    let mut client = Client::v2(&server.ws()).await;
    let open = json!({ "sessionId": opened["sessionId"] });
    let back = client.ask("open_session", open).await["payload"].clone();
    // What nobody waited for was cancelled, and can be retried like any cancelled turn.
    let ended: Vec<&Value> = back["unansweredTurns"].as_array().unwrap().iter().map(|turn| &turn["status"]).collect();
    assert_eq!(ended, ["cancelled"], "{back}");
    let entries = back["entries"].as_array().unwrap();
    assert_eq!((&entries[1]["incomplete"], &entries[1]["content"][0]["text"]), (&json!(true), &json!("As far as i")));
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    let entries = client.ask("get_entries", json!({})).await["payload"]["items"].clone();
    assert_eq!(entries[3]["content"][0]["text"], "Here I am.", "{entries}");
}
