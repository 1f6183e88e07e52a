//! The reads. Each consists of single statements. A log only grows, so consecutive statements are consistent with each
//! other. A session deleted between two statements looks damaged; `mod.rs` distinguishes the two cases.

use super::{
    fault::Fault,
    readers::Db,
    record::{self, COLUMNS},
};
use crate::{
    CommandMark, Error, Head, ListPage, ListQuery, NodeId, Part, SessionHead, StoredRecord, UNFINISHED, Usage,
    checksum::{self, int},
    page::{self, Cursor, EntriesPage, Filling},
    record::check_complete,
};
use reseed_protocol::{CommandId, EntryId, SessionId, Timestamp};
use tokio_postgres::{Row, types::ToSql};

/// The unit of `session.listed_at`, in milliseconds. The column changes at most once a minute, so that it can be
/// indexed.
const LISTED_MILLIS: i64 = 60_000;

/// Returns `session.listed_at` for a time. It grows with the time, so lists are ordered by it first.
pub(super) fn listed_at(updated_at: Timestamp) -> i64 {
    updated_at.0.div_euclid(LISTED_MILLIS)
}

/// A session as stored.
pub(super) struct FoundHead {
    pub(super) number: i64,
    pub(super) head: SessionHead,
}

/// The columns of a [`SessionHead`], in the order in which [`session_head`] reads them.
pub(super) const HEAD_COLUMNS: &str = "s.number, s.term, s.id, s.owner, s.checksum, s.epoch, s.name, s.created_at, \
     h.seq, h.updated_at, h.entries, h.token_count, h.window_tokens, h.cost_nano_usd, h.unpriced_requests, h.running, \
     h.checksum, s.holder";

/// Selects the head of a session `s` as `h`: the newest, in case an older one is still there.
pub(super) const HEAD_OF: &str = "LATERAL (SELECT * FROM head WHERE session = s.number ORDER BY seq DESC LIMIT 1) h";

/// Returns the session's number.
pub(super) async fn number(db: &Db, session: &SessionId) -> Result<i64, Fault> {
    let row = db.row("SELECT number FROM session WHERE id = $1", &[&session.as_str()]).await?;
    Ok(row.ok_or_else(|| Error::NotFound(session.clone()))?.try_get(0)?)
}

/// Returns the session's number and its newest `seq`.
pub(super) async fn length(db: &Db, session: &SessionId) -> Result<(i64, i64), Fault> {
    let sql = format!("SELECT s.number, h.seq FROM session s CROSS JOIN {HEAD_OF} WHERE s.id = $1");
    match db.row(&sql, &[&session.as_str()]).await? {
        Some(row) => Ok((row.try_get(0)?, row.try_get(1)?)),
        None => {
            number(db, session).await?;
            Err(damaged(session, Part::Head).into())
        }
    }
}

/// Wraps a query of [`COLUMNS`] so that it returns only the bodies that fit into `$2` bytes, and the next one. The
/// first body always counts as fitting. `order` is the direction of `seq`.
pub(super) fn bounded(columns: &str, rest: &str, order: &str) -> String {
    format!(
        "SELECT {columns} FROM (SELECT {columns}, row_number() OVER (ORDER BY seq {order}) AS n, \
         sum(octet_length(body)) OVER (ORDER BY seq {order}) AS upto \
         FROM (SELECT {columns} FROM record WHERE session = $1 AND {rest}) AS chosen) AS summed \
         WHERE upto - octet_length(body) <= $2 OR n <= 2 ORDER BY seq {order}"
    )
}

/// Returns a number of bytes in the form that [`bounded`] takes.
pub(super) fn bytes(bytes_max: usize) -> i64 {
    i64::try_from(bytes_max).unwrap_or(i64::MAX / 2).min(i64::MAX / 2)
}

/// Reads records with `seq > after_seq`, oldest first.
pub(super) async fn records(
    db: &Db,
    session: &SessionId,
    after_seq: u64,
    limit: u32,
    bytes_max: usize,
) -> Result<Vec<StoredRecord>, Fault> {
    let (number, last_seq) = length(db, session).await?;
    let (mut records, mut after, mut left) = (Vec::new(), after_seq, limit);
    let mut bytes_left = bytes_max;
    let sql = bounded(COLUMNS, "seq > $3 ORDER BY seq LIMIT $4", "ASC");
    loop {
        let count = left.min(PAGE);
        let rows =
            db.rows(&sql, &[&number, &bytes(bytes_left.min(PAGE_BYTES)), &int(after), &i64::from(count)]).await?;
        for row in &rows {
            let record = record::decode(session, row)?;
            (after, left) = (record.seq, left - 1);
            bytes_left = bytes_left.saturating_sub(record.body.len());
            records.push(record);
            if bytes_left == 0 {
                left = 0;
                break;
            }
        }
        if rows.is_empty() || left == 0 || int(after) >= last_seq {
            break;
        }
    }
    let wanted = last_seq.cast_unsigned().saturating_sub(after_seq);
    let wanted = if left == 0 { records.len() as u64 } else { wanted.min(limit.into()) };
    check_complete(session, &records, after_seq, wanted)?;
    Ok(records)
}

/// The most records, and bytes of them, that one statement returns. It bounds the memory that holds them twice.
const PAGE: u32 = 1000;
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Adds rows to a page until one does not fit.
pub(super) fn fill(session: &SessionId, rows: &[Row], page: &mut Filling) -> Result<bool, Fault> {
    for row in rows {
        if !page.add(|| record::decode(session, row))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads entries in log order, selected by a condition on `seq > $3` and `seq < $4`.
pub(super) async fn window(
    db: &Db,
    session: &SessionId,
    (before, after): (Option<u64>, Option<u64>),
    limit: u32,
    bytes_max: usize,
) -> Result<EntriesPage, Fault> {
    let number = number(db, session).await?;
    let order = if after.is_some() { "ASC" } else { "DESC" };
    let rest = format!("seq > $3 AND seq < $4 AND entry IS NOT NULL ORDER BY seq {order} LIMIT $5");
    let (from, to) = (int(after.unwrap_or(0)), int(before.unwrap_or(u64::MAX)));
    let rows =
        db.rows(&bounded(COLUMNS, &rest, order), &[&number, &bytes(bytes_max), &from, &to, &i64::from(limit)]).await?;
    let mut page = Filling::new(bytes_max);
    fill(session, &rows, &mut page)?;
    let mut page = page.done();
    if after.is_none() {
        page.records.reverse();
    }
    Ok(page)
}

/// Reads entries of one kind in log order.
pub(super) async fn of_kind(
    db: &Db,
    session: &SessionId,
    kind: &str,
    after_seq: u64,
    limit: u32,
    bytes_max: usize,
) -> Result<EntriesPage, Fault> {
    let number = number(db, session).await?;
    // The index by kind leaves most entries out. It is only used if the query repeats the index's condition.
    let indexed = if kind == "message" { "entry IS NOT NULL" } else { "kind <> 'message'" };
    let rest = format!("seq > $3 AND kind = $5 AND {indexed} ORDER BY seq LIMIT $4");
    let params: [&(dyn ToSql + Sync); 5] = [&number, &bytes(bytes_max), &int(after_seq), &i64::from(limit), &kind];
    let rows = db.rows(&bounded(COLUMNS, &rest, "ASC"), &params).await?;
    let mut page = Filling::new(bytes_max);
    fill(session, &rows, &mut page)?;
    Ok(page.done())
}

pub(super) async fn entry_seq(db: &Db, session: &SessionId, entry: &EntryId) -> Result<Option<u64>, Fault> {
    let number = number(db, session).await?;
    let row = db.row("SELECT seq FROM record WHERE session = $1 AND entry = $2", &[&number, &entry.as_str()]).await?;
    Ok(row.map(|row| row.try_get::<_, i64>(0)).transpose()?.map(i64::cast_unsigned))
}

pub(super) async fn command(db: &Db, session: &SessionId, command_id: &str) -> Result<Option<CommandMark>, Fault> {
    // An id with NUL was never written, and the database would reject it.
    if command_id.contains('\0') {
        return Ok(None);
    }
    let row = db
        .row(
            "SELECT fingerprint, reply, checksum FROM mark \
             WHERE session = (SELECT number FROM session WHERE id = $1) AND command = $2",
            &[&session.as_str(), &command_id],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    mark(session, command_id.to_owned(), &row).map(Some)
}

/// Reads the columns `fingerprint`, `reply` and `checksum` of a mark, and verifies it.
pub(super) fn mark(session: &SessionId, command_id: String, row: &Row) -> Result<CommandMark, Fault> {
    let Ok(reply) = str::from_utf8(row.try_get(1)?) else { return Err(damaged(session, Part::Mark).into()) };
    // The bits of the hash, which PostgreSQL stores as a signed number.
    let fingerprint = row.try_get::<_, i64>(0)?.cast_unsigned();
    let mark = CommandMark { command_id, fingerprint, reply: reply.into() };
    if row.try_get::<_, i64>(2)? != i64::from(checksum::mark(session, &mark)) {
        return Err(damaged(session, Part::Mark).into());
    }
    Ok(mark)
}

pub(super) fn damaged(session: &SessionId, part: Part) -> Error {
    Error::Damaged { session: session.clone(), part, reason: "checksum mismatch" }
}

/// Returns the session and its state. A damaged state is left out: the log can be folded again.
pub(super) async fn head(db: &Db, session: &SessionId) -> Result<FoundHead, Fault> {
    let sql = format!(
        "SELECT {HEAD_COLUMNS}, coalesce(h.state, l.state), CASE WHEN h.state IS NULL THEN l.checksum ELSE \
         h.state_checksum END FROM session s CROSS JOIN {HEAD_OF} LEFT JOIN state l ON l.session = s.number \
         WHERE s.id = $1"
    );
    let Some(row) = db.row(&sql, &[&session.as_str()]).await? else {
        number(db, session).await?;
        return Err(damaged(session, Part::Head).into());
    };
    let mut found = session_head(&row)?.ok_or_else(|| damaged(session, Part::Head))?;
    let state: Option<&[u8]> = row.try_get(18)?;
    if let Some(state) = state.and_then(|state| str::from_utf8(state).ok()).filter(|state| !state.is_empty())
        && row.try_get::<_, Option<i64>>(19)? == Some(i64::from(checksum::state(session, state)))
    {
        found.head.head.state = Some(state.into());
    }
    Ok(found)
}

/// Reads a row of [`HEAD_COLUMNS`]; `None` if it is damaged.
pub(super) fn session_head(row: &Row) -> Result<Option<FoundHead>, Fault> {
    let count = |column| row.try_get::<_, i64>(column).map(i64::cast_unsigned);
    let (Ok(session), Ok(owner), Ok(name)) =
        (row.try_get::<_, &str>(2)?.parse(), str::from_utf8(row.try_get(3)?), str::from_utf8(row.try_get(6)?))
    else {
        return Ok(None);
    };
    let head = Head {
        name: name.to_owned(),
        created_at: Timestamp(row.try_get(7)?),
        updated_at: Timestamp(row.try_get(9)?),
        entries: count(10)?,
        token_count: count(11)?,
        window_tokens: count(12)?,
        cost_nano_usd: row.try_get::<_, Option<i64>>(13)?.map(i64::cast_unsigned),
        unpriced_requests: count(14)?,
        running: row.try_get(15)?,
        state: None,
    };
    let holder = row.try_get::<_, Option<i64>>(17)?.map(NodeId);
    let (owner_name, epoch) = (owner.to_owned(), row.try_get(5)?);
    let head = SessionHead { session, owner: owner_name, epoch, last_seq: count(8)?, term: count(1)?, holder, head };
    let is_whole = row.try_get::<_, i64>(4)? == i64::from(checksum::owner(&head.session, owner))
        && row.try_get::<_, i64>(16)? == i64::from(head_checksum(&head.session, head.last_seq, &head.head));
    Ok(is_whole.then_some(FoundHead { number: row.try_get(0)?, head }))
}

/// Returns the checksum of a head. It covers only what an append knows: the owner has its own checksum, and openings
/// change epoch and term.
pub(super) fn head_checksum(session: &SessionId, last_seq: u64, head: &Head) -> u32 {
    let head = SessionHead {
        session: session.clone(),
        owner: String::new(),
        epoch: String::new(),
        last_seq,
        term: 0,
        holder: None,
        head: Head { state: None, ..head.clone() },
    };
    checksum::head(&head, 0, None)
}

/// The position before the sessions that are still being created; they come last in the order.
const UNFINISHED_START: Cursor = Cursor { updated_at: UNFINISHED.0 + 1, number: 0 };

pub(super) async fn list(db: &Db, query: &ListQuery) -> Result<ListPage, Fault> {
    let mut page = ListPage::default();
    let (rows, next_cursor) = list_rows(db, query).await?;
    for row in &rows {
        match session_head(row)? {
            Some(found) => page.items.push(found.head),
            // Its owner is unknown, so only operators see it.
            None if query.owner.is_none() => page.damaged.extend(row.try_get::<_, &str>(2)?.parse().ok()),
            None => {}
        }
    }
    page.next_cursor = next_cursor;
    Ok(page)
}

/// Lists sessions with their numbers, without damaged ones, and returns the start of the next page.
pub(super) async fn list_numbered(db: &Db, query: &ListQuery) -> Result<(Vec<FoundHead>, Option<String>), Fault> {
    let (rows, next_cursor) = list_rows(db, query).await?;
    let found = rows.iter().filter_map(|row| session_head(row).transpose()).collect::<Result<_, _>>()?;
    Ok((found, next_cursor))
}

async fn list_rows(db: &Db, query: &ListQuery) -> Result<(Vec<Row>, Option<String>), Fault> {
    let start = page::start(query)?;
    let search = query.search.as_deref().map(page::fold).unwrap_or_default();
    // Reads one more than requested, to know whether there is a next page.
    let rows_max = i64::from(query.limit) + 1;
    let start = if query.unfinished { start.min(UNFINISHED_START) } else { start };
    let sql = list_sql(query.owner.is_some(), query.unfinished);
    let listed = listed_at(Timestamp(start.updated_at));
    let owner = query.owner.as_deref().unwrap_or_default().as_bytes();
    let (search, unfinished) = (search.as_bytes(), UNFINISHED.0);
    let mut params: Vec<&(dyn ToSql + Sync)> =
        vec![&listed, &start.updated_at, &start.number, &search, &rows_max, &unfinished];
    if query.owner.is_some() {
        params.push(&owner);
    }
    let mut rows = db.rows(&sql, &params).await?;
    let has_more = rows.len() > query.limit as usize;
    rows.truncate(query.limit as usize);
    let next_cursor = match rows.last().filter(|_| has_more) {
        // The cursor holds the stored values, because the next page starts after them.
        Some(last) => Some(Cursor { updated_at: last.try_get(9)?, number: last.try_get(0)? }.to_string()),
        None => None,
    };
    Ok((rows, next_cursor))
}

/// Returns the query of the list. `position` finds the empty text everywhere, so an empty search matches everything.
pub(super) fn list_sql(of_owner: bool, unfinished: bool) -> String {
    let owner = if of_owner { "s.owner = $7 AND " } else { "" };
    let finished = if unfinished { "=" } else { ">" };
    format!(
        "SELECT {HEAD_COLUMNS} FROM session s CROSS JOIN {HEAD_OF} WHERE {owner}s.listed_at <= $1 \
         AND (h.updated_at, s.number) < ($2, $3) AND position($4::bytea IN s.name_folded) > 0 \
         AND h.updated_at {finished} $6 ORDER BY s.listed_at DESC, h.updated_at DESC, s.number DESC LIMIT $5"
    )
}

/// Returns what an owner has stored, summed over the owner's sessions. A row that holds the sum would make all of an
/// owner's appends wait for each other.
pub(super) async fn usage(db: &Db, owner: &str) -> Result<Usage, Fault> {
    let sql = format!(
        "SELECT count(*), count(*) FILTER (WHERE h.seq < 2), coalesce(sum(h.bytes), 0)::bigint \
         FROM session s CROSS JOIN {HEAD_OF} WHERE s.owner = $1"
    );
    let Some(row) = db.row(&sql, &[&owner.as_bytes()]).await? else { return Ok(Usage::default()) };
    let count = |column| row.try_get::<_, i64>(column).map(|value| value.max(0).cast_unsigned());
    Ok(Usage { sessions: count(0)?, empty: count(1)?, bytes: count(2)? })
}

/// Returns the session that this command of its owner created, and its epoch.
pub(super) async fn created_by(
    db: &Db,
    owner: &str,
    command: &CommandId,
) -> Result<Option<(SessionId, String)>, Fault> {
    let sql = "SELECT id, epoch FROM session WHERE owner = $1 AND created_by = $2";
    let Some(row) = db.row(sql, &[&owner.as_bytes(), &command.as_str()]).await? else { return Ok(None) };
    let id = row.try_get::<_, &str>(0)?.parse();
    let id = id.map_err(|error| Error::Unknown(format!("read the id of a session: {error}")))?;
    Ok(Some((id, row.try_get(1)?)))
}

/// Returns empty sessions that were created before a time, oldest first.
pub(super) async fn empty_sessions(db: &Db, before: Timestamp, limit: u32) -> Result<Vec<SessionId>, Fault> {
    let rows = db
        .rows(
            "SELECT s.id FROM head h JOIN session s ON s.number = h.session WHERE h.seq < 2 AND h.updated_at > $1 \
             AND s.created_at < $2 ORDER BY s.created_at, s.number LIMIT $3",
            &[&UNFINISHED.0, &before.0, &i64::from(limit)],
        )
        .await?;
    // An invalid id is damage, which other reads report.
    Ok(rows.iter().filter_map(|row| row.try_get::<_, &str>(0).ok()?.parse().ok()).collect())
}
