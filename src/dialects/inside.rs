//! Connections within the process. A dialect over HTTP is a client of the server like any other: it uses the Rust
//! client, over a pair of channels instead of a socket.
//!
//! The server's side of such a connection has no task of its own: it runs while the client waits for frames. So a delta
//! passes from the session to the dialect's client without waking a task between them.

use axum::extract::ws::Utf8Bytes;
use reseed_client::{Lost, Pending, Received, Transport};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::sync::mpsc;

/// Frames that wait for the client. Beyond this, the server waits, as it waits for a socket that is full.
const FRAMES_MAX: usize = 32;

/// The future that serves a connection. It ends with the connection.
type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The client's end. It is a [`Transport`] for the Rust client.
pub struct ClientEnd {
    commands: mpsc::UnboundedSender<String>,
    frames: mpsc::Receiver<ToClient>,
    closed: Option<Lost>,
    /// `None` once the server has ended the connection.
    serving: Option<Serving>,
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

/// Returns the client's end of a connection that this serves.
pub fn connection<S>(serve: impl FnOnce(ServerEnd) -> S) -> ClientEnd
where
    S: Future<Output = ()> + Send + 'static,
{
    let (commands_in, commands) = mpsc::unbounded_channel();
    let (frames, frames_out) = mpsc::channel(FRAMES_MAX);
    let serving: Serving = Box::pin(serve(ServerEnd { commands, frames }));
    ClientEnd { commands: commands_in, frames: frames_out, closed: None, serving: Some(serving) }
}

impl ClientEnd {
    /// Takes the next message. If there is none, lets the server work first.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<ToClient>> {
        if let Ok(message) = self.frames.try_recv() {
            return Poll::Ready(Some(message));
        }
        if let Some(serving) = &mut self.serving
            && serving.as_mut().poll(cx).is_ready()
        {
            self.serving = None;
        }
        self.frames.poll_recv(cx)
    }
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
        self.poll_message(cx).map(|message| {
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
        Box::pin(std::future::ready(()))
    }
}

impl Drop for ClientEnd {
    /// The server still handles what was queued, and sees that the client is gone.
    fn drop(&mut self) {
        if let (Some(serving), Ok(runtime)) = (self.serving.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(serving);
        }
    }
}

impl fmt::Debug for ClientEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientEnd").field("closed", &self.closed).finish_non_exhaustive()
    }
}
