//! Opens, resumes and ends the sessions of a client.

use super::{Machine, Output, Phase};
use crate::{
    ending::{backoff, told_wait},
    subscription::{Phase as Subscribed, Subscription, Taken},
    update::{Session, SessionEnd, To, Update},
};
use reseed_protocol::{
    ErrorBody, ErrorCode, SessionId,
    command::{Command, Empty},
    frame::encode_command,
    reply::Reply,
    session::{SessionClosed, SessionOpened, SubscriptionEnd},
};
use std::time::{Duration, Instant};

/// The minimum wait before reopening a session that failed twice in a short time.
const FAILED_AGAIN: Duration = Duration::from_secs(3);

impl Machine {
    pub(super) fn open_replied(&mut self, now: Instant, key: Session, session: Option<&SessionId>, reply: Reply) {
        let known = self.sessions.get_mut(&key).expect("it was just found");
        match reply {
            Reply::SessionOpened(opened) if matches!(known.phase, Subscribed::Leaving(_)) => {
                self.send_now(Some(&opened.session_id), &Command::CloseSession(Empty {}));
                self.forget(key);
            }
            Reply::Error(_) if matches!(known.phase, Subscribed::Leaving(_)) => self.forget(key),
            Reply::SessionOpened(opened) if known.id.as_ref().is_some_and(|id| *id != opened.session_id) => {
                self.close_at_server(key, &opened.session_id);
                self.end(key, SessionEnd::Unreadable);
            }
            Reply::SessionOpened(opened) => self.opened(now, key, opened),
            Reply::Error(error) if error.code == ErrorCode::SessionDamaged && known.falls_back_to_reading() => {
                self.send_open(key);
            }
            Reply::Error(error) if error.retriable || known.is_closed_soon(&error) => {
                let wait = told_wait(&error);
                self.retry_session(now, key, Some(error), wait);
            }
            Reply::Error(error) => self.end(key, SessionEnd::Refused(error)),
            _ => {
                let is_left = matches!(known.phase, Subscribed::Leaving(_));
                if let Some(opened) = session.cloned().or_else(|| known.id.clone()) {
                    self.close_at_server(key, &opened);
                }
                if is_left { self.forget(key) } else { self.end(key, SessionEnd::Unreadable) }
            }
        }
    }

    /// Closes the session that the server may have opened with a reply that cannot be parsed.
    fn close_at_server(&mut self, key: Session, opened: &SessionId) {
        // If another handle has it open, it stays open.
        if self.find(opened).is_none_or(|other| other == key) {
            self.send_now(Some(opened), &Command::CloseSession(Empty {}));
        }
    }

    pub(super) fn opened(&mut self, now: Instant, key: Session, opened: Box<SessionOpened>) {
        let known = self.sessions.get_mut(&key).expect("its reply has come");
        known.opened(now, (*opened).clone());
        let other = self.by_id.insert(opened.session_id.clone(), key);
        // It was created, the reply was lost, and then it was opened by its id. Both handles mean the same session.
        if let Some(other) = other.filter(|other| *other != key) {
            self.end(other, SessionEnd::OpenAlready);
        }
        self.tell(Update::Opened { session: key, opened });
        self.flush();
    }

    pub(super) fn event(
        &mut self,
        now: Instant,
        session: Option<&SessionId>,
        take: impl FnOnce(&mut Subscription) -> Taken,
    ) {
        let Some(key) = session.and_then(|id| self.find(id)) else { return };
        let Some(known) = self.sessions.get_mut(&key) else { return };
        match take(known) {
            Taken::Applied(event) => self.tell(Update::Event { session: key, event }),
            Taken::Ignored => {}
            Taken::Gap => self.resync(now, key),
        }
    }

    /// Closes a gap by opening the session again on the same connection, with `resume`.
    pub(super) fn resync(&mut self, now: Instant, key: Session) {
        let Some(known) = self.sessions.get_mut(&key).filter(|known| known.is_open()) else { return };
        known.missed(now);
        known.phase = Subscribed::Waiting;
        let id = known.id.clone();
        self.send_now(id.as_ref(), &Command::CloseSession(Empty {}));
        self.send_open(key);
    }

    pub(super) fn session_closed(&mut self, now: Instant, session: Option<&SessionId>, closed: &SessionClosed) {
        let Some(key) = session.and_then(|id| self.find(id)) else { return };
        let Some(known) = self.sessions.get_mut(&key).filter(|known| known.is_open()) else { return };
        if closed.code == SubscriptionEnd::Deleted {
            return self.end(key, SessionEnd::Deleted);
        }
        known.forgive(now);
        // If it fails again at once, the events that a resume replays may be the cause. A snapshot skips stored events
        // that cannot be read.
        let fails_again = known.failures > 0;
        if fails_again || !closed.retriable {
            known.forget_place();
        }
        let wait = if fails_again { FAILED_AGAIN } else { Duration::ZERO };
        self.retry_session(now, key, closed.error.clone(), wait);
    }

    /// Opens a session again after at least this wait, and reports that.
    fn retry_session(&mut self, now: Instant, key: Session, error: Option<ErrorBody>, wait: Duration) {
        let Some(known) = self.sessions.get_mut(&key) else { return };
        let retry_after = wait.max(backoff(known.failures, &mut self.random));
        known.failures = known.failures.saturating_add(1);
        known.phase = Subscribed::Retrying(now + retry_after);
        self.tell(Update::Retrying { session: key, error, retry_after });
    }

    /// Ends a session that this client has deleted. Other connections get `session_closed`, and this one learns it from
    /// the reply.
    pub(super) fn deleted(&mut self, to: &To) {
        let key = match to {
            To::Session(key) => Some(*key),
            To::Id(id) => self.find(id),
            To::Server => None,
        };
        if let Some(key) = key {
            self.end(key, SessionEnd::Deleted);
        }
    }

    pub(super) fn end(&mut self, key: Session, why: SessionEnd) {
        let Some(known) = self.sessions.get_mut(&key).filter(|known| known.phase != Subscribed::Ended) else { return };
        known.phase = Subscribed::Ended;
        self.fail_session(key);
        self.tell(Update::Ended { session: key, why });
    }

    /// Requests a session on the current connection, if there is one.
    pub(super) fn send_open(&mut self, key: Session) {
        let Phase::Open(greeted) = &self.phase else { return };
        let bytes_max = greeted.bytes_max;
        let may_open = |known: &&Subscription| {
            matches!(known.phase, Subscribed::Waiting | Subscribed::Retrying(_) | Subscribed::Opening(_))
        };
        let Some(creates) = self.sessions.get(&key).filter(may_open).map(|known| known.creates.clone()) else { return };
        let id = creates.unwrap_or_else(|| self.new_id());
        let Some(known) = self.sessions.get_mut(&key) else { return };
        let frame = encode_command(&id, known.id.as_ref(), &Command::OpenSession(known.command()));
        // The server would close every connection because of its size.
        if frame.len() as u64 > bytes_max {
            return self.end(key, SessionEnd::TooLarge { bytes: frame.len(), bytes_max });
        }
        known.phase = Subscribed::Opening(id);
        self.out.push_back(Output::Send(frame));
    }

    /// Sends a command whose reply is ignored, if there is a connection.
    pub(super) fn send_now(&mut self, session: Option<&SessionId>, command: &Command) {
        if matches!(self.phase, Phase::Open(_)) {
            let id = self.new_id();
            self.out.push_back(Output::Send(encode_command(&id, session, command)));
        }
    }

    /// Removes a session, and fails the commands that wait for it.
    pub(super) fn forget(&mut self, key: Session) {
        self.fail_session(key);
        let Some(known) = self.sessions.remove(&key) else { return };
        if let Some(id) = known.id.filter(|id| self.by_id.get(id) == Some(&key)) {
            self.by_id.remove(&id);
        }
    }
}
