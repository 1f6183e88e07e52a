//! Accepts connections, and closes them when the server stops.

use super::{
    app::App,
    closing::CLOSE_TIME,
    connection::leaving::{LEAVING_TIME, LOOK_EVERY},
    door::{Guest, turns::Turns},
    linger::Lingering,
    routes::{Part, router},
    stopping::Stopping,
    tls::Stream,
};
use crate::store::Spaced;
use axum::{
    Router,
    body::{Body, HttpBody as _},
    extract::ConnectInfo,
};
use futures_util::{StreamExt as _, future::join_all, stream};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    runtime::Handle,
    time::timeout,
};
use tokio_util::either::Either;
use tower::ServiceExt as _;

/// Maximum headers of a request. Browsers send about 20.
const HEADERS_MAX: usize = 64;

/// The pause after a failed accept, for example without free file descriptors, so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The first byte of a TLS connection: a handshake record.
const HANDSHAKE: u8 = 22;

/// The answer to a client that does not use TLS.
const PLAIN: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\r\n\
    this port accepts only TLS: connect with https:// or wss://\n";

/// A running server.
#[derive(Debug)]
pub(crate) struct Running {
    pub address: SocketAddr,
    /// The address of the operator's port, if it is not the same.
    pub operator_address: Option<SocketAddr>,
    stopping: Stopping,
}

/// Serves on one listener, or on a second one for operators too, until [`Running::stop`].
///
/// # Errors
/// A listener has no address.
pub(crate) fn serve(listeners: Vec<TcpListener>, app: Arc<App>) -> io::Result<Running> {
    let stopping = app.stopping.clone();
    let turns = Turns::new(Handle::current().metrics().num_workers());
    let parts = if listeners.len() > 1 { [Part::Public, Part::Operator] } else { [Part::All; 2] };
    let (mut addresses, mut loops) = (Vec::new(), Vec::new());
    for (listener, part) in listeners.into_iter().zip(parts) {
        let address = listener.local_addr()?;
        addresses.push(address);
        loops.push(accept(listener, app.clone(), router(app.clone(), part, address.port()), turns.clone()));
    }
    // One task: `connection_count` leaves it out.
    stopping.connections.spawn(join_all(loops));
    Ok(Running { address: addresses[0], operator_address: addresses.get(1).copied(), stopping })
}

async fn accept(listener: TcpListener, app: Arc<App>, router: Router, turns: Turns) {
    let failures = Spaced::default();
    loop {
        // Connections that were already accepted come first.
        turns.wait(std::future::ready(())).await;
        let accepted = tokio::select! {
            () = app.stopping.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                app.stopping.connections.spawn(turns.wait(connection(stream, peer, router.clone(), app.clone())));
            }
            Err(error) => {
                if let Some(left_out) = failures.admit() {
                    tracing::warn!(%error, left_out, "accept a connection; check the limit on open files");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, router: Router, app: Arc<App>) {
    super::tcp::tune(&stream);
    let guest = app.admission.door.admit(peer.ip());
    let Some(stream) = encrypted(stream, &app, &guest).await else { return };
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

/// Makes the TLS handshake if the server uses TLS. `None` if it failed, did not end in time, or must make room for
/// other guests.
async fn encrypted(stream: TcpStream, app: &Arc<App>, guest: &Arc<Guest>) -> Option<Stream> {
    let Some(tls) = &app.tls else { return Some(Either::Left(stream)) };
    let handshake = async {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE {
            // It lingers, so that the answer arrives.
            Lingering::new(Either::Left(stream), app.clone(), guest.clone()).write_all(PLAIN).await?;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not use TLS"));
        }
        tls.handshake(stream).await
    };
    let ended = tokio::select! {
        ended = timeout(app.patience.hello, handshake) => ended,
        () = guest.asked_to_leave() => return None,
        () = app.stopping.stop.cancelled() => return None,
    };
    match ended {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            // The client's fault, or it does not trust the certificate. Anyone can cause it.
            tracing::debug!(%error, "TLS handshake");
            None
        }
        Err(_) => None,
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
