//! A model server on its own port, over raw TCP, scripted by the test; it also checks each request.
//!
//! It supports Chat Completions, Responses, Messages and the model list, streams in pieces, waits at gates instead of
//! sleeping, and can break off in every way that a network can. Each request is checked against the rules of [`check`];
//! violations are recorded and fail the test at [`Upstream::assert_clean`]. With a window, requests that do not fit are
//! refused as OpenAI refuses them, before the script is called, and answers report usage.

mod check;
mod compaction;
mod judge;
mod messages;
mod reply;

pub(crate) use compaction::unsealed;
pub(crate) use reply::{Finish, Reply, Step};

use crate::support::scripted::Gate;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// An API of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    /// OpenAI's older one.
    Chat,
    /// OpenAI's newer one.
    Responses,
    /// Anthropic's.
    Messages,
}

/// The options of the server.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    /// The window in tokens, if any.
    pub(crate) window_tokens: Option<u64>,
    /// Counts a request's tokens.
    pub(crate) count: fn(&Value) -> u64,
    /// The response to `GET /models`.
    pub(crate) models: Value,
    /// The response to llama.cpp's `GET /props`, if the server has it.
    pub(crate) props: Option<Value>,
    /// Until this gate is open, the server is loading its model and refuses everything.
    pub(crate) loading: Option<Gate>,
    /// True if it works on one request at a time: others wait.
    pub(crate) has_one_slot: bool,
    /// True if it compares requests, and gives each answer an id of its own.
    pub(crate) compares: bool,
}

impl Default for Setup {
    fn default() -> Self {
        let models = json!({ "object": "list", "data": [{ "id": "test-model", "object": "model" }] });
        Self {
            window_tokens: None,
            count: check::tokens,
            models,
            props: None,
            loading: None,
            has_one_slot: false,
            compares: false,
        }
    }
}

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Its API.
    pub(crate) api: Api,
    /// True if the server is to compact the conversation.
    pub(crate) compacts: bool,
    /// Header names in lower case, and values.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: Value,
    /// The body as received.
    pub(crate) raw: Arc<str>,
    /// Its tokens, by the configured count.
    pub(crate) tokens: u64,
}

impl Asked {
    /// Returns a header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the system prompt.
    pub(crate) fn system(&self) -> &str {
        match self.api {
            Api::Chat if self.body["messages"][0]["role"] == "system" => self.body["messages"][0]["content"].as_str(),
            Api::Chat => None,
            Api::Responses => self.body["instructions"].as_str(),
            Api::Messages => self.body["system"][0]["text"].as_str(),
        }
        .unwrap_or_default()
    }

    /// Returns the messages or items without the system prompt.
    pub(crate) fn messages(&self) -> &[Value] {
        let name = if self.api == Api::Responses { "input" } else { "messages" };
        let all = self.body[name].as_array().map_or(&[][..], Vec::as_slice);
        if all.first().is_some_and(|first| first["role"] == "system") { &all[1..] } else { all }
    }

    /// Returns the text of the last user message.
    pub(crate) fn last_user_text(&self) -> String {
        self.messages().iter().rfind(|message| message["role"] == "user").map(check::text).unwrap_or_default()
    }

    /// Returns true if the last message is a tool result.
    pub(crate) fn ends_with_result(&self) -> bool {
        self.messages().last().is_some_and(|last| {
            let is_result = last["role"] == "tool" || last["type"] == "function_call_output";
            is_result || last["content"][0]["type"] == "tool_result"
        })
    }

    /// Returns all texts of the request, one per line.
    pub(crate) fn text(&self) -> String {
        check::strings(&self.body).join("\n")
    }

    /// Returns true if a text is anywhere in the request.
    pub(crate) fn contains(&self, text: &str) -> bool {
        check::strings(&self.body).iter().any(|found| found.contains(text))
    }

    /// Returns true if it only fills the cache.
    pub(crate) fn prewarms(&self) -> bool {
        self.body["max_tokens"] == 0 || self.body["prompt_cache_options"]["prewarm"] == true
    }

    /// Returns true if tools are offered.
    pub(crate) fn offers_tools(&self) -> bool {
        self.body["tools"].as_array().is_some_and(|tools| !tools.is_empty())
    }
}

/// The running server; it stops on drop.
pub(crate) struct Upstream {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

type Script = Box<dyn FnMut(&Asked) -> Reply + Send>;

struct Shared {
    setup: Setup,
    script: Mutex<Script>,
    seen: Mutex<Seen>,
    counts: watch::Sender<Counts>,
    slot: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Seen {
    requests: Vec<Asked>,
    violations: Vec<String>,
    refused: usize,
    judge: judge::Judge,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    connected: usize,
    asked: usize,
    hung_up: usize,
}

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A script that panicked shows in the test's own failure.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Upstream {
    /// Starts a server without a window.
    pub(crate) async fn start(script: impl FnMut(&Asked) -> Reply + Send + 'static) -> Self {
        Self::start_with(Setup::default(), script).await
    }

    /// Starts a server that sends these replies in order, then an error.
    pub(crate) async fn replying(replies: impl IntoIterator<Item = Reply>) -> Self {
        let mut replies = replies.into_iter().collect::<Vec<_>>().into_iter();
        Self::start(move |_| replies.next().unwrap_or_else(|| Reply::error(400, "no reply is left"))).await
    }

    /// Starts a server.
    pub(crate) async fn start_with(setup: Setup, script: impl FnMut(&Asked) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            setup,
            script: Mutex::new(Box::new(script)),
            seen: Mutex::default(),
            counts: watch::Sender::new(Counts::default()),
            slot: tokio::sync::Mutex::default(),
        });
        let serving = shared.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                serving.counts.send_modify(|counts| counts.connected += 1);
                tokio::spawn(serve(socket, serving.clone()));
            }
        });
        Self { shared, address, accepting }
    }

    /// Returns the address for `OPENAI_BASE_URL`.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns the address for `ANTHROPIC_BASE_URL`.
    pub(crate) fn messages_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests for answers, in order of arrival.
    pub(crate) fn requests(&self) -> Vec<Asked> {
        locked(&self.shared.seen).requests.clone()
    }

    /// Returns how many requests did not fit into the window.
    pub(crate) fn refused(&self) -> usize {
        locked(&self.shared.seen).refused
    }

    /// Returns the violations so far.
    pub(crate) fn violations(&self) -> Vec<String> {
        locked(&self.shared.seen).violations.clone()
    }

    /// Panics if any request violated the rules.
    pub(crate) fn assert_clean(&self) {
        let violations = self.violations();
        assert!(
            violations.is_empty(),
            "the model's server was asked what it should not be:\n{}",
            violations.join("\n")
        );
    }

    /// Waits until this many requests have arrived.
    pub(crate) async fn wait_for_requests(&self, asked: usize) {
        let _ = self.shared.counts.subscribe().wait_for(|counts| counts.asked >= asked).await;
    }

    /// Waits until the client disconnected during this many answers.
    pub(crate) async fn wait_for_hang_ups(&self, hung_up: usize) {
        let _ = self.shared.counts.subscribe().wait_for(|counts| counts.hung_up >= hung_up).await;
    }

    /// Returns how many connections were opened.
    pub(crate) fn connections(&self) -> usize {
        self.shared.counts.borrow().connected
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Serves one connection until either side closes it.
async fn serve(mut socket: TcpStream, shared: Arc<Shared>) {
    let _ = socket.set_nodelay(true);
    while let Some((line, headers, body)) = read_request(&mut socket).await {
        let reply = shared.reply(&line, headers, &body);
        let is_answer = shared.setup.has_one_slot && line.starts_with("POST");
        let slot = match is_answer {
            true => tokio::select! {
                slot = shared.slot.lock() => Some(slot),
                () = closed(&mut socket) => None,
            },
            false => None,
        };
        let played = if is_answer && slot.is_none() { Played::HungUp } else { play(reply, &mut socket).await };
        drop(slot);
        if let Played::HungUp = played {
            shared.counts.send_modify(|counts| counts.hung_up += 1);
            return;
        }
    }
}

/// Reads the request line, the headers and the body; `None` if the connection ended.
async fn read_request(socket: &mut TcpStream) -> Option<(String, Vec<(String, String)>, Vec<u8>)> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let mut lines = text.split("\r\n");
    let line = lines.next()?.to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, n)| n.parse().unwrap());
    let mut body = bytes.split_off(head + 4);
    while body.len() < length {
        if socket.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some((line, headers, body))
}

impl Shared {
    /// Chooses the reply, checks and records the request.
    fn reply(&self, line: &str, headers: Vec<(String, String)>, body: &[u8]) -> Vec<Step> {
        // llama.cpp's server lists its model even while it is loading.
        let is_list = self.setup.props.is_some() && line.starts_with("GET /v1/models");
        let is_loading = self.setup.loading.as_ref().is_some_and(|loading| loading.passed().now_or_never().is_none());
        if is_loading && !is_list {
            let error = json!({ "code": 503, "message": "Loading model", "type": "unavailable_error" });
            return Reply::json(503, &json!({ "error": error })).steps(Api::Chat, (0, 0));
        }
        let api = match line.split(' ').take(2).collect::<Vec<_>>()[..] {
            ["POST", "/v1/chat/completions"] => Api::Chat,
            ["POST", "/v1/responses" | "/v1/responses/compact"] => Api::Responses,
            ["POST", "/v1/messages"] => Api::Messages,
            ["GET", "/props"] if self.setup.props.is_some() => {
                let props = self.setup.props.clone().unwrap_or_default();
                return Reply::json(200, &props).steps(Api::Chat, (0, 0));
            }
            ["GET", "/v1/models" | "/v1/models?limit=1000"] => {
                return Reply::json(200, &self.setup.models).steps(Api::Chat, (0, 0));
            }
            _ => return Reply::error(404, r#"{"detail":"Not Found"}"#).steps(Api::Chat, (0, 0)),
        };
        let raw: Arc<str> = String::from_utf8_lossy(body).into();
        let (body, mut violations) = match serde_json::from_slice(body) {
            Ok(body) => (body, Vec::new()),
            Err(error) => (Value::Null, vec![format!("the body is not JSON: {error}")]),
        };
        let is_compact = line.starts_with("POST /v1/responses/compact ");
        violations.extend(match api {
            Api::Messages => messages::violations(&headers, &body),
            Api::Responses if is_compact => check::compact_violations(&body),
            _ => check::violations(api, &body),
        });
        let is_asked = ["diagnostics", "prompt_cache_options"].iter().any(|name| body.get(*name).is_some());
        if is_asked && !self.setup.compares {
            violations.push("nobody asked for a comparison".to_owned());
        }
        let compacts = is_compact || body.get("compaction").is_some();
        let asked = Asked { api, compacts, headers, tokens: (self.setup.count)(&body), body, raw };
        let window = self.setup.window_tokens.filter(|&window| asked.tokens > window);
        let number = {
            let mut seen = locked(&self.seen);
            seen.requests.push(asked.clone());
            seen.refused += usize::from(window.is_some());
            let number = seen.requests.len();
            seen.violations.extend(violations.iter().map(|violation| format!("request {number}: {violation}")));
            number
        };
        let reply = match window {
            Some(window) if api == Api::Messages => messages::overflow(asked.tokens, window),
            Some(window) => Reply::overflow(asked.tokens, window),
            None => locked(&self.script)(&asked),
        };
        let reply = match self.setup.compares {
            true => reply.compared(|| {
                let id = format!("{}_{number}", if api == Api::Messages { "msg" } else { "resp" });
                (locked(&self.seen).judge.verdict(&asked, &id), id)
            }),
            false => reply,
        };
        self.counts.send_modify(|counts| counts.asked = counts.asked.max(number));
        reply.steps(api, (asked.tokens, self.setup.window_tokens.unwrap_or(u64::MAX)))
    }
}

enum Played {
    /// The connection can be reused.
    Whole,
    /// The client closed it before the end of the answer, or we did.
    HungUp,
}

/// Writes a reply, in as few writes as its gates allow.
async fn play(steps: Vec<Step>, socket: &mut TcpStream) -> Played {
    let mut pending = Vec::new();
    for step in steps {
        match step {
            Step::Bytes(bytes) => pending.extend_from_slice(&bytes),
            Step::Wait(gate) => {
                if socket.write_all(&pending).await.is_err() {
                    return Played::HungUp;
                }
                pending.clear();
                tokio::select! {
                    () = gate.passed() => {}
                    () = closed(socket) => return Played::HungUp,
                }
            }
            Step::Hang => {
                let _ = socket.write_all(&pending).await;
                closed(socket).await;
                return Played::HungUp;
            }
            Step::Reset => {
                let _ = socket.write_all(&pending).await;
                let _ = socket.set_zero_linger();
                return Played::HungUp;
            }
            Step::Close => {
                let _ = socket.write_all(&pending).await;
                let _ = socket.shutdown().await;
                return Played::HungUp;
            }
        }
    }
    match socket.write_all(&pending).await {
        Ok(()) => Played::Whole,
        Err(_) => Played::HungUp,
    }
}

/// Waits until the client closes the connection; it sends nothing while it waits for an answer.
async fn closed(socket: &mut TcpStream) {
    let mut byte = [0];
    let _ = socket.read(&mut byte).await;
}
