//! The state shared by all connections.

use super::{
    admission::Admission,
    auth::{Auth, Grant},
    backups::Backups,
    peers::Peers,
    repeats::Repeats,
    stopping::Stopping,
    tls::Tls,
    web,
};
use crate::{core::agent_loop::Origin, runtime::Registry, tools::mcp::Mcp};
use reseed_protocol::{ConnectionId, ErrorBody, ErrorCode};
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

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

/// What the server reports about itself.
pub(crate) struct About {
    pub provider: &'static str,
    /// A sentence for users, such as a warning about the offline model.
    pub notice: Option<String>,
    /// The maximum number of inputs queued in one session.
    pub queue_items_max: usize,
    /// Identifies this process, so that clients notice a restart.
    pub instance: String,
    /// The keys of what clients keep for the server: the first one signs, and all are accepted.
    pub seal_keys: Vec<[u8; 32]>,
}

/// State shared by all connections.
pub(crate) struct App {
    pub registry: Arc<Registry>,
    /// The MCP servers, if the server has tools.
    pub mcp: Option<Arc<Mcp>>,
    pub auth: Auth,
    /// The certificate; `None` if the ports do not use TLS.
    pub tls: Option<Arc<Tls>>,
    pub admission: Admission,
    pub patience: Patience,
    pub about: About,
    pub peers: Peers,
    pub backups: Backups,
    pub metrics: crate::metrics::Handle,
    pub stopping: Stopping,
    /// The answers to requests of operators that may be repeated.
    pub repeats: Repeats,
    /// The chat page and the operator's page, each built when it is first requested.
    pub pages: [OnceLock<web::Site>; 2],
    /// The number of the connection that was made last.
    pub origins: AtomicU64,
}

impl App {
    /// Describes the identity provider whose users are accepted. `None` if none is configured.
    pub(crate) fn signed_line(&self) -> Option<String> {
        self.auth.signed_line()
    }

    /// Returns the error for a command whose session has left memory in the meantime.
    pub(super) fn session_gone(&self) -> ErrorBody {
        if self.stopping.is_draining() {
            return ErrorBody::new(ErrorCode::ShuttingDown, "the server is stopping; reconnect and resume");
        }
        ErrorBody::new(
            ErrorCode::StoreFailed,
            "the session was closed before it answered; open it again, and send the command again with the same `id`",
        )
    }

    /// Notes the class that a user's token names. An operator who acts for the user does not know it.
    pub(super) fn note_class(&self, grant: &Grant) {
        if !grant.is_operator() {
            self.registry.budgets().claims(grant.name(), grant.class());
        }
    }

    pub(super) fn next_origin(&self) -> Origin {
        Origin(self.origins.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Returns the public name of a connection, unique among all processes of this server.
    pub(super) fn connection_id(&self, origin: Origin) -> ConnectionId {
        format!("{}-{}", self.about.instance, origin.0).parse().expect("an instance is an id, and short")
    }
}
