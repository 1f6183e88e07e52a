//! Tickets over HTTP. A user requests one for themselves. A service mints them for its users, and revokes its grants.

use super::{
    answers::{NoParameters, Parameters, problem},
    app::App,
    audit::chain::Line,
    auth::{Draft, IssueError, Minter, Refusal, Refused, Revoked, Valid, bearer, is_name},
    node::ask::revoke_elsewhere,
};
use crate::{
    config::{Scope, Scopes},
    metrics::limits::Limit,
    shares::limit_reached,
};
use axum::{
    Extension, Json,
    body::Bytes,
    extract::{ConnectInfo, Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use reseed_protocol::{ErrorBody, ErrorCode, SessionId};
use serde::Deserialize;
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

/// The maximum time for which a service's ticket allows a socket. After a day, the service's backend must decide again
/// whether the user may connect.
const GRANT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The default lifetime of an unused ticket. A page uses it at once, even on a slow network.
const TICKET_LIFE: Duration = Duration::from_secs(60);

/// The maximum lifetime of a service's unused ticket, in seconds. A user's own ticket is meant for immediate use,
/// because all users share the table of unused tickets.
const REDEEM_SECS_MAX: u64 = 3_600;

/// The default validity of a service's grant.
const VALID: Duration = Duration::from_secs(3_600);

/// The address of a request's sender.
type Peer = Option<Extension<ConnectInfo<SocketAddr>>>;

/// The body of `POST /api/tickets`, which a user may omit.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wanted {
    principal: Option<String>,
    scopes: Option<Vec<String>>,
    session_id: Option<SessionId>,
    redeem_within_secs: Option<u64>,
    valid_for_secs: Option<u64>,
}

/// Issues a one-time ticket to a user, or to a service for one of its users.
pub(super) async fn ticket(
    State(app): State<Arc<App>>,
    _: Parameters<NoParameters>,
    peer: Peer,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let address = peer.as_ref().map(|peer| peer.0.0.ip().to_string());
    let minter = match app.auth.minter(bearer(&headers)).await {
        Ok(minter) => minter,
        Err(refusal) => return refused(&app, peer, refusal).await,
    };
    let who = match &minter {
        Minter::User(name, ..) => name.clone(),
        Minter::Service(service) => format!("service:{}", service.name),
    };
    let wanted = match body.is_empty() {
        true => Ok(Wanted::default()),
        false => serde_json::from_slice::<Wanted>(&body).map_err(|error| {
            ErrorBody::new(ErrorCode::InvalidField, format!("the body is not a request for a ticket: {error}"))
        }),
    };
    let (draft, life) = match wanted.and_then(|wanted| draft(minter, wanted)) {
        Ok(drafted) => drafted,
        Err(error) if error.code == ErrorCode::Forbidden => return problem(StatusCode::FORBIDDEN, error),
        Err(error) => return problem(StatusCode::BAD_REQUEST, error),
    };
    let (valid, user) = (draft.valid, draft.name.clone());
    match app.auth.issue(draft, life).await {
        Ok(Ok((ticket, id))) => {
            let line = Line {
                user: Some(user),
                ticket: Some(id.clone()),
                address,
                outcome: "minted".to_owned(),
                who,
                ..Line::default()
            };
            app.admission.audit.note("ticket", line);
            let mut body = serde_json::json!({ "ticket": ticket, "id": id, "expiresInSecs": life.as_secs() });
            let valid_for = match valid {
                Valid::Indefinitely => None,
                Valid::For(time) => Some(time),
                Valid::Until(end, time) => Some(time.min(end.saturating_duration_since(Instant::now()))),
            };
            if let Some(time) = valid_for {
                body["validForSecs"] = time.as_secs().into();
            }
            ([(header::CACHE_CONTROL, "no-store")], Json(body)).into_response()
        }
        Ok(Err(Refused::Share(limit, max))) => {
            let whose = match limit {
                Limit::TicketsPerService => "the users of this service have",
                _ => "this user has",
            };
            let message = format!("{whose} {max} unused tickets, the limit; use them, or wait until they expire");
            problem(StatusCode::TOO_MANY_REQUESTS, limit_reached(limit, max as u64, message))
        }
        Ok(Err(Refused::All)) => {
            let error = ErrorBody::new(ErrorCode::Overloaded, "too many unused tickets; try again in a minute");
            problem(StatusCode::SERVICE_UNAVAILABLE, error)
        }
        Err(IssueError::Store(error)) => problem(StatusCode::SERVICE_UNAVAILABLE, app.registry.fault(&error)),
        Err(error) => {
            tracing::error!(%error, "issue a ticket");
            problem(StatusCode::INTERNAL_SERVER_ERROR, ErrorBody::new(ErrorCode::Internal, "cannot issue a ticket"))
        }
    }
}

/// Returns the rights of a ticket, and how long it can be redeemed.
fn draft(minter: Minter, wanted: Wanted) -> Result<(Draft, Duration), ErrorBody> {
    let redeem_max = match &minter {
        Minter::User(..) => TICKET_LIFE.as_secs(),
        Minter::Service(_) => REDEEM_SECS_MAX,
    };
    let (name, most, valid, source, class) = match (minter, wanted.principal) {
        (Minter::User(..), Some(_)) => {
            let message = "only a token of SERVICE_TOKENS mints tickets for others; leave `principal` out";
            return Err(ErrorBody::new(ErrorCode::Forbidden, message).with_field("principal"));
        }
        (Minter::User(name, scopes, valid, source, class), None) => (name, scopes, valid, source, class),
        (Minter::Service(service), Some(principal)) if is_name(&principal) => {
            let valid = Valid::For(VALID);
            (service.user(&principal), service.scopes, valid, service.source, None)
        }
        (Minter::Service(_), Some(_)) => {
            let message = "`principal` must have 1 to 256 bytes without control characters";
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("principal"));
        }
        (Minter::Service(_), None) => {
            let message = "name the user whom the ticket is for, as your application knows them";
            return Err(ErrorBody::new(ErrorCode::MissingField, message).with_field("principal"));
        }
    };
    let scopes = scopes(wanted.scopes, most)?;
    let valid = match (wanted.valid_for_secs, valid) {
        (None, valid) => valid,
        (Some(secs), Valid::Until(end, _)) => Valid::Until(end, within(secs, GRANT_MAX.as_secs(), "validForSecs")?),
        (Some(secs), _) => Valid::For(within(secs, GRANT_MAX.as_secs(), "validForSecs")?),
    };
    let life = match wanted.redeem_within_secs {
        None => TICKET_LIFE,
        Some(secs) => within(secs, redeem_max, "redeemWithinSecs")?,
    };
    Ok((Draft { name, scopes, session: wanted.session_id, valid, source, id: None, class }, life))
}

/// Returns the scopes of a ticket: the requested ones, or all that are allowed.
fn scopes(wanted: Option<Vec<String>>, most: Scopes) -> Result<Scopes, ErrorBody> {
    let Some(wanted) = wanted else { return Ok(most) };
    let named = wanted.iter().map(|name| Scope::named(name)).collect::<Option<Scopes>>();
    let Some(scopes) = named.filter(|scopes| !scopes.is_empty()) else {
        let message = "`scopes` is a list of `sessions` or `read`";
        return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("scopes"));
    };
    if !most.cover(scopes) {
        let message = format!("this token grants at most {}", most.names().collect::<Vec<_>>().join(", "));
        return Err(ErrorBody::new(ErrorCode::Forbidden, message).with_field("scopes"));
    }
    Ok(scopes)
}

fn within(secs: u64, most: u64, field: &str) -> Result<Duration, ErrorBody> {
    if (1..=most).contains(&secs) {
        return Ok(Duration::from_secs(secs));
    }
    let message = format!("`{field}` is {secs}; allowed: 1 to {most}");
    Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field(field))
}

/// Revokes the grant of a ticket, whether it was used or not.
pub(super) async fn revoke_ticket(
    State(app): State<Arc<App>>,
    _: Parameters<NoParameters>,
    peer: Peer,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    revoke(&app, peer, &headers, &Revoked::Ticket(id)).await
}

/// Revokes everything that a service granted to one of its users.
pub(super) async fn revoke_user(
    State(app): State<Arc<App>>,
    _: Parameters<NoParameters>,
    peer: Peer,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    revoke(&app, peer, &headers, &Revoked::User(name)).await
}

async fn revoke(app: &App, peer: Peer, headers: &HeaderMap, whose: &Revoked) -> Response {
    let address = peer.as_ref().map(|peer| peer.0.0.ip());
    let Some(service) = bearer(headers).and_then(|token| app.auth.service(token)) else {
        let given = bearer(headers).map_or(Refusal::Missing, |_| Refusal::Wrong("not a service's token"));
        return refused(app, peer, given).await;
    };
    let (tickets, sockets) = match app.auth.revoke(&service, whose).await {
        Ok(ended) => ended,
        Err(error) => return problem(StatusCode::SERVICE_UNAVAILABLE, app.registry.fault(&error)),
    };
    let (elsewhere, unanswered) = revoke_elsewhere(app, &service.name, whose).await;
    let sockets = sockets + elsewhere;
    tracing::info!(service = service.name, tickets, sockets, "a service revokes");
    let (who, address) = (format!("service:{}", service.name), address.map(|address| address.to_string()));
    // A name or an id that was never granted is text from the service.
    let (user, ticket) = match whose {
        _ if tickets + sockets == 0 => (None, None),
        Revoked::Ticket(id) => (None, Some(id.clone())),
        Revoked::User(_) => (whose.owner(&service.name), None),
    };
    let outcome = format!("tickets {tickets}, sockets {sockets}");
    app.admission.audit.note("revoke", Line { who, user, ticket, address, outcome, ..Line::default() });
    let mut body = serde_json::json!({ "tickets": tickets, "sockets": sockets });
    if !unanswered.is_empty() {
        body["unanswered"] = unanswered.into();
    }
    Json(body).into_response()
}

async fn refused(app: &App, peer: Peer, refusal: Refusal) -> Response {
    if let Err(error) = app.admission.refuse_credentials(peer.map(|peer| peer.0.0.ip()), "ticket", refusal).await {
        return problem(StatusCode::TOO_MANY_REQUESTS, error);
    }
    let (error, _) = refusal.error();
    match error.code {
        ErrorCode::Forbidden => problem(StatusCode::FORBIDDEN, error),
        ErrorCode::StoreFailed => problem(StatusCode::SERVICE_UNAVAILABLE, error),
        code => {
            let message = "send a token from AUTH_TOKENS or SERVICE_TOKENS as `Authorization: Bearer`";
            problem(StatusCode::UNAUTHORIZED, ErrorBody::new(code, message))
        }
    }
}

/// Allows pages of the configured origins to request tickets. The origin has already been checked.
pub(super) async fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}
