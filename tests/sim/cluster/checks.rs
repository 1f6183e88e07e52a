//! The guarantees of a cluster, beside those of one server.

use crate::{
    checks::Check,
    history::{History, Written},
};
use std::collections::BTreeMap;

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("a term has one holder", terms_have_one_holder),
    ("nothing is written under a term that has ended", nothing_stale_is_written),
    ("a session is taken from none that trusts its lease", taken_from_the_silent),
    ("a session is taken from none that stands still before its lease is over", taken_from_the_still),
    ("none that trusts its lease asks the model for a session of another", one_believes_in_itself),
];

/// Terms are granted one after the other, each to one node.
fn terms_have_one_holder(history: &History) -> Result<(), String> {
    let mut newest: BTreeMap<_, u64> = BTreeMap::new();
    let mut epochs: BTreeMap<_, &str> = BTreeMap::new();
    for grant in &history.grants {
        // Creating a session grants the first. A standby that has taken over continues from its own position.
        let is_first = *epochs.entry(&grant.session).or_insert(&grant.epoch) == grant.epoch;
        let before = if is_first { 1 } else { grant.term - 1 };
        let term = newest.entry((&grant.session, &grant.epoch)).or_insert(before);
        if grant.term != *term + 1 {
            let (node, session) = (grant.node, &grant.session);
            return Err(format!("node {node} was granted term {} of `{session}` after {term}", grant.term));
        }
        *term = grant.term;
    }
    let mut holders: BTreeMap<_, usize> =
        history.grants.iter().map(|grant| ((&grant.session, &grant.epoch, grant.term), grant.node)).collect();
    for (session, log) in &history.written {
        for (seq, Written { term, node, epoch, .. }) in (1..).zip(log) {
            // The first term belongs to the creator.
            let holder = *holders.entry((session, epoch, *term)).or_insert(*node);
            if holder != *node {
                return Err(format!("node {node} wrote record {seq} of `{session}` under term {term} of {holder}"));
            }
        }
    }
    Ok(())
}

/// Once a term is granted, nothing is written under an earlier one, in any session.
fn nothing_stale_is_written(history: &History) -> Result<(), String> {
    for (session, log) in &history.written {
        for (seq, record) in (1..).zip(log) {
            let (term, newest) = (record.term, record.newest_term);
            if term != newest {
                let node = record.node;
                return Err(format!("node {node} wrote record {seq} of `{session}` under term {term}, not {newest}"));
            }
        }
    }
    Ok(())
}

/// A node that is judged silent has stopped trusting itself before.
fn taken_from_the_silent(history: &History) -> Result<(), String> {
    taken(history, |is_still| !is_still)
}

/// A node that stands still keeps its sessions as long as one whose beats are lost.
fn taken_from_the_still(history: &History) -> Result<(), String> {
    taken(history, |is_still| is_still)
}

fn taken(history: &History, is_meant: fn(bool) -> bool) -> Result<(), String> {
    match history.grants.iter().find(|grant| grant.from_trusting.is_some_and(|(_, is_still)| is_meant(is_still))) {
        Some(grant) => Err(format!("{grant:?}")),
        None => Ok(()),
    }
}

/// A node that trusts its lease asks for a turn of a session only while it holds it.
fn one_believes_in_itself(history: &History) -> Result<(), String> {
    match history.asked.iter().find(|asked| asked.stale) {
        Some(asked) => {
            let (node, purpose) = (asked.node, asked.request.purpose);
            Err(format!("node {node} asked for a {purpose:?} as of {} without holding the session", asked.as_of))
        }
        None => Ok(()),
    }
}
