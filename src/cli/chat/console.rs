//! A person's terminal: a line is edited at the bottom, and the output is shown above it.
//!
//! A thread edits a line with rustyline whenever one is requested. Invariants:
//! - while a line is edited, only its thread writes, and only whole lines of text above it. At other times, text is
//!   written as it arrives;
//! - text keeps its order and is written once;
//! - what is typed between two lines is not echoed, and begins the next line;
//! - at the end, the terminal has the modes that it had before.

use super::{LINES_WAITING_MAX, Lines, Output, Typed};
use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::{
    ColorMode, Config, Editor, ExternalPrinter as _, Helper, completion::Completer, error::ReadlineError,
    highlight::Highlighter, hint::Hinter, history::FileHistory, validate::Validator,
};
use std::{
    borrow::Cow,
    fs::DirBuilder,
    io::{self, Write},
    os::unix::fs::DirBuilderExt as _,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Sender, SyncSender, channel, sync_channel},
    },
};

const PROMPT: &str = "> ";

/// Maximum number of lines that the arrow keys bring back.
const HISTORY_LINES_MAX: usize = 1_000;

/// Maximum bytes of a line that is kept in the history. A longer one was pasted.
const HISTORY_LINE_BYTES_MAX: usize = 16 * 1024;

/// Maximum bytes of text that may wait while a line is edited. A terminal that a person has stopped accepts none.
const WAITING_BYTES_MAX: usize = 1024 * 1024;

/// Redraws the line without any other effect: from the start of a row, moves up and down again.
const DRAW: &str = "\x1b[1A\n";

/// Switches off the marking of pastes, which rustyline keeps on while a line is edited.
const PASTE_MARKS_OFF: &str = "\x1b[?2004l";

/// The text that is not written yet.
#[derive(Default)]
struct Text {
    waiting: String,
    /// True while a line is edited.
    editing: bool,
}

impl Text {
    /// Writes the waiting text.
    fn write(&mut self) -> io::Result<()> {
        let mut stdout = io::stdout();
        stdout.write_all(std::mem::take(&mut self.waiting).as_bytes())?;
        stdout.flush()
    }
}

fn lock(text: &Mutex<Text>) -> MutexGuard<'_, Text> {
    // Every change is complete before the lock is released.
    text.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Draws the prompt, with the lines that wait above it.
struct Bottom(Arc<Mutex<Text>>);

impl Helper for Bottom {}

impl Completer for Bottom {
    type Candidate = String;
}

impl Hinter for Bottom {
    type Hint = String;
}

impl Validator for Bottom {}

impl Highlighter for Bottom {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        let mut text = lock(&self.0);
        let end = text.waiting.rfind('\n').map_or(0, |at| at + 1);
        Cow::Owned(text.waiting.drain(..end).as_str().to_owned() + prompt)
    }
}

/// The terminal. Dropping it restores the modes from before the chat.
pub(super) struct Console {
    text: Arc<Mutex<Text>>,
    wants: Sender<()>,
    draws: SyncSender<()>,
    /// The terminal's modes before the chat.
    found: Termios,
}

impl Console {
    /// Takes over the terminal. Lines are read on request. `None` if the terminal cannot edit lines.
    pub(super) fn open() -> Option<(Self, Lines)> {
        let found = tcgetattr(io::stdin()).ok()?;
        // rustyline requests the prompt's appearance only if it assumes that the terminal has colours.
        let config = Config::builder().max_history_size(HISTORY_LINES_MAX).ok()?.color_mode(ColorMode::Forced).build();
        let history = FileHistory::with_config(&config);
        let mut editor: Editor<Bottom, FileHistory> = Editor::with_history(config, history).ok()?;
        let mut printer = editor.create_external_printer().ok()?;
        let text = Arc::new(Mutex::new(Text::default()));
        editor.set_helper(Some(Bottom(text.clone())));
        // Keys arrive one by one and unprocessed, as they do while a line is edited. Ctrl-C remains a signal.
        let mut quiet = found.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        quiet.input_modes.remove(InputModes::ICRNL);
        tcsetattr(io::stdin(), OptionalActions::Now, &quiet).ok()?;
        let (wants, wanted) = channel();
        let (sender, lines) = tokio::sync::mpsc::channel(LINES_WAITING_MAX);
        let (shared, before) = (text.clone(), found.clone());
        std::thread::spawn(move || {
            let history = history_file();
            if let Some(file) = &history {
                let _ = editor.load_history(file);
            }
            for () in wanted {
                let read = editor.readline(PROMPT);
                let mut text = lock(&shared);
                text.editing = false;
                let _ = text.write();
                drop(text);
                if let Ok(line) = &read {
                    remember(&mut editor, line, history.as_ref());
                }
                let typed = match read {
                    Ok(line) => Ok(Typed::Line(line)),
                    Err(ReadlineError::Interrupted) => Ok(Typed::Interrupt),
                    Err(ReadlineError::Eof) => Ok(Typed::End),
                    Err(ReadlineError::Io(error)) => Err(error),
                    Err(error) => Err(io::Error::other(error)),
                };
                if sender.blocking_send(typed).is_err() {
                    break;
                }
            }
            // A line that ended after the chat has restored the terminal's modes from before that line.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
        });
        // It has a thread of its own, since it may wait until the next line is edited.
        let (draws, due) = sync_channel(1);
        let shared = text.clone();
        std::thread::spawn(move || {
            for () in due {
                if lock(&shared).editing {
                    let _ = printer.print(DRAW.to_owned());
                }
            }
        });
        Some((Self { text, wants, draws, found }, lines))
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let mut text = lock(&self.text);
        if text.editing {
            // Nobody will answer the prompt any more, so it is erased.
            text.waiting.insert_str(0, &format!("\r\x1b[J{PASTE_MARKS_OFF}"));
        }
        let _ = text.write();
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.found);
    }
}

impl Write for Console {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut text = lock(&self.text);
        text.waiting.push_str(&String::from_utf8_lossy(bytes));
        if !text.editing {
            text.write()?;
        } else if text.waiting.len() > WAITING_BYTES_MAX {
            text.waiting = "… (left out: the terminal took no text)\n".to_owned();
        } else if text.waiting.contains('\n') {
            // If the channel is full, the line is redrawn anyway.
            let _ = self.draws.try_send(());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Console {
    fn want_line(&mut self) {
        lock(&self.text).editing = true;
        let _ = self.wants.send(());
    }
}

/// Returns the file with the lines of earlier chats, in a folder for this user alone: `reseed/chat_history` in
/// `XDG_STATE_HOME`, which is `~/.local/state` if unset. Without such a file, the chat remembers only its own lines.
fn history_file() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?.join("reseed");
    DirBuilder::new().recursive(true).mode(0o700).create(&state).ok()?;
    Some(state.join("chat_history"))
}

/// Keeps a line for the arrow keys. rustyline creates the file for this user alone.
fn remember(editor: &mut Editor<Bottom, FileHistory>, line: &str, file: Option<&PathBuf>) {
    if line.trim().is_empty() || line.len() > HISTORY_LINE_BYTES_MAX {
        return;
    }
    let _ = editor.add_history_entry(line);
    if let Some(file) = file {
        let _ = editor.append_history(file);
    }
}
