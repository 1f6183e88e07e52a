//! Hooks at their points, in a small world: a session, a model and scripted hooks.
//!
//! The loop's effects are written down as short lines ([`World::took`]), so that a test reads as a sequence of events.

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
    session::{Destination, IdSource, Lookup, Session},
};
use reseed_protocol::{
    CallId, CommandId, Entry, EntryData, ErrorBody, ErrorCode, Message, Part, StopReason, Timestamp,
    command::{CancelTurn, Command, Input as Said, RegisterHooks, RegisterTools, ToolOffer, ToolResult, UserInput},
    event::{EntryAppended, EphemeralEvent, Event, TurnFinished},
    hook::{HookAnswer, HookCall, HookEvent, HookOffer, HookPoint},
    reply::Reply,
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
        session.state.model = "test".into();
        session.state.strategy = "manual".into();
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
            entries,
            events: Vec::new(),
            emitted: Vec::new(),
            replies: Vec::new(),
            calls: VecDeque::new(),
            shown: Vec::new(),
        }
    }

    /// Returns a session that is this full, in percent, for this strategy; a compaction keeps less than it holds.
    fn full(hooks: Vec<HookSpec>, strategy: &str, percent: u64) -> Self {
        let text = "The harbour lies to the west. ".repeat(60);
        let lines: Vec<String> = (0..8).map(|n| format!("e{n}:{} {n} {text}", ["user", "assistant"][n % 2])).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let tokens = World::with(Vec::new(), &lines, |_, _| ()).agent.context_info().token_count;
        World::with(hooks, &lines, |deployment, session| {
            session.state.strategy = strategy.into();
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
                Event::QueueChanged(changed) => Some(format!("queue {}", changed.items.len())),
                Event::CompactionFailed(failed) => Some(format!("compaction failed {}", failed.code)),
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
            EphemeralEvent::HookFailed(failed) => Some(format!("{} failed {}", failed.hook, failed.code)),
            EphemeralEvent::ItemAborted(_) => Some("aborted".into()),
            EphemeralEvent::CompactionPrepared(_) => Some("prepared".into()),
            _ => None,
        };
        self.took.extend(word);
        self.emitted.push(event);
    }

    fn command(&mut self, command: Command) -> &mut Self {
        self.command_to(command, None)
    }

    fn command_to(&mut self, command: Command, destination: Option<Destination>) -> &mut Self {
        self.commands += 1;
        let (id, command) = (format!("command-{:012}", self.commands).parse().unwrap(), Box::new(command));
        let lookup = destination.map(|destination| Box::new(Lookup::Destination(destination)));
        self.tell(Input::Command { origin: Origin(1), id, fingerprint: 0, command, lookup })
    }

    fn say(&mut self, text: &str) -> &mut Self {
        self.command(Command::UserInput(UserInput::plain(Said::Text(text.into()))))
    }

    fn cancel(&mut self) -> &mut Self {
        self.command(Command::CancelTurn(CancelTurn { turn_id: None }))
    }

    /// Offers the model the tool `look`, which requires a `where`.
    fn offer_tool(&mut self) -> &mut Self {
        let parameters = json!({
            "type": "object", "properties": { "where": { "type": "string" } }, "required": ["where"],
        });
        let offer = ToolOffer {
            name: "look".into(),
            description: "Looks.".into(),
            parameters,
            timeout_ms: None,
            idempotent: None,
        };
        self.command(Command::RegisterTools(RegisterTools { tools: vec![offer] }))
    }

    /// Registers these hooks for the owner's client.
    fn offer_hooks(&mut self, offers: Value) -> &mut Self {
        let hooks: Vec<HookOffer> = serde_json::from_value(offers).unwrap();
        self.command(Command::RegisterHooks(RegisterHooks { hooks }));
        self.tell(Input::AskAgain { only_away: true })
    }

    /// Advances time, and sends a tick if a deadline has passed.
    fn wait(&mut self, millis: u64) -> &mut Self {
        self.now = self.now.plus_millis(millis);
        if self.agent.next_deadline().is_some_and(|due| due <= self.now) {
            self.tell(Input::Tick);
        }
        self
    }

    /// Returns the oldest pending call.
    fn question(&self) -> &HookCall {
        &self.open.front().expect("a hook is asked").1
    }

    /// Returns the oldest pending call as it is on the wire.
    fn asked_for(&self) -> Value {
        serde_json::to_value(self.question()).unwrap()
    }

    /// Answers the oldest pending call.
    fn answer(&mut self, answer: Value) -> &mut Self {
        let (place, call) = self.open.pop_front().expect("a hook is asked");
        self.answer_to(place, call, answer)
    }

    fn answer_to(&mut self, place: HookPlace, call: HookCall, mut answer: Value) -> &mut Self {
        match place {
            HookPlace::Client => {
                answer["callId"] = json!(call.call_id);
                self.command(Command::HookResult(Box::new(serde_json::from_value(answer).unwrap())))
            }
            HookPlace::Server(_) => self.hear(call.call_id, Ok(serde_json::from_value(answer).unwrap())),
        }
    }

    /// Fails the oldest pending call.
    fn fails(&mut self, fault: HookFault) -> &mut Self {
        let (_, call) = self.open.pop_front().expect("a hook is asked");
        self.hear(call.call_id, Err(fault))
    }

    fn hear(&mut self, call_id: CallId, answer: Result<HookAnswer, HookFault>) -> &mut Self {
        self.tell(Input::HookAnswered { call_id, answer: Box::new(answer) })
    }

    /// Answers every call with no change.
    fn pass(&mut self) -> &mut Self {
        while !self.open.is_empty() {
            self.answer(json!({}));
        }
        self
    }

    /// Answers the request with this text.
    fn model(&mut self, text: &str) -> &mut Self {
        self.model_says(vec![Part::Text { text: text.into() }])
    }

    /// Answers the request with calls to `look`, one for each of these arguments.
    fn model_calls(&mut self, arguments: &[&str]) -> &mut Self {
        let call = |arguments: &&str| Part::ToolCall {
            call_id: "call_0".parse().unwrap(),
            name: "look".into(),
            arguments: (*arguments).into(),
        };
        self.model_says(arguments.iter().map(call).collect())
    }

    fn model_says(&mut self, parts: Vec<Part>) -> &mut Self {
        let request = self.asked.take().expect("the model is asked");
        self.tell(Input::Answered { request, answer: Answer { parts, stop_reason: StopReason::Stop, usage: None } })
    }

    fn model_fails(&mut self, code: ErrorCode) -> &mut Self {
        let request = self.asked.take().expect("the model is asked");
        self.tell(Input::Failed { request, fault: ModelFault::new(code, "a fault") })
    }

    /// Answers the summary request with all sections, in as many parts as are requested.
    fn summary(&mut self) -> &mut Self {
        assert!(self.summarising.is_some(), "a summary is asked for");
        while let Some(request) = self.summarising.take() {
            self.summary_piece(request);
            self.took.retain(|line| line != "summary");
        }
        self
    }

    /// Answers the summary request with this text.
    fn summary_says(&mut self, text: &str) -> &mut Self {
        let request = self.summarising.take().expect("the model is asked for a summary");
        let parts = vec![Part::Text { text: text.into() }];
        let answer = Answer { parts, stop_reason: StopReason::Stop, usage: None };
        self.took.retain(|line| line != "summary");
        self.tell(Input::Answered { request, answer })
    }

    /// Fails the summary request.
    fn summary_fails(&mut self, code: ErrorCode) -> &mut Self {
        let request = self.summarising.take().expect("the model is asked for a summary");
        self.tell(Input::Failed { request, fault: ModelFault::new(code, "no") })
    }

    fn summary_piece(&mut self, request: RequestId) {
        let sections = crate::context::summary::SECTIONS.iter();
        let text = sections.map(|section| format!("## {section}\n- x\n")).collect();
        let answer = Answer { parts: vec![Part::Text { text }], stop_reason: StopReason::Stop, usage: None };
        self.tell(Input::Answered { request, answer });
    }

    /// Answers the oldest pending tool call.
    fn tool(&mut self, output: &str) -> &mut Self {
        let call_id = self.calls.pop_front().expect("a tool is called");
        self.command(Command::ToolResult(ToolResult { call_id, output: output.into(), is_error: None }))
    }

    /// Returns what has happened since the last call.
    fn took(&mut self) -> Vec<String> {
        std::mem::take(&mut self.took)
    }

    #[track_caller]
    fn check(&mut self, expected: &[&str]) -> &mut Self {
        assert_eq!(self.took(), expected);
        self
    }

    /// Returns the newest entry of this kind.
    fn newest(&self, kind: &str) -> &Entry {
        self.entries.iter().rev().find(|entry| kind_of(entry) == kind).expect("there is such an entry")
    }

    /// Returns the text of the newest message of this kind.
    fn said(&self, kind: &str) -> String {
        let message = self.newest(kind).message().expect("a message");
        let results = message.content.iter().filter_map(|part| match part {
            Part::ToolResult { output, .. } => Some(output.clone()),
            Part::Text { text } => Some(text.clone()),
            _ => None,
        });
        results.collect::<Vec<_>>().join("\n")
    }

    /// Returns the end of the newest turn.
    fn ended(&self) -> &TurnFinished {
        let ended = self.events.iter().rev().find_map(|event| match event {
            Event::TurnFinished(finished) => Some(&**finished),
            _ => None,
        });
        ended.expect("a turn has ended")
    }

    /// Returns the newest reply.
    fn reply(&self) -> &Reply {
        &self.replies.last().expect("a command was answered").1
    }

    /// Returns what the newest request sent, one line per message.
    fn last_sent(&self) -> Vec<String> {
        let sent = self.sent.last().expect("something was sent");
        sent.messages()
            .map(|message| format!("{} {}", word(&json!(message.message.role)), all_of(&message.message)))
            .collect()
    }

    /// Checks that every call, made or refused, has exactly one result, and that nothing is pending.
    fn check_at_rest(&self) {
        assert!(self.agent.is_idle() && self.open.is_empty() && self.asked.is_none(), "something still waits");
        let messages: Vec<&Message> = self.entries.iter().filter_map(Entry::message).collect();
        let calls = messages.iter().flat_map(|message| message.tool_calls().map(|(id, _, _)| id.clone()));
        let results = messages.iter().flat_map(|message| &message.content).filter_map(|part| match part {
            Part::ToolResult { call_id, .. } => Some(call_id.clone()),
            _ => None,
        });
        let (mut calls, mut results): (Vec<CallId>, Vec<CallId>) = (calls.collect(), results.collect());
        calls.sort();
        results.sort();
        assert_eq!(calls, results, "each call has one result");
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
