//! Tests of the log lines about turns and compactions, and of their fields.

use super::*;
use crate::{core::model::FaultOrigin, testing::Written};
use serde_json::{Value, json};

/// Returns the fields of the logged lines, without the time.
fn logged(act: impl FnOnce(&mut Measure)) -> Vec<Value> {
    let written = Written::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone()).finish();
    let mut measure = Measure::new("session1".parse().unwrap());
    tracing::subscriber::with_default(subscriber, || act(&mut measure));
    let text = written.text();
    let line = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        line.as_object_mut().unwrap().remove("timestamp");
        line
    };
    text.lines().map(line).collect()
}

fn event(name: &str, change: Value) -> Value {
    let path = format!("{}/protocol/examples/v2/events/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let mut example: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    example["payload"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    json!({ "type": example["type"], "payload": example["payload"] })
}

#[test]
fn a_turn_that_failed_is_one_line_that_names_status_model_type_and_request() {
    let failed: Event = serde_json::from_value(event("turn_finished.failed", json!({}))).unwrap();
    let Event::TurnFinished(finished) = &failed else { panic!("another event") };
    let code = finished.error.as_ref().unwrap().code;
    let origin = FaultOrigin {
        http_status: Some(503),
        error_type: Some("overloaded_error".into()),
        request_id: Some("req_1".into()),
        usage: None,
    };
    let fault = ModelFault { origin: Box::new(origin), ..ModelFault::new(code, "secret words") };
    let lines = logged(|measure| {
        measure.turn_failed(&fault, "gpt-4.1-mini");
        measure.appended(Timestamp(5), &failed);
        // The fault was reported. A turn that fails for another reason has none.
        measure.appended(Timestamp(6), &failed);
    });
    let field = |name: &str| lines[0].get(name).cloned();
    assert_eq!(field("http_status"), Some(json!(503)));
    assert_eq!(field("model"), Some(json!("gpt-4.1-mini")));
    assert_eq!(field("error_type"), Some(json!("overloaded_error")));
    assert_eq!(field("request_id"), Some(json!("req_1")));
    assert_eq!((lines.len(), lines[1].get("http_status"), lines[1].get("model")), (2, None, None));
    assert!(!lines.iter().any(|line| line.to_string().contains("secret")), "{lines:?}");
}

#[test]
fn a_turn_that_fails_with_its_compaction_names_the_refusal_that_it_was_made_for() {
    let error = json!({ "code": "upstream_timeout", "message": "m", "retriable": true });
    let failed = event("turn_finished.failed", json!({ "error": error }));
    let failed: Event = serde_json::from_value(failed).unwrap();
    let committed: Event = serde_json::from_value(event("context_compacted", json!({}))).unwrap();
    let answered: Event = serde_json::from_value(event("entry_appended.answer", json!({}))).unwrap();
    let origin = FaultOrigin { http_status: Some(413), ..FaultOrigin::default() };
    let fault = ModelFault { origin: Box::new(origin), ..ModelFault::new(ErrorCode::ContextOverflow, "secret words") };
    // A fault that led to a compaction, or was followed by an answer, is not the reason.
    for (meanwhile, status) in [(None, Some(json!(413))), (Some(&committed), None), (Some(&answered), None)] {
        let lines = logged(|measure| {
            measure.turn_failed(&fault, "gpt-4.1-mini");
            meanwhile.into_iter().for_each(|event| measure.appended(Timestamp(4), event));
            measure.appended(Timestamp(5), &failed);
        });
        let line = lines.iter().find(|line| line["message"] == "turn finished").unwrap();
        assert_eq!(line["code"], "upstream_timeout");
        assert_eq!(line.get("http_status").cloned(), status, "{line}");
    }
}

#[test]
fn a_compaction_is_one_line_with_fields_that_keep_their_names() {
    let committed = event("context_compacted", json!({ "background": true, "pausedMs": 7 }));
    let committed: Event = serde_json::from_value(committed).unwrap();
    let failed = json!({ "trigger": "threshold",
        "error": { "code": "upstream_timeout", "message": "secret words", "retriable": true } });
    let failed: Event = serde_json::from_value(event("compaction_failed", failed)).unwrap();
    let lines = logged(|measure| {
        measure.appended(Timestamp(5), &committed);
        let last = measure.last_compaction().unwrap();
        assert_eq!((last.at, last.outcome, last.rung), (Timestamp(5), "committed", Some(CompactionRung::ModelSummary)));
        measure.appended(Timestamp(6), &failed);
        let last = measure.last_compaction().unwrap();
        assert_eq!((last.outcome, last.rung, last.code), ("failed", None, Some(ErrorCode::UpstreamTimeout)));
    });
    let [first, second] = &lines[..] else { panic!("{lines:#?}") };
    let check = |line: &Value, expected: Value| {
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(line.get(field), Some(value), "{field} of {line:#}");
        }
    };
    check(
        first,
        json!({
            "level": "INFO", "target": "reseed::compaction", "message": "compaction ended", "session": "session1",
            "trigger": "manual", "mode": "background", "outcome": "committed", "rung": "model_summary",
            "before": 5312, "after": 1874, "millis": 640, "paused_millis": 7, "failed": "",
            "summary_input": 3610, "summary_cached": 0, "summary_output": 398, "cached_lost": 5120,
        }),
    );
    check(
        second,
        json!({
            "level": "WARN", "target": "reseed::compaction", "message": "compaction ended", "session": "session1",
            "trigger": "threshold", "mode": "foreground", "outcome": "failed", "code": "upstream_timeout",
            "failed": "model_summary:context_overflow", "millis": 412, "paused_millis": 0,
        }),
    );
    let text = json!(lines).to_string();
    assert!(!text.contains("secret") && !text.contains("ferry"), "{text}");
}

#[test]
fn a_rest_is_told_when_it_begins_and_ends_and_not_between() {
    let lines = logged(|measure| {
        for reason in [None, Some(BreakerReason::Failures), Some(BreakerReason::Failures), None, None] {
            measure.note_breaker(reason);
        }
        measure.note_breaker(Some(BreakerReason::Undone));
    });
    let logged: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| (line["level"].as_str().unwrap(), line["reason"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(logged, [("WARN", "failures"), ("INFO", ""), ("INFO", "undone")]);
}

#[test]
fn calls_of_clients_tools_are_counted_together_by_how_they_end() {
    let text = crate::metrics::tests::rendered(|| {
        let mut measure = Measure::new("session1".parse().unwrap());
        let mut note = |name: &str, change: Value| {
            measure.appended(Timestamp(5), &serde_json::from_value(event(name, change)).unwrap());
        };
        for (at, outcome) in ["answered", "failed", "timed_out", "dropped"].into_iter().enumerate() {
            let id = format!("call{at}");
            note("tool_call", json!({ "toolCallId": id, "name": format!("secret_{at}"), "place": "client" }));
            // A person has allowed it, which does not end it.
            note("call_resolved.approval", json!({ "toolCallId": id }));
            note("call_resolved", json!({ "toolCallId": id, "outcome": outcome }));
            // One call is not this process's, and one is the server's.
            note("call_resolved", json!({ "toolCallId": id, "outcome": outcome }));
            note("tool_call", json!({ "toolCallId": id, "name": "shell", "place": "server" }));
            note("call_resolved", json!({ "toolCallId": id, "outcome": outcome }));
        }
    });
    for line in [
        r#"reseed_tool_calls_total{tool="(client)",outcome="ok"} 1"#,
        r#"reseed_tool_calls_total{tool="(client)",outcome="failed"} 1"#,
        r#"reseed_tool_calls_total{tool="(client)",outcome="cancelled"} 2"#,
        r#"reseed_tool_duration_seconds_count{tool="(client)"} 4"#,
    ] {
        assert!(text.lines().any(|rendered| rendered == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("secret"), "{text}");
}
