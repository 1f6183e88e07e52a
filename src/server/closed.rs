//! The door while the server cannot take sessions yet: whoever connects is told why.

use super::operator;
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tower::ServiceExt as _;

/// Connections at a time; each asks one thing, and more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 64;
/// Longest time for a connection.
const CONNECTION_TIME: Duration = Duration::from_secs(5);
/// Seconds after which a client is asked to try again.
const RETRY_SECS: u64 = 5;

/// Answers with the reason: `/healthz` that the process runs, `/readyz` and everything else, sockets included, with
/// 503.
#[derive(Debug, Clone, Default)]
pub(crate) struct Closed {
    reason: Arc<Mutex<String>>,
}

impl Closed {
    /// Sets the reason, which anyone can read.
    pub(crate) fn because(&self, reason: String) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Answers whoever connects, until it is dropped.
    pub(crate) async fn answer(&self, listener: &TcpListener) -> Infallible {
        let router = Router::new().route("/healthz", get(operator::healthz)).fallback(refuse).with_state(self.clone());
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let place = places.clone().acquire_owned().await.expect("nobody closes it");
            match listener.accept().await {
                Ok((stream, _)) => {
                    let router = router.clone();
                    tokio::spawn(async move {
                        // Errors are the client's, and a slow one is left.
                        let _ = timeout(CONNECTION_TIME, serve(stream, router)).await;
                        drop(place);
                    });
                }
                // Without free file descriptors, for instance.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

async fn refuse(State(closed): State<Closed>) -> Response {
    let reason = closed.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // A browser asks again by itself.
    let again = [(header::RETRY_AFTER, RETRY_SECS.to_string()), (header::REFRESH, RETRY_SECS.to_string())];
    (StatusCode::SERVICE_UNAVAILABLE, again, reason + "\n").into_response()
}

async fn serve(stream: TcpStream, router: Router) -> hyper::Result<()> {
    let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        router.clone().oneshot(request.map(axum::body::Body::new))
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        // Once the server is ready, whoever comes back reaches it.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}
