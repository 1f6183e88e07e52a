//! The context envelope: all that one request sends.

use crate::core::{context::build::Context, session::fingerprint::fingerprint};
use reseed_protocol::{
    Part, Role,
    context::{ContextEnvelope, EnvelopeMeta, RequestOptions, SystemPart, SystemPrompt, ToolDefinition},
};
use std::fmt::Write as _;

/// Name of the system part that holds the instructions.
pub const BASE_PART: &str = "base";

/// The system prompt that says these instructions; none for empty ones.
#[must_use]
pub fn system_prompt(instructions: &str) -> SystemPrompt {
    if instructions.trim().is_empty() {
        return SystemPrompt::default();
    }
    let part = SystemPart { name: BASE_PART.to_owned(), text: instructions.to_owned() };
    SystemPrompt { compiled: part.text.clone(), parts: vec![part] }
}

/// Everything that the next request sends.
#[must_use]
pub fn envelope(
    system: &SystemPrompt,
    tools: &[ToolDefinition],
    context: &Context,
    options: &RequestOptions,
) -> ContextEnvelope {
    ContextEnvelope {
        system: system.clone(),
        tools: tools.to_vec(),
        messages: context.to_messages(),
        options: options.clone(),
        meta: EnvelopeMeta::default(),
    }
}

/// Names a system prompt and tools, so that a report made with others is known to be stale.
#[must_use]
pub fn envelope_key(system: &SystemPrompt, tools: &[ToolDefinition]) -> String {
    let tools = serde_json::to_string(tools).expect("tool definitions have text keys");
    format!("{:08x}", fingerprint(format!("{}\u{0}{tools}", system.compiled).as_bytes()) & 0xffff_ffff)
}

/// The envelope as text to read.
#[must_use]
pub fn markdown(envelope: &ContextEnvelope) -> String {
    let mut text = String::new();
    for part in &envelope.system.parts {
        let _ = writeln!(text, "# system: {}\n\n{}\n", part.name, part.text);
    }
    for tool in &envelope.tools {
        let _ = writeln!(text, "# tool: {}\n\n{}\n\n```json\n{}\n```\n", tool.name, tool.description, tool.parameters);
    }
    for message in envelope.messages.cached.iter().chain(&envelope.messages.uncached) {
        let role = match message.message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        let id = message.entry_id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default();
        let _ = writeln!(text, "# {role}{id}\n");
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
    text
}
