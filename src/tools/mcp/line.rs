//! Reads the output of a server over stdio line by line. Each message is repaired before it is parsed, noise is
//! dropped, and messages that are too long are detected.
//!
//! rmcp silently drops a line of more than 16 MiB, and the call that it answers would wait for its time limit.

use super::{MESSAGE_BYTES_MAX, lenient};
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

/// Bytes that are read at a time.
const READ_BYTES: usize = 16 * 1024;

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

/// Reads complete messages from the inner reader.
#[derive(Debug)]
pub(super) struct Messages<R> {
    inner: R,
    /// The part of the current line that has been read.
    line: Vec<u8>,
    /// True until the end of a line that is too long.
    is_skipped: bool,
    /// The repaired messages, and how many of their bytes were taken.
    mended: Vec<u8>,
    taken: usize,
    too_long: TooLong,
}

impl<R> Messages<R> {
    pub(super) fn new(inner: R, too_long: TooLong) -> Self {
        Self { inner, line: Vec::new(), is_skipped: false, mended: Vec::new(), taken: 0, too_long }
    }

    fn take_in(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_over = self.line.len() + part.len() > MESSAGE_BYTES_MAX;
            if is_over && !self.is_skipped {
                self.too_long.0.send_modify(|count| *count += 1);
                self.is_skipped = true;
                self.line = Vec::new();
            }
            if !self.is_skipped {
                self.line.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        self.mended.extend(lenient::lines(&self.line));
        // The memory of a long line is released.
        self.line = Vec::new();
        self.is_skipped = false;
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Messages<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.taken == self.mended.len() {
            (self.mended, self.taken) = (Vec::new(), 0);
            let mut bytes = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.inner).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                // The last line may have no line break.
                self.end_line();
                if self.mended.is_empty() {
                    return Poll::Ready(Ok(()));
                }
            }
            self.take_in(read.filled());
        }
        let this = &mut *self;
        let rest = &this.mended[this.taken..];
        let count = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..count]);
        this.taken += count;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Messages, TooLong};
    use crate::tools::mcp::MESSAGE_BYTES_MAX;
    use tokio::io::AsyncReadExt as _;

    async fn read(text: &str) -> (String, u64) {
        let too_long = TooLong::new();
        let mut read = String::new();
        Messages::new(text.as_bytes(), too_long.clone()).read_to_string(&mut read).await.unwrap();
        let count = *too_long.seen().borrow();
        (read, count)
    }

    #[tokio::test]
    async fn messages_are_told_from_noise() {
        let message = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        for text in
            [format!("{message}\n"), format!("Starting\n\n{message}\r\n{{half\n"), format!("[info] up\r\n{message}")]
        {
            assert_eq!(read(&text).await, (format!("{message}\n"), 0), "{text}");
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_counted_once() {
        for (text, expected) in [
            ("short\nshort\n".to_owned(), 0),
            ("a".repeat(MESSAGE_BYTES_MAX - 1) + "\n", 0),
            ("a".repeat(MESSAGE_BYTES_MAX) + "\n", 1),
            (("a".repeat(3 * MESSAGE_BYTES_MAX) + "\n").repeat(2), 2),
        ] {
            let long = read(&text).await.1;
            assert_eq!(long, expected, "{} bytes", text.len());
        }
    }
}
