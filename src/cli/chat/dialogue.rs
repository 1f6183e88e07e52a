//! The dialogue: what a person typed and what the server said, turned into what to show and what to send.
//!
//! Pure: no socket, no terminal, no clock. What always holds:
//! - every command stays in `pending` until its reply, and is sent again, unchanged, after a lost connection;
//! - durable events are taken in the order of their `seq`, each once; a hole asks for the session to be opened again.

use super::{
    frames::{self, Body, Fault, Incoming},
    lines::{self, Line},
    screen::Screen,
    sessions::open,
    streamed::Streamed,
};
use reseed_protocol::{
    CommandId, EntryId, JobId, PROTOCOL_VERSION, SessionId, TurnId,
    command::{
        Address, CancelCompaction, CancelTurn, Command, Empty, Hello, Input, ListSessions, OpenSession, RenameSession,
        RetryTurn, Software, StartCompaction, UserInput,
    },
    frame,
    reply::{QueueItem, Reply},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Commands that may wait for their reply: more than a person can type while one is on its way.
const PENDING_MAX: usize = 64;

/// What to do, in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Write this to the screen.
    Show(String),
    /// Send this frame.
    Send(String),
    /// The server pings this often.
    Heartbeat(Duration),
    /// An event is missing: connect again and resume.
    Reopen,
    /// Leave.
    Quit,
    /// Leave, because of this.
    Fail(String),
}

/// A place in a session's log.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) session_id: SessionId,
    pub(super) epoch: String,
    /// The last durable event that was taken.
    pub(super) seq: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Hello,
    Open,
    Close,
    Say,
    Rename,
    /// Where the last so many questions are.
    Back(usize),
    /// To move in the tree.
    Go,
    Fork,
    Label,
    Queue,
    Steer,
    Undo,
    Other,
}

#[derive(Debug)]
pub(super) struct Pending {
    id: CommandId,
    /// The session that it is about; `None` for one that is about none, and until the one that is being opened is
    /// known.
    session: Option<SessionId>,
    command: Command,
    pub(super) asked: Asked,
    /// True if it was sent over the present connection.
    sent: bool,
}

/// A session to open, and how.
#[derive(Debug, Clone)]
pub(super) struct Opening {
    /// The session; `None` to make one.
    pub(super) session: Option<SessionId>,
    pub(super) open: OpenSession,
}

/// The dialogue. See the head of this file.
#[derive(Debug)]
pub(super) struct Dialogue {
    pub(super) screen: Screen,
    /// True if a person watches: thoughts and notes on progress are shown to one, not to a pipe.
    pub(super) watched: bool,
    /// Begins the id of every command of this process, so that its own are known again.
    pub(super) prefix: String,
    next_id: u64,
    pub(super) pending: Vec<Pending>,
    pub(super) place: Option<Place>,
    /// True if the server's notice was shown.
    noticed: bool,
    /// True if a session was ever open: before, a refusal ends the chat.
    pub(super) opened_once: bool,
    /// What to open when no session is.
    pub(super) wanted: Opening,
    /// It is opened when something is said, so that no empty session is left behind.
    pub(super) opens_later: bool,
    /// Events up to here were on their way when the session was opened.
    pub(super) caught_up_at: u64,
    pub(super) turn: Option<TurnId>,
    pub(super) jobs: BTreeSet<JobId>,
    /// The job that summarises the branch which is being left.
    pub(super) leaving: Option<JobId>,
    /// The compaction that is held, as far as it was shown.
    pub(super) held: Option<JobId>,
    /// The compaction that ended last: its beginning, which is not stored, may be told after its end.
    pub(super) ended_job: Option<JobId>,
    /// The compaction that was shown last and not applied.
    pub(super) previewed: Option<JobId>,
    /// Inputs that wait in the session.
    pub(super) queued: usize,
    /// The same, as far as they can be read.
    pub(super) queue: Vec<QueueItem>,
    /// The entries of the last tree, by their numbers.
    pub(super) drawn: Vec<EntryId>,
    pub(super) items: BTreeMap<EntryId, Streamed>,
    pub(super) last_entry: Option<EntryId>,
    /// The sessions of the last list, by their numbers.
    pub(super) listed: Vec<SessionId>,
    /// True if Ctrl-C was pressed since the last line.
    interrupted: bool,
    out: Vec<Step>,
    /// True if something stands on the screen's last line.
    line_open: bool,
}

impl Dialogue {
    /// A dialogue that will open this session, or make one. `prefix` is this process's own, of 16 to 40 characters of
    /// an id.
    pub(super) fn new(screen: Screen, watched: bool, prefix: String, session: Option<SessionId>) -> Self {
        Self {
            screen,
            watched,
            prefix,
            next_id: 1,
            pending: Vec::new(),
            place: None,
            noticed: false,
            opened_once: false,
            opens_later: session.is_none(),
            wanted: open(session, None),
            caught_up_at: 0,
            turn: None,
            jobs: BTreeSet::new(),
            leaving: None,
            held: None,
            ended_job: None,
            previewed: None,
            queued: 0,
            queue: Vec::new(),
            drawn: Vec::new(),
            items: BTreeMap::new(),
            last_entry: None,
            listed: Vec::new(),
            interrupted: false,
            out: Vec::new(),
            line_open: false,
        }
    }

    /// Returns true if nothing is awaited: every command answered, no turn, no compaction, nothing on its way.
    pub(super) fn is_idle(&self) -> bool {
        let caught_up = self.place.as_ref().is_none_or(|place| place.seq >= self.caught_up_at);
        self.pending.is_empty() && self.turn.is_none() && self.jobs.is_empty() && self.queued == 0 && caught_up
    }

    /// A connection was made, the first or another: greets, and opens the session where this client was.
    pub(super) fn on_connected(&mut self) -> Vec<Step> {
        // A session that was being made, and still is what is wanted, is made once, by the command's id.
        let makes_one = self.wanted.session.is_none();
        let creates = |pending: &Pending| makes_one && pending.asked == Asked::Open && pending.session.is_none();
        self.pending
            .retain(|pending| creates(pending) || !matches!(pending.asked, Asked::Hello | Asked::Open | Asked::Close));
        self.pending.iter_mut().for_each(|pending| pending.sent = false);
        let hello = Hello {
            protocol_version: PROTOCOL_VERSION,
            client_id: Some(self.prefix.clone()),
            client: Some(Software { name: "reseed-chat".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }),
            ticket: None,
            token: None,
        };
        self.ask(Asked::Hello, Command::Hello(hello));
        let opening = self.opening();
        match opening {
            Some(_) if self.is_opening() => self.send_again(Asked::Open),
            Some(opening) => self.ask_to_open(opening),
            // No session will come, behind whose opening it would be sent.
            None => self.ask_again(),
        }
        self.done()
    }

    /// The connection is lost and will be made again.
    pub(super) fn on_lost(&mut self, why: &str) -> Vec<Step> {
        let how = if self.watched { " (Ctrl-C leaves)" } else { "" };
        self.line(&self.screen.warning(&format!("{why}; reconnecting{how}")));
        self.done()
    }

    /// A frame has come.
    pub(super) fn on_frame(&mut self, text: &str) -> Vec<Step> {
        let Some(Incoming { re, session, seq, body }) = frames::parse(text) else { return Vec::new() };
        let here = self.place.as_ref().map(|place| place.session_id.clone());
        if re.is_none() && session.is_some() && session != here {
            return Vec::new(); // of a session that was left meanwhile
        }
        if let Some(seq) = seq {
            let Some(place) = &mut self.place else { return Vec::new() };
            if seq <= place.seq {
                return Vec::new();
            }
            if seq > place.seq + 1 {
                return vec![Step::Reopen];
            }
            place.seq = seq;
        }
        let asked = self.pending.iter().position(|pending| Some(pending.id.as_str()) == re.as_deref());
        let asked = asked.map(|at| self.pending.remove(at).asked);
        let is_left = session.is_some() && session.as_ref() != here.as_ref();
        match body {
            // Another session was asked for meanwhile.
            Body::Opened(opened) if asked == Some(Asked::Open) && (self.is_opening() || self.opens_later) => {
                let close = Command::CloseSession(Empty {});
                self.ask_about(Some(opened.session_id.clone()), Asked::Close, close);
            }
            Body::Opened(opened) if asked == Some(Asked::Open) => self.on_opened(&opened),
            Body::Reply(_) if is_left => {}
            Body::Refused(fault) => self.on_refused(asked, &fault),
            Body::Reply(reply) => self.on_reply(asked, &reply),
            Body::TurnFinished(end) => self.on_turn_finished(&end),
            Body::Event(event) => self.on_event(&event),
            Body::Ephemeral(event) => self.on_ephemeral(&event),
            Body::Opened(_) | Body::Unknown => {}
        }
        self.done()
    }

    fn on_refused(&mut self, asked: Option<Asked>, fault: &Fault) {
        let opening = matches!(asked, Some(Asked::Hello | Asked::Open));
        if opening && !self.opened_once {
            let remedy =
                if fault.code == "unauthenticated" { "; name a token of the server's with --token" } else { "" };
            self.out.push(Step::Fail(format!("{}{remedy} ({})", fault.message, fault.code)));
            return;
        }
        if asked == Some(Asked::Close) {
            return; // there was nothing to close
        }
        self.line(&self.screen.fault(fault));
        if opening {
            // Nothing more is to be expected of the session, nor of what was asked of it.
            self.pending.clear();
            self.leave();
            self.line(&self.screen.note("no session is open; /new makes one, /sessions lists them"));
        }
    }

    fn on_reply(&mut self, asked: Option<Asked>, reply: &Reply) {
        match reply {
            Reply::Welcome(welcome) => {
                self.out.push(Step::Heartbeat(Duration::from_millis(welcome.heartbeat_ms)));
                let first = !std::mem::replace(&mut self.noticed, true);
                if let Some(notice) = welcome.server.notice.as_deref().filter(|_| first) {
                    self.line(&self.screen.note(notice));
                }
                if !first && self.opens_later {
                    self.progress("connected again");
                }
            }
            // An answer given before speaks of a turn that the events have told of already.
            Reply::Accepted(accepted) if accepted.duplicate != Some(true) => {
                self.turn = accepted.turn_id.clone().or(self.turn.take());
                self.caught_up_at = self.caught_up_at.max(accepted.as_of_seq + 1);
                if accepted.queued {
                    let when = if asked == Some(Asked::Steer) {
                        "it is told with the next request"
                    } else {
                        "it is asked when this turn has ended"
                    };
                    self.progress(&format!("queued: {when}; /queue shows what waits"));
                }
            }
            Reply::Ok(done) => {
                if done.duplicate != Some(true) {
                    self.jobs.extend(done.job_id.clone());
                }
                match asked {
                    Some(Asked::Rename) => self.line(&self.screen.note("renamed")),
                    Some(Asked::Label) => self.line(&self.screen.note("labelled")),
                    Some(Asked::Queue) => self.line(&self.screen.note("the queue is changed")),
                    // The event behind it says what came back.
                    Some(Asked::Undo) => {
                        self.caught_up_at = self.caught_up_at.max(done.as_of_seq.map_or(0, |seq| seq + 1));
                    }
                    _ => {}
                }
            }
            Reply::Tree(tree) => {
                let (text, drawn) = self.screen.tree(tree);
                self.drawn = drawn;
                self.line(&text);
            }
            Reply::Entries(entries) => {
                if let Some(Asked::Back(count)) = asked {
                    self.on_path(count, entries);
                }
            }
            Reply::CompactionPreview(preview) => self.on_preview(preview),
            Reply::Navigated(navigated) => self.on_navigated(navigated),
            Reply::Forked(forked) => self.go_to(open(Some(forked.session_id.clone()), None)),
            Reply::ContextInfo(info) => self.line(&self.screen.breakdown(info)),
            Reply::Sessions(sessions) => {
                self.listed = sessions.items.iter().map(|item| item.session_id.clone()).collect();
                let open = self.place.as_ref().map(|place| place.session_id.as_str());
                self.line(&self.screen.sessions(&sessions.items, open, sessions.next_cursor.is_some()));
            }
            _ => {}
        }
    }

    /// Ctrl-C: stops what is running; a second one, or one while nothing is, leaves.
    pub(super) fn on_interrupt(&mut self) -> Vec<Step> {
        if std::mem::replace(&mut self.interrupted, true) {
            return vec![Step::Quit];
        }
        if self.turn.is_some() || !self.jobs.is_empty() || self.leaving.is_some() {
            self.cancel();
        } else {
            self.line(&self.screen.note("Ctrl-C again leaves"));
        }
        self.done()
    }

    /// A line was typed.
    pub(super) fn on_line(&mut self, line: &str) -> Vec<Step> {
        self.interrupted = false;
        if self.pending.len() >= PENDING_MAX {
            self.line(&self.screen.warning("too many commands are waiting for the server; this one was not sent"));
            return self.done();
        }
        let line = lines::parse(line);
        // What is for a session that there will be is sent behind the command that makes it.
        let is_for_new = matches!(line, Line::Say(_) | Line::Rename(_) | Line::Strategy(_));
        if is_for_new && self.opens_later {
            self.go_to(self.wanted.clone());
        }
        match line {
            Line::Nothing => {}
            Line::Help => self.line(&self.screen.help()),
            Line::Quit => self.out.push(Step::Quit),
            Line::Wrong(what) => self.line(&self.screen.warning(&what)),
            Line::Sessions => {
                let list = ListSessions { cursor: None, limit: None, search: None, watch: None };
                self.ask(Asked::Other, Command::ListSessions(list));
            }
            Line::New => self.begin_later(),
            Line::Open(which) => match self.session(&which) {
                Some(id) => self.go_to(open(Some(id), None)),
                None => self.line(&self.screen.warning("that is no session's id, and no number of /sessions")),
            },
            _ if self.place.is_none() && self.opens_later => {
                self.line(&self.screen.warning("nothing was said yet: what you say first begins a session"));
            }
            _ if self.place.is_none() && !(is_for_new && self.is_opening()) => {
                self.line(&self.screen.warning("no session is open; /new makes one, /sessions lists them"));
            }
            Line::Say(text) => {
                self.ask(Asked::Say, Command::UserInput(UserInput::plain(Input::Text(text))));
            }
            Line::Steer(text) => self.steer(text),
            Line::Queue(line) => self.on_queue_line(line),
            Line::Tree => self.ask_tree(),
            Line::Go(go) => self.go(go),
            Line::Back(count) => self.back(count),
            Line::Fork(which) => self.fork(which.as_deref()),
            Line::Label { which, label } => self.label(&which, label),
            Line::Context => self.ask(Asked::Other, Command::GetContextInfo(Empty {})),
            Line::Compact(instructions) => self.ask(
                Asked::Other,
                Command::StartCompaction(StartCompaction { instructions, ..StartCompaction::default() }),
            ),
            Line::Preview(instructions) => self.preview(instructions),
            Line::Apply => self.apply(),
            Line::Undo => self.undo(),
            Line::Pin { which, pinned } => self.pin(&which, pinned),
            Line::Strategy(name) => self.strategy(name),
            Line::Cancel => self.cancel(),
            Line::Retry => self.ask(Asked::Say, Command::RetryTurn(RetryTurn { turn_id: None })),
            Line::Rename(name) => {
                self.ask(Asked::Rename, Command::RenameSession(RenameSession { name }));
            }
        }
        self.done()
    }

    /// Opens the session again where this client is: the subscription to it has ended.
    pub(super) fn reopen(&mut self) {
        if let Some(opening) = self.opening() {
            self.pending.iter_mut().for_each(|pending| pending.sent = false);
            self.ask_to_open(opening);
        }
    }

    fn cancel(&mut self) {
        if let Some(turn_id) = self.turn.clone() {
            self.ask(Asked::Other, Command::CancelTurn(CancelTurn { turn_id: Some(turn_id) }));
        } else if let Some(job_id) = self.jobs.first().or(self.leaving.as_ref()).cloned() {
            self.ask(Asked::Other, Command::CancelCompaction(CancelCompaction { job_id: Some(job_id) }));
        } else {
            self.line(&self.screen.note("nothing is running"));
        }
    }

    /// Returns true if this command is one of the kind, of this client's, and not answered yet.
    pub(super) fn awaits(&self, id: Option<&CommandId>, asked: Asked) -> bool {
        id.is_some_and(|id| self.pending.iter().any(|pending| pending.id == *id && pending.asked == asked))
    }

    pub(super) fn ask(&mut self, asked: Asked, command: Command) {
        let session = match command.spec().address {
            Address::Required => self.place.as_ref().map(|place| place.session_id.clone()),
            Address::Optional | Address::None => None,
        };
        self.ask_about(session, asked, command);
    }

    pub(super) fn ask_to_open(&mut self, Opening { session, open }: Opening) {
        self.ask_about(session, Asked::Open, Command::OpenSession(open));
    }

    fn ask_about(&mut self, session: Option<SessionId>, asked: Asked, command: Command) {
        let id = format!("{}-{}", self.prefix, self.next_id);
        self.next_id += 1;
        let id = id.parse().expect("the prefix and a number are an id");
        // One that is about the session that is being opened is sent once that is known.
        let waits = session.is_none() && command.spec().address == Address::Required;
        if !waits {
            self.out.push(Step::Send(frame::encode_command(&id, session.as_ref(), &command)));
        }
        self.pending.push(Pending { id, session, command, asked, sent: !waits });
    }

    /// Sends again what had no reply when the connection was lost, and what waited for the session to open.
    pub(super) fn ask_again(&mut self) {
        let here = self.place.as_ref().map(|place| &place.session_id);
        for pending in self.pending.iter_mut().filter(|pending| !pending.sent) {
            if pending.command.spec().address == Address::Required && pending.session.is_none() {
                pending.session = here.cloned();
            }
            pending.sent = true;
            let Pending { id, session, command, .. } = pending;
            self.out.push(Step::Send(frame::encode_command(id, session.as_ref(), command)));
        }
    }

    /// Sends again the command of this kind that had no reply.
    fn send_again(&mut self, asked: Asked) {
        for pending in self.pending.iter_mut().filter(|pending| pending.asked == asked) {
            pending.sent = true;
            let Pending { id, session, command, .. } = pending;
            self.out.push(Step::Send(frame::encode_command(id, session.as_ref(), command)));
        }
    }

    /// Shows whole lines.
    pub(super) fn line(&mut self, text: &str) {
        let open = std::mem::replace(&mut self.line_open, false);
        self.out.push(Step::Show(format!("{}{text}\n", if open { "\n" } else { "" })));
    }

    /// Shows a note to a person who waits.
    pub(super) fn progress(&mut self, text: &str) {
        if self.watched {
            self.line(&self.screen.note(text));
        }
    }

    /// Shows a piece of a line.
    pub(super) fn piece(&mut self, text: String) {
        if !text.is_empty() {
            self.line_open = !text.ends_with('\n');
            self.out.push(Step::Show(text));
        }
    }

    /// Ends the line that pieces began.
    pub(super) fn end_line(&mut self) {
        if std::mem::replace(&mut self.line_open, false) {
            self.out.push(Step::Show("\n".to_owned()));
        }
    }

    fn done(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.out)
    }
}

#[cfg(test)]
mod tests;
