//! Decides what follows a hook's answer.
//!
//! | answer | what follows |
//! | --- | --- |
//! | valid | it is applied (`take_answer`), and the next hook is asked (`ask_next`) |
//! | it blocks the call, or cancels the compaction or the move | the other hooks are not asked, observers not told |
//! | none, and the hook's client is away | a required hook is waited for until its time is up; another is passed over |
//! | invalid, an error, or none in time | a required hook ends what it could not inspect (`hook_failed`) |
//! | the same, of another hook | it is reported, and the next hook is asked |
//! | the last hook has answered | the subject continues as the hooks left it (`after_hooks`) |
//!
//! Most answers change only the subject, which takes effect in `after_hooks`. The patches of `context:before_request`
//! and `context:turn_end` are the exception: each that changes something is appended at once, and voids a compaction
//! that has read what it changes.

use crate::{
    agent_loop::{
        AgentLoop,
        checks::hook_error,
        hooks::chain::{Chain, Open},
        step::Step,
        subject::{Subject, check_answer},
    },
    hook::{HookFault, HookPlace, HookSpec},
};
use reseed_protocol::{CallId, ErrorCode, event::CallOutcome, hook::HookAnswer, receipt::HookOutcome, reply::Reply};
use std::collections::VecDeque;

impl AgentLoop {
    /// Asks the next hook; once none is left, the subject continues.
    pub(super) fn ask_next(&mut self, subject: Subject, mut rest: VecDeque<(HookPlace, HookSpec)>) {
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
        self.ws.then(Step::AfterHooks(subject));
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
        if let Err(fault) = &answer {
            let is_late = fault.code == ErrorCode::HookTimeout;
            open.note_unanswered(
                &mut self.ws.ended,
                if is_late { CallOutcome::TimedOut } else { CallOutcome::Dropped },
            );
        }
        let is_skipped =
            !open.spec.required && matches!(&answer, Err(fault) if fault.code == ErrorCode::HookUnavailable);
        if is_skipped {
            self.turn.note_run(&mut self.ws, &subject, &open, HookOutcome::Skipped, None);
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
                self.turn.note_run(&mut self.ws, &subject, &open, outcome, None);
                // The decision is final, so the remaining hooks are not asked.
                let rest = if subject.is_settled() { VecDeque::new() } else { rest };
                self.ask_next(subject, rest);
            }
            Err(fault) => {
                self.turn.note_run(&mut self.ws, &subject, &open, HookOutcome::Failed, Some(fault.code));
                self.ws.report_hook(&open, &fault);
                if open.spec.required {
                    let hook = open.spec.name.clone();
                    self.ws.then(Step::HookFailed { subject, hook, fault });
                } else {
                    self.ask_next(subject, rest);
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
            Subject::Calls(calls) => calls.take(answer, self.ws.prompt.tools()),
            Subject::Result(result) => result.take(answer),
            Subject::Compaction(decision) => self.compaction.take_decision(&self.ws, decision, &open.spec.name, answer),
            Subject::Navigation(proposed) => proposed.take(&open.spec.name, answer),
        }
    }

    /// Continues with a subject after all hooks of its point were asked.
    pub(in crate::agent_loop) fn after_hooks(&mut self, subject: Subject) {
        match subject {
            // Appends the entries that hooks added, sets the turn's system prompt, and prepares the request.
            Subject::Start(start) => self.ws.start_as_changed(*start),
            // Starts a turn on the input or queues it, appends or queues a custom message, or refuses either with an
            // error. Then the next command in line is handled.
            Subject::Input(offered) => self.accept_input(*offered),
            // Prepares the request: hooks' patches were appended when they were answered.
            Subject::BeforeRequest => self.ws.then(Step::Proceed),
            // Appends what was added for this request alone and sends it, or fails the turn if it no longer fits. If
            // the context has changed meanwhile, drops the additions and prepares the request again.
            Subject::Ephemeral(overlay) => self.send_with_additions(*overlay),
            // Ends the turn as completed.
            Subject::TurnEnd(ended) => self.ws.then(Step::complete_turn(ended.finish_reason)),
            // Appends the answer. Then asks the `tool_call` hooks about its calls or makes them; without calls, asks
            // the hooks of the turn's end or ends the turn. Too many rounds of calls fail the turn.
            Subject::Answer(whole) => self.append_answer(*whole),
            // Asks about the answer's next call. After the last one, sends the allowed calls to the client, and tells
            // the model why the others are not made.
            Subject::Calls(calls) => self.ask_about_next_call(*calls),
            // After the `tool_result` hooks, asks the `message` hooks. Then appends the result, and prepares the next
            // request once every call has its result.
            Subject::Result(result) => self.turn.pass_result_on(&mut self.ws, *result),
            // Makes the compaction as the hooks changed it, or ends it as cancelled.
            Subject::Compaction(decision) => self.compact_as_decided(decision),
            // Moves, requests the summary of the abandoned branch first, or refuses the move with an error.
            Subject::Navigation(proposed) => self.move_as_proposed(*proposed),
        }
    }

    /// Ends what a required hook could not inspect. An input or a move is refused, a compaction fails, a tool call is
    /// blocked. Everything else fails its turn, and so does a call whose hook's client stays away; a tool's result is
    /// replaced with an error first.
    pub(in crate::agent_loop) fn hook_failed(&mut self, subject: Subject, hook: &str, fault: &HookFault) {
        let error = hook_error(hook, subject.event(), fault);
        match subject {
            Subject::Input(offered) => self.ws.refuse_input(&offered, error),
            // An answer that nobody has seen is discarded with its turn.
            Subject::Start(_)
            | Subject::BeforeRequest
            | Subject::Ephemeral(_)
            | Subject::TurnEnd(_)
            | Subject::Answer(_) => self.ws.then(Step::fail_turn(error)),
            Subject::Calls(calls) if fault.code == ErrorCode::HookUnavailable => {
                self.ws.drop_uncalled(*calls);
                self.ws.then(Step::fail_turn(error));
            }
            Subject::Calls(mut calls) => {
                // The model may continue without this one call.
                calls.block(format!("Not called: the hook `{hook}` failed."));
                self.ask_about_next_call(*calls);
            }
            Subject::Result(result) => {
                // The command was accepted, but its content is not kept. The tool has answered, so its call is not
                // withdrawn.
                self.ws.remember(&result.caller.without_content("tool_result"));
                let why = format!("The tool answered, but the hook `{hook}` failed: its answer is not kept.");
                self.turn.drop_result(&mut self.ws, &result.call, why);
                self.ws.then(Step::fail_turn(error));
            }
            Subject::Compaction(_) => self.compaction_not_inspected(error),
            Subject::Navigation(proposed) => {
                self.ws.reply(&proposed.caller, Reply::Error(error));
                self.ws.then(Step::Proceed);
            }
        }
    }
}
