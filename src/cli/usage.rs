//! `reseed usage`: what requests to models cost, from the database.

use super::{dollars, say, sessions::open};
use crate::{
    config::Settings,
    server::{usage_csv, usage_grouping, usage_item, usage_time},
    store::{UsageBy, UsageQuery, UsageSum},
};
use anyhow::Context as _;
use clap::Args;
use reseed_protocol::Timestamp;
use serde_json::{Value, json};

/// Sums read per query.
const PAGE: u32 = 1_000;

/// The length of the longest bar, in characters.
const BAR_MAX: u64 = 30;

/// The options of `reseed usage`.
#[derive(Debug, Args)]
pub(super) struct UsageOptions {
    /// What to sum by: user, model, day, session, or total for everything.
    #[arg(long, value_name = "WHAT", default_value = "user", value_parser = usage_grouping)]
    by: UsageBy,
    /// Only requests since this day (UTC) or time.
    #[arg(long, value_name = "TIME", value_parser = bound)]
    from: Option<Timestamp>,
    /// Only requests before this day (UTC) or time.
    #[arg(long, value_name = "TIME", value_parser = bound)]
    to: Option<Timestamp>,
    /// Only this user's.
    #[arg(long, value_name = "USER")]
    owner: Option<String>,
    /// Print JSON: `{ "items": [ … ] }`.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV with a header line.
    #[arg(long)]
    csv: bool,
}

fn bound(text: &str) -> Result<Timestamp, String> {
    usage_time(text).map_err(|why| format!("it must be {why}"))
}

pub(super) async fn run(settings: &Settings, options: UsageOptions) -> anyhow::Result<()> {
    let store = open(settings).await?;
    let UsageOptions { by, from, to, owner, .. } = options;
    let mut query = UsageQuery { by, from, to, owner, limit: PAGE, ..UsageQuery::default() };
    let mut sums = Vec::new();
    loop {
        let page = store.usage_sums(query.clone()).await.context("sum up the usage")?;
        sums.extend(page.items);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if options.json {
        let items: Vec<Value> = sums.iter().map(|sum| usage_item(by, sum)).collect();
        return super::say_json(&json!({ "items": items }));
    }
    if options.csv {
        say(usage_csv(by, None, &sums).replace("\r\n", "\n").trim_end());
        return Ok(());
    }
    print(by, &sums);
    Ok(())
}

fn print(by: UsageBy, sums: &[UsageSum]) {
    if sums.is_empty() {
        say("no usage is recorded");
        return;
    }
    let width = sums.iter().map(|sum| key(sum).chars().count()).max().unwrap_or(0).clamp(10, 40);
    let has_costs = sums.iter().any(|sum| sum.cost_nano_usd > 0);
    let size = |sum: &UsageSum| if has_costs { sum.cost_nano_usd } else { sum.tokens.input + sum.tokens.output };
    let most = sums.iter().map(size).max().unwrap_or(0);
    say(format!(
        "{:<width$}  {:>8}  {:>12}  {:>12}  {:>12}  {:>11}",
        by.as_str().to_uppercase(),
        "REQUESTS",
        "INPUT",
        "CACHED",
        "OUTPUT",
        "COST"
    ));
    for sum in sums {
        let line = format!(
            "{:<width$}  {:>8}  {:>12}  {:>12}  {:>12}  {:>11}  {}",
            key(sum),
            sum.requests,
            sum.tokens.input,
            sum.tokens.cached,
            sum.tokens.output,
            paid(sum),
            bar(size(sum), most)
        );
        say(line.trim_end());
    }
}

fn key(sum: &UsageSum) -> &str {
    if sum.key.is_empty() { "-" } else { &sum.key }
}

/// Formats a cost: `-` if none is known, with a `+` if it is incomplete.
fn paid(sum: &UsageSum) -> String {
    let is_partial = sum.unpriced_requests > 0 || sum.estimated_requests > 0;
    match sum.cost_nano_usd {
        0 if is_partial => "-".to_owned(),
        cost if is_partial => format!("{}+", dollars(cost)),
        cost => dollars(cost),
    }
}

/// Returns a bar in proportion to the longest one. Anything but nothing is visible.
fn bar(size: u64, most: u64) -> String {
    let length = u128::from(size) * u128::from(BAR_MAX) / u128::from(most.max(1));
    let length = usize::try_from(length).unwrap_or(0).max(usize::from(size > 0));
    "█".repeat(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion() {
        let lengths = [(0, 100), (1, 100), (50, 100), (100, 100), (0, 0), (u64::MAX, u64::MAX)];
        let lengths = lengths.map(|(size, most)| bar(size, most).chars().count());
        assert_eq!(lengths, [0, 1, 15, 30, 0, 30]);
    }

    #[test]
    fn an_incomplete_cost_is_marked() {
        let sum = |cost_nano_usd, unpriced_requests, estimated_requests| UsageSum {
            cost_nano_usd,
            unpriced_requests,
            estimated_requests,
            ..UsageSum::default()
        };
        let shown = [sum(0, 0, 0), sum(0, 1, 0), sum(20_000_000, 0, 0), sum(20_000_000, 0, 1)].map(|sum| paid(&sum));
        assert_eq!(shown, ["$0.000000", "-", "$0.0200", "$0.0200+"]);
    }
}
