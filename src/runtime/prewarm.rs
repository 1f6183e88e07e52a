//! Keeps the provider's cache of a session warm: after a compaction, whose result no request has sent yet, and while
//! the user is away, as long as that is cheaper than to lose the cache ([`crate::core::prewarm`]).
//!
//! It happens only while a client is connected: a session without one rests, and soon leaves memory. A turn that begins
//! cancels the request. A request that would have to wait for a permit is not sent. After a failure, nothing more is
//! sent until the next turn has ended.

use super::{
    measure::model_left,
    metering::{CancelsOnDrop, Meter, MeteredProvider},
    parts::InUse,
    shared::Shared,
};
use crate::{
    core::{
        agent_loop::AgentLoop,
        model::{Delta, ModelRequest},
        prewarm::CacheTerms,
        prices::Price,
    },
    metrics::{PREWARM, PREWARM_SAVED_NANO_USD_TOTAL},
    provider::{DeltaSink, Provider as _},
};
use reseed_protocol::UsageSource;
use serde::Serialize;
use std::{
    future::ready,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};
use tokio::{
    task::AbortHandle,
    time::{Instant, timeout},
};

/// The time limit of a request. It has no answer to wait for.
const TIME_MAX: Duration = Duration::from_secs(60);

/// What the requests of a session have cost and saved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Prewarmed {
    /// How many were answered.
    pub requests: u64,
    /// What they cost, as far as it is known.
    pub cost_nano_usd: u64,
    /// What later requests did not have to write again, as an estimate.
    pub saved_nano_usd: u64,
}

/// The prewarming of one session.
#[derive(Default)]
pub(super) struct Prewarm {
    /// When the last turn ended.
    turn_ended: Option<Instant>,
    /// When the cache was last used; `None` if nothing is to be done.
    used: Option<Instant>,
    /// The time after which it is refreshed.
    period: Duration,
    refreshes: usize,
    /// The terms and the prices of the refreshed request, and its tokens.
    kept: Option<(CacheTerms, Price, u64)>,
    in_turn: bool,
    /// The number of compactions that are accounted for.
    compactions: u64,
    call: Option<Call>,
    outcome: Arc<Mutex<Outcome>>,
}

#[derive(Debug, Default)]
struct Outcome {
    total: Prewarmed,
    has_failed: bool,
}

/// A request in progress, which ends when this is dropped.
struct Call {
    meter: Arc<Meter>,
    task: AbortHandle,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.meter.cancelled();
        self.task.abort();
    }
}

impl Prewarm {
    pub(super) fn new(compactions: u64) -> Self {
        Self { compactions, ..Self::default() }
    }

    /// Returns when [`Self::idle`] must be called again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.used.map(|used| used + self.period)
    }

    /// Returns what the requests have cost and saved, if there were any.
    pub(super) fn total(&self) -> Option<Prewarmed> {
        Some(self.lock().total).filter(|total| total.requests > 0)
    }

    fn lock(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops, because the session is working.
    pub(super) fn busy(&mut self, in_turn: bool) {
        self.call = None;
        if in_turn && !std::mem::replace(&mut self.in_turn, true) {
            // The user came back after the cache would have been lost.
            if let (Some((terms, price, tokens)), Some(ended)) = (self.kept.take(), self.turn_ended)
                && ended.elapsed() > Duration::from_millis(terms.lifetime_ms)
                && self.used.is_some_and(|used| used.elapsed() < Duration::from_millis(terms.lifetime_ms))
                && !self.lock().has_failed
            {
                let saved = terms.saved_nano_usd(price, tokens);
                PREWARM_SAVED_NANO_USD_TOTAL.add([], saved);
                self.lock().total.saved_nano_usd += saved;
            }
            (self.used, self.refreshes) = (None, 0);
            self.lock().has_failed = false;
        }
    }

    /// Lets the cache go, because no client is connected.
    pub(super) fn rest(&mut self) {
        (self.call, self.used) = (None, None);
    }

    /// Sends what is due, because the session is idle. `meter` counts the request.
    pub(super) fn idle(
        &mut self,
        agent: &AgentLoop,
        shared: &Arc<Shared>,
        owner: &Arc<str>,
        meter: impl FnOnce(&ModelRequest) -> Arc<Meter>,
    ) {
        let state = &agent.session().state;
        let has_turned = std::mem::take(&mut self.in_turn);
        let has_compacted = std::mem::replace(&mut self.compactions, state.compactions) < state.compactions;
        let is_due = self.due().is_some_and(|due| due <= Instant::now());
        if !has_turned && !has_compacted && !is_due {
            return;
        }
        let parts = shared.parts.in_use();
        let Some(terms) = parts.provider.cache(&state.model) else {
            self.used = None;
            return;
        };
        self.period = Duration::from_millis(terms.period_ms());
        if has_turned {
            (self.turn_ended, self.used, self.refreshes) = (Some(Instant::now()), Some(Instant::now()), 0);
        }
        let price = parts.deployment.prices.price(&state.model);
        let pays = |price| terms.refresh_pays(price, &agent.rhythm(terms.period_ms()), self.refreshes);
        let refreshes = is_due && !has_turned && price.is_some_and(pays) && !self.lock().has_failed;
        let request = (has_compacted || refreshes).then(|| agent.prewarming());
        match request {
            // No request has sent the compacted context yet.
            Some((request, true)) if has_compacted => {
                self.used = Some(Instant::now());
                let meter = meter(&request);
                self.send(request, parts, shared, owner, meter);
            }
            Some((request, false)) if refreshes => {
                self.kept = price.map(|price| (terms, price, request.envelope.meta.tokens));
                (self.used, self.refreshes) = (Some(Instant::now()), self.refreshes + 1);
                let meter = meter(&request);
                self.send(request, parts, shared, owner, meter);
            }
            _ if is_due => self.used = None,
            _ => {}
        }
    }

    fn send(
        &mut self,
        request: ModelRequest,
        parts: Arc<InUse>,
        shared: &Arc<Shared>,
        owner: &Arc<str>,
        meter: Arc<Meter>,
    ) {
        let (shared, owner, outcome) = (shared.clone(), owner.clone(), self.outcome.clone());
        let metered = meter.clone();
        let task = tokio::spawn(async move {
            let _ends = CancelsOnDrop(metered.clone());
            let permit = tokio::select! {
                biased;
                permit = shared.shares.turns().take(&owner) => permit,
                () = ready(()) => return,
            };
            // Without a budget for it, or if it would have to wait for one, the cache is let go.
            if metered.reserve().await.is_err() {
                outcome.lock().unwrap_or_else(PoisonError::into_inner).has_failed = true;
                return;
            }
            let unanswered = Unanswered(true);
            let provider = MeteredProvider { provider: &*parts.provider, meter: &metered };
            let answer = timeout(TIME_MAX, provider.answer(&request, &mut Silent)).await;
            drop(permit);
            let Ok(answer) = answer else {
                metered.cancelled();
                metered.write_alone();
                outcome.lock().unwrap_or_else(PoisonError::into_inner).has_failed = true;
                return;
            };
            unanswered.answered();
            metered.ended(&request, &answer);
            metered.write_alone();
            let prices = &parts.deployment.prices;
            let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
            match answer {
                Ok(answer) => {
                    let usage = answer.usage.map(|reported| reported.usage(UsageSource::Reported));
                    outcome.total.requests += 1;
                    let cost = usage.and_then(|usage| prices.cost_nano_usd(&request.model, &usage));
                    outcome.total.cost_nano_usd += cost.unwrap_or(0);
                }
                Err(fault) => {
                    tracing::info!(model = request.model, code = %fault.code, "the provider's cache was not refreshed");
                    outcome.has_failed = true;
                }
            }
        });
        self.call = Some(Call { meter, task: task.abort_handle() });
    }
}

/// Counts a request that ends without an answer as cancelled.
struct Unanswered(bool);

impl Unanswered {
    fn answered(mut self) {
        self.0 = false;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if self.0 {
            model_left(PREWARM, thread::panicking());
        }
    }
}

/// Nothing is shown of a request without an answer.
struct Silent;

impl DeltaSink for Silent {
    fn delta(&mut self, _: Delta<'_>) {}
}
