//! The server's reactions to a request: an answer in either dialect, a refusal, or any way of breaking off.

use super::{Api, Asked, messages};
use crate::support::scripted::Gate;
use serde_json::{Value, json};

/// One operation on the connection.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Sends these bytes.
    Bytes(Vec<u8>),
    /// Waits until the gate is open.
    Wait(Gate),
    /// Sends nothing more, with the connection open.
    Hang,
    /// Resets the connection.
    Reset,
    /// Closes the connection before the promised end.
    Close,
}

/// The end of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    /// Complete: `tool_calls` if there are calls, else `stop`.
    Whole,
    /// Complete, cut at the output limit.
    Length,
    /// Complete, cut by a filter.
    ContentFilter,
    /// Complete, cut because the window is full; Messages only.
    Full,
    /// Paused, to be continued; Messages only.
    Pause,
    /// The body ends properly, but without its terminal event.
    NoEnd,
    /// The connection is reset after the last delta.
    Reset,
    /// Nothing follows the last delta.
    Hang,
    /// An error event instead of the end.
    Error,
}

/// A reply.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// A streamed answer.
    Answer(Box<Answer>),
    /// A complete body.
    Plain {
        /// The HTTP status.
        status: u16,
        /// More headers.
        headers: Vec<(&'static str, String)>,
        /// The `content-type`.
        kind: &'static str,
        /// The body.
        body: String,
    },
    /// An event stream of this exact text, followed by these steps.
    Stream(String, Vec<Step>),
    /// Steps from the first byte on.
    Raw(Vec<Step>),
}

/// A streamed answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(super) reasoning: String,
    /// Reasoning of which only the sealed form is sent; Messages only.
    pub(super) redacted: String,
    pub(super) text: String,
    pieces: usize,
    pub(super) calls: Vec<Call>,
    usage: Usage,
    pub(super) cached_tokens: Option<u64>,
    pub(super) cache_write_tokens: Option<u64>,
    gate: Option<Gate>,
    pub(super) finish: Finish,
    /// Its id, if it has one of its own.
    pub(super) id: Option<String>,
    /// The comparison of its request with an earlier one.
    pub(super) verdict: Option<Value>,
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    /// The id that the server gives it; `None`: its number, which starts again in each answer, as on some servers.
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) arguments: String,
}

#[derive(Debug, Clone, Copy)]
enum Usage {
    Counted,
    Given(u64, u64),
    Silent,
}

impl Reply {
    /// Returns a text, in one delta, with the usage that the server counts.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Answer(Box::new(Answer {
            reasoning: String::new(),
            redacted: String::new(),
            text: text.into(),
            pieces: 1,
            calls: Vec::new(),
            usage: Usage::Counted,
            cached_tokens: None,
            cache_write_tokens: None,
            gate: None,
            finish: Finish::Whole,
            id: None,
            verdict: None,
        }))
    }

    /// Returns a tool call; `arguments` is JSON text.
    pub(crate) fn call(name: &str, arguments: &str) -> Self {
        Self::text("").and_call(name, arguments)
    }

    /// Returns the answer to a request that only fills the cache.
    pub(crate) fn prewarmed(asked: &Asked) -> Self {
        let tokens = asked.tokens;
        Self::json(
            200,
            &match asked.api {
                Api::Messages => json!({
                    "id": "msg_0", "type": "message", "role": "assistant", "content": [], "stop_reason": "max_tokens",
                    "usage": { "input_tokens": 0, "cache_creation_input_tokens": tokens, "output_tokens": 0 },
                }),
                _ => json!({
                    "id": "resp_0", "object": "response", "status": "completed", "output": [],
                    "usage": {
                        "input_tokens": tokens, "input_tokens_details": { "cache_write_tokens": tokens }, "output_tokens": 0,
                    },
                }),
            },
        )
    }

    /// Returns a JSON body.
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::error(status, &body.to_string())
    }

    /// Returns a body with an error, declared as JSON whatever it is.
    pub(crate) fn error(status: u16, body: &str) -> Self {
        Self::Plain { status, headers: Vec::new(), kind: "application/json", body: body.to_owned() }
    }

    /// Returns the refusal of a request that does not fit, as worded by OpenAI.
    pub(crate) fn overflow(tokens: u64, window_tokens: u64) -> Self {
        let message = format!(
            "This model's maximum context length is {window_tokens} tokens. However, your messages resulted in \
             {tokens} tokens. Please reduce the length of the messages."
        );
        let code = "context_length_exceeded";
        let error = json!({ "message": message, "type": "invalid_request_error", "param": "messages", "code": code });
        Self::json(400, &json!({ "error": error }))
    }

    /// Returns silence: not even a response head.
    pub(crate) fn silence() -> Self {
        Self::Raw(vec![Step::Hang])
    }

    /// Adds a header; only to plain replies.
    pub(crate) fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        if let Self::Plain { headers, .. } = &mut self {
            headers.push((name, value.into()));
        }
        self
    }

    /// Sends the text in this many deltas.
    pub(crate) fn in_pieces(self, pieces: usize) -> Self {
        self.change(|answer| answer.pieces = pieces.max(1))
    }

    /// Reasons before it answers.
    pub(crate) fn with_reasoning(self, text: &str) -> Self {
        self.change(|answer| text.clone_into(&mut answer.reasoning))
    }

    /// Reasons before it answers, and shows only the sealed form.
    pub(crate) fn with_redacted(self, data: &str) -> Self {
        self.change(|answer| data.clone_into(&mut answer.redacted))
    }

    /// Calls a tool as well.
    pub(crate) fn and_call(self, name: &str, arguments: &str) -> Self {
        self.and_call_as(None, name, arguments)
    }

    /// Calls a tool as well, under this id.
    pub(crate) fn and_call_as(self, id: Option<&str>, name: &str, arguments: &str) -> Self {
        let call = Call { id: id.map(str::to_owned), name: name.to_owned(), arguments: arguments.to_owned() };
        self.change(|answer| answer.calls.push(call))
    }

    /// Reports this usage, in tokens.
    pub(crate) fn with_usage(self, input_tokens: u64, output_tokens: u64) -> Self {
        self.change(|answer| answer.usage = Usage::Given(input_tokens, output_tokens))
    }

    /// Reports that this many of the sent tokens came from the cache.
    pub(crate) fn with_cached(self, tokens: u64) -> Self {
        self.change(|answer| answer.cached_tokens = Some(tokens))
    }

    /// Reports that this many of the sent tokens were written to the cache.
    pub(crate) fn with_cache_write(self, tokens: u64) -> Self {
        self.change(|answer| answer.cache_write_tokens = Some(tokens))
    }

    /// Reports no usage.
    pub(crate) fn without_usage(self) -> Self {
        self.change(|answer| answer.usage = Usage::Silent)
    }

    /// Waits before the last delta of the text, or before the end if it has at most one.
    pub(crate) fn held_by(self, gate: &Gate) -> Self {
        self.change(|answer| answer.gate = Some(gate.clone()))
    }

    /// Ends this way.
    pub(crate) fn ending(self, finish: Finish) -> Self {
        self.change(|answer| answer.finish = finish)
    }

    /// Gives an answer its verdict and its id. Other replies have none.
    pub(super) fn compared(self, remarks: impl FnOnce() -> (Option<Value>, String)) -> Self {
        self.change(|answer| {
            let (verdict, id) = remarks();
            (answer.verdict, answer.id) = (verdict, Some(id));
        })
    }

    fn change(mut self, change: impl FnOnce(&mut Answer)) -> Self {
        if let Self::Answer(answer) = &mut self {
            change(answer);
        }
        self
    }

    /// Returns the steps of this reply. `fill`: the request's tokens and the window's.
    pub(crate) fn steps(self, api: Api, fill: (u64, u64)) -> Vec<Step> {
        match self {
            Self::Answer(answer) => answer.steps(api, fill),
            Self::Plain { status, headers, kind, body } => {
                let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n{headers}\r\n");
                vec![Step::Bytes([head.into_bytes(), body.into_bytes()].concat())]
            }
            Self::Stream(events, then) => {
                let whole = then.is_empty();
                let mut steps = vec![head(), chunk(&events)];
                steps.extend(then);
                if whole {
                    steps.push(end());
                }
                steps
            }
            Self::Raw(steps) => steps,
        }
    }
}

fn head() -> Step {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    Step::Bytes(head.as_bytes().to_vec())
}

fn chunk(text: &str) -> Step {
    if text.is_empty() {
        return Step::Bytes(Vec::new());
    }
    Step::Bytes(format!("{:x}\r\n{text}\r\n", text.len()).into_bytes())
}

fn end() -> Step {
    Step::Bytes(b"0\r\n\r\n".to_vec())
}

impl Answer {
    fn steps(&self, api: Api, (input_tokens, window_tokens): (u64, u64)) -> Vec<Step> {
        let texts = cut(&self.text, self.pieces);
        let usage = match self.usage {
            Usage::Counted => {
                let characters = self.text.chars().count() + self.reasoning.chars().count();
                let output_tokens = (characters.div_ceil(4) as u64).min(window_tokens.saturating_sub(input_tokens));
                Some((input_tokens, output_tokens.max(1)))
            }
            Usage::Given(input_tokens, output_tokens) => Some((input_tokens, output_tokens)),
            Usage::Silent => None,
        };
        let (before, deltas, after) = match api {
            Api::Chat => self.chat(&texts, usage),
            Api::Responses => self.responses(&texts, usage),
            Api::Messages => messages::events(self, &texts, usage),
        };
        let mut steps = vec![head()];
        let event = |event: &Value| match event["type"].as_str().filter(|_| api == Api::Messages) {
            // The SDKs of this API look at the names of events.
            Some(name) => chunk(&format!("event: {name}\ndata: {event}\n\n")),
            None => chunk(&format!("data: {event}\n\n")),
        };
        steps.extend(before.iter().map(event));
        let held_at = deltas.len().checked_sub(1).filter(|&last| last > 0).unwrap_or(deltas.len());
        for at in 0..=deltas.len() {
            steps.extend(self.gate.clone().filter(|_| at == held_at).map(Step::Wait));
            steps.extend(deltas.get(at).map(event));
        }
        match self.finish {
            Finish::Whole | Finish::Length | Finish::ContentFilter | Finish::Full | Finish::Pause => {
                steps.extend(after.iter().map(event));
                steps.extend((api == Api::Chat).then(|| chunk("data: [DONE]\n\n")));
                steps.push(end());
            }
            Finish::Error => {
                let kind = if api == Api::Messages { "api_error" } else { "server_error" };
                let error = json!({ "type": "error", "error": { "type": kind, "message": "it broke" } });
                steps.extend([event(&error), end()]);
            }
            Finish::NoEnd => steps.push(end()),
            Finish::Reset => steps.push(Step::Reset),
            Finish::Hang => steps.push(Step::Hang),
        }
        steps
    }

    /// Returns the events before the text, those of the text, and those after it.
    fn chat(&self, texts: &[&str], usage: Option<(u64, u64)>) -> (Vec<Value>, Vec<Value>, Vec<Value>) {
        let chunk = |delta: Value, finish: Value| {
            let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
            json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "test-model", "choices": [choice] })
        };
        let mut before = vec![chunk(json!({ "role": "assistant", "content": null }), Value::Null)];
        if !self.reasoning.is_empty() {
            before.push(chunk(json!({ "reasoning_content": self.reasoning }), Value::Null));
        }
        let deltas = texts.iter().map(|text| chunk(json!({ "content": text }), Value::Null)).collect();
        let mut after = Vec::new();
        for (index, Call { id, name, arguments }) in self.calls.iter().enumerate() {
            let id = id.clone().unwrap_or_else(|| format!("call_{index}"));
            let function = json!({ "name": name, "arguments": "" });
            let call = json!({ "index": index, "id": id, "type": "function", "function": function });
            after.push(chunk(json!({ "tool_calls": [call] }), Value::Null));
            for piece in cut(arguments, 2) {
                let call = json!({ "index": index, "function": { "arguments": piece } });
                after.push(chunk(json!({ "tool_calls": [call] }), Value::Null));
            }
        }
        let finish = match self.finish {
            Finish::Length => "length",
            Finish::ContentFilter => "content_filter",
            _ if !self.calls.is_empty() => "tool_calls",
            _ => "stop",
        };
        after.push(chunk(json!({}), json!(finish)));
        if let Some((input, output)) = usage {
            let mut usage =
                json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output });
            if let Some(cached) = self.cached_tokens {
                usage["prompt_tokens_details"] = json!({ "cached_tokens": cached });
            }
            if let Some(written) = self.cache_write_tokens {
                usage["prompt_tokens_details"]["cache_write_tokens"] = json!(written);
            }
            after.push(json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], "usage": usage }));
        }
        (before, deltas, after)
    }

    fn responses(&self, texts: &[&str], usage: Option<(u64, u64)>) -> (Vec<Value>, Vec<Value>, Vec<Value>) {
        let mut before =
            vec![json!({ "type": "response.created", "response": { "id": "resp_1", "status": "in_progress" } })];
        let mut output = Vec::new();
        if !self.reasoning.is_empty() {
            before.push(json!({ "type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": self.reasoning }));
            let summary = json!([{ "type": "summary_text", "text": self.reasoning }]);
            let item = json!({ "type": "reasoning", "id": "rs_0", "summary": summary, "encrypted_content": "sealed" });
            before.push(json!({ "type": "response.output_item.done", "output_index": 0, "item": item }));
            output.push(item);
        }
        let index = output.len();
        let deltas = texts
            .iter()
            .map(|text| json!({ "type": "response.output_text.delta", "item_id": "msg_0", "output_index": index, "content_index": 0, "delta": text }))
            .collect();
        let mut after = Vec::new();
        if !self.text.is_empty() {
            let content = json!([{ "type": "output_text", "text": self.text }]);
            let item = json!({ "type": "message", "id": "msg_0", "role": "assistant", "content": content });
            after.push(json!({ "type": "response.output_item.done", "output_index": index, "item": item }));
            output.push(item);
        }
        for Call { id, name, arguments } in &self.calls {
            let index = output.len();
            // Item ids start again in each answer, as on some servers.
            let (id, call_id) = (format!("fc_{index}"), id.clone().unwrap_or_else(|| format!("call_{index}")));
            let item = |arguments: &str| json!({ "type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments });
            after.push(json!({ "type": "response.output_item.added", "output_index": index, "item": item("") }));
            for piece in cut(arguments, 2) {
                after.push(json!({ "type": "response.function_call_arguments.delta", "item_id": id, "output_index": index, "delta": piece }));
            }
            after.push(json!({ "type": "response.output_item.done", "output_index": index, "item": item(arguments) }));
            output.push(item(arguments));
        }
        let reason = match self.finish {
            Finish::Length => Some("max_output_tokens"),
            Finish::ContentFilter => Some("content_filter"),
            _ => None,
        };
        let status = if reason.is_some() { "incomplete" } else { "completed" };
        let usage = usage.map(|(input, output)| {
            let mut usage = json!({ "input_tokens": input, "output_tokens": output, "total_tokens": input + output });
            if let Some(cached) = self.cached_tokens {
                usage["input_tokens_details"] = json!({ "cached_tokens": cached });
            }
            if let Some(written) = self.cache_write_tokens {
                usage["input_tokens_details"]["cache_write_tokens"] = json!(written);
            }
            usage
        });
        let details = reason.map(|reason| json!({ "reason": reason }));
        let id = self.id.as_deref().unwrap_or("resp_1");
        let mut response =
            json!({ "id": id, "status": status, "output": output, "usage": usage, "incomplete_details": details });
        if let Some(verdict) = &self.verdict {
            response["prompt_cache_diagnostics"] = verdict.clone();
        }
        after.push(json!({ "type": format!("response.{status}"), "response": response }));
        (before, deltas, after)
    }
}

/// Cuts a text into at most this many non-empty pieces.
pub(super) fn cut(text: &str, pieces: usize) -> Vec<&str> {
    let size = text.chars().count().div_ceil(pieces).max(1);
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).step_by(size).chain([text.len()]).collect();
    starts.windows(2).map(|ends| &text[ends[0]..ends[1]]).filter(|piece| !piece.is_empty()).collect()
}
