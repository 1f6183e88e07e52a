//! Closes a TCP connection so that its last bytes arrive.
//!
//! If a connection is closed with unread bytes, the system resets it. The reset may overtake what was sent before, such
//! as the close frame with the reason, or the response to a request whose body was not read. So bytes that the client
//! still sends are read and discarded for a while. WebSocket libraries stop reading on a protocol error, so this
//! happens below them.

use super::{app::App, door::Guest, tls::Stream};
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
    time::{Sleep, sleep, timeout},
};
use tokio_util::either::Either;

/// How long to keep reading. This is enough for bytes in transit. A client that keeps sending is cut off.
const LINGER_TIME: Duration = Duration::from_secs(1);

/// Bytes read and discarded at once.
const DROPPED_BYTES: usize = 16 * 1024;

/// A client's connection. When dropped, it lingers in a task of its own, unless the client has closed it too or the
/// server is stopping.
pub(super) struct Lingering {
    /// Taken only in `drop`.
    stream: Option<Stream>,
    app: Arc<App>,
    guest: Arc<Guest>,
    /// Runs while the client is not reading an HTTP response.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Lingering {
    pub(super) fn new(stream: Stream, app: Arc<App>, guest: Arc<Guest>) -> Self {
        Self { stream: Some(stream), app, guest, stalled: None }
    }

    /// Passes on the result of a write. Gives up on a client that has not read an HTTP response for too long. A
    /// WebSocket has its own time limit.
    fn written<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() || self.guest.is_upgraded() {
            self.stalled = None;
            return written;
        }
        self.guest.may_stay(cx.waker())?;
        let patience = self.app.patience.slow_reader;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read"))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn stream(&mut self) -> Pin<&mut Stream> {
        Pin::new(self.stream.as_mut().expect("taken only on drop"))
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        let client_is_gone = matches!(tcp(&stream).try_read(&mut [0]), Ok(0));
        // A connection that must make room is dropped at once.
        let lingers = !client_is_gone && !self.guest.must_leave();
        if lingers && !self.app.stopping.stop.is_cancelled() && Handle::try_current().is_ok() {
            self.app.stopping.connections.spawn(linger(stream));
        }
    }
}

fn tcp(stream: &Stream) -> &TcpStream {
    match stream {
        Either::Left(stream) => stream,
        Either::Right(tls) => tls.get_ref().0,
    }
}

/// Shuts down the sending side, and reads until the client closes too.
async fn linger(mut stream: Stream) {
    let reading = async {
        stream.shutdown().await?;
        // What still arrives is not decrypted.
        let mut stream = match stream {
            Either::Left(stream) => stream,
            Either::Right(tls) => tls.into_inner().0,
        };
        let mut dropped = vec![0; DROPPED_BYTES];
        while stream.read(&mut dropped).await? > 0 {}
        io::Result::Ok(())
    };
    // The connection is over, whatever the result.
    let _ = timeout(LINGER_TIME, reading).await;
}

impl AsyncRead for Lingering {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.guest.may_stay(cx.waker())?;
        let before = buf.filled().len();
        let read = self.stream().poll_read(cx, buf);
        self.guest.read(buf.filled().len() - before)?;
        read
    }
}

impl AsyncWrite for Lingering {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.stream().poll_write(cx, bytes);
        self.written(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream().poll_write_vectored(cx, slices);
        self.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // With TLS, what was written may still wait here.
        let flushed = self.stream().poll_flush(cx);
        self.written(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
