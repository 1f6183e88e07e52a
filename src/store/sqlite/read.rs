//! The read queries. Each runs on one connection inside one snapshot.

use super::{
    Fault, is_damage,
    record::{self, COLUMNS},
    tree::Tree,
};
use crate::{
    CommandMark, EntryQuery, Error, Head, ListPage, ListQuery, Part, SessionHead, StoredRecord, UNFINISHED, Usage,
    checksum,
    migrate::{Listed, PAGE_ROWS},
    page::{self, Cursor, EntriesPage, Filling},
    record::check_complete,
    walk::{self, immediate},
};
use reseed_protocol::{CommandId, EntryId, SessionId, Timestamp};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row, types::ValueRef};

/// The columns of a [`SessionHead`] except its state, in the order in which [`session_head`] reads them.
pub(super) const HEAD_COLUMNS: &str = "number, term, checksum, id, owner, epoch, last_seq, name, created_at, \
                                       updated_at, entries, token_count, window_tokens, running, last_entry, \
                                       cost_nano_usd, unpriced_requests";

/// A session's row.
pub(super) struct FoundHead {
    pub(super) number: i64,
    pub(super) term: u64,
    pub(super) head: SessionHead,
    /// The entry appended last, if known.
    pub(super) last_entry: Option<String>,
}

pub(super) use crate::checksum::int;

fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)?.cast_unsigned())
}

/// Returns the session's number.
pub(super) fn number(db: &Connection, session: &SessionId) -> Result<i64, Fault> {
    let found = db
        .prepare_cached("SELECT number FROM session WHERE id = ?1")?
        .query_row([session.as_str()], |row| row.get(0))
        .optional()?;
    found.ok_or_else(|| Error::NotFound(session.clone()).into())
}

pub(super) fn records(
    db: &Connection,
    session: &SessionId,
    after_seq: u64,
    limit: u32,
    bytes_max: usize,
) -> Result<Vec<StoredRecord>, Fault> {
    let found = db
        .prepare_cached("SELECT number, last_seq FROM session WHERE id = ?1")?
        .query_row([session.as_str()], |row| Ok((row.get::<_, i64>(0)?, count(row, 1)?)))
        .optional()?;
    let (number, last_seq) = found.ok_or_else(|| Error::NotFound(session.clone()))?;
    let mut statement = db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM record WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3"
    ))?;
    let mut rows = statement.query((number, int(after_seq), limit))?;
    let (mut records, mut bytes, mut limit) = (Vec::new(), 0, limit);
    while let Some(row) = rows.next()? {
        let record = record::decode(session, row)?;
        bytes += record.body.len();
        records.push(record);
        if bytes >= bytes_max {
            limit = u32::try_from(records.len()).unwrap_or(limit);
            break;
        }
    }
    let wanted = last_seq.saturating_sub(after_seq).min(limit.into());
    check_complete(session, &records, after_seq, wanted)?;
    Ok(records)
}

fn collect(
    session: &SessionId,
    mut statement: CachedStatement<'_>,
    params: impl Params,
    bytes_max: usize,
) -> Result<EntriesPage, Fault> {
    let mut rows = statement.query(params)?;
    let mut page = Filling::new(bytes_max);
    while let Some(row) = rows.next()? {
        if !page.add(|| record::decode(session, row))? {
            break;
        }
    }
    Ok(page.done())
}

pub(super) fn entries(
    db: &Connection,
    session: &SessionId,
    query: &EntryQuery,
    bytes_max: usize,
) -> Result<EntriesPage, Fault> {
    match query {
        EntryQuery::Log { before_seq, after_seq, limit } => {
            let number = number(db, session)?;
            let order = if after_seq.is_some() { "ASC" } else { "DESC" };
            let statement = db.prepare_cached(&log_sql(order))?;
            let (after, before) = (int(after_seq.unwrap_or(0)), int(before_seq.unwrap_or(u64::MAX)));
            let mut found = collect(session, statement, (number, after, before, limit), bytes_max)?;
            if after_seq.is_none() {
                found.records.reverse();
            }
            Ok(found)
        }
        EntryQuery::Kind { kind, after_seq, limit } => {
            let statement = db.prepare_cached(&kind_sql(kind == MESSAGE))?;
            collect(session, statement, (number(db, session)?, int(*after_seq), limit, kind), bytes_max)
        }
        _ => Ok(immediate(walk::entries(&Tree::of(db, session)?, query, bytes_max))?.unwrap_or_default()),
    }
}

/// The kind of most entries; the index by kind excludes it.
const MESSAGE: &str = "message";

/// Returns the query of one kind. SQLite uses a partial index only if the query repeats its condition.
fn kind_sql(is_message: bool) -> String {
    let indexed = if is_message { "entry IS NOT NULL" } else { "kind <> 'message'" };
    format!(
        "SELECT {COLUMNS} FROM record WHERE session = ?1 AND seq > ?2 AND kind = ?4 AND {indexed} \
         ORDER BY seq LIMIT ?3"
    )
}

fn log_sql(order: &str) -> String {
    format!(
        "SELECT {COLUMNS} FROM record WHERE session = ?1 AND seq > ?2 AND seq < ?3 AND entry IS NOT NULL \
         ORDER BY seq {order} LIMIT ?4"
    )
}

pub(super) fn entry_seq(db: &Connection, session: &SessionId, entry: &EntryId) -> Result<Option<u64>, Fault> {
    let number = number(db, session)?;
    let mut statement = db.prepare_cached("SELECT seq FROM record WHERE session = ?1 AND entry = ?2")?;
    Ok(statement.query_row((number, entry.as_str()), |row| count(row, 0)).optional()?)
}

pub(super) fn command(db: &Connection, session: &SessionId, command_id: &str) -> Result<Option<CommandMark>, Fault> {
    let mut statement = db.prepare_cached(
        "SELECT fingerprint, reply, checksum FROM mark \
         WHERE session = (SELECT number FROM session WHERE id = ?1) AND command = ?2",
    )?;
    let mut rows = statement.query((session.as_str(), command_id))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    mark(session, command_id.to_owned(), row).map(Some)
}

/// Reads the columns `fingerprint`, `reply` and `checksum` of a mark, and verifies it.
pub(super) fn mark(session: &SessionId, command_id: String, row: &Row<'_>) -> Result<CommandMark, Fault> {
    // The bits of the hash, which SQLite stores as a signed number.
    let fingerprint = row.get::<_, i64>(0)?.cast_unsigned();
    let mark = CommandMark { command_id, fingerprint, reply: row.get(1)? };
    if !fits(row.get_ref(2)?, checksum::mark(session, &mark)) {
        return Err(damaged(session, Part::Mark).into());
    }
    Ok(mark)
}

/// Returns true if the stored checksum equals `want`, or is missing: version 1 of the tables had none, and such a row
/// is accepted until it is written again.
fn fits(stored: ValueRef<'_>, want: u32) -> bool {
    stored == ValueRef::Null || stored == ValueRef::Integer(want.into())
}

fn damaged(session: &SessionId, part: Part) -> Error {
    Error::Damaged { session: session.clone(), part, reason: "checksum mismatch" }
}

/// Returns the session's row and its state. A damaged state is left out: the log can be folded again.
pub(super) fn head(db: &Connection, session: &SessionId) -> Result<FoundHead, Fault> {
    let mut found = head_without_state(db, session)?;
    let mut statement = db.prepare_cached("SELECT state, checksum FROM session_state WHERE session = ?1")?;
    let mut rows = statement.query([found.number])?;
    if let Some(row) = rows.next()?
        && let Ok(state) = row.get_ref(0)?.as_str()
        && !state.is_empty()
        && fits(row.get_ref(1)?, checksum::state(session, state))
    {
        found.head.head.state = Some(state.into());
    }
    Ok(found)
}

/// Returns the session's row; the state is left out.
pub(super) fn head_without_state(db: &Connection, session: &SessionId) -> Result<FoundHead, Fault> {
    let mut statement = db.prepare_cached(&format!("SELECT {HEAD_COLUMNS} FROM session WHERE id = ?1"))?;
    let mut rows = statement.query([session.as_str()])?;
    let row = rows.next()?.ok_or_else(|| Error::NotFound(session.clone()))?;
    match session_head(row)? {
        Some(found) if found.head.session == *session => Ok(found),
        _ => Err(damaged(session, Part::Head).into()),
    }
}

/// Reads a row of [`HEAD_COLUMNS`]; `None` if it is damaged.
fn session_head(row: &Row<'_>) -> rusqlite::Result<Option<FoundHead>> {
    let columns = || -> rusqlite::Result<Option<FoundHead>> {
        let Ok(session) = row.get_ref(3)?.as_str().unwrap_or_default().parse() else { return Ok(None) };
        let head = Head {
            name: row.get(7)?,
            created_at: Timestamp(row.get(8)?),
            updated_at: Timestamp(row.get(9)?),
            entries: count(row, 10)?,
            token_count: count(row, 11)?,
            window_tokens: count(row, 12)?,
            cost_nano_usd: row.get::<_, Option<i64>>(15)?.map(i64::cast_unsigned),
            unpriced_requests: count(row, 16)?,
            running: row.get(13)?,
            state: None,
        };
        let head = SessionHead {
            session,
            owner: row.get(4)?,
            epoch: row.get(5)?,
            last_seq: count(row, 6)?,
            term: count(row, 1)?,
            holder: None,
            head,
        };
        Ok(Some(FoundHead { number: row.get(0)?, term: count(row, 1)?, head, last_entry: row.get(14)? }))
    };
    let found = match columns() {
        Err(error) if is_damage(&error) => None,
        found => found?,
    };
    let stored = row.get_ref(2)?;
    Ok(found.filter(|found| fits(stored, checksum::head(&found.head, found.term, found.last_entry.as_deref()))))
}

pub(super) fn list(db: &Connection, query: &ListQuery) -> Result<ListPage, Fault> {
    let mut page = ListPage::default();
    page.next_cursor = list_rows(db, query, |row, found| {
        match found {
            Some(found) => page.items.push(found.head),
            // Its owner is unknown, so only operators see it.
            None if query.owner.is_none() => {
                page.damaged.extend(row.get_ref(3)?.as_str().ok().and_then(|id| id.parse().ok()));
            }
            None => {}
        }
        Ok(())
    })?;
    Ok(page)
}

/// Lists sessions with their numbers, without damaged ones, and returns the start of the next page.
pub(super) fn list_numbered(db: &Connection, query: &ListQuery) -> Result<(Vec<FoundHead>, Option<String>), Fault> {
    let mut sessions = Vec::new();
    let next_cursor = list_rows(db, query, |_, found| {
        sessions.extend(found);
        Ok(())
    })?;
    Ok((sessions, next_cursor))
}

/// Calls `each` with the rows of a page, and returns the start of the next page.
fn list_rows(
    db: &Connection,
    query: &ListQuery,
    mut each: impl FnMut(&Row<'_>, Option<FoundHead>) -> rusqlite::Result<()>,
) -> Result<Option<String>, Fault> {
    let start = page::start(query)?;
    let search = query.search.as_deref().map(page::fold).unwrap_or_default();
    // Reads one more than requested, to know whether there is a next page.
    let rows_max = i64::from(query.limit) + 1;
    let start = if query.unfinished { start.min(UNFINISHED_START) } else { start };
    let mut statement = db.prepare_cached(&list_sql(query.owner.is_some(), query.unfinished))?;
    let mut rows = match &query.owner {
        Some(owner) => statement.query((start.updated_at, start.number, search, rows_max, owner))?,
        None => statement.query((start.updated_at, start.number, search, rows_max))?,
    };
    let mut last = None;
    let mut rows_left = query.limit;
    while let Some(row) = rows.next()? {
        if rows_left == 0 {
            return Ok(last.map(|last: Cursor| last.to_string()));
        }
        rows_left -= 1;
        // The cursor holds the values in the index, because the next page starts after them.
        last = Some(Cursor { updated_at: row.get(9)?, number: row.get(0)? });
        each(row, session_head(row)?)?;
    }
    Ok(None)
}

/// Returns what an owner has stored. Triggers maintain the row (see `schema.rs`).
pub(super) fn usage(db: &Connection, owner: &str) -> rusqlite::Result<Usage> {
    let mut statement = db.prepare_cached("SELECT sessions, empty, bytes FROM usage WHERE owner = ?1")?;
    let found = statement.query_row([owner], |row| {
        let count = |column| row.get(column).map(|value: i64| value.max(0).cast_unsigned());
        Ok(Usage { sessions: count(0)?, empty: count(1)?, bytes: count(2)? })
    });
    found.optional().map(Option::unwrap_or_default)
}

/// Returns the session that this command of its owner has created.
pub(super) fn created_by(db: &Connection, owner: &str, command: &CommandId) -> Result<Option<SessionId>, Fault> {
    let mut statement = db.prepare_cached("SELECT id FROM session WHERE owner = ?1 AND created_by = ?2")?;
    let found: Option<String> = statement.query_row((owner, command.as_str()), |row| row.get(0)).optional()?;
    let read =
        |text: String| text.parse().map_err(|error| Error::Unknown(format!("read the id of a session: {error}")));
    Ok(found.map(read).transpose()?)
}

/// Returns a page of all sessions with numbers above `after`.
pub(super) fn listed(db: &Connection, after: i64) -> rusqlite::Result<Vec<Listed>> {
    let mut statement =
        db.prepare_cached("SELECT number, id, created_by FROM session WHERE number > ?1 ORDER BY number LIMIT ?2")?;
    let rows = statement.query_map((after, PAGE_ROWS), |row| {
        Ok(Listed::of(row.get(0)?, row.get_ref(1)?.as_str().ok(), row.get_ref(2)?.as_str().ok()))
    })?;
    rows.collect()
}

/// Returns empty sessions that were created before a time, oldest first.
pub(super) fn empty_sessions(db: &Connection, before: Timestamp, limit: u32) -> rusqlite::Result<Vec<SessionId>> {
    let mut statement = db.prepare_cached(
        "SELECT id FROM session WHERE last_seq < 2 AND updated_at > ?1 AND created_at < ?2 \
         ORDER BY created_at LIMIT ?3",
    )?;
    let ids = statement.query_map((UNFINISHED.0, before.0, limit), |row| row.get::<_, String>(0))?;
    // An invalid id is damage, which other reads report.
    ids.filter_map(|id| id.map(|id| id.parse().ok()).transpose()).collect()
}

/// The position before the sessions that are still being created; they come last in the order.
const UNFINISHED_START: Cursor = Cursor { updated_at: UNFINISHED.0 + 1, number: 0 };

/// Returns the query of the list. `instr` finds the empty text everywhere, so an empty search matches everything. Each
/// index row ends with the number (SQLite's rowid), so the index provides the order without naming it.
fn list_sql(of_owner: bool, unfinished: bool) -> String {
    let owner = if of_owner { "AND owner = ?5" } else { "" };
    let finished = if unfinished { String::new() } else { format!("AND updated_at >= {}", UNFINISHED.0 + 1) };
    format!(
        "SELECT {HEAD_COLUMNS} FROM session \
         WHERE (updated_at, number) < (?1, ?2) {finished} {owner} AND instr(name_folded, ?3) > 0 \
         ORDER BY updated_at DESC, number DESC LIMIT ?4"
    )
}

#[cfg(test)]
mod tests {
    use super::{kind_sql, list_sql, log_sql};
    use crate::sqlite::{schema, tree};
    use rusqlite::Connection;

    #[test]
    fn each_question_of_a_range_walks_the_index_made_for_it_and_sorts_nothing() {
        let mut db = Connection::open_in_memory().unwrap();
        schema::migrate(&mut db).unwrap();
        let lists = [
            (list_sql(false, true), "SEARCH session USING INDEX session_recent (updated_at<?)"),
            (list_sql(false, false), "SEARCH session USING INDEX session_recent (updated_at>? AND updated_at<?)"),
            (
                list_sql(true, false),
                "SEARCH session USING INDEX session_recent_of_owner (owner=? AND updated_at>? AND updated_at<?)",
            ),
        ];
        for (sql, want) in lists {
            assert_eq!(plan(&db, &sql), [want], "{sql}");
        }
        let entry = "SELECT body FROM record WHERE session = ?1 AND entry = ?2";
        let records = [
            (log_sql("ASC"), "_seq (session=? AND seq>? AND seq<?)"),
            (log_sql("DESC"), "_seq (session=? AND seq>? AND seq<?)"),
            (kind_sql(true), "_seq (session=? AND seq>?)"),
            (kind_sql(false), "_kind (session=? AND kind=? AND seq>?)"),
            (tree::children_sql(), "_parent (session=? AND parent=?)"),
            (tree::after_sql(), "_seq (session=? AND seq>?)"),
            (entry.to_owned(), "_entry (session=? AND entry=?)"),
        ];
        for (sql, want) in records {
            assert_eq!(plan(&db, &sql), [format!("SEARCH record USING INDEX record{want}")], "{sql}");
        }
    }

    fn plan(db: &Connection, sql: &str) -> Vec<String> {
        let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        statement.raw_query().mapped(|row| row.get(3)).collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn roots_are_found_by_indexes() {
        let mut db = Connection::open_in_memory().unwrap();
        schema::migrate(&mut db).unwrap();
        let plan = plan(&db, &tree::roots_sql());
        for want in [
            "SEARCH record USING INDEX record_root (session=?)",
            "SEARCH below USING INDEX record_parent (session=? AND parent>?)",
            "SEARCH above USING COVERING INDEX record_entry (session=? AND entry=?)",
        ] {
            assert!(plan.iter().any(|step| step == want), "{want}: {plan:#?}");
        }
    }
}
