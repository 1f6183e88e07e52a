//! Reads conversations stored as entries: sessions in our own databases.
//!
//! A session is a tree. The whole path from its root to its leaf is replayed: compactions on it hide nothing here, and
//! their summaries are what the summariser `recorded` returns.

use crate::{
    core::{context::counter::Counter, session::SessionState},
    replay::recorded::{Builder, Recorded},
    runtime::stored,
    store::{EntryQuery, ListQuery, SessionStore},
};
use anyhow::Context as _;
use reseed_protocol::{Entry, EntryData, EntryId, SessionId, event::Event};
use std::collections::HashMap;

/// The number of records and sessions read per query.
const PAGE: u32 = 200;

/// Returns the ids of the sessions of a database, oldest first.
pub(super) async fn sessions(store: &dyn SessionStore) -> anyhow::Result<Vec<SessionId>> {
    let mut query = ListQuery { limit: PAGE, ..ListQuery::default() };
    let mut found = Vec::new();
    loop {
        let page = store.list(query.clone()).await.context("list the sessions")?;
        found.extend(page.items.into_iter().map(|head| head.session));
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            found.reverse();
            return Ok(found);
        }
    }
}

/// Reads a session of a database.
///
/// # Errors
/// The store's error, or a damaged record by its number.
pub(super) async fn session(store: &dyn SessionStore, id: &SessionId, counter: Counter) -> anyhow::Result<Recorded> {
    let (head, state): (_, SessionState) = stored::read(store, id).await?;
    let (mut entries, mut after) = (Vec::new(), 0);
    loop {
        let query = EntryQuery::Log { before_seq: None, after_seq: Some(after), limit: PAGE };
        let page = store.entries(id, query).await?;
        let is_full = page.len() == PAGE as usize;
        for record in page {
            after = record.seq;
            let event: Event =
                serde_json::from_str(&record.body).with_context(|| format!("read record {}", record.seq))?;
            if let Event::EntryAppended(appended) = event {
                entries.push(appended.entry);
            }
        }
        if !is_full {
            break;
        }
    }
    let name = if head.head.name.is_empty() { id.to_string() } else { format!("{id} {}", head.head.name) };
    let mut recorded = path(&name, entries, state.leaf, counter);
    recorded.instructions = state.settings.instructions.clone().unwrap_or_default();
    Ok(recorded)
}

/// Builds a conversation from the path to a leaf.
fn path(name: &str, entries: Vec<Entry>, leaf: Option<EntryId>, counter: Counter) -> Recorded {
    let parents: HashMap<&EntryId, Option<&EntryId>> =
        entries.iter().map(|entry| (&entry.entry_id, entry.parent_id.as_ref())).collect();
    let mut on_path: Vec<EntryId> = Vec::new();
    let mut next = leaf.as_ref();
    while let Some(id) = next.filter(|_| on_path.len() <= entries.len()) {
        on_path.push(id.clone());
        next = parents.get(id).copied().flatten();
    }
    let all = entries.len();
    let mut by_id: HashMap<EntryId, Entry> = entries.into_iter().map(|entry| (entry.entry_id.clone(), entry)).collect();
    let mut builder = Builder::new(name, counter);
    if on_path.len() < all {
        builder.note(format!("{} entries are on other branches", all - on_path.len()));
    }
    for id in on_path.iter().rev() {
        let Some(entry) = by_id.remove(id) else { continue };
        builder.at(entry.timestamp);
        match entry.data {
            EntryData::Message(message) => {
                let message = std::sync::Arc::unwrap_or_clone(message);
                builder.message(Some(id.to_string()), message);
            }
            EntryData::CustomMessage(custom) => builder.aside(custom.content),
            EntryData::Compaction(compaction) if !compaction.summary.is_empty() => builder.summary(compaction.summary),
            _ => {}
        }
    }
    builder.finish(&[])
}
