//! A server that speaks MCP line by line, written without the library under test.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

/// The revision of a server that needs a handshake.
pub(super) const OLD: &str = "2025-06-18";

/// The newest revision, without a handshake.
pub(super) const NEWEST: &str = "2026-07-28";

/// The server's end of a connection.
pub(super) struct Wire {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    output: WriteHalf<DuplexStream>,
}

impl Wire {
    pub(super) fn new(stream: DuplexStream) -> Self {
        let (input, output) = tokio::io::split(stream);
        Self { lines: BufReader::new(input).lines(), output }
    }

    /// Returns the next message; `None` if the client has closed.
    pub(super) async fn next(&mut self) -> Option<Value> {
        let line = self.lines.next_line().await.ok()??;
        Some(serde_json::from_str(&line).unwrap())
    }

    /// Returns the next message with this method, and drops others.
    pub(super) async fn of(&mut self, method: &str) -> Option<Value> {
        loop {
            let message = self.next().await?;
            if message["method"] == method {
                return Some(message);
            }
        }
    }

    pub(super) async fn line(&mut self, text: &str) {
        // A client that has closed is detected when reading.
        let _ = self.output.write_all(format!("{text}\n").as_bytes()).await;
    }

    pub(super) async fn say(&mut self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        self.line(&message.to_string()).await;
    }

    pub(super) async fn answer(&mut self, request: &Value, result: Value) {
        self.say(json!({ "id": request["id"], "result": result })).await;
    }

    pub(super) async fn refuse(&mut self, request: &Value, code: i64, message: &str) {
        self.say(json!({ "id": request["id"], "error": { "code": code, "message": message } })).await;
    }

    /// Answers a call with text.
    pub(super) async fn text(&mut self, call: &Value, text: &str) {
        self.answer(call, json!({ "resultType": "complete", "content": [{ "type": "text", "text": text }] })).await;
    }

    /// Answers everything up to the list of tools, like a server of this revision. Returns the first request that is
    /// something else; `None` if the client has closed.
    pub(super) async fn up(&mut self, revision: &str, tools: &[Value]) -> Option<Value> {
        let capabilities = json!({ "tools": { "listChanged": true } });
        loop {
            let message = self.next().await?;
            match message["method"].as_str().unwrap_or_default() {
                "server/discover" if revision == OLD => self.refuse(&message, -32601, "no such method").await,
                "server/discover" => {
                    let found = json!({
                        "resultType": "complete", "supportedVersions": [NEWEST], "capabilities": capabilities,
                        "ttlMs": 0, "cacheScope": "private",
                        "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "scripted", "version": "1" } },
                    });
                    self.answer(&message, found).await;
                }
                "initialize" => {
                    assert_eq!(revision, OLD, "the newest revision needs no handshake");
                    let software = json!({ "name": "scripted", "version": "1" });
                    let ready = json!({ "protocolVersion": OLD, "capabilities": capabilities, "serverInfo": software });
                    self.answer(&message, ready).await;
                }
                "notifications/initialized" => {}
                "subscriptions/listen" => self.listening(&message).await,
                "tools/list" => {
                    let list = json!({ "resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "private" });
                    self.answer(&message, list).await;
                }
                // The client's answer to noise.
                "" => {}
                _ => return Some(message),
            }
        }
    }

    /// Answers everything before the list of tools like an old server, and returns the request for the list.
    pub(super) async fn up_to_list(&mut self) -> Option<Value> {
        loop {
            let message = self.next().await?;
            match message["method"].as_str().unwrap_or_default() {
                "server/discover" => self.refuse(&message, -32601, "no such method").await,
                "initialize" => {
                    let software = json!({ "name": "scripted", "version": "1" });
                    let ready =
                        json!({ "protocolVersion": OLD, "capabilities": { "tools": {} }, "serverInfo": software });
                    self.answer(&message, ready).await;
                }
                "tools/list" => return Some(message),
                _ => {}
            }
        }
    }

    /// Reports that the list has changed, either to every client or as a message of a subscription.
    pub(super) async fn changed(&mut self, subscription: Option<&Value>) {
        let meta = subscription.map_or(json!({}), |id| json!({ "io.modelcontextprotocol/subscriptionId": id }));
        self.say(json!({ "method": "notifications/tools/list_changed", "params": { "_meta": meta } })).await;
    }

    /// Accepts a subscription.
    pub(super) async fn listening(&mut self, request: &Value) {
        let params = json!({
            "_meta": { "io.modelcontextprotocol/subscriptionId": request["id"] },
            "notifications": request["params"]["notifications"],
        });
        self.say(json!({ "method": "notifications/subscriptions/acknowledged", "params": params })).await;
    }
}

/// Returns a tool of this name.
pub(super) fn tool(name: &str) -> Value {
    json!({ "name": name, "description": format!("Does {name}."), "inputSchema": { "type": "object" } })
}
