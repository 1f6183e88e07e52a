//! Tests of the context and of the translated metrics.

use super::{TRACESTATE, add_headers, current, parse, within};
use reqwest::header::HeaderMap;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[test]
fn a_context_is_read_if_it_is_well_formed() {
    let valid = format!("00-{TRACE}-00f067aa0ba902b7-01");
    for (text, expected) in [
        (valid.clone(), Some(valid.clone())),
        (format!(" {valid} "), Some(valid.clone())),
        (format!("00-{TRACE}-00f067aa0ba902b7-03"), Some(valid.clone())),
        (format!("00-{TRACE}-00f067aa0ba902b7-00"), Some(format!("00-{TRACE}-00f067aa0ba902b7-00"))),
        (format!("cc-{TRACE}-00f067aa0ba902b7-01-more"), Some(valid.clone())),
        (format!("{valid}-more"), None),
        (format!("ff-{TRACE}-00f067aa0ba902b7-01"), None),
        (format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()), None),
        (format!("00-{TRACE}-0000000000000000-01"), None),
        (format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), None),
        (format!("00-+{}-00f067aa0ba902b7-01", &TRACE[1..]), None),
        (format!("00-{TRACE}-00f067aa0ba902b-01"), None),
        (format!("00-{TRACE}-00f067aa0ba902b7"), None),
        (format!("00-{TRACE}-00f067aa0ba902bé-01"), None),
        (String::new(), None),
        ("1".repeat(100_000), None),
    ] {
        let mut headers = HeaderMap::new();
        add_headers(parse(&text, None), &mut headers);
        let written = headers.get(super::TRACEPARENT).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(written, expected, "{}", text.chars().take(80).collect::<String>());
    }
}

#[test]
fn what_systems_add_to_a_context_goes_along_if_it_is_well_formed() {
    let long = format!("a={}", "b".repeat(600));
    for (state, expected) in [("a=b,c=d", Some("a=b,c=d")), ("?", None), ("", None), (&long, None)] {
        let mut headers = HeaderMap::new();
        add_headers(parse(&format!("00-{TRACE}-00f067aa0ba902b7-01"), Some(state)), &mut headers);
        assert_eq!(headers.get(TRACESTATE).map(|value| value.to_str().unwrap()), expected, "{state}");
        assert_eq!(headers.len(), 1 + usize::from(expected.is_some()), "{headers:?}");
    }
}

#[tokio::test]
async fn a_context_belongs_to_the_work_that_is_done_within_it() {
    let context = parse(&format!("00-{TRACE}-00f067aa0ba902b7-01"), None);
    assert_eq!(current(), None);
    assert_eq!(within(context.clone(), async { current() }).await, context);
    assert!(within(context, within(None, async { current().is_some() })).await);
    assert_eq!(current(), None);
}

#[cfg(feature = "otel")]
#[test]
fn metrics_are_translated_with_their_labels_and_buckets() {
    use crate::{
        core::model::ReportedUsage,
        metrics::{TOOL_CALLS_TOTAL, TRACE_SPANS_TOTAL, TURN_SECONDS, inference_ended, tests::rendered},
        trace::series::request,
    };
    use opentelemetry_proto::tonic::metrics::v1::{Metric, metric::Data};
    use std::time::{Duration, UNIX_EPOCH};

    let text = rendered(|| {
        TRACE_SPANS_TOTAL.add(["sent"], 3);
        TOOL_CALLS_TOTAL.add(["a\"b\\n", "ok"], 1);
        TURN_SECONDS.record([], Duration::from_millis(70));
        TURN_SECONDS.record([], Duration::from_secs(1_000));
        let usage = ReportedUsage { input_tokens: 9, output_tokens: 3, ..ReportedUsage::default() };
        inference_ended(["openai", "m", ""], Duration::from_secs(2), None, Some(&usage));
    });
    let resource = opentelemetry_sdk::Resource::builder_empty().build();
    let request = request(&text, &resource, UNIX_EPOCH, UNIX_EPOCH + Duration::from_secs(1));
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    let named = |name: &str| -> &Metric { metrics.iter().find(|metric| metric.name == name).expect(name) };
    let labels = |attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue]| -> Vec<String> {
        let text = |value: &opentelemetry_proto::tonic::common::v1::KeyValue| {
            let value_text = format!("{:?}", value.value.as_ref().unwrap().value.as_ref().unwrap());
            format!("{}={value_text}", value.key)
        };
        attributes.iter().map(text).collect()
    };
    let Some(Data::Sum(spans)) = &named("reseed_trace_spans_total").data else { panic!("{text}") };
    let point = &spans.data_points[0];
    assert_eq!(labels(&point.attributes), [r#"outcome=StringValue("sent")"#]);
    assert_eq!((format!("{:?}", point.value), spans.is_monotonic), ("Some(AsInt(3))".to_owned(), true));
    assert_eq!(point.time_unix_nano, 1_000_000_000);
    let Some(Data::Sum(tools)) = &named("reseed_tool_calls_total").data else { panic!("{text}") };
    let found = labels(&tools.data_points[0].attributes);
    assert!(found.contains(&r#"tool=StringValue("a\"b\\n")"#.to_owned()), "{found:?}");
    let turns = named("reseed_turn_duration_seconds");
    assert!(!turns.description.is_empty(), "{turns:?}");
    let Some(Data::Histogram(turns)) = &turns.data else { panic!("{text}") };
    let point = &turns.data_points[0];
    assert_eq!((point.count, point.bucket_counts.len()), (2, point.explicit_bounds.len() + 1));
    let filled: Vec<usize> = (0..point.bucket_counts.len()).filter(|at| point.bucket_counts[*at] > 0).collect();
    assert_eq!(filled, [2, point.explicit_bounds.len()], "up to 0.1 s, and more than 600 s");
    assert!((point.sum.unwrap() - 1_000.07).abs() < 1e-6);
    for name in [
        "gen_ai.client.inference.time_to_first_chunk",
        "gen_ai.client.inference.operation.input_tokens",
        "gen_ai.client.inference.operation.output_tokens",
        "gen_ai.client.inference.usage.input_tokens",
        "gen_ai.client.inference.usage.output_tokens",
        "gen_ai.client.inference.usage.cache_read.input_tokens",
        "gen_ai.client.inference.usage.cache_write.input_tokens",
        "gen_ai.client.inference.usage.reasoning.output_tokens",
    ] {
        let expected = if name.contains("first_chunk") { "s" } else { "{token}" };
        assert!(name.contains("first_chunk") || named(name).unit == expected, "{name}");
    }
    let duration = named("gen_ai.client.inference.duration");
    let Some(Data::Histogram(points)) = &duration.data else { panic!("{text}") };
    let expected = ["gen_ai.operation.name=StringValue(\"chat\")", "gen_ai.provider.name=StringValue(\"openai\")"];
    let found = labels(&points.data_points[0].attributes);
    assert_eq!((duration.unit.as_str(), &found[..2], found.len()), ("s", &expected.map(str::to_owned)[..], 3));
}
