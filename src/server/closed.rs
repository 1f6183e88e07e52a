//! Answers connections with the reason while the server cannot take sessions yet.

use super::{operator, tls::Tls};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use futures_util::future::select_all;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    convert::Infallible,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_util::either::Either;
use tower::ServiceExt as _;

/// Maximum connections at a time. Each makes one request, and more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 64;
/// Maximum time for a connection.
const CONNECTION_TIME: Duration = Duration::from_secs(5);
/// The `Retry-After` time, in seconds.
const RETRY_SECS: u64 = 5;

/// Answers requests with the reason. `/healthz` reports that the process runs. Everything else, including `/readyz` and
/// sockets, gets 503.
#[derive(Debug, Clone, Default)]
pub(crate) struct Closed {
    reason: Arc<Mutex<String>>,
    tls: Option<Arc<Tls>>,
}

impl Closed {
    pub(crate) fn new(tls: Option<Arc<Tls>>) -> Self {
        Self { tls, ..Self::default() }
    }

    /// Sets the reason, which is public.
    pub(crate) fn because(&self, reason: String) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Answers connections until it is dropped.
    pub(crate) async fn answer(&self, listeners: &[TcpListener]) -> Infallible {
        let router = Router::new().route("/healthz", get(operator::healthz)).fallback(refuse).with_state(self.clone());
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let place = places.clone().acquire_owned().await.expect("nobody closes it");
            match select_all(listeners.iter().map(|listener| Box::pin(listener.accept()))).await.0 {
                Ok((stream, _)) => {
                    let (router, tls) = (router.clone(), self.tls.clone());
                    tokio::spawn(async move {
                        // Errors are the client's fault, and a slow client is abandoned.
                        let _ = timeout(CONNECTION_TIME, serve(stream, tls, router)).await;
                        drop(place);
                    });
                }
                // For example, there are no free file descriptors.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

async fn refuse(State(closed): State<Closed>) -> Response {
    let reason = closed.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // Makes a browser retry by itself.
    let again = [(header::RETRY_AFTER, RETRY_SECS.to_string()), (header::REFRESH, RETRY_SECS.to_string())];
    (StatusCode::SERVICE_UNAVAILABLE, again, reason + "\n").into_response()
}

async fn serve(stream: TcpStream, tls: Option<Arc<Tls>>, router: Router) -> io::Result<()> {
    let stream = match tls {
        Some(tls) => tls.handshake(stream).await?,
        None => Either::Left(stream),
    };
    let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        router.clone().oneshot(request.map(axum::body::Body::new))
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        // Makes clients reconnect, so that they reach the server once it is ready.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
        .map_err(io::Error::other)
}
