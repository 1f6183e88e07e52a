//! The list of sessions, and watching it: `list_sessions { watch }` and `session_changed`.

use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{
    client::Client,
    json::{number, whole},
    server::Server,
    talk::{talker, words},
    time::StoppedTime,
};
use serde_json::{Value, json};

async fn list(client: &mut Client, payload: Value) -> Vec<Value> {
    let reply = client.ask("list_sessions", payload).await;
    assert_eq!(reply["type"], "sessions", "{reply}");
    reply["payload"]["items"].as_array().unwrap().clone()
}

/// Connects a client that watches; its list is still empty.
async fn watcher(server: &Server) -> Client {
    let mut client = Client::v2(&server.ws()).await;
    assert_eq!(list(&mut client, json!({ "watch": true })).await, [json!(null); 0]);
    client
}

/// Waits until the watcher sees a session as `wanted`; changes are coalesced, so steps on the way may be left out.
async fn told(watcher: &mut Client, session: &Value, wanted: impl Fn(&Value) -> bool) -> Value {
    let of_it = |frame: &Value| frame["type"] == "session_changed" && frame["payload"]["sessionId"] == *session;
    let frame = watcher.until(|frame| of_it(frame) && wanted(&frame["payload"])).await;
    assert_eq!((frame.get("seq"), frame.get("re"), frame.get("sessionId")), (None, None, None), "{frame}");
    frame["payload"].clone()
}

#[tokio::test]
async fn a_watcher_is_told_of_every_change_that_a_list_shows() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = Scripted::answering(move |_| Reply::text(words(1, 5)).held_by(&held));
    let server = Server::start(model, &[]).await;
    let mut watcher = watcher(&server).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let id = &opened["sessionId"];
    let new = told(&mut watcher, id, |_| true).await;
    assert_eq!((&new["entries"], &new["state"], &new["name"]), (&json!(0), &json!("idle"), &json!("")));

    let accepted = client.ask("user_input", json!({ "input": "My ferry is called Aurora." })).await;
    assert_eq!(accepted["type"], "accepted");
    let running = told(&mut watcher, id, |item| item["state"] == "running").await;
    assert_eq!((&running["entries"], &running["name"]), (&json!(1), &json!("My ferry is called Aurora.")));
    let mut other = Client::v2(&server.ws()).await;
    assert_eq!(list(&mut other, json!({})).await[0]["state"], "running");
    gate.open();
    client.event("turn_finished").await;
    let idle = told(&mut watcher, id, |item| item["state"] == "idle" && item["entries"] == 2).await;
    assert!(whole(&idle["tokenCount"]) > 0 && number(&idle["usageRatio"]) > 0.0, "{idle}");
    assert_eq!(list(&mut other, json!({})).await, [idle], "what is told is what a list shows");

    client.ask("rename_session", json!({ "name": "Ferries" })).await;
    told(&mut watcher, id, |item| item["name"] == "Ferries").await;
    let leaf = client.ask("get_context_info", json!({})).await["payload"]["leafId"].clone();
    let forked = client.ask("fork_session", json!({ "entryId": leaf, "position": "at" })).await;
    let fork = told(&mut watcher, &forked["payload"]["sessionId"], |_| true).await;
    assert_eq!(fork["name"], "Ferries (fork)");
    let listed = list(&mut other, json!({ "search": "(fork)" })).await;
    assert_eq!(listed, [fork], "a fork is told of when it is whole");

    other.ask("delete_session", json!({ "sessionId": id })).await;
    let deleted = told(&mut watcher, id, |item| item["deleted"] == true).await;
    assert_eq!(deleted["name"], "Ferries");
    assert!(other.forget("session_changed").is_empty(), "who does not watch is told nothing");
    assert!(client.forget("session_changed").is_empty());
}

#[tokio::test]
async fn a_compaction_is_told_of_while_it_runs() {
    let gate = Gate::new();
    let held = gate.clone();
    let mut asked = 0;
    let model = Scripted::answering(move |request| {
        asked += 1;
        match request.purpose {
            reseed::core::model::Purpose::Turn => Reply::text(words(asked, 300)),
            reseed::core::model::Purpose::Summary => {
                Reply::text(crate::support::talk::summary(&["a fact"])).held_by(&held)
            }
        }
    });
    let server = Server::start(model, &[("CONTEXT_STRATEGY", "manual"), ("CONTEXT_WINDOW", "8000")]).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    for n in 0..5 {
        client.turn(&words(100 + n, 200)).await;
    }
    let mut watcher = Client::v2(&server.ws()).await;
    assert_eq!(list(&mut watcher, json!({ "watch": true })).await.len(), 1);
    let ordered = client.ask("start_compaction", json!({})).await;
    assert_eq!(ordered["type"], "ok", "{ordered}");
    let before = told(&mut watcher, &opened["sessionId"], |item| item["state"] == "compacting").await;
    gate.open();
    client.event("context_compacted").await;
    let after = told(&mut watcher, &opened["sessionId"], |item| item["state"] == "idle").await;
    assert!(whole(&after["tokenCount"]) < whole(&before["tokenCount"]), "{before} {after}");
}

#[tokio::test]
async fn watching_ends_when_it_is_told_to_and_a_refused_command_changes_nothing() {
    let server = Server::start(talker(2), &[]).await;
    let mut watcher = watcher(&server).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    told(&mut watcher, &opened["sessionId"], |_| true).await;
    for payload in [json!({ "watch": false, "limit": 0 }), json!({ "watch": false, "cursor": "none" })] {
        assert_eq!(watcher.ask("list_sessions", payload).await["payload"]["code"], "invalid_field");
    }
    client.turn("one").await;
    told(&mut watcher, &opened["sessionId"], |item| item["entries"] == 2 && item["state"] == "idle").await;
    list(&mut watcher, json!({})).await;
    client.turn("two").await;
    told(&mut watcher, &opened["sessionId"], |item| item["entries"] == 4 && item["state"] == "idle").await;
    list(&mut watcher, json!({ "watch": false })).await;
    watcher.forget("session_changed");
    client.turn("three").await;
    // This takes longer than changes may be held back, as the watcher's own answers show: another watcher has received
    // them.
    let mut second = Client::v2(&server.ws()).await;
    list(&mut second, json!({ "watch": true })).await;
    client.turn("four").await;
    told(&mut second, &opened["sessionId"], |item| item["entries"] == 8 && item["state"] == "idle").await;
    list(&mut watcher, json!({})).await;
    assert_eq!(watcher.forget("session_changed"), [json!(null); 0]);
}

#[tokio::test]
async fn nobody_is_told_of_anothers_sessions() {
    let tokens = [("AUTH_TOKENS", "ann:token-of-ann-0123456789,bob:token-of-bob-0123456789")];
    let server = Server::start(talker(2), &tokens).await;
    let mut clients = Vec::new();
    for token in ["token-of-ann-0123456789", "token-of-bob-0123456789", "token-of-bob-0123456789"] {
        let mut client = Client::connect(&server.ws()).await;
        client.ask("hello", json!({ "protocolVersion": 2, "token": token })).await;
        clients.push(client);
    }
    let [ann, bob, worker] = clients.as_mut_slice() else { unreachable!("three were made") };
    list(ann, json!({ "watch": true })).await;
    list(bob, json!({ "watch": true })).await;
    let opened = worker.ask("open_session", json!({})).await["payload"].clone();
    worker.turn("one").await;
    told(bob, &opened["sessionId"], |item| item["entries"] == 2 && item["state"] == "idle").await;
    list(ann, json!({})).await;
    assert_eq!(ann.forget("session_changed"), [json!(null); 0]);
}

/// Changes during a watcher's pause are sent when it ends, each session once.
#[tokio::test(start_paused = true)]
async fn changes_of_many_sessions_are_joined() {
    const SESSIONS: usize = 30;
    let time = StoppedTime::new();
    let server = Server::start(talker(2), &[]).await;
    let mut watcher = watcher(&server).await;
    let mut clients = Vec::new();
    for _ in 0..SESSIONS {
        clients.push(Client::v2_session(&server.ws()).await);
    }
    for round in 1..=4 {
        for (client, _) in &mut clients {
            client.send("user_input", json!({ "input": format!("round {round}") })).await;
        }
        for (client, _) in &mut clients {
            client.event("turn_finished").await;
        }
    }
    let is_done = |item: &Value| item["entries"] == 8 && item["state"] == "idle";
    let mut lister = Client::v2(&server.ws()).await;
    loop {
        let items = list(&mut lister, json!({ "limit": 200 })).await;
        assert_eq!(items.len(), SESSIONS);
        if items.iter().all(is_done) {
            break;
        }
    }
    time.pass(1).await;
    for (_, opened) in &clients {
        told(&mut watcher, &opened["sessionId"], is_done).await;
    }
    let events = watcher.seen.iter().filter(|frame| frame["type"] == "session_changed").count();
    // The first change comes at once, since nothing has been sent yet; then each session comes once, at the end of the
    // pause.
    assert!(events <= SESSIONS + 1, "{events} events");
}

/// A watcher that reads nothing while more sessions change than may wait for it is closed: it never gets a partial
/// list.
#[tokio::test]
async fn a_watcher_that_has_missed_changes_is_closed_and_lists_anew() {
    let server = Server::start(talker(2), &[("SLOW_READER_SECS", "3600")]).await;
    let mut watcher = watcher(&server).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let join = json!({ "sessionId": opened["sessionId"], "role": "observer" });
    assert_eq!(watcher.ask("open_session", join).await["type"], "session_opened");
    // This is more than the sockets buffer between them, so the watcher's connection waits for it to read.
    let large = "x".repeat(900_000);
    for n in 0..20 {
        client.ask("append_custom", json!({ "customType": format!("n{n}"), "data": large })).await;
    }
    let mut maker = Client::v2(&server.ws()).await;
    for _ in 0..1_100 {
        assert_eq!(maker.ask("open_session", json!({})).await["type"], "session_opened");
        assert_eq!(maker.ask("close_session", json!({})).await["type"], "ok");
    }
    let (code, reason) = watcher.closed_because().await;
    assert_eq!(code, 4504);
    assert!(reason.contains("too many sessions changed without being read; list them again"), "{reason}");
    let mut again = Client::v2(&server.ws()).await;
    assert_eq!(list(&mut again, json!({ "watch": true, "limit": 200 })).await.len(), 200);
}

#[tokio::test]
async fn the_models_are_listed_with_what_is_known_of_each_before_any_session() {
    let prices = ("MODEL_PRICES", "small=0.4/0.1/1.6, big=2/0.5/8/2.5");
    let windows = ("MODEL_WINDOWS", "small=32000, spare=9000");
    let price = |of: [u64; 4]| {
        let [input, cached, written, output] = of.map(|cents| cents * 10_000_000);
        json!({ "inputNanoUsd": input, "cachedNanoUsd": cached, "cacheWriteNanoUsd": written, "outputNanoUsd": output })
    };
    let small = json!({ "id": "small", "windowTokens": 32000, "price": price([40, 10, 40, 160]) });
    let big = json!({ "id": "big", "windowTokens": 8000, "price": price([200, 50, 250, 800]) });
    let spare = json!({ "id": "spare", "windowTokens": 9000 });
    for (allowed, items, others) in [("small,big,small", json!([small, big]), false), ("", json!([small, spare]), true)]
    {
        let settings = [("MODEL", "small"), ("CONTEXT_WINDOW", "8000"), ("MODELS_ALLOWED", allowed), prices, windows];
        let server = Server::start(Scripted::new(), &settings).await;
        let mut client = Client::v2(&server.ws()).await;
        let listed = client.ask("list_models", json!({})).await;
        assert_eq!(listed["type"], "models", "{listed}");
        assert_eq!(listed["payload"], json!({ "model": "small", "others": others, "items": items }));
    }
}
