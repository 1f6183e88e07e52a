//! Hooks at their points, tested in a small world: a session, a model and scripted hooks.
//!
//! The loop's effects are recorded as short lines ([`World::took`]), so that a test reads as a sequence of events.
//! `script` contains the actions of a test, and `seen` its observations.

mod answers;
mod compaction;
mod context;
mod files;
mod held;
mod inputs;
mod limits;
mod navigation;
mod order;
mod owed;
mod script;
mod seen;
mod sent_tools;
mod stopping;

use crate::{
    agent_loop::{AgentLoop, Append, Deployment, Effect, Input, Origin, RequestId, Seed},
    context::{
        counter::{Calibration, Counter},
        testing::path,
        windows::Windows,
    },
    hook::{HookFault, HookPlace, HookSpec},
    model::{Answer, ModelFault, ModelRequest, Purpose},
    session::{Destination, IdSource, Session},
};
use reseed_protocol::{
    CallId, CommandId, Entry, EntryData, ErrorBody, ErrorCode, Message, Part, StopReason, Timestamp,
    command::SessionCommand,
    content::Input as Said,
    event::{EphemeralEvent, Event},
    hooks::{HookAnswer, HookCall, HookEvent, HookPoint},
    reply::Reply,
    tools::ToolOffer,
    tree::EntryAppended,
    turn::{TurnFinished, UserInput},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// The time at which a world starts.
const NOW: Timestamp = Timestamp(1_000_000);

/// Returns the error for pending commands when the server stops.
fn stopping() -> ErrorBody {
    ErrorBody::new(ErrorCode::ShuttingDown, "stopping")
}

/// Returns the error for pending commands when the session is deleted.
fn gone() -> ErrorBody {
    ErrorBody::new(ErrorCode::SessionNotFound, "deleted")
}

/// Returns a hook with default settings at this point.
fn hook(name: &str, point: HookPoint) -> HookSpec {
    HookSpec::new(name, point)
}

/// A loop and its surroundings.
struct World {
    agent: AgentLoop,
    now: Timestamp,
    commands: u32,
    took: Vec<String>,
    /// Pending hook calls, oldest first.
    open: VecDeque<(HookPlace, HookCall)>,
    /// The hook names of all calls.
    names: BTreeMap<CallId, String>,
    /// The request that the model is answering.
    asked: Option<RequestId>,
    /// The summary request in progress.
    summarising: Option<RequestId>,
    /// The requests sent, oldest first.
    sent: Vec<ModelRequest>,
    entries: Vec<Entry>,
    /// The length of the queue, according to its events.
    waiting: usize,
    events: Vec<Event>,
    emitted: Vec<EphemeralEvent>,
    replies: Vec<(CommandId, Reply)>,
    calls: VecDeque<CallId>,
    /// The shown part of an answer that is cancelled.
    shown: Vec<Part>,
}

impl World {
    /// Returns a new session with these server hooks.
    fn new(hooks: Vec<HookSpec>) -> Self {
        Self::with(hooks, &[], |_, _| ())
    }

    /// Returns a session on this path, set up by `change`.
    fn with(hooks: Vec<HookSpec>, lines: &[&str], change: impl FnOnce(&mut Deployment, &mut Session)) -> Self {
        let counter = Counter::for_model("test");
        let mut session = Session::new("session".parse().unwrap(), Timestamp(0));
        session.state_mut().model = "test".into();
        session.state_mut().strategy = "manual".into();
        let mut deployment = Deployment {
            model: "test".into(),
            instructions: "Be brief.".into(),
            windows: Windows::new(Some(8_000), Vec::new()),
            tool_timeout_ms: 10_000,
            tool_rounds_max: 4,
            queue_items_max: 4,
            hook_timeout_ms: 1_000,
            hook_away_ms: 5_000,
            hooks,
            ..Deployment::default()
        };
        change(&mut deployment, &mut session);
        let mut entries = Vec::new();
        for node in path(lines, &counter) {
            let entry = node.entry.clone();
            entries.push(entry.clone());
            let appended = EntryAppended { entry, turn_id: None, command_id: None };
            session.apply(&Event::EntryAppended(Box::new(appended)), &counter);
        }
        let seed = Seed::new(session, Arc::new(deployment), Calibration::new(counter.method()), IdSource::seeded(1));
        Self {
            agent: AgentLoop::seeded(1, seed),
            now: NOW,
            commands: 0,
            took: Vec::new(),
            open: VecDeque::new(),
            names: BTreeMap::new(),
            asked: None,
            summarising: None,
            sent: Vec::new(),
            waiting: 0,
            entries,
            events: Vec::new(),
            emitted: Vec::new(),
            replies: Vec::new(),
            calls: VecDeque::new(),
            shown: Vec::new(),
        }
    }

    /// Returns a session that is this full, in percent, for this strategy. A compaction keeps less than it holds.
    fn full(hooks: Vec<HookSpec>, strategy: &str, percent: u64) -> Self {
        let text = "The harbour lies to the west. ".repeat(60);
        let lines: Vec<String> = (0..8).map(|n| format!("e{n}:{} {n} {text}", ["user", "assistant"][n % 2])).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let tokens = World::with(Vec::new(), &lines, |_, _| ()).agent.context_info().token_count;
        World::with(hooks, &lines, |deployment, session| {
            session.state_mut().strategy = strategy.into();
            deployment.windows = Windows::new(Some(tokens * 100 / percent), Vec::new());
            // Its window is large enough to summarise in one request.
            deployment.summaries.model = Some("summariser".into());
        })
    }

    fn tell(&mut self, input: Input) -> &mut Self {
        let mut waiting: VecDeque<Effect> = self.agent.handle(self.now, input).into();
        while let Some(effect) = waiting.pop_front() {
            match effect {
                Effect::Append(append) => self.append(append),
                Effect::Reply { id, reply, .. } => self.replied(id, reply),
                Effect::Emit(event) => self.emit(event),
                Effect::CallModel(call) => {
                    let (slot, word) = match call.body.purpose {
                        Purpose::Turn if call.withheld => (&mut self.asked, "model withheld"),
                        Purpose::Turn => (&mut self.asked, "model"),
                        Purpose::Summary => (&mut self.summarising, "summary"),
                    };
                    assert!(slot.replace(call.request).is_none(), "two requests at once");
                    self.took.push(word.to_owned());
                    self.sent.push(call.body);
                }
                Effect::CancelModel(request) => {
                    for slot in [&mut self.asked, &mut self.summarising] {
                        if slot.take_if(|asked| *asked == request).is_some() {
                            self.took.push("hang up".into());
                        }
                    }
                    let shown = std::mem::take(&mut self.shown);
                    waiting.extend(self.agent.handle(self.now, Input::Cancelled { request, shown }));
                }
                Effect::CallHook(call) => {
                    let again = self.open.iter().any(|(_, open)| open.call_id == call.call.call_id);
                    let verb = match call.awaited {
                        true if again => "ask again",
                        true => "ask",
                        false => "tell",
                    };
                    self.took.push(format!("{verb} {} {}", call.call.hook, event_of(&call.call.event)));
                    self.names.insert(call.call.call_id.clone(), call.call.hook.clone());
                    assert_eq!(call.awaited, call.call.deadline.is_some(), "who is waited for is told until when");
                    if call.awaited {
                        self.open.retain(|(_, open)| open.call_id != call.call.call_id);
                        self.open.push_back((call.place, call.call));
                    }
                }
                Effect::ToolsRefused(_) | Effect::CallWritten(_) | Effect::ContextCut { .. } | Effect::Hurry(_) => {}
                Effect::CallTool(call) => self.took.push(format!("run {}", call.name)),
                Effect::CancelTool(_) => self.took.push("stop tool".into()),
                Effect::CancelHook(id) => {
                    self.took.push(format!("drop {}", self.names[&id]));
                    self.open.retain(|(_, call)| call.call_id != id);
                }
                Effect::Reseed => {
                    self.took.push("reseed".into());
                    let next = AgentLoop::seeded(
                        0,
                        Seed::new(
                            Session::new("none".parse().unwrap(), Timestamp(0)),
                            Arc::new(Deployment::default()),
                            Calibration::new(Counter::for_model("test").method()),
                            IdSource::seeded(1),
                        ),
                    );
                    let old = std::mem::replace(&mut self.agent, next);
                    self.agent = AgentLoop::seeded(old.generation() + 1, old.into_seed());
                    waiting.extend(self.agent.handle(self.now, Input::Seeded));
                }
                Effect::Calibrate { .. } => {}
            }
        }
        self
    }

    fn append(&mut self, append: Append) {
        for event in append.events {
            let word = match &event {
                Event::EntryAppended(appended) => {
                    self.entries.push(appended.entry.clone());
                    Some(format!("+ {}", kind_of(&appended.entry)))
                }
                Event::TurnStarted(_) => Some("turn".into()),
                Event::TurnFinished(finished) => Some(end_of(finished)),
                Event::ToolCall(call) => {
                    self.calls.push_back(call.call_id.clone());
                    Some(format!("call {} {}", call.name, call.arguments))
                }
                Event::QueueItemAdded(_)
                | Event::QueueItemRemoved(_)
                | Event::QueueReordered(_)
                | Event::QueueReleased(_) => {
                    self.waiting += usize::from(matches!(event, Event::QueueItemAdded(_)));
                    self.waiting -= usize::from(matches!(event, Event::QueueItemRemoved(_)));
                    Some(format!("queue {}", self.waiting))
                }
                Event::CompactionFailed(failed) => Some(format!("compaction failed {}", failed.error.code)),
                Event::ContextCompacted(compacted) => Some(format!("compacted {}", word(&json!(compacted.rung)))),
                _ => None,
            };
            self.took.extend(word);
            self.events.push(event);
        }
        append.marks.into_iter().for_each(|mark| self.replied(mark.id, mark.reply));
    }

    fn replied(&mut self, id: CommandId, reply: Reply) {
        assert!(self.replies.iter().all(|(other, _)| *other != id), "{id} was answered twice");
        match &reply {
            Reply::Error(error) => self.took.push(format!("error {}", error.code)),
            Reply::Navigated(_) => self.took.push("navigated".into()),
            Reply::CompactionPreview(_) => self.took.push("preview".into()),
            _ => {}
        }
        self.replies.push((id, reply));
    }

    fn emit(&mut self, event: EphemeralEvent) {
        let word = match &event {
            EphemeralEvent::HookFailed(failed) => Some(format!("{} failed {}", failed.hook, failed.error.code)),
            EphemeralEvent::ItemAborted(_) => Some("aborted".into()),
            EphemeralEvent::CompactionPrepared(_) => Some("prepared".into()),
            _ => None,
        };
        self.took.extend(word);
        self.emitted.push(event);
    }
}

/// Returns a hook event and its subject as short text.
fn event_of(event: &HookEvent) -> String {
    match event {
        HookEvent::Context { reason, .. } => format!("context:{}", word(&json!(reason))),
        HookEvent::Message { message, .. } => format!("message:{}", word(&json!(message.role))),
        other => other.point().as_str().to_owned(),
    }
}

fn kind_of(entry: &Entry) -> String {
    match &entry.data {
        EntryData::Message(message) => word(&json!(message.role)),
        _ => entry.type_name().to_owned(),
    }
}

fn end_of(finished: &TurnFinished) -> String {
    let error = finished.error.as_ref().map(|error| format!(" {}", error.code)).unwrap_or_default();
    format!("end {}{error}", word(&json!(finished.status)))
}

fn word(value: &Value) -> String {
    value.as_str().expect("a word").to_owned()
}

fn all_of(message: &Message) -> String {
    let parts = message.content.iter().map(|part| match part {
        Part::Text { text } => text.clone(),
        Part::ToolCall { arguments, .. } => format!("call {arguments}"),
        Part::ToolResult { output, .. } => output.clone(),
        other => format!("{other:?}"),
    });
    parts.collect::<Vec<_>>().join(" ")
}

/// Returns an answer of a `message` hook.
fn instead(role: &str, text: &str) -> Value {
    json!({ "message": { "role": role, "content": [{ "type": "text", "text": text }] } })
}
