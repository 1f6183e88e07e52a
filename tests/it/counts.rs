//! Counts over a restart: what was learned from the provider's reports is stored with the session.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, json::present, server::Server, talk::words};
use reseed::{
    config::LimitSettings,
    core::{
        agent_loop::{Deployment, Origin, check_offers},
        context::windows::Windows,
    },
    hooks::Hooks,
    internals::{
        Attach, ConnectionShare, Identity, Outbox, Outgoing, REPLIES_MAX, Registry, RegistryOptions, SystemClock,
    },
    pi,
    store::{memory::MemoryStore, sqlite::SqliteStore},
    tools::Toolset,
};
use reseed_protocol::{
    command::{Command, Routed},
    session::SessionRole,
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// The time until a session without connections ends its turn; no test reaches it.
const DETACHED_TURN: Duration = Duration::from_secs(600);

/// Returns a model that counts `percent` of what the server estimates.
fn counting(percent: u64) -> Scripted {
    let (mut asked, mut counted) = (0, 0);
    Scripted::answering(move |request| {
        asked += 1;
        // The sum of what was added so far, so that reports are consistent.
        counted = counted.max(request.envelope.meta.tokens * percent / 100);
        Reply::text(words(asked, 60)).usage(counted, 60 * percent / 100)
    })
}

async fn meta(client: &mut Client) -> Value {
    let context = client.ask("get_context", json!({})).await;
    let meta = &context["payload"]["envelope"]["meta"];
    assert!(meta["tokens"].as_u64().unwrap() > 0, "{context}");
    json!([meta, client.ask("get_context_info", json!({})).await["payload"]])
}

/// The commands, sent after six turns, that lead to a count which no report covers. Names of entries are their
/// positions.
type Case = (&'static str, Vec<(&'static str, Value)>);

#[tokio::test]
async fn a_count_that_no_report_holds_for_is_the_same_after_a_restart() {
    let table: [Case; 6] = [
        ("nothing", vec![]),
        ("a branch from the root", vec![("navigate", json!({ "entryId": "root", "position": "at" }))]),
        ("a branch from the second message", vec![("navigate", json!({ "entryId": 2, "position": "at" }))]),
        ("other instructions", vec![("set_instructions", json!({ "instructions": words(99, 300) }))]),
        (
            "another model that others have taught",
            vec![
                ("set_model", json!({ "model": "known" })),
                ("navigate", json!({ "entryId": "root", "position": "at" })),
            ],
        ),
        ("that model alone", vec![("set_model", json!({ "model": "known" }))]),
    ];
    for (name, commands) in table {
        let folder = tempfile::tempdir().unwrap();
        let open = || Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
        let server = Server::over(counting(160), open(), &[]).await;
        let (mut other, _) = Client::v2_session(&server.ws()).await;
        other.ask("set_model", json!({ "model": "known" })).await;
        let (mut client, opened) = Client::v2_session(&server.ws()).await;
        for number in 0..6 {
            client.turn(&words(number, 200)).await;
            other.turn(&words(100 + number, 150)).await;
        }
        let entries = client.ask("get_entries", json!({ "path": true })).await;
        for (command, mut payload) in commands {
            if let Some(place) = payload["entryId"].as_u64() {
                let place = usize::try_from(place).unwrap();
                payload["entryId"] = entries["payload"]["items"][place]["entryId"].clone();
            }
            let reply = client.ask(command, payload).await;
            assert_ne!(*present(&reply["type"]), "error", "{name}: {reply}");
        }
        let before = meta(&mut client).await;
        server.service.stop().await;
        drop(server);

        let server = Server::over(counting(160), open(), &[]).await;
        let mut client = Client::v2(&server.ws()).await;
        let reopened = client.ask("open_session", json!({ "sessionId": opened["sessionId"] })).await;
        assert_eq!(reopened["payload"]["contextInfo"], before[1], "{name}");
        assert_eq!(meta(&mut client).await, before, "{name}");
    }
}

#[tokio::test]
async fn by_pis_rules_a_reported_count_includes_the_system_prompt_and_the_tools_where_they_are() {
    let deployment = Deployment {
        model: "test".into(),
        strategy: "manual".into(),
        instructions: words(1, 1_500),
        counter_of: pi::estimate::counter,
        cut_rules: &pi::cut::Pi,
        windows: Windows::new(Some(100_000), Vec::new()),
        tool_rounds_max: 1,
        queue_items_max: 1,
        ..Deployment::default()
    };
    let registry = Registry::new(RegistryOptions {
        store: Arc::new(MemoryStore::new()),
        provider: Arc::new(Scripted::answering(|_| Reply::text("It is calm.").usage(3_000, 10))),
        clock: Arc::new(SystemClock),
        hooks: Hooks::default(),
        tools: Toolset::default(),
        deployment,
        limits: LimitSettings { sessions_open_max: 8, ..LimitSettings::default() },
        has_several_users: false,
        detached_turn: DETACHED_TURN,
        host_away: DETACHED_TURN,
        cluster: None,
    });
    let handle = registry.create("").await.unwrap();
    let (outgoing, mut incoming) = Outbox::new(REPLIES_MAX);
    let identity = Identity { connection_id: "connection".parse().unwrap(), client_id: None, software: None };
    let parameters = json!({ "type": "object", "properties": {} });
    let tools = json!([{ "name": "look", "description": words(2, 400), "parameters": parameters }]);
    let attach = Attach {
        origin: Origin(1),
        role: SessionRole::Writer,
        tools: Some(check_offers(serde_json::from_value(tools).unwrap()).unwrap()),
        hooks: None,
        outgoing: outgoing.clone(),
        shared: ConnectionShare::new(identity),
        resume: None,
    };
    let _attached = handle.attach(attach).await.unwrap().unwrap();
    let mut asked = 0;
    let mut ask = async |name: &str, payload: Value| {
        asked += 1;
        let command: Command = serde_json::from_value(json!({ "type": name, "payload": payload })).unwrap();
        let Routed::Session(command) = command.route() else { panic!("`{name}` is no command of a session") };
        let id = format!("command-number-{asked:06}").parse().unwrap();
        handle.command(Origin(1), id, command, outgoing.clone()).await.unwrap();
        loop {
            if let Outgoing::Reply(replied) = incoming.recv().await.expect("a reply") {
                break serde_json::to_value(&replied.reply).unwrap()["payload"].clone();
            }
        }
    };
    let before = ask("get_context", json!({})).await["envelope"]["meta"].clone();
    assert_eq!(before["tokens"], 0, "by pi's rules they are free: {before}");
    ask("user_input", json!({ "input": "How is the sea?" })).await;
    let after = loop {
        let meta = ask("get_context", json!({})).await["envelope"]["meta"].clone();
        if meta["tokens"] == 3_010 {
            break meta;
        }
        tokio::task::yield_now().await;
    };
    let sum = |kind: &str| after["parts"][kind].as_array().unwrap().iter().filter_map(Value::as_u64).sum::<u64>();
    assert!(sum("system") > 2_000 && sum("tools") > 500, "{after}");
    assert!(sum("cached") < 50, "a question and an answer of three words each: {after}");
    let info = ask("get_context_info", json!({})).await["breakdown"].clone();
    assert!(info["system"].as_u64().unwrap() > 2_000 && info["user"].as_u64().unwrap() < 50, "{info}");
    registry.stop(Duration::ZERO).await;
}
