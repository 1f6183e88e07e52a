//! The operator's account of model requests, kept when sessions are deleted: sums by user, model, day or session.

use super::{Error, StoreFuture};
use reseed_core::usage_row::{UsagePurpose, UsageRow, UsageTokens};
use reseed_protocol::{SessionId, Timestamp, UsageSource};

/// The upper limit for each stored number, so that no sum of a table overflows: a million dollars, or as many tokens.
const NUMBER_MAX: u64 = 1_000_000_000_000_000;

/// Milliseconds of a day.
pub(crate) const DAY_MILLIS: i64 = 24 * 60 * 60 * 1_000;

/// Rows that one call removes.
pub const USAGE_REMOVED_MAX: u32 = 10_000;

/// What the account names instead of a user who was deleted, and of their sessions: the deployment's sums stay. No user
/// can have this name.
pub const DELETED_OWNER: &str = "(deleted)";
/// As [`DELETED_OWNER`].
pub const DELETED_SESSION: &str = "deleted";

/// What sums are grouped by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UsageBy {
    /// The owner of the session.
    #[default]
    User,
    /// The model.
    Model,
    /// The day, in UTC.
    Day,
    /// The session.
    Session,
    /// Nothing: there is one sum.
    Total,
}

impl UsageBy {
    /// Returns the grouping with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::User, Self::Model, Self::Day, Self::Session, Self::Total];
        all.into_iter().find(|by| by.as_str() == name)
    }

    /// Returns its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Model => "model",
            Self::Day => "day",
            Self::Session => "session",
            Self::Total => "total",
        }
    }
}

/// The length of the periods that sums are split into. They begin at multiples of it since 1970, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageStep {
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day.
    Day,
}

impl UsageStep {
    /// Returns the step with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "minute" => Some(Self::Minute),
            "hour" => Some(Self::Hour),
            "day" => Some(Self::Day),
            _ => None,
        }
    }

    /// Returns its length in milliseconds.
    pub(crate) const fn millis(self) -> i64 {
        match self {
            Self::Minute => 60_000,
            Self::Hour => 60 * 60_000,
            Self::Day => DAY_MILLIS,
        }
    }
}

/// Selects the rows to sum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageQuery {
    /// What they are grouped by.
    pub by: UsageBy,
    /// The periods that each group is split into. Not for [`UsageBy::Day`], whose groups are periods.
    pub step: Option<UsageStep>,
    /// Only requests that ended at this time or later.
    pub from: Option<Timestamp>,
    /// Only requests that ended before this time.
    pub to: Option<Timestamp>,
    /// Only this owner's.
    pub owner: Option<String>,
    /// Only this session's.
    pub session: Option<SessionId>,
    /// Starts after the page that ended with this cursor.
    pub cursor: Option<String>,
    /// The most sums to return.
    pub limit: u32,
}

impl UsageQuery {
    /// Returns the bounds of the time in milliseconds.
    pub(crate) fn bounds(&self) -> (i64, i64) {
        (self.from.map_or(i64::MIN, |from| from.0), self.to.map_or(i64::MAX, |to| to.0))
    }

    /// Returns the period, by its number, and the key after which the page of a query with a step starts. The text of
    /// the cursor is the start of the period in milliseconds, a dot, and the key.
    ///
    /// # Errors
    /// [`Error::Cursor`]: the cursor is of another kind.
    pub(crate) fn after_period(&self, step: UsageStep) -> Result<(i64, String), Error> {
        let Some(cursor) = &self.cursor else { return Ok((i64::MIN, String::new())) };
        let parts = cursor.split_once('.').and_then(|(start, key)| Some((start.parse::<i64>().ok()?, key)));
        let (start, key) = parts.ok_or_else(|| Error::Cursor(cursor.clone()))?;
        Ok((start.div_euclid(step.millis()), key.to_owned()))
    }

    /// Returns the number of the day after which the page starts.
    ///
    /// # Errors
    /// [`Error::Cursor`]: the cursor is not a day.
    pub(crate) fn after_day(&self) -> Result<i64, Error> {
        let Some(cursor) = &self.cursor else { return Ok(i64::MIN) };
        let time: Option<Timestamp> = serde_json::from_value(format!("{cursor}T00:00:00Z").into()).ok();
        time.map(|time| time.0.div_euclid(DAY_MILLIS)).ok_or_else(|| Error::Cursor(cursor.clone()))
    }
}

/// Returns a day as text, such as `2026-11-29`.
pub(crate) fn day_name(day: i64) -> String {
    let mut text = Timestamp(day.saturating_mul(DAY_MILLIS)).to_string();
    text.truncate("2026-11-29".len());
    text
}

/// The sum over some requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageSum {
    /// The start of its period, if the query has a step.
    pub from: Option<Timestamp>,
    /// The user, model, day or session.
    pub key: String,
    /// Requests.
    pub requests: u64,
    /// Those of them whose usage the provider did not report; their tokens are estimates.
    pub estimated_requests: u64,
    /// Those of them whose cost is unknown, because their models have no prices.
    pub unpriced_requests: u64,
    /// Their tokens.
    pub tokens: UsageTokens,
    /// The known cost of what was reported, in billionths of a US dollar.
    pub cost_nano_usd: u64,
    /// The known cost of what is estimated, in billionths of a US dollar.
    pub estimated_nano_usd: u64,
}

/// A page of sums, ordered by their periods and keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsagePage {
    /// The sums.
    pub items: Vec<UsageSum>,
    /// The start of the next page; absent on the last.
    pub next_cursor: Option<String>,
}

impl UsagePage {
    /// Creates a page of at most `limit` sums. One more than that in `items` shows that another page follows.
    pub(crate) fn of(mut items: Vec<UsageSum>, limit: u32) -> Self {
        let has_more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next_cursor = items.last().filter(|_| has_more).map(|last| match last.from {
            Some(from) => format!("{}.{}", from.0, last.key),
            None => last.key.clone(),
        });
        Self { items, next_cursor }
    }
}

/// A future that returns sums.
pub type UsageFuture<'a> = StoreFuture<'a, Result<UsagePage, Error>>;

/// The numbers of a row, as stored.
pub(crate) struct Numbers {
    pub(crate) reported: bool,
    /// Input, cached, written to the cache, of these for an hour, output, reasoning.
    pub(crate) tokens: [i64; 6],
    pub(crate) cost: Option<i64>,
}

impl Numbers {
    pub(crate) fn of(row: &UsageRow) -> Self {
        let stored = |number: u64| number.min(NUMBER_MAX).cast_signed();
        let UsageTokens { input, cached, cache_write, cache_write_hour, output, reasoning } = row.tokens;
        Self {
            reported: row.source == UsageSource::Reported,
            tokens: [input, cached, cache_write, cache_write_hour, output, reasoning].map(stored),
            cost: row.cost_nano_usd.map(stored),
        }
    }

    pub(crate) fn source(reported: bool) -> UsageSource {
        if reported { UsageSource::Reported } else { UsageSource::Estimated }
    }
}

/// Returns the tokens with these numbers, in the order of [`Numbers`].
pub(crate) fn tokens([input, cached, cache_write, cache_write_hour, output, reasoning]: [i64; 6]) -> UsageTokens {
    let read = |number: i64| u64::try_from(number).unwrap_or(0);
    UsageTokens {
        input: read(input),
        cached: read(cached),
        cache_write: read(cache_write),
        cache_write_hour: read(cache_write_hour),
        output: read(output),
        reasoning: read(reasoning),
    }
}

/// Returns the purpose with a stored name. Later versions may have others, which count as turns.
pub(crate) fn purpose(name: &str) -> UsagePurpose {
    UsagePurpose::named(name).unwrap_or(UsagePurpose::Turn)
}

/// The columns of a row, in the order in which they are inserted and copied.
pub(crate) const USAGE_COLUMNS: &str = "id, at, owner, session, model, purpose, reported, input, cached, cache_write, \
                                        cache_write_hour, output, reasoning, cost_nano_usd";

/// The sums of a group, after its key. A request that was reserved but not sent has no tokens, and does not count.
pub(crate) const USAGE_SUMS: &str = "count(*) FILTER (WHERE input + output > 0), count(*) FILTER (WHERE NOT reported AND input + output > 0), \
     count(*) FILTER (WHERE cost_nano_usd IS NULL AND input + output > 0), CAST(sum(input) AS bigint), \
     CAST(sum(cached) AS bigint), CAST(sum(cache_write) AS bigint), CAST(sum(cache_write_hour) AS bigint), \
     CAST(sum(output) AS bigint), CAST(sum(reasoning) AS bigint), \
     CAST(coalesce(sum(cost_nano_usd) FILTER (WHERE reported), 0) AS bigint), \
     CAST(coalesce(sum(cost_nano_usd) FILTER (WHERE NOT reported), 0) AS bigint)";

/// Returns the start of the period with this number.
pub(crate) fn period_start(step: UsageStep, number: i64) -> Timestamp {
    Timestamp(number.saturating_mul(step.millis()))
}

/// Returns the sum with these numbers, in the order of [`USAGE_SUMS`].
pub(crate) fn sum(from: Option<Timestamp>, key: String, numbers: [i64; 11]) -> UsageSum {
    let read = |number: i64| u64::try_from(number).unwrap_or(0);
    let [requests, estimated, unpriced, t0, t1, t2, t3, t4, t5, cost, estimated_cost] = numbers;
    UsageSum {
        from,
        key,
        requests: read(requests),
        estimated_requests: read(estimated),
        unpriced_requests: read(unpriced),
        tokens: tokens([t0, t1, t2, t3, t4, t5]),
        cost_nano_usd: read(cost),
        estimated_nano_usd: read(estimated_cost),
    }
}
