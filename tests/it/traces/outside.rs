//! What is outside of the server: a collector, a webhook and an MCP server, in one.

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{AnyValue, any_value::Value as Any},
};
use prost::Message as _;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::net::TcpListener;

/// A span as a collector gets it, with ids in hexadecimal digits. A root has an empty parent.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) name: String,
    pub(super) trace: String,
    pub(super) id: String,
    pub(super) parent: String,
    pub(super) links: Vec<String>,
    attributes: BTreeMap<String, String>,
    began: u64,
}

impl Span {
    /// Returns the text of an attribute; empty if there is none.
    pub(super) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

/// What was received.
#[derive(Debug, Default)]
struct Received {
    traces: Vec<Bytes>,
    metrics: Vec<Bytes>,
    /// The `traceparent` of calls, by path.
    contexts: Vec<(&'static str, String)>,
    /// The `traceparent` in the `_meta` of calls of tools.
    meta: Vec<Value>,
}

pub(super) struct Outside {
    address: String,
    received: Arc<Mutex<Received>>,
}

type Shared = State<Arc<Mutex<Received>>>;

impl Outside {
    pub(super) async fn start() -> Self {
        let received: Arc<Mutex<Received>> = Arc::default();
        let traces = async |State(received): Shared, body: Bytes| received.lock().unwrap().traces.push(body);
        let metrics = async |State(received): Shared, body: Bytes| received.lock().unwrap().metrics.push(body);
        let router = Router::new()
            .route("/v1/traces", post(traces))
            .route("/v1/metrics", post(metrics))
            .route("/hook", post(hook))
            .route("/mcp", post(mcp))
            .with_state(received.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, received }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }

    fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap()
    }

    /// Returns the spans in the order of their start.
    pub(super) fn spans(&self) -> Vec<Span> {
        let received = self.received();
        let batches = received.traces.iter().map(|body| ExportTraceServiceRequest::decode(body.clone()).unwrap());
        let scopes = batches.flat_map(|batch| batch.resource_spans).flat_map(|resource| resource.scope_spans);
        let mut spans: Vec<Span> = scopes
            .flat_map(|scope| scope.spans)
            .map(|span| Span {
                name: span.name,
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                links: span.links.iter().map(|link| hex(&link.span_id)).collect(),
                attributes: span.attributes.into_iter().map(|pair| (pair.key, text(pair.value))).collect(),
                began: span.start_time_unix_nano,
            })
            .collect();
        spans.sort_by_key(|span| span.began);
        spans
    }

    /// Returns the names of the metrics.
    pub(super) fn metrics(&self) -> BTreeSet<String> {
        let received = self.received();
        let batches = received.metrics.iter().map(|body| ExportMetricsServiceRequest::decode(body.clone()).unwrap());
        let scopes = batches.flat_map(|batch| batch.resource_metrics).flat_map(|resource| resource.scope_metrics);
        scopes.flat_map(|scope| scope.metrics).map(|metric| metric.name).collect()
    }

    /// Returns the contexts of the calls to this path.
    pub(super) fn contexts(&self, path: &str) -> Vec<String> {
        let received = self.received();
        received.contexts.iter().filter(|(of, _)| *of == path).map(|(_, context)| context.clone()).collect()
    }

    /// Returns the contexts in the calls of tools.
    pub(super) fn meta(&self) -> Vec<Value> {
        self.received().meta.clone()
    }

    /// Returns true if a text is in anything that the collector received.
    pub(super) fn has(&self, text: &str) -> bool {
        let received = self.received();
        assert!(!received.traces.is_empty() && !received.metrics.is_empty(), "nothing was received");
        received.traces.iter().chain(&received.metrics).any(|body| String::from_utf8_lossy(body).contains(text))
    }
}

fn note(received: &Mutex<Received>, path: &'static str, headers: &HeaderMap) {
    if let Some(context) = headers.get("traceparent") {
        received.lock().unwrap().contexts.push((path, context.to_str().unwrap().to_owned()));
    }
}

async fn hook(State(received): Shared, headers: HeaderMap) -> StatusCode {
    note(&received, "/hook", &headers);
    StatusCode::NO_CONTENT
}

async fn mcp(State(received): Shared, headers: HeaderMap, Json(message): Json<Value>) -> Response {
    note(&received, "/mcp", &headers);
    let id = message["id"].clone();
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "out", "version": "1" },
        }),
        "tools/list" => {
            let schema = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
            let tool = json!({ "name": "do", "inputSchema": schema, "annotations": { "readOnlyHint": true } });
            json!({ "tools": [tool] })
        }
        "tools/call" => {
            received.lock().unwrap().meta.push(message["params"]["_meta"]["traceparent"].clone());
            json!({ "content": [{ "type": "text", "text": super::CANARY }] })
        }
        _ if id.is_null() => return StatusCode::ACCEPTED.into_response(),
        _ => {
            let error = json!({ "code": -32601, "message": "?" });
            return Json(json!({ "jsonrpc": "2.0", "id": id, "error": error })).into_response();
        }
    };
    Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
}

fn hex(id: &[u8]) -> String {
    id.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(Any::StringValue(text)) => text,
        Some(Any::BoolValue(value)) => value.to_string(),
        Some(Any::IntValue(value)) => value.to_string(),
        Some(Any::DoubleValue(value)) => value.to_string(),
        Some(Any::ArrayValue(values)) => {
            values.values.into_iter().map(|value| text(Some(value))).collect::<Vec<_>>().join(",")
        }
        other => format!("{other:?}"),
    }
}
