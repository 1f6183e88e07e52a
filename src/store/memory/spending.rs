//! Sums over the operator's account.

use crate::{
    Error, UsageBy, UsagePage, UsageQuery, UsageSum,
    spending::{DAY_MILLIS, day_name, period_start},
};
use reseed_core::usage_row::{UsageRow, UsageTokens};
use reseed_protocol::UsageSource;
use std::collections::BTreeMap;

/// Returns a page of sums over these rows.
pub(super) fn sums<'a>(rows: impl Iterator<Item = &'a UsageRow>, query: &UsageQuery) -> Result<UsagePage, Error> {
    let ((from, to), mut groups) = (query.bounds(), BTreeMap::<(i64, String), UsageSum>::new());
    let after = match query.step {
        Some(step) => Some(query.after_period(step)?),
        None if query.by == UsageBy::Day => query.after_day().map(|_| None)?,
        None => None,
    };
    let after = after.or_else(|| query.cursor.clone().map(|cursor| (0, cursor)));
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
        let period = query.step.map_or(0, |step| row.at.0.div_euclid(step.millis()));
        let from = query.step.map(|step| period_start(step, period));
        let group = groups.entry((period, key.clone()));
        add(group.or_insert_with(|| UsageSum { from, key, ..UsageSum::default() }), row);
    }
    let is_after = |group: &(i64, String)| after.as_ref().is_none_or(|after| group > after);
    let items = groups.into_iter().filter(|(group, _)| is_after(group)).map(|(_, sum)| sum);
    let items = items.take(query.limit as usize + 1).collect();
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
