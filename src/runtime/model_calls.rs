//! Requests to the model: at most one for the turn, and one for a summary that runs in parallel. Each runs in a task of
//! its own, and its outcome arrives in the mailbox.

use super::{
    cluster::Since,
    feed::Feed,
    handle::WeakMailbox,
    inference::Cause,
    measure::model_left,
    metering::{CancelsOnDrop, Meter, MeteredProvider, MeteredSink, Spent},
    readable::readable,
    shared::Shared,
    summaries::{self, TurnSink},
};
use crate::{
    core::{
        agent_loop::{CallModel, Input, RequestId},
        model::{Answer, Delta, ModelFault, ModelRequest, Purpose},
        need::Need,
        usage_row::UsagePurpose,
    },
    metrics::{FIRST_DELTA_SECONDS, MODEL_REQUESTS_WAITING, purpose_of},
    provider::{DeltaSink, Provider as _},
    store::{Lease, LeasedSession},
};
use reseed_protocol::{EntryId, ErrorCode, Part};
use std::{sync::Arc, thread, time::Instant};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// A session's requests to the model. Dropping it cancels them.
pub(super) struct ModelCalls {
    shared: Arc<Shared>,
    owner: Arc<str>,
    lease: Lease,
    /// The node's standing before it opened the session; `None` outside a cluster.
    since: Option<Since>,
    feed: Arc<Feed>,
    mailbox: WeakMailbox,
    /// The request whose answer is being streamed.
    turn: Option<ModelCall>,
    /// The request for a summary that runs in parallel.
    summary: Option<ModelCall>,
    /// The number of requests so far.
    started: u64,
    /// What requests cost that have ended.
    pub(super) spent: Arc<Spent>,
}

/// A request in progress.
struct ModelCall {
    request: RequestId,
    /// The item that shows it; `None` if it is not shown.
    item: Option<EntryId>,
    model: String,
    /// Cancelled once somebody waits for its result.
    hurry: CancellationToken,
    meter: Arc<Meter>,
    task: AbortHandle,
}

impl Drop for ModelCall {
    /// Disconnects the request, also if the actor panicked. A request that is still running is counted as cancelled.
    fn drop(&mut self) {
        self.meter.cancelled();
        self.task.abort();
    }
}

impl ModelCalls {
    pub(super) fn new(
        shared: Arc<Shared>,
        owner: Arc<str>,
        lease: Lease,
        since: Option<Since>,
        feed: Arc<Feed>,
        mailbox: WeakMailbox,
    ) -> Self {
        Self {
            shared,
            owner,
            lease,
            since,
            feed,
            mailbox,
            turn: None,
            summary: None,
            started: 0,
            spent: Arc::default(),
        }
    }

    /// Starts a request. `began` is the start time for measuring the first piece of its answer, if that is measured.
    pub(super) fn start(&mut self, call: CallModel, cause: Cause, began: impl FnOnce() -> Option<Instant>) {
        let CallModel { request, body, shown_as, withheld, makes_way, spent_on } = call;
        debug_assert!(body.is_paired(), "a call without its result, which no provider accepts");
        // A wait for the model server is reported even if the answer is withheld.
        let turn = shown_as.as_ref().map(|(_, turn)| turn.clone());
        // An answer that a hook may still change is not shown. Clients first see it as the entry that it becomes.
        let shown_as = shown_as.filter(|_| !withheld);
        if let Some((item, turn)) = &shown_as {
            self.feed.begin_item(item, turn);
        }
        let item = shown_as.map(|(item, _)| item);
        let first = if item.is_some() { began() } else { None };
        let (purpose, model) = (body.purpose, body.model.clone());
        let (shared, parts) = (self.shared.clone(), self.shared.parts.in_use());
        let (feed, owner, session) = (self.feed.clone(), self.owner.clone(), self.lease.session.clone());
        // The session may have chosen the model while it was allowed, or may have been imported with it.
        let allowed = parts.deployment.check_model(&model);
        let cluster = self.shared.cluster.clone().zip(self.since);
        let held = LeasedSession {
            session: session.clone(),
            epoch: self.lease.epoch.clone(),
            term: self.lease.term,
            last_seq: self.feed.seq(),
        };
        let meter = self.meter(&body, spent_on, cause);
        let metered = meter.clone();
        let hurry = CancellationToken::new();
        let hurried = hurry.clone();
        let (feed_of, item_of) = (feed.clone(), item.clone());
        let mut report = OutcomeReport {
            request,
            purpose: purpose_of(&body),
            mailbox: self.mailbox.clone(),
            feed: feed_of,
            item: item_of,
            done: false,
        };
        let mut sink = StreamedAnswer { feed: feed.clone(), item: item.clone(), first };
        let task = tokio::spawn(async move {
            let _ends = CancelsOnDrop(metered.clone());
            if let Err(refused) = allowed {
                report.send(Err(ModelFault::new(refused.code, refused.message))).await;
                return;
            }
            // Before it waits for its turn: one that waits for a budget must not hold up others.
            if let Err(refused) = metered.reserve().await {
                report.send(Err(refused)).await;
                return;
            }
            // A summary makes room in a session whose turn may wait for it, so it does not wait for its user's turn.
            let _turn = match purpose {
                Purpose::Turn => {
                    let _waiting = MODEL_REQUESTS_WAITING.hold([]);
                    Some(shared.shares.turns().take(&owner).await)
                }
                Purpose::Summary => None,
            };
            // If another node may have taken over the session, no request is sent, even after waiting for the user's
            // turn. Ending the session drops this task.
            if let Some((keeper, since)) = cluster
                && !keeper.still_has(held, since).await
            {
                metered.cancelled();
                let message = "this server has lost touch with its database";
                report.send(Err(ModelFault::new(ErrorCode::StoreFailed, message))).await;
                return;
            }
            let provider = &MeteredProvider { provider: &*parts.provider, meter: &metered };
            let load = &shared.model_server;
            let outcome = match purpose {
                Purpose::Summary if makes_way => {
                    let makes_way =
                        summaries::MakesWay { request, mailbox: &report.mailbox, hurry: &hurried, meter: &metered };
                    summaries::making_way(provider, &body, (load, &session), makes_way).await
                }
                Purpose::Summary => summaries::summary(provider, &body, load.summary(session), &metered).await,
                Purpose::Turn => {
                    let at_work = load.turn(session);
                    let tells = turn.as_ref().map(|turn| (&*feed, turn));
                    let mut sink = TurnSink { sink: &mut sink, at_work: &at_work, tells, has_begun: false };
                    let mut sink = MeteredSink { sink: &mut sink, meter: &metered };
                    let outcome = provider.answer(&body, &mut sink).await;
                    if let Some(waited) = at_work.waited() {
                        let millis = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                        report.mailbox.tell(Input::WaitedBehindSummary { millis }).await;
                    }
                    outcome
                }
            };
            if outcome.as_ref().is_ok_and(|answer| answer.learnt.has(Need::NoImages)) {
                shared.parts.takes_no_images(&body.model);
            }
            let outcome = outcome.and_then(readable);
            metered.ended(&body, &outcome);
            report.send(outcome).await;
        });
        let call = match purpose {
            Purpose::Turn => &mut self.turn,
            Purpose::Summary => &mut self.summary,
        };
        *call = Some(ModelCall { request, item, model, hurry, meter, task: task.abort_handle() });
    }

    /// Returns the meter of a new request.
    pub(super) fn meter(&mut self, request: &ModelRequest, spent_on: UsagePurpose, cause: Cause) -> Arc<Meter> {
        self.started += 1;
        let of = (&*self.owner, &self.lease, self.started);
        let outcome = (self.spent.clone(), self.feed.clone());
        Arc::new(Meter::new(self.shared.clone(), outcome, of, request, (spent_on, cause)))
    }

    /// Returns the model of the turn's request, if it is this one.
    pub(super) fn model_of(&self, request: RequestId) -> Option<&str> {
        self.turn.as_ref().filter(|turn| turn.request == request).map(|turn| turn.model.as_str())
    }

    /// Notes that somebody waits for this summary, so that it no longer makes way.
    pub(super) fn hurry(&self, request: RequestId) {
        if let Some(call) = self.summary.as_ref().filter(|call| call.request == request) {
            call.hurry.cancel();
        }
    }

    /// Cancels a request. Dropping the provider's future disconnects the upstream. Returns what was shown.
    pub(super) fn cancel(&mut self, request: RequestId) -> Vec<Part> {
        self.summary.take_if(|call| call.request == request);
        let call = self.turn.take_if(|call| call.request == request);
        let item = call.and_then(|mut call| call.item.take());
        item.map(|item| self.feed.stop(&item)).unwrap_or_default()
    }

    /// Cancels all requests.
    pub(super) fn cancel_all(&mut self) {
        (self.turn, self.summary) = (None, None);
    }
}

/// Shows an answer as it arrives.
struct StreamedAnswer {
    feed: Arc<Feed>,
    /// `None` if a hook may change the answer, so that it is not shown.
    item: Option<EntryId>,
    first: Option<Instant>,
}

impl DeltaSink for StreamedAnswer {
    fn delta(&mut self, delta: Delta<'_>) {
        if let Some(began) = self.first.take() {
            FIRST_DELTA_SECONDS.record([], began.elapsed());
        }
        if let Some(item) = &self.item {
            self.feed.delta(item, delta);
        }
    }
}

/// Reports the outcome of a request to its session, even if the provider panics, because a turn must end.
struct OutcomeReport {
    request: RequestId,
    /// What it is for, as metrics say it.
    purpose: &'static str,
    mailbox: WeakMailbox,
    feed: Arc<Feed>,
    /// The item that shows the answer; `None` if it is not shown.
    item: Option<EntryId>,
    done: bool,
}

impl OutcomeReport {
    async fn send(&mut self, outcome: Result<Answer, ModelFault>) {
        self.done = true;
        let request = self.request;
        let input = match outcome {
            Ok(answer) => Input::Answered { request, answer },
            Err(fault) => self.failed(fault),
        };
        self.mailbox.tell(input).await;
    }

    /// Returns the input for a failure, with the part of the answer that was shown.
    fn failed(&self, fault: ModelFault) -> Input {
        let shown = self.item.as_ref().map(|item| self.feed.stop(item)).unwrap_or_default();
        Input::Failed { request: self.request, fault, shown }
    }
}

impl Drop for OutcomeReport {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        model_left(self.purpose, thread::panicking());
        let message = "the model request ended without an outcome; see the server's log";
        // After a cancellation, the report is a stale response. After a panic, it ends the turn.
        self.mailbox.post(self.failed(ModelFault::new(ErrorCode::Internal, message)));
    }
}
