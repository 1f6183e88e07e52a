//! Sums over the operator's account.

use crate::{
    Error, UsageBy, UsagePage, UsageQuery, UsageSum,
    spending::{DAY_MILLIS, day_name},
};
use reseed_core::usage_row::{UsageRow, UsageTokens};
use reseed_protocol::UsageSource;
use std::collections::BTreeMap;

/// Returns a page of sums over these rows.
pub(super) fn sums<'a>(rows: impl Iterator<Item = &'a UsageRow>, query: &UsageQuery) -> Result<UsagePage, Error> {
    let ((from, to), mut groups) = (query.bounds(), BTreeMap::<String, UsageSum>::new());
    if query.by == UsageBy::Day {
        query.after_day()?;
    }
    let is_meant = |row: &&UsageRow| {
        (from..to).contains(&row.at.0)
            && query.owner.as_ref().is_none_or(|owner| *owner == row.owner)
            && query.session.as_ref().is_none_or(|session| *session == row.session)
    };
    for row in rows.filter(is_meant) {
        let key = match query.by {
            UsageBy::User => row.owner.clone(),
            UsageBy::Model => row.model.clone(),
            UsageBy::Day => day_name(row.at.0.div_euclid(DAY_MILLIS)),
            UsageBy::Session => row.session.to_string(),
            UsageBy::Total => String::new(),
        };
        add(groups.entry(key.clone()).or_insert_with(|| UsageSum { key, ..UsageSum::default() }), row);
    }
    let is_after = |sum: &UsageSum| query.cursor.as_ref().is_none_or(|cursor| sum.key > *cursor);
    let items = groups.into_values().filter(is_after).take(query.limit as usize + 1).collect();
    Ok(UsagePage::of(items, query.limit))
}

fn add(sum: &mut UsageSum, row: &UsageRow) {
    let (counts, estimated) = (u64::from(row.tokens.total() > 0), row.source == UsageSource::Estimated);
    sum.requests += counts;
    sum.estimated_requests += counts * u64::from(estimated);
    sum.unpriced_requests += counts * u64::from(row.cost_nano_usd.is_none());
    let UsageTokens { input, cached, cache_write, cache_write_hour, output, reasoning } = row.tokens;
    sum.tokens.input += input;
    sum.tokens.cached += cached;
    sum.tokens.cache_write += cache_write;
    sum.tokens.cache_write_hour += cache_write_hour;
    sum.tokens.output += output;
    sum.tokens.reasoning += reasoning;
    let cost = if estimated { &mut sum.estimated_nano_usd } else { &mut sum.cost_nano_usd };
    *cost += row.cost_nano_usd.unwrap_or(0);
}
