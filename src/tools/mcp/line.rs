//! Reads the output of a server over stdio line by line. Each message is repaired before it is parsed, and noise is
//! dropped.
//!
//! A line of more than [`MESSAGE_BYTES_MAX`] ends the connection. rmcp would drop it silently, and the call that it
//! answers would wait for its time limit.

use super::{MESSAGE_BYTES_MAX, lenient};
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes that are read at a time.
const READ_BYTES: usize = 16 * 1024;

/// Reads complete messages from the inner reader.
#[derive(Debug)]
pub(super) struct Messages<R> {
    inner: R,
    /// The part of the current line that has been read.
    line: Vec<u8>,
    /// The repaired messages, and how many of their bytes were taken.
    mended: Vec<u8>,
    taken: usize,
}

impl<R> Messages<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, line: Vec::new(), mended: Vec::new(), taken: 0 }
    }

    fn take_in(&mut self, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + part.len() > MESSAGE_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
            }
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.end_line();
            }
        }
        Ok(())
    }

    fn end_line(&mut self) {
        // The memory of a long line is released.
        self.mended.extend(lenient::lines(&std::mem::take(&mut self.line)));
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
            self.take_in(read.filled())?;
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
    use super::Messages;
    use crate::tools::mcp::MESSAGE_BYTES_MAX;
    use std::io;
    use tokio::io::AsyncReadExt as _;

    async fn read(text: &str) -> io::Result<String> {
        let mut read = String::new();
        Messages::new(text.as_bytes()).read_to_string(&mut read).await.map(|_| read)
    }

    #[tokio::test]
    async fn messages_are_told_from_noise() {
        let message = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        for text in
            [format!("{message}\n"), format!("Starting\n\n{message}\r\n{{half\n"), format!("[info] up\r\n{message}")]
        {
            assert_eq!(read(&text).await.unwrap(), format!("{message}\n"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_ends_the_connection() {
        assert!(read(&("a".repeat(MESSAGE_BYTES_MAX - 1) + "\n")).await.is_ok());
        assert!(read(&("a".repeat(MESSAGE_BYTES_MAX) + "\n")).await.is_err());
    }
}
