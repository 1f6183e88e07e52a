//! Applies hooks' answers, and continues or ends what they were asked about.
//!
//! An answer is applied to the subject, and the next hook is asked; once all were asked, the subject goes on as they
//! left it. A required hook that fails, times out or whose client is away ends what it could not inspect, and whoever
//! waits for that gets an error. Other hooks that fail are skipped.

use super::{Chain, Open, Subject, subject::check_answer};
use crate::{
    agent_loop::{AgentLoop, step::Step},
    hook::{HookFault, HookPlace, HookSpec},
};
use reseed_protocol::{
    CallId, ErrorBody, ErrorCode,
    event::{EphemeralEvent, HookFailed},
    hook::{HookAnswer, HookPoint},
    receipt::HookOutcome,
    reply::Reply,
};
use std::collections::VecDeque;

impl AgentLoop {
    /// Asks the next hook; once none is left, the subject goes on.
    pub(super) fn walk(&mut self, subject: Subject, mut rest: VecDeque<(HookPlace, HookSpec)>) {
        while let Some((place, spec)) = rest.pop_front() {
            // No client offers this hook now: a required hook is waited for, any other one is skipped.
            let is_gone = self.ws.roster.is_gone(place, &spec);
            if is_gone && spec.observe {
                continue;
            }
            let (call, deadline) = self.call_hook(&subject, place, &spec, is_gone);
            if spec.observe {
                continue;
            }
            let away_since = is_gone.then_some(self.ws.now);
            let away_left_ms = self.ws.deployment.hook_away_ms;
            let (call, is_sent) = (Box::new(call), !is_gone);
            let open = Open { call, place, spec, is_sent, asked_at: self.ws.now, deadline, away_since, away_left_ms };
            if is_gone && !open.spec.required {
                self.turn.note_run(&mut self.ws, &subject, &open, HookOutcome::Skipped, None);
                continue;
            }
            self.hooks.chains.push(Chain { subject, rest, open });
            return;
        }
        self.ws.then(Step::Hooked(subject));
    }

    /// Handles a hook's answer or failure.
    pub(in crate::agent_loop) fn on_hook_answer(&mut self, call_id: &CallId, answer: Result<HookAnswer, HookFault>) {
        let Some(at) = self.hooks.chains.iter().position(|chain| chain.call_id() == *call_id) else { return };
        let answer = match self.hooks.chains[at].open.place {
            HookPlace::Client => answer,
            // Only a client can be away: a server hook that does not answer has failed.
            HookPlace::Server(_) => answer.map_err(|fault| match fault.code {
                ErrorCode::HookUnavailable => HookFault::failed(fault.message),
                _ => fault,
            }),
        };
        if let Err(fault) = &answer
            && fault.code == ErrorCode::HookUnavailable
        {
            let open = &mut self.hooks.chains[at].open;
            if open.spec.required {
                open.leaves(self.ws.now);
                if self.ws.now < open.due() {
                    // The client may return and is then asked again.
                    return;
                }
            }
        }
        let Chain { mut subject, rest, open } = self.hooks.chains.remove(at);
        let is_skipped =
            !open.spec.required && matches!(&answer, Err(fault) if fault.code == ErrorCode::HookUnavailable);
        if is_skipped {
            self.turn.note_run(&mut self.ws, &subject, &open, HookOutcome::Skipped, None);
            self.walk(subject, rest);
            return;
        }
        let taken = answer.and_then(|answer| {
            check_answer(&subject, &answer)?;
            if answer.fields().is_empty() { Ok(false) } else { self.take_answer(&mut subject, &open, answer) }
        });
        match taken {
            Ok(changed) => {
                let outcome = if changed { HookOutcome::Changed } else { HookOutcome::Unchanged };
                self.turn.note_run(&mut self.ws, &subject, &open, outcome, None);
                // The decision is final, so the remaining hooks are not asked.
                let rest = if subject.is_settled() { VecDeque::new() } else { rest };
                self.walk(subject, rest);
            }
            Err(fault) => {
                self.turn.note_run(&mut self.ws, &subject, &open, HookOutcome::Failed, Some(fault.code));
                self.ws.report_hook(&open, &fault);
                if open.spec.required {
                    self.hook_failed(subject, &open, &fault);
                } else {
                    self.walk(subject, rest);
                }
            }
        }
    }

    /// Applies an answer to the subject. Returns true if that changed anything.
    pub(super) fn take_answer(
        &mut self,
        subject: &mut Subject,
        open: &Open,
        answer: HookAnswer,
    ) -> Result<bool, HookFault> {
        match subject {
            Subject::Start(start) => self.ws.take_start(start, &open.spec.name, answer),
            Subject::Input(offered) => self.ws.take_input_answer(offered, answer),
            Subject::BeforeRequest | Subject::TurnEnd(_) => {
                let is_sent_next = matches!(subject, Subject::BeforeRequest);
                self.take_transform(&open.spec.name, answer, is_sent_next)
            }
            Subject::Ephemeral(overlay) => self.ws.take_overlay(overlay, &open.spec.name, answer),
            Subject::Answer(whole) => whole.take(answer),
            Subject::Calls(calls) => self.ws.take_call(calls, answer),
            Subject::Result(result) => result.take(answer),
            Subject::Compaction(decision) => self.compaction.take_decision(&self.ws, decision, &open.spec.name, answer),
            Subject::Navigation(proposed) => proposed.take(&open.spec.name, answer),
        }
    }

    /// Continues after all hooks of a point were asked.
    pub(in crate::agent_loop) fn hooked(&mut self, subject: Subject) {
        match subject {
            Subject::Start(start) => self.ws.started(*start),
            Subject::Input(offered) => self.input_seen(*offered),
            Subject::BeforeRequest => self.ws.then(Step::Proceed),
            Subject::Ephemeral(overlay) => self.overlaid(*overlay),
            Subject::TurnEnd(ended) => self.ended(ended),
            Subject::Answer(whole) => self.on_whole_answer(*whole),
            Subject::Calls(calls) => self.next_call(*calls),
            Subject::Result(result) => self.turn.result_seen(&mut self.ws, *result),
            Subject::Compaction(decision) => self.compaction_decided(decision),
            Subject::Navigation(proposed) => self.move_as_proposed(*proposed),
        }
    }

    /// Ends what a required hook could not inspect.
    pub(super) fn hook_failed(&mut self, subject: Subject, open: &Open, fault: &HookFault) {
        let error = hook_error(&open.spec.name, subject.event(), fault);
        match subject {
            Subject::Input(offered) => self.ws.refuse_input(&offered, error),
            // An answer that nobody has seen is discarded with its turn.
            Subject::Start(_)
            | Subject::BeforeRequest
            | Subject::Ephemeral(_)
            | Subject::TurnEnd(_)
            | Subject::Answer(_) => self.fail_turn(error),
            Subject::Calls(calls) if fault.code == ErrorCode::HookUnavailable => {
                self.ws.drop_uncalled(*calls);
                self.fail_turn(error);
            }
            Subject::Calls(mut calls) => {
                // The model may continue without this one call.
                calls.block(format!("Not called: the hook `{}` failed.", open.spec.name));
                self.next_call(*calls);
            }
            Subject::Result(result) => {
                // The command was accepted, but its content is not kept. The tool has answered, so its call is not
                // withdrawn.
                self.ws.remember(&result.caller.without_content("tool_result"));
                let why =
                    format!("The tool answered, but the hook `{}` failed: its answer is not kept.", open.spec.name);
                self.turn.drop_result(&mut self.ws, &result.call, why);
                self.fail_turn(error);
            }
            Subject::Compaction(_) => self.compaction_not_inspected(error),
            Subject::Navigation(proposed) => {
                self.ws.reply(&proposed.caller, Reply::Error(error));
                self.ws.then(Step::Proceed);
            }
        }
    }

    /// Fails the turn because a required hook was unregistered before the model's answer arrived. Nobody has seen the
    /// answer; it is discarded.
    pub(in crate::agent_loop) fn guard_left(&mut self, hook: &str) {
        let fault = HookFault::unavailable("its client no longer offers it");
        let event = HookPoint::Message;
        self.ws.emit(EphemeralEvent::HookFailed(HookFailed {
            hook: hook.to_owned(),
            event,
            turn_id: self.ws.session.state.turn.as_ref().map(|turn| turn.turn_id.clone()),
            code: fault.code,
            message: fault.message.clone(),
        }));
        self.fail_turn(hook_error(hook, event.as_str(), &fault));
    }
}

/// Returns the error for what a failed hook has ended.
fn hook_error(hook: &str, event: &str, fault: &HookFault) -> ErrorBody {
    let message = format!("the hook `{hook}` at `{event}` failed: {}", fault.message);
    ErrorBody::new(fault.code, message).with_details(serde_json::json!({ "hook": hook, "event": event }))
}
