//! A client's WebSocket, or what stands for it within the process: writes frames within the time that a client may stop
//! reading, pings, and counts bad frames.

use crate::{
    metrics::Held,
    runtime::encoded::FrameText,
    server::{
        closing::{CLOSE_TIME, End, Flow, close, protocol_fault, written},
        door::Guest,
    },
    shares::Permit,
};
use axum::extract::ws::{Message, WebSocket};
use futures_util::SinkExt as _;
use reseed_dialects::{
    entrance::Watch as _,
    inside::{ServerEnd, ToClient},
};
use reseed_protocol::CloseCode;
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// What carries a connection's frames.
#[expect(clippy::large_enum_variant, reason = "most connections are sockets, and a box would be one more allocation")]
pub(in crate::server) enum Link {
    /// A client of v1 or v2.
    Socket(WebSocket),
    /// A dialect over HTTP, which is a client within the process.
    Inside(ServerEnd),
}

/// Maximum number of unanswered pings.
const PINGS_UNANSWERED_MAX: u32 = 2;

/// Bad frames in a row that close the connection. So many come from a program with another protocol, not from a typo.
pub(in crate::server) const BAD_FRAMES_MAX: u32 = 50;

pub(in crate::server) struct Wire {
    link: Link,
    /// How long the client may stop reading.
    patience: Duration,
    bad_frames: u32,
    pings_unanswered: u32,
    pub(in crate::server) counted: Held,
    /// Its place among the connections that the door admitted.
    pub(super) guest: Option<Arc<Guest>>,
    /// Its part of all connections.
    _permit: Permit,
}

impl Wire {
    pub(super) fn new(
        link: Link,
        patience: Duration,
        counted: Held,
        guest: Option<Arc<Guest>>,
        permit: Permit,
    ) -> Self {
        Self { link, patience, bad_frames: 0, pings_unanswered: 0, counted, guest, _permit: permit }
    }

    /// Waits longer for the reader, which is another node. An edge waits for its client, and should give up first,
    /// because it can tell the client why.
    pub(super) fn be_patient(&mut self) {
        self.patience *= 2;
    }

    /// Adds a frame to the write buffer. Disconnects a client that does not read for too long.
    pub(in crate::server) async fn send(&mut self, frame: impl Into<FrameText>) -> Flow {
        match &mut self.link {
            Link::Socket(socket) => written(timeout(self.patience, socket.feed(Message::Text(frame.into()))).await),
            Link::Inside(end) => match timeout(self.patience, end.frames.send(ToClient::Frame(frame.into()))).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) => Err(End::Gone),
                Err(_) => Err(End::slow_reader()),
            },
        }
    }

    pub(in crate::server) async fn flush(&mut self) -> Flow {
        match &mut self.link {
            Link::Socket(socket) => written(timeout(self.patience, socket.flush()).await),
            Link::Inside(_) => Ok(()),
        }
    }

    /// Waits for a message. Cancel safe.
    pub(in crate::server) async fn receive(&mut self) -> Result<Message, End> {
        let socket = match &mut self.link {
            Link::Socket(socket) => socket,
            Link::Inside(end) => {
                return end.commands.recv().await.map(|frame| Message::Text(frame.into())).ok_or(End::Gone);
            }
        };
        match socket.recv().await {
            None => Err(End::Gone),
            Some(Err(error)) => Err(protocol_fault(&error)),
            Some(Ok(message)) => {
                self.pings_unanswered = 0;
                self.guest.iter().for_each(|guest| guest.received(&message));
                Ok(message)
            }
        }
    }

    /// Pings. Disconnects a client that has left too many pings unanswered, if it `reconnects`.
    pub(in crate::server) async fn beat(&mut self, reconnects: bool) -> Flow {
        let socket = match &mut self.link {
            Link::Socket(socket) => socket,
            Link::Inside(end) => {
                // Frames that wait are a sign of life too.
                let _ = end.frames.try_send(ToClient::Ping);
                return Ok(());
            }
        };
        if reconnects && self.pings_unanswered >= PINGS_UNANSWERED_MAX {
            return Err(End::Close(CloseCode::NoPong, "two pings were not answered; reconnect and resume"));
        }
        self.pings_unanswered += 1;
        let pinging = async {
            socket.feed(Message::Ping(Default::default())).await?;
            socket.flush().await
        };
        written(timeout(self.patience, pinging).await)
    }

    /// Counts a frame that was refused. Returns true if there were too many in a row.
    pub(super) fn bad_frame(&mut self) -> bool {
        self.bad_frames += 1;
        self.bad_frames >= BAD_FRAMES_MAX
    }

    pub(in crate::server) fn good_frame(&mut self) {
        self.bad_frames = 0;
    }

    /// Closes the socket. A client that was too slow may resume reading later. Then it should find the close code
    /// behind the frames that are already on their way. Until then it costs no more than its write buffer.
    pub(in crate::server) async fn close(self, code: CloseCode, reason: &str, stopped: impl Future<Output = ()>) {
        let socket = match self.link {
            Link::Socket(socket) => socket,
            Link::Inside(end) => {
                let _ = timeout(CLOSE_TIME, end.frames.send(ToClient::Closed(code.code(), reason.to_owned()))).await;
                return;
            }
        };
        let patience = if code == CloseCode::SlowReader { self.patience } else { CLOSE_TIME };
        tokio::select! {
            () = Box::pin(close(socket, code, reason, patience)) => {}
            () = stopped, if code == CloseCode::SlowReader => {}
        }
    }
}
