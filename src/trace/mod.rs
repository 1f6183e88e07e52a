//! Traces: spans, and the W3C trace context that connects them with those of clients, hooks, tools and model servers.
//!
//! Invariants:
//! - Without OTEL_EXPORTER_OTLP_ENDPOINT no span is made, no header is read or sent, and nothing is allocated. A piece
//!   of an answer never costs anything.
//! - A span has ids, numbers, and the names of models, tools and hooks. It never has text of messages, arguments or
//!   results of tools, or the names of users and sessions.
//! - A malformed context of a client is ignored.
//!
//! The [`current`] context belongs to a task. What a task sends to others carries it: see [`within`].

#[cfg(feature = "otel")]
mod export;
#[cfg(feature = "otel")]
mod series;
#[cfg(test)]
mod tests;

pub(crate) use opentelemetry::{
    KeyValue,
    trace::{SpanBuilder, SpanContext, SpanKind},
};

use crate::metrics;
use opentelemetry::{
    Context, SpanId, TraceFlags, TraceId,
    global::{BoxedSpan, BoxedTracer},
    trace::{Span as _, Status, TraceContextExt as _, TraceState, Tracer as _},
};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use std::{future::Future, sync::Arc};

/// The header of a context, and its name in the `_meta` of MCP.
pub(crate) const TRACEPARENT: &str = "traceparent";
/// The header with what tracing systems add to a context.
pub(crate) const TRACESTATE: &str = "tracestate";

/// Maximum bytes of a `tracestate` that is passed on, as the specification recommends.
const TRACESTATE_BYTES_MAX: usize = 512;

/// Makes spans, if an endpoint is set. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Traces(Option<Arc<BoxedTracer>>);

impl Traces {
    /// Returns true if spans are made.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Starts a span. `describe` is called only if spans are made.
    pub(crate) fn start(&self, parent: Option<SpanContext>, describe: impl FnOnce() -> SpanBuilder) -> Span {
        let Some(tracer) = &self.0 else { return Span::default() };
        let root = Context::new();
        let parent = parent.map_or_else(|| root.clone(), |parent| root.with_remote_span_context(parent));
        Span(Some(tracer.build_with_context(describe(), &parent)))
    }

    /// Returns the context in these headers, if spans are made and it is valid.
    pub(crate) fn of_headers(&self, headers: &HeaderMap) -> Option<Box<SpanContext>> {
        self.0.as_ref()?;
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        parse(header(TRACEPARENT)?, header(TRACESTATE)).map(Box::new)
    }

    /// Returns the context of a command, if spans are made and it is valid.
    pub(crate) fn of_command(&self, traceparent: Option<&str>) -> Option<Box<SpanContext>> {
        self.0.as_ref()?;
        parse(traceparent?, None).map(Box::new)
    }
}

/// Parses a context: `VERSION-TRACE-SPAN-FLAGS` in lower case hexadecimal digits. Later versions may have more parts.
fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<SpanContext> {
    let parts: Vec<&str> = traceparent.trim().splitn(5, '-').collect();
    let [version, trace, span, flags, ..] = parts[..] else { return None };
    let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let fits = [(version, 2), (trace, 32), (span, 16), (flags, 2)];
    let is_unknown = version == "ff" || (version == "00" && parts.len() > 4);
    if is_unknown || !fits.iter().all(|(part, length)| part.len() == *length && is_hex(part)) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let state = tracestate.filter(|state| state.len() <= TRACESTATE_BYTES_MAX);
    let state = state.and_then(|state| state.parse::<TraceState>().ok()).unwrap_or_default();
    let context = SpanContext::new(TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?, flags, true, state);
    context.is_valid().then_some(context)
}

tokio::task_local! {
    static CURRENT: SpanContext;
}

/// Does work in this context, which what it sends to others carries.
pub(crate) async fn within<T>(context: Option<SpanContext>, work: impl Future<Output = T>) -> T {
    match context {
        Some(context) => CURRENT.scope(context, work).await,
        None => work.await,
    }
}

/// Returns the context of the work that this task does, if there is one.
pub(crate) fn current() -> Option<SpanContext> {
    CURRENT.try_with(Clone::clone).ok()
}

/// Returns the fields that carry a context.
pub(crate) fn fields(context: &SpanContext) -> impl Iterator<Item = (&'static str, String)> {
    let (trace, span, flags) = (context.trace_id(), context.span_id(), context.trace_flags().to_u8());
    let state = context.trace_state().header();
    let fields = [(TRACEPARENT, format!("00-{trace}-{span}-{flags:02x}")), (TRACESTATE, state)];
    fields.into_iter().filter(|(_, value)| !value.is_empty())
}

/// Adds this context to the headers of a request.
pub(crate) fn add_headers(context: Option<SpanContext>, headers: &mut HeaderMap) {
    for (name, value) in context.iter().flat_map(fields) {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// A span in progress, or nothing if none are made. If it is dropped, its work was cancelled.
#[derive(Debug, Default)]
pub(crate) struct Span(Option<BoxedSpan>);

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(span) = &mut self.0 {
            span.set_attribute(KeyValue::new("error.type", "cancelled"));
        }
    }
}

impl Span {
    /// Returns true unless it is nothing.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the context for what happens within the span.
    pub(crate) fn context(&self) -> Option<SpanContext> {
        self.0.as_ref().map(|span| span.span_context().clone())
    }

    /// Adds attributes. The closure is called only if the span exists.
    pub(crate) fn record(&mut self, attributes: impl FnOnce() -> Vec<KeyValue>) {
        if let Some(span) = &mut self.0 {
            span.set_attributes(attributes());
        }
    }

    /// Adds an event, which is an attribute with a time.
    pub(crate) fn event(&mut self, name: &'static str, attributes: impl FnOnce() -> Vec<KeyValue>) {
        if let Some(span) = &mut self.0 {
            span.add_event(name, attributes());
        }
    }

    /// Names another cause of the span.
    pub(crate) fn link(&mut self, cause: SpanContext) {
        if let Some(span) = &mut self.0 {
            span.add_link(cause, Vec::new());
        }
    }

    /// Ends the span after its work has succeeded.
    pub(crate) fn end(mut self) {
        drop(self.0.take());
    }

    /// Ends the span after its work has failed, with an error code or another word from a closed set.
    pub(crate) fn fail(mut self, code: &'static str) {
        if let Some(mut span) = self.0.take() {
            span.set_attribute(KeyValue::new("error.type", code));
            span.set_status(Status::error(""));
        }
    }
}

/// Sends spans and metrics to the collector.
#[derive(Default)]
pub(crate) struct Exports {
    #[cfg(feature = "otel")]
    running: Option<export::Running>,
}

/// The reason why nothing can be exported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The endpoint is invalid, or the HTTP client could not be created.
    #[cfg(feature = "otel")]
    #[error("OTEL_EXPORTER_OTLP_ENDPOINT: {0}")]
    Exporter(#[from] Box<dyn std::error::Error + Send + Sync>),
    /// The program was built without the cargo feature `otel`.
    #[cfg(not(feature = "otel"))]
    #[error("OTEL_EXPORTER_OTLP_ENDPOINT is set, but this program was built without the feature `otel`")]
    NotBuilt,
}

impl Exports {
    /// Starts to export to this endpoint, if there is one. `node` is the name of this server.
    ///
    /// # Errors
    /// The exporter could not be created.
    pub(crate) fn start(
        endpoint: Option<&str>,
        node: &str,
        metrics: &metrics::Handle,
    ) -> Result<(Self, Traces), Error> {
        let Some(endpoint) = endpoint else { return Ok(Default::default()) };
        #[cfg(feature = "otel")]
        {
            let (running, tracer) = export::start(endpoint, node, metrics.clone())?;
            Ok((Self { running: Some(running) }, Traces(Some(Arc::new(tracer)))))
        }
        #[cfg(not(feature = "otel"))]
        {
            let _ = (endpoint, node, metrics);
            Err(Error::NotBuilt)
        }
    }

    /// Sends what is left, for a limited time.
    pub(crate) async fn stop(&self) {
        #[cfg(feature = "otel")]
        if let Some(running) = &self.running {
            running.stop().await;
        }
    }
}
