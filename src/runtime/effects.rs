//! Executes the agent loop's effects: appends and publishes events, calls the model and hooks, answers commands.
//!
//! An event reaches the feed only after the store's acknowledgement. The reply to the command that caused it is sent in
//! between.

use super::{
    ended_calls,
    feed::Feed,
    handle::WeakMailbox,
    hooks::HookCalls,
    measure::{LastCompaction, Measure},
    model_calls::ModelCalls,
    outbox::Outbox,
    pending_replies::{PendingReplies, mark_duplicate},
    readable::check_read_back,
    session_trace::SessionTrace,
    shared::Shared,
    state_copy::StateCopy,
    tools::ToolCalls,
    whole,
};
use crate::{
    core::{
        agent_loop::{Append, CallModel, Input, Origin},
        context::counter::Calibration,
        session,
    },
    store::{self, CommandMark, EntryColumns, Head, Lease, NewRecord},
};
use reseed_protocol::{
    CommandId, EntryId, ErrorBody, ErrorCode, Timestamp,
    context::BreakerReason,
    event::{EphemeralEvent, Event},
    reply::Reply,
    session::SubscriptionEnd,
};
use std::sync::Arc;

pub(super) struct Effects {
    shared: Arc<Shared>,
    lease: Lease,
    feed: Arc<Feed>,
    copy: StateCopy,
    head: Head,
    /// True if something was appended that watchers of the session list have not seen.
    changed: bool,
    pub(super) model: ModelCalls,
    pub(super) hooks: HookCalls,
    pub(super) tools: ToolCalls,
    pub(super) measure: Measure,
    pub(super) trace: SessionTrace,
    /// The command being executed, until it is answered. Each command gets one reply, even if something fails.
    expected: Option<CommandId>,
    /// Replies to commands that are answered after later ones.
    pub(super) pending: PendingReplies,
}

/// The sender of the command being executed, and where its reply goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplyTo<'a> {
    pub(super) origin: Origin,
    pub(super) outgoing: &'a Outbox,
}

impl Effects {
    pub(super) fn new(
        shared: Arc<Shared>,
        lease: Lease,
        copy: StateCopy,
        head: Head,
        feed: Arc<Feed>,
        model: ModelCalls,
        mailbox: WeakMailbox,
    ) -> Self {
        let measure = Measure::new(lease.session.clone());
        let trace = SessionTrace::new(shared.traces(), &lease.session, copy.state().turn.is_some());
        let hooks = HookCalls::new(shared.clone(), lease.session.clone(), mailbox.clone());
        let tools = ToolCalls::new(shared.clone(), lease.session.clone(), mailbox);
        let pending = PendingReplies::new(lease.session.clone());
        Self {
            shared,
            lease,
            feed,
            copy,
            // An idle session needs no copy of the stored state.
            head: Head { state: None, ..head },
            changed: false,
            model,
            hooks,
            tools,
            measure,
            trace,
            expected: None,
            pending,
        }
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

    /// Returns the calibration for the next loop: the stored one, or a new one. So it is the same as after a restart.
    pub(super) fn calibration_of(&mut self, session: &session::Session) -> Calibration {
        if let Some(known) = self.copy.calibration() {
            return known.clone();
        }
        let new = self.shared.new_calibration(session);
        self.copy.calibrate(new.clone());
        new
    }

    pub(super) fn epoch(&self) -> &str {
        &self.lease.epoch
    }

    /// Returns the fingerprint of an earlier command with this id, and its reply, marked as a duplicate.
    pub(super) async fn earlier(&self, id: &CommandId) -> Result<Option<(u64, Reply)>, ErrorBody> {
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
        reply_to: Option<ReplyTo<'_>>,
    ) -> Result<(), SubscriptionEnd> {
        let Append { mut events, marks } = append;
        let mut stored_marks: Vec<CommandMark> = ended_calls::marks(&events).collect();
        stored_marks.extend(whole::take_all(&mut events));
        let first_seq = self.copy.state().seq + 1;
        let changes_model = sets_model(&events).is_some_and(|model| *model != self.copy.state().model);
        let mut records = Vec::with_capacity(events.len());
        let (streamed, mut ends) = (self.feed.unfinished_item(), None);
        self.trace.appending(&events);
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
        let usage = self.model.spent.take();
        let step = store::Append { records, marks: stored_marks, usage: usage.clone(), head };
        let commit = self.trace.commit(bodies.len());
        if let Err(error) = self.shared.store.append(&self.lease, first_seq, step).await {
            commit.fail(ErrorCode::StoreFailed.as_str());
            self.model.spent.put_back(usage);
            return Err(self.append_failed(&error));
        }
        commit.end();
        self.trace.appended(&events);
        self.shared.budgets.written(&usage);
        self.changed = true;
        for mark in marks {
            self.answer(reply_to, mark.origin, mark.id, mark.reply);
        }
        if !bodies.is_empty() {
            self.feed.publish(self.copy.state().seq, &bodies, ends.as_ref());
        }
        Ok(())
    }

    /// Writes what requests cost that ended without an event, such as those for a preview.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub(super) async fn write_spent(&mut self) -> Result<(), SubscriptionEnd> {
        let usage = self.model.spent.take();
        if usage.is_empty() {
            return Ok(());
        }
        let step = store::Append {
            records: Vec::new(),
            marks: Vec::new(),
            usage: usage.clone(),
            head: Head { state: None, ..self.head.clone() },
        };
        let next_seq = self.copy.state().seq + 1;
        if let Err(error) = self.shared.store.append(&self.lease, next_seq, step).await {
            self.model.spent.put_back(usage);
            return Err(self.append_failed(&error));
        }
        self.shared.budgets.written(&usage);
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
    pub(super) fn reply(&mut self, reply_to: Option<ReplyTo<'_>>, origin: Origin, id: CommandId, reply: Reply) {
        self.measure.replied(&reply);
        self.answer(reply_to, origin, id, reply);
    }

    /// Publishes an event that is not stored.
    pub(super) fn emit(&mut self, event: &EphemeralEvent) {
        self.measure.emitted(event);
        self.trace.emitted(event);
        self.feed.emit(event);
    }

    fn answer(&mut self, reply_to: Option<ReplyTo<'_>>, origin: Origin, id: CommandId, reply: Reply) {
        let reply_to = reply_to.filter(|reply_to| reply_to.origin == origin);
        // A late reply to another connection's command with the same id does not answer this one.
        let is_to_this = reply_to.is_some() && self.expected.as_ref() == Some(&id);
        if is_to_this {
            self.expected = None;
        } else if self.pending.answer(origin, &id, &reply) {
            return;
        }
        let Some(reply_to) = reply_to else { return };
        // A connection stops reading commands before its channel has no room for replies. So this fails only if it is
        // gone.
        reply_to.outgoing.reply(self.lease.session.clone(), id, reply);
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

    /// Sends a request to the model.
    pub(super) fn call_model(&mut self, call: CallModel) {
        let measure = &mut self.measure;
        let cause = self.trace.cause(call.body.purpose, self.copy.state().compactions > 0);
        self.model.start(call, cause, || measure.first_delta());
    }

    /// Records why a request of the running turn failed, for the log.
    pub(super) fn note_fault(&mut self, input: &Input) {
        if let Input::Failed { request, fault, .. } = input
            && let Some(model) = self.model.model_of(*request)
        {
            self.measure.turn_failed(fault, model);
        }
    }

    pub(super) async fn release(&mut self) {
        self.trace.leave();
        self.model.cancel_all();
        self.hooks.cancel_all();
        self.tools.cancel_all();
        // The session may be another server's by now, but what this one has spent is spent. A row that was written
        // already is not counted twice.
        let (usage, session) = (self.model.spent.take(), &self.lease.session);
        if !usage.is_empty() {
            match self.shared.store.add_usage(usage.clone()).await {
                Ok(()) => self.shared.budgets.written(&usage),
                Err(error) => {
                    self.shared.budgets.lost(&usage);
                    tracing::error!(%session, %error, "the usage of the session's last requests is not recorded");
                }
            }
        }
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
