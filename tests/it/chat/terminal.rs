//! `reseed chat` in a terminal: a real pseudo-terminal, the real binary, and what the person sees.

use super::PATIENCE;
use crate::support::{client::Client, server::Server};
use reseed::{
    provider::scripted::{Gate, Reply, Scripted},
    store::memory::MemoryStore,
    tools::{Call, CallFuture, Output, Tool},
};
use reseed_protocol::{Part, command::ToolOffer};
use rustix::{
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};
use serde_json::json;
use std::{
    fs::File,
    io::{Read as _, Write as _},
    process::{ExitStatus, Stdio},
    sync::Arc,
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

    /// Waits until a line is being edited and nothing is typed yet: only then is Ctrl-C a key. This terminal controls
    /// no process, so it generates no signal at other times.
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
async fn what_is_typed_while_an_answer_streams_stays_below_it() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let (shown, rest) = ("the first half of it, ", "and then the 2nd half.");
    model.push(Reply::text([shown, rest].concat()).in_pieces(2).held_by(&gate));
    model.push(Reply::text("Goodbye."));
    let server = Server::start(model, &[]).await;
    let mut person = Person::at(&server).await;
    person.types("Tell me.\r");
    person.sees_row(shown.trim_end()).await;
    person.types("and a qestion");
    person.sees_row("> and a qestion").await;
    gate.open();
    // The answer continues in its own row, and the line stays as it is, to be edited further.
    let whole = [shown, rest].concat();
    let rows = person.sees("the rest", |rows| rows.contains(&whole)).await;
    assert!(!rows.iter().any(|row| row == shown.trim_end()), "{rows:#?}");
    person.sees("the line, last", |rows| rows.last().is_some_and(|row| row == "> and a qestion")).await;
    person.types(&LEFT.repeat(6));
    person.types(&format!("u{ENTER}"));
    let is_over = |rows: &[String]| rows.iter().filter(|row| row.ends_with(" tokens")).count() == 2;
    let rows = person.sees("the end of the second turn", is_over).await;
    assert!(rows.contains(&"Goodbye.".to_owned()), "{rows:#?}");
    assert!(rows.contains(&"> and a question".to_owned()), "{rows:#?}");
    person.types(CTRL_C);
    person.sees_row("Ctrl-C again leaves").await;
    person.sees_prompt().await;
    person.types(CTRL_C);
    person.left_alone().await;
    assert_eq!(said(&server).await, ["Tell me.", "and a question"]);
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
async fn a_key_answers_a_tool_that_asks_and_only_on_an_empty_line() {
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
    person.types("Note milk.\r");
    person.sees_prompt().await;
    person.types("haste");
    person.sees_row("> haste").await;
    gate.open();
    person.sees("the question", |rows| rows.iter().any(|row| row.contains("note asks first"))).await;
    person.types("y");
    person.sees("the letter", |rows| rows.last().is_some_and(|row| row == "> hastey")).await;
    person.types("\x7f\x7f\x7f\x7f\x7f\x7fx");
    person.sees("another key", |rows| rows.last().is_some_and(|row| row == "> x")).await;
    person.types("\x7f");
    person.sees_prompt().await;
    // Until the question has been there for a while, the key is a letter.
    loop {
        person.types("y");
        let is_seen =
            |rows: &[String]| rows.iter().any(|row| row == "allowed") || rows.last().is_some_and(|row| row == "> y");
        let rows = person.sees("the key's effect", is_seen).await;
        if rows.iter().any(|row| row == "allowed") {
            break;
        }
        person.types("\x7f");
        person.sees_prompt().await;
    }
    person.sees_row("Noted.").await;
    person.sees("the call's end", |rows| rows.iter().any(|row| row.starts_with("note milk: done"))).await;
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
        let id = person.child.id().unwrap().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &id]).status().await.unwrap();
        assert!(sent.success());
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
        server.service.stop().await;
        person.sees("the loss", |rows| rows.iter().any(|row| row.contains("(Ctrl-C leaves)"))).await;
        if let Some(line) = typed.strip_suffix(ENTER) {
            person.types(typed);
            // The earlier prompt does not count.
            person.sees_row(&format!("> {line}")).await;
        }
        person.sees_prompt().await;
        person.types(CTRL_C);
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
