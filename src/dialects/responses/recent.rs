//! Lists that were answered over HTTP a moment ago without being stored. A client that sends its whole list each time,
//! such as Codex, goes on in the session that has the beginning, so that nothing is counted and summarised again.
//!
//! Only requests with a `prompt_cache_key` are looked for: others have not said that more will come. A list is known by
//! a chain of hashes over what its items say, from which ids and reasoning are left out. The user's credentials begin
//! the chain, and the session belongs to the user in any case.

use super::{Forget, ids::ResponseId, request::Create};
use axum::http::{HeaderMap, header};
use reseed_protocol::SessionId;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Lists that are remembered.
const LISTS_MAX: usize = 512;

/// Bytes of their requests: less than the memory for sessions has, so that there is room for others.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long a list is remembered: longer than a tool runs, shorter than a break.
const KEPT: Duration = Duration::from_secs(30 * 60);

type Hash = [u8; 32];

/// The lists that can go on.
#[derive(Clone, Default)]
pub(super) struct Recent(Arc<Mutex<Lists>>);

#[derive(Default)]
struct Lists {
    /// What was answered, oldest first.
    known: VecDeque<Known>,
    /// Deletes each session when none of its lists is known.
    sessions: HashMap<SessionId, Forget>,
}

struct Known {
    list: Hash,
    response: ResponseId,
    /// About the bytes of its session, which is counted with its newest list.
    bytes: usize,
    since: Instant,
}

/// A request whose list may be known.
pub(super) struct Listed {
    recent: Recent,
    /// The hash before the first item, and after each.
    hashes: Vec<Hash>,
    /// The response that the list goes on from, and the number of its items.
    found: Option<(ResponseId, usize)>,
    /// The bytes of the request.
    bytes: usize,
}

/// The session of a request, which is deleted unless more may come.
pub(super) struct Ending {
    forget: Forget,
    listed: Option<Listed>,
}

impl Recent {
    /// Looks for the beginning of a request's list. Returns what will be known of the list, and if its beginning is
    /// known, the request for the rest with its session. `bytes` are those of the request.
    pub(super) fn find(
        &self,
        create: &mut Create,
        headers: &HeaderMap,
        bytes: usize,
    ) -> (Option<Listed>, Option<(Create, Forget)>) {
        let is_alone = create.previous_response_id.is_none() && create.conversation.is_none();
        let Some(key) = create.prompt_cache_key.as_deref().filter(|_| create.store == Some(false) && is_alone) else {
            return (None, None);
        };
        let items = items_of(create.input.as_ref());
        let mut hash = Sha256::new();
        hash.update(headers.get(header::AUTHORIZATION).map(|value| value.as_bytes()).unwrap_or_default());
        hash.update([0]);
        hash.update(key);
        let hashes = chained(hash.finalize().into(), &items);
        let mut listed = Listed { recent: self.clone(), hashes, found: None, bytes };
        let Some((response, at, forget)) = self.lists().take(&listed.hashes) else { return (Some(listed), None) };
        listed.found = Some((response.clone(), at));
        let input = create.input.take();
        let rest = Value::Array(items[at..].to_vec());
        let rest = Create { input: Some(rest), continues: Some(response), ..create.clone() };
        create.input = input;
        (Some(listed), Some((rest, forget)))
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lists {
    /// Takes the session with the longest beginning of a list, which must go on behind it.
    fn take(&mut self, hashes: &[Hash]) -> Option<(ResponseId, usize, Forget)> {
        self.clear();
        // The last item, at least, is new.
        let places: HashMap<Hash, usize> = hashes
            .iter()
            .take(hashes.len().saturating_sub(1))
            .enumerate()
            .skip(1)
            .map(|(at, hash)| (*hash, at))
            .collect();
        let found = self.known.iter().filter_map(|known| Some((*places.get(&known.list)?, &known.response)));
        let (at, response) = found.max_by_key(|(at, _)| *at).map(|(at, response)| (at, response.clone()))?;
        // Two requests at once cannot both go on in it.
        self.known.retain(|known| known.response.session != response.session);
        let forget = self.sessions.remove(&response.session)?;
        Some((response, at, forget))
    }

    fn keep(&mut self, lists: Vec<(Hash, ResponseId, usize)>, forget: Forget) {
        let since = Instant::now();
        // A repeated request ends in the session that the first has kept.
        if let Some(mut same) = self.sessions.insert(forget.session.clone(), forget) {
            same.connect = None;
        }
        self.known.extend(lists.into_iter().map(|(list, response, bytes)| Known { list, response, bytes, since }));
        self.clear();
    }

    fn clear(&mut self) {
        let mut bytes: usize = self.known.iter().map(|known| known.bytes).sum();
        while let Some(first) = self.known.front()
            && (self.known.len() > LISTS_MAX || bytes > BYTES_MAX || first.since.elapsed() > KEPT)
        {
            bytes -= first.bytes;
            self.known.pop_front();
        }
        let known = &self.known;
        self.sessions.retain(|session, _| known.iter().any(|known| known.response.session == *session));
    }
}

impl Ending {
    pub(super) fn new(forget: Forget, listed: Option<Listed>) -> Self {
        Self { forget, listed }
    }

    /// Keeps the session if this response could be continued. Otherwise, it is deleted.
    pub(super) fn ended(self, response: &ResponseId, shown: &Value) {
        let Self { forget, listed } = self;
        let Some(Listed { recent, hashes, found, bytes }) = listed.filter(|_| shown["status"] == "completed") else {
            return;
        };
        let (Some(asked), Some(output)) = (hashes.last(), shown["output"].as_array()) else { return };
        let answered = chained(*asked, output);
        let mut lists = Vec::new();
        // The same request may be sent again.
        lists.extend(found.map(|(before, at)| (hashes[at], before, 0)));
        lists.extend(answered.last().map(|hash| (*hash, response.clone(), bytes)));
        recent.lists().keep(lists, forget);
    }
}

fn items_of(input: Option<&Value>) -> Vec<Value> {
    match input {
        Some(Value::Array(items)) => items.clone(),
        Some(text @ Value::String(_)) => vec![json!({ "role": "user", "content": text })],
        _ => Vec::new(),
    }
}

/// Returns the hash before the first item, and after each.
fn chained(first: Hash, items: &[Value]) -> Vec<Hash> {
    let mut hashes = vec![first];
    for item in items {
        let last = hashes[hashes.len() - 1];
        hashes.push(match said(item) {
            Some(said) => {
                let mut hash = Sha256::new();
                hash.update(last);
                hash.update(said.to_string());
                hash.finalize().into()
            }
            None => last,
        });
    }
    hashes
}

/// Returns what an item says; `None` for what a client may leave out.
fn said(item: &Value) -> Option<Value> {
    let kind = item["type"].as_str().unwrap_or("message");
    match kind {
        "reasoning" | "mcp_call" | "mcp_approval_request" | "mcp_list_tools" => None,
        "message" => Some(json!([item["role"], content(&item["content"])])),
        "function_call" | "custom_tool_call" => {
            Some(json!([item["call_id"], item["namespace"], item["name"], item["arguments"], item["input"]]))
        }
        "function_call_output" | "custom_tool_call_output" => Some(json!([item["call_id"], content(&item["output"])])),
        "compaction" | "compaction_summary" => Some(json!([item["encrypted_content"]])),
        _ => {
            let mut item = item.clone();
            if let Some(fields) = item.as_object_mut() {
                fields.retain(|name, _| name != "id" && name != "status");
            }
            Some(item)
        }
    }
}

fn content(content: &Value) -> Value {
    let Value::Array(parts) = content else { return json!([content]) };
    let part = |part: &Value| match part["text"].as_str() {
        Some(text) => json!(text),
        None => json!([part["refusal"], part["image_url"]]),
    };
    Value::Array(parts.iter().map(part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_lists_go_when_all_together_are_large() {
        let mut lists = Lists::default();
        for at in 0..5_u8 {
            let session: SessionId = format!("session-{at}").parse().unwrap();
            let entry = "entry".parse().unwrap();
            let known = ([at; 32], ResponseId { session: session.clone(), entry }, BYTES_MAX / 3);
            lists.keep(vec![known], Forget { connect: None, session });
        }
        let mut kept: Vec<&str> = lists.sessions.keys().map(SessionId::as_str).collect();
        kept.sort_unstable();
        assert_eq!(kept, ["session-2", "session-3", "session-4"]);
    }

    #[test]
    fn a_list_is_known_without_ids_and_reasoning() {
        let output = [
            json!({ "type": "reasoning", "id": "rs_1", "encrypted_content": "x" }),
            json!({
                "type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
                "content": [{ "type": "output_text", "text": "Aye.", "annotations": [] }],
            }),
            json!({ "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}" }),
        ];
        let sent_back = [
            json!({ "role": "assistant", "content": "Aye." }),
            json!({ "type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}" }),
        ];
        let of = |items: &[Value]| chained([7; 32], items).pop();
        assert_eq!(of(&output), of(&sent_back));
        assert_ne!(of(&output), of(&sent_back[..1]));
        let other = json!({ "type": "function_call", "call_id": "c1", "name": "look", "arguments": "{ }" });
        assert_ne!(of(&output), of(&[sent_back[0].clone(), other]));
    }
}
