//! Splits a body of JSON values. There is one if a server does not stream, and otherwise one per line.

use super::sse::{EVENT_BYTES_MAX, TooLarge};

/// An incremental splitter from chunks to objects. Anything between objects is skipped, so the elements of a list are
/// returned as objects too.
#[derive(Debug, Default)]
pub(crate) struct JsonValues {
    buffer: Vec<u8>,
    /// The start of the current object.
    begin: usize,
    /// The part of the buffer that has been read.
    scanned: usize,
    /// How many brackets are open.
    depth: usize,
    in_text: bool,
    escaped: bool,
    /// True if the current object has been returned.
    complete: bool,
}

impl JsonValues {
    /// Appends bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        let done = std::mem::take(&mut self.begin);
        self.buffer.drain(..done);
        self.scanned -= done;
        if self.buffer.len() + bytes.len() > EVENT_BYTES_MAX {
            return Err(TooLarge);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Advances to the next complete object. Returns `false` if more bytes are needed.
    pub(crate) fn advance(&mut self) -> bool {
        if std::mem::take(&mut self.complete) {
            self.begin = self.scanned;
        }
        while let Some(&byte) = self.buffer.get(self.scanned) {
            self.scanned += 1;
            if self.in_text {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_text = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'{' if self.depth == 0 => {
                    self.begin = self.scanned - 1;
                    self.depth = 1;
                }
                _ if self.depth == 0 => self.begin = self.scanned,
                b'"' => self.in_text = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.complete = true;
                        return true;
                    }
                }
                _ => {}
            }
        }
        false
    }

    /// Returns true if the body ended within an object, which is then returned as it is.
    pub(crate) fn end(&mut self) -> bool {
        let left = !self.complete && self.depth > 0;
        self.complete |= left;
        left
    }

    /// Returns the current object.
    pub(crate) fn data(&self) -> &[u8] {
        &self.buffer[self.begin..self.scanned]
    }
}
