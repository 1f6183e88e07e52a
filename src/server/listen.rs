//! Accepts connections, and closes them when the server stops.

use super::{
    app::App,
    closing::CLOSE_TIME,
    connection::leaving::{LEAVING_TIME, LOOK_EVERY},
    door::turns::Turns,
    linger::Lingering,
    stopping::Stopping,
};
use axum::{
    Router,
    body::{Body, HttpBody as _},
    extract::ConnectInfo,
};
use futures_util::{StreamExt as _, stream};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
};
use tower::ServiceExt as _;

/// Maximum headers of a request. Browsers send about 20.
const HEADERS_MAX: usize = 64;

/// The pause after a failed accept, for example without free file descriptors, so that the loop does not spin. It
/// doubles with each failure in a row, up to the maximum.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The interval between log lines about failed accepts.
const ACCEPT_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// A running server.
#[derive(Debug)]
pub(crate) struct Running {
    pub address: SocketAddr,
    stopping: Stopping,
}

/// Serves on a listener until [`Running::stop`].
///
/// # Errors
/// The listener has no address.
pub(crate) fn serve(listener: TcpListener, app: Arc<App>) -> io::Result<Running> {
    let address = listener.local_addr()?;
    let stopping = app.stopping.clone();
    let router = super::routes::router(app.clone());
    stopping.connections.spawn(accept(listener, app, router));
    Ok(Running { address, stopping })
}

async fn accept(listener: TcpListener, app: Arc<App>, router: Router) {
    let mut failures = Failures::default();
    let turns = Turns::new(Handle::current().metrics().num_workers());
    loop {
        // Connections that were already accepted come first.
        turns.wait(std::future::ready(())).await;
        let accepted = tokio::select! {
            () = app.stopping.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                failures.in_a_row = 0;
                app.stopping.connections.spawn(turns.wait(connection(stream, peer, router.clone(), app.clone())));
            }
            Err(error) => {
                let pause = failures.failed(&error, Instant::now());
                tokio::select! {
                    () = app.stopping.stop.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
    }
}

/// Failed accepts.
#[derive(Default)]
struct Failures {
    in_a_row: u32,
    /// Failures that have not been logged yet.
    unreported: u64,
    reported_at: Option<Instant>,
}

impl Failures {
    /// Records a failure, and logs it unless the last line is recent. Returns how long to wait.
    fn failed(&mut self, error: &io::Error, now: Instant) -> Duration {
        self.unreported += 1;
        if self.reported_at.is_none_or(|reported_at| now.saturating_duration_since(reported_at) >= ACCEPT_LOG_INTERVAL)
        {
            tracing::warn!(%error, failures = self.unreported, "accept a connection; check the limit on open files");
            self.reported_at = Some(now);
            self.unreported = 0;
        }
        let pause = ACCEPT_PAUSE.saturating_mul(2_u32.saturating_pow(self.in_a_row.min(16)));
        self.in_a_row += 1;
        pause.min(ACCEPT_PAUSE_MAX)
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, router: Router, app: Arc<App>) {
    super::tcp::tune(&stream);
    let guest = app.admission.door.admit(peer.ip());
    let stream = Lingering::new(stream, app.clone(), guest.clone());
    let app_of = app.clone();
    let patience = app.patience.hello;
    let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request = request.map(|body| in_time(body, patience));
        let client = app_of.admission.addresses.client(peer, request.headers());
        request.extensions_mut().insert(ConnectInfo(SocketAddr::new(client, peer.port())));
        request.extensions_mut().insert(guest.clone());
        router.clone().oneshot(request)
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        // Disconnects clients that send no request, or an incomplete one.
        .header_read_timeout(app.patience.hello)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        // HTTP errors are the client's fault, and hyper has already answered where it could.
        _ = serving.as_mut() => {}
        () = app.stopping.stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            let _ = serving.await;
        }
    }
}

/// Returns a body that must arrive within this time. A connection with an incomplete request is of no use.
fn in_time(body: hyper::body::Incoming, patience: Duration) -> Body {
    let body = Body::new(body);
    if body.is_end_stream() {
        return body;
    }
    let deadline = tokio::time::Instant::now() + patience;
    Body::from_stream(stream::unfold(Some(body.into_data_stream()), move |parts| async move {
        let mut parts = parts?;
        match tokio::time::timeout_at(deadline, parts.next()).await {
            Ok(part) => Some((part?, Some(parts))),
            Err(late) => Some((Err(axum::Error::new(late)), None)),
        }
    }))
}

impl Running {
    /// Sends clients to other servers. Each connection is closed with 1012 once nothing runs here for its client. The
    /// times are spread out. New connections are refused.
    pub(crate) fn send_away(&self) {
        self.stopping.leave.cancel();
    }

    /// Waits until all connections have left after [`Running::send_away`], up to the time limit for leaving.
    pub(crate) async fn all_away(&self) {
        let gone = async {
            while self.stopping.connection_count() > 0 {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        // Idle connections of load balancers stay open.
        let _ = tokio::time::timeout(LEAVING_TIME + CLOSE_TIME, gone).await;
    }

    /// Stops accepting connections, asks the existing ones to close with 1012, and waits for them for at most `grace`.
    pub(crate) async fn stop(&self, grace: Duration) {
        self.stopping.leave.cancel();
        self.stopping.stop.cancel();
        self.stopping.connections.close();
        if tokio::time::timeout(grace, self.stopping.connections.wait()).await.is_err() {
            tracing::warn!(connections = self.stopping.connections.len(), "some connections did not close in time");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_accepts_pause_longer_and_longer_and_are_logged_now_and_then() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        let error = io::Error::other("no free file descriptor");
        let pauses: Vec<u128> = (0..8).map(|_| failures.failed(&error, start).as_millis()).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(failures.unreported, 7, "one line for all of them");
        failures.failed(&error, start + ACCEPT_LOG_INTERVAL);
        assert_eq!(failures.unreported, 0);
    }
}
