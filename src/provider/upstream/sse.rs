//! Parses server-sent events from the bytes of a body as they arrive.
//!
//! Supports only what model servers use: consecutive `data:` lines, an empty line after each event, comments, and the
//! `error:` lines of older llama-server versions. Event names are ignored, because each event's JSON has its type.
//! Lines end in LF, CRLF or CR. Nearly every event has one line, and is returned in place without a copy.

use std::ops::Range;

/// Maximum bytes of one event. The largest is `response.completed`, which repeats the whole answer and has at most some
/// MiB. Anything larger is not an event.
pub(crate) const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// An incremental parser from chunks to events.
#[derive(Debug, Default)]
pub(crate) struct Sse {
    buffer: Vec<u8>,
    /// The start of the current event.
    begin: usize,
    /// The start of the current line.
    line: usize,
    /// The part of the current line that has been searched for its end.
    scanned: usize,
    /// True if the previous line ended in CR. An LF that follows belongs to it.
    after_return: bool,
    /// The data of the current event read so far.
    data: Data,
    /// True if the current event has been returned.
    complete: bool,
}

/// The data of an event.
#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    /// A range of the buffer.
    Line(Range<usize>),
    /// Joined from several lines.
    Joined(Vec<u8>),
}

/// An event exceeds [`EVENT_BYTES_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Sse {
    /// Appends bytes. First take out all events: call [`Sse::advance`] until it returns `false`.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        let done = self.begin;
        if done > 0 {
            self.buffer.drain(..done);
            self.begin = 0;
            self.line -= done;
            self.scanned -= done;
            if let Data::Line(range) = &mut self.data {
                *range = range.start - done..range.end - done;
            }
        }
        if self.buffer.len() + bytes.len() > EVENT_BYTES_MAX {
            return Err(TooLarge);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Advances to the next complete event and discards the previous one. Returns `false` if more bytes are needed.
    pub(crate) fn advance(&mut self) -> bool {
        if std::mem::take(&mut self.complete) {
            self.begin = self.line;
            self.data = Data::None;
        }
        while let Some(length) = self.buffer[self.scanned..].iter().position(|&byte| byte == b'\n' || byte == b'\r') {
            let end = self.scanned + length;
            let line = self.line..end;
            self.line = end + 1;
            self.scanned = self.line;
            let after_return = std::mem::replace(&mut self.after_return, self.buffer[end] == b'\r');
            if line.is_empty() && after_return && self.buffer[end] == b'\n' {
                if matches!(self.data, Data::None) {
                    self.begin = self.line;
                }
            } else if !line.is_empty() {
                self.read_line(line);
            } else if matches!(self.data, Data::None) {
                self.begin = self.line;
            } else {
                self.complete = true;
                return true;
            }
        }
        self.scanned = self.buffer.len();
        false
    }

    /// Returns true if the end of the body completes an event that lacks only its empty line.
    pub(crate) fn end(&mut self) -> bool {
        let left = !self.complete && !matches!(self.data, Data::None);
        self.complete |= left;
        left
    }

    /// Returns the data of the current event.
    pub(crate) fn data(&self) -> &[u8] {
        match &self.data {
            Data::None => &[],
            Data::Line(range) => &self.buffer[range.clone()],
            Data::Joined(bytes) => bytes,
        }
    }

    fn read_line(&mut self, line: Range<usize>) {
        let text = &self.buffer[line.clone()];
        // A byte order mark may precede the first line.
        let mark = if text.starts_with(b"\xEF\xBB\xBF") { 3 } else { 0 };
        let field = [b"data:".as_slice(), b"error:"].into_iter().find(|field| text[mark..].starts_with(field));
        let Some(field) = field else { return };
        let value = line.start + mark + field.len();
        let value = value + usize::from(self.buffer.get(value) == Some(&b' '))..line.end;
        self.data = match std::mem::take(&mut self.data) {
            Data::None => Data::Line(value.start.min(value.end)..value.end),
            Data::Line(first) => Data::Joined([&self.buffer[first], b"\n", &self.buffer[value]].concat()),
            Data::Joined(mut joined) => {
                joined.push(b'\n');
                joined.extend_from_slice(&self.buffer[value]);
                Data::Joined(joined)
            }
        };
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
            ("\u{feff}data: a\n\n", &["a"]),
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
