//! The answer in OpenAI's form: as chunks of a stream, or as one object.

use super::answer::{End, Piece};
use reseed_protocol::Usage;
use serde_json::{Value, json};

/// What all chunks of an answer have in common.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) id: String,
    /// Seconds since 1970.
    pub(super) created: u64,
    pub(super) model: String,
    /// True if the last chunk has the usage, and all others `null`.
    pub(super) include_usage: bool,
}

impl Head {
    /// Returns the first chunk.
    pub(super) fn first(&self) -> Value {
        self.chunk(&json!([choice(json!({ "role": "assistant", "content": "" }), None)]))
    }

    /// Returns the chunk of a piece.
    pub(super) fn piece(&self, piece: &Piece) -> Value {
        let delta = match piece {
            Piece::Text(text) => json!({ "content": text }),
            Piece::Reasoning(text) => json!({ "reasoning_content": text }),
            Piece::Call { index, .. } => {
                let mut call = call(piece);
                call["index"] = json!(index);
                json!({ "tool_calls": [call] })
            }
        };
        self.chunk(&json!([choice(delta, None)]))
    }

    /// Returns the chunks after the last piece.
    pub(super) fn last(&self, end: &End) -> Vec<Value> {
        let mut last = choice(json!({}), Some(end.finish_reason));
        last["logprobs"] = logprobs(end);
        let mut chunks = vec![self.chunk(&json!([last]))];
        if self.include_usage {
            let mut chunk = self.chunk(&json!([]));
            chunk["usage"] = usage(end.usage.as_ref());
            chunks.push(chunk);
        }
        chunks
    }

    fn chunk(&self, choices: &Value) -> Value {
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        });
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// Returns the whole answer as one object.
    pub(super) fn whole(&self, pieces: &[Piece], end: &End) -> Value {
        let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
        for piece in pieces {
            match piece {
                Piece::Text(more) => text.push_str(more),
                Piece::Reasoning(more) => reasoning.push_str(more),
                Piece::Call { .. } => calls.push(call(piece)),
            }
        }
        // An answer of calls alone has no content, as with OpenAI.
        let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { json!(text) };
        let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
        if !reasoning.is_empty() {
            message["reasoning_content"] = json!(reasoning);
        }
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let choice = json!({
            "index": 0, "message": message, "logprobs": logprobs(end), "finish_reason": end.finish_reason,
        });
        json!({
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [choice],
            "usage": usage(end.usage.as_ref()),
        })
    }
}

fn choice(delta: Value, finish_reason: Option<&str>) -> Value {
    json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason })
}

/// Returns the probabilities of the answer's tokens. In a stream, they come with the end: pieces may be cut otherwise
/// than the provider's.
fn logprobs(end: &End) -> Value {
    if end.logprobs.is_empty() { Value::Null } else { json!({ "content": end.logprobs, "refusal": null }) }
}

fn call(piece: &Piece) -> Value {
    let Piece::Call { id, name, arguments, .. } = piece else { return Value::Null };
    json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
}

/// Returns the usage; `null` if the provider reported none.
fn usage(usage: Option<&Usage>) -> Value {
    let Some(usage) = usage else { return Value::Null };
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens(),
        "prompt_tokens_details": { "cached_tokens": usage.cached_tokens },
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning_tokens.unwrap_or(0) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::UsageSource;

    fn head() -> Head {
        Head { id: "chatcmpl-1".into(), created: 7, model: "m".into(), include_usage: true }
    }

    fn end() -> End {
        let usage = Usage {
            input_tokens: 9,
            cached_tokens: 4,
            cache_write_tokens: None,
            cache_write_hour_tokens: None,
            output_tokens: 2,
            reasoning_tokens: Some(1),
            prefix_tokens: None,
            further: None,
            cost_nano_usd: None,
            source: UsageSource::Reported,
        };
        End { finish_reason: "tool_calls", usage: Some(usage), logprobs: Vec::new() }
    }

    fn a_call() -> Piece {
        Piece::Call { index: 0, id: "c1".into(), name: "look".into(), arguments: "{}".into() }
    }

    #[test]
    fn a_stream_has_chunks_and_at_its_end_the_usage() {
        let head = head();
        let delta = |chunk: Value| chunk["choices"][0]["delta"].clone();
        assert_eq!(delta(head.first()), json!({ "role": "assistant", "content": "" }));
        assert_eq!(delta(head.piece(&Piece::Text("a".into()))), json!({ "content": "a" }));
        let call = json!({ "index": 0, "id": "c1", "type": "function",
            "function": { "name": "look", "arguments": "{}" } });
        assert_eq!(delta(head.piece(&a_call())), json!({ "tool_calls": [call] }));
        let last = head.last(&end());
        assert_eq!(last[0]["choices"][0]["finish_reason"], "tool_calls");
        assert_eq!(last[0]["usage"], Value::Null);
        assert_eq!((&last[1]["choices"], &last[1]["usage"]["total_tokens"]), (&json!([]), &json!(11)));
        assert_eq!(last[1]["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
        assert_eq!(Head { include_usage: false, ..head }.last(&end()).len(), 1);
    }

    #[test]
    fn an_object_has_the_whole_answer() {
        let pieces = [Piece::Reasoning("so".into()), a_call()];
        let message = head().whole(&pieces, &end())["choices"][0]["message"].clone();
        assert_eq!((&message["content"], &message["reasoning_content"]), (&Value::Null, &json!("so")));
        assert_eq!(message["tool_calls"][0]["function"]["name"], "look");
        let pieces = [Piece::Text("a".into()), Piece::Text("b".into())];
        assert_eq!(head().whole(&pieces, &end())["choices"][0]["message"]["content"], "ab");
    }
}
