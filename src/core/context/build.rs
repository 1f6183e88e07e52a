//! Builds the model's context from a session's history. There is no other way to build one.
//!
//! The newest compaction on the path comes first with its summary. The older entries that it keeps individually follow,
//! then the entries from its first kept one on, and then everything after it. Inside a context, every tool call has its
//! result.

use crate::context::{
    messages::{Context, Kind},
    node::Node,
    pairing::paired,
    replay::{first_kept, raw_context},
};
use reseed_protocol::{EntryData, EntryId};
use std::{collections::HashSet, sync::Arc};

/// Builds the model's context from the path to the leaf, oldest first.
#[must_use]
pub fn build_context(path: &[Arc<Node>]) -> Context {
    paired(raw_context(path))
}

/// Returns the entries of the path that its newest compaction keeps, the compaction itself first.
#[must_use]
pub fn remaining(path: &[Arc<Node>]) -> Vec<(Kind, &Arc<Node>)> {
    let compaction =
        path.iter().enumerate().rev().find_map(|(at, node)| node.compaction().map(|compaction| (at, node, compaction)));
    let Some((at, node, compaction)) = compaction else {
        return path.iter().filter(|node| !node.undone).map(|node| (Kind::Recent, node)).collect();
    };
    let before = &path[..at];
    let first_kept = first_kept(before, compaction);
    let kept: HashSet<&EntryId> = compaction.kept_entry_ids.iter().collect();
    let beside = before[..first_kept].iter().filter(|node| node.pinned || kept.contains(node.id()));
    let beside = beside.map(|node| (Kind::Beside, node));
    let tail = before[first_kept..].iter().map(|node| (Kind::Kept, node));
    // Older compactions among them are merged into the newest.
    let kept = beside.chain(tail).filter(|(_, node)| !matches!(node.entry.data, EntryData::Compaction(_)));
    std::iter::once((Kind::Summary, node))
        .chain(kept)
        .chain(path[at + 1..].iter().filter(|node| !node.undone).map(|node| (Kind::Recent, node)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{
        counter::Counter,
        testing::{path, printed},
    };

    #[test]
    fn the_newest_compaction_decides_what_is_seen() {
        let table: &[(&[&str], &[&str])] = &[
            (&["a:user one", "b:assistant two"], &["a user one", "b assistant two"]),
            (
                &["a:user one", "b:assistant two", "c:user three", "d:compaction S first=c", "e:assistant four"],
                &["d summary S", "c user three", "e assistant four"],
            ),
            (
                &["a:user one", "b:assistant two", "c:user three", "d:compaction S first=c keep=a", "e:user four"],
                &["d summary S", "a user one", "c user three", "e user four"],
            ),
            (
                &["a:user one", "b:compaction S first=a", "c:user two", "d:compaction T first=c", "e:user three"],
                &["d summary T", "c user two", "e user three"],
            ),
            (&["a:user one", "b:compaction S first=zz", "c:user two"], &["b summary S", "c user two"]),
            (
                &["a:user one", "b:call x"],
                &["a user one", "b call x", "- result x No result: the call was not finished."],
            ),
            (&["a:result x ok", "b:user one"], &["b user one"]),
            (
                &["a:call x y", "b:result y 2", "c:user late", "d:result x 1"],
                &["a call x y", "d result x 1", "b result y 2", "c user late"],
            ),
        ];
        for (entries, expected) in table {
            let context = build_context(&path(entries, &Counter::for_model("test")));
            assert_eq!(printed(&context), *expected, "{entries:?}");
        }
    }
}
