//! Calls to the tools that search the history which a model writes as text instead of making them.
//!
//! Models that were not trained for tools do this with whatever is offered to them. Such a text is never executed as a
//! call. It only shows that offering these tools to this model is useless. A tool that the user's message names does
//! not count: the user may have asked for that text, and the conclusion would affect other users too.

use crate::agent_loop::{prompt::HISTORY_TOOLS, tools::SentTools};
use reseed_protocol::{Message, Part};

/// Maximum characters between a tool's name and its arguments: marks, quotation marks and the name of a field.
const BETWEEN_CHARS_MAX: usize = 40;

/// Returns true if an answer makes no call, but contains the text of one to a tool of the history that was sent and
/// that the user did not name.
pub(super) fn has_call(message: &Message, sent: &SentTools, was_named: impl Fn(&str) -> bool) -> bool {
    let tools = || HISTORY_TOOLS.into_iter().filter(|name| sent.has(name) && !was_named(name));
    let writes_call = |part: &Part| match part {
        Part::Text { text } => tools().any(|name| calls(text, name)),
        _ => false,
    };
    message.tool_calls().next().is_none() && message.content.iter().any(writes_call)
}

/// Returns true if arguments follow the name of a tool: in parentheses, in JSON or in tags.
fn calls(text: &str, name: &str) -> bool {
    let has_arguments =
        |rest: &str| rest.starts_with('(') || rest.chars().take(BETWEEN_CHARS_MAX).any(|c| matches!(c, '{' | '<'));
    text.split(name).skip(1).any(has_arguments)
}

#[cfg(test)]
mod tests {
    use super::calls;

    #[test]
    fn calls_as_text_are_distinguished_from_text_that_only_names_a_tool() {
        for (text, expected) in [
            (r#"{"name": "history_search", "arguments": {"query": "boat"}}"#, true),
            ("```json\n{\"name\": \"history_search\", \"parameters\": {\"query\": \"boat\"}}\n```", true),
            (r#"<tool_call>{"name": "history_search", "arguments": "{\"query\": \"sea\"}"}</tool_call>"#, true),
            (
                r#"{"tool_calls": [{"type": "function", "function": {"name": "history_search", "arguments": "{}"}}]}"#,
                true,
            ),
            (r#"{"action": "history_search", "action_input": {"query": "sea"}}"#, true),
            (r#"{"history_search": {"query": "sea"}}"#, true),
            ("<function=history_search>{\"query\": \"sea\"}</function>", true),
            ("[TOOL_CALLS]history_search[ARGS]{\"query\": \"sea\"}", true),
            ("<tool_call>history_search\n<arg_key>query</arg_key>\n<arg_value>sea</arg_value>\n</tool_call>", true),
            ("<invoke name=\"history_search\">\n<parameter name=\"query\">sea</parameter>", true),
            ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>history_search\n```json\n{\"query\": \"sea\"}\n```", true),
            ("to=functions.history_search <|message|>{\"query\": \"sea\"}", true),
            ("[history_search(query=\"sea\"), history_read(id=\"e1\")]", true),
            ("The mark is <tool_call>history_search", false),
            ("I could look with history_search (a tool for that), if you like.", false),
            (r#"{"name": "Ada", "arguments": {"for": 1, "against": 2}}"#, false),
            ("", false),
        ] {
            assert_eq!(calls(text, "history_search"), expected, "{text}");
        }
    }
}
