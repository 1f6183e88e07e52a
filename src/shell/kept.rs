//! A command's output: its beginning and its end are kept.

use std::collections::VecDeque;

/// Output within a bound.
#[derive(Debug)]
pub(super) struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    total: u64,
}

impl Kept {
    /// Keeps at most `bytes_max` bytes, one half from the beginning and one from the end.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half: bytes_max / 2, total: 0 }
    }

    /// Adds what the command wrote.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(self.half - self.head.len()));
        self.head.extend_from_slice(head);
        // Bytes that later ones would push out are not stored first.
        let rest = &rest[rest.len().saturating_sub(self.half)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    /// Returns how many bytes the command has written, kept or not.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the output as text. A line replaces the omitted part and states its size. Bytes that are not UTF-8,
    /// and a character that was cut, become replacement characters.
    pub(super) fn into_text(mut self) -> String {
        let tail = self.tail.make_contiguous();
        let kept = (self.head.len() + tail.len()) as u64;
        if self.total == kept {
            self.head.extend_from_slice(tail);
            return String::from_utf8_lossy(&self.head).into_owned();
        }
        let left_out = self.total - kept;
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(tail));
        format!("{head}\n[{left_out} bytes left out]\n{tail}")
    }
}

#[cfg(test)]
mod tests {
    use super::Kept;

    #[test]
    fn the_beginning_and_the_end_are_kept() {
        for (written, bytes_max, expected) in [
            ("", 8, ""),
            ("12345678", 8, "12345678"),
            ("123456789", 8, "1234\n[1 bytes left out]\n6789"),
            ("123éé6789", 8, "123\u{FFFD}\n[3 bytes left out]\n6789"),
            ("ab€cd€ef", 6, "ab\u{FFFD}\n[6 bytes left out]\n\u{FFFD}ef"),
            ("😀😀😀😀", 10, "😀\u{FFFD}\n[6 bytes left out]\n\u{FFFD}😀"),
            ("abcdefgh", 2, "a\n[6 bytes left out]\nh"),
        ] {
            // All at once, byte by byte, and three at a time.
            for size in [written.len().max(1), 1, 3] {
                let mut kept = Kept::new(bytes_max);
                written.as_bytes().chunks(size).for_each(|piece| kept.push(piece));
                assert_eq!(kept.total(), written.len() as u64);
                assert_eq!(kept.into_text(), expected, "{written} in pieces of {size}");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text_stay_within_the_bound() {
        let mut kept = Kept::new(8);
        kept.push(&[0xFF, 0xC3, b'a', 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, b'z']);
        assert_eq!(kept.into_text(), "\u{FFFD}\u{FFFD}a\u{FFFD}\n[3 bytes left out]\n\u{FFFD}\u{FFFD}\u{FFFD}z");
    }
}
