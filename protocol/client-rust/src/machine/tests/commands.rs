//! Commands: each has one outcome, whatever happens to the connection and the session.

use super::*;
use crate::{
    outbox::{BYTES_MAX, COMMANDS_MAX},
    update::NotTaken,
};
use std::collections::HashSet;

#[test]
fn nothing_goes_out_before_welcome() {
    let mut world = World::new();
    let session = world.machine.open(Some(id("ses")), Opening::default());
    world.send(To::Server, &list());
    world.send(session, &input());
    world.send(session, &rename());
    assert_eq!((world.frames(), world.dials), (vec![], 0), "nobody has asked for a connection");
    world.machine.connect(world.now);
    world.connected();
    assert_eq!(world.frames(), ["hello"]);
    world.event(2);
    world.cut();
    world.reconnect();
    assert_eq!(world.frames(), ["hello", "open_session ses", "list_sessions"]);
    world.opened(json!({"sessionId": "ses"}));
    assert_eq!(world.frames(), ["user_input ses", "rename_session ses"]);
    world.event(2);
    assert_eq!(world.news(), ["disconnected: cut", "connected", "opened 1 at 1", "event 1 2"]);
}

#[test]
fn what_is_sent_again_has_its_id_and_its_order() {
    let (mut world, session) = World::with_session();
    for command in [input(), once(), list(), rename(), input()] {
        let to = if command == list() { To::Server } else { session.into() };
        world.send(to, &command);
    }
    world.drain();
    let ids = |world: &World| -> Vec<_> { world.sent.iter().map(|frame| frame["id"].clone()).collect() };
    let first = ids(&world);
    world.forget_frames();
    world.cut();
    assert_eq!(world.news(), ["take_over_host: lost", "disconnected: cut"]);
    world.reconnect();
    world.opened(json!({"sessionId": "ses", "resumed": "replay"}));
    world.sent.retain(|frame| !["hello", "open_session"].contains(&frame["type"].as_str().unwrap()));
    let second = ids(&world);
    assert_eq!(
        world.frames(),
        ["list_sessions", "user_input ses", "rename_session ses", "user_input ses"],
        "those that need the session come after it",
    );
    assert_eq!(second, [&first[2], &first[0], &first[3], &first[4]].map(Value::clone));
}

#[test]
fn questions_are_asked_again() {
    let table = [
        ("get_entries", json!({})),
        ("get_tree", json!({})),
        ("get_context", json!({})),
        ("get_context_info", json!({})),
        ("search_history", json!({"query": "birds"})),
    ];
    for (name, payload) in table {
        let (mut world, session) = World::with_session();
        let given = world.send(session, &command(name, payload));
        world.forget_frames();
        world.reconnect_after_cut();
        world.opened(json!({"sessionId": "ses", "resumed": "replay"}));
        let asked = world.frames().into_iter().filter(|frame| *frame == format!("{name} ses")).count();
        assert_eq!((asked, &world.newest[name]), (1, &given.to_string().into()), "{name}: once, under the same id");
    }
}

#[test]
fn no_command_overtakes_another_one_of_its_session() {
    for by_id in [false, true] {
        let mut world = World::open();
        let session = world.machine.open(Some(id("ses")), Opening::default());
        let to = |by_id: bool| if by_id { To::Id(id("ses")) } else { To::Session(session) };
        world.send(session, &input());
        world.send(to(by_id), &command("delete_session", json!({})));
        world.send(To::Id(id("other")), &rename());
        assert_eq!(world.frames(), ["open_session ses", "rename_session other"], "by id: {by_id}");
        world.opened(json!({"sessionId": "ses"}));
        assert_eq!(world.frames(), ["user_input ses", "delete_session ses"], "by id: {by_id}");
    }
}

/// States of a session in which a command is given.
#[derive(Debug, Clone, Copy)]
enum State {
    Unknown,
    Creating,
    Open,
    Ended,
    Leaving,
    Closed,
}

#[test]
fn a_command_has_an_outcome_in_every_state_of_its_session() {
    use State::{Closed, Creating, Ended, Leaving, Open, Unknown};
    let table = [
        // The state, the command's frame, its outcome if the session is closed, and otherwise its outcome after a
        // reply.
        (Unknown, input(), None, "user_input: session closed"),
        (Unknown, rename(), None, "rename_session: session closed"),
        (Creating, input(), None, "user_input: session closed"),
        (Creating, rename(), None, "rename_session: session closed"),
        (Open, input(), Some("user_input ses"), "user_input: session closed"),
        (Open, rename(), Some("rename_session ses"), "rename_session: ok"),
        (Ended, input(), None, "user_input: session closed"),
        (Ended, rename(), Some("rename_session ses"), "rename_session: ok"),
        (Leaving, input(), None, "user_input: session closed"),
        (Leaving, rename(), None, "rename_session: session closed"),
        (Closed, input(), None, "user_input: session closed"),
        (Closed, rename(), None, "rename_session: session closed"),
    ];
    for (state, command, frame, outcome) in table {
        let what = format!("{} to a session that is {state:?}", command.name());
        let (mut world, mut session) = World::with_session();
        match state {
            Unknown => session = Session(99),
            Creating | Leaving => session = world.machine.open(None, Opening::default()),
            Open => {}
            Ended => world.closed_by_server("deleted", false),
            Closed => world.machine.close_session(session),
        }
        if matches!(state, Leaving) {
            world.machine.close_session(session);
        }
        world.forget();
        world.send(session, &command);
        assert_eq!(world.frames(), frame.into_iter().collect::<Vec<_>>(), "{what}");
        let name = command.name();
        world.machine.close_session(session);
        if world.machine.unanswered() > 0 {
            world.done(name);
        }
        assert_eq!(world.news(), [outcome], "{what}");
        assert_eq!(world.machine.unanswered(), 0, "{what}");
    }
}

#[test]
fn the_reply_to_a_deletion_may_come_after_the_end_of_the_session() {
    let (mut world, session) = World::with_session();
    world.send(session, &command("delete_session", json!({})));
    world.send(session, &input());
    world.closed_by_server("deleted", false);
    world.done("delete_session");
    assert_eq!(world.news(), ["user_input: session closed", "ended 1: deleted", "delete_session: ok"]);
}

#[test]
fn a_reply_counts_once_and_only_for_what_was_sent() {
    let (mut world, session) = World::with_session();
    world.send(session, &input());
    world.done("user_input");
    world.done("user_input");
    assert_eq!(world.news(), ["user_input: ok"]);

    // It waits for its session, so a frame that claims to answer it is ignored.
    world.closed_by_server("failed", true);
    let waits = world.send(session, &input());
    world.frame(&json!({"re": waits.to_string(), "type": "ok", "payload": {}}));
    assert_eq!((world.news(), world.machine.unanswered()), (vec!["retrying 1: no error".to_owned()], 1));

    // An unreadable reply still counts as a reply.
    world.reconnect_after_cut();
    world.opened(json!({"sessionId": "ses", "resumed": "replay"}));
    world.forget_news();
    world.frame(&json!({"re": waits.to_string(), "type": "ok"}));
    assert_eq!(world.news(), ["user_input: ok"]);
}

#[test]
fn what_is_refused_for_now_stays_if_it_was_sent_before_or_may_be_stored() {
    let table = [
        // The code, whether it is retriable, whether the command was sent before, and whether it stays.
        ("rate_limited", true, true, true),
        ("store_failed", true, true, true),
        ("overloaded", true, true, true),
        ("shutting_down", true, true, true),
        ("rate_limited", false, true, false),
        ("queue_full", true, true, false),
        ("surprise", true, true, false),
        ("store_failed", false, true, false),
        ("store_failed", true, false, true),
        ("shutting_down", true, false, true),
        ("store_failed", false, false, false),
        ("shutting_down", false, false, false),
        ("rate_limited", true, false, false),
        ("overloaded", true, false, false),
        ("queue_full", true, false, false),
        ("no_session", false, false, false),
    ];
    for (code, retriable, again, stays) in table {
        let (mut world, session) = World::with_session();
        let given = world.send(session, &input());
        if again {
            world.reconnect_after_cut();
            world.opened(json!({"sessionId": "ses", "resumed": "replay"}));
        }
        world.forget_news();
        world.refuse("user_input", code, retriable);
        let expected = if stays { vec![] } else { vec![format!("user_input: refused {code}")] };
        assert_eq!(world.news(), expected, "{code}, sent before: {again}");
        if stays {
            world.forget_frames();
            // A later command in the same session waits behind it.
            world.send(session, &once());
            world.send(To::Server, &list());
            assert_eq!(world.frames(), ["list_sessions"]);
            world.pass(Duration::from_secs(2));
            assert_eq!(world.frames(), ["user_input ses", "take_over_host ses"], "{code}");
            assert_eq!(world.newest["user_input"], given.to_string(), "under the same id");
        }
    }
}

#[test]
fn only_a_writing_command_may_be_stored_although_it_was_refused() {
    let table = [
        // Each row has a command, and whether it stays.
        (input(), true),
        (rename(), true),
        (command("tool_result", json!({"toolCallId": "call", "output": "done"})), true),
        (command("get_tree", json!({})), false),
        (command("get_context", json!({})), false),
        (command("preview_compaction", json!({})), false),
        (command("delete_session", json!({})), false),
        (once(), false),
    ];
    for code in ["store_failed", "shutting_down"] {
        for (command, stays) in &table {
            let name = command.name();
            let (mut world, session) = World::with_session();
            world.send(session, command);
            world.refuse(name, code, true);
            let told = if *stays { vec![] } else { vec![format!("{name}: refused {code}")] };
            assert_eq!(world.news(), told, "{name}: {code}");
            world.forget_frames();
            world.pass(Duration::from_secs(2));
            let again = if *stays { vec![format!("{name} ses")] } else { vec![] };
            assert_eq!(world.frames(), again, "{name}: {code}");
        }
    }
}

#[test]
fn a_command_that_may_be_stored_waits_for_the_next_connection_and_for_its_session_on_it() {
    // The wait ends before the session is open again, and after.
    for asked_ms in [0, 10_000] {
        let (mut world, session) = World::with_session();
        let given = world.send(session, &input());
        let error = json!({"code": "shutting_down", "message": "", "retriable": true, "retryAfterMs": asked_ms});
        world.answer("user_input", json!({"type": "error", "payload": error}));
        world.lost(Lost::closed(1012, ""));
        world.forget();
        world.reconnect();
        world.pass(Duration::from_secs(1));
        assert_eq!(world.frames(), ["hello", "open_session ses resume@1"], "{asked_ms} ms");
        world.opened(json!({"sessionId": "ses", "resumed": "replay"}));
        world.pass(Duration::from_secs(10));
        assert_eq!(world.frames(), ["user_input ses"], "{asked_ms} ms");
        assert_eq!(world.newest["user_input"], given.to_string(), "under the same id");
    }
}

#[test]
fn a_command_that_may_be_stored_waits_for_its_session_and_others_of_that_session_wait_behind_it() {
    for closes_first in [false, true] {
        let (mut world, session) = World::with_session();
        world.send(session, &input());
        if closes_first {
            world.closed_by_server("failed", true);
        }
        world.refuse("user_input", "store_failed", true);
        if !closes_first {
            world.closed_by_server("failed", true);
        }
        assert_eq!(world.news(), ["retrying 1: no error"]);
        world.forget_frames();
        world.send(session, &rename());
        world.send(session, &once());
        world.send(To::Server, &list());
        assert_eq!(world.frames(), ["list_sessions"], "the list is about no session");
        world.pass(Duration::from_secs(1));
        assert_eq!(world.frames(), ["open_session ses resume@1"]);
        world.opened(json!({"sessionId": "ses", "resumed": "replay"}));
        assert_eq!(world.frames(), ["user_input ses", "rename_session ses", "take_over_host ses"]);
    }
}

#[test]
fn a_command_that_may_be_stored_has_an_outcome_when_nobody_will_send_it_again() {
    type Ends = fn(&mut World, Session);
    let table: [(Ends, &str); 4] = [
        (|world, session| world.machine.close_session(session), "user_input: session closed"),
        (|world, _| world.closed_by_server("deleted", false), "user_input: session closed"),
        (|world, _| world.machine.close(), "user_input: stopped"),
        (|world, _| world.lost(Lost::closed(4400, "")), "user_input: stopped"),
    ];
    for (ends, outcome) in table {
        let (mut world, session) = World::with_session();
        world.send(session, &input());
        world.refuse("user_input", "store_failed", true);
        world.forget();
        ends(&mut world, session);
        let news = world.news();
        assert!(news.contains(&outcome.to_owned()), "{outcome} is not in {news:?}");
        assert_eq!((world.machine.unanswered(), world.machine.outbox.deadline()), (0, None), "{outcome}");
    }
}

#[test]
fn a_command_is_not_refused_for_now_for_ever() {
    let table = [
        // Each row says whether the command was sent before, its earlier refusals, and its last one.
        (true, "rate_limited", "rate_limited"),
        (false, "store_failed", "store_failed"),
        (false, "shutting_down", "overloaded"),
    ];
    for (again, code, last) in table {
        let (mut world, session) = World::with_session();
        world.send(session, &input());
        if again {
            world.reconnect_after_cut();
            world.opened(json!({"sessionId": "ses", "resumed": "replay"}));
        }
        world.forget_news();
        for _ in 0..5 {
            world.refuse("user_input", code, true);
            assert_eq!(world.news(), Vec::<String>::new(), "{code}");
            world.pass(Duration::from_secs(30));
        }
        world.refuse("user_input", last, true);
        assert_eq!(world.news(), [format!("user_input: refused {last}")]);
    }
}

#[test]
fn a_wait_that_the_server_asks_for_is_kept_and_bounded() {
    for (asked_ms, waited) in [(90_000, 90), (u64::MAX, 3_600)] {
        let (mut world, session) = World::with_session();
        world.send(session, &input());
        world.reconnect_after_cut();
        world.opened(json!({"sessionId": "ses", "resumed": "replay"}));
        let error = json!({"code": "rate_limited", "message": "", "retriable": true, "retryAfterMs": asked_ms});
        world.answer("user_input", json!({"type": "error", "payload": error}));
        world.forget_frames();
        let released = world.machine.outbox.deadline().unwrap() - world.now;
        assert_eq!(released, Duration::from_secs(waited));
        world.now += released;
        world.machine.heard(world.now);
        world.machine.tick(world.now);
        assert!(world.frames().contains(&"user_input ses".to_owned()));
    }
}

#[test]
fn a_command_that_came_too_late_for_its_session_waits_for_it() {
    let (mut world, session) = World::with_session();
    world.send(session, &input());
    world.closed_by_server("failed", true);
    world.refuse("user_input", "no_session", false);
    assert_eq!(world.news(), ["retrying 1: no error"]);
    world.pass(Duration::from_secs(1));
    world.opened(json!({"sessionId": "ses", "resumed": "replay"}));
    assert_eq!(world.frames(), ["user_input ses", "open_session ses resume@1", "user_input ses"]);
}

#[test]
fn what_waits_is_bounded() {
    let mut world = World::new();
    for _ in 0..COMMANDS_MAX {
        world.send(To::Server, &list());
    }
    assert_eq!(world.machine.send(To::Server, &list()), Err(NotTaken::Commands(COMMANDS_MAX)));

    let mut world = World::new();
    let half = RenameSession { name: "x".repeat(BYTES_MAX / 2) };
    let half = Command::RenameSession(half);
    let to = || To::Id(id("ses"));
    world.send(to(), &half);
    assert!(matches!(world.machine.send(to(), &half), Err(NotTaken::Bytes(_))));
    world.send(to(), &rename());
    world.machine.close();
    assert_eq!(world.news(), ["rename_session: stopped", "rename_session: stopped", "stopped: the client was closed"]);

    // Outcomes that nobody polls are bounded too.
    let refused = (0..10_000).find_map(|_| world.machine.send(to(), &rename()).err());
    assert_eq!(refused, Some(NotTaken::Unpolled(crate::machine::UNPOLLED_MAX)));
    world.drain();
    world.machine.connect(world.now);
    world.send(to(), &half);
}

#[test]
fn a_command_that_is_too_large_is_not_sent() {
    let limits = json!({"limits": {"messageBytesMax": 400}});
    let large = Command::RenameSession(RenameSession { name: "x".repeat(400) });
    let mut world = World::new();
    world.machine.connect(world.now);
    world.send(To::Id(id("ses")), &large);
    world.send(To::Id(id("ses")), &rename());
    world.welcome_with(&limits);
    world.send(To::Id(id("ses")), &large);
    assert_eq!(world.frames(), ["hello", "rename_session ses"]);
    assert_eq!(world.news(), ["connected", "rename_session: too large", "rename_session: too large"]);

    // A session whose offers are too large would close every connection.
    let tools = Some(vec![
        serde_json::from_value(json!({"name": "t", "description": "x".repeat(400), "parameters": {}})).unwrap(),
    ]);
    let session = world.machine.open(Some(id("ses")), Opening { tools, ..Opening::default() });
    world.send(session, &input());
    assert_eq!(world.frames(), Vec::<String>::new());
    assert_eq!(world.news(), ["ended 1: too large", "user_input: session closed"]);
}

#[test]
fn the_client_gives_its_own_commands_by_itself() {
    let (mut world, session) = World::with_session();
    for (name, payload) in
        [("hello", json!({"protocolVersion": 2})), ("open_session", json!({})), ("close_session", json!({}))]
    {
        let given = world.machine.send(session, &command(name, payload));
        assert_eq!(given, Err(NotTaken::Own(name)));
    }
    assert_eq!((world.frames(), world.machine.unanswered()), (vec![], 0));
}

#[test]
fn the_ids_of_two_runs_of_a_program_differ() {
    let ids = |seed: u64| -> HashSet<String> {
        let identity = Identity { client_id: "tab-4f2a9c".to_owned(), software: None };
        let mut machine = Machine::new(identity, fastrand::Rng::with_seed(seed));
        (0..20).map(|_| machine.send(To::Server, &list()).unwrap().to_string()).collect()
    };
    let (one, other) = (ids(1), ids(2));
    assert_eq!((one.len(), other.len()), (20, 20));
    assert!(one.is_disjoint(&other));
    assert!(one.iter().all(|id| (16..=64).contains(&id.len())), "as writing commands need");
    let identity = Identity { client_id: "tab-4f2a9c".to_owned(), software: None };
    let mut machine = Machine::new(identity, fastrand::Rng::with_seed(1)).with_command_prefix("0123456789abcdef");
    assert_eq!(machine.send(To::Server, &list()).unwrap().as_str(), "0123456789abcdef-1");
}

#[test]
fn nothing_secret_is_printed() {
    let mut world = World::new();
    world.machine.connect(world.now);
    world.drain();
    world.machine.connected(Credentials::Token("secret".to_owned()));
    world.machine.send(To::Id(id("ses")), &Command::RenameSession(RenameSession { name: "secret".into() })).unwrap();
    let Some(hello) = world.machine.poll() else { panic!("it says nothing") };
    assert!(matches!(&hello, Output::Send(frame) if frame.contains("secret")));
    let (mut told, _) = World::with_session();
    let payload = json!({"name": "secret"});
    let event = json!({"sessionId": "ses", "seq": 2, "type": "session_updated", "payload": payload});
    told.machine.frame(told.now, &event.to_string());
    let Some(update) = told.machine.poll() else { panic!("nothing is told") };
    assert_eq!(format!("{update:?}"), "Tell(Event)");
    for printed in [format!("{hello:?}"), format!("{:?}", world.machine)] {
        assert!(!printed.contains("secret"), "{printed}");
    }
}

#[test]
fn what_is_offered_later_is_offered_again_unless_it_was_refused() {
    type Happens = fn(&mut World);
    let outcomes: [(Happens, &str); 3] = [
        (|world| world.done("register_tools"), "new"),
        (|world| world.refuse("register_tools", "invalid_tools", false), "old"),
        // It may have arrived, and it is the user's latest request.
        (|_| {}, "new"),
    ];
    for (outcome, offered) in outcomes {
        let mut world = World::open();
        let Command::RegisterTools(old) = offer("old") else { panic!("it offers tools") };
        let opening = Opening { tools: Some(old.tools), ..Opening::default() };
        let session = world.machine.open(Some(id("ses")), opening);
        world.opened(json!({"sessionId": "ses"}));
        world.send(session, &offer("new"));
        world.drain();
        outcome(&mut world);
        world.reconnect_after_cut();
        let opens = world.sent.iter().rfind(|frame| frame["type"] == "open_session").unwrap();
        assert_eq!(opens["payload"]["tools"][0]["name"], offered);
    }
}
