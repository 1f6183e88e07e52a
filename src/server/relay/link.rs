//! A WebSocket from the edge to a holder, in a task of its own that dials, greets, reads and writes.
//!
//! Reading and writing do not wait for each other. Otherwise, a holder that waits for its frames to be read would never
//! take a command. While a frame waits for the client, nothing more is read. A holder pings every connection, so a link
//! on which nothing arrives is broken.

use super::{PATH, SUBPROTOCOL, WRONG_NODE};
use crate::{
    metrics::{Held, RELAYED_CONNECTIONS},
    runtime::{Keeper, encoded::FrameText},
    server::tcp,
    store::NodeId,
    trace::{self, SpanContext},
};
use bytes::Bytes;
use futures_util::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use secrecy::{ExposeSecret as _, SecretString};
use std::{io, sync::Arc, time::Duration};
use tokio::{net::TcpStream, sync::mpsc, time::timeout};
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

/// The time limit for closing a link.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Bytes that are read at once, or collected before they are written.
const BUFFER_BYTES: usize = 4 * 1024;

/// Maximum bytes of a holder's frame: as many as it may have waiting for a client.
const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The number of heartbeats for which a holder may be silent.
const SILENT_BEATS: u32 = 3;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A link's message to its connection: its number, and a frame of the holder or the end of the link. It is boxed
/// because a channel reserves space for 32 items.
pub(in crate::server) type Told = Box<(u64, Result<FrameText, LinkEnd>)>;

/// The reason why a link ended.
#[derive(Debug)]
pub(in crate::server) enum LinkEnd {
    /// The holder could not be reached.
    Unreachable(String),
    /// The link was up, or is not needed any more.
    Ended(String),
}

/// A link of a connection. When dropped, it writes the frame that is already queued, and then closes.
#[derive(Debug)]
pub(in crate::server) struct Link {
    /// Identifies the link within its connection.
    pub(in crate::server) number: u64,
    pub(in crate::server) holder: NodeId,
    /// Boxed for the same reason as [`Told`].
    to_holder: mpsc::Sender<Box<FrameText>>,
    _counted: Held,
}

/// What is needed to reach a holder.
pub(in crate::server) struct Dial {
    pub(in crate::server) holder: NodeId,
    /// NODE_ADDRESS.
    pub(in crate::server) address: String,
    pub(in crate::server) token: SecretString,
    /// The first frame.
    pub(in crate::server) greeting: String,
    pub(in crate::server) heartbeat: Duration,
    pub(in crate::server) keeper: Arc<Keeper>,
    /// The trace context with which the client connected.
    pub(in crate::server) context: Option<Box<SpanContext>>,
}

impl Link {
    /// Dials a holder. A frame that is sent meanwhile waits. It still goes to the holder if the client leaves.
    pub(in crate::server) fn dial(dial: Dial, number: u64, to_connection: mpsc::Sender<Told>) -> Self {
        // A command is read while one place is free. With only one, the first frame of a link that dials would keep the
        // client's other commands, such as `cancel_turn`, from being read.
        let (to_holder, from_connection) = mpsc::channel(2);
        let holder = dial.holder;
        tokio::spawn(async move {
            let keeper = dial.keeper.clone();
            let end = tokio::select! {
                end = run(dial, number, from_connection, &to_connection) => end,
                () = keeper.gone(holder) => LinkEnd::Ended("it is silent, or has left the cluster".to_owned()),
            };
            // Fails if the connection is gone, which does not matter.
            let _ = to_connection.send(Box::new((number, Err(end)))).await;
        });
        Self { number, holder, to_holder, _counted: RELAYED_CONNECTIONS.hold(["edge"]) }
    }

    /// Queues a frame. The client is read only while every link has room, so a frame is left out only if the link has
    /// ended, which it reports.
    pub(in crate::server) fn push(&self, frame: FrameText) {
        let _ = self.to_holder.try_send(Box::new(frame));
    }

    pub(in crate::server) fn has_room(&self) -> bool {
        self.to_holder.capacity() > 0
    }

    /// Waits until the queued frame was taken, or the link has ended.
    pub(in crate::server) async fn room(&self) {
        let _ = self.to_holder.reserve().await;
    }
}

async fn run(
    dial: Dial,
    number: u64,
    from_connection: mpsc::Receiver<Box<FrameText>>,
    to_connection: &mpsc::Sender<Told>,
) -> LinkEnd {
    let heartbeat = dial.heartbeat;
    // The box is freed once the link is up. Dialling needs much more memory than reading and writing.
    let dialled = Box::pin(async move {
        match timeout(DIAL_TIME, connect(&dial)).await {
            Ok(dialled) => dialled.map_err(|error| reason(&error)),
            Err(_) => Err(format!("it did not answer within {} ms", DIAL_TIME.as_millis())),
        }
    });
    let (sink, stream) = match dialled.await {
        Ok(socket) => socket.split(),
        Err(error) => return LinkEnd::Unreachable(error),
    };
    tokio::select! {
        why = read(stream, number, to_connection, heartbeat * SILENT_BEATS) => LinkEnd::Ended(why),
        () = write(sink, from_connection) => LinkEnd::Ended("it is not needed any more".to_owned()),
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
    trace::add_headers(dial.context.as_deref().cloned(), headers);
    // Idempotent: the first caller installs it, and all choose ring.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    tcp::tune(&stream);
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

/// Passes on what the holder sends, until the link ends. Returns the reason.
async fn read(
    mut stream: SplitStream<Socket>,
    number: u64,
    to_connection: &mpsc::Sender<Told>,
    patience: Duration,
) -> String {
    loop {
        let frame = match timeout(patience, stream.next()).await {
            // The WebSocket library has already checked that it is UTF-8.
            Ok(Some(Ok(Message::Text(text)))) => FrameText::try_from(Bytes::from(text)).ok(),
            Ok(Some(Ok(Message::Close(close)))) => {
                let code = close.map_or(1005, |close| close.code.into());
                return match code {
                    WRONG_NODE => "another server answers at its address".to_owned(),
                    code => format!("it closed the connection with {code}"),
                };
            }
            Ok(Some(Ok(_))) => None,
            Ok(Some(Err(error))) => return error.to_string(),
            Ok(None) => return "it closed the connection".to_owned(),
            Err(_) => return format!("nothing came for {} ms", patience.as_millis()),
        };
        if let Some(frame) = frame {
            // If the connection is gone, its commands are still written, and nobody reads the replies.
            let _ = to_connection.send(Box::new((number, Ok(frame)))).await;
        }
    }
}

/// Writes the client's frames, until the connection drops the link.
async fn write(mut sink: SplitSink<Socket, Message>, mut from_connection: mpsc::Receiver<Box<FrameText>>) {
    while let Some(frame) = from_connection.recv().await {
        if sink.send(Message::text(frame.as_str())).await.is_err() {
            // The holder's last frames must still be read.
            return std::future::pending().await;
        }
    }
    let _ = timeout(CLOSE_TIME, sink.close()).await;
}
