//! What is shown: each function turns something of the wire into text, and does nothing else.
//!
//! Every text that the server sent goes through [`clean`]: a model's answer must not steer the terminal.

use super::{branches::text_of, calls::told, keeping::how, lines::HELP};
use crate::cli::terminal::clean;
use reseed_protocol::{
    Entry, EntryData, ErrorBody, ErrorCode, Part, Role, StopReason,
    context::{ContextInfo, CountSource},
    event::{
        CompactionFailed, CompactionPrepared, CompactionRung, CompactionTrigger, ContextCompacted, RequestDelayed,
        TurnFinished, TurnStatus,
    },
    reply::{QueueItem, SessionItem, SessionOpened, SessionState},
};
use std::fmt::Write as _;

/// Characters of the usage bar between its ends.
const BAR_CHARS: u64 = 24;

/// How to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Screen {
    /// True if colours may be used, and with them signs beyond ASCII.
    pub(super) color: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Ink {
    Dim,
    Bold,
    Green,
    Yellow,
    Red,
}

/// One line of a text that may have many.
pub(super) fn one_line(text: &str) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// 1234567 as `1,234,567`.
pub(super) fn number(value: u64) -> String {
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
    pub(super) fn ink(self, ink: Ink, text: &str) -> String {
        if !self.color {
            return text.to_owned();
        }
        let code = match ink {
            Ink::Dim => 2,
            Ink::Bold => 1,
            Ink::Green => 32,
            Ink::Yellow => 33,
            Ink::Red => 31,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Something said by the client itself.
    pub(super) fn note(self, text: &str) -> String {
        self.ink(Ink::Dim, &clean(text))
    }

    /// Something to look at.
    pub(super) fn warning(self, text: &str) -> String {
        self.ink(Ink::Yellow, &clean(text))
    }

    /// A wait before the model server is asked again.
    pub(super) fn delayed(self, delayed: &RequestDelayed) -> String {
        let why = match delayed.reason {
            ErrorCode::UpstreamRateLimited | ErrorCode::UpstreamOverloaded => "is busy",
            ErrorCode::UpstreamUnreachable => "cannot be reached",
            _ => "failed",
        };
        self.note(&format!("the model server {why}; trying again in {} s", delayed.wait_ms.div_ceil(1_000)))
    }

    /// What went wrong.
    pub(super) fn fault(self, fault: &ErrorBody) -> String {
        self.ink(Ink::Red, &format!("error: {} ({})", clean(&fault.message), clean(fault.code.as_str())))
    }

    /// Where we are.
    pub(super) fn opened(self, opened: &SessionOpened) -> String {
        let name = opened.name.as_deref().filter(|name| !name.is_empty());
        let name = name.map(|name| format!(" `{}`", one_line(name))).unwrap_or_default();
        let model = clean(&opened.model);
        self.note(&format!("session {}{name}, model {model}, strategy {}", opened.session_id, clean(&opened.strategy)))
    }

    /// How full the window is, on one line: a bar with a mark where the strategy compacts, percent, tokens. Red is
    /// above that mark; where nothing compacts by itself, red is what the server warns of.
    pub(super) fn usage(self, info: &ContextInfo) -> String {
        let max = info.max_tokens.max(1);
        let place = |tokens: u64| (tokens.saturating_mul(BAR_CHARS) / max).min(BAR_CHARS);
        let mark = info.compact_at_tokens.map(place);
        // A window with anything in it shows at least one full place.
        let full = place(info.token_count).max(u64::from(info.token_count > 0));
        let (full_sign, free_sign, mark_sign) = if self.color { ('█', '░', '│') } else { ('#', '.', '|') };
        let mut bar = String::new();
        for at in 0..BAR_CHARS {
            if mark == Some(at) {
                bar.push(mark_sign);
            }
            bar.push(if at < full { full_sign } else { free_sign });
        }
        let limit = info.compact_at_tokens.unwrap_or(max).min(max);
        let is_over = match info.compact_at_tokens {
            Some(limit) => info.token_count > limit,
            None => info.warning.is_some(),
        };
        let ink = match info.token_count {
            _ if is_over => Ink::Red,
            tokens if tokens.saturating_mul(4) >= limit.saturating_mul(3) => Ink::Yellow,
            _ => Ink::Green,
        };
        let counts =
            format!("{:.1} % {} / {} tokens", percent(info.usage_ratio), number(info.token_count), number(max));
        format!("[{}] {}", self.ink(ink, &bar), self.note(&counts))
    }

    /// What is in the window, a line a kind; kinds without tokens are left out.
    pub(super) fn breakdown(self, info: &ContextInfo) -> String {
        let parts = info.breakdown;
        let source = match info.source {
            CountSource::Reported => "reported",
            CountSource::Estimated => "estimated",
            CountSource::Mixed => "partly estimated",
        };
        let mut out = self.usage(info);
        let bound = if info.error_bound_tokens == 0 {
            String::new()
        } else {
            format!(", at most {} off", number(info.error_bound_tokens))
        };
        let _ = write!(out, "\n{}", self.note(&format!("{source}{bound}")));
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
        let rows = kinds.into_iter().filter(|(_, tokens)| *tokens > 0).chain([("free", free)]);
        for (kind, tokens) in rows {
            let percent = tokens as f64 * 100.0 / info.max_tokens.max(1) as f64;
            let _ = write!(out, "\n  {kind:<13}{:>10} {percent:>6.1} %", number(tokens));
        }
        let compacts = match info.compact_at_tokens {
            Some(tokens) => format!("compacts above {}", number(tokens)),
            None => "never compacts by itself".to_owned(),
        };
        let _ = write!(
            out,
            "\n{}",
            self.note(&format!(
                "{}: {compacts}, reserves {} for the answer, {}",
                clean(&info.strategy),
                number(info.reserved_tokens),
                compacted_times(info.compactions)
            ))
        );
        if let Some(breaker) = &info.breaker {
            let _ = write!(out, "\n{}", self.warning(&breaker.message));
        }
        out
    }

    /// What a compaction did.
    pub(super) fn compacted(self, event: &ContextCompacted) -> String {
        let trigger = match event.trigger {
            CompactionTrigger::Manual => "asked for",
            CompactionTrigger::Threshold => "window filling",
            CompactionTrigger::Overflow => "refused as too large",
            CompactionTrigger::Strategy => "strategy",
        };
        let seconds = event.duration_ms as f64 / 1000.0;
        let gained = self.shrunk(event.tokens_before, event.tokens_after);
        let mut told = vec![trigger.to_owned(), rung(event.rung).to_owned()];
        told.extend(event.background.then(|| "in the background".to_owned()));
        told.push(format!("{seconds:.1} s"));
        told.extend(how(&event.failed_rungs));
        format!("{gained} {}", self.note(&format!("({})", told.join(", "))))
    }

    fn shrunk(self, before: u64, after: u64) -> String {
        let arrow = if self.color { "→" } else { "->" };
        self.ink(Ink::Bold, &format!("context compacted: {} {arrow} {} tokens", number(before), number(after)))
    }

    /// A compaction is prepared, and when it is committed.
    pub(super) fn compaction_prepared(self, event: &CompactionPrepared) -> String {
        let when = match event.compact_at_tokens {
            Some(tokens) => format!("before the first request above {} tokens", number(tokens)),
            None => "when it is due".to_owned(),
        };
        self.note(&format!("a compaction is prepared; the context is compacted {when}"))
    }

    /// Why a compaction did nothing.
    pub(super) fn compaction_failed(self, event: &CompactionFailed) -> String {
        self.warning(&format!("not compacted: {} ({})", event.error.message, event.error.code))
    }

    /// How a turn ended, where that is worth a line, and the bar.
    pub(super) fn turn_finished(self, end: &TurnFinished) -> String {
        let mut lines = Vec::new();
        match (end.status, end.finish_reason) {
            (TurnStatus::Completed, Some(StopReason::Length)) => {
                lines.push(self.warning("the answer was cut at the output limit"));
            }
            (TurnStatus::Completed, Some(StopReason::ContentFilter)) => {
                lines.push(self.warning("the provider's filter cut the answer"));
            }
            (TurnStatus::Completed, _) => {}
            (TurnStatus::Cancelled, _) => lines.push(self.note("cancelled")),
            (TurnStatus::Failed | TurnStatus::Interrupted, _) if end.error.is_some() => {}
            (TurnStatus::Failed, _) => lines.push(self.warning("the turn failed")),
            (TurnStatus::Interrupted, _) => lines.push(self.warning("the turn was interrupted")),
        }
        if let Some(error) = &end.error {
            let again = if error.retriable { "; /retry asks again" } else { "" };
            lines.push(self.fault(error) + &self.note(again));
        }
        lines.push(self.usage(&end.context_info));
        lines.join("\n")
    }

    /// The sessions, numbered; `*` at the open one.
    pub(super) fn sessions(self, items: &[SessionItem], open: Option<&str>, more: bool) -> String {
        if items.is_empty() {
            return self.note("no sessions yet");
        }
        let mut out = String::new();
        for (at, item) in items.iter().enumerate() {
            let mark = if Some(item.session_id.as_str()) == open { '*' } else { ' ' };
            let name = if item.name.is_empty() { "(no name)".to_owned() } else { one_line(&item.name) };
            let state = match item.state {
                SessionState::Idle => "",
                SessionState::Running => ", answering",
                SessionState::Compacting => ", compacting",
            };
            let facts = format!(
                "{}, {} entries, {:.1} %{state}",
                item.session_id,
                number(item.entries),
                percent(item.usage_ratio)
            );
            let _ = writeln!(out, "{mark}{:>3}  {name}  {}", at + 1, self.note(&format!("({facts})")));
        }
        out.push_str(&self.note(if more {
            "there are older ones; /open takes their id"
        } else {
            "/open N goes to one"
        }));
        out
    }

    /// What waits, numbered.
    pub(super) fn queue(self, items: &[QueueItem]) -> String {
        if items.is_empty() {
            return self.note("nothing waits");
        }
        let lines = items.iter().enumerate().map(|(at, item)| {
            let when = if item.steer { self.note(" (with the next request)") } else { String::new() };
            format!("{:>4}  {}{when}", at + 1, one_line(&text_of(&item.content)))
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// An entry of the history, where it is for a person.
    pub(super) fn entry(self, entry: &Entry) -> Option<String> {
        match &entry.data {
            EntryData::Message(message) if message.role == Role::User => {
                Some(format!("{} {}", self.ink(Ink::Bold, ">"), clean(&message.text())))
            }
            EntryData::Message(message) if message.role == Role::Assistant => {
                let mut lines: Vec<String> = Vec::new();
                let text = message.text();
                lines.extend((!text.is_empty()).then(|| clean(&text).into_owned()));
                lines.extend(message.content.iter().filter_map(|part| self.call(part)));
                (!lines.is_empty()).then(|| lines.join("\n"))
            }
            EntryData::Compaction(compaction) => match compaction.tokens_after {
                Some(after) => Some(self.shrunk(compaction.tokens_before, after)),
                None => Some(self.ink(Ink::Bold, "context compacted")),
            },
            EntryData::BranchSummary(_) => {
                Some(self.note("a summary of the branch that was left stands here; /context shows its part"))
            }
            EntryData::CustomMessage(custom) if custom.display => {
                let kind = self.note(&format!("{}:", one_line(&custom.custom_type)));
                Some(format!("{kind} {}", clean(&text_of(&custom.content))))
            }
            EntryData::Label(label) => {
                label.label.as_ref().map(|label| self.note(&format!("label: {}", one_line(label))))
            }
            _ => None,
        }
    }

    /// A tool call, on one line.
    pub(super) fn call(self, part: &Part) -> Option<String> {
        match part {
            Part::ToolCall { name, arguments, .. } => Some(self.note(&format!("calls {}", told(name, arguments)))),
            _ => None,
        }
    }

    /// What the model thinks, as it comes.
    pub(super) fn thought(self, text: &str) -> String {
        self.ink(Ink::Dim, &clean(text))
    }

    /// What stands before what a person types.
    pub(super) fn prompt(self) -> String {
        format!("{} ", self.ink(Ink::Bold, ">"))
    }

    /// The commands.
    pub(super) fn help(self) -> String {
        let lines = HELP.iter().map(|(usage, what)| format!("  {usage:<27} {}", self.note(what)));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Which way of making room a compaction took, for people.
pub(super) fn rung(rung: CompactionRung) -> &'static str {
    match rung {
        CompactionRung::ClearToolResults => "old tool results cleared",
        CompactionRung::Truncate => "the oldest left out",
        CompactionRung::HookSummary => "summarised by a hook",
        CompactionRung::ModelSummary => "summarised by the model",
        CompactionRung::ChunkedSummary => "summarised in pieces",
        CompactionRung::Extract => "extracted by rule",
    }
}

fn compacted_times(count: u64) -> String {
    match count {
        0 => "not compacted yet".to_owned(),
        1 => "compacted once".to_owned(),
        count => format!("compacted {} times", number(count)),
    }
}

/// Returns a share of the window in percent, at most 100.
fn percent(ratio: f64) -> f64 {
    (ratio * 100.0).min(100.0)
}

#[cfg(test)]
mod tests;
