//! The budgets of the deployment and of one user, and what is used of them.

use crate::{
    server::{
        answers::{Parameters, problem},
        app::App,
        auth::Operator,
    },
    shares::budgets::{Used, Whose},
    store::Error,
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::server) struct Wanted {
    owner: Option<String>,
}

/// Returns the budgets of the deployment, and those of a user who is named, with what is used of them.
pub(in crate::server) async fn budgets(
    _: Operator,
    State(app): State<Arc<App>>,
    Parameters(wanted): Parameters<Wanted>,
) -> Response {
    let found = match wanted.owner {
        Some(owner) => of_user(&app, &owner).await,
        None => app.registry.budgets().used(None).await.map(|used| (None, items(&used))),
    };
    match found {
        Ok((class, items)) => {
            let mut body = json!({ "items": items });
            if let Some(class) = class {
                body["class"] = class.into();
            }
            Json(body).into_response()
        }
        Err(error) => problem(StatusCode::SERVICE_UNAVAILABLE, app.registry.fault(&error)),
    }
}

/// Returns the class of a user, and the budgets that hold for them.
///
/// # Errors
/// The store's.
pub(in crate::server) async fn of_user(app: &App, owner: &str) -> Result<(Option<String>, Vec<Value>), Error> {
    let budgets = app.registry.budgets();
    let used = budgets.used(Some(owner)).await?;
    Ok((budgets.class_of(owner), items(&used)))
}

fn items(used: &[Used]) -> Vec<Value> {
    used.iter().map(item).collect()
}

fn item(used: &Used) -> Value {
    let Used { whose, budget, spent, reserved, refills_at } = used;
    let mut shown = json!({
        "budget": whose.kind(),
        "per": budget.per.as_str(),
        "spentNanoUsd": spent.nano_usd,
        "spentTokens": spent.tokens,
        "reservedNanoUsd": reserved.nano_usd,
        "reservedTokens": reserved.tokens,
        "usedPercent": budget.limit.used_percent(*spent),
    });
    if let Whose::User(owner) = whose {
        shown["owner"] = owner.clone().into();
    }
    for (name, limit) in [("limitNanoUsd", budget.limit.nano_usd), ("limitTokens", budget.limit.tokens)] {
        if let Some(limit) = limit {
            shown[name] = limit.into();
        }
    }
    if let Some(time) = refills_at {
        shown["refillsAt"] = time.to_string().into();
    }
    shown
}
