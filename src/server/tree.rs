//! `get_tree`, and its equivalent for operators: the shape of a session with a preview of each entry, from the store.

use super::{app::App, sessions};
use crate::{
    core::session::preview::{kind, preview},
    runtime::{labels, store_error},
    store::{SessionHead, StoredNode, SubtreeQuery},
};
use reseed_protocol::{
    EntryId, ErrorBody, ErrorCode, SessionId,
    reply::Reply,
    tree::{GetTree, Tree, TreeNode},
};
use std::collections::{BTreeMap, HashSet};

/// Maximum entries of one reply. This is about half a megabyte of JSON, and as much as a person might look through.
const NODES_MAX: usize = 2_000;
/// Maximum bytes of the entries read for one reply, which shows only a line of each.
const READ_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Selects a part of a tree.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) root: Option<EntryId>,
    /// The number of levels, including the first.
    pub(super) depth: Option<u32>,
}

pub(super) async fn get(asker: &sessions::Asker<'_>, session: &SessionId, get: GetTree) -> Result<Reply, ErrorBody> {
    let head = asker.app.registry.head(session, asker.owner).await?;
    let part = Part { root: get.root_id, depth: get.depth };
    tree(asker.app, &head, part, "rootId").await.map(Reply::Tree)
}

/// Returns a part of a session's tree; `root_field` is the name of the root's field in the request.
pub(super) async fn tree(app: &App, head: &SessionHead, part: Part, root_field: &str) -> Result<Tree, ErrorBody> {
    let depth = match part.depth {
        Some(0) => {
            let message = "depth includes the first level, so it must be at least 1";
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("depth"));
        }
        Some(levels) => levels - 1,
        None => u32::MAX,
    };
    let (store, session) = (app.registry.store(), &head.session);
    let leaf_id = app.registry.leaf(head).await?;
    // One more than returned, to know whether there are more.
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
