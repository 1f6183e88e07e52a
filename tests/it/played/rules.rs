//! What model servers refuse: one rule each, and where in a request the rule is broken.

use super::engine::Given;
use serde_json::Value;
use std::collections::BTreeMap;

/// A kind of request that a server refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forbids {
    /// A field of the request.
    Field(&'static str),
    /// A field of the assistant's messages.
    AssistantField(&'static str),
    /// Images.
    Images,
    /// Tools on offer.
    Tools,
    /// Calls in the history without tools on offer.
    CallsWithoutTools,
    /// A tool whose schema is an object without properties.
    BareSchema,
    /// A text of nothing but blanks.
    Blank,
    /// An assistant's message whose content is no text, although it calls nothing.
    NoContent,
    /// Two messages of the user or of the assistant in a row; or a first one of the assistant.
    SameRoleTwice,
    /// A user's message directly after a result.
    UserAfterTool,
    /// A system message that is not the first.
    LateSystem,
    /// Ids that are not nine letters and digits.
    IdsNotOfNine,
    /// Ids of more than 40 characters.
    LongIds,
    /// Ids with other characters than letters, digits, `_` and `-`.
    OddIds,
    /// A call of its own model under a different id than the model gave it.
    ForeignIds,
    /// A call of the current turn without what its model sent with it in this field of the message.
    LostField(&'static str),
    /// A call of the current turn without what its model sent with the call in this field.
    LostCallField(&'static str),
    /// A prompt and an answer that together do not fit.
    OutputBeyondWindow,
}

/// A rule of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) forbids: Forbids,
    /// The only model that it holds for, if it does not hold for all.
    pub(crate) model: Option<&'static str>,
    pub(crate) status: u16,
    /// The body of the refusal. `{}` is replaced by the index of the message, `{id}` by the id.
    pub(crate) body: &'static str,
}

/// Returns a rule for all models of a server.
pub(crate) const fn rule(forbids: Forbids, status: u16, body: &'static str) -> Rule {
    Rule { forbids, model: None, status, body }
}

/// Returns a rule for one model of a server.
pub(crate) const fn rule_of(model: &'static str, forbids: Forbids, status: u16, body: &'static str) -> Rule {
    Rule { forbids, model: Some(model), status, body }
}

/// What a rule is checked against.
pub(crate) struct Request<'a> {
    pub(crate) body: &'a Value,
    /// What the requested model sent with its calls, by their arguments.
    pub(crate) given: &'a BTreeMap<String, Given>,
    pub(crate) tokens: u64,
    pub(crate) window_tokens: u64,
}

impl Request<'_> {
    fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Returns the calls of the history with the index of their messages.
    fn calls(&self) -> Vec<(usize, &Value)> {
        let mut calls = Vec::new();
        for (at, message) in self.messages().iter().enumerate() {
            calls.extend(message["tool_calls"].as_array().into_iter().flatten().map(|call| (at, call)));
        }
        calls
    }

    /// Returns the index of the first message of the current turn.
    fn turn(&self) -> usize {
        self.messages().iter().rposition(|message| message["role"] == "user").unwrap_or(0)
    }

    fn given(&self, call: &Value) -> Option<&Given> {
        self.given.get(call["function"]["arguments"].as_str()?)
    }

    /// Returns the index of the first message that breaks a rule.
    pub(crate) fn breaks(&self, forbids: Forbids) -> Option<usize> {
        let position = |breaks: &dyn Fn(&Value) -> bool| self.messages().iter().position(breaks);
        let call = |breaks: &dyn Fn(usize, &Value) -> bool| {
            self.calls().into_iter().find(|(at, call)| breaks(*at, call)).map(|(at, _)| at)
        };
        let id = |breaks: &dyn Fn(&str) -> bool| {
            call(&|_, call| breaks(call["id"].as_str().unwrap_or_default()))
                .or_else(|| position(&|message| message["tool_call_id"].as_str().is_some_and(breaks)))
        };
        let is_set = |value: &Value| !value.is_null();
        let some = |breaks: bool| breaks.then_some(0);
        match forbids {
            Forbids::Field(name) => some(is_set(&self.body[name])),
            Forbids::AssistantField(name) => position(&|message| message.get(name).is_some()),
            Forbids::Images => position(&|message| parts(message).any(|part| part["type"] == "image_url")),
            Forbids::Tools => some(is_set(&self.body["tools"])),
            Forbids::CallsWithoutTools => {
                call(&|_, _| true).filter(|_| self.body["tools"].as_array().is_none_or(Vec::is_empty))
            }
            Forbids::BareSchema => some(self.body["tools"].as_array().into_iter().flatten().any(|tool| {
                let schema = &tool["function"]["parameters"];
                schema["type"] != "object" || !schema["properties"].is_object()
            })),
            Forbids::Blank => position(&|message| {
                let is_blank = |text: &Value| text.as_str().is_some_and(|text| text.trim().is_empty());
                is_blank(&message["content"]) || parts(message).any(|part| is_blank(&part["text"]))
            }),
            Forbids::NoContent => position(&|message| {
                let calls = message["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
                message["role"] == "assistant" && !calls && !message["content"].is_string()
            }),
            Forbids::SameRoleTwice => {
                let roles = self.messages().iter().enumerate().filter(|(_, message)| message["role"] != "system");
                // Results are part of the assistant's turn.
                let roles: Vec<(usize, bool)> = roles
                    .filter(|(_, message)| message["role"] != "tool")
                    .map(|(at, message)| (at, message["role"] == "user"))
                    .collect();
                let calls = |at: usize| self.messages()[at]["tool_calls"].is_array();
                let starts = roles.first().filter(|(_, user)| !user).map(|(at, _)| *at);
                let twice = roles.windows(2).find(|two| two[0].1 == two[1].1 && (two[1].1 || !calls(two[0].0)));
                starts.or(twice.map(|two| two[1].0))
            }
            Forbids::UserAfterTool => {
                let two =
                    self.messages().windows(2).position(|two| two[0]["role"] == "tool" && two[1]["role"] == "user");
                two.map(|at| at + 1)
            }
            Forbids::LateSystem => self.messages().iter().skip(1).position(|message| message["role"] == "system"),
            Forbids::IdsNotOfNine => id(&|id| id.len() != 9 || !id.bytes().all(|byte| byte.is_ascii_alphanumeric())),
            Forbids::LongIds => id(&|id| id.len() > 40),
            Forbids::OddIds => id(&|id| !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))),
            Forbids::ForeignIds => {
                call(&|_, call| self.given(call).is_some_and(|given| call["id"] != given.id.as_str()))
            }
            Forbids::LostField(name) => call(&|at, call| {
                at > self.turn()
                    && self.given(call).is_some_and(|given| self.messages()[at][name] != given.message[name])
            }),
            Forbids::LostCallField(name) => call(&|at, call| {
                at > self.turn() && self.given(call).is_some_and(|given| call[name] != given.call[name])
            }),
            Forbids::OutputBeyondWindow => {
                let limit = self.body["max_tokens"].as_u64().or(self.body["max_completion_tokens"].as_u64());
                some(self.tokens + limit.unwrap_or(0) > self.window_tokens)
            }
        }
    }

    /// Returns the part of this request that no server accepts.
    pub(crate) fn illegal(&self) -> Option<String> {
        let mut open: Vec<&str> = Vec::new();
        let mut known: Vec<&str> = Vec::new();
        if self.messages().is_empty() || self.body["stream"] != true {
            return Some("no messages, or not streamed".to_owned());
        }
        for (at, message) in self.messages().iter().enumerate() {
            if let Some(id) = message["tool_call_id"].as_str() {
                let Some(place) = open.iter().position(|open| *open == id) else {
                    return Some(format!("message {at}: a result without its call `{id}`"));
                };
                open.remove(place);
                continue;
            }
            if !open.is_empty() {
                return Some(format!("message {at} comes before the results of {open:?}"));
            }
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                let id = call["id"].as_str().unwrap_or_default();
                if id.is_empty() || known.contains(&id) {
                    return Some(format!("message {at}: a call with an empty id, or that of another: `{id}`"));
                }
                let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
                if !serde_json::from_str::<Value>(arguments).is_ok_and(|arguments| arguments.is_object()) {
                    return Some(format!("message {at}: arguments that are no object: {arguments}"));
                }
                known.push(id);
                open.push(id);
            }
        }
        (!open.is_empty()).then(|| format!("calls without results: {open:?}"))
    }
}

fn parts(message: &Value) -> impl Iterator<Item = &Value> {
    message["content"].as_array().into_iter().flatten()
}
