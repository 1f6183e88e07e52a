//! The floor: the minimum that forwards a model's answer. A socket in, one streamed request out, each delta forwarded
//! as one frame of what the model server sent. No store, no history, no counting, no cancelling, no limits. And the
//! floor of a relay: what is read on one side is written on the other.

use anyhow::Context as _;
use axum::{
    Router,
    extract::{
        State,
        ws::{Message, WebSocket, WebSocketUpgrade},
    },
    routing::get,
    serve::ListenerExt as _,
};
use futures_util::SinkExt as _;
use serde_json::json;
use std::sync::Arc;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};

/// The last frame of an answer: what ends the upstream's stream.
pub(crate) const DONE: &str = "[DONE]";

struct Floor {
    http: reqwest::Client,
    url: String,
}

/// Serves until the process is ended.
pub(crate) async fn run(port: &str, upstream: &str) -> anyhow::Result<()> {
    // Building a client requires a cryptography provider, though nothing here is encrypted.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?;
    let floor = Arc::new(Floor { http, url: format!("{upstream}/chat/completions") });
    let router = Router::new()
        .route("/readyz", get(async || "ok"))
        .route(
            "/ws",
            get(async |State(floor): State<Arc<Floor>>, socket: WebSocketUpgrade| {
                socket.read_buffer_size(4096).on_upgrade(async move |socket| {
                    // A client that hangs up ends its connection here.
                    let _ = answer(&floor, socket).await;
                })
            }),
        )
        .with_state(floor);
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await.context("listen")?;
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await.context("serve")
}

/// Passes on what comes, to a server and back, until the process is ended.
pub(crate) async fn relay(port: &str, server: &str) -> anyhow::Result<()> {
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await.context("listen")?;
    loop {
        let (mut client, _) = listener.accept().await.context("accept")?;
        let server = server.to_owned();
        tokio::spawn(async move {
            client.set_nodelay(true)?;
            let mut server = TcpStream::connect(server).await?;
            server.set_nodelay(true)?;
            copy_bidirectional(&mut client, &mut server).await
        });
    }
}

async fn answer(floor: &Floor, mut socket: WebSocket) -> anyhow::Result<()> {
    while let Some(Ok(message)) = socket.recv().await {
        let Message::Text(question) = message else { continue };
        let body = json!({
            "model": "load",
            "stream": true,
            "stream_options": { "include_usage": true },
            "messages": [{ "role": "user", "content": question.as_str() }],
        });
        let request = floor.http.post(&floor.url).header("content-type", "application/json").body(body.to_string());
        let mut response = request.send().await?.error_for_status()?;
        let mut waiting = Vec::new();
        while let Some(bytes) = response.chunk().await? {
            waiting.extend_from_slice(&bytes);
            let mut read = 0;
            while let Some(end) = waiting[read..].windows(2).position(|two| two == b"\n\n") {
                let event = std::str::from_utf8(&waiting[read..read + end])?;
                if let Some(data) = event.strip_prefix("data: ") {
                    socket.feed(Message::text(data.to_owned())).await?;
                }
                read += end + 2;
            }
            waiting.drain(..read);
            socket.flush().await?;
        }
    }
    Ok(())
}
