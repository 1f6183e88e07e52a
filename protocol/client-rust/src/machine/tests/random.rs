//! Random events in any order, sensible or not. The invariants must always hold.

use super::*;
use crate::{
    machine::{Phase, Subscribed},
    outbox::COMMANDS_MAX,
};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

/// The sessions of the server, as the test names them.
const SESSIONS: [&str; 3] = ["one", "two", "three"];

const REFUSALS: [(&str, bool); 10] = [
    ("rate_limited", true),
    ("store_failed", true),
    ("overloaded", true),
    ("shutting_down", true),
    ("no_session", false),
    ("session_damaged", false),
    ("session_already_open", false),
    ("session_not_found", false),
    ("unauthenticated", false),
    ("surprise", true),
];

const CLOSES: [u16; 7] = [1000, 1001, 1006, 4400, 4401, 4429, 4504];

/// An event of the test.
#[derive(Debug, Clone)]
enum Happening {
    // The user.
    Connect,
    Open(Option<usize>),
    CloseSession(u64),
    Send(Where, usize),
    Close,
    // The network.
    Connected,
    Cut,
    Closed(usize),
    Ping,
    Pass(u64),
    Sleep(u64),
    // The server. The number selects a frame sent on this connection, counted from the end.
    Welcome,
    Opens(usize, usize, bool),
    Does(usize),
    Refuses(usize, usize),
    Lags(usize),
    Event(usize, u64),
    Ephemeral(usize),
    Ends(usize, bool, bool),
    Nonsense,
}

#[derive(Debug, Clone, Copy)]
enum Where {
    Server,
    Session(u64),
    Id(usize),
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening::*;
    let place =
        || prop_oneof![Just(Where::Server), (0..6_u64).prop_map(Where::Session), (0..3_usize).prop_map(Where::Id)];
    prop_oneof![
        3 => Just(Connect),
        3 => prop::option::of(0..3_usize).prop_map(Open),
        2 => (0..6_u64).prop_map(CloseSession),
        8 => (place(), 0..6_usize).prop_map(|(to, what)| Send(to, what)),
        1 => Just(Close),
        6 => Just(Connected),
        2 => Just(Cut),
        2 => (0..CLOSES.len()).prop_map(Closed),
        1 => Just(Ping),
        4 => (0..100_000_u64).prop_map(Pass),
        1 => (0..10_000_000_u64).prop_map(Sleep),
        6 => Just(Welcome),
        6 => (0..6_usize, 0..3_usize, any::<bool>()).prop_map(|(n, session, replay)| Opens(n, session, replay)),
        5 => (0..6_usize).prop_map(Does),
        4 => (0..6_usize, 0..REFUSALS.len()).prop_map(|(n, code)| Refuses(n, code)),
        1 => (0..6_usize).prop_map(Lags),
        5 => (0..3_usize, 0..6_u64).prop_map(|(session, seq)| Event(session, seq)),
        1 => (0..3_usize).prop_map(Ephemeral),
        2 => (0..3_usize, any::<bool>(), any::<bool>()).prop_map(|(n, deleted, again)| Ends(n, deleted, again)),
        1 => Just(Nonsense),
    ]
}

/// A world that checks everything the client does.
struct Watched {
    world: World,
    /// Commands that were given and have no outcome yet.
    waiting: HashSet<CommandId>,
    /// Frames that were sent on this connection.
    frames: Vec<Value>,
    /// The last reported event of each session since it was opened.
    told: HashMap<Session, Option<u64>>,
    ended: HashSet<Session>,
}

impl Watched {
    fn new() -> Self {
        let world = World::new();
        Self { world, waiting: HashSet::new(), frames: Vec::new(), told: HashMap::new(), ended: HashSet::new() }
    }

    fn happens(&mut self, happening: &Happening) {
        let World { machine, now, .. } = &mut self.world;
        match happening {
            Happening::Connect => machine.connect(*now),
            Happening::Open(which) => {
                let session = machine.open(which.map(|n| id(SESSIONS[n])), Opening::default());
                self.ended.remove(&session);
            }
            Happening::CloseSession(key) => {
                machine.close_session(Session(*key));
                self.told.remove(&Session(*key));
            }
            Happening::Send(to, what) => {
                let to = match to {
                    Where::Server => To::Server,
                    Where::Session(key) => To::Session(Session(*key)),
                    Where::Id(n) => To::Id(id(SESSIONS[*n])),
                };
                // Without a session, only commands that need no subscription may be sent.
                let commands =
                    [list(), rename(), input(), once(), offer("weather"), command("delete_session", json!({}))];
                let command = match &to {
                    To::Server => &commands[0],
                    To::Id(_) => &commands[1],
                    To::Session(_) => &commands[*what],
                };
                if let Ok(id) = machine.send(to, command) {
                    assert!(self.waiting.insert(id), "an id is given twice");
                }
            }
            Happening::Close => machine.close(),
            Happening::Connected => {
                self.look();
                if matches!(self.world.machine.phase, Phase::Dialing { .. }) {
                    self.frames.clear();
                    self.world.socket = true;
                    self.world.machine.connected(Credentials::None);
                }
            }
            Happening::Cut => machine.lost(*now, Lost::Broken("cut".to_owned())),
            Happening::Closed(n) => machine.lost(*now, Lost::closed(CLOSES[*n], "")),
            Happening::Ping => machine.heard(*now),
            Happening::Pass(ms) => {
                self.look();
                self.world.pass(Duration::from_millis(*ms));
            }
            Happening::Sleep(ms) => {
                self.look();
                self.world.sleep(Duration::from_millis(*ms));
            }
            Happening::Welcome => {
                if matches!(machine.phase, Phase::Greeting { .. }) {
                    self.world.welcomed = true;
                    let welcome = example("replies/welcome.json");
                    self.reply(0, welcome);
                }
            }
            Happening::Opens(n, session, replay) => {
                let mut opened = example("replies/session_opened.json");
                let asked = self.nth(*n).and_then(|frame| frame["sessionId"].as_str().map(str::to_owned));
                let name = asked.unwrap_or_else(|| SESSIONS[*session].to_owned());
                (opened["sessionId"], opened["payload"]["sessionId"]) = (json!(name), json!(name));
                if *replay {
                    opened["payload"]["resumed"] = json!("replay");
                }
                if self.nth(*n).is_some_and(|frame| frame["type"] == "open_session") {
                    self.reply(*n, opened);
                }
            }
            Happening::Does(n) => self.reply(*n, json!({"type": "ok", "payload": {}})),
            Happening::Refuses(n, code) => {
                let (code, retriable) = REFUSALS[*code];
                let error = json!({"code": code, "message": code, "retriable": retriable});
                self.reply(*n, json!({"type": "error", "payload": error}));
            }
            Happening::Lags(n) => {
                let pong = json!({"seq": 99, "inSync": false, "serverTime": "2026-11-21T09:16:00.520Z"});
                self.reply(*n, json!({"type": "pong", "payload": pong}));
            }
            Happening::Event(session, seq) => {
                let payload = json!({"name": "n"});
                let frame =
                    json!({"sessionId": SESSIONS[*session], "seq": seq, "type": "session_updated", "payload": payload});
                machine.frame(*now, &frame.to_string());
            }
            Happening::Ephemeral(session) => {
                let frame = json!({"sessionId": SESSIONS[*session], "type": "surprise", "payload": {}});
                machine.frame(*now, &frame.to_string());
            }
            Happening::Ends(session, deleted, retriable) => {
                let code = if *deleted { "deleted" } else { "failed" };
                let payload = json!({"code": code, "message": "why", "retriable": retriable});
                let frame = json!({"sessionId": SESSIONS[*session], "type": "session_closed", "payload": payload});
                machine.frame(*now, &frame.to_string());
            }
            Happening::Nonsense => machine.frame(*now, "{\"re\":\"x\",\"seq\":\"y\"}"),
        }
        self.look();
    }

    fn nth(&self, n: usize) -> Option<&Value> {
        self.frames.iter().rev().nth(n)
    }

    fn reply(&mut self, n: usize, mut reply: Value) {
        let Some(frame) = self.nth(n) else { return };
        reply["re"] = frame["id"].clone();
        self.world.machine.frame(self.world.now, &reply.to_string());
    }

    /// Executes the client's outputs, and checks them.
    fn look(&mut self) {
        // This detects frames before `welcome`, and frames without a socket.
        self.world.drain();
        let mut ids: HashSet<Value> = self.frames.iter().map(|frame| frame["id"].clone()).collect();
        for frame in std::mem::take(&mut self.world.sent) {
            // A temporarily refused command, or an `open_session` that creates a session, is sent again under the same
            // id.
            let again = ["user_input", "rename_session", "list_sessions", "delete_session", "open_session"];
            let is_again = again.contains(&frame["type"].as_str().unwrap());
            assert!(ids.insert(frame["id"].clone()) || is_again, "{frame} has an id that another command has");
            let nowhere = ["hello", "list_sessions", "open_session", "ping"].contains(&frame["type"].as_str().unwrap());
            assert!(nowhere || frame["sessionId"].is_string(), "{frame} names no session");
            self.frames.push(frame);
        }
        for update in std::mem::take(&mut self.world.told) {
            self.told(update);
        }
        let machine = &self.world.machine;
        assert_eq!(machine.unanswered(), self.waiting.len(), "each command waits until its outcome is told");
        assert!(machine.unanswered() <= COMMANDS_MAX);
        let stopped = matches!(machine.phase, Phase::Stopped(_) | Phase::Idle);
        assert_eq!(machine.deadline().is_none(), stopped);
        for (key, known) in &machine.sessions {
            assert!(known.phase != Subscribed::Open || matches!(machine.phase, Phase::Open(_)), "{key:?}");
        }
        for (id, key) in &machine.by_id {
            assert_eq!(machine.session_id(*key), Some(id), "a session that is forgotten is not found");
        }
    }

    fn told(&mut self, update: Update) {
        match update {
            Update::Reply { id, .. } => {
                assert!(self.waiting.remove(&id), "{id} has two outcomes, or none was asked for")
            }
            Update::Opened { session, opened } => {
                assert!(!self.ended.contains(&session), "{session:?} has ended");
                let replays = opened.resumed == Some(reseed_protocol::session::Resumed::Replay);
                let before = self.told.get(&session).copied().flatten().filter(|_| replays);
                self.told.insert(session, before);
            }
            Update::Event { session, event } => {
                let last = self.told.get_mut(&session).unwrap_or_else(|| panic!("{session:?} is not open"));
                if let SessionEvent::Durable(seq, _) = event {
                    assert!(last.is_none_or(|last| seq == last + 1), "{seq} comes after {last:?}");
                    *last = Some(seq);
                }
            }
            Update::Ended { session, .. } => {
                assert!(self.ended.insert(session), "{session:?} ends twice");
                self.told.remove(&session);
            }
            Update::Retrying { session, .. } => assert!(!self.ended.contains(&session), "{session:?} has ended"),
            Update::Connected(_) | Update::Disconnected { .. } | Update::Stopped(_) | Update::Listed(_) => {}
        }
    }
}

proptest! {
    #[test]
    fn what_always_holds_holds(is_open: bool, happenings in prop::collection::vec(happening(), 1..120)) {
        let mut watched = Watched::new();
        if is_open {
            let begins = [Happening::Connect, Happening::Connected, Happening::Welcome];
            begins.iter().for_each(|first| watched.happens(first));
        }
        for happening in &happenings {
            watched.happens(happening);
            let World { machine, now, .. } = &mut watched.world;
            machine.tick(*now);
            // Everything that was due has been done. Only a reconnect attempt may be due again, and it is not made
            // twice.
            let due = machine.deadline().is_some_and(|deadline| deadline <= *now);
            prop_assert!(!due || matches!(machine.phase, Phase::Waiting { .. }), "{:?} is due", machine.phase);
            watched.look();
        }
        watched.world.machine.close();
        watched.look();
        prop_assert_eq!(watched.waiting.len(), 0, "each command has an outcome");
        prop_assert_eq!(watched.world.machine.deadline(), None);
    }
}
