//! A meter on what a server over stdio writes: it notices messages that are too long.
//!
//! rmcp drops a line of more than 16 MiB without a word, and the call that it answers would wait for its time limit.

use super::MESSAGE_BYTES_MAX;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, ReadBuf},
    sync::watch,
};

/// Counts the messages that were too long.
#[derive(Debug, Clone)]
pub(super) struct TooLong(Arc<watch::Sender<u64>>);

impl TooLong {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    /// Returns a receiver that changes with each such message.
    pub(super) fn seen(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// Reads as the inner reader does.
#[derive(Debug)]
pub(super) struct Metered<R> {
    inner: R,
    line_bytes: usize,
    too_long: TooLong,
}

impl<R> Metered<R> {
    pub(super) fn new(inner: R, too_long: TooLong) -> Self {
        Self { inner, line_bytes: 0, too_long }
    }

    fn count(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let before = self.line_bytes;
            self.line_bytes += part.len();
            if before <= MESSAGE_BYTES_MAX && self.line_bytes > MESSAGE_BYTES_MAX {
                self.too_long.0.send_modify(|count| *count += 1);
            }
            if part.ends_with(b"\n") {
                self.line_bytes = 0;
            }
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Metered<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        self.count(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Metered, TooLong};
    use crate::tools::mcp::MESSAGE_BYTES_MAX;
    use tokio::io::AsyncReadExt as _;

    #[tokio::test]
    async fn a_line_that_is_too_long_is_counted_once() {
        for (text, expected) in [
            ("short\nshort\n".to_owned(), 0),
            ("a".repeat(MESSAGE_BYTES_MAX - 1) + "\n", 0),
            ("a".repeat(MESSAGE_BYTES_MAX) + "\n", 1),
            (("a".repeat(3 * MESSAGE_BYTES_MAX) + "\n").repeat(2), 2),
        ] {
            let too_long = TooLong::new();
            let mut read = Vec::new();
            Metered::new(text.as_bytes(), too_long.clone()).read_to_end(&mut read).await.unwrap();
            assert_eq!(read.len(), text.len());
            assert_eq!(*too_long.seen().borrow(), expected, "{} bytes", text.len());
        }
    }
}
