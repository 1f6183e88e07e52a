//! Which session is open: going to one, leaving it, and beginning a new one with what is said first.

use super::{
    dialogue::{Asked, Dialogue, Opening, Place},
    frames::Opened,
};
use reseed_protocol::{
    SessionId,
    command::{Command, Empty, OpenSession, Resume, ResumeItem},
};

/// Entries of the history that are shown when a session is opened.
const HISTORY_ENTRIES: u32 = 20;

impl Dialogue {
    /// What to open on a new connection: the session where this client was, the one that is wanted, or none before
    /// anything was said.
    pub(super) fn opening(&self) -> Option<Opening> {
        match &self.place {
            None if self.opens_later => None,
            None => Some(self.wanted.clone()),
            Some(place) => {
                let items = self.items.iter().flat_map(|(item_id, streamed)| {
                    streamed.seen().map(|(part, offset)| ResumeItem { item_id: item_id.clone(), part, offset })
                });
                let resume = Resume { epoch: place.epoch.clone(), seq: place.seq, items: Some(items.collect()) };
                Some(open(Some(place.session_id.clone()), Some(resume)))
            }
        }
    }

    pub(super) fn session(&self, which: &str) -> Option<SessionId> {
        let numbered = which.parse::<usize>().ok().and_then(|at| self.listed.get(at.checked_sub(1)?).cloned());
        numbered.or_else(|| which.parse().ok())
    }

    /// Leaves the session. What is said next begins another.
    pub(super) fn begin_later(&mut self) {
        if self.place.is_some() {
            self.ask(Asked::Close, Command::CloseSession(Empty {}));
        }
        self.leave();
        self.wanted = open(None, None);
        self.opens_later = true;
        self.line(&self.screen.note("what you say next begins a new session"));
    }

    /// True if a session was asked for and has not come yet.
    pub(super) fn is_opening(&self) -> bool {
        self.pending.iter().any(|pending| pending.asked == Asked::Open)
    }

    pub(super) fn go_to(&mut self, opening: Opening) {
        if self.place.is_some() {
            self.ask(Asked::Close, Command::CloseSession(Empty {}));
        }
        self.leave();
        self.opens_later = false;
        self.wanted = opening.clone();
        self.ask_to_open(opening);
    }

    /// Forgets the session; it lives on at the server.
    pub(super) fn leave(&mut self) {
        self.place = None;
        self.turn = None;
        self.queued = 0;
        self.queue.clear();
        self.drawn.clear();
        self.jobs.clear();
        self.leaving = None;
        self.previewed = None;
        self.items.clear();
        self.last_entry = None;
    }

    pub(super) fn resumes_here(&mut self, opened: &Opened) {
        self.opened_once = true;
        self.caught_up_at = opened.as_of_seq;
        let seq = match &self.place {
            Some(place) if opened.resumed.as_deref() == Some("replay") => place.seq,
            _ => opened.as_of_seq,
        };
        self.place = Some(Place { session_id: opened.session_id.clone(), epoch: opened.epoch.clone(), seq });
        self.wanted = open(Some(opened.session_id.clone()), None);
    }
}

/// The command that opens a session, or makes one.
pub(super) fn open(session: Option<SessionId>, resume: Option<Resume>) -> Opening {
    let open =
        OpenSession { role: None, resume, entries: Some(HISTORY_ENTRIES), deltas: None, tools: None, hooks: None };
    Opening { session, open }
}
