//! The dialogue: turns typed lines and the client's updates into text to show and commands to send.
//!
//! Pure: no socket, no terminal, no clock. The client, [`Machine`], keeps the connection, the position in the session
//! and the commands without a reply.

mod asking;

use super::screen::Screen;
use crate::cli::terminal::{clean, marked};
use reseed_client::{
    Identity, Lost, Opening, Session, SessionEnd, SessionEvent, Stop, Unanswered, Update, fold::Snapshot,
    machine::Machine,
};
use reseed_protocol::{
    ApprovalId, CommandId, Entry, EntryData, EntryId, ErrorBody, JobId, Role, SessionId, TurnId,
    command::{Command, Empty},
    compaction::{CancelCompaction, StartCompaction, UndoCompaction},
    content::Input,
    event::{EphemeralEvent, Event},
    reply::Reply,
    session::{Resumed, SessionOpened, Software},
    turn::{CancelTurn, RetryTurn, RunningPart, TurnFinished, TurnStatus, UserInput},
};
use std::collections::BTreeMap;

/// The maximum number of attempts to reconnect. Their waits add up to about five minutes on average, which is longer
/// than a server takes to restart.
const ATTEMPTS_MAX: u32 = 24;

/// The maximum number of refusals to open a session that was never open: a few seconds with the client's waits.
const REFUSALS_MAX: u32 = 4;

/// The number of entries shown when a session is opened.
const HISTORY_ENTRIES: u32 = 20;

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

/// What was shown of an answer that is being written.
#[derive(Debug, Default)]
struct Written {
    /// The part that was shown last, and how many bytes of it.
    part: usize,
    bytes: usize,
    /// The text that was shown, parts joined by newlines as `Message::text` joins them; without reasoning.
    text: String,
    /// True if any of it was shown.
    was_shown: bool,
}

/// The dialogue. See the head of this file.
#[derive(Debug)]
pub(super) struct Dialogue {
    screen: Screen,
    /// True on a terminal: reasoning and progress are shown there, but not written to a pipe.
    watched: bool,
    /// The client.
    pub(super) machine: Machine,
    /// The prefix of this process's command ids, by which it recognises its own commands.
    prefix: String,
    /// The names of the commands without a reply.
    sent: BTreeMap<CommandId, &'static str>,
    /// The session; `None` until something is said, so that no empty one is left behind.
    session: Option<Session>,
    connected: bool,
    /// Failed attempts to connect since the last connection, including its loss.
    attempts: u32,
    /// True once a server was reached. Before that, a failure ends the chat.
    reached_once: bool,
    /// Refusals in a row to open the session.
    refusals: u32,
    /// The sequence number up to which the session has to catch up before it counts as idle.
    caught_up_at: u64,
    turn: Option<TurnId>,
    /// The turn that this chat started last. Ctrl-C cancels no other.
    started: Option<TurnId>,
    /// The compaction that this chat requested.
    job: Option<JobId>,
    last_entry: Option<EntryId>,
    written: BTreeMap<EntryId, Written>,
    /// The tool's question that was shown last.
    asked: Option<ApprovalId>,
    /// The question that this chat answered last.
    answered: Option<ApprovalId>,
    /// True once the input has ended, so that nobody can answer a question.
    nobody: bool,
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
        let machine = Machine::new(identity, fastrand::Rng::new()).with_command_prefix(&prefix);
        let mut dialogue = Self {
            screen,
            watched,
            // The token comes from the command line, so it cannot be renewed.
            machine: machine.with_fixed_credentials(),
            prefix,
            sent: BTreeMap::new(),
            session: None,
            connected: false,
            attempts: 0,
            reached_once: false,
            refusals: 0,
            caught_up_at: 0,
            turn: None,
            started: None,
            job: None,
            last_entry: None,
            written: BTreeMap::new(),
            asked: None,
            answered: None,
            nobody: false,
            interrupted: false,
            has_failed: false,
            out: Vec::new(),
            line_open: false,
        };
        if session.is_some() {
            dialogue.open(session);
        }
        dialogue
    }

    /// Returns true while connected.
    pub(super) fn is_connected(&self) -> bool {
        self.connected
    }

    /// Returns true if nothing is pending: no command, no turn, no compaction that was asked for, no missed event.
    pub(super) fn is_idle(&self) -> bool {
        let snapshot = self.snapshot();
        let caught_up = snapshot.is_none_or(|snapshot| snapshot.seq >= self.caught_up_at && snapshot.queue.is_empty());
        let opened = self.session.is_none() || snapshot.is_some();
        opened && self.machine.unanswered() == 0 && self.turn.is_none() && self.job.is_none() && caught_up
    }

    /// Returns true if the next line may be read: the previous one was answered, or a tool asks for permission.
    pub(super) fn takes_line(&self) -> bool {
        self.connected && (self.is_idle() || self.asks().is_some())
    }

    fn snapshot(&self) -> Option<&Snapshot> {
        self.machine.snapshot(self.session?)
    }

    /// Opens the session; `None` creates one.
    fn open(&mut self, id: Option<SessionId>) -> Session {
        let opening = Opening { entries: Some(HISTORY_ENTRIES), ..Opening::default() };
        *self.session.insert(self.machine.open(id, opening))
    }

    /// Handles an update of the client, which has one session at most.
    pub(super) fn on_update(&mut self, update: Update) -> Vec<Step> {
        match update {
            Update::Connected(welcome) => {
                self.connected = true;
                if std::mem::take(&mut self.attempts) > 0 {
                    self.progress("connected again");
                } else if let Some(notice) = &welcome.server.notice {
                    self.line(&self.screen.note(notice));
                }
            }
            Update::Disconnected { lost, reached, .. } => self.on_lost(&lost, reached),
            Update::Stopped(stop) => match stop {
                Stop::Closed => self.out.push(Step::Quit),
                Stop::Credentials(why) => self.give_up(&format!("{why}; name a token of the server's with --token")),
                Stop::Refused(ErrorBody { message, code, .. }) => self.give_up(&format!("{message} ({code})")),
                Stop::Lost(lost) => self.give_up(&lost.to_string()),
            },
            Update::Opened { opened, .. } => self.on_opened(&opened),
            Update::Retrying { error: Some(error), .. } => self.on_retrying(&error),
            Update::Ended { why: SessionEnd::Refused(ErrorBody { message, code, .. }), .. } => {
                self.give_up(&format!("{message} ({code})"));
            }
            Update::Ended { why, .. } => self.give_up(&why.to_string()),
            Update::Event { event: SessionEvent::Durable(_, event), .. } => self.on_event(&event),
            Update::Event { event: SessionEvent::Ephemeral(event), .. } => self.on_ephemeral(&event),
            Update::Reply { id, result } => self.on_reply(&id, result),
            Update::Retrying { error: None, .. } | Update::Listed(_) => {}
        }
        self.done()
    }

    fn on_lost(&mut self, lost: &Lost, reached: bool) {
        self.connected = false;
        self.attempts += 1;
        let is_unready = matches!(lost, Lost::Unready(_));
        self.reached_once |= reached || is_unready;
        if !self.reached_once && matches!(lost, Lost::Broken(_)) {
            let cure = "start the server with `reseed serve`, or name another one: `reseed chat URL`";
            self.give_up(&format!("{lost}; {cure}"));
        } else if !self.reached_once || self.attempts > ATTEMPTS_MAX {
            self.give_up(&lost.to_string());
        } else if self.attempts == 1 {
            let then = if is_unready { "waiting until the server is ready" } else { "reconnecting" };
            let how = if self.watched { " (Ctrl-C leaves)" } else { "" };
            self.line(&self.screen.warning(&format!("{lost}; {then}{how}")));
        }
    }

    /// Handles a session that cannot be opened for now. The client tries again. The chat ends if it has shown nothing
    /// yet, because it would seem to hang.
    fn on_retrying(&mut self, ErrorBody { message, code, .. }: &ErrorBody) {
        self.refusals += 1;
        if self.snapshot().is_none() && self.refusals > REFUSALS_MAX {
            self.give_up(&format!("{message} ({code})"));
        } else if self.refusals == 1 {
            self.line(&self.screen.warning(&format!("{message} ({code}); trying again")));
        }
    }

    /// Handles an opened session: shows what is new in it.
    fn on_opened(&mut self, opened: &SessionOpened) {
        self.refusals = 0;
        self.caught_up_at = opened.as_of_seq;
        self.turn = opened.turn.as_ref().map(|turn| turn.turn_id.clone());
        if opened.resumed.is_none() {
            self.line(&self.screen.opened(opened));
        }
        // A job that a restart ended has no final event. It is only missing here.
        let running = opened.compaction.as_ref().map(|job| &job.job_id);
        self.job = self.job.take().filter(|job| running == Some(job));
        if opened.resumed != Some(Resumed::Replay) {
            let entries = opened.entries.as_deref().unwrap_or_default();
            let seen = entries.iter().position(|entry| Some(&entry.entry_id) == self.last_entry.as_ref());
            for entry in &entries[seen.map_or(0, |at| at + 1)..] {
                if opened.resumed.is_some() {
                    self.on_entry(entry, false);
                } else if let Some(text) = self.screen.entry(entry) {
                    self.line(&text);
                }
                self.last_entry = Some(entry.entry_id.clone());
            }
        }
        let snapshot = self.snapshot();
        let items = snapshot.into_iter().flat_map(|snapshot| &snapshot.items).map(|item| item.item_id().clone());
        for item in items.collect::<Vec<_>>() {
            self.on_item(&item);
        }
        self.show_question();
    }

    /// Handles a reply.
    fn on_reply(&mut self, id: &CommandId, result: Result<Reply, Unanswered>) {
        let name = self.sent.remove(id).unwrap_or_default();
        if result.is_err() && name == "approval_response" {
            // The question counts as unanswered again, if it is still pending.
            self.answered = None;
        }
        match result {
            // A duplicate reply names a turn that the events have already reported.
            Ok(Reply::Accepted(accepted)) if accepted.duplicate == Some(true) => {
                self.started = accepted.turn_id.or(self.started.take());
            }
            Ok(Reply::Accepted(accepted)) => {
                self.started = accepted.turn_id.clone().or(self.started.take());
                self.turn = accepted.turn_id.or(self.turn.take());
                self.caught_up_at = self.caught_up_at.max(accepted.as_of_seq + 1);
                if accepted.queued {
                    self.progress("queued: it is asked when the running turn has ended");
                }
            }
            Ok(Reply::Ok(done)) if name == "start_compaction" => {
                // A duplicate reply may name a job that has ended.
                let running = self.snapshot().and_then(|snapshot| snapshot.compaction.as_ref());
                let running = running.map(|job| job.job_id.clone());
                self.job = done.job_id.filter(|job| done.duplicate != Some(true) || running.as_ref() == Some(job));
            }
            // The event after it says what was restored.
            Ok(Reply::Ok(done)) if name == "undo_compaction" => {
                self.caught_up_at = self.caught_up_at.max(done.as_of_seq.map_or(0, |seq| seq + 1));
            }
            Ok(Reply::ContextInfo(info)) => self.line(&self.screen.breakdown(&info)),
            Ok(_) => {}
            Err(Unanswered::Refused(error)) => {
                self.has_failed = true;
                self.line(&self.screen.fault(&error));
            }
            // The end of the session or of the client was already shown.
            Err(Unanswered::SessionClosed | Unanswered::Stopped(_)) => {}
            Err(why) => self.fail(&why.to_string()),
        }
    }

    /// Handles a durable event.
    fn on_event(&mut self, event: &Event) {
        match event {
            Event::EntryAppended(appended) => {
                self.on_entry(&appended.entry, self.is_mine(appended.command_id.as_ref()));
                self.last_entry = Some(appended.entry.entry_id.clone());
            }
            Event::TurnStarted(started) => {
                self.turn = Some(started.turn_id.clone());
                if started.command_ids.iter().any(|id| self.is_mine(Some(id))) {
                    self.started.clone_from(&self.turn);
                }
            }
            Event::TurnFinished(end) => self.on_turn_finished(end),
            Event::ContextCompacted(compacted) => {
                self.end_job(&compacted.job_id);
                self.line(&self.screen.compacted(compacted));
            }
            Event::CompactionFailed(failed) => {
                self.end_job(&failed.job_id);
                let ErrorBody { message, code, .. } = &failed.error;
                self.line(&self.screen.warning(&format!("not compacted: {message} ({code})")));
            }
            Event::CompactionUndone(undone) => {
                self.line(&self.screen.note("the compaction was taken back"));
                self.line(&self.screen.usage(&undone.context_info));
            }
            Event::ApprovalRequest(_) => self.show_question(),
            Event::CallResolved(resolved) => self.on_decided(resolved),
            Event::SessionUpdated(updated) => {
                if let Some(leaf) = &updated.leaf_id {
                    self.last_entry.clone_from(leaf);
                    if !self.is_mine(updated.command_id.as_ref()) {
                        self.line(&self.screen.note("the session goes on from another place in its tree now"));
                    }
                }
            }
            Event::ToolCall(_)
            | Event::QueueItemAdded(_)
            | Event::QueueItemRemoved(_)
            | Event::QueueReordered(_)
            | Event::QueueReleased(_)
            | Event::QueueChanged(_)
            | Event::Unknown(_) => {}
        }
    }

    /// Shows an entry. Of an answer, shows only what was not shown while it was streamed.
    fn on_entry(&mut self, entry: &Entry, is_mine: bool) {
        let written = self.written.remove(&entry.entry_id).unwrap_or_default();
        match &entry.data {
            EntryData::Message(message) if message.role == Role::Assistant => {
                let text = message.text();
                let rest = text.strip_prefix(&written.text).unwrap_or_else(|| {
                    // The text that was shown differs from the entry's.
                    self.end_line();
                    &text
                });
                self.piece(clean(rest).into_owned());
                self.end_line();
                let screen = self.screen;
                for call in message.content.iter().filter_map(|part| screen.call(part)) {
                    self.line(&call);
                }
            }
            // A compaction is shown by its event, which says more.
            EntryData::Message(_) if !is_mine => {
                if let Some(text) = self.screen.entry(entry) {
                    self.line(&text);
                }
            }
            _ => {}
        }
    }

    fn on_turn_finished(&mut self, end: &TurnFinished) {
        if self.turn.as_ref() == Some(&end.turn_id) {
            self.turn = None;
        }
        self.has_failed |= end.status != TurnStatus::Completed;
        self.written.clear();
        self.line(&self.screen.turn_finished(end));
    }

    /// Handles an ephemeral event.
    fn on_ephemeral(&mut self, event: &EphemeralEvent) {
        match event {
            EphemeralEvent::RequestDelayed(delayed) => self.line(&self.screen.delayed(delayed)),
            EphemeralEvent::ItemDelta(delta) => self.on_item(&delta.item_id),
            EphemeralEvent::ItemAborted(aborted) => self.on_item(&aborted.item_id),
            EphemeralEvent::CompactionStarted(_) => self.progress("compacting the context"),
            EphemeralEvent::CompactionPrepared(prepared) => self.end_job(&prepared.job_id),
            EphemeralEvent::ContextWarning(warning) => self.line(&self.screen.warning(&warning.message)),
            EphemeralEvent::BudgetNotice(notice) => self.line(&self.screen.budget(notice)),
            // The others are for hosts and pages, or their content comes again with an entry.
            _ => {}
        }
    }

    fn end_job(&mut self, job_id: &JobId) {
        self.job.take_if(|job| job == job_id);
    }

    /// Shows the new text of an answer that is being streamed.
    fn on_item(&mut self, id: &EntryId) {
        let snapshot = self.session.and_then(|session| self.machine.snapshot(session));
        let Some(item) = snapshot.and_then(|snapshot| snapshot.item(id)) else { return };
        if let Some(reason) = item.aborted() {
            let void = format!("this answer broke off and is not stored ({reason})");
            if self.written.remove(id).is_some_and(|written| written.was_shown) {
                self.line(&self.screen.warning(&void));
            }
            return;
        }
        let written = self.written.entry(id.clone()).or_default();
        let mut pieces = Vec::new();
        for (at, part) in item.parts().iter().enumerate().skip(written.part) {
            if at > written.part {
                (written.part, written.bytes) = (at, 0);
            }
            let fresh = part.text().get(written.bytes..).unwrap_or_default();
            let thought = match part {
                RunningPart::Text { .. } => false,
                RunningPart::Reasoning { .. } if self.watched => true,
                _ => continue,
            };
            if fresh.is_empty() {
                continue;
            }
            let begins = written.bytes == 0;
            if !thought {
                if begins && !written.text.is_empty() {
                    written.text.push('\n');
                }
                written.text.push_str(fresh);
            }
            written.bytes += fresh.len();
            written.was_shown = true;
            pieces.push((begins, if thought { self.screen.note(fresh) } else { clean(fresh).into_owned() }));
        }
        for (begins, text) in pieces {
            if begins {
                self.end_line();
            }
            self.piece(text);
        }
    }

    /// Handles Ctrl-C: cancels the turn or the compaction that this chat has started. A second Ctrl-C, or one while
    /// disconnected, ends the chat; so does one during a turn that another client has started.
    pub(super) fn on_interrupt(&mut self) -> Vec<Step> {
        if std::mem::replace(&mut self.interrupted, true) || !self.connected {
            self.out.push(Step::Quit);
        } else if self.turn.is_some() && self.turn != self.started {
            self.line(&self.screen.note("the turn goes on: this chat did not start it"));
            self.out.push(Step::Quit);
        } else if let Some(turn_id) = self.turn.clone() {
            self.send(Command::CancelTurn(CancelTurn { turn_id: Some(turn_id) }));
        } else if let Some(job_id) = self.job.clone() {
            self.send(Command::CancelCompaction(CancelCompaction { job_id: Some(job_id) }));
        } else {
            self.line(&self.screen.note("Ctrl-C again leaves"));
        }
        self.done()
    }

    /// Handles a typed line; `question` was shown when the line was begun.
    pub(super) fn on_line(&mut self, line: &str, question: Option<&ApprovalId>) -> Vec<Step> {
        self.interrupted = false;
        let text = line.trim();
        match text.strip_prefix('/') {
            None if text.is_empty() => {}
            None => self.say(text),
            Some(said) if said.starts_with('/') => self.say(said),
            Some(command) => {
                let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
                match self.on_command(name, rest.trim(), question) {
                    true => {}
                    // This is a pasted block that begins with a path.
                    false if text.contains('\n') => self.say(text),
                    false => self.fail(&format!("there is no command /{name}; /help lists them")),
                }
            }
        }
        self.done()
    }

    /// Carries out a command. Returns false if there is no such command.
    fn on_command(&mut self, name: &str, rest: &str, question: Option<&ApprovalId>) -> bool {
        let command = match name {
            "help" => {
                self.line(&self.screen.help());
                return true;
            }
            "quit" | "exit" => {
                self.out.push(Step::Quit);
                return true;
            }
            "allow" | "y" | "reject" | "n" => {
                self.on_answer(name, rest, question);
                return true;
            }
            "context" => Command::GetContextInfo(Empty {}),
            "compact" => {
                let instructions = Some(rest.to_owned()).filter(|rest| !rest.is_empty());
                Command::StartCompaction(StartCompaction { instructions, ..StartCompaction::default() })
            }
            "undo" => Command::UndoCompaction(UndoCompaction::default()),
            "retry" => Command::RetryTurn(RetryTurn { turn_id: None }),
            _ => return false,
        };
        if self.session.is_some() {
            self.send(command);
        } else {
            self.line(&self.screen.warning("nothing was said yet: what you say first begins a session"));
        }
        true
    }

    fn say(&mut self, text: &str) {
        if self.session.is_none() {
            // The message is sent after the command that creates the session.
            self.open(None);
        }
        self.send(Command::UserInput(UserInput::plain(Input::Text(text.to_owned()))));
    }

    /// Sends a command to the session. Returns false if it was not sent.
    fn send(&mut self, command: Command) -> bool {
        let Some(session) = self.session else { return false };
        match self.machine.send(session, &command) {
            Ok(id) => drop(self.sent.insert(id, command.name())),
            Err(full) => {
                self.fail(&format!("{full}; this one was not sent"));
                return false;
            }
        }
        true
    }

    /// Returns true if this client sent the command.
    fn is_mine(&self, id: Option<&CommandId>) -> bool {
        id.is_some_and(|id| id.as_str().starts_with(&self.prefix))
    }

    /// Ends the chat with an error. Servers, and proxies before them, write parts of its text.
    fn give_up(&mut self, why: &str) {
        self.out.push(Step::Fail(marked(why).into_owned()));
    }

    /// Shows an error.
    fn fail(&mut self, why: &str) {
        self.has_failed = true;
        self.line(&self.screen.warning(why));
    }

    /// Shows whole lines that are not part of an answer.
    fn line(&mut self, text: &str) {
        self.end_line();
        self.out.push(Step::Note(format!("{text}\n")));
    }

    /// Shows a note on progress, on a terminal only.
    fn progress(&mut self, text: &str) {
        if self.watched {
            self.line(&self.screen.note(text));
        }
    }

    /// Shows a piece of an answer.
    fn piece(&mut self, text: String) {
        if !text.is_empty() {
            self.line_open = !text.ends_with('\n');
            self.out.push(Step::Show(text));
        }
    }

    /// Ends the current line, if it has text.
    fn end_line(&mut self) {
        if std::mem::take(&mut self.line_open) {
            self.out.push(Step::Show("\n".to_owned()));
        }
    }

    fn done(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.out)
    }
}

#[cfg(test)]
mod tests;
