//! Executes the agent loop's effects: appends and publishes events, calls the model and hooks, answers commands.
//!
//! An event reaches the feed only after the store's acknowledgement. The reply to the command that caused it is sent in
//! between.

use super::{
    cluster::Since,
    ended,
    feed::Feed,
    handle::Message,
    hooks::HookCalls,
    late::Late,
    measure::{LastCompaction, Measure},
    outbox::Outbox,
    readable::{check_read_back, readable},
    shared::Shared,
    state_copy::StateCopy,
    summaries::{self, Heard},
    tools::ToolCalls,
    whole,
};
use crate::{
    core::{
        agent_loop::{Append, CallModel, CallTool, Input, Origin, RequestId},
        context::counter::Calibration,
        model::{Delta, ModelFault, Purpose},
        need::Need,
        session::{self, fingerprint::fingerprint},
    },
    metrics::MODEL_REQUESTS_WAITING,
    provider::DeltaSink,
    store::{self, CommandMark, EntryColumns, Head, Held, Lease, NewRecord},
};
use reseed_protocol::{
    CallId, CommandId, EntryId, ErrorBody, ErrorCode, Part, Timestamp,
    context::BreakerReason,
    event::{EphemeralEvent, Event},
    hooks::HookCall,
    reply::Reply,
    session::SubscriptionEnd,
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::mpsc, task::AbortHandle};
use tokio_util::sync::CancellationToken;

pub(super) struct Effects {
    shared: Arc<Shared>,
    owner: Arc<str>,
    lease: Lease,
    /// The node's standing before it opened the session; `None` outside a cluster.
    since: Option<Since>,
    feed: Arc<Feed>,
    mailbox: mpsc::WeakSender<Box<Message>>,
    copy: StateCopy,
    head: Head,
    /// True if something was appended that watchers of the session list have not seen.
    changed: bool,
    /// The request whose answer is being streamed.
    asking: Option<ProviderCall>,
    /// The request for a summary that runs in parallel.
    summarising: Option<ProviderCall>,
    hooks: HookCalls,
    tools: ToolCalls,
    measure: Measure,
    /// The command being executed, until it is answered. Each command gets one reply, even if something fails.
    expected: Option<CommandId>,
    /// Replies to commands that are answered after later ones.
    pub(super) late: Late,
    /// Fingerprints of the ids of all commands in the log, if they are known. Otherwise the store is queried.
    marked: Option<Vec<u64>>,
}

/// The sender of the command being executed, and where its reply goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) origin: Origin,
    pub(super) outgoing: &'a Outbox,
}

/// Maximum number of a new session's commands that are known without querying the store. This is 4 KiB of fingerprints,
/// and more commands than most sessions see.
const MARKED_MAX: usize = 512;

/// A model request in progress.
struct ProviderCall {
    request: RequestId,
    /// The item that shows it; `None` if it is not shown.
    item: Option<EntryId>,
    model: String,
    /// Cancelled once somebody waits for its result.
    hurry: CancellationToken,
    task: AbortHandle,
}

impl Drop for ProviderCall {
    /// Disconnects the request, also if the actor panicked.
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Effects {
    pub(super) fn new(
        shared: Arc<Shared>,
        owner: Arc<str>,
        lease: Lease,
        copy: StateCopy,
        head: Head,
        feed: Arc<Feed>,
        mailbox: mpsc::WeakSender<Box<Message>>,
    ) -> Self {
        let measure = Measure::new(lease.session.clone());
        let hooks = HookCalls::new(shared.clone(), lease.session.clone(), mailbox.clone());
        let tools = ToolCalls::new(shared.clone(), lease.session.clone(), mailbox.clone());
        let late = Late::new(lease.session.clone());
        // Under the first lease of an empty log, no command has been written yet.
        let marked = (lease.term == 1 && lease.next_seq == 1).then(Vec::new);
        Self {
            shared,
            owner,
            lease,
            since: None,
            feed,
            mailbox,
            copy,
            // An idle session needs no copy of the stored state.
            head: Head { state: None, ..head },
            changed: false,
            asking: None,
            summarising: None,
            hooks,
            tools,
            measure,
            expected: None,
            late,
            marked,
        }
    }

    /// Sets the node's standing before it opened the session.
    pub(super) fn opened_since(self, since: Option<Since>) -> Self {
        Self { since, ..self }
    }

    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    /// Records whether the circuit breaker is open. Returns the outcome of the newest compaction.
    pub(super) fn note_breaker(&mut self, reason: Option<BreakerReason>) -> Option<LastCompaction> {
        self.measure.note_breaker(reason);
        self.measure.last_compaction()
    }

    /// Returns true if something was appended since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Shares the loop's state as the copy that is stored, if both are equal.
    pub(super) fn share_state(&mut self, state: &Arc<session::SessionState>) {
        self.copy.share(state);
    }

    /// Takes what the session's counter has learned, to store it with the next append.
    pub(super) fn calibrate(&mut self, own: Calibration) {
        self.copy.calibrate(own);
    }

    /// Returns the calibration for the next loop: the stored one, or else the one learned from the path. So it is the
    /// same as after a restart.
    pub(super) fn calibration_of(&mut self, session: &session::Session) -> Calibration {
        if let Some(known) = self.copy.calibration() {
            return known.clone();
        }
        let relearnt = self.shared.relearnt(session);
        self.copy.calibrate(relearnt.clone());
        relearnt
    }

    pub(super) fn epoch(&self) -> &str {
        &self.lease.epoch
    }

    /// Returns the fingerprint of an earlier command with this id, and its reply, marked as a duplicate.
    pub(super) async fn earlier(&self, id: &CommandId) -> Result<Option<(u64, Reply)>, ErrorBody> {
        if self.marked.as_ref().is_some_and(|marked| !marked.contains(&fingerprint(id.as_str().as_bytes()))) {
            return Ok(None);
        }
        let mark = self.shared.store.command(&self.lease.session, id.as_str()).await;
        let Some(mark) = mark.map_err(|error| self.shared.fault(&error))? else { return Ok(None) };
        let mut reply: Reply = serde_json::from_str(&mark.reply)
            .map_err(|error| ErrorBody::new(ErrorCode::Internal, format!("cannot read the stored reply: {error}")))?;
        mark_duplicate(&mut reply);
        Ok(Some((mark.fingerprint, reply)))
    }

    /// Appends one step, answers the commands that caused it, and publishes its events.
    ///
    /// # Errors
    /// The store could not write, or another writer has the session. The actor must end.
    pub(super) async fn append(
        &mut self,
        now: Timestamp,
        append: Append,
        asker: Option<Asker<'_>>,
    ) -> Result<(), SubscriptionEnd> {
        let Append { mut events, marks } = append;
        let mut stored_marks: Vec<CommandMark> = ended::marks(&events).collect();
        stored_marks.extend(whole::take_all(&mut events));
        let first_seq = self.copy.state().seq + 1;
        let changes_model = sets_model(&events).is_some_and(|model| *model != self.copy.state().model);
        let mut records = Vec::with_capacity(events.len());
        let (streamed, mut ends) = (self.feed.unfinished_item(), None);
        for event in &events {
            self.copy.apply(event);
            self.note(now, event);
            let entry = EntryColumns::of(event);
            let is_it = |item: &&EntryId| entry.as_ref().is_some_and(|entry| entry.entry_id == **item);
            ends = ends.or_else(|| streamed.as_ref().filter(is_it).cloned());
            records.push(NewRecord { body: json(event), entry });
        }
        check_read_back(&events, &records);
        let bodies: Vec<Arc<str>> = records.iter().map(|record| record.body.clone()).collect();
        let of_commands = marks.iter().map(|mark| CommandMark {
            command_id: mark.id.as_str().to_owned(),
            fingerprint: mark.fingerprint,
            reply: json(&mark.reply),
        });
        stored_marks.extend(of_commands);
        self.head.updated_at = now;
        let state = self.copy.state();
        self.head.name.clone_from(&state.name);
        self.head.entries = state.entries;
        self.head.cost_nano_usd = state.cost.nano_usd;
        self.head.unpriced_requests = state.cost.unpriced_requests;
        self.head.running = state.turn.is_some();
        if changes_model && let Some(known) = self.shared.known_calibration(&self.copy.state().model) {
            self.copy.calibrate(known);
        }
        let head = Head { state: self.copy.take_due(&events), ..self.head.clone() };
        let step = store::Append { records, marks: stored_marks, head };
        if let Err(error) = self.shared.store.append(&self.lease, first_seq, step).await {
            return Err(self.append_failed(&error));
        }
        self.changed = true;
        for mark in marks {
            self.marked = self.marked.take().filter(|marked| marked.len() < MARKED_MAX);
            if let Some(marked) = &mut self.marked {
                marked.push(fingerprint(mark.id.as_str().as_bytes()));
            }
            self.answer(asker, mark.origin, mark.id, mark.reply);
        }
        if !bodies.is_empty() {
            self.feed.publish(self.copy.state().seq, &bodies, ends.as_ref());
        }
        Ok(())
    }

    /// Returns how a session ends after a failed append. In a cluster, another node may have opened it, or may do so
    /// while this one cannot reach the store. Clients are then sent away.
    fn append_failed(&self, error: &store::Error) -> SubscriptionEnd {
        let session = &self.lease.session;
        match (&self.shared.cluster, error) {
            (Some(_), store::Error::Fenced { .. }) => {
                crate::metrics::APPENDS_FENCED_TOTAL.add([], 1);
                tracing::warn!(%session, %error, "another server has opened the session; it is closed here");
                return SubscriptionEnd::Moved;
            }
            (Some(keeper), store::Error::Unknown(_)) if !keeper.is_trusted() => {
                tracing::error!(
                    %session, %error,
                    "append failed while the database is away; the session is closed here"
                );
                return SubscriptionEnd::Moved;
            }
            _ => {}
        }
        tracing::error!(%session, %error, "append failed; the session is closed and must be reopened");
        SubscriptionEnd::Failed
    }

    /// Records that a command starts, which has no reply yet.
    pub(super) fn expect_answer(&mut self, id: &CommandId) {
        self.expected = Some(id.clone());
    }

    /// Returns true if the command that started last has had its reply.
    pub(super) fn has_answered(&self) -> bool {
        self.expected.is_none()
    }

    /// Answers a command that wrote nothing.
    pub(super) fn reply(&mut self, asker: Option<Asker<'_>>, origin: Origin, id: CommandId, reply: Reply) {
        self.measure.replied(&reply);
        self.answer(asker, origin, id, reply);
    }

    /// Publishes an event that is not stored.
    pub(super) fn emit(&mut self, event: &EphemeralEvent) {
        self.measure.emitted(event);
        self.feed.emit(event);
    }

    fn answer(&mut self, asker: Option<Asker<'_>>, origin: Origin, id: CommandId, reply: Reply) {
        let asker = asker.filter(|asker| asker.origin == origin);
        // A late reply to another connection's command with the same id does not answer this one.
        let is_to_this = asker.is_some() && self.expected.as_ref() == Some(&id);
        if is_to_this {
            self.expected = None;
        } else if self.late.answer(origin, &id, &reply) {
            return;
        }
        let Some(asker) = asker else { return };
        // A connection stops reading commands before its channel has no room for replies. So this fails only if it is
        // gone.
        asker.outgoing.reply(self.lease.session.clone(), id, reply);
    }

    /// Records the newest token count for lists, and the metrics.
    fn note(&mut self, now: Timestamp, event: &Event) {
        match event {
            Event::TurnFinished(finished) => {
                self.head.token_count = finished.context_info.token_count;
                self.head.window_tokens = finished.context_info.max_tokens;
            }
            Event::SessionUpdated(updated) => {
                let deployment = self.shared.parts.deployment();
                if let Some(warning) = updated.model.as_deref().and_then(|model| deployment.windows.warning(model)) {
                    tracing::warn!(session = %self.lease.session, "{warning}");
                }
            }
            Event::ContextCompacted(compacted) => self.head.token_count = compacted.tokens_after,
            _ => {}
        }
        self.measure.appended(now, event);
    }

    /// Sends a request to the model in a task of its own.
    pub(super) fn call_model(&mut self, call: CallModel) {
        let CallModel { request, body, shown_as, withheld, makes_way } = call;
        debug_assert!(body.is_paired(), "a call without its result, which no provider accepts");
        // A wait for the model server is reported even if the answer is withheld.
        let turn = shown_as.as_ref().map(|(_, turn)| turn.clone());
        let feed = self.feed.clone();
        // An answer that a hook may still change is not shown. Clients first see it as the entry that it becomes.
        let shown_as = shown_as.filter(|_| !withheld);
        if let Some((item, turn)) = &shown_as {
            self.feed.begin_item(item, turn);
        }
        let item = shown_as.map(|(item, _)| item);
        let (shared, parts, mailbox) = (self.shared.clone(), self.shared.parts.in_use(), self.mailbox.clone());
        let mut shown = item.clone().map(|item| {
            let first = self.measure.first_delta();
            StreamedAnswer { feed: self.feed.clone(), item, first }
        });
        let purpose = body.purpose;
        let model = body.model.clone();
        // The session may have chosen the model while it was allowed, or may have been imported with it.
        let allowed = parts.deployment.check_model(&model);
        // A summary makes room in a session whose turn may wait for it, so it does not wait for its user's turn.
        let turns = (purpose == Purpose::Turn).then(|| (self.shared.shares.turns().clone(), self.owner.clone()));
        let cluster = self.shared.cluster.clone().zip(self.since);
        let held = Held {
            session: self.lease.session.clone(),
            epoch: self.lease.epoch.clone(),
            term: self.lease.term,
            last_seq: self.feed.seq(),
        };
        let (slots, session) = (self.shared.slots.clone(), self.lease.session.clone());
        let hurry = CancellationToken::new();
        let hurried = hurry.clone();
        let task = tokio::spawn(async move {
            let shown_by = shown.as_ref().map(|shown| (shown.feed.clone(), shown.item.clone()));
            let mut report = OutcomeReport { request, purpose, mailbox, shown_by, done: false };
            if let Err(refused) = allowed {
                report.send(Err(ModelFault::new(refused.code, refused.message))).await;
                return;
            }
            let _turn = match &turns {
                Some((turns, owner)) => {
                    let _waiting = MODEL_REQUESTS_WAITING.hold([]);
                    Some(turns.take(owner).await)
                }
                None => None,
            };
            // If another node may have taken over the session, no request is sent, even after waiting for the user's
            // turn. Ending the session drops this task.
            if let Some((keeper, since)) = cluster
                && !keeper.still_has(held, since).await
            {
                let message = "this server has lost touch with its database";
                report.send(Err(ModelFault::new(ErrorCode::StoreFailed, message))).await;
                return;
            }
            let provider = &*parts.provider;
            let outcome = match purpose {
                Purpose::Summary if makes_way => {
                    summaries::making_way(provider, &body, (&slots, &session), &hurried, &report).await
                }
                Purpose::Summary => summaries::summary(provider, &body, slots.summary(session)).await,
                Purpose::Turn => {
                    let at_work = slots.turn(session);
                    let sink: &mut dyn DeltaSink = match &mut shown {
                        Some(shown) => shown,
                        None => &mut WithheldAnswer,
                    };
                    let tells = turn.as_ref().map(|turn| (&*feed, turn));
                    let mut heard = Heard { sink, at_work: &at_work, tells, has_begun: false };
                    let outcome = provider.answer(&body, &mut heard).await;
                    report.tell_waited(at_work.waited()).await;
                    outcome
                }
            };
            if outcome.as_ref().is_ok_and(|answer| answer.learnt.has(Need::NoImages)) {
                shared.parts.takes_no_images(&body.model);
            }
            let outcome = outcome.and_then(readable);
            super::measure::model_answered(&body, &parts.deployment.prices, &outcome);
            report.send(outcome).await;
        });
        let slot = match purpose {
            Purpose::Turn => &mut self.asking,
            Purpose::Summary => &mut self.summarising,
        };
        *slot = Some(ProviderCall { request, item, model, hurry, task: task.abort_handle() });
    }

    /// Calls a hook of the server.
    pub(super) fn call_hook(&mut self, call: HookCall, awaited: bool) {
        self.hooks.ask(call, awaited);
    }

    /// Cancels a call to a hook of the server.
    pub(super) fn cancel_hook(&mut self, now: Timestamp, call_id: &CallId) {
        self.hooks.cancel(now, call_id);
    }

    /// Starts a call to one of the server's tools.
    pub(super) fn call_tool(&mut self, call: CallTool) {
        self.tools.start(call);
    }

    /// Records that a client's tool call, which waited for others, starts now.
    pub(super) fn client_call_starts(&mut self, call_id: &CallId) {
        self.measure.client_call_starts(call_id);
    }

    /// Cancels a call to one of the server's tools.
    pub(super) fn cancel_tool(&mut self, call_id: &CallId) {
        self.tools.cancel(call_id);
    }

    /// Records why a request of the running turn failed, for the log.
    pub(super) fn note_fault(&mut self, input: &Input) {
        if let Input::Failed { request, fault, .. } = input
            && let Some(asking) = self.asking.as_ref().filter(|asking| asking.request == *request)
        {
            self.measure.turn_failed(fault, &asking.model);
        }
    }

    /// Notes that somebody waits for this summary, so that it no longer makes way.
    pub(super) fn hurry(&self, request: RequestId) {
        if let Some(call) = self.summarising.as_ref().filter(|call| call.request == request) {
            call.hurry.cancel();
        }
    }

    /// Cancels a request. Dropping the provider's future disconnects the upstream. Returns what was shown.
    pub(super) fn cancel(&mut self, request: RequestId) -> Vec<Part> {
        self.summarising.take_if(|asking| asking.request == request);
        let asking = self.asking.take_if(|asking| asking.request == request);
        let item = asking.and_then(|mut asking| asking.item.take());
        item.map(|item| self.feed.stop(&item)).unwrap_or_default()
    }

    pub(super) async fn release(&mut self) {
        self.asking = None;
        self.summarising = None;
        self.hooks.cancel_all();
        self.tools.cancel_all();
        if let Err(error) = self.shared.store.release(&self.lease).await {
            tracing::warn!(session = %self.lease.session, %error, "release lease");
        }
    }
}

/// Returns the last model that these events set.
fn sets_model(events: &[Event]) -> Option<&String> {
    events.iter().rev().find_map(|event| match event {
        Event::SessionUpdated(updated) => updated.model.as_ref(),
        _ => None,
    })
}

fn json<T: serde::Serialize>(value: &T) -> Arc<str> {
    serde_json::to_string(value).expect("wire types have text keys and finite numbers").into()
}

/// Marks a reply as one to a repeated command.
pub(super) fn mark_duplicate(reply: &mut Reply) {
    if let Some(duplicate) = reply.duplicate_mut() {
        *duplicate = Some(true);
    }
}

/// Shows an answer as it arrives.
struct StreamedAnswer {
    feed: Arc<Feed>,
    item: EntryId,
    first: Option<std::time::Instant>,
}

impl DeltaSink for StreamedAnswer {
    fn delta(&mut self, delta: Delta<'_>) {
        if let Some(began) = self.first.take() {
            crate::metrics::FIRST_DELTA_SECONDS.record([], began.elapsed());
        }
        self.feed.delta(&self.item, delta);
    }
}

/// The sink for answers that a hook may change.
struct WithheldAnswer;

impl DeltaSink for WithheldAnswer {
    fn delta(&mut self, _: Delta<'_>) {}
}

/// Reports the outcome of a request to its session, even if the provider panics, because a turn must end.
pub(super) struct OutcomeReport {
    pub(super) request: RequestId,
    purpose: Purpose,
    mailbox: mpsc::WeakSender<Box<Message>>,
    /// The feed and the item that show the answer; `None` if it is not shown.
    shown_by: Option<(Arc<Feed>, EntryId)>,
    done: bool,
}

impl OutcomeReport {
    async fn tell_waited(&self, waited: Option<Duration>) {
        if let Some(waited) = waited {
            let millis = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            self.tell(Input::WaitedBehindSummary { millis }).await;
        }
    }

    pub(super) async fn tell(&self, input: Input) {
        if let Some(mailbox) = self.mailbox.upgrade() {
            let _ = mailbox.send(Box::new(Message::Input(input))).await;
        }
    }

    async fn send(&mut self, outcome: Result<crate::core::model::Answer, ModelFault>) {
        self.done = true;
        let request = self.request;
        let input = match outcome {
            Ok(answer) => Input::Answered { request, answer },
            Err(fault) => self.failed(fault),
        };
        self.tell(input).await;
    }

    /// Returns the input for a failure, with the part of the answer that was shown.
    fn failed(&self, fault: ModelFault) -> Input {
        let shown = self.shown_by.as_ref().map(|(feed, item)| feed.stop(item)).unwrap_or_default();
        Input::Failed { request: self.request, fault, shown }
    }
}

impl Drop for OutcomeReport {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        super::measure::model_left(self.purpose, std::thread::panicking());
        let Some(mailbox) = self.mailbox.upgrade() else { return };
        let fault =
            ModelFault::new(ErrorCode::Internal, "the model request ended without an outcome; see the server's log");
        let input = self.failed(fault);
        // After a cancellation, the report is a stale response. After a panic, it ends the turn.
        if let Err(mpsc::error::TrySendError::Full(message)) = mailbox.try_send(Box::new(Message::Input(input)))
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { mailbox.send(message).await });
        }
    }
}
