//! The dialogue: turns typed lines and the client's updates into text to show and commands to send.
//!
//! Pure: no socket, no terminal, no clock. The client, [`Machine`], keeps the connection, the position in the session
//! and the commands without a reply.

use super::{
    asking::Questions,
    calls::Calls,
    lines::{self, Line},
    screen::Screen,
    streamed::Streamed,
};
use reseed_client::{
    Identity, Lost, Session, SessionEnd, SessionEvent, Stop, To, Unanswered, Update, fold::Snapshot, machine::Machine,
};
use reseed_protocol::{
    CommandId, EntryId, ErrorBody, JobId, SessionId, TurnId,
    command::{
        Address, CancelCompaction, CancelTurn, Command, Empty, Input, ListSessions, RenameSession, RetryTurn, Software,
        StartCompaction, UserInput,
    },
    event::Event,
    reply::Reply,
};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of attempts to reconnect. Their waits add up to about five minutes on average, which is longer
/// than a server takes to restart.
const ATTEMPTS_MAX: u32 = 24;

/// The maximum number of refusals to open the first session: a few seconds with the client's waits.
const REFUSALS_MAX: u32 = 4;

/// A step for the chat to carry out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Writes this to the screen: a part of an answer.
    Show(String),
    /// Writes these lines about everything else to the screen, or beside the answers if those go through a pipe.
    Note(String),
    /// Ends the chat.
    Quit,
    /// Ends the chat with this error.
    Fail(String),
}

/// The purpose of a command, where its reply alone does not show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Rename,
    /// To find the last so many questions.
    Back(usize),
    /// To move in the tree.
    Go,
    /// To answer a tool's question.
    Answer,
    Label,
    Queue,
    Steer,
    Tools,
    Undo,
    /// To withdraw a lasting answer.
    Withdraw,
    Other,
}

/// The dialogue. See the head of this file.
#[derive(Debug)]
pub(super) struct Dialogue {
    pub(super) screen: Screen,
    /// True on a terminal: reasoning and progress are shown there, but not written to a pipe.
    pub(super) watched: bool,
    /// The client.
    pub(super) machine: Machine,
    /// The prefix of this process's command ids, by which it recognises its own commands.
    pub(super) prefix: String,
    /// The purposes of the commands without a reply.
    asked: BTreeMap<CommandId, Asked>,
    /// The session that is shown or being opened.
    pub(super) session: Option<Session>,
    /// True while connected.
    connected: bool,
    /// Failed attempts to connect since the last connection, including its loss.
    attempts: u32,
    /// True once a server was reached. Before that, a failure ends the chat.
    reached_once: bool,
    /// True if the server's notice was shown.
    noticed: bool,
    /// Refusals in a row to open the session.
    refusals: u32,
    /// True once a session was open. Before that, a refusal ends the chat.
    pub(super) opened_once: bool,
    /// True if a session is created with the first message, so that no empty one is left behind.
    pub(super) opens_later: bool,
    /// The newest durable event that the session had when it was opened.
    pub(super) caught_up_at: u64,
    pub(super) turn: Option<TurnId>,
    pub(super) jobs: BTreeSet<JobId>,
    /// The job that summarises the branch being left.
    pub(super) leaving: Option<JobId>,
    /// The held compaction that was shown last.
    pub(super) held: Option<JobId>,
    /// The compaction that ended last. Its `compaction_started`, which is not stored, may arrive after its end.
    pub(super) ended_job: Option<JobId>,
    /// The preview that was shown last and not applied.
    pub(super) previewed: Option<JobId>,
    /// The entries of the last `/tree`, by number.
    pub(super) drawn: Vec<EntryId>,
    pub(super) items: BTreeMap<EntryId, Streamed>,
    pub(super) last_entry: Option<EntryId>,
    /// The tool calls without a result.
    pub(super) calls: Calls,
    /// What tools ask.
    pub(super) questions: Questions,
    /// The sessions of the last `/sessions`, by number.
    pub(super) listed: Vec<SessionId>,
    /// True if Ctrl-C was pressed since the last line.
    interrupted: bool,
    /// True if a turn did not end with an answer, or a command was refused.
    pub(super) has_failed: bool,
    out: Vec<Step>,
    /// True if the last line on the screen has text and no line break.
    line_open: bool,
}

impl Dialogue {
    /// Creates a dialogue that opens this session, or creates one with the first message. `prefix` begins the ids of
    /// this process's commands: 16 to 40 characters of an id.
    pub(super) fn new(screen: Screen, watched: bool, prefix: String, session: Option<SessionId>) -> Self {
        let software = Software { name: "reseed-chat".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let identity = Identity { client_id: prefix.clone(), software: Some(software) };
        let mut dialogue = Self {
            screen,
            watched,
            // The token comes from the command line, so it cannot be renewed.
            machine: Machine::new(identity, fastrand::Rng::new()).with_command_prefix(&prefix).with_fixed_credentials(),
            prefix,
            asked: BTreeMap::new(),
            session: None,
            connected: false,
            attempts: 0,
            reached_once: false,
            noticed: false,
            refusals: 0,
            opened_once: false,
            opens_later: session.is_none(),
            caught_up_at: 0,
            turn: None,
            jobs: BTreeSet::new(),
            leaving: None,
            held: None,
            ended_job: None,
            previewed: None,
            drawn: Vec::new(),
            items: BTreeMap::new(),
            last_entry: None,
            calls: Calls::default(),
            questions: Questions::default(),
            listed: Vec::new(),
            interrupted: false,
            has_failed: false,
            out: Vec::new(),
            line_open: false,
        };
        if session.is_some() {
            dialogue.go_to(session);
        }
        dialogue
    }

    /// Returns true while connected.
    pub(super) fn is_connected(&self) -> bool {
        self.connected
    }

    /// Returns true if nothing is pending: no command, no turn, no compaction, no missed event.
    pub(super) fn is_idle(&self) -> bool {
        let snapshot = self.snapshot();
        let caught_up = snapshot.is_none_or(|snapshot| snapshot.seq >= self.caught_up_at && snapshot.queue.is_empty());
        let opened = self.session.is_none() || snapshot.is_some();
        opened && self.machine.unanswered() == 0 && self.turn.is_none() && self.jobs.is_empty() && caught_up
    }

    /// Returns the state of the session that is shown.
    pub(super) fn snapshot(&self) -> Option<&Snapshot> {
        self.machine.snapshot(self.session?)
    }

    /// Handles an update of the client.
    pub(super) fn on_update(&mut self, update: Update) -> Vec<Step> {
        match update {
            Update::Connected(welcome) => {
                (self.connected, self.attempts) = (true, 0);
                let first = !std::mem::replace(&mut self.noticed, true);
                if let Some(notice) = welcome.server.notice.as_deref().filter(|_| first) {
                    self.line(&self.screen.note(notice));
                }
                if !first && self.session.is_none() {
                    self.progress("connected again");
                }
            }
            Update::Disconnected { lost, reached, .. } => self.on_lost(&lost, reached),
            Update::Stopped(stop) => self.on_stopped(&stop),
            Update::Opened { session, opened } if self.session == Some(session) => {
                self.refusals = 0;
                self.on_opened(&opened);
            }
            Update::Retrying { session, error, .. } if self.session == Some(session) => {
                self.on_retrying(error.as_ref())
            }
            Update::Event { session, event } if self.session == Some(session) => match event {
                SessionEvent::Durable(_, Event::TurnFinished(end)) => self.on_turn_finished(&end),
                SessionEvent::Durable(_, event) => self.on_event(&event),
                SessionEvent::Ephemeral(event) => self.on_ephemeral(&event),
            },
            Update::Reply { id, result } => {
                let asked = self.asked.remove(&id).unwrap_or(Asked::Other);
                match result {
                    Ok(reply) => self.on_reply(asked, &reply),
                    Err(Unanswered::Refused(error)) => {
                        self.has_failed = true;
                        if asked == Asked::Answer {
                            self.on_answer_refused();
                        }
                        self.line(&self.screen.fault(&error));
                    }
                    // The end of the session or of the client was already shown.
                    Err(Unanswered::SessionClosed | Unanswered::Stopped(_)) => {}
                    Err(why) => {
                        self.has_failed = true;
                        self.line(&self.screen.warning(&why.to_string()));
                    }
                }
            }
            Update::Ended { session, why } if self.session == Some(session) => self.on_ended(&why),
            Update::Opened { .. }
            | Update::Retrying { .. }
            | Update::Event { .. }
            | Update::Ended { .. }
            | Update::Listed(_) => {}
        }
        self.done()
    }

    fn on_lost(&mut self, lost: &Lost, reached: bool) {
        self.connected = false;
        self.attempts += 1;
        self.reached_once |= reached;
        let is_there = matches!(lost, Lost::Broken(why) if why.contains(" answered "));
        if !self.reached_once && !is_there && matches!(lost, Lost::Broken(_)) {
            let cure = "start the server with `reseed serve`, or name another one: `reseed chat URL`";
            self.out.push(Step::Fail(format!("{lost}; {cure}")));
        } else if !self.reached_once || self.attempts > ATTEMPTS_MAX {
            self.out.push(Step::Fail(lost.to_string()));
        } else if self.attempts == 1 {
            let how = if self.watched { " (Ctrl-C leaves)" } else { "" };
            self.line(&self.screen.warning(&format!("{lost}; reconnecting{how}")));
        }
    }

    /// Handles a session that cannot be opened for now. The client tries again; the chat ends if it has shown nothing
    /// yet and would seem to hang.
    fn on_retrying(&mut self, error: Option<&ErrorBody>) {
        self.refusals += 1;
        let Some(error) = error else { return };
        if !self.opened_once && self.refusals > REFUSALS_MAX {
            self.out.push(Step::Fail(format!("{} ({})", error.message, error.code)));
        } else if self.refusals == 1 {
            self.line(&self.screen.warning(&format!("{} ({}); trying again", error.message, error.code)));
        }
    }

    fn on_stopped(&mut self, stop: &Stop) {
        self.out.push(match stop {
            Stop::Closed => Step::Quit,
            Stop::Credentials(why) => Step::Fail(format!("{why}; name a token of the server's with --token")),
            Stop::Refused(ErrorBody { message, code, .. }) => Step::Fail(format!("{message} ({code})")),
            Stop::Lost(lost) => Step::Fail(lost.to_string()),
        });
    }

    fn on_ended(&mut self, why: &SessionEnd) {
        if !self.opened_once {
            self.out.push(Step::Fail(match why {
                SessionEnd::Refused(ErrorBody { message, code, .. }) => format!("{message} ({code})"),
                why => why.to_string(),
            }));
            return;
        }
        self.has_failed = true;
        self.line(&match why {
            SessionEnd::Refused(error) => self.screen.fault(error),
            why => self.screen.warning(&why.to_string()),
        });
        self.leave();
        self.line(&self.screen.note("no session is open; /new makes one, /sessions lists them"));
    }

    fn on_reply(&mut self, asked: Asked, reply: &Reply) {
        match reply {
            // An answer given before speaks of a turn that the events have told of already.
            Reply::Accepted(accepted) if accepted.duplicate != Some(true) => {
                self.turn = accepted.turn_id.clone().or(self.turn.take());
                self.caught_up_at = self.caught_up_at.max(accepted.as_of_seq + 1);
                if accepted.queued {
                    let when = if asked == Asked::Steer {
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
                    Asked::Rename => self.line(&self.screen.note("renamed")),
                    Asked::Label => self.line(&self.screen.note("labelled")),
                    Asked::Tools => self.line(&self.screen.note("the tools are switched; /tools lists them")),
                    Asked::Withdraw => self.line(&self.screen.note("it is asked about again")),
                    Asked::Queue => self.line(&self.screen.note("the queue is changed")),
                    // The event behind it says what came back.
                    Asked::Undo => {
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
                if let Asked::Back(count) = asked {
                    self.on_path(count, entries);
                }
            }
            Reply::CompactionPreview(preview) => self.on_preview(preview),
            Reply::Navigated(navigated) => self.on_navigated(navigated),
            Reply::Forked(forked) => self.go_to(Some(forked.session_id.clone())),
            Reply::Tools(tools) => self.line(&self.screen.tools(tools)),
            Reply::ContextInfo(info) => self.line(&self.screen.breakdown(info)),
            Reply::Sessions(sessions) => {
                self.listed = sessions.items.iter().map(|item| item.session_id.clone()).collect();
                let open = self.session.and_then(|session| self.machine.session_id(session)).map(SessionId::as_str);
                self.line(&self.screen.sessions(&sessions.items, open, sessions.next_cursor.is_some()));
            }
            _ => {}
        }
    }

    /// Handles Ctrl-C: cancels what is running. A second Ctrl-C, or one while disconnected, ends the chat.
    pub(super) fn on_interrupt(&mut self) -> Vec<Step> {
        if std::mem::replace(&mut self.interrupted, true) || !self.connected {
            return vec![Step::Quit];
        }
        if self.turn.is_some() || !self.jobs.is_empty() || self.leaving.is_some() {
            self.cancel();
        } else {
            self.line(&self.screen.note("Ctrl-C again leaves"));
        }
        self.done()
    }

    /// Handles a typed line.
    pub(super) fn on_line(&mut self, line: &str) -> Vec<Step> {
        self.interrupted = false;
        let line = lines::parse(line);
        // What is for a session that there will be is sent behind the command that makes it.
        let is_for_new = matches!(line, Line::Say(_) | Line::Rename(_) | Line::Strategy(_));
        if is_for_new && self.opens_later {
            self.go_to(None);
        }
        match line {
            Line::Nothing => {}
            Line::Help => self.line(&self.screen.help()),
            Line::Quit => self.out.push(Step::Quit),
            Line::Wrong(what) => {
                self.has_failed = true;
                self.line(&self.screen.warning(&what));
            }
            Line::Sessions => {
                let list = ListSessions { cursor: None, limit: None, search: None, watch: None };
                self.ask(Asked::Other, Command::ListSessions(list));
            }
            Line::New => self.begin_later(),
            Line::Open(which) => match self.session(&which) {
                Some(id) => self.go_to(Some(id)),
                None => self.line(&self.screen.warning("that is no session's id, and no number of /sessions")),
            },
            _ if self.session.is_none() && self.opens_later => {
                self.line(&self.screen.warning("nothing was said yet: what you say first begins a session"));
            }
            _ if self.session.is_none() => {
                self.line(&self.screen.warning("no session is open; /new makes one, /sessions lists them"));
            }
            Line::Say(text) => {
                self.ask(Asked::Other, Command::UserInput(UserInput::plain(Input::Text(text))));
            }
            Line::Steer(text) => self.steer(text),
            Line::Queue(line) => self.on_queue_line(line),
            Line::Tree => self.ask_tree(),
            Line::Go(go) => self.go(go),
            Line::Back(count) => self.back(count),
            Line::Fork(which) => self.fork(which.as_deref()),
            Line::Label { which, label } => self.label(&which, label),
            Line::Answer { decision, why } => self.answer(decision, why),
            Line::Tools(line) => self.on_tools_line(line),
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
            Line::Retry => self.ask(Asked::Other, Command::RetryTurn(RetryTurn { turn_id: None })),
            Line::Rename(name) => {
                self.ask(Asked::Rename, Command::RenameSession(RenameSession { name }));
            }
        }
        self.done()
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

    /// Returns true if this client sent the command for this purpose and it has no reply yet.
    pub(super) fn awaits(&self, id: Option<&CommandId>, asked: Asked) -> bool {
        id.is_some_and(|id| self.asked.get(id) == Some(&asked))
    }

    /// Sends a command. If it needs a session, it is about the one that is shown.
    pub(super) fn ask(&mut self, asked: Asked, command: Command) {
        let to = match (command.spec().address, self.session) {
            (Address::Required, Some(session)) => To::Session(session),
            _ => To::Server,
        };
        match self.machine.send(to, &command) {
            Ok(id) => {
                self.asked.insert(id, asked);
            }
            Err(full) => self.line(&self.screen.warning(&format!("{full}; this one was not sent"))),
        }
    }

    /// Shows whole lines that are no part of an answer.
    pub(super) fn line(&mut self, text: &str) {
        self.end_line();
        self.out.push(Step::Note(format!("{text}\n")));
    }

    /// Shows a note on progress, on a terminal only.
    pub(super) fn progress(&mut self, text: &str) {
        if self.watched {
            self.line(&self.screen.note(text));
        }
    }

    /// Shows text without a line break.
    pub(super) fn piece(&mut self, text: String) {
        if !text.is_empty() {
            self.line_open = !text.ends_with('\n');
            self.out.push(Step::Show(text));
        }
    }

    /// Ends the current line, if it has text.
    pub(super) fn end_line(&mut self) {
        if std::mem::replace(&mut self.line_open, false) {
            self.out.push(Step::Show("\n".to_owned()));
        }
    }

    pub(super) fn done(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.out)
    }
}

#[cfg(test)]
mod tests;
