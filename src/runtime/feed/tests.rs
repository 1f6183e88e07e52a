//! Tests of the feed with readers of different speeds.

use super::*;
use crate::runtime::tail::{BYTES_MAX as TAIL_BYTES_MAX, EVENTS_MAX as TAIL_EVENTS_MAX};
use futures_util::FutureExt as _;
use reseed_protocol::{
    context::ContextWarning,
    session::{Host, HostChanged, Participant, PresenceChanged, SessionRole},
};

fn text(frame: &Frame) -> String {
    match frame {
        Frame::Durable(seq, frame) => {
            let value: serde_json::Value = serde_json::from_str(frame).unwrap();
            assert_eq!((value["sessionId"].as_str(), value["seq"].as_u64()), (Some("session"), Some(*seq)));
            format!("{seq} {}", value["type"].as_str().unwrap())
        }
        Frame::Ephemeral(frame) | Frame::Streamed(frame) => {
            let value: serde_json::Value = serde_json::from_str(frame).unwrap();
            let (kind, payload) = (value["type"].as_str().unwrap(), &value["payload"]);
            match (kind, payload["name"].as_str(), payload["part"].as_u64()) {
                ("item_delta", ..) => {
                    format!("{}@{} {}", payload["part"], payload["offset"], payload["text"].as_str().unwrap())
                }
                (kind, Some(name), Some(part)) => format!("{kind} {part} {name}"),
                (kind, _, Some(part)) => format!("{kind} {part}"),
                (kind, ..) => kind.to_owned(),
            }
        }
        other => format!("{other:?}"),
    }
}

/// Publishes events of these types.
fn publish(feed: &Feed, kinds: &[&str], ends: Option<&EntryId>) {
    let bodies: Vec<Arc<str>> = kinds.iter().map(|kind| format!("{{\"type\":\"{kind}\"}}").into()).collect();
    feed.publish(feed.seq() + bodies.len() as u64, &bodies, ends);
}

fn read(feed: &Feed, cursor: &mut Cursor) -> Vec<String> {
    feed.next(cursor, true, 64 * 1024).iter().map(text).collect()
}

fn ids() -> (EntryId, TurnId) {
    ("item".parse().unwrap(), "turn".parse().unwrap())
}

#[test]
fn each_reader_gets_everything_once_at_its_own_pace() {
    let feed = Feed::new("session".parse().unwrap(), 0);
    let (item, turn) = ids();
    let (mut fast, _) = feed.join();
    let (mut slow, _) = feed.join();
    publish(&feed, &["a"], None);
    assert_eq!(read(&feed, &mut fast), ["1 a"]);
    feed.begin_item(&item, &turn);
    for piece in ["Grü", "ße 🌍", "!"] {
        feed.delta(&item, Delta::Text { part: 0, text: piece });
        read(&feed, &mut fast);
    }
    assert_eq!(read(&feed, &mut slow), ["1 a", "item_started", "0@0 Grüße 🌍!"]);
    feed.delta(&item, Delta::Text { part: 0, text: "x" });
    assert_eq!(read(&feed, &mut slow), ["0@9 x"]);
    assert_eq!(read(&feed, &mut fast), ["0@9 x"]);
    publish(&feed, &["b"], Some(&item));
    feed.delta(&item, Delta::Text { part: 0, text: "late" });
    assert_eq!(read(&feed, &mut slow), ["item_finished", "2 b"]);
    assert!(read(&feed, &mut slow).is_empty());
}

#[test]
fn the_rest_of_an_answer_comes_before_its_entry_however_late_its_reader_is() {
    let long = "x".repeat(TAIL_BYTES_MAX + 1);
    for (entry, then) in [("entry", &["2 entry", "3 end"][..]), (&long, &["Behind { after: 1, up_to: 3 }"])] {
        let feed = Feed::new("session".parse().unwrap(), 0);
        let (item, turn) = ids();
        publish(&feed, &["begin"], None);
        let (mut began, _) = feed.join();
        let (late, _) = feed.join();
        feed.begin_item(&item, &turn);
        feed.delta(&item, Delta::Text { part: 0, text: "one" });
        assert_eq!(read(&feed, &mut began), ["item_started", "0@0 one"]);
        feed.delta(&item, Delta::Text { part: 0, text: " two" });
        publish(&feed, &[entry, "end"], Some(&item));
        let back = feed.rejoin(1, &[ItemPosition { item: item.clone(), part: 0, offset: 3 }]).unwrap();
        let away = feed.rejoin(1, &[]).unwrap();
        let rest: &[&str] = &["0@3  two", "item_finished"];
        let all: &[&str] = &["item_started", "0@0 one ", "0@4 two", "item_finished"];
        let table = [(began, rest), (late, all), (back, rest), (away, &[])];
        for (mut cursor, answer) in table {
            let mut got = Vec::new();
            loop {
                let frames = feed.next(&mut cursor, true, 4);
                got.extend(frames.iter().map(text));
                if matches!(frames.last(), None | Some(Frame::Behind { .. })) {
                    break;
                }
            }
            assert_eq!(got, [answer, then].concat());
        }
        assert!(feed.join().1.is_empty(), "nothing is being streamed");
    }
}

#[test]
fn text_wakes_who_waits_and_not_again_at_once() {
    let feed = Feed::new("session".parse().unwrap(), 0);
    let (item, turn) = ids();
    let (mut cursor, _) = feed.join();
    let bell = Bell::default();
    let _reader = Reader::new(&feed, bell.clone());
    let woken = || bell.notified().now_or_never().is_some();
    assert!(woken(), "a new reader looks at once");
    let word = || feed.delta(&item, Delta::Text { part: 0, text: "x" });
    assert!(read(&feed, &mut cursor).is_empty());
    feed.begin_item(&item, &turn);
    word();
    assert!(woken(), "it waited");
    word();
    assert!(!woken(), "it has not come yet");
    assert_eq!(read(&feed, &mut cursor), ["item_started", "0@0 xx"]);
    assert!(read(&feed, &mut cursor).is_empty());
    word();
    assert!(!woken(), "it was woken a moment ago, and will look by itself");
    publish(&feed, &["a"], None);
    assert!(woken(), "durable events wake at once");
    assert_eq!(read(&feed, &mut cursor), ["1 a", "0@2 x"]);
    assert!(read(&feed, &mut cursor).is_empty());
    feed.begin_item(&item, &turn);
    word();
    assert!(woken(), "so do the first words of an answer");
    feed.lock().woken_at = Instant::now().checked_sub(DELTA_PAUSE);
    read(&feed, &mut cursor);
    assert!(read(&feed, &mut cursor).is_empty());
    word();
    assert!(woken(), "and words after a pause");
}

#[test]
fn who_comes_back_is_told_first_which_answers_came_to_nothing() {
    let feed = Feed::new("session".parse().unwrap(), 0);
    publish(&feed, &["a"], None);
    let mut cursor = feed.rejoin(0, &[]).unwrap();
    cursor.report_aborted(vec![ids().0]);
    assert_eq!(read(&feed, &mut cursor), ["item_aborted", "1 a"]);
    assert!(read(&feed, &mut cursor).is_empty());
}

#[test]
fn the_end_of_an_answer_without_an_entry_is_not_lost_among_decoration() {
    let feed = Feed::new("session".parse().unwrap(), 0);
    let (item, turn) = ids();
    let (mut cursor, _) = feed.join();
    feed.begin_item(&item, &turn);
    feed.delta(&item, Delta::Text { part: 0, text: "one" });
    assert_eq!(read(&feed, &mut cursor), ["item_started", "0@0 one"]);
    feed.emit(&EphemeralEvent::ItemAborted(ItemAborted { item_id: item, reason: "interrupted".to_owned() }));
    let warning = ContextWarning { usage_ratio: 0.75, message: "nearly full".to_owned(), code: None };
    for _ in 0..3 * EPHEMERAL_EVENTS_MAX {
        feed.emit(&EphemeralEvent::ContextWarning(warning.clone()));
    }
    let kept = read(&feed, &mut cursor);
    assert_eq!((kept.len(), kept[0].as_str()), (EPHEMERAL_EVENTS_MAX, "item_aborted"));
}

#[test]
fn what_was_shown_is_given_until_it_is_an_entry() {
    let feed = Feed::new("session".parse().unwrap(), 0);
    let (item, turn) = ids();
    feed.begin_item(&item, &turn);
    assert_eq!(feed.stop(&item), []);
    feed.begin_item(&item, &turn);
    feed.delta(&item, Delta::Text { part: 0, text: "one" });
    // It breaks off, and is then cancelled before the failure is handled.
    for _ in 0..2 {
        assert_eq!(feed.stop(&item), [Part::Text { text: "one".into() }]);
    }
    feed.delta(&item, Delta::Text { part: 0, text: "two" });
    publish(&feed, &["entry"], Some(&item));
    assert_eq!(feed.stop(&item), []);
}

/// Streams an answer of one text and two calls whose pieces alternate.
fn with_calls(feed: &Feed) -> EntryId {
    let (item, turn) = ids();
    feed.begin_item(&item, &turn);
    for delta in [
        Delta::Text { part: 0, text: "Look:" },
        Delta::Call { part: 1, name: "look" },
        Delta::Arguments { part: 1, text: "{\"at\":\"" },
        Delta::Call { part: 2, name: "see" },
        Delta::Arguments { part: 2, text: "{}" },
        Delta::CallEnd { part: 2 },
        Delta::Arguments { part: 1, text: "🌍" },
    ] {
        feed.delta(&item, delta);
    }
    item
}

#[test]
fn a_call_is_shown_with_its_name_its_arguments_and_its_end() {
    let feed = Feed::new("session".parse().unwrap(), 0);
    let (mut cursor, _) = feed.join();
    let item = with_calls(&feed);
    let begun =
        ["item_started", "0@0 Look:", "item_started 1 look", "1@0 {\"at\":\"🌍", "item_started 2 see", "2@0 {}"];
    assert_eq!(read(&feed, &mut cursor), [&begun[..], &["item_finished 2"]].concat());
    let running = serde_json::to_value(feed.join().1).unwrap();
    let parts = serde_json::json!([
        { "type": "text", "text": "Look:" },
        { "type": "tool_call", "name": "look", "arguments": "{\"at\":\"🌍" },
        { "type": "tool_call", "name": "see", "arguments": "{}", "finished": true },
    ]);
    assert_eq!(running[0]["parts"], parts);
    feed.delta(&item, Delta::Arguments { part: 1, text: "\"}" });
    feed.delta(&item, Delta::CallEnd { part: 1 });
    let (mut late, _) = (Cursor::default(), publish(&feed, &["entry"], Some(&item)));
    assert_eq!(read(&feed, &mut cursor), ["1@9 \"}", "item_finished 1", "item_finished", "1 entry"]);
    assert!(read(&feed, &mut cursor).is_empty());
    let whole = "1@0 {\"at\":\"🌍\"}";
    let all = [&begun[..3], &[whole, "item_finished 1"], &begun[4..], &["item_finished 2", "item_finished", "1 entry"]];
    assert_eq!(read(&feed, &mut late), all.concat());
}

#[test]
fn a_reader_rejoins_within_the_arguments_of_a_call() {
    let feed = Feed::new("session".parse().unwrap(), 0);
    let item = with_calls(&feed);
    let look = ["item_started 1 look", "1@0 {\"at\":\"🌍"];
    let see = ["item_started 2 see", "2@0 {}", "item_finished 2"];
    // The positions of a client, and what follows.
    type Case<'a> = (&'a [(u32, u64)], Option<Vec<&'a str>>);
    let table: &[Case<'_>] = &[
        // A client that knows only the item receives each call. So does one that has only the name of a call.
        (&[(0, 0)], Some([&["0@0 Look:"], &look[..], &see].concat())),
        (&[(0, 5), (1, 0)], Some([&look[..], &see].concat())),
        (&[(0, 5), (1, 7)], Some([&["1@7 🌍"], &see[..]].concat())),
        (&[(0, 5), (1, 9), (2, 1)], Some(vec!["2@1 }", "item_finished 2"])),
        (&[(0, 5), (1, 9), (2, 2)], Some(vec!["item_finished 2"])),
        (&[(0, 5), (1, 8)], None),
        (&[(0, 5), (1, 10)], None),
        (&[(3, 0)], None),
    ];
    for (positions, expected) in table {
        let seen: Vec<ItemPosition> =
            positions.iter().map(|&(part, offset)| ItemPosition { item: item.clone(), part, offset }).collect();
        let got = feed.rejoin(0, &seen).map(|mut cursor| {
            let got = read(&feed, &mut cursor);
            assert!(read(&feed, &mut cursor).is_empty());
            got
        });
        assert_eq!(got, expected.as_ref().map(|e| e.iter().map(ToString::to_string).collect()), "{positions:?}");
    }
}

#[test]
fn a_stopped_answer_finishes_without_its_calls_or_is_aborted() {
    for is_stored in [true, false] {
        let feed = Feed::new("session".parse().unwrap(), 0);
        let (mut cursor, _) = feed.join();
        let item = with_calls(&feed);
        read(&feed, &mut cursor);
        let text = |text: &str| Part::Text { text: text.to_owned() };
        assert_eq!(feed.stop(&item), [text("Look:"), text(""), text("")], "a call that was not made is not kept");
        feed.delta(&item, Delta::Arguments { part: 1, text: "late" });
        assert!(read(&feed, &mut cursor).is_empty());
        if is_stored {
            publish(&feed, &["entry"], feed.unfinished_item().as_ref());
            assert_eq!(read(&feed, &mut cursor), ["item_finished", "1 entry"]);
        } else {
            let reason = "interrupted".to_owned();
            feed.emit(&EphemeralEvent::ItemAborted(ItemAborted { item_id: item, reason }));
            assert_eq!(read(&feed, &mut cursor), ["item_aborted"]);
        }
        assert_eq!(feed.unfinished_item(), None);
    }
}

/// Returns the number of serialisations among the frames that these readers receive. Shared frames share their bytes.
fn serialisations(feed: &Feed, cursors: &mut [Cursor]) -> usize {
    let frames: Vec<Frame> = cursors.iter_mut().flat_map(|cursor| feed.next(cursor, true, 64 * 1024)).collect();
    let bytes = |frame: &Frame| match frame {
        Frame::Durable(_, frame) | Frame::Ephemeral(frame) | Frame::Streamed(frame) => frame.as_ptr(),
        other => panic!("{other:?}"),
    };
    assert!(frames.len() >= cursors.len(), "each is given something");
    // All of them exist at once, so different ones have different addresses.
    frames.iter().map(bytes).collect::<std::collections::BTreeSet<_>>().len()
}

#[test]
fn readers_share_one_serialisation_of_each_event_and_of_each_range_of_text() {
    let feed = Feed::new("session".parse().unwrap(), 0);
    let mut readers = vec![feed.join().0; 100];
    publish(&feed, &["a"], None);
    assert_eq!(serialisations(&feed, &mut readers), 1, "a durable event");
    feed.emit(&EphemeralEvent::ContextWarning(ContextWarning {
        usage_ratio: 0.75,
        message: "full".to_owned(),
        code: None,
    }));
    assert_eq!(serialisations(&feed, &mut readers), 1, "an ephemeral event");
    let (item, turn) = ids();
    feed.begin_item(&item, &turn);
    feed.delta(&item, Delta::Text { part: 0, text: "one" });
    assert_eq!(serialisations(&feed, &mut readers[..60]), 2, "item_started and a piece");
    feed.delta(&item, Delta::Text { part: 0, text: " two" });
    assert_eq!(serialisations(&feed, &mut readers[..30]), 1, "the newest piece, for those that keep up");
    feed.delta(&item, Delta::Text { part: 0, text: " three" });
    // From 0 (with the remembered item_started), from 3 and from 7 to the end.
    assert_eq!(serialisations(&feed, &mut readers), 4, "one for each position, and item_started");
    feed.delta(&item, Delta::Call { part: 1, name: "look" });
    feed.delta(&item, Delta::Arguments { part: 1, text: "{}" });
    feed.delta(&item, Delta::CallEnd { part: 1 });
    assert_eq!(serialisations(&feed, &mut readers), 3, "a call's beginning, its arguments and its end");
    publish(&feed, &["entry", "end"], Some(&item));
    assert_eq!(serialisations(&feed, &mut readers), 3, "item_finished, the entry and another event");
}

#[test]
fn a_position_costs_no_more_than_before_once_its_answer_is_over() {
    let feed = Feed::new("session".parse().unwrap(), 0);
    let (mut cursor, _) = feed.join();
    let fresh = (std::mem::size_of::<AnswerPosition>(), cursor.answer.clone());
    let item = with_calls(&feed);
    read(&feed, &mut cursor);
    publish(&feed, &["entry"], Some(&item));
    read(&feed, &mut cursor);
    assert_eq!((fresh.0, cursor.answer.parts_capacity()), (32, fresh.1.parts_capacity()));
}

#[test]
fn a_reader_that_is_far_behind_is_sent_to_the_store() {
    let feed = Feed::new("session".parse().unwrap(), 0);
    let (mut cursor, _) = feed.join();
    for _ in 0..TAIL_EVENTS_MAX + 1 {
        publish(&feed, &["x"], None);
    }
    assert_eq!(feed.next(&mut cursor, true, 1024), [Frame::Behind { after: 0, up_to: TAIL_EVENTS_MAX as u64 + 1 }]);
}

#[test]
fn a_reader_rejoins_within_an_answer_or_not_at_all() {
    let feed = Feed::new("session".parse().unwrap(), 3);
    let (item, turn) = ids();
    feed.begin_item(&item, &turn);
    feed.delta(&item, Delta::Text { part: 0, text: "a🌍b" });
    let table: &[(u64, u64, Option<&[&str]>)] =
        &[(3, 0, Some(&["0@0 a🌍b"])), (3, 3, Some(&["0@3 b"])), (3, 2, None), (3, 9, None), (4, 0, None)];
    for (seq, offset, expected) in table {
        let cursor = feed.rejoin(*seq, &[ItemPosition { item: item.clone(), part: 0, offset: *offset }]);
        let got = cursor.map(|mut cursor| read(&feed, &mut cursor));
        assert_eq!(got, expected.map(|e| e.iter().map(ToString::to_string).collect()), "{seq} {offset}");
    }
}

#[test]
fn a_reader_that_is_behind_gets_only_the_newest_state_of_the_meter() {
    let meter = |tokens: u64| -> EphemeralEvent {
        let path = format!("{}/protocol/examples/v2/events/context_updated.json", env!("CARGO_MANIFEST_DIR"));
        let mut example: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        example["payload"]["contextInfo"]["tokenCount"] = tokens.into();
        serde_json::from_value(serde_json::json!({ "type": example["type"], "payload": example["payload"] })).unwrap()
    };
    let counts = |feed: &Feed, cursor: &mut Cursor| -> Vec<u64> {
        let count = |frame: &Frame| match frame {
            Frame::Ephemeral(frame) => {
                let value: serde_json::Value = serde_json::from_str(frame).unwrap();
                value["payload"]["contextInfo"]["tokenCount"].as_u64().unwrap()
            }
            other => panic!("{other:?}"),
        };
        feed.next(cursor, true, 64 * 1024).iter().map(count).collect()
    };
    let feed = Feed::new("session".parse().unwrap(), 0);
    let ((mut fast, _), (mut slow, _)) = (feed.join(), feed.join());
    for tokens in 1..=3 {
        feed.emit(&meter(tokens));
        assert_eq!(counts(&feed, &mut fast), [tokens]);
    }
    assert_eq!(counts(&feed, &mut slow), [3]);
    assert!(counts(&feed, &mut slow).is_empty() && counts(&feed, &mut fast).is_empty());
}

#[test]
fn of_hosts_and_connections_a_slow_reader_is_told_the_newest() {
    let changed = |connection: &str, left: bool| {
        let connection_id = connection.parse().unwrap();
        let connection =
            Participant { connection_id, client_id: None, client: None, role: SessionRole::Writer, offers: false };
        EphemeralEvent::PresenceChanged(PresenceChanged { connection, left })
    };
    let host = |connection: &str| {
        let host = Host { connection_id: connection.parse().unwrap(), client_id: None, away: false };
        EphemeralEvent::HostChanged(HostChanged { host: Some(host) })
    };
    let feed = Feed::new("session".parse().unwrap(), 0);
    let (mut cursor, _) = feed.join();
    feed.emit(&host("one"));
    feed.emit(&changed("one", false));
    feed.emit(&host("two"));
    // There are more events than are kept. The host event is among those that are not dropped.
    for number in 0..EPHEMERAL_EVENTS_MAX {
        feed.emit(&changed(&format!("c{number}"), false));
    }
    feed.emit(&changed("c5", true));
    let frames: Vec<String> = feed
        .next(&mut cursor, true, usize::MAX)
        .into_iter()
        .map(|frame| match frame {
            Frame::Ephemeral(text) => text.to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(frames.len(), EPHEMERAL_EVENTS_MAX);
    let of = |what: &str| frames.iter().filter(|frame| frame.contains(what)).count();
    assert_eq!((of("host_changed"), of(r#""two""#), of(r#""c5""#), of(r#""left":true"#)), (1, 1, 1, 1), "{frames:?}");
}
