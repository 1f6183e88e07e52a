//! The model's answer: one entry, complete or stopped.

use crate::agent_loop::turn::{Asked, OpenRequest, Turn, overflow::warn_of_cut, written_calls};
use crate::agent_loop::{
    checks::hook_error, ledger::Ledger, prompt::Prompt, records::appended, roster::Roster, step::Step,
    subject::answer::CompleteAnswer,
};
use crate::{
    context::{arguments::meant_arguments, count::answer_report, node::Node},
    hook::HookFault,
    model::{Answer, ReportedUsage},
    need::Need,
};
use reseed_protocol::{
    CallId, EntryData, EntryId, ErrorCode, Message, Part, Role, StopReason, Usage, UsageSource,
    event::EphemeralEvent,
    hooks::{HookFailed, HookPoint},
    receipt::Receipt,
    turn::ItemAborted,
};
use std::sync::Arc;

impl Turn {
    /// Handles the model's answer: appends one entry, then makes its tool calls or ends the turn.
    pub(crate) fn on_answer(&mut self, ledger: &mut Ledger, prompt: &mut Prompt, roster: &Roster, answer: Answer) {
        let Some(OpenRequest { item, asked, .. }) = self.asking.take() else { return };
        if ledger.state().turn.is_none() {
            return;
        }
        if asked.model == ledger.state().model
            && let Some(window_tokens) = self.carried.seen.answered(asked.count.tokens)
        {
            self.remember_answered_window(ledger, window_tokens);
        }
        if asked.model == ledger.state().model && answer.filled_window {
            let reported = answer.usage.map(|usage| usage.input_tokens.saturating_add(usage.output_tokens));
            self.remember_answered_window(ledger, reported.unwrap_or(asked.count.tokens));
        }
        // If the request sent was smaller than the one counted, its report says nothing about counting. An earlier
        // report of the same model lacks what another has sealed, too.
        let has_earlier = asked.count.basis.known_tokens > 0;
        let is_smaller = |need: Need| need.shrinks() && !(has_earlier && need == Need::Foreign);
        let reported = answer.usage.filter(|_| !answer.adapted.iter().any(is_smaller));
        let is_believed = reported.is_none_or(|usage| self.check_report(ledger, &asked, usage.input_tokens));
        self.review_window(ledger);
        warn_of_cut(ledger, &answer, &asked.model);
        let message = answer_message(ledger, &answer, &asked);
        if written_calls::has_call(&message, &asked.sent.tools, |tool| was_named(ledger.path(), tool)) {
            prompt.go_on_without_history(ledger, &asked.model);
        }
        let input_tokens = answer.usage.map(|reported| reported.input_tokens);
        prompt.request_answered(ledger, input_tokens, answer.response.clone());
        if answer.learnt.has(Need::NoTools) {
            prompt.go_on_without_tools(ledger);
        }
        if let Some(reported) = reported.filter(|_| is_believed) {
            prompt.calibrate(ledger, &asked.model, asked.count.basis.report(reported.input_tokens));
            if let Some(report) = answer_report(&message, ledger.counter()) {
                prompt.calibrate(ledger, &asked.model, report);
            }
        }
        // The answer is billed even if it is discarded.
        self.carried.progress(ledger.state()).looked_at_usage.clone_from(&message.usage);
        if let Some(hook) = roster.missing_guard(ledger.state(), &asked.guards) {
            self.discard_uninspected(ledger, hook);
            return;
        }
        let whole = CompleteAnswer { item, message, stop_reason: answer.stop_reason, tools: asked.sent.tools.clone() };
        if roster.has_hooks(ledger, HookPoint::Message, None) {
            Self::look_at_answer(ledger, roster, whole, asked.withheld);
        } else {
            self.append_answer(ledger, prompt, roster, whole);
        }
    }

    /// Handles a stopped answer: the text shown so far becomes an entry marked incomplete.
    pub(crate) fn on_stopped(&mut self, ledger: &mut Ledger, prompt: &mut Prompt, shown: Vec<Part>) {
        let Some(OpenRequest { item, asked, stopped_as: Some(status), .. }) = self.asking.take() else { return };
        prompt.request_failed(ledger);
        keep_shown(ledger, item, &asked, shown, Some(StopReason::Cancelled), ErrorCode::Interrupted);
        ledger.then(Step::stop_turn(status));
    }

    /// Fails the turn because a required hook was unregistered before the model's answer arrived. The answer was not
    /// shown; it is discarded.
    fn discard_uninspected(&self, ledger: &mut Ledger, hook: &str) {
        let fault = HookFault::unavailable("its client no longer offers it");
        let point = HookPoint::Message;
        ledger.emit(EphemeralEvent::HookFailed(HookFailed {
            hook: hook.to_owned(),
            point,
            turn_id: ledger.turn_id(),
            error: fault.error(),
        }));
        ledger.then(Step::fail_turn(hook_error(hook, point.as_str(), &fault)));
    }
}

/// Stores the shown part of an answer that was stopped or broke off, as an entry marked incomplete. Declares an answer
/// without text void. Returns true if an entry was appended.
pub(crate) fn keep_shown(
    ledger: &mut Ledger,
    item: EntryId,
    asked: &Asked,
    shown: Vec<Part>,
    stop_reason: Option<StopReason>,
    void: ErrorCode,
) -> bool {
    // A withheld answer is not stored: hooks have not inspected it.
    if shown.is_empty() || asked.withheld {
        return false;
    }
    // An incomplete tool call is no call, so only readable text is kept.
    let is_readable =
        |part: &Part| matches!(part, Part::Text { text } | Part::Reasoning { text, .. } if !text.is_empty());
    let shown: Vec<Part> = shown.into_iter().filter(is_readable).collect();
    if !shown.iter().any(|part| matches!(part, Part::Text { .. })) {
        let reason = void.as_str().to_owned();
        ledger.emit(EphemeralEvent::ItemAborted(ItemAborted { item_id: item, reason }));
        return false;
    }
    let mut message = Message::new(Role::Assistant, shown);
    message.model = Some(asked.model.clone());
    message.stop_reason = stop_reason;
    message.incomplete = true;
    let turn_id = ledger.turn_id();
    let entry = ledger.entry(item, EntryData::message(message));
    ledger.append(vec![appended(entry, turn_id, None)], Vec::new());
    true
}

fn answer_message(ledger: &mut Ledger, answer: &Answer, asked: &Asked) -> Message {
    let mut content = answer.parts.clone();
    content.retain(|part| !matches!(part, Part::Text { text } if text.is_empty()));
    let mut payload = answer.payload.clone();
    for part in &mut content {
        // Providers reuse call ids across answers; ours are unique.
        if let Part::ToolCall { call_id, arguments, .. } = part {
            let (given, id) = (call_id.clone(), ledger.new_id::<CallId>());
            let calls = payload.iter_mut().flat_map(|payload| &mut payload.calls);
            calls.filter(|call| call.call_id == given).for_each(|call| call.call_id = id.clone());
            *call_id = id;
            let meant = meant_arguments(arguments);
            if meant != arguments.as_str() {
                *arguments = meant.into_owned();
            }
        }
    }
    let mut message = Message::new(Role::Assistant, content);
    message.payload = payload;
    let details = |logprobs: &serde_json::Value| Box::new(serde_json::json!({ "logprobs": logprobs }));
    message.details = answer.logprobs.as_ref().map(details);
    message.model = Some(asked.model.clone());
    message.envelope_key = Some(asked.sent.key.clone());
    message.stop_reason = Some(answer.stop_reason);
    let estimated = ReportedUsage {
        input_tokens: asked.count.tokens,
        output_tokens: ledger.counter().message(&message).total(),
        ..ReportedUsage::default()
    };
    let usage = match answer.usage {
        Some(reported) => reported.usage(UsageSource::Reported),
        None => estimated.usage(UsageSource::Estimated),
    };
    let prefix_tokens = Some(asked.sent.receipt.prefix_tokens);
    message.usage = Some(Usage { prefix_tokens, ..ledger.deployment.prices.priced(&asked.model, usage) });
    let adapted = answer.adapted.iter().map(|need| need.name().to_owned()).collect();
    let receipt = asked.sent.receipt.clone();
    let provider = answer.diagnosis.as_ref().map(|diagnosis| diagnosis.verdict(receipt.broke.as_ref()));
    message.receipt = Some(Box::new(Receipt { adapted, provider, response: answer.response.clone(), ..receipt }));
    message
}

/// Returns true if the user's last message names this tool.
fn was_named(path: &[Arc<Node>], tool: &str) -> bool {
    let mut messages = path.iter().rev().filter_map(|node| node.entry.message());
    let said = messages.find(|message| message.role == Role::User);
    let mut parts = said.iter().flat_map(|message| &message.content);
    parts.any(|part| matches!(part, Part::Text { text } if text.contains(tool)))
}
