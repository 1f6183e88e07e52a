//! The context envelope: everything that one request sends.

use crate::{
    context::{
        count::Fixed,
        counter::Counter,
        messages::{Context, Counted},
        patch::CarriedOps,
    },
    fingerprint::fingerprint,
};
use reseed_protocol::{
    Part, Role,
    context::{
        ContextEnvelope, ContextMessage, EnvelopeMeta, EnvelopeTokens, RequestOptions, SystemPart, SystemPrompt,
        ToolDefinition,
    },
};
use std::fmt::Write as _;

/// Name of the system part that holds the instructions.
pub const BASE_PART: &str = "base";

/// Builds a system prompt from instructions; an empty one if there are none.
#[must_use]
pub fn system_prompt(instructions: &str) -> SystemPrompt {
    if instructions.trim().is_empty() {
        return SystemPrompt::default();
    }
    let part = SystemPart { name: BASE_PART.to_owned(), text: instructions.to_owned() };
    SystemPrompt { compiled: part.text.clone(), parts: vec![part] }
}

/// Everything that is sent before the messages, with patches applied; recompiled only when it changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Compiled {
    /// The patches that were applied.
    pub carried: CarriedOps,
    /// The system prompt.
    pub system: SystemPrompt,
    /// The tools.
    pub tools: Vec<ToolDefinition>,
    /// Notes on requests of patches that could not be fulfilled.
    pub notes: Vec<String>,
    /// Estimated tokens of both.
    pub fixed: Fixed,
    /// Key of both ([`envelope_key`]).
    pub key: String,
}

impl Compiled {
    /// Compiles system parts and tools with the carried patches.
    #[must_use]
    pub fn of(parts: &[SystemPart], offered: &[ToolDefinition], carried: &CarriedOps, counter: &Counter) -> Self {
        let system = carried.system(parts);
        let (tools, notes) = carried.tools(offered);
        Self {
            carried: carried.clone(),
            fixed: Fixed::counted(counter, &system.compiled, &tools),
            key: envelope_key(&system, &tools),
            system,
            tools,
            notes,
        }
    }
}

/// Builds the envelope of the next request; `options` are those before any patch.
#[must_use]
pub fn envelope(
    compiled: &Compiled,
    context: &Context,
    options: &RequestOptions,
    meta: EnvelopeMeta,
) -> ContextEnvelope {
    ContextEnvelope {
        system: compiled.system.clone(),
        tools: compiled.tools.clone(),
        messages: context.to_messages(),
        options: context.carried.options(options),
        meta,
    }
}

/// Splits a request's token count, which may include a report, among its parts in proportion to their estimates. The
/// shares add up to the count.
#[must_use]
pub fn tokens_by_part(
    compiled: &Compiled,
    context: &Context,
    counter: &Counter,
    (tokens, has_report): (u64, bool),
) -> EnvelopeTokens {
    let estimates = |messages: &[Counted]| messages.iter().map(|counted| counted.tokens.total()).collect::<Vec<u64>>();
    let texts: Vec<u64> = compiled.system.parts.iter().map(|part| counter.text(&part.text)).collect();
    let (system_sent, _) = compiled.fixed.shares(has_report);
    let system_tokens = system_sent.saturating_sub(counter.request_overhead());
    // The parts are sent as one text, so its framing is distributed among them.
    let system = dealt(system_tokens, &texts);
    let frame = system_sent - system.iter().sum::<u64>();
    let tool = |tool| if has_report { counter.tool_in_reports(tool) } else { counter.tool(tool) };
    let tools = compiled.tools.iter().map(tool).collect();
    let estimates = [vec![frame], system, tools, estimates(&context.messages), estimates(&context.uncached)];
    let lengths = estimates.each_ref().map(Vec::len);
    let mut all = estimates.concat();
    if all.iter().all(|estimate| *estimate == 0) {
        all[0] = 1;
    }
    let mut all = dealt(tokens, &all).into_iter();
    let [frame, system, tools, cached, uncached] =
        lengths.map(|length| all.by_ref().take(length).collect::<Vec<u64>>());
    EnvelopeTokens { frame: frame.into_iter().sum(), system, tools, cached, uncached }
}

/// Distributes tokens in proportion to weights without losing any to rounding; all zero if all weights are zero.
fn dealt(tokens: u64, weights: &[u64]) -> Vec<u64> {
    let all: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let (mut weighed, mut given) = (0, 0);
    let share = |weight: &u64| {
        weighed += u128::from(*weight);
        let due: u128 = (u128::from(tokens) * weighed).checked_div(all).unwrap_or(0);
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        let share = due - given;
        given = due;
        share
    };
    weights.iter().map(share).collect()
}

/// Returns the key of a system prompt and tools, by which a report for different ones is recognised as stale.
#[must_use]
pub fn envelope_key(system: &SystemPrompt, tools: &[ToolDefinition]) -> String {
    let tools = serde_json::to_string(tools).expect("tool definitions have text keys");
    format!("{:08x}", fingerprint(format!("{}\u{0}{tools}", system.compiled).as_bytes()) & 0xffff_ffff)
}

/// Renders the envelope as Markdown for reading, with each part's tokens if known.
#[must_use]
pub fn markdown(envelope: &ContextEnvelope) -> String {
    let mut text = String::new();
    let parts = envelope.meta.parts.as_ref();
    let cost = |tokens: Option<&u64>| tokens.map(|tokens| format!(" [{tokens} tokens]")).unwrap_or_default();
    for (at, part) in envelope.system.parts.iter().enumerate() {
        let cost = cost(parts.and_then(|parts| parts.system.get(at)));
        let _ = writeln!(text, "# system: {}{cost}\n\n{}\n", part.name, part.text);
    }
    for (at, tool) in envelope.tools.iter().enumerate() {
        let cost = cost(parts.and_then(|parts| parts.tools.get(at)));
        let (name, description) = (&tool.name, &tool.description);
        let _ = writeln!(text, "# tool: {name}{cost}\n\n{description}\n\n```json\n{}\n```\n", tool.parameters);
    }
    for (at, message) in envelope.messages.cached.iter().enumerate() {
        write_message(&mut text, message, "", &cost(parts.and_then(|parts| parts.cached.get(at))));
    }
    for (at, message) in envelope.messages.uncached.iter().enumerate() {
        let cost = cost(parts.and_then(|parts| parts.uncached.get(at)));
        write_message(&mut text, message, " for this request only", &cost);
    }
    text
}

fn write_message(text: &mut String, message: &ContextMessage, note: &str, cost: &str) {
    let role = match message.message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let id = message.entry_id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default();
    let _ = writeln!(text, "# {role}{id}{note}{cost}\n");
    for part in &message.message.content {
        let _ = match part {
            Part::Text { text: said } => writeln!(text, "{said}\n"),
            Part::Image { url, .. } if url.starts_with("data:") => {
                writeln!(text, "[picture, {} bytes]\n", url.len())
            }
            Part::Image { url, .. } => writeln!(text, "[picture {url}]\n"),
            Part::Reasoning { text: thought, .. } => writeln!(text, "> {}\n", thought.replace('\n', "\n> ")),
            Part::ToolCall { call_id, name, arguments } => {
                writeln!(text, "call {call_id}: {name}\n\n```json\n{arguments}\n```\n")
            }
            Part::ToolResult { call_id, output, is_error } => {
                let kind = if *is_error { "failed" } else { "result" };
                writeln!(text, "{kind} {call_id}:\n\n```\n{output}\n```\n")
            }
        };
    }
}
