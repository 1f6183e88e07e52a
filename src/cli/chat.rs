//! `reseed chat`: a terminal client of v2.
//!
//! - `connection`: the socket; `frames`: what the server sends
//! - `dialogue` and `events`: what was typed and what came, turned into what to show and what to send; pure
//! - `sessions`: which session is open; `branches`: moving about in the tree, and the queue; `tree`: the tree as text
//! - `keeping`: a compaction looked at first or taken back, pins, the strategy
//! - `lines`: what a person types; `streamed`: an answer while it comes; `screen`: what is shown
//! - `console`: the terminal, where a line is edited below what is shown; `rows`: where the text above it ends
//!
//! Without a terminal it reads lines from a pipe, one after the other, each when the one before has been answered,
//! prints plain text, and ends when its input has ended and the last turn is over.

mod branches;
mod connection;
#[cfg(unix)]
mod console;
mod dialogue;
mod events;
mod frames;
mod keeping;
mod lines;
#[cfg(unix)]
mod rows;
mod screen;
mod sessions;
mod streamed;
mod tree;

use crate::config::ClientSettings;
use anyhow::Context as _;
use connection::{Address, Connection, Lost};
use dialogue::{Dialogue, Step};
use reseed_protocol::SessionId;
use screen::Screen;
use secrecy::ExposeSecret as _;
use std::{
    io::{IsTerminal as _, Write},
    time::Duration,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

/// Attempts to connect again before giving up: with [`pause`] about four minutes, longer than a server takes to
/// restart.
const ATTEMPTS_MAX: u32 = 12;

/// What `reseed chat` was told.
#[derive(Clone, clap::Args)]
pub(super) struct ChatOptions {
    /// The server, as ws://, wss://, http:// or https://. Without it, the one that HOST and WS_PORT of the environment
    /// and `.env` name
    pub url: Option<String>,
    /// A token of AUTH_TOKENS, where the server wants one. Without it, the server of the same settings is given the
    /// first one of AUTH_TOKENS there; another server is given none
    #[arg(long)]
    pub token: Option<String>,
    /// The session to go on with; without it, what is said first begins a new one
    #[arg(long)]
    pub session: Option<String>,
    /// Whether to use colours
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
}

impl std::fmt::Debug for ChatOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("ChatOptions").field("url", &self.url).field("token", &token).finish_non_exhaustive()
    }
}

/// Whether to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Color {
    /// On a terminal, unless NO_COLOR is set or the terminal is dumb
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Chats on the terminal, or through pipes, until the person leaves or the input ends.
///
/// # Errors
/// Why there is no connection, no session, or no more.
pub(super) async fn run(mut options: ChatOptions) -> anyhow::Result<()> {
    let stdout_is_terminal = std::io::stdout().is_terminal();
    let watched = stdout_is_terminal && std::io::stdin().is_terminal();
    let color = match options.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
            stdout_is_terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
        }
    };
    let chat = Chat { screen: Screen { color }, watched, pause };
    let url = match &options.url {
        Some(url) => url.clone(),
        None => {
            let (url, token) = server_of_settings()?;
            options.token = options.token.or(token);
            url
        }
    };
    let connected = chat.connect(&url, &options).await?;
    #[cfg(unix)]
    if watched && let Some((console, lines)) = console::Console::open(chat.screen) {
        return chat.run(connected, lines, console).await;
    }
    chat.run(connected, lines_of(std::io::stdin()), std::io::stdout()).await
}

/// The address of the server that these settings start, and a token for it where it wants one. Faults in its other
/// settings are its own.
fn server_of_settings() -> anyhow::Result<(String, Option<String>)> {
    let ClientSettings { listen, token } =
        ClientSettings::load().context("name the server, or mend the settings that name it")?;
    anyhow::ensure!(
        listen.ws_port != 0,
        "WS_PORT is 0, so the server listens on any free port; name the address that it printed when it started"
    );
    let token = token.map(|token| token.expose_secret().to_owned());
    Ok((format!("ws://{}/ws", listen.local_address()), token))
}

/// What came of a person, or of a pipe.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Typed {
    /// A line, or a pasted block of lines.
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// Nothing more will come.
    End,
    /// The process is told to end, by this signal.
    Killed(&'static str),
}

type Lines = mpsc::Receiver<std::io::Result<Typed>>;

/// Where a chat is shown, which may also be where its lines come from.
trait Output: Write {
    /// The next line is wanted.
    fn want_line(&mut self) {}

    /// A line was taken.
    fn took_line(&mut self) {}
}

impl Output for std::io::Stdout {}

/// What a person or a pipe gives: lines, and signals to the process, which are listened to from the moment this is
/// made.
struct Input {
    lines: Lines,
    /// No line will come any more.
    has_ended: bool,
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Input {
    fn new(lines: Lines) -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("listen to signals");
        Ok(Self {
            lines,
            has_ended: false,
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// The next line, where lines are taken, or the next signal. May be dropped while it waits: nothing is lost.
    ///
    /// # Errors
    /// Why no line can be read.
    async fn next(&mut self, takes_lines: bool, output: &mut impl Output) -> anyhow::Result<Typed> {
        let takes_lines = takes_lines && !self.has_ended;
        if takes_lines {
            output.want_line();
        }
        tokio::select! {
            typed = self.lines.recv(), if takes_lines => {
                output.took_line();
                let typed = typed.transpose().context("read a line")?.unwrap_or(Typed::End);
                self.has_ended = typed == Typed::End;
                Ok(typed)
            }
            _ = self.interrupt.recv() => Ok(Typed::Interrupt),
            _ = self.terminate.recv() => Ok(Typed::Killed("SIGTERM")),
            _ = self.hangup.recv() => Ok(Typed::Killed("SIGHUP")),
        }
    }
}

/// A chat that has reached its server.
struct Connected {
    address: Address,
    dialogue: Dialogue,
    connection: Connection,
}

/// How to chat; apart from [`run`] so that tests bring their own lines and screen.
struct Chat {
    screen: Screen,
    watched: bool,
    /// How long to wait before this attempt to connect again.
    pause: fn(u32) -> Duration,
}

impl Chat {
    async fn connect(&self, url: &str, options: &ChatOptions) -> anyhow::Result<Connected> {
        let address = Address::new(url, options.token.as_deref())?;
        let session = options
            .session
            .as_deref()
            .map(|id| id.parse::<SessionId>().with_context(|| format!("`{}` is no session's id", screen::clean(id))));
        let dialogue = Dialogue::new(self.screen, self.watched, random_id()?, session.transpose()?);
        let connection = Connection::open(&address).await?;
        Ok(Connected { address, dialogue, connection })
    }

    async fn run(&self, connected: Connected, lines: Lines, mut output: impl Output) -> anyhow::Result<()> {
        let Connected { address, mut dialogue, mut connection } = connected;
        let mut input = Input::new(lines)?;
        let mut next = Ok(dialogue.on_connected());
        loop {
            let outcome = match next {
                Ok(steps) => self.carry_out(steps, &mut connection, &mut output).await?,
                Err(lost) => Outcome::Lost(lost),
            };
            match outcome {
                Outcome::Left => break,
                Outcome::Lost(lost) => {
                    let connected = self.reconnect(lost, &address, &mut dialogue, &mut input, &mut output).await?;
                    let Some(connected) = connected else { return Ok(()) };
                    connection = connected;
                    next = Ok(dialogue.on_connected());
                    continue;
                }
                Outcome::Done if input.has_ended && dialogue.is_idle() => break,
                Outcome::Done => {}
            }
            // A person may type at any time; a pipe is read line by line, so that its answers keep their order.
            let takes_lines = self.watched || dialogue.is_idle();
            next = tokio::select! {
                frame = connection.receive() => frame.map(|text| dialogue.on_frame(&text)),
                typed = input.next(takes_lines, &mut output) => Ok(match typed? {
                    Typed::Line(line) => dialogue.on_line(&line),
                    Typed::Interrupt => dialogue.on_interrupt(),
                    Typed::End => Vec::new(),
                    Typed::Killed(signal) => anyhow::bail!("ended by {signal}"),
                }),
            };
        }
        connection.close().await;
        Ok(())
    }

    async fn carry_out(
        &self,
        steps: Vec<Step>,
        connection: &mut Connection,
        output: &mut impl Write,
    ) -> anyhow::Result<Outcome> {
        for step in steps {
            match step {
                Step::Show(text) => match show(output, &text) {
                    Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(Outcome::Left),
                    shown => shown.context("write to the screen")?,
                },
                Step::Send(frame) => {
                    if let Err(lost) = connection.send(frame).await {
                        return Ok(Outcome::Lost(lost));
                    }
                }
                Step::Heartbeat(heartbeat) => connection.expect_heartbeat(heartbeat),
                Step::Reopen => return Ok(Outcome::Lost(Lost::Again("an event is missing".to_owned()))),
                Step::Quit => return Ok(Outcome::Left),
                Step::Fail(why) => anyhow::bail!(why),
            }
        }
        Ok(Outcome::Done)
    }

    /// Connects again. `None`: the person has left meanwhile, for which one Ctrl-C is enough. What they say meanwhile
    /// is sent afterwards.
    async fn reconnect(
        &self,
        lost: Lost,
        address: &Address,
        dialogue: &mut Dialogue,
        input: &mut Input,
        output: &mut impl Output,
    ) -> anyhow::Result<Option<Connection>> {
        let mut why = lost;
        for attempt in 1..=ATTEMPTS_MAX {
            let Lost::Again(reason) = &why else { break };
            if attempt == 1 {
                show_all(output, dialogue.on_lost(reason))?;
            }
            let connecting = async {
                tokio::time::sleep((self.pause)(attempt)).await;
                Connection::open(address).await
            };
            let mut connecting = std::pin::pin!(connecting);
            loop {
                tokio::select! {
                    connected = &mut connecting => match connected {
                        Ok(connection) => return Ok(Some(connection)),
                        Err(error) => {
                            why = error;
                            break;
                        }
                    },
                    typed = input.next(self.watched, output) => match typed? {
                        Typed::Line(line) => {
                            let steps = dialogue.on_line(&line);
                            if steps.contains(&Step::Quit) {
                                return Ok(None);
                            }
                            show_all(output, steps)?;
                        }
                        Typed::Interrupt => return Ok(None),
                        Typed::End if dialogue.is_idle() => return Ok(None),
                        Typed::End => {}
                        Typed::Killed(signal) => anyhow::bail!("ended by {signal}"),
                    },
                }
            }
        }
        Err(why.into())
    }
}

/// What became of some steps.
enum Outcome {
    Done,
    Left,
    Lost(Lost),
}

/// Milliseconds before an attempt: half a second doubled up to half a minute, and up to half as much again by chance,
/// so that a server that restarts is not met by all its clients at once.
fn pause(attempt: u32) -> Duration {
    let millis = 500u64.saturating_mul(1 << attempt.saturating_sub(1).min(6)).min(30_000);
    Duration::from_millis(millis + fastrand::u64(0..=millis / 2))
}

/// Shows what these steps show. What they send is kept by the dialogue until there is a connection.
fn show_all(output: &mut impl Write, steps: Vec<Step>) -> anyhow::Result<()> {
    for step in steps {
        if let Step::Show(text) = step {
            show(output, &text).context("write to the screen")?;
        }
    }
    Ok(())
}

fn show(output: &mut impl Write, text: &str) -> std::io::Result<()> {
    output.write_all(text.as_bytes())?;
    output.flush()
}

/// The lines of an input, read by a thread of its own: a read from a terminal cannot be given up, and a thread may be
/// left behind in it when the process ends.
fn lines_of(input: impl std::io::Read + Send + 'static) -> Lines {
    let (sender, receiver) = mpsc::channel(lines::LINES_WAITING_MAX);
    std::thread::spawn(move || {
        let mut input = std::io::BufReader::new(input);
        while let Some(line) = lines::read(&mut input).transpose() {
            let failed = line.is_err();
            if sender.blocking_send(line.map(Typed::Line)).is_err() || failed {
                break;
            }
        }
    });
    receiver
}

/// 128 bits as text: names this process to the server and begins its commands' ids.
fn random_id() -> anyhow::Result<String> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests;
