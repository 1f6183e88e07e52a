//! Groups a, b and c: tokens of a message, of a context, and where a path is cut.

use crate::data::{Data, Outcome, json, lines, messages, outcome, place, same, whole};
use reseed::pi::{self, json::Object};
use serde_json::{Value, json as value};

pub(crate) fn token_estimates(data: &Data, case: &Value) -> Outcome {
    outcome(|| {
        if let Some(message) = case.get("message") {
            let message = Object::from(message.as_object().unwrap());
            return same("the estimate", &pi::estimate::tokens(&message), &whole(&case["tokens"]));
        }
        let session = data.session(case);
        for pair in case["tokens"].as_array().unwrap() {
            let line = place(&pair[0]);
            let id = session.id(line).unwrap();
            // What a session's node costs by this estimator; an entry that is never sent costs the server nothing.
            let entry = session.entries.iter().find(|entry| entry.entry_id == *id).unwrap();
            same(&format!("line {line}"), &pi::estimate::entry_tokens(entry), &whole(&pair[1]))?;
            let node = session.path(&value!(line)).unwrap().pop().unwrap();
            let counted = if node.message.is_some() { whole(&pair[1]) } else { 0 };
            same(&format!("the node of line {line}"), &node.tokens.total(), &counted)?;
        }
        Ok(())
    })
}

pub(crate) fn context_tokens(data: &Data, case: &Value) -> Outcome {
    outcome(|| match case["kind"].as_str() {
        Some("usage") => same("the usage", &pi::usage::usage_tokens(&json(&case["usage"])), &whole(&case["tokens"])),
        Some("context") => {
            let path = data.path(case);
            let messages: Vec<Object> = messages(&path).into_iter().map(|(_, message)| message).collect();
            let found = pi::usage::context_tokens(&messages);
            let on_path = lines(&path);
            let last = on_path.iter().rev().find_map(|line| {
                let message = pi::message::of_line(line, 0).filter(|_| line.text("type") == Some("message"))?;
                pi::usage::answer_usage(&message)
            });
            let found = value!({
                "messageCount": messages.len(),
                "tokens": found.tokens,
                "usageTokens": found.usage_tokens,
                "trailingTokens": found.trailing_tokens,
                "lastUsageIndex": found.last_usage_index,
                "lastAssistantUsageTokens": last,
            });
            let expected: serde_json::Map<String, Value> = case
                .as_object()
                .unwrap()
                .iter()
                .filter(|(name, _)| found.get(name.as_str()).is_some())
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            same("the size", &found, &Value::Object(expected))
        }
        other => panic!("unknown kind {other:?}"),
    })
}

pub(crate) fn cut_points(data: &Data, case: &Value) -> Outcome {
    outcome(|| {
        let session = data.session(case);
        let path = data.path(case);
        let (start, end) = (place(&case["start"]), place(&case["end"]));
        let found = pi::cut::find_cut_point(&lines(&path), start, end, whole(&case["keepRecentTokens"]));
        let line = |at: Option<usize>| at.and_then(|at| session.number(path.get(at)?.id()));
        let found = value!({
            "firstKept": found.first_kept,
            "firstKeptLine": line(Some(found.first_kept)),
            "turnStart": found.turn_start.map_or(-1, |at| i64::try_from(at).unwrap()),
            "turnStartLine": line(found.turn_start),
            "split": found.turn_start.is_some(),
        });
        for (name, value) in found.as_object().unwrap() {
            same(name, value, &case[name])?;
        }
        Ok(())
    })
}
