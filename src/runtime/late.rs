//! Commands whose replies come after those to later commands: a move that waits for a summary or a hook, a tool's
//! answer that a hook may change, a preview.
//!
//! Invariant: a command that waits here is not carried out a second time. Whoever sends it again waits with the first,
//! and each gets its one reply when the first does.

use super::{effects::mark_duplicate, handle::Outgoing};
use crate::core::agent_loop::Origin;
use reseed_protocol::{CommandId, ErrorBody, ErrorCode, reply::Reply};
use std::collections::VecDeque;
use tokio::sync::mpsc;

/// Commands that may wait in one session. One connection waits for half of
/// [`REPLIES_MAX`](super::handle::REPLIES_MAX) replies at most; the rest is for what connections before it left behind.
pub(super) const LATE_MAX: usize = 64;

/// Commands of one connection that may wait, further copies included. A connection reads no more commands beyond half
/// of [`REPLIES_MAX`](super::handle::REPLIES_MAX) unanswered ones: what is left of them is for the answers of its
/// hooks, which the others wait for.
pub(super) const LATE_OF_ONE_MAX: usize = 24;

/// Commands that waited and are remembered with what they said, so that another one under the same id is told apart.
const SEEN_MAX: usize = 256;

/// A command that waits.
#[derive(Debug)]
struct Waiting {
    /// Who sent it first: the reply names it.
    origin: Origin,
    id: CommandId,
    fingerprint: u64,
    /// Where its reply goes.
    first: mpsc::Sender<Outgoing>,
    /// Where the replies to its further copies go.
    again: Vec<mpsc::Sender<Outgoing>>,
}

/// What a command meets that is sent while another one of its id waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Met {
    /// None waits under this id.
    Nobody,
    /// The same one: it is answered with the first.
    Itself,
    /// One of other content.
    Another,
}

/// The commands that wait.
#[derive(Debug, Default)]
pub(super) struct Late {
    waiting: Vec<Waiting>,
    /// The last [`SEEN_MAX`] that waited, with their fingerprints. In memory only: the store keeps no fingerprint of
    /// what hooks have changed, as anyone who reads it could try out what was said.
    seen: VecDeque<(CommandId, u64)>,
}

impl Late {
    /// Why no more may wait, or no more of this connection.
    pub(super) fn is_full(&self, outgoing: &mpsc::Sender<Outgoing>) -> Option<ErrorBody> {
        let of_one = |waiting: &Waiting| {
            let copies = std::iter::once(&waiting.first).chain(&waiting.again);
            copies.filter(|other| other.same_channel(outgoing)).count()
        };
        let of_this: usize = self.waiting.iter().map(of_one).sum();
        let message = if of_this >= LATE_OF_ONE_MAX {
            format!(
                "{of_this} commands of this connection wait for hooks, as many as may; wait for a reply, then send it again"
            )
        } else if self.waiting.len() >= LATE_MAX {
            format!(
                "{LATE_MAX} commands of this session wait for hooks, as many as may; wait for a reply, then send it again"
            )
        } else {
            return None;
        };
        Some(ErrorBody::new(ErrorCode::Overloaded, message))
    }

    /// Whether a command under this id waited that said something else.
    pub(super) fn was_another(&self, id: &CommandId, fingerprint: u64) -> bool {
        self.seen.iter().any(|(seen, said)| seen == id && *said != fingerprint)
    }

    /// Whether this command waits.
    pub(super) fn waits(&self, id: &CommandId, fingerprint: u64) -> bool {
        self.waiting.iter().any(|waiting| waiting.id == *id && waiting.fingerprint == fingerprint)
    }

    /// Lets a command that is sent again wait with its first copy.
    pub(super) fn join(&mut self, id: &CommandId, fingerprint: u64, outgoing: &mpsc::Sender<Outgoing>) -> Met {
        match self.waiting.iter_mut().find(|waiting| waiting.id == *id) {
            None => Met::Nobody,
            Some(waiting) if waiting.fingerprint == fingerprint => {
                // Whoever hung up sends it again elsewhere.
                waiting.again.retain(|outgoing| !outgoing.is_closed());
                waiting.again.push(outgoing.clone());
                Met::Itself
            }
            Some(_) => Met::Another,
        }
    }

    /// A command begins to wait.
    pub(super) fn wait(&mut self, origin: Origin, id: CommandId, fingerprint: u64, outgoing: mpsc::Sender<Outgoing>) {
        if self.seen.len() >= SEEN_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back((id.clone(), fingerprint));
        self.waiting.push(Waiting { origin, id, fingerprint, first: outgoing, again: Vec::new() });
    }

    /// Forgets those that are not among these: nothing will answer them.
    pub(super) fn keep(&mut self, ids: &[CommandId]) {
        self.waiting.retain(|waiting| ids.contains(&waiting.id));
    }

    /// Answers a command that waits, and everyone who sent it again; whether there is one.
    pub(super) fn answer(&mut self, origin: Origin, id: &CommandId, reply: &Reply) -> bool {
        let Some(at) = self.waiting.iter().position(|waiting| waiting.origin == origin && waiting.id == *id) else {
            return false;
        };
        let Waiting { first, again, .. } = self.waiting.remove(at);
        // A connection reads no more commands than its channel holds replies, so this fails only when it is gone.
        let _ = first.try_send(Outgoing::Reply(id.clone(), Box::new(reply.clone())));
        let mut reply = reply.clone();
        mark_duplicate(&mut reply);
        for outgoing in again {
            let _ = outgoing.try_send(Outgoing::Reply(id.clone(), Box::new(reply.clone())));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::reply::Done;

    fn id(text: &str) -> CommandId {
        text.parse().unwrap()
    }

    /// The ids of the replies that came, and whether each is marked as a duplicate's.
    fn came(incoming: &mut mpsc::Receiver<Outgoing>) -> Vec<(String, bool)> {
        let mut came = Vec::new();
        while let Ok(Outgoing::Reply(id, reply)) = incoming.try_recv() {
            let Reply::Ok(done) = *reply else { panic!("{reply:?}") };
            came.push((id.to_string(), done.duplicate == Some(true)));
        }
        came
    }

    #[test]
    fn whoever_sends_a_waiting_command_again_is_answered_with_the_first() {
        let (first, mut to_first) = mpsc::channel(8);
        let (second, mut to_second) = mpsc::channel(8);
        let mut late = Late::default();
        late.wait(Origin(1), id("one"), 1, first.clone());
        late.wait(Origin(1), id("two"), 2, first.clone());
        assert_eq!(late.join(&id("one"), 1, &first), Met::Itself);
        assert_eq!(late.join(&id("one"), 1, &second), Met::Itself);
        assert_eq!(late.join(&id("one"), 7, &second), Met::Another);
        assert_eq!(late.join(&id("three"), 1, &second), Met::Nobody);
        let ok = Reply::Ok(Done::default());
        assert!(!late.answer(Origin(2), &id("one"), &ok), "somebody else's command of that id");
        assert!(late.answer(Origin(1), &id("one"), &ok));
        assert_eq!(came(&mut to_first), [("one".to_owned(), false), ("one".to_owned(), true)]);
        assert_eq!(came(&mut to_second), [("one".to_owned(), true)]);
        assert!(!late.answer(Origin(1), &id("one"), &ok), "it is answered once");
        assert!(late.answer(Origin(1), &id("two"), &ok));
        assert_eq!(came(&mut to_first), [("two".to_owned(), false)]);
    }

    #[test]
    fn what_waits_is_bounded_and_what_nothing_answers_is_forgotten() {
        let (outgoing, _incoming) = mpsc::channel(1);
        let mut late = Late::default();
        let mut others = Vec::new();
        for number in 0..LATE_MAX {
            if number % LATE_OF_ONE_MAX == 0 {
                others.push(mpsc::channel(1));
            }
            let one = &others.last().unwrap().0;
            assert!(late.is_full(one).is_none(), "{number}");
            late.wait(Origin(1), id(&format!("command-{number}")), 0, one.clone());
        }
        let full = late.is_full(&others[0].0).unwrap();
        assert!(full.message.contains("24 commands of this connection") && full.retriable, "{}", full.message);
        assert!(late.is_full(&outgoing).unwrap().message.contains("64 commands of this session"));
        late.keep(&[id("command-3")]);
        assert!(late.is_full(&others[0].0).is_none());
        // A copy waits for a reply like the first.
        for _ in 1..LATE_OF_ONE_MAX {
            late.join(&id("command-3"), 0, &others[0].0);
        }
        assert!(late.is_full(&others[0].0).is_some() && late.is_full(&outgoing).is_none());
        late.waiting[0].again.clear();
        for _ in 0..3 {
            let (gone, _) = mpsc::channel(1);
            assert_eq!(late.join(&id("command-3"), 0, &gone), Met::Itself);
        }
        assert!(late.waiting[0].again.len() <= 2, "who hung up is not kept");
        assert_eq!(late.join(&id("command-4"), 0, &outgoing), Met::Nobody);
    }
}
