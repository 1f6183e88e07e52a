//! Translates the metrics from Prometheus' text format to OTLP, so that each is recorded once.
//!
//! Our own metrics keep their names. Those of the GenAI conventions get their names with dots back.

use opentelemetry_proto::{
    tonic::{
        collector::metrics::v1::ExportMetricsServiceRequest,
        common::v1::{InstrumentationScope, KeyValue},
        metrics::v1::{
            AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
            ScopeMetrics, Sum, metric::Data, number_data_point::Value,
        },
        resource::v1::Resource,
    },
    transform::common::tonic::Attributes,
};
use std::time::{SystemTime, UNIX_EPOCH};

/// What the names of all metrics of the GenAI conventions begin with, and how the conventions write that.
const GEN_AI: (&str, &str) = ("gen_ai_client_inference_", "gen_ai.client.inference.");

/// The words in these names after which the conventions write a dot.
const DOTTED: [&str; 5] = ["usage", "operation", "cache_read", "cache_write", "reasoning"];

/// Returns the request that sends these metrics, which have counted since `began`.
pub(super) fn request(
    text: &str,
    resource: &opentelemetry_sdk::Resource,
    began: SystemTime,
    now: SystemTime,
) -> ExportMetricsServiceRequest {
    let nanos = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let scope = InstrumentationScope { name: "reseed".to_owned(), ..InstrumentationScope::default() };
    let metrics = metrics(text, nanos(began), nanos(now));
    let attributes = resource.iter().map(|(key, value)| opentelemetry::KeyValue::new(key.clone(), value.clone()));
    let attributes = Attributes::from(attributes).0;
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }],
            ..ResourceMetrics::default()
        }],
    }
}

fn metrics(text: &str, start_time_unix_nano: u64, time_unix_nano: u64) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    let (mut help, mut histogram) = (("", ""), HistogramDataPoint::default());
    for line in text.lines() {
        if let Some(line) = line.strip_prefix("# HELP ") {
            help = line.split_once(' ').unwrap_or_default();
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            let description = if help.0 == name { help.1.to_owned() } else { String::new() };
            metrics.push(begun(name, kind, description));
        } else if let Some((series, value)) = line.rsplit_once(' ')
            && let Some(Metric { data: Some(data), name: metric, .. }) = metrics.last_mut()
        {
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let (attributes, bound) = attributes(labels, metric.contains('.'));
            let number = NumberDataPoint {
                attributes: attributes.clone(),
                start_time_unix_nano,
                time_unix_nano,
                value: Some(value.parse().map_or_else(|_| Value::AsDouble(float(value)), Value::AsInt)),
                ..NumberDataPoint::default()
            };
            match data {
                Data::Gauge(gauge) => gauge.data_points.push(number),
                Data::Sum(sum) => sum.data_points.push(number),
                Data::Histogram(points) if name.ends_with("_count") => {
                    let count = value.parse().unwrap_or_default();
                    let times =
                        HistogramDataPoint { attributes, start_time_unix_nano, time_unix_nano, count, ..histogram };
                    points.data_points.push(times);
                    histogram = HistogramDataPoint::default();
                }
                Data::Histogram(_) => match bound {
                    // Prometheus counts what is below each bound, and OTLP what is between two.
                    Some(bound) => {
                        let below: u64 = histogram.bucket_counts.iter().sum();
                        histogram.bucket_counts.push(value.parse::<u64>().unwrap_or(below).saturating_sub(below));
                        histogram.explicit_bounds.extend(Some(float(&bound)).filter(|bound| bound.is_finite()));
                    }
                    None => histogram.sum = Some(float(value)),
                },
                _ => {}
            }
        }
    }
    metrics
}

/// Returns a metric without points.
fn begun(name: &str, kind: &str, description: String) -> Metric {
    let (name, unit) = match name.strip_prefix(GEN_AI.0) {
        None => (name.to_owned(), ""),
        Some(rest) => {
            let unit = if rest.ends_with("_seconds") { "s" } else { "{token}" };
            let rest = rest.trim_end_matches("_seconds").trim_end_matches("_total");
            let dotted = |name: String, word: &&str| name.replace(&format!("{word}_"), &format!("{word}."));
            (DOTTED.iter().fold(format!("{}{rest}", GEN_AI.1), dotted), unit)
        }
    };
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let data = match kind {
        "counter" => Data::Sum(Sum { data_points: Vec::new(), aggregation_temporality, is_monotonic: true }),
        "histogram" => Data::Histogram(Histogram { data_points: Vec::new(), aggregation_temporality }),
        _ => Data::Gauge(Gauge::default()),
    };
    Metric { name, description, unit: unit.to_owned(), data: Some(data), ..Metric::default() }
}

fn float(text: &str) -> f64 {
    match text {
        "+Inf" => f64::INFINITY,
        text => text.parse().unwrap_or_default(),
    }
}

/// Parses `name="value",…}`. Returns the labels that have a value, without `le`, and the value of `le`.
fn attributes(mut labels: &str, are_dotted: bool) -> (Vec<KeyValue>, Option<String>) {
    let (mut attributes, mut bound) = (Vec::new(), None);
    while let Some((name, rest)) = labels.split_once("=\"") {
        let mut is_escaped = false;
        let end = rest.find(|c| {
            let is_end = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_end
        });
        let (value, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let plain = |part: &str| part.replace("\\\"", "\"").replace("\\n", "\n");
        let value = value.split("\\\\").map(plain).collect::<Vec<_>>().join("\\");
        labels = rest.trim_start_matches(['"', ',']);
        let name = match name.strip_prefix("gen_ai_").filter(|_| are_dotted) {
            Some(rest) => format!("gen_ai.{}", rest.replace('_', ".")),
            None if are_dotted => name.replace('_', "."),
            None => name.to_owned(),
        };
        match &*name {
            "le" => bound = Some(value),
            _ if value.is_empty() => {}
            _ => attributes.push(opentelemetry::KeyValue::new(name, value)),
        }
    }
    (Attributes::from(attributes).0, bound)
}
