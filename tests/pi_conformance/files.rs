//! Groups h and j, and the index: old files upgraded to version 3, overflow detected, and every file exported
//! completely.

use crate::{
    data::{Data, Outcome, Session, outcome, place, same, whole},
    deviations,
};
use reseed::{
    core::{context::window::told_by_usage, model::ReportedUsage},
    internals::detect_overflow,
    pi::{Exporter, Json, json::Object},
};
use reseed_protocol::{StopReason, Timestamp};
use serde_json::{Value, json as value};

pub(crate) fn migration(data: &Data, case: &Value) -> Outcome {
    outcome(|| {
        let session = data.session(case);
        same(
            "the header's version",
            &session.header.get("version"),
            &Some(&Json::from(whole(&case["headerVersion"]))),
        )?;
        let id_is_new =
            |id: &str| id.len() == 8 && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if case["idPattern"].is_string() {
            same("the pattern", &case["idPattern"], &value!("^[0-9a-f]{8}$"))?;
            same("the ids", &session.entries.iter().all(|entry| id_is_new(entry.entry_id.as_str())), &true)?;
        }
        let expected = case["entries"].as_array().unwrap();
        same("how many entries", &session.entries.len(), &expected.len())?;
        for (entry, expected) in session.entries.iter().zip(expected) {
            let found = migrated(session, entry);
            let names = ["line", "type", "parentLine", "role", "firstKeptLine"];
            for (at, name) in names.iter().enumerate() {
                let expected = if expected.is_array() { &expected[at] } else { &expected[*name] };
                same(name, &found[*name], expected)?;
            }
        }
        Ok(())
    })
}

fn migrated(session: &Session, entry: &reseed_protocol::Entry) -> Value {
    let line = reseed::pi::export::object(entry);
    let of_id = |name: &str| {
        let id = line.text(name)?.parse().ok()?;
        session.number(&id)
    };
    value!({
        "line": session.number(&entry.entry_id),
        "type": line.text("type"),
        "parentLine": of_id("parentId"),
        "role": line.get("message").and_then(|message| message.text("role")),
        "firstKeptLine": of_id("firstKeptEntryId"),
    })
}

/// Overflows that the recorded version did not detect yet and its successors do.
const SINCE_RECOGNISED: &[&str] = &["maximum context length (8192) exceeded", "Prompt exceeds max length"];

pub(crate) fn overflow(_: &Data, case: &Value) -> Outcome {
    let text = case["errorMessage"].as_str().unwrap_or_default();
    let reason = match case["stopReason"].as_str().unwrap() {
        "stop" => Some(StopReason::Stop),
        "length" => Some(StopReason::Length),
        "toolUse" => Some(StopReason::ToolCalls),
        "aborted" => Some(StopReason::Cancelled),
        _ => None,
    };
    let found = match (reason, case["usage"].as_object()) {
        (None, _) => detect_overflow(text).is_some(),
        (Some(_), None) => false,
        (Some(reason), Some(usage)) => {
            let usage = ReportedUsage {
                input_tokens: whole(&usage["input"]) + whole(&usage["cacheRead"]),
                output_tokens: whole(&usage["output"]),
                ..ReportedUsage::default()
            };
            told_by_usage(reason, usage, whole(&case["contextWindow"]))
        }
    };
    if found && case["expected"] == false && SINCE_RECOGNISED.contains(&text) {
        return Outcome::Deviating(deviations::LATER_OVERFLOW_TEXT);
    }
    outcome(|| same(text, &value!(found), &case["expected"]))
}

/// Checks that every readable line of a file comes back as equal JSON, in order; broken ones are reported.
pub(crate) fn round_trip(data: &Data, case: &Value) -> Outcome {
    outcome(|| {
        let session = data.session(case);
        let version = format!("v{}", session.version);
        same("the version", &value!(version), &case["version"])?;
        same("the lines", &value!(session.physical_lines), &case["physicalLines"])?;
        same("the entries", &session.entries.len(), &place(&case["entries"]))?;
        let broken: Vec<usize> = session.broken.clone();
        let expected: Vec<usize> = case["skippedLines"].as_array().unwrap().iter().map(place).collect();
        same("the broken lines", &broken, &expected)?;
        let (id, end) = ("other".parse().unwrap(), "end".parse().unwrap());
        let mut exporter = Exporter::new(id, Timestamp(0));
        let entries = session.entries.iter().chain(&session.closing);
        let mut written: Vec<String> = entries.flat_map(|entry| exporter.entry(entry)).collect();
        let leaf = session.entries.last().map(|entry| entry.entry_id.clone());
        written.extend(exporter.finish(leaf.as_ref(), end, Timestamp(0)));
        let read = |line: &String| -> Object {
            let Json::Object(object) = serde_json::from_str(line).unwrap() else { panic!("{line}") };
            object
        };
        let written: Vec<Object> = written.iter().map(read).collect();
        same("the header", &written[0], &session.header)?;
        same("how many lines", &(written.len() - 1), &session.lines.len())?;
        for (written, (number, line)) in written[1..].iter().zip(&session.lines) {
            same(&format!("line {number}"), written, line)?;
        }
        Ok(())
    })
}
