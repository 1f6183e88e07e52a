//! The WebSocket of a page: many requests by id, each a task of its own. One task reads the page's frames and writes
//! those of all requests.
//!
//! It has a connection to the server that asks nothing. The server ends it when the page must go: when the server
//! stops, or when the credentials expire or are revoked.

use super::{
    Outcome,
    chat::Way,
    ends_socket,
    frames::{ClientFrame, ServerFrame},
    request,
    stream::Out,
};
use crate::entrance::Watch;
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use reseed_client::{Client, Stop, Update};
use reseed_protocol::{CloseCode, ErrorBody, ErrorCode};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, interval_at, timeout},
};

/// RFC 6455's code for a frame that a server does not accept.
pub(super) const POLICY: u16 = 1008;

/// Frames that wait for the page. Beyond this, requests wait, and their turns go on without them.
const FRAMES_MAX: usize = 64;

/// Requests that one page may have at once.
const REQUESTS_MAX: usize = 32;

/// The interval of pings.
const PING_EVERY: Duration = Duration::from_secs(20);

/// Pings that may be unanswered.
const PINGS_UNANSWERED_MAX: u32 = 2;

/// The time that a page may take to answer a close frame.
const CLOSE_TIME: Duration = Duration::from_millis(500);

/// Why the connection ends.
enum End {
    /// The page has gone.
    Gone,
    /// It is closed with this code, for this reason.
    Close(u16, String),
}

impl End {
    fn close(code: CloseCode, reason: &str) -> Self {
        Self::Close(code.code(), reason.to_owned())
    }
}

/// A page's connection.
struct Page {
    socket: WebSocket,
    watch: Option<Arc<dyn Watch>>,
    /// The time in which the page must read a frame.
    patience: Duration,
    way: Way,
    /// The requests that are being answered, with what stops reading each of them.
    requests: BTreeMap<String, oneshot::Sender<()>>,
    frames: mpsc::Sender<String>,
    done: mpsc::Sender<Done>,
    pings_unanswered: u32,
}

/// The end of a request.
struct Done {
    request: String,
    /// True if the server has sent its client away. The page goes too, because an `error` frame would be final for it.
    is_lost: bool,
}

/// Serves a page until it leaves.
pub(super) async fn serve(socket: WebSocket, way: Way, watch: Option<Arc<dyn Watch>>, patience: Duration) {
    let (frames, mut outgoing) = mpsc::channel(FRAMES_MAX);
    let (done, mut finished) = mpsc::channel(REQUESTS_MAX);
    let mut guard = way.client();
    let mut page = Page { socket, watch, patience, way, requests: BTreeMap::new(), frames, done, pings_unanswered: 0 };
    let mut pings = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    let end = loop {
        let round = tokio::select! {
            end = told_to_end(&mut guard) => Err(end),
            Some(frame) = outgoing.recv() => page.write(Message::Text(frame.into())).await,
            // Behind the frames that its request has sent.
            Some(done) = finished.recv() => page.finished(done, &mut outgoing, &mut guard).await,
            received = page.socket.recv() => page.received(received),
            _ = pings.tick() => page.ping().await,
        };
        if let Err(end) = round {
            break end;
        }
    };
    if let End::Close(code, reason) = end {
        close(page.socket, code, reason).await;
    }
}

/// Waits until the server tells the page to go.
async fn told_to_end(guard: &mut Client) -> End {
    loop {
        match guard.next().await {
            Update::Disconnected { lost, .. } if ends_socket(&lost) => {
                return End::Close(lost.code(), lost.to_string());
            }
            Update::Stopped(Stop::Lost(lost)) => return End::Close(lost.code(), lost.to_string()),
            Update::Stopped(stop) => return End::close(CloseCode::Credentials, &stop.to_string()),
            _ => {}
        }
    }
}

/// Closes a socket.
pub(super) async fn close(mut socket: WebSocket, code: u16, mut reason: String) {
    // A reason has at most 123 bytes.
    while reason.len() > 120 {
        reason.pop();
    }
    let frame = CloseFrame { code, reason: reason.into() };
    let _ = timeout(CLOSE_TIME, socket.send(Message::Close(Some(frame)))).await;
    let _ = timeout(CLOSE_TIME, async { while let Some(Ok(_)) = socket.recv().await {} }).await;
}

impl Page {
    async fn write(&mut self, message: Message) -> Result<(), End> {
        match timeout(self.patience, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Gone),
            Err(_) => Err(End::close(CloseCode::SlowReader, "the page reads too slowly; connect again and resume")),
        }
    }

    async fn ping(&mut self) -> Result<(), End> {
        if self.pings_unanswered >= PINGS_UNANSWERED_MAX {
            return Err(End::close(CloseCode::NoPong, "two pings were not answered; connect again and resume"));
        }
        self.pings_unanswered += 1;
        self.write(Message::Ping(Default::default())).await
    }

    async fn finished(
        &mut self,
        done: Done,
        outgoing: &mut mpsc::Receiver<String>,
        guard: &mut Client,
    ) -> Result<(), End> {
        self.requests.remove(&done.request);
        if !done.is_lost {
            return Ok(());
        }
        while let Ok(frame) = outgoing.try_recv() {
            self.write(Message::Text(frame.into())).await?;
        }
        // The page's own connection mostly ends for the same reason.
        let restarts =
            || End::close(CloseCode::Restarting, "the server has ended the request; connect again and resume");
        Err(timeout(CLOSE_TIME, told_to_end(guard)).await.unwrap_or_else(|_| restarts()))
    }

    fn received(&mut self, received: Option<Result<Message, axum::Error>>) -> Result<(), End> {
        let message = match received {
            None => return Err(End::Gone),
            Some(Err(error)) => {
                let is_large = error.to_string().contains("too long");
                let code = if is_large { CloseCode::TooLarge } else { CloseCode::Protocol };
                return Err(End::close(code, "the frame is too large, or violates RFC 6455"));
            }
            Some(Ok(message)) => message,
        };
        self.pings_unanswered = 0;
        self.watch.iter().for_each(|watch| watch.received(&message));
        match message {
            Message::Text(text) => match ClientFrame::parse(&text) {
                Ok(frame) => self.asked(frame),
                Err(why) => Err(End::Close(POLICY, format!("invalid frame: {why}"))),
            },
            Message::Binary(_) => Err(End::Close(POLICY, "send text frames; this one is binary".to_owned())),
            Message::Ping(_) | Message::Pong(_) => Ok(()),
            Message::Close(_) => Err(End::Gone),
        }
    }

    fn asked(&mut self, frame: ClientFrame) -> Result<(), End> {
        let request = match &frame {
            ClientFrame::Send(send) => send.request_id.clone(),
            ClientFrame::Resume(resume) => resume.request_id.clone(),
            ClientFrame::Abort { request_id } => {
                if let Some(stop) = self.requests.remove(request_id) {
                    let _ = stop.send(());
                }
                return Ok(());
            }
        };
        if self.requests.contains_key(&request) {
            return Err(End::Close(POLICY, "a request with this id is being answered".to_owned()));
        }
        if self.requests.len() >= REQUESTS_MAX {
            return Err(End::close(CloseCode::RateLimit, "too many requests at once on this connection"));
        }
        let (stop, aborted) = oneshot::channel();
        self.requests.insert(request.clone(), stop);
        let mut out = Out { request: request.clone(), sequence: 0, frames: self.frames.clone() };
        let (way, done) = (self.way.clone(), self.done.clone());
        tokio::spawn(async move {
            let answered = match frame {
                ClientFrame::Send(send) => Box::pin(request::send(way, *send, &mut out, aborted)).await,
                ClientFrame::Resume(resume) => Box::pin(request::resume(way, *resume, &mut out, aborted)).await,
                ClientFrame::Abort { .. } => Ok(()),
            };
            let error = match answered {
                Ok(()) | Err(Outcome::Left) => None,
                Err(Outcome::Failed(error)) => Some(error),
                Err(Outcome::NoSession) => Some(ErrorBody::new(ErrorCode::SessionNotFound, "the chat was deleted")),
            };
            let is_lost = error.as_ref().is_some_and(|error| error.code == ErrorCode::ShuttingDown);
            if let Some(error) = error.filter(|_| !is_lost) {
                let _ = out.frame(ServerFrame::Error { request_id: &request, error_text: &error.message }).await;
            }
            let _ = done.send(Done { request, is_lost }).await;
        });
        Ok(())
    }
}
