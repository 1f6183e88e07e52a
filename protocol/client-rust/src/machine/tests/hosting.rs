//! Calls of tools and hooks: each runs once, and is answered as long as somebody waits for it.

use super::*;
use crate::hosting::{Calls, Task};
use reseed_protocol::hooks::HookAnswer;

/// A client that hosts one session.
struct Host {
    world: World,
    calls: Calls,
}

impl Host {
    fn new() -> Self {
        let (world, session) = World::with_session();
        Self { world, calls: Calls::new(session) }
    }

    /// Returns a short description of the tasks for the updates since the last time.
    fn tasks(&mut self) -> Vec<String> {
        self.world.drain();
        let told = std::mem::take(&mut self.world.told);
        let take = |update: &Update| self.calls.take(&mut self.world.machine, update);
        told.iter().flat_map(take).map(words).collect()
    }

    /// Announces a tool call to everyone.
    fn called(&mut self, seq: u64, call: &str) {
        let payload = json!({
            "toolCallId": call, "turnId": "turn", "name": "weather", "arguments": "{}",
            "deadline": "2026-11-21T09:16:00Z",
        });
        self.world.frame(&json!({"sessionId": "ses", "seq": seq, "type": "tool_call", "payload": payload}));
    }

    fn resolved(&mut self, seq: u64, call: &str) {
        let payload = json!({"toolCallId": call, "outcome": "answered"});
        self.world.frame(&json!({"sessionId": "ses", "seq": seq, "type": "call_resolved", "payload": payload}));
    }

    fn told(&mut self, name: &str, payload: Value) {
        self.world.frame(&json!({"sessionId": "ses", "type": name, "payload": payload}));
    }

    fn run(&mut self, call: &str) {
        self.told("run_tool", json!({"toolCallId": call, "again": true}));
    }

    fn hook(&mut self, call: &str, observes: bool) {
        let mut hooked = example("events/hook_call.message.json");
        (hooked["sessionId"], hooked["payload"]["hookCallId"]) = (json!("ses"), json!(call));
        if observes {
            hooked["payload"].as_object_mut().unwrap().remove("deadline");
        }
        self.world.frame(&hooked);
    }

    fn answer(&mut self, call: &str) {
        self.calls.answer_tool(&mut self.world.machine, &id(call), "rain", false).expect("there is room");
    }

    fn answer_hook(&mut self, call: &str) {
        let answered = self.calls.answer_hook(&mut self.world.machine, &id(call), HookAnswer::default());
        answered.expect("there is room");
    }
}

fn words(task: Task) -> String {
    match task {
        Task::RunTool(call) => format!("run {} {}", call.name, call.call_id),
        Task::RunHook(call) => format!("run hook {}", call.call_id),
        Task::Abort(call) => format!("abort {call}"),
        Task::Unanswered { call, why } => format!("unanswered {call}: {why}"),
    }
}

#[test]
fn a_tool_runs_once_and_when_this_client_is_asked() {
    let mut host = Host::new();
    host.called(2, "one");
    assert_eq!(host.tasks(), Vec::<String>::new(), "everybody is told of a call");
    host.run("one");
    host.run("one");
    host.run("nobody's");
    assert_eq!(host.tasks(), ["run weather one"]);
    host.answer("one");
    assert_eq!(host.world.frames(), ["tool_result ses"]);
    host.run("one");
    assert_eq!(
        (host.tasks(), host.world.frames()),
        (vec![], vec!["tool_result ses".to_owned()]),
        "it is answered again"
    );
    host.world.done("tool_result");
    host.run("one");
    assert_eq!((host.tasks(), host.world.frames().len()), (vec![], 1), "until the call is resolved");
    host.resolved(3, "one");
    host.run("one");
    assert_eq!(host.tasks(), Vec::<String>::new());
    host.answer("one");
    assert_eq!(host.world.frames(), Vec::<String>::new());
}

#[test]
fn what_nobody_waits_for_is_aborted_and_not_answered() {
    type Happens = fn(&mut Host);
    let table: [(&str, Happens); 5] = [
        ("it is cancelled", |host| {
            host.told(
                "tool_cancelled",
                json!({"toolCallId": "one", "name": "weather", "turnId": "turn", "outcome": "timed_out"}),
            )
        }),
        ("somebody else has answered", |host| host.resolved(3, "one")),
        ("a snapshot has it no more", |host| {
            host.world.reconnect_after_cut();
            host.world.opened(json!({"sessionId": "ses", "resumed": "snapshot"}));
        }),
        ("the session is deleted", |host| host.world.closed_by_server("deleted", false)),
        ("a hook is cancelled", |host| {
            host.hook("hook", false);
            assert_eq!(host.tasks(), ["run hook hook"]);
            host.told("hook_cancelled", json!({"hookCallId": "hook", "outcome": "dropped"}));
        }),
    ];
    for (what, happens) in table {
        let mut host = Host::new();
        host.called(2, "one");
        host.run("one");
        assert_eq!(host.tasks(), ["run weather one"]);
        happens(&mut host);
        let call = if what.contains("hook") { "hook" } else { "one" };
        assert_eq!(host.tasks(), [format!("abort {call}")], "{what}");
        host.world.forget();
        host.answer(call);
        assert_eq!(host.world.frames(), Vec::<String>::new(), "{what}");
    }
}

#[test]
fn a_call_goes_on_while_the_connection_is_lost() {
    let mut host = Host::new();
    host.called(2, "one");
    host.run("one");
    host.hook("hook", false);
    assert_eq!(host.tasks(), ["run weather one", "run hook hook"]);
    host.answer_hook("hook");
    host.world.drain();
    host.world.cut();
    host.answer("one");
    host.world.reconnect();
    host.world.opened(json!({"sessionId": "ses", "asOfSeq": 2, "resumed": "replay"}));
    host.run("one");
    // The answer may not have arrived, and it is not resent automatically.
    host.hook("hook", false);
    assert_eq!(host.tasks(), Vec::<String>::new());
    let results = host.world.frames().into_iter().filter(|frame| frame.contains("result")).collect::<Vec<_>>();
    // The first hook's answer was sent before the cut.
    assert_eq!(results, ["hook_result ses", "tool_result ses", "tool_result ses", "hook_result ses"]);
    host.world.done("hook_result");
    host.hook("hook", false);
    assert_eq!((host.tasks(), host.world.frames()), (vec![], vec![]), "it was accepted");
}

#[test]
fn an_answer_that_is_not_accepted_is_told_of() {
    for (code, expected) in [
        ("invalid_field", vec!["unanswered one: invalid_field"]),
        ("rate_limited", vec!["unanswered one: rate_limited"]),
        ("too_late", vec![]),
        ("unknown_call", vec![]),
    ] {
        let mut host = Host::new();
        host.called(2, "one");
        host.run("one");
        host.tasks();
        host.answer("one");
        host.world.refuse("tool_result", code, false);
        assert_eq!(host.tasks(), expected, "{code}");
        host.world.forget();
        host.answer("one");
        assert_eq!(host.world.frames(), ["tool_result ses"], "another answer may be given");
    }
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut host = Host::new();
    for number in 0..2_000 {
        host.hook(&format!("hook-{number}"), true);
    }
    assert_eq!(host.tasks().len(), 2_000, "what only observes has ended when it is told of");
    for number in 0..2_000 {
        host.hook(&format!("other-{number}"), false);
    }
    assert_eq!(host.tasks().len(), 1_024);
    for number in 0..1_024 {
        host.answer_hook(&format!("other-{number}"));
        host.world.done("hook_result");
    }
    host.tasks();
    assert_eq!(host.calls.stop(), Vec::<Task>::new(), "nothing runs");
}
