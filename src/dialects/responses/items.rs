//! The output items of a response, from the entries of its turn.

use super::{
    ids::item_id,
    tools::{Named, Names},
};
use reseed_protocol::{CallId, Entry, EntryId, Message, Part, Role, SessionId, tools::Approval};
use serde_json::{Value, json};

/// An output item.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    pub(super) id: String,
    /// Its place among what the provider has sent. Items are streamed in another order where it is known too late.
    pub(super) order: Order,
    pub(super) is_whole: bool,
    pub(super) body: Body,
}

/// What an item holds.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Body {
    /// A text of the model.
    Message(String),
    /// The model's reasoning, and the provider's own item, which a client sends back unchanged.
    Reasoning(String, Option<Value>),
    /// A call of a tool, which the client makes, with its arguments or its text.
    Call { call_id: String, tool: Named, given: String },
    /// A call that the server has made, with its result.
    Made { name: String, arguments: String, output: String, is_error: bool },
    /// A summary that a client can carry to another chain: sealed, and as text.
    Compaction(String, String),
    /// A call that a person must allow.
    Asked { approval_id: String, name: String, arguments: String },
}

/// The number of an answer in its response, and the place in the answer.
pub(super) type Order = (usize, usize);

/// The order of an item that comes at the end.
pub(super) const AT_THE_END: Order = (usize::MAX, 0);

/// The calls of a turn that have no result yet, in order.
pub(super) type Calls = Vec<OpenCall>;

/// A call without a result. If it is one of a function and stays without, the client makes it.
#[derive(Debug)]
pub(super) struct OpenCall {
    id: String,
    order: Order,
    call_id: CallId,
    name: String,
    arguments: String,
    /// The client's tool, if it is one.
    tool: Option<Named>,
}

/// The items of an entry.
#[derive(Debug, Default)]
pub(super) struct Items {
    /// Texts before the first call, which are streamed as they arrive.
    pub(super) streamed: Vec<Item>,
    /// The others.
    pub(super) others: Vec<Item>,
}

/// Returns true for a part of an answer that is streamed as it arrives: a text before the first call.
fn is_streamed(message: &Message, index: usize) -> bool {
    let comes_before_calls = || !message.content[..index].iter().any(|part| matches!(part, Part::ToolCall { .. }));
    match &message.content[index] {
        Part::Text { text } | Part::Reasoning { text, .. } => !text.is_empty() && comes_before_calls(),
        _ => false,
    }
}

/// Returns the number that each part of a message has in the id of its item. Texts that are streamed get theirs before
/// the other parts of the answer are known, so they come first. Calls and results have their own place.
pub(super) fn places(message: &Message) -> Vec<usize> {
    let parts = 0..message.content.len();
    let mut next = [parts.clone().filter(|index| is_streamed(message, *index)).count(), 0];
    let place = |index: usize| match &message.content[index] {
        Part::Text { .. } | Part::Reasoning { .. } => {
            let next = &mut next[usize::from(is_streamed(message, index))];
            *next += 1;
            *next - 1
        }
        Part::ToolCall { .. } | Part::ToolResult { .. } | Part::Image { .. } => index,
    };
    parts.map(place).collect()
}

impl Item {
    /// Returns the items of an entry of the response's turn. Calls are kept in `calls`: one that the server answers,
    /// because it makes it or because it cannot be made, is shown with its result; others are shown at the end.
    /// `number` is the entry's number in the response.
    pub(super) fn of_entry(
        (session, entry, number): (&SessionId, &EntryId, usize),
        message: &Message,
        names: &Names,
        calls: &mut Calls,
    ) -> Items {
        let last = message.content.len().saturating_sub(1);
        let places = places(message);
        let (mut streamed, mut others) = (Vec::new(), Vec::new());
        for (index, part) in message.content.iter().enumerate() {
            // An answer that was cut off has lost the end of its last part.
            let is_whole = !(message.incomplete && index == last);
            let mut order = (number, index);
            let body = match (message.role, part) {
                (Role::Assistant, Part::Text { text }) => Body::Message(text.clone()),
                (Role::Assistant, Part::Reasoning { text, payload }) => Body::Reasoning(text.clone(), payload.clone()),
                (Role::Assistant, Part::ToolCall { call_id, name, arguments }) => {
                    let tool = names.get(name).cloned();
                    calls.push(OpenCall {
                        id: item_id(session, entry, places[index], tool.as_ref().map_or("fc", Named::prefix)),
                        order,
                        call_id: call_id.clone(),
                        name: name.clone(),
                        arguments: arguments.clone(),
                        tool,
                    });
                    continue;
                }
                (Role::Tool, Part::ToolResult { call_id, output, is_error }) => {
                    let Some(place) = calls.iter().position(|call| call.call_id == *call_id) else { continue };
                    let OpenCall { name, arguments, order: of_call, .. } = calls.remove(place);
                    order = of_call;
                    Body::Made { name, arguments, output: output.clone(), is_error: *is_error }
                }
                _ => continue,
            };
            let id = item_id(session, entry, places[index], body.prefix());
            let items = if is_streamed(message, index) { &mut streamed } else { &mut others };
            items.push(Self { id, order, is_whole, body });
        }
        Items { streamed, others }
    }

    /// Returns the items for the calls that the client makes.
    pub(super) fn of_calls(calls: Calls) -> impl Iterator<Item = Self> {
        calls.into_iter().filter_map(|OpenCall { id, order, call_id, arguments, tool, .. }| {
            let tool = tool?;
            let body = Body::Call { call_id: call_id.to_string(), given: tool.given(&arguments), tool };
            Some(Self { id, order, is_whole: true, body })
        })
    }

    /// Returns the calls of the server's tools that have no result after these entries, newest entry first. The
    /// client's calls were shown with their answer.
    pub(super) fn calls_after(session: &SessionId, entries: &[Entry]) -> Calls {
        let mut calls = Calls::new();
        for entry in entries.iter().rev() {
            if let Some(message) = entry.message() {
                Self::of_entry((session, &entry.entry_id, 0), message, &Names::default(), &mut calls);
            }
        }
        calls
    }

    /// Returns the item for a call that a person must allow.
    pub(super) fn of_approval(approval: &Approval) -> Self {
        let (name, arguments) = (approval.name.clone(), approval.arguments.clone());
        let approval_id = approval.approval_id.to_string();
        let id = format!("mcpr_{approval_id}");
        let body = Body::Asked { approval_id, name, arguments };
        Self { id, order: AT_THE_END, is_whole: true, body }
    }

    /// Returns the item as clients get it.
    pub(super) fn shown(&self) -> Value {
        let status = if self.is_whole { "completed" } else { "incomplete" };
        self.shown_as(status, true)
    }

    /// Returns the item at its start, without content.
    pub(super) fn started(&self) -> Value {
        self.shown_as("in_progress", false)
    }

    fn shown_as(&self, status: &str, with_content: bool) -> Value {
        let id = &self.id;
        match &self.body {
            Body::Message(text) => {
                let content = if with_content { vec![text_part(text)] } else { Vec::new() };
                json!({ "type": "message", "id": id, "status": status, "role": "assistant", "content": content })
            }
            Body::Reasoning(text, payload) => {
                let field = |name: &str| payload.as_ref().and_then(|payload| payload.get(name)).cloned();
                let summary = field("summary").filter(Value::is_array).unwrap_or_else(|| json!([]));
                let mut item = json!({ "type": "reasoning", "id": id, "summary": summary });
                if with_content && !text.is_empty() {
                    item["content"] = json!([reasoning_part(text)]);
                }
                if let Some(sealed) = field("encrypted_content").filter(Value::is_string) {
                    item["encrypted_content"] = sealed;
                }
                item
            }
            Body::Call { call_id, tool, given } => {
                tool.call(id, call_id, if with_content { given } else { "" }, status)
            }
            Body::Made { name, arguments, output, is_error } => {
                let (output, error) = if *is_error { (None, Some(output)) } else { (Some(output), None) };
                json!({
                    "type": "mcp_call", "id": id, "server_label": label(name), "name": name, "arguments": arguments,
                    "output": output, "error": error, "approval_request_id": null,
                    "status": if *is_error { "failed" } else { "completed" },
                })
            }
            Body::Compaction(sealed, summary) => json!({
                "type": "compaction", "id": id, "encrypted_content": sealed, "summary": summary,
            }),
            Body::Asked { name, arguments, .. } => json!({
                "type": "mcp_approval_request", "id": id, "server_label": label(name), "name": name,
                "arguments": arguments,
            }),
        }
    }
}

impl Body {
    /// Returns the prefix of the ids of such items.
    pub(super) fn prefix(&self) -> &'static str {
        match self {
            Self::Message(_) => "msg",
            Self::Reasoning(..) => "rs",
            Self::Call { tool, .. } => tool.prefix(),
            Self::Made { .. } => "mcp",
            Self::Asked { .. } => "mcpr",
            Self::Compaction(..) => "cmp",
        }
    }
}

/// Returns the MCP server of a tool, or the server itself.
fn label(tool: &str) -> &str {
    tool.split_once("__").map_or("reseed", |(server, _)| server)
}

/// Returns the content part of a text.
pub(super) fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// Returns the content part of reasoning.
pub(super) fn reasoning_part(text: &str) -> Value {
    json!({ "type": "reasoning_text", "text": text })
}
