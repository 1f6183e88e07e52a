//! Approvals: which calls a person must allow, and what follows from the person's answer.
//!
//! The record is durable ([`Event::ApprovalRequest`]), so a turn that waits for an answer keeps waiting through
//! compactions, lost connections and restarts. The answer decides the call in the record, and no other.

use crate::agent_loop::{
    io::Caller, late::Callee, ledger::Ledger, prompt::Prompt, records::appended, records::done,
    records::session_updated, step::Step, subject::answer::Called, turn::Turn, turn::tools::result_entry,
};
use crate::approval::{Policy, call_hash, default_decision, visible};
use crate::tool::Terms;
use crate::{
    fingerprint::fingerprint_of,
    session::{EndedCall, Lookup},
};
use reseed_protocol::{
    ApprovalId, CallId, EntryId, ErrorBody, ErrorCode, TurnId,
    event::Event,
    tools::{
        Approval, ApprovalDecision, ApprovalOption, ApprovalResponse, CallOutcome, CallResolved, Decision, SetTools,
        StandingApproval, WithdrawApproval,
    },
    turn::TurnStatus,
};

/// Maximum standing approvals of a session. They are sent to every client that opens it.
const STANDING_MAX: usize = 256;

/// Maximum characters of the arguments that a standing approval shows.
const STANDING_CHARS_MAX: usize = 500;

/// Maximum bytes of the arguments of a call that needs approval. The record is part of the session's state.
const ASKED_BYTES_MAX: usize = 64 * 1024;

/// Maximum bytes of the message with which a person rejects a call.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Maximum tools that a session may switch off: more than any session has.
const TOOLS_OFF_MAX: usize = 256;

/// The decision on a call.
pub(super) enum Verdict {
    /// It runs.
    Run,
    /// A person must allow it.
    Ask(Box<Approval>),
    /// It does not run; the text tells the model why.
    Refuse(String),
}

impl Turn {
    /// Takes a person's answer.
    ///
    /// # Errors
    /// `no_pending_approval`, `too_late`; `invalid_field` if it names another call; `limit_reached`.
    pub(crate) fn on_approval(
        &mut self,
        ledger: &mut Ledger,
        prompt: &Prompt,
        caller: &Caller,
        response: ApprovalResponse,
        lookup: Option<Lookup>,
    ) -> Result<(), ErrorBody> {
        let ApprovalResponse { approval_id, review, arguments_hash, custom_deny_message } = response;
        let option = review.option();
        let open = ledger.state().approvals.iter().find(|approval| approval.approval_id == approval_id);
        let (by, ended) = lookup.map(Lookup::approval).unwrap_or_default();
        let Some(approval) = open.cloned() else {
            return answer_late_approval(ledger, caller, &approval_id, option, ended);
        };
        if let Some(hash) = arguments_hash.filter(|hash| *hash != approval.arguments_hash) {
            let shown: String = hash.chars().take(64).collect();
            let message =
                format!("approval `{approval_id}` is about another call than the one with the hash `{shown}`");
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("argumentsHash"));
        }
        if let Some(message) = custom_deny_message.as_ref().filter(|message| message.len() > MESSAGE_BYTES_MAX) {
            let message = format!("it has {} bytes; at most {MESSAGE_BYTES_MAX} are allowed", message.len());
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("customDenyMessage"));
        }
        let mut events = vec![decided(&approval, outcome_of(option), Some(option), by.clone())];
        if option.is_lasting() {
            events.push(with_standing(ledger, &approval, option, by)?);
        }
        let mark = caller.mark(done(Some(ledger.state().seq)));
        ledger.ended.note(as_call(&approval_id), outcome_of(option), Some(fingerprint_of(&option)));
        let turn_id = approval.turn_id.clone();
        if option.allows() {
            match still_allowed(ledger, prompt, &approval) {
                Ok(terms) => {
                    let Approval { call_id, name, arguments, .. } = approval;
                    events.extend(self.made(ledger, turn_id, call_id, name, arguments, terms));
                }
                Err(why) => events.push(refused(ledger, &approval, why)),
            }
        } else {
            let why = match custom_deny_message.as_deref().map(str::trim).filter(|message| !message.is_empty()) {
                Some(message) => format!("Not called: the user rejected this call and says: {message}"),
                None => "Not called: the user rejected this call.".to_owned(),
            };
            events.push(refused(ledger, &approval, why));
        }
        ledger.append(events, vec![mark]);
        self.meter_is_due();
        if review == Decision::RejectAndStop {
            ledger.then(Step::stop_turn(TurnStatus::Cancelled));
        } else {
            self.after_results(ledger);
        }
        Ok(())
    }

    /// Returns true if the turn waits only for approvals: no time limit runs, and the session may leave memory.
    pub(crate) fn is_parked(&self, ledger: &Ledger) -> bool {
        self.awaits_tools && ledger.state().pending.is_empty() && !ledger.state().approvals.is_empty()
    }
}

fn outcome_of(option: ApprovalOption) -> CallOutcome {
    if option.allows() { CallOutcome::Allowed } else { CallOutcome::Rejected }
}

/// Returns the event that decides an approval.
fn decided(approval: &Approval, outcome: CallOutcome, option: Option<ApprovalOption>, by: Option<String>) -> Event {
    Event::CallResolved(CallResolved {
        call_id: approval.call_id.clone(),
        outcome,
        approval_id: Some(approval.approval_id.clone()),
        option,
        by,
    })
}

/// Returns the id under which a decided approval is remembered among calls. Ids are random, so they do not collide.
fn as_call(approval: &ApprovalId) -> CallId {
    approval.as_str().parse().expect("an approval's id is an id")
}

/// Refuses the approvals that were not answered in time. Returns true if there were any.
pub(super) fn expire_approvals(ledger: &mut Ledger) -> bool {
    let now = ledger.now;
    let over: Vec<Approval> =
        ledger.state().approvals.iter().filter(|approval| approval.expires_at <= now).cloned().collect();
    for approval in &over {
        ledger.ended.note(as_call(&approval.approval_id), CallOutcome::Expired, None);
        let why = "Not called: nobody allowed this call in time.".to_owned();
        let events = vec![decided(approval, CallOutcome::Expired, None, None), refused(ledger, approval, why)];
        ledger.append(events, Vec::new());
    }
    !over.is_empty()
}

/// Decides whether a call that matches its tool's schema may run.
pub(super) fn verdict(ledger: &mut Ledger, called: &Called, terms: &Terms) -> Verdict {
    let Called { call_id, name, arguments, proposed, .. } = called;
    let decision = decision(ledger, name, arguments, terms);
    if decision == ApprovalDecision::Auto {
        return Verdict::Run;
    }
    if decision == ApprovalDecision::Deny {
        return Verdict::Refuse(format!("Not called: the approval policy does not allow this call of `{name}`."));
    }
    if arguments.len() > ASKED_BYTES_MAX {
        let bytes = arguments.len();
        return Verdict::Refuse(format!(
            "Not called: the arguments have {bytes} bytes, which is more than a person can decide about; at most \
             {ASKED_BYTES_MAX} are allowed."
        ));
    }
    let arguments_hash = call_hash(terms.place, name, arguments);
    let standing = &ledger.state().standing_approvals;
    match standing.iter().find(|earlier| earlier.name == *name && earlier.arguments_hash == arguments_hash) {
        Some(earlier) if earlier.option.allows() => return Verdict::Run,
        Some(_) => {
            return Verdict::Refuse("Not called: the user has rejected this very call for good.".to_owned());
        }
        None => {}
    }
    let Some(turn_id) = ledger.turn_id() else {
        return Verdict::Refuse("Not called: the turn has ended.".to_owned());
    };
    let reason = match terms.annotations.destructive {
        Some(true) => format!("`{name}` may destroy what it changes."),
        _ => format!("`{name}` may change something."),
    };
    Verdict::Ask(Box::new(Approval {
        approval_id: ledger.new_id(),
        call_id: call_id.clone(),
        turn_id,
        name: name.clone(),
        arguments_hash,
        display: visible(arguments).into_owned(),
        arguments: arguments.clone(),
        proposed_arguments: proposed.clone(),
        place: terms.place,
        reason,
        options: ApprovalOption::ALL.to_vec(),
        generation: ledger.generation,
        expires_at: ledger.now.plus_millis(ledger.deployment.approval_expiry_ms),
    }))
}

/// Returns the terms of a call that a person has allowed, or the reason for the model why it is not made. While the
/// approval was pending, the tool may have disappeared, another one may have taken its name, and the rules may have
/// changed.
fn still_allowed(ledger: &Ledger, prompt: &Prompt, approval: &Approval) -> Result<Terms, String> {
    let Approval { name, arguments, place, .. } = approval;
    let terms = prompt.tools().recheck(name, arguments)?;
    if terms.place != *place {
        return Err(format!("Not called: the tool `{name}` that was allowed is no longer available."));
    }
    match decision(ledger, name, arguments, &terms) {
        ApprovalDecision::Deny => {
            Err(format!("Not called: the approval policy no longer allows this call of `{name}`."))
        }
        ApprovalDecision::Auto | ApprovalDecision::Ask => Ok(terms),
    }
}

/// Returns the stricter of the deployment's and the session's decisions on a call.
fn decision(ledger: &Ledger, name: &str, arguments: &str, terms: &Terms) -> ApprovalDecision {
    let by_deployment = ledger.deployment.approvals.decide(name, arguments);
    let deployment = by_deployment.unwrap_or_else(|| default_decision(terms));
    let Some(own) = &ledger.state().settings.approvals else { return deployment };
    let by_session = match Policy::compile(own) {
        Ok(policy) => policy.decide(name, arguments),
        // It was checked when it was set, by a version that knew more.
        Err(_) => Some(ApprovalDecision::Ask),
    };
    by_session.map_or(deployment, |session| session.max(deployment))
}

/// Returns the result of a call that is not made.
fn refused(ledger: &mut Ledger, approval: &Approval, why: String) -> Event {
    let entry = result_entry(ledger, ledger.state().leaf.clone(), approval.call_id.clone(), why, true);
    appended(entry, Some(approval.turn_id.clone()), None)
}

/// Returns the event that adds a standing approval.
fn with_standing(
    ledger: &Ledger,
    approval: &Approval,
    option: ApprovalOption,
    by: Option<String>,
) -> Result<Event, ErrorBody> {
    let mut standing = ledger.state().standing_approvals.clone();
    // The newest answer about a call is the valid one.
    standing.retain(|earlier| earlier.arguments_hash != approval.arguments_hash);
    if standing.len() >= STANDING_MAX {
        let message = format!(
            "the session has {STANDING_MAX} lasting answers already; answer once, or withdraw one with \
             withdraw_approval"
        );
        return Err(ErrorBody::new(ErrorCode::LimitReached, message));
    }
    standing.push(StandingApproval {
        approval_id: approval.approval_id.clone(),
        name: approval.name.clone(),
        arguments_hash: approval.arguments_hash.clone(),
        display: approval.display.chars().take(STANDING_CHARS_MAX).collect(),
        option,
        since: ledger.now,
        by,
    });
    Ok(session_updated(|updated| updated.standing_approvals = Some(standing)))
}

/// Withdraws a standing approval.
///
/// # Errors
/// `no_pending_approval` if there is no such approval.
pub(crate) fn withdraw_approval(
    ledger: &mut Ledger,
    caller: &Caller,
    command: &WithdrawApproval,
) -> Result<(), ErrorBody> {
    let mut standing = ledger.state().standing_approvals.clone();
    let before = standing.len();
    standing.retain(|answer| answer.approval_id != command.approval_id);
    if standing.len() == before {
        let message = format!("approval `{}` has no lasting answer", command.approval_id);
        return Err(ErrorBody::new(ErrorCode::NoPendingApproval, message).with_field("approvalId"));
    }
    ledger.update(caller, Vec::new(), |updated| updated.standing_approvals = Some(standing));
    Ok(())
}

/// Switches tools off or on, and sets the session's own policy.
///
/// # Errors
/// `invalid_policy`; `invalid_field`.
pub(crate) fn set_tools(
    ledger: &mut Ledger,
    prompt: &mut Prompt,
    caller: &Caller,
    command: SetTools,
) -> Result<(), ErrorBody> {
    let mut settings = ledger.state().settings.clone();
    if let Some(off) = command.off {
        if off.len() > TOOLS_OFF_MAX || off.iter().any(|name| name.len() > 64) {
            let message = format!("`off` has at most {TOOLS_OFF_MAX} names of at most 64 characters");
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("off"));
        }
        settings.tools_off = off;
    }
    if let Some(policy) = command.approvals {
        if let Err((field, why)) = Policy::compile(&policy) {
            let message = format!("`approvals.{field}` {why}");
            return Err(ErrorBody::new(ErrorCode::InvalidPolicy, message).with_field(format!("approvals.{field}")));
        }
        settings.approvals = Some(policy).filter(|policy| !policy.rules.is_empty());
    }
    ledger.update(caller, Vec::new(), |updated| updated.settings = Some(settings));
    prompt.adopt_tools(ledger);
    Ok(())
}

/// Replies to an answer to an approval that is over: `ok` if it is the answer that was taken.
fn answer_late_approval(
    ledger: &mut Ledger,
    caller: &Caller,
    approval: &ApprovalId,
    option: ApprovalOption,
    stored: Option<EndedCall>,
) -> Result<(), ErrorBody> {
    let stored = stored.and_then(|ended| ended.outcome.map(|outcome| (outcome, Some(ended.result))));
    let Some((outcome, answer)) = ledger.ended.get(&as_call(approval)).or(stored) else {
        let message = format!("no approval `{approval}` is pending");
        return Err(ErrorBody::new(ErrorCode::NoPendingApproval, message).with_field("approvalId"));
    };
    if answer == Some(fingerprint_of(&option)) {
        ledger.reply_duplicate(caller);
        return Ok(());
    }
    Err(Callee::Approval.too_late(&as_call(approval), Some(outcome)))
}

/// Returns results for the calls that are still undecided when their turn ends.
pub(super) fn dropped_approvals(ledger: &mut Ledger, leaf: Option<EntryId>, turn_id: &TurnId) -> Vec<Event> {
    let mut leaf = leaf;
    let mut events = Vec::new();
    for approval in ledger.state().approvals.clone() {
        let why = "The turn ended before anyone allowed this call.".to_owned();
        let entry = result_entry(ledger, leaf, approval.call_id.clone(), why, true);
        leaf = Some(entry.entry_id.clone());
        ledger.ended.note(as_call(&approval.approval_id), CallOutcome::Dropped, None);
        events.push(decided(&approval, CallOutcome::Dropped, None, None));
        events.push(appended(entry, Some(turn_id.clone()), None));
    }
    events
}
