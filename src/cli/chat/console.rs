//! The terminal of a person: a line that is edited at the bottom, and above it what is shown, also while they type.
//!
//! A thread edits lines (rustyline). What always holds:
//! - one lock orders all that is written. While a line is edited, only its thread writes: text waits until the line is
//!   drawn, which the waker asks for, and is written above it;
//! - text keeps its order and is written once, whatever is typed meanwhile;
//! - keys show nothing but the edited line: what is typed between two lines is not echoed, and begins the next one;
//! - a key that answers a tool's question does so only on an empty line, and only if the question was there to be read;
//! - the terminal is given back as it was found.

use super::{Lines, Output, Typed, asking, lines::LINES_WAITING_MAX, past::Past, rows::Rows, screen::Screen};
use reseed_protocol::ApprovalId;
use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use rustyline::{
    Cmd, ColorMode, ConditionalEventHandler, Config, Editor, Event, EventContext, EventHandler, ExternalPrinter as _,
    Helper, KeyEvent, Modifiers, RepeatCount, completion::Completer, error::ReadlineError, highlight::Highlighter,
    hint::Hinter, history::MemHistory, validate::Validator,
};
use std::{
    borrow::Cow,
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// What stands before the line.
const PROMPT: &str = "> ";

/// Lines that the arrow keys bring back.
const HISTORY_LINES_MAX: usize = 1_000;

/// Bytes of text that may wait to be written. Whoever writes more waits for the terminal, which a person can stop.
const WAITING_BYTES_MAX: usize = 256 * 1024;

/// How long the last text may take to reach the terminal.
const END_TIME: Duration = Duration::from_millis(500);

/// How long a question is shown before a key answers it: a key that is pressed sooner was meant for the line.
const READING_TIME: Duration = Duration::from_millis(700);

/// Columns where the terminal does not say.
const WIDTH_DEFAULT: usize = 80;

/// Draws the line again and changes nothing else: up, and down again, from the start of a row.
const DRAW: &str = "\x1b[1A\n";

/// What rustyline leaves switched on while a line is edited: pastes are marked as such.
const PASTE_MARKS_OFF: &str = "\x1b[?2004l";

/// Who may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// No line is edited: whoever has text writes it.
    Direct,
    /// A line is edited: its thread writes.
    Editing,
}

struct State {
    mode: Mode,
    /// Text that is not written yet.
    waiting: String,
    rows: Rows,
    /// The next line may be edited.
    go: bool,
    /// A line was given away of which nobody has said that it was taken.
    untaken: bool,
    /// The question that single keys answer, and since when.
    asks: Option<(ApprovalId, Instant)>,
    /// The key that ended the line, and the question that it answers.
    key: Option<(char, ApprovalId)>,
    /// The line is to be drawn again.
    draw: bool,
    over: bool,
    /// Why the terminal takes no more.
    fault: Option<io::Error>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// The terminal's modes before the chat.
    found: Termios,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is made whole before the lock is let go.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the terminal to what it is between two lines: as it was found, but silent.
    fn quieten(&self) {
        let mut quiet = self.found.clone();
        // Keys come one by one and as they are, as they do while a line is edited; Ctrl-C remains a signal.
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        quiet.input_modes.remove(InputModes::ICRNL);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &quiet);
    }

    fn give_back(&self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.found);
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Writes the text that waits, and what follows it.
    fn write(&mut self, then: impl FnOnce(&mut Rows) -> String) {
        let mut out = String::new();
        if !self.waiting.is_empty() {
            out = self.rows.directly(&std::mem::take(&mut self.waiting), width());
        }
        out += &then(&mut self.rows);
        let mut stdout = io::stdout();
        if let Err(error) = stdout.write_all(out.as_bytes()).and_then(|()| stdout.flush()) {
            self.fault.get_or_insert(error);
        }
    }
}

fn width() -> usize {
    tcgetwinsize(io::stdout())
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|width| *width > 0)
        .unwrap_or(WIDTH_DEFAULT)
}

/// Draws the line: the text that waits comes before it.
struct Bottom {
    shared: Arc<Shared>,
    screen: Screen,
}

impl Helper for Bottom {}

impl Completer for Bottom {
    type Candidate = String;
}

impl Hinter for Bottom {
    type Hint = String;
}

impl Validator for Bottom {}

impl Highlighter for Bottom {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, default: bool) -> Cow<'b, str> {
        let mut state = self.shared.lock();
        let text = std::mem::take(&mut state.waiting);
        let above = if text.is_empty() { String::new() } else { state.rows.above(&text, width()) };
        drop(state);
        self.shared.changed.notify_all();
        let prompt = if default { self.screen.prompt() } else { prompt.to_owned() };
        Cow::Owned(above + &prompt)
    }
}

/// A key that answers a question: it ends the line, if that is empty.
struct AnswerKey {
    shared: Arc<Shared>,
    key: char,
}

impl ConditionalEventHandler for AnswerKey {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        if !context.line().is_empty() {
            return None;
        }
        let mut state = self.shared.lock();
        let (question, since) = state.asks.clone()?;
        if since.elapsed() < READING_TIME {
            return None;
        }
        state.key = Some((self.key, question));
        Some(Cmd::AcceptLine)
    }
}

/// The terminal. Dropped, it is as it was found.
pub(super) struct Console {
    shared: Arc<Shared>,
}

impl Console {
    /// Takes the terminal over; the lines come when they are asked for. `None` where it cannot edit lines.
    pub(super) fn open(screen: Screen) -> Option<(Self, Lines)> {
        let found = tcgetattr(io::stdin()).ok()?;
        // Colours are ours; rustyline asks for the prompt's only where it believes in them.
        let config = Config::builder().max_history_size(HISTORY_LINES_MAX).ok()?.auto_add_history(true);
        let config = config.color_mode(ColorMode::Forced).build();
        let mut editor: Editor<Bottom, MemHistory> =
            Editor::with_history(config.clone(), MemHistory::with_config(&config)).ok()?;
        let past = Past::of_user();
        for line in past.newest(HISTORY_LINES_MAX) {
            let _ = editor.add_history_entry(line);
        }
        let mut printer = editor.create_external_printer().ok()?;
        let state = State {
            mode: Mode::Direct,
            waiting: String::new(),
            rows: Rows::default(),
            go: false,
            untaken: false,
            asks: None,
            key: None,
            draw: false,
            over: false,
            fault: None,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), found });
        shared.quieten();
        editor.set_helper(Some(Bottom { shared: shared.clone(), screen }));
        for key in asking::keys() {
            let answer = AnswerKey { shared: shared.clone(), key };
            editor.bind_sequence(KeyEvent::new(key, Modifiers::NONE), EventHandler::Conditional(Box::new(answer)));
        }
        let (sender, lines) = mpsc::channel(LINES_WAITING_MAX);
        let editing = shared.clone();
        std::thread::spawn(move || edit(&editing, &mut editor, &past, &sender));
        let waking = shared.clone();
        std::thread::spawn(move || {
            while awaits_drawing(&waking) {
                if printer.print(DRAW.to_owned()).is_err() {
                    break;
                }
            }
        });
        Some((Self { shared }, lines))
    }

    /// Waits until the last text is written, and gives the terminal back.
    fn close(&mut self) {
        let mut state = self.shared.lock();
        if state.over {
            return;
        }
        if state.mode == Mode::Editing {
            let until = Instant::now() + END_TIME;
            while !state.waiting.is_empty() && state.mode == Mode::Editing {
                state.draw = true;
                self.shared.changed.notify_all();
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                (state, _) = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            }
        }
        state.over = true;
        if state.mode == Mode::Editing {
            // The prompt has nobody to answer it any more.
            let mut stdout = io::stdout();
            let _ = stdout.write_all(format!("\r\x1b[J{PASTE_MARKS_OFF}").as_bytes()).and_then(|()| stdout.flush());
        }
        self.shared.give_back();
        state.write(|rows| rows.go_below());
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.close();
    }
}

impl Write for Console {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.shared.lock();
        while state.mode == Mode::Editing && state.waiting.len() > WAITING_BYTES_MAX {
            state = self.shared.wait(state);
        }
        if let Some(fault) = state.fault.take() {
            return Err(fault);
        }
        state.waiting.push_str(&String::from_utf8_lossy(bytes));
        match state.mode {
            Mode::Direct => state.write(|_| String::new()),
            Mode::Editing => state.draw = true,
        }
        drop(state);
        self.shared.changed.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Console {
    fn want_line(&mut self) {
        let mut state = self.shared.lock();
        if state.mode == Mode::Direct && !state.untaken && !state.go {
            state.go = true;
            drop(state);
            self.shared.changed.notify_all();
        }
    }

    fn asks(&mut self, question: Option<&ApprovalId>) {
        let mut state = self.shared.lock();
        if state.asks.as_ref().map(|(known, _)| known) != question {
            state.asks = question.map(|question| (question.clone(), Instant::now()));
        }
    }

    fn took_line(&mut self) {
        self.shared.lock().untaken = false;
    }
}

/// Waits until the line must be drawn again; `false` once the terminal was given back.
fn awaits_drawing(shared: &Shared) -> bool {
    let mut state = shared.lock();
    loop {
        if state.over {
            return false;
        }
        if std::mem::take(&mut state.draw) && state.mode == Mode::Editing {
            return true;
        }
        state = shared.wait(state);
    }
}

/// Edits one line after the other, each when it is wanted.
fn edit(
    shared: &Shared,
    editor: &mut Editor<Bottom, MemHistory>,
    past: &Past,
    sender: &mpsc::Sender<io::Result<Typed>>,
) {
    loop {
        let mut state = shared.lock();
        while !state.go && !state.over {
            state = shared.wait(state);
        }
        if state.over {
            return;
        }
        state.go = false;
        state.write(Rows::go_below);
        state.mode = Mode::Editing;
        drop(state);
        let read = editor.readline(PROMPT);
        let mut state = shared.lock();
        if state.over {
            // The end of a line has set the terminal to what it was before that line.
            shared.give_back();
            return;
        }
        state.mode = Mode::Direct;
        state.untaken = true;
        state.rows.typed();
        state.write(|_| String::new());
        let key = state.key.take();
        drop(state);
        shared.changed.notify_all();
        let typed = match read {
            Ok(_) if let Some((key, question)) = key => Ok(Typed::Key(key, question)),
            Ok(line) => {
                past.add(&line);
                Ok(Typed::Line(line))
            }
            Err(ReadlineError::Interrupted) => Ok(Typed::Interrupt),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(ReadlineError::Io(error)) => Err(error),
            Err(error) => Err(io::Error::other(error)),
        };
        let is_last = !matches!(typed, Ok(Typed::Line(_) | Typed::Key(..) | Typed::Interrupt));
        if sender.blocking_send(typed).is_err() || is_last {
            return;
        }
    }
}
