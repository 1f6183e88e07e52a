//! One server of the file: started, listed, called, restarted and ended. A task keeps it up, and calls find it through
//! [`Stage`].
//!
//! Invariants:
//! - Its tools stay offered while it is restarted, so that an outage of a minute does not break the prompt prefix. They
//!   are withdrawn after [`GONE_FAILURES`] failures in a row.
//! - A call that may have been executed is never sent again.

mod keeping;

use super::{
    connection::Connection,
    fault::CallFault,
    file::Spec,
    listing::Listing,
    process::Stderr,
    status::{ServerState, ServerStatus},
};
use crate::{
    store::{Error as StoreError, SessionStore},
    tools::{Call, CallFuture, Output, Tool},
};
use reseed_protocol::{
    SessionId,
    tools::{ToolOffer, ToolServerFailure},
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::timeout,
};

/// The number of failures in a row after which a server's tools are withdrawn. With the waits in between, this takes a
/// minute or two.
const GONE_FAILURES: u32 = 10;

/// Maximum calls of one server at a time. Further ones wait within their time limit.
const CALLS_MAX: usize = 64;

/// The maximum time that a call waits for a server whose last start failed. A model that learns of it soon can continue
/// without the server.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server of the file.
pub(super) struct Server {
    pub(super) spec: Spec,
    /// The store of the sessions; `None` where none is deleted, as in `reseed check`.
    store: Option<Arc<dyn SessionStore>>,
    stage: watch::Sender<Stage>,
    known: Mutex<Known>,
    /// Notified by a call that needs a server that is stopped, or that is down and waits for its next start.
    wake: Notify,
    /// The number of failed starts since it was last up.
    failed_starts: AtomicU32,
    calls: Arc<Semaphore>,
    /// Counts the changes of all servers' tools.
    changed: Arc<watch::Sender<u64>>,
    /// True once it has come up or failed for the first time.
    tried: watch::Sender<bool>,
}

/// The server's state, as far as calls need it.
#[derive(Clone)]
enum Stage {
    /// It is being connected to.
    Starting,
    Ready(Arc<Connection>),
    /// Its process was stopped, and a call starts it.
    Idle,
    /// It is down for this reason until the next start.
    Waiting(Arc<str>),
    Closed,
}

/// What is known about the server.
#[derive(Default)]
struct Known {
    listing: Listing,
    tools: Vec<Arc<dyn Tool>>,
    error: Option<String>,
    failure: Option<ToolServerFailure>,
    protocol: Option<String>,
    software: Option<String>,
    /// True if it keeps something for each session, as it said when it was last up.
    keeps_sessions: bool,
    starts: u64,
    stderr: Option<Stderr>,
}

impl Server {
    pub(super) fn new(spec: Spec, store: Option<Arc<dyn SessionStore>>, changed: Arc<watch::Sender<u64>>) -> Self {
        Self {
            spec,
            store,
            stage: watch::Sender::new(Stage::Starting),
            known: Mutex::default(),
            wake: Notify::new(),
            failed_starts: AtomicU32::new(0),
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            changed,
            tried: watch::Sender::new(false),
        }
    }

    /// Takes over the tools that a server had under its older entry, as far as this entry allows them. They stay
    /// offered during the restart, so that it does not break the prompt prefix.
    pub(super) fn inherit(self: &Arc<Self>, before: &Self) {
        let mut listing = before.known().listing.clone();
        listing.offers.retain(|(own, _)| self.spec.allows(own));
        let keeps_sessions = before.known().keeps_sessions;
        self.known().keeps_sessions = keeps_sessions;
        self.publish(listing);
    }

    /// Waits until the server has ended.
    async fn ended(&self) {
        // The sender lives as long as `self`.
        let _ = self.stage.subscribe().wait_for(|stage| matches!(stage, Stage::Closed)).await;
    }

    /// Returns the tools that are offered.
    pub(super) fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.known().tools.clone()
    }

    /// Waits until the server has come up or failed for the first time.
    pub(super) async fn tried(&self) {
        // The sender lives as long as `self`.
        let _ = self.tried.subscribe().wait_for(|tried| *tried).await;
    }

    /// Returns the state for the operator.
    pub(super) fn status(&self) -> ServerStatus {
        let known = self.known();
        let state = match &*self.stage.borrow() {
            Stage::Starting => ServerState::Starting,
            Stage::Ready(_) => ServerState::Ready,
            Stage::Idle => ServerState::Idle,
            Stage::Waiting(_) => ServerState::Failing,
            Stage::Closed => ServerState::Stopping,
        };
        let stderr = known.stderr.as_ref().map(Stderr::text).filter(|text| !text.is_empty());
        ServerStatus {
            name: self.spec.name.clone(),
            prefix: Some(self.spec.prefix.clone()),
            transport: self.spec.link.transport(),
            state,
            protocol: known.protocol.clone(),
            software: known.software.clone(),
            tools: known.listing.offers.iter().map(|(_, offer)| offer.name.clone()).collect(),
            left_out: known.listing.left_out.clone(),
            error: known.error.clone(),
            failure: known.failure,
            starts: known.starts,
            stderr: stderr.map(|text| self.spec.secrets.mask(&text)),
        }
    }

    /// Calls a tool by the server's own name for it.
    async fn call(&self, tool: &str, call: Call) -> Output {
        let serde_json::Value::Object(arguments) = call.arguments else {
            return Output::error("The arguments of a tool must be an object.");
        };
        let name = &self.spec.name;
        // A call that the server cannot have seen is sent once more, over its next connection.
        let mut retried = false;
        loop {
            // The semaphore is never closed.
            let Ok(permit) = self.calls.clone().acquire_owned().await else {
                return Output::error(format!("The MCP server `{name}` is stopping."));
            };
            let connection = match self.connection().await {
                Ok(connection) => connection,
                Err(why) => return Output::error(format!("The MCP server `{name}` {why}. The call was not made.")),
            };
            let called = connection.call(
                tool,
                &call.session,
                arguments.clone(),
                call.progress.clone(),
                permit,
                &self.spec.secrets,
            );
            let why = match called.await {
                Ok(output) => return output,
                Err(CallFault::Refused(why)) => return Output::error(format!("The MCP server `{name}` {why}")),
                Err(CallFault::NotSent(why)) => why,
                Err(CallFault::Lost(why)) => {
                    connection.lost.notify_one();
                    return Output::error(format!(
                        "The MCP server `{name}` {why} before it answered. The call may have been carried out, so \
                         check before you make it again."
                    ));
                }
            };
            self.leave(&connection);
            if retried {
                return Output::error(format!("The MCP server `{name}` {why}. The call was not made."));
            }
            retried = true;
        }
    }

    /// Notifies the server that a session was deleted, if it keeps something for sessions. A stopped server is started
    /// for it, as for a call. A server that is down misses the notification.
    pub(super) async fn forget(&self, session: &SessionId) {
        if !self.known().keeps_sessions {
            return;
        }
        let why = match self.connection().await {
            Ok(connection) if !connection.keeps_sessions() => return,
            Ok(connection) if connection.session_deleted(session).await => return,
            Ok(_) => "did not take it".to_owned(),
            Err(why) => why,
        };
        let server = &self.spec.name;
        tracing::warn!(%server, %session, "tell the MCP server that a session was deleted: it {why}");
    }

    /// Notifies the server of sessions that it keeps something for and that were deleted while it was down.
    ///
    /// If the store has none of its sessions, they are probably in another store. Then the server gets no
    /// notifications.
    async fn reconcile(&self, connection: &Connection) {
        let Some(store) = self.store.as_ref().filter(|_| connection.keeps_sessions()) else { return };
        let server = &self.spec.name;
        let kept = match connection.kept_sessions().await {
            Ok(kept) => kept,
            Err(error) => {
                tracing::warn!(%server, error, "ask the MCP server which sessions it keeps; those deleted stay there");
                return;
            }
        };
        let (mut gone, mut is_known) = (Vec::new(), false);
        for session in kept {
            match store.head(&session).await {
                Err(StoreError::NotFound(_)) => gone.push(session),
                Ok(_) | Err(StoreError::Damaged { .. }) => is_known = true,
                Err(error) => {
                    tracing::warn!(%server, %error, "look for the sessions that the MCP server keeps");
                    return;
                }
            }
        }
        let sessions = gone.len();
        match is_known {
            _ if gone.is_empty() => {}
            false => tracing::warn!(
                %server, sessions, "the database has none of the sessions that the MCP server keeps; they stay there"
            ),
            true => {
                tracing::info!(%server, sessions, "the MCP server keeps sessions that were deleted; they are reported to it");
                for session in &gone {
                    if !connection.session_deleted(session).await {
                        return;
                    }
                }
            }
        }
    }

    /// Waits for a connection, during one start at most. A call makes a server that is down start at once.
    ///
    /// # Errors
    /// The reason why it is down, as a predicate whose subject is the server.
    async fn connection(&self) -> Result<Arc<Connection>, String> {
        let mut stage = self.stage.subscribe();
        let failed = self.failed_starts.load(Ordering::Relaxed);
        let limit = if failed == 0 { self.spec.startup } else { PATIENCE };
        let came = timeout(limit, async {
            loop {
                match &*stage.borrow_and_update() {
                    Stage::Ready(connection) => return Ok(connection.clone()),
                    Stage::Closed => return Err("is stopping".to_owned()),
                    Stage::Waiting(why) if self.failed_starts.load(Ordering::Relaxed) > failed => {
                        return Err(format!("is down: it {why}"));
                    }
                    Stage::Waiting(_) | Stage::Idle => self.wake.notify_one(),
                    Stage::Starting => {}
                }
                if stage.changed().await.is_err() {
                    return Err("is stopping".to_owned());
                }
            }
        });
        came.await.unwrap_or_else(|_| match &self.known().error {
            Some(why) => Err(format!("is down: it {why}; it is being started again")),
            None => Err(format!("did not come up within {} s", limit.as_secs())),
        })
    }

    /// Gives up an unusable connection, unless it has already been replaced.
    fn leave(&self, connection: &Arc<Connection>) {
        self.stage.send_if_modified(|stage| {
            let is_current = matches!(stage, Stage::Ready(current) if Arc::ptr_eq(current, connection));
            if is_current {
                *stage = Stage::Starting;
            }
            is_current
        });
        connection.lost.notify_one();
    }

    /// Offers the server's current list. Returns true if it has changed.
    fn publish(self: &Arc<Self>, listing: Listing) -> bool {
        let mut known = self.known();
        let is_new = known.listing.offers != listing.offers;
        if is_new {
            let tool = |(own, offer): &(String, ToolOffer)| -> Arc<dyn Tool> {
                Arc::new(McpTool { server: self.clone(), own: own.clone(), offer: offer.clone() })
            };
            known.tools = listing.offers.iter().map(tool).collect();
        }
        for why in listing.left_out.iter().filter(|why| !known.listing.left_out.contains(why)) {
            tracing::warn!(server = %self.spec.name, "the MCP server has a tool that is not offered: {why}");
        }
        known.listing = listing;
        drop(known);
        if is_new {
            self.changed.send_modify(|changes| *changes += 1);
        }
        is_new
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A tool of a server.
struct McpTool {
    server: Arc<Server>,
    /// The server's own name for the tool.
    own: String,
    offer: ToolOffer,
}

impl Tool for McpTool {
    fn offer(&self) -> ToolOffer {
        self.offer.clone()
    }

    fn call(&self, call: Call) -> CallFuture<'_> {
        Box::pin(self.server.call(&self.own, call))
    }
}
