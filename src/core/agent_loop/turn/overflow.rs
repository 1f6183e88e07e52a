//! Failed requests, above all those that are too large: compact once, retry once, remember the smaller window.

use crate::{
    agent_loop::{
        AgentLoop,
        compaction::Compactor,
        prompt::usage_ratio,
        records::session_updated,
        step::Step,
        turn::{Asked, OpenRequest},
        workspace::Workspace,
    },
    context::{RequestCount, cut::must_stay, structure::Structure, window::told_by_usage, windows::WINDOW_TOKENS_MIN},
    model::{Answer, ModelFault},
};
use reseed_protocol::{
    ErrorBody, ErrorCode,
    event::{ContextWarning, EphemeralEvent, ItemAborted},
};

/// Some servers refuse a request that is too large by ending the stream without output. An empty stream counts as such
/// a refusal only above this percentage of the window, and only if no request as large was ever answered. At this
/// share, a window configured three times too large is full of text that has half as many tokens again as we estimate.
const SUSPECT_PERCENT: u64 = 20;

impl AgentLoop {
    /// Handles a failed request: compacts once if it was too large, otherwise ends the turn.
    pub(in crate::agent_loop) fn on_fault(&mut self, fault: &ModelFault) {
        let Some(OpenRequest { item, asked, .. }) = self.turn.asking.take() else { return };
        self.ws.prompt.request_failed();
        let Some(turn) = self.ws.session.state.turn.clone() else { return };
        let count = &asked.count;
        if fault.shown && !asked.withheld {
            let reason = fault.code.as_str().to_owned();
            self.ws.emit(EphemeralEvent::ItemAborted(ItemAborted { item_id: item, reason }));
        }
        let window = self.ws.window_tokens();
        let overflow = fault.code == ErrorCode::ContextOverflow;
        let is_large = count.tokens.saturating_mul(100) >= window.saturating_mul(SUSPECT_PERCENT);
        let suspect = self.turn.carried.seen.failed(count.tokens, fault.code == ErrorCode::UpstreamEmpty && is_large);
        if overflow {
            self.ws.learn_window(fault, &asked, window);
        }
        if (overflow || suspect)
            && self.ws.manager().is_automatic()
            && !turn.overflowed
            && self.make_room_for_refused(count)
        {
            return;
        }
        let mut error = if overflow {
            self.compaction.does_not_fit(&self.ws, count, self.ws.window_tokens())
        } else {
            ErrorBody::new(fault.code, fault.message.clone())
        };
        error.retry_after_ms = fault.retry_after_ms;
        self.ws.then(Step::fail_turn(error));
    }
}

impl Compactor {
    /// Returns the error for a request that does not fit: the tokens of each part, and what would help.
    pub(in crate::agent_loop) fn does_not_fit(&self, ws: &Workspace, count: &RequestCount, window: u64) -> ErrorBody {
        let context = ws.context();
        let structure = Structure::of(&context);
        let stays = must_stay(&context, &structure);
        let last = structure.last_input(&context);
        let cost = |is_part: &dyn Fn(usize) -> bool| {
            let units = structure.units.iter().enumerate().filter(|(at, _)| is_part(*at));
            ws.prompt.in_tokens(units.map(|(_, unit)| unit.tokens).sum())
        };
        let pinned = cost(&|at| stays[at] && Some(at) != last);
        let last_input = cost(&|at| Some(at) == last);
        let fixed = ws.prompt.fixed();
        let (system, tools) = (ws.prompt.in_tokens(fixed.system), ws.prompt.in_tokens(fixed.tools));
        let rest = count.tokens.saturating_sub(system + tools + pinned + last_input);
        let remedy = if system + tools + pinned + last_input > window {
            "no compaction can make that fit: shorten the largest of these, or choose a model with a larger window"
        } else if self.gave_up() {
            "compaction has just failed; send retry_turn to try again, or compact the context first"
        } else if ws.manager().is_automatic() {
            "what could be compacted is too little; say less at once, or choose a model with a larger window"
        } else {
            "the strategy `manual` never compacts by itself; compact the context, then send retry_turn"
        };
        let message = format!(
            "the next request has about {} tokens, the window {window}: system prompt {system}, tools {tools}, pinned \
             entries {pinned}, the last input {last_input}, the rest {rest}; {remedy}",
            count.tokens
        );
        ErrorBody::new(ErrorCode::ContextOverflow, message).with_details(serde_json::json!({
            "tokens": count.tokens,
            "windowTokens": window,
            "system": system,
            "tools": tools,
            "pinned": pinned,
            "lastInput": last_input,
            "rest": rest,
        }))
    }
}

impl Workspace {
    /// Learns the window from a refusal as too large. Numbers that the provider reports are used; if it reports no
    /// window, the size of the refused request is the evidence, in the provider's tokens or else in ours.
    fn learn_window(&mut self, fault: &ModelFault, asked: &Asked, window: u64) {
        if asked.model != self.session.state.model {
            return;
        }
        // The request was refused although by our estimate it fits: it has at least as many tokens as the reported
        // window.
        let beyond = fault.overflow.window_tokens.filter(|window| *window > asked.count.tokens);
        if let Some(refused) = fault.overflow.prompt_tokens.or(beyond) {
            self.calibrate(&asked.model, asked.count.basis.report(refused));
        }
        let refused = fault.overflow.prompt_tokens.unwrap_or(asked.count.tokens.min(window));
        self.remember_window(fault.overflow.window_tokens.unwrap_or(refused.saturating_sub(1)));
    }

    /// Warns the user that the provider seems to have silently truncated the request. The answer stands, since it was
    /// shown; the reported usage is counted, so that the next request is compacted before it would be truncated too.
    pub(in crate::agent_loop) fn warn_of_cut(&mut self, answer: &Answer, model: &str) {
        let window = self.window_tokens();
        let Some(usage) = answer.usage.filter(|usage| told_by_usage(answer.stop_reason, *usage, window)) else {
            return;
        };
        let message = format!(
            "the server of `{model}` read {} tokens, its window is configured as {window}: it may have left out the \
             beginning of the conversation; if its window is larger, set MODEL_WINDOWS or CONTEXT_WINDOW",
            usage.input_tokens
        );
        let usage_ratio = usage_ratio(usage.input_tokens, window);
        self.emit(EphemeralEvent::ContextWarning(ContextWarning { usage_ratio, message }));
    }
}

impl Workspace {
    /// Remembers, for this session, a window smaller than the one in use.
    pub(in crate::agent_loop) fn remember_window(&mut self, tokens: u64) {
        let tokens = tokens.max(WINDOW_TOKENS_MIN);
        if tokens >= self.window_tokens() {
            return;
        }
        let mut settings = self.session.state.settings.clone();
        settings.learned_window_tokens = Some(tokens);
        self.append(vec![session_updated(|updated| updated.settings = Some(settings))], Vec::new());
    }
}
