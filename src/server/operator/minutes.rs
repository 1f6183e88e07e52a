//! What the servers counted in each minute of the last week.

use super::usage::{invalid, time};
use crate::{
    clock::{Clock as _, SystemClock},
    server::{
        answers::{Parameters, problem},
        app::App,
        auth::Operator,
    },
    store::MinuteQuery,
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use reseed_protocol::{ErrorBody, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

const MINUTE_MILLIS: i64 = 60_000;

/// Rows per page: default, which is a day of one server, and maximum, which is its week.
const LIMIT: (u32, u32) = (1_440, 10_080);

/// Minutes that are returned if the request names no start.
const RECENT_MINUTES: i64 = 60;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::server) struct Wanted {
    from: Option<String>,
    to: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// Returns one row per minute and server, oldest first, of all servers that share the database.
pub(in crate::server) async fn minutes(
    _: Operator,
    State(app): State<Arc<App>>,
    Parameters(wanted): Parameters<Wanted>,
) -> Response {
    let query = match query(wanted) {
        Ok(query) => query,
        Err(error) => return problem(StatusCode::BAD_REQUEST, error),
    };
    let limit = query.limit as usize;
    let rows = match app.registry.store().minutes(MinuteQuery { limit: query.limit + 1, ..query }).await {
        Ok(rows) => rows,
        Err(error) => return problem(StatusCode::SERVICE_UNAVAILABLE, app.registry.fault(&error)),
    };
    let items = rows.iter().take(limit).map(|row| {
        let mut shown = serde_json::from_str(&row.body).ok().filter(Value::is_object).unwrap_or_else(|| json!({}));
        shown["minute"] = Timestamp(row.minute.saturating_mul(MINUTE_MILLIS)).to_string().into();
        shown
    });
    let mut body = json!({ "items": items.collect::<Vec<Value>>() });
    if let Some(last) = rows.get(limit.wrapping_sub(1)).filter(|_| rows.len() > limit) {
        body["nextCursor"] = format!("{}.{}", last.minute, last.process).into();
    }
    Json(body).into_response()
}

fn query(wanted: Wanted) -> Result<MinuteQuery, ErrorBody> {
    // A minute is meant if it begins within the bounds.
    let bound = |name, text: Option<String>, default: i64| {
        let Some(text) = text else { return Ok(default) };
        let time = time(&text).map_err(|why| invalid(name, format!("{name} must be {why}")))?;
        Ok(time.0.saturating_add(MINUTE_MILLIS - 1).div_euclid(MINUTE_MILLIS))
    };
    let limit = wanted.limit.unwrap_or(LIMIT.0);
    if !(1..=LIMIT.1).contains(&limit) {
        return Err(invalid("limit", format!("limit must be 1 to {}, not {limit}", LIMIT.1)));
    }
    let recent = SystemClock.now().0.div_euclid(MINUTE_MILLIS) - RECENT_MINUTES;
    let (from, to) = (bound("from", wanted.from, recent)?, bound("to", wanted.to, i64::MAX)?);
    let after = wanted.cursor.map(|cursor| {
        let parts =
            cursor.split_once('.').and_then(|(minute, process)| Some((minute.parse().ok()?, process.to_owned())));
        parts.ok_or_else(|| invalid("cursor", "the cursor is not from this address".to_owned()))
    });
    let after = after.transpose()?.unwrap_or((i64::MIN, String::new()));
    Ok(MinuteQuery { from, to, after, limit })
}
