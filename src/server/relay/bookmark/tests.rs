//! Tests of where a bookmark is after each frame, and of what it sends to go on there.

use super::*;
use serde_json::{Value, json};

fn session() -> SessionId {
    "s".parse().unwrap()
}

fn answer(more: &Value) -> String {
    let mut payload = json!({ "epoch": "e", "role": "writer", "asOfSeq": 3 });
    payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "re": "1", "sessionId": "s", "type": "session_opened", "payload": payload }).to_string()
}

fn bookmark(open: Value, more: &Value) -> Bookmark {
    let open = serde_json::from_value(open).unwrap();
    Bookmark::at(&open, &answer(more), &"me".parse().unwrap()).unwrap()
}

fn passes(bookmark: &mut Bookmark, frame: &Value) -> Pass {
    let frame = frame.to_string();
    bookmark.passes(&Peek::at(&frame).unwrap(), &frame)
}

fn durable(seq: u64, kind: &str) -> Value {
    json!({ "sessionId": "s", "seq": seq, "type": kind, "payload": {} })
}

fn live(kind: &str, payload: Value) -> Value {
    json!({ "sessionId": "s", "type": kind, "payload": payload })
}

/// Returns the place from which the session is opened again.
fn resume(bookmark: &Bookmark) -> Value {
    let id = "reseed.relay.1.0".parse().unwrap();
    let command: Value = serde_json::from_str(&bookmark.open_again(&id, &session())).unwrap();
    let resume = &command["payload"]["resume"];
    assert_eq!((&command["type"], &resume["epoch"]), (&json!("open_session"), &json!("e")));
    json!([resume["seq"], resume["items"]])
}

#[test]
fn a_place_is_in_the_log_and_in_each_part_of_the_answer() {
    let mut place = bookmark(json!({ "entries": 5, "deltas": false, "role": "observer" }), &json!({}));
    assert_eq!(resume(&place), json!([3, []]));
    let delta = |part: u32, offset: u64, text: &str| {
        live("item_delta", json!({ "itemId": "i", "part": part, "offset": offset, "text": text }))
    };
    let told = [
        durable(4, "turn_started"),
        live("item_started", json!({ "itemId": "i", "turnId": "t", "kind": "message" })),
        delta(0, 0, "a\u{1f431}"),
        live("item_started", json!({ "itemId": "i", "turnId": "t", "kind": "tool_call", "part": 1, "name": "n" })),
        delta(0, 3, "b"),
    ];
    let places = [
        json!([4, []]),
        json!([4, [{ "itemId": "i", "part": 0, "offset": 0 }]]),
        json!([4, [{ "itemId": "i", "part": 0, "offset": 3 }]]),
        json!([4, [{ "itemId": "i", "part": 0, "offset": 3 }, { "itemId": "i", "part": 1, "offset": 0 }]]),
        json!([4, [{ "itemId": "i", "part": 0, "offset": 4 }, { "itemId": "i", "part": 1, "offset": 0 }]]),
    ];
    for (frame, expected) in told.iter().zip(places) {
        assert_eq!(passes(&mut place, frame), Pass::On, "{frame}");
        assert_eq!(resume(&place), expected, "{frame}");
    }
    // Events that are repeated after that are not told twice.
    assert_eq!(place.go_on(&answer(&json!({ "resumed": "replay" })), &session()), Ok(Vec::new()));
    for known in [&told[0], &told[3]] {
        assert_eq!(passes(&mut place, known), Pass::Again, "{known}");
    }
    let whole = live("item_finished", json!({ "itemId": "i" }));
    assert_eq!(passes(&mut place, &whole), Pass::On);
    assert_eq!(passes(&mut place, &whole), Pass::Again);
    assert_eq!(passes(&mut place, &durable(6, "entry_appended")), Pass::Gap);
    assert_eq!(passes(&mut place, &durable(5, "entry_appended")), Pass::On);
    assert_eq!(resume(&place), json!([5, []]), "its entry is there");
    passes(&mut place, &delta(0, 0, "c"));
    passes(&mut place, &live("item_aborted", json!({ "itemId": "i", "reason": "x" })));
    assert_eq!(resume(&place), json!([5, []]), "it is void");
}

#[test]
fn a_place_begins_where_the_client_is() {
    let turn = json!({ "turn": { "turnId": "t", "items": [{ "itemId": "i", "parts": [
        { "type": "text", "text": "ab" }, { "type": "tool_call", "name": "n", "arguments": "{", "finished": true },
    ] }] } });
    let items = json!([{ "itemId": "i", "part": 0, "offset": 2 }, { "itemId": "i", "part": 1, "offset": 1 }]);
    assert_eq!(resume(&bookmark(json!({}), &turn)), json!([3, items]));
    let own = json!({ "resume": { "epoch": "e", "seq": 1, "items": items } });
    let replay = json!({ "resumed": "replay" });
    assert_eq!(resume(&bookmark(own.clone(), &replay)), json!([1, items]), "events follow from there");
    assert_eq!(resume(&bookmark(own, &json!({ "resumed": "snapshot" }))), json!([3, []]));
}

#[test]
fn what_only_the_client_can_repair_is_left_to_it() {
    let mut place = bookmark(json!({}), &json!({}));
    for (more, is_refused) in [
        (json!({ "resumed": "snapshot" }), true),
        (json!({ "resumed": "replay", "epoch": "f" }), true),
        (json!({ "resumed": "replay" }), false),
    ] {
        assert_eq!(place.go_on(&answer(&more), &session()).is_err(), is_refused, "{more}");
    }
    let host = json!({ "connectionId": "other" });
    let told = |place: &mut Bookmark, more: &Value| -> Result<Vec<Value>, &'static str> {
        let missed = place.go_on(&answer(more), &session())?;
        Ok(missed.iter().map(|event| serde_json::from_str(event).unwrap()).collect())
    };
    let missed = told(&mut place, &json!({ "resumed": "replay", "host": host })).unwrap();
    assert_eq!((&missed[0]["type"], &missed[0]["payload"]["host"]), (&json!("host_changed"), &host));
    // The client is told who came and left meanwhile.
    let participant = |id: &str| json!({ "connectionId": id, "role": "writer" });
    for (known, there, expected) in [
        (vec![], vec!["ann"], vec![("ann", false)]),
        (vec!["ann"], vec!["ann"], vec![]),
        (vec!["ann"], vec!["bob"], vec![("ann", true), ("bob", false)]),
    ] {
        let presence = |ids: &[&str]| ids.iter().map(|id| participant(id)).collect::<Vec<_>>();
        let mut place = bookmark(json!({}), &json!({ "presence": presence(&known) }));
        let missed = told(&mut place, &json!({ "resumed": "replay", "presence": presence(&there) })).unwrap();
        let missed: Vec<_> = missed.iter().map(|event| event["payload"].clone()).collect();
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(id, left)| match left {
                true => json!({ "connection": participant(id), "left": true }),
                false => json!({ "connection": participant(id) }),
            })
            .collect();
        assert_eq!(missed, expected, "{known:?} {there:?}");
    }
    // Whatever has changed of one is told; of one that has left, little is known.
    let full = json!({ "connectionId": "ann", "role": "writer", "clientId": "tab", "offers": true,
        "client": { "name": "n", "version": "1" } });
    let changed = [
        ("role", json!("observer")),
        ("clientId", json!("other")),
        ("offers", json!(false)),
        ("client", json!({ "name": "n", "version": "2" })),
    ];
    for (field, value) in changed {
        let mut now = full.clone();
        now[field] = value;
        let mut place = bookmark(json!({}), &json!({ "presence": [full] }));
        passes(&mut place, &live("presence_changed", json!({ "connection": full })));
        let missed = told(&mut place, &json!({ "resumed": "replay", "presence": [full] })).unwrap();
        assert_eq!(missed, Vec::<Value>::new());
        let missed = told(&mut place, &json!({ "resumed": "replay", "presence": [now] })).unwrap();
        assert_eq!(missed.len(), 1, "{field}");
        let told = &missed[0]["payload"];
        assert_eq!(told, &json!({ "connection": told["connection"] }), "{field}: it has not left");
        assert_eq!(told["connection"].get(field).unwrap_or(&json!(false)), &now[field], "{field}");
    }
    let mut place = bookmark(json!({}), &json!({ "presence": [full] }));
    let missed = told(&mut place, &json!({ "resumed": "replay" })).unwrap();
    assert_eq!(missed[0]["payload"], json!({ "connection": participant("ann"), "left": true }));
    let place_with = |event: Option<&str>, more: Value| {
        let mut place = bookmark(json!({}), &json!({}));
        if let Some(kind) = event {
            assert_eq!(passes(&mut place, &live(kind, json!({ "jobId": "j" }))), Pass::On);
        }
        told(&mut place, &more).is_ok()
    };
    let (runs, waits) = (
        json!({ "resumed": "replay", "compaction": { "jobId": "j" } }),
        json!({ "resumed": "replay", "held": { "jobId": "j" } }),
    );
    let ordered = json!({ "resumed": "replay", "compaction": { "jobId": "j", "phase": "ordered" } });
    assert!(place_with(None, ordered), "its start is still to come");
    assert!(!place_with(None, runs.clone()) && !place_with(None, waits.clone()), "it was not told of it");
    assert!(place_with(Some("compaction_started"), runs) && place_with(Some("compaction_prepared"), waits));
    assert_eq!(place.hindrance(), None);
    let tool = json!({ "name": "n", "description": "d", "parameters": {} });
    let mine = json!({ "host": { "connectionId": "me" } });
    for (open, more) in [(json!({ "tools": [tool] }), json!({})), (json!({}), mine)] {
        assert!(bookmark(open, &more).hindrance().is_some(), "{more}");
    }
    let far = live("item_delta", json!({ "itemId": "i", "part": PLACES_MAX, "offset": 0, "text": "x" }));
    assert_eq!(passes(&mut place, &far), Pass::On);
    assert!(place.hindrance().is_some(), "too many parts");
}
