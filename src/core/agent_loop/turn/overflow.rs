//! Failed requests, above all those that are too large: compact once, retry once, remember the smaller window.

use crate::agent_loop::io::Effect;
use crate::agent_loop::turn::memory::{ReportVerdict, WindowEvidence};
use crate::agent_loop::turn::{Asked, OpenRequest, Turn};
use crate::agent_loop::{
    ledger::Ledger, prompt::info::usage_ratio, records::session_updated, step::FailedRequest, step::Step,
};
use crate::{
    context::{window::told_by_usage, windows::WINDOW_TOKENS_MIN},
    model::{Answer, ModelFault, OverflowHint},
    need::Refusal,
};
use reseed_protocol::{
    ErrorCode, Part,
    event::{ContextWarning, ContextWarningCode, EphemeralEvent},
};

/// Some servers refuse a request that is too large by ending the stream without output. An empty stream counts as such
/// a refusal only above this percentage of the window, and only if no request as large was ever answered. At this
/// share, a window configured three times too large is full of text that has half as many tokens again as we estimate.
const SUSPECT_PERCENT: u64 = 20;

impl Turn {
    /// Handles a failed request, and says if a compaction may help: one is made once in a turn. An answer that broke
    /// off is kept as far as it was shown, and ends the turn: a second answer would stand behind its beginning.
    pub(crate) fn on_fault(&mut self, ledger: &mut Ledger, fault: ModelFault, shown: Vec<Part>) {
        let Some(OpenRequest { item, asked, .. }) = self.asking.take() else { return };
        ledger.prompt.request_failed();
        let Some(turn) = ledger.session.state.turn.clone() else { return };
        let count = &asked.count;
        self.carried.seen.recall(|| ledger.last_read_tokens());
        let is_kept = ledger.keep_shown(item, &asked, shown, None, fault.code);
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
            ledger.learn_window(&fault, &asked, window, &mut self.carried.seen);
        }
        let may_compact = (overflow || suspect) && !is_kept && ledger.manager().is_automatic() && !turn.overflowed;
        let failed = FailedRequest { count: asked.count, fault, may_compact };
        ledger.then(Step::RequestFailed(Box::new(failed)));
    }
}

/// Returns true if a server refused the whole request, and nothing says for which part of it, or what its words seem to
/// name was changed and cured nothing. If it is large, its size is a likely cause: it is compacted and sent once more.
fn is_unexplained(fault: &ModelFault) -> bool {
    fault.code == ErrorCode::UpstreamRejected
        && matches!(fault.origin.http_status, Some(400 | 413 | 422))
        && fault.refusal == Refusal::default()
}

impl Ledger {
    /// Learns the window from a refusal as too large. Numbers that the provider reports are used; if it reports no
    /// window, the size of the refused request is the evidence, in the provider's tokens or else in ours.
    fn learn_window(&mut self, fault: &ModelFault, asked: &Asked, window: u64, seen: &mut WindowEvidence) {
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
        seen.refused(refused);
        self.remember_answered_window(fault.overflow.window_tokens.unwrap_or(refused.saturating_sub(1)), seen);
    }

    /// Warns the user that the provider seems to have silently truncated the request. The answer stands, since it was
    /// shown; the reported usage is counted, so that the next request is compacted before it would be truncated too.
    pub(crate) fn warn_of_cut(&mut self, answer: &Answer, model: &str) {
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
        self.warn_of_truncation(usage_ratio, message);
    }

    /// Compares the reported size of a request with earlier ones. Returns true if it can be believed. If the server
    /// seems to leave out what is beyond its window, that window is learnt, and the user and the operator are warned.
    pub(crate) fn check_report(&mut self, asked: &Asked, input_tokens: u64, seen: &mut WindowEvidence) -> bool {
        if asked.model != self.session.state.model {
            return true;
        }
        let read_tokens = match seen.reported(asked.estimate, input_tokens) {
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
        self.warn_of_truncation(usage_ratio, message);
        self.push(Effect::ContextCut { model: asked.model.clone(), read_tokens, sent_tokens: asked.estimate });
        self.remember_answered_window(read_tokens, seen);
        false
    }

    fn warn_of_truncation(&mut self, usage_ratio: f64, message: String) {
        let code = Some(ContextWarningCode::ContextTruncatedUpstream);
        self.emit(EphemeralEvent::ContextWarning(ContextWarning { usage_ratio, message, code }));
    }

    /// Remembers a window smaller than the one in use, and none smaller than what was answered.
    pub(crate) fn remember_answered_window(&mut self, tokens: u64, seen: &mut WindowEvidence) {
        seen.window_learnt();
        self.remember_window(tokens.max(seen.window_tokens_min()));
    }

    /// Remembers the window that a refused request for a summary names, and none smaller than what the model's last
    /// answer read.
    pub(crate) fn remember_told_window(&mut self, tokens: u64) {
        let read = self.last_read_tokens().unwrap_or(0);
        self.remember_window(tokens.max(read));
    }

    /// Returns the tokens that the model's last stored answer read.
    fn last_read_tokens(&self) -> Option<u64> {
        let model = &self.session.state.model;
        let path = self.session.tree.path();
        let mut answers = path.iter().rev().filter_map(|node| node.entry.message());
        let answer = answers.find(|message| message.usage.is_some() && message.model.as_ref() == Some(model))?;
        answer.usage.as_ref().map(|usage| usage.input_tokens)
    }

    /// Remembers, for this session, a window smaller than the one in use.
    fn remember_window(&mut self, tokens: u64) {
        let tokens = tokens.max(WINDOW_TOKENS_MIN);
        if tokens < self.window_tokens() {
            self.learn(Some(tokens));
        }
    }

    /// Raises a learnt window that was shown to be too small, or that has held for long.
    pub(crate) fn review_window(&mut self, seen: &mut WindowEvidence) {
        let Some(learnt) = self.session.state.settings.learned_window_tokens else { return };
        let Some(tokens) = seen.reviewed(learnt) else { return };
        let known = self.deployment.windows.tokens(&self.session.state.model);
        self.learn((tokens < known).then_some(tokens));
    }

    fn learn(&mut self, window_tokens: Option<u64>) {
        let mut settings = self.session.state.settings.clone();
        settings.learned_window_tokens = window_tokens;
        self.append(vec![session_updated(|updated| updated.settings = Some(settings))], Vec::new());
    }
}
