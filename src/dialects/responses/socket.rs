//! The WebSocket at `/v1/responses`: `response.create` frames, one response after another, and their events as frames.
//!
//! Chains that are not to be stored live as long as their socket. A second connection to the server, which asks
//! nothing, says when the client must go: when the server stops, or when the credentials expire or are revoked.

use super::{
    Door, Followed, Forget, create::begin, ids::ResponseId, request::Create, running::Running, steering::Steering,
};
use crate::{entrance::Watch, exchange::client, http::Failure};
use axum::{
    extract::{
        Request, State, WebSocketUpgrade,
        ws::{CloseFrame, Message, WebSocket, rejection::WebSocketUpgradeRejection},
    },
    response::Response,
};
use reseed_client::{Client, Connect, Stop, Update};
use reseed_protocol::{CloseCode, SessionId};
use serde_json::{Value, json};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, interval_at, timeout};

/// Maximum bytes of a lane's name. It is repeated in every event.
const STREAM_ID_BYTES_MAX: usize = 128;

/// Bytes read from a socket at once.
const READ_BUFFER_BYTES: usize = 4 * 1024;

/// Frames that wait for the response before them.
const WAITING_MAX: usize = 8;

/// Unstored responses of one socket that can be continued. Beyond it, the oldest cannot.
const KEPT_MAX: usize = 64;

/// The interval of pings.
const PING_EVERY: Duration = Duration::from_secs(20);

/// The time that a client may take to answer a close frame.
const CLOSE_TIME: Duration = Duration::from_millis(500);

/// Why the connection ends.
enum End {
    Gone,
    Close(u16, String),
}

pub(super) async fn upgrade(
    State(door): State<Door>,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    request: Request,
) -> Result<Response, Failure> {
    let socket = socket.map_err(|why| Failure::invalid(why.body_text()).with_status(why.status()))?;
    let (parts, _) = request.into_parts();
    let connect: Arc<dyn Connect> = Arc::from(door.enter(&parts).await?);
    let watch = door.entrance.watch(&parts);
    let bytes_max = door.entrance.body_bytes_max();
    let socket = socket.read_buffer_size(READ_BUFFER_BYTES).max_message_size(bytes_max).max_frame_size(bytes_max);
    Ok(socket.on_upgrade(move |socket| async move {
        watch.iter().for_each(|watch| watch.upgraded());
        let lane = Lane {
            socket,
            watch,
            door,
            connect,
            waiting: VecDeque::new(),
            stream_id: None,
            steering: Steering::default(),
            kept: VecDeque::new(),
            sessions: HashMap::new(),
        };
        Box::pin(lane.serve()).await;
    }))
}

/// A client's connection.
struct Lane {
    socket: WebSocket,
    watch: Option<Arc<dyn Watch>>,
    door: Door,
    connect: Arc<dyn Connect>,
    waiting: VecDeque<String>,
    /// The name that the client gave the lane of the frame that is answered. All of its events have it.
    stream_id: Option<String>,
    steering: Steering,
    /// The responses that are not stored, oldest first.
    kept: VecDeque<ResponseId>,
    /// Deletes the sessions of unstored chains: each when none of its responses is kept, or when the socket closes.
    sessions: HashMap<SessionId, Forget>,
}

impl Lane {
    async fn serve(mut self) {
        let mut guard = client(self.connect());
        let end = loop {
            match self.round(&mut guard).await {
                Ok(()) => {}
                Err(end) => break end,
            }
        };
        if let End::Close(code, reason) = end {
            let frame = CloseFrame { code, reason: reason.chars().take(100).collect::<String>().into() };
            let _ = timeout(CLOSE_TIME, self.socket.send(Message::Close(Some(frame)))).await;
        }
        // A client that closes gets its answer on the way.
        let _ = timeout(CLOSE_TIME, async { while let Some(Ok(_)) = self.socket.recv().await {} }).await;
    }

    fn connect(&self) -> Box<dyn Connect> {
        Box::new(Shared(self.connect.clone()))
    }

    /// Takes one frame and answers it.
    async fn round(&mut self, guard: &mut Client) -> Result<(), End> {
        let text = match self.waiting.pop_front() {
            Some(text) => text,
            None => self.frame(guard).await?,
        };
        let frame: Value = match serde_json::from_str(&text) {
            Ok(frame) => frame,
            Err(error) => return self.error(&Failure::invalid(format!("the frame is not JSON: {error}"))).await,
        };
        self.stream_id = lane_of(&frame);
        match frame["type"].as_str() {
            Some("response.create") => self.create(frame, guard).await,
            Some("response.steer") => self.steer(&frame, None).await,
            other => {
                let shown = other.unwrap_or("nothing");
                let message = format!("`type` is `{shown}`, and must be response.create or response.steer");
                self.error(&Failure::invalid(message).at("type")).await
            }
        }
    }

    /// Waits for the next frame.
    async fn frame(&mut self, guard: &mut Client) -> Result<String, End> {
        let mut pings = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        loop {
            tokio::select! {
                end = told_to_end(guard) => return Err(end),
                received = self.socket.recv() => {
                    if let Some(text) = taken(self.watch.as_deref(), received)? {
                        return Ok(text);
                    }
                }
                _ = pings.tick() => self.write(Message::Ping(Default::default())).await?,
            }
        }
    }

    async fn create(&mut self, frame: Value, guard: &mut Client) -> Result<(), End> {
        // A client may nest the request, as OpenAI's events nest the response.
        let body = frame.get("response").filter(|nested| nested.is_object()).unwrap_or(&frame);
        let mut create = match Create::read(body.to_string().as_bytes()) {
            Ok(create) => create,
            Err(failure) => return self.error(&failure).await,
        };
        // `stream` means nothing here. Clients send it all the same.
        if create.background == Some(true) {
            let message = "a response in the background has no reader, so it cannot be created on a WebSocket";
            return self.error(&Failure::invalid(message).at("background")).await;
        }
        let previous = create.previous_response_id.as_deref().and_then(ResponseId::parse);
        if let Some(previous) = &previous {
            self.steering.join(previous, &mut create);
        }
        let running = match self.begin(&create).await {
            Ok(running) => running,
            Err(failure) => {
                self.error(&failure).await?;
                let Some(previous) = previous else { return Ok(()) };
                // A chain whose continuation failed is not continued again by accident.
                self.kept.retain(|kept| *kept != previous);
                self.forget_sessions();
                let events = self.steering.give_back(&previous, &failure.message, 0);
                return self.all(events).await;
            }
        };
        if let Some(previous) = &previous {
            self.steering.said(previous);
        }
        self.stream(running, create, guard).await
    }

    async fn begin(&mut self, create: &Create) -> Result<Running, Failure> {
        let kept = &self.kept;
        let mut running = begin(self.connect(), create, None, &self.door.sealer, &|id| kept.contains(id)).await?;
        if create.store == Some(false) {
            self.keep(&mut running);
        }
        Ok(running)
    }

    fn keep(&mut self, running: &mut Running) {
        if let Some(forget) = running.forget.take() {
            self.sessions.insert(forget.session.clone(), forget);
        }
        self.kept.push_back(running.id.clone());
        if self.kept.len() > KEPT_MAX {
            self.kept.pop_front();
        }
        self.forget_sessions();
    }

    /// Deletes the unstored sessions that nothing can continue.
    fn forget_sessions(&mut self) {
        let kept = &self.kept;
        self.sessions.retain(|session, _| kept.iter().any(|id| id.session == *session));
    }

    /// Sends a response's events. If the client leaves, the turn still has its tools.
    async fn stream(&mut self, running: Running, create: Create, guard: &mut Client) -> Result<(), End> {
        let mut followed = Followed(Some(running));
        let Some(running) = followed.0.as_mut() else { return Ok(()) };
        let ended = self.events(running, &create, guard).await;
        followed.end().await;
        ended
    }

    async fn events(&mut self, running: &mut Running, create: &Create, guard: &mut Client) -> Result<(), End> {
        let mut pings = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        loop {
            self.all(running.writer.take()).await?;
            if running.writer.is_over() && !self.goes_on(running, create).await? {
                return Ok(());
            }
            tokio::select! {
                // If it fails, the turn may go on, so the response has not failed.
                stepped = running.step() => if let Err(error) = stepped {
                    self.error(&Failure::from(error)).await?;
                    let why = "the response can no longer be followed";
                    let events = self.steering.give_back(&running.id, why, running.writer.number());
                    return self.all(events).await;
                },
                end = told_to_end(guard) => return Err(end),
                received = self.socket.recv() => {
                    let Some(text) = taken(self.watch.as_deref(), received)? else { continue };
                    let frame: Value = serde_json::from_str(&text).unwrap_or_default();
                    if frame["type"] == "response.steer" {
                        self.steer(&frame, Some(running)).await?;
                    } else if self.waiting.len() < WAITING_MAX {
                        self.waiting.push_back(text);
                    } else {
                        let reason = format!("{WAITING_MAX} frames wait for the response before them");
                        return Err(End::Close(CloseCode::RateLimit.code(), reason));
                    }
                }
                _ = pings.tick() => self.write(Message::Ping(Default::default())).await?,
            }
        }
    }

    /// Goes on after the end of a response, if words were added to it. Returns false if there are none, or if they wait
    /// for what the client must give.
    async fn goes_on(&mut self, running: &mut Running, create: &Create) -> Result<bool, End> {
        let required = running.writer.required_input();
        if !required.is_empty() {
            let events = self.steering.pending(running, &required);
            return self.all(events).await.map(|()| false);
        }
        let Some(create) = self.steering.successor(&running.id, create) else { return Ok(false) };
        let begun = match running.writer.has_failed() {
            true => Err("the response has failed".to_owned()),
            false => self.begin(&create).await.map_err(|failure| failure.message),
        };
        match begun {
            Ok(successor) => {
                self.steering.said(&running.id);
                std::mem::replace(running, successor).exchange.close().await;
                Ok(true)
            }
            Err(why) => {
                let events = self.steering.give_back(&running.id, &why, running.writer.number());
                self.all(events).await.map(|()| false)
            }
        }
    }

    /// Adds words to the response that is being made.
    async fn steer(&mut self, frame: &Value, running: Option<&mut Running>) -> Result<(), End> {
        for event in self.steering.take(frame, running.as_deref()) {
            self.event(event, lane_of(frame).or_else(|| self.stream_id.clone())).await?;
        }
        Ok(())
    }

    async fn all(&mut self, events: impl IntoIterator<Item = Value>) -> Result<(), End> {
        for event in events {
            self.event(event, self.stream_id.clone()).await?;
        }
        Ok(())
    }

    async fn error(&mut self, failure: &Failure) -> Result<(), End> {
        let event = json!({ "type": "error", "status": failure.status.as_u16(), "error": failure.shown() });
        self.event(event, self.stream_id.clone()).await
    }

    async fn event(&mut self, mut event: Value, stream_id: Option<String>) -> Result<(), End> {
        if let Some(stream_id) = stream_id {
            event["stream_id"] = stream_id.into();
        }
        self.write(Message::Text(event.to_string().into())).await
    }

    async fn write(&mut self, message: Message) -> Result<(), End> {
        match timeout(self.door.entrance.patience(), self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Gone),
            Err(_) => Err(End::Close(CloseCode::SlowReader.code(), "the client reads too slowly".to_owned())),
        }
    }
}

/// Returns the lane of a frame, if the client has named one.
fn lane_of(frame: &Value) -> Option<String> {
    frame["stream_id"].as_str().filter(|name| name.len() <= STREAM_ID_BYTES_MAX).map(str::to_owned)
}

/// Returns the text of a message, if it has one.
fn taken(watch: Option<&dyn Watch>, received: Option<Result<Message, axum::Error>>) -> Result<Option<String>, End> {
    if let (Some(watch), Some(Ok(message))) = (watch, &received) {
        watch.received(message);
    }
    match received {
        None | Some(Ok(Message::Close(_))) => Err(End::Gone),
        Some(Err(_)) => Err(End::Close(CloseCode::Protocol.code(), "the frame is too large or invalid".to_owned())),
        Some(Ok(Message::Text(text))) => Ok(Some(text.as_str().to_owned())),
        Some(Ok(Message::Binary(_))) => {
            Err(End::Close(CloseCode::Protocol.code(), "send text frames; this one is binary".to_owned()))
        }
        Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(None),
    }
}

/// Waits until the server tells the client to go.
async fn told_to_end(guard: &mut Client) -> End {
    let codes = [CloseCode::Restarting, CloseCode::Overloaded, CloseCode::Credentials, CloseCode::Revoked];
    loop {
        match guard.next().await {
            Update::Disconnected { lost, .. } if codes.iter().any(|code| code.code() == lost.code()) => {
                return End::Close(lost.code(), lost.to_string());
            }
            Update::Stopped(Stop::Lost(lost)) => return End::Close(lost.code(), lost.to_string()),
            Update::Stopped(stop) => return End::Close(CloseCode::Credentials.code(), stop.to_string()),
            _ => {}
        }
    }
}

/// Makes several connections for one user.
pub(super) struct Shared(pub(super) Arc<dyn Connect>);

impl Connect for Shared {
    fn connect(
        &self,
    ) -> reseed_client::Pending<'static, Result<Box<dyn reseed_client::Transport>, reseed_client::Lost>> {
        self.0.connect()
    }
}
