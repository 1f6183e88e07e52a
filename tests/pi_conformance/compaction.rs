//! Groups i and m: whole compactions by the server's agent loop, with pi's estimator and cut rule and a scripted model.
//!
//! The comparison covers what of pi's compaction is a fact of the session: what is kept, what the summary is made from,
//! the files, the tokens before. The request for a summary and its form are our own: one request where pi makes two for
//! a turn that is cut, our sections, and a summary without them is refused.

use crate::{
    data::{Data, Outcome, lines, messages, outcome, same, whole},
    deviations,
    script::{Script, Setting, answer, summary},
};
use reseed::{
    core::{
        compaction::summary::read_prompt,
        context::build_context,
        hook::HookFault,
        model::{ModelFault, ModelRequest, OverflowHint, Purpose},
    },
    pi::{self, json::Object},
};
use reseed_protocol::{
    Entry, EntryData, ErrorCode, Role,
    command::SessionCommand,
    compaction::{CancelCompaction, Compaction, CompactionRung, FailedRung, StartCompaction},
    content::Input as Said,
    hooks::HookAnswer,
    reply::Reply,
    turn::UserInput,
};
use serde_json::{Value, json as value};
use std::{
    cell::RefCell,
    collections::{BTreeSet, VecDeque},
    rc::Rc,
};

fn compaction_of(entry: &Entry) -> Option<&Compaction> {
    match &entry.data {
        EntryData::Compaction(compaction) => Some(compaction),
        _ => None,
    }
}

pub(crate) fn result(data: &Data, case: &Value) -> Outcome {
    let session = data.session(case);
    let path = data.path(case);
    let keep_tokens = whole(&case["keepRecentTokens"]);
    let leaf = path.last().map(|node| node.id().clone());
    let setting = Setting {
        // So large that none of our bounds applies.
        window_tokens: 100_000_000,
        keep_tokens,
        reserve_tokens: whole(&case["reserveTokens"]),
        automatic: false,
    };
    let model = Box::new(|_: &ModelRequest| Some(Ok(answer(&summary("[[HISTORY]]"), None))));
    let mut script = Script::new(&setting, Some(session), leaf, model);
    let before = script.entries.len();
    let instructions = case["customInstructions"].as_str().map(str::to_owned);
    let reply = script.command(SessionCommand::StartCompaction(StartCompaction {
        instructions: instructions.clone(),
        ..StartCompaction::default()
    }));
    let prepared = pi::prepare::prepare(&lines(&path), keep_tokens).unwrap();
    let on_path = lines(&path);
    let context = build_context(&path);
    let is_given =
        |at: &usize| context.messages.iter().any(|counted| counted.entry_id.as_ref() == Some(path[*at].id()));
    let nothing = !prepared.summarised.iter().chain(&prepared.turn_prefix).any(is_given);
    let refused = matches!(&reply, Reply::Error(error) if error.code == ErrorCode::NothingToCompact);
    let unchanged = script.entries.len() == before;
    if refused && nothing && unchanged {
        return Outcome::Deviating(deviations::NOTHING_TO_COMPACT);
    }
    if !nothing && unchanged && gave_up(&script) {
        return Outcome::Deviating(deviations::NO_GAIN);
    }
    if script.entries.get(before).and_then(compaction_of).is_some_and(is_shorter_extract) {
        return Outcome::Deviating(deviations::NO_GAIN);
    }
    let mut drops_previous = false;
    let mut other_files = None;
    let checked = outcome(|| {
        let Some(compaction) = script.entries.get(before).and_then(compaction_of) else {
            return Err(Outcome::Failed(format!("no compaction was written: {reply:?} {:?}", script.failed)));
        };
        let expected = &case["result"];
        let first_kept = compaction.first_kept_entry_id.as_ref().and_then(|id| session.number(id));
        same("the first kept line", &value!(first_kept), &expected["firstKeptLine"])?;
        same("the tokens before", &value!(compaction.tokens_before), &expected["tokensBefore"])?;
        other_files = files_deviate(&on_path, &value!(compaction.details), &expected["details"])?;
        same("whether the model wrote it", &compaction.summary.contains("[[HISTORY]]"), &true)?;
        same("how many requests", &script.requests.len(), &1)?;
        let request = &script.requests[0];
        same("the purpose", &request.purpose, &Purpose::Summary)?;
        let text = request.messages().next().unwrap().message.text();
        let asked = read_prompt(&text).ok_or_else(|| Outcome::Failed("the request is no summary's".to_owned()))?;
        same("the instructions", &asked.instructions, &instructions)?;
        let calls = case["calls"].as_array().unwrap();
        let includes = calls.iter().any(|call| call["previousSummaryIncluded"] == true);
        let has_previous = prepared.previous_summary.as_ref().is_some_and(|text| !text.trim().is_empty());
        same("whether the previous summary is merged", &asked.previous.is_some(), &has_previous)?;
        drops_previous = has_previous && !includes;
        Ok(())
    });
    match checked {
        Outcome::Passed if drops_previous => Outcome::Deviating(deviations::PREVIOUS_SUMMARY),
        Outcome::Passed => other_files.map_or(Outcome::Passed, Outcome::Deviating),
        other => other,
    }
}

/// Returns the deviation of the lists of files from pi's, and checks its reason: what summaries on the path had noted
/// is carried along, and calls of failed answers do not count.
pub(super) fn files_deviate(path: &[Object], found: &Value, expected: &Value) -> Result<Option<&'static str>, Outcome> {
    let all = |details: &Value| -> BTreeSet<String> {
        let lists = ["readFiles", "modifiedFiles"].into_iter().filter_map(|name| details[name].as_array());
        lists.flatten().filter_map(|file| file.as_str().map(str::to_owned)).collect()
    };
    if found == expected {
        return Ok(None);
    }
    let noted: BTreeSet<String> =
        path.iter().filter_map(|line| line.get("details")).flat_map(|details| all(&details.to_value())).collect();
    let mut failed = pi::files::Files::default();
    for message in path.iter().filter_map(|line| line.get("message")?.as_object()) {
        if matches!(message.text("stopReason"), Some("error" | "aborted")) {
            failed.add_calls(message);
        }
    }
    let modified = failed.modified();
    let failed: BTreeSet<String> = failed.read.into_iter().chain(modified).collect();
    let (here, there) = (all(found), all(expected));
    if here.difference(&there).any(|file| !noted.contains(file)) {
        same("the files", found, expected)?;
    }
    if there.difference(&here).any(|file| !failed.contains(file)) {
        same("the files", found, expected)?;
    }
    Ok(Some(if here.is_subset(&there) { deviations::FAILED_CALLS } else { deviations::NOTED_FILES }))
}

/// Returns true if a compaction was started and failed because its summary would not be smaller.
fn gave_up(script: &Script) -> bool {
    script.failed.iter().any(|failed| failed.error.code == ErrorCode::NothingToCompact)
}

/// Returns true for an extract that took the place of a summary which would have saved nothing.
fn is_shorter_extract(compaction: &Compaction) -> bool {
    let saved_too_little = |failed: &FailedRung| matches!(&*failed.reason, "not_smaller" | "too_little");
    compaction.rung == Some(CompactionRung::Extract) && compaction.failed_rungs.iter().any(saved_too_little)
}

/// Returns the answers of a life-cycle case's extensions before a compaction, one after the other.
fn extensions(name: &str) -> Vec<Result<HookAnswer, HookFault>> {
    let gives = || HookAnswer {
        summary: Some("FROM-EXTENSION".into()),
        details: Some(value!({ "mine": true })),
        ..HookAnswer::default()
    };
    match name {
        "extension cancels" => vec![Ok(HookAnswer { cancel: Some(true), ..HookAnswer::default() })],
        "extension supplies the summary" => vec![Ok(gives())],
        "extension throws: default compaction runs" => vec![Err(HookFault::failed("it throws"))],
        "two extensions, the last truthy result wins" => vec![Ok(gives()), Ok(HookAnswer::default())],
        other if other.contains("extension") => panic!("an extension that is not known: {other}"),
        _ => Vec::new(),
    }
}

pub(crate) fn life_cycle(_: &Data, case: &Value) -> Outcome {
    let name = case["name"].as_str().unwrap();
    let settings = &case["compaction"];
    let setting = Setting {
        window_tokens: whole(&case["contextWindow"]),
        keep_tokens: whole(&settings["keepRecentTokens"]),
        reserve_tokens: whole(&settings["reserveTokens"]),
        automatic: settings["enabled"].as_bool().unwrap(),
    };
    let events = case["events"].as_array().unwrap();
    let ends: Vec<&Value> = events.iter().filter(|event| event["type"] == "compaction_end").collect();
    if ends.iter().any(|end| end["reason"] == "threshold" && !end["result"].is_null()) {
        return before_the_next_request(&setting);
    }
    let (answers, summaries) = (Rc::new(RefCell::new(answers(case))), Rc::new(RefCell::new(summaries(&ends))));
    let model = Box::new(move |request: &ModelRequest| match request.purpose {
        Purpose::Turn => Some(answers.borrow_mut().pop_front().unwrap_or_else(|| Ok(answer("Fine.", None)))),
        Purpose::Summary => {
            summaries.borrow_mut().pop_front().unwrap_or_else(|| Some(Ok(answer(&summary("SUM"), None))))
        }
    });
    let mut script = Script::hooked(&setting, extensions(name), model);
    let mut refused_nothing = false;
    outcome(|| {
        for step in case["steps"].as_array().unwrap() {
            let told = step["step"].as_str().unwrap();
            let began = script.failed.len();
            let ok = if let Some(chars) = told.strip_prefix("prompt(").and_then(|rest| rest.split(' ').next()) {
                let text = "word ".repeat(chars.parse::<usize>().unwrap() / 5 + 1);
                let input = UserInput::plain(Said::Text(text));
                let reply = script.command(SessionCommand::UserInput(input));
                // A failed turn is reported by an event; pi's prompt succeeds all the same.
                matches!(reply, Reply::Accepted(_))
            } else {
                let instructions = told.contains("focus").then(|| "focus".to_owned());
                let reply = script.command(SessionCommand::StartCompaction(StartCompaction {
                    instructions,
                    ..StartCompaction::default()
                }));
                if told.contains("abort") {
                    script.command(SessionCommand::CancelCompaction(CancelCompaction { job_id: None }));
                }
                let failed = !script.failed[began..].is_empty();
                refused_nothing |= matches!(&reply, Reply::Error(error) if error.code == ErrorCode::NothingToCompact);
                !failed && matches!(reply, Reply::Ok(_))
            };
            if ok && step["ok"] == false && case["name"] == "manual compaction, summariser fails" {
                let written = script.entries.iter().filter_map(compaction_of).count();
                same("the compaction made by rule", &written, &1)?;
                return Err(Outcome::Deviating(deviations::FAILING_SUMMARISER));
            }
            if ok != step["ok"] && !(refused_nothing && step["value"]["summary"] == "SUM-OF-NOTHING") {
                return Err(Outcome::Failed(format!("`{told}` went {ok}: {:?}", &script.failed[began..])));
            }
        }
        if refused_nothing && ends.iter().all(|end| end["result"]["summary"] == "SUM-OF-NOTHING") {
            let written = script.entries.iter().filter_map(compaction_of).count();
            same("compactions of nothing", &written, &0)?;
            return Err(Outcome::Deviating(deviations::NOTHING_TO_COMPACT));
        }
        if name.starts_with("two extensions") {
            let newest = script.entries.iter().rev().find_map(compaction_of);
            same("whose summary it is", &value!(newest.map(|newest| &newest.summary)), &value!("FROM-EXTENSION"))?;
            return Err(Outcome::Deviating(deviations::MERGED_ANSWERS));
        }
        same_entries(&script, case)
    })
}

/// Returns the model's answers to turns, as the events have them.
fn answers(case: &Value) -> VecDeque<Result<reseed::core::model::Answer, ModelFault>> {
    let overflows = case["name"].as_str().unwrap().starts_with("overflow");
    let events = case["events"].as_array().unwrap();
    let kept = events.iter().filter(|event| event["type"] == "assistant");
    kept.map(|event| {
        if event["stopReason"] == "stop" {
            return Ok(answer("Fine.", None));
        }
        let window = whole(&case["contextWindow"]);
        let mut fault = ModelFault::new(ErrorCode::UpstreamRateLimited, "refused");
        if overflows {
            fault.code = ErrorCode::ContextOverflow;
            fault.overflow = OverflowHint { prompt_tokens: Some(window + 1), window_tokens: Some(window) };
        }
        Err(fault)
    })
    .collect()
}

/// Returns the model's answers to summary requests; `None` if the compaction is cancelled meanwhile.
fn summaries(ends: &[&Value]) -> VecDeque<Option<Result<reseed::core::model::Answer, ModelFault>>> {
    ends.iter()
        .filter(|end| !end["errorMessage"].as_str().unwrap_or_default().contains("lready compacted"))
        .map(|end| match (&end["result"], end["aborted"].as_bool()) {
            (_, Some(true)) => None,
            (Value::Null, _) => Some(Err(ModelFault::new(ErrorCode::UpstreamError, "boom"))),
            (result, _) => Some(Ok(answer(&summary(result["summary"].as_str().unwrap()), None))),
        })
        .collect()
}

/// Compares the entries and the roles of the context at the end, without pi's settings at the beginning and failed
/// answers.
fn same_entries(script: &Script, case: &Value) -> Result<(), Outcome> {
    let ours =
        |entry: &Value| entry.as_str().is_none_or(|kind| kind.starts_with("message:") && !kind.ends_with(":error"));
    let all = case["entries"].as_array().unwrap();
    let place = |at: usize| all[..at].iter().filter(|entry| ours(entry)).count();
    let expected: Vec<Value> = all
        .iter()
        .filter(|entry| ours(entry))
        .map(|entry| match entry["compaction"].as_str() {
            Some(text) => {
                let kept = place(crate::data::place(&entry["firstKept"]));
                value!({ "compaction": text, "firstKept": kept, "fromHook": entry["fromHook"] == true })
            }
            None => entry.clone(),
        })
        .collect();
    let found: Vec<Value> = script
        .entries
        .iter()
        .map(|entry| match &entry.data {
            EntryData::Compaction(compaction) => {
                let first = compaction.first_kept_entry_id.as_ref();
                let kept = script.entries.iter().position(|entry| Some(&entry.entry_id) == first);
                let told = compaction.summary.split("- ").nth(1).unwrap_or(&compaction.summary);
                let word = told.split('\n').next().unwrap_or_default();
                value!({ "compaction": word, "firstKept": kept, "fromHook": compaction.hook.is_some() })
            }
            EntryData::Message(message) => value!(match message.role {
                Role::User => "message:user",
                Role::Assistant => "message:assistant",
                Role::Tool => "message:toolResult",
            }),
            _ => value!(entry.type_name()),
        })
        .collect();
    same("the entries", &found, &expected)?;
    let roles: Vec<Value> = messages(&script.path()).iter().map(|(_, message)| value!(message.text("role"))).collect();
    let mut expected = case["contextRoles"].as_array().unwrap().clone();
    let failed = all.iter().filter(|entry| entry.as_str().is_some_and(|kind| kind.ends_with(":error"))).count();
    for _ in 0..failed {
        let at = expected.iter().rposition(|role| role == "assistant").unwrap();
        expected.remove(at);
    }
    same("the roles", &roles, &expected)
}

/// pi checks the window when a turn is over, and again after every turn while what it kept is too large. Here it is
/// checked before every request: nothing happens after the turn, and one compaction is made before the next request.
fn before_the_next_request(setting: &Setting) -> Outcome {
    let full = setting.window_tokens;
    let mut asked = 0;
    let model = Box::new(move |request: &ModelRequest| match request.purpose {
        Purpose::Summary => Some(Ok(answer(&summary("SUM"), None))),
        Purpose::Turn => {
            asked += 1;
            let text = "long ".repeat(if asked == 2 { 800 } else { 1 });
            Some(Ok(answer(&text, Some((if asked == 2 { full - 1_000 } else { 800 }, 100)))))
        }
    });
    let mut script = Script::new(setting, None, None, model);
    let compactions = |script: &Script| script.entries.iter().filter_map(compaction_of).count();
    let prompt = |script: &mut Script, words: usize| {
        let input = UserInput::plain(Said::Text("word ".repeat(words)));
        script.command(SessionCommand::UserInput(input));
        compactions(script)
    };
    let after: Vec<usize> = [600, 500, 1, 1].map(|words| prompt(&mut script, words)).to_vec();
    if after == [0, 0, 1, 1] {
        Outcome::Deviating(deviations::BEFORE_THE_REQUEST)
    } else {
        Outcome::Failed(format!("compactions after each turn: {after:?}"))
    }
}
