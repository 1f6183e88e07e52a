//! The token count that the meter, the trigger and the report share: the size of the exact next request.
//!
//! The count starts from the usage that the provider last reported for the same prefix, and adds an estimate of the
//! rest. A report from before a compaction, a model change, or a change of system prompt or tools is stale and ignored.

use crate::context::{
    counter::{Calibration, Counter, Method, Mix, Report, ReportScope},
    messages::{Context, Counted, Kind},
};
use reseed_protocol::{
    EntryId, Message, Part, Role, UsageSource,
    context::{Breakdown, CountSource, ToolDefinition},
};

/// A report that differs from the estimate by more than this factor either way is ignored, because some servers invent
/// counts. Real tokenizers stay within it even for scripts that they handle badly.
const PLAUSIBLE_FACTOR: u64 = 8;

/// Estimated tokens of everything that is sent besides the messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fixed {
    /// The system prompt and the overhead of any request.
    pub system: u64,
    /// The tool definitions.
    pub tools: u64,
    /// Both, by composition.
    pub mix: Mix,
    /// The system prompt and the tools as a provider's report includes them. Other rules may count them as free. If
    /// such rules use a report unchanged, these tokens would otherwise be attributed to the messages.
    pub in_reports: (u64, u64),
}

impl Fixed {
    /// Counts everything that is sent besides the messages.
    #[must_use]
    pub fn counted(counter: &Counter, system: &str, tools: &[ToolDefinition]) -> Self {
        let overhead = counter.request_overhead();
        let fixed = Self {
            system: counter.system(system) + overhead,
            tools: tools.iter().map(|tool| counter.tool(tool)).sum(),
            ..Self::default()
        };
        let prompt = if fixed.system == 0 { counter.text(system) } else { fixed.system };
        let in_reports = (prompt, tools.iter().map(|tool| counter.tool_in_reports(tool)).sum());
        // Under other rules, both may be free.
        let is_free = fixed.system == 0;
        let mut mix = if is_free { Mix::default() } else { Mix::of_text(&counter.scripts(system)) };
        mix.add_frame(fixed.system.saturating_sub(mix.total()));
        mix.add_tools(fixed.tools);
        Self { mix, in_reports, ..fixed }
    }

    /// Returns the shares of the system prompt and the tools in a count, with or without a report.
    #[must_use]
    pub fn shares(&self, has_report: bool) -> (u64, u64) {
        if has_report { self.in_reports } else { (self.system, self.tools) }
    }

    /// Returns the estimated tokens of both.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.system.saturating_add(self.tools)
    }
}

/// The conditions under which a report is valid for the next request.
#[derive(Debug, Clone, Copy)]
pub struct Freshness<'a> {
    /// The model that will be asked.
    pub model: &'a str,
    /// Key of the system prompt and the tools that will be sent.
    pub envelope_key: &'a str,
}

/// The token count of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestCount {
    /// The total.
    pub tokens: u64,
    /// By kind; adds up to `tokens`.
    pub breakdown: Breakdown,
    /// How it was obtained.
    pub source: CountSource,
    /// The part that the provider reported.
    pub usage_tokens: u64,
    /// The part that was estimated after the report.
    pub trailing_tokens: u64,
    /// The entry whose report was used.
    pub last_usage_entry_id: Option<EntryId>,
    /// Tokens of the last request that came from the provider's cache.
    pub cached_tokens: u64,
    /// Error bound of the total, either way.
    pub error_bound_tokens: u64,
    /// Number of messages in the request.
    pub messages: u64,
    /// Number of user messages, without those that a compaction kept one by one.
    pub turns: u64,
    /// The basis with which the report of this request will be compared.
    pub basis: CountBasis,
}

/// The known and the estimated part of a request before it is sent. Its report reveals the true size of the estimated
/// part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountBasis {
    /// Tokens known from an earlier report; 0 without one.
    pub known_tokens: u64,
    /// The estimated rest, before calibration.
    pub rest: Mix,
    /// The estimation method.
    pub method: Method,
}

impl CountBasis {
    /// Returns what the calibration learns from the provider's count of the request; nothing if the count is below the
    /// known part.
    #[must_use]
    pub fn report(&self, input_tokens: u64) -> Report {
        Report {
            method: self.method,
            of: if self.known_tokens == 0 { ReportScope::Whole } else { ReportScope::Added },
            mix: self.rest,
            tokens: input_tokens.saturating_sub(self.known_tokens),
        }
    }
}

/// Counts the next request.
#[must_use]
pub fn count(
    context: &Context,
    fixed: Fixed,
    fresh: Freshness<'_>,
    counter: &Counter,
    calibration: &Calibration,
) -> RequestCount {
    let (messages, uncached) = (&context.messages, &context.uncached);
    let anchor = newest_report(messages, fixed, fresh, counter);
    let raw = breakdown(context, fixed.shares(anchor.is_some()), fresh.model);
    let (rest, known) = match &anchor {
        None => {
            let mut rest = fixed.mix;
            messages.iter().chain(uncached).for_each(|counted| rest.add_message(&counted.tokens_for(fresh.model)));
            (rest, 0)
        }
        Some(anchor) => (added(messages[anchor.at + 1..].iter().chain(uncached), counter), anchor.tokens),
    };
    let estimate = calibration.tokens(&rest);
    let source = match &anchor {
        None => CountSource::Estimated,
        Some(_) if rest.total() == 0 => CountSource::Reported,
        Some(_) => CountSource::Mixed,
    };
    let tokens = known.saturating_add(estimate);
    let usage = anchor.as_ref().and_then(|anchor| messages[anchor.at].message.usage.as_ref());
    let basis = match &anchor {
        Some(anchor) => anchor.basis(messages, rest, counter, calibration),
        None => CountBasis { known_tokens: 0, rest, method: counter.method() },
    };
    RequestCount {
        tokens,
        breakdown: scaled(raw, tokens),
        source,
        usage_tokens: known,
        trailing_tokens: tokens - known,
        last_usage_entry_id: anchor.as_ref().and_then(|anchor| messages[anchor.at].entry_id.clone()),
        cached_tokens: usage.map_or(0, |usage| usage.cached_tokens),
        error_bound_tokens: calibration.error_bound(&rest),
        messages: (messages.len() + uncached.len()) as u64,
        turns: messages.iter().filter(|counted| counted.is_input && counted.kind != Kind::Beside).count() as u64,
        basis,
    }
}

/// Returns the key of everything that a request sends before its answer: the system prompt and the tools by their key,
/// and the messages. A report is valid only while exactly this is sent before it: not after a compaction, and not after
/// one is undone.
#[must_use]
pub fn sent_key(envelope_key: &str, context: &Context) -> String {
    let sent = context.messages.iter().chain(&context.uncached);
    sent.fold(SENT_NOTHING, |sent, counted| sent.and(counted)).key(envelope_key)
}

/// A running fingerprint (FNV-1a, 64 bits) of the messages sent, by entry and size; for messages that a patch changed
/// or added, also by content.
#[derive(Clone, Copy)]
struct SentHash(u64);

const SENT_NOTHING: SentHash = SentHash(0xcbf2_9ce4_8422_2325);

impl SentHash {
    fn and(self, counted: &Counted) -> Self {
        let id = counted.entry_id.as_ref().map_or("-", EntryId::as_str);
        let said = counted.patched.then_some(counted.hash);
        let bytes = id.bytes().map(u64::from).chain([counted.tokens.total()]).chain(said);
        Self(bytes.fold(self.0, |sum, byte| (sum ^ byte).wrapping_mul(0x0100_0000_01b3)))
    }

    fn key(self, envelope_key: &str) -> String {
        format!("{envelope_key}-{:016x}", self.0)
    }

    /// Returns true if an answer was made for exactly this content. Answers of older versions only identify the system
    /// prompt and tools.
    fn is_of(self, key: &str, envelope_key: &str) -> bool {
        match key.strip_prefix(envelope_key) {
            Some("") => true,
            Some(rest) => rest.strip_prefix('-').and_then(|sent| u64::from_str_radix(sent, 16).ok()) == Some(self.0),
            None => false,
        }
    }
}

/// Estimates the tokens after a report. The estimate ends with the overhead of starting an answer, because the earlier
/// overhead became part of the reported answer.
fn added<'a>(messages: impl IntoIterator<Item = &'a Counted>, counter: &Counter) -> Mix {
    let mut mix = Mix::default();
    let mut messages = messages.into_iter().peekable();
    if messages.peek().is_some() {
        mix.add_frame(counter.request_overhead());
    }
    messages.for_each(|counted| mix.add_message(&counted.tokens));
    mix
}

/// The newest valid report.
struct Anchor {
    at: usize,
    /// Tokens of the request and of the part of its answer that is sent back.
    tokens: u64,
}

impl Anchor {
    /// Returns the basis for the next report: what was added since the answer. If the reported size of the answer is
    /// implausible, the answer itself is included, because some servers count reasoning that they do not show.
    fn basis(&self, messages: &[Counted], rest: Mix, counter: &Counter, calibration: &Calibration) -> CountBasis {
        let method = counter.method();
        let basis = CountBasis { known_tokens: self.tokens, rest, method };
        let answer = &messages[self.at];
        let Some(usage) = answer.message.usage.as_ref().filter(|usage| usage.input_tokens > 0) else { return basis };
        let written = counter.written(&answer.tokens);
        let reported = self.tokens.saturating_sub(usage.input_tokens);
        if calibration.is_believable(&written, reported) {
            return basis;
        }
        let mut with_answer = rest;
        with_answer.add_message(&answer.tokens);
        CountBasis { known_tokens: usage.input_tokens, rest: with_answer, method }
    }
}

fn newest_report(messages: &[Counted], fixed: Fixed, fresh: Freshness<'_>, counter: &Counter) -> Option<Anchor> {
    let trusts = counter.trusts_reports();
    let (mut sent, mut prefix) = (SENT_NOTHING, fixed.total());
    let mut newest = None;
    for (at, counted) in messages.iter().enumerate() {
        let report = report(counted, fresh, sent, trusts);
        sent = sent.and(counted);
        prefix = prefix.saturating_add(counted.tokens_for(fresh.model).total());
        let Some(tokens) = report else { continue };
        let plausible = trusts
            || tokens.saturating_mul(PLAUSIBLE_FACTOR) >= prefix && tokens <= prefix.saturating_mul(PLAUSIBLE_FACTOR);
        if plausible {
            newest = Some(Anchor { at, tokens });
        }
    }
    newest
}

/// Returns what the provider reported for the prefix up to and including this answer, if that is still valid or if
/// `trusts` makes every report valid.
fn report(counted: &Counted, fresh: Freshness<'_>, sent: SentHash, trusts: bool) -> Option<u64> {
    let message = &counted.message;
    let usage = message.usage.as_ref().filter(|usage| usage.source == UsageSource::Reported)?;
    if counted.kind != Kind::Recent || message.role != Role::Assistant || usage.total_tokens() == 0 {
        return None;
    }
    if trusts {
        return Some(usage.total_tokens()).filter(|_| !message.incomplete);
    }
    let holds = message.model.as_deref() == Some(fresh.model)
        && message.envelope_key.as_deref().is_some_and(|key| sent.is_of(key, fresh.envelope_key));
    holds.then(|| usage.total_tokens().saturating_sub(not_sent_back(counted)))
}

/// Returns the tokens of an answer that are paid for but not sent back: reasoning that the provider does not want back.
/// If it is shown but not counted separately, its estimate is used.
fn not_sent_back(counted: &Counted) -> u64 {
    let message = &counted.message;
    let goes_back = message.payload.as_ref().is_some_and(|own| own.reasoning.is_some() || own.fields.is_some());
    let sent_back = goes_back || has_sealed(message);
    let reported = message.usage.as_ref().and_then(|usage| usage.reasoning_tokens);
    if sent_back { 0 } else { reported.unwrap_or(u64::from(counted.tokens.unsent)) }
}

fn has_sealed(message: &Message) -> bool {
    message.content.iter().any(|part| matches!(part, Part::Reasoning { payload: Some(_), .. }))
}

/// Returns what the calibration learns from the size of an answer.
#[must_use]
pub fn answer_report(message: &Message, counter: &Counter) -> Option<Report> {
    let usage = message.usage.as_ref().filter(|usage| usage.source == UsageSource::Reported)?;
    let tokens = counter.message(message);
    // Opaque reasoning is paid for, but its size cannot be estimated.
    let is_opaque = has_sealed(message) || message.payload.as_ref().is_some_and(|own| own.fields.is_some());
    let thought = usage.reasoning_tokens.unwrap_or(u64::from(tokens.unsent) + tokens.reasoning);
    (!is_opaque).then(|| Report {
        method: counter.method(),
        of: ReportScope::Answer,
        mix: counter.written(&tokens),
        tokens: usage.output_tokens.saturating_sub(thought),
    })
}

fn breakdown(context: &Context, (system, tools): (u64, u64), model: &str) -> Breakdown {
    let uncached = context.uncached.iter().map(|counted| counted.tokens.total()).sum();
    let mut sum = Breakdown { system, tools, uncached, ..Breakdown::default() };
    for counted in &context.messages {
        let tokens = counted.tokens_for(model);
        let text = match (counted.kind, counted.message.role) {
            (Kind::Summary, _) => {
                sum.summary += tokens.total();
                continue;
            }
            (_, Role::User) => &mut sum.user,
            (_, Role::Assistant) => &mut sum.assistant,
            (_, Role::Tool) => &mut sum.tool_results,
        };
        *text += tokens.text;
        sum.reasoning += tokens.reasoning;
        sum.images += tokens.images;
    }
    sum
}

/// Scales the kinds so that they add up to the count; the rounding remainder goes to the largest.
fn scaled(raw: Breakdown, tokens: u64) -> Breakdown {
    let total = raw.total();
    if total == tokens || total == 0 {
        return if total == 0 { Breakdown { system: tokens, ..raw } } else { raw };
    }
    let part = |kind: u64| u64::try_from(u128::from(kind) * u128::from(tokens) / u128::from(total)).unwrap_or(u64::MAX);
    let mut scaled = Breakdown {
        system: part(raw.system),
        tools: part(raw.tools),
        summary: part(raw.summary),
        user: part(raw.user),
        assistant: part(raw.assistant),
        reasoning: part(raw.reasoning),
        tool_results: part(raw.tool_results),
        images: part(raw.images),
        uncached: part(raw.uncached),
    };
    let rest = tokens - scaled.total();
    let kinds = [
        &mut scaled.system,
        &mut scaled.tools,
        &mut scaled.summary,
        &mut scaled.user,
        &mut scaled.assistant,
        &mut scaled.reasoning,
        &mut scaled.tool_results,
        &mut scaled.images,
        &mut scaled.uncached,
    ];
    if let Some(largest) = kinds.into_iter().max_by_key(|kind| **kind) {
        *largest += rest;
    }
    scaled
}

#[cfg(test)]
mod tests;
