//! The routes, and the checks that every HTTP request passes first.

use super::{
    answers::{Port, clip},
    app::App,
    granting, handshake, node, operator, pages, relay,
};
use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use std::sync::Arc;

/// Maximum bytes of an HTTP request's body: one for a ticket is short, and a compaction's instructions have 16 KiB.
const BODY_BYTES_MAX: usize = 32 * 1024;

/// The headers of the dialects' answers that pages may read.
const EXPOSED: HeaderValue = HeaderValue::from_static("x-reseed-session, x-reseed-context, retry-after");

/// The routes that a port serves. Every port has `/healthz` and `/readyz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    All,
    /// Those of clients, back ends and other nodes.
    Public,
    Operator,
}

/// Returns the routes of a port.
pub(super) fn router(app: Arc<App>, part: Part, port: u16) -> Router {
    let mut routes = Router::new().route("/healthz", get(operator::healthz)).route("/readyz", get(operator::readyz));
    if part != Part::Operator {
        routes = routes.merge(public());
    }
    if part != Part::Public {
        routes = routes
            .merge(operator::routes::routes(app.clone()))
            .route("/operator", get(pages::operators_page))
            .route("/operator/assets/{*name}", get(pages::operators_asset));
    }
    let mut routes = routes.layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).with_state(app.clone());
    if part != Part::Operator {
        // These have bounds of their own.
        routes = routes.merge(reseed_dialects::routes(app.clone()));
    }
    routes.layer(middleware::from_fn_with_state((app, port), guard))
}

/// Returns the routes of clients, of back ends that grant access to clients, and of other nodes.
fn public() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(root))
        .route("/ws", get(handshake::upgrade))
        .route("/assets/{*name}", get(pages::asset))
        .route("/api/tickets", post(granting::ticket).options(granting::preflight))
        .route("/api/tickets/{id}", delete(granting::revoke_ticket))
        .route("/api/principals/{name}", delete(granting::revoke_user))
        .route(relay::PATH, get(node::holder::enter))
        .route(node::ask::REVOKE_PATH, post(node::ask::revoked_elsewhere))
        .route(node::orders::PATH, post(node::orders::received))
        .route(node::ask::COMPACTIONS_PATH, post(node::ask::compactions_here))
}

/// Rejects requests for a foreign host name and from foreign origins before anything else handles them.
async fn guard(State((app, port)): State<(Arc<App>, u16)>, mut request: Request, next: Next) -> Response {
    let headers = request.headers();
    let text = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?").to_owned());
    if request.uri().path().starts_with(node::INTERNAL) {
        // NODE_ADDRESS may be a proxy's address. These paths reject every page, whatever its origin.
        return next.run(request).await;
    }
    let (host, origin) = (text(header::HOST), text(header::ORIGIN));
    if let Some(host) = host.filter(|host| !app.auth.allows_host(host)) {
        let message = format!("this server is not `{}`; it listens on this machine only\n", clip(&host));
        return (StatusCode::MISDIRECTED_REQUEST, message).into_response();
    }
    if let Some(origin) = origin.as_deref().filter(|origin| !app.auth.allows_origin(origin, port)) {
        let origin = clip(origin);
        let message = format!("pages from `{origin}` may not connect; add the origin to ALLOWED_ORIGINS\n");
        // The browser shows the page neither this status nor this message.
        app.admission.log_refused(&origin);
        return (StatusCode::FORBIDDEN, message).into_response();
    }
    let of_dialect = reseed_dialects::owns(request.uri().path());
    if let (true, Some(origin), &Method::OPTIONS) = (of_dialect, &origin, request.method()) {
        return preflight(origin, headers);
    }
    request.extensions_mut().insert(Port(port));
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if let Some(origin) = origin.and_then(|origin| HeaderValue::from_str(&origin).ok()) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("origin"));
        if of_dialect {
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }
    response
}

/// Lets a page of an allowed origin send what it asked to: SDKs have many headers of their own. Cookies are not among
/// them, because no address reads any.
fn preflight(origin: &str, headers: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let allowed = response.headers_mut();
    allowed.extend(HeaderValue::from_str(origin).ok().map(|origin| (header::ACCESS_CONTROL_ALLOW_ORIGIN, origin)));
    allowed.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    let asked = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    allowed.extend(asked.map(|asked| (header::ACCESS_CONTROL_ALLOW_HEADERS, asked)));
    allowed.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    allowed.insert(header::VARY, HeaderValue::from_static("origin, access-control-request-headers"));
    response
}

/// Handles a request for `/`: a socket for v1 clients, the page for a browser.
async fn root(state: State<Arc<App>>, request: Request) -> Response {
    if handshake::asks_for_socket(request.headers()) {
        return handshake::upgrade(state, request).await;
    }
    pages::chat(&state, request.headers()).await
}
