//! Requests that fail, above all because they are too large: compact once, retry once, remember the smaller window.

use super::{AgentLoop, Asked, Effect, Stage, info};
use crate::core::{
    context::{compaction::Order, windows::WINDOW_TOKENS_MIN},
    model::ModelFault,
};
use reseed_protocol::{
    ErrorBody, ErrorCode, Message, Part, Role, Timestamp,
    event::{CompactionTrigger, EphemeralEvent, ItemAborted, TurnStatus},
};

/// A stream that ends without a word is how some servers refuse a request as too large. It is taken for that only
/// above this share of the window, in percent, and when no request as large was ever answered. The share is where a
/// window that is configured three times too large is full of text that counts half as much again as we reckon.
const SUSPECT_PERCENT: u64 = 20;

impl AgentLoop {
    /// The request failed: compact once if it was too large, otherwise the turn ends.
    pub(super) fn on_fault(&mut self, now: Timestamp, fault: &ModelFault) {
        let Stage::Asking { item, asked, .. } = std::mem::replace(&mut self.stage, Stage::Idle) else { return };
        let Some(turn) = self.session.state.turn.clone() else { return };
        let count = &asked.count;
        if fault.shown {
            let reason = fault.code.as_str().to_owned();
            self.out.push(Effect::Emit(EphemeralEvent::ItemAborted(ItemAborted { item_id: item, reason })));
        }
        let window = self.window_tokens();
        let overflow = fault.code == ErrorCode::ContextOverflow;
        let suspect = fault.code == ErrorCode::UpstreamEmpty
            && count.tokens > self.seen.answered_tokens_max
            && count.tokens.saturating_mul(100) >= window.saturating_mul(SUSPECT_PERCENT);
        self.seen.empty_tokens = suspect.then_some(count.tokens);
        if overflow {
            self.learn_window(fault, &asked, window);
        }
        if (overflow || suspect) && self.manager.compacts_on_overflow() && !turn.overflowed {
            let order = Order {
                job_id: self.ids.next_id(),
                trigger: CompactionTrigger::Overflow,
                command_id: None,
                instructions: None,
                free_form: false,
            };
            if self.start_job(now, order, self.manager.keep_tokens(self.window_tokens())).is_ok() {
                return;
            }
        }
        let mut error = if overflow {
            self.does_not_fit(count.tokens, self.window_tokens())
        } else {
            ErrorBody::new(fault.code, fault.message.clone())
        };
        error.retry_after_ms = fault.retry_after_ms;
        self.finish_turn(now, TurnStatus::Failed, None, Some(error), Vec::new());
    }

    /// Learns from a refusal as too large. What the provider says of its numbers is used; where it says nothing of its
    /// window, the refused request itself is the proof, in its units or else in ours.
    fn learn_window(&mut self, fault: &ModelFault, asked: &Asked, window: u64) {
        if asked.model != self.session.state.model {
            return;
        }
        // Refused although we reckoned it to fit: it has at least as many tokens as the window that is told.
        let beyond = fault.overflow.window_tokens.filter(|window| *window > asked.count.tokens);
        if let Some(refused) = fault.overflow.prompt_tokens.or(beyond) {
            self.calibrate(&asked.model, asked.count.estimated, refused);
        }
        let refused = fault.overflow.prompt_tokens.unwrap_or(asked.count.tokens.min(window));
        self.remember_window(fault.overflow.window_tokens.unwrap_or(refused.saturating_sub(1)));
    }

    /// Remembers, for this session, a window that is smaller than the one in use.
    pub(super) fn remember_window(&mut self, tokens: u64) {
        let tokens = tokens.max(WINDOW_TOKENS_MIN);
        if tokens >= self.window_tokens() {
            return;
        }
        let mut settings = self.session.state.settings.clone();
        settings.learned_window_tokens = Some(tokens);
        self.append(vec![info::session_updated(|updated| updated.settings = Some(settings))], Vec::new());
    }

    pub(super) fn does_not_fit(&self, tokens: u64, window: u64) -> ErrorBody {
        let remedy = if self.gave_up {
            "and compacting it failed just before; send retry_turn to try again"
        } else if self.manager.compacts_on_overflow() {
            "and what could be compacted is too little; say less at once, or choose a model with a larger window"
        } else {
            "and the strategy `manual` never compacts by itself; send manual_compact, then retry_turn"
        };
        ErrorBody::new(
            ErrorCode::ContextOverflow,
            format!("the next request has about {tokens} tokens, the window {window}, {remedy}"),
        )
    }

    /// Refuses input that no compaction could make room for.
    pub(super) fn check_fits(&self, parts: &[Part]) -> Result<(), ErrorBody> {
        let message = Message::new(Role::User, parts.to_vec());
        let estimated = self.counter.message(&message).total();
        let least = self.calibration.apply(estimated).saturating_sub(self.calibration.error_bound(estimated));
        let window = self.window_tokens();
        if least > window {
            let text = format!(
                "the input has about {estimated} tokens, the window of `{}` {window}; send less",
                self.session.state.model
            );
            return Err(ErrorBody::new(ErrorCode::InputTooLarge, text).with_field("input"));
        }
        Ok(())
    }
}
