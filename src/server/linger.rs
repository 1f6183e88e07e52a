//! Closes a TCP connection so that its last bytes arrive.
//!
//! A system that closes a connection with unread bytes resets it, and the reset may overtake what was sent before: the
//! close frame with the reason, or the response to a request whose body was not read. So whatever a client still sends
//! is read and dropped for a while. WebSocket libraries stop reading on a protocol error, so this is done below them.

use super::app::App;
use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    net::TcpStream,
    runtime::Handle,
    time::timeout,
};

/// The time for which to keep reading: long enough for bytes in transit; a client that keeps sending is cut off.
const LINGER_TIME: Duration = Duration::from_secs(1);

/// Bytes read and dropped at once.
const DROPPED_BYTES: usize = 16 * 1024;

/// A client's connection. When dropped, it lingers in its own task, unless the client has closed it too or the server
/// stops.
pub(super) struct Lingering {
    /// Taken only on drop.
    stream: Option<TcpStream>,
    app: Arc<App>,
}

impl Lingering {
    pub(super) fn new(stream: TcpStream, app: Arc<App>) -> Self {
        Self { stream: Some(stream), app }
    }

    fn stream(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(self.stream.as_mut().expect("taken only on drop"))
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        let client_is_gone = matches!(stream.try_read(&mut [0]), Ok(0));
        if !client_is_gone && !self.app.stop.is_cancelled() && Handle::try_current().is_ok() {
            self.app.connections.spawn(linger(stream));
        }
    }
}

/// Shuts down the sending side, and reads until the client closes too.
async fn linger(mut stream: TcpStream) {
    let reading = async {
        stream.shutdown().await?;
        let mut dropped = vec![0; DROPPED_BYTES];
        while stream.read(&mut dropped).await? > 0 {}
        io::Result::Ok(())
    };
    // Whatever the result, the connection is over.
    let _ = timeout(LINGER_TIME, reading).await;
}

impl AsyncRead for Lingering {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buf)
    }
}

impl AsyncWrite for Lingering {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
