//! Connections within the process. A dialect over HTTP is a client of the server like any other: it uses the Rust
//! client, over a pair of channels instead of a socket.

use axum::extract::ws::Utf8Bytes;
use reseed_client::{Lost, Pending, Received, Transport};
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Frames that wait for the client. Beyond this, the server waits, as it waits for a socket that is full.
const FRAMES_MAX: usize = 32;

/// The client's end. It is a [`Transport`] for the Rust client.
#[derive(Debug)]
pub struct ClientEnd {
    commands: mpsc::UnboundedSender<String>,
    frames: mpsc::Receiver<ToClient>,
    closed: Option<Lost>,
}

/// The server's end.
#[derive(Debug)]
pub struct ServerEnd {
    /// Frames of the client. The Rust client bounds the commands that wait for replies, and so this channel.
    pub commands: mpsc::UnboundedReceiver<String>,
    /// Takes what the client gets.
    pub frames: mpsc::Sender<ToClient>,
}

/// A message of the server.
#[derive(Debug)]
pub enum ToClient {
    /// A frame.
    Frame(Utf8Bytes),
    /// A sign of life.
    Ping,
    /// The connection was closed with this code, for this reason.
    Closed(u16, String),
}

/// Returns the two ends of a connection.
#[must_use]
pub fn pair() -> (ClientEnd, ServerEnd) {
    let (commands_in, commands) = mpsc::unbounded_channel();
    let (frames, frames_out) = mpsc::channel(FRAMES_MAX);
    (ClientEnd { commands: commands_in, frames: frames_out, closed: None }, ServerEnd { commands, frames })
}

impl Transport for ClientEnd {
    fn queue(&mut self, frame: String) {
        // If the server has closed the connection, the next poll says so.
        let _ = self.commands.send(frame);
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<Received, Lost>> {
        if let Some(lost) = &self.closed {
            return Poll::Ready(Err(lost.clone()));
        }
        self.frames.poll_recv(cx).map(|message| {
            let lost = match message {
                Some(ToClient::Frame(frame)) => return Ok(Received::Text(frame.as_str().to_owned())),
                Some(ToClient::Ping) => return Ok(Received::Ping),
                Some(ToClient::Closed(code, reason)) => Lost::closed(code, &reason),
                None => Lost::Broken("the server has dropped the connection".to_owned()),
            };
            self.closed = Some(lost.clone());
            Err(lost)
        })
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        // The server still handles what was queued.
        Box::pin(std::future::ready(()))
    }
}
