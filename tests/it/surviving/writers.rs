//! Writers, observers and the host of a session: who may do what, what each sees, and what continues while they are
//! away.

use super::folder::Folder;
use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{
    client::Client, http, json::present, polling::PATIENCE, server::Server, talk::talker, time::StoppedTime,
};
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
async fn two_windows_write_at_once_and_see_one_order() {
    let server = Server::start(talker(5), &[]).await;
    let (mut first, opened) = joined(&server, "tab-one", json!({})).await;
    assert_eq!(opened["payload"]["role"], "writer");
    let session = opened["payload"]["sessionId"].clone();
    let (mut second, _) = joined(&server, "tab-two", json!({ "sessionId": session })).await;
    // Both send before either reads.
    for at in 0..4 {
        first.send("user_input", json!({ "input": format!("first {at}") })).await;
        second.send("user_input", json!({ "input": format!("second {at}") })).await;
    }
    let mut orders = Vec::new();
    for client in [&mut first, &mut second] {
        let mut order = Vec::new();
        while order.len() < 8 {
            let started = client.event("turn_started").await["payload"].clone();
            order.extend(started["commandIds"].as_array().unwrap().clone());
        }
        for _ in 0..4 {
            client.until(|frame| frame["type"] == "accepted").await;
        }
        orders.push(order);
    }
    assert_eq!(orders[0], orders[1]);
    // Each of them sends its own in order.
    for client in [&first, &second] {
        let own: Vec<&Value> =
            client.seen.iter().filter(|frame| frame["type"] == "accepted").map(|f| &f["re"]).collect();
        let seen: Vec<&Value> = orders[0].iter().filter(|id| own.contains(id)).collect();
        assert_eq!(own, seen);
    }
}

#[tokio::test]
async fn the_first_offer_hosts_and_the_role_is_taken_over_without_closing_anything() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let (mut first, opened) = joined(&server, "tab-one", json!({ "tools": [look()] })).await;
    let opened = opened["payload"].clone();
    let session = opened["sessionId"].clone();
    assert_eq!(opened["host"]["clientId"], "tab-one", "{opened}");
    let (mut second, joining) = joined(&server, "tab-two", json!({ "sessionId": session })).await;
    let joining = joining["payload"].clone();
    assert_eq!(*present(&joining["host"]), opened["host"]);
    let ids = |presence: &Value| -> Vec<Value> {
        presence.as_array().unwrap().iter().map(|one| json!([one["clientId"], one["offers"]])).collect()
    };
    assert_eq!(ids(&joining["presence"]), [json!(["tab-one", true]), json!(["tab-two", null])], "{joining}");
    let came = first.event("presence_changed").await["payload"]["connection"].clone();
    assert_eq!(came, *present(&joining["presence"][1]));

    assert_eq!(second.ask("take_over_host", json!({})).await["payload"]["code"], "nothing_offered");
    let offered = second.ask("register_tools", json!({ "tools": [look()] })).await;
    assert_eq!((&offered["type"], &offered["payload"]["standby"]), (&json!("ok"), &json!(true)));
    assert_eq!(first.event("presence_changed").await["payload"]["connection"]["offers"], true);

    // The call is durable for everyone, and run by the host alone.
    model.push(call());
    model.push(Reply::text("It is blue."));
    second.ask("user_input", json!({ "input": "How is the sea?" })).await;
    let called = second.event("tool_call").await["payload"].clone();
    let run = first.event("run_tool").await["payload"].clone();
    assert_eq!(run, json!({ "toolCallId": called["toolCallId"] }));
    let before = first.seen.iter().position(|frame| frame["type"] == "run_tool").unwrap();
    assert!(first.seen[..before].iter().any(|frame| frame["type"] == "tool_call"), "after the event that it names");

    assert_eq!(second.ask("take_over_host", json!({})).await["type"], "ok");
    let host = second.event("host_changed").await["payload"]["host"].clone();
    assert_eq!(
        (&host["clientId"], present(&first.event("host_changed").await["payload"]["host"])),
        (&json!("tab-two"), &host)
    );
    // The first host was asked to run it, and a second run could do harm. Its result is accepted.
    let result = json!({ "toolCallId": called["toolCallId"], "output": "blue" });
    assert_eq!(first.ask("tool_result", result).await["type"], "ok");
    assert_eq!(second.event("turn_finished").await["payload"]["status"], "completed");
    assert!(second.seen.iter().all(|frame| frame["type"] != "run_tool"), "{:?}", second.seen);

    // The former host is on standby: it hosts again once the new one has closed the session.
    second.ask("close_session", json!({})).await;
    let left = first.until(|frame| frame["payload"]["left"] == true).await;
    assert_eq!(left["payload"]["connection"]["clientId"], "tab-two");
    let hosts: Value = first.until(|frame| frame["payload"]["host"]["clientId"] == "tab-one").await;
    assert_eq!(hosts["payload"]["host"].get("away"), None, "{hosts}");
    model.push(call());
    model.push(Reply::text("Still blue."));
    first.ask("user_input", json!({ "input": "And now?" })).await;
    first.event("run_tool").await;
}

#[tokio::test]
async fn open_calls_go_to_a_new_host_unless_they_were_started_and_may_not_run_twice() {
    for idempotent in [true, false] {
        let model = Scripted::new();
        let server = Server::start(model.clone(), &[]).await;
        let mut tool = look();
        tool["idempotent"] = json!(idempotent);
        let (mut first, opened) = joined(&server, "tab-one", json!({ "tools": [tool] })).await;
        let session = opened["payload"]["sessionId"].clone();
        let (mut second, _) = joined(&server, "tab-two", json!({ "sessionId": session, "tools": [tool] })).await;
        model.push(call());
        first.ask("user_input", json!({ "input": "How is the sea?" })).await;
        let run = first.event("run_tool").await["payload"].clone();
        second.ask("take_over_host", json!({})).await;
        // A reply to a later command comes after whatever the takeover caused.
        second.ask("get_context_info", json!({})).await;
        second.ask("get_context_info", json!({})).await;
        let asked: Vec<&Value> =
            second.seen.iter().filter(|frame| frame["type"] == "run_tool").map(|frame| &frame["payload"]).collect();
        assert_eq!(asked, if idempotent { vec![&run] } else { Vec::new() });
        // The client that was asked first is asked again when it is back as the host.
        second.ask("register_tools", json!({ "tools": [] })).await;
        first.hang_up();
        let (mut back, _) = joined(&server, "tab-one", json!({ "sessionId": session, "tools": [tool] })).await;
        let again = back.event("run_tool").await["payload"].clone();
        assert_eq!(again, json!({ "toolCallId": run["toolCallId"], "again": true }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_stays_away_is_replaced_and_one_that_comes_back_is_not() {
    let time = StoppedTime::new();
    let settings = [("HOST_AWAY_SECS", "30"), ("HEARTBEAT_SECS", "3600")];
    let server = Server::start(Scripted::new(), &settings).await;
    let (first, opened) = joined(&server, "tab-one", json!({ "tools": [look()] })).await;
    let session = opened["payload"]["sessionId"].clone();
    let (mut second, _) = joined(&server, "tab-two", json!({ "sessionId": session, "tools": [look()] })).await;
    first.hang_up();
    let away = second.event("host_changed").await["payload"]["host"].clone();
    assert_eq!((&away["clientId"], &away["away"]), (&json!("tab-one"), &json!(true)));
    time.pass(20).await;
    // Back under its name it hosts, with what it offered before.
    let (back, opened) = joined(&server, "tab-one", json!({ "sessionId": session })).await;
    let own = &opened["payload"]["presence"][1]["connectionId"];
    assert_eq!(present(&opened["payload"]["host"]["connectionId"]), own, "{opened}");
    assert_eq!(second.event("host_changed").await["payload"]["host"].get("away"), None);
    back.hang_up();
    assert_eq!(second.event("host_changed").await["payload"]["host"]["away"], true);
    for _ in 0..31 {
        assert!(
            second.seen.iter().all(|frame| frame["payload"]["host"]["clientId"] != "tab-two"),
            "it is given its time"
        );
        time.pass(1).await;
        http::get(&server.address(), "/healthz").await;
    }
    assert_eq!(second.event("host_changed").await["payload"]["host"]["clientId"], "tab-two");
}

#[tokio::test]
async fn what_nobody_hosts_is_withdrawn_while_others_use_the_session() {
    let server = Server::start(talker(5), &[("HOST_AWAY_SECS", "0")]).await;
    let (first, opened) = joined(&server, "tab-one", json!({ "tools": [look()] })).await;
    let session = opened["payload"]["sessionId"].clone();
    let tools = async |client: &mut Client| {
        let context = client.ask("get_context", json!({})).await;
        context["payload"]["envelope"]["tools"].as_array().map_or(0, Vec::len)
    };
    // Nobody else could use it, and it may come back. An observer keeps the session in memory.
    let watching = json!({ "sessionId": session, "role": "observer" });
    let (mut observer, _) = joined(&server, "watcher", watching).await;
    first.hang_up();
    observer.until(|frame| frame["payload"]["left"] == true).await;
    assert_eq!(tools(&mut observer).await, 1);
    let (mut back, opened) = joined(&server, "tab-one", json!({ "sessionId": session })).await;
    assert_eq!(opened["payload"]["host"]["clientId"], "tab-one", "{opened}");
    assert_eq!(tools(&mut back).await, 1, "{opened}");
    back.ask("register_tools", json!({ "tools": [look()] })).await;
    let (mut second, _) = joined(&server, "tab-two", json!({ "sessionId": session })).await;
    assert_eq!(tools(&mut second).await, 1);
    back.hang_up();
    let vacant = second.until(|frame| frame["type"] == "host_changed" && frame["payload"].get("host").is_none()).await;
    assert_eq!(vacant["payload"], json!({}));
    assert_eq!(tools(&mut second).await, 0);
}

#[tokio::test]
async fn a_client_that_comes_back_hosts_in_place_of_its_older_connection() {
    let server = Server::start(talker(5), &[]).await;
    let (mut first, opened) = joined(&server, "tab-one", json!({ "tools": [look()] })).await;
    let session = opened["payload"]["sessionId"].clone();
    // Wrong offers change nothing.
    let (mut other, _) = joined(&server, "tab-two", json!({ "sessionId": session })).await;
    let wrong = json!({ "tools": [{ "name": "", "description": "", "parameters": {} }] });
    assert_eq!(other.ask("register_tools", wrong).await["payload"]["code"], "invalid_tools");
    let wrong = json!({ "hooks": [{ "point": "message", "timeoutMs": 0 }] });
    assert_eq!(first.ask("register_hooks", wrong).await["payload"]["code"], "invalid_hooks");

    let (mut second, opened) = joined(&server, "tab-one", json!({ "sessionId": session })).await;
    let own = opened["payload"]["presence"].as_array().unwrap().last().unwrap()["connectionId"].clone();
    assert_eq!(*present(&opened["payload"]["host"]["connectionId"]), own, "{opened}");
    assert_eq!(*present(&first.event("host_changed").await["payload"]["host"]["connectionId"]), own);
    let context = second.ask("get_context", json!({})).await;
    assert_eq!(context["payload"]["envelope"]["tools"].as_array().map(Vec::len), Some(1), "{context}");
    // The older connection is still subscribed, and writes.
    assert_eq!(first.turn("Am I still here?").await["status"], "completed");
}

#[tokio::test]
async fn observers_see_what_writers_see_and_write_nothing() {
    let (model, gate) = (Scripted::new(), Gate::new());
    model.push(Reply::text("A long answer").in_pieces(2).held_by(&gate));
    let server = Server::start(model, &[]).await;
    let mut owner = Folder::new("owner-0000000000", json!({}));
    owner.connect(&server.ws()).await;
    owner.opened().await;
    let session = json!(owner.fold.session);
    let mut watch = Folder::new("watch-0000000000", json!({ "role": "observer", "sessionId": session }));
    watch.connect(&server.ws()).await;
    watch.opened().await;
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
    for client in [&mut owner, &mut watch] {
        client.settled(&[]).await;
    }
}

#[tokio::test]
async fn what_runs_waits_and_is_called_lives_on_without_its_client() {
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

    // The call is delivered again, to a client that resumes and to one that starts anew. Waiting calls still wait.
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
    // While the request is answered, the server notices what has happened.
    http::get(&server.address(), "/healthz").await;
    let (mut waited, began) = (0, std::time::Instant::now());
    while !tokio::select! { biased; () = model.wait_for_dropped(1) => true, () = std::future::ready(()) => false } {
        // Sockets take as long as the machine does, and the time of the test stands still meanwhile.
        assert!(began.elapsed() < PATIENCE, "the turn goes on after {waited} s");
        if waited < 120 {
            time.pass(1).await;
            waited += 1;
        }
        http::get(&server.address(), "/healthz").await;
    }
    assert!(waited >= 60, "the turn ended after {waited} s");
    assert_eq!(model.requests().len(), 1, "what waits is not asked while nobody is here");

    let mut client = Client::v2(&server.ws()).await;
    let open = json!({ "sessionId": opened["sessionId"] });
    let back = client.ask("open_session", open).await["payload"].clone();
    // Turns that nobody waited for were cancelled, and can be retried like any cancelled turn.
    let ended: Vec<&Value> = back["unansweredTurns"].as_array().unwrap().iter().map(|turn| &turn["status"]).collect();
    assert_eq!(ended, ["cancelled"], "{back}");
    let entries = back["entries"].as_array().unwrap();
    assert_eq!((&entries[1]["incomplete"], &entries[1]["content"][0]["text"]), (&json!(true), &json!("As far as i")));
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    let entries = client.ask("get_entries", json!({})).await["payload"]["items"].clone();
    assert_eq!(entries[3]["content"][0]["text"], "Here I am.", "{entries}");
}

#[tokio::test]
async fn a_host_that_closes_and_opens_the_session_again_is_asked_again() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let (mut client, opened) = joined(&server, "tab-one", json!({ "tools": [look()] })).await;
    let session = opened["payload"]["sessionId"].clone();
    let watching = json!({ "sessionId": session, "role": "observer" });
    let (mut observer, _) = joined(&server, "watcher", watching).await;
    model.push(call());
    model.push(Reply::text("It is blue."));
    client.ask("user_input", json!({ "input": "How is the sea?" })).await;
    let run = client.event("run_tool").await["payload"].clone();
    client.ask("close_session", json!({})).await;
    let again = client.ask("open_session", json!({ "sessionId": session, "tools": [look()] })).await;
    let host = again["payload"]["host"].clone();
    assert_eq!((&host["clientId"], host.get("away")), (&json!("tab-one"), None), "{again}");
    let asked = client.event("run_tool").await["payload"].clone();
    assert_eq!(asked, json!({ "toolCallId": run["toolCallId"], "again": true }));
    // Others see it as it was: it left, and came with its offer.
    observer.until(|frame| frame["payload"]["left"] == true).await;
    let back = observer.event("presence_changed").await["payload"].clone();
    assert_eq!((back.get("left"), &back["connection"]["offers"]), (None, &json!(true)), "{back}");
    let (_second, _) = joined(&server, "tab-two", json!({ "sessionId": session })).await;
    client.ask("tool_result", json!({ "toolCallId": run["toolCallId"], "output": "blue" })).await;
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    assert!(client.seen.iter().all(|frame| frame["payload"].get("host").is_none_or(|host| host.get("away").is_none())));
}

#[tokio::test]
async fn replies_about_hosting_precede_what_they_cause() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let (mut first, opened) = joined(&server, "tab-one", json!({ "tools": [look()] })).await;
    let session = opened["payload"]["sessionId"].clone();
    let mut idempotent = look();
    idempotent["idempotent"] = json!(true);
    let (mut second, _) = joined(&server, "tab-two", json!({ "sessionId": session, "tools": [idempotent] })).await;
    model.push(call());
    first.ask("user_input", json!({ "input": "How is the sea?" })).await;
    first.event("run_tool").await;
    let id = second.send("take_over_host", json!({})).await;
    second.event("run_tool").await;
    second.event("host_changed").await;
    let at = |is: &dyn Fn(&Value) -> bool| second.seen.iter().rposition(is).unwrap();
    let reply = at(&|frame| frame["re"] == id.as_str());
    assert!(reply < at(&|frame| frame["type"] == "run_tool"), "{:?}", second.seen);
    assert!(reply < at(&|frame| frame["type"] == "host_changed"), "{:?}", second.seen);
}
