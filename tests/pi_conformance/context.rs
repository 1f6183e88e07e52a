//! Groups d and o: the messages of a context, and those that a model receives.

use crate::{
    data::{Data, Outcome, Session, messages, outcome, same},
    deviations,
};
use reseed::{
    core::{
        context::{build::remaining, build_context},
        session::{Node, SessionState, tree::PathReader},
    },
    pi::{
        self,
        json::{Json, Object},
    },
};
use serde_json::{Value, json as value};
use std::sync::Arc;

pub(crate) fn built_context(data: &Data, case: &Value) -> Outcome {
    let session = data.session(case);
    let Some(path) = session.path(&case["leaf"]) else { return crate::tree::refuses_unknown(data, case) };
    outcome(|| {
        let settings = pi::message::settings(path.iter().map(|node| &node.entry));
        same("the thinking level", &value!(settings.thinking_level), &case["thinkingLevel"])?;
        let model = settings.model.map(|(provider, model)| value!({ "provider": provider, "modelId": model }));
        same("the model", &model.unwrap_or_default(), &case["model"])?;
        let built = messages(&path);
        let found: Vec<Value> = built
            .iter()
            .map(|(id, message)| {
                let line = session.number(id).unwrap();
                let of_line = session.lines[&line].get("message").and_then(Json::as_object);
                if session.lines[&line].text("type") == Some("message") && of_line == Some(message) {
                    value!(line)
                } else {
                    value!({ "line": line, "message": message.to_map() })
                }
            })
            .collect();
        same("the context", &Value::Array(found), &case["messages"])?;
        as_opened(session, &path)?;
        match case.get("llm") {
            Some(given) => sent(session, &path, &built, given),
            None => Ok(()),
        }
    })
}

/// Checks that what the server reads from its store for this leaf gives the same context as the whole path.
fn as_opened(session: &Session, path: &[Arc<Node>]) -> Result<(), Outcome> {
    let (state, counter) = (SessionState::default(), pi::estimate::counter("m"));
    let mut reader = PathReader::new(&state, &counter);
    for node in path.iter().rev() {
        if !reader.take(node.entry.clone()) {
            break;
        }
    }
    let tree = reader.finish();
    let lines = |nodes: Vec<(_, &Arc<Node>)>| -> Vec<usize> {
        nodes.into_iter().map(|(_, node)| session.number(node.id()).unwrap()).collect()
    };
    same("the context of the path as it is read", &lines(remaining(tree.path())), &lines(remaining(path)))
}

/// Checks that the server sends the same: every message that pi gives to a model, except failed answers, and with calls
/// and results brought together. `given` are pi's, by their lines.
fn sent(
    session: &Session,
    path: &[Arc<Node>],
    built: &[(reseed_protocol::EntryId, Object)],
    given: &Value,
) -> Result<(), Outcome> {
    let line_of = |given: &Value| given.as_u64().or_else(|| given["line"].as_u64());
    let lines: Vec<u64> = given.as_array().unwrap().iter().map(|given| line_of(given).unwrap()).collect();
    let context = build_context(path);
    let said: Vec<&reseed_protocol::EntryId> =
        context.messages.iter().filter_map(|counted| counted.entry_id.as_ref()).collect();
    for (id, message) in built {
        let is_result = message.text("role") == Some("toolResult");
        let failed = matches!(message.text("stopReason"), Some("error" | "aborted"));
        let given = lines.contains(&(session.number(id).unwrap() as u64)) && !failed;
        if !is_result && said.contains(&id) != given {
            return Err(Outcome::Failed(format!("entry {id} is given by pi: {given}, by the server: {}", !given)));
        }
    }
    Ok(())
}

pub(crate) fn provider_replay(data: &Data, case: &Value) -> Outcome {
    let session = data.session(case);
    let path = data.path(case);
    let context = build_context(&path);
    let mut found: Vec<Value> = Vec::new();
    for counted in &context.messages {
        let Some(id) = &counted.entry_id else {
            let (call, _) = missing(&counted.message);
            let tool = context.messages.iter().find_map(|other| {
                other.message.tool_calls().find(|(id, ..)| id.as_str() == call).map(|(_, name, _)| name.to_owned())
            });
            found.push(value!({ "missingResultFor": call, "toolName": tool }));
            continue;
        };
        let line = session.number(id).unwrap();
        found.push(value!(line));
    }
    // An answer has the types of its blocks, which the server does not change.
    let line = |expected: &Value| expected.get(0).unwrap_or(expected).clone();
    let expected: Vec<Value> = case["messages"].as_array().unwrap().iter().map(line).collect();
    if found == expected {
        return Outcome::Passed;
    }
    // A result that no call before it asked for.
    let orphan = |line: &Value| {
        let Some(line) = line.as_u64().and_then(|line| session.lines.get(&usize::try_from(line).unwrap())) else {
            return false;
        };
        let call = line.get("message").and_then(|message| message.text("toolCallId"));
        call.is_some_and(|call| !asked(&path, call))
    };
    let without: Vec<Value> = expected.iter().filter(|line| !orphan(line)).cloned().collect();
    if found == without {
        return Outcome::Deviating(deviations::ORPHAN_RESULT);
    }
    same("the messages", &found, &expected).err().unwrap_or(Outcome::Passed)
}

fn missing(message: &reseed_protocol::Message) -> (String, bool) {
    message
        .content
        .iter()
        .find_map(|part| match part {
            reseed_protocol::Part::ToolResult { call_id, is_error, .. } => Some((call_id.to_string(), *is_error)),
            _ => None,
        })
        .unwrap()
}

fn asked(path: &[Arc<Node>], call: &str) -> bool {
    let id = pi::call_id(call);
    path.iter()
        .filter_map(|node| node.message.as_ref())
        .any(|message| message.tool_calls().any(|(other, ..)| *other == id))
}
