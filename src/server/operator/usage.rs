//! What requests to models cost, by user, model, day or session: as JSON, or as CSV for spreadsheets.

use crate::{
    server::{
        answers::{Parameters, problem},
        app::App,
        auth::Operator,
    },
    store::{Error, UsageBy, UsagePage, UsageQuery, UsageStep, UsageSum},
};
use axum::{
    Json,
    extract::State,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use reseed_protocol::{ErrorBody, ErrorCode, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{fmt::Write as _, sync::Arc};

/// Sums per page: default and maximum.
const LIMIT: (u32, u32) = (100, 1_000);

/// The header of a CSV page that has a next one: its cursor.
const NEXT: HeaderName = HeaderName::from_static("x-next-cursor");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::server) struct Wanted {
    by: Option<String>,
    step: Option<String>,
    from: Option<String>,
    to: Option<String>,
    owner: Option<String>,
    format: Option<Format>,
    limit: Option<u32>,
    cursor: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Json,
    Csv,
}

/// Returns sums of what requests to models cost. They cover deleted sessions and all servers that share the database.
pub(in crate::server) async fn usage(
    _: Operator,
    State(app): State<Arc<App>>,
    Parameters(wanted): Parameters<Wanted>,
) -> Response {
    let format = wanted.format.unwrap_or_default();
    let query = match query(wanted) {
        Ok(query) => query,
        Err(error) => return problem(StatusCode::BAD_REQUEST, error),
    };
    let (by, step) = (query.by, query.step);
    match app.registry.store().usage_sums(query).await {
        Ok(page) if format == Format::Csv => csv_page(by, step, &page),
        Ok(page) => {
            let items: Vec<Value> = page.items.iter().map(|sum| item(by, sum)).collect();
            let mut body = json!({ "items": items });
            if let Some(cursor) = page.next_cursor {
                body["nextCursor"] = cursor.into();
            }
            Json(body).into_response()
        }
        Err(Error::Cursor(_)) => {
            problem(StatusCode::BAD_REQUEST, invalid("cursor", "the cursor is not from this address".to_owned()))
        }
        Err(error) => problem(StatusCode::SERVICE_UNAVAILABLE, app.registry.fault(&error)),
    }
}

pub(super) fn invalid(field: &str, message: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidField, message).with_field(field)
}

fn query(wanted: Wanted) -> Result<UsageQuery, ErrorBody> {
    let by = wanted.by.as_deref().map_or(Ok(UsageBy::User), grouping).map_err(|why| invalid("by", why))?;
    let step = wanted.step.as_deref().map(|name| match UsageStep::named(name) {
        Some(_) if by == UsageBy::Day => Err("step does not go with by=day: the groups are days".to_owned()),
        Some(step) => Ok(step),
        None => Err("step must be minute, hour or day".to_owned()),
    });
    let step = step.transpose().map_err(|why| invalid("step", why))?;
    let bound = |name, text: Option<String>| {
        text.map(|text| time(&text).map_err(|why| invalid(name, format!("{name} must be {why}")))).transpose()
    };
    let limit = wanted.limit.unwrap_or(LIMIT.0);
    if !(1..=LIMIT.1).contains(&limit) {
        return Err(invalid("limit", format!("limit must be 1 to {}, not {limit}", LIMIT.1)));
    }
    let (from, to) = (bound("from", wanted.from)?, bound("to", wanted.to)?);
    Ok(UsageQuery { by, step, from, to, owner: wanted.owner, session: None, cursor: wanted.cursor, limit })
}

/// Returns the grouping with this name.
///
/// # Errors
/// What it may be.
pub(crate) fn grouping(name: &str) -> Result<UsageBy, String> {
    UsageBy::named(name).ok_or_else(|| "by must be user, model, day, session or total".to_owned())
}

/// Reads a day, which begins at midnight UTC, or a time.
///
/// # Errors
/// What it may be.
pub(crate) fn time(text: &str) -> Result<Timestamp, String> {
    let read = |text: String| serde_json::from_value::<Timestamp>(text.into()).ok();
    let time = read(format!("{text}T00:00:00Z")).or_else(|| read(text.to_owned()));
    time.ok_or_else(|| "a day such as 2026-11-29, or a time such as 2026-11-29T12:00:00Z".to_owned())
}

/// The numbers of a sum, with their names.
fn numbers(sum: &UsageSum) -> [(&'static str, u64); 11] {
    let tokens = &sum.tokens;
    [
        ("requests", sum.requests),
        ("estimatedRequests", sum.estimated_requests),
        ("unpricedRequests", sum.unpriced_requests),
        ("inputTokens", tokens.input),
        ("cachedTokens", tokens.cached),
        ("cacheWriteTokens", tokens.cache_write),
        ("cacheWriteHourTokens", tokens.cache_write_hour),
        ("outputTokens", tokens.output),
        ("reasoningTokens", tokens.reasoning),
        ("costNanoUsd", sum.cost_nano_usd),
        ("estimatedCostNanoUsd", sum.estimated_nano_usd),
    ]
}

/// Returns a sum in the form that operators get.
pub(crate) fn item(by: UsageBy, sum: &UsageSum) -> Value {
    let mut shown = json!({});
    if by != UsageBy::Total {
        shown[by.as_str()] = sum.key.clone().into();
    }
    if let Some(from) = sum.from {
        shown["from"] = from.to_string().into();
    }
    for (name, number) in numbers(sum) {
        shown[name] = number.into();
    }
    shown
}

/// Returns a page as CSV (RFC 4180), with a header line.
pub(crate) fn csv(by: UsageBy, step: Option<UsageStep>, items: &[UsageSum]) -> String {
    let mut text = step.map_or_else(String::new, |_| "from,".to_owned()) + by.as_str();
    for (name, _) in numbers(&UsageSum::default()) {
        let _ = write!(text, ",{name}");
    }
    text.push_str("\r\n");
    for sum in items {
        text.push_str(&sum.from.map_or_else(String::new, |from| format!("{from},")));
        text.push_str(&cell(&sum.key));
        for (_, number) in numbers(sum) {
            let _ = write!(text, ",{number}");
        }
        text.push_str("\r\n");
    }
    text
}

/// Returns a text as a cell. One that a spreadsheet would take for a formula is made a text by an apostrophe.
fn cell(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

fn csv_page(by: UsageBy, step: Option<UsageStep>, page: &UsagePage) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/csv; charset=utf-8; header=present")];
    let mut response = (kind, csv(by, step, &page.items)).into_response();
    // A user's name may not fit into a header; the JSON form then has the cursor.
    if let Some(cursor) = page.next_cursor.as_deref().and_then(|cursor| HeaderValue::from_str(cursor).ok()) {
        response.headers_mut().insert(NEXT, cursor);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_quoted_only_if_it_has_to_be() {
        for (text, expected) in [
            ("ann", "ann"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("=1+1", "'=1+1"),
            ("two\nlines", "\"two\nlines\""),
        ] {
            assert_eq!(cell(text), expected);
        }
    }

    #[test]
    fn a_bound_is_a_day_or_a_time() {
        let day = time("2026-11-29").unwrap();
        assert_eq!(day.to_string(), "2026-11-29T00:00:00.000Z");
        assert_eq!(time("2026-11-29T01:00:00+01:00"), Ok(day));
        for wrong in ["", "yesterday", "2026-13-01", "1795243504"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
