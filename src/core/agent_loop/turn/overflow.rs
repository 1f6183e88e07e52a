//! Failed requests, mainly those that are too large: compact once, retry once, remember the smaller window.

use crate::agent_loop::io::Effect;
use crate::agent_loop::turn::memory::ReportVerdict;
use crate::agent_loop::turn::{Asked, OpenRequest, Turn, answer::keep_shown};
use crate::agent_loop::{ledger::Ledger, prompt::Prompt, prompt::info::usage_ratio, step::FailedRequest, step::Step};
use crate::{
    context::window::told_by_usage,
    model::{Answer, ModelFault, OverflowHint},
    need::Refusal,
};
use reseed_protocol::{
    ErrorCode, Part,
    context::{ContextWarning, ContextWarningCode},
    event::EphemeralEvent,
};

/// Some servers refuse a request that is too large by ending the stream without output. An empty stream counts as such
/// a refusal only above this percentage of the window, and only if no request as large was ever answered. At this
/// share, a window that is configured three times too large is nearly full if the text has one and a half times as many
/// tokens as we estimate.
const SUSPECT_PERCENT: u64 = 20;

impl Turn {
    /// Handles a failed request, and decides whether a compaction may help; one is made once per turn. If an answer
    /// broke off, its shown part is kept and the turn ends, because a second answer would follow the beginning of the
    /// first.
    pub(crate) fn on_fault(&mut self, ledger: &mut Ledger, prompt: &mut Prompt, fault: ModelFault, shown: Vec<Part>) {
        let Some(OpenRequest { item, asked, .. }) = self.asking.take() else { return };
        prompt.request_failed(ledger);
        let Some(turn) = ledger.state().turn.clone() else { return };
        let count = &asked.count;
        self.carried.seen.recall(|| ledger.last_read_tokens());
        let is_kept = keep_shown(ledger, item, &asked, shown, None, fault.code);
        let window = ledger.window_tokens();
        let overflow = fault.code == ErrorCode::ContextOverflow;
        let is_large = count.tokens.saturating_mul(100) >= window.saturating_mul(SUSPECT_PERCENT);
        let is_empty = fault.code == ErrorCode::UpstreamEmpty && is_large;
        let is_unexplained =
            is_unexplained(&fault) && count.tokens.saturating_mul(2) > window && self.carried.seen.has_answer();
        // A server that counts bytes says nothing about its window.
        let is_by_status = fault.overflow == OverflowHint::default() && fault.origin.http_status == Some(413);
        let is_in_bytes = overflow && (fault.refusal.of_bytes || is_by_status);
        let suspect = self.carried.seen.failed(count.tokens, is_empty || is_unexplained);
        if overflow && !is_in_bytes {
            self.learn_window(ledger, prompt, &fault, &asked, window);
        }
        let may_compact = (overflow || suspect) && !is_kept && prompt.manager().is_automatic() && !turn.overflowed;
        let failed = FailedRequest { count: asked.count, fault, may_compact };
        ledger.then(Step::RequestFailed(Box::new(failed)));
    }

    /// Learns the window from a refusal as too large. It uses the numbers that the provider reports. If the provider
    /// reports no window, the size of the refused request is the evidence, in the provider's tokens or otherwise in
    /// ours.
    fn learn_window(
        &mut self,
        ledger: &mut Ledger,
        prompt: &mut Prompt,
        fault: &ModelFault,
        asked: &Asked,
        window: u64,
    ) {
        if asked.model != ledger.state().model {
            return;
        }
        // The request was refused although it fits by our estimate, so it has at least as many tokens as the reported
        // window.
        let beyond = fault.overflow.window_tokens.filter(|window| *window > asked.count.tokens);
        if let Some(refused) = fault.overflow.prompt_tokens.or(beyond) {
            prompt.calibrate(ledger, &asked.model, asked.count.basis.report(refused));
        }
        let refused = fault.overflow.prompt_tokens.unwrap_or(asked.count.tokens.min(window));
        self.carried.seen.refused(refused);
        self.remember_answered_window(ledger, fault.overflow.window_tokens.unwrap_or(refused.saturating_sub(1)));
    }

    /// Compares the reported size of a request with earlier ones. Returns true if it is credible. If the server seems
    /// to drop what is beyond its window, that window is learned, and the user and the operator are warned.
    pub(crate) fn check_report(&mut self, ledger: &mut Ledger, asked: &Asked, input_tokens: u64) -> bool {
        if asked.model != ledger.state().model {
            return true;
        }
        let read_tokens = match self.carried.seen.reported(asked.estimate, input_tokens) {
            ReportVerdict::Plausible => return true,
            ReportVerdict::Flat => return false,
            ReportVerdict::Cut(tokens) => tokens,
        };
        let message = format!(
            "the server of `{}` read {input_tokens} tokens of a request of about {}; it \
             seems to leave out the beginning of the conversation. A window of {read_tokens} tokens is assumed from \
             now on; give the server a larger one, or set MODEL_WINDOWS or CONTEXT_WINDOW",
            asked.model, asked.estimate
        );
        let usage_ratio = usage_ratio(asked.estimate, read_tokens);
        warn_of_truncation(ledger, usage_ratio, message);
        ledger.push(Effect::ContextCut { model: asked.model.clone(), read_tokens, sent_tokens: asked.estimate });
        self.remember_answered_window(ledger, read_tokens);
        false
    }

    /// Remembers a window smaller than the current one, but none smaller than what was answered.
    pub(crate) fn remember_answered_window(&mut self, ledger: &mut Ledger, tokens: u64) {
        self.carried.seen.window_learnt();
        ledger.remember_window(tokens.max(self.carried.seen.window_tokens_min()));
    }

    /// Raises a learned window that was shown to be too small, or that has held for a long time.
    pub(crate) fn review_window(&mut self, ledger: &mut Ledger) {
        let Some(learnt) = ledger.state().settings.learned_window_tokens else { return };
        let Some(tokens) = self.carried.seen.reviewed(learnt) else { return };
        let known = ledger.deployment.windows.tokens(&ledger.state().model);
        ledger.learn_window((tokens < known).then_some(tokens));
    }
}

/// Warns the user that the provider seems to have silently truncated the request. The answer stands, because it was
/// shown. The reported usage is counted, so that the next request is compacted before it would be truncated too.
pub(crate) fn warn_of_cut(ledger: &mut Ledger, answer: &Answer, model: &str) {
    let window = ledger.window_tokens();
    let Some(usage) = answer.usage.filter(|usage| told_by_usage(answer.stop_reason, *usage, window)) else {
        return;
    };
    let message = format!(
        "the server of `{model}` read {} tokens, its window is configured as {window}: it may have left out the \
         beginning of the conversation; if its window is larger, set MODEL_WINDOWS or CONTEXT_WINDOW",
        usage.input_tokens
    );
    let usage_ratio = usage_ratio(usage.input_tokens, window);
    warn_of_truncation(ledger, usage_ratio, message);
}

fn warn_of_truncation(ledger: &mut Ledger, usage_ratio: f64, message: String) {
    let code = Some(ContextWarningCode::ContextTruncatedUpstream);
    ledger.emit(EphemeralEvent::ContextWarning(ContextWarning { usage_ratio, message, code }));
}

/// Returns true if a server refused the whole request without naming a part of it, or if changing the part that it
/// seems to name did not help. If the request is large, its size is a likely cause: it is compacted and sent once more.
fn is_unexplained(fault: &ModelFault) -> bool {
    fault.code == ErrorCode::UpstreamRejected
        && matches!(fault.origin.http_status, Some(400 | 413 | 422))
        && fault.refusal == Refusal::default()
}
