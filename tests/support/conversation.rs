//! A conversation of many turns in either dialect: it says something, answers the tools that the model calls, and waits
//! until the turn is over.

use super::client::Client;
use serde_json::{Value, json};

/// What a client can speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    V1,
    V2,
}

/// Answers the calls of a tool; it is given the call's number, from 0.
type Tool = Box<dyn FnMut(u64) -> String + Send>;

/// A client in the middle of a conversation. It takes the frames in the order in which they come; those of the last turn
/// and before are in [`Client::seen`].
pub(crate) struct Conversation {
    pub(crate) client: Client,
    pub(crate) dialect: Dialect,
    tool: Option<Tool>,
    calls: u64,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ended {
    /// `None` where it was completed, else the code and the message of its error.
    pub(crate) error: Option<(String, String)>,
    /// How full the window was then.
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

    /// Offers the model the tool `look` and answers its calls with this; only on v2.
    pub(crate) async fn offer(&mut self, tool: impl FnMut(u64) -> String + Send + 'static) {
        let look = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
        let ok = self.client.ask("register_tools", json!({ "tools": [look] })).await;
        assert_eq!(ok["type"], "ok", "{ok}");
        self.tool = Some(Box::new(tool));
    }

    /// Sends a message of the user's, and waits for nothing.
    pub(crate) async fn send(&mut self, text: &str) {
        let input = match self.dialect {
            Dialect::V1 => json!([{ "type": "message", "role": "user", "content": text }]),
            Dialect::V2 => json!(text),
        };
        self.client.send("user_input", json!({ "input": input })).await;
    }

    /// Says something and waits until its turn is over.
    pub(crate) async fn say(&mut self, text: &str) -> Ended {
        self.send(text).await;
        self.turn_end().await
    }

    /// The same for a turn that must be completed; returns how full the window is then.
    pub(crate) async fn talk(&mut self, text: &str) -> Value {
        let ended = self.say(text).await;
        assert_eq!(ended.error, None, "{:?} after {text:?}", self.dialect);
        ended.info
    }

    /// Waits until a turn is over.
    pub(crate) async fn turn_end(&mut self) -> Ended {
        let (mut error, mut info) = (None, Value::Null);
        loop {
            let frame = self.client.next_frame().await.expect("the server does not hang up");
            let payload = &frame["payload"];
            match frame["type"].as_str().unwrap() {
                "tool_call" => self.answer(&payload["callId"]).await,
                "context_info" => info = payload.clone(),
                // On v1 a turn's error comes before its end; a frame that was refused begins no turn.
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
        self.client.send("tool_result", json!({ "callId": call_id, "output": output })).await;
    }

    /// How full the window is.
    pub(crate) async fn info(&mut self) -> Value {
        self.client.ask("get_context_info", json!({})).await["payload"].clone()
    }

    /// The payloads of the frames of this type that came so far.
    pub(crate) fn came(&self, kind: &str) -> Vec<Value> {
        let frames = self.client.seen.iter().filter(|frame| frame["type"] == kind);
        frames.map(|frame| frame["payload"].clone()).collect()
    }
}

fn told(code: &Value, error: &Value) -> (String, String) {
    (code.as_str().unwrap().to_owned(), error["message"].as_str().unwrap().to_owned())
}
