//! The effect of a required hook that fails, times out or whose client is away: what it could not inspect does not
//! happen, and whoever waits for it gets an error. Hooks that are not required are skipped and never get here.

use super::super::step::Step;
use super::{
    super::{AgentLoop, Effect, stage::Stage},
    Open, Subject,
};
use crate::hook::HookFault;
use reseed_protocol::{
    ErrorBody, ErrorCode,
    event::{EphemeralEvent, HookFailed},
    hook::HookPoint,
    reply::Reply,
};

impl AgentLoop {
    /// Ends what a required hook could not inspect.
    pub(super) fn hook_failed(&mut self, subject: Subject, open: &Open, fault: &HookFault) {
        let error = hook_error(&open.spec.name, subject.event(), fault);
        if subject.holds_the_stage() {
            self.ws.stage.enter(Stage::Idle);
        }
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
            Subject::Result(given) => {
                // The command was accepted, but its content is not kept. The tool has answered, so its call is not
                // withdrawn.
                self.ws.remember(&given.caller.without_content("tool_result"));
                let why =
                    format!("The tool answered, but the hook `{}` failed: its answer is not kept.", open.spec.name);
                self.turn.drop_result(&mut self.ws, &given.call, why);
                self.fail_turn(error);
            }
            Subject::Compaction(_) => self.uncompacted(error),
            Subject::Navigation(wish) => {
                self.ws.reply(&wish.caller, Reply::Error(error));
                self.ws.then(Step::Proceed);
            }
        }
    }

    /// Fails the turn because a required hook was unregistered before the model's answer arrived. Nobody has seen the
    /// answer; it is discarded.
    pub(in crate::agent_loop) fn guard_left(&mut self, hook: &str) {
        let fault = HookFault::unavailable("its client no longer offers it");
        let event = HookPoint::Message;
        self.ws.out.push(Effect::Emit(EphemeralEvent::HookFailed(HookFailed {
            hook: hook.to_owned(),
            event,
            turn_id: self.ws.session.state.turn.as_ref().map(|turn| turn.turn_id.clone()),
            code: fault.code,
            message: fault.message.clone(),
        })));
        self.fail_turn(hook_error(hook, event.as_str(), &fault));
    }
}

/// Returns the error for what a failed hook has ended.
fn hook_error(hook: &str, event: &str, fault: &HookFault) -> ErrorBody {
    let message = format!("the hook `{hook}` at `{event}` failed: {}", fault.message);
    ErrorBody::new(fault.code, message).with_details(serde_json::json!({ "hook": hook, "event": event }))
}
