//! Pending replies to commands that are answered after later ones. Examples are a move that waits for a summary or a
//! hook, a tool result that a hook may change, and a preview.
//!
//! Invariant: a pending command is not executed a second time. A repeat waits with the first, and both are answered at
//! the same time.

use super::outbox::Outbox;
use crate::core::agent_loop::Origin;
use reseed_protocol::{CommandId, ErrorBody, ErrorCode, SessionId, reply::Reply};
use std::collections::VecDeque;

/// Maximum number of pending commands per session. One connection waits for at most half of
/// [`REPLIES_MAX`](super::outbox::REPLIES_MAX) replies. The rest is for commands left by earlier connections.
pub(super) const PENDING_MAX: usize = 64;

/// Maximum number of pending commands per connection, repeats included. A connection stops reading commands when half
/// of [`REPLIES_MAX`](super::outbox::REPLIES_MAX) are unanswered. The remainder is for its hook answers, which pending
/// commands wait for.
pub(super) const PENDING_OF_ONE_MAX: usize = 24;

/// Maximum number of pending commands that write whose fingerprints are remembered, so that a different command with
/// the same id is detected.
const SEEN_MAX: usize = 256;

/// A pending command.
#[derive(Debug)]
struct PendingCommand {
    /// The first sender, whom the reply names.
    origin: Origin,
    id: CommandId,
    fingerprint: u64,
    /// The connection that receives its reply.
    first: Outbox,
    /// The connections that receive the replies to its repeats.
    again: Vec<Outbox>,
}

/// A command with the id of a pending command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingMatch {
    /// No command with this id is pending.
    Nothing,
    /// A repeat, which is answered with the first.
    Repeat,
    /// A command with different content.
    Conflict,
}

/// The pending commands.
#[derive(Debug)]
pub(super) struct PendingReplies {
    session: SessionId,
    waiting: Vec<PendingCommand>,
    /// The last [`SEEN_MAX`] pending commands that write, with their fingerprints. They are kept in memory only. The
    /// store keeps no fingerprint of text that hooks changed, because a reader could use it to test guesses of that
    /// text.
    seen: VecDeque<(CommandId, u64)>,
}

impl PendingReplies {
    pub(super) fn new(session: SessionId) -> Self {
        Self { session, waiting: Vec::new(), seen: VecDeque::new() }
    }

    /// Returns the reason why no more commands may be pending, in total or for this connection.
    pub(super) fn is_full(&self, outgoing: &Outbox) -> Option<ErrorBody> {
        let of_one = |waiting: &PendingCommand| {
            let copies = std::iter::once(&waiting.first).chain(&waiting.again);
            copies.filter(|other| other.same_channel(outgoing)).count()
        };
        let of_this: usize = self.waiting.iter().map(of_one).sum();
        let message = if of_this >= PENDING_OF_ONE_MAX {
            format!(
                "{of_this} commands of this connection are waiting for hooks (the limit); wait for a reply, then send \
                 it again"
            )
        } else if self.waiting.len() >= PENDING_MAX {
            format!(
                "{PENDING_MAX} commands of this session are waiting for hooks (the limit); wait for a reply, then send it \
                 again"
            )
        } else {
            return None;
        };
        Some(ErrorBody::new(ErrorCode::Overloaded, message))
    }

    /// Returns true if the last pending command that writes with this id has different content.
    pub(super) fn was_another(&self, id: &CommandId, fingerprint: u64) -> bool {
        self.seen.iter().any(|(seen, said)| seen == id && *said != fingerprint)
    }

    /// Returns true if this command is pending.
    pub(super) fn waits(&self, id: &CommandId, fingerprint: u64) -> bool {
        self.waiting.iter().any(|waiting| waiting.id == *id && waiting.fingerprint == fingerprint)
    }

    /// Adds a repeat of a pending command.
    pub(super) fn join(&mut self, id: &CommandId, fingerprint: u64, outgoing: &Outbox) -> PendingMatch {
        match self.waiting.iter_mut().find(|waiting| waiting.id == *id) {
            None => PendingMatch::Nothing,
            Some(waiting) if waiting.fingerprint == fingerprint => {
                // A client whose connection is gone sends the command again elsewhere.
                waiting.again.retain(|outgoing| !outgoing.is_closed());
                waiting.again.push(outgoing.clone());
                PendingMatch::Repeat
            }
            Some(_) => PendingMatch::Conflict,
        }
    }

    /// Makes a command pending. A command that `writes` will have a mark with its id.
    pub(super) fn wait(&mut self, origin: Origin, id: CommandId, fingerprint: u64, writes: bool, outgoing: Outbox) {
        if writes {
            // A cancelled command that left no mark may have had this id.
            self.seen.retain(|(seen, _)| *seen != id);
            if self.seen.len() >= SEEN_MAX {
                self.seen.pop_front();
            }
            self.seen.push_back((id.clone(), fingerprint));
        }
        self.waiting.push(PendingCommand { origin, id, fingerprint, first: outgoing, again: Vec::new() });
    }

    /// Drops pending commands that are not in `ids`, because nothing will answer them.
    pub(super) fn keep(&mut self, ids: &[CommandId]) {
        self.waiting.retain(|waiting| ids.contains(&waiting.id));
    }

    /// Answers a pending command and its repeats. Returns true if there is one.
    pub(super) fn answer(&mut self, origin: Origin, id: &CommandId, reply: &Reply) -> bool {
        let Some(at) = self.waiting.iter().position(|waiting| waiting.origin == origin && waiting.id == *id) else {
            return false;
        };
        let PendingCommand { first, again, .. } = self.waiting.remove(at);
        // A connection stops reading commands before its channel has no room for replies. So this fails only if it is
        // gone.
        first.reply(self.session.clone(), id.clone(), reply.clone());
        let mut reply = reply.clone();
        mark_duplicate(&mut reply);
        for outgoing in again {
            outgoing.reply(self.session.clone(), id.clone(), reply.clone());
        }
        true
    }
}

/// Marks a reply as one to a repeated command.
pub(super) fn mark_duplicate(reply: &mut Reply) {
    if let Some(duplicate) = reply.duplicate_mut() {
        *duplicate = Some(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::outbox::Outgoing;
    use reseed_protocol::reply::Done;

    fn id(text: &str) -> CommandId {
        text.parse().unwrap()
    }

    /// Returns the ids of the replies that arrived, and whether each is marked as a duplicate.
    fn came(incoming: &mut tokio::sync::mpsc::Receiver<Outgoing>) -> Vec<(String, bool)> {
        let mut came = Vec::new();
        while let Ok(Outgoing::Reply(replied)) = incoming.try_recv() {
            let Reply::Ok(done) = &replied.reply else { panic!("{replied:?}") };
            came.push((replied.re.to_string(), done.duplicate == Some(true)));
        }
        came
    }

    #[test]
    fn whoever_sends_a_waiting_command_again_is_answered_with_the_first() {
        let (first, mut to_first) = Outbox::new(8);
        let (second, mut to_second) = Outbox::new(8);
        let mut pending = PendingReplies::new("session".parse().unwrap());
        pending.wait(Origin(1), id("one"), 1, true, first.clone());
        pending.wait(Origin(1), id("two"), 2, true, first.clone());
        assert_eq!(pending.join(&id("one"), 1, &first), PendingMatch::Repeat);
        assert_eq!(pending.join(&id("one"), 1, &second), PendingMatch::Repeat);
        assert_eq!(pending.join(&id("one"), 7, &second), PendingMatch::Conflict);
        assert_eq!(pending.join(&id("three"), 1, &second), PendingMatch::Nothing);
        let ok = Reply::Ok(Done::default());
        assert!(!pending.answer(Origin(2), &id("one"), &ok), "somebody else's command of that id");
        assert!(pending.answer(Origin(1), &id("one"), &ok));
        assert_eq!(came(&mut to_first), [("one".to_owned(), false), ("one".to_owned(), true)]);
        assert_eq!(came(&mut to_second), [("one".to_owned(), true)]);
        assert!(!pending.answer(Origin(1), &id("one"), &ok), "it is answered once");
        assert!(pending.answer(Origin(1), &id("two"), &ok));
        assert_eq!(came(&mut to_first), [("two".to_owned(), false)]);
    }

    #[test]
    fn an_id_stands_for_the_last_command_that_was_pending_under_it() {
        let (outgoing, _incoming) = Outbox::new(8);
        let mut pending = PendingReplies::new("session".parse().unwrap());
        assert!(!pending.was_another(&id("one"), 1));
        for fingerprint in [1, 2] {
            pending.wait(Origin(1), id("one"), fingerprint, true, outgoing.clone());
            pending.keep(&[]);
        }
        pending.wait(Origin(1), id("one"), 3, false, outgoing.clone());
        assert!(pending.was_another(&id("one"), 1), "the first was cancelled");
        assert!(!pending.was_another(&id("one"), 2));
    }

    #[test]
    fn what_waits_is_bounded_and_what_nothing_answers_is_forgotten() {
        let (outgoing, _incoming) = Outbox::new(1);
        let mut pending = PendingReplies::new("session".parse().unwrap());
        let mut others = Vec::new();
        for number in 0..PENDING_MAX {
            if number % PENDING_OF_ONE_MAX == 0 {
                others.push(Outbox::new(1));
            }
            let one = &others.last().unwrap().0;
            assert!(pending.is_full(one).is_none(), "{number}");
            pending.wait(Origin(1), id(&format!("command-{number}")), 0, true, one.clone());
        }
        let full = pending.is_full(&others[0].0).unwrap();
        assert!(full.message.contains("24 commands of this connection") && full.retriable, "{}", full.message);
        assert!(pending.is_full(&outgoing).unwrap().message.contains("64 commands of this session"));
        pending.keep(&[id("command-3")]);
        assert!(pending.is_full(&others[0].0).is_none());
        // A repeat is pending like the first.
        for _ in 1..PENDING_OF_ONE_MAX {
            pending.join(&id("command-3"), 0, &others[0].0);
        }
        assert!(pending.is_full(&others[0].0).is_some() && pending.is_full(&outgoing).is_none());
        pending.waiting[0].again.clear();
        for _ in 0..3 {
            let (gone, _) = Outbox::new(1);
            assert_eq!(pending.join(&id("command-3"), 0, &gone), PendingMatch::Repeat);
        }
        assert!(pending.waiting[0].again.len() <= 2, "who hung up is not kept");
        assert_eq!(pending.join(&id("command-4"), 0, &outgoing), PendingMatch::Nothing);
    }
}
