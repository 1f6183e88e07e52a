//! A WebSocket from the edge to a holder, in a task of its own that dials, greets, reads and writes.
//!
//! Reading and writing do not wait for each other. Otherwise, a holder that waits for its frames to be read would never
//! take a command. Frames are passed on in batches. While a batch waits for the client, nothing more is read.

use super::{PATH, SUBPROTOCOL, WRONG_NODE};
use crate::{
    metrics::{RelayedConnection, Side},
    runtime::{Keeper, encoded::FrameText},
    server::listen,
    store::NodeRow,
};
use bytes::Bytes;
use futures_util::{
    FutureExt as _, SinkExt as _, Stream, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use secrecy::{ExposeSecret as _, SecretString};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::TcpStream,
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval_at, timeout},
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, client_async_tls_with_config,
    tungstenite::{
        Error, Message,
        client::IntoClientRequest as _,
        http::{HeaderValue, StatusCode, Uri, header},
        protocol::WebSocketConfig,
    },
};

/// The time limit for a holder to accept a connection. A client waits for it.
const DIAL_TIME: Duration = Duration::from_secs(3);

/// The time limit for writing the remaining frames when the client is gone.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Bytes of frames in a batch, or one frame if that is larger.
const BATCH_BYTES: usize = 16 * 1024;

/// Bytes that are read at once, or collected before they are written.
const BUFFER_BYTES: usize = 4 * 1024;

/// Maximum bytes of a holder's frame: as many as it may have waiting for a client.
const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Maximum number of unanswered pings.
const PINGS_UNANSWERED_MAX: u32 = 2;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A link's message to its connection, and the link's number. It is boxed because a channel reserves space for 32
/// items.
pub(in crate::server) type Told = Box<(u64, FromLink)>;

/// A link's message to its connection.
#[derive(Debug)]
pub(in crate::server) enum FromLink {
    /// The holder's frames, in order.
    Frames(Vec<FrameText>),
    Lost(LinkEnd),
}

/// The reason why a link ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum LinkEnd {
    /// The holder could not be reached.
    Unreachable(String),
    /// Nothing listens at its address, so its process is gone.
    Absent(String),
    /// Another node answers at its address.
    WrongNode,
    /// The holder is silent, or has left the cluster.
    Gone,
    /// The holder closed the link with this code.
    Closed(u16),
    /// The connection failed.
    Broken,
}

/// A link of a connection. When dropped, it writes the frames that are already queued, and then closes.
#[derive(Debug)]
pub(super) struct Link {
    /// Identifies the link within its connection.
    pub(super) number: u64,
    /// The holder.
    pub(super) row: NodeRow,
    /// Boxed for the same reason as [`Told`].
    pub(super) to_holder: mpsc::Sender<Box<FrameText>>,
    _counted: RelayedConnection,
}

/// Tracks whether the holder answers pings.
#[derive(Debug, Default)]
struct Pulse {
    unanswered: AtomicU32,
    /// True while the client takes a batch. Pongs are not read meanwhile.
    is_passing_on: AtomicBool,
}

/// What is needed to reach a holder.
pub(super) struct Dial {
    pub(super) row: NodeRow,
    /// NODE_ADDRESS.
    pub(super) address: String,
    pub(super) token: SecretString,
    /// The first frame.
    pub(super) greeting: String,
    pub(super) heartbeat: Duration,
    pub(super) keeper: Arc<Keeper>,
}

impl Link {
    /// Dials a holder. A frame that is sent meanwhile waits. It still goes to the holder if the client leaves.
    pub(super) fn dial(dial: Dial, number: u64, to_connection: mpsc::Sender<Told>) -> Self {
        let (to_holder, from_connection) = mpsc::channel(1);
        let row = dial.row.clone();
        tokio::spawn(async move {
            let end = run(dial, number, from_connection, &to_connection).await;
            // Fails if the connection is gone, which does not matter.
            let _ = to_connection.send(Box::new((number, FromLink::Lost(end)))).await;
        });
        Self { number, row, to_holder, _counted: RelayedConnection::new(Side::Edge) }
    }
}

async fn run(
    dial: Dial,
    number: u64,
    from_connection: mpsc::Receiver<Box<FrameText>>,
    to_connection: &mpsc::Sender<Told>,
) -> LinkEnd {
    let (keeper, holder, heartbeat) = (dial.keeper.clone(), dial.row.id, dial.heartbeat);
    // The box is freed once the link is up. Dialling needs much more memory than reading and writing.
    let dialling = Box::pin(async move {
        match timeout(DIAL_TIME, connect(&dial)).await {
            Ok(Ok(socket)) => Ok(socket),
            Ok(Err(Error::Io(error))) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Err(LinkEnd::Absent(error.to_string()))
            }
            Ok(Err(error)) => Err(LinkEnd::Unreachable(reason(&error))),
            Err(_) => Err(LinkEnd::Unreachable(format!("it did not answer within {} ms", DIAL_TIME.as_millis()))),
        }
    });
    let socket = tokio::select! {
        dialled = dialling => match dialled {
            Ok(socket) => socket,
            Err(end) => return end,
        },
        () = keeper.gone(holder) => return LinkEnd::Gone,
        () = unneeded(to_connection, &from_connection) => return LinkEnd::Gone,
    };
    let (sink, stream) = socket.split();
    let pulse = Pulse::default();
    tokio::select! {
        end = read(stream, number, to_connection, &pulse) => end,
        end = write(sink, from_connection, heartbeat, &pulse) => end,
        () = keeper.gone(holder) => LinkEnd::Gone,
    }
}

/// Waits until the client has left and none of its frames wait here. A waiting frame is still executed, as it would be
/// on the node that holds the session.
async fn unneeded(to_connection: &mpsc::Sender<Told>, from_connection: &mpsc::Receiver<Box<FrameText>>) {
    to_connection.closed().await;
    // Nothing is added any more.
    if !from_connection.is_empty() {
        std::future::pending().await
    }
}

async fn connect(dial: &Dial) -> Result<Socket, Error> {
    let mut request = format!("{}{PATH}", dial.address).into_client_request()?;
    let (host, port) = host_and_port(request.uri())?;
    let headers = request.headers_mut();
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    let mut token = HeaderValue::from_str(&format!("Bearer {}", dial.token.expose_secret()))?;
    token.set_sensitive(true);
    headers.insert(header::AUTHORIZATION, token);
    // Idempotent: the first caller installs it, and all choose ring.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    listen::tune(&stream);
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(BUFFER_BYTES)
        .max_write_buffer_size(FRAME_BYTES_MAX)
        .max_message_size(Some(FRAME_BYTES_MAX))
        .max_frame_size(Some(FRAME_BYTES_MAX));
    let (mut socket, _) = client_async_tls_with_config(request, stream, Some(config), None).await?;
    socket.feed(Message::text(dial.greeting.clone())).await?;
    socket.flush().await?;
    Ok(socket)
}

/// Explains why a holder cannot be reached.
fn reason(error: &Error) -> String {
    match error {
        Error::Http(answer) if answer.status() == StatusCode::UNAUTHORIZED => {
            format!("{error}: NODE_TOKEN differs between this server and that one; give all the same")
        }
        error => error.to_string(),
    }
}

fn host_and_port(address: &Uri) -> Result<(String, u16), Error> {
    let host = address.host().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "NODE_ADDRESS has no host"))?;
    let usual = if address.scheme_str() == Some("wss") { 443 } else { 80 };
    Ok((host.trim_matches(['[', ']']).to_owned(), address.port_u16().unwrap_or(usual)))
}

/// Passes on what the holder sends, until the link ends.
async fn read(
    mut stream: SplitStream<Socket>,
    number: u64,
    to_connection: &mpsc::Sender<Told>,
    pulse: &Pulse,
) -> LinkEnd {
    loop {
        let Some(first) = stream.next().await else { return LinkEnd::Broken };
        let (frames, end) = batch(first, &mut stream);
        pulse.is_passing_on.store(true, Ordering::Relaxed);
        if !frames.is_empty() {
            // If the connection is gone, its commands are still written, and nobody reads the replies.
            let _ = to_connection.send(Box::new((number, FromLink::Frames(frames)))).await;
        }
        pulse.unanswered.store(0, Ordering::Relaxed);
        pulse.is_passing_on.store(false, Ordering::Relaxed);
        if let Some(end) = end {
            return end;
        }
    }
}

/// Collects a message and those that are already there.
fn batch(
    first: Result<Message, Error>,
    stream: &mut (impl Stream<Item = Result<Message, Error>> + Unpin),
) -> (Vec<FrameText>, Option<LinkEnd>) {
    let (mut frames, mut bytes, mut next) = (Vec::new(), 0, Some(first));
    loop {
        match next {
            Some(Ok(Message::Text(text))) => {
                bytes += text.len();
                // The WebSocket library has already checked that it is UTF-8.
                let Ok(frame) = FrameText::try_from(Bytes::from(text)) else { return (frames, Some(LinkEnd::Broken)) };
                frames.push(frame);
            }
            Some(Ok(Message::Close(close))) => {
                let code = close.map_or(1005, |close| close.code.into());
                return (frames, Some(if code == WRONG_NODE { LinkEnd::WrongNode } else { LinkEnd::Closed(code) }));
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return (frames, Some(LinkEnd::Broken)),
        }
        if bytes >= BATCH_BYTES {
            return (frames, None);
        }
        match stream.next().now_or_never() {
            Some(more) => next = more,
            None => return (frames, None),
        }
    }
}

/// Writes the client's frames, and pings.
async fn write(
    mut sink: SplitSink<Socket, Message>,
    mut from_connection: mpsc::Receiver<Box<FrameText>>,
    heartbeat: Duration,
    pulse: &Pulse,
) -> LinkEnd {
    let mut beats = interval_at(Instant::now() + heartbeat, heartbeat);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            frame = from_connection.recv() => match frame {
                Some(frame) => Message::text(frame.as_str()),
                None => {
                    let _ = timeout(CLOSE_TIME, sink.close()).await;
                    return LinkEnd::Closed(1000);
                }
            },
            _ = beats.tick() => {
                if pulse.is_passing_on.load(Ordering::Relaxed) {
                    continue;
                }
                if pulse.unanswered.fetch_add(1, Ordering::Relaxed) >= PINGS_UNANSWERED_MAX {
                    return LinkEnd::Broken;
                }
                Message::Ping(Bytes::new())
            }
        };
        match send(&mut sink, message, heartbeat, pulse).await {
            Sent::Whole => {}
            // The holder's last frames must still be read.
            Sent::Failed => return std::future::pending().await,
            Sent::Stuck => return LinkEnd::Broken,
        }
    }
}

/// The outcome of a write.
enum Sent {
    Whole,
    Failed,
    /// The holder has accepted nothing for as long as it may leave pings unanswered.
    Stuck,
}

/// Writes a message. No ping is sent while this waits, so it waits no longer than for a pong. A holder may accept
/// nothing while the client is not reading the frames that the holder has sent.
async fn send(sink: &mut SplitSink<Socket, Message>, message: Message, heartbeat: Duration, pulse: &Pulse) -> Sent {
    let patience = heartbeat * (PINGS_UNANSWERED_MAX + 1);
    let mut sent = std::pin::pin!(sink.send(message));
    loop {
        match timeout(patience, sent.as_mut()).await {
            Ok(Ok(())) => return Sent::Whole,
            Ok(Err(_)) => return Sent::Failed,
            Err(_) if pulse.is_passing_on.load(Ordering::Relaxed) => {}
            Err(_) => return Sent::Stuck,
        }
    }
}
