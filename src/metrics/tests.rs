//! Tests of the declared metrics, their rendering and the documents that name them.

use super::*;
use crate::core::context::verdict::Diagnosis;
use reseed_protocol::{
    CloseCode,
    compaction::{CompactionRung, FailedRung},
    context::BreakerReason,
    hooks::HookPoint,
    receipt::{BreakReason, PrefixBreak},
};

/// Returns what is rendered after `record`, in a recorder of its own.
pub(crate) fn rendered(record: impl FnOnce()) -> String {
    let recorder = recorder();
    let handle = recorder.handle();
    ::metrics::with_local_recorder(&recorder, || {
        describe_all();
        record();
    });
    handle.render()
}

/// Records each metric at least once.
pub(super) fn record_all() {
    begin();
    drop(CONNECTIONS.hold(["none"]));
    std::mem::forget((CONNECTIONS.hold(["v2"]), SESSIONS_OPEN.hold([]), RELAYED_CONNECTIONS.hold(["edge"])));
    nodes(2, 1, 1, 7);
    // The store counts these itself, under names of its own.
    ::metrics::counter!(crate::store::READS_WAITED_TOTAL).increment(1);
    ::metrics::counter!(crate::store::TIMELINE_CHANGES_TOTAL).increment(1);
    TAKEOVERS_TOTAL.add(["silent"], 1);
    LEASE_AGE_RATIO.set([], 0.75);
    CLOSES_TOTAL.add([word(CloseCode::NoHello.code())], 1);
    COMMANDS_TOTAL.add(["user_input", Outcome::Error(ErrorCode::QueueFull).label()], 1);
    turn_finished(TurnStatus::Completed, Duration::from_millis(70));
    let usage = ReportedUsage { input_tokens: 9, output_tokens: 3, reasoning_tokens: Some(1), ..Default::default() };
    model_request_finished("turn", Outcome::Ok);
    model_tokens("turn", OTHER, &usage);
    let (lasted, first_chunk) = (Duration::from_secs(2), Some(Duration::from_millis(300)));
    inference_ended(["openai", OTHER, ""], lasted, first_chunk, Some(&usage));
    TRACE_SPANS_TOTAL.add(["sent"], 1);
    model_request_finished("summary", Outcome::Cancelled);
    model_answer_paid("turn", OTHER, Some(1_500));
    model_answer_paid("summary", OTHER, None);
    model_request_finished(PREWARM, Outcome::Ok);
    model_tokens(PREWARM, OTHER, &usage);
    PREWARM_SAVED_NANO_USD_TOTAL.add([], 7);
    let part = "system:base".to_owned();
    let broke = PrefixBreak { part, reason: BreakReason::CompactionUndone, detail: None, lost_tokens: 40 };
    request_shared(&Receipt { prefix_tokens: 60, broke: Some(broke), ..Receipt::default() });
    request_shared(&Receipt { prefix_tokens: 100, ..Receipt::default() });
    for reason in ["tools_changed", "verbosity_changed", "unavailable"] {
        let provider = Some(Diagnosis::because(Some(reason), None).verdict(None));
        request_shared(&Receipt { provider, ..Receipt::default() });
    }
    request_shared(&Receipt { provider: Some(Diagnosis::hit().verdict(None)), ..Receipt::default() });
    compaction::compaction_committed(&compaction::tests::committed(|event| {
        event.failed_rungs = vec![FailedRung { rung: CompactionRung::ModelSummary, reason: "timeout".into() }];
    }));
    compaction::compaction_failed(&compaction::tests::failed(ErrorCode::CompactionVoid, |event| {
        event.summary_usage = Some(compaction::tests::usage());
    }));
    std::mem::forget(compaction::breaker_opened(BreakerReason::NoGain));
    drop(calls::HookCallMeter::new(calls::HookKind::Rust, HookPoint::Context));
    calls::ToolCallMeter::new("history_search").ended(false);
    store_committed(3, Duration::from_micros(400));
    STORE_COMMITS_TOTAL.add(["failed"], 1);
}

#[test]
fn a_model_has_a_label_only_if_the_settings_name_it() {
    let configured = BTreeSet::from(["m-large", "m-small"]);
    let labels = ["m-large", "m-small", "a user's", ""].map(|model| model_label(model, &configured));
    assert_eq!(labels, ["m-large", "m-small", OTHER, OTHER]);
    let text = rendered(|| begin_models(&configured));
    assert!(text.contains(r#"reseed_model_cost_nano_usd_total{purpose="summary",model="m-small"} 0"#), "{text}");
}

#[test]
fn what_is_recorded_is_rendered_under_its_labels() {
    let text = rendered(record_all);
    for line in [
        r#"reseed_connections{dialect="none"} 0"#,
        r#"reseed_connections{dialect="v2"} 1"#,
        r#"reseed_relayed_connections{side="edge"} 1"#,
        r#"reseed_nodes{state="living"} 2"#,
        "reseed_sessions_held 7",
        r#"reseed_takeovers_total{reason="silent"} 1"#,
        r#"reseed_takeovers_total{reason="gone"} 0"#,
        "reseed_lease_age_ratio 0.75",
        r#"reseed_relayed_connections{side="holder"} 0"#,
        "reseed_sessions_open 1",
        r#"reseed_closes_total{code="4408"} 1"#,
        r#"reseed_commands_total{type="user_input",outcome="queue_full"} 1"#,
        r#"reseed_turns_total{status="completed"} 1"#,
        r#"reseed_turn_duration_seconds_bucket{le="0.05"} 0"#,
        r#"reseed_turn_duration_seconds_bucket{le="0.1"} 1"#,
        r#"reseed_tokens_total{purpose="turn",model="other",kind="input"} 9"#,
        r#"reseed_tokens_total{purpose="turn",model="other",kind="reasoning"} 1"#,
        r#"reseed_model_requests_total{purpose="summary",outcome="cancelled"} 1"#,
        r#"reseed_model_cost_nano_usd_total{purpose="turn",model="other"} 1500"#,
        r#"reseed_model_unpriced_requests_total{purpose="summary",model="other"} 1"#,
        "reseed_prefix_tokens_total 160",
        r#"reseed_prefix_breaks_total{reason="compaction_undone"} 1"#,
        r#"reseed_prefix_tokens_lost_total{reason="compaction_undone"} 40"#,
        r#"reseed_compaction_tokens_saved_total 600"#,
        r#"reseed_breakers_open{reason="no_gain"} 1"#,
        r#"reseed_store_commits_total{outcome="failed"} 1"#,
        r#"reseed_store_commit_seconds_bucket{le="0.0005"} 1"#,
        "reseed_store_records_total 3",
    ] {
        assert!(text.lines().any(|rendered| rendered == line), "{line} is not in\n{text}");
    }
}

#[test]
fn every_metric_is_declared_described_and_recorded_and_none_is_a_summary() {
    let text = rendered(record_all);
    let named = |prefix: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
        lines.filter_map(|rest| rest.split(' ').next()).map(str::to_owned).collect()
    };
    let declared: BTreeSet<String> = DECLARED.iter().map(|row| row.name.to_owned()).collect();
    assert_eq!(declared.len(), DECLARED.len(), "a name is declared twice");
    assert!(declared.iter().all(|name| name.starts_with("reseed_") || name.starts_with("gen_ai_client_")));
    assert_eq!(named("# HELP "), declared);
    assert_eq!(named("# TYPE "), declared);
    assert!(!text.lines().any(|line| line.starts_with("# TYPE") && line.ends_with(" summary")), "{text}");
}

/// Returns the metrics that a text names, each with the labels that it selects by.
fn named(text: &str) -> BTreeSet<(String, Vec<String>)> {
    let word =
        |text: &str| -> usize { text.find(|c: char| !(c.is_ascii_lowercase() || c == '_')).unwrap_or(text.len()) };
    let mut named = BTreeSet::new();
    for (at, _) in text.match_indices("reseed_") {
        let rest = &text[at..];
        let (name, after) = rest.split_at(word(rest));
        let picked = after.strip_prefix('{').and_then(|after| after.split('}').next()).unwrap_or_default();
        let labels = picked.split(',').map(|label| label.trim()).filter(|label| !label.is_empty());
        let labels = labels.map(|label| label[..word(label)].to_owned()).collect();
        named.insert((name.to_owned(), labels));
    }
    named
}

#[test]
fn the_rules_and_the_board_speak_of_what_is_counted() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/docker/observability");
    let mut used = BTreeSet::new();
    for file in ["rules.yaml", "rules.test.yaml", "board.json"] {
        let text = std::fs::read_to_string(format!("{folder}/{file}")).unwrap();
        for (name, labels) in named(&text) {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let of = |name: &str| DECLARED.iter().find(|row| row.name == name);
            let found = of(&name).or_else(|| of(base?)).unwrap_or_else(|| panic!("{file}: there is no `{name}`"));
            for label in labels {
                let known = found.labels.contains(&label.as_str()) || matches!(label.as_str(), "le" | "instance");
                assert!(known, "{file}: `{name}` has no label `{label}`");
            }
            used.insert(found.name);
        }
    }
    let board = std::fs::read_to_string(format!("{folder}/board.json")).unwrap();
    serde_json::from_str::<serde_json::Value>(&board).unwrap();
    let names = DECLARED.iter().map(|row| row.name);
    let missing: Vec<_> = names.filter(|name| name.contains("compaction") && !used.contains(name)).collect();
    assert!(missing.is_empty(), "neither a rule nor the board shows {missing:?}");
}

#[test]
fn gauges_come_back_to_nothing() {
    let text = rendered(|| {
        drop((CONNECTIONS.hold(["v1"]), SESSIONS_OPEN.hold([])));
    });
    for line in [r#"reseed_connections{dialect="v1"} 0"#, "reseed_sessions_open 0"] {
        assert!(text.lines().any(|rendered| rendered == line), "{line} is not in\n{text}");
    }
}

#[test]
fn several_servers_in_a_process_share_their_counts() {
    let (one, other) = (install(), install());
    FRAMES_REFUSED_TOTAL.add([ErrorCode::TooDeep.as_str()], 1);
    for handle in [one, other] {
        assert!(handle.render().contains(r#"reseed_frames_refused_total{code="too_deep"}"#));
    }
}

#[test]
fn the_labels_that_are_words_of_the_wire_exist_from_the_start() {
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/protocol/schema/reseed.v2.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(schema).unwrap()).unwrap();
    let text = rendered(begin);
    for (name, metric) in [
        ("BreakReason", r#"prefix_breaks_total{reason="#),
        ("BreakerReason", r#"breakers_open{reason="#),
        ("CompactionRung", r#"compaction_rungs_failed_total{rung="#),
        ("CompactionTrigger", r#"compactions_total{trigger="#),
        ("ContextWarningCode", r#"context_warnings_total{code="#),
        ("TurnStatus", r#"turns_total{status="#),
    ] {
        let words: Vec<&str> =
            schema["$defs"][name]["oneOf"].as_array().unwrap().iter().filter_map(|one| one["const"].as_str()).collect();
        assert!(words.len() > 2, "{name}: {words:?}");
        for word in words {
            let series = format!("reseed_{metric}{word:?}");
            assert!(text.contains(&series), "{series} is not in\n{text}");
        }
    }
}
