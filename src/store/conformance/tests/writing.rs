//! The contract for creating, appending and deleting.

use super::{NOW, append, append_of, control, entry, id, log};
use crate::{
    Append, CommandMark, Created, EntryQuery, Error, Head, Lease, ListQuery, Secret, SessionHead, SessionStore,
    SubtreeQuery, Usage,
};
use futures_util::future::join_all;
use reseed_protocol::{SessionId, Timestamp};

async fn create(store: &dyn SessionStore) -> Lease {
    store.create(&id("s"), "alice", NOW).await.unwrap()
}

fn mark(command_id: &str, fingerprint: u64) -> CommandMark {
    CommandMark { command_id: command_id.into(), fingerprint, reply: format!("{{\"to\":\"{command_id}\"}}").into() }
}

pub(crate) async fn a_session_is_made_once(store: &dyn SessionStore) {
    let lease = create(store).await;
    assert_eq!((lease.term, lease.next_seq), (1, 1));
    assert_eq!(store.create(&id("s"), "bob", NOW).await, Err(Error::Exists(id("s"))));
    let other = store.create(&id("t"), "", NOW).await.unwrap();
    assert_ne!(lease.epoch, other.epoch, "the epoch names one log");

    let head = store.head(&lease.session).await.unwrap();
    assert_eq!((head.owner.as_str(), head.last_seq, head.epoch), ("alice", 0, lease.epoch));
    assert_eq!(head.head, Head { created_at: NOW, updated_at: NOW, ..Head::default() });
    assert_eq!(log(store, &lease.session).await, "");
}

pub(crate) async fn a_command_creates_one_session(store: &dyn SessionStore) {
    let command = |text: &str| text.parse().unwrap();
    let (first, other) = (command("0000000000000001"), command("0000000000000002"));
    let created = store.create_once(&id("s"), "alice", Some(&first), NOW).await.unwrap();
    let Created::Now(lease) = created else { panic!("{created:?}") };
    assert_eq!((&lease.session, lease.term, lease.next_seq), (&id("s"), 1, 1));
    // The same command is repeated by its owner and by another user, and another command follows.
    let again = store.create_once(&id("t"), "alice", Some(&first), NOW).await.unwrap();
    assert_eq!(again, Created::Before(id("s")));
    assert_eq!(store.head(&id("t")).await.unwrap_err(), Error::NotFound(id("t")), "nothing was written");
    for (session, owner, by) in [("u", "bob", &first), ("v", "alice", &other)] {
        let created = store.create_once(&id(session), owner, Some(by), NOW).await.unwrap();
        assert!(matches!(&created, Created::Now(lease) if lease.session == id(session)), "{created:?}");
    }
    assert_eq!(store.create_once(&id("s"), "bob", Some(&other), NOW).await, Err(Error::Exists(id("s"))));
    // A deleted session is not opened again.
    store.delete(&id("s")).await.unwrap();
    let created = store.create_once(&id("w"), "alice", Some(&first), NOW).await.unwrap();
    assert!(matches!(&created, Created::Now(lease) if lease.session == id("w")), "{created:?}");
}

pub(crate) async fn a_session_is_found_by_the_command_that_created_it(store: &dyn SessionStore) {
    let command = |text: &str| text.parse().unwrap();
    let (first, other, unknown) =
        (command("0000000000000001"), command("0000000000000002"), command("0000000000000003"));
    let found = async |owner: &str, by| store.created_by(owner, by).await.unwrap();
    assert_eq!(found("alice", &first).await, None, "nothing is there yet");
    for (session, owner, by) in [("s", "alice", &first), ("t", "bob", &first), ("u", "alice", &other)] {
        store.create_once(&id(session), owner, Some(by), NOW).await.unwrap();
    }
    // No command created this session.
    store.create(&id("v"), "carol", NOW).await.unwrap();
    // A repeat and a refused command change nothing.
    store.create_once(&id("w"), "alice", Some(&first), NOW).await.unwrap();
    assert_eq!(store.create_once(&id("s"), "alice", Some(&unknown), NOW).await, Err(Error::Exists(id("s"))));
    for (owner, by, expected) in [
        ("alice", &first, Some(id("s"))),
        ("alice", &other, Some(id("u"))),
        ("alice", &unknown, None),
        ("bob", &first, Some(id("t"))),
        ("bob", &other, None),
        ("carol", &first, None),
        ("", &first, None),
    ] {
        assert_eq!(found(owner, by).await, expected, "{owner}, {by}");
    }
    // Records and a later writer change nothing; deletion does, and then the command may create another.
    let (lease, _) = store.open(&id("s")).await.unwrap();
    store.append(&lease, 1, append_of(["a"])).await.unwrap();
    assert_eq!(found("alice", &first).await, Some(id("s")));
    store.delete(&id("s")).await.unwrap();
    assert_eq!((found("alice", &first).await, found("bob", &first).await), (None, Some(id("t"))));
    store.create_once(&id("x"), "alice", Some(&first), NOW).await.unwrap();
    assert_eq!(found("alice", &first).await, Some(id("x")));
}

pub(crate) async fn the_usage_of_each_owner_is_counted(store: &dyn SessionStore) {
    let counted = async |owner: &str| {
        let Usage { sessions, empty, bytes } = store.usage(owner).await.unwrap().expect("the store counts");
        (sessions, empty, bytes)
    };
    let lease = create(store).await;
    store.create(&id("t"), "alice", NOW).await.unwrap();
    let others = store.create(&id("u"), "bob", NOW).await.unwrap();
    assert_eq!(
        (counted("alice").await, counted("bob").await, counted("carol").await),
        ((2, 2, 0), (1, 1, 0), (0, 0, 0))
    );
    store.append(&others, 1, append_of(["é"])).await.unwrap();
    store.append(&lease, 1, append_of([])).await.unwrap();
    assert_eq!((counted("alice").await, counted("bob").await), ((2, 2, 0), (1, 1, 2)), "bytes, not characters");
    store.append(&lease, 1, append(vec![control("four"), entry("entry", "")])).await.unwrap();
    assert!(store.append(&lease, 2, append_of(["refused"])).await.is_err());
    assert_eq!(counted("alice").await, (2, 1, 9));
    // The same holds for a later writer.
    let (later, _) = store.open(&id("s")).await.unwrap();
    store.append(&later, later.next_seq, append_of(["x"])).await.unwrap();
    assert_eq!(counted("alice").await, (2, 1, 10));
    store.delete(&id("s")).await.unwrap();
    assert_eq!(counted("alice").await, (1, 1, 0));
    store.delete(&id("t")).await.unwrap();
    assert_eq!((counted("alice").await, counted("bob").await), ((0, 0, 0), (1, 1, 2)));
}

pub(crate) async fn a_session_that_is_not_there_is_not_found(store: &dyn SessionStore) {
    let session: SessionId = id("nobody");
    let lease = Lease { session: session.clone(), term: 1, next_seq: 1, epoch: String::new() };
    let path = EntryQuery::Path { from: id("e"), limit: 1 };
    let missing = Error::NotFound(session.clone());
    assert_eq!(store.open(&session).await.unwrap_err(), missing);
    assert_eq!(store.append(&lease, 1, append_of(["a"])).await.unwrap_err(), missing);
    assert_eq!(store.read(&session, 0, 1).await.unwrap_err(), missing);
    assert_eq!(store.entries(&session, path).await.unwrap_err(), missing);
    let subtree = SubtreeQuery { root: None, depth: 9, limit: 9, bytes_max: 9 };
    assert_eq!(store.subtree(&session, subtree).await.unwrap_err(), missing);
    assert_eq!(store.entry_seq(&session, &id("e")).await.unwrap_err(), missing);
    assert_eq!(store.head(&session).await.unwrap_err(), missing);
    assert_eq!(store.delete(&session).await.unwrap_err(), missing);
    assert_eq!(store.command(&session, "c").await, Ok(None));
    assert_eq!(store.release(&lease).await, Ok(()));
}

pub(crate) async fn what_is_appended_is_read_back_in_order(store: &dyn SessionStore) {
    let lease = create(store).await;
    store.append(&lease, 1, append_of(["a", "b"])).await.unwrap();
    store.append(&lease, 3, append(vec![])).await.unwrap();
    store.append(&lease, 3, append(vec![entry("e", ""), control("c")])).await.unwrap();
    assert_eq!(log(store, &lease.session).await, "1:a 2:b 3:e 4:c");
    assert_eq!(store.head(&lease.session).await.unwrap().last_seq, 4);
}

pub(crate) async fn a_wrong_seq_or_term_is_fenced_and_nothing_is_written(store: &dyn SessionStore) {
    create(store).await;
    let (lease, _) = store.open(&id("s")).await.unwrap();
    store.append(&lease, 1, append_of(["a"])).await.unwrap();
    let before = store.head(&lease.session).await.unwrap();
    for (term, first_seq) in [(2, 0), (2, 1), (2, 3), (2, u64::MAX), (1, 2), (3, 2), (1, 1), (0, 2)] {
        let wrong = Lease { term, ..lease.clone() };
        let refused = Append {
            records: vec![entry("e", "")],
            marks: vec![mark("c", 1)],
            usage: Vec::new(),
            head: Head { name: "changed".into(), ..Head::default() },
        };
        let want = Error::Fenced { session: id("s"), term: 2, last_seq: 1, append_term: term, first_seq };
        assert_eq!(store.append(&wrong, first_seq, refused).await, Err(want));
        assert_eq!(log(store, &lease.session).await, "1:a");
        assert_eq!(store.head(&lease.session).await.unwrap(), before);
        assert_eq!(store.command(&lease.session, "c").await, Ok(None));
        assert_eq!(store.entry_seq(&lease.session, &id("e")).await, Ok(None));
    }
    store.append(&lease, 2, append_of(["b"])).await.unwrap();
}

pub(crate) async fn a_later_open_fences_the_lease_before_it(store: &dyn SessionStore) {
    let mut before = create(store).await;
    for (next_seq, body) in (1..).zip(["a", "b", "c"]) {
        let (lease, head) = store.open(&id("s")).await.unwrap();
        assert_eq!((lease.next_seq, head.last_seq), (next_seq, next_seq - 1));
        assert_eq!(lease.epoch, before.epoch, "an open does not change the log's name");
        assert!(lease.term > before.term);
        let stale = store.append(&before, next_seq, append_of(["late"])).await;
        assert!(matches!(stale, Err(Error::Fenced { .. })), "{stale:?}");
        // Releasing a stale lease does not affect its current holder.
        store.release(&before).await.unwrap();
        store.append(&lease, next_seq, append_of([body])).await.unwrap();
        before = lease;
    }
    assert_eq!(log(store, &id("s")).await, "1:a 2:b 3:c");
}

pub(crate) async fn a_command_is_written_once(store: &dyn SessionStore) {
    let lease = create(store).await;
    let with = |marks| Append { marks, ..append_of(["a"]) };
    store.append(&lease, 1, with(vec![mark("c1", u64::MAX), mark("c2", 0)])).await.unwrap();
    for marks in [vec![mark("c1", u64::MAX)], vec![mark("c3", 3), mark("c2", 9)], vec![mark("c4", 4), mark("c4", 4)]] {
        let command_id = marks.last().map(|mark| mark.command_id.clone()).unwrap();
        let want = Error::DuplicateCommand { session: id("s"), command_id };
        assert_eq!(store.append(&lease, 2, with(marks)).await, Err(want));
    }
    assert_eq!(log(store, &lease.session).await, "1:a");
    for (command, want) in [("c1", Some(mark("c1", u64::MAX))), ("c2", Some(mark("c2", 0))), ("c3", None), ("c4", None)]
    {
        assert_eq!(store.command(&lease.session, command).await, Ok(want), "{command}");
    }
    // Another session does not have the mark.
    let other = store.create(&id("t"), "", NOW).await.unwrap();
    assert_eq!(store.command(&other.session, "c1").await, Ok(None));
    store.append(&other, 1, with(vec![mark("c1", 5)])).await.unwrap();
}

pub(crate) async fn an_entry_is_written_once(store: &dyn SessionStore) {
    let lease = create(store).await;
    store.append(&lease, 1, append(vec![entry("e1", "")])).await.unwrap();
    for records in
        [vec![entry("e1", "")], vec![control("a"), entry("e1", "e1")], vec![entry("e2", ""), entry("e2", "e1")]]
    {
        let twice = records.last().and_then(|record| record.entry.clone()).unwrap().entry_id;
        let want = Error::DuplicateEntry { session: id("s"), entry: twice };
        assert_eq!(store.append(&lease, 2, append(records)).await, Err(want));
    }
    assert_eq!(log(store, &lease.session).await, "1:e1");
    let other = store.create(&id("t"), "", NOW).await.unwrap();
    store.append(&other, 1, append(vec![entry("e1", "")])).await.unwrap();
}

pub(crate) async fn a_mark_is_kept_without_a_record(store: &dyn SessionStore) {
    let lease = create(store).await;
    let only = Append { marks: vec![mark("c", 7)], ..append(vec![]) };
    store.append(&lease, 1, only).await.unwrap();
    let (lease, head) = store.open(&lease.session).await.unwrap();
    assert_eq!((lease.next_seq, head.last_seq), (1, 0));
    assert_eq!(store.command(&lease.session, "c").await, Ok(Some(mark("c", 7))));
}

pub(crate) async fn the_head_is_that_of_the_last_append(store: &dyn SessionStore) {
    let lease = create(store).await;
    let heads = [
        Head {
            name: "Größe 🦀 'quoted' 100 %".into(),
            created_at: NOW,
            updated_at: NOW.plus_millis(1),
            entries: 3,
            token_count: 12_345,
            window_tokens: 128_000,
            cost_nano_usd: Some(1_200_000),
            unpriced_requests: 2,
            running: true,
            state: Some("{\"leaf\":\"e3\"}".into()),
        },
        Head {
            created_at: Timestamp(-1),
            updated_at: Timestamp(i64::MAX),
            state: Some("x".repeat(100_000).into()),
            ..Head::default()
        },
        Head {
            token_count: i64::MAX as u64,
            window_tokens: u64::from(u32::MAX),
            cost_nano_usd: Some(0),
            ..Head::default()
        },
    ];
    let mut state = None;
    for (seq, head) in (1..).zip(heads) {
        store.append(&lease, seq, Append { head: head.clone(), ..append_of(["a"]) }).await.unwrap();
        // An append without a state leaves the stored one as it is.
        state = head.state.clone().or(state);
        let head = Head { state: state.clone(), ..head };
        let read = store.head(&lease.session).await.unwrap();
        assert_eq!((&read.head, read.last_seq, read.owner.as_str()), (&head, seq, "alice"));
    }
    let read = store.head(&lease.session).await.unwrap();
    assert_eq!(read.term, lease.term);
    let (lease, opened) = store.open(&lease.session).await.unwrap();
    assert!(lease.term > read.term, "{} after {}", lease.term, read.term);
    assert_eq!(opened, SessionHead { term: lease.term, ..read });
}

pub(crate) async fn a_body_of_any_text_comes_back_byte_for_byte(store: &dyn SessionStore) {
    let lease = create(store).await;
    let long = "0123456789abcdef".repeat(64 * 1024);
    for (seq, body) in (1..).zip(["", "{}", "nul \0 inside", "ｗide 🦀 \u{10FFFF}", "'; DROP TABLE record; --", &long])
    {
        store.append(&lease, seq, append_of([body])).await.unwrap();
        let read = store.read(&lease.session, seq - 1, 1).await.unwrap();
        assert!(read.len() == 1 && read[0].seq == seq && &*read[0].body == body, "record {seq}");
    }
}

pub(crate) async fn a_deleted_session_leaves_nothing_behind(store: &dyn SessionStore) {
    let lease = create(store).await;
    let other = store.create(&id("t"), "alice", NOW).await.unwrap();
    for lease in [&lease, &other] {
        let full = Append { marks: vec![mark("c", 1)], ..append(vec![entry("e", "")]) };
        store.append(lease, 1, full).await.unwrap();
    }
    store.delete(&lease.session).await.unwrap();
    let late = store.append(&lease, 2, append_of(["late"])).await;
    assert_eq!(late, Err(Error::NotFound(id("s"))));
    assert_eq!(store.list(ListQuery { limit: 9, ..ListQuery::default() }).await.unwrap().items.len(), 1);
    assert_eq!(log(store, &other.session).await, "1:e");

    // A session recreated under the same id is a new log, closed to leases of the old one.
    let again = create(store).await;
    assert_ne!(again.epoch, lease.epoch);
    assert_eq!(log(store, &again.session).await, "");
    assert_eq!(store.entry_seq(&again.session, &id("e")).await, Ok(None));
    assert_eq!(store.command(&again.session, "c").await, Ok(None));
    let late = store.append(&lease, 1, append_of(["late"])).await;
    assert!(matches!(late, Err(Error::Fenced { .. })), "{late:?}");
}

pub(crate) async fn of_many_appends_at_one_place_one_is_written(store: &dyn SessionStore) {
    let lease = create(store).await;
    let bodies: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    let results = join_all(bodies.iter().map(|body| store.append(&lease, 1, append_of([body])))).await;
    let written: Vec<_> = bodies.iter().zip(&results).filter(|(_, result)| result.is_ok()).collect();
    assert_eq!(written.len(), 1, "{results:?}");
    assert_eq!(log(store, &lease.session).await, format!("1:{}", written[0].0));
}

pub(crate) async fn sessions_written_at_once_do_not_mix(store: &dyn SessionStore) {
    const APPENDS: u64 = 10;
    let session = |n: u64| async move {
        let lease = store.create(&id(&format!("s{n}")), "", NOW).await.unwrap();
        for k in 0..APPENDS {
            let (a, b) = (format!("{n}.{k}a"), format!("{n}.{k}b"));
            store.append(&lease, 2 * k + 1, append(vec![entry(&a, ""), control(&b)])).await.unwrap();
        }
        let pairs = (0..APPENDS).map(|k| format!("{}:{n}.{k}a {}:{n}.{k}b", 2 * k + 1, 2 * k + 2));
        assert_eq!(log(store, &lease.session).await, pairs.collect::<Vec<_>>().join(" "));
    };
    join_all((0..50).map(session)).await;
}

pub(crate) async fn a_closed_store_refuses_everything(store: &dyn SessionStore) {
    let lease = create(store).await;
    store.append(&lease, 1, append_of(["a"])).await.unwrap();
    store.close().await.unwrap();
    store.close().await.unwrap();
    let closed = Error::Unknown("the store is closed".into());
    assert_eq!(store.append(&lease, 2, append_of(["b"])).await.unwrap_err(), closed);
    assert_eq!(store.create(&id("t"), "", NOW).await.unwrap_err(), closed);
    assert_eq!(store.open(&lease.session).await.unwrap_err(), closed);
    assert_eq!(store.delete(&lease.session).await.unwrap_err(), closed);
    assert_eq!(store.read(&lease.session, 0, 1).await.unwrap_err(), closed);
    assert_eq!(store.list(ListQuery::default()).await.unwrap_err(), closed);
}

pub(crate) async fn a_secret_is_made_once(store: &dyn SessionStore) {
    let offered = (1..=9).map(|byte| store.secret("a", Secret([byte; 32])));
    let found: Vec<Secret> = join_all(offered).await.into_iter().map(Result::unwrap).collect();
    assert!((1..=9).any(|byte| found[0] == Secret([byte; 32])));
    assert!(found.iter().all(|other| *other == found[0]), "all get the same");
    let other = Secret([77; 32]);
    assert_eq!(store.secret("a", other).await, Ok(found[0]));
    assert_eq!(store.secret("b", other).await, Ok(other));
    assert_eq!(format!("{other:?}"), "Secret", "it is not shown");
}
