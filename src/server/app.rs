//! The routes, and the state shared by all connections.

use super::{
    address::Addresses,
    audit::{self, Audit},
    auth::{Auth, Refusal, bearer},
    door::Door,
    granting,
    guesses::Guesses,
    handshake,
    limits::Limits,
    operator, relay, web,
};
use crate::{runtime::Registry, store::Spaced, tools::mcp::Mcp};
use axum::{
    Router,
    extract::{ConnectInfo, DefaultBodyLimit, Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use reseed_protocol::{ConnectionId, ErrorBody, ErrorCode, context::ContextInfo};
use secrecy::SecretString;
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Maximum bytes of an HTTP request's body. Only requests for tickets have one, and it is short.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// Time limits for clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Time for a new connection to send `hello` if v2 was negotiated or credentials are required.
    pub hello: Duration,
    /// The interval between pings. A v2 client that leaves two unanswered is disconnected.
    pub heartbeat: Duration,
    /// How long a client may stop reading.
    pub slow_reader: Duration,
}

/// The options of an [`App`].
pub(crate) struct AppOptions {
    pub registry: Arc<Registry>,
    /// The MCP servers, if the server has tools.
    pub mcp: Option<Arc<Mcp>>,
    pub auth: Auth,
    pub limits: Arc<Limits>,
    /// The trusted proxies in front of the server.
    pub addresses: Arc<Addresses>,
    pub patience: Patience,
    /// The port of the server's own page.
    pub port: u16,
    pub provider: &'static str,
    /// A sentence for users, such as a warning about the offline model.
    pub notice: Option<String>,
    /// The maximum number of inputs queued in one session.
    pub queue_items_max: usize,
    pub metrics: crate::metrics::Handle,
    /// Identifies this process, so that clients notice a restart.
    pub instance: String,
    /// The secret shared by the nodes of a cluster. `None` for a single server.
    pub node_token: Option<SecretString>,
}

/// State shared by all connections.
pub(crate) struct App {
    pub(super) registry: Arc<Registry>,
    pub(super) mcp: Option<Arc<Mcp>>,
    pub(crate) auth: Auth,
    pub(super) limits: Arc<Limits>,
    pub(super) audit: Audit,
    pub(super) door: Arc<Door>,
    pub(super) guesses: Guesses,
    pub(super) addresses: Arc<Addresses>,
    pub(super) patience: Patience,
    pub(super) port: u16,
    pub(super) provider: &'static str,
    pub(super) notice: Option<String>,
    pub(super) queue_items_max: usize,
    pub(super) metrics: crate::metrics::Handle,
    pub(super) instance: String,
    pub(super) node_token: Option<SecretString>,
    /// The HTTP clients for requests to other nodes.
    pub(super) asking: super::relay::Asking,
    /// Asks every connection to close as soon as nothing runs here for its client. Other servers take over.
    pub(super) leave: CancellationToken,
    /// Ends the accept loop and asks every connection to close.
    pub(super) stop: CancellationToken,
    /// All tasks that serve a client.
    pub(super) connections: TaskTracker,
    /// The web page, built when it is first requested.
    pub(super) page: OnceLock<web::Site>,
    draining: AtomicBool,
    next_origin: AtomicU64,
    /// Limits the log lines about pages that were refused.
    refused_pages: Mutex<Spaced>,
}

impl App {
    /// Creates the shared state.
    #[must_use]
    pub(crate) fn new(options: AppOptions) -> Arc<Self> {
        Arc::new(Self {
            registry: options.registry,
            mcp: options.mcp,
            auth: options.auth,
            audit: Audit::default(),
            door: Door::new(options.limits.settings(), options.addresses.clone()),
            guesses: Guesses::new(options.limits.settings(), options.addresses.clone()),
            addresses: options.addresses,
            limits: options.limits,
            patience: options.patience,
            port: options.port,
            provider: options.provider,
            notice: options.notice,
            queue_items_max: options.queue_items_max,
            metrics: options.metrics,
            instance: options.instance,
            node_token: options.node_token,
            asking: super::relay::Asking::default(),
            leave: CancellationToken::new(),
            stop: CancellationToken::new(),
            connections: TaskTracker::new(),
            page: OnceLock::new(),
            draining: AtomicBool::new(false),
            next_origin: AtomicU64::new(1),
            refused_pages: Mutex::default(),
        })
    }

    /// Announces that the server is about to stop: `/readyz` answers 503 from now on.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Describes the identity provider whose users are accepted. `None` if none is configured.
    pub(crate) fn signed_line(&self) -> Option<String> {
        self.auth.signed_line()
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Returns the error for a command whose session has left memory in the meantime.
    pub(super) fn session_gone(&self) -> ErrorBody {
        if self.is_draining() {
            return ErrorBody::new(ErrorCode::ShuttingDown, "the server is stopping; reconnect and resume");
        }
        ErrorBody::new(
            ErrorCode::StoreFailed,
            "the session was closed before it answered; open it again, and send the command again with the same `id`",
        )
    }

    /// Returns the number of client connections, including those relayed by other servers.
    pub(crate) fn connection_count(&self) -> usize {
        // One of the tracked tasks accepts connections.
        self.connections.len().saturating_sub(1)
    }

    pub(super) fn next_origin(&self) -> crate::core::agent_loop::Origin {
        crate::core::agent_loop::Origin(self.next_origin.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the public name of a connection, unique among all processes of this server.
    pub(super) fn connection_id(&self, origin: crate::core::agent_loop::Origin) -> ConnectionId {
        format!("{}-{}", self.instance, origin.0).parse().expect("an instance is an id, and short")
    }

    /// Logs that a page was refused, at most once per interval, because a page repeats its attempts.
    fn log_refused(&self, origin: &str) {
        let admitted = self.refused_pages.lock().unwrap_or_else(PoisonError::into_inner).admit();
        if let Some(left_out) = admitted {
            tracing::warn!(?origin, left_out, "refuse a page; if it is yours, add its origin to ALLOWED_ORIGINS");
        }
    }

    /// Returns the context info of an empty session.
    pub(super) fn empty_context_info(&self) -> ContextInfo {
        self.registry.empty_context_info()
    }
}

pub(super) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(handshake::root))
        .route("/ws", get(handshake::upgrade))
        .route("/assets/{*name}", get(web::asset))
        .route("/healthz", get(operator::healthz))
        .route("/readyz", get(operator::readyz))
        .route("/metrics", get(operator::metrics))
        .route("/api/tickets", post(granting::ticket).options(operator::preflight))
        .route("/api/tickets/{id}", axum::routing::delete(granting::revoke_ticket))
        .route("/api/principals/{name}", axum::routing::delete(granting::revoke_user))
        .route("/api/sessions", get(operator::sessions))
        .route("/api/sessions/{id}/context", get(operator::session_context))
        .route("/api/sessions/{id}/tree", get(operator::session_tree))
        .route("/api/nodes", get(operator::nodes))
        .route("/api/mcp", get(operator::mcp))
        .route(relay::PATH, get(relay::enter))
        .route(relay::REVOKE_PATH, post(relay::revoked_elsewhere))
        .route(relay::COMPACTIONS_PATH, post(relay::compactions_here))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

/// Rejects requests for a foreign host name and from foreign origins before anything else handles them.
async fn guard(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let headers = request.headers();
    let text = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?").to_owned());
    if request.uri().path().starts_with(relay::INTERNAL) {
        // NODE_ADDRESS may be a proxy's address. These paths reject every page, whatever its origin.
        return next.run(request).await;
    }
    let (host, origin) = (text(header::HOST), text(header::ORIGIN));
    if let Some(host) = host.filter(|host| !app.auth.allows_host(host)) {
        let message = format!("this server is not `{}`; it listens on this machine only\n", clip(&host));
        return (StatusCode::MISDIRECTED_REQUEST, message).into_response();
    }
    if let Some(origin) = origin.as_deref().filter(|origin| !app.auth.allows_origin(origin, app.port)) {
        let origin = clip(origin);
        let message = format!("pages from `{origin}` may not connect; add the origin to ALLOWED_ORIGINS\n");
        // The browser shows the page neither this status nor this message.
        app.log_refused(&origin);
        return (StatusCode::FORBIDDEN, message).into_response();
    }
    let read = audit::read(request.uri().path()).map(|read| {
        let address = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip());
        (read, address)
    });
    let operator = match &read {
        Some(_) => app.auth.operator(bearer(headers)).await,
        None => None,
    };
    if let (Some(((what, _), address)), None) = (&read, &operator) {
        let refusal = bearer(headers).map_or(Refusal::Missing, |_| Refusal::Wrong("not an operator's"));
        if let Err(error) = app.refuse_credentials(*address, what, refusal).await {
            return operator::problem(StatusCode::TOO_MANY_REQUESTS, error);
        }
    }
    let reader = operator.as_ref().map(|operator| operator.name.clone());
    operator.and_then(|operator| request.extensions_mut().insert(operator));
    let mut response = next.run(request).await;
    if let (Some((read, _)), Some(reader)) = (read, reader) {
        app.audit.read(&reader, read, response.status().as_u16());
    }
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if let Some(origin) = origin.and_then(|origin| HeaderValue::from_str(&origin).ok()) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    response
}

/// Returns the beginning of a client's text, for use in a message.
pub(super) fn clip(text: &str) -> String {
    text.chars().take(100).collect()
}
