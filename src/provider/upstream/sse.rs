//! Parses server-sent events from the bytes of a body as they arrive.
//!
//! Supports only what model servers use: `data:` lines, an empty line after each event, comments, and the `error:`
//! lines of older llama-server versions. Event names are ignored, because each event's JSON has its type. Lines end in
//! LF, CRLF or CR.

use super::framing::{EVENT_BYTES_MAX, TooLarge};

/// An incremental parser from chunks to events.
#[derive(Debug, Default)]
pub(crate) struct Sse {
    buffer: Vec<u8>,
    /// The start of the current line.
    line: usize,
    /// The part of the buffer that has been searched for the end of the line.
    scanned: usize,
    /// True if the previous line ended in CR. An LF that follows belongs to it.
    after_return: bool,
    /// The data of the current event, without the line break after its last line.
    data: Vec<u8>,
    has_data: bool,
    /// True if the current event has been returned.
    complete: bool,
}

impl Sse {
    /// Appends bytes. First take out all events: call [`Sse::advance`] until it returns `false`.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        self.buffer.drain(..self.line);
        self.scanned -= self.line;
        self.line = 0;
        self.buffer.extend_from_slice(bytes);
        if self.data.len() + self.buffer.len() > EVENT_BYTES_MAX { Err(TooLarge) } else { Ok(()) }
    }

    /// Advances to the next complete event and discards the previous one. Returns `false` if more bytes are needed.
    pub(crate) fn advance(&mut self) -> bool {
        if std::mem::take(&mut self.complete) {
            self.data.clear();
            self.has_data = false;
        }
        while let Some(length) = self.buffer[self.scanned..].iter().position(|&byte| byte == b'\n' || byte == b'\r') {
            let (begin, end) = (self.line, self.scanned + length);
            (self.line, self.scanned) = (end + 1, end + 1);
            let after_return = std::mem::replace(&mut self.after_return, self.buffer[end] == b'\r');
            if begin < end {
                self.read_line(begin, end);
            } else if self.has_data && !(after_return && self.buffer[end] == b'\n') {
                self.complete = true;
                return true;
            }
        }
        self.scanned = self.buffer.len();
        false
    }

    /// Returns true if the end of the body completes an event that lacks only its empty line.
    pub(crate) fn end(&mut self) -> bool {
        !std::mem::replace(&mut self.complete, self.has_data) && self.has_data
    }

    /// Returns the data of the current event.
    pub(crate) fn data(&self) -> &[u8] {
        &self.data
    }

    fn read_line(&mut self, begin: usize, end: usize) {
        let line = &self.buffer[begin..end];
        let value = [b"data:".as_slice(), b"error:"].into_iter().find_map(|field| line.strip_prefix(field));
        let Some(value) = value else { return };
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the events of a body that arrives in chunks of `size` bytes.
    fn events(body: &[u8], size: usize) -> Vec<String> {
        let mut sse = Sse::default();
        let mut events = Vec::new();
        for chunk in body.chunks(size) {
            sse.push(chunk).unwrap();
            while sse.advance() {
                events.push(String::from_utf8(sse.data().to_vec()).unwrap());
            }
        }
        if sse.end() {
            events.push(String::from_utf8(sse.data().to_vec()).unwrap());
        }
        events
    }

    #[test]
    fn a_body_gives_the_same_events_however_it_is_cut() {
        for (body, expected) in [
            ("data: a\n\ndata:b\n\n", &["a", "b"][..]),
            ("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]),
            ("data: a\r\rdata: b\rdata: c\r\r: ping\r\rdata: d\r", &["a", "b\nc", "d"]),
            ("data: a\r\n\ndata: b\n\r\ndata: c\r\r\n", &["a", "b", "c"]),
            (": ping\n\nevent: x\nid: 7\ndata: a\n\n: ping\n\n", &["a"]),
            ("event: only\n\ndata: a\n\n", &["a"]),
            ("data: a\ndata: b\ndata:  c\n\ndata: d\n\n", &["a\nb\n c", "d"]),
            ("error: {\"code\":1}\n\n", &["{\"code\":1}"]),
            ("\n\n\ndata: é😀\n\n\n\ndata: b\n\n", &["é😀", "b"]),
            ("data: a\n\ndata: unended line", &["a"]),
            ("data: a\n\ndata: [DONE]\n", &["a", "[DONE]"]),
            ("data: a\n\nevent: x\n", &["a"]),
            ("data:\n\ndata: b\n\n", &["", "b"]),
            ("", &[]),
            ("no field\n\n", &[]),
        ] {
            for size in 1..=body.len().max(1) {
                assert_eq!(events(body.as_bytes(), size), expected, "{body:?} by {size}");
            }
        }
    }

    #[test]
    fn an_event_that_never_ends_is_refused_and_many_that_end_are_not() {
        let chunk = [b'x'; 64 * 1024];
        let mut endless = Sse::default();
        let refused =
            (0..1_000).find_map(|_| endless.push(&chunk).err().or_else(|| endless.advance().then_some(TooLarge)));
        assert_eq!(refused, Some(TooLarge));

        let mut sse = Sse::default();
        let event = [b"data: ", &chunk[..], b"\n\n"].concat();
        let seen: usize = (0..300)
            .map(|_| {
                sse.push(&event).unwrap();
                std::iter::from_fn(|| sse.advance().then_some(1)).sum::<usize>()
            })
            .sum();
        assert_eq!(seen, 300);
    }
}
