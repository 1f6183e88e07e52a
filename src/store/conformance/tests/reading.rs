//! The contract for reading and listing.

use super::{NOW, append, append_of, control, entry, id, short};
use crate::{Append, EntryQuery, Error, Head, ListQuery, SessionStore, UNFINISHED};
use reseed_protocol::{EntryId, SessionId, Timestamp};

pub(crate) async fn records_are_read_from_any_place(store: &dyn SessionStore) {
    let lease = store.create(&id("s"), "", NOW).await.unwrap();
    store.append(&lease, 1, append_of(["a", "b", "c", "d"])).await.unwrap();
    let cases = [
        (0, 9, "1:a 2:b 3:c 4:d"),
        (0, 2, "1:a 2:b"),
        (2, 1, "3:c"),
        (3, 9, "4:d"),
        (4, 9, ""),
        (u64::MAX, 9, ""),
        (0, 0, ""),
    ];
    for (after_seq, limit, want) in cases {
        let read = store.read(&lease.session, after_seq, limit).await.unwrap();
        assert_eq!(short(&read), want, "after {after_seq}, at most {limit}");
        let page = store.read_page(&lease.session, after_seq, limit, usize::MAX).await.unwrap();
        assert_eq!(page, read, "after {after_seq}, at most {limit}, however large");
    }
    let one = store.read(&lease.session, 0, 1).await.unwrap()[0].body.len();
    for (bytes_max, want) in [(0, "1:a"), (one, "1:a"), (one + 1, "1:a 2:b"), (9 * one, "1:a 2:b 3:c 4:d")] {
        let page = store.read_page(&lease.session, 0, 9, bytes_max).await.unwrap();
        assert_eq!(short(&page), want, "at most {bytes_max} bytes");
    }
}

/// Builds two branches and a second root, with control records between them:
///
/// ```text
/// a ─ b ─ c ─ f      g (its parent is not in this session)
///      └─ d ─ e
/// ```
pub(super) async fn tree(store: &dyn SessionStore) -> SessionId {
    let lease = store.create(&id("s"), "", NOW).await.unwrap();
    let records = vec![
        control("x"),
        entry("a", ""),
        entry("b", "a"),
        entry("c", "b"),
        control("y"),
        entry("d", "b"),
        entry("e", "d"),
        control("z"),
        entry("f", "c"),
        entry("g", "gone"),
    ];
    store.append(&lease, 1, append(records)).await.unwrap();
    // The same ids in another session must not be found from this one.
    let other = store.create(&id("t"), "", NOW).await.unwrap();
    store.append(&other, 1, append(vec![entry("gone", ""), entry("b", "gone")])).await.unwrap();
    lease.session
}

pub(crate) async fn an_entry_is_found_by_its_id(store: &dyn SessionStore) {
    let session = tree(store).await;
    for (entry, want) in [("a", Some(2)), ("e", Some(7)), ("g", Some(10)), ("gone", None), ("x", None)] {
        assert_eq!(store.entry_seq(&session, &id::<EntryId>(entry)).await, Ok(want), "{entry}");
    }
}

pub(crate) async fn a_path_is_one_branch_newest_first(store: &dyn SessionStore) {
    let session = tree(store).await;
    let cases = [
        ("f", 9, "9:f 4:c 3:b 2:a"),
        ("e", 9, "7:e 6:d 3:b 2:a"),
        ("e", 2, "7:e 6:d"),
        ("a", 9, "2:a"),
        ("g", 9, "10:g"),
        ("gone", 9, ""),
        ("f", 0, ""),
    ];
    for (from, limit, want) in cases {
        let query = EntryQuery::Path { from: id(from), limit };
        assert_eq!(short(&store.entries(&session, query.clone()).await.unwrap()), want, "{query:?}");
    }
}

pub(crate) async fn a_log_window_holds_entries_only(store: &dyn SessionStore) {
    let session = tree(store).await;
    let cases = [
        (None, None, 9, "2:a 3:b 4:c 6:d 7:e 9:f 10:g"),
        (None, None, 2, "9:f 10:g"),
        (Some(9), None, 2, "6:d 7:e"),
        (Some(3), None, 9, "2:a"),
        (Some(2), None, 9, ""),
        (Some(u64::MAX), None, 1, "10:g"),
        (None, Some(0), 2, "2:a 3:b"),
        (None, Some(4), 2, "6:d 7:e"),
        (None, Some(10), 2, ""),
        (None, Some(u64::MAX), 2, ""),
        (Some(9), Some(3), 9, "4:c 6:d 7:e"),
        (Some(9), Some(3), 1, "4:c"),
        (Some(3), Some(9), 9, ""),
        (None, None, 0, ""),
    ];
    for (before_seq, after_seq, limit, want) in cases {
        let query = EntryQuery::Log { before_seq, after_seq, limit };
        assert_eq!(short(&store.entries(&session, query.clone()).await.unwrap()), want, "{query:?}");
    }
}

pub(crate) async fn a_path_after_an_entry_is_oldest_first(store: &dyn SessionStore) {
    let session = tree(store).await;
    let cases = [
        ("a", "f", 9, 9, "3:b 4:c 9:f"),
        ("a", "f", 9, 2, "3:b 4:c"),
        ("a", "f", 4, 9, "3:b 4:c 9:f"),
        // `a` is the fourth entry of the walk.
        ("a", "f", 3, 9, ""),
        ("c", "f", 9, 9, "9:f"),
        ("f", "f", 9, 9, ""),
        ("d", "f", 9, 9, ""),
        ("a", "f", 9, 0, ""),
        ("x", "g", 9, 9, ""),
    ];
    for (after, to, steps, limit, want) in cases {
        let query = EntryQuery::PathAfter { after: id(after), to: id(to), steps, limit };
        assert_eq!(short(&store.entries(&session, query.clone()).await.unwrap()), want, "{query:?}");
    }
}

pub(crate) async fn a_page_of_entries_ends_before_it_is_too_large(store: &dyn SessionStore) {
    let session = tree(store).await;
    let log = |before_seq, after_seq| EntryQuery::Log { before_seq, after_seq, limit: 3 };
    // Bodies have one byte each.
    let cases = [
        (EntryQuery::Path { from: id("f"), limit: 3 }, ["9:f", "9:f 4:c", "9:f 4:c 3:b"]),
        (EntryQuery::PathAfter { after: id("a"), to: id("f"), steps: 9, limit: 3 }, ["3:b", "3:b 4:c", "3:b 4:c 9:f"]),
        (log(None, Some(2)), ["3:b", "3:b 4:c", "3:b 4:c 6:d"]),
        (log(None, None), ["10:g", "9:f 10:g", "7:e 9:f 10:g"]),
        (EntryQuery::Kind { kind: "message".into(), after_seq: 2, limit: 3 }, ["3:b", "3:b 4:c", "3:b 4:c 6:d"]),
    ];
    for (query, want) in cases {
        for (bytes_max, at) in [(0, 0), (1, 0), (2, 1), (3, 2), (usize::MAX, 2)] {
            let page = store.entries_page(&session, query.clone(), bytes_max).await.unwrap();
            assert_eq!((short(&page.records).as_str(), page.cut), (want[at], at < 2), "{query:?} {bytes_max}");
        }
    }
    let children = EntryQuery::Children { of: Some(id("b")), after_seq: 0, limit: 9 };
    for (bytes_max, want) in [(1, ("4:c", true)), (2, ("4:c 6:d", false))] {
        let page = store.entries_page(&session, children.clone(), bytes_max).await.unwrap();
        assert_eq!((short(&page.records).as_str(), page.cut), want, "{bytes_max}");
    }
}

/// Sessions as (id, owner, name, `updated_at`).
const SESSIONS: [(&str, &str, &str, i64); 6] = [
    ("s1", "alice", "Holiday in Rome", 50),
    ("s2", "bob", "", 20),
    ("s3", "alice", "ROME, once more", 30),
    ("s4", "alice", "100 % of a_b", 30),
    ("s5", "bob", "Größe ÄÖÜ", 60),
    ("s6", "", "rome", -10),
];

async fn sessions(store: &dyn SessionStore) {
    for (session, owner, name, updated_at) in SESSIONS {
        let lease = store.create(&id(session), owner, NOW).await.unwrap();
        let head = Head {
            name: name.into(),
            updated_at: Timestamp(updated_at),
            token_count: 7,
            state: Some("large".into()),
            ..Head::default()
        };
        store.append(&lease, 1, Append { head, ..append_of(["a"]) }).await.unwrap();
    }
}

/// Returns all pages of a list: sessions of a page joined by spaces, pages by a bar.
async fn pages(store: &dyn SessionStore, mut query: ListQuery) -> String {
    let mut pages = Vec::new();
    loop {
        let page = store.list(query.clone()).await.unwrap();
        assert!(page.items.len() <= query.limit as usize);
        pages.push(page.items.iter().map(|item| item.session.as_str()).collect::<Vec<_>>().join(" "));
        match page.next_cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return pages.join(" | "),
        }
    }
}

pub(crate) async fn a_list_is_ordered_paged_searched_and_of_one_owner(store: &dyn SessionStore) {
    let page = store.list(ListQuery { limit: 5, ..ListQuery::default() }).await.unwrap();
    assert_eq!((page.items.len(), page.next_cursor), (0, None), "an empty store");
    sessions(store).await;
    let cases = [
        (None, None, 9, "s5 s1 s4 s3 s2 s6"),
        (None, None, 6, "s5 s1 s4 s3 s2 s6"),
        (None, None, 5, "s5 s1 s4 s3 s2 | s6"),
        (None, None, 3, "s5 s1 s4 | s3 s2 s6"),
        (None, None, 0, ""),
        (Some("alice"), None, 2, "s1 s4 | s3"),
        (Some("bob"), None, 1, "s5 | s2"),
        (Some(""), None, 9, "s6"),
        (Some("carol"), None, 9, ""),
        (None, Some("rome"), 9, "s1 s3 s6"),
        (None, Some("RoMe"), 2, "s1 s3 | s6"),
        (Some("alice"), Some("rome"), 1, "s1 | s3"),
        (None, Some("größe äöü"), 9, "s5"),
        (None, Some("%"), 9, "s4"),
        (None, Some("a_b"), 9, "s4"),
        (None, Some("'"), 9, ""),
        (None, Some(""), 9, "s5 s1 s4 s3 s2 s6"),
    ];
    for (owner, search, limit, want) in cases {
        let query = ListQuery {
            owner: owner.map(str::to_owned),
            search: search.map(str::to_owned),
            limit,
            ..ListQuery::default()
        };
        assert_eq!(pages(store, query.clone()).await, want, "{query:?}");
    }

    let page = store.list(ListQuery { limit: 1, ..ListQuery::default() }).await.unwrap();
    let mut want = store.head(&id("s5")).await.unwrap();
    assert_eq!(want.head.state.take().as_deref(), Some("large"));
    assert_eq!(page.items, [want], "all of the head but its state");
}

pub(crate) async fn a_session_that_is_being_made_is_not_listed_among_the_others(store: &dyn SessionStore) {
    sessions(store).await;
    let mut leases = Vec::new();
    for session in ["u1", "u2", "u3"] {
        leases.push(store.create(&id(session), "alice", UNFINISHED).await.unwrap());
    }
    let head = |updated_at| Head { updated_at, ..Head::default() };
    store.append(&leases[1], 1, Append { head: head(UNFINISHED), ..append_of(["a"]) }).await.unwrap();
    let listed = |owner: Option<&str>, unfinished, limit| {
        pages(store, ListQuery { owner: owner.map(str::to_owned), unfinished, limit, ..ListQuery::default() })
    };
    assert_eq!(listed(None, false, 4).await, "s5 s1 s4 s3 | s2 s6");
    assert_eq!(listed(Some("alice"), false, 9).await, "s1 s4 s3");
    assert_eq!(listed(None, true, 2).await, "u3 u2 | u1");
    assert_eq!(listed(Some("bob"), true, 2).await, "");
    store.append(&leases[1], 2, Append { head: head(Timestamp(55)), ..append_of([]) }).await.unwrap();
    assert_eq!(listed(Some("alice"), false, 9).await, "u2 s1 s4 s3");
    assert_eq!(listed(None, true, 9).await, "u3 u1");
}

pub(crate) async fn empty_sessions_are_found_by_their_age(store: &dyn SessionStore) {
    for (session, created) in [("third", 30), ("first", 10), ("second", 20), ("written", 5), ("late", 40)] {
        store.create(&id(session), "alice", Timestamp(created)).await.unwrap();
    }
    store.create(&id("unfinished"), "alice", UNFINISHED).await.unwrap();
    let (lease, _) = store.open(&id("written")).await.unwrap();
    store.append(&lease, 1, append_of(["a", "b"])).await.unwrap();
    let (lease, _) = store.open(&id("first")).await.unwrap();
    store
        .append(&lease, 1, Append { head: Head { created_at: Timestamp(10), ..Head::default() }, ..append_of(["a"]) })
        .await
        .unwrap();
    let found = async |before: i64, limit| {
        let ids = store.empty_sessions(Timestamp(before), limit).await.unwrap();
        ids.iter().map(SessionId::as_str).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(found(40, 9).await, "first second third");
    assert_eq!(found(41, 2).await, "first second");
    assert_eq!(found(10, 9).await, "");
}

pub(crate) async fn pages_hold_each_session_once(store: &dyn SessionStore) {
    // All have the same time: only the order of creation distinguishes them.
    let mut newest_first = Vec::new();
    for n in 0..23 {
        let session: SessionId = id(&format!("s{n}"));
        store.create(&session, "", NOW).await.unwrap();
        newest_first.insert(0, session);
    }
    let text = newest_first.iter().map(SessionId::as_str).collect::<Vec<_>>().join(" ");
    for limit in [1, 5, 22, 23, 24] {
        let found = pages(store, ListQuery { limit, ..ListQuery::default() }).await;
        assert_eq!(found.replace(" | ", " "), text, "pages of {limit}");
    }
    // A session that moves to the top between two pages does not change what follows the cursor.
    let first = store.list(ListQuery { limit: 20, ..ListQuery::default() }).await.unwrap();
    let (lease, _) = store.open(&id("s2")).await.unwrap();
    let head = Head { updated_at: NOW.plus_millis(1), ..Head::default() };
    store.append(&lease, 1, Append { head, ..append_of(["a"]) }).await.unwrap();
    let rest = ListQuery { cursor: first.next_cursor, limit: 20, ..ListQuery::default() };
    assert_eq!(pages(store, rest).await, "s1 s0");
}

pub(crate) async fn sessions_that_have_not_changed_since_a_time_are_listed_alone(store: &dyn SessionStore) {
    for (session, minutes) in [("s1", 1), ("s2", 2), ("s3", 3), ("s4", 4)] {
        store.create(&id(session), "", NOW.plus_millis(minutes * 60_000)).await.unwrap();
    }
    for (minutes, limit, expected) in [(1, 9, ""), (3, 9, "s2 s1"), (3, 1, "s2 | s1"), (9, 9, "s4 s3 s2 s1")] {
        let changed_before = Some(NOW.plus_millis(minutes * 60_000));
        let found = pages(store, ListQuery { changed_before, limit, ..ListQuery::default() }).await;
        assert_eq!(found, expected, "{minutes} {limit}");
    }
}

pub(crate) async fn an_invalid_cursor_is_refused(store: &dyn SessionStore) {
    for cursor in ["", "nonsense", "1", "1.x", "'; --"] {
        let query = ListQuery { cursor: Some(cursor.into()), limit: 1, ..ListQuery::default() };
        assert_eq!(store.list(query).await, Err(Error::Cursor(cursor.into())));
    }
}
