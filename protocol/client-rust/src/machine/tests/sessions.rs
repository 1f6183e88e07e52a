//! Sessions: opened on each connection exactly where they were, until they end.

use super::*;
use reseed_protocol::session::SessionRole;

fn refusal(code: &str) -> (&str, bool) {
    (code, ["overloaded", "store_failed"].contains(&code))
}

#[test]
fn events_are_told_in_order_and_once() {
    let (mut world, session) = World::with_session();
    for seq in [1, 2, 2, 3, 1, 3, 4] {
        world.event(seq);
    }
    world.frame(&json!({"sessionId": "ses", "type": "surprise", "payload": {}}));
    assert_eq!(world.news(), ["event 1 2", "event 1 3", "event 1 4", "event 1 surprise"]);
    assert_eq!(world.machine.snapshot(session).unwrap().name, "at 4");
}

#[test]
fn a_gap_is_mended_by_a_resume_and_the_next_one_by_a_snapshot() {
    let (mut world, session) = World::with_session();
    world.event(4);
    assert_eq!(world.frames(), ["close_session ses", "open_session ses resume@1"]);
    // These belong to the subscription that was given up.
    world.event(2);
    world.event(5);
    assert_eq!((world.news(), world.machine.snapshot(session).unwrap().seq), (vec![], 1));
    world.opened(json!({"sessionId": "ses", "asOfSeq": 4, "resumed": "replay"}));
    (2..=4).for_each(|seq| world.event(seq));
    assert_eq!(world.news(), ["opened 1 at 4", "event 1 2", "event 1 3", "event 1 4"]);

    world.event(6);
    assert_eq!(world.frames(), ["close_session ses", "open_session ses"], "the resume has not mended it");
    world.opened(json!({"sessionId": "ses", "asOfSeq": 6, "resumed": "snapshot"}));
    assert_eq!(world.machine.snapshot(session).unwrap().seq, 6);

    world.forget();
    world.pass(Duration::from_secs(2));
    world.event(8);
    assert_eq!(world.frames(), ["close_session ses", "open_session ses resume@6"], "that was long ago");
}

#[test]
fn a_known_event_that_cannot_be_read_is_passed_over_by_a_snapshot() {
    let unreadable =
        |seq: u64| json!({"sessionId": "ses", "seq": seq, "type": "turn_started", "payload": {"turnId": 7}});
    let (mut world, _) = World::with_session();
    world.frame(&unreadable(1));
    world.event(3);
    assert_eq!(world.frames(), ["close_session ses", "open_session ses resume@1"], "one that was seen says nothing");
    world.opened(json!({"sessionId": "ses", "asOfSeq": 3, "resumed": "replay"}));
    world.forget();
    world.frame(&unreadable(2));
    assert_eq!(
        (world.frames(), world.news()),
        (vec!["close_session ses".to_owned(), "open_session ses".to_owned()], vec![])
    );
}

#[test]
fn a_session_is_created_once_even_if_the_reply_is_lost() {
    let mut world = World::new();
    let session = world.machine.open(None, Opening::default());
    world.send(session, &input());
    world.machine.connect(world.now);
    world.welcome();
    (0..3).for_each(|_| world.reconnect_after_cut());
    let ids: Vec<_> =
        world.sent.iter().filter(|frame| frame["type"] == "open_session").map(|frame| &frame["id"]).collect();
    assert_eq!(ids, [ids[0]; 4]);
    world.opened(json!({"sessionId": "ses"}));
    world.forget();
    assert_eq!((world.machine.session_id(session), world.machine.find(&id("ses"))), (Some(&id("ses")), Some(session)));
    world.cut();
    world.reconnect();
    assert_eq!(world.frames(), ["hello", "open_session ses resume@1"]);
}

#[test]
fn a_session_that_was_created_and_then_opened_by_its_id_is_one() {
    let mut world = World::open();
    let created = world.machine.open(None, Opening::default());
    world.cut();
    // Its id may come from the list, for example.
    let opened = world.machine.open(Some(id("ses")), Opening::default());
    world.send(opened, &input());
    world.reconnect();
    let mut replies = world.sent.clone();
    replies.retain(|frame| frame["type"] == "open_session");
    let [first, second] = replies.as_slice() else { panic!("{replies:?}") };
    let mut reply = example("replies/session_opened.json");
    (reply["re"], reply["sessionId"], reply["payload"]["sessionId"]) =
        (first["id"].clone(), json!("ses"), json!("ses"));
    world.frame(&reply);
    let error = json!({"code": "session_already_open", "message": "", "retriable": false});
    world.frame(&json!({"re": second["id"], "sessionId": "ses", "type": "error", "payload": error}));
    world.event(2);
    let news = ["ended 2: open already", "user_input: session closed", "opened 1 at 1", "event 1 2"];
    let told = world.news();
    assert!(news.iter().all(|news| told.contains(&(*news).to_owned())), "{told:?}");
    assert_eq!(world.machine.find(&id("ses")), Some(created));
    world.machine.close_session(opened);
    assert_eq!(world.machine.find(&id("ses")), Some(created), "the other one goes on");

    // The first handle may also have ended before.
    let mut world = World::open();
    world.machine.open(Some(id("ses")), Opening::default());
    world.drain();
    world.refuse("open_session", "session_not_found", false);
    world.machine.open(None, Opening::default());
    world.opened(json!({"sessionId": "ses"}));
    assert_eq!(world.news(), ["ended 1: refused session_not_found", "opened 2 at 1"]);
}

#[test]
fn a_session_that_is_closed_while_it_is_created_is_closed_once_it_is_there() {
    let mut world = World::open();
    let session = world.machine.open(None, Opening::default());
    world.send(session, &input());
    world.machine.close_session(session);
    world.machine.close_session(session);
    assert_eq!(world.news(), ["user_input: session closed"]);
    world.opened(json!({"sessionId": "ses"}));
    assert_eq!(world.frames(), ["open_session", "close_session ses"]);
    world.event(2);
    assert_eq!((world.news(), world.machine.find(&id("ses"))), (vec![], None));

    // The command may fail, or the connection may be lost first.
    let outcomes: [fn(&mut World); 2] = [|world| world.refuse("open_session", "overloaded", true), World::cut];
    for outcome in outcomes {
        let mut world = World::open();
        let session = world.machine.open(None, Opening::default());
        world.machine.close_session(session);
        world.drain();
        outcome(&mut world);
        world.reconnect();
        assert_eq!(world.frames()[1..].iter().filter(|frame| frame.contains("session")).count(), 0);
        assert!(world.machine.sessions.is_empty());
    }
}

#[test]
fn a_reply_that_comes_after_the_session_was_closed_opens_nothing() {
    let mut world = World::open();
    let session = world.machine.open(Some(id("ses")), Opening::default());
    world.machine.close_session(session);
    assert_eq!(world.frames(), ["open_session ses", "close_session ses"]);
    let again = world.machine.open(Some(id("ses")), Opening::default());
    assert_ne!(again, session);
    let first = world.machine.snapshot(session).is_none();
    assert!(first && !world.machine.is_open(again));
    world.opened(json!({"sessionId": "ses"}));
    assert_eq!(world.news(), ["opened 2 at 1"]);
    world.machine.close_session(again);
    world.event(2);
    assert_eq!(
        (world.news(), world.frames()),
        (vec![], vec!["open_session ses".to_owned(), "close_session ses".to_owned()])
    );
}

#[test]
fn a_session_is_opened_under_one_handle_until_it_has_ended() {
    let (mut world, session) = World::with_session();
    let again = world.machine.open(Some(id("ses")), Opening::default());
    assert_eq!((again, world.frames()), (session, vec![]));
    world.closed_by_server("deleted", false);
    assert!(world.machine.snapshot(session).is_some(), "its last snapshot stays");
    let after = world.machine.open(Some(id("ses")), Opening::default());
    assert_ne!(after, session);
    assert_eq!(world.frames(), ["open_session ses"]);
    assert!(world.machine.snapshot(session).is_none());
    world.machine.close_session(session);
    world.opened(json!({"sessionId": "ses"}));
    assert!(world.machine.is_open(after));
}

#[test]
fn a_session_that_the_server_ends_is_opened_again_where_that_helps() {
    let table = [
        ("deleted", false, None, &["ended 1: deleted"][..]),
        ("deleted", true, None, &["ended 1: deleted"]),
        ("failed", true, Some("open_session ses resume@2"), &["retrying 1: no error"]),
        ("failed", false, Some("open_session ses"), &["retrying 1: no error"]),
    ];
    for (code, retriable, opens, news) in table {
        let (mut world, _) = World::with_session();
        world.event(2);
        world.forget();
        world.closed_by_server(code, retriable);
        world.event(3);
        world.closed_by_server(code, retriable);
        world.pass(Duration::from_secs(1));
        assert_eq!(world.frames(), opens.into_iter().collect::<Vec<_>>(), "{code} {retriable}");
        assert_eq!(world.news(), news);
    }
}

#[test]
fn a_session_that_is_refused_is_asked_for_again_where_that_helps() {
    let table = [
        ("session_not_found", None, Some("ended 1: refused session_not_found")),
        ("too_many_subscriptions", None, Some("ended 1: refused too_many_subscriptions")),
        ("overloaded", Some("open_session ses"), Some("retrying 1: overloaded")),
        ("store_failed", Some("open_session ses"), Some("retrying 1: store_failed")),
        // The command that closes it is still on its way.
        ("session_already_open", Some("open_session ses"), Some("retrying 1: session_already_open")),
        ("session_damaged", Some("open_session ses observer"), None),
    ];
    for (code, opens, news) in table {
        let mut world = World::open();
        let session = world.machine.open(Some(id("ses")), Opening::default());
        world.send(session, &input());
        world.forget();
        let (code, retriable) = refusal(code);
        world.refuse("open_session", code, retriable);
        world.sent.clear();
        world.machine.tick(world.now + Duration::from_secs(1));
        let frames = world.frames();
        // A damaged session is requested again at once.
        if code != "session_damaged" {
            assert_eq!(frames, opens.into_iter().collect::<Vec<_>>(), "{code}");
        }
        assert_eq!(world.news().last().map(String::as_str), news, "{code}");
        let ended = news.is_some_and(|news| news.starts_with("ended"));
        assert_eq!(world.machine.unanswered(), usize::from(!ended), "{code}");
    }
}

#[test]
fn a_damaged_session_is_read_and_offers_nothing() {
    let mut world = World::open();
    let Command::RegisterTools(offer) = offer("weather") else { panic!("it offers tools") };
    let opening = Opening { role: Some(SessionRole::Writer), tools: Some(offer.tools), ..Opening::default() };
    world.machine.open(Some(id("ses")), opening);
    world.refuse("open_session", "session_damaged", false);
    let last = world.sent.last().unwrap();
    assert_eq!((&last["payload"]["role"], &last["payload"]["tools"]), (&json!("observer"), &Value::Null));
    assert_eq!(world.frames(), ["open_session ses writer", "open_session ses observer"]);
    world.refuse("open_session", "session_damaged", false);
    assert_eq!(world.news(), ["ended 1: refused session_damaged"], "it cannot even be read");
}

#[test]
fn a_session_that_is_refused_for_now_is_not_asked_for_without_rest() {
    let mut world = World::open();
    world.machine.open(Some(id("ses")), Opening::default());
    let (mut attempts, begun) = (0, world.now);
    while world.now - begun < Duration::from_secs(600) {
        world.refuse("open_session", "overloaded", true);
        attempts += 1;
        let before = world.sent.len();
        while world.sent.len() == before {
            world.pass(Duration::from_millis(100));
            world.machine.heard(world.now);
        }
        world.sent.retain(|frame| frame["type"] == "open_session");
    }
    assert!((20..200).contains(&attempts), "{attempts} in ten minutes");
}

#[test]
fn what_a_server_says_of_another_session_is_not_believed() {
    let (mut world, session) = World::with_session();
    world.cut();
    world.reconnect();
    world.forget();
    world.opened(json!({"sessionId": "other", "resumed": "replay"}));
    assert_eq!(world.news(), ["ended 1: unreadable"]);
    assert_eq!(world.frames(), ["close_session other"], "nothing stays open at the server");
    assert_eq!((world.machine.find(&id("other")), world.machine.session_id(session)), (None, Some(&id("ses"))));

    let mut world = World::open();
    world.machine.open(Some(id("ses")), Opening::default());
    world.answer("open_session", json!({"type": "surprise", "payload": {}}));
    assert_eq!(world.news(), ["ended 1: unreadable"]);
    assert_eq!(world.frames(), ["open_session ses", "close_session ses"]);

    // If it was created and closed meanwhile, only the reply names it.
    for (closes, news) in [(false, &["ended 1: unreadable"][..]), (true, &[])] {
        let mut world = World::open();
        let session = world.machine.open(None, Opening::default());
        if closes {
            world.machine.close_session(session);
        }
        world.answer("open_session", json!({"sessionId": "ses", "type": "surprise", "payload": {}}));
        assert_eq!(world.frames(), ["open_session", "close_session ses"]);
        assert_eq!(world.news(), news);
    }
}

#[test]
fn a_session_that_fails_again_at_once_is_opened_anew_and_later() {
    // How long the session was open before its second failure, how it is opened then, and after how long.
    let table = [(9, "open_session ses", 3), (10, "open_session ses resume@1", 0)];
    for (open, opens, waits) in table {
        for cut in [false, true] {
            let (mut world, _) = World::with_session();
            world.closed_by_server("failed", true);
            world.pass(Duration::from_secs(1));
            world.opened(json!({"sessionId": "ses", "resumed": "replay"}));
            world.pass(Duration::from_secs(open));
            if cut {
                world.reconnect_after_cut();
                world.opened(json!({"sessionId": "ses", "resumed": "replay"}));
            }
            world.forget();
            world.closed_by_server("failed", true);
            let Some(Update::Retrying { retry_after, .. }) = world.told.first() else { panic!("{:?}", world.told) };
            assert_eq!(*retry_after >= Duration::from_secs(3), waits > 0, "{open} {cut}: {retry_after:?}");
            world.pass(*retry_after);
            assert_eq!(world.frames(), [opens], "{open} {cut}");
        }
    }
}

#[test]
fn a_session_that_stays_open_already_is_given_up() {
    let mut world = World::open();
    world.machine.open(Some(id("ses")), Opening::default());
    for _ in 0..5 {
        world.refuse("open_session", "session_already_open", false);
        assert_eq!(world.news(), ["retrying 1: session_already_open"]);
        world.pass(Duration::from_secs(16));
        world.machine.heard(world.now);
    }
    world.refuse("open_session", "session_already_open", false);
    assert_eq!(world.news(), ["ended 1: refused session_already_open"]);
}
