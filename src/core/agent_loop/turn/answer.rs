//! The model's answer: one entry, whole or stopped.

use crate::{
    agent_loop::{
        AgentLoop,
        checks::hook_error,
        records::appended,
        step::Step,
        subject::answer::CompleteAnswer,
        turn::{Asked, OpenRequest},
        workspace::Workspace,
    },
    context::count::answer_report,
    hook::HookFault,
    model::{Answer, ReportedUsage},
};
use reseed_protocol::{
    EntryData, ErrorCode, Message, Part, Role, StopReason, Usage, UsageSource,
    event::{EphemeralEvent, HookFailed, ItemAborted},
    hook::HookPoint,
};

impl AgentLoop {
    /// Handles the model's answer: appends one entry, then makes its tool calls or ends the turn.
    pub(in crate::agent_loop) fn on_answer(&mut self, answer: Answer) {
        let Some(OpenRequest { item, asked, .. }) = self.turn.asking.take() else { return };
        if self.ws.session.state.turn.is_none() {
            return;
        }
        if asked.model == self.ws.session.state.model
            && let Some(window_tokens) = self.turn.carried.seen.answered(asked.count.tokens)
        {
            self.ws.remember_window(window_tokens);
        }
        self.ws.warn_of_cut(&answer, &asked.model);
        let message = self.ws.answer_message(&answer, &asked);
        self.ws.prompt.request_answered(answer.usage.map(|reported| reported.input_tokens));
        if let Some(reported) = answer.usage {
            self.ws.calibrate(&asked.model, asked.count.basis.report(reported.input_tokens));
            if let Some(report) = answer_report(&message, self.ws.prompt.counter()) {
                self.ws.calibrate(&asked.model, report);
            }
        }
        // The answer is billed even if it is discarded.
        self.turn.carried.progress(&self.ws.session.state).looked_at_usage.clone_from(&message.usage);
        if let Some(hook) = self.ws.roster.missing_guard(&self.ws.session.state, &asked.guards) {
            self.discard_uninspected(hook);
            return;
        }
        let whole = CompleteAnswer { item, message, stop_reason: answer.stop_reason, tools: asked.sent.tools.clone() };
        if self.ws.has_hooks(HookPoint::Message, None) {
            self.look_at_answer(whole, asked.withheld);
        } else {
            self.append_answer(whole);
        }
    }

    /// Handles a stopped answer: the text shown so far becomes an entry marked incomplete.
    pub(in crate::agent_loop) fn on_stopped(&mut self, shown: Vec<Part>) {
        let Some(OpenRequest { item, asked, stopped_as: Some(status), .. }) = self.turn.asking.take() else { return };
        self.ws.prompt.request_failed();
        // A withheld answer is not stored: hooks have not inspected it.
        let shown = if asked.withheld { Vec::new() } else { shown };
        let was_shown = !shown.is_empty();
        // An incomplete tool call is no call, so only readable text is kept.
        let shown: Vec<Part> = shown
            .into_iter()
            .filter(|part| matches!(part, Part::Text { text } | Part::Reasoning { text, .. } if !text.is_empty()))
            .collect();
        if shown.iter().any(|part| matches!(part, Part::Text { .. })) {
            let mut message = Message::new(Role::Assistant, shown);
            message.model = Some(asked.model);
            message.stop_reason = Some(StopReason::Cancelled);
            message.incomplete = true;
            let turn_id = self.ws.session.state.turn.as_ref().map(|turn| turn.turn_id.clone());
            let entry = self.ws.entry(item, EntryData::Message(message));
            self.ws.append(vec![appended(entry, turn_id, None)], Vec::new());
        } else if was_shown {
            let reason = ErrorCode::Interrupted.as_str().to_owned();
            self.ws.emit(EphemeralEvent::ItemAborted(ItemAborted { item_id: item, reason }));
        }
        self.ws.then(Step::stop_turn(status));
    }

    /// Fails the turn because a required hook was unregistered before the model's answer arrived. Nobody has seen the
    /// answer; it is discarded.
    fn discard_uninspected(&mut self, hook: &str) {
        let fault = HookFault::unavailable("its client no longer offers it");
        let point = HookPoint::Message;
        self.ws.emit(EphemeralEvent::HookFailed(HookFailed {
            hook: hook.to_owned(),
            point,
            turn_id: self.ws.session.state.turn.as_ref().map(|turn| turn.turn_id.clone()),
            error: fault.error(),
        }));
        self.ws.then(Step::fail_turn(hook_error(hook, point.as_str(), &fault)));
    }
}

impl Workspace {
    fn answer_message(&mut self, answer: &Answer, asked: &Asked) -> Message {
        let mut content = answer.parts.clone();
        content.retain(|part| !matches!(part, Part::Text { text } if text.is_empty()));
        for part in &mut content {
            // Upstreams reuse call ids across answers; ours are unique.
            if let Part::ToolCall { call_id, .. } = part {
                *call_id = self.new_id();
            }
        }
        let mut message = Message::new(Role::Assistant, content);
        message.model = Some(asked.model.clone());
        message.envelope_key = Some(asked.sent.key.clone());
        message.stop_reason = Some(answer.stop_reason);
        let estimated = ReportedUsage {
            input_tokens: asked.count.tokens,
            output_tokens: self.prompt.counter().message(&message).total(),
            ..ReportedUsage::default()
        };
        let usage = match answer.usage {
            Some(reported) => reported.usage(UsageSource::Reported),
            None => estimated.usage(UsageSource::Estimated),
        };
        let prefix_tokens = Some(asked.sent.receipt.prefix_tokens);
        message.usage = Some(Usage { prefix_tokens, ..self.deployment.prices.priced(&asked.model, usage) });
        message.receipt = Some(Box::new(asked.sent.receipt.clone()));
        message
    }
}
