//! A session whose next request can be inspected just before it is sent: a hook holds it, and an upstream server of our
//! own receives it.

use crate::support::json::present;
use crate::support::scripted::Gate;
use crate::{
    provider::Shown,
    support::{
        binary,
        client::Client,
        http,
        talk::is_summary,
        upstream::{Asked, Reply, Upstream},
    },
};
use reseed::{
    config::Settings,
    core::{
        hook::{HookFault, HookSpec},
        model::{ModelRequest, Purpose},
    },
    hooks::{self, Hook},
    provider::{
        Provider as _,
        openai::{ApiChoice, OpenAi, OpenAiOptions},
    },
    service::{self, Service},
    store::sqlite::SqliteStore,
};
use reseed_protocol::{
    Message,
    context::{ContextEnvelope, MessageEdit, PatchMessage, PatchOp},
    hooks::{ContextReason, HookAnswer, HookEvent, HookPoint},
};
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};
use tokio::sync::{mpsc, oneshot};

/// A hook's permanent change.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wish {
    /// A part of the system prompt.
    Policy,
    /// The temperature.
    Options,
    /// The tools: one has another description, one is taken away.
    Tools,
    /// One message: the user's oldest.
    Edit,
    /// All messages: the last two stay, after one of the hook's own.
    Replace,
}

/// The next steps of the hooks and of the upstream server.
#[derive(Default)]
struct Script {
    replies: Mutex<VecDeque<Reply>>,
    wishes: Mutex<VecDeque<Wish>>,
    added: Mutex<&'static str>,
    /// Gets notified of a request that is about to be sent, and lets it go.
    held: Mutex<Option<mpsc::UnboundedSender<oneshot::Sender<()>>>>,
}

pub(super) struct World {
    name: &'static str,
    script: Arc<Script>,
    upstream: Upstream,
    provider: Arc<OpenAi>,
    folder: tempfile::TempDir,
    service: Service,
    client: Client,
    id: String,
    tools: Vec<Value>,
}

const SETTINGS: [(&str, &str); 6] = [
    // `reseed inspect` reads a file, and does not know what a server offers.
    ("HISTORY_TOOLS", "off"),
    ("WS_PORT", "0"),
    ("CONTEXT_WINDOW", "20000"),
    // What is checked is whether a removed message is gone.
    ("CONTEXT_STRATEGY", "manual:userShare=0,keepRecentTokens=60"),
    ("MODEL", "test"),
    ("OPERATORS_READ_CONTENT", "true"),
];

fn tool(name: &str) -> Value {
    let parameters = json!({ "type": "object", "properties": { "at": { "type": "string" } } });
    json!({ "name": name, "description": format!("Can {name} at something."), "parameters": parameters })
}

fn patch(wish: Wish, envelope: &ContextEnvelope) -> Vec<PatchOp> {
    let why = || "the test wishes it".to_owned();
    let cached = &envelope.messages.cached;
    match wish {
        Wish::Policy => vec![PatchOp::SystemPartSet {
            part_name: "policy".to_owned(),
            text: "\n\nBe kind.".to_owned(),
            invalidate_cache_reason: why(),
        }],
        Wish::Options => vec![PatchOp::OptionsSet {
            temperature: Some(0.25),
            max_output_tokens: None,
            reasoning_effort: None,
            invalidate_cache_reason: why(),
        }],
        Wish::Tools => {
            let mut tools = envelope.tools.clone();
            tools.iter_mut().for_each(|tool| tool.description.push_str(" With care."));
            vec![
                PatchOp::ToolsReplace { tools, invalidate_cache_reason: why() },
                PatchOp::ToolsRemove { tool_names: vec!["fetch".to_owned()], invalidate_cache_reason: why() },
            ]
        }
        Wish::Edit => {
            let user =
                cached.iter().find(|one| one.entry_id.is_some() && one.message.role == reseed_protocol::Role::User);
            let edits = user
                .and_then(|one| one.entry_id.clone())
                .map(|entry_id| MessageEdit { entry_id, message: Some(Message::user("[something was said here]")) });
            vec![PatchOp::MessagesCachedEdit { edits: edits.into_iter().collect(), invalidate_cache_reason: why() }]
        }
        Wish::Replace => {
            let own = PatchMessage { entry_id: None, message: Some(Message::user("Much was said before.")) };
            let kept = cached.iter().skip(cached.len().saturating_sub(2));
            let kept = kept.map(|one| PatchMessage { entry_id: one.entry_id.clone(), message: None });
            let messages = std::iter::once(own).chain(kept).collect();
            vec![PatchOp::MessagesCachedReplace { messages, invalidate_cache_reason: why() }]
        }
    }
}

fn hooks_of(script: &Arc<Script>) -> Vec<Arc<dyn Hook>> {
    let at = |name: &str, reason| vec![HookSpec::new(name, HookPoint::Context).for_reasons(&[reason])];
    let asked = script.clone();
    let wisher = hooks::on(at("wisher", ContextReason::BeforeRequest), move |call| {
        let wishes = std::mem::take(&mut *asked.wishes.lock().unwrap());
        async move {
            let HookEvent::Context { envelope, .. } = call.event else {
                return Err(HookFault::failed("what is this?"));
            };
            Ok(HookAnswer::patch(wishes.into_iter().flat_map(|wish| patch(wish, &envelope)).collect()))
        }
    });
    let asked = script.clone();
    let holder = hooks::on(at("holder", ContextReason::Ephemeral), move |_| {
        let held = asked.held.lock().unwrap().clone();
        async move {
            if let Some(held) = held {
                let (go, gone) = oneshot::channel();
                let _ = held.send(go);
                let _ = gone.await;
            }
            Ok(HookAnswer::default())
        }
    });
    let asked = script.clone();
    let adder = hooks::on(at("adder", ContextReason::Ephemeral), move |_| {
        let added = *asked.added.lock().unwrap();
        async move {
            let append = || vec![PatchOp::MessagesUncachedAppend { messages: vec![Message::user(added)] }];
            Ok(if added.is_empty() { HookAnswer::default() } else { HookAnswer::patch(append()) })
        }
    });
    vec![wisher, holder, adder]
}

impl World {
    pub(super) async fn start(api: ApiChoice, name: &'static str) -> Self {
        let script = Arc::new(Script::default());
        let asked = script.clone();
        let upstream = Upstream::start(move |request: &Asked| {
            if is_summary(request) {
                return Reply::text(crate::support::talk::summary(&["the harbour"]));
            }
            let next = asked.replies.lock().unwrap().pop_front();
            next.unwrap_or_else(|| Reply::text(format!("I heard {} messages.", request.messages().len())))
        })
        .await;
        let options = OpenAiOptions { base_url: upstream.base_url(), api, ..OpenAiOptions::default() };
        let provider = Arc::new(OpenAi::new(options).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let service = serve(&folder, &script, &provider).await;
        let (client, opened) = Client::v2_session(&format!("ws://{}/ws", service.address())).await;
        let id = opened["sessionId"].as_str().unwrap().to_owned();
        let mut world = Self { name, script, upstream, provider, folder, service, client, id, tools: Vec::new() };
        world.register().await;
        world
    }

    async fn register(&mut self) {
        self.tools = vec![tool("look"), tool("fetch")];
        self.ask("register_tools", json!({ "tools": self.tools })).await;
    }

    /// Sends a command whose reply must not be an error.
    pub(super) async fn ask(&mut self, command: &str, payload: Value) {
        let reply = self.client.ask(command, payload).await;
        assert_ne!(*present(&reply["type"]), "error", "{}, {command}: {reply}", self.name);
    }

    pub(super) async fn say(&mut self, text: &str) {
        let finished = self.client.turn(text).await;
        assert_eq!(finished["status"], "completed", "{}: {finished}", self.name);
    }

    /// Says something whose answer waits for the gate, and waits until its request has arrived.
    pub(super) async fn begin(&mut self, text: &str, gate: &Gate) {
        self.script.replies.lock().unwrap().push_back(Reply::text("At last.").held_by(gate));
        let before = self.upstream.requests().len();
        self.ask("user_input", json!({ "input": text })).await;
        self.upstream.wait_for_requests(before + 1).await;
    }

    /// The next answer thinks and calls a tool.
    fn expect_call(&self) {
        let call = Reply::call("look", r#"{"at":"sea"}"#).with_reasoning("They ask of the sea.");
        self.script.replies.lock().unwrap().push_back(call);
    }

    async fn answer_call(&mut self) {
        let called = self.client.event("tool_call").await;
        let result = json!({ "toolCallId": called["payload"]["toolCallId"], "output": "It is blue." });
        self.ask("tool_result", result).await;
    }

    pub(super) async fn call_a_tool(&mut self) {
        self.expect_call();
        self.ask("user_input", json!({ "input": "How is the sea?" })).await;
        self.answer_call().await;
        self.finished().await;
    }

    pub(super) async fn finished(&mut self) {
        let finished = self.client.event("turn_finished").await;
        assert_eq!(finished["payload"]["status"], "completed", "{}: {finished}", self.name);
    }

    pub(super) async fn compact(&mut self) {
        self.ask("start_compaction", json!({})).await;
        self.client.event("context_compacted").await;
    }

    /// Returns the message entries of the path, oldest first.
    async fn entry(&mut self, at: usize) -> Value {
        let entries = self.client.ask("get_entries", json!({ "path": true, "limit": 100 })).await;
        let entries = entries["payload"]["items"].as_array().unwrap();
        let said: Vec<&Value> = entries.iter().filter(|entry| entry["type"] == "message").collect();
        said[at]["entryId"].clone()
    }

    pub(super) async fn pin(&mut self, at: usize) {
        let entry = self.entry(at).await;
        self.ask("pin_entry", json!({ "entryId": entry })).await;
    }

    pub(super) async fn go_back(&mut self, at: usize) {
        let entry = self.entry(at).await;
        self.ask("navigate", json!({ "entryId": entry, "position": "at" })).await;
    }

    pub(super) fn wish(&self, wish: Wish) {
        self.script.wishes.lock().unwrap().push_back(wish);
    }

    /// Adds this to each request from now on; an empty text adds nothing.
    pub(super) fn add(&self, text: &'static str) {
        *self.script.added.lock().unwrap() = text;
    }

    pub(super) async fn told(&mut self, ephemeral: bool) -> Value {
        let told = self.client.ask("get_context", json!({ "ephemeral": ephemeral })).await;
        assert_eq!(told["type"], "context", "{}: {told}", self.name);
        told["payload"].clone()
    }

    async fn shown(&self, query: &str) -> http::Answered {
        http::get(&self.service.address().to_string(), &format!("/api/sessions/{}/context?{query}", self.id)).await
    }

    /// Asks a question and compares its request before it is sent with the one that arrives.
    pub(super) async fn ask_exactly(&mut self, question: &str) {
        let mut held = self.hold();
        self.ask("user_input", json!({ "input": question })).await;
        self.compare(&mut held).await;
        self.let_go();
        self.finished().await;
        // Nothing is running, so the next request is that of a future turn.
        let told = self.told(true).await;
        assert_eq!(told["envelope"]["meta"].get("turnId"), None);
        assert_eq!(self.shown("format=envelope&ephemeral=true").await.json(), told, "{}", self.name);
    }

    /// Like [`Self::ask_exactly`], for both requests of a turn whose model calls a tool, with an input in between.
    pub(super) async fn ask_exactly_with_a_tool(&mut self, question: &str) {
        let mut held = self.hold();
        self.expect_call();
        self.ask("user_input", json!({ "input": question })).await;
        self.compare(&mut held).await;
        let called = self.client.event("tool_call").await;
        self.ask("user_input", json!({ "input": "Be quick.", "whenBusy": "steer" })).await;
        let result = json!({ "toolCallId": called["payload"]["toolCallId"], "output": "It is blue." });
        self.ask("tool_result", result).await;
        self.compare(&mut held).await;
        self.let_go();
        self.finished().await;
    }

    fn hold(&self) -> mpsc::UnboundedReceiver<oneshot::Sender<()>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.script.held.lock().unwrap() = Some(sender);
        receiver
    }

    fn let_go(&self) {
        *self.script.held.lock().unwrap() = None;
    }

    /// Compares what is reported of the held request with what arrives once it is released.
    async fn compare(&mut self, held: &mut mpsc::UnboundedReceiver<oneshot::Sender<()>>) {
        let go = held.recv().await.unwrap();
        // The hook will add to this request what it added to the previous one.
        let told = self.told(true).await;
        let name = self.name;
        assert_eq!(self.shown("format=envelope&ephemeral=true").await.json(), told, "{name}");
        let markdown = self.client.ask("get_context", json!({ "format": "markdown" })).await["payload"].clone();
        assert_eq!(json!(self.shown("format=markdown").await.body), markdown["markdown"], "{name}");
        self.check_meta(&told).await;
        let before = self.upstream.requests().len();
        go.send(()).unwrap();
        self.upstream.wait_for_requests(before + 1).await;
        let sent = self.upstream.requests().swap_remove(before);
        let again = self.send(&told["envelope"]).await;
        assert_eq!(sent.body, again.body, "{name}: what was sent, and what was told");
        assert_eq!(sent.raw, again.raw, "{name}: byte for byte");
    }

    /// Checks what the last request contains and, with `-`, what it does not.
    pub(super) fn check_last(&self, says: &[&str]) {
        let last = self.upstream.requests().pop().unwrap();
        for text in says {
            let (text, expected) = text.strip_prefix('-').map_or((*text, true), |text| (text, false));
            assert_eq!(last.contains(text), expected, "{}: {text}: {}", self.name, last.body);
        }
    }

    /// Checks the report's fields beside the envelope.
    async fn check_meta(&mut self, told: &Value) {
        let (name, meta) = (self.name, &told["envelope"]["meta"]);
        let info = self.client.ask("get_context_info", json!({})).await["payload"].clone();
        assert!(meta["turnId"].is_string() && meta["windowTokens"] == 20_000, "{name}: {meta}");
        assert_eq!(*present(&meta["tokens"]), told["tokens"], "{name}");
        if told["envelope"]["messages"]["uncached"].as_array().unwrap().is_empty() {
            assert_eq!(*present(&info["tokenCount"]), told["tokens"], "{name}");
        }
        let parts = &meta["parts"];
        let mut sum = parts["frame"].as_u64().unwrap();
        for (part, of) in [
            ("system", &told["envelope"]["system"]["parts"]),
            ("tools", &told["envelope"]["tools"]),
            ("cached", &told["envelope"]["messages"]["cached"]),
            ("uncached", &told["envelope"]["messages"]["uncached"]),
        ] {
            let tokens = parts[part].as_array().unwrap();
            assert_eq!(tokens.len(), of.as_array().unwrap().len(), "{name}: {part}");
            sum += tokens.iter().map(|tokens| tokens.as_u64().unwrap()).sum::<u64>();
        }
        assert_eq!(sum, meta["tokens"], "{name}: the parts add up");
    }

    /// Writes a request from an envelope, as the provider does, and returns what arrives.
    async fn send(&self, envelope: &Value) -> Asked {
        let envelope: ContextEnvelope = serde_json::from_value(envelope.clone()).unwrap();
        let model = envelope.meta.model.clone();
        let request = ModelRequest { model, envelope, purpose: Purpose::Turn, compared_with: None, compacts: None };
        self.script.replies.lock().unwrap().push_front(Reply::text("Again?"));
        self.provider.answer(&request, &mut Shown::default()).await.unwrap();
        self.upstream.requests().pop().unwrap()
    }

    /// Starts the server again. The report of the session is the same before it is opened, after, and on the command
    /// line.
    pub(super) async fn restart(&mut self) {
        self.service.stop().await;
        self.service = serve(&self.folder, &self.script, &self.provider).await;
        let shown = self.shown("format=envelope").await.body;
        let text = self.shown("format=markdown").await.body;
        let database = format!("sqlite://{}", self.folder.path().join("reseed.db").display());
        let settings = [SETTINGS.as_slice(), &[("DATABASE_URL", database.as_str())]].concat();
        let json = ["inspect", &self.id, "--context", "--json"];
        for (arguments, expected) in [(json.as_slice(), &shown), (&json[..3], &text)] {
            let printed = binary::run(self.folder.path(), arguments, &settings).await;
            assert_eq!(printed.code, Some(0), "{}: {}", self.name, printed.faults);
            assert_eq!(printed.printed.trim_end(), expected.trim_end(), "{}: {arguments:?}", self.name);
        }
        self.client = Client::v2(&format!("ws://{}/ws", self.service.address())).await;
        self.ask("open_session", json!({ "sessionId": self.id })).await;
        let told = self.told(false).await;
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), told, "{}: closed, and opened", self.name);
        self.register().await;
        if !self.script.added.lock().unwrap().is_empty() {
            // What hooks added is only held in memory.
            self.say("Good morning.").await;
        }
    }

    pub(super) async fn end(self) {
        self.upstream.assert_clean();
        self.service.stop().await;
    }
}

async fn serve(folder: &tempfile::TempDir, script: &Arc<Script>, provider: &Arc<OpenAi>) -> Service {
    let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let settings = Settings::from_iter(settings).unwrap_or_else(|error| panic!("{error}"));
    let store = Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let service = service::start_with_hooks(&settings, provider.clone(), store, hooks_of(script)).await;
    service.unwrap_or_else(|error| panic!("{error:#}"))
}
