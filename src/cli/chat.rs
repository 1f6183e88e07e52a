//! `reseed chat`: a terminal client of v2.
//!
//! [`reseed_client`] keeps the connection, resumes it, and holds the state of the session.
//!
//! - `dialogue`: turns typed lines and received events into text to show and commands to send; pure
//! - `screen`: the texts that are shown
//! - `console`: the terminal, where a line is edited below the output
//!
//! Without a terminal, it reads lines from a pipe. Each line is sent when the previous one has been answered. The chat
//! ends when the input has ended and the last turn is over. A prompt on the command line is an input of one line.
//! Answers go to stdout as plain text, everything else to stderr.

mod console;
mod dialogue;
mod screen;

use crate::config::ClientSettings;
use anyhow::Context as _;
use dialogue::{Dialogue, Step};
use reseed_client::{Address, Credentials, Driver};
use reseed_protocol::{ApprovalId, SessionId};
use screen::Screen;
use secrecy::ExposeSecret as _;
use std::{
    io::{BufRead, IsTerminal as _, Read as _, Write},
    time::{Duration, Instant},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

/// Maximum bytes of a line: what a server accepts in one message by default.
const LINE_BYTES_MAX: u64 = 1024 * 1024;

/// Maximum number of lines that were read and not used yet. A person does not type that fast, and a pipe waits.
const LINES_WAITING_MAX: usize = 16;

/// How long a tool's question must be shown before a typed line answers it. A line that comes sooner was typed before.
const READING_TIME: Duration = Duration::from_millis(700);

/// The options of `reseed chat`.
#[derive(Clone, clap::Args)]
pub(super) struct ChatOptions {
    /// The server, as ws://, wss://, http:// or https://. Without it, the one that HOST and WS_PORT of the environment
    /// and `.env` name
    pub url: Option<String>,
    /// What to say; the chat ends when it is answered. Without it, lines are read from the terminal or from a pipe
    pub prompt: Option<String>,
    /// A token of AUTH_TOKENS, where the server wants one. Without it, the server of the same settings is given the
    /// first one of AUTH_TOKENS there; another server is given none
    #[arg(long)]
    pub token: Option<String>,
    /// The session to go on with; without it, what is said first begins a new one
    #[arg(long)]
    pub session: Option<String>,
}

impl std::fmt::Debug for ChatOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("ChatOptions").field("url", &self.url).field("token", &token).finish_non_exhaustive()
    }
}

/// Chats on the terminal, or through pipes, until the person leaves or the input ends.
///
/// # Errors
/// Returns an error if the server cannot be reached, refuses the session, or closes the connection for good.
pub(super) async fn run(mut options: ChatOptions) -> anyhow::Result<()> {
    if options.prompt.is_none() {
        options.prompt = options.url.take_if(|word| !names_server(word));
    }
    let stdout_is_terminal = std::io::stdout().is_terminal();
    let watched = options.prompt.is_none() && stdout_is_terminal && std::io::stdin().is_terminal();
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let color = stdout_is_terminal && !set("NO_COLOR") && !is_dumb;
    let chat = Chat { screen: Screen { color }, watched };
    let url = match &options.url {
        Some(url) => url.clone(),
        None => {
            let (url, token) = server_of_settings()?;
            options.token = options.token.or(token);
            url
        }
    };
    let connected = chat.connect(&url, &options).await?;
    if let Some(prompt) = options.prompt {
        return chat.run(connected, one_line(prompt), std::io::stdout()).await;
    }
    if watched && let Some((console, lines)) = console::Console::open() {
        return chat.run(connected, lines, console).await;
    }
    chat.run(connected, lines_of(std::io::stdin()), std::io::stdout()).await
}

/// Returns true if a word on the command line is, or was meant to be, the address of a server rather than a prompt.
fn names_server(word: &str) -> bool {
    let port = word.rsplit_once(':').map(|(_, port)| port.trim_end_matches('/'));
    let has_port = port.is_some_and(|port| !port.is_empty() && port.chars().all(|c| c.is_ascii_digit()));
    !word.contains(char::is_whitespace) && (word.contains("://") || has_port)
}

/// Returns the address of the server that these settings start, and a token if it needs one. Errors in its other
/// settings do not matter here.
fn server_of_settings() -> anyhow::Result<(String, Option<String>)> {
    let ClientSettings { listen, token } =
        ClientSettings::load().context("name the server, or mend the settings that name it")?;
    anyhow::ensure!(
        listen.ws_port != 0,
        "WS_PORT is 0, so the server listens on any free port; name the address that it printed when it started"
    );
    let token = token.map(|token| token.expose_secret().to_owned());
    let scheme = if listen.uses_tls() { "wss" } else { "ws" };
    Ok((format!("{scheme}://{}/ws", listen.local_address()), token))
}

/// Input from a person or a pipe.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Typed {
    /// A line, or a pasted block of lines.
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// The end of the input.
    End,
    /// A signal that ends the process.
    Killed(&'static str),
}

type Lines = mpsc::Receiver<std::io::Result<Typed>>;

/// The output of a chat, which may also be the source of its lines.
trait Output: Write {
    /// Requests the next line.
    fn want_line(&mut self) {}

    /// Writes text that is not part of an answer.
    fn note(&mut self, text: &str) -> std::io::Result<()> {
        show(self, text)
    }
}

/// A pipe receives only the answers, because its reader wants nothing else.
impl Output for std::io::Stdout {
    fn note(&mut self, text: &str) -> std::io::Result<()> {
        show(&mut std::io::stderr(), text)
    }
}

/// The lines of a person or a pipe, and the process's signals. It catches signals from its creation on.
struct Input {
    lines: Lines,
    /// True while a line is being read.
    wanted: bool,
    /// The question of a tool that was shown when that line was begun, and the time since which it was shown.
    question: Option<(ApprovalId, Instant)>,
    /// True if a person types the lines.
    watched: bool,
    /// True once the lines have ended.
    has_ended: bool,
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Input {
    fn new(lines: Lines, watched: bool) -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("listen to signals");
        Ok(Self {
            lines,
            wanted: false,
            question: None,
            watched,
            has_ended: false,
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Begins to read a line, unless one is being read or there are no more.
    fn want(&mut self, question: Option<&ApprovalId>, output: &mut impl Output) {
        if self.wanted || self.has_ended {
            return;
        }
        self.wanted = true;
        if self.question.as_ref().map(|(id, _)| id) != question {
            self.question = question.map(|id| (id.clone(), Instant::now()));
        }
        output.want_line();
    }

    /// Returns the question that the line just read may answer.
    fn question(&self) -> Option<&ApprovalId> {
        let (id, since) = self.question.as_ref()?;
        Some(id).filter(|_| !self.watched || since.elapsed() >= READING_TIME)
    }

    /// Returns the line that is being read, or the next signal. Cancel safe.
    ///
    /// # Errors
    /// Returns an error if a line cannot be read.
    async fn next(&mut self) -> anyhow::Result<Typed> {
        tokio::select! {
            typed = self.lines.recv(), if self.wanted => {
                self.wanted = false;
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

/// A chat that is connected to its server.
struct Connected {
    dialogue: Dialogue,
    driver: Driver,
    /// The steps so far.
    steps: Vec<Step>,
}

/// The settings of a chat, separate from [`run`] so that tests can use their own lines and screen.
struct Chat {
    screen: Screen,
    watched: bool,
}

impl Chat {
    /// Connects. Errors about the server or the token are returned before the terminal is taken over.
    async fn connect(&self, url: &str, options: &ChatOptions) -> anyhow::Result<Connected> {
        let address: Address = url.parse()?;
        let session = options.session.as_deref().map(|id| {
            id.parse::<SessionId>().with_context(|| format!("`{}` is no session's id", super::terminal::clean(id)))
        });
        let mut dialogue = Dialogue::new(self.screen, self.watched, random_id()?, session.transpose()?);
        let mut driver = Driver::new(address, options.token.clone().map(Credentials::fixed));
        dialogue.machine.connect(Instant::now());
        let mut steps = Vec::new();
        while !dialogue.is_connected() && steps.is_empty() {
            let update = driver.next(&mut dialogue.machine).await;
            steps.extend(dialogue.on_update(update));
            if let Some(Step::Fail(why)) = steps.pop_if(|step| matches!(step, Step::Fail(_))) {
                anyhow::bail!(why);
            }
        }
        Ok(Connected { dialogue, driver, steps })
    }

    async fn run(&self, connected: Connected, lines: Lines, mut output: impl Output) -> anyhow::Result<()> {
        let Connected { mut dialogue, mut driver, mut steps } = connected;
        let mut input = Input::new(lines, self.watched)?;
        while carry_out(steps, &mut output)? && !(input.has_ended && dialogue.is_idle()) {
            if dialogue.takes_line() {
                input.want(dialogue.asks(), &mut output);
            }
            steps = tokio::select! {
                update = driver.next(&mut dialogue.machine) => dialogue.on_update(update),
                typed = input.next() => match typed? {
                    Typed::Line(line) => dialogue.on_line(&line, input.question()),
                    Typed::Interrupt => dialogue.on_interrupt(),
                    Typed::End => dialogue.on_end(),
                    Typed::Killed(signal) => anyhow::bail!("ended by {signal}"),
                },
            };
        }
        driver.close(&mut dialogue.machine).await;
        anyhow::ensure!(self.watched || !dialogue.has_failed, "not everything was answered; the lines above say why");
        Ok(())
    }
}

/// Carries out steps. Returns false if the chat has ended, or nobody reads its output.
///
/// # Errors
/// Returns an error if a step failed, or the output cannot be written.
fn carry_out(steps: Vec<Step>, output: &mut impl Output) -> anyhow::Result<bool> {
    for step in steps {
        let shown = match step {
            Step::Show(text) => show(output, &text),
            Step::Note(text) => output.note(&text),
            Step::Quit => return Ok(false),
            Step::Fail(why) => anyhow::bail!(why),
        };
        match shown {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(false),
            shown => shown.context("write to the screen")?,
        }
    }
    Ok(true)
}

fn show(output: &mut (impl Write + ?Sized), text: &str) -> std::io::Result<()> {
    output.write_all(text.as_bytes())?;
    output.flush()
}

/// Reads the lines of an input on a thread of its own: a read from a terminal cannot be cancelled, and the thread may
/// still wait in it when the process ends.
fn lines_of(input: impl std::io::Read + Send + 'static) -> Lines {
    let (sender, receiver) = mpsc::channel(LINES_WAITING_MAX);
    std::thread::spawn(move || {
        let mut input = std::io::BufReader::new(input);
        while let Some(line) = read_line(&mut input).transpose() {
            let failed = line.is_err();
            if sender.blocking_send(line.map(Typed::Line)).is_err() || failed {
                break;
            }
        }
    });
    receiver
}

/// Reads the next line, without its end. `None` at the end of the input.
///
/// # Errors
/// Returns the error of the input, or that a line is longer than a message may be.
fn read_line(input: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut within = input.take(LINE_BYTES_MAX);
    if within.read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') && within.limit() == 0 {
        return Err(std::io::Error::other(format!("a line has more than {LINE_BYTES_MAX} bytes")));
    }
    Ok(Some(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned()))
}

/// Returns an input of one line.
fn one_line(text: String) -> Lines {
    let (sender, receiver) = mpsc::channel(1);
    sender.try_send(Ok(Typed::Line(text))).expect("it has room for one");
    receiver
}

/// Returns 128 random bits as text: this process's client id and the prefix of its command ids.
fn random_id() -> anyhow::Result<String> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests;
