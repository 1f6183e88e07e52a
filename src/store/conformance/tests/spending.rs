//! The contract for the account of requests to models.

use super::{NOW, append_of, id};
use crate::{Append, DELETED_OWNER, DELETED_SESSION, Error, SessionStore, UsageBy, UsageQuery, UsageStep, UsageSum};
use reseed_core::usage_row::{UsagePurpose, UsageRow, UsageTokens};
use reseed_protocol::{Timestamp, UsageSource};

/// Milliseconds of a day.
const DAY: i64 = 86_400_000;

/// Returns a row of this session with these input tokens, at [`NOW`].
pub(crate) fn usage_row(request: &str, session: &str, input: u64) -> UsageRow {
    UsageRow {
        id: request.to_owned(),
        at: NOW,
        owner: "ann".to_owned(),
        session: id(session),
        model: "m".to_owned(),
        purpose: UsagePurpose::Turn,
        tokens: UsageTokens { input, cached: 1, cache_write: 2, cache_write_hour: 1, output: 3, reasoning: 2 },
        source: UsageSource::Reported,
        cost_nano_usd: Some(100 * input),
    }
}

fn by(by: UsageBy) -> UsageQuery {
    UsageQuery { by, limit: 100, ..UsageQuery::default() }
}

/// Returns the sums as `key:requests/input`.
async fn sums(store: &dyn SessionStore, query: UsageQuery) -> String {
    let page = store.usage_sums(query).await.unwrap();
    let shown = page.items.iter().map(|sum| format!("{}:{}/{}", sum.key, sum.requests, sum.tokens.input));
    shown.collect::<Vec<_>>().join(" ")
}

pub(crate) async fn usage_is_written_with_its_append_and_kept(store: &dyn SessionStore) {
    let lease = store.create(&id("s"), "ann", NOW).await.unwrap();
    let with = |rows: Vec<UsageRow>| Append { usage: rows, ..append_of(["a"]) };
    assert_eq!(sums(store, by(UsageBy::Total)).await, "", "nothing was spent yet");
    store.append(&lease, 1, with(vec![usage_row("r1", "s", 10), usage_row("r2", "s", 20)])).await.unwrap();
    // What is refused costs nothing.
    let (newer, _) = store.open(&id("s")).await.unwrap();
    for (lease, seq) in [(&lease, 2), (&newer, 1), (&newer, 3)] {
        let refused = store.append(lease, seq, with(vec![usage_row("r3", "s", 40)])).await;
        assert!(matches!(refused, Err(Error::Fenced { .. })), "{refused:?}");
    }
    assert_eq!(sums(store, by(UsageBy::Total)).await, ":2/30");
    // Without records, alone, and again: a request is counted once, as it was written last.
    let alone = Append { records: Vec::new(), ..with(vec![usage_row("r4", "s", 40)]) };
    store.append(&newer, 2, alone.clone()).await.unwrap();
    store.append(&newer, 2, alone).await.unwrap();
    store.add_usage(vec![usage_row("r5", "s", 1), usage_row("r2", "s", 21)]).await.unwrap();
    store.add_usage(Vec::new()).await.unwrap();
    assert_eq!(sums(store, by(UsageBy::Total)).await, ":4/72");
    store.delete(&id("s")).await.unwrap();
    assert_eq!(sums(store, by(UsageBy::Session)).await, "s:4/72", "it is kept");
    assert_eq!(store.head(&id("s")).await.map(drop), Err(Error::NotFound(id("s"))));
}

pub(crate) async fn usage_is_summed_by_what_is_asked_for(store: &dyn SessionStore) {
    let mut rows = Vec::new();
    for (n, (owner, session, model, day)) in
        [("ann", "s1", "m", 0), ("ann", "s2", "m", 1), ("bob", "s3", "large", 1), ("", "s4", "m\0x", 3)]
            .into_iter()
            .enumerate()
    {
        let row = usage_row(&format!("r{n}"), session, 10_u64.pow(u32::try_from(n).unwrap()));
        let at = Timestamp(NOW.0 + day * DAY);
        rows.push(UsageRow { owner: owner.to_owned(), model: model.to_owned(), at, ..row });
    }
    // One was not reported, one has no price, and one was never sent.
    rows[1].source = UsageSource::Estimated;
    rows[2].cost_nano_usd = None;
    rows.push(UsageRow { tokens: UsageTokens::default(), ..usage_row("r9", "s1", 0) });
    store.add_usage(rows).await.unwrap();

    let of = |owner: &str| UsageQuery { owner: Some(owner.to_owned()), ..by(UsageBy::Day) };
    let from = |day: i64| Some(Timestamp(NOW.0 + day * DAY));
    for (query, expected) in [
        (by(UsageBy::User), ":1/1000 ann:2/11 bob:1/100"),
        (by(UsageBy::Model), "large:1/100 m:2/11 m\0x:1/1000"),
        (by(UsageBy::Session), "s1:1/1 s2:1/10 s3:1/100 s4:1/1000"),
        (by(UsageBy::Day), "2026-11-21:1/1 2026-11-22:2/110 2026-11-24:1/1000"),
        (by(UsageBy::Total), ":4/1111"),
        (of("ann"), "2026-11-21:1/1 2026-11-22:1/10"),
        (of("nobody"), ""),
        (UsageQuery { session: Some(id("s3")), ..by(UsageBy::User) }, "bob:1/100"),
        // The lower bound is included, the upper one is not.
        (UsageQuery { from: from(1), ..by(UsageBy::Session) }, "s2:1/10 s3:1/100 s4:1/1000"),
        (UsageQuery { to: from(1), ..by(UsageBy::Session) }, "s1:1/1"),
        (UsageQuery { from: from(1), to: from(3), ..by(UsageBy::Total) }, ":2/110"),
    ] {
        assert_eq!(sums(store, query.clone()).await, expected, "{query:?}");
    }
    let page = store.usage_sums(by(UsageBy::Total)).await.unwrap();
    let expected = UsageSum {
        from: None,
        key: String::new(),
        requests: 4,
        estimated_requests: 1,
        unpriced_requests: 1,
        tokens: UsageTokens { input: 1_111, cached: 4, cache_write: 8, cache_write_hour: 4, output: 12, reasoning: 8 },
        cost_nano_usd: 100 + 100_000,
        estimated_nano_usd: 1_000,
    };
    assert_eq!((page.items, page.next_cursor), (vec![expected], None));

    // Pages hold each group once.
    for grouping in [UsageBy::User, UsageBy::Model, UsageBy::Day, UsageBy::Session] {
        let whole = sums(store, by(grouping)).await;
        let (mut paged, mut query) = (Vec::new(), UsageQuery { limit: 1, ..by(grouping) });
        loop {
            let page = store.usage_sums(query.clone()).await.unwrap();
            assert_eq!(page.items.len(), 1, "{grouping:?}");
            paged.extend(page.items.iter().map(|sum| format!("{}:{}/{}", sum.key, sum.requests, sum.tokens.input)));
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                break;
            }
        }
        assert_eq!(paged.join(" "), whole, "{grouping:?}");
    }
    let wrong = UsageQuery { cursor: Some("yesterday".to_owned()), ..by(UsageBy::Day) };
    assert_eq!(store.usage_sums(wrong).await, Err(Error::Cursor("yesterday".to_owned())));
}

pub(crate) async fn usage_is_summed_in_steps(store: &dyn SessionStore) {
    // NOW is 06:45:04.123.
    let rows = [("ann", 0), ("bob", 10), ("ann", 55_000), ("ann", 56_000), ("ann", 3_600_000), ("a.b", DAY)];
    let rows = rows.into_iter().enumerate().map(|(n, (owner, after))| UsageRow {
        owner: owner.to_owned(),
        at: Timestamp(NOW.0 + after),
        ..usage_row(&format!("r{n}"), "s", 1)
    });
    store.add_usage(rows.collect()).await.unwrap();
    let in_steps = |by, step, limit| UsageQuery { by, step: Some(step), limit, ..UsageQuery::default() };
    for (by, step, expected) in [
        (
            UsageBy::User,
            UsageStep::Minute,
            "21T06:45 ann 2, 21T06:45 bob 1, 21T06:46 ann 1, 21T07:45 ann 1, 22T06:45 a.b 1",
        ),
        (UsageBy::User, UsageStep::Hour, "21T06:00 ann 3, 21T06:00 bob 1, 21T07:00 ann 1, 22T06:00 a.b 1"),
        (UsageBy::User, UsageStep::Day, "21T00:00 ann 4, 21T00:00 bob 1, 22T00:00 a.b 1"),
        (UsageBy::Model, UsageStep::Hour, "21T06:00 m 4, 21T07:00 m 1, 22T06:00 m 1"),
        (UsageBy::Session, UsageStep::Day, "21T00:00 s 5, 22T00:00 s 1"),
        (UsageBy::Total, UsageStep::Day, "21T00:00  5, 22T00:00  1"),
    ] {
        // In one page, and in pages of one.
        for limit in [100, 1] {
            let (mut found, mut query) = (Vec::new(), in_steps(by, step, limit));
            loop {
                let page = store.usage_sums(query.clone()).await.unwrap();
                found.extend(page.items.iter().map(|sum| {
                    let from = sum.from.unwrap().to_string();
                    format!("{} {} {}", &from["2026-11-".len()..][..8], sum.key, sum.requests)
                }));
                query.cursor = page.next_cursor;
                if query.cursor.is_none() {
                    break;
                }
            }
            assert_eq!(found.join(", "), expected, "{by:?} {step:?} {limit}");
        }
    }
    let part = UsageQuery {
        from: Some(Timestamp(NOW.0 + 10)),
        to: Some(Timestamp(NOW.0 + DAY)),
        owner: Some("ann".to_owned()),
        ..in_steps(UsageBy::Total, UsageStep::Hour, 10)
    };
    let found: Vec<u64> = store.usage_sums(part.clone()).await.unwrap().items.iter().map(|sum| sum.requests).collect();
    assert_eq!(found, [2, 1]);
    for cursor in ["ann", "now.ann", ""] {
        let wrong = UsageQuery { cursor: Some(cursor.to_owned()), ..part.clone() };
        assert_eq!(store.usage_sums(wrong).await, Err(Error::Cursor(cursor.to_owned())));
    }
}

pub(crate) async fn old_usage_is_removed(store: &dyn SessionStore) {
    let rows = (0..5).map(|n| UsageRow { at: Timestamp(NOW.0 + n), ..usage_row(&format!("r{n}"), "s", 1) });
    store.add_usage(rows.collect()).await.unwrap();
    assert_eq!(store.remove_usage(NOW).await, Ok(0));
    assert_eq!(store.remove_usage(Timestamp(NOW.0 + 3)).await, Ok(3));
    assert_eq!(sums(store, by(UsageBy::Total)).await, ":2/2");
}

pub(crate) async fn of_an_owner_who_is_forgotten_only_sums_are_left(store: &dyn SessionStore) {
    let (owner, session) = ("ann-of-the-harbour", "k7m2q9xw4hfatz8n");
    let row = |request: &str, input| UsageRow { owner: owner.to_owned(), ..usage_row(request, session, input) };
    let lease = store.create(&id(session), owner, NOW).await.unwrap();
    let usage = vec![row("r1", 10), row("r2", 20)];
    store.append(&lease, 1, Append { usage, ..append_of(["a"]) }).await.unwrap();
    store.add_usage(vec![UsageRow { owner: "bob".to_owned(), ..usage_row("r3", "s", 5) }]).await.unwrap();
    let found = store.traces(owner, &[id(session)]).await.unwrap().found;
    assert!(!found.is_empty(), "a search finds what is there");
    store.delete(&id(session)).await.unwrap();
    for expected in [2, 0, 0] {
        assert_eq!(store.forget_owner(owner).await.unwrap(), expected);
    }
    let traces = store.traces(owner, &[id(session)]).await.unwrap();
    assert!(traces.found.is_empty() && !traces.searched.is_empty(), "{traces:?}");
    assert_eq!(sums(store, by(UsageBy::User)).await, format!("{DELETED_OWNER}:2/30 bob:1/5"));
    assert_eq!(sums(store, by(UsageBy::Session)).await, format!("{DELETED_SESSION}:2/30 s:1/5"));
}
