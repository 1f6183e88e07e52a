//! A conversation as the plain text that pi gives its summariser.

use super::{
    convert::texts,
    json::{Json, Object},
};
use reseed_protocol::content::utf16_len;

/// Code units of a tool result that stay.
const TOOL_RESULT_UNITS_MAX: u64 = 2_000;

/// The text of messages in the form in which pi gives them to a model.
#[must_use]
pub fn conversation(messages: &[Object]) -> String {
    let mut blocks = Vec::new();
    for message in messages {
        let content = message.get("content");
        match message.text("role") {
            Some("user") => {
                let text = match content {
                    Some(Json::Text(text)) => text.clone(),
                    Some(Json::List(blocks)) => texts(blocks, ""),
                    _ => String::new(),
                };
                push(&mut blocks, "User", text);
            }
            Some("assistant") => answer(content.and_then(Json::as_list).unwrap_or_default(), &mut blocks),
            Some("toolResult") => {
                let text = texts(content.and_then(Json::as_list).unwrap_or_default(), "");
                push(&mut blocks, "Tool result", shortened(text));
            }
            _ => {}
        }
    }
    blocks.join("\n\n")
}

fn push(blocks: &mut Vec<String>, head: &str, text: String) {
    if !text.is_empty() {
        blocks.push(format!("[{head}]: {text}"));
    }
}

fn answer(content: &[Json], blocks: &mut Vec<String>) {
    let of = |kind: &str, name: &str| -> Vec<&str> {
        content.iter().filter(|block| block.text("type") == Some(kind)).filter_map(|block| block.text(name)).collect()
    };
    let (thoughts, said) = (of("thinking", "thinking"), of("text", "text"));
    // One that is empty still has its head.
    if !thoughts.is_empty() {
        blocks.push(format!("[Assistant thinking]: {}", thoughts.join("\n")));
    }
    if !said.is_empty() {
        blocks.push(format!("[Assistant]: {}", said.join("\n")));
    }
    let calls: Vec<String> = content.iter().filter(|block| block.text("type") == Some("toolCall")).map(call).collect();
    push(blocks, "Assistant tool calls", calls.join("; "));
}

fn call(block: &Json) -> String {
    let given: Vec<String> = block
        .get("arguments")
        .map(Json::listed)
        .unwrap_or_default()
        .into_iter()
        .map(|(name, value)| format!("{name}={}", value.to_js_text()))
        .collect();
    format!("{}({})", block.text("name").unwrap_or_default(), given.join(", "))
}

/// The beginning of a long text and how much more there was. Where the bound falls inside a character of two code units,
/// the text ends before it: pi keeps its first half, which is no text.
fn shortened(text: String) -> String {
    let units = utf16_len(&text);
    if units <= TOOL_RESULT_UNITS_MAX {
        return text;
    }
    let mut taken = 0;
    let end = text.char_indices().find_map(|(at, c)| {
        taken += c.len_utf16() as u64;
        (taken > TOOL_RESULT_UNITS_MAX).then_some(at)
    });
    let kept = &text[..end.unwrap_or(text.len())];
    format!("{kept}\n\n[... {} more characters truncated]", units - TOOL_RESULT_UNITS_MAX)
}
