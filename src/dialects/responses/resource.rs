//! The response as an object, as it is created and as it is retrieved.

use super::{
    ids::{ResponseId, conversation_id},
    items::Item,
};
use crate::{exchange::Ended, http::Failure};
use reseed_protocol::{StopReason, Timestamp, Usage, turn::TurnStatus};
use serde_json::{Map, Value, json};

/// The fields of what is stored with an input that hold the tools of a chain's items, and that name the input which has
/// them.
pub(super) const ADDITIONAL: &str = "additional_tools";
pub(super) const ADDITIONAL_IN: &str = "additional_tools_in";

/// A response.
#[derive(Debug, Clone)]
pub(super) struct Resource {
    pub(super) id: ResponseId,
    pub(super) created_at: Timestamp,
    pub(super) model: String,
    /// What was stored with the input.
    pub(super) stored: Value,
    pub(super) output: Vec<Item>,
    pub(super) usage: Option<Usage>,
    /// Its end, and the time of it.
    pub(super) ended: Option<(Ended, Timestamp)>,
}

impl Resource {
    /// Returns its status, and the event that tells of it.
    pub(super) fn status(&self) -> (&'static str, &'static str) {
        let Some((ended, _)) = &self.ended else { return ("in_progress", "response.in_progress") };
        match (ended.status, ended.finish_reason) {
            (TurnStatus::Completed, Some(StopReason::Length | StopReason::ContentFilter)) => {
                ("incomplete", "response.incomplete")
            }
            (TurnStatus::Completed, _) => ("completed", "response.completed"),
            (TurnStatus::Cancelled, _) => ("cancelled", "response.incomplete"),
            (TurnStatus::Failed | TurnStatus::Interrupted, _) => ("failed", "response.failed"),
        }
    }

    /// Returns it as clients get it, with the output in the provider's order.
    pub(super) fn shown(&self) -> Value {
        let mut output: Vec<&Item> = self.output.iter().collect();
        output.sort_by_key(|item| item.order);
        self.shown_with(output)
    }

    /// Returns it with the output in the order in which it was streamed.
    pub(super) fn streamed(&self) -> Value {
        self.shown_with(self.output.iter().collect())
    }

    fn shown_with(&self, output: Vec<&Item>) -> Value {
        let mut shown = self.stored.as_object().cloned().unwrap_or_default();
        for own in ["functions", "system", "in_conversation", "without_answer", "key", ADDITIONAL, ADDITIONAL_IN] {
            shown.remove(own);
        }
        let (status, _) = self.status();
        let completed_at = self.ended.as_ref().filter(|_| status == "completed").map(|(_, at)| secs(*at));
        let output: Vec<Value> = output.into_iter().map(Item::shown).collect();
        let more = json!({
            "id": self.id.to_string(),
            "object": "response",
            "created_at": secs(self.created_at),
            "completed_at": completed_at,
            "status": status,
            "incomplete_details": self.incomplete(),
            "model": self.model,
            "output": output,
            "error": self.error(),
            "usage": self.usage(),
        });
        shown.extend(more.as_object().cloned().unwrap_or_default());
        if self.stored["in_conversation"] == true {
            shown.insert("conversation".to_owned(), json!({ "id": conversation_id(&self.id.session) }));
        }
        Value::Object(shown)
    }

    fn incomplete(&self) -> Option<Value> {
        let (ended, _) = self.ended.as_ref()?;
        match (ended.status, ended.finish_reason) {
            (TurnStatus::Completed, Some(StopReason::Length)) => Some(json!({ "reason": "max_output_tokens" })),
            (TurnStatus::Completed, Some(StopReason::ContentFilter)) => Some(json!({ "reason": "content_filter" })),
            _ => None,
        }
    }

    fn error(&self) -> Option<Value> {
        let (ended, _) = self.ended.as_ref()?;
        if !matches!(ended.status, TurnStatus::Failed | TurnStatus::Interrupted) {
            return None;
        }
        let failure = ended.error.clone().map(Failure::from);
        let (code, message) = match failure {
            Some(failure) => (code_of(failure.code), failure.message),
            None => ("server_error".to_owned(), "the answer was interrupted; send the request again".to_owned()),
        };
        Some(json!({ "code": code, "message": message }))
    }

    /// Returns what the client must give before the conversation goes on, without its content: the results of its
    /// functions, and what people decide.
    pub(super) fn required_input(&self) -> Vec<Value> {
        let required = |item: &Item| {
            let shown = item.shown();
            match shown["type"].as_str()? {
                "function_call" => Some(json!({
                    "type": "function_call_output", "call_id": shown["call_id"], "name": shown["name"],
                })),
                "custom_tool_call" => Some(json!({ "type": "custom_tool_call_output", "call_id": shown["call_id"] })),
                "tool_search_call" => Some(json!({ "type": "tool_search_output", "call_id": shown["call_id"] })),
                "mcp_approval_request" => {
                    Some(json!({ "type": "mcp_approval_response", "approval_request_id": shown["id"] }))
                }
                _ => None,
            }
        };
        self.output.iter().filter_map(required).collect()
    }

    fn usage(&self) -> Option<Value> {
        let usage = self.usage.as_ref().filter(|_| self.ended.is_some())?;
        Some(json!({
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens(),
            "input_tokens_details": { "cached_tokens": usage.cached_tokens },
            "output_tokens_details": { "reasoning_tokens": usage.reasoning_tokens.unwrap_or(0) },
        }))
    }
}

/// Returns the code of a failed response. Codex tries again after every code that it does not know.
fn code_of(code: Option<String>) -> String {
    match code.as_deref() {
        Some("upstream_rejected" | "upstream_auth" | "upstream_not_found") => "invalid_prompt".to_owned(),
        Some(known) => known.to_owned(),
        None => "server_error".to_owned(),
    }
}

/// Returns what a response of this entry has stored; `None` if the entry is no input of this dialect.
pub(super) fn stored_of(details: Option<&Value>) -> Option<Value> {
    details?.get("responses").filter(|stored| stored.is_object()).cloned()
}

/// Returns the texts of system messages in what was stored.
pub(super) fn system_of(stored: &Value) -> Vec<String> {
    let texts = stored["system"].as_array().map(Vec::as_slice).unwrap_or_default();
    texts.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// Returns the value to store with an input.
pub(super) fn details(stored: Value) -> Value {
    let mut details = Map::new();
    details.insert("responses".to_owned(), stored);
    Value::Object(details)
}

/// Returns a time in seconds.
pub(super) fn secs(time: Timestamp) -> i64 {
    time.0.div_euclid(1_000)
}
