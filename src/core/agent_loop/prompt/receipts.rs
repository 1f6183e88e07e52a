//! Receipts: the prefix that each request shares with the previous one, and why it is not longer.

use crate::agent_loop::{causes::Causes, tools::SentTools};
use crate::{
    context::prefix::{Divergence, PlannedRequest, SentRequest},
    session::Session,
};
use reseed_protocol::receipt::{PrefixBreak, Receipt, ResponseId};

/// The session's last answered request, and the one in flight. They are passed from loop to loop. After a restart the
/// last one is rebuilt from the newest answer on the path, so a restart changes no receipt unless the session moved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Receipts {
    last: Option<SentRequest>,
    /// The provider's id of the answer to the last one.
    response: Option<ResponseId>,
    /// The request in flight, and the causes before it.
    asked: Option<(SentRequest, Causes)>,
}

impl Receipts {
    /// Returns the receipts for a session that was read from the store.
    #[must_use]
    pub(super) fn read(session: &Session) -> Self {
        let path = session.tree.path();
        let read = path.iter().rev().find_map(|node| {
            let answer = node.entry.message()?;
            Some((
                SentRequest::of_answer(answer)?,
                answer.receipt.as_ref().and_then(|receipt| receipt.response.clone()),
            ))
        });
        let (last, response) = read.map_or((None, None), |(last, response)| (Some(last), response));
        Self { last, response, asked: None }
    }

    /// Returns the provider's id of the answer to the last answered request, with which the next one is compared.
    pub(super) fn response(&self) -> Option<&ResponseId> {
        self.response.as_ref()
    }

    /// Returns this request's receipt, as if it were sent once the request in flight is answered. `causes` are those
    /// since the last request was sent; `request` is its number in the turn; `notes` list what could not be applied to
    /// it.
    pub(super) fn of(
        &self,
        outgoing: &PlannedRequest<'_>,
        causes: &Causes,
        request: u64,
        notes: Vec<String>,
    ) -> Receipt {
        let shared = self.last().map(|last| (outgoing.shares(last), last.model()));
        let (prefix_tokens, broke) = match shared {
            None => (0, None),
            Some((shared, model)) => {
                let broke = shared.broke.map(|(place, lost_tokens)| {
                    let (reason, detail) = causes.of(&place, model);
                    PrefixBreak { part: place.part(), reason, detail, lost_tokens }
                });
                (shared.tokens, broke)
            }
        };
        let (tokens, sent) = (outgoing.tokens(), outgoing.sent().parts());
        Receipt { request, tokens, prefix_tokens, broke, notes, sent, ..Receipt::default() }
    }

    /// Returns true if the receipt would blame missing tools that no client could offer yet, because the session was
    /// only looked up.
    pub(super) fn lacks_tools(&self, outgoing: &PlannedRequest<'_>, causes: &Causes) -> bool {
        let place = self.last().and_then(|last| outgoing.shares(last).broke).map(|(place, _)| place);
        place == Some(Divergence::Tools) && !outgoing.has_tools() && causes.is_restart()
    }

    fn last(&self) -> Option<&SentRequest> {
        self.asked.as_ref().map(|(asked, _)| asked).or(self.last.as_ref())
    }

    /// Records that this request was sent, after these causes.
    pub(super) fn sent(&mut self, sent: SentRequest, causes: Causes) {
        self.asked = Some((sent, causes));
    }

    /// Records that the request in flight was answered, with the input tokens and the id that its provider reported, if
    /// any.
    pub(super) fn answered(&mut self, causes: &mut Causes, input_tokens: Option<u64>, response: Option<ResponseId>) {
        let Some((mut sent, before)) = self.asked.take() else { return };
        if let Some(tokens) = input_tokens {
            sent.answered(tokens);
        }
        (self.last, self.response) = (Some(sent), response);
        causes.follow(before.past());
    }

    /// Records that the request in flight failed. The causes before it still explain the next one.
    pub(super) fn failed(&mut self, causes: &mut Causes) {
        if let Some((_, before)) = self.asked.take() {
            causes.follow(before);
        }
    }
}

/// The parts of a sent request against which its answer is checked, and which are stored with the answer.
#[derive(Debug)]
pub(crate) struct Sent {
    /// The key of everything sent before the answer.
    pub(crate) key: String,
    pub(crate) receipt: Receipt,
    pub(crate) tools: SentTools,
}
