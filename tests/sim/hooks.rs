//! The hooks of a run, the server's and the clients': they answer, change what they are called for, take time, fail,
//! return unusable answers, and hang. Half of the runs have none.

use crate::history::Trace;
use fastrand::Rng;
use reseed::{
    core::{
        context::seed::unseed,
        hook::{HookFault, HookSpec},
    },
    hooks::{Hook, Hooks, on},
};
use reseed_protocol::{
    Message, Part, Role,
    context::{ContextEnvelope, ContextMessage},
    hooks::{ContextReason, HookAnswer, HookCall, HookEvent, HookOffer, HookPoint},
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::sleep;

/// Counts of hook calls by outcome.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Calls of the server's hooks.
    pub(crate) server: u64,
    /// Calls that clients received.
    pub(crate) clients: u64,
    /// Calls answered with a change.
    pub(crate) changed: u64,
    /// Calls answered with a failure, or with an unusable answer.
    pub(crate) failed: u64,
    /// Calls that were never answered.
    pub(crate) hung: u64,
}

/// The hooks of a run, shared by all its servers and clients.
pub(crate) struct Habits {
    trace: Trace,
    inner: Mutex<Inner>,
}

struct Inner {
    rng: Rng,
    calm: bool,
    /// The percentage of calls that go wrong.
    wrong: u8,
    specs: Vec<HookSpec>,
    asked: Asked,
    said: u64,
}

/// A hook's treatment of a call.
enum Plan {
    /// Answers with this.
    Says(Value),
    Fails,
    Hangs,
}

impl Habits {
    /// Creates the hooks of this seed; `plain` has none.
    pub(crate) fn new(seed: u64, plain: bool, trace: Trace) -> Arc<Self> {
        let mut rng = Rng::with_seed(seed ^ 0x400c5);
        let wrong = [10, 30][rng.usize(..2)];
        let specs = if plain || rng.bool() { Vec::new() } else { some_specs(&mut rng) };
        let names: Vec<String> =
            specs.iter().map(|spec| format!("{} {:?}", spec.point.as_str(), spec.reasons)).collect();
        trace.line(format_args!("hooks: {names:?}, {wrong} of a hundred calls go wrong"));
        let inner = Inner { rng, calm: false, wrong, specs, asked: Asked::default(), said: 0 };
        Arc::new(Self { trace, inner: Mutex::new(inner) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes every call be answered at once, without a change.
    pub(crate) fn calm_down(&self) {
        self.lock().calm = true;
    }

    /// Returns the outcomes of all calls.
    pub(crate) fn asked(&self) -> Asked {
        self.lock().asked
    }

    /// Returns the hooks of a server.
    pub(crate) fn of_server(self: &Arc<Self>) -> Hooks {
        let hooks = self.lock().specs.iter().map(|spec| self.hook(spec.clone())).collect();
        Hooks::new(hooks).expect("hooks that may be so")
    }

    fn hook(self: &Arc<Self>, spec: HookSpec) -> Arc<dyn Hook> {
        let habits = self.clone();
        on([spec], move |call: HookCall| {
            let (plan, millis) = habits.plan(&call);
            async move {
                sleep(Duration::from_millis(millis)).await;
                match plan {
                    Plan::Says(answer) => Ok(answered(answer)),
                    Plan::Fails => Err(HookFault::failed("a fault of the run")),
                    Plan::Hangs => std::future::pending().await,
                }
            }
        })
    }

    fn plan(&self, call: &HookCall) -> (Plan, u64) {
        let mut inner = self.lock();
        inner.asked.server += 1;
        let millis = if inner.calm { 0 } else { inner.rng.u64(0..40) };
        let plan = inner.some_plan(&call.event);
        let does = match &plan {
            Plan::Says(answer) => answer.to_string().chars().take(120).collect(),
            Plan::Fails => "fails".to_owned(),
            Plan::Hangs => "hangs".to_owned(),
        };
        self.trace.line(format_args!("hook: is asked {}, {does}", call.event.point().as_str()));
        (plan, millis)
    }

    /// Returns what a client offers when it joins; `None` in a run without hooks.
    pub(crate) fn offers(&self) -> Option<Vec<HookOffer>> {
        let mut inner = self.lock();
        if inner.calm || inner.specs.is_empty() || inner.rng.u8(..3) > 0 {
            return None;
        }
        let rng = &mut inner.rng;
        let specs = some_specs(rng);
        let specs: Vec<HookSpec> = specs.into_iter().take(2).collect();
        let offer = |spec: HookSpec, rng: &mut Rng| HookOffer {
            name: Some(format!("of-client-{}", spec.name)),
            point: spec.point,
            reasons: Some(spec.reasons).filter(|reasons| !reasons.is_empty()),
            timeout_ms: spec.timeout_ms,
            required: Some(spec.required && rng.u8(..4) > 0),
            observe: Some(spec.observe),
        };
        Some(specs.into_iter().map(|spec| offer(spec, rng)).collect())
    }

    /// Returns a client's answer to a call; `None` if it never answers.
    pub(crate) fn client_says(&self, call: &HookCall) -> Option<Value> {
        let mut inner = self.lock();
        inner.asked.clients += 1;
        match inner.some_plan(&call.event) {
            Plan::Says(answer) => Some(answer),
            Plan::Fails => Some(json!({ "error": "a fault of the run" })),
            Plan::Hangs => None,
        }
    }
}

fn answered(answer: Value) -> HookAnswer {
    serde_json::from_value(answer).expect("an answer of the protocol")
}

fn some_specs(rng: &mut Rng) -> Vec<HookSpec> {
    let context = |reason| HookSpec::new("context", HookPoint::Context).for_reasons(&[reason]);
    let mut specs = vec![
        context(ContextReason::BeforeRequest),
        context(ContextReason::Ephemeral),
        context(ContextReason::TurnEnd),
        HookSpec::new("message", HookPoint::Message),
        HookSpec::new("start", HookPoint::BeforeAgentStart),
        HookSpec::new("call", HookPoint::ToolCall),
        HookSpec::new("result", HookPoint::ToolResult),
        HookSpec::new("compact", HookPoint::BeforeCompaction),
        HookSpec::new("move", HookPoint::BeforeNavigate),
    ];
    specs.retain(|_| rng.u8(..5) < 2);
    rng.shuffle(&mut specs);
    let mut made = |spec: HookSpec| {
        let spec = spec.within(rng.u64(100..4_000));
        match rng.u8(..6) {
            0 => spec.observing(),
            1 => spec.optional(),
            _ => spec,
        }
    };
    specs.into_iter().map(&mut made).collect()
}

/// Returns a random op that may be applied to this envelope.
fn some_op(rng: &mut Rng, envelope: &ContextEnvelope, is_ephemeral: bool, words: &str) -> Value {
    let reason = "a run";
    let cached = &envelope.messages.cached;
    let is_summary = |message: &Message| unseed(&message.text()).is_some();
    // A message old enough: neither a summary nor a call nor its result, and not the newest.
    let plain = |sent: &&ContextMessage| {
        let is_text = |part: &Part| matches!(part, Part::Text { .. });
        sent.entry_id.is_some() && sent.message.content.iter().all(is_text) && !is_summary(&sent.message)
    };
    let said: Vec<&ContextMessage> = cached.iter().rev().skip(2).filter(plain).collect();
    let about = rng.choice(&said).copied();
    match (rng.u8(..if is_ephemeral { 20 } else { 14 }), about) {
        (0..3, _) => json!({ "op": "system_part_set", "partName": format!("part{}", rng.u8(..3)), "text": words,
            "invalidateCacheReason": reason }),
        (3, _) => json!({ "op": "system_part_remove", "partName": format!("part{}", rng.u8(..3)),
            "invalidateCacheReason": reason }),
        (4, _) => json!({ "op": "system_parts_replace", "parts": [{ "name": "part0", "text": words }],
            "invalidateCacheReason": reason }),
        (5, _) => {
            let mut tools = envelope.tools.clone();
            tools.iter_mut().for_each(|tool| words.clone_into(&mut tool.description));
            json!({ "op": "tools_replace", "tools": tools, "invalidateCacheReason": reason })
        }
        (6, _) => json!({ "op": "tools_remove", "toolNames": ["look"], "invalidateCacheReason": reason }),
        (7, _) => json!({ "op": "options_set", "scope": "cached", "maxTokens": 500, "temperature": 0.25,
            "invalidateCacheReason": reason }),
        (8..10, Some(about)) => {
            let message = Message::new(about.message.role, vec![Part::Text { text: words.to_owned() }]);
            json!({ "op": "messages_cached_edit", "edits": [{ "entryId": about.entry_id, "message": message }],
                "invalidateCacheReason": reason })
        }
        (10, Some(about)) => json!({ "op": "messages_cached_edit", "edits": [{ "entryId": about.entry_id }],
            "invalidateCacheReason": reason }),
        // A replacement that names a summary means something else once its compaction is undone.
        (11..14, Some(about)) if !cached.iter().any(|sent| is_summary(&sent.message)) => {
            let mut messages: Vec<Value> = cached.iter().map(|sent| json!(sent)).collect();
            let at = cached.iter().position(|sent| sent.entry_id == about.entry_id).unwrap_or_default();
            // Removed. A moved message would be carried by a compaction without its entry, by which the checks identify
            // messages; the random patches of `core/context` cover moves.
            messages.remove(at);
            messages.insert(0, json!({ "role": "user", "content": words }));
            json!({ "op": "messages_cached_replace", "scope": "cached", "messages": messages,
                "invalidateCacheReason": reason })
        }
        (14, Some(about)) if about.message.role == Role::User => json!({ "op": "compaction_apply", "summary": words,
            "firstKeptEntryId": about.entry_id, "timestamp": "2026-01-01T00:00:00.000Z", "tokensBefore": 1,
            "invalidateCacheReason": reason }),
        (_, _) if is_ephemeral => json!({ "op": "messages_uncached_append", "messages": [Message::user(words)] }),
        (_, _) => {
            json!({ "op": "system_part_set", "partName": "part0", "text": words, "invalidateCacheReason": reason })
        }
    }
}

impl Inner {
    fn some_plan(&mut self, event: &HookEvent) -> Plan {
        if self.calm {
            return Plan::Says(json!({}));
        }
        if self.rng.u8(..100) < self.wrong {
            return match self.rng.u8(..3) {
                0 => {
                    self.asked.hung += 1;
                    Plan::Hangs
                }
                1 => {
                    self.asked.failed += 1;
                    Plan::Fails
                }
                _ => {
                    self.asked.failed += 1;
                    Plan::Says(json!({ "error": "a fault of the run", "cancel": true }))
                }
            };
        }
        if self.rng.bool() {
            return Plan::Says(json!({}));
        }
        self.asked.changed += 1;
        Plan::Says(self.change(event))
    }

    fn change(&mut self, event: &HookEvent) -> Value {
        self.said += 1;
        let words = format!("hook {} says {}", self.said, "so ".repeat(self.rng.usize(1..20)));
        match event {
            HookEvent::Context { reason, envelope } => {
                let is_ephemeral = *reason == ContextReason::Ephemeral;
                json!({ "patch": [some_op(&mut self.rng, envelope, is_ephemeral, &words)] })
            }
            HookEvent::Message { message, .. } => {
                let mut message = Message::new(message.role, message.content.clone());
                for part in &mut message.content {
                    if let Part::Text { text } | Part::ToolResult { output: text, .. } = part {
                        text.clone_from(&words);
                    }
                }
                json!({ "message": message })
            }
            HookEvent::BeforeAgentStart { .. } => match self.rng.u8(..3) {
                0 => json!({ "systemPrompt": words }),
                1 => json!({ "customMessage": { "customType": "hook", "content": words, "display": false } }),
                _ => json!({ "entries": [{ "customType": "hook", "data": { "number": self.said } }] }),
            },
            HookEvent::ToolCall { .. } => match self.rng.bool() {
                true => json!({ "block": true, "reason": words }),
                false => json!({ "arguments": r#"{"at":"elsewhere"}"# }),
            },
            HookEvent::ToolResult { .. } => json!({ "output": words, "isError": self.rng.bool() }),
            HookEvent::BeforeCompaction(_) => match self.rng.u8(..4) {
                0 => json!({ "cancel": true }),
                1 => json!({ "model": "test-2", "instructions": words }),
                _ => json!({ "summary": words, "details": { "number": self.said } }),
            },
            HookEvent::BeforeNavigate(_) => match self.rng.u8(..4) {
                0 => json!({ "cancel": true }),
                1 => json!({ "label": format!("label of hook {}", self.said) }),
                _ => json!({ "summary": words, "instructions": "mind the rest" }),
            },
        }
    }
}
