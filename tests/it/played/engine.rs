//! A simulated model server: it refuses what breaks its rules or exceeds its window, and streams its answers in its own
//! way. The model behind it does what the user's last `[[word]]` says.

use super::rules::{Forbids, Request, Rule};
use crate::support::{
    talk::{is_summary, rides, summary, words},
    upstream::{Asked, Reply, Step},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A server, as data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Played {
    pub(crate) name: &'static str,
    /// The model of most of the story, and the other one.
    pub(crate) models: [&'static str; 2],
    /// The answer to `GET /models`.
    pub(crate) list: &'static str,
    pub(crate) rules: &'static [Rule],
    pub(crate) style: Style,
    pub(crate) overflow: Overflow,
}

/// How a server treats a request above its window of [`WINDOW_TOKENS`]. In texts, `{n}` is the number of its tokens and
/// `{w}` the window.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Overflow {
    /// It refuses it with this status and body.
    Refused(u16, &'static str),
    /// It reports this event in a stream that began well.
    Streamed(&'static str),
    /// It truncates the prompt silently.
    Cut,
}

/// The window of every simulated server, by the count of the scripted server.
pub(crate) const WINDOW_TOKENS: u64 = 6_000;

/// How a server streams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// What precedes the first chunk.
    pub(crate) head: &'static str,
    /// The end of a line.
    pub(crate) line_end: &'static str,
    pub(crate) reasoning: Thoughts,
    pub(crate) calls: Calls,
    /// Returns the id of its n-th call.
    pub(crate) id: fn(u64) -> String,
    /// The finish reasons of texts and calls.
    pub(crate) reasons: [&'static str; 2],
    pub(crate) usage: UsageIn,
}

/// Where reasoning is streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thoughts {
    Nowhere,
    /// As text in this field of the delta.
    Field(&'static str),
    /// As OpenRouter does: text, and signed details.
    Details,
    /// As Mistral does: in the content.
    Content,
}

/// How calls are streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    /// The head first, then the arguments in pieces.
    Pieces,
    /// Each call in one chunk.
    Whole,
    /// Each call in one chunk, all with index 0, signed.
    Signed,
    /// All calls in one chunk, without an index.
    Bare,
    /// Everything so far with each piece.
    Cumulative,
}

/// Where usage is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UsageIn {
    /// In a last chunk without choices.
    LastChunk,
    /// With the finish reason.
    Finish,
    /// In a last chunk with an empty delta.
    EmptyDelta,
}

/// What the server sent with a call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    pub(crate) id: String,
    /// The fields of its message.
    pub(crate) message: Value,
    /// The fields of the call.
    pub(crate) call: Value,
}

/// A refusal for a broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Where the story was.
    pub(crate) place: String,
    pub(crate) model: String,
    pub(crate) rule: Forbids,
    pub(crate) status: u16,
    pub(crate) restarts: usize,
}

/// What happened at a server.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The refusals.
    pub(crate) refused: Vec<Refusal>,
    /// Requests that no server accepts.
    pub(crate) illegal: Vec<String>,
    pub(crate) overflows: usize,
    pub(crate) answers: usize,
    /// Where the story is.
    pub(crate) place: String,
    /// How often the server before it was started again.
    pub(crate) restarts: usize,
    given: BTreeMap<String, BTreeMap<String, Given>>,
    calls: u64,
}

/// A handle to the log of a running server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Logged(Arc<Mutex<Log>>);

impl Logged {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the model does.
enum Says {
    Text(String),
    Half(String),
    Calls { thought: bool },
}

impl Played {
    /// Answers a request.
    pub(crate) fn answer(&self, asked: &Asked, log: &Logged) -> Reply {
        let mut log = log.lock();
        let model = asked.body["model"].as_str().unwrap_or_default().to_owned();
        let given = log.given.entry(model.clone()).or_default().clone();
        let tokens = tokens(&asked.body);
        let request = Request { body: &asked.body, given: &given, tokens, window_tokens: WINDOW_TOKENS };
        let place = format!("{} at {}", self.name, log.place);
        if let Some(illegal) = request.illegal() {
            log.illegal.push(format!("{place}: {illegal}"));
        }
        if !self.models.contains(&model.as_str()) {
            log.illegal.push(format!("{place}: the model `{model}`"));
        }
        let counted = |text: &str| text.replace("{n}", &tokens.to_string()).replace("{w}", &WINDOW_TOKENS.to_string());
        let holds = |rule: &&Rule| rule.model.is_none_or(|of| of == model);
        for rule in self.rules.iter().filter(holds) {
            if let Some(at) = request.breaks(rule.forbids) {
                if rule.forbids == Forbids::OutputBeyondWindow {
                    log.overflows += 1;
                } else {
                    let (place, restarts) = (log.place.clone(), log.restarts);
                    let status = rule.status;
                    log.refused.push(Refusal { place, model, rule: rule.forbids, status, restarts });
                }
                let limit = &asked.body["max_tokens"];
                let limit = if limit.is_null() { &asked.body["max_completion_tokens"] } else { limit };
                let id = asked.body["messages"][at]["tool_calls"][0]["id"].as_str().unwrap_or("call_x");
                let body =
                    rule.body.replace("{}", &at.to_string()).replace("{id}", id).replace("{m}", &limit.to_string());
                return Reply::error(rule.status, &counted(&body));
            }
        }
        if tokens > WINDOW_TOKENS {
            log.overflows += 1;
            match self.overflow {
                Overflow::Refused(status, body) => return Reply::error(status, &counted(body)),
                Overflow::Streamed(event) => return Reply::Stream(format!("data: {}\n\n", counted(event)), Vec::new()),
                Overflow::Cut => {}
            }
        }
        log.answers += 1;
        let says = says(asked, log.answers as u64);
        let usage = json!({ "prompt_tokens": tokens.min(WINDOW_TOKENS), "completion_tokens": 20, "total_tokens": tokens.min(WINDOW_TOKENS) + 20 });
        self.style.reply(&model, says, usage, &mut log)
    }
}

/// Returns a request's tokens: a quarter of its characters, and 85 for an image, whatever its size.
fn tokens(body: &Value) -> u64 {
    fn characters(value: &Value) -> u64 {
        match value {
            Value::String(text) if text.starts_with("data:image/") => 340,
            Value::String(text) => text.chars().count() as u64,
            Value::Array(items) => items.iter().map(characters).sum(),
            Value::Object(fields) => fields.iter().map(|(name, value)| name.len() as u64 + characters(value)).sum(),
            _ => 1,
        }
    }
    (characters(&body["messages"]) + characters(&body["tools"])).div_ceil(4)
}

fn says(asked: &Asked, number: u64) -> Says {
    if is_summary(asked) || rides(asked) {
        return Says::Text(summary(&["FACT 1: the boat leaves from pier 9"]));
    }
    let said = asked.last_user_text();
    let word = said.rfind("[[").map_or("", |at| said[at + 2..].split("]]").next().unwrap_or_default());
    match word {
        _ if asked.ends_with_result() => Says::Text(format!("Seen. {}", words(number, 20))),
        "call" if asked.offers_tools() => Says::Calls { thought: false },
        "think" if asked.offers_tools() => Says::Calls { thought: true },
        "wait" => Says::Half(words(number, 10)),
        _ => Says::Text(words(number, 30)),
    }
}

impl Style {
    fn reply(&self, model: &str, says: Says, usage: Value, log: &mut Log) -> Reply {
        let mut stream = Stream { style: self, text: self.head.to_owned() };
        stream.delta(json!({ "role": "assistant", "content": "" }));
        let reason = match says {
            Says::Half(text) => {
                stream.delta(json!({ "content": text }));
                return Reply::Stream(stream.text, vec![Step::Hang]);
            }
            Says::Text(text) => {
                let half = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
                let (first, second) = text.split_at(half);
                stream.delta(json!({ "content": first }));
                stream.delta(json!({ "content": second }));
                self.reasons[0]
            }
            Says::Calls { thought } => {
                let message = if thought { stream.thought(&format!("I look at {}.", log.calls)) } else { json!({}) };
                let mut calls = Vec::new();
                for _ in 0..2 {
                    log.calls += 1;
                    let (id, arguments) = ((self.id)(log.calls), format!("{{\"at\":\"quay {}\"}}", log.calls));
                    let call = match self.calls {
                        Calls::Signed => {
                            json!({ "extra_content": { "google": { "thought_signature": format!("c2lnbmVk{}==", log.calls) } } })
                        }
                        _ => json!({}),
                    };
                    let given = Given { id: id.clone(), message: message.clone(), call: call.clone() };
                    log.given.entry(model.to_owned()).or_default().insert(arguments.clone(), given);
                    calls.push((id, arguments, call));
                }
                stream.calls(&calls);
                self.reasons[1]
            }
        };
        stream.finish(reason, usage);
        Reply::Stream(stream.text, Vec::new())
    }
}

/// A stream being written.
struct Stream<'a> {
    style: &'a Style,
    text: String,
}

impl Stream<'_> {
    fn chunk(&mut self, chunk: &Value) {
        let end = self.style.line_end;
        let _ = write!(self.text, "data: {chunk}{end}{end}");
    }

    fn choice(&mut self, choice: Value) {
        self.chunk(&json!({ "id": "gen-1", "object": "chat.completion.chunk", "created": 1, "choices": [choice] }));
    }

    fn delta(&mut self, delta: Value) {
        self.choice(json!({ "index": 0, "delta": delta, "finish_reason": null }));
    }

    /// Streams a thought; returns the part that must be sent back.
    fn thought(&mut self, text: &str) -> Value {
        let half = text.len() / 2;
        let pieces = [&text[..half], &text[half..]];
        match self.style.reasoning {
            Thoughts::Nowhere => return json!({}),
            Thoughts::Field(name) => {
                pieces.iter().for_each(|piece| self.delta(json!({ name: piece })));
                return json!({ name: text });
            }
            Thoughts::Content => {
                for piece in pieces {
                    let thinking = json!([{ "type": "thinking", "thinking": [{ "type": "text", "text": piece }] }]);
                    self.delta(json!({ "content": thinking }));
                }
            }
            Thoughts::Details => {
                let detail = |text: &str| json!({ "type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1", "text": text });
                for piece in pieces {
                    self.delta(json!({ "reasoning": piece, "reasoning_details": [detail(piece)] }));
                }
                let signature = json!({ "type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1", "signature": "c2lnbmVk" });
                self.delta(json!({ "reasoning": "", "reasoning_details": [signature] }));
                let mut whole = detail(text);
                whole["signature"] = json!("c2lnbmVk");
                return json!({ "reasoning_details": [whole] });
            }
        }
        json!({})
    }

    fn calls(&mut self, calls: &[(String, String, Value)]) {
        let call = |index: Option<usize>, id: &str, arguments: &str, more: &Value| {
            let mut call =
                json!({ "id": id, "type": "function", "function": { "name": "look", "arguments": arguments } });
            if let Some(index) = index {
                call["index"] = json!(index);
            }
            for (name, value) in more.as_object().into_iter().flatten() {
                call[name] = value.clone();
            }
            call
        };
        let bare: Vec<Value> = calls.iter().map(|(id, arguments, more)| call(None, id, arguments, more)).collect();
        for (index, (id, arguments, more)) in calls.iter().enumerate() {
            let half = arguments.len() / 2;
            match self.style.calls {
                Calls::Pieces => {
                    self.delta(json!({ "tool_calls": [call(Some(index), id, "", more)] }));
                    for piece in [&arguments[..half], &arguments[half..]] {
                        self.delta(json!({ "tool_calls": [{ "index": index, "function": { "arguments": piece } }] }));
                    }
                }
                Calls::Whole => self.delta(json!({ "tool_calls": [call(Some(index), id, arguments, more)] })),
                Calls::Signed => self.delta(json!({ "tool_calls": [call(Some(0), id, arguments, more)] })),
                Calls::Bare if index == 0 => self.delta(json!({ "tool_calls": bare })),
                Calls::Bare => {}
                Calls::Cumulative => {
                    for so_far in [&arguments[..half], arguments.as_str()] {
                        self.delta(json!({ "tool_calls": [call(Some(index), id, so_far, more)] }));
                    }
                }
            }
        }
    }

    fn finish(&mut self, reason: &str, usage: Value) {
        let last = json!({ "index": 0, "delta": {}, "finish_reason": reason });
        match self.style.usage {
            UsageIn::Finish => self.chunk(&json!({ "choices": [last], "usage": usage })),
            UsageIn::LastChunk => {
                self.choice(last);
                self.chunk(&json!({ "choices": [], "usage": usage }));
            }
            UsageIn::EmptyDelta => {
                self.choice(last);
                self.chunk(&json!({ "choices": [{ "index": 0, "delta": {} }], "usage": usage }));
            }
        }
        let end = self.style.line_end;
        let _ = write!(self.text, "data: [DONE]{end}{end}");
    }
}
