//! The state shared by all connections.

use super::{
    address::Addresses,
    audit::Audit,
    auth::{Auth, Refusal},
    door::Door,
    guesses::Guesses,
    relay::asking::Asking,
    web,
};
use crate::{
    config::LimitSettings, core::agent_loop::Origin, metrics::lines::Spaced, runtime::Registry, shares::quota::Quota,
    tools::mcp::Mcp,
};
use reseed_protocol::{ConnectionId, ErrorBody, ErrorCode};
use secrecy::SecretString;
use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

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
    pub limits: LimitSettings,
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
    pub(super) limits: LimitSettings,
    /// All connections.
    pub(super) sockets: Arc<Quota>,
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
    pub(super) asking: Asking,
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
            door: Door::new(&options.limits, options.addresses.clone()),
            guesses: Guesses::new(&options.limits, options.addresses.clone()),
            addresses: options.addresses,
            sockets: Quota::new(options.limits.connections_max.into(), 0),
            limits: options.limits,
            patience: options.patience,
            port: options.port,
            provider: options.provider,
            notice: options.notice,
            queue_items_max: options.queue_items_max,
            metrics: options.metrics,
            instance: options.instance,
            node_token: options.node_token,
            asking: Asking::default(),
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

    /// Returns the bytes of the largest message that a client may send.
    pub(super) fn message_bytes_max(&self) -> usize {
        usize::try_from(self.limits.message_bytes_max).unwrap_or(usize::MAX)
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

    pub(super) fn next_origin(&self) -> Origin {
        Origin(self.next_origin.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the public name of a connection, unique among all processes of this server.
    pub(super) fn connection_id(&self, origin: Origin) -> ConnectionId {
        format!("{}-{}", self.instance, origin.0).parse().expect("an instance is an id, and short")
    }

    /// Logs that a page was refused, at most once per interval, because a page repeats its attempts.
    pub(super) fn log_refused(&self, origin: &str) {
        let admitted = self.refused_pages.lock().unwrap_or_else(PoisonError::into_inner).admit();
        if let Some(left_out) = admitted {
            tracing::warn!(?origin, left_out, "refuse a page; if it is yours, add its origin to ALLOWED_ORIGINS");
        }
    }

    /// Logs and counts refused credentials. `what` is what they were for. Returns when the refusal may be sent.
    ///
    /// # Errors
    /// `limit_reached`: the address has sent too many wrong ones.
    pub(super) async fn refuse_credentials(
        &self,
        address: Option<IpAddr>,
        what: &'static str,
        refusal: Refusal,
    ) -> Result<(), ErrorBody> {
        self.audit.refused(address, what, refusal.reason());
        match (address, refusal) {
            (Some(address), Refusal::Wrong(_)) => self.guesses.refuse(address, self.registry.shares()).await,
            _ => Ok(()),
        }
    }
}
