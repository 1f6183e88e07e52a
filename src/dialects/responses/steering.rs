//! `response.steer`: words for a response that is being made on this socket.
//!
//! Where the response has no functions of the client, its session takes the words at once: they go to the model with
//! the next request of the turn, and begin a response of their own there. Where it has some, it may end with calls, and
//! the words must follow their results. So the socket keeps them until the response has ended.

use super::{
    create::as_input, ids::ResponseId, input::Input, references::Found, request::Create, resource::details,
    running::Running,
};
use crate::exchange::{STEER, STEERED};
use serde_json::{Value, json};

/// Words of one socket that are accepted and not said yet.
const WAITING_MAX: usize = 8;

/// Words that were accepted.
struct Words {
    id: String,
    response: ResponseId,
    /// What the client has sent, to give it back.
    input: Value,
    is_in_session: bool,
}

/// The words of a socket that are not said yet.
#[derive(Default)]
pub(super) struct Steering {
    waiting: Vec<Words>,
    /// The number of words so far.
    count: u64,
}

impl Steering {
    /// Takes words. Returns the event that answers them.
    pub(super) async fn take(&mut self, frame: &Value, running: Option<&mut Running>) -> Value {
        let (input, to) = (frame["input"].clone(), &frame["previous_response_id"]);
        let refused = |code, message: &str| failed(code, message, None, to, &input, 0);
        let active = |running: &&mut Running| !running.writer.is_over() && *to == running.id.to_string();
        let Some(running) = running.filter(active) else {
            return refused("response_not_active", "this response is not being made on this connection");
        };
        if self.waiting.len() >= WAITING_MAX {
            let message = format!("{WAITING_MAX} others wait; send this again when a response has begun with them");
            return refused("too_many_pending_steers", &message);
        }
        let Some(said) = read(&input) else {
            return refused("invalid_input", "`input` must be a text, or messages of the user");
        };
        let (response, number) = (running.id.clone(), running.writer.number());
        let id = format!("steer_{}_{}", &response.to_string()["resp_".len()..], self.count);
        self.count += 1;
        let is_in_session = running.writer.names().joined().is_empty();
        if is_in_session {
            let mut details = details(running.writer.stored_for_words());
            details[STEER] = id.clone().into();
            if running.exchange.awaits_words() {
                details[STEERED] = true.into();
            }
            if let Err(error) = running.exchange.steer(as_input(said.parts), &id, details).await {
                return refused("invalid_input", &error.message);
            }
        }
        let accepted = json!({
            "type": "response.steer.accepted", "sequence_number": number,
            "steer": { "id": id, "previous_response_id": to },
        });
        self.waiting.push(Words { id, response, input, is_in_session });
        accepted
    }

    /// Takes what has become of words that the session has. Returns the events that tell of those that were taken back.
    pub(super) fn told(&mut self, running: &mut Running) -> Vec<Value> {
        let number = running.writer.number();
        let mut events = Vec::new();
        for (id, is_said) in running.told.drain(..) {
            for words in self.waiting.extract_if(.., |words| words.id == id) {
                if !is_said {
                    let message = "the words were taken out of the conversation's queue";
                    events.push(words.failed("successor_creation_failed", message, number));
                }
            }
        }
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
        self.waiting.iter().filter(|words| words.response == running.id).map(event).collect()
    }

    /// Returns the request for the response to the words that waited for the end of this one.
    pub(super) fn successor(&self, to: &ResponseId, create: &Create) -> Option<Create> {
        let items: Vec<Value> = self.kept_for(to).flat_map(|words| items_of(&words.input)).collect();
        (!items.is_empty()).then(|| Create {
            input: Some(items.into()),
            previous_response_id: Some(to.to_string()),
            conversation: None,
            ..create.clone()
        })
    }

    /// Puts the words that waited into the request that continues their response, after the results that it gives.
    pub(super) fn join(&self, create: &mut Create) {
        let Some(to) = create.previous_response_id.as_deref().and_then(ResponseId::parse) else { return };
        let words: Vec<Value> = self.kept_for(&to).flat_map(|words| items_of(&words.input)).collect();
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
        self.waiting.retain(|words| words.is_in_session || words.response != *to);
    }

    /// Gives back the words that waited for the end of this response.
    pub(super) fn give_back(&mut self, running: &Running, why: &str) -> Vec<Value> {
        let is_kept = |words: &mut Words| !words.is_in_session && words.response == running.id;
        let kept = self.waiting.extract_if(.., is_kept);
        kept.map(|words| words.failed("successor_creation_failed", why, running.writer.number())).collect()
    }

    fn kept_for(&self, to: &ResponseId) -> impl Iterator<Item = &Words> {
        self.waiting.iter().filter(move |words| !words.is_in_session && words.response == *to)
    }
}

impl Words {
    fn failed(self, code: &str, message: &str, number: u64) -> Value {
        failed(code, message, Some(&self.id), &self.response.to_string().into(), &self.input, number)
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

/// Reads words of the user; `None` for anything else.
fn read(input: &Value) -> Option<Input> {
    let is_users = items_of(input).iter().all(|item| item["role"] == "user");
    let said = Input::read(input, &Found::new()).ok().filter(|_| is_users)?;
    (said.history.is_empty() && !said.parts.is_empty()).then_some(said)
}
