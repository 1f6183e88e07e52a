//! Clients that take what they can get: strangers without a token, and one user who has one.
//!
//! Each attacker repeats its worst as fast as the server lets it, from a public address of its own, until the
//! measurement is over. What the server answers does not matter to it: a refusal is what it works for. They are a
//! process of their own, which the measurement starts.

use anyhow::Context as _;
use reseed_client::{Address, Socket};
use serde_json::{Value, json};
use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::timeout,
};

/// The longest that an attacker waits for an answer before it tries something else.
const PATIENCE: Duration = Duration::from_secs(2);

/// Connections that one kind of attacker holds at a time.
const HELD: usize = 300;

/// The bytes of a connection's receive buffer, for attackers that do not read: the kernel does not read for them
/// either.
const RECEIVE_BYTES: u32 = 4 * 1024;

/// Text of an entry of mallory's, so that reading them is work.
const ENTRY_BYTES: usize = 200_000;

/// The entries that mallory reads again and again.
const ENTRIES: usize = 40;

/// The header in which a proxy tells a client's address.
const FORWARDED: &str = "x-forwarded-for";

/// A kind of attack.
#[derive(Debug, Clone, Copy)]
enum Attack {
    /// Connects and is silent.
    Silent,
    /// Asks for the page many times over one connection and reads nothing.
    Pipelines,
    /// Begins a message and does not end it.
    Partial,
    /// Says hello with a wrong token.
    Guesses,
    /// Sends frames that are none.
    Garbage,
    /// Asks for tickets with a wrong token.
    GuessesOverHttp,
    /// As a user: offers tools whose patterns are expensive.
    Schemas,
    /// As a user: asks for the largest pages, and does not read them.
    Reads,
    /// As a user: creates sessions and leaves them.
    Sessions,
    /// As a user: forks and is gone.
    Forks,
    /// As a user: asks for tickets.
    Tickets,
    /// As a user: searches the list.
    Lists,
    /// As a user: has turns in many sessions.
    Turns,
    /// As a user: connects again and again and stays.
    Connections,
}

impl Attack {
    const ALL: [Self; 14] = [
        Self::Silent,
        Self::Pipelines,
        Self::Partial,
        Self::Guesses,
        Self::Garbage,
        Self::GuessesOverHttp,
        Self::Schemas,
        Self::Reads,
        Self::Sessions,
        Self::Forks,
        Self::Tickets,
        Self::Lists,
        Self::Turns,
        Self::Connections,
    ];
}

/// The addresses that the attackers connect from. The server must trust them as proxies.
pub(crate) const PROXIES: &str = "127.0.1.0/24";

/// Runs all of them at once, or only these, until the process is ended.
pub(crate) async fn run(server: &str, token: &str, only: &[&str]) -> anyhow::Result<()> {
    let server: SocketAddr = server.parse().with_context(|| format!("`{server}` is no address"))?;
    let mut attackers = JoinSet::new();
    for (at, attack) in Attack::ALL.into_iter().enumerate() {
        if !only.is_empty() && !only.iter().any(|name| name.eq_ignore_ascii_case(&format!("{attack:?}"))) {
            continue;
        }
        let number = u8::try_from(at).unwrap_or(0) + 1;
        let attacker = Attacker {
            server,
            proxy: Ipv4Addr::new(127, 0, 1, number),
            address: Ipv4Addr::new(203, 0, 113, number).to_string(),
            token: token.to_owned(),
        };
        attackers.spawn(async move {
            let mut held = Vec::new();
            loop {
                // Nothing that fails ends an attack.
                if let Ok(Some(kept)) = attacker.once(attack).await {
                    held.push(kept);
                }
                if held.len() >= HELD {
                    held.remove(0);
                }
                tokio::task::yield_now().await;
            }
        });
    }
    attackers.join_all().await;
    Ok(())
}

/// Something that an attacker holds open.
type Held = Box<dyn Send>;

struct Attacker {
    server: SocketAddr,
    /// The address of its connections: this machine has no other to give.
    proxy: Ipv4Addr,
    /// The address that it forwards, as a proxy would. The limits by address do not apply to loopback addresses.
    address: String,
    token: String,
}

impl Attacker {
    /// Attacks once; returns a connection to hold.
    async fn once(&self, attack: Attack) -> anyhow::Result<Option<Held>> {
        match attack {
            Attack::Silent => Ok(Some(Box::new(self.connect().await?))),
            Attack::Pipelines => {
                let mut stream = self.connect().await?;
                let request = format!(
                    "GET /page/page.js HTTP/1.1\r\nhost: {}\r\n{FORWARDED}: {}\r\n\r\n",
                    self.server, self.address
                );
                // As many as the server reads.
                let _ = timeout(PATIENCE, stream.write_all(request.repeat(200).as_bytes())).await;
                Ok(Some(Box::new(stream)))
            }
            Attack::Partial => {
                let mut stream = self.connect().await?;
                let upgrade = format!(
                    "GET /ws HTTP/1.1\r\nhost: {}\r\n{FORWARDED}: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                     sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: reseed.v2\r\n\r\n",
                    self.server, self.address
                );
                stream.write_all(upgrade.as_bytes()).await?;
                let mut head = [0; 1024];
                let _ = timeout(PATIENCE, stream.read(&mut head)).await?;
                // A masked text of 16,000 bytes, without its last ones.
                let [high, low] = 16_000_u16.to_be_bytes();
                stream.write_all(&[0x81, 0xfe, high, low, 0, 0, 0, 0]).await?;
                stream.write_all(&[b'x'; 15_900]).await?;
                Ok(Some(Box::new(stream)))
            }
            Attack::Guesses => {
                let mut socket = self.socket().await?;
                send(&mut socket, "hello", None, json!({ "protocolVersion": 2, "token": "wrong-but-long-enough" }))
                    .await?;
                wait(&mut socket, "error").await.map(|_| None)
            }
            Attack::Garbage => {
                let mut socket = self.socket().await?;
                for text in ["{", "[]", r#"{"id":"a","id":"b"}"#, &"[".repeat(4_000), &"x".repeat(17_000)] {
                    socket.send(text.to_owned()).await?;
                }
                // Until it is disconnected.
                while timeout(PATIENCE, socket.receive()).await?.is_ok() {}
                Ok(None)
            }
            Attack::GuessesOverHttp => self.ticket("wrong-but-long-enough").await.map(|()| None),
            Attack::Tickets => self.ticket(&self.token).await.map(|()| None),
            Attack::Connections => Ok(Some(Box::new(self.greeted().await?))),
            Attack::Schemas => {
                let (mut socket, session) = self.session().await?;
                loop {
                    send(&mut socket, "register_tools", Some(&session), json!({ "tools": [expensive_tool()] })).await?;
                    wait(&mut socket, "ok").await?;
                }
            }
            Attack::Reads => self.read_without_end().await.map(|()| None),
            Attack::Sessions => {
                let mut socket = self.greeted().await?;
                loop {
                    let session = open(&mut socket).await?;
                    send(&mut socket, "close_session", Some(&session), json!({})).await?;
                    wait(&mut socket, "ok").await?;
                }
            }
            Attack::Forks => {
                let (mut socket, session) = self.session().await?;
                let entry = self.long(&mut socket, &session, 4).await?;
                for _ in 0..8 {
                    let fork = json!({ "entryId": entry, "position": "at" });
                    send(&mut socket, "fork_session", Some(&session), fork).await?;
                }
                Ok(None)
            }
            Attack::Lists => {
                let mut socket = self.greeted().await?;
                loop {
                    send(
                        &mut socket,
                        "list_sessions",
                        None,
                        json!({ "search": "nothing has this name", "limit": 200 }),
                    )
                    .await?;
                    wait(&mut socket, "sessions").await?;
                }
            }
            Attack::Turns => {
                let mut socket = self.greeted().await?;
                let mut sessions = Vec::new();
                for _ in 0..32 {
                    sessions.push(open(&mut socket).await?);
                }
                loop {
                    for session in &sessions {
                        send(&mut socket, "user_input", Some(session), json!({ "input": "again" })).await?;
                    }
                    for _ in &sessions {
                        wait(&mut socket, "turn_finished").await?;
                    }
                }
            }
        }
    }

    async fn connect(&self) -> anyhow::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(RECEIVE_BYTES)?;
        socket.bind((self.proxy, 0).into())?;
        Ok(timeout(PATIENCE, socket.connect(self.server)).await??)
    }

    async fn socket(&self) -> anyhow::Result<Socket> {
        let address: Address = format!("ws://{}/ws", self.server).parse()?;
        let headers = [(FORWARDED, self.address.as_str())];
        Ok(timeout(PATIENCE, Socket::over_with(self.connect().await?, &address, &headers)).await??)
    }

    async fn greeted(&self) -> anyhow::Result<Socket> {
        let mut socket = self.socket().await?;
        send(&mut socket, "hello", None, json!({ "protocolVersion": 2, "token": self.token })).await?;
        wait(&mut socket, "welcome").await?;
        Ok(socket)
    }

    async fn session(&self) -> anyhow::Result<(Socket, String)> {
        let mut socket = self.greeted().await?;
        let session = open(&mut socket).await?;
        Ok((socket, session))
    }

    async fn ticket(&self, token: &str) -> anyhow::Result<()> {
        let mut stream = self.connect().await?;
        let (host, address) = (self.server, &self.address);
        let request = format!(
            "POST /api/tickets HTTP/1.1\r\nhost: {host}\r\n{FORWARDED}: {address}\r\nauthorization: Bearer \
             {token}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await??;
        Ok(())
    }

    /// Writes large entries; returns the last one.
    async fn long(&self, socket: &mut Socket, session: &str, entries: usize) -> anyhow::Result<Value> {
        let mut last = Value::Null;
        for _ in 0..entries {
            let content = "a word ".repeat(ENTRY_BYTES / 7);
            let payload = json!({ "customType": "long", "content": content, "display": false });
            send(socket, "append_custom_message", Some(session), payload).await?;
            last = wait(socket, "entry_appended").await?["payload"]["entry"]["entryId"].clone();
        }
        Ok(last)
    }

    /// Asks for pages of large entries over several connections, and reads none of them.
    async fn read_without_end(&self) -> anyhow::Result<()> {
        let (mut owner, session) = self.session().await?;
        self.long(&mut owner, &session, ENTRIES).await?;
        let mut readers = Vec::new();
        loop {
            let mut reader = self.greeted().await?;
            for number in 0..60 {
                let payload =
                    if number % 2 == 0 { json!({ "path": true, "limit": 500 }) } else { json!({ "limit": 500 }) };
                // The server stops reading when too much waits.
                if timeout(PATIENCE, send(&mut reader, "get_entries", Some(&session), payload)).await.is_err() {
                    break;
                }
            }
            readers.push(reader);
            if readers.len() > 20 {
                readers.remove(0);
            }
        }
    }
}

/// Returns a tool with 300 patterns that compile to much.
fn expensive_tool() -> Value {
    let all: Vec<Value> = (0..300).map(|at| json!({ "pattern": format!("(\\p{{L}}{{1000}}){{999}}{at}") })).collect();
    let parameters = json!({ "type": "object", "properties": { "text": { "allOf": all } } });
    json!({ "name": "giant", "description": "d", "parameters": parameters })
}

async fn open(socket: &mut Socket) -> anyhow::Result<String> {
    send(socket, "open_session", None, json!({})).await?;
    let opened = wait(socket, "session_opened").await?;
    Ok(opened["sessionId"].as_str().unwrap_or_default().to_owned())
}

async fn send(socket: &mut Socket, kind: &str, session: Option<&str>, payload: Value) -> anyhow::Result<()> {
    let mut frame = json!({ "id": format!("{:032x}", fastrand::u128(..)), "type": kind, "payload": payload });
    if let Some(session) = session {
        frame["sessionId"] = json!(session);
    }
    socket.send(frame.to_string()).await?;
    Ok(())
}

/// Waits for a frame of this type.
async fn wait(socket: &mut Socket, kind: &str) -> anyhow::Result<Value> {
    loop {
        let frame: Value = serde_json::from_str(&timeout(PATIENCE, socket.receive()).await??)?;
        if frame["type"] == kind {
            return Ok(frame);
        }
        anyhow::ensure!(frame["type"] != "error", "{frame}");
    }
}
