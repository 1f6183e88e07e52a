//! Compactions by the server: `POST /responses/compact`.
//!
//! The answer has the items with which the next request begins, exactly one of them an opaque compaction. It is one
//! JSON object. Some proxies send the events of a response instead; then the finished items count, because the list in
//! the last event can be empty.

use super::{
    responses_request::{Item, input},
    responses_stream::{failed, malformed},
};
use crate::{
    core::model::{Answer, ModelFault},
    provider::{
        adapt::Plan,
        upstream::{Assembly, Decoder, Ending, Object, Progress, usage},
    },
};
use reseed_protocol::{NativeCompaction, Payload, StopReason};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

/// The name of the API in its own compactions.
pub(super) const API: &str = "responses";
/// The most items of a compacted conversation.
const ITEMS_MAX: usize = 16 * 1024;

/// The body. Tools and options are no part of it.
#[derive(Debug, Serialize)]
pub(super) struct CompactRequest<'a> {
    model: &'a str,
    /// The system prompt, with the instructions for the compaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<String>,
    input: Vec<Item<'a>>,
}

impl<'a> CompactRequest<'a> {
    /// Builds the body.
    pub(super) fn new(plan: &'a Plan<'a>) -> Self {
        let said = [plan.system.as_deref(), plan.instructions()].into_iter().flatten();
        let said: Vec<&str> = said.collect();
        let instructions = (!said.is_empty()).then(|| said.join("\n\n"));
        Self { model: plan.model, instructions, input: input(plan) }
    }
}

/// Reads the answer.
#[derive(Debug, Default)]
pub(super) struct CompactStream {
    items: Vec<Value>,
    ending: Option<Ending>,
}

impl Decoder for CompactStream {
    fn event(&mut self, data: &str, assembly: &mut Assembly<'_>) -> Result<Progress, ModelFault> {
        if data.trim() == "[DONE]" {
            return Ok(Progress::Done);
        }
        let event = Object::read(data).ok_or_else(|| malformed("an event is not a JSON object"))?;
        match &*event.text("type").unwrap_or_default() {
            "response.output_item.done" => self.add(event.raw("item"), assembly)?,
            "response.completed" => self.end(event.object("response").as_ref().unwrap_or(&event), assembly)?,
            "response.failed" | "response.incomplete" | "error" => return Err(failed(data, event.raw("response"))),
            _ if event.raw("error").is_some() => return Err(failed(data, None)),
            "" if event.raw("output").is_some() => {
                self.end(&event, assembly)?;
                return Ok(Progress::Done);
            }
            _ => {}
        }
        Ok(Progress::More)
    }

    fn ending(&self) -> Option<Ending> {
        self.ending
    }
}

impl CompactStream {
    fn add(&mut self, item: Option<&RawValue>, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
        let Some(raw) = item else { return Ok(()) };
        assembly.count(raw.get().len())?;
        if self.items.len() == ITEMS_MAX {
            return Err(malformed("too many items"));
        }
        self.items.push(serde_json::from_str(raw.get()).map_err(|_| malformed("an item is not JSON"))?);
        Ok(())
    }

    fn end(&mut self, answer: &Object<'_>, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
        if self.items.is_empty() {
            answer.values("output").into_iter().try_for_each(|item| self.add(Some(item), assembly))?;
        }
        let usage = answer.object("usage").and_then(|reported| usage(&reported));
        self.ending = Some(Ending { stop_reason: StopReason::Stop, usage, is_full: false });
        Ok(())
    }

    /// Returns the compaction. It has no text.
    pub(super) fn compaction(&self) -> Result<Answer, ModelFault> {
        let is_opaque = |item: &&Value| item["type"] == "compaction";
        let opaque: Vec<&Value> = self.items.iter().filter(is_opaque).collect();
        let [opaque] = opaque[..] else { return Err(malformed("the answer has not exactly one compaction")) };
        if opaque["encrypted_content"].as_str().is_none_or(str::is_empty) {
            return Err(malformed("the compaction is empty"));
        }
        let native = NativeCompaction {
            api: API.to_owned(),
            items: Value::Array(self.items.clone()).to_string(),
            ..NativeCompaction::default()
        };
        let payload = Payload { compaction: Some(Box::new(native)), ..Payload::default() };
        let usage = self.ending.and_then(|ending| ending.usage);
        Ok(Answer { usage, payload: Some(Box::new(payload)), ..Answer::new(Vec::new(), StopReason::Stop) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{core::model::Delta, provider::DeltaSink};
    use reseed_protocol::ErrorCode;

    struct Ignored;

    impl DeltaSink for Ignored {
        fn delta(&mut self, _: Delta<'_>) {}
    }

    /// Returns the items and the output tokens of an answer.
    fn made(events: &[&str]) -> Result<(String, Option<u64>), ErrorCode> {
        let mut sink = Ignored;
        let (mut assembly, mut stream) = (Assembly::new(&mut sink), CompactStream::default());
        for event in events {
            if stream.event(event, &mut assembly).map_err(|fault| fault.code)? == Progress::Done {
                break;
            }
        }
        let answer = stream.compaction().map_err(|fault| fault.code)?;
        assert!(answer.parts.is_empty());
        let native = answer.payload.unwrap().compaction.unwrap();
        assert_eq!(native.api, API);
        Ok((native.items, answer.usage.map(|usage| usage.output_tokens)))
    }

    #[test]
    fn an_answer_has_exactly_one_compaction_and_all_of_its_items_are_kept() {
        let opaque = r#"{"encrypted_content":"x","id":"cmp_1","type":"compaction"}"#;
        let kept = r#"{"content":[{"text":"one","type":"input_text"}],"role":"user","type":"message"}"#;
        let usage = r#""usage":{"input_tokens":90,"output_tokens":7}"#;
        let body =
            |output: &str| format!(r#"{{"object":"response.compaction","error":null,"output":[{output}],{usage}}}"#);
        let done = |item: &str| format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{item}}}"#);
        let end =
            |output: &str| format!(r#"{{"type":"response.completed","response":{{"output":[{output}],{usage}}}}}"#);
        let error = r#"{"error":{"type":"invalid_request_error","message":"no"}}"#.to_owned();
        let both = format!("{kept},{opaque}");
        let malformed = || Err(ErrorCode::UpstreamMalformed);
        for (events, expected) in [
            (vec![body(&both)], Ok((format!("[{both}]"), Some(7)))),
            (vec![body(opaque)], Ok((format!("[{opaque}]"), Some(7)))),
            (vec![body(kept)], malformed()),
            (vec![body("")], malformed()),
            (vec![body(&format!("{opaque},{opaque}"))], malformed()),
            (vec![body(r#"{"type":"compaction","encrypted_content":""}"#)], malformed()),
            (vec![body(r#"{"type":"compaction"}"#)], malformed()),
            // The list in the last event can be empty, and can repeat the items.
            (vec![done(opaque), end("")], Ok((format!("[{opaque}]"), Some(7)))),
            (vec![done(opaque), end(opaque)], Ok((format!("[{opaque}]"), Some(7)))),
            (vec![end(&both)], Ok((format!("[{both}]"), Some(7)))),
            (vec![done(opaque), done(opaque), end("")], malformed()),
            (vec![error], Err(ErrorCode::UpstreamRejected)),
            (vec!["no JSON".to_owned()], malformed()),
            (
                vec![r#"{"type":"response.failed","response":{"error":{"code":"server_error"}}}"#.to_owned()],
                Err(ErrorCode::UpstreamError),
            ),
        ] {
            let events: Vec<&str> = events.iter().map(String::as_str).collect();
            assert_eq!(made(&events), expected, "{events:?}");
        }
    }
}
