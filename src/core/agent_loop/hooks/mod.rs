//! The hooks machine: decides which hooks are called at a point, in what order and for how long, and applies their
//! answers.
//!
//! Inputs: a hook's answer or failure; the arrival or departure of a client that hosts hooks; the commands
//! `register_hooks` and `hook_result`; the steps `Ask`, `AfterHooks`, `HookFailed`, `HookLate`, `AfterInput` and
//! `NextInLine`.
//!
//! Outputs: the effects that call a hook and cancel the call; `hook_failed`; the entries and patches that hooks add;
//! the answer that they have passed; the steps `Ask`, `AfterHooks`, `HookFailed` and `HookLate`, and those by which the
//! subject continues: `Proceed`, `Send`, `EndTurn`, `AfterInput`, `NextInLine` and `Command`.
//!
//! A [`Chain`] passes one subject through all hooks of a point, one after the other: each sees the subject as the
//! earlier ones left it. The [`Subject`] is what the hooks inspect. The kernel (`kernel/hooks.rs`) asks a machine to
//! describe it, and returns it to that machine when the last hook has answered.
//!
//! - `chain`: a subject in progress; `input`: the line of inputs behind the one that hooks inspect
//! - `request`: the start of a turn, the envelope before and after a request
//!
//! `roster` decides which hooks are called.
//!
//! Without registered hooks, none of this runs and no value is built for it.

pub(crate) mod chain;
pub(crate) mod input;
pub(crate) mod request;

use crate::agent_loop::hooks::chain::{Chain, InLine, InputChains};
use crate::agent_loop::io::{CallHook, Caller, Effect};
use crate::agent_loop::{
    ledger::Ledger, records::done, roster::Roster, step::Step, subject::Subject, subject::navigation::ProposedMove,
};
use crate::{
    fingerprint::fingerprint_of,
    hook::{HookFault, HookPlace, HookSpec},
};
use reseed_protocol::{
    CallId, CommandId, ErrorBody, ErrorCode, Timestamp,
    hooks::{HookAnswer, HookCall, HookResult},
    tools::CallOutcome,
};
use std::{collections::VecDeque, sync::Arc};

/// The hook chains in progress.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    /// At most one chain that the turn or the session waits for, one for the running compaction, one for an input, and
    /// one per tool answer being inspected.
    chains: Vec<Chain>,
    /// Commands in line behind the input being inspected, in the order of arrival.
    line: VecDeque<InLine>,
}

impl Hooks {
    /// Returns true if no hook's answer is pending.
    pub(crate) fn is_quiet(&self) -> bool {
        self.chains.is_empty()
    }

    /// Returns true if the turn or the session waits for a chain.
    pub(crate) fn are_awaited(&self) -> bool {
        self.chains.iter().any(|chain| chain.subject.is_awaited())
    }

    /// Returns true if hooks are inspecting the running compaction.
    pub(crate) fn looks_at_compaction(&self) -> bool {
        self.chains.iter().any(|chain| matches!(chain.subject, Subject::Compaction(_)))
    }

    /// Returns the move that hooks are inspecting.
    pub(crate) fn proposed_move(&self) -> Option<&ProposedMove> {
        self.chains.iter().find_map(|chain| match &chain.subject {
            Subject::Navigation(proposed) => Some(&**proposed),
            _ => None,
        })
    }

    /// Returns the senders of commands that wait for hooks or in line. Later commands may be answered first.
    pub(crate) fn callers(&mut self) -> impl Iterator<Item = &mut Caller> {
        let asked = self.chains.iter_mut().filter_map(|chain| match &mut chain.subject {
            Subject::Navigation(proposed) => Some(&mut proposed.caller),
            Subject::Result(result) => result.caller.as_mut(),
            Subject::Input(offered) => Some(&mut offered.caller),
            _ => None,
        });
        asked.chain(self.line.iter_mut().map(|waiting| &mut waiting.caller))
    }

    pub(crate) fn new(carried: InputChains) -> Self {
        Self { chains: carried.asked.into_iter().collect(), line: carried.line }
    }

    pub(crate) fn into_carried(self) -> InputChains {
        InputChains { asked: self.chains.into_iter().find(Chain::is_of_input), line: self.line }
    }

    /// Waits for the answer to this chain's open call.
    pub(crate) fn wait_for(&mut self, chain: Chain) {
        self.chains.push(chain);
    }

    /// Takes the chain that waited for this answer or failure. Returns `None` if none did, or if its client may return.
    pub(crate) fn hear(
        &mut self,
        ledger: &mut Ledger,
        call_id: &CallId,
        answer: Result<HookAnswer, HookFault>,
    ) -> Option<(Chain, Result<HookAnswer, HookFault>)> {
        let at = self.chains.iter().position(|chain| chain.call_id() == *call_id)?;
        let answer = match self.chains[at].open.place {
            HookPlace::Client => answer,
            // Only a client can be away: a server hook that does not answer has failed.
            HookPlace::Server => answer.map_err(|fault| match fault.code {
                ErrorCode::HookUnavailable => HookFault::failed(fault.message),
                _ => fault,
            }),
        };
        if let Err(fault) = &answer
            && fault.code == ErrorCode::HookUnavailable
        {
            let open = &mut self.chains[at].open;
            if open.spec.required {
                open.leaves(ledger.now);
                if ledger.now < open.due() {
                    // The client may return and is then called again.
                    return None;
                }
            }
        }
        let chain = self.chains.remove(at);
        if let Err(fault) = &answer {
            let is_late = fault.code == ErrorCode::HookTimeout;
            chain
                .open
                .note_unanswered(&mut ledger.ended, if is_late { CallOutcome::TimedOut } else { CallOutcome::Dropped });
        }
        Some((chain, answer))
    }

    /// Replies to a client's answer. Returns the answer, unless it is a duplicate of the one that was taken.
    ///
    /// # Errors
    /// `unknown_call`; `too_late`.
    pub(crate) fn on_result(
        &self,
        ledger: &mut Ledger,
        roster: &Roster,
        caller: &Caller,
        result: HookResult,
    ) -> Result<Option<(CallId, HookAnswer)>, ErrorBody> {
        let sent = fingerprint_of(&result);
        let (call_id, answer) = result.into_answer();
        let is_open = self.chains.iter().any(|chain| {
            chain.call_id() == call_id && chain.open.place == HookPlace::Client && !chain.has_left(roster)
        });
        if !is_open {
            if ledger.ended.get(&call_id).is_some_and(|(_, answer)| answer == Some(sent)) {
                ledger.reply_duplicate(caller);
                return Ok(None);
            }
            return Err(ledger.ended.late_for_hook(&call_id));
        }
        ledger.ended.note(call_id.clone(), CallOutcome::Answered, Some(sent));
        ledger.reply(caller, done(None));
        Ok(Some((call_id, answer)))
    }

    /// Returns the pending calls to client hooks that the connected client could answer.
    pub(crate) fn open_client_calls(&self, roster: &Roster) -> Vec<HookCall> {
        let of_client = self.chains.iter().filter(|chain| chain.open.place == HookPlace::Client);
        let of_client = of_client.filter(|chain| !chain.has_left(roster));
        of_client
            .map(|chain| HookCall { deadline: Some(chain.open.deadline.at), ..(*chain.open.call).clone() })
            .collect()
    }

    /// Returns true if a pending hook's client is away.
    pub(crate) fn waits_for_client(&self) -> bool {
        self.chains.iter().any(|chain| chain.open.away_since.is_some())
    }

    /// Returns true if an answer to this call is still awaited.
    pub(crate) fn waits_for_hook(&self, call_id: &CallId) -> bool {
        self.chains.iter().any(|chain| chain.open.call.call_id == *call_id)
    }

    /// Replaces the hooks that the host offers.
    pub(crate) fn on_hooks_offered(&self, ledger: &mut Ledger, roster: &mut Roster, hooks: Arc<[HookSpec]>) {
        // Calls in progress continue; the new hooks are used from the next chain on.
        roster.offer(hooks);
        roster.keep_for_work(ledger);
        let gone: Vec<CallId> = self.chains.iter().filter(|chain| chain.has_left(roster)).map(Chain::call_id).collect();
        for call_id in gone {
            let fault = HookFault::unavailable("its client no longer offers it");
            ledger.then(Step::HookLate { call_id, is_sent: false, fault });
        }
    }

    /// Sends pending calls to the connected client again, under their ids: all of them, or only those whose client was
    /// away. A client that offers a hook takes over the absent client's calls to it. Calls to hooks that it does not
    /// offer are not sent to it.
    pub(crate) fn ask_again(&mut self, ledger: &mut Ledger, roster: &Roster, only_away: bool) {
        for chain in &mut self.chains {
            let open = &mut chain.open;
            let is_offered = roster.is_offered(&open.spec);
            if open.place != HookPlace::Client || !is_offered || (only_away && open.away_since.is_none()) {
                continue;
            }
            open.returns(ledger.now);
            open.is_sent = true;
            let call = HookCall { deadline: Some(open.deadline.at), ..(*open.call).clone() };
            let place = HookPlace::Client;
            ledger.push(Effect::CallHook(Box::new(CallHook { place, call, awaited: true })));
        }
    }

    /// Handles progress of a client hook: restarts its time limit, up to its hard cap. Returns `None` if no call has
    /// this id.
    pub(crate) fn on_hook_progress(&mut self, now: Timestamp, call_id: &CallId) -> Option<Timestamp> {
        let of_client = |chain: &&mut Chain| chain.open.place == HookPlace::Client;
        let chain = self.chains.iter_mut().filter(of_client).find(|chain| chain.call_id() == *call_id)?;
        // Progress shows that the client is back.
        chain.open.returns(now);
        chain.open.deadline = chain.open.deadline.moved(now);
        Some(chain.open.deadline.at)
    }

    /// Returns the earliest deadline of a pending hook.
    pub(crate) fn next_hook_deadline(&self) -> Option<Timestamp> {
        self.chains.iter().map(|chain| chain.open.due()).min()
    }

    /// Fails the hooks whose deadline has passed.
    pub(crate) fn on_hook_tick(&self, ledger: &mut Ledger) {
        let over = |chain: &&Chain| chain.open.due() <= ledger.now;
        let told = |chain: &Chain| (chain.call_id(), chain.open.is_sent, chain.open.late());
        let over: Vec<(CallId, bool, HookFault)> = self.chains.iter().filter(over).map(told).collect();
        for (call_id, is_sent, fault) in over {
            ledger.then(Step::HookLate { call_id, is_sent, fault });
        }
    }

    /// Cancels the chains whose subject matches, and returns their subjects.
    pub(crate) fn cancel_hooks(&mut self, ledger: &mut Ledger, is_such: impl Fn(&Subject) -> bool) -> Vec<Subject> {
        let (gone, rest) = std::mem::take(&mut self.chains).into_iter().partition(|chain| is_such(&chain.subject));
        self.chains = rest;
        let gone: Vec<Chain> = gone;
        gone.into_iter()
            .map(|chain| {
                if chain.open.is_sent {
                    ledger.push(Effect::CancelHook(chain.call_id()));
                }
                chain.open.note_unanswered(&mut ledger.ended, CallOutcome::Dropped);
                chain.subject
            })
            .collect()
    }

    /// Cancels the hooks of the running compaction, which is ending.
    pub(crate) fn cancel_compaction_hooks(&mut self, ledger: &mut Ledger) {
        let _ = self.cancel_hooks(ledger, |subject| matches!(subject, Subject::Compaction(_)));
    }

    /// Returns the fingerprint of this call's answer that hooks are inspecting, as the tool gave it.
    pub(crate) fn inspected_answer(&self, call: &CallId) -> Option<u64> {
        self.chains.iter().find_map(|chain| match &chain.subject {
            Subject::Result(result) if result.call.call_id == *call => Some(result.sent),
            _ => None,
        })
    }

    /// Returns the commands whose tool answers hooks are inspecting.
    pub(crate) fn results_looked_at(&self) -> impl Iterator<Item = &CommandId> {
        self.chains.iter().filter_map(|chain| match &chain.subject {
            Subject::Result(result) => result.caller.as_ref().map(|caller| &caller.id),
            _ => None,
        })
    }

    /// Drops the answers that hooks are still inspecting when the turn ends. Returns their senders and calls.
    pub(crate) fn drop_looked_at(&mut self, ledger: &mut Ledger) -> Vec<(Caller, CallId)> {
        let dropped = self.cancel_hooks(ledger, |subject| matches!(subject, Subject::Result(_)));
        let caller = |subject| match subject {
            Subject::Result(result) => {
                let (caller, call) = (result.caller, result.call);
                caller.map(|caller| (caller, call.call_id))
            }
            _ => None,
        };
        dropped.into_iter().filter_map(caller).collect()
    }
}

#[cfg(test)]
mod tests;
