//! Groups e, f and g: what is summarised, as which text, and what of a branch that is left.

use crate::{
    data::{Data, Outcome, lines, messages, outcome, same, whole},
    deviations,
};
use reseed::core::pi::{self, files::Files, json::Object};
use reseed_protocol::content::utf16_len;
use serde_json::{Value, json as value};

fn files(files: &Files) -> Value {
    value!({
        "read": pi::files::sorted(files.read.iter()),
        "written": pi::files::sorted(files.written.iter()),
        "edited": pi::files::sorted(files.edited.iter()),
        "readFiles": files.only_read(),
        "modifiedFiles": files.modified(),
        "appended": files.appended(),
    })
}

pub(crate) fn preparation(data: &Data, case: &Value) -> Outcome {
    outcome(|| {
        let session = data.session(case);
        let path = data.path(case);
        let found = pi::prepare::prepare(&lines(&path), whole(&case["keepRecentTokens"])).map(|prepared| {
            let numbers = |places: &[usize]| -> Vec<usize> {
                places.iter().map(|at| session.number(path[*at].id()).unwrap()).collect()
            };
            let messages: Vec<Object> = messages(&path).into_iter().map(|(_, message)| message).collect();
            value!({
                "firstKeptLine": session.number(path[prepared.cut.first_kept].id()),
                "split": prepared.cut.turn_start.is_some(),
                "summarise": numbers(&prepared.summarised),
                "turnPrefix": numbers(&prepared.turn_prefix),
                "tokensBefore": pi::usage::context_tokens(&messages).tokens,
                "previousSummary": prepared.previous_summary,
                "files": files(&prepared.files),
            })
        });
        same("the preparation", &found.unwrap_or_default(), &case["expected"])
    })
}

pub(crate) fn serialization(data: &Data, case: &Value) -> Outcome {
    let messages: Vec<Object> = match case["what"].as_str() {
        None => data.inline(case),
        Some("context") => messages(&data.path(case)).into_iter().map(|(_, message)| message).collect(),
        Some(what) => {
            let path = lines(&data.path(case));
            let prepared = pi::prepare::prepare(&path, whole(&case["keepRecentTokens"])).unwrap();
            let places = if what == "summarise" { prepared.summarised } else { prepared.turn_prefix };
            places.iter().filter_map(|at| pi::message::of_line(&path[*at], 0)).collect()
        }
    };
    let given: Vec<Object> = messages.iter().filter_map(pi::message::for_model).collect();
    let text = pi::serialize::conversation(&given);
    if case["loneSurrogate"] == true {
        return half_character(case, &text);
    }
    outcome(|| {
        same("the length", &utf16_len(&text), &whole(&case["utf16Length"]))?;
        if let Some(expected) = case["text"].as_str() {
            return same("the text", &text.as_str(), &expected);
        }
        let hash: String = crate::script::sha256(text.as_bytes());
        same("the bytes", &(text.len() as u64), &whole(&case["utf8Bytes"]))?;
        same("the beginning", &text.starts_with(case["startsWith"].as_str().unwrap()), &true)?;
        same("the end", &text.ends_with(case["endsWith"].as_str().unwrap()), &true)?;
        same("the hash", &hash.as_str(), &case["sha256"].as_str().unwrap())
    })
}

/// The recorded text has half a character where a tool result was cut; ours ends before it, otherwise it is the same.
fn half_character(case: &Value, text: &str) -> Outcome {
    let shorter = whole(&case["utf16Length"]).saturating_sub(utf16_len(text));
    let (is_same, halves) = match case["text"].as_str() {
        Some(expected) => (expected.replace('\u{fffd}', "") == text.replace('\u{fffd}', ""), 1..=1),
        None => (
            text.starts_with(case["startsWith"].as_str().unwrap())
                && text.ends_with(case["endsWith"].as_str().unwrap()),
            1..=u64::MAX,
        ),
    };
    // Each half is one code unit, and three bytes where it stands as U+FFFD.
    let bytes = case["utf8Bytes"].as_u64().map_or(3 * shorter, |bytes| bytes - text.len() as u64);
    if is_same && halves.contains(&shorter) && bytes == 3 * shorter {
        return Outcome::Deviating(deviations::HALF_CHARACTER);
    }
    Outcome::Failed(format!("{shorter} code units and {bytes} bytes shorter, otherwise the same: {is_same}"))
}

pub(crate) fn branch_summary(data: &Data, case: &Value) -> Outcome {
    outcome(|| {
        let session = data.session(case);
        let path = |leaf: &str| session.path(&case[leaf]).unwrap();
        let (old, target) = (path("oldLeaf"), path("target"));
        let ids = |path: &[std::sync::Arc<reseed::core::session::Node>]| -> Vec<reseed_protocol::EntryId> {
            path.iter().map(|node| node.id().clone()).collect()
        };
        let (ancestor, left) = pi::branch::parting(&ids(&old), &ids(&target));
        let number = |at: usize| session.number(old[at].id()).unwrap();
        same("the ancestor", &value!(ancestor.map(number)), &case["commonAncestor"])?;
        same("the entries", &value!(left.clone().map(number).collect::<Vec<_>>()), &case["entries"])?;
        let entries = lines(&old[left.clone()]);
        for expected in case["prepared"].as_array().into_iter().flatten() {
            let prepared = pi::branch::prepare(&entries, whole(&expected["tokenBudget"]));
            let found = value!({
                "tokenBudget": expected["tokenBudget"],
                "messages": prepared.messages.iter().map(|at| number(left.start + at)).collect::<Vec<_>>(),
                "totalTokens": prepared.tokens,
                "files": files(&prepared.files),
            });
            same("what is summarised", &found, expected)?;
        }
        Ok(())
    })
}
