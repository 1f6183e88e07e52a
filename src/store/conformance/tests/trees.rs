//! The contract for reading the shape of a tree.

use super::{NOW, append, control, entry, id, reading::tree, short};
use crate::{EntryQuery, NewRecord, SessionStore, SubtreeQuery};
use reseed_protocol::{EntryId, SessionId};

async fn entries(store: &dyn SessionStore, session: &SessionId, query: EntryQuery) -> String {
    short(&store.entries(session, query).await.unwrap())
}

/// Formats a subtree as `seq:body(children)`.
async fn subtree(store: &dyn SessionStore, session: &SessionId, root: Option<&str>, depth: u32, limit: u32) -> String {
    let query = SubtreeQuery { root: root.map(id), depth, limit, bytes_max: usize::MAX };
    let nodes = store.subtree(session, query).await.unwrap();
    let node = nodes.iter().map(|node| format!("{}:{}({})", node.record.seq, node.record.body, node.child_count));
    node.collect::<Vec<_>>().join(" ")
}

fn below(entry: &str) -> EntryQuery {
    EntryQuery::NewestLeaf { below: id(entry) }
}

pub(crate) async fn children_and_roots_come_in_the_order_of_the_log(store: &dyn SessionStore) {
    let session = tree(store).await;
    let cases = [
        (None, 0, 9, "2:a 10:g"),
        (None, 0, 1, "2:a"),
        (None, 2, 9, "10:g"),
        (None, 10, 9, ""),
        (Some("b"), 0, 9, "4:c 6:d"),
        (Some("b"), 0, 1, "4:c"),
        (Some("b"), 4, 9, "6:d"),
        (Some("b"), u64::MAX, 9, ""),
        (Some("a"), 0, 9, "3:b"),
        (Some("f"), 0, 9, ""),
        (Some("gone"), 0, 9, "10:g"),
        (Some("never"), 0, 9, ""),
        (Some("b"), 0, 0, ""),
        (None, 0, 0, ""),
    ];
    for (of, after_seq, limit, want) in cases {
        let query = EntryQuery::Children { of: of.map(id), after_seq, limit };
        assert_eq!(entries(store, &session, query.clone()).await, want, "{query:?}");
    }
    // The missing parent arrives later: its child is then no longer a root.
    let (lease, _) = store.open(&session).await.unwrap();
    store.append(&lease, 11, append(vec![entry("gone", "f")])).await.unwrap();
    let roots = EntryQuery::Children { of: None, after_seq: 0, limit: 9 };
    assert_eq!(entries(store, &session, roots).await, "2:a");
}

/// Stores may read a large tree differently from a small one.
pub(crate) async fn a_large_tree_is_the_same_in_one_piece_as_entry_by_entry(store: &dyn SessionStore) {
    let lease = store.create(&id("s"), "", NOW).await.unwrap();
    // The tree is a chain with a branch at every fifth entry. Each branch comes after other records.
    let mut records = vec![entry("e0", "")];
    for at in 1..150_u32 {
        let parent = if at % 5 == 0 { at / 2 } else { at - 1 };
        if at % 7 == 0 {
            records.push(control("label"));
        }
        records.push(entry(&format!("e{at}"), &format!("e{parent}")));
    }
    for (first, part) in (0..).zip(records.chunks(40)) {
        store.append(&lease, first * 40 + 1, append(part.to_vec())).await.unwrap();
    }
    let whole = subtree(store, &id("s"), None, u32::MAX, 1_000).await;
    assert_eq!(whole.split(' ').count(), 150);
    for node in whole.split(' ') {
        let name = node.split([':', '(']).nth(1).unwrap();
        assert_eq!(subtree(store, &id("s"), Some(name), 0, 1).await, node);
    }
    let half = subtree(store, &id("s"), None, u32::MAX, 75).await;
    assert_eq!(half.split(' ').collect::<Vec<_>>(), whole.split(' ').take(75).collect::<Vec<_>>());
}

pub(crate) async fn entries_of_one_kind_are_paged(store: &dyn SessionStore) {
    let lease = store.create(&id("s"), "", NOW).await.unwrap();
    let of_kind = |name: &str, parent: &str, kind: &str| {
        let mut record = entry(name, parent);
        record.entry = record.entry.map(|columns| crate::EntryColumns { kind: kind.into(), ..columns });
        record
    };
    let records = vec![
        entry("a", ""),
        of_kind("l1", "a", "label"),
        control("label"),
        of_kind("c", "l1", "custom"),
        of_kind("l2", "c", "label"),
        entry("b", "l2"),
        of_kind("l3", "b", "label"),
    ];
    store.append(&lease, 1, append(records)).await.unwrap();
    let cases = [
        ("label", 0, 9, "2:l1 5:l2 7:l3"),
        ("label", 0, 2, "2:l1 5:l2"),
        ("label", 5, 2, "7:l3"),
        ("label", 7, 2, ""),
        ("custom", 0, 9, "4:c"),
        ("message", 0, 9, "1:a 6:b"),
        ("message", 1, 9, "6:b"),
        ("Label", 0, 9, ""),
        ("label", 0, 0, ""),
    ];
    for (kind, after_seq, limit, want) in cases {
        let query = EntryQuery::Kind { kind: kind.into(), after_seq, limit };
        assert_eq!(entries(store, &lease.session, query.clone()).await, want, "{query:?}");
    }
}

pub(crate) async fn a_subtree_is_read_breadth_first_and_counts_children(store: &dyn SessionStore) {
    let session = tree(store).await;
    let whole = "2:a(1) 10:g(0) 3:b(2) 4:c(1) 6:d(1) 9:f(0) 7:e(0)";
    let cases = [
        (None, u32::MAX, u32::MAX, whole),
        (None, 4, 7, whole),
        (None, 1, 9, "2:a(1) 10:g(0) 3:b(2)"),
        (None, 0, 9, "2:a(1) 10:g(0)"),
        (None, 9, 4, "2:a(1) 10:g(0) 3:b(2) 4:c(1)"),
        (None, 9, 1, "2:a(1)"),
        (None, 9, 0, ""),
        (Some("b"), 9, 9, "3:b(2) 4:c(1) 6:d(1) 9:f(0) 7:e(0)"),
        (Some("b"), 1, 9, "3:b(2) 4:c(1) 6:d(1)"),
        (Some("b"), 0, 9, "3:b(2)"),
        (Some("b"), 9, 0, ""),
        (Some("f"), 9, 9, "9:f(0)"),
        (Some("gone"), 9, 9, ""),
    ];
    for (root, depth, limit, want) in cases {
        assert_eq!(subtree(store, &session, root, depth, limit).await, want, "{root:?} {depth} {limit}");
    }
}

pub(crate) async fn a_subtree_ends_when_its_bodies_are_large_enough(store: &dyn SessionStore) {
    let session = tree(store).await;
    let cases = [
        (None, 0, ""),
        (None, 1, "2:a"),
        (None, 2, "2:a 10:g"),
        (None, 3, "2:a 10:g 3:b"),
        (Some("b"), 2, "3:b 4:c"),
        (Some("b"), 99, "3:b 4:c 6:d 9:f 7:e"),
    ];
    for (root, bytes_max, want) in cases {
        let query = SubtreeQuery { root: root.map(id), depth: 9, limit: 9, bytes_max };
        let nodes = store.subtree(&session, query).await.unwrap();
        let records: Vec<_> = nodes.into_iter().map(|node| node.record).collect();
        assert_eq!(short(&records), want, "{root:?} {bytes_max}");
    }
    // A wide tree: more children than one query reads.
    let lease = store.create(&id("wide"), "", NOW).await.unwrap();
    let names: Vec<String> = (0..50).map(|n| format!("child{n}")).collect();
    let mut records = vec![entry("top", "")];
    records.extend(names.iter().map(|name| entry(name, "top")));
    store.append(&lease, 1, append(records)).await.unwrap();
    for limit in [1, 16, 17, 33, 50, 51, 99] {
        let query = SubtreeQuery { root: Some(id("top")), depth: 1, limit, bytes_max: usize::MAX };
        let found = store.subtree(&lease.session, query).await.unwrap();
        let found: Vec<_> = found.iter().map(|node| node.record.body.to_string()).collect();
        let want: Vec<_> = ["top".to_owned()].into_iter().chain(names.clone()).take(limit as usize).collect();
        assert_eq!(found, want, "{limit}");
    }
}

pub(crate) async fn the_newest_leaf_below_an_entry_is_found(store: &dyn SessionStore) {
    let session = tree(store).await;
    for (of, want) in
        [("a", "9:f"), ("b", "9:f"), ("c", "9:f"), ("d", "7:e"), ("e", "7:e"), ("g", "10:g"), ("gone", "")]
    {
        assert_eq!(entries(store, &session, below(of)).await, want, "{of}");
    }
    // An older branch is continued and becomes the newest.
    let (lease, _) = store.open(&session).await.unwrap();
    store.append(&lease, 11, append(vec![entry("h", "d")])).await.unwrap();
    for (of, want) in [("a", "11:h"), ("c", "9:f"), ("d", "11:h"), ("e", "7:e")] {
        assert_eq!(entries(store, &session, below(of)).await, want, "{of}");
    }
}

pub(crate) async fn a_circle_of_parents_ends_every_walk(store: &dyn SessionStore) {
    let lease = store.create(&id("s"), "", NOW).await.unwrap();
    let records = vec![entry("x", "z"), entry("y", "x"), entry("z", "y"), entry("self", "self"), entry("tail", "z")];
    store.append(&lease, 1, append(records)).await.unwrap();
    let session = lease.session;
    assert_eq!(subtree(store, &session, None, 9, 9).await, "");
    assert_eq!(subtree(store, &session, Some("x"), 9, 9).await, "1:x(1) 2:y(1) 3:z(2) 5:tail(0)");
    assert_eq!(subtree(store, &session, Some("self"), 9, 9).await, "4:self(1)");
    assert_eq!(entries(store, &session, below("x")).await, "5:tail");
    assert_eq!(entries(store, &session, below("self")).await, "4:self", "a circle has no leaf: where it began");
}

/// Random trees, with some parents missing; every answer is recomputed from a plain list of `(entry, parent)`.
pub(crate) async fn a_random_tree_answers_like_its_plain_model(store: &dyn SessionStore) {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model: Vec<(String, String)> = Vec::new();
        for n in 0..random.usize(1..40) {
            let parent = match random.u32(0..10) {
                0 => String::new(),
                1 => "gone".to_owned(),
                _ if n == 0 => String::new(),
                2..6 => model[n - 1].0.clone(),
                _ => model[random.usize(..n)].0.clone(),
            };
            model.push((format!("e{n}"), parent));
        }
        let lease = store.create(&id(&format!("random{seed}")), "", NOW).await.unwrap();
        let records: Vec<NewRecord> = model.iter().map(|(name, parent)| entry(name, parent)).collect();
        store.append(&lease, 1, append(records)).await.unwrap();

        let is_there = |name: &str| model.iter().any(|(found, _)| found == name);
        let children = |of: &str| -> Vec<String> {
            let hangs = |parent: &str| if of.is_empty() { !is_there(parent) } else { parent == of };
            model.iter().filter(|(_, parent)| hangs(parent)).map(|(name, _)| name.clone()).collect()
        };
        for start in [String::new(), model[random.usize(..model.len())].0.clone()] {
            let (depth, limit) = (random.u32(0..6), random.u32(0..30));
            let mut want = if start.is_empty() { children("") } else { vec![start.clone()] };
            let mut level = want.clone();
            for _ in 0..depth {
                level = level.iter().flat_map(|name| children(name)).collect();
                want.extend(level.clone());
            }
            want.truncate(limit as usize);
            let root = (!start.is_empty()).then(|| id::<EntryId>(&start));
            let query = SubtreeQuery { root, depth, limit, bytes_max: usize::MAX };
            let nodes = store.subtree(&lease.session, query).await.unwrap();
            let found: Vec<_> = nodes.iter().map(|node| (node.record.body.to_string(), node.child_count)).collect();
            let want: Vec<_> = want.into_iter().map(|name| (name.clone(), children(&name).len() as u64)).collect();
            assert_eq!(found, want, "seed {seed}, from {start:?}, {depth} levels, at most {limit}");
        }
        let top = &model[random.usize(..model.len())].0;
        let is_below = |name: &str| {
            let mut at = name;
            while at != top {
                match model.iter().find(|(found, _)| found == at) {
                    Some((_, parent)) => at = parent,
                    None => return false,
                }
            }
            true
        };
        let newest = model.iter().rev().find(|(name, _)| is_below(name) && children(name).is_empty()).unwrap();
        let found = store.entries(&lease.session, below(top)).await.unwrap();
        assert_eq!(&*found[0].body, newest.0, "seed {seed}, below {top}");
    }
}
