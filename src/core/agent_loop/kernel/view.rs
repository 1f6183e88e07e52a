//! The loop's visible state: the snapshot for clients that join, the context meter, and queries of the server.

use crate::{
    agent_loop::{AgentLoop, navigation, snapshot::Snapshot, stage::Stage},
    model::{ModelRequest, Purpose},
    prewarm::Rhythm,
};
use reseed_protocol::{
    CallId, CommandId, ErrorBody, Role,
    compaction::RunningCompaction,
    context::{BreakerReason, Context, ContextInfo, GetContext},
    hooks::HookCall,
    session::SessionState,
};

impl AgentLoop {
    /// Returns how full the window would be with the next request.
    #[must_use]
    pub fn context_info(&self) -> ContextInfo {
        self.compaction.context_info(self.planner())
    }

    /// Returns why automatic compaction is suspended, until a compaction saves enough again. This is for operators, who
    /// look at many sessions, so it does not count the next request.
    #[must_use]
    pub fn tripped(&self) -> Option<BreakerReason> {
        self.compaction.tripped().or(self.ledger.state().rest_tokens.map(|_| BreakerReason::Undone))
    }

    /// Returns the session's activity.
    #[must_use]
    pub fn doing(&self) -> SessionState {
        let compacts = matches!(self.stage(), Stage::Compacting | Stage::Leaving) || self.compaction.is_ordered();
        match self.ledger.state().turn {
            Some(_) => SessionState::Running,
            None if compacts => SessionState::Compacting,
            None => SessionState::Idle,
        }
    }

    /// Returns the session's state.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let state = self.ledger.state();
        let compaction = match self.navigation.job_id() {
            Some(job_id) => Some(RunningCompaction {
                job_id: job_id.clone(),
                phase: navigation::PHASE.to_owned(),
                background: false,
            }),
            None => self.compaction.shown_compaction(),
        };
        Snapshot {
            seq: state.seq,
            leaf: state.leaf.clone(),
            state: self.doing(),
            generation: self.ledger.generation,
            name: state.name.clone(),
            model: state.model.clone(),
            strategy: state.strategy.clone(),
            settings: state.settings.clone(),
            context_info: self.compaction.context_info(self.planner()),
            turn: state.turn.as_ref().map(|turn| turn.turn_id.clone()),
            last_turn: state.last_turn.clone(),
            unanswered_turns: state.unanswered_turns.clone(),
            failed_compactions: state.failed_compactions.clone(),
            compaction,
            held: self.planner().shown_held(),
            queue: state.queue.iter().map(|queued| queued.item().clone()).collect(),
            pending: state.pending.clone(),
            approvals: state.approvals.clone(),
            standing_approvals: state.standing_approvals.clone(),
            pins: state.pins.clone(),
            undone: state.undone.clone(),
        }
    }

    /// Returns a request that fills the provider's cache with what the next one sends, and whether that does not begin
    /// with the last one.
    #[must_use]
    pub fn prewarming(&self) -> (ModelRequest, bool) {
        let (mut envelope, is_new) = self.prompt.prewarming(&self.ledger);
        envelope.options.max_output_tokens = Some(0);
        let model = self.ledger.state().model.clone();
        (ModelRequest { model, envelope, purpose: Purpose::Turn, compared_with: None, compacts: None }, is_new)
    }

    /// Returns the pauses before the user's inputs in memory, by this period.
    #[must_use]
    pub fn rhythm(&self, period_ms: u64) -> Rhythm {
        let pauses = self.ledger.path().windows(2).filter_map(|pair| {
            let [before, now] = [&pair[0].entry, &pair[1].entry];
            let is_input = now.message().is_some_and(|message| message.role == Role::User);
            is_input.then(|| now.timestamp.millis_since(before.timestamp))
        });
        Rhythm::of(pauses, period_ms)
    }

    /// Returns what the next request would send. During a turn, that is the request after the one in flight, as far as
    /// it is known. Additions for a single request are included only on demand; they are then those that hooks made for
    /// the last one.
    ///
    /// # Errors
    /// `invalid_field`: the context is too large to show in the requested format.
    pub fn next_request(&self, get: &GetContext) -> Result<Context, ErrorBody> {
        self.prompt.next_request(&self.ledger, get, matches!(self.stage(), Stage::Asking | Stage::Stopping))
    }

    /// Returns the commands that may be answered after later ones: a preview, a move that waits for a summary or for
    /// hooks, and inputs and tool answers that hooks are inspecting.
    #[must_use]
    pub fn answers_late(&self) -> Vec<CommandId> {
        let looked_at = self.hooks.results_looked_at().chain(self.hooks.inputs_waiting()).cloned();
        self.leaving_by().into_iter().chain(self.compaction.preview_of()).chain(looked_at).collect()
    }

    /// Returns the pending calls to client hooks that the connected client could answer.
    #[must_use]
    pub fn open_client_calls(&self) -> Vec<HookCall> {
        self.hooks.open_client_calls(&self.roster)
    }

    /// Returns true if pending work needs a client's required hooks.
    #[must_use]
    pub fn needs_its_client(&self) -> bool {
        self.roster.needs_its_client(self.ledger.state())
    }

    /// Returns true if a pending hook's client is away.
    #[must_use]
    pub fn waits_for_client(&self) -> bool {
        self.hooks.waits_for_client()
    }

    /// Returns true if an answer to this call is still awaited.
    #[must_use]
    pub fn waits_for_hook(&self, call_id: &CallId) -> bool {
        self.hooks.waits_for_hook(call_id)
    }
}
