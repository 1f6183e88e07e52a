//! The task that keeps one server up. It starts and watches the server, lists its tools again when they change,
//! restarts it with backoff, and ends it.

use super::{GONE_FAILURES, Server, Stage};
use crate::tools::mcp::{
    connection::{Opening, Tools, Up, list},
    fault::Down,
    listing::{Listing, listing},
    process::Process,
};
use futures_util::{FutureExt as _, future::FusedFuture as _};
use reseed_protocol::tools::ToolServerFailure as Failure;
use rmcp::service::Subscription;
use std::{
    future::pending,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};

/// The upper bound of the first wait, which doubles with each failure. The wait is a random part of the bound, so that
/// servers that failed together do not start together.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The maximum of that bound.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The minimum wait before a start that a call requests.
const CALLED_WAIT: Duration = Duration::from_millis(500);

/// How long a server must stay up to count as recovered, even if nobody called it.
const STEADY: Duration = Duration::from_secs(60);

/// The minimum time between two lists of a server that continually reports changes.
const LIST_INTERVAL: Duration = Duration::from_secs(1);

/// The time limit for subscribing to changes of the list. Without a subscription, the list stays unchanged.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit for the output of an ended process to close, if another process still holds it.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// The time limit for a connection to close. Over HTTP, this ends the session at the server.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// The time limit for a process that closed its output to end, so that its status can be reported.
const STATUS_TIMEOUT: Duration = Duration::from_millis(500);

/// The time limit for a server to end before it is started with its new entry. This exceeds the time for closing its
/// connection and ending its process.
const BEFORE_TIMEOUT: Duration = Duration::from_secs(20);

/// Becomes true when the server should end.
pub(in super::super) type Closing = watch::Receiver<bool>;

/// Waits until the server should end.
async fn closed(closing: &mut Closing) {
    // Without a sender, everything has ended.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// The reason why a connection ended.
enum End {
    Closing,
    /// It was idle for too long.
    Idle,
    Lost(Failure, String),
}

impl Server {
    /// Like [`Self::keep`], but waits until the previous server has ended, because both may need the same port or file.
    pub(in super::super) async fn keep_after(self: Arc<Self>, before: Arc<Self>, closing: Closing) {
        // Each server ends within its own limits. If it does not, the wait still ends.
        let _ = timeout(BEFORE_TIMEOUT, before.ended()).await;
        drop(before);
        if *closing.borrow() {
            // It was replaced or removed in the meantime, so its program need not even start.
            self.end();
            self.tried.send_replace(true);
            return;
        }
        self.keep(closing).await;
    }

    /// Keeps the server up until `closing` becomes true.
    pub(in super::super) async fn keep(self: Arc<Self>, mut closing: Closing) {
        let mut failures = 0;
        loop {
            self.enter(Stage::Starting);
            let (failure, why) = match self.start(&mut closing).await {
                Ok(None) => break,
                Ok(Some(up)) => {
                    let began = Instant::now();
                    let connection = up.connection.clone();
                    self.failed_starts.store(0, Ordering::Relaxed);
                    self.enter(Stage::Ready(connection.clone()));
                    self.tried.send_replace(true);
                    let reconciled = async {
                        self.reconcile(&connection).await;
                        pending().await
                    };
                    let end = tokio::select! {
                        end = self.watch(up, &mut closing) => end,
                        end = reconciled => end,
                    };
                    if connection.has_answered() || began.elapsed() > STEADY {
                        failures = 0;
                    }
                    match end {
                        End::Closing => break,
                        End::Idle => {
                            tracing::info!(server = %self.spec.name, "the MCP server was stopped because it was idle");
                            self.enter(Stage::Idle);
                            tokio::select! {
                                () = self.wake.notified() => continue,
                                () = closed(&mut closing) => break,
                            }
                        }
                        End::Lost(failure, why) => (failure, why),
                    }
                }
                Err(down) => {
                    self.failed_starts.fetch_add(1, Ordering::Relaxed);
                    (down.class, down.why)
                }
            };
            failures += 1;
            let wait = wait(failures);
            self.failed(failure, &why, failures, wait);
            self.enter(Stage::Waiting(why.into()));
            self.tried.send_replace(true);
            let wanted = async {
                let earliest = Instant::now() + CALLED_WAIT;
                self.wake.notified().await;
                sleep_until(earliest).await;
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = wanted => {}
                () = closed(&mut closing) => break,
            }
        }
        self.end();
        self.tried.send_replace(true);
    }

    /// Ends the server for good. Its tools and the server refer to each other, so neither they nor its secrets would be
    /// dropped otherwise.
    fn end(&self) {
        self.enter(Stage::Closed);
        self.known().tools.clear();
    }

    fn enter(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    /// Records a failure, and withdraws the tools after too many.
    fn failed(self: &Arc<Self>, failure: Failure, why: &str, failures: u32, wait: Duration) {
        self.known().failure = Some(failure);
        let is_news = self.known().error.replace(why.to_owned()).as_deref() != Some(why) || failures == 1;
        let name = &self.spec.name;
        if is_news {
            tracing::warn!(server = %name, "the MCP server {why}; it is tried again in {} ms", wait.as_millis());
        }
        if failures == GONE_FAILURES && self.publish(Listing::default()) {
            tracing::warn!(server = %name, "the MCP server failed {failures} times; its tools are no longer offered");
        }
    }

    /// Starts the server and lists its tools. Uses the older handshake if the newer one is not understood. `None` means
    /// that the server should end.
    async fn start(self: &Arc<Self>, closing: &mut Closing) -> Result<Option<Up>, Down> {
        let deadline = Instant::now() + self.spec.startup;
        let newer = self.start_by(false, deadline, closing).await;
        let started = match newer {
            Err(Down { try_older: true, .. }) => self.start_by(true, deadline, closing).await,
            started => started,
        };
        let Some(up) = started? else { return Ok(None) };
        let listing = self.listing(&up.tools);
        let (protocol, software) = up.connection.about();
        let mut known = self.known();
        (known.protocol, known.software) = (protocol.clone(), software.clone());
        known.keeps_sessions = up.connection.keeps_sessions();
        known.starts += 1;
        (known.error, known.failure) = (None, None);
        drop(known);
        tracing::info!(
            server = %self.spec.name, protocol, software,
            tools = listing.offers.len(), left_out = listing.left_out.len(),
            "the MCP server is up"
        );
        self.publish(listing);
        Ok(Some(up))
    }

    fn listing(&self, tools: &Tools) -> Listing {
        listing(&self.spec, tools.tools.clone(), tools.read)
    }

    async fn start_by(&self, is_older: bool, deadline: Instant, closing: &mut Closing) -> Result<Option<Up>, Down> {
        let mut opening = Opening::begin(&self.spec, is_older)?;
        if let Some(process) = &opening.process {
            self.known().stderr = Some(process.stderr());
        }
        let finished = tokio::select! {
            biased;
            () = closed(closing) => None,
            finished = timeout_at(deadline, opening.finish(&self.spec.secrets)) => Some(finished),
        };
        let is_late = matches!(finished, Some(Err(_)));
        let down = match finished {
            Some(Ok(Ok(finished))) => return Ok(Some(opening.up(finished))),
            Some(Ok(Err(down))) => Some(down),
            Some(Err(_)) => {
                Some(Down::new(Failure::Timeout, format!("did not come up within {} s", self.spec.startup.as_secs())))
            }
            None => None,
        };
        let mut process = opening.abandon();
        let mut down = down;
        // Its exit status is reported, unless it ended only because its input was just closed.
        if let (Some(down), Some(process)) = (&mut down, &mut process)
            && !is_late
            && let Ok(how) = timeout(STATUS_TIMEOUT, process.ended()).await
        {
            (down.why, down.class) = (format!("{how} before it answered"), Failure::Ended);
        }
        if let Some(process) = process {
            process.end().await;
        }
        down.map_or(Ok(None), Err)
    }

    /// Watches a server that is up until its connection ends, and then ends its process.
    async fn watch(self: &Arc<Self>, up: Up, closing: &mut Closing) -> End {
        let Up { running, mut process, connection, list_changed, .. } = up;
        let cancel = running.cancellation_token();
        let mut running = std::pin::pin!(running.waiting().fuse());
        let mut subscription = tokio::select! {
            biased;
            () = closed(closing) => None,
            subscription = timeout(SUBSCRIBE_TIMEOUT, connection.subscribe()) => subscription.ok().flatten(),
        };
        let mut next_list = Instant::now();
        let end = loop {
            // If a call is running, this is checked again after the whole idle time.
            let idle = self.spec.idle.map(|idle| connection.idle_since() + idle);
            tokio::select! {
                biased;
                () = closed(closing) => break End::Closing,
                _ = &mut running => break lost(process.as_mut()).await,
                how = ended(process.as_mut()) => {
                    // Its last output is still read.
                    let _ = timeout(OUTPUT_GRACE, &mut running).await;
                    break End::Lost(Failure::Ended, how);
                }
                () = connection.lost.notified() => {
                    break End::Lost(Failure::Disconnected, "lost its connection".to_owned());
                }
                () = list_changed.notified() => {}
                () = next(&mut subscription) => {}
                () = at(idle) => {
                    if self.spec.idle.is_some_and(|idle| connection.idle_since().elapsed() >= idle) {
                        break End::Idle;
                    }
                    continue;
                }
            }
            // The list has changed.
            let relist = async {
                sleep_until(next_list).await;
                timeout(self.spec.startup, list(connection.peer(), &self.spec.secrets)).await
            };
            tokio::select! {
                biased;
                () = closed(closing) => break End::Closing,
                relisted = relist => match relisted {
                    Ok(Ok(tools)) => {
                        let listing = self.listing(&tools);
                        let tools = listing.offers.len();
                        if self.publish(listing) {
                            tracing::info!(server = %self.spec.name, tools, "the MCP server's tools have changed");
                        }
                    }
                    Ok(Err(why)) => tracing::warn!(server = %self.spec.name, "the MCP server {why}; its tools stay"),
                    Err(_) => {
                        tracing::warn!(server = %self.spec.name, "the MCP server did not list its tools; the earlier ones stay");
                    }
                },
            }
            next_list = Instant::now() + LIST_INTERVAL;
        };
        // From here on, calls wait for the next connection.
        self.enter(Stage::Starting);
        drop(subscription);
        cancel.cancel();
        if !running.is_terminated() {
            let _ = timeout(CLOSE_TIMEOUT, &mut running).await;
        }
        if let Some(process) = process {
            process.end().await;
        }
        end
    }
}

/// Returns the reason why a connection closed by itself.
async fn lost(process: Option<&mut Process>) -> End {
    match timeout(STATUS_TIMEOUT, ended(process)).await {
        Ok(how) => End::Lost(Failure::Ended, how),
        Err(_) => End::Lost(Failure::Disconnected, "closed the connection".to_owned()),
    }
}

/// Waits for the end of a process and describes it; indefinitely without a process.
async fn ended(process: Option<&mut Process>) -> String {
    match process {
        Some(process) => process.ended().await,
        None => pending().await,
    }
}

/// Waits for a change of the list; indefinitely without a subscription.
async fn next(subscription: &mut Option<Subscription>) {
    match subscription {
        Some(open) => {
            if !matches!(open.next().await, Ok(Some(_))) {
                *subscription = None;
            }
        }
        None => pending().await,
    }
}

/// Waits until this time; indefinitely without one.
fn at(time: Option<Instant>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    match time {
        Some(time) => Box::pin(sleep_until(time)),
        None => Box::pin(pending()),
    }
}

/// Returns the wait after this many failures in a row.
fn wait(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let bound = (FIRST_WAIT * 2u32.pow(doublings)).min(WAIT_MAX);
    bound.mul_f64(fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::{FIRST_WAIT, WAIT_MAX, wait};

    #[test]
    fn waits_grow_and_are_bounded() {
        for failures in [1, 2, 3, 8, 20, u32::MAX] {
            let bound = (FIRST_WAIT * 2u32.pow(failures.min(10) - 1)).min(WAIT_MAX);
            assert!((0..100).all(|_| wait(failures) <= bound), "{failures}");
        }
        assert!((0..100).any(|_| wait(20) > WAIT_MAX / 2));
    }
}
