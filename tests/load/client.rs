//! A client that asks and reads: of the floor, or of the server over v2.

use crate::{floor, process::Process};
use anyhow::{Context as _, bail};
use reseed_client::{Address, Socket};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use std::{
    borrow::Cow,
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::net::TcpSocket;

/// The longest wait for a frame: a server that sends nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The protocol at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    Floor,
    V2,
}

/// The client's way of reading.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reading {
    /// A pause after each frame.
    pub(crate) pause: Option<Duration>,
    /// The size of the kernel's receive buffer; `None` leaves it to the kernel.
    pub(crate) receive_bytes: Option<u32>,
}

/// The measurements of a turn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turn {
    /// The time until the first piece of the answer.
    pub(crate) first_delta: Duration,
    /// The time until the last.
    pub(crate) last_delta: Duration,
    /// The time until the turn had ended.
    pub(crate) finished: Duration,
    /// The pieces together.
    pub(crate) text: String,
    /// The number of pieces.
    pub(crate) deltas: u64,
    /// The size of their frames in bytes.
    pub(crate) delta_bytes: u64,
    /// The number of durable events.
    pub(crate) events: u64,
}

pub(crate) struct Client {
    socket: Socket,
    speaks: Speaks,
    reading: Reading,
    name: u64,
    sent: u64,
    /// The open session.
    session: Option<String>,
}

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(rename = "sessionId", borrow)]
    session: Option<&'a str>,
    seq: Option<u64>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Content<'a>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default)]
    content: Cow<'a, str>,
}

/// A frame's meaning for a turn.
enum Heard<'a> {
    Text(Cow<'a, str>),
    /// A durable event.
    Event,
    Finished,
    Other,
}

/// How often, and how many times, a server that is not ready is asked again.
const READY_EVERY: Duration = Duration::from_millis(100);
const READY_TRIES: u32 = 100;

impl Client {
    /// Connects and sends nothing.
    pub(crate) async fn connect(process: &Process, speaks: Speaks, reading: Reading) -> anyhow::Result<Self> {
        Self::connect_to(process.address, speaks, reading).await
    }

    /// Does what [`Self::connect`] does at an address, where a server may be.
    pub(crate) async fn connect_to(to: SocketAddr, speaks: Speaks, reading: Reading) -> anyhow::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        if let Some(bytes) = reading.receive_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        let stream = socket.connect(to).await.context("connect")?;
        stream.set_nodelay(true)?;
        let address: Address = format!("ws://{to}/ws").parse()?;
        let upgraded = match speaks {
            // It knows no subprotocol.
            Speaks::Floor => Socket::over_with(stream, &address, &[]).await,
            Speaks::V2 => Socket::over(stream, &address).await,
        };
        let socket = upgraded.context("shake hands")?;
        Ok(Self { socket, speaks, reading, name: fastrand::u64(..), sent: 0, session: None })
    }

    /// Connects, says hello and opens a session, a new one if none is named.
    pub(crate) async fn session(process: &Process, session: Option<&str>) -> anyhow::Result<Self> {
        // One that shares a database serves nothing while its lease is late, as on a busy machine.
        let mut tries = 0;
        let mut client = loop {
            match Self::connect(process, Speaks::V2, Reading::default()).await {
                Err(error) if tries < READY_TRIES && format!("{error:#}").contains(" 503 ") => tries += 1,
                connected => break connected?,
            }
            tokio::time::sleep(READY_EVERY).await;
        };
        client.hello().await?;
        client.open(session).await?;
        Ok(client)
    }

    pub(crate) async fn hello(&mut self) -> anyhow::Result<()> {
        self.ask("hello", json!({ "protocolVersion": 2 }), "welcome").await
    }

    /// Says hello as the user of a token.
    pub(crate) async fn hello_as(&mut self, token: &str) -> anyhow::Result<()> {
        self.ask("hello", json!({ "protocolVersion": 2, "token": token }), "welcome").await
    }

    /// Opens a session, a new one if none is named.
    pub(crate) async fn open(&mut self, session: Option<&str>) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            self.session = session.map(str::to_owned);
            match self.ask_for("open_session", json!({}), "session_opened").await? {
                Ok(_) => return Ok(()),
                // A server that cannot reach the holder of the session yet, as on a busy machine.
                Err(error) if error["retriable"] == true && began.elapsed() < PATIENCE => {}
                Err(error) => bail!("open_session was answered with {error}"),
            }
            tokio::time::sleep(READY_EVERY).await;
        }
    }

    /// Returns the id of the open session.
    pub(crate) fn session_id(&self) -> anyhow::Result<&str> {
        self.session.as_deref().context("no session is open")
    }

    /// Sends a command and waits for its reply, which must be of this type.
    pub(crate) async fn ask(&mut self, kind: &str, payload: Value, reply: &str) -> anyhow::Result<()> {
        match self.ask_for(kind, payload, reply).await? {
            Ok(_) => Ok(()),
            Err(error) => bail!("{kind} was answered with {error}"),
        }
    }

    /// Does what [`Self::ask`] does; returns the payload of the reply, or of an error.
    pub(crate) async fn ask_for(
        &mut self,
        kind: &str,
        payload: Value,
        reply: &str,
    ) -> anyhow::Result<Result<Value, Value>> {
        self.send(kind, payload).await?;
        loop {
            let text = self.receive().await?;
            let frame: Frame<'_> = serde_json::from_str(&text).with_context(|| format!("read {text}"))?;
            let payload = || serde_json::from_str(frame.payload.map_or("null", RawValue::get));
            if frame.kind == reply {
                if reply == "session_opened" {
                    self.session = frame.session.map(str::to_owned);
                }
                return Ok(Ok(payload()?));
            }
            if frame.kind == "error" {
                return Ok(Err(payload()?));
            }
        }
    }

    async fn send(&mut self, kind: &str, mut payload: Value) -> anyhow::Result<()> {
        self.sent += 1;
        // The session that a payload names is the one that the frame is about.
        if let Some(Value::String(session)) = payload.as_object_mut().and_then(|payload| payload.remove("sessionId")) {
            self.session = Some(session);
        }
        let id = format!("{:016x}-{}", self.name, self.sent);
        let mut frame = json!({ "id": id, "type": kind, "payload": payload });
        if let Some(session) = self.session.as_ref().filter(|_| !matches!(kind, "hello" | "list_sessions")) {
            frame["sessionId"] = json!(session);
        }
        self.socket.send(frame.to_string()).await.context("send")
    }

    /// Returns the next frame.
    async fn receive(&mut self) -> anyhow::Result<String> {
        let received = tokio::time::timeout(PATIENCE, self.socket.receive()).await.context("nothing came")?;
        received.context("receive")
    }

    /// Closes the session, which is then unloaded.
    pub(crate) async fn close(&mut self) -> anyhow::Result<()> {
        self.ask("close_session", json!({}), "ok").await
    }

    /// Says something and reads the answer to its end.
    pub(crate) async fn turn(&mut self, text: &str) -> anyhow::Result<Turn> {
        let began = Instant::now();
        match self.speaks {
            Speaks::Floor => self.socket.send(text.to_owned()).await.context("send")?,
            Speaks::V2 => self.send("user_input", json!({ "input": text })).await?,
        }
        self.watch(began).await
    }

    /// Reads a turn to its end, which someone else may have started; times count from `began`.
    pub(crate) async fn watch(&mut self, began: Instant) -> anyhow::Result<Turn> {
        let mut turn = Turn::default();
        loop {
            let frame = self.receive().await?;
            match heard(self.speaks, &frame)? {
                Heard::Text(text) => {
                    turn.last_delta = began.elapsed();
                    if turn.deltas == 0 {
                        turn.first_delta = turn.last_delta;
                    }
                    turn.deltas += 1;
                    turn.delta_bytes += frame.len() as u64;
                    turn.text.push_str(&text);
                }
                Heard::Event => turn.events += 1,
                Heard::Other => {}
                Heard::Finished => {
                    turn.events += 1;
                    turn.finished = began.elapsed();
                    return Ok(turn);
                }
            }
            if let Some(pause) = self.reading.pause {
                tokio::time::sleep(pause).await;
            }
        }
    }
}

fn heard(speaks: Speaks, text: &str) -> anyhow::Result<Heard<'_>> {
    if speaks == Speaks::Floor {
        if text == floor::DONE {
            return Ok(Heard::Finished);
        }
        let chunk: Chunk<'_> = serde_json::from_str(text).with_context(|| format!("read {text}"))?;
        let content = chunk.choices.into_iter().next().map(|choice| choice.delta.content);
        return Ok(content.filter(|content| !content.is_empty()).map_or(Heard::Other, Heard::Text));
    }
    let frame: Frame<'_> = serde_json::from_str(text).with_context(|| format!("read {text}"))?;
    let payload = frame.payload.map_or("{}", RawValue::get);
    Ok(match frame.kind {
        "item_delta" => Heard::Text(serde_json::from_str::<Delta<'_>>(payload)?.text),
        "turn_finished" if payload.contains(r#""status":"completed""#) => Heard::Finished,
        "turn_finished" | "error" | "item_aborted" => bail!("the turn failed: {text}"),
        _ if frame.seq.is_some() => Heard::Event,
        _ => Heard::Other,
    })
}
