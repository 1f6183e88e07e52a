//! Sessions in which a command can be followed by a given event, or refused with a given error.

use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{
    client::Client,
    server::Server,
    talk::{summary, words},
};
use reseed::core::model::{ModelRequest, Purpose};
use reseed_protocol::Part;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// The preparation of a session before a command is sent to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Before {
    /// Three turns; two connections have the session open.
    Talk,
    /// The connection has closed the session.
    Closed,
    /// The same, while a call waits for a client that runs it.
    ClosedAmidCall,
    /// A call waits for its result from the connection.
    Call,
    /// A call waits for a client that can run it.
    CallOfNobody,
    /// A call waits for its result from the other connection, and the connection is on standby.
    CallOfOther,
    /// The connection hosts a tool.
    Hosting,
    /// A turn is running, and a part of its answer was shown.
    Turn,
    /// The same, with inputs in the queue up to its limit.
    Queued,
    /// The connection hosts hooks that do not answer.
    Hooks,
    /// The same, and a turn was cancelled after a part of its answer was shown.
    CancelledHooks,
    /// An input waits for a move that was cancelled.
    LeftWaiting,
    /// A compaction is running; somebody waits for it.
    Compacting,
    /// A compaction was made, and an entry that it removed is pinned.
    PinnedBehind,
    /// A compaction is made in the background.
    Preparing,
    /// The same, behind an earlier compaction.
    PreparingAgain,
    /// A compaction is held, behind an earlier one.
    HeldAgain,
    /// The same, and the first entry, which the earlier one removed, is pinned.
    HeldAgainPinned,
}

/// The servers of the scenes, which share a model.
pub(super) struct Stage {
    by_order: Server,
    in_background: Server,
    gate: Arc<Mutex<Gate>>,
}

/// The number of inputs that a queue holds.
const QUEUE: usize = 3;

/// Tokens from which on a compaction is prepared in the background.
const PREPARED_FROM_TOKENS: u64 = 1_200;

/// Turns after which one is prepared at the latest.
const TURNS_MAX: u64 = 40;

impl Stage {
    pub(super) async fn new() -> Self {
        let gate = Arc::new(Mutex::new(Gate::new()));
        let model = Scripted::answering(script(gate.clone()));
        let queue = QUEUE.to_string();
        let common = [("QUEUE_ITEMS_MAX", queue.as_str()), ("MODEL_WINDOWS", "other=8000")];
        let by_order = [&common[..], &[("CONTEXT_STRATEGY", "manual"), ("CONTEXT_WINDOW", "8000")]].concat();
        let in_background =
            [&common[..], &[("strategy.background", "0.7"), ("strategy.target", "0.4"), ("CONTEXT_WINDOW", "2000")]]
                .concat();
        let by_order = Server::start(model.clone(), &by_order).await;
        let in_background = Server::start(model, &in_background).await;
        Self { by_order, in_background, gate }
    }

    /// Returns a session that is ready for a command, in which nothing happens unless its gate opens.
    pub(super) async fn scene(&self, before: Before) -> Scene {
        use Before::{HeldAgain, HeldAgainPinned, Preparing, PreparingAgain};
        let is_prepared = matches!(before, Preparing | PreparingAgain | HeldAgain | HeldAgainPinned);
        let server = if is_prepared { &self.in_background } else { &self.by_order };
        let mut scene = Scene::new(server, self.gate.clone()).await;
        scene.bring_about(before).await;
        for client in [&mut scene.client, &mut scene.other] {
            client.ask("ping", json!({})).await;
            // What is pending now was not caused by the next command.
            client.forget("");
        }
        scene
    }
}

/// Returns a model that waits for the gate with summaries and with its answer to "hold", and calls its first tool when
/// it is asked to.
fn script(gate: Arc<Mutex<Gate>>) -> impl FnMut(&ModelRequest) -> Reply + Send {
    move |request| {
        let gate = gate.lock().unwrap().clone();
        let last = request.messages().last().and_then(|last| last.message.content.last().cloned());
        match (request.purpose, last) {
            (Purpose::Summary, _) => Reply::text(summary(&["The ship is called Aurora."])).held_by(&gate),
            (_, Some(Part::Text { text })) if text == "hold" => {
                Reply::text("At long last.").in_pieces(3).held_by(&gate)
            }
            (_, Some(Part::Text { text })) if text == "use the tool" => {
                let (name, arguments) = (request.envelope.tools[0].name.clone(), "{}".to_owned());
                Reply::parts(vec![Part::ToolCall { call_id: "call".parse().unwrap(), name, arguments }])
            }
            _ => Reply::text(words(7, 40)),
        }
    }
}

/// Returns the offer of a tool that a new host may run again.
pub(super) fn tools() -> Value {
    let parameters = json!({ "type": "object" });
    json!([{ "name": "look", "description": "Looks.", "parameters": parameters, "idempotent": true }])
}

/// A session, and two connections that write to it.
pub(super) struct Scene {
    pub(super) client: Client,
    /// Also watches the list of sessions.
    pub(super) other: Client,
    /// The gate that the model's next answers wait for.
    gate: Arc<Mutex<Gate>>,
    /// The payload of `session_opened`.
    pub(super) opened: Value,
    /// The entries said so far.
    pub(super) entries: Value,
    /// The pending call, if any.
    pub(super) call: Value,
    /// The queued inputs, by the ids of their commands.
    pub(super) queued: Vec<String>,
}

impl Scene {
    async fn new(server: &Server, gate: Arc<Mutex<Gate>>) -> Self {
        *gate.lock().unwrap() = Gate::new();
        let (mut client, opened) = Client::v2_session(&server.ws()).await;
        let mut other = Client::v2(&server.ws()).await;
        other.ask("open_session", json!({ "sessionId": opened["sessionId"] })).await;
        other.ask("list_sessions", json!({ "watch": true })).await;
        for number in 0..3 {
            assert_eq!(client.turn(&words(number, 100)).await["status"], "completed");
        }
        let entries = client.ask("get_entries", json!({})).await["payload"]["items"].clone();
        let (call, queued) = (Value::Null, Vec::new());
        Self { client, other, gate, opened, entries, call, queued }
    }

    /// Lets the model continue, now and later.
    pub(super) fn let_go(&self) {
        self.gate.lock().unwrap().open();
    }

    /// Lets the model's next answers wait again.
    fn hold_back(&self) {
        *self.gate.lock().unwrap() = Gate::new();
    }

    async fn ok(&mut self, command: &str, payload: Value) {
        let reply = self.client.ask(command, payload).await;
        assert_eq!(reply["type"], "ok", "{command}: {reply}");
    }

    /// Begins a turn that waits for the gate, until a part of its answer was shown.
    async fn hold(&mut self) {
        self.client.ask("user_input", json!({ "input": "hold" })).await;
        self.client.event("item_delta").await;
    }

    /// Has the model call the tool.
    async fn call(&mut self) {
        self.client.ask("user_input", json!({ "input": "use the tool" })).await;
        self.call = self.client.event("tool_call").await["payload"]["toolCallId"].clone();
    }

    /// Talks until a compaction is started in the background.
    async fn prepare(&mut self) {
        for number in 0..TURNS_MAX {
            assert_eq!(self.client.turn(&words(number, 50)).await["status"], "completed");
            let info = self.client.ask("get_context_info", json!({})).await;
            if info["payload"]["tokenCount"].as_u64().is_some_and(|tokens| tokens > PREPARED_FROM_TOKENS) {
                self.client.event("compaction_started").await;
                return;
            }
        }
        panic!("{TURNS_MAX} turns did not come near the limit");
    }

    /// Offers hooks that do not answer, at the points at which commands wait for them.
    async fn offer_hooks(&mut self) {
        let points = ["message", "before_navigate"];
        let hooks = points.map(|point| json!({ "name": "policy", "point": point }));
        self.ok("register_hooks", json!({ "hooks": hooks })).await;
    }

    /// Makes a compaction.
    async fn compact(&mut self) {
        self.let_go();
        self.ok("start_compaction", json!({})).await;
        self.client.event("context_compacted").await;
        self.client.forget("compaction_started");
    }

    async fn bring_about(&mut self, before: Before) {
        use Before::*;
        let pin = json!({ "entryId": self.entries[0]["entryId"] });
        match before {
            Talk => {}
            Closed => self.ok("close_session", json!({})).await,
            Hosting => self.ok("register_tools", json!({ "tools": tools() })).await,
            Call => {
                self.ok("register_tools", json!({ "tools": tools() })).await;
                self.call().await;
            }
            CallOfNobody | ClosedAmidCall | CallOfOther => {
                self.other.ask("register_tools", json!({ "tools": tools() })).await;
                self.call().await;
                self.other.event("run_tool").await;
                if before == CallOfOther {
                    return self.ok("register_tools", json!({ "tools": tools() })).await;
                }
                self.other.ask("register_tools", json!({ "tools": [] })).await;
                if before == ClosedAmidCall {
                    self.ok("close_session", json!({})).await;
                }
            }
            Turn => self.hold().await,
            Queued => {
                self.hold().await;
                for _ in 0..QUEUE {
                    let id = self.client.send("user_input", json!({ "input": "and then?" })).await;
                    self.client.until(|frame| frame["re"] == id.as_str()).await;
                    self.queued.push(id);
                }
            }
            CancelledHooks => {
                self.hold().await;
                self.ok("cancel_turn", json!({})).await;
                self.client.event("turn_finished").await;
                self.offer_hooks().await;
            }
            Hooks => self.offer_hooks().await,
            LeftWaiting => {
                let moves = self.client.send("navigate", json!({ "entryId": "root", "summarize": true })).await;
                self.client.event("compaction_progress").await;
                self.client.ask("user_input", json!({ "input": "and then?" })).await;
                self.ok("cancel_compaction", json!({})).await;
                self.client.until(|frame| frame["re"] == moves.as_str()).await;
            }
            Compacting => {
                self.ok("start_compaction", json!({})).await;
                self.client.event("compaction_started").await;
            }
            PinnedBehind => {
                self.compact().await;
                self.ok("pin_entry", pin).await;
            }
            Preparing => self.prepare().await,
            PreparingAgain => {
                self.compact().await;
                self.hold_back();
                self.prepare().await;
            }
            HeldAgain | HeldAgainPinned => {
                self.compact().await;
                if before == HeldAgainPinned {
                    self.ok("pin_entry", pin).await;
                }
                self.prepare().await;
                self.client.event("compaction_prepared").await;
            }
        }
    }
}
