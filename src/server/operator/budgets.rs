//! The budgets of the deployment and of one user, and what is used of them.

use crate::{
    server::{
        answers::{Parameters, problem},
        app::App,
        auth::Operator,
    },
    shares::budgets::{Used, Whose},
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
    let budgets = app.registry.budgets();
    match budgets.used(wanted.owner.as_deref()).await {
        Ok(used) => {
            let items: Vec<Value> = used.iter().map(item).collect();
            let mut body = json!({ "items": items });
            if let Some(class) = wanted.owner.and_then(|owner| budgets.class_of(&owner)) {
                body["class"] = class.into();
            }
            Json(body).into_response()
        }
        Err(error) => problem(StatusCode::SERVICE_UNAVAILABLE, app.registry.fault(&error)),
    }
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
