//! The feed, read by readers of different speed.

use super::*;
use futures_util::FutureExt as _;
use reseed_protocol::event::ContextWarning;

fn text(frame: &Frame) -> String {
    match frame {
        Frame::Durable(seq, body) => format!("{seq} {body}"),
        Frame::Ephemeral(frame) => {
            let value: serde_json::Value = serde_json::from_str(frame).unwrap();
            value["type"].as_str().unwrap().to_owned()
        }
        Frame::Delta(frame) => {
            let value: serde_json::Value = serde_json::from_str(frame).unwrap();
            let payload = &value["payload"];
            format!("{}@{} {}", payload["part"], payload["offset"], payload["text"].as_str().unwrap())
        }
        other => format!("{other:?}"),
    }
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
    feed.publish(&["a".into()], None);
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
    feed.publish(&["b".into()], Some(&item));
    feed.delta(&item, Delta::Text { part: 0, text: "late" });
    assert_eq!(read(&feed, &mut slow), ["2 b"]);
    assert!(read(&feed, &mut slow).is_empty());
}

#[test]
fn the_rest_of_an_answer_comes_before_its_entry_however_late_its_reader_is() {
    let long = "x".repeat(TAIL_BYTES_MAX + 1);
    for (entry, then) in [("entry", &["2 entry", "3 end"][..]), (&long, &["Behind { after: 1, up_to: 3 }"])] {
        let feed = Feed::new("session".parse().unwrap(), 0);
        let (item, turn) = ids();
        feed.publish(&["begin".into()], None);
        let (mut began, _) = feed.join();
        let (late, _) = feed.join();
        feed.begin_item(&item, &turn);
        feed.delta(&item, Delta::Text { part: 0, text: "one" });
        assert_eq!(read(&feed, &mut began), ["item_started", "0@0 one"]);
        feed.delta(&item, Delta::Text { part: 0, text: " two" });
        feed.publish(&[entry.into(), "end".into()], Some(&item));
        let back = feed.rejoin(1, &[Seen { item: item.clone(), part: 0, offset: 3 }]).unwrap();
        let away = feed.rejoin(1, &[]).unwrap();
        let rest: &[&str] = &["0@3  two"];
        let table = [(began, rest), (late, &["item_started", "0@0 one ", "0@4 two"]), (back, rest), (away, &[])];
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
    feed.publish(&["a".into()], None);
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
    feed.publish(&["a".into()], None);
    let mut cursor = feed.rejoin(0, &[]).unwrap();
    cursor.tell_void(vec![ids().0]);
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
    let warning = ContextWarning { usage_ratio: 0.75, message: "nearly full".to_owned() };
    for _ in 0..3 * EPHEMERAL_EVENTS_MAX {
        feed.emit(&EphemeralEvent::ContextWarning(warning.clone()));
    }
    let kept = read(&feed, &mut cursor);
    assert_eq!((kept.len(), kept[0].as_str()), (EPHEMERAL_EVENTS_MAX, "item_aborted"));
}

#[test]
fn what_was_shown_is_known_from_the_first_word_to_the_end() {
    let feed = Feed::new("session".parse().unwrap(), 0);
    let (item, turn) = ids();
    feed.begin_item(&item, &turn);
    assert!(!feed.shows(&item));
    feed.delta(&item, Delta::Text { part: 0, text: "one" });
    assert!(feed.shows(&item));
    feed.publish(&["entry".into()], Some(&item));
    assert!(!feed.shows(&item));
}

#[test]
fn a_reader_that_is_far_behind_is_sent_to_the_store() {
    let feed = Feed::new("session".parse().unwrap(), 0);
    let (mut cursor, _) = feed.join();
    for _ in 0..TAIL_EVENTS_MAX + 1 {
        feed.publish(&["x".into()], None);
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
        let cursor = feed.rejoin(*seq, &[Seen { item: item.clone(), part: 0, offset: *offset }]);
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
