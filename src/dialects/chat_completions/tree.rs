//! The session's tree, as a client of Chat Completions sees it: for each entry, the hash of the list of messages that
//! ends there. A pure fold over the entries, which is computed again after a restart.
//!
//! An input's last message has the hash of the client's list in its details, and the names of the client's tools. Calls
//! of other tools are the server's: the client sees neither them nor their results, and what the model says before and
//! after them is one answer to it.

use super::said::{AnswerHash, Call, Chain, Said};
use reseed_protocol::{CallId, Entry, EntryId, Message, Part, Role};
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, sync::Arc};

/// What a request stores with its input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// The hash of the client's list.
    pub(super) chain: String,
    /// The names of the client's tools.
    pub(super) functions: Vec<String>,
    /// A hash of the request's `Idempotency-Key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
}

/// The field of an input's details that has the mark.
const MARK: &str = "chatCompletions";

impl Mark {
    /// Returns the details of an input.
    pub(super) fn details(&self) -> serde_json::Value {
        serde_json::json!({ MARK: self })
    }

    fn of(message: &Message) -> Option<(Chain, Self)> {
        let mark = Self::deserialize(message.details.as_ref()?.get(MARK)?).ok()?;
        Some((Chain::from_hex(&mark.chain)?, mark))
    }
}

/// The known part of a session's tree.
#[derive(Debug, Default)]
pub(super) struct Tree {
    entries: HashMap<EntryId, Node>,
    /// The newest entry at which a list ends.
    places: HashMap<Chain, EntryId>,
    /// The inputs of requests with a key.
    keys: HashMap<String, EntryId>,
    /// The newest entry.
    last: Option<EntryId>,
}

#[derive(Debug, Clone)]
struct Node {
    /// The hash of the list that ends here.
    chain: Chain,
    /// The names of the client's tools; `None` if all are the client's.
    functions: Option<Arc<[String]>>,
    /// The calls of the last answer that the client sees.
    calls: Arc<[CallId]>,
    /// The answer so far, if there are calls in it: it goes on if the server makes or refuses them.
    unfinished: Option<Box<Unfinished>>,
}

#[derive(Debug, Clone)]
struct Unfinished {
    before: Chain,
    answer: AnswerHash,
    /// The calls of the answer's last message that the server makes.
    hidden: Vec<CallId>,
}

/// A place in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// The leaf.
    Leaf,
    /// This entry; `None` for the root.
    At(Option<EntryId>),
}

impl Tree {
    /// Returns the newest entry that is known.
    pub(super) fn last(&self) -> Option<&EntryId> {
        self.last.as_ref()
    }

    /// Returns the number of entries that are known.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds an entry. Parents come first. One whose parent is not known ends a known list only if a mark says so.
    pub(super) fn add(&mut self, entry: &Entry) {
        let root = || Node { chain: Chain::ROOT, functions: None, calls: Arc::default(), unfinished: None };
        let is_marked = || entry.message().is_some_and(|message| Mark::of(message).is_some());
        let parent = match &entry.parent_id {
            None => Some(root()),
            Some(parent) => self.entries.get(parent).cloned().or_else(|| is_marked().then(root)),
        };
        self.last = Some(entry.entry_id.clone());
        let Some(parent) = parent else { return };
        let node = match entry.message() {
            Some(message) => parent.then(message),
            None => parent,
        };
        if let Some((_, Mark { key: Some(key), .. })) = entry.message().and_then(Mark::of) {
            self.keys.insert(key, entry.entry_id.clone());
        }
        self.places.insert(node.chain, entry.entry_id.clone());
        self.entries.insert(entry.entry_id.clone(), node);
    }

    /// Returns the input of the request with this key.
    pub(super) fn input_of(&self, key: &str) -> Option<&EntryId> {
        self.keys.get(key)
    }

    /// Returns how many messages of a list are known, and where they end. `chains` has the hash after each message,
    /// beginning with that of none. The last message is always a new one.
    pub(super) fn place(&self, chains: &[Chain], leaf: Option<&EntryId>) -> (usize, Place) {
        let at_leaf = match leaf {
            None => Some(Chain::ROOT),
            Some(leaf) => self.entries.get(leaf).map(|node| node.chain),
        };
        for (known, chain) in chains.iter().enumerate().take(chains.len().saturating_sub(1)).rev() {
            if at_leaf == Some(*chain) {
                return (known, Place::Leaf);
            }
            if let Some(entry) = self.places.get(chain) {
                return (known, Place::At(Some(entry.clone())));
            }
        }
        (0, Place::At(None))
    }

    /// Returns the messages to append at a place for the part of a list that is new there. `chains` as for
    /// [`Self::place`].
    ///
    /// # Errors
    /// Returns the index of a result that answers no call.
    pub(super) fn history(
        &self,
        list: &[Said],
        chains: &[Chain],
        known: usize,
        place: &Place,
        leaf: Option<&EntryId>,
    ) -> Result<Vec<Message>, usize> {
        let at = match place {
            Place::Leaf => leaf,
            Place::At(entry) => entry.as_ref(),
        };
        let calls = at.and_then(|entry| self.entries.get(entry)).map(|node| node.calls.clone()).unwrap_or_default();
        let answer = list[..known].iter().rev().find_map(|said| match said {
            Said::Answer { calls, .. } => Some(calls.as_slice()),
            _ => None,
        });
        let mut open: Vec<(&str, CallId)> = answer
            .unwrap_or_default()
            .iter()
            .zip(calls.iter())
            .map(|(call, id)| (call.id.as_str(), id.clone()))
            .collect();
        // Results that are known already have taken theirs.
        let since = list[..known].iter().rev().take_while(|said| !matches!(said, Said::Answer { .. }));
        for said in since.collect::<Vec<_>>().into_iter().rev() {
            if let Said::Result { call, .. } = said {
                take(&mut open, call);
            }
        }
        let mut history = Vec::new();
        for (at, said) in list.iter().enumerate().skip(known) {
            history.push(match said {
                Said::User(parts) => Message::new(Role::User, parts.clone()),
                Said::Answer { text, calls } => {
                    open = calls.iter().enumerate().map(|(n, call)| (&*call.id, own_id(chains[at], n))).collect();
                    Message::new(Role::Assistant, answer_parts(text, calls, &open))
                }
                Said::Result { call, output } => {
                    let call_id = take(&mut open, call).ok_or(at)?;
                    let result = Part::ToolResult { call_id, output: output.clone(), is_error: false };
                    Message::new(Role::Tool, vec![result])
                }
            });
        }
        Ok(history)
    }
}

/// Returns the parts of an answer from elsewhere.
fn answer_parts(text: &str, calls: &[Call], ids: &[(&str, CallId)]) -> Vec<Part> {
    let text = Some(text).filter(|text| !text.trim().is_empty()).map(|text| Part::Text { text: text.to_owned() });
    let calls = calls.iter().zip(ids).map(|(call, (_, id))| Part::ToolCall {
        call_id: id.clone(),
        name: call.name.clone(),
        arguments: if call.arguments.trim().is_empty() { "{}".to_owned() } else { call.arguments.clone() },
    });
    text.into_iter().chain(calls).collect()
}

/// Takes the open call with this id. Clients that change ids keep the order: then it is the first open one.
fn take(open: &mut Vec<(&str, CallId)>, id: &str) -> Option<CallId> {
    let at = open.iter().position(|(known, _)| *known == id).unwrap_or(0);
    (at < open.len()).then(|| open.remove(at).1)
}

/// Returns an id for a call from elsewhere. Clients' own ids may come twice.
fn own_id(before: Chain, number: usize) -> CallId {
    let id = format!("call_{}", before.named(&number.to_string()));
    id.parse().expect("hexadecimal digits are an id")
}

impl Node {
    /// Returns the node of a message that follows.
    fn then(self, message: &Message) -> Self {
        if let Some((chain, mark)) = Mark::of(message) {
            let same = self.functions.filter(|known| **known == mark.functions);
            let functions = same.unwrap_or_else(|| mark.functions.into());
            return Self { chain, functions: Some(functions), calls: self.calls, unfinished: None };
        }
        match message.role {
            Role::User => {
                let chain = self.chain.then_user(&message.content);
                Self { chain, functions: None, calls: Arc::default(), unfinished: None }
            }
            Role::Tool => self.then_result(message),
            Role::Assistant => self.then_answer(message),
        }
    }

    fn then_result(mut self, message: &Message) -> Self {
        for part in &message.content {
            let Part::ToolResult { call_id, output, is_error } = part else { continue };
            if let Some(unfinished) = &mut self.unfinished {
                if unfinished.hidden.contains(call_id) {
                    return self;
                }
                // A client's result is never an error: here the server says why the client will not get the call.
                if let (true, Some(at)) = (is_error, self.calls.iter().position(|call| call == call_id)) {
                    unfinished.answer.without_call(at);
                    self.chain = unfinished.answer.after(unfinished.before);
                    self.calls = self.calls.iter().filter(|call| *call != call_id).cloned().collect();
                    return self;
                }
            }
            self.chain = self.chain.then_result(output);
        }
        Self { unfinished: None, ..self }
    }

    fn then_answer(self, message: &Message) -> Self {
        // An answer from a client's history has no model, and all of it is the client's.
        let functions = self.functions.as_ref().filter(|_| message.model.is_some());
        let is_seen = |name: &str| functions.is_none_or(|known| known.iter().any(|known| known == name));
        let (before, mut answer) = match self.unfinished {
            Some(unfinished) => (unfinished.before, unfinished.answer),
            None => (self.chain, AnswerHash::default()),
        };
        let (mut calls, mut hidden) = (Vec::new(), Vec::new());
        for part in &message.content {
            match part {
                Part::Text { text } => answer.text(text),
                Part::ToolCall { call_id, name, arguments } if is_seen(name) => {
                    answer.call(name, arguments);
                    calls.push(call_id.clone());
                }
                Part::ToolCall { call_id, .. } => hidden.push(call_id.clone()),
                Part::Reasoning { .. } | Part::Image { .. } | Part::ToolResult { .. } => {}
            }
        }
        let chain = answer.after(before);
        let has_calls = !(hidden.is_empty() && calls.is_empty());
        let unfinished = has_calls.then(|| Box::new(Unfinished { before, answer, hidden }));
        Self { chain, functions: self.functions, calls: calls.into(), unfinished }
    }
}

#[cfg(test)]
mod tests;
