//! A conversation of many turns in either protocol version: sends input, answers the model's tool calls, and waits
//! until the turn ends.

use super::client::Client;
use serde_json::{Value, json};

/// The protocol version of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    V1,
    V2,
}

impl Dialect {
    /// Returns the name of the command that compacts.
    pub(crate) fn compact_command(self) -> &'static str {
        match self {
            Self::V1 => "manual_compact",
            Self::V2 => "start_compaction",
        }
    }

    /// Returns the names of the two counts in `context_compacted`: before and after.
    pub(crate) fn compacted_counts(self) -> [&'static str; 2] {
        match self {
            Self::V1 => ["oldTokenCount", "newTokenCount"],
            Self::V2 => ["tokensBefore", "tokensAfter"],
        }
    }
}

/// Answers a tool's calls; receives the number of the call, from 0.
type Tool = Box<dyn FnMut(u64) -> String + Send>;

/// A client during a conversation. It reads frames in order; those of the last turn and earlier are in
/// [`Client::seen`].
pub(crate) struct Conversation {
    pub(crate) client: Client,
    pub(crate) dialect: Dialect,
    tool: Option<Tool>,
    calls: u64,
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ended {
    /// `None` if it completed, else the code and message of its error.
    pub(crate) error: Option<(String, String)>,
    /// The context info at that time.
    pub(crate) info: Value,
}

impl Conversation {
    /// Connects, and on v2 opens a session.
    pub(crate) async fn begin(url: &str, dialect: Dialect) -> Self {
        let client = match dialect {
            Dialect::V1 => Client::connect(url).await,
            Dialect::V2 => Client::v2_session(url).await.0,
        };
        Self { client, dialect, tool: None, calls: 0 }
    }

    /// Continues over another connection, on v2. Frames of the previous one count as well.
    pub(crate) fn go_on(&mut self, mut client: Client) {
        let before = std::mem::take(&mut self.client.seen);
        client.seen.splice(..0, before);
        self.client = client;
    }

    /// Offers the model the tool `look` and answers its calls with this function; only on v2.
    pub(crate) async fn offer(&mut self, tool: impl FnMut(u64) -> String + Send + 'static) {
        self.tool = Some(Box::new(tool));
        self.offer_again().await;
    }

    /// Offers the tool again, because a server that opens the session knows none.
    pub(crate) async fn offer_again(&mut self) {
        let look = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
        let ok = self.client.ask("register_tools", json!({ "tools": [look] })).await;
        assert_eq!(ok["type"], "ok", "{ok}");
    }

    /// Sends a user message without waiting.
    pub(crate) async fn send(&mut self, text: &str) {
        let input = match self.dialect {
            Dialect::V1 => json!([{ "type": "message", "role": "user", "content": text }]),
            Dialect::V2 => json!(text),
        };
        self.client.send("user_input", json!({ "input": input })).await;
    }

    /// Sends input and waits until its turn ends.
    pub(crate) async fn say(&mut self, text: &str) -> Ended {
        self.send(text).await;
        self.turn_end().await
    }

    /// Like [`Self::say`], for a turn that must complete; returns the context info.
    pub(crate) async fn talk(&mut self, text: &str) -> Value {
        let ended = self.say(text).await;
        assert_eq!(ended.error, None, "{:?} after {text:?}", self.dialect);
        ended.info
    }

    /// Waits until a turn ends.
    pub(crate) async fn turn_end(&mut self) -> Ended {
        let (mut error, mut info) = (None, Value::Null);
        loop {
            let frame = self.client.next_frame().await.expect("the server does not hang up");
            let payload = &frame["payload"];
            match frame["type"].as_str().unwrap() {
                "tool_call" => self.answer(&payload["toolCallId"]).await,
                "context_info" => info = payload.clone(),
                // On v1 a turn's error precedes its end; a refused frame starts no turn.
                "error" if self.dialect == Dialect::V1 => error = Some(told(&payload["details"]["code"], payload)),
                "error" => panic!("{frame}"),
                "agent_finished" => return Ended { error, info },
                "turn_finished" => {
                    if payload["status"] != "completed" {
                        error = Some(told(&payload["error"]["code"], &payload["error"]));
                    }
                    return Ended { error, info: payload["contextInfo"].clone() };
                }
                _ => {}
            }
        }
    }

    async fn answer(&mut self, call_id: &Value) {
        let output = self.tool.as_mut().expect("only tools on offer are called")(self.calls);
        self.calls += 1;
        self.client.send("tool_result", json!({ "toolCallId": call_id, "output": output })).await;
    }

    /// Waits until no compaction is being made.
    pub(crate) async fn idle(&mut self) {
        let jobs = |conversation: &Self, kind: &str| -> Vec<Value> {
            conversation.came(kind).into_iter().map(|payload| payload["jobId"].clone()).collect()
        };
        let ends = ["compaction_prepared", "context_compacted", "compaction_failed"];
        loop {
            let ended: Vec<Value> = ends.iter().flat_map(|kind| jobs(self, kind)).collect();
            if jobs(self, "compaction_started").iter().all(|job| ended.contains(job)) {
                return;
            }
            self.client.next_frame().await.expect("the server does not hang up");
        }
    }

    /// Returns the context info.
    pub(crate) async fn info(&mut self) -> Value {
        self.client.ask("get_context_info", json!({})).await["payload"].clone()
    }

    /// Returns the payloads of the frames of this type so far.
    pub(crate) fn came(&self, kind: &str) -> Vec<Value> {
        let frames = self.client.seen.iter().filter(|frame| frame["type"] == kind);
        frames.map(|frame| frame["payload"].clone()).collect()
    }
}

fn told(code: &Value, error: &Value) -> (String, String) {
    (code.as_str().unwrap().to_owned(), error["message"].as_str().unwrap().to_owned())
}
