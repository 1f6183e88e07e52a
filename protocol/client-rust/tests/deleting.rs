//! A session that this client deletes has ended, though the server tells only the other connections.

use reseed_client::{
    Credentials, Identity, Opening, Session, SessionEnd, To, Update,
    machine::{Machine, Output},
};
use reseed_protocol::command::{Command, Empty};
use serde_json::{Value, json};
use std::time::Instant;

/// Takes what the machine sends and tells.
fn drained(machine: &mut Machine) -> (Vec<Value>, Vec<Update>) {
    let (mut sent, mut told) = (Vec::new(), Vec::new());
    while let Some(output) = machine.poll() {
        match output {
            Output::Send(frame) => sent.push(serde_json::from_str(&frame).expect("frames are JSON")),
            Output::Tell(update) => told.push(update),
            Output::Dial | Output::Renew | Output::HangUp => {}
        }
    }
    (sent, told)
}

/// Answers the one frame that was sent with this example.
fn answer(machine: &mut Machine, now: Instant, example: &str) {
    let mut reply: Value = serde_json::from_str(example).expect("the example is JSON");
    let (sent, _) = drained(machine);
    let [frame] = sent.as_slice() else { panic!("one frame was sent: {sent:?}") };
    reply["re"] = frame["id"].clone();
    machine.frame(now, &reply.to_string());
}

/// Returns a machine with one open session.
fn opened(now: Instant) -> (Machine, Session) {
    let identity = Identity { client_id: "client-0123456789".to_owned(), software: None };
    let mut machine = Machine::new(identity, fastrand::Rng::with_seed(1));
    machine.connect(now);
    machine.connected(Credentials::None);
    answer(&mut machine, now, include_str!("../../examples/v2/replies/welcome.json"));
    let session = machine.open(None, Opening::default());
    answer(&mut machine, now, include_str!("../../examples/v2/replies/session_opened.json"));
    (machine, session)
}

#[test]
fn a_session_that_this_client_deletes_has_ended() {
    let ok = json!({ "type": "ok", "payload": {} }).to_string();
    let refused = json!({
        "type": "error",
        "payload": { "code": "read_only", "message": "no", "retriable": false },
    });
    for (by_id, reply, ends) in [(false, &ok, true), (true, &ok, true), (false, &refused.to_string(), false)] {
        let now = Instant::now();
        let (mut machine, session) = opened(now);
        drained(&mut machine);
        let id = machine.session_id(session).expect("it is open").clone();
        let to = if by_id { To::Id(id) } else { To::Session(session) };
        machine.send(to, &Command::DeleteSession(Empty {})).expect("there is room");
        answer(&mut machine, now, reply);
        let (sent, told) = drained(&mut machine);
        let ended = Update::Ended { session, why: SessionEnd::Deleted };
        assert_eq!((told.contains(&ended), machine.is_open(session)), (ends, !ends), "by id {by_id}: {told:?}");
        assert!(sent.is_empty(), "{sent:?}");
    }
}
