//! A page with `useChat`, frame by frame.

use crate::support::{json::present, server::Server};
use reseed_client::{Address, Message, Socket};
use serde_json::{Value, json};
use std::time::Duration;

/// The time limit for a frame on a machine that is busy with other tests; only a failing test reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A page with `useChat`: its connection, and the messages of its chat.
pub(super) struct Page {
    pub(super) socket: Socket,
    pub(super) chat: &'static str,
    pub(super) body: Value,
    pub(super) messages: Vec<Value>,
    requests: u32,
    pub(super) sequence: u64,
}

impl Page {
    pub(super) async fn open(server: &Server, chat: &'static str) -> Self {
        Self::open_at(&format!("ws://{}/ai", server.address()), &[], chat).await
    }

    pub(super) async fn open_at(url: &str, headers: &[(&str, &str)], chat: &'static str) -> Self {
        let socket = Socket::open_with(&Address::exactly(url).unwrap(), headers).await.unwrap();
        Self { socket, chat, body: json!({}), messages: Vec::new(), requests: 0, sequence: 0 }
    }

    pub(super) async fn raw(&mut self, text: String) {
        self.socket.send_message(Message::text(text)).await.unwrap();
    }

    /// Sends a request of this kind, and returns its id.
    pub(super) async fn request(&mut self, mut frame: Value) -> String {
        self.requests += 1;
        self.sequence = 0;
        let id = format!("request-{}", self.requests);
        frame["requestId"] = json!(id);
        frame["id"] = json!(self.chat);
        frame["headers"] = json!({});
        frame["body"] = self.body.clone();
        self.raw(frame.to_string()).await;
        id
    }

    /// Sends the messages.
    pub(super) async fn send(&mut self, trigger: &str, message: Option<&str>) -> String {
        let mut frame = json!({"type": "send", "trigger": trigger, "messages": self.messages});
        if let Some(message) = message {
            frame["messageId"] = json!(message);
        }
        self.request(frame).await
    }

    pub(super) fn said(&mut self, id: &str, text: &str) {
        self.messages.push(json!({"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}));
    }

    /// Says something and returns the chunks of the answer, which becomes a message.
    pub(super) async fn say(&mut self, id: &str, text: &str) -> Vec<Value> {
        self.said(id, text);
        self.send("submit-message", None).await;
        let chunks = self.chunks().await;
        self.keep(&chunks);
        chunks
    }

    /// Puts an answer into the messages, in the place of an earlier form of it.
    pub(super) fn keep(&mut self, chunks: &[Value]) {
        let id = chunks[0]["messageId"].clone();
        let known = self.messages.iter().position(|message| *present(&message["id"]) == id);
        let mut parts = known.map(|at| self.messages[at]["parts"].as_array().unwrap().clone()).unwrap_or_default();
        for chunk in chunks {
            let call = &chunk["toolCallId"];
            let of_call = |parts: &mut Vec<Value>| parts.iter().position(|part| part["toolCallId"] == *present(call));
            match chunk["type"].as_str().unwrap() {
                "start-step" => parts.push(json!({"type": "step-start"})),
                "text-delta" => parts.push(json!({"type": "text", "text": chunk["delta"], "state": "done"})),
                "tool-input-available" => parts.push(json!({
                    "type": format!("tool-{}", chunk["toolName"].as_str().unwrap()), "toolCallId": call,
                    "state": "input-available", "input": chunk["input"],
                    "providerExecuted": chunk["providerExecuted"],
                })),
                "tool-approval-request" => {
                    let at = of_call(&mut parts).expect("the call was shown");
                    parts[at]["state"] = json!("approval-requested");
                    parts[at]["approval"] = json!({"id": chunk["approvalId"]});
                }
                "tool-output-available" => {
                    let at = of_call(&mut parts).expect("the call was shown");
                    parts[at]["state"] = json!("output-available");
                    parts[at]["output"] = chunk["output"].clone();
                }
                _ => {}
            }
        }
        let message = json!({"id": id, "role": "assistant", "parts": parts});
        match known {
            Some(at) => self.messages[at] = message,
            None => self.messages.push(message),
        }
    }

    /// Changes the last part of the last message that has this type.
    pub(super) fn change(&mut self, kind: &str, change: impl FnOnce(&mut Value)) {
        let message = self.messages.last_mut().unwrap();
        let parts = message["parts"].as_array_mut().unwrap();
        change(parts.iter_mut().rev().find(|part| part["type"] == kind).unwrap());
    }

    /// Returns the next frame. Chunks of earlier requests, which were aborted, are dropped as the AI SDK drops them.
    pub(super) async fn frame(&mut self) -> Value {
        loop {
            let received = tokio::time::timeout(PATIENCE, self.socket.receive()).await.expect("a frame comes in time");
            let frame: Value = serde_json::from_str(&received.unwrap_or_else(|lost| panic!("{lost}"))).unwrap();
            if frame["type"] != "chunk" {
                return frame;
            }
            if frame["requestId"] == format!("request-{}", self.requests) {
                assert_eq!(frame["sequence"], self.sequence, "{frame}");
                self.sequence += 1;
                return frame;
            }
        }
    }

    /// Returns the next chunk of this type. Others are dropped.
    pub(super) async fn chunk(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.frame().await;
            assert_eq!(frame["type"], "chunk", "{frame}");
            if frame["chunk"]["type"] == kind {
                return frame["chunk"].clone();
            }
        }
    }

    /// As [`Self::chunk`], of a request that is answered with `start` first.
    pub(super) async fn chunk_after_start(&mut self, kind: &str) -> Value {
        assert_eq!(self.frame().await["type"], "start");
        self.chunk(kind).await
    }

    /// Returns the chunks up to the end of the request.
    pub(super) async fn chunks(&mut self) -> Vec<Value> {
        let mut chunks = Vec::new();
        loop {
            let mut frame = self.frame().await;
            match frame["type"].as_str().unwrap() {
                "chunk" => chunks.push(frame["chunk"].take()),
                "start" => {}
                "end" => return chunks,
                _ => panic!("{frame} after {chunks:#?}"),
            }
        }
    }

    pub(super) async fn closed(&mut self) -> u16 {
        loop {
            let received = tokio::time::timeout(PATIENCE, self.socket.receive()).await.expect("it closes in time");
            if let Err(lost) = received {
                return lost.code();
            }
        }
    }
}
