//! Sends spans and metrics to a collector, by OTLP over HTTP with protobuf.
//!
//! Spans go through the library's batch processor: a bounded queue, which drops what does not fit, and a thread of its
//! own. The exporter runs on the server's runtime. A collector that is away costs its spans, which are counted, and two
//! lines in the log. The metrics are those of `/metrics`, read at an interval.

use super::series;
use crate::{
    config::listed::is_this_machine,
    metrics::{self, TRACE_SPANS_TOTAL},
};
use opentelemetry::{KeyValue, global::BoxedTracer, trace::TracerProvider as _};
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SdkTracerProvider, SpanData, SpanExporter},
};
use prost::Message as _;
use reqwest::{
    Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use std::{
    env,
    error::Error,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::{
    runtime::Handle,
    task::{JoinHandle, spawn_blocking},
    time::{interval, timeout},
};
use tokio_util::sync::CancellationToken;

/// The time limit for one export.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit for sending what is left when the server stops.
const FLUSH_TIME: Duration = Duration::from_secs(3);

/// The interval between exports of metrics, in milliseconds, unless OTEL_METRIC_EXPORT_INTERVAL sets another.
const METRICS_INTERVAL_MS: u64 = 60_000;

/// The name of this program in traces, unless OTEL_SERVICE_NAME sets another.
const SERVICE: &str = "reseed";

/// The exports of one server.
pub(super) struct Running {
    provider: SdkTracerProvider,
    stopped: CancellationToken,
    metrics: Mutex<Option<JoinHandle<()>>>,
}

/// Starts to export to this endpoint.
///
/// # Errors
/// The endpoint is invalid, or the HTTP client could not be created.
pub(super) fn start(
    endpoint: &str,
    node: &str,
    metrics: metrics::Handle,
) -> Result<(Running, BoxedTracer), Box<dyn Error + Send + Sync>> {
    let url: Url = endpoint.trim_end_matches('/').parse()?;
    let address = url.as_str().trim_end_matches('/');
    let http = client(&url)?;
    let resource = resource(node);
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(http.clone())
        .with_endpoint(format!("{address}/v1/traces"))
        .build()?;
    let exporter = OnRuntime { exporter: Arc::new(exporter), runtime: Handle::current(), lost: AtomicU64::new(0) };
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.clone()).build();
    let tracer = BoxedTracer::new(Box::new(provider.tracer(SERVICE)));
    let stopped = CancellationToken::new();
    let pushing = push(format!("{address}/v1/metrics"), http, resource, metrics, stopped.clone());
    let metrics = Mutex::new(Some(tokio::spawn(pushing)));
    Ok((Running { provider, stopped, metrics }, tracer))
}

fn client(url: &Url) -> Result<reqwest::Client, reqwest::Error> {
    let builder = reqwest::Client::builder()
        .timeout(EXPORT_TIMEOUT)
        // Headers with credentials go only where the settings say.
        .redirect(reqwest::redirect::Policy::none());
    let builder = if is_this_machine(url.host_str().unwrap_or_default()) { builder.no_proxy() } else { builder };
    // Plain HTTP needs no certificates, so a machine without any works too.
    let builder = if url.scheme() == "http" { builder.tls_certs_only([]) } else { builder };
    // If another part of the process has already installed a provider, that one is used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    builder.build()
}

/// Describes this server. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come first.
fn resource(node: &str) -> Resource {
    let own = [
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", node.to_owned()),
    ];
    let given = Resource::builder().build();
    let is_named = given.get(&"service.name".into()).is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let own = own.into_iter().filter(|own| given.get(&own.key).is_none()).collect::<Vec<_>>();
    let builder = Resource::builder().with_attributes(own);
    if is_named { builder.build() } else { builder.with_service_name(SERVICE).build() }
}

/// The library's exporter, on the server's runtime.
#[derive(Debug)]
struct OnRuntime {
    exporter: Arc<opentelemetry_otlp::SpanExporter>,
    runtime: Handle,
    /// The spans that were lost since the last successful export.
    lost: AtomicU64,
}

impl SpanExporter for OnRuntime {
    /// Returns `Ok` in any case: a failure is logged here, and only once until the collector is back.
    fn export(&self, batch: Vec<SpanData>) -> impl Future<Output = OTelSdkResult> + Send {
        let (count, exporter) = (batch.len() as u64, self.exporter.clone());
        let exported = self.runtime.spawn(async move { exporter.export(batch).await });
        async move {
            if matches!(exported.await, Ok(Ok(()))) {
                TRACE_SPANS_TOTAL.add(["sent"], count);
                let lost = self.lost.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    tracing::info!(lost, "the collector of traces is back");
                }
            } else {
                TRACE_SPANS_TOTAL.add(["lost"], count);
                if self.lost.fetch_add(count, Ordering::Relaxed) == 0 {
                    tracing::warn!("the collector of traces does not take spans; they are lost until it does");
                }
            }
            Ok(())
        }
    }

    fn set_resource(&mut self, resource: &Resource) {
        if let Some(exporter) = Arc::get_mut(&mut self.exporter) {
            exporter.set_resource(resource);
        }
    }
}

/// Sends the metrics at an interval, and once more at the end.
async fn push(
    url: String,
    http: reqwest::Client,
    resource: Resource,
    metrics: metrics::Handle,
    end: CancellationToken,
) {
    let period = env::var("OTEL_METRIC_EXPORT_INTERVAL").ok().and_then(|millis| millis.parse().ok());
    let mut ticks = interval(Duration::from_millis(period.unwrap_or(METRICS_INTERVAL_MS).max(1)));
    ticks.tick().await;
    let (headers, began) = (headers(), SystemTime::now());
    let mut is_lost = false;
    while !end.is_cancelled() {
        tokio::select! {
            _ = ticks.tick() => {}
            () = end.cancelled() => {}
        }
        let body = series::request(&metrics.render(), &resource, began, SystemTime::now()).encode_to_vec();
        let request = http.post(&url).headers(headers.clone()).header(CONTENT_TYPE, "application/x-protobuf");
        let sent = request.body(body).send().await.and_then(reqwest::Response::error_for_status);
        if let (true, false) = (sent.is_err(), is_lost) {
            tracing::warn!("the collector does not take metrics; they are sent again later");
        }
        is_lost = sent.is_err();
    }
}

/// Returns the headers of OTEL_EXPORTER_OTLP_HEADERS, `name=value,…` with percent-encoded values.
fn headers() -> HeaderMap {
    let given = env::var("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
    let query = given.replace('+', "%2B").replace(',', "&");
    let parsed = Url::parse(&format!("http://localhost/?{query}")).ok();
    let pairs = parsed.iter().flat_map(Url::query_pairs);
    let header = |name: &str, value: &str| Some((name.trim().parse::<HeaderName>().ok()?, value.parse().ok()?));
    pairs
        .filter_map(|(name, value)| header(&name, value.trim()))
        .collect::<Vec<(_, HeaderValue)>>()
        .into_iter()
        .collect()
}

impl Running {
    /// Sends what is left, for at most [`FLUSH_TIME`].
    pub(super) async fn stop(&self) {
        self.stopped.cancel();
        let provider = self.provider.clone();
        let spans = spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_TIME));
        let metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner).take();
        let metrics = async {
            if let Some(metrics) = metrics {
                let _ = metrics.await;
            }
        };
        let _ = timeout(FLUSH_TIME, async { tokio::join!(spans, metrics) }).await;
    }
}
