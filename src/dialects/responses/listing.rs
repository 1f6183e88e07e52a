//! Lists of items, read from the end of a path: only what a page needs, whatever the length of the conversation.
//!
//! The newest items come first unless a client asks otherwise. A list that begins at the oldest item costs a walk along
//! the path, of which only the page is kept.

use super::{
    ids::{ItemId, normal},
    retrieve::shown_items,
    tools::Names,
};
use crate::{exchange::Exchange, http::Failure};
use reseed_protocol::{
    Entry, EntryId, ErrorCode,
    command::Command,
    reply::Reply,
    tree::{GetEntries, GetTree},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Entries that are read at once.
const ENTRIES: u32 = 100;

/// The items of a page if the client does not say, and at most.
const ITEMS: usize = 20;
const ITEMS_MAX: usize = 100;

/// A part of a list: `limit` items after the item `after`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Page {
    after: Option<String>,
    limit: Option<usize>,
    #[serde(default)]
    order: Order,
}

/// The order of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    /// Oldest first.
    Asc,
    /// Newest first.
    #[default]
    Desc,
}

impl Page {
    /// Returns this part of the items on the path to an entry, with calls of these tools as the client has named them.
    ///
    /// # Errors
    /// `item_not_found` for an unknown `after`, or why the session cannot be read.
    pub(super) async fn of_path(
        &self,
        exchange: &mut Exchange,
        last: Option<&EntryId>,
        names: &Names,
    ) -> Result<Value, Failure> {
        let limit = self.limit.unwrap_or(ITEMS).clamp(1, ITEMS_MAX);
        let mut items = match self.order {
            Order::Desc => self.newest(exchange, last, names, limit + 1).await?,
            Order::Asc => self.oldest(exchange, last, names, limit + 1).await?,
        };
        let has_more = items.len() > limit;
        items.truncate(limit);
        Ok(list(items, has_more))
    }

    async fn newest(
        &self,
        exchange: &mut Exchange,
        last: Option<&EntryId>,
        names: &Names,
        count: usize,
    ) -> Result<Vec<Value>, Failure> {
        let (mut items, mut back) = match &self.after {
            None => (Vec::new(), Back::to(last)),
            Some(after) => {
                let entry = entry_of(exchange, after).await?.ok_or_else(|| unknown(after))?;
                let session = exchange.snapshot().session_id.clone();
                let after = &normal(&session, after);
                let mut older = shown_items(&session, &entry, names);
                let place = older.iter().position(|item| item["id"] == after.as_str());
                older.truncate(place.ok_or_else(|| unknown(after))?);
                older.reverse();
                (older, Back::before(Some(&entry.entry_id)))
            }
        };
        while items.len() < count
            && let Some(entry) = back.next(exchange).await?
        {
            items.extend(shown_items(&exchange.snapshot().session_id, &entry, names).into_iter().rev());
        }
        items.truncate(count);
        Ok(items)
    }

    async fn oldest(
        &self,
        exchange: &mut Exchange,
        last: Option<&EntryId>,
        names: &Names,
        count: usize,
    ) -> Result<Vec<Value>, Failure> {
        let mut back = Back::to(last);
        let mut items = VecDeque::new();
        let session = exchange.snapshot().session_id.clone();
        let last = self.after.as_ref().map(|after| normal(&session, after));
        let is_after = |item: &Value| last.as_ref().is_some_and(|last| item["id"] == last.as_str());
        while let Some(entry) = back.next(exchange).await? {
            for item in shown_items(&session, &entry, names).into_iter().rev() {
                if is_after(&item) {
                    return Ok(items.into());
                }
                items.push_front(item);
                items.truncate(count);
            }
        }
        match &self.after {
            Some(after) => Err(unknown(after)),
            None => Ok(items.into()),
        }
    }
}

/// Returns a list of items, which is a part of a longer one if there are more.
pub(super) fn list(items: Vec<Value>, has_more: bool) -> Value {
    let id = |item: Option<&Value>| item.map(|item| item["id"].clone());
    let (first, last) = (id(items.first()), id(items.last()));
    json!({ "object": "list", "data": items, "first_id": first, "last_id": last, "has_more": has_more })
}

fn unknown(after: &str) -> Failure {
    let shown: String = after.chars().take(200).collect();
    Failure::invalid(format!("there is no item `{shown}` in this list")).with_code("item_not_found").at("after")
}

/// Returns the entry that an item's id names; `None` if there is none in this session.
///
/// # Errors
/// Why the session cannot be read.
pub(super) async fn entry_of(exchange: &mut Exchange, item: &str) -> Result<Option<Entry>, Failure> {
    let session = exchange.snapshot().session_id.clone();
    let Some(id) = ItemId::parse(item, Some(&session)).filter(|id| id.session == session) else { return Ok(None) };
    match exchange.entry(&id.entry).await {
        Ok(entry) => Ok(Some(entry)),
        Err(error) if error.code == ErrorCode::EntryNotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the entry that a session began with; `None` if it has none.
///
/// # Errors
/// Why the session cannot be read.
pub(super) async fn root(exchange: &mut Exchange) -> Result<Option<reseed_protocol::tree::TreeNode>, Failure> {
    let command = Command::GetTree(GetTree { root_id: None, depth: Some(1) });
    match exchange.request(&command).await? {
        Reply::Tree(tree) => Ok(tree.nodes.into_iter().next()),
        _ => Ok(None),
    }
}

/// Walks along a path, from its end to its beginning.
pub(super) struct Back {
    /// The last entry of the path, if it is still to be read.
    last: Option<EntryId>,
    /// The entry before which to read on; `None` if there are no more.
    before: Option<EntryId>,
    /// Entries that were read, oldest first.
    read: Vec<Entry>,
}

impl Back {
    /// Begins with this entry.
    pub(super) fn to(last: Option<&EntryId>) -> Self {
        Self { last: last.cloned(), before: last.cloned(), read: Vec::new() }
    }

    /// Begins with the entry before this one.
    pub(super) fn before(entry: Option<&EntryId>) -> Self {
        Self { last: None, before: entry.cloned(), read: Vec::new() }
    }

    /// Returns the next entry.
    ///
    /// # Errors
    /// Why the session cannot be read.
    pub(super) async fn next(&mut self, exchange: &mut Exchange) -> Result<Option<Entry>, Failure> {
        if let Some(last) = self.last.take() {
            return Ok(Some(exchange.entry(&last).await?));
        }
        if self.read.is_empty()
            && let Some(before) = self.before.take()
        {
            let command = Command::GetEntries(GetEntries {
                before: Some(before),
                after: None,
                limit: Some(ENTRIES),
                path: Some(true),
                entry_id: None,
            });
            if let Reply::Entries(page) = exchange.request(&command).await? {
                let oldest = page.items.first().map(|entry| entry.entry_id.clone());
                self.before = oldest.filter(|_| page.more);
                self.read = page.items;
            }
        }
        Ok(self.read.pop())
    }
}
