//! The statement that commits a group of appends, and the one that determines the fate of unacknowledged appends.

use super::{
    connection::Connection,
    fault::Fault,
    read::{self, listed_at},
    spending::Columns,
};
use crate::{
    Append, Error, Lease, Part,
    checksum::{self, int},
    page,
    upgrade::RECORD_VERSION,
};
use std::collections::{HashMap, HashSet};
use tokio_postgres::types::ToSql;

/// A state above this size has a row of its own. PostgreSQL stores larger values out of line, and would copy them with
/// every new version of the row.
pub(super) const STATE_INLINE_MAX: usize = 2048;

/// Writes the appends of a group, at most one per session. An append is written if the session's epoch and term are
/// those of its lease and the log ends just before it. The result names the appends that were written. Rows of sessions
/// are locked in order, so that two writers' groups never deadlock. An append locks the same row that an opening
/// changes, so a writer with a stale term matches no row.
const APPEND: &str = "
WITH given AS MATERIALIZED (
  SELECT s.number, s.listed_at AS listed, s.name AS named, s.created_at AS created, i.*
  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[],
    $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::boolean[], $15::bigint[],
    $16::bigint[], $17::bytea[], $18::bigint[], $19::bytea[], $20::bytea[], $21::bigint[], $22::boolean[])
    WITH ORDINALITY
    AS i(id, epoch, term, before_seq, last_seq, last_entry, updated_at, listed_at, entries, token_count, window_tokens,
      cost, unpriced, running, bytes, checksum, state, state_checksum, name, name_folded, created_at, is_large, at)
  JOIN session s ON s.id = i.id AND s.epoch = i.epoch AND s.term = i.term
  ORDER BY s.number FOR NO KEY UPDATE OF s),
ok AS (
  DELETE FROM head h USING given g WHERE h.session = g.number AND h.seq = g.before_seq
  RETURNING g.*, h.last_entry AS before, h.bytes AS bytes_before, h.state AS state_before,
    h.state_checksum AS state_checksum_before),
h AS (
  INSERT INTO head (session, seq, last_entry, updated_at, entries, token_count, window_tokens, cost_nano_usd,
    unpriced_requests, running, bytes, checksum, state, state_checksum)
  SELECT number, last_seq, coalesce(last_entry, before), updated_at, entries, token_count, window_tokens, cost,
    unpriced, running, bytes_before + bytes, checksum,
    CASE WHEN is_large THEN NULL ELSE coalesce(state, state_before) END,
    CASE WHEN state IS NULL THEN state_checksum_before ELSE state_checksum END FROM ok),
t AS (
  INSERT INTO state (session, state, checksum) SELECT number, state, state_checksum FROM ok WHERE is_large
  ON CONFLICT (session) DO UPDATE SET state = excluded.state, checksum = excluded.checksum),
l AS (
  UPDATE session s SET listed_at = ok.listed_at, name = ok.name, name_folded = ok.name_folded,
    created_at = ok.created_at
  FROM ok WHERE s.number = ok.number
    AND (ok.listed <> ok.listed_at OR ok.named <> ok.name OR ok.created <> ok.created_at)),
r AS (
  INSERT INTO record (session, seq, checksum, version, follows, entry, parent, kind, body)
  SELECT ok.number, r.seq, r.checksum, $23::smallint,
    coalesce(r.follows, r.parent IS NOT NULL AND r.parent IS NOT DISTINCT FROM ok.before), r.entry, r.parent, r.kind,
    r.body
  FROM unnest($24::bigint[], $25::bigint[], $26::bigint[], $27::boolean[], $28::text[], $29::text[], $30::text[],
    $31::bytea[]) AS r(at, seq, checksum, follows, entry, parent, kind, body) JOIN ok USING (at)),
m AS (
  INSERT INTO mark (session, command, fingerprint, reply, checksum)
  SELECT ok.number, m.command, m.fingerprint, m.reply, m.checksum
  FROM unnest($32::bigint[], $33::text[], $34::bigint[], $35::bytea[], $36::bigint[])
    AS m(at, command, fingerprint, reply, checksum) JOIN ok USING (at)),
u AS (
  INSERT INTO model_usage (id, at, owner, session, model, purpose, reported, input, cached, cache_write,
    cache_write_hour, output, reasoning, cost_nano_usd)
  SELECT u.id, u.time, u.owner, u.session, u.model, u.purpose, u.reported, u.input, u.cached, u.cache_write,
    u.cache_write_hour, u.output, u.reasoning, u.cost_nano_usd
  FROM unnest($37::bigint[], $38::text[], $39::bigint[], $40::bytea[], $41::text[], $42::bytea[], $43::text[],
    $44::boolean[], $45::bigint[], $46::bigint[], $47::bigint[], $48::bigint[], $49::bigint[], $50::bigint[],
    $51::bigint[])
    AS u(at, id, time, owner, session, model, purpose, reported, input, cached, cache_write, cache_write_hour, output,
      reasoning, cost_nano_usd) JOIN ok USING (at)
  ON CONFLICT (id) DO UPDATE SET at = excluded.at, reported = excluded.reported, input = excluded.input,
    cached = excluded.cached, cache_write = excluded.cache_write, cache_write_hour = excluded.cache_write_hour,
    output = excluded.output, reasoning = excluded.reasoning, cost_nano_usd = excluded.cost_nano_usd)
SELECT at FROM ok";

/// An append at a position under a lease.
#[derive(Debug, Clone)]
pub(super) struct AppendAt {
    pub(super) lease: Lease,
    pub(super) first_seq: u64,
    pub(super) append: Append,
}

impl AppendAt {
    /// Returns the bytes that it adds to a group.
    pub(super) fn size(&self) -> u64 {
        let replies = self.append.marks.iter().map(|mark| mark.reply.len() as u64);
        let state = self.append.head.state.as_ref().map_or(0, |state| state.len() as u64);
        self.append.bytes() + replies.sum::<u64>() + state
    }

    /// Returns the newest `seq` after the append; `None` if no log can have such a position.
    pub(super) fn last_seq(&self) -> Option<u64> {
        let last = self.first_seq.checked_sub(1)?.checked_add(self.append.records.len() as u64)?;
        i64::try_from(last).ok().map(i64::cast_unsigned)
    }
}

/// Sends a group in one statement. For each append, returns whether it was written.
pub(super) async fn send(db: &Connection, group: &[&AppendAt]) -> Result<Vec<bool>, Fault> {
    let each = || group.iter();
    let heads = || group.iter().map(|at| &at.append.head);
    let ids: Vec<&str> = each().map(|at| at.lease.session.as_str()).collect();
    let epochs: Vec<&str> = each().map(|at| at.lease.epoch.as_str()).collect();
    let terms: Vec<i64> = each().map(|at| int(at.lease.term)).collect();
    // A position that no log can have matches no head.
    let last_seqs: Vec<i64> = each().map(|at| at.last_seq().map_or(-1, int)).collect();
    let before: Vec<i64> = each().map(|at| at.last_seq().map_or(-1, |_| int(at.first_seq.saturating_sub(1)))).collect();
    let entry_of = |at: &&AppendAt| {
        let mut entries = at.append.records.iter().filter_map(|record| record.entry.as_ref());
        entries.next_back().map(|entry| entry.entry_id.as_str().to_owned())
    };
    let last_entries: Vec<Option<String>> = each().map(entry_of).collect();
    let updated: Vec<i64> = heads().map(|head| head.updated_at.0).collect();
    let listed: Vec<i64> = heads().map(|head| listed_at(head.updated_at)).collect();
    let entries: Vec<i64> = heads().map(|head| int(head.entries)).collect();
    let tokens: Vec<i64> = heads().map(|head| int(head.token_count)).collect();
    let windows: Vec<i64> = heads().map(|head| int(head.window_tokens)).collect();
    let costs: Vec<Option<i64>> = heads().map(|head| head.cost_nano_usd.map(int)).collect();
    let unpriced: Vec<i64> = heads().map(|head| int(head.unpriced_requests)).collect();
    let running: Vec<bool> = heads().map(|head| head.running).collect();
    let bytes: Vec<i64> = each().map(|at| int(at.append.bytes())).collect();
    let head_checksums: Vec<i64> = each()
        .zip(&last_seqs)
        .map(|(at, last)| read::head_checksum(&at.lease.session, last.cast_unsigned(), &at.append.head).into())
        .collect();
    let states: Vec<Option<&[u8]>> = heads().map(|head| head.state.as_ref().map(|state| state.as_bytes())).collect();
    let state_checksums: Vec<i64> = each()
        .map(|at| at.append.head.state.as_ref().map_or(0, |state| checksum::state(&at.lease.session, state).into()))
        .collect();
    let are_large: Vec<bool> =
        states.iter().map(|state| state.is_some_and(|state| state.len() > STATE_INLINE_MAX)).collect();
    let names: Vec<&[u8]> = heads().map(|head| head.name.as_bytes()).collect();
    let folded: Vec<Vec<u8>> = heads().map(|head| page::fold(&head.name).into_bytes()).collect();
    let created: Vec<i64> = heads().map(|head| head.created_at.0).collect();
    let records = Records::of(group);
    let marks = Marks::of(group);
    let usage = Columns::of_group(group);
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![
        &ids,
        &epochs,
        &terms,
        &before,
        &last_seqs,
        &last_entries,
        &updated,
        &listed,
        &entries,
        &tokens,
        &windows,
        &costs,
        &unpriced,
        &running,
        &bytes,
        &head_checksums,
        &states,
        &state_checksums,
        &names,
        &folded,
        &created,
        &are_large,
        &(RECORD_VERSION as i16),
        &records.at,
        &records.seq,
        &records.checksum,
        &records.follows,
        &records.entry,
        &records.parent,
        &records.kind,
        &records.body,
        &marks.at,
        &marks.command,
        &marks.fingerprint,
        &marks.reply,
        &marks.checksum,
        &usage.at,
    ];
    params.extend(usage.params());
    let rows = db.rows(APPEND, &params).await?;
    let mut written = vec![false; group.len()];
    for row in rows {
        let at = usize::try_from(row.try_get::<_, i64>(0)?).ok().and_then(|at| at.checked_sub(1));
        if let Some(written) = at.and_then(|at| written.get_mut(at)) {
            *written = true;
        }
    }
    Ok(written)
}

/// The columns of a group's records.
#[derive(Default)]
struct Records<'a> {
    at: Vec<i64>,
    seq: Vec<i64>,
    checksum: Vec<i64>,
    /// `None` if it depends on the previous entry in the log.
    follows: Vec<Option<bool>>,
    entry: Vec<Option<&'a str>>,
    parent: Vec<Option<&'a str>>,
    kind: Vec<Option<&'a str>>,
    body: Vec<&'a [u8]>,
}

impl<'a> Records<'a> {
    fn of(group: &[&'a AppendAt]) -> Self {
        let mut columns = Self::default();
        for (at, append) in (1..).zip(group) {
            let mut last: Option<&str> = None;
            for (n, record) in (0..).zip(&append.append.records) {
                // A position that no log can have is never written.
                let seq = append.first_seq.saturating_add(n);
                let entry = record.entry.as_ref();
                let parent = entry.and_then(|entry| entry.parent_id.as_ref()).map(|parent| parent.as_str());
                let follows = match (entry, last) {
                    (Some(_), Some(last)) => Some(parent == Some(last)),
                    (Some(_), None) => None,
                    (None, _) => Some(false),
                };
                last = entry.map(|entry| entry.entry_id.as_str()).or(last);
                columns.at.push(at);
                columns.seq.push(int(seq));
                columns.checksum.push(checksum::record(&append.lease.session, seq, entry, &record.body).into());
                columns.follows.push(follows);
                columns.entry.push(entry.map(|entry| entry.entry_id.as_str()));
                columns.parent.push(parent);
                columns.kind.push(entry.map(|entry| entry.kind.as_str()));
                columns.body.push(record.body.as_bytes());
            }
        }
        columns
    }
}

/// The columns of a group's marks.
#[derive(Default)]
struct Marks<'a> {
    at: Vec<i64>,
    command: Vec<&'a str>,
    fingerprint: Vec<i64>,
    reply: Vec<&'a [u8]>,
    checksum: Vec<i64>,
}

impl<'a> Marks<'a> {
    fn of(group: &[&'a AppendAt]) -> Self {
        let mut columns = Self::default();
        for (at, append) in (1..).zip(group) {
            for mark in &append.append.marks {
                columns.at.push(at);
                columns.command.push(&mark.command_id);
                columns.fingerprint.push(mark.fingerprint.cast_signed());
                columns.reply.push(mark.reply.as_bytes());
                columns.checksum.push(checksum::mark(&append.lease.session, mark).into());
            }
        }
        columns
    }
}

/// The fate of an append that was not reported as written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is in the log.
    Written,
    /// It is not in the log, and its position is free.
    Free,
    /// It is not in the log and never will be.
    Refused(Error),
}

/// Waits until no other statement locks the sessions of these appends. A group whose connection was lost may still be
/// waiting for its commit, or for a standby's confirmation.
pub(super) async fn wait_for(db: &Connection, group: &[&AppendAt]) -> Result<(), Fault> {
    let ids: Vec<&str> = group.iter().map(|at| at.lease.session.as_str()).collect();
    let sql = "SELECT number FROM session WHERE id = ANY($1::text[]) ORDER BY number FOR NO KEY UPDATE";
    db.rows(sql, &[&ids]).await.map(drop)
}

/// Returns which of these sessions another transaction has locked.
pub(super) async fn locked(db: &Connection, group: &[&AppendAt]) -> Result<HashSet<String>, Fault> {
    let ids: Vec<&str> = group.iter().map(|at| at.lease.session.as_str()).collect();
    let sql = "WITH free AS MATERIALIZED (SELECT id FROM session WHERE id = ANY($1::text[]) \
               FOR NO KEY UPDATE SKIP LOCKED) \
               SELECT id FROM session WHERE id = ANY($1::text[]) AND id NOT IN (SELECT id FROM free)";
    let rows = db.rows(sql, &[&ids]).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

/// Determines the fate of appends. An append that may have been sent before (`true`) is in the log if all of its
/// records and all of its marks are there.
pub(super) async fn fates(db: &Connection, group: &[(&AppendAt, bool)]) -> Result<Vec<Fate>, Fault> {
    let ids: Vec<&str> = group.iter().map(|(at, _)| at.lease.session.as_str()).collect();
    let appends: Vec<&AppendAt> = group.iter().map(|(at, _)| *at).collect();
    let (records, marks) = (Records::of(&appends), Marks::of(&appends));
    let sql = "SELECT i.at, s.epoch, s.term, h.seq, \
               (SELECT count(*) FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS r(at, seq, checksum) \
                JOIN record k ON k.session = s.number AND k.seq = r.seq AND k.checksum = r.checksum \
                WHERE r.at = i.at), \
               (SELECT count(*) FROM unnest($5::bigint[], $6::text[], $7::bigint[]) AS m(at, command, checksum) \
                JOIN mark k ON k.session = s.number AND k.command = m.command AND k.checksum = m.checksum \
                WHERE m.at = i.at) \
               FROM unnest($1::text[]) WITH ORDINALITY AS i(id, at) \
               JOIN session s ON s.id = i.id \
               LEFT JOIN LATERAL (SELECT seq FROM head WHERE session = s.number ORDER BY seq DESC LIMIT 1) h ON true";
    let rows = db
        .rows(sql, &[&ids, &records.at, &records.seq, &records.checksum, &marks.at, &marks.command, &marks.checksum])
        .await?;
    let mut found: HashMap<i64, &tokio_postgres::Row> = HashMap::new();
    for row in &rows {
        found.insert(row.try_get(0)?, row);
    }
    let mut fates = Vec::with_capacity(group.len());
    for (n, (at, was_sent)) in (1..).zip(group) {
        let session = &at.lease.session;
        let Some(row) = found.get(&n) else {
            fates.push(Fate::Refused(Error::NotFound(session.clone())));
            continue;
        };
        let (epoch, term): (&str, i64) = (row.try_get(1)?, row.try_get(2)?);
        let Some(seq) = row.try_get::<_, Option<i64>>(3)?.map(i64::cast_unsigned) else {
            fates.push(Fate::Refused(read::damaged(session, Part::Head)));
            continue;
        };
        let found = (row.try_get::<_, i64>(4)?, row.try_get::<_, i64>(5)?);
        let all = (int(at.append.records.len() as u64), int(at.append.marks.len() as u64));
        // An append of a head alone leaves no trace in the log. Writing it again changes nothing.
        let is_ours = found == all && all != (0, 0) && at.last_seq().is_some_and(|last| seq >= last);
        let is_current = at.lease.epoch == epoch && at.lease.term == term.cast_unsigned();
        fates.push(if *was_sent && is_current && is_ours {
            Fate::Written
        } else if *was_sent && !is_current {
            // It may have been written before the other server opened the session.
            let what = "another server has opened the session; whether the append was written before is unknown";
            Fate::Refused(Error::Unknown(what.to_owned()))
        } else {
            match at.lease.check(at.first_seq, epoch, term.cast_unsigned(), seq) {
                Ok(()) => Fate::Free,
                Err(error) => Fate::Refused(error),
            }
        });
    }
    Ok(fates)
}

/// Determines why an append violates a constraint: which of its parts already exists.
pub(super) async fn duplicate(db: &Connection, at: &AppendAt) -> Result<Error, Fault> {
    let session = &at.lease.session;
    let commands: Vec<&str> = at.append.marks.iter().map(|mark| mark.command_id.as_str()).collect();
    let entries: Vec<&str> = at
        .append
        .records
        .iter()
        .filter_map(|record| record.entry.as_ref())
        .map(|entry| entry.entry_id.as_str())
        .collect();
    let sql = "SELECT (SELECT array_agg(command) FROM mark WHERE session = s.number AND command = ANY($2::text[])), \
               (SELECT array_agg(entry) FROM record WHERE session = s.number AND entry = ANY($3::text[])) \
               FROM session s WHERE s.id = $1";
    let rows = db.rows(sql, &[&session.as_str(), &commands, &entries]).await?;
    let Some(row) = rows.first() else { return Ok(Error::NotFound(session.clone())) };
    let there: Vec<&str> = row.try_get::<_, Option<Vec<&str>>>(0)?.unwrap_or_default();
    if let Some(command) = commands.iter().find(|command| there.contains(command)) {
        return Ok(Error::DuplicateCommand { session: session.clone(), command_id: (*command).to_owned() });
    }
    let there: Vec<&str> = row.try_get::<_, Option<Vec<&str>>>(1)?.unwrap_or_default();
    let entry = at.append.records.iter().filter_map(|record| record.entry.as_ref());
    let entry = entry.map(|entry| &entry.entry_id).find(|entry| there.contains(&entry.as_str()));
    Ok(match entry {
        Some(entry) => Error::DuplicateEntry { session: session.clone(), entry: entry.clone() },
        // The row exists, but no part of the append does.
        None => super::fault::damaged_pages(session),
    })
}
