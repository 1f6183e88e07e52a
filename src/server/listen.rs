//! Accepts connections, and lets go of them when the server stops.

use super::{app::App, linger::Lingering};
use axum::{Router, extract::ConnectInfo};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

/// Headers a request may have; browsers send about 20.
const HEADERS_MAX: usize = 64;

/// Pause after the system could not accept, out of file descriptors for instance, so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bytes that the kernel takes for one connection beyond what it can send. By its own measure it takes megabytes, which a
/// slow reader would have to read through before it got to what is said now.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES_MAX: u32 = 4 * 1024;

/// A server at work.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    stop: CancellationToken,
    connections: TaskTracker,
}

/// Serves on a listener until [`Running::stop`].
///
/// # Errors
/// The listener has no address.
pub fn serve(listener: TcpListener, app: Arc<App>) -> io::Result<Running> {
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
    // Deltas are small and each should leave at once.
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
        // Whoever connects and sends no request, or half of one, is let go.
        .header_read_timeout(app.patience.hello)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(Lingering::new(stream, app.clone())), service)
        .with_upgrades();
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        // Faults of a client's HTTP are the client's; hyper has answered what can be answered.
        _ = serving.as_mut() => {}
        () = app.stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            let _ = serving.await;
        }
    }
}

impl Running {
    /// Accepts no more connections, asks those there are to close with 1012, and waits at most `grace` for them.
    pub async fn stop(&self, grace: Duration) {
        self.stop.cancel();
        self.connections.close();
        if tokio::time::timeout(grace, self.connections.wait()).await.is_err() {
            tracing::warn!(connections = self.connections.len(), "connections did not close in time");
        }
    }
}
