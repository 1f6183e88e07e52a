//! Opens and leaves sessions, and creates one with the first message.

use super::dialogue::Dialogue;
use reseed_client::Opening;
use reseed_protocol::SessionId;

/// The number of entries shown when a session is opened.
const HISTORY_ENTRIES: u32 = 20;

impl Dialogue {
    pub(super) fn session(&self, which: &str) -> Option<SessionId> {
        let numbered = which.parse::<usize>().ok().and_then(|at| self.listed.get(at.checked_sub(1)?).cloned());
        numbered.or_else(|| which.parse().ok())
    }

    /// Leaves the session. The next message creates another one.
    pub(super) fn begin_later(&mut self) {
        self.leave();
        self.opens_later = true;
        self.line(&self.screen.note("what you say next begins a new session"));
    }

    /// Opens a session in place of the one that is shown; `None` creates one.
    pub(super) fn go_to(&mut self, session: Option<SessionId>) {
        self.leave();
        self.opens_later = false;
        let opening = Opening { entries: Some(HISTORY_ENTRIES), ..Opening::default() };
        self.session = Some(self.machine.open(session, opening));
    }

    /// Leaves the session, which continues on the server.
    pub(super) fn leave(&mut self) {
        if let Some(session) = self.session.take() {
            self.machine.close_session(session);
        }
        self.caught_up_at = 0;
        self.turn = None;
        self.drawn.clear();
        self.jobs.clear();
        self.leaving = None;
        self.previewed = None;
        self.items.clear();
        self.last_entry = None;
    }
}
