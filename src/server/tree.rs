//! `get_tree`, and the same for operators: the shape of a session with a line of each entry, from the store.

use super::{app::App, sessions};
use crate::{
    core::session::preview::{kind, preview},
    runtime::{labels, store_error},
    store::{SessionHead, StoredNode, SubtreeQuery},
};
use reseed_protocol::{
    EntryId, ErrorBody, ErrorCode,
    command::GetTree,
    reply::{Reply, Tree, TreeNode},
};
use std::collections::{BTreeMap, HashSet};

/// Entries of one answer: as JSON about half a megabyte, and what a person might still look through.
const NODES_MAX: usize = 2_000;
/// Bytes of the entries that one answer is made from: of each only a line is shown.
const READ_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Which part of a tree.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) root: Option<EntryId>,
    /// Levels, the first included.
    pub(super) depth: Option<u32>,
}

pub(super) async fn get(asker: &sessions::Asker<'_>, get: GetTree) -> Result<Reply, ErrorBody> {
    let Some(session) = asker.session else {
        return Err(ErrorBody::new(ErrorCode::NoSession, "no session is open on this connection; open one first"));
    };
    let head = asker.app.registry.head(session, asker.owner).await?;
    let part = Part { root: get.root_id, depth: get.depth };
    tree(asker.app, &head, part, "rootId").await.map(Reply::Tree)
}

/// A part of a session's tree; `root_field` is what the root is called where it was asked for.
pub(super) async fn tree(app: &App, head: &SessionHead, part: Part, root_field: &str) -> Result<Tree, ErrorBody> {
    let depth = match part.depth {
        Some(0) => {
            let message = "depth counts the first level too: it is at least 1";
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("depth"));
        }
        Some(levels) => levels - 1,
        None => u32::MAX,
    };
    let (store, session) = (app.registry.store(), &head.session);
    let leaf_id = app.registry.leaf(head).await?;
    // One more than is told, to know whether there are more.
    let query = SubtreeQuery { root: part.root.clone(), depth, limit: NODES_MAX as u32 + 1, bytes_max: READ_BYTES_MAX };
    let mut found = store.subtree(session, query).await.map_err(|error| store_error(&error))?;
    if let Some(root) = part.root.filter(|_| found.is_empty()) {
        return Err(sessions::entry_not_found(&root, root_field));
    }
    let read: usize = found.iter().map(|node| node.record.body.len()).sum();
    let cut = found.len() > NODES_MAX || read >= READ_BYTES_MAX;
    found.truncate(NODES_MAX);
    let mut nodes = nodes(found)?;
    let shown: HashSet<EntryId> = nodes.iter().map(|node| node.entry_id.clone()).collect();
    let named = labels::newest_labels(&**store, session, |target| shown.contains(target)).await;
    let named = named.map_err(|error| store_error(&error))?;
    let mut children: BTreeMap<&EntryId, u64> = BTreeMap::new();
    for parent in nodes.iter().filter_map(|node| node.parent_id.as_ref()) {
        *children.entry(parent).or_default() += 1;
    }
    let more = cut || nodes.iter().any(|node| children.get(&node.entry_id).copied().unwrap_or(0) < node.child_count);
    for node in &mut nodes {
        node.label = named.get(&node.entry_id).and_then(labels::label_of).map(ToOwned::to_owned);
    }
    Ok(Tree { nodes, leaf_id, as_of_seq: head.last_seq, more })
}

fn nodes(found: Vec<StoredNode>) -> Result<Vec<TreeNode>, ErrorBody> {
    let mut nodes = Vec::with_capacity(found.len());
    for StoredNode { record, child_count } in found {
        let Some(entry) = sessions::entry(&record)? else { continue };
        nodes.push(TreeNode {
            kind: kind(&entry).to_owned(),
            preview: preview(&entry.data),
            entry_id: entry.entry_id,
            parent_id: entry.parent_id,
            label: None,
            timestamp: entry.timestamp,
            child_count,
        });
    }
    Ok(nodes)
}
