//! `reseed chat` in a terminal: a real pseudo-terminal, the real binary, and what the person sees.

use super::PATIENCE;
use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{client::Client, server::Server};
use reseed::{
    store::memory::MemoryStore,
    tools::{Call, CallFuture, Output, Tool},
};
use reseed_protocol::{Part, tools::ToolOffer};
use rustix::{
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};
use serde_json::json;
use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};
use tokio::{
    process::{Child, Command},
    sync::mpsc,
    time::timeout,
};

const COLUMNS: u16 = 60;
const ROWS: u16 = 100;

const LEFT: &str = "\x1b[D";
const UP: &str = "\x1b[A";
const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const ENTER: &str = "\r";

/// A person at a terminal that runs `reseed chat`.
struct Person {
    child: Child,
    master: File,
    printed: mpsc::UnboundedReceiver<Vec<u8>>,
    screen: vt100::Parser,
}

impl Person {
    async fn at(server: &Server) -> Self {
        Self::with(server, &[]).await
    }

    /// The same, with these variables.
    async fn with(server: &Server, variables: &[(&str, &str)]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave = ioctl_tiocgptpeer(&master, flags).unwrap();
        tcsetwinsize(&slave, Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_reseed"))
            .args(["chat", &server.ws()])
            .env_clear()
            .env("TERM", "xterm-256color")
            .envs(variables.iter().copied())
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .stderr(Stdio::from(slave))
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let master = File::from(master);
        let (sender, printed) = mpsc::unbounded_channel();
        let mut reading = master.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It fails when nobody holds the other end any more.
            while let Ok(count) = reading.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut person = Self { child, master, printed, screen: vt100::Parser::new(ROWS, COLUMNS, 0) };
        person.sees_prompt().await;
        person
    }

    fn types(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Returns the non-empty rows, without trailing spaces.
    fn rows(&self) -> Vec<String> {
        let rows = self.screen.screen().rows(0, COLUMNS).map(|row| row.trim_end().to_owned());
        rows.filter(|row| !row.is_empty()).collect()
    }

    /// Waits until the screen shows it; returns its rows.
    async fn sees(&mut self, what: &str, is_there: impl Fn(&[String]) -> bool) -> Vec<String> {
        loop {
            let rows = self.rows();
            if is_there(&rows) {
                return rows;
            }
            let printed = timeout(PATIENCE, self.printed.recv()).await;
            let Ok(Some(printed)) = printed else { panic!("{what} does not come:\n{}", rows.join("\n")) };
            self.screen.process(&printed);
        }
    }

    /// Sends a signal: this terminal controls no process, so Ctrl-C generates none while no line is edited.
    async fn signals(&self, signal: &str) {
        let id = self.child.id().unwrap().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &id]).status().await.unwrap();
        assert!(sent.success());
    }

    /// Waits until a line is being edited and nothing is typed yet. Only then is Ctrl-C a key.
    async fn sees_prompt(&mut self) {
        self.sees("the prompt", |rows| rows.last().is_some_and(|row| row == ">")).await;
    }

    async fn sees_row(&mut self, wanted: &str) -> Vec<String> {
        self.sees(wanted, |rows| rows.iter().any(|row| row == wanted)).await
    }

    fn modes(&self) -> LocalModes {
        tcgetattr(&self.master).unwrap().local_modes
    }

    /// Waits until the chat ends, after the person has left.
    async fn left_alone(mut self) {
        let status = self.ends().await;
        assert!(status.success(), "{status}:\n{}", self.rows().join("\n"));
    }

    /// Waits until the chat ends, which restores the terminal.
    async fn ends(&mut self) -> ExitStatus {
        let status = timeout(PATIENCE, self.child.wait()).await.expect("the chat ends").unwrap();
        let modes = self.modes();
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG), "{modes:?}");
        status
    }
}

/// Returns a model that repeats its input.
fn parrot() -> Scripted {
    Scripted::answering(|request| {
        let last = request.envelope.messages.cached.last().map(|message| message.message.text());
        Reply::text(format!("You said: {}", last.unwrap_or_default()))
    })
}

/// Returns what users said in the only session of this server.
async fn said(server: &Server) -> Vec<String> {
    let mut client = Client::v2(&server.ws()).await;
    let listed = client.ask("list_sessions", json!({})).await;
    let sessions = listed["payload"]["items"].as_array().unwrap();
    assert_eq!(sessions.len(), 1, "{listed}");
    let open = json!({ "sessionId": sessions[0]["sessionId"], "role": "observer" });
    let opened = client.ask("open_session", open).await;
    let entries = opened["payload"]["entries"].as_array().unwrap().iter().filter(|entry| entry["role"] == "user");
    entries.map(|entry| entry["content"][0]["text"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_edit_the_line_and_bring_lines_back() {
    let server = Server::start(parrot(), &[]).await;
    let mut person = Person::at(&server).await;
    person.types(&format!("helo{LEFT}l{ENTER}"));
    person.sees_row("You said: hello").await;
    person.types(&format!("{UP}!{ENTER}"));
    person.sees_row("You said: hello!").await;
    person.types(&format!("{UP}{UP}{ENTER}"));
    person.sees("a third answer", |rows| rows.iter().filter(|row| *row == "You said: hello").count() == 2).await;
    person.types("/quit\r");
    person.left_alone().await;
    assert_eq!(said(&server).await, ["hello", "hello!", "hello"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pasted_block_is_one_turn_and_lines_that_come_at_once_are_several() {
    let server = Server::start(parrot(), &[]).await;
    let mut person = Person::at(&server).await;
    person.types("\x1b[200~fn main() {\r    run();\r}\x1b[201~");
    person.sees("the block", |rows| rows.last().is_some_and(|row| row == "}")).await;
    person.types(ENTER);
    person.sees_row("You said: fn main() {").await;
    // A terminal that does not mark pasted text; nothing of it is lost.
    person.types("one\rtwo\r");
    person.sees_row("You said: two").await;
    person.types(CTRL_D);
    person.left_alone().await;
    assert_eq!(said(&server).await, ["fn main() {\n    run();\n}", "one", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_typed_while_an_answer_streams_begins_the_next_line() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let (shown, rest) = ("the first half of it, ", "and then the 2nd half.");
    model.push(Reply::text([shown, rest].concat()).in_pieces(2).held_by(&gate));
    model.push(Reply::text("Goodbye."));
    let server = Server::start(model, &[]).await;
    let mut person = Person::at(&server).await;
    person.types("Tell me.\r");
    person.sees_row(shown.trim_end()).await;
    person.types("and a qestion");
    gate.open();
    // It was not echoed into the answer.
    person.sees_row(&[shown, rest].concat()).await;
    person.sees("the line", |rows| rows.last().is_some_and(|row| row == "> and a qestion")).await;
    person.types(&LEFT.repeat(6));
    person.types(&format!("u{ENTER}"));
    person.sees_row("Goodbye.").await;
    person.sees_prompt().await;
    person.types(CTRL_C);
    person.sees_row("Ctrl-C again leaves").await;
    person.sees_prompt().await;
    person.types(CTRL_C);
    person.left_alone().await;
    assert_eq!(said(&server).await, ["Tell me.", "and a question"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_cancels_the_answer() {
    let (model, gate) = (Scripted::new(), Gate::new());
    model.push(Reply::text("one, two").in_pieces(2).held_by(&gate));
    let server = Server::start(model, &[]).await;
    let mut person = Person::at(&server).await;
    person.types("Count.\r");
    person.sees("the beginning", |rows| rows.iter().any(|row| row.starts_with("one"))).await;
    person.signals("INT").await;
    person.sees_row("cancelled").await;
    person.sees_prompt().await;
    person.types("/quit\r");
    person.left_alone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_from_elsewhere_is_shown_above_the_line_that_is_edited() {
    let server = Server::start(parrot(), &[]).await;
    let mut person = Person::at(&server).await;
    person.types("hello\r");
    person.sees_row("You said: hello").await;
    person.sees_prompt().await;
    person.types("half a l");
    person.sees_row("> half a l").await;
    let mut other = Client::v2(&server.ws()).await;
    let listed = other.ask("list_sessions", json!({})).await;
    other.ask("open_session", json!({ "sessionId": listed["payload"]["items"][0]["sessionId"] })).await;
    other.ask("user_input", json!({ "input": "from elsewhere" })).await;
    let rows = person.sees_row("You said: from elsewhere").await;
    assert!(rows.contains(&"> from elsewhere".to_owned()), "{rows:#?}");
    person.sees("the line, last", |rows| rows.last().is_some_and(|row| row == "> half a l")).await;
    person.types("ine\r");
    person.sees_row("You said: half a line").await;
    person.types(CTRL_D);
    person.left_alone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_earlier_chats_come_back_and_are_nobody_else_s() {
    let server = Server::start(parrot(), &[]).await;
    let state = tempfile::tempdir().unwrap();
    let variables = [("XDG_STATE_HOME", state.path().to_str().unwrap())];
    let mut person = Person::with(&server, &variables).await;
    person.types("\x1b[200~a \\ block\rof lines\x1b[201~\r");
    person.sees_row("of lines").await;
    person.types("/quit\r");
    person.left_alone().await;
    let mut person = Person::with(&server, &variables).await;
    person.types(&format!("{UP}{UP}"));
    person.sees_row("> a \\ block").await;
    person.types(CTRL_C);
    person.sees_prompt().await;
    person.types(CTRL_D);
    person.left_alone().await;
    let file = state.path().join("reseed/chat_history");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
}

/// A tool of the server's that a person is asked about.
struct Note;

impl Tool for Note {
    fn offer(&self) -> ToolOffer {
        ToolOffer::new("note", "Writes a note.", json!({ "type": "object" }))
    }

    fn call(&self, _: Call) -> CallFuture<'_> {
        Box::pin(async { Output::text("written") })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_answers_a_tool_that_asks_unless_it_was_typed_before() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let call = |text: &str| Part::ToolCall {
        call_id: "c".parse().unwrap(),
        name: "note".into(),
        arguments: json!({ "text": text }).to_string(),
    };
    model.push(Reply::parts(vec![call("milk")]).held_by(&gate));
    model.push(Reply::text("Noted."));
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(Note)];
    let server = Server::over_with_tools(model, Arc::new(MemoryStore::new()), tools, &[]).await;
    let mut person = Person::at(&server).await;
    // The second line waits in the editor while the answer is awaited.
    person.types("Note milk.\r/allow\r");
    person.sees_row("> Note milk.").await;
    gate.open();
    person.sees_row("the question came while you typed; answer again").await;
    assert!(!person.rows().iter().any(|row| row == "allowed"));
    person.sees_prompt().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    person.types("/allow\r");
    person.sees_row("allowed").await;
    person.sees_row("Noted.").await;
    person.types(CTRL_D);
    person.left_alone().await;
    assert_eq!(said(&server).await, ["Note milk."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_ends_the_chat_gives_the_terminal_back() {
    let server = Server::start(parrot(), &[]).await;
    for signal in ["TERM", "HUP"] {
        let mut person = Person::at(&server).await;
        person.types("half a l");
        person.sees_row("> half a l").await;
        assert!(!person.modes().contains(LocalModes::ICANON), "a line is edited");
        person.signals(signal).await;
        assert_eq!(person.ends().await.code(), Some(1));
        person.sees_row(&format!("reseed: ended by SIG{signal}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_interrupt_leaves_while_the_server_is_away() {
    for typed in ["", "and this\r"] {
        let server = Server::start(parrot(), &[]).await;
        let mut person = Person::at(&server).await;
        person.types("hello\r");
        person.sees_row("You said: hello").await;
        person.sees_prompt().await;
        server.service.stop().await;
        person.sees("the loss", |rows| rows.iter().any(|row| row.contains("(Ctrl-C leaves)"))).await;
        if let Some(line) = typed.strip_suffix(ENTER) {
            person.types(typed);
            person.sees_row(&format!("> {line}")).await;
            person.signals("INT").await;
        } else {
            person.sees_prompt().await;
            person.types(CTRL_C);
        }
        person.left_alone().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_in_which_nothing_is_said_leaves_no_session_behind() {
    let server = Server::start(parrot(), &[]).await;
    let mut person = Person::at(&server).await;
    person.types(CTRL_D);
    person.left_alone().await;
    let listed = Client::v2(&server.ws()).await.ask("list_sessions", json!({})).await;
    assert_eq!(listed["payload"]["items"], json!([]));
}
