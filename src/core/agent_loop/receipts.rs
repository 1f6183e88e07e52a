//! Receipts: what each request shares with the one before it, and why not more.

use crate::core::{
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

/// What is known of the session's last request, and what happened since. It goes from loop to loop; after a restart it is
/// made from the newest answer on the path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Receipts {
    last: Option<SentRequest>,
    causes: Causes,
}

impl Receipts {
    /// Of a session that was read from the store.
    #[must_use]
    pub fn read(path: &[Arc<Node>]) -> Self {
        let last = path.iter().rev().find_map(|node| SentRequest::of_answer(node.entry.message()?));
        Self { last, causes: Causes::read(path) }
    }

    /// Takes an event of the log, before the session does.
    pub(super) fn note(&mut self, event: &Event, before: &SessionState) {
        self.causes.note(event, before);
    }

    /// Something happened that the log does not say.
    pub(super) fn because(&mut self, cause: Cause) {
        self.causes.add(cause);
    }

    /// The receipt of this request, were it sent now: which of its turn it is, and what could not be had for it.
    pub(super) fn of(&self, outgoing: &Outgoing<'_>, request: u64, notes: Vec<String>) -> Receipt {
        let shared = self.last.as_ref().map(|last| (outgoing.shares(last), last.model()));
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
    pub(super) fn lacks_tools(&self, outgoing: &Outgoing<'_>) -> bool {
        let place = self.last.as_ref().and_then(|last| outgoing.shares(last).broke).map(|(place, _)| place);
        place == Some(Place::Tools) && !outgoing.has_tools() && self.causes.is_restart()
    }

    /// This request was sent.
    pub(super) fn sent(&mut self, sent: SentRequest) {
        self.last = Some(sent);
        self.causes.sent();
    }

    /// The provider counted so many tokens of the last request.
    pub(super) fn answered(&mut self, input_tokens: u64) {
        if let Some(last) = &mut self.last {
            last.answered(input_tokens);
        }
    }
}
