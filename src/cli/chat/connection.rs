//! The socket to the server: how it is made, when it counts as lost, and whether to make it again.

use anyhow::Context as _;
use futures_util::{SinkExt as _, StreamExt as _};
use reseed_protocol::SUBPROTOCOL_V2;
use std::time::Duration;
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{
        Error, Message,
        client::IntoClientRequest as _,
        error::ProtocolError,
        handshake::client::Request,
        http::{HeaderValue, Uri, header},
        protocol::{CloseFrame, WebSocketConfig},
    },
};

/// How long a connection may take to be made, TLS and upgrade included.
const CONNECT_SECS: u64 = 10;

/// How long to wait for a write: a server that does not read for so long is gone.
const SEND_SECS: u64 = 20;

/// How long a server may say nothing, before its `welcome` tells how often it pings.
const SILENCE_SECS: u64 = 100;

/// Heartbeats that may be missed before the connection counts as lost.
const HEARTBEATS_MISSED_MAX: u32 = 3;

/// Bytes of the largest frame taken: a snapshot of the newest entries, each of at most a message's size.
const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Where to connect, and as whom.
#[derive(Clone)]
pub(super) struct Address {
    uri: Uri,
    bearer: Option<HeaderValue>,
}

/// A connection to the server.
pub(super) struct Connection {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    silence_max: Duration,
}

/// Why a connection is no more.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    /// Make it again and resume.
    #[error("{0}")]
    Again(String),
    /// Something must change first.
    #[error("{0}")]
    Final(String),
}

impl Address {
    /// Reads `ws://HOST[:PORT][/PATH]`; without a path it is `/ws`. A page's address names the server as well:
    /// `http://` is taken as `ws://`, and `https://` as `wss://`.
    ///
    /// # Errors
    /// What is wrong with the address or the token.
    pub(super) fn new(url: &str, token: Option<&str>) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("`{url}` is not an address"))?;
        let scheme = match uri.scheme_str() {
            Some("ws" | "http") => "ws",
            Some("wss" | "https") => "wss",
            _ => "",
        };
        anyhow::ensure!(
            !scheme.is_empty() && uri.host().is_some(),
            "`{url}` is no address of a server; write ws://127.0.0.1:8080/ws or http://127.0.0.1:8080, with wss:// or \
             https:// for TLS"
        );
        let host = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        let path = if uri.path() == "/" { "/ws" } else { uri.path() };
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let uri = format!("{scheme}://{host}{path}{query}");
        let uri: Uri = uri.parse().with_context(|| format!("`{url}` is not an address"))?;
        let bearer = token.map(|token| {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .context("the token has signs that no header takes")?;
            value.set_sensitive(true);
            anyhow::Ok(value)
        });
        Ok(Self { uri, bearer: bearer.transpose()? })
    }

    fn request(&self) -> Result<Request, Error> {
        let mut request = self.uri.clone().into_client_request()?;
        let headers = request.headers_mut();
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL_V2));
        if let Some(bearer) = &self.bearer {
            headers.insert(header::AUTHORIZATION, bearer.clone());
        }
        Ok(request)
    }
}

impl std::fmt::Display for Address {
    /// Without the query, which may hold a ticket.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = self.uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        let host = host.rsplit('@').next().unwrap_or_default();
        write!(f, "{}://{host}{}", self.uri.scheme_str().unwrap_or_default(), self.uri.path())
    }
}

impl Connection {
    /// Connects and upgrades to v2. Says nothing yet.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(super) async fn open(address: &Address) -> Result<Self, Lost> {
        let request = address.request().map_err(|error| Lost::Final(error.to_string()))?;
        let config = WebSocketConfig::default()
            .read_buffer_size(16 * 1024)
            .max_message_size(Some(FRAME_BYTES_MAX))
            .max_frame_size(Some(FRAME_BYTES_MAX));
        // A frame goes out at once: what a person types should not wait for the next.
        let connecting = connect_async_with_config(request, Some(config), true);
        match timeout(Duration::from_secs(CONNECT_SECS), connecting).await {
            Err(_) => Err(Lost::Again(format!("{address} did not answer within {CONNECT_SECS} s"))),
            Ok(Err(Error::Http(response))) => {
                let status = response.status();
                let text = format!("{address} answered {status}");
                Err(if status.is_server_error() { Lost::Again(text) } else { Lost::Final(text) })
            }
            // A balancer whose server is away hangs up in the middle of the upgrade.
            Ok(Err(error @ (Error::Io(_) | Error::Tls(_) | Error::Protocol(ProtocolError::HandshakeIncomplete)))) => {
                Err(Lost::Again(format!("{address}: {error}")))
            }
            Ok(Err(error)) => Err(Lost::Final(format!("{address}: {error}"))),
            Ok(Ok((socket, _))) => Ok(Self { socket, silence_max: Duration::from_secs(SILENCE_SECS) }),
        }
    }

    /// The server has told how often it pings.
    pub(super) fn expect_heartbeat(&mut self, heartbeat: Duration) {
        self.silence_max = heartbeat.saturating_mul(HEARTBEATS_MISSED_MAX).max(Duration::from_secs(1));
    }

    /// The next text frame. May be dropped while it waits: nothing is lost.
    ///
    /// # Errors
    /// Why there is no more.
    pub(super) async fn receive(&mut self) -> Result<String, Lost> {
        loop {
            // Pings are answered by the library; here they show that the server lives.
            let next = timeout(self.silence_max, self.socket.next()).await;
            let silent = || Lost::Again(format!("the server said nothing for {} s", self.silence_max.as_secs()));
            match next.map_err(|_| silent())? {
                Some(Ok(Message::Text(text))) => return Ok(text.as_str().to_owned()),
                Some(Ok(Message::Close(frame))) => {
                    // The library has made the answer that the RFC asks for; without this it would never leave.
                    let _ = timeout(Duration::from_secs(1), self.socket.flush()).await;
                    return Err(closed(frame));
                }
                Some(Ok(_)) => {}
                Some(Err(error @ Error::Capacity(_))) => return Err(Lost::Final(error.to_string())),
                Some(Err(Error::Io(error))) => return Err(Lost::Again(format!("the connection was lost: {error}"))),
                Some(Err(_)) | None => return Err(Lost::Again("the connection was lost".to_owned())),
            }
        }
    }

    /// Sends a text frame.
    ///
    /// # Errors
    /// Why it cannot be sent.
    pub(super) async fn send(&mut self, frame: String) -> Result<(), Lost> {
        match timeout(Duration::from_secs(SEND_SECS), self.socket.send(Message::text(frame))).await {
            Ok(sent) => sent.map_err(|error| Lost::Again(error.to_string())),
            Err(_) => Err(Lost::Again(format!("the server took nothing for {SEND_SECS} s"))),
        }
    }

    /// Says goodbye; whether it is heard makes no difference.
    pub(super) async fn close(mut self) {
        let _ = timeout(Duration::from_secs(1), self.socket.close(None)).await;
    }
}

/// 44xx say that something must change first; see the page of close codes. The rest is worth another attempt.
fn closed(frame: Option<CloseFrame>) -> Lost {
    let Some(frame) = frame else { return Lost::Again("the server closed the connection".to_owned()) };
    let code = u16::from(frame.code);
    let reason = match code {
        1000 | 1001 => "the server has left",
        4401 => "the credentials are missing, wrong or used up; see --token",
        4404 => "the session was deleted",
        4408 => "the server waited for a hello",
        4409 => "another connection took this session over",
        4429 => "too many commands in too short a time",
        _ => "",
    };
    let said = if reason.is_empty() { super::screen::clean(&frame.reason).into_owned() } else { reason.to_owned() };
    let text = if said.is_empty() { format!("closed with {code}") } else { format!("{said} (closed with {code})") };
    match code {
        1000 | 1001 | 1002 | 1003 | 1007 | 4400..=4499 => Lost::Final(text),
        _ => Lost::Again(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_websocket_address() {
        let table = [
            ("ws://127.0.0.1:8080/ws", Some("ws://127.0.0.1:8080/ws")),
            ("ws://localhost:8080", Some("ws://localhost:8080/ws")),
            ("wss://example.org/", Some("wss://example.org/ws")),
            ("wss://name:secret@example.org/chat?ticket=secret", Some("wss://example.org/chat")),
            ("http://localhost:8080", Some("ws://localhost:8080/ws")),
            ("https://example.org/", Some("wss://example.org/ws")),
            ("https://example.org/chat/ws", Some("wss://example.org/chat/ws")),
            ("ftp://localhost:8080", None),
            ("localhost:8080", None),
            ("", None),
        ];
        for (url, expected) in table {
            let address = Address::new(url, None).ok().map(|address| address.to_string());
            assert_eq!(address.as_deref(), expected, "{url}");
        }
        assert!(Address::new("ws://localhost", Some("two\nlines")).is_err());
    }

    #[test]
    fn close_codes_say_whether_to_come_back() {
        let table = [(1000, false), (1001, false), (1011, true), (1012, true), (1013, true), (1009, true)];
        let ours = [(4401, false), (4409, false), (4429, false), (4504, true), (4508, true)];
        for (code, again) in table.into_iter().chain(ours) {
            let lost = closed(Some(CloseFrame { code: code.into(), reason: "".into() }));
            assert_eq!(matches!(lost, Lost::Again(_)), again, "{code}: {lost}");
        }
        assert!(matches!(closed(None), Lost::Again(_)));
    }
}
