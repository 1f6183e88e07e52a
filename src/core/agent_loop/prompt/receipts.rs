//! Receipts: what each request shares with the one before it, and why not more.

use crate::{
    context::{
        causes::{Cause, Causes},
        prefix::{Outgoing, Place, SentRequest},
    },
    session::{Node, SessionState},
};
use reseed_protocol::{
    event::Event,
    receipt::{PrefixBreak, Receipt},
};
use std::sync::Arc;

/// What is known of the session's last request that was answered, and what happened since. It goes from loop to loop; after
/// a restart it is made from the newest answer on the path, so that unless the session moved a restart changes no receipt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Receipts {
    last: Option<SentRequest>,
    /// What happened since that was sent, or since the request at work was.
    causes: Causes,
    /// The request at work, and what happened before it.
    asked: Option<(SentRequest, Causes)>,
}

impl Receipts {
    /// Of a session that was read from the store.
    #[must_use]
    pub(crate) fn read(path: &[Arc<Node>]) -> Self {
        let last = path.iter().rev().find_map(|node| SentRequest::of_answer(node.entry.message()?));
        Self { last, causes: Causes::read(path), asked: None }
    }

    /// Takes an event of the log, before the session does.
    pub(in crate::agent_loop) fn note(&mut self, event: &Event, before: &SessionState) {
        self.causes.note(event, before);
    }

    /// Something happened that the log does not say.
    pub(in crate::agent_loop) fn because(&mut self, cause: Cause) {
        self.causes.add(cause);
    }

    /// The receipt of this request, were it sent once the one at work is answered: which of its turn it is, and what could
    /// not be had for it.
    pub(in crate::agent_loop) fn of(&self, outgoing: &Outgoing<'_>, request: u64, notes: Vec<String>) -> Receipt {
        let shared = self.last().map(|last| (outgoing.shares(last), last.model()));
        let (prefix_tokens, broke) = match shared {
            None => (0, None),
            Some((shared, model)) => {
                let broke = shared.broke.map(|(place, lost_tokens)| {
                    let (reason, detail) = self.causes.of(&place, model);
                    PrefixBreak { part: place.part(), reason, detail, lost_tokens }
                });
                (shared.tokens, broke)
            }
        };
        let (tokens, sent) = (outgoing.tokens(), outgoing.sent().parts());
        Receipt { request, tokens, prefix_tokens, broke, hooks: Vec::new(), notes, sent }
    }

    /// Whether a receipt would blame tools that nobody could offer yet: those of a session that was only looked up.
    pub(in crate::agent_loop) fn lacks_tools(&self, outgoing: &Outgoing<'_>) -> bool {
        let place = self.last().and_then(|last| outgoing.shares(last).broke).map(|(place, _)| place);
        place == Some(Place::Tools) && !outgoing.has_tools() && self.causes.is_restart()
    }

    fn last(&self) -> Option<&SentRequest> {
        self.asked.as_ref().map(|(asked, _)| asked).or(self.last.as_ref())
    }

    /// This request was sent.
    pub(in crate::agent_loop) fn sent(&mut self, sent: SentRequest) {
        self.asked = Some((sent, std::mem::take(&mut self.causes)));
    }

    /// The request at work was answered; its provider counted so many tokens of it, if it did.
    pub(in crate::agent_loop) fn answered(&mut self, input_tokens: Option<u64>) {
        let Some((mut sent, before)) = self.asked.take() else { return };
        if let Some(tokens) = input_tokens {
            sent.answered(tokens);
        }
        self.last = Some(sent);
        self.causes.follow(before.past());
    }

    /// The request at work came to nothing: what happened before it still explains the next.
    pub(in crate::agent_loop) fn failed(&mut self) {
        if let Some((_, before)) = self.asked.take() {
            self.causes.follow(before);
        }
    }
}
