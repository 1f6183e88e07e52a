//! The open calls of the running turn: those that run, with their deadlines, and those that wait.
//!
//! Calls run in parallel. The server's calls are limited, so that one answer cannot take the whole machine; a client's
//! are not, since the client knows its own limits. Sequential calls run one after another, in the order of the answer.

use crate::{agent_loop::deadline::Deadline, tool::Terms, tool::ToolPlace};
use reseed_protocol::{CallId, Timestamp};
use std::collections::{BTreeMap, VecDeque};

/// The calls that run or wait.
#[derive(Debug, Default)]
pub(super) struct OpenCalls {
    running: BTreeMap<CallId, Running>,
    /// The number of calls in one answer bounds it.
    waiting: VecDeque<(CallId, Terms)>,
}

#[derive(Debug)]
struct Running {
    terms: Terms,
    deadline: Deadline,
}

impl OpenCalls {
    /// Adds a call that waits for its start.
    pub(super) fn wait(&mut self, call: CallId, terms: Terms) {
        self.waiting.push_back((call, terms));
    }

    /// Takes the next call that may start, while at most `parallel_max` calls run in the server.
    pub(super) fn take_startable(&mut self, parallel_max: usize) -> Option<(CallId, Terms)> {
        let in_server = self.running.values().filter(|call| call.terms.place == ToolPlace::Server).count();
        let has_sequential = self.running.values().any(|call| call.terms.sequential);
        let may_start = |terms: &Terms| {
            let has_room = terms.place == ToolPlace::Client || in_server < parallel_max;
            has_room && !(terms.sequential && has_sequential)
        };
        let at = self.waiting.iter().position(|(_, terms)| may_start(terms))?;
        self.waiting.remove(at)
    }

    /// Notes that a call runs until this deadline.
    pub(super) fn started(&mut self, call: CallId, terms: Terms, deadline: Deadline) {
        self.running.insert(call, Running { terms, deadline });
    }

    /// Removes a call that is over.
    pub(super) fn ended(&mut self, call: &CallId) {
        self.running.remove(call);
        self.waiting.retain(|(waiting, _)| waiting != call);
    }

    /// Forgets all calls.
    pub(super) fn clear(&mut self) {
        self.running.clear();
        self.waiting.clear();
    }

    /// Returns true if this call runs.
    pub(super) fn is_running(&self, call: &CallId) -> bool {
        self.running.contains_key(call)
    }

    /// Extends a call's deadline after progress. Returns the new one.
    pub(super) fn moved(&mut self, call: &CallId, now: Timestamp) -> Option<Timestamp> {
        let running = self.running.get_mut(call)?;
        running.deadline = running.deadline.moved(now);
        Some(running.deadline.at)
    }

    /// Takes the calls whose deadline has passed, with their time limits in milliseconds.
    pub(super) fn take_overdue(&mut self, now: Timestamp) -> Vec<(CallId, u64)> {
        let over = self.running.extract_if(.., |_, call| call.deadline.at <= now);
        over.map(|(id, call)| (id, call.deadline.timeout_ms)).collect()
    }

    /// Returns the next deadline.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.running.values().map(|call| call.deadline.at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::tools::ToolAnnotations;

    fn id(name: &str) -> CallId {
        name.parse().unwrap()
    }

    fn terms(place: ToolPlace, sequential: bool) -> Terms {
        Terms { place, timeout_ms: None, sequential, ends_turn: false, annotations: ToolAnnotations::default() }
    }

    /// Starts the calls that may start, and returns their names.
    fn start(calls: &mut OpenCalls, parallel_max: usize) -> Vec<String> {
        let mut names = Vec::new();
        while let Some((call, terms)) = calls.take_startable(parallel_max) {
            names.push(call.as_str().to_owned());
            calls.started(call, terms, Deadline::after(Timestamp(0), 10));
        }
        names
    }

    #[test]
    fn the_servers_calls_are_bounded_and_sequential_ones_run_one_after_another() {
        let mut calls = OpenCalls::default();
        let server = |sequential| terms(ToolPlace::Server, sequential);
        let client = |sequential| terms(ToolPlace::Client, sequential);
        let made = [
            ("a", server(false)),
            ("b", server(true)),
            ("c", server(true)),
            ("d", server(false)),
            ("e", client(false)),
            ("f", client(true)),
            ("g", server(false)),
        ];
        made.into_iter().for_each(|(name, terms)| calls.wait(id(name), terms));
        assert_eq!(start(&mut calls, 3), ["a", "b", "d", "e"]);
        assert_eq!(start(&mut calls, 3), [""; 0]);
        calls.ended(&id("a"));
        assert_eq!(start(&mut calls, 3), ["g"], "c waits for b, f too");
        calls.ended(&id("b"));
        assert_eq!(start(&mut calls, 3), ["c"]);
        calls.ended(&id("c"));
        assert_eq!(start(&mut calls, 3), ["f"]);
    }

    #[test]
    fn a_call_is_overdue_at_its_deadline_unless_it_makes_progress() {
        let mut calls = OpenCalls::default();
        calls.started(id("a"), terms(ToolPlace::Server, false), Deadline::after(Timestamp(0), 10));
        calls.started(id("b"), terms(ToolPlace::Server, false), Deadline::after(Timestamp(0), 10));
        assert_eq!(calls.moved(&id("b"), Timestamp(5)), Some(Timestamp(15)));
        assert_eq!(calls.next_deadline(), Some(Timestamp(10)));
        assert_eq!(calls.take_overdue(Timestamp(10)), [(id("a"), 10)]);
        assert!(calls.is_running(&id("b")));
        assert_eq!(calls.take_overdue(Timestamp(15)), [(id("b"), 10)]);
    }
}
