//! Approvals in v1: one is outstanding at a time, and an answer applies to the newest request that was sent.

use super::Translator;
use reseed_protocol::{
    ErrorBody,
    command::SessionCommand,
    tools::{Approval, ApprovalResponse, CallResolved, Decision, ToolOffer},
    v1::{self, ApprovalRequest, ItemContent, ResponseItem, Review},
};
use std::collections::VecDeque;

/// The open approvals of a connection's session.
#[derive(Debug, Default)]
pub(super) struct OpenApprovals {
    /// In the order of their requests. The first one is outstanding. Bounded by the calls of one answer.
    open: VecDeque<Approval>,
    /// The number of explanations sent, which gives their items ids.
    explained: u64,
}

impl Translator {
    /// Returns the frames for a new approval: its request, unless another one is outstanding.
    pub(super) fn approval_requested(&mut self, approval: Approval) -> Vec<String> {
        self.approvals.open.push_back(approval);
        if self.approvals.open.len() == 1 { self.outstanding() } else { Vec::new() }
    }

    /// Returns the frames after an approval is decided or its call ends: the next request, if there is one.
    pub(super) fn approval_resolved(&mut self, resolved: &CallResolved) -> Vec<String> {
        let Some(decided) = &resolved.approval_id else { return Vec::new() };
        let was_outstanding = self.approvals.open.front().is_some_and(|first| first.approval_id == *decided);
        self.approvals.open.retain(|approval| approval.approval_id != *decided);
        if was_outstanding { self.outstanding() } else { Vec::new() }
    }

    /// Forgets the approvals of a finished turn.
    pub(super) fn approvals_are_over(&mut self) {
        self.approvals.open.clear();
    }

    fn outstanding(&mut self) -> Vec<String> {
        let Some(approval) = self.approvals.open.front() else { return Vec::new() };
        let command = vec![approval.name.clone(), approval.display.clone()];
        let approval_id = approval.approval_id.to_string();
        let request = v1::Event::ApprovalRequest(ApprovalRequest { command, approval_id });
        vec![self.frame(&request)]
    }

    /// Returns the command that answers the outstanding approval; `None` if its call is to be explained first.
    ///
    /// # Errors
    /// `no_pending_approval`.
    pub(super) fn answer(&mut self, response: v1::ApprovalResponse) -> Result<Option<SessionCommand>, ErrorBody> {
        let Some(approval) = self.approvals.open.front() else { return Err(ErrorBody::no_pending_approval()) };
        let review = match response.review {
            Review::Yes => Decision::AllowOnce,
            Review::Always => Decision::AllowAlways,
            Review::NoContinue => Decision::RejectOnce,
            Review::NoExit => Decision::RejectAndStop,
            Review::Explain => return Ok(None),
        };
        Ok(Some(SessionCommand::ApprovalResponse(ApprovalResponse {
            approval_id: approval.approval_id.clone(),
            review,
            // The server's own copy of the call counts, not the patch that the client echoes.
            arguments_hash: Some(approval.arguments_hash.clone()),
            custom_deny_message: response.custom_deny_message,
        })))
    }

    /// Returns the name of the tool whose approval is outstanding.
    #[must_use]
    pub fn outstanding_tool(&self) -> Option<&str> {
        self.approvals.open.front().map(|approval| approval.name.as_str())
    }

    /// Returns the frames that explain the outstanding approval and request it again. `offer` is what the server knows
    /// of its tool.
    pub fn explained(&mut self, offer: Option<&ToolOffer>) -> Vec<String> {
        let Some(approval) = self.approvals.open.front() else { return Vec::new() };
        let text = explanation(approval, offer);
        self.approvals.explained += 1;
        let id = format!("{}_explained_{}", approval.approval_id, self.approvals.explained);
        let content = vec![ItemContent::OutputText { text }];
        let item = ResponseItem::Message { id, role: "assistant".to_owned(), content };
        let mut frames = vec![self.frame(&v1::Event::ResponseItem(item))];
        frames.extend(self.outstanding());
        frames
    }
}

/// Explains a call in words, from what is known about its tool.
fn explanation(approval: &Approval, offer: Option<&ToolOffer>) -> String {
    let mut lines = Vec::new();
    match offer.map(|offer| offer.description.trim()).filter(|text| !text.is_empty()) {
        Some(about) => lines.push(format!("The model wants to call the tool `{}`: {about}", approval.name)),
        None => lines.push(format!("The model wants to call the tool `{}`.", approval.name)),
    }
    lines.push(format!("The arguments are: {}", approval.display));
    lines.push(approval.reason.clone());
    if approval.proposed_arguments.is_some() {
        lines.push("A hook of this server has changed the arguments that the model wrote.".to_owned());
    }
    let hints = offer.and_then(|offer| offer.annotations).unwrap_or_default();
    let says = [
        (hints.destructive == Some(true), "it may destroy what it changes"),
        (hints.open_world == Some(true), "it reaches other systems"),
        (hints.idempotent == Some(true), "calling it twice changes nothing more"),
    ];
    let says: Vec<&str> = says.into_iter().filter(|(applies, _)| *applies).map(|(_, text)| text).collect();
    if !says.is_empty() {
        lines.push(format!("The tool says of itself: {}.", says.join("; ")));
    }
    lines.push("Nothing runs until you allow it.".to_owned());
    lines.join("\n\n")
}
