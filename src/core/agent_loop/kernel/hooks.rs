//! Passes a subject from hook to hook, and decides what follows each answer.
//!
//! | answer | what follows |
//! | --- | --- |
//! | valid | it is applied (`take_answer`), and the next hook is called (`ask_next`) |
//! | it blocks the call, or cancels the compaction or the move | no other hook is called, and no observer notified |
//! | none, and the hook's client is away | a required hook is waited for until its time is up; any other is skipped |
//! | invalid, an error, or none in time; the hook is required | what it could not inspect ends (`hook_failed`) |
//! | the same; the hook is not required | the failure is reported, and the next hook is called |
//! | the last hook has answered | the subject continues as the hooks left it (`after_hooks`) |
//!
//! Most answers change only the subject, which takes effect in `after_hooks`. The patches of `context:before_request`
//! and `context:turn_end` are the exception: each effective patch is appended at once, and voids a compaction that has
//! read what it changes.

use crate::agent_loop::{
    AgentLoop, checks::hook_error, hooks::chain::Chain, hooks::chain::Open, hooks::input, hooks::input::stopping,
    hooks::request, io::Caller, io::Effect, navigation, roster::call_hook, roster::has_lost, step::Step,
    subject::Subject, subject::check_answer, turn::calls,
};
use crate::context::Context;
use crate::hook::{HookFault, HookPlace, HookSpec};
use reseed_protocol::{
    CallId, ErrorBody, ErrorCode,
    hooks::{ContextReason, HookAnswer, HookEvent, HookResult},
    receipt::HookOutcome,
    reply::Reply,
};
use std::collections::VecDeque;

impl AgentLoop {
    /// Calls every hook of the subject's point, then continues with the result.
    pub(in crate::agent_loop) fn ask_hooks(&mut self, subject: Subject) {
        let (point, reason) = subject.point();
        let is_asked = |(_, spec): &(HookPlace, &HookSpec)| spec.is_asked(point, reason);
        let owned = |(place, spec): (HookPlace, &HookSpec)| (place, spec.clone());
        let rest = match &subject {
            Subject::Input(offered) => {
                self.roster.of_input(&self.ledger, &offered.caller.id).filter(is_asked).map(owned).collect()
            }
            _ => self.roster.of_turn(&self.ledger).filter(is_asked).map(owned).collect(),
        };
        self.ask_next(subject, rest);
    }

    pub(super) fn on_hook_result(&mut self, caller: &Caller, result: HookResult) -> Result<(), ErrorBody> {
        if let Some((call_id, answer)) = self.hooks.on_result(&mut self.ledger, &self.roster, caller, result)? {
            self.on_hook_answer(&call_id, Ok(answer));
        }
        Ok(())
    }

    /// Cancels a hook call that is no longer waited for.
    pub(in crate::agent_loop) fn on_hook_late(&mut self, call_id: CallId, is_sent: bool, fault: HookFault) {
        if is_sent {
            self.ledger.push(Effect::CancelHook(call_id.clone()));
        }
        self.on_hook_answer(&call_id, Err(fault));
    }

    /// Returns the event that hooks of this subject receive.
    fn hook_event(&self, subject: &Subject) -> HookEvent {
        match subject {
            Subject::Start(start) => start.event(),
            Subject::Input(offered) => offered.event(),
            Subject::BeforeRequest => self.context_event(ContextReason::BeforeRequest, &self.ledger.context()),
            Subject::Ephemeral(overlay) => self.context_event(ContextReason::Ephemeral, &overlay.context),
            Subject::TurnEnd(_) => self.context_event(ContextReason::TurnEnd, &self.ledger.context()),
            Subject::Answer(whole) => whole.event(),
            Subject::Calls(calls) => calls.event(),
            Subject::Result(result) => result.event(),
            Subject::Compaction(decision) => self.compaction.compaction_event(self.planner(), decision),
            Subject::Navigation(proposed) => proposed.event(self.ledger.state().leaf.clone()),
        }
    }

    fn context_event(&self, reason: ContextReason, context: &Context) -> HookEvent {
        HookEvent::Context { reason, envelope: Box::new(self.prompt.shown_envelope(&self.ledger, context)) }
    }

    fn note_run(&mut self, subject: &Subject, open: &Open, outcome: HookOutcome, code: Option<ErrorCode>) {
        if let Some(run) = open.run(subject, self.ledger.now, outcome, code) {
            self.turn.hook_ran(self.ledger.state(), run);
        }
    }

    /// Calls the next hook; once none is left, the subject continues.
    fn ask_next(&mut self, subject: Subject, mut rest: VecDeque<(HookPlace, HookSpec)>) {
        while let Some((place, spec)) = rest.pop_front() {
            if has_lost(&self.ledger, place, &spec) {
                continue;
            }
            // No client offers this hook now: a required hook is waited for, any other one is skipped.
            let is_gone = self.roster.is_gone(place, &spec);
            if is_gone && spec.observe {
                continue;
            }
            let event = self.hook_event(&subject);
            let (call, deadline) = call_hook(&mut self.ledger, &subject, event, place, &spec, is_gone);
            if spec.observe {
                continue;
            }
            let away_since = is_gone.then_some(self.ledger.now);
            let away_left_ms = self.ledger.deployment.hook_away_ms;
            let (call, is_sent) = (Box::new(call), !is_gone);
            let open =
                Open { call, place, spec, is_sent, asked_at: self.ledger.now, deadline, away_since, away_left_ms };
            if is_gone && !open.spec.required {
                self.note_run(&subject, &open, HookOutcome::Skipped, None);
                continue;
            }
            self.hooks.wait_for(Chain { subject, rest, open });
            return;
        }
        self.ledger.then(Step::AfterHooks(subject));
    }

    /// Handles a hook's answer or failure.
    pub(in crate::agent_loop) fn on_hook_answer(&mut self, call_id: &CallId, answer: Result<HookAnswer, HookFault>) {
        let Some((chain, answer)) = self.hooks.hear(&mut self.ledger, call_id, answer) else { return };
        let Chain { mut subject, rest, open } = chain;
        let is_skipped =
            !open.spec.required && matches!(&answer, Err(fault) if fault.code == ErrorCode::HookUnavailable);
        if is_skipped {
            self.note_run(&subject, &open, HookOutcome::Skipped, None);
            self.ask_next(subject, rest);
            return;
        }
        let taken = answer.and_then(|answer| {
            check_answer(&subject, &answer)?;
            if answer.fields().is_empty() { Ok(false) } else { self.take_answer(&mut subject, &open, answer) }
        });
        match taken {
            Ok(changed) => {
                let outcome = if changed { HookOutcome::Changed } else { HookOutcome::Unchanged };
                self.note_run(&subject, &open, outcome, None);
                // The decision is final, so the remaining hooks are not called.
                let rest = if subject.is_settled() { VecDeque::new() } else { rest };
                self.ask_next(subject, rest);
            }
            Err(fault) => {
                self.note_run(&subject, &open, HookOutcome::Failed, Some(fault.code));
                self.ledger.emit(open.failed(&fault));
                if open.spec.required {
                    let hook = open.spec.name.clone();
                    self.ledger.then(Step::HookFailed { subject, hook, fault });
                } else {
                    self.ask_next(subject, rest);
                }
            }
        }
    }

    /// Applies an answer to the subject. Returns true if that changed anything.
    fn take_answer(&mut self, subject: &mut Subject, open: &Open, answer: HookAnswer) -> Result<bool, HookFault> {
        match subject {
            Subject::Start(start) => request::take_start(&self.ledger, &self.prompt, start, &open.spec.name, answer),
            Subject::Input(offered) => input::take_input_answer(&self.ledger, &self.prompt, offered, answer),
            Subject::BeforeRequest | Subject::TurnEnd(_) => {
                let is_sent_next = matches!(subject, Subject::BeforeRequest);
                let transform =
                    request::take_transform(&mut self.ledger, &self.prompt, &open.spec.name, answer, is_sent_next)?;
                let Some((patched, entry)) = transform else { return Ok(false) };
                self.compacting().void_what_read(&patched);
                self.ledger.append(vec![entry], Vec::new());
                Ok(true)
            }
            Subject::Ephemeral(overlay) => {
                request::take_overlay(&self.ledger, &self.prompt, overlay, &open.spec.name, answer)
            }
            Subject::Answer(whole) => whole.take(answer),
            Subject::Calls(calls) => calls.take(answer, self.prompt.tools()),
            Subject::Result(result) => result.take(answer),
            Subject::Compaction(decision) => {
                self.compaction.take_decision(self.planner(), decision, &open.spec.name, answer)
            }
            Subject::Navigation(proposed) => proposed.take(&open.spec.name, answer),
        }
    }

    /// Continues with a subject after all hooks of its point were called.
    pub(in crate::agent_loop) fn after_hooks(&mut self, subject: Subject) {
        match subject {
            // Appends the entries that hooks added, sets the turn's system prompt, and prepares the request.
            Subject::Start(start) => request::start_as_changed(&mut self.ledger, &mut self.prompt, *start),
            // Starts a turn on the input or queues it, appends or queues a custom message, or refuses either with an
            // error. Then the next command in line is handled.
            Subject::Input(offered) => self.accept_input(*offered),
            // Prepares the request. The hooks' patches were appended when they answered.
            Subject::BeforeRequest => self.ledger.then(Step::Proceed),
            // Appends the additions for this request alone and sends it, or fails the turn if it no longer fits. If the
            // context has changed meanwhile, drops the additions and prepares the request again.
            Subject::Ephemeral(overlay) => request::send_with_additions(&mut self.ledger, &mut self.prompt, *overlay),
            // Ends the turn as completed.
            Subject::TurnEnd(ended) => self.ledger.then(Step::complete_turn(ended.finish_reason)),
            // Appends the answer. Then calls the `tool_call` hooks for its calls, or makes them. Without calls, calls
            // the hooks of the turn's end, or ends the turn. Too many rounds of calls fail the turn.
            Subject::Answer(whole) => self.turn.append_answer(&mut self.ledger, &self.prompt, &self.roster, *whole),
            // Calls the hooks for the answer's next call. After the last one, sends the allowed calls to the client,
            // and tells the model why the others are not made.
            Subject::Calls(calls) => self.turn.ask_about_next_call(&mut self.ledger, &self.roster, *calls),
            // After the `tool_result` hooks, calls the `message` hooks. Then appends the result, and prepares the next
            // request once every call has its result.
            Subject::Result(result) => self.turn.pass_result_on(&mut self.ledger, &self.prompt, &self.roster, *result),
            // Makes the compaction as the hooks changed it, or ends it as cancelled.
            Subject::Compaction(decision) => self.compacting().compact_as_decided(decision),
            // Moves, requests the summary of the abandoned branch first, or refuses the move with an error.
            Subject::Navigation(proposed) => self.move_as_proposed(*proposed),
        }
    }

    /// Cancels the hooks that the turn or the session is waiting for.
    pub(super) fn cancel_awaited(&mut self) {
        for subject in self.hooks.cancel_hooks(&mut self.ledger, Subject::is_awaited) {
            match subject {
                Subject::Calls(calls) => calls::drop_uncalled(&mut self.ledger, *calls),
                Subject::Navigation(proposed) => navigation::stay_here(&mut self.ledger, &proposed),
                Subject::Input(offered) => self.ledger.reply(&offered.caller, self.ledger.ending_or(stopping())),
                _ => {}
            }
        }
    }

    /// Ends what a required hook could not inspect. An input or a move is refused, a compaction fails, a tool call is
    /// blocked. Anything else fails its turn, and so does a tool call if the hook's client stays away. A tool's result
    /// is first replaced with an error.
    pub(in crate::agent_loop) fn hook_failed(&mut self, subject: Subject, hook: &str, fault: &HookFault) {
        let error = hook_error(hook, subject.event(), fault);
        match subject {
            Subject::Input(offered) => input::refuse_input(&mut self.ledger, &offered, error),
            // An answer that was not shown is discarded with its turn.
            Subject::Start(_)
            | Subject::BeforeRequest
            | Subject::Ephemeral(_)
            | Subject::TurnEnd(_)
            | Subject::Answer(_) => self.ledger.then(Step::fail_turn(error)),
            Subject::Calls(calls) if fault.code == ErrorCode::HookUnavailable => {
                calls::drop_uncalled(&mut self.ledger, *calls);
                self.ledger.then(Step::fail_turn(error));
            }
            Subject::Calls(mut calls) => {
                // The model may continue without this one call.
                calls.block(format!("Not called: the hook `{hook}` failed."));
                self.turn.ask_about_next_call(&mut self.ledger, &self.roster, *calls);
            }
            Subject::Result(result) => {
                // The command was accepted, but its content is not stored. The tool has answered, so its call is not
                // withdrawn.
                if let Some(caller) = &result.caller {
                    self.ledger.remember(&caller.without_content("tool_result"));
                }
                let why = format!("The tool answered, but the hook `{hook}` failed: its answer is not kept.");
                self.turn.drop_result(&mut self.ledger, &result.call, why);
                self.ledger.then(Step::fail_turn(error));
            }
            Subject::Compaction(_) => self.compacting().compaction_not_inspected(error),
            Subject::Navigation(proposed) => {
                self.ledger.reply(&proposed.caller, Reply::Error(error));
                self.ledger.then(Step::Proceed);
            }
        }
    }
}
