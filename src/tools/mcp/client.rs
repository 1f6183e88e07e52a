//! Handles what an MCP server may request or report: the progress of calls, and a changed list. Everything else is
//! refused. No capability is offered, because sampling, roots and elicitation would let a server act in a user's name.

use crate::tools::Progress;
#[expect(deprecated, reason = "older servers ask for roots, and are refused")]
use rmcp::model::ListRootsResult;
use rmcp::{
    ClientHandler,
    model::{
        ClientCapabilities, ClientConfig, ErrorCode, ErrorData, Implementation, ProgressNotificationParam,
        ProgressToken, ProtocolVersion,
    },
    service::{NotificationContext, RequestContext, RoleClient},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{sync::Notify, time::Instant};

/// Maximum characters of a progress message, which is shown on one line.
const PROGRESS_CHARS_MAX: usize = 500;

/// The calls that are running on one connection.
#[derive(Clone)]
pub(super) struct Calls(Arc<Inner>);

struct Inner {
    /// Locked while a call is sent and registered, because its progress may arrive before its token is known.
    gate: tokio::sync::Mutex<()>,
    running: Mutex<HashMap<ProgressToken, Running>>,
    /// When a call last began or ended.
    used: Mutex<Instant>,
}

struct Running {
    progress: Progress,
    /// The highest progress so far. Notifications may arrive out of order.
    reached: f64,
}

/// A running call. It ends when this is dropped.
pub(super) struct Entered {
    calls: Calls,
    token: ProgressToken,
}

impl Calls {
    pub(super) fn new() -> Self {
        let (gate, running) = Default::default();
        Self(Arc::new(Inner { gate, running, used: Mutex::new(Instant::now()) }))
    }

    /// Holds back progress until the guard is dropped.
    pub(super) async fn hold(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.gate.lock().await
    }

    /// Registers a call, whose progress is reported from now on.
    pub(super) fn enter(&self, token: ProgressToken, progress: Progress) -> Entered {
        self.use_now();
        self.running().insert(token.clone(), Running { progress, reached: f64::NEG_INFINITY });
        Entered { calls: self.clone(), token }
    }

    /// Returns since when the connection has been idle; the current time if a call is running.
    pub(super) fn idle_since(&self) -> Instant {
        let is_idle = self.running().is_empty();
        if is_idle { *self.0.used.lock().unwrap_or_else(PoisonError::into_inner) } else { Instant::now() }
    }

    fn use_now(&self) {
        *self.0.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    async fn report(&self, report: ProgressNotificationParam) {
        drop(self.0.gate.lock().await);
        let mut running = self.running();
        let Some(call) = running.get_mut(&report.progress_token) else { return };
        let progress = call.progress.clone();
        let is_late = report.progress < call.reached;
        call.reached = call.reached.max(report.progress);
        drop(running);
        progress.report((!is_late).then(|| message(&report)));
    }

    fn running(&self) -> MutexGuard<'_, HashMap<ProgressToken, Running>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.calls.running().remove(&self.token);
        self.calls.use_now();
    }
}

/// Returns the message of a progress report, or its numbers.
fn message(report: &ProgressNotificationParam) -> String {
    let numbers = || match report.total {
        Some(total) => format!("{} of {total}", report.progress),
        None => format!("{}", report.progress),
    };
    let text = report.message.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let text = text.map_or_else(numbers, str::to_owned);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(PROGRESS_CHARS_MAX).collect()
}

/// The client's end of a connection.
pub(super) struct Client {
    pub(super) calls: Calls,
    /// Notified when the server says that its list has changed.
    pub(super) list_changed: Arc<Notify>,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let software = Implementation::new("reseed", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), software).with_protocol_version(ProtocolVersion::LATEST)
    }

    async fn on_progress(&self, report: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.calls.report(report).await;
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.list_changed.notify_one();
    }

    #[expect(deprecated, reason = "older servers ask for roots, and are refused")]
    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "this client has no roots", None))
    }
}
