//! Group e: what is summarised.

use crate::data::{Data, Outcome, lines, messages, outcome, same, whole};
use reseed::pi::{self, files::Files, json::Object};
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
