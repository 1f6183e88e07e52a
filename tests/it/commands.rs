//! The table of commands and what the server does: where each command is carried out, who may send it, and which are
//! executed once per `id`. Every test goes through all rows of the table.

use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{
    client::Client,
    server::Server,
    talk::{facts, summary, text_of, words},
};
use reseed::{
    config::LimitSettings,
    core::{
        agent_loop::{Deployment, Origin},
        context::windows::Windows,
        model::{ModelRequest, Purpose},
    },
    hooks::Hooks,
    internals::{
        Attach, ConnectionShare, Faulty, Identity, Outbox, Outgoing, REPLIES_MAX, Registry, RegistryOptions,
        SystemClock,
    },
    store::{SessionStore, memory::MemoryStore},
    tools::Toolset,
};
use reseed_protocol::{
    ErrorCode, Part,
    command::{Address, Command, Does, Routed, Scope, Sender, Spec},
    frame::parse_v2,
    reply,
    session::SessionRole,
};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

/// The time until a session without connections ends its turn; no test reaches it.
const DETACHED_TURN: Duration = Duration::from_secs(600);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// The payload of a command's example.
pub(crate) fn example(name: &str) -> Value {
    let file = root().join(format!("protocol/examples/v2/commands/{name}.json"));
    let mut frame: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let payload = frame["payload"].take();
    if payload.is_null() { json!({}) } else { payload }
}

async fn connect(server: &Server, payload: Value) -> Client {
    let mut client = Client::v2(&server.ws()).await;
    let opened = client.ask("open_session", payload).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    client
}

#[tokio::test]
async fn a_session_carries_out_its_own_commands_and_no_others() {
    let store = Arc::new(Faulty::new(MemoryStore::new()));
    let server = Server::over(Scripted::answering(|_| Reply::text("Noted.")), store.clone(), &[]).await;
    for Spec { name, scope, does, .. } in Command::TABLE {
        let mut client = connect(&server, json!({})).await;
        // The session is busy with the append of the input, so it handles no command until the store continues.
        let held = store.hold_appends().await;
        client.send("user_input", json!({ "input": "hello" })).await;
        // A new session would have to be written, and this one stopped before it is deleted.
        let payload = match *name {
            _ if *does == Does::Creates => json!({ "sessionId": client.session }),
            "delete_session" => json!({ "sessionId": "nowhere" }),
            _ => example(name),
        };
        let id = client.send(name, payload).await;
        let reply = |frame: &Value| frame["re"] == id.as_str();
        if matches!(scope, Scope::Session | Scope::Hosting) {
            client.ask("ping", json!({})).await;
            assert!(!client.seen.iter().any(reply), "`{name}` was answered without the session");
            drop(held);
            let reply = client.until(reply).await;
            let code = reply["payload"].get("code").and_then(Value::as_str);
            assert!(code != Some("internal"), "`{name}`: {reply}");
        } else {
            client.until(reply).await;
            drop(held);
        }
    }
}

#[tokio::test]
async fn only_commands_of_the_server_read_the_store() {
    let store = Arc::new(MemoryStore::new());
    let server = Server::over(Scripted::new(), store.clone(), &[]).await;
    let mut clients = Vec::new();
    for spec in Command::TABLE.iter().filter(|spec| matches!(spec.scope, Scope::Connection | Scope::Server)) {
        clients.push((spec, connect(&server, json!({})).await));
    }
    store.close().await.unwrap();
    for (spec, mut client) in clients {
        let reply = client.ask(spec.name, example(spec.name)).await;
        let failed = reply["payload"]["code"] == "store_failed";
        // Models are the deployment's.
        let reads = (spec.scope == Scope::Server && spec.name != "list_models") || spec.does == Does::Creates;
        assert_eq!(failed, reads, "`{}`: {reply}", spec.name);
    }
}

#[tokio::test]
async fn observers_are_refused_what_the_table_does_not_leave_to_anyone() {
    let server = Server::start(Scripted::answering(|_| Reply::text("Noted.")), &[]).await;
    let (mut owner, opened) = Client::v2_session(&server.ws()).await;
    owner.turn("hello").await;
    for Spec { name, sender, .. } in Command::TABLE {
        let observe = json!({ "sessionId": opened["sessionId"], "role": "observer" });
        let mut observer = connect(&server, observe).await;
        let reply = observer.ask(name, example(name)).await;
        let refused = reply["payload"]["code"] == "read_only";
        assert_eq!(refused, *sender != Sender::Anyone, "`{name}`: {reply}");
    }
    assert_eq!(owner.turn("still there?").await["status"], "completed");
}

#[tokio::test]
async fn a_session_refuses_its_writers_commands_from_another_connection() {
    let deployment =
        Deployment { model: "test".into(), windows: Windows::new(Some(8_000), Vec::new()), ..Deployment::default() };
    let registry = Registry::new(RegistryOptions {
        store: Arc::new(MemoryStore::new()),
        provider: Arc::new(Scripted::answering(|_| Reply::text("Noted."))),
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
    let attach = Attach {
        origin: Origin(1),
        role: SessionRole::Writer,
        tools: None,
        hooks: None,
        outgoing: outgoing.clone(),
        shared: ConnectionShare::new(identity),
        resume: None,
    };
    let _attached = handle.attach(attach).await.unwrap().unwrap();
    for spec in Command::TABLE {
        let frame = json!({ "type": spec.name, "payload": example(spec.name) });
        let command: Command = serde_json::from_value(frame).unwrap();
        let id = format!("command-of-another-{}", spec.name).parse().unwrap();
        match command.route() {
            Routed::Session(command) => handle.command(Origin(2), id, command, outgoing.clone()).await.unwrap(),
            Routed::Hosting(command) => handle.hosting(Origin(2), id, command, outgoing.clone()).await.unwrap(),
            Routed::Connection(_) | Routed::Server(_) => continue,
        }
        let Some(Outgoing::Reply(replied)) = incoming.recv().await else { panic!("`{}` has a reply", spec.name) };
        let code = match replied.reply {
            reply::Reply::Error(error) => Some(error.code),
            _ => None,
        };
        assert_eq!(code == Some(ErrorCode::ReadOnly), spec.sender == Sender::Writer, "`{}`: {code:?}", spec.name);
        let is_of_sessions = !matches!(code, Some(ErrorCode::Internal | ErrorCode::ReadOnly));
        assert!(
            spec.sender == Sender::Writer || is_of_sessions == matches!(spec.scope, Scope::Session | Scope::Hosting),
            "`{}`",
            spec.name
        );
    }
    registry.stop(Duration::ZERO).await;
}

#[test]
fn writing_commands_need_a_long_id_and_others_do_not() {
    for spec in Command::TABLE {
        let mut frame = json!({ "id": "1", "type": spec.name, "payload": example(spec.name) });
        if spec.address == Address::Required {
            frame["sessionId"] = json!("s");
        }
        let refused = match parse_v2(&frame.to_string()) {
            Ok(_) => false,
            Err(refused) => {
                assert_eq!(refused.error.code, ErrorCode::InvalidId, "`{}`", spec.name);
                true
            }
        };
        assert_eq!(refused, spec.does.writes() || spec.does == Does::Creates, "`{}`", spec.name);
    }
}

/// A session in which a command can be executed.
struct Scene {
    client: Client,
    session: String,
    /// Holds summaries, and the answer to "hold".
    gate: Gate,
}

impl Scene {
    async fn new(server: &Server, gate: &Mutex<Gate>) -> Self {
        let fresh = Gate::new();
        *gate.lock().unwrap() = fresh.clone();
        let mut client = Client::v2(&server.ws()).await;
        let tools = example("register_tools")["tools"].clone();
        let opened = client.ask("open_session", json!({ "tools": tools })).await;
        let session = opened["payload"]["sessionId"].as_str().unwrap().to_owned();
        let mut scene = Self { client, session, gate: fresh };
        for number in 0..3 {
            let finished = scene.client.turn(&format!("FACT {number}: {}", words(number, 200))).await;
            assert_eq!(finished["status"], "completed", "{finished}");
        }
        scene
    }

    async fn ok(&mut self, name: &str, payload: Value) -> Value {
        let reply = self.client.ask(name, payload).await;
        assert_eq!(reply["type"], "ok", "{name}: {reply}");
        reply["payload"].clone()
    }

    /// Begins a turn that waits for the model.
    async fn hold(&mut self) {
        let accepted = self.client.ask("user_input", json!({ "input": "hold" })).await;
        assert_eq!(accepted["payload"]["queued"], false, "{accepted}");
    }

    /// Returns the payload with which a command is executed, after creating what it needs. Most commands need an entry
    /// at most, and are executed with their example.
    async fn prepare(&mut self, name: &str) -> Value {
        let entries = self.client.ask("get_entries", json!({})).await["payload"]["items"].clone();
        let entry = entries[0]["entryId"].clone();
        match name {
            "edit_queue" => {
                self.hold().await;
                let waiting = self.client.send("user_input", json!({ "input": "and then?" })).await;
                self.client.until(|frame| frame["re"] == waiting.as_str()).await;
                json!({ "remove": [waiting] })
            }
            "cancel_turn" => {
                self.hold().await;
                json!({})
            }
            "retry_turn" => {
                self.hold().await;
                self.ok("cancel_turn", json!({})).await;
                self.client.event("turn_finished").await;
                json!({})
            }
            "tool_result" => {
                self.client.ask("user_input", json!({ "input": "use the tool" })).await;
                let call = self.client.event("tool_call").await["payload"]["toolCallId"].clone();
                json!({ "toolCallId": call, "output": "done" })
            }
            "cancel_compaction" => {
                self.ok("start_compaction", json!({})).await;
                json!({})
            }
            "undo_compaction" => {
                self.gate.open();
                self.ok("start_compaction", json!({})).await;
                self.client.event("context_compacted").await;
                json!({})
            }
            "preview_compaction" => {
                self.gate.open();
                json!({})
            }
            "unpin_entry" => {
                self.ok("pin_entry", json!({ "entryId": entry })).await;
                json!({ "entryId": entry })
            }
            _ => {
                let mut payload = example(name);
                if payload.get("entryId").is_some() {
                    payload["entryId"] = entry;
                }
                payload
            }
        }
    }
}

/// Commands that only a tool's question makes possible: the tests of approvals send them.
const NEEDS_A_QUESTION: [&str; 2] = ["approval_response", "withdraw_approval"];

/// A payload of the command that differs from those of [`Scene::prepare`].
fn other(name: &str) -> Value {
    let mut payload = example(name);
    let field = match name {
        "cancel_turn" | "retry_turn" => "turnId",
        "cancel_compaction" => "jobId",
        "undo_compaction" | "unpin_entry" | "pin_entry" | "navigate" | "fork_session" | "set_label" => "entryId",
        "edit_queue" => return json!({ "order": [] }),
        "set_options" => return json!({ "temperature": 2 }),
        "set_tools" => return json!({ "off": ["other"] }),
        "tool_result" => "output",
        _ => {
            let texts = payload.as_object().unwrap().iter().filter(|(_, value)| value.is_string());
            let field = texts.map(|(field, _)| field.clone()).next();
            let field = field.unwrap_or_else(|| panic!("`{name}`: say how another payload differs"));
            payload[field] = json!("other");
            return payload;
        }
    };
    payload[field] = json!("other");
    payload
}

fn script(gate: Arc<Mutex<Gate>>) -> impl FnMut(&ModelRequest) -> Reply + Send {
    move |request| {
        let last = request.messages().last().and_then(|last| last.message.content.last().cloned());
        let gate = gate.lock().unwrap().clone();
        match (request.purpose, last) {
            (Purpose::Summary, _) => Reply::text(summary(&facts(&text_of(request)))).held_by(&gate),
            (_, Some(Part::Text { text })) if text == "hold" => Reply::text("At last.").held_by(&gate),
            (_, Some(Part::Text { text })) if text == "use the tool" => {
                let tool = request.envelope.tools[0].name.clone();
                let arguments = r#"{"place":"Heligoland"}"#.to_owned();
                Reply::parts(vec![Part::ToolCall { call_id: "call".parse().unwrap(), name: tool, arguments }])
            }
            _ => Reply::text("Noted."),
        }
    }
}

#[tokio::test]
async fn a_writing_command_is_remembered_by_its_id_and_no_other_is() {
    let gate = Arc::new(Mutex::new(Gate::new()));
    let model = Scripted::answering(script(gate.clone()));
    let store = Arc::new(MemoryStore::new());
    let settings = [("CONTEXT_WINDOW", "8000"), ("CONTEXT_STRATEGY", "manual"), ("strategy.userShare", "0")];
    let server = Server::over(model, store.clone(), &settings).await;
    for spec in Command::TABLE {
        let name = spec.name;
        let mut scene = Scene::new(&server, &gate).await;
        let payload = scene.prepare(name).await;
        let id = scene.client.send(name, payload.clone()).await;
        let first = scene.client.until(|frame| frame["re"] == id.as_str()).await;
        if spec.does.writes() && !NEEDS_A_QUESTION.contains(&name) {
            assert_eq!(first["type"], spec.reply, "`{name}`: {first}");
        }
        let mark = store.command(&scene.session.parse().unwrap(), &id).await.unwrap();
        // Nothing asks in this test, so such a command is refused, and a refusal is not remembered.
        let is_done_once = spec.does.writes() && !NEEDS_A_QUESTION.contains(&name);
        assert_eq!(mark.is_some(), is_done_once, "`{name}`: {first}");

        scene.client.send_as(&id, name, payload).await;
        let again = scene.client.until(|frame| frame["re"] == id.as_str()).await;
        assert_eq!(again["payload"]["duplicate"] == true, is_done_once, "`{name}`: {again}");
        if is_done_once {
            let mut plain = again.clone();
            plain["payload"].as_object_mut().unwrap().remove("duplicate");
            assert_eq!(plain, first, "`{name}`");
            scene.client.send_as(&id, name, other(name)).await;
            let another = scene.client.until(|frame| frame["re"] == id.as_str()).await;
            assert_eq!(another["payload"]["code"], "idempotency_conflict", "`{name}`: {another}");
        }
    }
}

#[tokio::test]
async fn what_only_previews_is_made_once_while_its_copies_wait() {
    let gate = Arc::new(Mutex::new(Gate::new()));
    let model = Scripted::answering(script(gate.clone()));
    let settings = [("CONTEXT_WINDOW", "8000"), ("CONTEXT_STRATEGY", "manual"), ("strategy.userShare", "0")];
    let server = Server::start(model, &settings).await;
    for spec in Command::TABLE.iter().filter(|spec| spec.does == Does::Previews) {
        let mut scene = Scene::new(&server, &gate).await;
        let id = scene.client.send(spec.name, json!({})).await;
        scene.client.send_as(&id, spec.name, json!({})).await;
        scene.client.ask("ping", json!({})).await;
        scene.gate.open();
        let reply = |frame: &Value| frame["re"] == id.as_str();
        let first = scene.client.until(reply).await;
        assert_eq!(first["type"], spec.reply, "{first}");
        assert_eq!(scene.client.until(reply).await, first);
    }
}
