//! Hooks in random scripts: at any point, on the server and the client, with arbitrary answers.

use super::World;
use crate::{
    agent_loop::{CallHook, Input},
    hook::{HookFault, HookPlace, HookSpec, check_hooks},
};
use fastrand::Rng;
use reseed_protocol::{
    CallId, EntryData, Message, Part, Role,
    command::SessionCommand,
    context::{ContextEnvelope, ContextMessage},
    hooks::{ContextReason, HookAnswer, HookCall, HookEvent, HookOffer, HookPoint},
    reply::Reply,
    tools::CallProgress,
};
use serde_json::{Value, json};

/// Returns random server hooks; in a third of the worlds there are none.
pub(super) fn some_hooks(rng: &mut Rng) -> Vec<HookSpec> {
    if rng.u8(..3) == 0 {
        return Vec::new();
    }
    (0..rng.usize(1..6)).map(|at| some_hook(rng, at)).collect()
}

fn some_hook(rng: &mut Rng, at: usize) -> HookSpec {
    let point = HookPoint::ALL[rng.usize(..HookPoint::ALL.len())];
    let mut spec = HookSpec::new(format!("hook{at}"), point).within(rng.u64(500..20_000));
    if point == HookPoint::Context && rng.bool() {
        let reasons = [ContextReason::BeforeRequest, ContextReason::Ephemeral, ContextReason::TurnEnd];
        spec = spec.for_reasons(&reasons[rng.usize(..3)..]);
    }
    match rng.u8(..5) {
        0 => spec.observing(),
        1 => spec.optional(),
        _ => spec,
    }
}

impl World {
    /// Gives the server other hooks.
    pub(super) fn reconfigure(&mut self) {
        self.hooks = some_hooks(&mut self.rng);
        let deployment = super::deployment(self.hooks.clone());
        self.tell(Input::Reconfigured(deployment));
    }

    /// Takes a hook call.
    pub(super) fn asked(&mut self, asked: CallHook) {
        let call = &asked.call;
        // A call whose client was away is sent again once a client offers its hook.
        let was_away = self.away.iter().any(|other| other.call.call_id == call.call_id);
        self.away.retain(|other| other.call.call_id != call.call_id);
        let known = self.hook_calls.iter().any(|other| other.call.call_id == call.call_id);
        assert!(was_away || !known, "seed {}: a call of a hook twice", self.seed);
        assert!(!self.hushed.contains(&call.call_id), "seed {}: a call of a hook that is over", self.seed);
        let is_input = matches!(&call.event, HookEvent::Message { message, .. } if message.role == Role::User);
        let is_turns =
            !matches!(call.event.point(), HookPoint::BeforeCompaction | HookPoint::BeforeNavigate) && !is_input;
        assert!(!is_input || call.turn_id.is_none(), "seed {}: an input is of no turn yet", self.seed);
        assert!(!is_turns || self.open_turn, "seed {}: `{}` was asked without a turn", self.seed, call.hook);
        if let HookEvent::Context { envelope, .. } = &call.event {
            super::promises::check_pairs(self.seed, envelope.messages.cached.iter().chain(&envelope.messages.uncached));
        }
        if asked.awaited {
            self.hook_calls.retain(|other| other.call.call_id != asked.call.call_id);
            self.hook_calls.push(asked);
            // There is at most one call for the turn or the session, one for a compaction, one for an input and one for
            // each tool answer, besides the one that was just answered.
            assert!(self.hook_calls.len() <= 3 + 3 + 1, "seed {}: more hooks at once than there are places", self.seed);
        }
    }

    /// Cancels a hook call.
    pub(super) fn hush(&mut self, id: CallId) {
        self.hook_calls.retain(|asked| asked.call.call_id != id);
        self.away.retain(|asked| asked.call.call_id != id);
        self.hushed.push(id);
    }

    /// Answers one of the pending calls, validly or not.
    pub(super) fn hook_speaks(&mut self) {
        if self.hook_calls.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.hook_calls.len());
        let call = self.hook_calls[at].call.clone();
        match self.rng.u8(..100) {
            0..35 => self.hook_says(at, json!({})),
            35..70 => {
                let change = self.some_change(&call);
                self.hook_says(at, change);
            }
            70..80 => {
                let garbage = self.some_garbage();
                self.hook_says(at, garbage);
            }
            80..90 => {
                let fault = [HookFault::failed("it broke"), HookFault::unavailable("it is away")];
                let fault = fault[self.rng.usize(..2)].clone();
                self.hear(call.call_id, Err(fault));
            }
            90..95 => self.command(SessionCommand::CallProgress(CallProgress {
                tool_call_id: None,
                hook_call_id: Some(call.call_id),
                message: None,
            })),
            // No answer: the deadline will pass.
            _ => {}
        }
    }

    /// Answers every pending call with no change.
    pub(super) fn hooks_pass(&mut self) {
        if !self.hook_calls.is_empty() {
            self.hook_says(0, json!({}));
        }
    }

    fn hook_says(&mut self, at: usize, mut answer: Value) {
        let asked = self.hook_calls[at].clone();
        if let HookEvent::Message { message, .. } = &asked.call.event
            && answer["message"]["role"] == "user"
            && answer["message"] != json!(message)
        {
            // Text that the hook removes must not be stored. Every input starts with a unique word, so its first word
            // identifies it.
            let text = message.text();
            self.taken_out.extend(text.split(' ').next().filter(|word| word.starts_with("said")).map(str::to_owned));
        }
        let call_id = asked.call.call_id;
        match asked.place {
            HookPlace::Client => {
                answer["hookCallId"] = json!(call_id);
                self.hush(call_id);
                self.command(SessionCommand::HookResult(Box::new(serde_json::from_value(answer).unwrap())));
            }
            HookPlace::Server => self.hear(call_id, Ok(serde_json::from_value(answer).unwrap())),
        }
    }

    fn hear(&mut self, call_id: CallId, answer: Result<HookAnswer, HookFault>) {
        let is_away = matches!(&answer, Err(fault) if fault.code == reseed_protocol::ErrorCode::HookUnavailable);
        self.tell(Input::HookAnswered { call_id: call_id.clone(), answer: Box::new(answer) });
        // A required hook is waited for, because its client may come back.
        if is_away && self.agent.waits_for_hook(&call_id) {
            self.away.extend(self.hook_calls.iter().filter(|asked| asked.call.call_id == call_id).cloned());
            self.hook_calls.retain(|asked| asked.call.call_id != call_id);
        } else {
            self.hush(call_id);
        }
    }

    /// Reconnects the client that hosts hooks.
    pub(super) fn client_is_back(&mut self) {
        self.tell(Input::AskAgain { only_away: true });
    }

    /// Checks that a late answer changes nothing.
    pub(super) fn late_hook(&mut self) {
        let Some(call_id) = self.rng.choice(&self.hushed).cloned() else { return };
        let events = self.log.len();
        let answer = Box::new(Ok(HookAnswer::cancel()));
        let effects = self.agent.handle(self.now, Input::HookAnswered { call_id: call_id.clone(), answer });
        assert!(effects.is_empty() && self.log.len() == events, "seed {}: {call_id} was late and was heard", self.seed);
    }

    /// Registers random client hooks, or none.
    pub(super) fn register_hooks(&mut self) {
        let count = self.rng.usize(..3);
        let offer = |rng: &mut Rng, at| {
            let spec = some_hook(rng, at);
            HookOffer {
                name: Some(format!("client{at}")),
                point: spec.point,
                reasons: Some(spec.reasons).filter(|reasons| !reasons.is_empty()),
                timeout_ms: spec.timeout_ms,
                required: Some(spec.required),
                observe: Some(spec.observe),
            }
        };
        let hooks = (0..count).map(|at| offer(&mut self.rng, at)).collect();
        self.tell(Input::HooksOffered(check_hooks(hooks).unwrap().into()));
        // Calls to hooks that are no longer offered are not awaited, unless the hook is required; its client then
        // counts as away.
        let open: Vec<CallId> = self.agent.open_client_calls().into_iter().map(|call| call.call_id).collect();
        let gone = |asked: &&CallHook| asked.place == HookPlace::Client && !open.contains(&asked.call.call_id);
        let gone: Vec<CallHook> = self.hook_calls.iter().filter(gone).cloned().collect();
        for asked in gone {
            let call_id = asked.call.call_id.clone();
            if self.agent.waits_for_hook(&call_id) {
                self.hook_calls.retain(|other| other.call.call_id != call_id);
                self.away.push(asked);
            } else {
                self.hush(call_id);
            }
        }
        self.client_is_back();
    }

    /// Checks that text removed by hooks is not stored.
    pub(super) fn check_taken_out(&self) {
        if self.taken_out.is_empty() {
            return;
        }
        let log = json!(self.log).to_string();
        for word in &self.taken_out {
            assert!(!log.contains(&format!("{word} ")), "seed {}: `{word}` was taken out and is stored", self.seed);
        }
    }

    fn some_change(&mut self, call: &HookCall) -> Value {
        let words = "odd ".repeat(self.rng.usize(1..60));
        match &call.event {
            HookEvent::BeforeAgentStart { .. } => match self.rng.u8(..3) {
                0 => json!({ "systemPrompt": words }),
                1 => json!({ "customMessage": { "customType": "note", "content": words, "display": true } }),
                _ => json!({ "entries": [{ "customType": "mark", "data": { "at": 1 } }] }),
            },
            HookEvent::Message { message, .. } => json!({ "message": self.another(message) }),
            HookEvent::Context { reason, envelope } => {
                let ops: Vec<Value> = (0..self.rng.usize(1..3)).map(|_| self.some_op(*reason, envelope)).collect();
                json!({ "patch": ops })
            }
            HookEvent::ToolCall { .. } => match self.rng.u8(..3) {
                0 => json!({ "block": true, "reason": words }),
                1 => json!({ "arguments": r#"{"at":"elsewhere"}"# }),
                _ => json!({ "arguments": "{}" }),
            },
            HookEvent::ToolResult { .. } => json!({ "output": words, "isError": self.rng.bool() }),
            HookEvent::BeforeCompaction(told) => match self.rng.u8(..6) {
                0 => json!({ "cancel": true }),
                5 => {
                    let said = told.messages.iter().filter_map(|message| message.entry_id.clone());
                    let said: Vec<_> = said.collect();
                    json!({ "summary": "odd", "firstKeptEntryId": self.rng.choice(said) })
                }
                1 => json!({ "summary": words, "details": { "at": 1 } }),
                2 => json!({ "summary": "odd ".repeat(2_000) }),
                3 => json!({ "model": "test-2" }),
                _ => json!({ "instructions": words }),
            },
            HookEvent::BeforeNavigate(_) => match self.rng.u8(..4) {
                0 => json!({ "cancel": true }),
                1 => json!({ "summary": words, "details": 1 }),
                2 => json!({ "label": "odd" }),
                _ => json!({ "instructions": words, "replaceInstructions": true }),
            },
        }
    }

    /// Returns the message with different text.
    fn another(&mut self, message: &Message) -> Value {
        let mut message = Message::new(message.role, message.content.clone());
        let words = "redacted ".repeat(self.rng.usize(1..20));
        for part in &mut message.content {
            match part {
                Part::Text { text } => *text = words.clone(),
                Part::ToolResult { output, .. } => *output = words.clone(),
                _ => {}
            }
        }
        json!(message)
    }

    fn some_op(&mut self, reason: ContextReason, envelope: &ContextEnvelope) -> Value {
        let words = "patched ".repeat(self.rng.usize(1..30));
        let name = format!("part{}", self.rng.u8(..3));
        let cached: Vec<&ContextMessage> =
            envelope.messages.cached.iter().filter(|message| message.entry_id.is_some()).collect();
        let one = self.rng.choice(&cached).map(|message| (*message).clone());
        let id = one.as_ref().and_then(|one| one.entry_id.clone());
        let why = "at random";
        match self.rng.u8(..10) {
            0 | 1 => json!({ "op": "system_part_set", "partName": name, "text": words, "invalidateCacheReason": why }),
            2 => json!({ "op": "system_part_remove", "partName": name, "invalidateCacheReason": why }),
            3 => json!({ "op": "tools_remove", "toolNames": ["look"], "invalidateCacheReason": why }),
            4 => json!({ "op": "options_set", "temperature": 0.5, "invalidateCacheReason": why }),
            5 => {
                let message = one.map(|one| self.another(&one.message));
                json!({ "op": "messages_cached_edit", "edits": [{ "entryId": id, "message": message }], "invalidateCacheReason": why })
            }
            6 => json!({ "op": "messages_cached_edit", "edits": [{ "entryId": id }], "invalidateCacheReason": why }),
            7 => {
                // It replaces the tail of the messages, which may start with a result.
                let from = self.rng.usize(..cached.len().max(1));
                let mut messages: Vec<Value> =
                    cached.iter().skip(from).map(|message| json!({ "entryId": message.entry_id })).collect();
                messages.insert(0, json!({ "message": Message::user(words) }));
                json!({ "op": "messages_cached_replace", "messages": messages, "invalidateCacheReason": why })
            }
            8 if reason == ContextReason::Ephemeral => json!({
                "op": "compaction_apply", "summary": words, "firstKeptEntryId": id, "tokensBefore": 1,
                "timestamp": "2026-01-01T00:00:00.000Z", "invalidateCacheReason": why,
            }),
            _ => json!({ "op": "messages_uncached_append", "messages": [Message::user(words)] }),
        }
    }

    fn some_garbage(&mut self) -> Value {
        let garbage = [
            json!({ "error": "it says no" }),
            json!({ "patch": [{ "op": "nothing_known" }] }),
            json!({ "patch": [1, 2, 3] }),
            json!({ "output": "x", "block": true, "cancel": true }),
            json!({ "message": { "role": "tool", "content": [] } }),
            json!({ "summary": " " }),
            json!({ "label": "a\nb" }),
        ];
        garbage[self.rng.usize(..garbage.len())].clone()
    }

    /// Checks that every logged tool call has one result in the log.
    pub(super) fn check_results(&self) {
        let said = self.entries.values().filter_map(|entry| match &entry.data {
            EntryData::Message(message) if !message.incomplete => Some(message),
            _ => None,
        });
        let (mut calls, mut results) = (Vec::new(), Vec::new());
        for message in said {
            calls.extend(message.tool_calls().map(|(id, _, _)| id.clone()));
            results.extend(message.content.iter().filter_map(|part| match part {
                Part::ToolResult { call_id, .. } if message.role == Role::Tool => Some(call_id.clone()),
                _ => None,
            }));
        }
        calls.sort();
        results.sort();
        assert_eq!(calls, results, "seed {}: calls without their results, or with two", self.seed);
    }

    /// Returns true if a reply may come after those to later commands.
    pub(super) fn may_be_late(command: &SessionCommand) -> bool {
        matches!(
            command,
            SessionCommand::Navigate(_)
                | SessionCommand::PreviewCompaction(_)
                | SessionCommand::ToolResult(_)
                | SessionCommand::UserInput(_)
                | SessionCommand::AppendCustomMessage(_)
                | SessionCommand::RetryTurn(_)
        )
    }

    /// Checks the reply to a client hook's answer.
    pub(super) fn check_hook_reply(&self, reply: &Reply) {
        if let Reply::Error(error) = reply {
            assert!(error.code != reseed_protocol::ErrorCode::Internal, "seed {}: {}", self.seed, error.message);
        }
    }
}
