//! Anthropic's Messages API: the rules of its requests, and the events of its answers.

use super::{
    compaction::unsealed,
    reply::{Answer, Call, Finish, Reply, cut},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

/// The fields of a request. Others are refused.
const FIELDS: &[&str] = &[
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "temperature",
    "top_p",
    "stream",
    "diagnostics",
    "compaction",
];

/// Returns the refusal of a request that does not fit.
pub(super) fn overflow(tokens: u64, window_tokens: u64) -> Reply {
    let message = format!("prompt is too long: {tokens} tokens > {window_tokens} maximum");
    Reply::json(400, &json!({ "type": "error", "error": { "type": "invalid_request_error", "message": message } }))
}

/// Returns the signature with which the server seals a thought. A thought that was changed has another one.
fn signature(thought: &str) -> String {
    let mut hasher = DefaultHasher::new();
    thought.hash(&mut hasher);
    format!("EuYB{:016x}", hasher.finish())
}

/// Returns the rules that a request violates.
pub(super) fn violations(headers: &[(String, String)], body: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for name in ["anthropic-version", "content-type"] {
        if !headers.iter().any(|(known, _)| known == name) {
            found.push(format!("the header `{name}` is missing"));
        }
    }
    let fields = body.as_object().map(|body| body.keys().collect::<Vec<_>>()).unwrap_or_default();
    found
        .extend(fields.iter().filter(|name| !FIELDS.contains(&name.as_str())).map(|name| format!("no field `{name}`")));
    let is_beta = headers.iter().any(|(name, value)| name == "anthropic-beta" && value.contains("cache-diagnosis-"));
    if is_beta != body["diagnostics"].get("previous_message_id").is_some() {
        found.push("its header and its `diagnostics` do not go together".to_owned());
    }
    if body["stream"] != (body["max_tokens"] != 0) || body["model"].as_str().is_none_or(str::is_empty) {
        found.push("it is not streamed, or names no model".to_owned());
    }
    if body["max_tokens"].as_u64().is_none() {
        found.push("it has no output limit".to_owned());
    }
    if body["temperature"].as_f64().is_some_and(|temperature| !(0.0..=1.0).contains(&temperature)) {
        found.push("its temperature is out of range".to_owned());
    }
    found.extend(thinking(body));
    found.extend(compacting(headers, body));
    for tool in body["tools"].as_array().into_iter().flatten() {
        if tool["input_schema"]["type"] != "object" || !is_name(&tool["name"], 128) {
            found.push(format!("not a tool: {tool}"));
        }
    }
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let roles: Vec<&str> = messages.iter().filter_map(|message| message["role"].as_str()).collect();
    let begins_compacted = messages.first().is_some_and(|first| first["content"][0]["type"] == "compaction");
    let user_at = usize::from(begins_compacted);
    if roles.iter().enumerate().any(|(at, role)| *role != if at % 2 == user_at { "user" } else { "assistant" }) {
        found.push(format!("the roles do not alternate: {roles:?}"));
    }
    for (at, message) in messages.iter().enumerate() {
        let blocks = message["content"].as_array().map_or(&[][..], Vec::as_slice);
        if blocks.is_empty() {
            found.push(format!("messages[{at}] says nothing"));
        }
        found.extend(
            blocks.iter().filter_map(|block| Some(format!("messages[{at}] {}: {block}", wrong(message, block)?))),
        );
        if message["role"] == "assistant" && blocks.last().is_some_and(is_thought) {
            found.push(format!("messages[{at}] ends with thinking"));
        }
    }
    let is_continued = messages.last().is_some_and(|last| {
        last["content"].as_array().into_iter().flatten().any(|block| block["type"] == "server_tool_use")
    });
    if roles.last() != Some(&"user") && !is_continued && body.get("compaction").is_none() {
        found.push("an answer comes last".to_owned());
    }
    found.extend(pairs(messages));
    let marks = super::check::strings(body).iter().filter(|text| **text == "ephemeral").count();
    if marks > 4 {
        found.push(format!("{marks} blocks are marked for the cache"));
    }
    found
}

fn thinking(body: &Value) -> Vec<String> {
    let (kind, forced) = (body["thinking"]["type"].as_str(), body["tool_choice"]["type"].as_str());
    let mut found = Vec::new();
    let budget = body["thinking"]["budget_tokens"].as_u64().unwrap_or(0);
    let most = body["max_tokens"].as_u64().unwrap_or(0);
    if kind == Some("enabled") && !(1_024..most).contains(&budget) {
        found.push("its budget is out of range".to_owned());
    }
    if matches!(kind, Some("adaptive" | "enabled")) {
        if body.get("temperature").is_some() || body.get("top_p").is_some() {
            found.push("it has a temperature, and thinks".to_owned());
        }
        if matches!(forced, Some("any" | "tool")) {
            found.push("it forces a call, and thinks".to_owned());
        }
    }
    found
}

/// A compaction is named in a header. It is unchanged and alone, and comes first. A request for one forces nothing.
fn compacting(headers: &[(String, String)], body: &Value) -> Vec<String> {
    let is_beta = headers.iter().any(|(name, value)| {
        name == "anthropic-beta" && value.split(',').any(|beta| beta.trim() == "compact-2026-09-04")
    });
    let messages = body["messages"].as_array().into_iter().flatten();
    let blocks = messages.flat_map(|message| message["content"].as_array().into_iter().flatten());
    let places: Vec<usize> =
        blocks.clone().enumerate().filter(|(_, block)| block["type"] == "compaction").map(|(at, _)| at).collect();
    let mut found = Vec::new();
    let asks = body.get("compaction").is_some();
    if (asks || !places.is_empty()) && !is_beta {
        found.push("the beta header is missing".to_owned());
    }
    if !(places.is_empty() || places == [0]) {
        found.push(format!("compactions at {places:?}"));
    }
    if blocks.clone().any(|block| block["type"] == "compaction" && unsealed(block).is_none()) {
        found.push("the compaction was changed".to_owned());
    }
    if asks
        && (body["compaction"]["type"] != "summarize"
            || !body["tool_choice"].is_null()
            || !body["output_config"]["format"].is_null())
    {
        found.push(format!("not a request for a compaction: {}", body["compaction"]));
    }
    found
}

fn is_thought(block: &Value) -> bool {
    block["type"] == "thinking" || block["type"] == "redacted_thinking"
}

fn is_name(name: &Value, length_max: usize) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.as_str().is_some_and(|name| (1..=length_max).contains(&name.len()) && name.chars().all(is_letter))
}

/// Returns what is wrong with a block.
fn wrong(message: &Value, block: &Value) -> Option<&'static str> {
    let is_answer = message["role"] == "assistant";
    let is_blank = |text: &Value| text.as_str().is_none_or(|text| text.trim().is_empty());
    match block["type"].as_str().unwrap_or_default() {
        "text" => is_blank(&block["text"]).then_some("is blank"),
        "image" => match block["source"]["type"].as_str() {
            _ if is_answer => Some("is an image in an answer"),
            Some("base64") => (!block["source"]["media_type"].is_string()).then_some("has no media type"),
            Some("url") => (!block["source"]["url"].is_string()).then_some("has no address"),
            _ => Some("has no source"),
        },
        "tool_use" => {
            let is_whole = is_answer && is_name(&block["name"], 128) && is_name(&block["id"], 64 * 1024);
            (!is_whole || !block["input"].is_object()).then_some("is no call")
        }
        "tool_result" => {
            let parts = block["content"].as_array().map_or(&[][..], Vec::as_slice);
            let is_wrong =
                |part: &Value| !matches!(part["type"].as_str(), Some("text" | "image")) || wrong(block, part).is_some();
            (is_answer || parts.iter().any(is_wrong)).then_some("is no result")
        }
        "thinking" => {
            let signed = block["signature"].as_str().unwrap_or_default();
            let is_own = block["thinking"].as_str().is_some_and(|thought| signature(thought) == signed);
            (!is_answer || !is_own || block.get("cache_control").is_some()).then_some("was changed, or is marked")
        }
        "redacted_thinking" => (!is_answer || is_blank(&block["data"])).then_some("is not sealed"),
        "compaction" => (!is_answer).then_some("is not the server's"),
        "server_tool_use" => None,
        _ => Some("has no known type"),
    }
}

/// Each call has its result in the next message, before anything else there.
fn pairs(messages: &[Value]) -> Vec<String> {
    let (mut found, mut known) = (Vec::new(), BTreeSet::new());
    let ids = |message: Option<&Value>, kind: &str, field: &str| -> Vec<String> {
        let blocks = message.and_then(|message| message["content"].as_array()).into_iter().flatten();
        let of_kind = blocks.filter(|block| block["type"] == kind);
        of_kind.map(|block| block[field].as_str().unwrap_or_default().to_owned()).collect()
    };
    for at in 0..messages.len() {
        let called = ids(messages.get(at), "tool_use", "id");
        found.extend(called.iter().filter(|id| !known.insert((*id).clone())).map(|id| format!("two calls `{id}`")));
        let results = ids(messages.get(at + 1), "tool_result", "tool_use_id");
        let both = [&called, &results].map(|ids| ids.iter().cloned().collect::<BTreeSet<_>>());
        if both[0] != both[1] || called.len() != results.len() {
            found.push(format!("after message {at}: the calls {called:?} have the results {results:?}"));
        }
        let blocks = messages[at]["content"].as_array().map_or(&[][..], Vec::as_slice);
        if blocks.windows(2).any(|pair| pair[0]["type"] != "tool_result" && pair[1]["type"] == "tool_result") {
            found.push(format!("message {at} has results that do not come first"));
        }
    }
    found
}

/// Returns the events before the text, those of the text, and those after it.
pub(super) fn events(
    answer: &Answer,
    texts: &[&str],
    usage: Option<(u64, u64)>,
) -> (Vec<Value>, Vec<Value>, Vec<Value>) {
    let (input_tokens, output_tokens) = usage.unwrap_or_default();
    let (read, written) = (answer.cached_tokens.unwrap_or(0), answer.cache_write_tokens.unwrap_or(0));
    let counts = json!({
        "input_tokens": input_tokens.saturating_sub(read + written), "output_tokens": 1,
        "cache_read_input_tokens": read, "cache_creation_input_tokens": written,
        "cache_creation": { "ephemeral_5m_input_tokens": written - written / 2, "ephemeral_1h_input_tokens": written / 2 },
    });
    let mut message = json!({
        "id": answer.id.as_deref().unwrap_or("msg_01"), "type": "message", "role": "assistant", "model": "test-model", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": counts,
    });
    if let Some(verdict) = &answer.verdict {
        message["diagnostics"] = verdict.clone();
    }
    let begin =
        |index: usize, block: Value| json!({ "type": "content_block_start", "index": index, "content_block": block });
    let piece = |index: usize, delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
    let end = |index: usize| json!({ "type": "content_block_stop", "index": index });
    let mut before = vec![json!({ "type": "message_start", "message": message }), json!({ "type": "ping" })];
    let mut index = 0;
    if !answer.reasoning.is_empty() {
        before.push(begin(index, json!({ "type": "thinking", "thinking": "", "signature": "" })));
        for text in cut(&answer.reasoning, 2) {
            before.push(piece(index, json!({ "type": "thinking_delta", "thinking": text })));
        }
        before.push(piece(index, json!({ "type": "signature_delta", "signature": signature(&answer.reasoning) })));
        before.push(end(index));
        index += 1;
    }
    if !answer.redacted.is_empty() {
        before.push(begin(index, json!({ "type": "redacted_thinking", "data": answer.redacted })));
        before.push(end(index));
        index += 1;
    }
    let (mut deltas, mut after) = (Vec::new(), Vec::new());
    if !answer.text.is_empty() {
        before.push(begin(index, json!({ "type": "text", "text": "" })));
        deltas.extend(texts.iter().map(|text| piece(index, json!({ "type": "text_delta", "text": text }))));
        after.push(end(index));
        index += 1;
    }
    for (number, Call { id, name, arguments }) in answer.calls.iter().enumerate() {
        let id = id.clone().unwrap_or_else(|| format!("toolu_{number}"));
        after.push(begin(index, json!({ "type": "tool_use", "id": id, "name": name, "input": {} })));
        for text in [""].into_iter().chain(cut(arguments, 2)) {
            after.push(piece(index, json!({ "type": "input_json_delta", "partial_json": text })));
        }
        after.push(end(index));
        index += 1;
    }
    if answer.finish == Finish::Pause {
        let search = json!({ "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {} });
        after.push(begin(index, search));
        after.push(piece(index, json!({ "type": "input_json_delta", "partial_json": "{\"query\":\"x\"}" })));
        after.push(end(index));
    }
    let reason = match answer.finish {
        Finish::Length => "max_tokens",
        Finish::ContentFilter => "refusal",
        Finish::Full => "model_context_window_exceeded",
        Finish::Pause => "pause_turn",
        _ if !answer.calls.is_empty() => "tool_use",
        _ => "end_turn",
    };
    after.push(json!({
        "type": "message_delta", "delta": { "stop_reason": reason, "stop_sequence": null },
        "usage": { "output_tokens": output_tokens },
    }));
    after.push(json!({ "type": "message_stop" }));
    (before, deltas, after)
}
