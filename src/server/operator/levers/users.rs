//! What a user has: shown, closed, and deleted with a proof.

use super::{Lever, Outcome};
use crate::{
    server::{
        answers::{NoParameters, Parameters, problem},
        app::App,
        auth::{Operator, is_name},
        node::orders::{Order, everywhere},
        operator::{budgets::of_user, usage::item},
        sessions::invalid,
    },
    store::{DELETED_OWNER, Error, Traces, UsageBy, UsageQuery},
};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use reseed_protocol::{ErrorBody, SessionId};
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc};

/// How often what is found is deleted again.
const SEARCHES_MAX: u32 = 3;

/// Sums that are read at a time.
const PAGE: u32 = 1_000;

/// Returns what a user has, and what it has cost.
pub(in crate::server) async fn user(
    _: Operator,
    _: Parameters<NoParameters>,
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Response {
    match shown(&app, &name).await {
        Ok(shown) => Json(shown).into_response(),
        Err(error) => problem(super::status_of(&error), error),
    }
}

async fn shown(app: &App, name: &str) -> Result<Value, ErrorBody> {
    check(name)?;
    let fault = |error: Error| app.registry.fault(&error);
    let store = app.registry.store();
    let stored = store.usage(name).await.map_err(fault)?.unwrap_or_default();
    let query = UsageQuery { by: UsageBy::Total, owner: Some(name.to_owned()), limit: 1, ..UsageQuery::default() };
    let cost = store.usage_sums(query).await.map_err(fault)?.items.into_iter().next().unwrap_or_default();
    let (counted, unanswered) = everywhere(app, &Order::CountUser(name.to_owned())).await?;
    let mut shown = json!({
        "user": name,
        "sessions": {
            "count": stored.sessions, "empty": stored.empty, "bytes": stored.bytes, "open": counted.open,
        },
        "usage": item(UsageBy::Total, &cost),
        "sockets": counted.sockets,
    });
    let (class, budgets) = of_user(app, name).await.map_err(fault)?;
    if let Some(class) = class {
        shown["class"] = class.into();
    }
    shown["budgets"] = budgets.into();
    Ok(with_unanswered(shown, unanswered))
}

fn check(name: &str) -> Result<(), ErrorBody> {
    if name == DELETED_OWNER {
        return Err(invalid("name", "this stands for all users who were deleted".to_owned()));
    }
    if is_name(name) {
        return Ok(());
    }
    Err(invalid("name", "a user's name has 1 to 256 bytes without control characters".to_owned()))
}

/// Names the nodes that did not answer, if there are any.
fn with_unanswered(mut shown: Value, unanswered: Vec<String>) -> Value {
    if !unanswered.is_empty() {
        shown["unanswered"] = unanswered.into();
    }
    shown
}

/// Closes a user's connections and sessions on all nodes. Unused tickets and the user's token stay valid.
pub(in crate::server) async fn close(lever: Lever, State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    pull(lever, app, "close_user", name, async |app, name| {
        let (closed, unanswered) = everywhere(&app, &Order::CloseUser(name)).await?;
        let shown = json!({ "sockets": closed.sockets, "sessions": closed.open });
        Ok((StatusCode::OK, with_unanswered(shown, unanswered)))
    })
    .await
}

/// Deletes all that a user has, and proves it: counts what was deleted, and searches for what is left.
pub(in crate::server) async fn delete(lever: Lever, State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    pull(lever, app, "delete_user", name, async |app, name| erase(&app, &name).await).await
}

/// Pulls a lever on a user.
async fn pull<W>(
    lever: Lever,
    app: Arc<App>,
    what: &'static str,
    name: String,
    act: impl FnOnce(Arc<App>, String) -> W + Send + 'static,
) -> Response
where
    W: Future<Output = Outcome> + Send,
{
    let puller = lever.clone();
    lever
        .once(&app.clone(), what, name.clone(), async move {
            check(&name)?;
            puller.recorded(&app, what, (None, Some(&name)), act(app.clone(), name.clone())).await
        })
        .await
}

async fn erase(app: &App, name: &str) -> Outcome {
    let fault = |error: Error| app.registry.fault(&error);
    let (registry, store) = (&app.registry, app.registry.store());
    // Sessions that were deleted before are still named in the account.
    let mut sessions = sessions_in_account(app, name).await.map_err(fault)?;
    let tickets = app.auth.withdraw_user(name).await.map_err(fault)?;
    let (here, unanswered) = everywhere(app, &Order::ForgetUser(name.to_owned())).await?;
    let deleted = registry.delete_all_of(name).await.map_err(fault)?;
    let count = here.deleted + deleted.len();
    sessions.extend(deleted);
    let sessions: Vec<SessionId> = sessions.into_iter().collect();
    let (mut rows, mut searches) = (0, 0);
    let Traces { searched, found } = loop {
        loop {
            let some = store.forget_owner(name).await.map_err(fault)?;
            rows += some;
            if some == 0 {
                break;
            }
        }
        let traces = store.traces(name, &sessions).await.map_err(fault)?;
        searches += 1;
        // What a request has cost that was running may have been written since.
        if traces.found.is_empty() || searches >= SEARCHES_MAX {
            break traces;
        }
    };
    let mut search = json!({ "searched": searched, "found": found.values().sum::<u64>() });
    if !found.is_empty() {
        search["places"] = json!(found);
    }
    let proof = json!({
        "sessions": count, "usageRows": rows, "tickets": tickets, "sockets": here.sockets, "audit": "kept",
        "search": search,
    });
    Ok((StatusCode::OK, with_unanswered(proof, unanswered)))
}

/// Returns the sessions whose requests are in the account of this user.
async fn sessions_in_account(app: &App, name: &str) -> Result<BTreeSet<SessionId>, Error> {
    let (mut sessions, mut cursor) = (BTreeSet::new(), None);
    loop {
        let owner = Some(name.to_owned());
        let query = UsageQuery { by: UsageBy::Session, owner, cursor, limit: PAGE, ..UsageQuery::default() };
        let page = app.registry.store().usage_sums(query).await?;
        sessions.extend(page.items.iter().filter_map(|sum| sum.key.parse().ok()));
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(sessions);
        }
    }
}
