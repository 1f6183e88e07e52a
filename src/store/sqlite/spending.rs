//! The rows of the operator's account.

use super::{Fault, writer::Write};
use crate::spending::{
    DAY_MILLIS, DELETED_OWNER, DELETED_SESSION, Numbers, USAGE_COLUMNS, USAGE_SUMS, UsageBy, UsagePage, UsageQuery,
    UsageSum, day_name, period_start, purpose, sum, tokens,
};
use reseed_core::usage_row::UsageRow;
use reseed_protocol::{SessionId, Timestamp};
use rusqlite::{Connection, Row, params};

/// Rows of a page of a migration.
const PAGE_ROWS: u32 = 1_000;

/// Writes rows, in place of those with the same ids.
pub(super) fn write(db: &Connection, rows: &[UsageRow]) -> rusqlite::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut insert = db.prepare_cached(&format!(
        "INSERT OR REPLACE INTO model_usage ({USAGE_COLUMNS}) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
    ))?;
    for row in rows {
        let Numbers { reported, tokens: [input, cached, written, hour, output, reasoning], cost } = Numbers::of(row);
        insert.execute(params![
            row.id,
            row.at.0,
            row.owner,
            row.session.as_str(),
            row.model,
            row.purpose.as_str(),
            reported,
            input,
            cached,
            written,
            hour,
            output,
            reasoning,
            cost,
        ])?;
    }
    Ok(())
}

/// Adds rows that belong to no append.
pub(super) struct Add(pub(super) Vec<UsageRow>);

impl Write for Add {
    type Output = ();

    fn write(&self, db: &Connection) -> Result<(), Fault> {
        Ok(write(db, &self.0)?)
    }
}

/// Removes rows that are older than a time.
pub(super) struct Remove {
    pub(super) before: Timestamp,
    pub(super) limit: u32,
}

impl Write for Remove {
    type Output = u64;

    fn write(&self, db: &Connection) -> Result<u64, Fault> {
        let sql = "DELETE FROM model_usage WHERE rowid IN (SELECT rowid FROM model_usage WHERE at < ?1 LIMIT ?2)";
        Ok(db.prepare_cached(sql)?.execute((self.before.0, self.limit))? as u64)
    }
}

/// Names nobody in rows of an owner.
pub(super) struct Forget {
    pub(super) owner: String,
    pub(super) limit: u32,
}

impl Write for Forget {
    type Output = u64;

    // The name is erased like the text of deleted sessions.
    const DELETES: bool = true;

    fn write(&self, db: &Connection) -> Result<u64, Fault> {
        let sql = "UPDATE model_usage SET owner = ?1, session = ?2 \
                   WHERE rowid IN (SELECT rowid FROM model_usage WHERE owner = ?3 LIMIT ?4)";
        let named = (DELETED_OWNER, DELETED_SESSION, &self.owner, self.limit);
        Ok(db.prepare_cached(sql)?.execute(named)? as u64)
    }
}

/// Returns a page of sums.
pub(super) fn sums(db: &Connection, query: &UsageQuery) -> Result<UsagePage, Fault> {
    let (from, to) = query.bounds();
    let day = format!("at / {DAY_MILLIS}");
    let key = match query.by {
        UsageBy::User => "owner",
        UsageBy::Model => "model",
        UsageBy::Day if query.step.is_none() => &day,
        UsageBy::Session => "session",
        UsageBy::Day | UsageBy::Total => "''",
    };
    // A condition that is always true would keep SQLite from using an index.
    let owner = if query.owner.is_some() { "owner = ?3" } else { "?3 IS NULL" };
    let session = if query.session.is_some() { "session = ?4" } else { "?4 IS NULL" };
    let after = match (query.step, query.by) {
        (Some(step), _) => format!("(at / {}, {key}) > (?7, ?5)", step.millis()),
        (None, UsageBy::Day) => format!("{key} > ?5 AND ?7 IS NULL"),
        (None, UsageBy::Total) => "?5 IS NULL AND ?7 IS NULL".to_owned(),
        (None, _) => format!("(?5 IS NULL OR {key} > ?5) AND ?7 IS NULL"),
    };
    let (period, groups) = match query.step {
        Some(step) => (format!(", at / {} AS period", step.millis()), "period, key"),
        None => (String::new(), "key"),
    };
    let mut select = db.prepare_cached(&format!(
        "SELECT {key} AS key, {USAGE_SUMS}{period} FROM model_usage WHERE at >= ?1 AND at < ?2 AND {owner} \
         AND {session} AND {after} GROUP BY {groups} ORDER BY {groups} LIMIT ?6"
    ))?;
    let (owner, session) = (query.owner.as_deref(), query.session.as_ref().map(SessionId::as_str));
    let limit = i64::from(query.limit) + 1;
    let items = if let Some(step) = query.step {
        let (period, key) = query.after_period(step)?;
        // The periods before the page's are not read.
        let from = from.max(period.saturating_mul(step.millis()));
        let read = |row: &Row<'_>| read_sum(row, Some(period_start(step, row.get(12)?)), row.get(0)?);
        select.query_map(params![from, to, owner, session, key, limit, period], read)?.collect()
    } else if query.by == UsageBy::Day {
        let read = |row: &Row<'_>| read_sum(row, None, day_name(row.get(0)?));
        let after = query.after_day()?;
        select.query_map(params![from, to, owner, session, after, limit, None::<i64>], read)?.collect()
    } else {
        let read = |row: &Row<'_>| read_sum(row, None, row.get(0)?);
        select.query_map(params![from, to, owner, session, query.cursor, limit, None::<i64>], read)?.collect()
    };
    let items: rusqlite::Result<Vec<UsageSum>> = items;
    Ok(UsagePage::of(items?, query.limit))
}

fn read_sum(row: &Row<'_>, from: Option<Timestamp>, key: String) -> rusqlite::Result<UsageSum> {
    let mut numbers = [0; 11];
    for (at, number) in (1..).zip(&mut numbers) {
        *number = row.get(at)?;
    }
    Ok(sum(from, key, numbers))
}

/// Returns rows with numbers above `after`, for a migration.
pub(super) fn page(db: &Connection, after: i64) -> Result<Vec<(i64, UsageRow)>, Fault> {
    let mut select = db.prepare_cached(&format!(
        "SELECT {USAGE_COLUMNS}, rowid FROM model_usage WHERE rowid > ?1 ORDER BY rowid LIMIT ?2"
    ))?;
    let rows = select.query_map((after, PAGE_ROWS), |row| {
        let session: String = row.get(3)?;
        let session = session.parse().map_err(|_| rusqlite::Error::InvalidQuery)?;
        let mut numbers = [0; 6];
        for (at, number) in (7..).zip(&mut numbers) {
            *number = row.get(at)?;
        }
        let read = UsageRow {
            id: row.get(0)?,
            at: Timestamp(row.get(1)?),
            owner: row.get(2)?,
            session,
            model: row.get(4)?,
            purpose: purpose(&row.get::<_, String>(5)?),
            tokens: tokens(numbers),
            source: Numbers::source(row.get(6)?),
            cost_nano_usd: row.get::<_, Option<i64>>(13)?.map(i64::cast_unsigned),
        };
        Ok((row.get(14)?, read))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
