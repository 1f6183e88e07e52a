//! `response.steer`: words for a response that is being made on this socket. The socket keeps them until the response
//! has ended. Then they begin its successor, or join the results that the client must give first.

use super::{ids::ResponseId, input::Input, references::Found, request::Create, running::Running};
use reseed_protocol::Part;
use serde_json::{Value, json};

/// Words of one socket that wait.
const WAITING_MAX: usize = 8;

/// Words that were accepted.
struct Words {
    id: String,
    response: ResponseId,
    /// The `input` that the client has sent. It is returned if it cannot be said.
    input: Value,
}

/// The words of a socket that are not said yet, oldest first.
#[derive(Default)]
pub(super) struct Steering {
    waiting: Vec<Words>,
    /// The number of words so far.
    count: u64,
}

impl Steering {
    /// Takes words. Returns the event that answers them, after that for older words that must make room.
    pub(super) fn take(&mut self, frame: &Value, running: Option<&Running>) -> Vec<Value> {
        let (input, to) = (frame["input"].clone(), &frame["previous_response_id"]);
        let refused = |code, message: &str| vec![failed(code, message, None, to, &input, 0)];
        let is_active = |running: &&Running| !running.writer.is_over() && *to == running.id.to_string();
        let Some(running) = running.filter(is_active) else {
            return refused("response_not_active", "this response is not being made on this connection");
        };
        if !is_said_by_user(&input) {
            return refused("invalid_input", "`input` must be a text, or messages of the user");
        }
        let (response, number) = (running.id.clone(), running.writer.number());
        let mut events = Vec::new();
        if self.waiting.len() >= WAITING_MAX {
            // Those of an earlier response wait for a request that may never come.
            let Some(oldest) = self.waiting.iter().position(|words| words.response != response) else {
                let message = format!("{WAITING_MAX} others wait for the end of this response");
                return refused("too_many_pending_steers", &message);
            };
            events.push(self.waiting.remove(oldest).failed("too many others wait", number));
        }
        let id = format!("steer_{}_{}", response.to_string().trim_start_matches("resp_"), self.count);
        self.count += 1;
        events.push(json!({
            "type": "response.steer.accepted", "sequence_number": number,
            "steer": { "id": id, "previous_response_id": to },
        }));
        self.waiting.push(Words { id, response, input });
        events
    }

    /// Returns the events that tell that words wait for what this response requires.
    pub(super) fn pending(&self, running: &Running, required: &[Value]) -> Vec<Value> {
        let event = |words: &Words| {
            json!({
                "type": "response.steer.pending", "sequence_number": running.writer.number(),
                "reason": "waiting_for_required_input", "required_input": required,
                "steer": { "id": words.id, "previous_response_id": words.response.to_string() },
            })
        };
        self.of(&running.id).map(event).collect()
    }

    /// Returns the request for the response to the words that waited for the end of this one; `None` without any.
    pub(super) fn successor(&self, to: &ResponseId, create: &Create) -> Option<Create> {
        let items: Vec<Value> = self.of(to).flat_map(|words| items_of(&words.input)).collect();
        (!items.is_empty()).then(|| Create {
            input: Some(items.into()),
            previous_response_id: Some(to.to_string()),
            conversation: None,
            ..create.clone()
        })
    }

    /// Puts the words that waited into the request that continues their response, after the results that it gives.
    pub(super) fn join(&self, to: &ResponseId, create: &mut Create) {
        let words: Vec<Value> = self.of(to).flat_map(|words| items_of(&words.input)).collect();
        if words.is_empty() {
            return;
        }
        let mut items = create.input.as_ref().map(items_of).unwrap_or_default();
        let gives = |item: &Value| {
            item["type"].as_str().is_some_and(|kind| kind.ends_with("_output") || kind == "mcp_approval_response")
        };
        let place = items.iter().rposition(gives).map_or(0, |last| last + 1);
        items.splice(place..place, words);
        create.input = Some(items.into());
    }

    /// Forgets the words that waited for the end of this response, which were said.
    pub(super) fn said(&mut self, to: &ResponseId) {
        self.waiting.retain(|words| words.response != *to);
    }

    /// Gives back the words for this response, which cannot be said. `number` is that of its newest event.
    pub(super) fn give_back(&mut self, to: &ResponseId, why: &str, number: u64) -> Vec<Value> {
        let those = self.waiting.extract_if(.., |words| words.response == *to);
        those.map(|words| words.failed(why, number)).collect()
    }

    fn of(&self, to: &ResponseId) -> impl Iterator<Item = &Words> {
        self.waiting.iter().filter(move |words| words.response == *to)
    }
}

impl Words {
    fn failed(self, message: &str, number: u64) -> Value {
        let to = self.response.to_string().into();
        failed("successor_creation_failed", message, Some(&self.id), &to, &self.input, number)
    }
}

fn failed(code: &str, message: &str, id: Option<&str>, to: &Value, input: &Value, number: u64) -> Value {
    let mut steer = json!({ "previous_response_id": to, "input": input });
    if let Some(id) = id {
        steer["id"] = id.into();
    }
    json!({
        "type": "response.steer.failed", "sequence_number": number, "steer": steer,
        "error": { "type": "invalid_request_error", "code": code, "message": message },
    })
}

/// Returns an input as items.
fn items_of(input: &Value) -> Vec<Value> {
    match input {
        Value::Array(items) => items.clone(),
        text => vec![json!({ "type": "message", "role": "user", "content": text })],
    }
}

/// Returns true for words of the user that a model would take.
fn is_said_by_user(input: &Value) -> bool {
    let is_users = items_of(input).iter().all(|item| item["role"] == "user");
    let says = |part: &Part| !matches!(part, Part::Text { text } if text.trim().is_empty());
    is_users
        && Input::read(input, &Found::new())
            .is_ok_and(|said| said.history.is_empty() && !said.parts.is_empty() && said.parts.iter().all(says))
}
