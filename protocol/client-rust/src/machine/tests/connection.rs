//! The connection: how it ends, what follows, and how its end is detected.

use super::*;

/// Returns the end of a connection with this close code.
fn close(code: u16) -> Lost {
    Lost::closed(code, "")
}

#[test]
fn a_close_is_followed_by_what_its_code_says() {
    #[derive(Debug, PartialEq)]
    enum After {
        Waits,
        Renews,
        Stops,
    }
    let table = [
        (close(1000), After::Stops),
        (close(1001), After::Waits),
        (close(1006), After::Waits),
        (close(1009), After::Waits),
        (close(1012), After::Waits),
        (close(4400), After::Stops),
        (close(4401), After::Renews),
        (close(4429), After::Waits),
        (close(4504), After::Waits),
        (close(4508), After::Waits),
        (close(4499), After::Stops),
        (close(4999), After::Waits),
        (Lost::Broken("cut".to_owned()), After::Waits),
        (Lost::Refused("a certificate of nobody".to_owned()), After::Stops),
    ];
    for (lost, after) in table {
        let mut world = World::open();
        let before = world.dials;
        world.lost(lost.clone());
        let found = match (world.stop_reason(), world.dials - before) {
            (Some(_), 0) => After::Stops,
            (None, 1) => After::Renews,
            (None, 0) => After::Waits,
            other => panic!("{lost}: {other:?}"),
        };
        assert_eq!(found, after, "{lost}");
        let wait = world.machine.deadline().map(|deadline| deadline - world.now);
        let (least, most) = match (&after, &lost) {
            (After::Stops, _) => {
                assert_eq!(wait, None);
                continue;
            }
            (After::Renews, _) => (20, 20),
            (After::Waits, Lost::Closed { code: 4429, .. }) => (60, 60),
            (After::Waits, _) => (0, 1),
        };
        let wait = wait.unwrap();
        assert!(Duration::from_secs(least) <= wait && wait <= Duration::from_secs(most), "{lost}: {wait:?}");
    }
}

#[test]
fn waits_grow_until_a_connection_has_lasted() {
    let mut world = World::open();
    let mut longest = Duration::ZERO;
    for _ in 0..12 {
        world.cut();
        longest = longest.max(world.machine.deadline().unwrap() - world.now);
        world.reconnect();
    }
    assert!(longest > Duration::from_secs(10) && longest <= Duration::from_secs(30), "{longest:?}");
    world.pass(Duration::from_secs(10));
    world.cut();
    assert!(world.machine.deadline().unwrap() - world.now <= Duration::from_millis(500));
}

#[test]
fn credentials_are_renewed_once() {
    let mut world = World::open();
    world.lost(close(4401));
    assert_eq!(world.dials, 2);
    world.connected();
    world.welcomed = true;
    world.refuse("hello", "unauthenticated", false);
    assert_eq!(
        world.news(),
        [
            "renews: the credentials are missing, wrong or expired (closed with 4401)",
            "stopped: unauthenticated (closed with 4401)"
        ]
    );
    assert!(matches!(world.stop_reason(), Some(Stop::Credentials(_))));

    // When asked to connect again, it tries once more.
    world.machine.connect(world.now);
    world.connected();
    world.refuse("hello", "unauthenticated", false);
    assert_eq!((world.stop_reason(), world.dials), (None, 4));

    // The credentials of a connection that lasted were good.
    world.welcome();
    world.pass(Duration::from_secs(10));
    world.lost(close(4401));
    assert_eq!((world.stop_reason(), world.dials), (None, 5));
    world.welcome();
    world.pass(Duration::from_secs(9));
    world.lost(close(4401));
    assert!(world.stop_reason().is_some());
}

#[test]
fn credentials_that_expire_are_renewed_in_place() {
    let expiring = || json!({"type": "token_expiring", "payload": {"expiresInMs": 60_000}});
    let table = [
        (Credentials::Ticket("new".to_owned()), Some(json!({"ticket": "new"}))),
        (Credentials::Token("new".to_owned()), Some(json!({"token": "new"}))),
        (Credentials::None, None),
    ];
    for (credentials, expected) in table {
        let mut world = World::open();
        world.frame(&expiring());
        assert_eq!(world.renewals, 1);
        world.machine.renew(credentials);
        world.drain();
        let sent: Vec<&Value> = world.sent.iter().map(|frame| &frame["payload"]).collect();
        assert_eq!(sent, expected.iter().collect::<Vec<_>>());
        if expected.is_some() {
            world.refuse("authenticate", "unauthenticated", false);
        }
        assert_eq!((world.dials, world.socket, world.stop_reason()), (1, true, None));
    }
    let mut world = World::open();
    world.machine = world.machine.with_fixed_credentials();
    world.frame(&expiring());
    assert_eq!(world.renewals, 0, "there are no others");
    world.cut();
    world.machine.renew(Credentials::Token("late".to_owned()));
    world.drain();
    assert!(world.sent.is_empty(), "there is no connection");
}

#[test]
fn credentials_that_stay_the_same_are_not_renewed() {
    let mut world = World::open();
    world.machine = world.machine.with_fixed_credentials();
    for _ in 0..2 {
        world.lost(close(4401));
        assert!(matches!(world.stop_reason(), Some(Stop::Credentials(_))));
        world.machine.connect(world.now);
        world.welcome();
        world.pass(Duration::from_secs(10));
    }
}

#[test]
fn a_hello_that_is_refused_is_repeated_only_where_that_helps() {
    let refusals: [(Value, Option<&str>); 4] = [
        (
            json!({"type": "error", "payload": {"code": "unsupported_version", "message": "no", "retriable": false}}),
            Some("no"),
        ),
        (json!({"type": "error", "payload": {"code": "overloaded", "message": "later", "retriable": true}}), None),
        (
            json!({"type": "session_opened", "payload": {}}),
            Some("the server answered hello with `session_opened`: it is none of version 2"),
        ),
        (json!({"type": "surprise"}), Some("the server answered hello with `surprise`: it is none of version 2")),
    ];
    for (reply, stop) in refusals {
        let mut world = World::new();
        world.send(To::Server, &list());
        world.machine.connect(world.now);
        world.connected();
        world.answer("hello", reply);
        assert_eq!(world.stop_reason().map(ToString::to_string).as_deref(), stop);
        assert_eq!(world.machine.unanswered(), usize::from(stop.is_none()));
        assert!(!world.socket, "the socket is let go");
    }
}

#[test]
fn a_network_that_swallows_everything_does_not_hold_the_client_up() {
    let mut world = World::new();
    world.machine.connect(world.now);
    world.pass(Duration::from_secs(19));
    assert_eq!(world.news(), Vec::<String>::new());
    world.pass(Duration::from_secs(1));
    assert_eq!(world.news(), ["disconnected: the server said no welcome within 20 s"]);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.dials, 2);
    // A socket that comes too late is dropped.
    world.connected();
    world.machine.connected(Credentials::None);
    assert_eq!(world.machine.poll(), Some(Output::HangUp));
}

#[test]
fn a_silent_server_is_asked_and_then_taken_for_gone() {
    let mut world = World::open();
    world.pass(Duration::from_secs(29));
    assert_eq!(world.frames(), Vec::<String>::new());
    world.pass(Duration::from_secs(1));
    assert_eq!(world.frames(), ["ping"]);
    // Pings from the server show that it is alive, but say nothing about events.
    world.machine.heard(world.now);
    world.pass(Duration::from_secs(30));
    assert_eq!(world.frames(), ["ping"]);
    world.machine.heard(world.now);
    world.pass(Duration::from_secs(59));
    assert_eq!(world.news(), Vec::<String>::new());
    world.pass(Duration::from_secs(1));
    assert_eq!(world.news(), ["disconnected: the server said nothing for 60 s (closed with 4508)"]);
}

#[test]
fn a_heartbeat_that_no_server_has_is_not_believed() {
    for (heartbeat_ms, gone_after) in [(0, 3), (500, 3), (20_000, 60), (3_600_000, 10_800), (u64::MAX, 10_800)] {
        let mut world = World::new();
        world.machine.connect(world.now);
        world.welcome_with(&json!({"heartbeatMs": heartbeat_ms}));
        world.forget();
        world.pass(Duration::from_secs(gone_after - 1));
        assert_eq!(world.news(), Vec::<String>::new(), "{heartbeat_ms}");
        world.pass(Duration::from_secs(1));
        assert_eq!(world.news().len(), 1, "{heartbeat_ms}");
    }
}

#[test]
fn a_pong_that_knows_of_more_events_opens_the_session_again_where_it_was() {
    let pong = |in_sync: bool| {
        let payload = json!({"seq": 9, "inSync": in_sync, "serverTime": "2026-11-21T09:16:00.520Z"});
        json!({"type": "pong", "payload": payload})
    };
    let again = ["close_session ses", "open_session ses resume@1"];
    let table: [(bool, bool, &[&str]); 3] = [
        (true, false, &[]),
        (false, false, &again),
        // The missing event has arrived in the meantime.
        (false, true, &[]),
    ];
    for (in_sync, event, expected) in table {
        let (mut world, _) = World::with_session();
        world.pass(Duration::from_secs(30));
        let [ping] = world.sent.as_slice() else { panic!("{:?}", world.frames()) };
        assert_eq!(
            (&ping["type"], &ping["sessionId"], &ping["payload"]["seq"]),
            (&json!("ping"), &json!("ses"), &json!(1))
        );
        if event {
            world.event(2);
        }
        world.answer("ping", pong(in_sync));
        assert_eq!(world.frames()[1..], *expected, "in sync: {in_sync}, event: {event}");
    }
}

#[test]
fn each_session_is_asked_about_in_turn() {
    let mut world = World::open();
    for name in ["one", "two"] {
        world.machine.open(Some(id(name)), Opening::default());
        world.opened(json!({"sessionId": name}));
    }
    world.forget();
    for _ in 0..3 {
        world.pass(Duration::from_secs(30));
        world.machine.heard(world.now);
    }
    assert_eq!(world.frames(), ["ping one", "ping two", "ping one"]);
}

#[test]
fn a_client_that_slept_finds_its_connection_gone_and_resumes() {
    let (mut world, session) = World::with_session();
    world.event(2);
    world.send(session, &input());
    world.forget();
    world.sleep(Duration::from_secs(8 * 3_600));
    assert_eq!(world.news(), ["disconnected: the server said nothing for 60 s (closed with 4508)"]);
    world.sleep(Duration::from_secs(8 * 3_600));
    world.welcome();
    assert_eq!(world.frames(), ["hello", "open_session ses resume@2"]);
}

#[test]
fn the_client_connects_when_it_is_asked_to() {
    let (mut world, session) = World::with_session();
    world.machine.connect(world.now);
    assert_eq!(world.dials, 1, "it is connected");
    world.cut();
    world.machine.connect(world.now);
    world.drain();
    assert_eq!(world.dials, 2, "it does not wait");
    world.machine.connect(world.now);
    world.drain();
    assert_eq!(world.dials, 2, "it is about to be connected");
    world.welcome();
    assert_eq!(world.frames(), ["hello", "open_session ses resume@1"]);
    world.lost(close(4400));
    world.send(session, &input());
    assert_eq!(
        world.news(),
        [
            "disconnected: cut",
            "connected",
            "stopped: too many bad frames in a row (closed with 4400)",
            "user_input: stopped"
        ],
    );
    assert_eq!(world.machine.deadline(), None);
    world.machine.connect(world.now);
    world.welcome();
    assert_eq!(world.frames(), ["hello", "open_session ses resume@1"], "after a stop it goes on where it was");
}

#[test]
fn who_closes_says_goodbye() {
    let (mut world, session) = World::with_session();
    world.machine.open(None, Opening::default());
    world.machine.open(Some(id("other")), Opening::default());
    world.send(session, &input());
    world.machine.close();
    world.machine.close();
    assert_eq!(
        world.frames(),
        ["open_session", "open_session other", "user_input ses", "close_session ses", "close_session other"],
        "what was asked for before goes out",
    );
    assert!(!world.socket);
    assert_eq!(world.news(), ["user_input: stopped", "stopped: the client was closed"]);
}

#[test]
fn frames_of_a_connection_that_was_given_up_change_nothing() {
    let (mut world, session) = World::with_session();
    world.send(session, &input());
    world.drain();
    world.cut();
    world.forget_news();
    for at_rest in [true, false] {
        world.done("user_input");
        world.event(2);
        assert_eq!((world.news(), world.machine.unanswered()), (vec![], 1));
        if at_rest {
            world.machine.connect(world.now);
        }
    }
    world.machine.close();
    world.event(2);
    assert_eq!(world.news(), ["user_input: stopped", "stopped: the client was closed"]);
}

#[test]
fn a_server_that_sends_nonsense_is_passed_over() {
    let (mut world, session) = World::with_session();
    for frame in [
        "",
        "nonsense",
        "[]",
        "{}",
        "null",
        "{\"type\":7}",
        "{\"re\":\"nobody\",\"type\":\"ok\",\"payload\":{}}",
        "{\"type\":\"error\",\"payload\":{\"code\":\"x\",\"message\":\"\",\"retriable\":false}}",
        "{\"sessionId\":\"other\",\"seq\":2,\"type\":\"turn_started\",\"payload\":{}}",
        "{\"seq\":2,\"type\":\"turn_started\",\"payload\":{}}",
        "{\"sessionId\":\"ses\",\"seq\":-1,\"type\":\"surprise\",\"payload\":{}}",
        "{\"type\":\"session_closed\",\"payload\":{\"code\":\"deleted\",\"message\":\"\",\"retriable\":false}}",
    ] {
        world.machine.frame(world.now, frame);
    }
    assert_eq!((world.news(), world.frames()), (vec![], vec![]));
    world.frame(&json!({"sessionId": "ses", "seq": 2, "type": "surprise", "payload": {}}));
    world.frame(&json!({"sessionId": "ses", "type": "surprise"}));
    assert_eq!(world.news(), ["event 1 2", "event 1 surprise"]);
    assert!(world.machine.is_open(session));
}
