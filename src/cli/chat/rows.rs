//! The text above the line that is edited: where its last row ends, so that the next piece of a streamed answer goes on
//! there.
//!
//! Control sequences may colour text and nothing else: what a server sent has none, since the screen takes them out.

use unicode_width::UnicodeWidthChar as _;

/// Bytes kept of the last row. A row has a few hundred columns, and a few bytes for each.
const ROW_BYTES_MAX: usize = 8 * 1024;

/// Columns from one tab stop to the next.
const TAB_COLUMNS: usize = 8;

/// Where the cursor is, seen from the last row of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Cursor {
    /// At its end.
    #[default]
    AtEnd,
    /// At the start of the row below it.
    Below,
    /// At the start of a row further down: a line that was typed stands between.
    Away,
}

/// The last row of the text.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// What stands on it.
    row: String,
    /// Columns that it takes; 0 where the text ended its line.
    columns: usize,
    cursor: Cursor,
    /// Columns of the terminal when the last text was written.
    width: usize,
}

impl Rows {
    /// Returns what to write where text goes straight to the terminal.
    pub(super) fn directly(&mut self, text: &str, width: usize) -> String {
        let (mut out, text) = self.write_to_end(text, width);
        self.add(text, &mut out);
        self.cursor = Cursor::AtEnd;
        out
    }

    /// Returns what to write where a line is edited below the text and was cleared: the cursor is at the start of its
    /// row, and afterwards at the start of the row on which it is to be shown again.
    pub(super) fn above(&mut self, text: &str, width: usize) -> String {
        self.directly(text, width) + &self.go_below()
    }

    /// Returns what to write before a line is edited: it is edited below the text.
    pub(super) fn go_below(&mut self) -> String {
        if self.cursor != Cursor::AtEnd {
            return String::new();
        }
        self.cursor = Cursor::Below;
        let is_open = self.columns > 0;
        if self.columns >= self.width {
            // A full row goes on in the next one.
            self.end_row();
        }
        if is_open { "\n".to_owned() } else { String::new() }
    }

    /// A line was typed and ended: it stands between the text and the cursor.
    pub(super) fn typed(&mut self) {
        self.cursor = Cursor::Away;
    }

    /// Returns what to write to get to the end of the text, and what is then left of the text that follows.
    fn write_to_end<'a>(&mut self, text: &'a str, width: usize) -> (String, &'a str) {
        // After a change of the width nobody knows on which row the text ends.
        let is_reflowed = std::mem::replace(&mut self.width, width.max(1)) != width;
        match self.cursor {
            _ if self.columns == 0 => (String::new(), text),
            Cursor::AtEnd => (String::new(), text),
            Cursor::Below if !is_reflowed => (format!("\x1b[1A\x1b[{}C", self.columns), text),
            // What stands between ended the row.
            Cursor::Below | Cursor::Away => match text.strip_prefix('\n') {
                Some(rest) => {
                    self.end_row();
                    (String::new(), rest)
                }
                // It is written once more, so that the text can be read on.
                None => (self.row.clone(), text),
            },
        }
    }

    fn end_row(&mut self) {
        self.row.clear();
        self.columns = 0;
    }

    /// Adds text to the row, and to what is to be written.
    fn add(&mut self, text: &str, out: &mut String) {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let (piece, columns) = match c {
                '\x1b' => {
                    let end = rest.find(|c: char| c.is_ascii_alphabetic()).map_or(rest.len(), |at| at + 1);
                    (&rest[..end], 0)
                }
                '\n' => {
                    self.end_row();
                    out.push('\n');
                    rest = &rest[1..];
                    continue;
                }
                '\t' => {
                    let columns = TAB_COLUMNS - self.columns % TAB_COLUMNS;
                    (&"        "[..columns], columns)
                }
                c => (&rest[..c.len_utf8()], c.width().unwrap_or(0)),
            };
            if self.columns + columns > self.width {
                self.end_row();
            }
            self.columns += columns;
            if self.row.len() + piece.len() <= ROW_BYTES_MAX {
                self.row.push_str(piece);
            }
            out.push_str(piece);
            rest = &rest[if c == '\t' { 1 } else { piece.len() }..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 10;

    #[test]
    fn pieces_go_on_where_the_text_ended() {
        let mut rows = Rows::default();
        assert_eq!(rows.above("one", WIDTH), "one\n");
        assert_eq!(rows.above(" two", WIDTH), "\x1b[1A\x1b[3C two\n");
        assert_eq!(rows.above("\nnext", WIDTH), "\x1b[1A\x1b[7C\nnext\n");
        assert_eq!(rows.above(" line\n", WIDTH), "\x1b[1A\x1b[4C line\n");
        assert_eq!(rows.above("then", WIDTH), "then\n");
    }

    #[test]
    fn a_row_that_is_full_goes_on_below() {
        let cases: [(&str, &str); 5] = [
            ("0123456789", "x\n"),
            ("0123456789a", "\x1b[1A\x1b[1Cx\n"),
            ("012345678日", "\x1b[1A\x1b[2Cx\n"),
            ("01234567日", "x\n"),
            ("\x1b[2mdim\x1b[0m", "\x1b[1A\x1b[3Cx\n"),
        ];
        for (text, then) in cases {
            let mut rows = Rows::default();
            assert_eq!(rows.above(text, WIDTH), format!("{text}\n"));
            assert_eq!(rows.above("x", WIDTH), then, "{text:?}");
        }
    }

    #[test]
    fn what_was_typed_between_is_left_and_the_row_written_again() {
        let mut rows = Rows::default();
        assert_eq!(rows.directly("ab", WIDTH), "ab");
        assert_eq!(rows.directly("c", WIDTH), "c");
        assert_eq!(rows.go_below(), "\n");
        assert_eq!(rows.go_below(), "");
        rows.typed();
        assert_eq!(rows.above("d", WIDTH), "abcd\n");
        assert_eq!(rows.above("e", 2 * WIDTH), "abcde\n", "the terminal has another width");
        assert_eq!(rows.above("\tf", 2 * WIDTH), "\x1b[1A\x1b[5C   f\n");
        rows.typed();
        assert_eq!(rows.above("\nnext", 2 * WIDTH), "next\n", "its row was ended by what was typed");
    }
}
