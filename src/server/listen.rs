//! Accepts connections, and closes them when the server stops.

use super::{app::App, linger::Lingering};
use axum::{Router, extract::ConnectInfo};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

/// Most headers of a request; browsers send about 20.
const HEADERS_MAX: usize = 64;

/// Pause after a failed accept, for instance without free file descriptors, so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bytes that the kernel buffers for one connection beyond what it can send. By default it buffers megabytes, which a
/// slow reader would have to read before it gets to current events.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES_MAX: u32 = 4 * 1024;

/// A running server.
#[derive(Debug)]
pub(crate) struct Running {
    /// The address it listens on.
    pub address: SocketAddr,
    stop: CancellationToken,
    connections: TaskTracker,
}

/// Serves on a listener until [`Running::stop`].
///
/// # Errors
/// The listener has no address.
pub(crate) fn serve(listener: TcpListener, app: Arc<App>) -> io::Result<Running> {
    let address = listener.local_addr()?;
    let running = Running { address, stop: app.stop.clone(), connections: app.connections.clone() };
    let router = super::app::router(app.clone());
    let connections = app.connections.clone();
    connections.spawn(accept(listener, app, router));
    Ok(running)
}

async fn accept(listener: TcpListener, app: Arc<App>, router: Router) {
    loop {
        let accepted = tokio::select! {
            () = app.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                app.connections.spawn(connection(stream, peer, router.clone(), app.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, router: Router, app: Arc<App>) {
    // Deltas are small, and each should be sent at once.
    let _ = stream.set_nodelay(true);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request = request.map(axum::body::Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().oneshot(request)
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        // Disconnects clients that send no request, or half of one.
        .header_read_timeout(app.patience.hello)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(Lingering::new(stream, app.clone())), service)
        .with_upgrades();
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        // HTTP errors are the client's; hyper has already answered what can be answered.
        _ = serving.as_mut() => {}
        () = app.stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            let _ = serving.await;
        }
    }
}

impl Running {
    /// Stops accepting connections, asks the existing ones to close with 1012, and waits at most `grace` for them.
    pub(crate) async fn stop(&self, grace: Duration) {
        self.stop.cancel();
        self.connections.close();
        if tokio::time::timeout(grace, self.connections.wait()).await.is_err() {
            tracing::warn!(connections = self.connections.len(), "some connections did not close in time");
        }
    }
}
