//! Clients of the doors: over HTTP, and over a WebSocket.

use super::described;
use crate::support::{
    http::{self, Answered},
    json::present,
    server::Server,
};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream,
    tungstenite::{Message, client::IntoClientRequest as _, http::HeaderValue},
};

/// A client of one user.
pub(super) struct Door {
    pub(super) address: String,
    pub(super) token: Option<&'static str>,
}

impl Door {
    pub(super) fn of(server: &Server) -> Self {
        Self { address: server.address(), token: None }
    }

    fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![("Content-Type", "application/json".to_owned())];
        headers.extend(self.token.map(|token| ("Authorization", format!("Bearer {token}"))));
        headers
    }

    pub(super) async fn ask(&self, method: &str, path: &str, body: &Value) -> Answered {
        let headers = self.headers();
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = http::send(&self.address, method, path, &headers, &body).await;
        described::check(method, path, &answer);
        answer
    }

    pub(super) async fn create(&self, body: Value) -> Value {
        let answer = self.ask("POST", "/v1/responses", &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    pub(super) async fn get(&self, path: &str) -> Value {
        let answer = self.ask("GET", path, &Value::Null).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    pub(super) async fn stream(&self, method: &str, path: &str, body: &Value) -> Vec<Value> {
        let headers = self.headers();
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut events = http::events(&self.address, method, path, &headers, &body).await;
        assert_eq!(events.pop(), Some(json!("[DONE]")), "{events:?}");
        events
    }
}

/// A client's WebSocket at `/v1/responses`.
pub(super) struct Lane(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Lane {
    pub(super) async fn of(server: &Server) -> Self {
        Self::open(&format!("ws://{}/v1/responses", server.address()), None).await
    }

    pub(super) async fn open(url: &str, token: Option<&str>) -> Self {
        let mut request = url.into_client_request().unwrap();
        if let Some(token) = token {
            let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
            request.headers_mut().insert("Authorization", value);
        }
        Self(tokio_tungstenite::connect_async(request).await.unwrap().0)
    }

    pub(super) async fn send(&mut self, frame: &Value) {
        self.send_raw(&frame.to_string()).await;
    }

    pub(super) async fn send_raw(&mut self, text: &str) {
        self.0.send(Message::Text(text.into())).await.unwrap();
    }

    /// Returns the next event.
    pub(super) async fn event(&mut self) -> Value {
        loop {
            match self.0.next().await.unwrap().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Close(frame) => panic!("the server has closed the socket: {frame:?}"),
                _ => {}
            }
        }
    }

    /// Returns the next event of this type.
    pub(super) async fn until(&mut self, kind: &str) -> Value {
        loop {
            let event = self.event().await;
            if *present(&event["type"]) == kind {
                return event;
            }
        }
    }

    /// Returns the events up to the end of a response, or up to an error.
    pub(super) async fn rest(&mut self) -> Vec<Value> {
        let ends = ["response.completed", "response.failed", "response.incomplete", "error"];
        let mut events = Vec::new();
        loop {
            events.push(self.event().await);
            let kind = events.last().and_then(|event| event["type"].as_str()).unwrap();
            if ends.contains(&kind) {
                return events;
            }
        }
    }

    /// Sends a frame, and returns the events up to the end of its response.
    pub(super) async fn ask(&mut self, frame: &Value) -> Vec<Value> {
        self.send(frame).await;
        self.rest().await
    }

    /// Sends a frame, and returns the last event of its response.
    pub(super) async fn end_of(&mut self, frame: &Value) -> Value {
        self.ask(frame).await.pop().unwrap()
    }
}
