//! The server's agent loop around a scripted model: what it asks and what it writes, without a runtime.

use crate::data::Session;
use reseed::{
    core::{
        agent_loop::{AgentLoop, Deployment, Effect, Input, Origin, RequestId, Seed, Summaries},
        compaction::{SummaryRequest, strategy::Options},
        context::{counter::Calibration, windows::Windows},
        hook::{HookFault, HookSpec},
        model::{Answer, ModelFault, ModelRequest, ReportedUsage},
        session::{
            Destination, IdSource, Lookup, Node, Session as Stored, SessionState, SessionTree, lookup::landing,
            tree::PathReader,
        },
    },
    pi,
};
use reseed_protocol::{
    Entry, EntryId, Part, StopReason, Timestamp,
    command::SessionCommand,
    compaction::CompactionFailed,
    event::Event,
    hooks::{HookAnswer, HookPoint},
    reply::Reply,
    tree::NavigatePosition,
};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

/// The model's reaction to a request: it answers, fails, or says nothing yet.
pub(crate) type Model = Box<dyn FnMut(&ModelRequest) -> Option<Result<Answer, ModelFault>>>;

/// The loop with its surroundings.
pub(crate) struct Script {
    agent: Option<AgentLoop>,
    model: Model,
    /// The answer of each hook.
    hooks: Vec<Result<HookAnswer, HookFault>>,
    commands: u64,
    /// Every entry, those of the file first.
    pub(crate) entries: Vec<Entry>,
    by_id: HashMap<EntryId, usize>,
    /// Compactions that failed.
    pub(crate) failed: Vec<CompactionFailed>,
    /// The requests to the model.
    pub(crate) requests: Vec<ModelRequest>,
    replies: Vec<Reply>,
}

/// The deployment settings of a case.
pub(crate) struct Setting {
    pub(crate) window_tokens: u64,
    pub(crate) keep_tokens: u64,
    pub(crate) reserve_tokens: u64,
    pub(crate) automatic: bool,
}

const NOW: Timestamp = Timestamp(1_800_000_000_000);

impl Script {
    /// Creates a session at a leaf, counted and cut as pi does.
    pub(crate) fn new(setting: &Setting, session: Option<&Session>, leaf: Option<EntryId>, model: Model) -> Self {
        Self::made(setting, session, leaf, Vec::new(), model)
    }

    /// Creates a session with hooks before its compactions that give these answers.
    pub(crate) fn hooked(setting: &Setting, answers: Vec<Result<HookAnswer, HookFault>>, model: Model) -> Self {
        Self::made(setting, None, None, answers, model)
    }

    fn made(
        setting: &Setting,
        session: Option<&Session>,
        leaf: Option<EntryId>,
        hooks: Vec<Result<HookAnswer, HookFault>>,
        model: Model,
    ) -> Self {
        let entries = session.map(|session| session.entries.clone()).unwrap_or_default();
        let deployment = Deployment {
            model: "m".into(),
            strategy: if setting.automatic { "threshold".into() } else { "manual".into() },
            options: Options {
                threshold: 1.0,
                reserve_tokens: Some(setting.reserve_tokens),
                keep_recent_tokens: setting.keep_tokens,
                background: 1.0,
                min_gain: 0.0,
                ..Options::default()
            },
            // pi always quotes the conversation.
            summaries: Summaries { request: SummaryRequest::Quoted, ..Summaries::default() },
            counter_of: pi::estimate::counter,
            cut_rules: &pi::cut::Pi,
            windows: Windows::new(Some(setting.window_tokens), Vec::new()),
            tool_timeout_ms: 1_000,
            tool_rounds_max: 10,
            queue_items_max: 10,
            hooks: (0..hooks.len())
                // pi continues without an extension that fails.
                .map(|at| HookSpec::new(format!("extension-{at}"), HookPoint::BeforeCompaction).optional())
                .collect(),
            ..Deployment::default()
        };
        let mut stored = Stored::new("session".parse().unwrap(), NOW);
        let state = stored.state_mut();
        state.seq = 1;
        state.model.clone_from(&deployment.model);
        state.strategy.clone_from(&deployment.strategy);
        state.leaf.clone_from(&leaf);
        state.entries = entries.len() as u64;
        let mut script = Self {
            agent: None,
            model,
            hooks,
            commands: 0,
            by_id: entries.iter().enumerate().map(|(at, entry)| (entry.entry_id.clone(), at)).collect(),
            entries,
            failed: Vec::new(),
            requests: Vec::new(),
            replies: Vec::new(),
        };
        stored.tree = script.path_to(leaf.as_ref());
        let seed = Seed::new(
            stored,
            Arc::new(deployment),
            Calibration::new(pi::estimate::counter("m").method()),
            IdSource::seeded(99),
        );
        script.agent = Some(AgentLoop::seeded(1, seed));
        script.tell(Input::Recovered);
        script
    }

    fn path_to(&self, leaf: Option<&EntryId>) -> SessionTree {
        let counter = pi::estimate::counter("m");
        let state = SessionState::default();
        let mut reader = PathReader::new(&state, &counter);
        for entry in self.way_back(leaf) {
            if !reader.take(entry.clone()) {
                break;
            }
        }
        reader.finish()
    }

    fn way_back(&self, leaf: Option<&EntryId>) -> Vec<&Entry> {
        std::iter::successors(leaf.and_then(|id| self.entry(id)), |entry| {
            entry.parent_id.as_ref().and_then(|id| self.entry(id))
        })
        .collect()
    }

    pub(crate) fn entry(&self, id: &EntryId) -> Option<&Entry> {
        self.by_id.get(id).map(|at| &self.entries[*at])
    }

    /// Returns the whole path to the session's leaf.
    pub(crate) fn path(&self) -> Vec<Arc<Node>> {
        let counter = pi::estimate::counter("m");
        let mut path: Vec<Arc<Node>> = self
            .way_back(self.leaf().as_ref())
            .into_iter()
            .map(|entry| Arc::new(Node::counted(entry.clone(), &counter)))
            .collect();
        path.reverse();
        path
    }

    pub(crate) fn leaf(&self) -> Option<EntryId> {
        self.agent().session().state.leaf.clone()
    }

    fn agent(&self) -> &AgentLoop {
        self.agent.as_ref().unwrap()
    }

    /// Executes a command and returns its reply.
    pub(crate) fn command(&mut self, command: SessionCommand) -> Reply {
        let lookup = match &command {
            SessionCommand::Navigate(navigate) => {
                let position = navigate.position.unwrap_or(NavigatePosition::At);
                let entry = navigate.entry_id.as_ref().and_then(|id| self.entry(id));
                let (leaf, input) = entry.map(|entry| landing(entry, position)).unwrap_or_default();
                Some(Box::new(Lookup::Destination(self.destination(leaf, input))))
            }
            _ => None,
        };
        self.commands += 1;
        let id = format!("command-{:012}", self.commands).parse().unwrap();
        let (origin, fingerprint) = (Origin(1), self.commands);
        self.tell(Input::Command { origin, id, fingerprint, command: Box::new(command), lookup });
        self.replies.pop().expect("every command has a reply")
    }

    /// Returns the target of a command, as the runtime reads it from the store.
    fn destination(&self, leaf: Option<EntryId>, input: Option<Vec<Part>>) -> Destination {
        let theirs: Vec<EntryId> = self.way_back(leaf.as_ref()).iter().map(|entry| entry.entry_id.clone()).collect();
        let ours = self.way_back(self.leaf().as_ref());
        let mut left = ours.clone();
        left.retain(|entry| !theirs.contains(&entry.entry_id));
        let common = ours.get(left.len()).map(|entry| entry.entry_id.clone());
        let left = left.into_iter().cloned().collect();
        Destination { tree: self.path_to(leaf.as_ref()), leaf, input, left, common }
    }

    fn tell(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let effects = self.agent.as_mut().unwrap().handle(NOW, input);
            for effect in effects {
                match effect {
                    Effect::Append(append) => {
                        for event in append.events {
                            match event {
                                Event::EntryAppended(appended) => {
                                    self.by_id.insert(appended.entry.entry_id.clone(), self.entries.len());
                                    self.entries.push(appended.entry);
                                }
                                Event::CompactionFailed(failed) => self.failed.push(*failed),
                                _ => {}
                            }
                        }
                        self.replies.extend(append.marks.into_iter().map(|mark| mark.reply));
                    }
                    Effect::Reply { reply, .. } => self.replies.push(reply),
                    Effect::CallModel(call) => inputs.extend(self.ask(call.request, &call.body)),
                    Effect::CancelModel(request) => inputs.push_back(Input::Cancelled { request, shown: Vec::new() }),
                    Effect::CallHook(called) => {
                        let at: usize = called.call.hook.trim_start_matches("extension-").parse().unwrap();
                        let answer = Box::new(self.hooks[at].clone());
                        inputs.push_back(Input::HookAnswered { call_id: called.call.call_id, answer });
                    }
                    Effect::CancelHook(_)
                    | Effect::Calibrate { .. }
                    | Effect::ContextCut { .. }
                    | Effect::Emit(_)
                    | Effect::Hurry(_) => {}
                    Effect::CallTool(_) | Effect::CancelTool(_) | Effect::ToolsRefused(_) | Effect::CallWritten(_) => {
                        unreachable!("this server has no tools")
                    }
                    Effect::Reseed => {
                        let old = self.agent.take().unwrap();
                        let generation = old.generation() + 1;
                        self.agent = Some(AgentLoop::seeded(generation, old.into_seed()));
                        inputs.push_back(Input::Seeded);
                    }
                }
            }
        }
    }

    fn ask(&mut self, request: RequestId, body: &ModelRequest) -> Option<Input> {
        self.requests.push(body.clone());
        Some(match (self.model)(body)? {
            Ok(answer) => Input::Answered { request, answer },
            Err(fault) => Input::Failed { request, fault, shown: Vec::new() },
        })
    }
}

/// Returns an answer of one text.
pub(crate) fn answer(text: &str, usage: Option<(u64, u64)>) -> Answer {
    let usage = usage.map(|(input_tokens, output_tokens)| ReportedUsage {
        input_tokens,
        output_tokens,
        ..ReportedUsage::default()
    });
    Answer { usage, ..Answer::new(vec![Part::Text { text: text.to_owned() }], StopReason::Stop) }
}

/// Returns the shortest summary in the server's form that contains this word.
pub(crate) fn summary(word: &str) -> String {
    format!(
        "## Goal\n- {word}\n\n## Constraints & Preferences\n- none\n\n## Progress\n### Done\n- none\n### In Progress\n\
         - none\n### Blocked\n- none\n\n## Key Decisions\n- none\n\n## Next Steps\n- none\n\n## Critical Context\n- none"
    )
}
