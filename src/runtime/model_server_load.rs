//! Detects a model server that works on one request at a time. A background summary then makes way for a user's
//! request.
//!
//! Otherwise a user would wait for the end of a summary that nobody needs yet. So the summary is held back while a
//! turn's request is at the server, and withdrawn when one comes. It is requested again once the server is free. A
//! summary that somebody waits for never makes way.
//!
//! Either the server itself reports the number of its slots ([`Slots`]), or its behaviour shows it. If a turn's first
//! word comes in the middle of a summary, the server works on both. If the word comes after the summary, and much later
//! than usual, the turn has waited behind it. This wait counts as a pause of the session. One such wait may be a hard
//! question that took its time, but two in a row show that the server has one slot.

use crate::provider::Slots;
use reseed_protocol::SessionId;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

/// The shortest wait behind a summary that indicates a single slot.
const WAIT_MIN: Duration = Duration::from_secs(1);
/// The factor by which a turn's wait until the summary ended must exceed the usual time.
const WAIT_TIMES: u32 = 2;
/// How many turns in a row must wait behind a summary to conclude that there is one slot.
const WAITS_TO_LEARN: u32 = 2;

/// The requests in progress at the model server.
#[derive(Debug)]
pub(super) struct ModelServerLoad {
    state: Mutex<State>,
    /// True while a user wants a server that works on one request at a time.
    wanted: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    slots: Slots,
    /// True if the server itself reported it. Observations do not change it then.
    is_reported: bool,
    next: u64,
    turns: BTreeMap<u64, Turn>,
    summaries: BTreeMap<u64, Summary>,
    /// A turn's usual time to the first word, while there is no summary.
    usual: Option<Duration>,
    /// How many of the latest turns that met a summary seem to have waited behind it, without a break.
    waits: u32,
}

#[derive(Debug)]
struct Turn {
    session: SessionId,
    since: Instant,
    /// True once its first word has come.
    speaks: bool,
    /// True if it waited because the server asked for that. Its time then says nothing about summaries.
    delayed: bool,
    /// True if a summary was at the server at any time before its first word.
    met: bool,
    /// When the last summary that it may have waited behind ended, and whether that was a summary of its own session.
    behind: Option<(Instant, bool)>,
    /// How long it has waited behind a summary of its session.
    waited: Option<Duration>,
}

#[derive(Debug)]
struct Summary {
    session: SessionId,
    speaks: bool,
    /// True if a turn's first word came while the summary was being written.
    spoken_beside: bool,
}

impl ModelServerLoad {
    pub(super) fn new(told: Slots) -> Arc<Self> {
        let (turns, summaries) = (BTreeMap::new(), BTreeMap::new());
        let state = State {
            slots: told,
            is_reported: told != Slots::Unknown,
            next: 0,
            turns,
            summaries,
            usual: None,
            waits: 0,
        };
        Arc::new(Self { state: Mutex::new(state), wanted: watch::Sender::new(false) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before the lock is released.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and notifies those who wait for the server.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let changed = change(&mut state);
        let wanted = state.slots == Slots::One && !state.turns.is_empty();
        // Sent within the lock, so that the newest value stays.
        self.wanted.send_if_modified(|told| std::mem::replace(told, wanted) != wanted);
        changed
    }

    /// Records that a turn's request goes to the server.
    pub(super) fn turn(self: &Arc<Self>, session: SessionId) -> TurnRequest {
        let id = self.change(|state| state.turn(session, Instant::now()));
        TurnRequest { load: self.clone(), id }
    }

    /// Records that a request for a summary goes to the server.
    pub(super) fn summary(self: &Arc<Self>, session: SessionId) -> SummaryRequest {
        let id = self.change(|state| state.summary(session));
        SummaryRequest { load: self.clone(), id }
    }

    /// Returns true if a user wants a server that works on one request at a time.
    pub(super) fn is_wanted(&self) -> bool {
        *self.wanted.borrow()
    }

    /// Waits until a user wants the server, or until no user does.
    pub(super) async fn until(&self, wanted: bool) {
        // The sender lives as long as `self`.
        let _ = self.wanted.subscribe().wait_for(|now| *now == wanted).await;
    }
}

impl State {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn turn(&mut self, session: SessionId, now: Instant) -> u64 {
        let (id, met) = (self.next(), !self.summaries.is_empty());
        self.turns
            .insert(id, Turn { session, since: now, speaks: false, delayed: false, met, behind: None, waited: None });
        id
    }

    fn summary(&mut self, session: SessionId) -> u64 {
        let id = self.next();
        self.summaries.insert(id, Summary { session, speaks: false, spoken_beside: false });
        self.turns.values_mut().filter(|turn| !turn.speaks).for_each(|turn| turn.met = true);
        id
    }

    fn summary_speaks(&mut self, id: u64) {
        let Some(summary) = self.summaries.get_mut(&id) else { return };
        if summary.spoken_beside && !self.is_reported && self.slots != Slots::Several {
            tracing::info!("the model server works on several requests at a time");
            self.slots = Slots::Several;
        }
        summary.speaks = true;
    }

    fn summary_ends(&mut self, id: u64, now: Instant) {
        let Some(summary) = self.summaries.remove(&id) else { return };
        for turn in self.turns.values_mut().filter(|turn| !turn.speaks) {
            turn.behind = Some((now, turn.session == summary.session));
        }
    }

    fn turn_speaks(&mut self, id: u64, now: Instant) {
        let Some(turn) = self.turns.get_mut(&id).filter(|turn| !turn.speaks) else { return };
        turn.speaks = true;
        if turn.delayed {
            return;
        }
        for summary in self.summaries.values_mut().filter(|summary| summary.speaks) {
            summary.spoken_beside = true;
        }
        let took = now.duration_since(turn.since);
        if !turn.met {
            self.usual = Some(self.usual.map_or(took, |usual| (usual * 3 + took) / 4));
            return;
        }
        let (Some((ended, is_own)), Some(usual)) = (turn.behind, self.usual) else {
            self.waits = 0;
            return;
        };
        let (waited, after) = (ended.duration_since(turn.since), now.duration_since(ended));
        let shows = waited >= WAIT_MIN.max(usual * WAIT_TIMES) && after <= waited && self.summaries.is_empty();
        if !shows || self.slots == Slots::Several {
            self.waits = 0;
            return;
        }
        self.waits += 1;
        if self.slots == Slots::One || self.waits >= WAITS_TO_LEARN {
            turn.waited = is_own.then_some(waited);
        }
        if self.slots == Slots::Unknown && self.waits >= WAITS_TO_LEARN {
            self.slots = Slots::One;
            tracing::warn!(
                waited_millis = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
                "a user waited behind a summary: the model server works on one request at a time; summaries in the \
                 background make way from now on"
            );
        }
    }
}

/// A turn's request at the server. Dropping it ends the request.
#[derive(Debug)]
pub(super) struct TurnRequest {
    load: Arc<ModelServerLoad>,
    id: u64,
}

impl TurnRequest {
    /// Records that a piece of the answer has come.
    pub(super) fn speaks(&self) {
        self.load.change(|state| state.turn_speaks(self.id, Instant::now()));
    }

    /// Records that the server has deferred the request, so that it is sent again later.
    pub(super) fn delayed(&self) {
        self.load.change(|state| {
            if let Some(turn) = state.turns.get_mut(&self.id) {
                turn.delayed = true;
            }
        });
    }

    /// Returns how long it has waited behind a summary of its session.
    pub(super) fn waited(&self) -> Option<Duration> {
        self.load.lock().turns.get(&self.id)?.waited
    }
}

impl Drop for TurnRequest {
    fn drop(&mut self) {
        self.load.change(|state| state.turns.remove(&self.id));
    }
}

/// A request for a summary at the server. Dropping it ends the request.
#[derive(Debug)]
pub(super) struct SummaryRequest {
    load: Arc<ModelServerLoad>,
    id: u64,
}

impl SummaryRequest {
    /// Records that a piece of the summary has come.
    pub(super) fn speaks(&self) {
        self.load.change(|state| state.summary_speaks(self.id));
    }
}

impl Drop for SummaryRequest {
    fn drop(&mut self) {
        self.load.change(|state| state.summary_ends(self.id, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(name: &str) -> SessionId {
        name.parse().unwrap()
    }

    async fn after(secs: u64) {
        tokio::time::advance(Duration::from_secs(secs)).await;
    }

    /// Runs a turn alone that takes this long to its first word.
    async fn usual(load: &Arc<ModelServerLoad>, secs: u64) {
        let turn = load.turn(session("a"));
        after(secs).await;
        turn.speaks();
    }

    /// Runs a turn during a summary of another session or its own, which ends after `waits`. The turn's first word
    /// comes `then` later. Returns how long it has waited.
    async fn behind(load: &Arc<ModelServerLoad>, of: &str, waits: u64, then: u64) -> Option<u64> {
        let summary = load.summary(session(of));
        summary.speaks();
        let turn = load.turn(session("a"));
        after(waits).await;
        drop(summary);
        after(then).await;
        turn.speaks();
        turn.waited().map(|waited| waited.as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn one_slot_is_learnt_from_two_turns_that_waited_behind_a_summary() {
        for (name, told, of, usually, waits, learnt, paused) in [
            ("its own", Slots::Unknown, "a", Some(3), &[(180, 4), (180, 4)][..], Slots::One, Some(180)),
            ("another's", Slots::Unknown, "b", Some(3), &[(180, 4), (90, 4)], Slots::One, None),
            ("known already", Slots::One, "a", Some(3), &[(180, 4)], Slots::One, Some(180)),
            ("once may be chance", Slots::Unknown, "a", Some(3), &[(180, 4)], Slots::Unknown, None),
            ("not in a row", Slots::Unknown, "a", Some(3), &[(180, 4), (5, 1), (180, 4)], Slots::Unknown, None),
            ("not longer than usual", Slots::Unknown, "a", Some(3), &[(5, 1); 3], Slots::Unknown, None),
            ("no word after it either", Slots::Unknown, "a", Some(3), &[(10, 11); 3], Slots::Unknown, None),
            ("nothing is usual yet", Slots::Unknown, "a", None, &[(180, 4); 3], Slots::Unknown, None),
            ("too short to tell", Slots::Unknown, "a", Some(0), &[(0, 1); 3], Slots::Unknown, None),
            ("several are known", Slots::Several, "a", Some(3), &[(180, 4); 3], Slots::Several, None),
        ] {
            let load = ModelServerLoad::new(told);
            if let Some(usually) = usually {
                usual(&load, usually).await;
            }
            let mut waited = None;
            for &(waits, then) in waits {
                waited = behind(&load, of, waits, then).await;
            }
            assert_eq!((load.lock().slots, waited), (learnt, paused), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_was_asked_to_wait_shows_nothing() {
        let load = ModelServerLoad::new(Slots::Unknown);
        usual(&load, 2).await;
        for _ in 0..3 {
            let summary = load.summary(session("a"));
            let turn = load.turn(session("a"));
            turn.delayed();
            after(20).await;
            drop(summary);
            after(11).await;
            turn.speaks();
            let waited = turn.waited();
            assert_eq!((load.lock().slots, waited), (Slots::Unknown, None));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn several_slots_are_learnt_from_a_word_in_the_middle_of_a_summary() {
        for (speaks_before, speaks_after, expected) in
            [(true, true, Slots::Several), (true, false, Slots::Unknown), (false, true, Slots::Unknown)]
        {
            let load = ModelServerLoad::new(Slots::Unknown);
            usual(&load, 1).await;
            let summary = load.summary(session("a"));
            if speaks_before {
                summary.speaks();
            }
            let turn = load.turn(session("a"));
            turn.speaks();
            if speaks_after {
                summary.speaks();
            }
            assert_eq!(load.lock().slots, expected, "{speaks_before} {speaks_after}");
            if expected == Slots::Several {
                assert_eq!(behind(&load, "a", 180, 1).await, None, "that is sure");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_slot_is_wanted_while_a_turn_is_there() {
        for told in [Slots::One, Slots::Several, Slots::Unknown] {
            let load = ModelServerLoad::new(told);
            let turns = [load.turn(session("a")), load.turn(session("b"))];
            assert_eq!(load.is_wanted(), told == Slots::One);
            let [first, second] = turns;
            drop(first);
            assert_eq!(load.is_wanted(), told == Slots::One);
            drop(second);
            load.until(false).await;
            assert!(!load.is_wanted());
        }
    }
}
