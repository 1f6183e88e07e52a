//! A WebSocket connection of either version: one task that reads commands, writes replies and events, and pings.
//!
//! Invariants:
//! - A reply precedes the events that its command causes.
//! - The connection holds a cursor into the feed of each subscribed session, not a queue of frames.
//! - The frames of one session are in order. Those of several sessions are interleaved.
//! - A bad frame is answered, and the connection continues. Where RFC 6455 requires closing, the connection closes with
//!   the required code, which tungstenite does not send by itself.

mod credentials;
mod feed;
pub(super) mod leaving;
mod refusals;
mod replies;
mod subscription;

pub(super) use self::{
    refusals::BAD_FRAMES_MAX,
    replies::{Unanswered, count_reply},
};

use self::{credentials::ended, subscription::Subscription};
use super::{
    address::network,
    alarm::{Alarm, Ring},
    app::App,
    auth::{Grant, Name},
    closing::{CLOSE_TIME, End, Flow, close, protocol_fault, written},
    door::Guest,
    limits::Place,
    relay::{Links, Via, arrived},
    v1, v2,
};
use crate::{
    core::agent_loop::Origin,
    metrics::{Dialect, OpenConnection},
    runtime::{
        ConnectionShare, Identity, Outgoing, encoded::FrameText, handle::OUTGOING_MAX, outbox::Outbox, watch::Watcher,
    },
    shares::Permit,
};
use axum::extract::ws::{Message, WebSocket};
use futures_util::SinkExt as _;
use reseed_protocol::{CloseCode, ErrorBody, ErrorCode, frame::peek_type};
use std::{net::IpAddr, pin::Pin, sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::WaitForCancellationFutureOwned;

/// Maximum number of unanswered pings.
const PINGS_UNANSWERED_MAX: u32 = 2;

/// The protocol version of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    /// No frame has been received yet.
    Undecided,
    V1,
    /// v2; `greeted` is true once `hello` was answered.
    V2 {
        greeted: bool,
    },
}

pub(super) struct Connection {
    pub(super) app: Arc<App>,
    pub(super) origin: Origin,
    /// The user, once known.
    pub(super) name: Option<Name>,
    /// The grant of its credentials, once they are known.
    pub(super) grant: Option<Arc<Grant>>,
    /// True once the client was warned that its credentials expire.
    told_expiring: bool,
    pub(super) speaks: Speaks,
    /// At most [`SUBSCRIPTIONS_MAX`].
    pub(super) subscriptions: Vec<Subscription>,
    pub(super) shared: ConnectionShare,
    pub(super) outgoing: Outbox,
    pub(super) v1: v1::Translator,
    /// Set while the client watches the session list.
    pub(super) watching: Option<Box<Watcher>>,
    incoming: mpsc::Receiver<Outgoing>,
    /// Commands sent to sessions and not yet answered.
    pub(super) unanswered: Vec<Unanswered>,
    /// The connections to nodes that hold sessions of this client.
    pub(super) links: Option<Box<Links>>,
    /// Set if another node relays this client.
    pub(super) via: Option<Via>,
    socket: WebSocket,
    negotiated: bool,
    /// The client's address.
    pub(super) address: IpAddr,
    /// The key of its rate limit: the user's name, or the address if it has none.
    sender: String,
    bad_frames: u32,
    pings_unanswered: u32,
    /// When the connection began. The time limit for `hello` starts here.
    since: tokio::time::Instant,
    /// When the next ping is due, regardless of other traffic.
    next_beat: tokio::time::Instant,
    alarm: Alarm,
    /// Signals that the server is stopping: first that clients should leave, then that they must.
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    /// While the connection is leaving: when to check again whether anything still runs here for its client.
    leaves_at: Option<tokio::time::Instant>,
    pub(super) counted: OpenConnection,
    /// Its place among the connections that the door admitted.
    guest: Option<Arc<Guest>>,
    /// Its part of the user's share of connections.
    permit: Option<Permit>,
    _place: Option<Place>,
}

impl Connection {
    pub(super) fn new(
        app: Arc<App>,
        socket: WebSocket,
        grant: Option<Arc<Grant>>,
        negotiated: bool,
        address: IpAddr,
        (place, permit): (Option<Place>, Option<Permit>),
        guest: Option<Arc<Guest>>,
    ) -> Self {
        let name = grant.as_ref().map(|grant| grant.name().clone());
        let sender = network(address).to_string();
        if let (Some(guest), Some(name)) = (&guest, &name) {
            guest.known_as(if name.is_empty() { &sender } else { name });
        }
        let (outgoing, incoming) = Outbox::new(OUTGOING_MAX);
        let origin = app.next_origin();
        let shared = ConnectionShare::new(Identity {
            connection_id: app.connection_id(origin),
            client_id: None,
            software: None,
        });
        let speaks = if negotiated { Speaks::V2 { greeted: false } } else { Speaks::Undecided };
        let since = tokio::time::Instant::now();
        let next_beat = since + app.patience.heartbeat;
        let alarm = Alarm::new(since + app.patience.hello.min(app.patience.heartbeat));
        // Kept for the life of the connection, because all connections share one list of waiters.
        let stopped = Box::pin(app.leave.clone().cancelled_owned());
        let mut counted = OpenConnection::new();
        if negotiated {
            counted.speaks(Dialect::V2);
        }
        Self {
            app,
            origin,
            name,
            grant,
            told_expiring: false,
            speaks,
            subscriptions: Vec::new(),
            shared,
            outgoing,
            v1: v1::Translator::default(),
            watching: None,
            incoming,
            unanswered: Vec::new(),
            links: None,
            via: None,
            socket,
            negotiated,
            address,
            sender,
            bad_frames: 0,
            pings_unanswered: 0,
            since,
            next_beat,
            alarm,
            stopped,
            leaves_at: None,
            counted,
            guest,
            permit,
            _place: place,
        }
    }

    /// Serves the connection until it ends. `self` is boxed, because a future stores its arguments twice.
    pub(super) async fn run(mut self: Box<Self>) {
        let end = loop {
            if let Err(end) = self.round().await {
                break end;
            }
        };
        self.let_go();
        match end {
            End::Gone => {}
            // The client may resume reading later. Then it should find the close code behind the frames that are
            // already on their way. Until then it costs no more than its write buffer.
            End::Close(code @ CloseCode::SlowReader, reason) => {
                let patience = self.app.patience.slow_reader;
                tokio::select! {
                    () = Box::pin(close(self.socket, code, reason, patience)) => {}
                    () = self.stopped.as_mut() => {}
                }
            }
            End::Close(code, reason) => Box::pin(close(self.socket, code, reason, CLOSE_TIME)).await,
        }
    }

    /// Waits for one event and handles it.
    async fn round(&mut self) -> Flow {
        let patience = self.app.patience;
        let hello_due = (self.negotiated || self.name.is_none())
            && !matches!(self.speaks, Speaks::V1 | Speaks::V2 { greeted: true });
        let due = if hello_due { self.since + patience.hello } else { self.next_beat };
        self.expiry().await?;
        let due = self.expiry_due().map_or(due, |expiry| due.min(expiry));
        let due = self.leaves_at.map_or(due, |at| due.min(at));
        tokio::select! {
            biased;
            () = self.stopped.as_mut() => {
                if !self.app.stop.is_cancelled() {
                    self.leave_soon();
                    return Ok(());
                }
                self.pump().await?;
                Err(End::Close(CloseCode::Restarting, "the server is restarting; reconnect and resume"))
            }
            Some(outgoing) = self.incoming.recv() => {
                self.outgoing(outgoing).await?;
                self.flush().await
            }
            ended = ended(&self.grant) => {
                let (code, why) = ended.close();
                Err(End::Close(code, why))
            }
            () = self.shared.bell.notified() => self.pump().await,
            () = listed(&self.watching) => Box::pin(self.tell_list()).await,
            received = self.socket.recv(), if self.may_read() => match received {
                None => Err(End::Gone),
                Some(Err(error)) => Err(protocol_fault(&error)),
                // Boxed, because commands are rare and what they await would make every idle connection larger.
                Some(Ok(message)) => Box::pin(self.received(message)).await,
            },
            // Polled after the client's commands, so that a holder that always has more frames cannot keep the client
            // from cancelling.
            told = arrived(&mut self.links) => match told {
                Some(told) => Box::pin(self.hear(told)).await,
                None => Ok(()),
            },
            ring = self.alarm.ring(due) => match ring {
                Ring::Look => self.pump().await,
                Ring::Due if hello_due && self.since + patience.hello <= tokio::time::Instant::now() => {
                    Err(End::Close(CloseCode::NoHello, "hello did not arrive in time"))
                }
                Ring::Due if self.leaves_at.is_some_and(|at| at <= tokio::time::Instant::now()) => self.leave().await,
                Ring::Due if !hello_due && self.next_beat <= tokio::time::Instant::now() => self.beat().await,
                // The next round sends the warning, or ends the connection.
                Ring::Due => Ok(()),
            },
        }
    }

    async fn received(&mut self, message: Message) -> Flow {
        self.pings_unanswered = 0;
        self.guest.iter().for_each(|guest| match &message {
            Message::Ping(payload) | Message::Pong(payload) => guest.control_read(payload.len()),
            _ => guest.message_read(),
        });
        match message {
            // Another server executes the client's command.
            Message::Text(_) if self.may_leave() => {
                self.pump().await?;
                Err(self.left())
            }
            Message::Text(text) => {
                if self.speaks == Speaks::Undecided {
                    // A frame that is neither `hello` nor a v1 command does not decide the version. It is answered as
                    // in v1.
                    if peek_type(&text).as_deref() == Some("hello") {
                        self.speaks = Speaks::V2 { greeted: false };
                        self.counted.speaks(Dialect::V2);
                    }
                }
                if self.renewed(&text) {
                    return Ok(());
                }
                // A session that is gone may already be open elsewhere. As soon as the client sends a command, it is
                // told about that, even before this connection's time to leave. A client that closes the session need
                // not be told.
                let is_leaving = self.via.is_some() && self.leaves_at.is_some();
                if is_leaving && peek_type(&text).as_deref() != Some("close_session") {
                    self.tell_gone().await?;
                }
                if let Err(used_up) = self.take_points(&text) {
                    return self.rate_limited(&text, used_up).await;
                }
                match self.speaks {
                    Speaks::V2 { greeted } => v2::received(self, &text, greeted).await?,
                    _ => v1::received(self, text.as_str()).await?,
                }
                self.flush().await
            }
            Message::Binary(_) => {
                let message = "send text frames; this one is binary";
                let error = ErrorBody::new(ErrorCode::BinaryFrame, message);
                self.refuse(None, error).await?;
                self.flush().await
            }
            // tungstenite answers pings by itself.
            Message::Ping(_) | Message::Pong(_) => Ok(()),
            Message::Close(_) => {
                // tungstenite has queued the answering close frame, but writes it only on a flush.
                let _ = self.flush().await;
                Err(End::Gone)
            }
        }
    }

    /// Records the first v1 command, which decides the version.
    pub(super) fn speaks_v1(&mut self) {
        if self.speaks != Speaks::V1 {
            self.speaks = Speaks::V1;
            self.counted.speaks(Dialect::V1);
        }
    }

    /// Adds a frame to the write buffer. Disconnects a client that does not read for too long.
    pub(super) async fn send(&mut self, frame: impl Into<FrameText>) -> Flow {
        self.write(Message::Text(frame.into()), false).await
    }

    pub(super) async fn flush(&mut self) -> Flow {
        let patience = self.slow_reader();
        written(timeout(patience, self.socket.flush()).await)
    }

    /// Returns how long the client may stop reading. An edge waits for its client as long, and should give up first,
    /// because it can tell the client why.
    fn slow_reader(&self) -> Duration {
        let patience = self.app.patience.slow_reader;
        if self.via.is_some() { patience * 2 } else { patience }
    }

    async fn write(&mut self, message: Message, flush: bool) -> Flow {
        let patience = self.slow_reader();
        let writing = async {
            self.socket.feed(message).await?;
            if flush { self.socket.flush().await } else { Ok(()) }
        };
        written(timeout(patience, writing).await)
    }

    async fn beat(&mut self) -> Flow {
        // A v1 client is never disconnected for this, because it does not reconnect and would lose its session.
        if self.speaks != Speaks::V1 && self.pings_unanswered >= PINGS_UNANSWERED_MAX {
            return Err(End::Close(CloseCode::NoPong, "two pings were not answered; reconnect and resume"));
        }
        self.pings_unanswered += 1;
        self.next_beat = tokio::time::Instant::now() + self.app.patience.heartbeat;
        self.write(Message::Ping(Default::default()), true).await
    }
}

/// Waits for reportable changes of the session list; never returns without a watcher. Boxed, because few connections
/// watch.
async fn listed(watching: &Option<Box<Watcher>>) {
    match watching {
        Some(watcher) => Box::pin(watcher.due()).await,
        None => std::future::pending().await,
    }
}
