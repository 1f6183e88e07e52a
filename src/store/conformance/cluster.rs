//! The contract of a store that several servers share: one suite that every such store passes.
//!
//! A store's tests call [`cluster_suite!`] with an expression that builds [`Nodes`]; each case becomes a test.

use super::{NOW, append_of, id, log};
use crate::{
    Append, Changes, Cluster, Error, Head, Lease, LeasedSession, NewNode, NewTicket, NodeId, Pulse, Secret,
    SessionStore, Silent, TicketBounds, TicketPut, TicketsOf, cluster::DELETED_KEPT,
};
use reseed_protocol::Timestamp;
use std::{any::Any, time::Duration};

/// Two handles on an empty store, and whatever must live as long as they do.
pub(crate) struct Nodes {
    pub(crate) a: Box<dyn SessionStore>,
    pub(crate) b: Box<dyn SessionStore>,
    _keep: Box<dyn Any + Send>,
}

impl Nodes {
    pub(crate) fn new(a: impl SessionStore + 'static, b: impl SessionStore + 'static, keep: impl Any + Send) -> Self {
        Self { a: Box::new(a), b: Box::new(b), _keep: Box::new(keep) }
    }
}

/// Generates a test for each case of the contract; the argument is a future that builds [`Nodes`].
macro_rules! cluster_suite {
    ($build:expr) => {
        $crate::conformance::cluster::cluster_suite!($build;
            a_session_held_by_a_node_is_closed_to_others,
            a_released_session_is_free_and_a_stale_lease_releases_nothing,
            a_node_that_leaves_holds_nothing,
            a_silent_node_loses_requested_sessions_unless_it_beats_again,
            the_writer_before_is_fenced_after_a_takeover,
            a_log_keeps_its_epoch_when_it_is_taken_over,
            a_node_finds_the_sessions_that_it_has_lost,
            changes_are_found_for_several_owners_together,
            sessions_with_a_running_turn_are_found_for_several_owners,
            beats_are_counted_and_report_a_nodes_status,
            a_node_finds_with_its_beat_that_it_is_asked_to_drain,
            a_node_that_was_removed_holds_nothing_and_can_join_again,
            nodes_are_listed_by_name_and_in_the_order_in_which_they_joined,
            a_handle_that_has_not_joined_takes_nothing_from_a_node,
            a_ticket_is_redeemed_once_by_any_handle,
            tickets_have_bounds_and_are_withdrawn_by_their_service,
            nodes_that_start_at_once_share_a_secret,
        );
    };
    ($build:expr; $($case:ident,)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                let nodes: $crate::conformance::cluster::Nodes = $build.await;
                $crate::conformance::cluster::$case(&*nodes.a, &*nodes.b).await;
            }
        )*
    };
}
pub(crate) use cluster_suite;

fn cluster(store: &dyn SessionStore) -> &dyn Cluster {
    store.cluster().expect("the store can be shared")
}

pub(crate) async fn join(store: &dyn SessionStore, name: &str) -> NodeId {
    let address = Some(format!("ws://{name}:8080"));
    let node = NewNode { name: name.into(), address, version: "0.1.0".into(), lease: Duration::from_secs(5) };
    cluster(store).join(&node).await.unwrap()
}

async fn beat_of(store: &dyn SessionStore, node: NodeId) -> u64 {
    let rows = cluster(store).nodes().await.unwrap();
    rows.iter().find(|row| row.id == node).expect("it is a node").beat
}

async fn opened(store: &dyn SessionStore, session: &str) -> Result<Lease, Error> {
    store.open(&id(session)).await.map(|(lease, _)| lease)
}

fn held(session: &str, node: NodeId) -> Error {
    Error::Held { session: id(session), node }
}

pub(crate) async fn a_session_held_by_a_node_is_closed_to_others(a: &dyn SessionStore, b: &dyn SessionStore) {
    let (at_a, at_b) = (join(a, "a").await, join(b, "b").await);
    a.create(&id("s"), "ann", NOW).await.unwrap();
    let command = "c1".parse().unwrap();
    a.create_once(&id("t"), "ann", Some(&command), NOW).await.unwrap();
    for session in ["s", "t"] {
        assert_eq!(opened(b, session).await.unwrap_err(), held(session, at_a));
        assert_eq!(b.head(&id(session)).await.unwrap().holder, Some(at_a));
        // The holder itself may open it again.
        let lease = opened(a, session).await.unwrap();
        a.append(&lease, 1, append_of(["x"])).await.unwrap();
        a.release(&lease).await.unwrap();
        assert_eq!(b.head(&id(session)).await.unwrap().holder, None);
        opened(b, session).await.unwrap();
        assert_eq!(opened(a, session).await.unwrap_err(), held(session, at_b));
    }
    assert_eq!(opened(b, "u").await.unwrap_err(), Error::NotFound(id("u")));
}

pub(crate) async fn a_released_session_is_free_and_a_stale_lease_releases_nothing(
    a: &dyn SessionStore,
    b: &dyn SessionStore,
) {
    let at_a = join(a, "a").await;
    join(b, "b").await;
    let first = a.create(&id("s"), "ann", NOW).await.unwrap();
    let second = opened(a, "s").await.unwrap();
    a.release(&first).await.unwrap();
    b.release(&second).await.unwrap();
    assert_eq!(opened(b, "s").await.unwrap_err(), held("s", at_a));
    a.release(&second).await.unwrap();
    assert_eq!(opened(b, "s").await.unwrap().term, 3);
}

pub(crate) async fn a_node_that_leaves_holds_nothing(a: &dyn SessionStore, b: &dyn SessionStore) {
    join(a, "a").await;
    join(b, "b").await;
    let lease = a.create(&id("s"), "ann", NOW).await.unwrap();
    cluster(a).leave().await.unwrap();
    assert_eq!(cluster(b).nodes().await.unwrap().len(), 1);
    opened(b, "s").await.unwrap();
    assert!(matches!(a.append(&lease, 1, append_of(["x"])).await, Err(Error::Fenced { .. })));
    assert_eq!(cluster(a).beat(Pulse::default()).await.unwrap(), None);
}

pub(crate) async fn changes_are_found_for_several_owners_together(a: &dyn SessionStore, b: &dyn SessionStore) {
    let later = |millis: i64| Timestamp(NOW.0 + millis);
    let owners = ["ann".to_owned(), "bob".to_owned()];
    let found = async |since| {
        let Changes { heads, deleted, is_cut } = cluster(b).changes(&owners, since, DELETED_KEPT).await.unwrap();
        assert!(!is_cut);
        let mut heads: Vec<String> = heads.iter().map(|head| format!("{} {}", head.session, head.last_seq)).collect();
        heads.sort();
        (heads, deleted.iter().map(|(session, owner)| format!("{session} {owner}")).collect::<Vec<_>>())
    };
    for (session, owner, at) in [("s", "ann", 0), ("t", "bob", 70_000), ("u", "cid", 70_000), ("v", "ann", 80_000)] {
        a.create(&id(session), owner, later(at)).await.unwrap();
    }
    assert_eq!(found(NOW).await.0, ["s 0", "t 0", "v 0"], "of these owners alone");
    assert_eq!(found(later(70_000)).await.0, ["t 0", "v 0"]);
    assert_eq!(found(later(70_001)).await.0, ["v 0"]);
    let (lease, _) = a.open(&id("s")).await.unwrap();
    let append = append_of(["x"]);
    let head = Head { updated_at: later(90_000), name: "Cats".into(), ..append.head.clone() };
    a.append(&lease, 1, Append { head, ..append }).await.unwrap();
    assert_eq!(found(later(90_000)).await, (vec!["s 1".to_owned()], vec![]));
    assert_eq!(cluster(b).changes(&owners, later(90_000), DELETED_KEPT).await.unwrap().heads[0].head.name, "Cats");
    for session in ["t", "u"] {
        a.delete(&id(session)).await.unwrap();
    }
    assert_eq!(found(NOW).await, (vec!["s 1".to_owned(), "v 0".to_owned()], vec!["t bob".to_owned()]));
    let deleted = cluster(b).changes(&owners, NOW, Duration::ZERO).await.unwrap().deleted;
    assert_eq!(deleted, [], "none of them just now");
    assert_eq!(cluster(b).changes(&owners, NOW, Duration::MAX).await.unwrap().deleted.len(), 1);
    assert_eq!(cluster(b).changes(&[], NOW, DELETED_KEPT).await.unwrap(), Changes::default());
}

pub(crate) async fn sessions_with_a_running_turn_are_found_for_several_owners(
    a: &dyn SessionStore,
    b: &dyn SessionStore,
) {
    let at_a = join(a, "a").await;
    join(b, "b").await;
    for (session, owner, running) in [("s", "ann", true), ("t", "bob", true), ("u", "cid", true), ("v", "ann", false)] {
        let lease = a.create(&id(session), owner, NOW).await.unwrap();
        let append = append_of(["x"]);
        let head = Head { running, ..append.head.clone() };
        a.append(&lease, 1, Append { head, ..append }).await.unwrap();
        if session == "t" {
            a.release(&lease).await.unwrap();
        }
    }
    let owners = ["ann".to_owned(), "bob".to_owned()];
    let found = cluster(b).running(&owners).await.unwrap();
    let found: Vec<_> = found.iter().map(|head| (head.session.clone(), head.last_seq, head.holder)).collect();
    assert_eq!(found, [(id("s"), 1, Some(at_a))], "of these owners, held and running");
    assert_eq!(cluster(b).running(&[]).await.unwrap(), []);
}

pub(crate) async fn a_silent_node_loses_requested_sessions_unless_it_beats_again(
    a: &dyn SessionStore,
    b: &dyn SessionStore,
) {
    let at_a = join(a, "a").await;
    join(b, "b").await;
    for session in ["s", "t"] {
        a.create(&id(session), "ann", NOW).await.unwrap();
    }
    let beat = beat_of(b, at_a).await;
    let others = [Silent { node: at_a, beat: beat + 1 }, Silent { node: NodeId(at_a.0 + 100), beat }];
    cluster(b).judge(others.to_vec(), 0);
    assert_eq!(opened(b, "s").await.unwrap_err(), held("s", at_a), "it was seen at another beat");
    cluster(b).judge(vec![Silent { node: at_a, beat }], 1);
    assert_eq!(opened(b, "s").await.unwrap_err(), held("s", at_a), "it is about another copy of the store");
    cluster(b).judge(vec![Silent { node: at_a, beat }], 0);
    opened(b, "s").await.unwrap();
    // It beats before anyone asks for the other session.
    cluster(a).beat(Pulse::default()).await.unwrap().expect("it is a member");
    assert_eq!(opened(b, "t").await.unwrap_err(), held("t", at_a));
    opened(a, "t").await.unwrap();
    assert!(matches!(opened(a, "s").await, Err(Error::Held { .. })));
}

pub(crate) async fn the_writer_before_is_fenced_after_a_takeover(a: &dyn SessionStore, b: &dyn SessionStore) {
    let at_a = join(a, "a").await;
    join(b, "b").await;
    let old = a.create(&id("s"), "ann", NOW).await.unwrap();
    a.append(&old, 1, append_of(["x"])).await.unwrap();
    cluster(b).judge(vec![Silent { node: at_a, beat: beat_of(b, at_a).await }], 0);
    let (new, head) = b.open(&id("s")).await.unwrap();
    assert_eq!((new.next_seq, head.last_seq), (2, 1), "it starts from all that was acknowledged");
    assert!(matches!(a.append(&old, 2, append_of(["stale"])).await, Err(Error::Fenced { .. })));
    // A lease that the old writer releases no longer belongs to it.
    a.release(&old).await.unwrap();
    assert!(b.head(&id("s")).await.unwrap().holder.is_some());
    b.append(&new, 2, append_of(["y"])).await.unwrap();
    assert_eq!(log(a, &id("s")).await, "1:x 2:y");
}

pub(crate) async fn a_log_keeps_its_epoch_when_it_is_taken_over(a: &dyn SessionStore, b: &dyn SessionStore) {
    join(a, "a").await;
    join(b, "b").await;
    let old = a.create(&id("s"), "ann", NOW).await.unwrap();
    cluster(a).leave().await.unwrap();
    let new = opened(b, "s").await.unwrap();
    assert_eq!((new.epoch, new.term), (old.epoch, old.term + 1));
}

pub(crate) async fn a_node_finds_the_sessions_that_it_has_lost(a: &dyn SessionStore, b: &dyn SessionStore) {
    let at_a = join(a, "a").await;
    join(b, "b").await;
    let mut held = Vec::new();
    for session in ["kept", "taken", "deleted"] {
        let lease = a.create(&id(session), "ann", NOW).await.unwrap();
        held.push(LeasedSession { session: lease.session, epoch: lease.epoch, term: lease.term, last_seq: 0 });
    }
    assert_eq!(cluster(a).lost(&held).await.unwrap(), []);
    cluster(b).judge(vec![Silent { node: at_a, beat: beat_of(b, at_a).await }], 0);
    opened(b, "taken").await.unwrap();
    b.delete(&id("deleted")).await.unwrap();
    let mut lost = cluster(a).lost(&held).await.unwrap();
    lost.sort();
    assert_eq!(lost, [id("deleted"), id("taken")]);
    assert_eq!(cluster(a).lost(&[]).await.unwrap(), []);
}

pub(crate) async fn beats_are_counted_and_report_a_nodes_status(a: &dyn SessionStore, b: &dyn SessionStore) {
    let at_a = join(a, "a").await;
    let first = beat_of(b, at_a).await;
    let pulse = Pulse { draining: true, sessions: 3, connections: 40 };
    for _ in 0..3 {
        assert!(cluster(a).beat(pulse).await.unwrap().is_some());
    }
    let rows = cluster(b).nodes().await.unwrap();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.id, row.beat, row.pulse), (at_a, first + 3, pulse));
    assert_eq!((row.node.name.as_str(), row.node.address.as_deref()), ("a", Some("ws://a:8080")));
    assert_eq!((row.node.version.as_str(), row.node.lease), ("0.1.0", Duration::from_secs(5)));
    let at_b = join(b, "b").await;
    let seen = cluster(a).beat(pulse).await.unwrap().unwrap();
    assert!(seen.iter().any(|row| row.id == at_b), "{seen:?}");
}

pub(crate) async fn a_node_finds_with_its_beat_that_it_is_asked_to_drain(a: &dyn SessionStore, b: &dyn SessionStore) {
    let (at_a, at_b) = (join(a, "a").await, join(b, "b").await);
    let is_asked = async || {
        let seen = cluster(a).beat(Pulse::default()).await.unwrap().unwrap();
        let draining: Vec<NodeId> = seen.iter().filter(|row| row.pulse.draining).map(|row| row.id).collect();
        assert!(!draining.contains(&at_b), "{seen:?}");
        draining == [at_a]
    };
    assert!(!is_asked().await);
    assert!(cluster(b).ask_to_drain(at_a).await.unwrap());
    assert!(is_asked().await);
    // The node's own beats, which do not report draining, do not undo it.
    assert!(is_asked().await);
    cluster(a).leave().await.unwrap();
    assert!(!cluster(b).ask_to_drain(at_a).await.unwrap(), "it is gone");
}

pub(crate) async fn a_node_that_was_removed_holds_nothing_and_can_join_again(
    a: &dyn SessionStore,
    b: &dyn SessionStore,
) {
    let at_a = join(a, "a").await;
    join(b, "b").await;
    a.create(&id("s"), "ann", NOW).await.unwrap();
    let beat = beat_of(b, at_a).await;
    cluster(b).remove(&[Silent { node: at_a, beat: beat + 1 }]).await.unwrap();
    assert_eq!(opened(b, "s").await.unwrap_err(), held("s", at_a), "it has beaten since");
    cluster(b).remove(&[Silent { node: at_a, beat }]).await.unwrap();
    assert_eq!(opened(a, "s").await.unwrap_err(), Error::NotMember(at_a), "what it opened would be anybody's");
    assert_eq!(a.create(&id("t"), "ann", NOW).await.unwrap_err(), Error::NotMember(at_a));
    assert_eq!(b.head(&id("t")).await.unwrap_err(), Error::NotFound(id("t")));
    assert_eq!(cluster(a).beat(Pulse::default()).await.unwrap(), None);
    let again = join(a, "a").await;
    assert_ne!(again, at_a, "a number is never used twice");
    opened(b, "s").await.unwrap();
}

pub(crate) async fn nodes_are_listed_by_name_and_in_the_order_in_which_they_joined(
    a: &dyn SessionStore,
    b: &dyn SessionStore,
) {
    let mut joined = Vec::new();
    for (store, name) in [(a, "b"), (b, "a"), (a, "B"), (b, "a")] {
        joined.push((name.to_owned(), join(store, name).await));
    }
    assert!(joined.is_sorted_by_key(|(_, id)| *id), "{joined:?}: a node that joins has a higher number");
    let listed: Vec<_> = cluster(b).nodes().await.unwrap().into_iter().map(|row| (row.node.name, row.id)).collect();
    joined.sort();
    assert_eq!(listed, joined);
}

pub(crate) async fn a_handle_that_has_not_joined_takes_nothing_from_a_node(a: &dyn SessionStore, b: &dyn SessionStore) {
    let at_a = join(a, "a").await;
    let lease = a.create(&id("s"), "ann", NOW).await.unwrap();
    assert_eq!(opened(b, "s").await.unwrap_err(), held("s", at_a));
    a.release(&lease).await.unwrap();
    opened(b, "s").await.unwrap();
    // The handle itself holds nothing.
    opened(a, "s").await.unwrap();
}

fn ticket(n: u8, owner: &str, service: Option<&str>) -> NewTicket {
    let (service, body) = (service.map(str::to_owned), format!("{{\"n\":{n},\"text\":\"\\u0000é\"}}"));
    NewTicket { hash: [n; 32], id: format!("t{n}"), owner: owner.into(), service, body, life: Duration::from_secs(600) }
}

pub(crate) async fn a_ticket_is_redeemed_once_by_any_handle(a: &dyn SessionStore, b: &dyn SessionStore) {
    let (at_a, at_b) = (cluster(a), cluster(b));
    let (kept, none) = (ticket(1, "ann\0", None), TicketBounds::default());
    assert_eq!(at_a.put_ticket(&kept, none).await.unwrap(), TicketPut::Stored);
    let expired = NewTicket { life: Duration::ZERO, ..ticket(2, "ann\0", None) };
    assert_eq!(at_a.put_ticket(&expired, none).await.unwrap(), TicketPut::Stored);
    let (body, age) = at_b.take_ticket(&kept.hash).await.unwrap().expect("it is there");
    assert!(body == kept.body && age < Duration::from_secs(600), "{body} {age:?}");
    for handle in [at_a, at_b] {
        assert_eq!(handle.take_ticket(&kept.hash).await.unwrap(), None, "it was used");
        assert_eq!(handle.take_ticket(&expired.hash).await.unwrap(), None, "it has expired");
    }
}

pub(crate) async fn tickets_have_bounds_and_are_withdrawn_by_their_service(a: &dyn SessionStore, b: &dyn SessionStore) {
    let (at_a, at_b) = (cluster(a), cluster(b));
    let bounds = TicketBounds { owner_max: 2, service_max: 3, all_max: 4 };
    let table = [
        (ticket(1, "ann", Some("app")), TicketPut::Stored),
        (ticket(2, "ann", Some("app")), TicketPut::Stored),
        (ticket(3, "ann", Some("app")), TicketPut::OwnerFull),
        (ticket(4, "bob", Some("app")), TicketPut::Stored),
        (ticket(5, "cid", Some("app")), TicketPut::ServiceFull),
        (ticket(6, "cid", None), TicketPut::Stored),
        (ticket(7, "dan", None), TicketPut::Full),
    ];
    for (at, (new, expected)) in table.into_iter().enumerate() {
        let handle = if at % 2 == 0 { at_a } else { at_b };
        assert_eq!(handle.put_ticket(&new, bounds).await.unwrap(), expected, "{new:?}");
    }
    assert_eq!(at_b.withdraw_tickets("web", TicketsOf::Owner("ann")).await.unwrap(), 0, "another service's");
    assert_eq!(at_b.withdraw_tickets("app", TicketsOf::Owner("ann")).await.unwrap(), 2);
    assert_eq!(at_b.withdraw_tickets("app", TicketsOf::Id("t4")).await.unwrap(), 1);
    assert_eq!(at_a.take_ticket(&[4; 32]).await.unwrap(), None);
    assert!(at_a.take_ticket(&[6; 32]).await.unwrap().is_some(), "nobody's else is touched");
    for (digest, service) in [(8, None), (9, Some("app")), (10, Some("web"))] {
        at_a.put_ticket(&ticket(digest, "eve", service), TicketBounds::default()).await.unwrap();
    }
    assert_eq!(at_b.withdraw_tickets("", TicketsOf::Anyone("eve")).await.unwrap(), 3, "whoever made them");
}

pub(crate) async fn nodes_that_start_at_once_share_a_secret(a: &dyn SessionStore, b: &dyn SessionStore) {
    for name in (0..20).map(|n| n.to_string()) {
        let (at_a, at_b) = tokio::join!(a.secret(&name, Secret([1; 32])), b.secret(&name, Secret([2; 32])));
        assert_eq!(at_a.unwrap(), at_b.unwrap());
    }
}
