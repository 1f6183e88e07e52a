//! The socket to a server, with frames as text.
//!
//! Invariant: nothing is lost when a future is dropped. A frame is read completely or stays in the socket. A frame
//! passed to [`Socket::queue`] is sent by the next polls.

use crate::{Address, ending::Lost};
use futures_util::{Sink as _, Stream as _};
use reseed_protocol::SUBPROTOCOL_V2;
use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, client_async_tls_with_config, connect_async_with_config,
    tungstenite::{
        Error,
        client::IntoClientRequest as _,
        error::ProtocolError,
        handshake::client::Request,
        http::{HeaderName, HeaderValue, header},
        protocol::{CloseFrame, WebSocketConfig},
    },
};

pub use tokio_tungstenite::tungstenite::Message;

/// The time limit for establishing a connection, including TLS and the upgrade.
const CONNECT: Duration = Duration::from_secs(10);

/// The time limit for closing the connection.
const GOODBYE: Duration = Duration::from_secs(1);

/// Maximum bytes of a frame. The largest is a snapshot of the newest entries, each of which may have a message's size.
const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes that are read at a time. This is small, so that a program may have thousands of sockets.
const READ_BYTES: usize = 4 * 1024;

/// A socket to a server.
pub struct Socket {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    outgoing: VecDeque<Message>,
    /// True if the WebSocket library holds frames that are not written yet.
    unflushed: bool,
}

/// A message from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// A frame.
    Text(String),
    /// A ping, which has already been answered. It shows that the other end is alive.
    Ping,
}

impl Socket {
    /// Connects and upgrades to version 2. Sends no frame.
    ///
    /// # Errors
    /// Returns the reason why there is no connection.
    pub async fn open(address: &Address) -> Result<Self, Lost> {
        Self::open_with(address, &[(header::SEC_WEBSOCKET_PROTOCOL.as_str(), SUBPROTOCOL_V2)]).await
    }

    /// Connects with only these additional headers. Without the subprotocol, the connection is version 1 until `hello`.
    ///
    /// # Errors
    /// Returns the reason why there is no connection.
    pub async fn open_with(address: &Address, headers: &[(&str, &str)]) -> Result<Self, Lost> {
        let request = request(address, headers)?;
        provide_tls();
        // A frame is sent at once, because what a person types should not wait for the next one.
        let connecting = connect_async_with_config(request, Some(config()), true);
        let upgraded = timeout(CONNECT, connecting).await;
        let answered =
            upgraded.map_err(|_| Lost::Broken(format!("{address} did not answer within {} s", CONNECT.as_secs())))?;
        answered.map(|(stream, _)| Self::of(stream)).map_err(|error| refused(address, error))
    }

    /// Upgrades an existing connection, for example one with small buffers.
    ///
    /// # Errors
    /// Returns the reason why there is no upgrade.
    pub async fn over(stream: TcpStream, address: &Address) -> Result<Self, Lost> {
        Self::over_with(stream, address, &[(header::SEC_WEBSOCKET_PROTOCOL.as_str(), SUBPROTOCOL_V2)]).await
    }

    /// Upgrades an existing connection, with headers as in [`Self::open_with`].
    ///
    /// # Errors
    /// Returns the reason why there is no upgrade.
    pub async fn over_with(stream: TcpStream, address: &Address, headers: &[(&str, &str)]) -> Result<Self, Lost> {
        let request = request(address, headers)?;
        provide_tls();
        let upgraded = client_async_tls_with_config(request, stream, Some(config()), None).await;
        upgraded.map(|(stream, _)| Self::of(stream)).map_err(|error| refused(address, error))
    }

    fn of(stream: WebSocketStream<MaybeTlsStream<TcpStream>>) -> Self {
        Self { stream, outgoing: VecDeque::new(), unflushed: false }
    }

    /// Queues a frame. It is sent while [`Self::poll_receive`] or [`Self::poll_flush`] is polled.
    pub fn queue(&mut self, frame: String) {
        self.queue_message(Message::text(frame));
    }

    /// Queues any message, like [`Self::queue`].
    pub fn queue_message(&mut self, message: Message) {
        self.outgoing.push_back(message);
    }

    /// Returns true if everything has been sent.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.outgoing.is_empty() && !self.unflushed
    }

    /// Sends the queued frames.
    ///
    /// # Errors
    /// Returns the reason why they cannot be sent.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        let mut stream = Pin::new(&mut self.stream);
        while !self.outgoing.is_empty() {
            ready!(stream.as_mut().poll_ready(cx)).map_err(broken)?;
            if let Some(message) = self.outgoing.pop_front() {
                stream.as_mut().start_send(message).map_err(broken)?;
                self.unflushed = true;
            }
        }
        if self.unflushed {
            ready!(stream.poll_flush(cx)).map_err(broken)?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends as many queued frames as possible, and returns what has arrived.
    ///
    /// # Errors
    /// Returns the reason why nothing more will arrive.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<Received, Lost>> {
        // A broken connection is detected when reading. The other end may have given a reason before.
        let _ = self.poll_flush(cx);
        loop {
            return Poll::Ready(match ready!(Pin::new(&mut self.stream).poll_next(cx)) {
                Some(Ok(Message::Text(text))) => Ok(Received::Text(text.as_str().to_owned())),
                Some(Ok(Message::Ping(_))) => {
                    // The library has prepared the pong, which is sent with the next flush.
                    self.unflushed = true;
                    let _ = self.poll_flush(cx);
                    Ok(Received::Ping)
                }
                Some(Ok(Message::Close(frame))) => {
                    self.unflushed = true;
                    let _ = self.poll_flush(cx);
                    Err(closed(frame))
                }
                Some(Ok(_)) => continue,
                Some(Err(error)) => Err(broken(error)),
                None => Err(Lost::closed(1006, "")),
            });
        }
    }

    /// Returns the next frame. The future may be dropped while it waits, and nothing is lost.
    ///
    /// # Errors
    /// Returns the reason why nothing more will arrive.
    pub async fn receive(&mut self) -> Result<String, Lost> {
        loop {
            if let Received::Text(text) = poll_fn(|cx| self.poll_receive(cx)).await? {
                return Ok(text);
            }
        }
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// Returns the reason why it cannot be sent.
    pub async fn send(&mut self, frame: String) -> Result<(), Lost> {
        self.send_message(Message::text(frame)).await
    }

    /// Sends any message.
    ///
    /// # Errors
    /// Returns the reason why it cannot be sent.
    pub async fn send_message(&mut self, message: Message) -> Result<(), Lost> {
        self.queue_message(message);
        self.flush().await
    }

    /// Sends the queued frames.
    ///
    /// # Errors
    /// Returns the reason why they cannot be sent.
    pub async fn flush(&mut self) -> Result<(), Lost> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Closes the connection, and waits a second at most for the answer, which is ignored.
    pub async fn close(mut self) {
        self.queue_message(Message::Close(None));
        let goodbye = async {
            self.flush().await?;
            // If a socket is dropped with unread bytes, it is reset, and its last frames are lost.
            loop {
                self.receive().await?;
            }
        };
        let _: Result<Result<(), Lost>, _> = timeout(GOODBYE, goodbye).await;
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket").finish_non_exhaustive()
    }
}

fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .max_message_size(Some(FRAME_BYTES_MAX))
        .max_frame_size(Some(FRAME_BYTES_MAX))
}

fn request(address: &Address, headers: &[(&str, &str)]) -> Result<Request, Lost> {
    let invalid = |what: &str| Lost::Refused(format!("{what} is not one that can be sent"));
    let mut request = address.uri().clone().into_client_request().map_err(|error| Lost::Refused(error.to_string()))?;
    for (name, value) in headers {
        let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid(&format!("the header `{name}`")))?;
        let mut value =
            HeaderValue::from_str(value).map_err(|_| invalid(&format!("the value of the header `{name}`")))?;
        value.set_sensitive(known == header::AUTHORIZATION);
        request.headers_mut().insert(known, value);
    }
    Ok(request)
}

/// Installs a TLS provider unless the program has done so, because without one a `wss` address would panic.
fn provide_tls() {
    // Fails if the program has chosen a provider, which then stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Maximum characters of a refusal's body that are reported.
const REASON_CHARS_MAX: usize = 300;

/// Returns the reason why there is no connection.
fn refused(address: &Address, error: Error) -> Lost {
    match error {
        Error::Http(response) => {
            let status = response.status();
            // A server that is not ready gives the reason in one line.
            let body = response.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            let why: String = body.lines().next().unwrap_or_default().chars().take(REASON_CHARS_MAX).collect();
            let is_unready = status == 503;
            let why =
                if is_unready && !why.starts_with('<') && !why.is_empty() { format!(": {why}") } else { String::new() };
            let text = format!("{address} answered {status}{why}");
            // The request was too slow, too early or too frequent, so another attempt may succeed.
            let for_now = status.is_server_error() || [408, 425, 429].contains(&status.as_u16());
            match for_now {
                true if is_unready => Lost::Unready(text),
                true => Lost::Broken(text),
                false => Lost::Refused(text),
            }
        }
        // A load balancer whose server is down hangs up during the upgrade.
        Error::Io(_) | Error::Tls(_) | Error::Protocol(ProtocolError::HandshakeIncomplete) => {
            Lost::Broken(format!("{address}: {error}"))
        }
        error => Lost::Refused(format!("{address}: {error}")),
    }
}

/// Returns the reason why a connection ended.
fn broken(error: Error) -> Lost {
    match error {
        Error::Capacity(_) => Lost::Refused(error.to_string()),
        Error::ConnectionClosed | Error::AlreadyClosed => Lost::closed(1006, ""),
        error => Lost::Broken(format!("the connection was lost: {error}")),
    }
}

fn closed(frame: Option<CloseFrame>) -> Lost {
    frame.map_or_else(|| Lost::closed(1006, ""), |frame| Lost::closed(frame.code.into(), &frame.reason))
}
