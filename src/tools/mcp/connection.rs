//! One connection to a server: establishes it, lists tools over it, and calls them.
//!
//! Invariants:
//! - A call is sent at most once. A lost call is reported, never repeated.
//! - Dropping a call tells the server that it is cancelled.
//! - Only a program that was started here and asks for session ids gets them.

use super::{
    MESSAGE_BYTES_MAX,
    client::{Calls, Client},
    fault::{CallFault, Down, not_listed, not_up, of_call},
    file::{Address, Link, Spec},
    http::Http,
    line::Messages,
    outcome::output,
    process::Process,
    sessions,
    variables::Secrets,
};
use crate::{
    tools::{Output, Progress},
    trace,
};
use futures_util::{FutureExt as _, future::BoxFuture};
use reseed_protocol::{SessionId, tools::ToolServerFailure as Failure};
use rmcp::{
    Peer, RoleClient,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotification, CancelledNotificationParam,
        ClientRequest, ErrorCode, JsonObject, PaginatedRequestParams, ProtocolVersion, RequestId, ServerResult,
        SubscriptionFilter, Tool,
    },
    service::{
        ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, PeerRequestOptions, RunningService,
        ServiceError, Subscription,
    },
    transport::{
        StreamableHttpClientTransport, async_rw::AsyncRwTransport, common::client_side_sse::ExponentialBackoff,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::AsyncRead,
    sync::{Notify, OwnedSemaphorePermit},
    time::{Instant, timeout},
};

/// Maximum attempts to resume a broken response stream. A restarted server has forgotten it.
const RESUMPTIONS_MAX: usize = 3;

/// Maximum pages of a list. Tools beyond the number that can be offered are not fetched.
const PAGES_MAX: usize = 64;

/// Maximum number of tools read from a list. More are read than offered, because the first by name are offered.
const LISTED_MAX: usize = 2_000;

/// The time limit for a server to accept a cancellation. A server that does not read for this long hangs, and is
/// restarted.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

/// A server that has come up.
pub(super) struct Up {
    pub(super) running: RunningService<RoleClient, Client>,
    pub(super) process: Option<Process>,
    pub(super) connection: Arc<Connection>,
    pub(super) list_changed: Arc<Notify>,
    pub(super) tools: Tools,
}

/// The tools that a server lists.
pub(super) struct Tools {
    pub(super) tools: Vec<Tool>,
    /// The number of tools that were read. There may be more.
    pub(super) read: usize,
}

/// The means to call a server that is up.
pub(super) struct Connection {
    peer: Peer<RoleClient>,
    calls: Calls,
    /// Notified when a call finds the connection unusable.
    pub(super) lost: Arc<Notify>,
    /// True once the server has answered a call.
    answered: AtomicBool,
    /// False for an address: ids of sessions stay on this machine.
    is_program: bool,
}

/// A connection that is being established.
pub(super) struct Opening {
    serving: BoxFuture<'static, Result<RunningService<RoleClient, Client>, ClientInitializeError>>,
    pub(super) process: Option<Process>,
    calls: Calls,
    list_changed: Arc<Notify>,
    is_program: bool,
}

impl Opening {
    /// Starts to connect. It asks the server which revision of MCP it speaks, and falls back to the older handshake; or
    /// it uses only the older handshake.
    ///
    /// # Errors
    /// The program cannot be started, or there is no HTTP client.
    pub(super) fn begin(spec: &Spec, is_older: bool) -> Result<Self, Down> {
        let mode = match is_older {
            true => ClientLifecycleMode::Initialize,
            false => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::LATEST],
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
        };
        let (calls, list_changed) = (Calls::new(), Arc::new(Notify::new()));
        let client = Client { calls: calls.clone(), list_changed: list_changed.clone() };
        let (serving, process) = match &spec.link {
            Link::Stdio(program) => {
                let (process, output, input) = Process::start(program).map_err(|error| {
                    Down::new(
                        Failure::CannotStart,
                        format!("cannot be started: `{}`: {}", spec.secrets.mask(&program.shown), error.kind()),
                    )
                })?;
                let lines = lines(output, input);
                (client.serve_with_lifecycle(lines, mode).boxed(), Some(process))
            }
            Link::Http(address) => {
                let transport = http(address).map_err(|why| Down::new(Failure::CannotStart, why))?;
                (client.serve_with_lifecycle(transport, mode).boxed(), None)
            }
            #[cfg(test)]
            Link::Scripted(connect) => {
                let (output, input) = tokio::io::split(connect());
                let lines = lines(output, input);
                (client.serve_with_lifecycle(lines, mode).boxed(), None)
            }
        };
        let is_program = !matches!(spec.link, Link::Http(_));
        Ok(Self { serving, process, calls, list_changed, is_program })
    }

    /// Connects and lists the tools. The caller keeps the process, and ends it after a failure.
    pub(super) async fn finish(
        &mut self,
        secrets: &Secrets,
    ) -> Result<(RunningService<RoleClient, Client>, Tools), Down> {
        let running = (&mut self.serving).await.map_err(|error| not_up(&error, secrets))?;
        let tools = list(running.peer(), secrets).await;
        let tools = tools.map_err(|why| Down::new(Failure::WrongAnswer, why))?;
        Ok((running, tools))
    }

    /// Makes a connection from the result of [`Self::finish`].
    pub(super) fn up(self, (running, tools): (RunningService<RoleClient, Client>, Tools)) -> Up {
        let connection = Connection {
            peer: running.peer().clone(),
            calls: self.calls,
            lost: Arc::new(Notify::new()),
            answered: AtomicBool::new(false),
            is_program: self.is_program,
        };
        Up { running, process: self.process, connection: Arc::new(connection), list_changed: self.list_changed, tools }
    }

    /// Gives up: closes the server's input and returns its process.
    pub(super) fn abandon(self) -> Option<Process> {
        self.process
    }
}

/// Returns a transport that sends each message as a line.
fn lines<R, W>(output: R, input: W) -> AsyncRwTransport<RoleClient, Messages<R>, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    AsyncRwTransport::new(Messages::new(output), input).with_max_line_length(MESSAGE_BYTES_MAX)
}

/// Returns a transport over HTTP.
fn http(address: &Address) -> Result<StreamableHttpClientTransport<Http>, &'static str> {
    let client = Http::new(address)?;
    let mut retry = ExponentialBackoff::default();
    retry.max_times = Some(RESUMPTIONS_MAX);
    retry.base_duration = Duration::from_millis(100);
    retry.max_delay = Some(Duration::from_secs(1));
    let headers = address.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let mut config = StreamableHttpClientTransportConfig::with_uri(address.url.as_str())
        .custom_headers(headers)
        // If a server forgot the session, a new connection is made and its tools are listed again.
        .reinit_on_expired_session(false);
    config.retry_config = Arc::new(retry);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// Lists a server's tools.
pub(super) async fn list(peer: &Peer<RoleClient>, secrets: &Secrets) -> Result<Tools, String> {
    let mut tools = Vec::new();
    if peer.peer_info().is_some_and(|info| info.capabilities.tools.is_none()) {
        return Ok(Tools { tools, read: 0 });
    }
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES_MAX {
        let page = PaginatedRequestParams::default().with_cursor(cursor.clone());
        let listed = peer.list_tools(Some(page)).await.map_err(|error| not_listed(&error, secrets))?;
        tools.extend(listed.tools);
        // If a server names the same page again, there are no more.
        let next = listed.next_cursor.filter(|next| !next.is_empty() && cursor.as_ref() != Some(next));
        if next.is_none() || tools.len() >= LISTED_MAX {
            break;
        }
        cursor = next;
    }
    let read = tools.len();
    tools.truncate(LISTED_MAX);
    Ok(Tools { tools, read })
}

impl Connection {
    /// Returns the negotiated revision, and the server's name and version, for the operator.
    pub(super) fn about(&self) -> (Option<String>, Option<String>) {
        let Some(info) = self.peer.peer_info() else { return (None, None) };
        let software = info.server_info.as_ref().map(|software| {
            let text = format!("{} {}", software.name, software.version);
            text.chars().filter(|c| !c.is_control()).take(100).collect()
        });
        (Some(info.protocol_version.as_str().chars().take(32).collect()), software)
    }

    /// Subscribes to changes of the list, as servers of the newest revision require. Older servers notify every client.
    pub(super) async fn subscribe(&self) -> Option<Subscription> {
        let info = self.peer.peer_info()?;
        let tells = info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true));
        if info.protocol_version.has_initialize() || !tells {
            return None;
        }
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        self.peer.listen(filter).await.ok()
    }

    /// Returns since when the connection has been idle; the current time if a call is running.
    pub(super) fn idle_since(&self) -> Instant {
        self.calls.idle_since()
    }

    /// Returns the peer for requests other than calls.
    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    /// Returns true if the server has answered a call.
    pub(super) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Returns true if the server keeps something for each session, and may learn of them.
    pub(super) fn keeps_sessions(&self) -> bool {
        let info = self.peer.peer_info().filter(|_| self.is_program);
        info.is_some_and(|info| sessions::are_wanted(info.capabilities.experimental.as_ref()))
    }

    /// Returns the sessions that the server keeps something for; none if it has no such method.
    ///
    /// # Errors
    /// It answered with an error, or not in time.
    pub(super) async fn kept_sessions(&self) -> Result<Vec<SessionId>, String> {
        let asked = self.peer.send_request(ClientRequest::CustomRequest(sessions::list()));
        match timeout(CANCEL_TIMEOUT, asked).await {
            Ok(Ok(ServerResult::CustomResult(answer))) => Ok(sessions::listed(&answer.0)),
            Ok(Err(ServiceError::McpError(error))) if error.code == ErrorCode::METHOD_NOT_FOUND => Ok(Vec::new()),
            Ok(Err(error)) => Err(error.to_string()),
            Ok(Ok(_)) => Err("it answered with something else".to_owned()),
            Err(_) => Err(format!("it did not answer within {} s", CANCEL_TIMEOUT.as_secs_f32())),
        }
    }

    /// Notifies the server that a session was deleted. Returns false if it did not accept the notification.
    pub(super) async fn session_deleted(&self, session: &SessionId) -> bool {
        let sent = self.peer.send_notification(sessions::deleted(session).into());
        matches!(timeout(CANCEL_TIMEOUT, sent).await, Ok(Ok(())))
    }

    /// Calls a tool by the server's own name for it.
    pub(super) async fn call(
        &self,
        tool: &str,
        session: &SessionId,
        arguments: JsonObject,
        progress: Progress,
        permit: OwnedSemaphorePermit,
        secrets: &Secrets,
    ) -> Result<Output, CallFault> {
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        params.meta = self.keeps_sessions().then(|| sessions::meta(session));
        for (name, value) in trace::current().iter().flat_map(trace::fields) {
            params.meta.get_or_insert_default().0.0.insert(name.to_owned(), value.into());
        }
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let held = self.calls.hold().await;
        let sent = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        // Nothing has been written yet.
        let handle = sent.map_err(|_| CallFault::NotSent("closed the connection".to_owned()))?;
        let entered = self.calls.enter(handle.progress_token.clone(), progress);
        drop(held);
        let mut cancelling =
            Cancelling { open: Some((self.peer.clone(), handle.id.clone(), permit)), lost: self.lost.clone() };
        let answer = handle.await_response().await;
        cancelling.open = None;
        drop(entered);
        let answer = answer.map_err(|error| of_call(&error, secrets));
        if matches!(answer, Ok(_) | Err(CallFault::Refused(_))) {
            self.answered.store(true, Ordering::Relaxed);
        }
        match answer? {
            ServerResult::CallToolResult(result) => Ok(output(result)),
            ServerResult::EmptyResult(_) => Ok(output(CallToolResult::default())),
            ServerResult::InputRequiredResult(_) => Err(CallFault::Refused(
                "asks for input from a person or a model in the middle of the call, which is not supported".to_owned(),
            )),
            ServerResult::CreateTaskResult(_) => {
                Err(CallFault::Refused("made a task of the call, which is not supported".to_owned()))
            }
            _ => Err(CallFault::Refused("gave an answer that is not MCP's".to_owned())),
        }
    }
}

/// Tells the server that a call is cancelled, if it is dropped before the answer. The call's permit is released when
/// the server has accepted the cancellation, so that calls do not pile up at a server that reads nothing.
struct Cancelling {
    open: Option<(Peer<RoleClient>, RequestId, OwnedSemaphorePermit)>,
    lost: Arc<Notify>,
}

impl Drop for Cancelling {
    fn drop(&mut self) {
        let Some((peer, id, permit)) = self.open.take() else { return };
        // Without a runtime, the connection is gone as well.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let lost = self.lost.clone();
        runtime.spawn(async move {
            let reason = Some("the call was cancelled".to_owned());
            let news = CancelledNotification::new(CancelledNotificationParam::new(Some(id), reason));
            if timeout(CANCEL_TIMEOUT, peer.send_notification(news.into())).await.is_err() {
                lost.notify_one();
            }
            drop(permit);
        });
    }
}
