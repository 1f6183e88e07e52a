//! One count for the meter, the trigger and the report: the tokens of the exact next request.
//!
//! It starts from the usage that the provider last reported for the same prefix and adds an estimate of the rest. A
//! report from before a compaction, a model change or a change of system prompt or tools is stale: it is not used.

use crate::core::context::{
    build::{Context, Counted, Kind},
    counter::{Calibration, Estimator},
};
use reseed_protocol::{
    EntryId, Part, Role, UsageSource,
    context::{Breakdown, CountSource},
};

/// A report that differs from the estimate by more than this factor either way counts another thing than the request:
/// some servers invent counts. Real tokenizers stay within it even on scripts they know badly.
const PLAUSIBLE_FACTOR: u64 = 8;

/// What is sent besides the messages, as estimated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fixed {
    /// The system prompt, and what any request costs.
    pub system: u64,
    /// The tool definitions.
    pub tools: u64,
}

/// Which reports hold for the next request.
#[derive(Debug, Clone, Copy)]
pub struct Freshness<'a> {
    /// The model that will be asked.
    pub model: &'a str,
    /// Names the system prompt and the tools that will be sent.
    pub envelope_key: &'a str,
    /// Whose rule it is: by pi's, any answer since the last compaction will do.
    pub estimator: Estimator,
}

/// The count of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestCount {
    /// All of it.
    pub tokens: u64,
    /// The same as estimated without any report, not corrected: what a report is compared with.
    pub estimated: u64,
    /// By kind; adds up to `tokens`.
    pub breakdown: Breakdown,
    /// Where it comes from.
    pub source: CountSource,
    /// Of it, what the provider reported.
    pub usage_tokens: u64,
    /// Of it, what was estimated after the report.
    pub trailing_tokens: u64,
    /// The entry whose report was used.
    pub last_usage_entry_id: Option<EntryId>,
    /// Of the last request, what the provider took from its cache.
    pub cached_tokens: u64,
    /// By how much it may be wrong, either way.
    pub error_bound_tokens: u64,
    /// Messages in the request.
    pub messages: u64,
    /// Of them, what users said, without what a compaction kept one by one.
    pub turns: u64,
}

/// Counts the next request.
#[must_use]
pub fn count(context: &Context, fixed: Fixed, fresh: Freshness<'_>, calibration: &Calibration) -> RequestCount {
    let messages = &context.messages;
    let estimate_of = |range: &[Counted]| range.iter().map(|counted| counted.tokens.total()).sum::<u64>();
    let estimated = fixed.system + fixed.tools + estimate_of(messages);
    let anchor = messages.iter().enumerate().rev().find_map(|(at, counted)| {
        let total = report(counted, fresh)?;
        let prefix = fixed.system + fixed.tools + estimate_of(&messages[..=at]);
        let plausible = fresh.estimator == Estimator::Pi
            || total.saturating_mul(PLAUSIBLE_FACTOR) >= prefix && total <= prefix.saturating_mul(PLAUSIBLE_FACTOR);
        plausible.then_some((at, total))
    });
    let raw = breakdown(messages, fixed);
    let (tokens, usage_tokens, trailing_estimate, source) = match anchor {
        None => (calibration.apply(estimated), 0, estimated, CountSource::Estimated),
        Some((at, reported)) => {
            let trailing = estimate_of(&messages[at + 1..]);
            let source = if trailing == 0 { CountSource::Reported } else { CountSource::Mixed };
            (reported + calibration.apply(trailing), reported, trailing, source)
        }
    };
    let usage_of = |at: usize| messages[at].message.usage.as_ref().map_or(0, |usage| usage.cached_tokens);
    RequestCount {
        tokens,
        estimated,
        breakdown: scaled(raw, tokens),
        source,
        usage_tokens,
        trailing_tokens: tokens - usage_tokens,
        last_usage_entry_id: anchor.and_then(|(at, _)| messages[at].entry_id.clone()),
        cached_tokens: anchor.map_or(0, |(at, _)| usage_of(at)),
        error_bound_tokens: calibration.error_bound(trailing_estimate),
        messages: messages.len() as u64,
        turns: messages.iter().filter(|counted| counted.is_input && counted.kind != Kind::Beside).count() as u64,
    }
}

/// What the provider reported for the prefix up to and including this answer, where that still holds.
fn report(counted: &Counted, fresh: Freshness<'_>) -> Option<u64> {
    let message = &counted.message;
    let usage = message.usage.as_ref().filter(|usage| usage.source == UsageSource::Reported)?;
    if fresh.estimator == Estimator::Pi {
        let holds = counted.kind == Kind::Recent && message.role == Role::Assistant && !message.incomplete;
        return Some(usage.total_tokens()).filter(|tokens| holds && *tokens > 0);
    }
    let holds = counted.kind == Kind::Recent
        && message.role == Role::Assistant
        && message.model.as_deref() == Some(fresh.model)
        && message.envelope_key.as_deref() == Some(fresh.envelope_key);
    if !holds || usage.total_tokens() == 0 {
        return None;
    }
    // Reasoning is paid for but sent back only where the provider gave an opaque payload for it.
    let sent_back = message.content.iter().any(|part| matches!(part, Part::Reasoning { payload: Some(_), .. }));
    let dropped = if sent_back { 0 } else { usage.reasoning_tokens.unwrap_or(0) };
    Some(usage.total_tokens().saturating_sub(dropped))
}

fn breakdown(messages: &[Counted], fixed: Fixed) -> Breakdown {
    let mut sum = Breakdown { system: fixed.system, tools: fixed.tools, ..Breakdown::default() };
    for Counted { message, tokens, kind, .. } in messages {
        let text = match (kind, message.role) {
            (Kind::Summary, _) => &mut sum.summary,
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

/// The kinds in proportion, so that they add up to the count; what rounding leaves goes to the largest.
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
