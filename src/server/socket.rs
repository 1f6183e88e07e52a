//! One WebSocket connection of either version: one task that reads commands, writes replies and events, and pings.
//!
//! Invariants:
//! - a reply precedes the events that its command causes;
//! - the connection holds a cursor into the feed of each session that it subscribes to, not a queue of frames;
//! - the frames of one session are in order, and those of several are mixed;
//! - a bad frame is answered, and the connection continues; where RFC 6455 requires closing, the connection closes with
//!   the required code, which tungstenite does not send by itself.

mod feed;
mod subscription;

use self::subscription::Subscription;

use super::{
    alarm::{Alarm, Ring},
    app::App,
    auth::{Grant, Name},
    closing::{CLOSE_TIME, End, Flow, close, protocol_fault, written},
    costs,
    door::Guest,
    limits::Place,
    v1, v2,
};
use crate::{
    core::agent_loop::Origin,
    metrics::{self, Dialect, OpenConnection, Outcome, limits::Limit},
    runtime::{
        ConnectionShare, Identity, Outgoing, Replied,
        encoded::FrameText,
        handle::{OUTGOING_MAX, REPLIES_MAX},
        outbox::Outbox,
        watch::Watcher,
    },
    shares::{Permit, Share, rates::UsedUp},
};
use axum::extract::ws::{Message, WebSocket};
use futures_util::SinkExt as _;
use reseed_protocol::{
    CloseCode, CommandId, ErrorBody, ErrorCode, SessionId,
    command::{Command, Does},
    event::{EphemeralEvent, SubscriptionEnd, TokenExpiring},
    frame::{encode_event, encode_reply},
    reply::Reply,
};
use std::{net::IpAddr, pin::Pin, sync::Arc};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::WaitForCancellationFutureOwned;

/// Bad frames in a row after which the connection is closed: a program with another protocol, not a typing error.
pub(super) const BAD_FRAMES_MAX: u32 = 50;
/// Pings that may stay unanswered.
const PINGS_UNANSWERED_MAX: u32 = 2;

/// The protocol version of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    /// No frame received yet.
    Undecided,
    V1,
    /// v2; `greeted` once `hello` was answered.
    V2 {
        greeted: bool,
    },
}

/// A command that a session will answer.
struct Unanswered {
    id: CommandId,
    session: SessionId,
    name: &'static str,
    /// True if the session answers it without waiting for anything.
    quick: bool,
}

pub(super) struct Connection {
    pub(super) app: Arc<App>,
    pub(super) origin: Origin,
    /// The user, once known.
    pub(super) name: Option<Name>,
    /// What its credentials allow, once known.
    pub(super) grant: Option<Arc<Grant>>,
    /// True once the client was told that its credentials expire.
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
    unanswered: Vec<Unanswered>,
    socket: WebSocket,
    negotiated: bool,
    /// The key of its rate limit.
    sender: String,
    bad_frames: u32,
    pings_unanswered: u32,
    /// The time of the connection: the limit for `hello` starts here.
    since: tokio::time::Instant,
    /// The time at which the next ping is due, whatever else happens.
    next_beat: tokio::time::Instant,
    alarm: Alarm,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    counted: OpenConnection,
    /// Its place among the connections that the door admitted.
    guest: Option<Arc<Guest>>,
    /// Its part of its user's share of connections.
    permit: Option<Permit>,
    _place: Place,
}

impl Connection {
    pub(super) fn new(
        app: Arc<App>,
        socket: WebSocket,
        grant: Option<Arc<Grant>>,
        negotiated: bool,
        address: String,
        (place, permit): (Place, Option<Permit>),
        guest: Option<Arc<Guest>>,
    ) -> Self {
        let name = grant.as_ref().map(|grant| grant.name().clone());
        if let (Some(guest), Some(name)) = (&guest, &name) {
            guest.known_as(if name.is_empty() { &address } else { name });
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
        // Kept for the life of the connection: all connections share one list of waiters.
        let stopped = Box::pin(app.stop.clone().cancelled_owned());
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
            socket,
            negotiated,
            sender: address,
            bad_frames: 0,
            pings_unanswered: 0,
            since,
            next_beat,
            alarm,
            stopped,
            counted,
            guest,
            permit,
            _place: place,
        }
    }

    /// Serves the connection to its end. It is boxed, because a future stores its arguments twice.
    pub(super) async fn run(mut self: Box<Self>) {
        let end = loop {
            if let Err(end) = self.round().await {
                break end;
            }
        };
        self.let_go();
        match end {
            End::Gone => {}
            // It may resume reading later: then it should find the close code, behind what is on its way to it. Until
            // then it costs no more than its write buffer.
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

    /// Records that a command was sent to the session, which will answer it.
    pub(super) fn expect_reply(&mut self, id: CommandId, session: &SessionId, name: &'static str) {
        let quick = Command::spec_of(name).is_some_and(|spec| spec.does == Does::Transient);
        self.unanswered.push(Unanswered { id, session: session.clone(), name, quick });
    }

    /// Returns true if another command may be read: fewer than half of [`REPLIES_MAX`] are unanswered of the quick
    /// ones, and of each session. Commands that wait for hooks of this client leave room, in each session, for its
    /// answers.
    fn may_read(&self) -> bool {
        let most = REPLIES_MAX / 2;
        if self.unanswered.len() < most {
            return true;
        }
        let of = |session: &SessionId| self.unanswered.iter().filter(|waiting| waiting.session == *session).count();
        self.unanswered.iter().filter(|waiting| waiting.quick).count() < most
            && self.subscriptions.iter().all(|subscription| of(&subscription.handle.id) < most)
    }

    /// Answers the commands that a session which has ended will not answer.
    pub(super) async fn answer_for(&mut self, session: &SessionId, end: SubscriptionEnd) -> Flow {
        let error = match end {
            SubscriptionEnd::Deleted => {
                ErrorBody::new(ErrorCode::SessionNotFound, format!("you have no session `{session}` any more"))
            }
            SubscriptionEnd::Failed => self.app.session_gone(),
        };
        // A fork goes on: it needs no open session.
        let is_over = |waiting: &Unanswered| waiting.session == *session && waiting.name != "fork_session";
        let (ended, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unanswered).into_iter().partition(is_over);
        self.unanswered = others;
        for Unanswered { id, name, .. } in ended {
            let reply = Reply::Error(error.clone());
            count_reply(name, &reply);
            self.send(encode_reply(Some(&id), Some(session), &reply)).await?;
        }
        Ok(())
    }

    /// Waits for one event and handles it.
    async fn round(&mut self) -> Flow {
        let patience = self.app.patience;
        let hello_due = (self.negotiated || self.name.is_none())
            && !matches!(self.speaks, Speaks::V1 | Speaks::V2 { greeted: true });
        let due = if hello_due { self.since + patience.hello } else { self.next_beat };
        self.expiry().await?;
        let due = self.expiry_due().map_or(due, |expiry| due.min(expiry));
        tokio::select! {
            biased;
            () = self.stopped.as_mut() => {
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
                // Boxed: commands are rare, and what they await would make every idle connection larger.
                Some(Ok(message)) => Box::pin(self.received(message)).await,
            },
            ring = self.alarm.ring(due) => match ring {
                Ring::Look => self.pump().await,
                Ring::Due if hello_due && self.since + patience.hello <= tokio::time::Instant::now() => {
                    Err(End::Close(CloseCode::NoHello, "hello did not arrive in time"))
                }
                Ring::Due if !hello_due && self.next_beat <= tokio::time::Instant::now() => self.beat().await,
                // The next round tells of the expiry, or ends the connection.
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
            Message::Text(text) => {
                if self.speaks == Speaks::Undecided {
                    // A frame that is neither `hello` nor a v1 command does not decide the version: it is answered as
                    // in v1.
                    if reseed_protocol::frame::peek_type(&text).as_deref() == Some("hello") {
                        self.speaks = Speaks::V2 { greeted: false };
                        self.counted.speaks(Dialect::V2);
                    }
                }
                if let Err(used_up) = self.take_points(&text) {
                    return self.rate_limited(&text, used_up).await;
                }
                match self.speaks {
                    Speaks::V2 { greeted } => v2::received(self, text.as_str(), greeted).await?,
                    _ => v1::received(self, text.as_str()).await?,
                }
                self.flush().await
            }
            Message::Binary(_) => {
                let message = "send text frames; this one is binary";
                let error = reseed_protocol::ErrorBody::new(reseed_protocol::ErrorCode::BinaryFrame, message);
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

    /// Takes what a command costs off the sender's allowance.
    fn take_points(&self, text: &str) -> Result<(), UsedUp> {
        let rates = self.app.registry.shares().rates();
        if !rates.limits_commands() {
            return Ok(());
        }
        let name = reseed_protocol::frame::peek_type(text).unwrap_or_default();
        let taken = rates.command(&self.sender, costs::points(&name));
        taken.or_else(|used_up| {
            let refuses = self.app.registry.shares().refuses(Limit::Commands, &self.sender);
            if refuses { Err(used_up) } else { Ok(()) }
        })
    }

    async fn rate_limited(&mut self, text: &str, used_up: UsedUp) -> Flow {
        let UsedUp { per_minute, wait } = used_up;
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
        let message = format!(
            "your commands have cost {per_minute} points within a minute, the limit (RATE_LIMIT_PER_MINUTE); wait \
             {millis} ms"
        );
        let details = serde_json::json!({ "limit": Limit::Commands.as_str(), "max": per_minute });
        let error = ErrorBody::new(ErrorCode::RateLimited, message).with_details(details);
        let id = reseed_protocol::frame::peek_id(text);
        self.refuse(id.as_ref(), error.with_retry_after_ms(millis)).await.map_err(|end| match end {
            End::Close(CloseCode::BadFrames, _) => {
                End::Close(CloseCode::RateLimit, "too many commands despite rate_limited")
            }
            other => other,
        })?;
        self.flush().await
    }

    /// Answers a refused frame; closes a connection that sends nothing else.
    pub(super) async fn refuse(
        &mut self,
        id: Option<&reseed_protocol::CommandId>,
        error: reseed_protocol::ErrorBody,
    ) -> Flow {
        self.refuse_about(None, id, error).await
    }

    /// Answers a refused frame that may name a session; closes a connection that sends nothing else.
    pub(super) async fn refuse_about(
        &mut self,
        session: Option<&SessionId>,
        id: Option<&CommandId>,
        error: ErrorBody,
    ) -> Flow {
        metrics::frame_refused(error.code);
        let frame = match self.speaks {
            Speaks::V2 { .. } => encode_reply(id, session, &Reply::Error(error)),
            _ => v1::error_frame(error),
        };
        self.send(frame).await?;
        self.bad_frames += 1;
        if self.bad_frames >= BAD_FRAMES_MAX {
            return Err(End::Close(CloseCode::BadFrames, "too many bad frames in a row"));
        }
        Ok(())
    }

    /// Sets what the client may do, and its user: from now on its connections and its rate are counted by name, if it
    /// has one.
    ///
    /// # Errors
    /// `limit_reached`: the user has too many connections.
    pub(super) fn known_by(&mut self, grant: Arc<Grant>) -> Result<(), ErrorBody> {
        let name = grant.name().clone();
        // A renewal keeps its place.
        if self.permit.is_none() || self.name.as_ref() != Some(&name) {
            self.permit = None;
            self.permit = Some(self.app.registry.shares().take(Share::Connections, &name, 1)?);
        }
        (self.grant, self.told_expiring) = (Some(grant), false);
        if !name.is_empty() {
            self.sender.clone_from(&name);
        }
        self.guest.iter().for_each(|guest| guest.known_as(&self.sender));
        self.name = Some(name);
        Ok(())
    }

    /// Returns the time at which the client must be told that its credentials expire, or at which they do.
    fn expiry_due(&self) -> Option<tokio::time::Instant> {
        let left = self.grant.as_ref()?.remaining()?;
        let tells = matches!(self.speaks, Speaks::V2 { greeted: true }) && !self.told_expiring;
        let until = if tells { left.saturating_sub(self.grant.as_ref()?.notice()) } else { left };
        Some(tokio::time::Instant::now() + until)
    }

    /// Tells the client that its credentials expire soon; ends the connection if they have.
    async fn expiry(&mut self) -> Flow {
        let Some(grant) = &self.grant else { return Ok(()) };
        let Some(left) = grant.remaining() else { return Ok(()) };
        if left.is_zero() {
            return Err(End::Close(CloseCode::Credentials, "the credentials have expired"));
        }
        if left > grant.notice() || self.told_expiring || self.speaks != (Speaks::V2 { greeted: true }) {
            return Ok(());
        }
        self.told_expiring = true;
        let expires_in_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let event = EphemeralEvent::TokenExpiring(TokenExpiring { expires_in_ms });
        self.send(encode_event(None, &event)).await?;
        self.flush().await
    }

    /// Returns the client's address: until its user is known, its rate is counted by it.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.sender.parse().ok()
    }

    /// Records the first v1 command, which decides the version.
    pub(super) fn speaks_v1(&mut self) {
        if self.speaks != Speaks::V1 {
            self.speaks = Speaks::V1;
            self.counted.speaks(Dialect::V1);
        }
    }

    /// Records a valid frame.
    pub(super) fn good_frame(&mut self) {
        self.bad_frames = 0;
    }

    async fn outgoing(&mut self, outgoing: Outgoing) -> Flow {
        match outgoing {
            Outgoing::Reply(replied) => {
                let Replied { session, re: id, reply, room: _room } = *replied;
                let is_to = |waiting: &Unanswered| waiting.id == id && waiting.session == session;
                // One that was answered when its session ended gets no second reply.
                let Some(at) = self.unanswered.iter().position(is_to) else { return Ok(()) };
                count_reply(self.unanswered.remove(at).name, &reply);
                let frame = match self.speaks {
                    Speaks::V2 { .. } => Some(encode_reply(Some(&id), Some(&session), &reply)),
                    _ => self.v1.reply(&id, &reply),
                };
                match frame {
                    Some(frame) => self.send(frame).await,
                    None => Ok(()),
                }
            }
            // v1 has none of them.
            Outgoing::Event(event) => match self.speaks {
                Speaks::V2 { .. } => self.private(event).await,
                _ => Ok(()),
            },
        }
    }

    /// Adds a frame to the write buffer; a client that does not read for too long is disconnected.
    pub(super) async fn send(&mut self, frame: impl Into<FrameText>) -> Flow {
        self.write(Message::Text(frame.into()), false).await
    }

    pub(super) async fn flush(&mut self) -> Flow {
        let patience = self.app.patience.slow_reader;
        written(timeout(patience, self.socket.flush()).await)
    }

    async fn write(&mut self, message: Message, flush: bool) -> Flow {
        let patience = self.app.patience.slow_reader;
        let writing = async {
            self.socket.feed(message).await?;
            if flush { self.socket.flush().await } else { Ok(()) }
        };
        written(timeout(patience, writing).await)
    }

    async fn beat(&mut self) -> Flow {
        // A v1 client is never disconnected for this: it does not reconnect, and would lose its session.
        if self.speaks != Speaks::V1 && self.pings_unanswered >= PINGS_UNANSWERED_MAX {
            return Err(End::Close(CloseCode::NoPong, "two pings were not answered; reconnect and resume"));
        }
        self.pings_unanswered += 1;
        self.next_beat = tokio::time::Instant::now() + self.app.patience.heartbeat;
        self.write(Message::Ping(Default::default()), true).await
    }
}

/// Counts an answered command.
pub(super) fn count_reply(name: &'static str, reply: &Reply) {
    let outcome = match reply {
        Reply::Error(error) => Outcome::Error(error.code),
        _ => Outcome::Ok,
    };
    metrics::command_answered(name, outcome);
}

/// Waits until the grant is ended before its time; forever without one.
async fn ended(grant: &Option<Arc<Grant>>) -> super::auth::Ended {
    match grant {
        Some(grant) => grant.ended().await,
        None => std::future::pending().await,
    }
}

/// Wakes when there are changes of the session list to report; never without a watcher. Boxed: few connections watch.
async fn listed(watching: &Option<Box<Watcher>>) {
    match watching {
        Some(watcher) => Box::pin(watcher.due()).await,
        None => std::future::pending().await,
    }
}
