//! The agent loop: a value with one total function from inputs to effects.
//!
//! Contract: pass each input to [`AgentLoop::handle`] and execute every effect it returns, in order, each to
//! completion. The loop never waits, never fails, and has no clock.
//!
//! A loop has a generation. It is built only from the tree ([`AgentLoop::seeded`]) and replaced at every compaction,
//! navigation, model change and strategy change. So it can be dropped at any moment and rebuilt, here or after a crash,
//! and the next request is the same. Answers to an older loop's requests carry request ids that no later loop knows:
//! they are stale responses, expected and dropped.
//!
//! A method's signature shows what it may access: a machine gets the ledger, and the prompt and the roster only if it
//! needs them. Imports lead downwards in this list:
//!
//! - this file: the kernel. It holds the machines and handles one input after another. `kernel`: work that involves
//!   several machines, such as commands and the end of a turn
//! - `turn`, `compaction`, `hooks`, `navigation`: the machines, each in a folder of its own
//! - `annotate`: labels, data and settings that clients write
//! - `prompt`: the content of the next request, its token count, and the strategy; `roster`: which hooks are called
//! - `ledger`: the session, and the effects and steps of the current input; `causes`: changes since the last request
//! - `step`: what a machine wants to happen next; `subject`: what hooks inspect; `seed`: what one loop passes to the
//!   next; `io`: inputs and effects; `tools`: the tools that a request offers, and how calls are checked against them;
//!   `snapshot`, `stage`, `late`, `deadline`, `records`, `checks`

mod annotate;
pub(crate) mod causes;
pub(crate) mod checks;
mod deadline;
pub(crate) mod deployment;
pub(crate) mod hooks;
pub mod io;
mod kernel;
pub(crate) mod late;
pub(crate) mod ledger;
pub(crate) mod navigation;
pub(crate) mod prompt;
pub(crate) mod records;
pub(crate) mod roster;
mod seed;
pub(crate) mod snapshot;
mod stage;
pub(crate) mod step;
pub(crate) mod subject;
pub(crate) mod tools;
mod turn;

#[cfg(test)]
mod random_orders;
#[cfg(test)]
mod random_scripts;

pub use crate::compaction::machine::{
    instructions::INSTRUCTIONS_WINDOW_PART,
    keep::{PINS_MAX, pins_without, undo_target},
    preview::PREVIEW_MILLIS,
};
pub use deployment::{
    Deployment, HOOK_TIMEOUT_MS, HistoryTools, OfferHistory, Summaries, TOOL_PARALLEL_MAX, TOOL_TIMEOUT_MS,
};
pub use io::{Append, CallHook, CallModel, CallTool, Effect, Input, Mark, Origin, RequestId};
pub use prompt::info::{usage_percent, usage_ratio};
pub use seed::Seed;
pub use snapshot::Snapshot;
pub use tools::{SERVER_TOOLS_MAX, TOOLS_MAX, Tools, check_offers, check_server_tools};

use crate::compaction::machine::{Compacting, Compactor, plan::Planner};
use hooks::Hooks;
use io::Caller;
use ledger::Ledger;
use navigation::Navigation;
use prompt::Prompt;
use records::session_updated;
use roster::Roster;
use stage::Stage;
use step::Step;
use turn::{Turn, calls, queue};

use crate::session::{Session, SessionState};
use reseed_protocol::{CallId, Timestamp, turn::TurnStatus};

/// The loop. See the module documentation.
#[derive(Debug)]
pub struct AgentLoop {
    ledger: Ledger,
    prompt: Prompt,
    roster: Roster,
    turn: Turn,
    compaction: Compactor,
    hooks: Hooks,
    navigation: Navigation,
}

impl AgentLoop {
    /// Builds the loop of this generation from the tree. Send it [`Input::Seeded`] or [`Input::Recovered`] next.
    #[must_use]
    pub fn seeded(generation: u64, mut seed: Seed) -> Self {
        let roster = std::mem::take(&mut seed.roster);
        let turn = Turn::new(std::mem::take(&mut seed.turn));
        let compaction = Compactor::new(std::mem::take(&mut seed.compaction));
        let hooks = Hooks::new(std::mem::take(&mut seed.hooks));
        let (carried, calibration) = (std::mem::take(&mut seed.prompt), seed.calibration.clone());
        let mut ledger = Ledger::seeded(generation, seed);
        let prompt = Prompt::seeded(carried, calibration, &mut ledger);
        Self { ledger, prompt, roster, turn, compaction, hooks, navigation: Navigation::default() }
    }

    /// Returns the seed of the next loop. If the model changes, so does the counter, and the path is counted again.
    #[must_use]
    pub fn into_seed(self) -> Seed {
        let (calibration, prompt) = self.prompt.into_carried();
        Seed {
            prompt,
            roster: self.roster,
            turn: self.turn.into_carried(),
            compaction: self.compaction.into_carried(),
            hooks: self.hooks.into_carried(),
            ..self.ledger.into_seed(calibration)
        }
    }

    /// Takes one input to completion and returns the effects to execute, in order.
    #[must_use]
    pub fn handle(&mut self, now: Timestamp, input: Input) -> Vec<Effect> {
        self.ledger.now = now;
        // The agenda is a stack: the consequences of a step come before the steps that were queued earlier.
        let mut agenda = vec![Step::CheckHeld, Step::Input(Box::new(input))];
        while let Some(step) = agenda.pop() {
            match step {
                Step::Input(input) => self.on_input(*input),
                Step::Command(caller, command) => self.on_command(caller, *command, None),
                Step::NextInLine => self.hooks.next_in_line(&mut self.ledger),
                Step::AfterInput => self.after_input(),

                Step::Proceed => self.proceed(),
                Step::Request => self.request(),
                Step::RequestFailed(failed) => self.on_request_failed(*failed),
                Step::SendPrepared(prepared) => self.send_prepared(*prepared),
                Step::Send(context) => self.turn.send(&mut self.ledger, &mut self.prompt, &self.roster, &context),
                Step::EndTurn(end) => self.finish_turn(*end),
                Step::Reseed => self.reseed(),

                Step::Ask(subject) => self.ask_hooks(subject),
                Step::AfterHooks(subject) => self.after_hooks(subject),
                Step::HookFailed { subject, hook, fault } => self.hook_failed(subject, &hook, &fault),
                Step::HookLate { call_id, is_sent, fault } => self.on_hook_late(call_id, is_sent, fault),

                Step::PrepareIdle => self.compacting().prepare_idle(),
                Step::WithoutCompaction(trigger, error) => self.compacting().continue_without(trigger, error),
                Step::CheckHeld => self.compacting().check_held(),

                Step::CompactionTick => self.compacting().on_compaction_tick(),
                Step::ToolsTick => self.turn.on_tools_tick(&mut self.ledger),
            }
            self.prompt.follow(&self.ledger);
            self.hooks.note_waiting(&mut self.roster);
            agenda.extend(self.ledger.take_steps().rev());
        }
        self.turn.keep_time(&self.ledger);
        self.turn.tell_meter(&mut self.ledger, &self.prompt, &self.compaction);
        self.roster.forget_what_is_done(self.ledger.state());
        if self.is_idle() {
            self.ledger.free_steps();
        }
        self.ledger.take_effects()
    }

    /// Passes an input to the machine that waits for it.
    fn on_input(&mut self, input: Input) {
        match (self.stage(), input) {
            (Stage::Done, _) => {}
            (_, Input::Seeded) => {
                self.ledger.then(Step::Proceed);
                self.ledger.then(Step::PrepareIdle);
                self.ledger.then(Step::NextInLine);
            }
            (_, Input::Recovered) => self.recover(),
            (_, Input::Command { origin, id, fingerprint, command, lookup }) => {
                let lookup = lookup.map(|lookup| *lookup);
                self.on_command(Caller { origin, id, fingerprint }, *command, lookup);
            }
            (Stage::Asking, Input::Answered { request, answer }) if self.turn.asks(request) => {
                self.turn.on_answer(&mut self.ledger, &mut self.prompt, &self.roster, answer);
            }
            (Stage::Asking, Input::Failed { request, fault, shown }) if self.turn.asks(request) => {
                self.turn.on_fault(&mut self.ledger, &mut self.prompt, fault, shown);
            }
            (Stage::Stopping, Input::Cancelled { request, shown }) if self.turn.asks(request) => {
                self.turn.on_stopped(&mut self.ledger, &mut self.prompt, shown);
            }
            (_, Input::Answered { request, answer }) if self.compaction.is_running(request) => {
                self.compacting().on_summary(&answer)
            }
            (_, Input::Failed { request, fault, .. }) if self.compaction.is_running(request) => {
                self.compacting().on_summary_fault(&fault)
            }
            (_, Input::MadeWay { request }) if self.compaction.is_running(request) => self.compaction.makes_way(),
            (_, Input::AskedAgain { request }) if self.compaction.is_running(request) => {
                self.compaction.is_asked_again(&self.ledger);
            }
            (_, Input::WaitedBehindSummary { millis }) => self.compaction.waited_behind(&self.ledger, millis),
            (Stage::Leaving, Input::Answered { request, answer }) if self.navigation.asks(request) => {
                let arrival = self.navigation.on_branch_summary(&mut self.ledger, &answer);
                self.arrive(arrival);
            }
            (Stage::Leaving, Input::Failed { request, fault, .. }) if self.navigation.asks(request) => {
                let arrival = self.navigation.on_branch_summary_fault(&mut self.ledger, &fault);
                self.arrive(arrival);
            }
            (_, Input::HookAnswered { call_id, answer }) => self.on_hook_answer(&call_id, *answer),
            (_, Input::HostLeft) => self.roster.host_left(self.ledger.state()),
            (_, Input::AskAgain { only_away }) => self.hooks.ask_again(&mut self.ledger, &self.roster, only_away),
            (_, Input::Reconfigured(deployment)) => self.ledger.deployment = deployment,
            (_, Input::ToolsOffered(tools)) => self.prompt.offer_tools(&mut self.ledger, tools),
            (Stage::AwaitingTools, Input::ToolAnswered { call_id, output }) => {
                if let Some(answer) = self.turn.on_server_result(&self.ledger, &call_id, output) {
                    self.turn.take_answer(&mut self.ledger, &self.prompt, &self.roster, answer);
                }
            }
            (_, Input::ToolProgressed { call_id, message }) => {
                self.turn.on_server_progress(&mut self.ledger, &call_id, message);
            }
            (_, Input::HooksOffered(hooks)) => self.hooks.on_hooks_offered(&mut self.ledger, &mut self.roster, hooks),
            (_, Input::Tick) => self.on_tick(),
            (_, Input::Hold(error)) => self.on_hold(&error),
            (_, Input::Go) => {
                self.ledger.resume();
                self.proceed_if_idle();
            }
            (_, Input::Stop(error)) => self.on_stop(error, TurnStatus::Interrupted),
            (_, Input::Abandon(error)) => self.on_stop(error, TurnStatus::Cancelled),
            // These are stale responses to a cancelled request or to an older loop's request.
            (_, Input::Answered { .. } | Input::Failed { .. } | Input::Cancelled { .. }) => {}
            (_, Input::MadeWay { .. } | Input::AskedAgain { .. }) => {}
            (_, Input::ToolAnswered { .. }) => {}
        }
    }

    /// Returns the loop's current stage.
    ///
    /// Invariant: the session waits for one machine at a time.
    fn stage(&self) -> Stage {
        if self.ledger.is_over() {
            return Stage::Done;
        }
        let waits_for = [
            self.turn.stage(),
            self.compaction.is_awaited().then_some(Stage::Compacting),
            self.hooks.are_awaited().then_some(Stage::Hooking),
            self.navigation.job_id().map(|_| Stage::Leaving),
        ];
        debug_assert!(waits_for.iter().flatten().count() <= 1, "the session waits for {waits_for:?} at the same time");
        waits_for.into_iter().flatten().next().unwrap_or(Stage::Idle)
    }

    /// Handles a session that was created or read from the store: appends a new session's initial settings, and
    /// interrupts a turn that was running.
    fn recover(&mut self) {
        if self.ledger.state().seq == 0 {
            let SessionState { model, strategy, settings, .. } = (*self.ledger.session.state).clone();
            let founding = session_updated(|updated| {
                updated.model = Some(model);
                updated.strategy = Some(strategy);
                updated.settings = Some(settings);
                updated.generation = Some(self.ledger.generation);
            });
            self.ledger.append(vec![founding], Vec::new());
        }
        self.roster.owe_what_was_kept(self.ledger.state());
        if self.ledger.state().turn.is_some() {
            if calls::drop_unmade_calls(&mut self.ledger) {
                self.turn.leave_calls(&self.ledger);
            }
            if !self.turn.park(&mut self.ledger) {
                self.ledger.then(Step::stop_turn(TurnStatus::Interrupted));
            }
        } else {
            self.ledger.then(Step::Proceed);
        }
    }

    /// Returns the compaction machine with everything that it may access.
    fn compacting(&mut self) -> Compacting<'_> {
        let is_free = self.turn.stage().is_none() && !self.hooks.are_awaited() && self.navigation.job_id().is_none();
        let Self { ledger, prompt, roster, compaction, hooks, .. } = self;
        Compacting { compaction, ledger, prompt, roster, hooks, is_free }
    }

    /// Returns a view that plans compactions.
    fn planner(&self) -> Planner<'_> {
        Planner { ledger: &self.ledger, prompt: &self.prompt }
    }

    /// Returns when [`Input::Tick`] is due, if ever.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let tools = self.turn.next_deadline(&self.ledger);
        let compaction = self.compaction.deadline().filter(|_| !self.hooks.looks_at_compaction());
        let turn = self.turn.over_at(&self.ledger);
        [tools, compaction, turn, self.hooks.next_hook_deadline()].into_iter().flatten().min()
    }

    /// Returns true if the path in memory may lack entries that the model should see according to the log: pinned ones,
    /// which may have been pinned after the destination of a move was read. The next loop is then seeded with the path
    /// read from the store.
    #[must_use]
    pub fn has_stale_path(&self) -> bool {
        let is_there = |id| self.ledger.path().iter().any(|node| node.id() == id);
        self.ledger.is_over() && !self.ledger.state().pins.iter().all(|pin| is_there(&pin.entry_id))
    }

    /// Returns the session as this loop knows it.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.ledger.session
    }

    /// Returns how many times the session's loop was seeded.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.ledger.generation
    }

    /// Returns true if nothing is running or queued: the session may leave memory.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.is_busy() && !self.compaction.is_at_work() && self.hooks.is_quiet()
    }

    /// Returns true if the running turn waits only for a person's approval. The session may then leave memory, and the
    /// turn continues when somebody answers.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.turn.is_parked(&self.ledger) && !self.compaction.is_at_work() && self.hooks.is_quiet()
    }

    /// Returns true if this call is running. A sequential call waits until the one before it is over.
    #[must_use]
    pub fn runs_call(&self, call: &CallId) -> bool {
        self.turn.is_running(call)
    }

    /// Returns the tools that requests offer.
    #[must_use]
    pub fn tools(&self) -> &Tools {
        self.prompt.tools()
    }

    /// Returns true if new input cannot start a turn at once. A background compaction does not prevent it.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let waits = self.ledger.state().queue.iter().any(|item| item.after.is_none()) && !self.ledger.is_holding();
        self.stage() != Stage::Idle || self.ledger.state().turn.is_some() || waits || self.hooks.looks_at_input()
    }

    /// Handles a clock tick.
    fn on_tick(&mut self) {
        if self.turn.over_at(&self.ledger).is_some_and(|at| at <= self.ledger.now) {
            self.stop_turn(TurnStatus::Failed);
            return;
        }
        self.hooks.on_hook_tick(&mut self.ledger);
        self.ledger.then(Step::CompactionTick);
        self.ledger.then(Step::ToolsTick);
    }

    /// Proceeds if nothing is in progress; otherwise, work in progress proceeds once it ends.
    fn proceed_if_idle(&mut self) {
        if self.stage() == Stage::Idle {
            self.ledger.then(Step::Proceed);
        }
    }

    /// Continues after an input was accepted, refused or withdrawn.
    fn after_input(&mut self) {
        self.proceed_if_idle();
        self.ledger.then(Step::NextInLine);
    }

    /// Continues as the tree requires: with a ready or ordered compaction, the next request, or the next input.
    fn proceed(&mut self) {
        self.compaction.release();
        self.turn.tools_are_over();
        if let Some(ready) = self.compaction.take_ready()
            && self.compaction.commit(&mut self.ledger, &self.prompt, ready).is_ok()
        {
            return;
        }
        if let Some(order) = self.compaction.take_ordered()
            && self.compacting().start_ordered(order)
        {
            return;
        }
        if self.ledger.is_reseed_due() {
            self.ledger.then(Step::Reseed);
            return;
        }
        if self.ledger.state().turn.is_some() {
            if self.turn.ends_with_calls(&mut self.ledger, &self.roster) {
                return;
            }
            queue::deliver_steered(&mut self.ledger);
            self.ledger.then(Step::Request);
            return;
        }
        if self.ledger.is_holding() {
            return;
        }
        queue::deliver_custom(&mut self.ledger);
        if !self.ledger.state().queue.is_empty() {
            queue::start_queued(&mut self.ledger, &mut self.roster);
        }
    }

    /// Ends this loop; the next one continues.
    fn reseed(&mut self) {
        self.compacting().void_running("another model or strategy was chosen");
        let generation = Some(self.ledger.generation + 1);
        self.ledger.append(vec![records::session_updated(|updated| updated.generation = generation)], Vec::new());
        self.ledger.hand_over();
    }
}
