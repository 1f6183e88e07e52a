//! Commands whose replies come after those to later commands: a move that waits for a summary or a hook, a tool's answer
//! that a hook may change, a preview.
//!
//! Invariant: a command that waits here is not carried out a second time. Whoever sends it again waits with the first,
//! and each gets its one reply when the first does.

use super::{effects::mark_duplicate, handle::Outgoing};
use crate::core::agent_loop::Origin;
use reseed_protocol::{CommandId, reply::Reply};
use tokio::sync::mpsc;

/// Commands that may wait in one session. One connection waits for half of
/// [`REPLIES_MAX`](super::handle::REPLIES_MAX) replies at most; the rest is for what connections before it left behind.
pub(super) const LATE_MAX: usize = 64;

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
pub(super) struct Late(Vec<Waiting>);

impl Late {
    /// Whether no more may wait.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= LATE_MAX
    }

    /// Lets a command that is sent again wait with its first copy.
    pub(super) fn join(&mut self, id: &CommandId, fingerprint: u64, outgoing: &mpsc::Sender<Outgoing>) -> Met {
        match self.0.iter_mut().find(|waiting| waiting.id == *id) {
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
        self.0.push(Waiting { origin, id, fingerprint, first: outgoing, again: Vec::new() });
    }

    /// Forgets those that are not among these: nothing will answer them.
    pub(super) fn keep(&mut self, ids: &[CommandId]) {
        self.0.retain(|waiting| ids.contains(&waiting.id));
    }

    /// Answers a command that waits, and everyone who sent it again; whether there is one.
    pub(super) fn answer(&mut self, origin: Origin, id: &CommandId, reply: &Reply) -> bool {
        let Some(at) = self.0.iter().position(|waiting| waiting.origin == origin && waiting.id == *id) else {
            return false;
        };
        let Waiting { first, again, .. } = self.0.remove(at);
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
        for number in 0..LATE_MAX {
            assert!(!late.is_full(), "{number}");
            late.wait(Origin(1), id(&format!("command-{number}")), 0, outgoing.clone());
        }
        assert!(late.is_full());
        late.keep(&[id("command-3")]);
        assert!(!late.is_full());
        for _ in 0..3 {
            let (gone, _) = mpsc::channel(1);
            assert_eq!(late.join(&id("command-3"), 0, &gone), Met::Itself);
        }
        assert!(late.0[0].again.len() <= 2, "who hung up is not kept");
        assert_eq!(late.join(&id("command-4"), 0, &outgoing), Met::Nobody);
    }
}
