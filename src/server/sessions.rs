//! Commands answered from the store: lists of sessions, pages of entries.

use super::app::App;
use crate::{
    clock::{Clock, SystemClock},
    core::agent_loop::Snapshot,
    runtime::{blocking, watch::list_item, whole},
    store::{EntriesPage, EntryQuery, Error, ListQuery, Part, SessionHead, StoredRecord},
};
use reseed_protocol::{
    Entry, EntryId, ErrorBody, ErrorCode, SessionId, Timestamp,
    event::Event,
    reply::Reply,
    session::{ListSessions, SessionItem, Sessions},
    tree::{Entries, GetEntries},
};

/// Sessions per page: default and maximum.
const LIST_LIMIT: (u32, u32) = (50, 200);
/// Entries per page: default and maximum.
pub(super) const ENTRIES_LIMIT: (u32, u32) = (100, 500);
/// Maximum number of entries walked back along the path to find the entry that the client names. Beyond this, the
/// client should page backwards.
const PATH_WALK_MAX: u32 = 10_000;
/// Maximum bytes of a page's entries, so that it fits into a frame. A page always contains at least one entry.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum number of damaged records that a page skips. With more, there is little left to read.
const DAMAGED_MAX: usize = 100;
const SEARCH_CHARS_MAX: usize = 200;

/// The user on whose behalf a query runs.
pub(super) struct Asker<'a> {
    pub(super) app: &'a App,
    pub(super) owner: &'a str,
}

/// A page of entries, oldest first.
pub(super) struct Page {
    pub(super) items: Vec<Entry>,
    /// True if there are more entries in the requested direction.
    pub(super) more: bool,
    /// The `seq` of damaged records that belong on the page, or that end a path early.
    pub(super) damaged: Vec<u64>,
}

/// Returns the server's time.
pub(super) fn now() -> Timestamp {
    SystemClock.now()
}

pub(super) fn limit(requested: Option<u32>, (default, max): (u32, u32)) -> Result<u32, ErrorBody> {
    match requested {
        None => Ok(default),
        Some(limit) if (1..=max).contains(&limit) => Ok(limit),
        Some(limit) => Err(invalid("limit", format!("limit must be 1 to {max}, not {limit}"))),
    }
}

pub(super) fn invalid(field: &str, message: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidField, message).with_field(field)
}

pub(super) async fn list(asker: &Asker<'_>, list: ListSessions) -> Result<Reply, ErrorBody> {
    if list.search.as_ref().is_some_and(|text| text.chars().count() > SEARCH_CHARS_MAX) {
        return Err(invalid("search", format!("search may have at most {SEARCH_CHARS_MAX} characters")));
    }
    let query = ListQuery {
        owner: Some(asker.owner.to_owned()),
        search: list.search.filter(|text| !text.is_empty()),
        cursor: list.cursor,
        limit: limit(list.limit, LIST_LIMIT)?,
        ..ListQuery::default()
    };
    let page = asker.app.registry.store().list(query).await.map_err(|error| match error {
        Error::Cursor(_) => invalid("cursor", "the cursor is not from this server".to_owned()),
        other => asker.app.registry.fault(&other),
    })?;
    let items = page.items.iter().map(|head| item(asker.app, head)).collect();
    Ok(Reply::Sessions(Sessions { items, next_cursor: page.next_cursor }))
}

/// Returns a session in the form that lists show. A turn that was running when its process died is not shown as
/// running, although the store does not know that until the session is opened again.
pub(super) fn item(app: &App, head: &SessionHead) -> SessionItem {
    list_item(&head.session, &head.head, app.registry.doing_anywhere(head))
}

/// Returns the newest entries on the path of a session that the client has just joined.
pub(super) async fn newest(
    asker: &Asker<'_>,
    session: &SessionId,
    snapshot: &Snapshot,
    count: u32,
) -> Result<Page, ErrorBody> {
    let count = count.min(ENTRIES_LIMIT.1);
    let Some(leaf) = snapshot.leaf.clone().filter(|_| count > 0) else {
        return Ok(Page { items: Vec::new(), more: snapshot.leaf.is_some(), damaged: Vec::new() });
    };
    path_back(asker, session, leaf, count).await
}

/// Returns the entry and its ancestors, oldest first. If one of them is damaged, it returns those that certainly
/// precede it. These may be too few, but a page that continues from there works.
pub(super) async fn path_back(
    asker: &Asker<'_>,
    session: &SessionId,
    from: EntryId,
    count: u32,
) -> Result<Page, ErrorBody> {
    let (mut limit, mut damaged) = (count + 1, Vec::new());
    let EntriesPage { mut records, cut } = loop {
        let query = EntryQuery::Path { from: from.clone(), limit };
        match asker.app.registry.store().entries_page(session, query, PAGE_BYTES_MAX).await {
            Ok(page) => break page,
            Err(error @ Error::Damaged { part: Part::Record(seq), .. }) if limit > 1 => {
                let _ = asker.app.registry.fault(&error);
                damaged = vec![seq];
                limit /= 2;
            }
            Err(error) => return Err(asker.app.registry.fault(&error)),
        }
    };
    let more = if damaged.is_empty() { records.len() > count as usize } else { limit > 1 };
    records.truncate(count as usize);
    records.reverse();
    Ok(Page { items: parse(&records)?, more: more || cut, damaged })
}

/// Reads entries in log order, oldest first. Returns the oldest after `after`, or otherwise the newest before `before`,
/// up to about a page's bytes. Damaged records are skipped, and their `seq` is returned.
async fn log_around(
    asker: &Asker<'_>,
    session: &SessionId,
    (mut after, mut before): (Option<u64>, Option<u64>),
    count: u32,
) -> Result<(EntriesPage, Vec<u64>), ErrorBody> {
    let store = asker.app.registry.store();
    let fault = |error: &Error| asker.app.registry.fault(error);
    let forwards = after.is_some();
    let (mut found, mut damaged) = (Vec::new(), Vec::new());
    let mut bytes_left = PAGE_BYTES_MAX;
    loop {
        let limit = count - u32::try_from(found.len()).unwrap_or(count).min(count);
        let query = EntryQuery::Log { before_seq: before, after_seq: after, limit };
        let (page, at) = match store.entries_page(session, query, bytes_left).await {
            Ok(page) => (page, None),
            Err(error @ Error::Damaged { part: Part::Record(seq), .. }) if damaged.len() < DAMAGED_MAX => {
                let _ = fault(&error);
                // The records between the position and the damage all fit into the page.
                let (after_seq, before_seq) = if forwards { (after, Some(seq)) } else { (Some(seq), before) };
                let near = EntryQuery::Log { before_seq, after_seq, limit };
                let near = store.entries_page(session, near, bytes_left).await;
                (near.map_err(|error| fault(&error))?, Some(seq))
            }
            Err(error) => return Err(fault(&error)),
        };
        let EntriesPage { records, cut } = page;
        bytes_left = records.iter().fold(bytes_left, |left, record| left.saturating_sub(record.body.len()));
        if forwards {
            found.extend(records);
        } else {
            found.splice(0..0, records);
        }
        // After damage, the store would return one more record, however large.
        let cut = cut || at.is_some() && bytes_left == 0;
        let Some(at) = at.filter(|_| !cut) else { return Ok((EntriesPage { records: found, cut }, damaged)) };
        damaged.push(at);
        if forwards {
            after = Some(at);
        } else {
            before = Some(at);
        }
    }
}

/// Reading this many bytes of records takes too long for a worker thread.
const APART_BYTES: usize = 128 * 1024;

fn parse(records: &[StoredRecord]) -> Result<Vec<Entry>, ErrorBody> {
    let read = || records.iter().filter_map(|record| entry(record).transpose()).collect();
    let bytes: usize = records.iter().map(|record| record.body.len()).sum();
    if bytes > APART_BYTES { blocking::apart(read) } else { read() }
}

/// Returns the entry that a record appended, if any.
pub(super) fn entry(record: &StoredRecord) -> Result<Option<Entry>, ErrorBody> {
    match serde_json::from_str(&record.body) {
        Ok(Event::EntryAppended(appended)) => Ok(Some(appended.entry)),
        Ok(_) => Ok(None),
        Err(error) => {
            tracing::error!(seq = record.seq, %error, "a stored entry cannot be read");
            let message = format!("this version cannot read the stored record {}", record.seq);
            Err(ErrorBody::new(ErrorCode::Internal, message))
        }
    }
}

pub(super) async fn entries(asker: &Asker<'_>, session: &SessionId, get: GetEntries) -> Result<Reply, ErrorBody> {
    if get.before.is_some() && get.after.is_some() {
        return Err(invalid("after", "send `before` or `after`, not both".to_owned()));
    }
    if get.entry_id.is_some()
        && (get.before.is_some() || get.after.is_some() || get.limit.is_some() || get.path.is_some())
    {
        return Err(invalid("entryId", "`entryId` names one entry; send it alone".to_owned()));
    }
    let count = limit(get.limit, ENTRIES_LIMIT)?;
    let head = asker.app.registry.head(session, asker.owner).await?;
    let leaf = asker.app.registry.leaf(&head).await?;
    let page = if let Some(entry) = &get.entry_id {
        whole_entry(asker, session, entry).await?
    } else if get.path == Some(true) {
        on_path(asker, session, &get, leaf.clone(), count).await?
    } else {
        in_log(asker, session, &get, count).await?
    };
    let damaged = Some(page.damaged).filter(|damaged| !damaged.is_empty());
    Ok(Reply::Entries(Entries { items: page.items, leaf_id: leaf, as_of_seq: head.last_seq, more: page.more, damaged }))
}

/// Returns one entry. If it shows only a part of a tool result, the whole result is returned.
async fn whole_entry(asker: &Asker<'_>, session: &SessionId, id: &EntryId) -> Result<Page, ErrorBody> {
    let registry = &asker.app.registry;
    let one = EntryQuery::Path { from: id.clone(), limit: 1 };
    let records = registry.store().entries(session, one).await.map_err(|error| registry.fault(&error))?;
    let mut items = parse(&records)?;
    let Some(entry) = items.first_mut() else { return Err(entry_not_found(id, "entryId")) };
    whole::restore(&**registry.store(), session, entry).await.map_err(|error| registry.fault(&error))?;
    Ok(Page { items, more: false, damaged: Vec::new() })
}

async fn in_log(asker: &Asker<'_>, session: &SessionId, get: &GetEntries, count: u32) -> Result<Page, ErrorBody> {
    let before_seq = seq_of(asker, session, get.before.as_ref(), "before").await?;
    let after_seq = seq_of(asker, session, get.after.as_ref(), "after").await?;
    let (page, damaged) = log_around(asker, session, (after_seq, before_seq), count + 1).await?;
    let EntriesPage { mut records, cut } = page;
    let more = records.len() > count as usize;
    if more {
        // One more than requested was read, to know whether there are more. It is the one furthest from the position.
        let extra = if after_seq.is_some() { records.len() - 1 } else { 0 };
        records.remove(extra);
    }
    Ok(Page { items: parse(&records)?, more: more || cut, damaged })
}

async fn seq_of(
    asker: &Asker<'_>,
    session: &SessionId,
    entry: Option<&EntryId>,
    field: &str,
) -> Result<Option<u64>, ErrorBody> {
    let Some(entry) = entry else { return Ok(None) };
    let seq = asker.app.registry.store().entry_seq(session, entry).await;
    let seq = seq.map_err(|error| asker.app.registry.fault(&error))?;
    seq.map(Some).ok_or_else(|| entry_not_found(entry, field))
}

pub(super) fn entry_not_found(entry: &EntryId, field: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::EntryNotFound, format!("there is no entry `{entry}` here")).with_field(field)
}

async fn on_path(
    asker: &Asker<'_>,
    session: &SessionId,
    get: &GetEntries,
    leaf: Option<EntryId>,
    count: u32,
) -> Result<Page, ErrorBody> {
    if let Some(before) = &get.before {
        seq_of(asker, session, Some(before), "before").await?;
        let mut page = path_back(asker, session, before.clone(), count + 1).await?;
        let parent = page.items.pop().and_then(|entry| entry.parent_id);
        return match parent {
            // An entry that fills a page alone leaves no room for the entries before it.
            Some(parent) if page.items.is_empty() && page.more && page.damaged.is_empty() => {
                path_back(asker, session, parent, count).await
            }
            _ => Ok(page),
        };
    }
    let Some(leaf) = leaf else { return Ok(Page { items: Vec::new(), more: false, damaged: Vec::new() }) };
    let Some(after) = &get.after else { return path_back(asker, session, leaf, count).await };
    seq_of(asker, session, Some(after), "after").await?;
    let walk = EntryQuery::PathAfter { after: after.clone(), to: leaf.clone(), steps: PATH_WALK_MAX, limit: count + 1 };
    let found = asker.app.registry.store().entries_page(session, walk, PAGE_BYTES_MAX).await;
    let EntriesPage { mut records, cut } = found.map_err(|error| asker.app.registry.fault(&error))?;
    if records.is_empty() && *after != leaf {
        return Err(entry_not_found(after, "after"));
    }
    let more = cut || records.len() > count as usize;
    records.truncate(count as usize);
    Ok(Page { items: parse(&records)?, more, damaged: Vec::new() })
}
