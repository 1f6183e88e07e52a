//! The contract for the ring of minutes.

use crate::{MINUTES_KEPT, MinuteQuery, MinuteRow, SessionStore};

fn row(minute: i64, process: &str, body: &str) -> MinuteRow {
    MinuteRow { minute, process: process.to_owned(), body: body.to_owned() }
}

/// Returns the rows as `minute process body`.
async fn rows(store: &dyn SessionStore, query: MinuteQuery) -> Vec<String> {
    let rows = store.minutes(query).await.unwrap();
    rows.iter().map(|row| format!("{} {} {}", row.minute, row.process, row.body)).collect()
}

pub(crate) async fn minutes_are_read_in_order_and_the_oldest_are_removed(store: &dyn SessionStore) {
    let all = MinuteQuery { from: i64::MIN, to: i64::MAX, after: (i64::MIN, String::new()), limit: 100 };
    assert_eq!(rows(store, all.clone()).await, Vec::<String>::new());
    for (minute, process, body) in [(100, "b", "1"), (101, "a", "2"), (100, "a", "é"), (100, "a", "é\u{1f980}")] {
        store.put_minute(row(minute, process, body)).await.unwrap();
    }
    let expected = ["100 a é\u{1f980}", "100 b 1", "101 a 2"];
    assert_eq!(rows(store, all.clone()).await, expected);
    let some =
        |from, to, after: (i64, &str), limit| MinuteQuery { from, to, after: (after.0, after.1.to_owned()), limit };
    for (query, expected) in [
        (some(101, 200, (0, ""), 9), &expected[2..]),
        (some(0, 101, (0, ""), 9), &expected[..2]),
        (some(0, 200, (0, ""), 2), &expected[..2]),
        (some(0, 200, (100, "a"), 9), &expected[1..]),
        (some(0, 200, (100, "b"), 9), &expected[2..]),
        (some(0, 200, (101, "a"), 9), &[]),
    ] {
        assert_eq!(rows(store, query.clone()).await, expected, "{query:?}");
    }
    // A later minute ends the life of those a week before it.
    store.put_minute(row(100 + MINUTES_KEPT, "a", "3")).await.unwrap();
    assert_eq!(rows(store, all.clone()).await.len(), 4);
    store.put_minute(row(101 + MINUTES_KEPT, "a", "4")).await.unwrap();
    assert_eq!(rows(store, all).await, ["101 a 2", "10180 a 3", "10181 a 4"]);
}
