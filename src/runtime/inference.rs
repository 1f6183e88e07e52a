//! A request that was sent to a model: its span and its metrics, by the GenAI conventions of OpenTelemetry
//! (`gen_ai.client.inference`).
//!
//! It begins when the request is sent and not when it begins to wait for a permit or a budget. A summary that makes way
//! has several: one each time that it is sent.

use crate::{
    core::{
        model::{Answer, ModelFault, ModelRequest, ReportedUsage},
        usage_row::UsageTokens,
    },
    metrics::{self, word},
    trace::{KeyValue, Span, SpanBuilder, SpanContext, SpanKind, Traces},
};
use opentelemetry::{Array, StringValue, Value};
use reseed_protocol::SessionId;
use std::time::{Duration, Instant};

/// The only operation of these conventions that this server uses.
const OPERATION: &str = "chat";

/// Maximum bytes of a reasoning effort in a span. Providers' own words are shorter.
const EFFORT_BYTES_MAX: usize = 16;

/// What surrounds a request.
#[derive(Debug, Clone, Default)]
pub(super) struct Cause {
    /// The span that it belongs to.
    pub(super) parent: Option<SpanContext>,
    /// True if the conversation was compacted before.
    pub(super) is_compacted: bool,
}

/// A request that was sent and has not ended.
#[derive(Debug)]
pub(super) struct Inference {
    span: Span,
    provider: &'static str,
    began: Instant,
    first_chunk: Option<Duration>,
}

impl Inference {
    /// Begins when the request is sent.
    pub(super) fn sent(
        traces: &Traces,
        cause: &Cause,
        session: &SessionId,
        provider: &'static str,
        request: &ModelRequest,
    ) -> Self {
        let span = traces.start(cause.parent.clone(), || {
            let options = &request.envelope.options;
            let effort = options.reasoning_effort.clone().filter(|effort| effort.len() <= EFFORT_BYTES_MAX);
            let output_tokens_max = options.max_output_tokens.map(int);
            let given = [
                options.temperature.map(|value| KeyValue::new("gen_ai.request.temperature", value)),
                output_tokens_max.map(|tokens| KeyValue::new("gen_ai.request.max_tokens", tokens)),
                effort.map(|effort| KeyValue::new("gen_ai.request.reasoning.level", effort)),
            ];
            let attributes = [
                KeyValue::new("gen_ai.operation.name", OPERATION),
                KeyValue::new("gen_ai.provider.name", provider),
                KeyValue::new("gen_ai.request.model", request.model.clone()),
                KeyValue::new("gen_ai.request.stream", true),
                KeyValue::new("gen_ai.conversation.id", session.to_string()),
                KeyValue::new("gen_ai.conversation.compacted", cause.is_compacted),
                KeyValue::new("reseed.purpose", metrics::purpose_of(request)),
            ];
            SpanBuilder::from_name(format!("{OPERATION} {}", request.model))
                .with_kind(SpanKind::Client)
                .with_attributes(attributes.into_iter().chain(given.into_iter().flatten()))
        });
        Self { span, provider, began: Instant::now(), first_chunk: None }
    }

    /// Returns the context for what is sent.
    pub(super) fn context(&self) -> Option<SpanContext> {
        self.span.context()
    }

    /// Records that the first piece of the answer has arrived.
    pub(super) fn speaks(&mut self) {
        self.first_chunk = Some(self.began.elapsed());
    }

    /// Records the outcome. `model` is its label in metrics.
    pub(super) fn ended(mut self, model: &'static str, outcome: &Result<Answer, ModelFault>) {
        let (usage, error) = match outcome {
            Ok(answer) => (answer.usage, ""),
            Err(fault) => (fault.origin.usage, fault.code.as_str()),
        };
        self.span.record(|| {
            let seconds = self.first_chunk.map(|first| first.as_secs_f64());
            let answer = outcome.as_ref().ok();
            let finish = answer.map(|answer| Array::String(vec![StringValue::from(word(answer.stop_reason))]));
            let id = answer.and_then(|answer| answer.response.as_ref()).map(|response| response.id.clone());
            let all = [
                seconds.map(|seconds| KeyValue::new("gen_ai.response.time_to_first_chunk", seconds)),
                finish.map(|finish| KeyValue::new("gen_ai.response.finish_reasons", Value::Array(finish))),
                id.map(|id| KeyValue::new("gen_ai.response.id", id)),
            ];
            all.into_iter().flatten().chain(usage.iter().flat_map(usage_of)).collect()
        });
        self.left(model, error, usage.as_ref());
    }

    /// Records that it ended without an outcome.
    pub(super) fn cancelled(self, model: &'static str) {
        self.left(model, "cancelled", None);
    }

    fn left(self, model: &'static str, error: &'static str, usage: Option<&ReportedUsage>) {
        metrics::inference_ended([self.provider, model, error], self.began.elapsed(), self.first_chunk, usage);
        match error {
            "" => self.span.end(),
            error => self.span.fail(error),
        }
    }
}

/// Returns the attributes of a reported usage.
fn usage_of(usage: &ReportedUsage) -> Vec<KeyValue> {
    let tokens = UsageTokens::of(usage);
    vec![
        KeyValue::new("gen_ai.usage.input_tokens", int(tokens.input)),
        KeyValue::new("gen_ai.usage.output_tokens", int(tokens.output)),
        KeyValue::new("gen_ai.usage.cache_read.input_tokens", int(tokens.cached)),
        KeyValue::new("gen_ai.usage.cache_write.input_tokens", int(tokens.cache_write)),
        KeyValue::new("gen_ai.usage.reasoning.output_tokens", int(tokens.reasoning)),
    ]
}

fn int(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
