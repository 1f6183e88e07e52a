//! The rows of the operator's account.

use super::{append::AppendAt, fault::Fault, readers::Readers};
use crate::{
    DELETED_OWNER, DELETED_SESSION, Error, USAGE_REMOVED_MAX, UsageBy, UsagePage, UsageQuery, UsageStep,
    spending::{Numbers, USAGE_SUMS, day_name, period_start, sum},
};
use reseed_core::usage_row::UsageRow;
use reseed_protocol::{SessionId, Timestamp};
use tokio_postgres::{Row, types::ToSql};

/// The columns of rows.
#[derive(Default)]
pub(super) struct Columns<'a> {
    /// The position of each row's append in its group.
    pub(super) at: Vec<i64>,
    ids: Vec<&'a str>,
    times: Vec<i64>,
    owners: Vec<&'a [u8]>,
    sessions: Vec<&'a str>,
    models: Vec<&'a [u8]>,
    purposes: Vec<&'static str>,
    reported: Vec<bool>,
    tokens: [Vec<i64>; 6],
    costs: Vec<Option<i64>>,
}

impl<'a> Columns<'a> {
    /// Returns the columns of a group's rows.
    pub(super) fn of_group(group: &[&'a AppendAt]) -> Self {
        let mut columns = Self::default();
        for (at, append) in (1..).zip(group) {
            append.append.usage.iter().for_each(|row| columns.push(at, row));
        }
        columns
    }

    fn push(&mut self, at: i64, row: &'a UsageRow) {
        let Numbers { reported, tokens, cost } = Numbers::of(row);
        self.at.push(at);
        self.ids.push(&row.id);
        self.times.push(row.at.0);
        self.owners.push(row.owner.as_bytes());
        self.sessions.push(row.session.as_str());
        self.models.push(row.model.as_bytes());
        self.purposes.push(row.purpose.as_str());
        self.reported.push(reported);
        for (column, number) in self.tokens.iter_mut().zip(tokens) {
            column.push(number);
        }
        self.costs.push(cost);
    }

    /// Returns the parameters: the columns after `at`, in the order of the table's.
    pub(super) fn params(&self) -> [&(dyn ToSql + Sync); 14] {
        let [input, cached, written, hour, output, reasoning] = &self.tokens;
        [
            &self.ids,
            &self.times,
            &self.owners,
            &self.sessions,
            &self.models,
            &self.purposes,
            &self.reported,
            input,
            cached,
            written,
            hour,
            output,
            reasoning,
            &self.costs,
        ]
    }
}

/// Adds rows that belong to no append, or copies them.
const ADD: &str = "
INSERT INTO model_usage (id, at, owner, session, model, purpose, reported, input, cached, cache_write,
  cache_write_hour, output, reasoning, cost_nano_usd)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::text[], $5::bytea[], $6::text[], $7::boolean[],
  $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[])
ON CONFLICT (id) DO UPDATE SET at = excluded.at, reported = excluded.reported, input = excluded.input,
  cached = excluded.cached, cache_write = excluded.cache_write, cache_write_hour = excluded.cache_write_hour,
  output = excluded.output, reasoning = excluded.reasoning, cost_nano_usd = excluded.cost_nano_usd";

/// Adds rows that belong to no append.
pub(super) async fn add(readers: &Readers, rows: &[UsageRow]) -> Result<(), Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut columns = Columns::default();
    rows.iter().for_each(|row| columns.push(0, row));
    let params = &columns.params();
    readers.write(|db, _| async move { db.rows(ADD, params).await.map(drop) }).await
}

/// Removes the oldest rows that are older than a time.
pub(super) async fn remove(readers: &Readers, before: Timestamp) -> Result<u64, Error> {
    let sql = "WITH gone AS (DELETE FROM model_usage WHERE id IN (SELECT id FROM model_usage WHERE at < $1 \
               ORDER BY at LIMIT $2) RETURNING 1) SELECT count(*) FROM gone";
    let most = &i64::from(USAGE_REMOVED_MAX);
    let row = readers.write(|db, _| async move { db.row(sql, &[&before.0, most]).await }).await?;
    Ok(row.map_or(0, |row| row.get::<_, i64>(0).cast_unsigned()))
}

/// Names nobody in rows of an owner. Once none is left, forgets the owner's recent deletions.
pub(super) async fn forget(readers: &Readers, owner: &str) -> Result<u64, Error> {
    let sql = "WITH named AS (UPDATE model_usage SET owner = $1, session = $2 WHERE id IN \
               (SELECT id FROM model_usage WHERE owner = $3 LIMIT $4) RETURNING 1) SELECT count(*) FROM named";
    let (nobody, owner, most) = (&DELETED_OWNER.as_bytes(), &owner.as_bytes(), &i64::from(USAGE_REMOVED_MAX));
    let row = readers.write(|db, _| async move { db.row(sql, &[nobody, &DELETED_SESSION, owner, most]).await }).await?;
    let count = row.map_or(0, |row| row.get::<_, i64>(0).cast_unsigned());
    if count == 0 {
        let sql = "DELETE FROM deletion WHERE owner = $1";
        readers.write(|db, _| async move { db.rows(sql, &[owner]).await.map(drop) }).await?;
    }
    Ok(count)
}

/// Returns a page of sums.
pub(super) async fn sums(readers: &Readers, query: &UsageQuery) -> Result<UsagePage, Error> {
    let (from, to) = query.bounds();
    let by = if query.by == UsageBy::Day && query.step.is_some() { UsageBy::Total } else { query.by };
    let (key, after) = match by {
        UsageBy::User => ("owner", "($5::bytea IS NULL OR owner > $5)"),
        UsageBy::Model => ("model", "($5::bytea IS NULL OR model > $5)"),
        UsageBy::Session => ("session", "($5::text IS NULL OR session > $5)"),
        UsageBy::Day => ("at / 86400000", "at / 86400000 > $5::bigint"),
        UsageBy::Total => ("''::text", "$5::text IS NULL"),
    };
    let (period, after, groups) = match query.step.map(UsageStep::millis) {
        Some(millis) => (format!("at / {millis}"), format!("(at / {millis}, {key}) > ($7::bigint, $5)"), "13, 1"),
        None => ("0::bigint".to_owned(), format!("{after} AND $7::bigint IS NULL"), "1"),
    };
    let position = query.step.map(|step| query.after_period(step)).transpose()?;
    // The periods before the page's are not read.
    let start = position.as_ref().zip(query.step).map(|((period, _), step)| period.saturating_mul(step.millis()));
    let (from, to) = &(start.map_or(from, |start| from.max(start)), to);
    let (period_after, cursor) = match position {
        Some((period, key)) => (&Some(period), &Some(key)),
        None => (&None, &query.cursor),
    };
    let owner = if query.owner.is_some() { "owner = $3" } else { "$3::bytea IS NULL" };
    let session = if query.session.is_some() { "session = $4" } else { "$4::text IS NULL" };
    let sql = &format!(
        "SELECT {key} AS key, {USAGE_SUMS}, {period} FROM model_usage WHERE at >= $1 AND at < $2 AND {owner} \
         AND {session} AND {after} GROUP BY {groups} ORDER BY {groups} LIMIT $6"
    );
    let owner = &query.owner.as_ref().map(String::as_bytes);
    let session = &query.session.as_ref().map(SessionId::as_str);
    let limit = &(i64::from(query.limit) + 1);
    let (text, bytes) = (cursor, &cursor.as_ref().map(String::as_bytes));
    let day = &if by == UsageBy::Day { query.after_day()? } else { 0 };
    let after: &(dyn ToSql + Sync) = match by {
        UsageBy::User | UsageBy::Model => bytes,
        UsageBy::Session | UsageBy::Total => text,
        UsageBy::Day => day,
    };
    let read = |row: &Row| -> Result<_, Fault> {
        let key = match by {
            UsageBy::User | UsageBy::Model => String::from_utf8_lossy(row.try_get(0)?).into_owned(),
            UsageBy::Day => day_name(row.try_get(0)?),
            UsageBy::Session | UsageBy::Total => row.try_get(0)?,
        };
        let mut numbers = [0; 11];
        for (at, number) in (1..).zip(&mut numbers) {
            *number = row.try_get(at)?;
        }
        let from = query.step.map(|step| Ok::<_, Fault>(period_start(step, row.try_get(12)?))).transpose()?;
        Ok(sum(from, key, numbers))
    };
    let params: &[&(dyn ToSql + Sync)] = &[from, to, owner, session, after, limit, period_after];
    let rows = readers.read(|db| async move { db.rows(sql, params).await }).await?;
    let items = rows.iter().map(read).collect::<Result<_, _>>()?;
    Ok(UsagePage::of(items, query.limit))
}
