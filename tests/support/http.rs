//! A minimal HTTP client, so that a test controls every header, including `Host`.

use serde_json::Value;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The time limit for a response on a machine that is busy with other tests; only a failing test reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server's response.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    /// Status line and headers, in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answered {
    /// Returns the body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends a `GET` request.
pub(crate) async fn get(address: &str, path: &str) -> Answered {
    ask(address, "GET", path, &[]).await
}

/// Sends a `GET` request with a token.
pub(crate) async fn get_as(address: &str, path: &str, token: &str) -> Answered {
    ask(address, "GET", path, &[("Authorization", &format!("Bearer {token}"))]).await
}

/// Sends a request with these headers; `Host` is the address unless they say otherwise.
pub(crate) async fn ask(address: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> Answered {
    send(address, method, path, headers, "").await
}

/// Sends a request with these headers and this body.
pub(crate) async fn send(address: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answered {
    send_bytes(address, method, path, headers, body.as_bytes()).await
}

/// As [`send`], with a body that is no text.
pub(crate) async fn send_bytes(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answered {
    let mut request = format!("{method} {path} HTTP/1.1\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| *name == "Host") {
        request.push_str(&format!("Host: {address}\r\n"));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    let exchange = tokio::time::timeout(PATIENCE, exchange(address, &request, body));
    exchange.await.unwrap_or_else(|_| panic!("no answer from {address} to {method} {path} for {PATIENCE:?}"))
}

/// Sends a request, and returns the events of the answer up to its end: their data, as JSON where it is.
pub(crate) async fn events(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Vec<Value> {
    let mut request = format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    request.push_str(body);
    let read = async {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).await.unwrap();
        text
    };
    let text = tokio::time::timeout(PATIENCE, read).await.unwrap_or_else(|_| panic!("{path} did not end"));
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| Value::from(data))).collect()
}

async fn exchange(address: &str, request: &str, content: &[u8]) -> Answered {
    let mut socket = TcpStream::connect(address).await.unwrap_or_else(|error| panic!("connect to {address}: {error}"));
    socket.write_all(request.as_bytes()).await.unwrap();
    // A server may answer before it has read everything.
    let _ = socket.write_all(content).await;
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        let read = socket.read_buf(&mut bytes).await.unwrap();
        assert!(read > 0, "{address} hung up on {request}");
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        let read = socket.read_buf(&mut body).await.unwrap();
        assert!(read > 0, "{address} hung up in the middle of its answer to {request}");
    }
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answered {
        status: status.unwrap_or_else(|| panic!("no status in {head}")),
        head,
        body: String::from_utf8(body).unwrap(),
    }
}
