//! The texts that are shown. Each function converts something of the wire to text, and does nothing else.
//!
//! Text from the server passes through [`clean`], or through [`visible`] if the user must decide about it, because a
//! model's text must not control the terminal.

use crate::{
    cli::terminal::clean,
    core::{approval::visible, session::preview},
};
use reseed_protocol::{
    Entry, EntryData, ErrorBody, ErrorCode, Part, Role, StopReason,
    compaction::{CompactionRung, CompactionTrigger, ContextCompacted},
    context::{ContextInfo, CountSource},
    session::SessionOpened,
    tools::Approval,
    turn::{BudgetNotice, RequestDelayed, TurnFinished, TurnStatus},
};
use serde_json::Value;
use std::fmt::Write as _;

/// The lines of `/help`.
pub(super) const HELP: &[(&str, &str)] = &[
    ("/context", "what is in the window, by kind"),
    ("/compact [INSTRUCTIONS]", "summarise the older part now"),
    ("/undo", "take the last compaction back"),
    ("/retry", "ask again after a failure"),
    ("/allow [always]", "let the tool run that asks; always: every later call that is exactly the same, too"),
    ("/reject [always|stop] [WHY]", "do not let it run; the model reads why; stop ends the answer"),
    ("/help", "this list"),
    ("/quit", "leave; the session stays"),
    ("//TEXT", "say a text that begins with a slash"),
];

/// The server's beginning of a result whose call was never made.
const NOT_MADE: &str = "Not called: ";

/// The style of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Screen {
    /// True if colours may be used.
    pub(super) color: bool,
}

/// Formats 1234567 as `1,234,567`.
fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl Screen {
    fn ink(self, code: u8, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{}\x1b[0m", clean(text)) } else { clean(text).into_owned() }
    }

    /// Formats a note of the client, or the model's reasoning.
    pub(super) fn note(self, text: &str) -> String {
        self.ink(2, text)
    }

    pub(super) fn warning(self, text: &str) -> String {
        self.ink(33, text)
    }

    pub(super) fn fault(self, fault: &ErrorBody) -> String {
        self.ink(31, &format!("error: {} ({})", fault.message, fault.code))
    }

    /// Formats a wait before the model server is called again.
    pub(super) fn delayed(self, delayed: &RequestDelayed) -> String {
        let why = match delayed.reason {
            ErrorCode::UpstreamRateLimited | ErrorCode::UpstreamOverloaded => "is busy",
            ErrorCode::UpstreamUnreachable => "cannot be reached",
            _ => "failed",
        };
        self.note(&format!("the model server {why}; trying again in {} s", delayed.wait_ms.div_ceil(1_000)))
    }

    /// Formats the share of a budget that is used.
    pub(super) fn budget(self, notice: &BudgetNotice) -> String {
        let BudgetNotice { budget, per, percent, refills_at } = notice;
        let refills = refills_at.map(|time| format!("; it is filled again at {time}")).unwrap_or_default();
        self.note(&format!("{percent} % of the budget of the {budget} per {per} is used{refills}"))
    }

    /// Describes the session that was opened.
    pub(super) fn opened(self, opened: &SessionOpened) -> String {
        let name = opened.name.as_deref().filter(|name| !name.is_empty());
        let name = name.map(|name| format!(" `{}`", preview::one_line(name))).unwrap_or_default();
        let SessionOpened { session_id, model, strategy, .. } = opened;
        self.note(&format!("session {session_id}{name}, model {model}, strategy {strategy}"))
    }

    /// Formats how full the window is.
    pub(super) fn usage(self, info: &ContextInfo) -> String {
        let percent = (info.usage_ratio * 100.0).min(100.0);
        let counts = format!("{} / {} tokens", number(info.token_count), number(info.max_tokens));
        self.note(&format!("context: {percent:.1} %, {counts}"))
    }

    /// Formats the contents of the window, one line per kind, without kinds that have no tokens.
    pub(super) fn breakdown(self, info: &ContextInfo) -> String {
        let parts = info.breakdown;
        let source = match info.source {
            CountSource::Reported => "reported",
            CountSource::Estimated => "estimated",
            CountSource::Mixed => "partly estimated",
        };
        let mut out = format!("{} {}", self.usage(info), self.note(&format!("({source})")));
        let kinds = [
            ("system", parts.system),
            ("tools", parts.tools),
            ("summary", parts.summary),
            ("user", parts.user),
            ("assistant", parts.assistant),
            ("reasoning", parts.reasoning),
            ("tool results", parts.tool_results),
            ("images", parts.images),
            ("uncached", parts.uncached),
        ];
        let free = info.max_tokens.saturating_sub(info.token_count);
        for (kind, tokens) in kinds.into_iter().filter(|(_, tokens)| *tokens > 0).chain([("free", free)]) {
            let _ = write!(out, "\n  {kind:<13}{:>10}", number(tokens));
        }
        let compacts = match info.compact_at_tokens {
            Some(tokens) => format!("compacts above {}", number(tokens)),
            None => "never compacts by itself".to_owned(),
        };
        let made = format!("{}: {compacts}; compactions so far: {}", info.strategy, number(info.compactions));
        out = out + "\n" + &self.note(&made);
        match &info.breaker {
            Some(breaker) => out + "\n" + &self.warning(&breaker.message),
            None => out,
        }
    }

    /// Formats the effect of a compaction.
    pub(super) fn compacted(self, event: &ContextCompacted) -> String {
        let trigger = match event.trigger {
            CompactionTrigger::Manual => "asked for",
            CompactionTrigger::Threshold => "window filling",
            CompactionTrigger::Overflow => "refused as too large",
            CompactionTrigger::Strategy => "strategy",
        };
        let way = match event.rung {
            CompactionRung::ClearToolResults => "old tool results cleared",
            CompactionRung::Truncate => "the oldest left out",
            CompactionRung::HookSummary => "summarised by a hook",
            CompactionRung::ProviderNative => "compacted by the provider",
            CompactionRung::ModelSummary => "summarised by the model",
            CompactionRung::ChunkedSummary => "summarised in pieces",
            CompactionRung::Extract => "extracted by rule",
        };
        let (before, after) = (number(event.tokens_before), number(event.tokens_after));
        let seconds = event.duration_ms as f64 / 1000.0;
        self.note(&format!("context compacted: {before} -> {after} tokens ({trigger}, {way}, {seconds:.1} s)"))
    }

    /// Formats the end of a turn, if it is worth a line, and how full the window is.
    pub(super) fn turn_finished(self, end: &TurnFinished) -> String {
        let how = match (end.status, end.finish_reason) {
            (TurnStatus::Completed, Some(StopReason::Length)) => self.warning("the answer was cut at the output limit"),
            (TurnStatus::Completed, Some(StopReason::ContentFilter)) => {
                self.warning("the provider's filter cut the answer")
            }
            (TurnStatus::Completed, _) => String::new(),
            (TurnStatus::Cancelled, _) => self.note("cancelled"),
            (TurnStatus::Failed, _) => self.warning("the turn failed"),
            (TurnStatus::Interrupted, _) => self.warning("the turn was interrupted"),
        };
        let how = match &end.error {
            Some(error) if error.retriable => self.fault(error) + &self.note("; /retry asks again"),
            Some(error) => self.fault(error),
            None => how,
        };
        let usage = self.usage(&end.context_info);
        if how.is_empty() { usage } else { format!("{how}\n{usage}") }
    }

    /// Formats an entry; `None` if it is not for people.
    pub(super) fn entry(self, entry: &Entry) -> Option<String> {
        let EntryData::Message(message) = &entry.data else {
            let is_compaction = matches!(entry.data, EntryData::Compaction(_));
            return is_compaction.then(|| self.note("context compacted"));
        };
        let mut lines = Vec::new();
        let text = message.text();
        if message.role == Role::User {
            lines.push(format!("> {}", clean(&text)));
        } else if !text.is_empty() {
            lines.push(clean(&text).into_owned());
        }
        lines.extend(message.content.iter().filter_map(|part| self.call(part)));
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// Formats a tool call, or its failure, as one line.
    pub(super) fn call(self, part: &Part) -> Option<String> {
        match part {
            Part::ToolCall { name, arguments, .. } => {
                Some(self.note(&format!("calls {}", preview::one_line(&visible(&format!("{name} {arguments}"))))))
            }
            Part::ToolResult { output, is_error: true, .. } if output.starts_with(NOT_MADE) => {
                Some(self.note("the tool was not run"))
            }
            Part::ToolResult { output, is_error: true, .. } => {
                Some(self.warning(&format!("the tool failed: {}", preview::one_line(output))))
            }
            _ => None,
        }
    }

    /// Formats the question about a call: exactly what would be called, why permission is needed, and how to answer.
    pub(super) fn question(self, approval: &Approval) -> String {
        let Approval { name, reason, display, proposed_arguments, expires_at, .. } = approval;
        let mut lines = vec![self.warning(&visible(&format!("the tool {name} asks first: {reason}")))];
        // In JSON, a patch, a script or a file is a single line.
        lines.extend(texts_in_lines(display).iter().map(|text| inset(text)));
        lines.push(inset(display));
        if let Some(proposed) = proposed_arguments {
            lines.push(self.note("a hook has changed the arguments; the model wrote:"));
            lines.push(inset(proposed));
        }
        lines.push(self.note("/allow [always] or /y, /reject [always|stop] [WHY] or /n;"));
        lines.push(self.note("always means in this session, for exactly this call"));
        lines.push(self.note(&format!("without an answer until {expires_at} it is not run")));
        lines.join("\n")
    }

    /// Lists the commands.
    pub(super) fn help(self) -> String {
        let lines = HELP.iter().map(|(usage, what)| format!("  {usage:<27} {}", self.note(what)));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Returns the texts of several lines in a call's arguments.
fn texts_in_lines(arguments: &str) -> Vec<String> {
    fn collect(value: Value, found: &mut Vec<String>) {
        match value {
            Value::String(text) if text.contains('\n') => found.push(text),
            Value::Array(items) => items.into_iter().for_each(|item| collect(item, found)),
            Value::Object(fields) => fields.into_iter().for_each(|(_, field)| collect(field, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(serde_json::from_str(arguments).unwrap_or_default(), &mut found);
    found
}

/// Returns the text in lines indented by two spaces, with hidden characters written out.
fn inset(text: &str) -> String {
    visible(text).lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
