//! A client of version 2: asks one question in a new session and prints the answer as it comes.
//!
//!     cargo run --example client -- ws://127.0.0.1:8080/ws "When should I start for the harbour?"
//!
//! The types are those of `reseed-protocol`; the socket is tokio-tungstenite's. A client that keeps a conversation
//! would also remember `epoch` and the last `seq`, and open its session again with `resume` when the socket is lost.

use anyhow::{Context as _, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use reseed_protocol::{
    Message, PROTOCOL_VERSION, Role, SessionId,
    command::{Command, Hello, Input, OpenSession, UserInput},
    event::{DeltaKind, EphemeralEvent, Event, TurnStatus},
    frame::encode_command,
    reply::Reply,
};
use serde::{Deserialize, de::IgnoredAny};
use std::io::Write as _;
use tokio::net::TcpStream;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async, tungstenite};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A frame from the server. A newer server sends events that this client does not know: it ignores them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Heard {
    Event(Event),
    Ephemeral(EphemeralEvent),
    Reply(Reply),
    Unknown(IgnoredAny),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(question)) = (arguments.next(), arguments.next()) else {
        bail!("say where to connect and what to ask: client ws://127.0.0.1:8080/ws \"How are you?\"");
    };
    let (mut socket, _) = connect_async(&url).await.with_context(|| format!("connect to {url}"))?;
    let hello = Hello { protocol_version: PROTOCOL_VERSION, client_id: None, client: None, ticket: None, token: None };
    send(&mut socket, "hello", None, Command::Hello(hello)).await?;
    let open = OpenSession { role: None, resume: None, entries: None, deltas: None, tools: None, hooks: None };
    // The id of a command that makes or changes a session identifies it: sent again, it is not executed again.
    let id = |what: &str| format!("{what}-{:016x}", fastrand::u64(..));
    send(&mut socket, &id("open"), None, Command::OpenSession(open)).await?;
    let mut out = std::io::stdout();
    let mut shown = String::new();
    loop {
        match hear(&mut socket).await? {
            Heard::Reply(Reply::SessionOpened(opened)) => {
                let ask = Command::UserInput(UserInput::plain(Input::Text(question.clone())));
                send(&mut socket, &id("question"), Some(&opened.session_id), ask).await?;
            }
            Heard::Reply(Reply::Error(error)) => bail!("{}: {}", error.code, error.message),
            Heard::Ephemeral(EphemeralEvent::ItemDelta(delta)) if delta.kind != Some(DeltaKind::Reasoning) => {
                write!(out, "{}", delta.text)?;
                out.flush()?;
                shown.push_str(&delta.text);
            }
            Heard::Event(Event::EntryAppended(appended)) => {
                // The entry is the answer: deltas are provisional, and the last ones may be omitted in its favour.
                let message = appended.entry.message().filter(|message| message.role == Role::Assistant);
                let text = message.map(Message::text).unwrap_or_default();
                write!(out, "{}", text.strip_prefix(&shown).unwrap_or(&text))?;
                shown.clear();
            }
            Heard::Event(Event::TurnFinished(finished)) => {
                let info = &finished.context_info;
                writeln!(out, "\n({} of {} tokens)", info.token_count, info.max_tokens)?;
                socket.close(None).await?;
                return match finished.error {
                    Some(error) if finished.status == TurnStatus::Failed => bail!("{}: {}", error.code, error.message),
                    _ => Ok(()),
                };
            }
            Heard::Event(_) | Heard::Ephemeral(_) | Heard::Reply(_) | Heard::Unknown(_) => {}
        }
    }
}

async fn send(socket: &mut Socket, id: &str, session: Option<&SessionId>, command: Command) -> anyhow::Result<()> {
    let frame = encode_command(&id.parse()?, session, &command);
    socket.send(tungstenite::Message::text(frame)).await.with_context(|| format!("send {}", command.name()))
}

/// Returns the next frame; tungstenite answers pings by itself.
async fn hear(socket: &mut Socket) -> anyhow::Result<Heard> {
    loop {
        match socket.next().await.context("the server closed")?? {
            tungstenite::Message::Text(text) => return serde_json::from_str(&text).context("read a frame"),
            tungstenite::Message::Close(why) => bail!("the server closed: {why:?}"),
            _ => {}
        }
    }
}
