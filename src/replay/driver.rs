//! Plays a recorded conversation through the production code: the agent loop itself, with an in-memory session.
//!
//! The loop gets the inputs that a server would give it, and its effects are executed in order. Where the record is
//! silent, these rules make every run deterministic and policies comparable:
//!
//! - The model gives the next recorded answer, even if the context differs from the recorded one. If the record has no
//!   answer, the turn is cancelled, as its user did.
//! - No answer reports usage. Recorded usage applies to the recorded context, which only the policy `none` reproduces.
//!   So the same estimate counts for all policies.
//! - A request above the window is also answered, and counted: how a server would recover from the refusal is not
//!   measured.
//! - If the loop refuses a turn because the input is larger than the window has room for, the turn is left out. If it
//!   refuses the results of a turn's calls, the turn is cancelled. Answers skipped in this way count as unplayed.
//! - A summary takes no time: it is answered before anything else. So a background summary is available from the
//!   request during which it was started.
//! - A minute passes between two turns, and a millisecond between two inputs. Ids come from a counter.

use super::{
    meter::{Meter, Request},
    outcome::{Outcome, Point},
    policy::{Kind, Policy},
    recorded::{Recorded, Step, Turn},
    summariser::Summariser,
};
use crate::core::{
    agent_loop::{AgentLoop, CallModel, Deployment, Effect, Input, Origin, Seed, check_offers},
    context::{counter::Calibration, messages},
    model::{Answer, Purpose},
    session::{IdSource, Session},
};
use anyhow::{Context as _, bail};
use reseed_protocol::{
    CallId, EntryData, ErrorCode, Message, Part, Role, StopReason, Timestamp,
    command::SessionCommand,
    content::{Input as UserContent, InputContent, InputItem, InputPart},
    event::Event,
    reply::Reply,
    tools::{ToolOffer, ToolResult},
    turn::{CancelTurn, TurnStatus, UserInput},
};
use serde_json::json;
use std::{collections::VecDeque, sync::Arc};

/// The milliseconds between two turns.
const TURN_MILLIS: u64 = 60_000;

/// The most inputs in one turn: more than any recorded turn has answers, calls and summaries.
const INPUTS_MAX: usize = 100_000;

/// A conversation that is being played.
struct Player<'a> {
    recorded: &'a Recorded,
    summariser: &'a Summariser,
    window_tokens: u64,
    agent: Option<AgentLoop>,
    now: Timestamp,
    commands: u64,
    meter: Meter<'a>,
    outcome: Outcome,
    /// The queued inputs, summaries first.
    waiting: VecDeque<Input>,
    /// The remaining steps of the running turn.
    steps: VecDeque<&'a Step>,
    /// The results of the newest answer's calls, by the ids that the loop gave them.
    results: Vec<(CallId, &'a Arc<Message>)>,
    answered: Option<&'a Step>,
    /// The number of texts said so far.
    texts: usize,
    /// A committed compaction, whose context the next loop gets.
    committed: Option<Point>,
    was_refused: bool,
}

/// Plays a conversation under a strategy of reseed.
///
/// # Errors
/// The loop does not become idle.
pub(crate) fn play(
    recorded: &Recorded,
    policy: &Policy,
    deployment: &Arc<Deployment>,
    window_tokens: u64,
    summariser: &Summariser,
) -> anyhow::Result<Outcome> {
    let Kind::Own { strategy, settings } = &policy.kind else { bail!("`{}` is not ours", policy.label) };
    let counter = deployment.counter(&deployment.model);
    let mut session = Session::new("replayed".parse().context("name the session")?, Timestamp(0));
    let state = session.state_mut();
    state.model.clone_from(&deployment.model);
    state.strategy = (*strategy).to_owned();
    state.settings.strategy_settings = settings.as_deref().cloned();
    if !recorded.instructions.is_empty() {
        state.settings.instructions = Some(recorded.instructions.clone());
    }
    let seed = Seed::new(session, deployment.clone(), Calibration::new(counter.method()), IdSource::seeded(1));
    let mut player = Player {
        recorded,
        summariser,
        window_tokens,
        agent: Some(AgentLoop::seeded(1, seed)),
        now: Timestamp(0),
        commands: 0,
        meter: Meter::new(recorded, counter),
        outcome: Outcome::default(),
        waiting: VecDeque::new(),
        steps: VecDeque::new(),
        results: Vec::new(),
        answered: None,
        texts: 0,
        committed: None,
        was_refused: false,
    };
    player.tell(Input::Recovered)?;
    let offers = recorded.tools.iter().take(crate::core::agent_loop::TOOLS_MAX);
    let offers = offers.map(|name| ToolOffer::new(name, "", json!({ "type": "object" }))).collect();
    // The loop refuses a tool that cannot be offered, as it would in a server.
    if let Ok(tools) = check_offers(offers) {
        player.tell(Input::ToolsOffered(tools))?;
    }
    for turn in &recorded.turns {
        player.turn(turn)?;
    }
    Ok(player.finish(deployment))
}

impl<'a> Player<'a> {
    fn turn(&mut self, turn: &'a Turn) -> anyhow::Result<()> {
        self.now = self.now.plus_millis(TURN_MILLIS);
        self.steps = turn.steps.iter().collect();
        self.texts = turn.texts;
        self.meter.at = turn.at;
        let input = UserContent::Items(vec![InputItem {
            kind: None,
            id: None,
            status: None,
            role: "user".to_owned(),
            content: InputContent::Parts(turn.input.content.iter().filter_map(input_part).collect()),
        }]);
        let input = self.input_of(SessionCommand::UserInput(UserInput::plain(input)))?;
        self.waiting.push_back(input);
        let mut inputs = 0;
        while let Some(input) = self.waiting.pop_front() {
            inputs += 1;
            anyhow::ensure!(inputs < INPUTS_MAX, "a turn takes more than {INPUTS_MAX} inputs");
            self.tell(input)?;
            let is_busy = self.agent.as_ref().is_some_and(AgentLoop::is_busy);
            if std::mem::take(&mut self.was_refused) && is_busy {
                let cancel = self.input_of(SessionCommand::CancelTurn(CancelTurn { turn_id: None }))?;
                self.waiting.push_back(cancel);
            }
        }
        self.outcome.unplayed += self.steps.len() as u64;
        Ok(())
    }

    fn input_of(&mut self, command: SessionCommand) -> anyhow::Result<Input> {
        self.commands += 1;
        Ok(Input::Command {
            origin: Origin(1),
            id: format!("replayed-command-{:08}", self.commands).parse().context("name a command")?,
            fingerprint: self.commands,
            command: Box::new(command),
            lookup: None,
        })
    }

    /// Passes an input to the loop and executes all of its effects.
    fn tell(&mut self, input: Input) -> anyhow::Result<()> {
        let mut effects: VecDeque<Effect> = self.handled(input).into();
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Append(append) => {
                    let replies = append.marks.into_iter().map(|mark| mark.reply);
                    replies.for_each(|reply| self.replied(&reply));
                    for event in append.events {
                        self.appended(event)?;
                    }
                }
                Effect::Reply { reply, .. } => self.replied(&reply),
                Effect::CallModel(call) => self.asked(*call)?,
                Effect::CallTool(call) => self.call_starts(&call.call_id)?,
                Effect::CancelModel(request) => {
                    self.waiting.retain(|waiting| !answers(waiting, request));
                    effects.extend(self.handled(Input::Cancelled { request, shown: Vec::new() }));
                }
                Effect::Reseed => {
                    let Some(old) = self.agent.take() else { bail!("a loop ended twice") };
                    let generation = old.generation() + 1;
                    self.agent = Some(AgentLoop::seeded(generation, old.into_seed()));
                    self.measure();
                    effects.extend(self.handled(Input::Seeded));
                }
                // No client is subscribed, no hook is registered, and no answer reports usage.
                Effect::Emit(_)
                | Effect::Hurry(_)
                | Effect::CallHook(_)
                | Effect::CancelHook(_)
                | Effect::CancelTool(_)
                | Effect::ToolsRefused(_)
                | Effect::ContextCut { .. }
                | Effect::CallWritten(_)
                | Effect::Calibrate { .. } => {}
            }
        }
        Ok(())
    }

    fn handled(&mut self, input: Input) -> Vec<Effect> {
        self.now = self.now.plus_millis(1);
        self.agent.as_mut().map(|agent| agent.handle(self.now, input)).unwrap_or_default()
    }

    fn replied(&mut self, reply: &Reply) {
        if let Reply::Error(error) = reply {
            tracing::debug!("the loop refused a replayed command: {}", error.message);
            self.was_refused = true;
        }
    }

    fn appended(&mut self, event: Event) -> anyhow::Result<()> {
        match event {
            Event::EntryAppended(appended) => {
                if let EntryData::Message(message) = &appended.entry.data
                    && message.role == Role::Assistant
                    && let Some(step) = self.answered.take()
                {
                    let calls = message.tool_calls().map(|(call_id, ..)| call_id.clone());
                    self.results = calls.zip(&step.results).collect();
                    self.texts = step.texts;
                }
            }
            Event::ToolCall(call) if call.place.is_client() => self.call_starts(&call.call_id)?,
            Event::ContextCompacted(compacted) => {
                self.committed = Some(Point {
                    request: self.outcome.requests.len() as u64,
                    tokens_before: compacted.tokens_before,
                    tokens_after: compacted.tokens_after,
                    kept: super::meter::Kept::default(),
                    how: named(&compacted.rung),
                    summary_tokens: 0,
                });
            }
            // One that was prepared early and is discarded has not failed: another one is made.
            Event::CompactionFailed(failed) if failed.error.code == ErrorCode::CompactionVoid => {}
            Event::CompactionFailed(_) => self.outcome.failed += 1,
            // A cancelled turn has no answer in the record either.
            Event::TurnFinished(finished) if finished.status == TurnStatus::Failed => {
                let why = finished.error.map_or_else(String::new, |error| error.message);
                tracing::debug!("a replayed turn failed: {why}");
            }
            _ => {}
        }
        Ok(())
    }

    /// Answers a call that a client runs.
    fn call_starts(&mut self, call_id: &CallId) -> anyhow::Result<()> {
        let Some(at) = self.results.iter().position(|(id, _)| id == call_id) else { return Ok(()) };
        let (call_id, recorded) = self.results.swap_remove(at);
        let Some(Part::ToolResult { output, is_error, .. }) = recorded.content.first() else { return Ok(()) };
        let result = ToolResult { call_id, output: output.clone(), is_error: is_error.then_some(true) };
        let input = self.input_of(SessionCommand::ToolResult(result))?;
        self.waiting.push_back(input);
        Ok(())
    }

    /// Answers a request to the model.
    fn asked(&mut self, call: CallModel) -> anyhow::Result<()> {
        let CallModel { request, body, .. } = call;
        if let Some(agent) = &self.agent {
            // The loop has already counted them.
            let context = agent.session().tree.context();
            self.meter.counted(context.messages.iter().map(|counted| (&counted.message, counted.tokens.total())));
        }
        let messages = body.messages().map(|message| &message.message).collect();
        let measured = Request { system: &body.envelope.system, tools: &body.envelope.tools, messages };
        if body.purpose == Purpose::Summary {
            self.meter.summary(&measured);
            let input = match self.summariser.answer(&body, self.recorded, self.texts) {
                Ok(answer) => {
                    self.meter.summarised(&answer.parts);
                    Input::Answered { request, answer }
                }
                Err(fault) => Input::Failed { request, fault, shown: Vec::new() },
            };
            self.waiting.push_front(input);
            return Ok(());
        }
        let tokens = self.meter.turn(&measured);
        self.outcome.sent(tokens, self.window_tokens);
        let Some(step) = self.steps.pop_front() else {
            let cancel = self.input_of(SessionCommand::CancelTurn(CancelTurn { turn_id: None }))?;
            self.waiting.push_back(cancel);
            return Ok(());
        };
        self.meter.answered(step);
        self.answered = Some(step);
        let parts = step.answer.content.clone();
        let stop = if step.results.is_empty() { StopReason::Stop } else { StopReason::ToolCalls };
        self.waiting.push_back(Input::Answered { request, answer: Answer::new(parts, stop) });
        Ok(())
    }

    /// Measures the context after the compaction.
    fn measure(&mut self) {
        let (Some(mut point), Some(agent)) = (self.committed.take(), &self.agent) else { return };
        let context = agent.session().tree.context();
        let sent = context.messages.iter().map(|counted| &*counted.message);
        point.kept = self.meter.kept(sent, self.texts);
        let seed = context.messages.iter().find(|counted| counted.kind == messages::Kind::Summary);
        if let Some(seed) = seed {
            point.summary_tokens = seed.tokens.total();
        }
        self.outcome.curve.push(point);
    }

    fn finish(mut self, deployment: &Deployment) -> Outcome {
        if let Some(agent) = &self.agent {
            let context = agent.session().tree.context();
            let sent = context.messages.iter().map(|counted| &*counted.message);
            self.outcome.kept = self.meter.kept(sent, self.recorded.texts.len());
            self.outcome.end_tokens = context.messages.iter().map(|counted| counted.tokens.total()).sum();
        }
        self.outcome.turns = self.meter.turns;
        self.outcome.summaries = self.meter.summaries;
        self.outcome.peak_tokens = self.meter.peak_tokens;
        self.outcome.dollars = deployment.prices.price(&deployment.model).map(|price| self.meter.dollars(price));
        self.outcome.lifetimes =
            deployment.prices.price(&deployment.model).and_then(|price| self.meter.lifetimes(price));
        self.outcome
    }
}

/// Returns true if the input is the answer to this request.
fn answers(input: &Input, asked: crate::core::agent_loop::RequestId) -> bool {
    matches!(input, Input::Answered { request, .. } | Input::Failed { request, .. } if *request == asked)
}

/// Returns a fallback step's name on the wire.
fn named(rung: &impl serde::Serialize) -> String {
    serde_json::to_value(rung).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

fn input_part(part: &Part) -> Option<InputPart> {
    match part {
        Part::Text { text } => Some(InputPart::Text { text: text.clone() }),
        Part::Image { url, detail } => Some(InputPart::Image { url: url.clone(), detail: detail.clone() }),
        _ => None,
    }
}
