//! A session's actor: one task, one mailbox, one agent loop. Everything that can wake it becomes one input.
//!
//! The actor lives while a connection is attached or a turn is running. Then it rests for a while, if there is a place
//! for it, and leaves memory. A session without a connection costs only disk space.

mod attach;
mod command;
mod hooks;
mod hosting;
mod members;

pub(crate) use self::{attach::REPLAY_EVENTS_MAX, members::PRESENCE_MAX};
use self::{
    hosting::{Host, Run},
    members::Members,
};
use super::{
    blocking,
    cluster::Since,
    effects::{Effects, ReplyTo},
    errors::{stopping, store_error},
    feed::Feed,
    handle::{Mailbox, Message, SessionHandle},
    inference::Cause,
    load::path,
    model_calls::ModelCalls,
    prewarm::Prewarm,
    resting::{REST_TIME, RestingPlace},
    shared::Shared,
    state_copy::StateCopy,
    steady::SteadyTime,
    watch::{Compactions, Row},
};
use crate::{
    core::{
        agent_loop::{AgentLoop, Append, CallHook, Deployment, Effect, Input, Mark, Seed},
        hook::HookPlace,
        model::ModelRequest,
        tool::ToolPlace,
        usage_row::UsagePurpose,
    },
    metrics,
    store::{Error as StoreError, Head, Lease},
};
use reseed_protocol::{
    CallId, ErrorBody, ErrorCode, SessionId, Timestamp,
    event::Event,
    reply::Reply,
    session::{self, SessionState, SubscriptionEnd},
};
use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

/// A session that was loaded or created.
pub(super) struct Started {
    pub(super) lease: Lease,
    /// The node's standing before it opened the session; `None` outside a cluster.
    pub(super) since: Option<Since>,
    pub(super) seed: Seed,
    pub(super) head: Head,
    /// The sequence number up to which the stored copy of the state reaches; 0 if there is no copy.
    pub(super) stored_seq: u64,
    pub(super) row: Arc<Row>,
}

struct Actor {
    id: SessionId,
    shared: Arc<Shared>,
    agent: Option<Box<AgentLoop>>,
    effects: Effects,
    feed: Arc<Feed>,
    row: Arc<Row>,
    members: Members,
    /// The client whose tools and hooks the loop knows, if any.
    host: Option<Box<Host>>,
    /// The host that was last announced to clients.
    announced_host: Option<session::Host>,
    /// The client that was asked to run each open tool call. Bounded by the calls of one answer.
    runs: BTreeMap<CallId, Run>,
    stopping: bool,
    /// True if the running turn was stopped early, so that queued inputs must not start.
    queue_held: bool,
    /// True if the session was loaded with queued inputs. They wait for the first connection that may write, because it
    /// may bring tools and hooks.
    queue_waits: bool,
    /// True if a damaged record of the session was found.
    quarantined: bool,
    /// True if a read has failed because the database, which several servers share, was away.
    database_is_away: bool,
    ended: bool,
    /// True once a connection has sent a message to this actor. Until then, it waits for the connection that opened the
    /// session.
    visited: bool,
    detached_since: Option<Instant>,
    /// Its place while it rests.
    resting: Option<RestingPlace>,
    time: SteadyTime,
    /// The settings that the loop uses.
    deployment: Arc<Deployment>,
    /// Keeps the provider's cache warm, if the settings say so.
    prewarm: Option<Box<Prewarm>>,
}

/// How long an actor waits for the first message from the connection that opened the session. That connection may die
/// before it sends one.
const VISIT_TIME: Duration = Duration::from_secs(10);

impl Drop for Actor {
    /// Closes the feed if the actor was dropped before its end, which means that it panicked. Its subscribers reconnect
    /// and resume.
    fn drop(&mut self) {
        if !self.ended {
            self.feed.close(SubscriptionEnd::Failed);
        }
    }
}

/// The reason why the actor ends.
enum End {
    /// Nobody needs the session.
    Unneeded,
    /// The session was deleted or must be opened again. All subscriptions to it end.
    Close(SubscriptionEnd),
}

/// Creates a session's actor. Returns its handle and the task to spawn. The task returns the place where the session
/// rested last, which is free once the session has left memory.
pub(super) fn actor(
    shared: Arc<Shared>,
    started: Started,
) -> (SessionHandle, impl Future<Output = Option<RestingPlace>> + Send) {
    let (sender, mailbox) = Mailbox::new();
    let id = started.lease.session.clone();
    let feed = Feed::new(id.clone(), started.seed.session.state.seq);
    let (term, epoch) = (started.lease.term, started.lease.epoch.as_str().into());
    let handle = SessionHandle {
        id: id.clone(),
        term,
        epoch,
        since: started.since,
        feed: feed.clone(),
        mailbox: sender.clone(),
    };
    let state = started.seed.session.state.clone();
    let mut copy = StateCopy::new(state, started.stored_seq);
    copy.calibrate(started.seed.calibration.clone());
    let owner = started.row.owner();
    let (lease, weak) = (started.lease, sender.downgrade());
    let model = ModelCalls::new(shared.clone(), owner, lease.clone(), started.since, feed.clone(), weak.clone());
    let effects = Effects::new(shared.clone(), lease, copy, started.head, feed.clone(), model, weak);
    let generation = started.seed.session.state.generation.max(1);
    let queue_waits = !started.seed.session.state.queue.is_empty();
    let mut seed = started.seed;
    seed.holding = queue_waits;
    let deployment = seed.deployment.clone();
    let agent = Some(Box::new(AgentLoop::seeded(generation, seed)));
    let time = SteadyTime::new(&*shared.clock);
    let actor = Box::new(Actor {
        id,
        shared,
        agent,
        effects,
        feed,
        row: started.row,
        members: Members::default(),
        host: None,
        announced_host: None,
        runs: BTreeMap::new(),
        stopping: false,
        queue_held: false,
        queue_waits,
        quarantined: false,
        database_is_away: false,
        ended: false,
        visited: false,
        detached_since: None,
        resting: None,
        time,
        deployment,
        prewarm: None,
    });
    (handle, actor.run(mailbox))
}

impl Actor {
    /// Runs the actor until it ends. `self` is boxed, because a future stores its arguments twice.
    async fn run(mut self: Box<Self>, mut mailbox: mpsc::Receiver<Box<Message>>) -> Option<RestingPlace> {
        let counted = metrics::SESSIONS_OPEN.hold([]);
        let end = match Box::pin(self.tell(Input::Recovered, None)).await {
            Ok(()) => self.serve(&mut mailbox).await,
            Err(end) => end,
        };
        // This precedes closing the mailbox, because deleting the session waits for that.
        if self.effects.take_changed() || self.row.doing() != SessionState::Idle {
            self.row.changed(self.effects.head(), SessionState::Idle);
        }
        // Later senders find the mailbox closed and open the session again. Messages that are already queued get a
        // reply.
        mailbox.close();
        let ended = match end {
            End::Unneeded => None,
            End::Close(reason) => Some(reason),
        };
        while let Ok(message) = mailbox.try_recv() {
            if let Message::Command { id, outgoing, .. } | Message::Hosting { id, outgoing, .. } = *message {
                let reply = Reply::Error(self.gone(ended));
                outgoing.reply(self.id.clone(), id, reply);
            }
        }
        self.ended = true;
        if let Some(reason) = ended {
            self.feed.close(reason);
        }
        // What it has spent is written by the release.
        self.prewarm = None;
        self.effects.release().await;
        drop(counted);
        tracing::debug!(session = %self.id, "session left memory");
        self.resting.take()
    }

    async fn serve(&mut self, mailbox: &mut mpsc::Receiver<Box<Message>>) -> End {
        loop {
            if self.is_unneeded() && mailbox.is_empty() {
                return End::Unneeded;
            }
            let wake = self.next_wake();
            let (drain, stop) = (self.shared.drain.clone(), self.shared.stop.clone());
            let message = tokio::select! {
                // The order matters. A stopping server comes before anything new, and a message that arrived before a
                // time limit counts as in time. Ticks wait behind a mailbox that is bounded and drained within one
                // store commit per message. A fixed order also makes seeded tests repeatable.
                biased;
                () = drain.cancelled(), if !self.stopping => {
                    self.stopping = true;
                    Message::Input(Input::Hold(Box::new(stopping())))
                }
                () = stop.cancelled(), if !self.queue_held => {
                    self.queue_held = true;
                    Message::Input(Input::Stop(Box::new(stopping())))
                }
                message = mailbox.recv() => match message {
                    Some(message) => *message,
                    None => return End::Unneeded,
                },
                () = self.shared.resting.must_leave(), if self.resting.is_some() => return End::Unneeded,
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => Message::Input(Input::Tick),
            };
            // Boxed, because messages are rare and what they await would make every idle session larger.
            if let Err(end) = Box::pin(self.on_message(message)).await {
                return end;
            }
        }
    }

    async fn on_message(&mut self, message: Message) -> Result<(), End> {
        self.visited |= !matches!(message, Message::Input(_));
        self.look_again().await?;
        let deployment = self.shared.parts.deployment();
        if !Arc::ptr_eq(&deployment, &self.deployment) {
            self.deployment = deployment.clone();
            self.tell(Input::Reconfigured(deployment), None).await?;
        }
        if !self.quarantined
            && let Some(damage) = self.shared.damage(&self.id)
        {
            // Running work may finish, and nothing new starts.
            self.quarantined = true;
            self.tell(Input::Hold(Box::new(damage)), None).await?;
        }
        match message {
            Message::Attach(attach, answer) => {
                let attached = self.attach(attach).await?;
                // A connection that has gone in the meantime is detected by its closed channel.
                let _ = answer.send(attached);
            }
            Message::Command { origin, id, command, outgoing, context } => {
                self.effects.trace.begin_command(&id, context);
                self.command(origin, id, command, &outgoing).await?;
                self.effects.trace.end_command();
            }
            Message::Hosting { origin, id, command, outgoing } => self.hosting(origin, id, command, &outgoing).await?,
            Message::Snapshot(answer) => {
                if let Some(agent) = &self.agent {
                    let _ = answer.send(agent.snapshot());
                }
            }
            Message::NextRequest(get, answer) => {
                if let Some(agent) = &self.agent {
                    let _ = answer.send(agent.next_request(&get));
                }
            }
            Message::Remember(mark, answer) => {
                let remembered = self.remember(mark).await?;
                let _ = answer.send(remembered);
            }
            Message::Left { origin, has_closed } => self.member_left(origin, has_closed).await?,
            // Anything that this loop would still report comes from the session's next holder.
            Message::Close(SubscriptionEnd::Moved) => return Err(End::Close(SubscriptionEnd::Moved)),
            Message::Close(reason) => {
                self.tell(Input::Stop(Box::new(self.gone(Some(reason)))), None).await?;
                return Err(End::Close(reason));
            }
            Message::Input(Input::Tick) if self.detached_too_long() => {
                self.queue_held = true;
                let message = "no client is connected, so the session stopped its turn; send it again";
                self.tell(Input::Abandon(Box::new(ErrorBody::new(ErrorCode::ShuttingDown, message))), None).await?;
            }
            Message::Input(Input::Tick) => {
                self.settle_host().await?;
                self.tell(Input::Tick, None).await?;
            }
            Message::Input(input) => {
                self.effects.note_fault(&input);
                self.tell(input, None).await?;
            }
        }
        Ok(())
    }

    /// Writes the mark of a command that was executed elsewhere.
    async fn remember(&mut self, mark: Mark) -> Result<Result<(), ErrorBody>, End> {
        if let Some(error) = self.away() {
            return Ok(Err(error));
        }
        match self.effects.earlier(&mark.id).await {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(Err(ErrorBody::id_reused(&mark.id))),
            Err(error) => {
                self.note_failed_read(&error);
                return Ok(Err(error));
            }
        }
        let append = Effect::Append(Append { events: Vec::new(), marks: vec![mark] });
        self.carry_out(vec![append], None).await?;
        self.update_list();
        Ok(Ok(()))
    }

    /// Passes an input to the loop and executes all of the resulting effects.
    async fn tell(&mut self, input: Input, reply_to: Option<ReplyTo<'_>>) -> Result<(), End> {
        let Some(agent) = &mut self.agent else { return Err(End::Close(SubscriptionEnd::Failed)) };
        if agent.is_idle() {
            self.time = SteadyTime::new(&*self.shared.clock);
        }
        let now = self.time.now(&*self.shared.clock);
        let effects = handled(agent, now, input);
        self.carry_out(effects, reply_to).await?;
        self.keep_warm();
        self.effects.write_spent().await.map_err(End::Close)?;
        self.update_list();
        Ok(())
    }

    /// Fills or refreshes the provider's cache, if that is due.
    fn keep_warm(&mut self) {
        let Some(agent) = self.agent.as_ref().filter(|_| self.deployment.prewarms && !self.stopping) else {
            self.prewarm = None;
            return;
        };
        let state = &agent.session().state;
        let prewarm = self.prewarm.get_or_insert_with(|| Box::new(Prewarm::new(state.compactions)));
        match agent.is_idle() {
            true if self.feed.readers() > 0 => {
                let model = &mut self.effects.model;
                let cause = Cause { is_compacted: state.compactions > 0, parent: None };
                let meter = |request: &ModelRequest| model.meter(request, UsagePurpose::Prewarm, cause);
                prewarm.idle(agent, &self.shared, &self.row.owner(), meter);
            }
            true => prewarm.rest(),
            false => prewarm.busy(state.turn.is_some()),
        }
    }

    /// Reports changes to operators and to watchers of the session list.
    fn update_list(&mut self) {
        let Some(agent) = &self.agent else { return };
        let (doing, breaker_open) = (agent.doing(), agent.tripped());
        let last = self.effects.note_breaker(breaker_open);
        let prewarmed = self.prewarm.as_ref().and_then(|prewarm| prewarm.total());
        let state = &agent.session().state;
        self.row.compacts(Compactions { count: state.compactions, last, breaker_open, prewarmed });
        self.row.runs_on(&state.model, &state.strategy);
        if doing == SessionState::Idle {
            self.effects.share_state(&agent.session().state);
        }
        if self.effects.take_changed() || doing != self.row.doing() {
            self.row.changed(self.effects.head(), doing);
        }
    }

    /// Executes effects in order, each to completion.
    async fn carry_out(&mut self, effects: Vec<Effect>, reply_to: Option<ReplyTo<'_>>) -> Result<(), End> {
        // Effects can cause inputs (a cancelled request, a new loop), and inputs cause more effects. Hence a queue
        // instead of recursion.
        let mut waiting: VecDeque<Effect> = effects.into();
        while let Some(effect) = waiting.pop_front() {
            let now = self.time.now(&*self.shared.clock);
            match effect {
                Effect::Append(mut append) => {
                    // Adjacent appends become one commit, because none could be visible without the next.
                    while let Some(Effect::Append(next)) =
                        waiting.pop_front_if(|next| matches!(next, Effect::Append(_)))
                    {
                        append.events.extend(next.events);
                        append.marks.extend(next.marks);
                    }
                    let has_calls = append.events.iter().any(|event| matches!(event, Event::ToolCall(_)));
                    self.effects.append(now, append, reply_to).await.map_err(End::Close)?;
                    if has_calls {
                        self.run_open_calls();
                    }
                }
                Effect::Reply { origin, id, reply } => self.effects.reply(reply_to, origin, id, reply),
                Effect::Emit(event) => self.effects.emit(&event),
                Effect::CallModel(call) => self.effects.call_model(*call),
                Effect::Hurry(request) => self.effects.model.hurry(request),
                Effect::CancelModel(request) => {
                    let shown = self.effects.model.cancel(request);
                    if let Some(agent) = &mut self.agent {
                        waiting.extend(handled(agent, now, Input::Cancelled { request, shown }));
                    }
                }
                Effect::ToolsRefused(model) => self.shared.parts.takes_no_tools(&model),
                Effect::ContextCut { model, read_tokens, sent_tokens } => tracing::warn!(
                    code = "context_truncated_upstream",
                    model,
                    read_tokens,
                    sent_tokens,
                    "the model server seems to leave out the beginning of conversations; give it a larger window"
                ),
                Effect::CallWritten(model) => self.shared.parts.writes_calls(&model),
                Effect::Calibrate { model, report, own } => {
                    self.shared.calibrate(&model, &report);
                    own.into_iter().for_each(|own| self.effects.calibrate(own));
                }
                Effect::CallHook(call) => {
                    let CallHook { place, call, awaited } = *call;
                    match place {
                        HookPlace::Server => {
                            let span = self.effects.trace.hook(&call, "server");
                            self.effects.hooks.ask(call, awaited, span);
                        }
                        HookPlace::Client => {
                            let call_id = call.call_id.clone();
                            if let Some(input) = self.call_client(call, awaited)
                                && let Some(agent) = &mut self.agent
                            {
                                waiting.extend(handled(agent, now, input));
                                if !agent.waits_for_hook(&call_id) {
                                    self.passed_over(&call_id);
                                }
                            }
                        }
                    }
                }
                Effect::CallTool(call) => match call.place {
                    ToolPlace::Server => {
                        let span = self.effects.trace.tool(&call.name, &call.call_id);
                        self.effects.tools.start(*call, span);
                    }
                    ToolPlace::Client => {
                        self.effects.measure.client_call_starts(&call.call_id);
                        self.run_open_calls();
                    }
                },
                Effect::CancelTool(call_id) => self.effects.tools.cancel(&call_id),
                Effect::CancelHook(call_id) => {
                    self.call_off(now, &call_id);
                    self.effects.hooks.cancel(now, &call_id);
                }
                Effect::Reseed => waiting.extend(self.reseed(now).await?),
            }
        }
        Ok(())
    }

    /// Replaces the loop with a new one that is seeded from it. Returns the effects of the new loop.
    async fn reseed(&mut self, now: Timestamp) -> Result<Vec<Effect>, End> {
        let Some(old) = self.agent.take() else { return Err(End::Close(SubscriptionEnd::Failed)) };
        let (generation, is_stale) = (old.generation() + 1, old.has_stale_path());
        let mut seed = old.into_seed();
        if is_stale {
            let path = path(&*self.shared.store, &self.id, &seed.session.state).await;
            seed.session.tree = path.map_err(|error| {
                tracing::error!(session = %self.id, %error, "read path; the session is closed and must be reopened");
                End::Close(SubscriptionEnd::Failed)
            })?;
        }
        seed.calibration = self.effects.calibration_of(&seed.session);
        tracing::debug!(session = %self.id, generation, "loop seeded");
        let mut agent = Box::new(AgentLoop::seeded(generation, seed));
        let effects = handled(&mut agent, now, Input::Seeded);
        self.agent = Some(agent);
        Ok(effects)
    }

    /// Returns the error for a command that is still queued when the session is closed for this reason, or when it
    /// leaves memory.
    fn gone(&self, ended: Option<SubscriptionEnd>) -> ErrorBody {
        match ended {
            Some(SubscriptionEnd::Deleted) => store_error(&StoreError::NotFound(self.id.clone())),
            Some(SubscriptionEnd::Moved) => {
                ErrorBody::new(ErrorCode::StoreFailed, "the session may be open on another server now; open it again")
            }
            _ => ErrorBody::new(ErrorCode::StoreFailed, "the session was being unloaded; send it again"),
        }
    }

    /// Returns true if nobody is attached and nothing is running.
    fn is_unneeded(&mut self) -> bool {
        let attached = self.feed.readers() > 0;
        // A turn that waits only for a person continues when the session is opened again.
        let idle = self.agent.as_ref().is_none_or(|agent| agent.is_idle() || agent.is_parked());
        if attached {
            self.detached_since = None;
        } else if self.detached_since.is_none() {
            self.detached_since = Some(Instant::now());
        }
        let is_recent = |limit: Duration| self.detached_since.is_some_and(|since| since.elapsed() < limit);
        let expected = !self.visited && is_recent(VISIT_TIME);
        let may_rest = self.visited && is_recent(REST_TIME) && idle && !self.stopping && self.may_rest();
        match (may_rest, &self.resting) {
            (true, None) => {
                self.resting = self.shared.resting.rest();
                // The next client may host, as if the session had left memory.
                self.host_has_left();
            }
            (true, Some(_)) => {}
            (false, _) => self.resting = None,
        }
        idle && (self.stopping || !(attached || expected || self.resting.is_some()))
    }

    /// Returns true if a session in this state may stay in memory. In a cluster, another server may be asked to open it
    /// next. A damaged session, or one whose database is away, is better read anew.
    fn may_rest(&self) -> bool {
        let is_idle = self.agent.as_ref().is_some_and(|agent| agent.is_idle());
        is_idle && !self.quarantined && !self.database_is_away && self.shared.cluster.is_none()
    }

    fn detached_too_long(&self) -> bool {
        self.visited
            && self.resting.is_none()
            && self.detached_since.is_some_and(|since| since.elapsed() >= self.shared.detached_turn)
    }

    /// Returns when to wake without a message: at a tool's time limit, or when a turn without a connection has run too
    /// long.
    fn next_wake(&self) -> Option<Instant> {
        let deadline = self.agent.as_ref().and_then(|agent| agent.next_deadline());
        let now = || self.time.now(&*self.shared.clock);
        let tools = deadline.map(|at: Timestamp| Instant::now() + Duration::from_millis(at.millis_since(now())));
        let alone_for = match (self.visited, &self.resting) {
            (false, _) => VISIT_TIME,
            (true, None) => self.shared.detached_turn,
            (true, Some(_)) => REST_TIME,
        };
        let alone = self.detached_since.map(|since| since + alone_for);
        // A session that works is asked again when it is idle.
        let is_idle = self.agent.as_ref().is_some_and(|agent| agent.is_idle());
        let cold = self.prewarm.as_ref().filter(|_| is_idle).and_then(|prewarm| prewarm.due());
        [tools, alone, cold, self.next_look(), self.next_host_change()].into_iter().flatten().min()
    }
}

/// Passes an input to the loop.
fn handled(agent: &mut AgentLoop, now: Timestamp, input: Input) -> Vec<Effect> {
    if agent.takes_long(&input) { blocking::apart(|| agent.handle(now, input)) } else { agent.handle(now, input) }
}
