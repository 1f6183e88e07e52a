//! Answers to approvals. They are the input of a response that goes on with the turn of the one before it.

use super::{
    create::{mark, running},
    input::Approved,
    items::{Calls, Item},
    listing::Back,
    request::Invalid,
    running::Running,
};
use crate::{
    exchange::{Exchange, Step},
    http::Failure,
};
use reseed_protocol::{
    CommandId, EntryId, Role,
    command::Command,
    tools::{Approval, ApprovalResponse, Decision},
};

/// Answers the approvals of a turn that waits, and follows it further. An entry without words stands for the input.
///
/// # Errors
/// The answer to a request that cannot be used.
pub(super) async fn approve(
    mut exchange: Exchange,
    approvals: Vec<Approved>,
    stored: serde_json::Value,
    id: Option<CommandId>,
) -> Result<Running, Failure> {
    let Some(turn) = exchange.snapshot().turn.as_ref().map(|turn| turn.turn_id.clone()) else {
        return Err(Failure::invalid("no call of this conversation waits for an approval").at("input"));
    };
    let approved: Vec<String> = approvals.iter().map(|approved| approved.id.clone()).collect();
    let answer = |approved: Approved| {
        let Approved { id, approve, reason } = approved;
        let approval_id = id.parse().map_err(|error| {
            let shown: String = id.chars().take(64).collect();
            Invalid::at("input", format!("`{shown}` is not the id of an approval: {error}"))
        })?;
        Ok(Command::ApprovalResponse(ApprovalResponse {
            approval_id,
            review: if approve { Decision::AllowOnce } else { Decision::RejectOnce },
            arguments_hash: None,
            custom_deny_message: reason,
        }))
    };
    let answers = approvals.into_iter().map(answer).collect::<Result<Vec<Command>, Invalid>>()?;
    let is_answered = |approval: &&Approval| approved.iter().any(|id| id == approval.approval_id.as_str());
    let waiting: Vec<Approval> =
        exchange.snapshot().approvals.iter().filter(|approval| !is_answered(approval)).cloned().collect();
    let entry = mark(&mut exchange, &stored, id).await?;
    exchange.follow_turn(turn, &entry.entry_id);
    for answer in &answers {
        exchange.request(answer).await?;
    }
    let calls = calls_before(&mut exchange, &entry.entry_id).await?;
    let mut running = running(exchange, &entry, stored, None);
    running.writer.goes_on(calls);
    for approval in waiting {
        running.writer.step(Step::Approval(Box::new(approval)));
    }
    Ok(running)
}

/// Returns the server's calls that are open before the answer to an approval.
///
/// # Errors
/// Why the session cannot be read.
pub(super) async fn calls_before(exchange: &mut Exchange, mark: &EntryId) -> Result<Calls, Failure> {
    let (mut back, mut entries) = (Back::before(Some(mark)), Vec::new());
    while let Some(entry) = back.next(exchange).await? {
        let is_answer = entry.message().is_some_and(|message| message.role == Role::Assistant);
        entries.push(entry);
        if is_answer {
            break;
        }
    }
    Ok(Item::calls_after(&exchange.snapshot().session_id, &entries))
}
