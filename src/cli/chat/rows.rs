//! The text above the line that is edited: where its last row ends, so that the next piece of a streamed answer goes on
//! there.
//!
//! Control sequences may colour text and nothing else: what a server sent has none, since the screen takes them out.

use std::fmt::Write as _;
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
    /// True if the row before this one was full: a space that comes next only parts two words.
    is_continued: bool,
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
            self.is_continued = true;
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

    /// Ends a row that is full before this character. The word that it belongs to was begun on the row: it is taken
    /// away there and begins the next one.
    fn take_word_down(&mut self, c: char, out: &mut String) {
        let row = std::mem::take(&mut self.row);
        let columns = std::mem::take(&mut self.columns);
        let word = row.rfind(' ').map(|at| &row[at + 1..]).unwrap_or_default();
        let taken = visible_columns(word);
        // A script that is written without spaces breaks anywhere, and so does a word as long as half a row.
        let breaks_anywhere = c.width() == Some(2) || word.chars().any(|c| c.width() == Some(2));
        if word.is_empty() || breaks_anywhere || taken > self.width / 2 {
            if row.ends_with(' ') {
                out.push('\n');
            }
            return;
        }
        let _ = write!(out, "\r\x1b[{}C\x1b[K\n{word}", columns - taken);
        self.columns = taken;
        self.row = word.to_owned();
    }

    /// Adds text to the row, and to what is to be written.
    fn add(&mut self, text: &str, out: &mut String) {
        let is_continued = !text.is_empty() && std::mem::take(&mut self.is_continued);
        let mut rest = text.strip_prefix(' ').filter(|_| is_continued).unwrap_or(text);
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
                if c == ' ' {
                    self.end_row();
                    out.push('\n');
                    rest = &rest[1..];
                    continue;
                }
                self.take_word_down(c, out);
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

/// Returns the columns of a text without line breaks.
fn visible_columns(text: &str) -> usize {
    let mut in_colour = false;
    let columns = text.chars().map(|c| match c {
        '\x1b' => {
            in_colour = true;
            0
        }
        c if in_colour => {
            in_colour = !c.is_ascii_alphabetic();
            0
        }
        c => c.width().unwrap_or(0),
    });
    columns.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what a terminal of [`WIDTH`] columns shows of this output.
    fn on_terminal(output: &str) -> Vec<String> {
        let mut rows = vec![String::new()];
        let mut left = output;
        while let Some(c) = left.chars().next() {
            left = &left[c.len_utf8()..];
            let row = rows.last_mut().unwrap();
            match c {
                '\n' => rows.push(String::new()),
                '\r' => {
                    let (columns, rest) = left.strip_prefix("\x1b[").unwrap().split_once('C').unwrap();
                    left = rest.strip_prefix("\x1b[K").unwrap();
                    row.truncate(columns.parse().unwrap());
                }
                c if row.chars().count() == WIDTH => rows.push(c.to_string()),
                c => row.push(c),
            }
        }
        rows
    }

    #[test]
    fn rows_end_between_words() {
        let table: [(&str, &[&str]); 7] = [
            ("one two three four", &["one two", "three four"]),
            ("0123456789 next", &["0123456789", "next"]),
            ("one 0123456789", &["one 012345", "6789"]),
            ("012345678901234", &["0123456789", "01234"]),
            ("a bc def ghi", &["a bc def ", "ghi"]),
            ("012345678 9", &["012345678 ", "9"]),
            ("one two\nthree", &["one two", "three"]),
        ];
        for (text, expected) in table {
            let mut rows = Rows::default();
            let whole = on_terminal(&rows.directly(text, WIDTH));
            let mut rows = Rows::default();
            let pieces: String = text.chars().map(|c| rows.directly(&c.to_string(), WIDTH)).collect();
            assert_eq!(on_terminal(&pieces), whole, "in pieces: {text}");
            let trimmed: Vec<&str> = whole.iter().map(|row| row.trim_end()).collect();
            let expected: Vec<&str> = expected.iter().map(|row| row.trim_end()).collect();
            assert_eq!(trimmed, expected, "{text}");
        }
    }

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
        let mut rows = Rows::default();
        rows.above("0123456789", WIDTH);
        assert_eq!(rows.above(" x y", WIDTH), "x y\n", "the space only parts two words");
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
