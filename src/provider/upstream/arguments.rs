//! The arguments of a call, assembled from pieces.
//!
//! Most servers send consecutive pieces. Some repeat everything written so far in each piece, or once more at the end.
//! A piece that begins with everything before it is a repetition, unless it completes the object as a continuation.
//! One case is misread: an object that begins inside itself, cut there and once more before it is complete. `{"a":` and
//! `{"a":1` look the same from a server that repeats.

use serde::de::IgnoredAny;
use std::ops::Range;

/// Arguments that are being written. They only ever grow.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    text: String,
    /// The state after the text, so that a new piece is scanned without what came before.
    progress: Progress,
    /// True once a piece has repeated what was written.
    is_repeating: bool,
}

/// How far a text is a JSON object. Numbers are the objects and lists that are open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Progress {
    /// Only blanks.
    #[default]
    Blank,
    /// The object is open.
    Open(usize),
    /// A string in it is open.
    InString(usize),
    /// The next character of the string is escaped.
    Escaped(usize),
    /// The object is closed, and only blanks follow.
    Whole,
    /// The object is malformed, or something follows it.
    Broken,
    /// The text is something else.
    NoObject,
}

impl Arguments {
    /// Returns the text so far.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns true if the text is a complete JSON object.
    pub(crate) fn is_whole(&self) -> bool {
        self.progress == Progress::Whole
    }

    /// Adds a piece. Returns the range of the text that is new.
    pub(crate) fn add(&mut self, piece: &str) -> Range<usize> {
        let from = self.text.len();
        match piece.strip_prefix(self.text.as_str()).filter(|_| self.may_be_repeated_by(piece)) {
            Some(rest) => {
                self.is_repeating = true;
                self.push(rest);
            }
            // A part of the complete arguments, sent again.
            None if self.is_repeating && self.is_whole() => {}
            None => self.push(piece),
        }
        from..self.text.len()
    }

    /// Returns true if a piece that begins with the text repeats it.
    fn may_be_repeated_by(&self, piece: &str) -> bool {
        match self.progress {
            Progress::Blank | Progress::NoObject => false,
            Progress::Open(_) => self.is_repeating || self.progress.after(piece) != Progress::Whole,
            _ => true,
        }
    }

    fn push(&mut self, text: &str) {
        let was_whole = self.is_whole();
        self.text.push_str(text);
        self.progress = self.progress.after(text);
        if self.is_whole() && !was_whole && serde_json::from_str::<IgnoredAny>(self.text.trim()).is_err() {
            self.progress = Progress::Broken;
        }
    }
}

impl Progress {
    /// Returns the state after more text. Only brackets and quotes count.
    fn after(self, text: &str) -> Self {
        text.chars().fold(self, |state, char| match (state, char) {
            (Self::Blank | Self::Whole, blank) if blank.is_whitespace() => state,
            (Self::Blank, '{') => Self::Open(1),
            (Self::Blank, _) => Self::NoObject,
            (Self::Whole, _) => Self::Broken,
            (Self::Open(1), '}' | ']') => Self::Whole,
            (Self::Open(open), '}' | ']') => Self::Open(open - 1),
            (Self::Open(open), '{' | '[') => Self::Open(open + 1),
            (Self::Open(open), '"') | (Self::Escaped(open), _) => Self::InString(open),
            (Self::InString(open), '"') => Self::Open(open),
            (Self::InString(open), '\\') => Self::Escaped(open),
            (Self::Open(_) | Self::InString(_) | Self::Broken | Self::NoObject, _) => state,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_each_other_or_repeat_what_was_written() {
        for (pieces, expected) in [
            (&[r#"{"a""#, ":1", "}"][..], r#"{"a":1}"#),
            // everything written so far, in each piece or once at the end
            (&[r#"{"a""#, r#"{"a":"b"#, r#"{"a":"bc"}"#], r#"{"a":"bc"}"#),
            (&["{", r#"{"a""#, r#"{"a":1}"#], r#"{"a":1}"#),
            (&[r#"{"a":"#, r#"{"a":1"#, r#"{"a":1}"#], r#"{"a":1}"#),
            (&[r#"{"a":"#, r#"{"a":1}"#], r#"{"a":1}"#),
            (&[r#"{"a""#, ":1}", r#"{"a":1}"#], r#"{"a":1}"#),
            (&[r#"{"a":1}"#, r#"{"a":1}"#, r#"{"a":1}"#], r#"{"a":1}"#),
            (&["{}", "{}"], "{}"),
            (&[r#"{"a":1"#, r#"{"a":1}"#, "}"], r#"{"a":1}"#),
            (&["{", "\"a\":[{", "}]}"], r#"{"a":[{}]}"#),
            (&[" ", " {", "}"], "  {}"),
            // inside itself
            (&[r#"{"a":"#, r#"{"a":1}}"#], r#"{"a":{"a":1}}"#),
            (&[r#"{"a":["#, r#"{"a":[1]}]}"#], r#"{"a":[{"a":[1]}]}"#),
            (&[r#"{"a":"#, r#"{"a":{"a":1}}"#], r#"{"a":{"a":1}}"#),
            (&[r#"{"a":"x"#, r#"{"a":"x}"#, r#"{"a":"x}"}"#], r#"{"a":"x}"}"#),
            (&[r#"{"a":"}\""#, r#"{"a":"}\"}"}"#, "}"], r#"{"a":"}\"}"}"#),
            // malformed or truncated output of the model
            (&[r#"{"a":1}}"#, r#"{"a":1}}"#], r#"{"a":1}}"#),
            (&[r#"{"a":1]"#, "}"], r#"{"a":1]}"#),
            (&[r#"{"a":1}"#, r#"{"b":2}"#], r#"{"a":1}{"b":2}"#),
            (&[r#"{"a"#], r#"{"a"#),
            (&[], ""),
        ] {
            let (mut arguments, mut shown) = (Arguments::default(), String::new());
            for piece in pieces {
                let new = arguments.add(piece);
                shown.push_str(&arguments.text()[new]);
            }
            assert_eq!((arguments.text(), shown.as_str()), (expected, expected), "{pieces:?}");
        }
    }

    #[test]
    fn only_an_object_that_parses_is_whole() {
        for (text, expected) in [
            (" {\"a\":[\"}\"]}\n", true),
            (r#"{"a":"\\"}"#, true),
            ("{]", false),
            ("{a}", false),
            ("{}{}", false),
            ("[{}]", false),
            ("{}x", false),
            ("", false),
        ] {
            let mut arguments = Arguments::default();
            text.chars().for_each(|char| {
                arguments.add(char.encode_utf8(&mut [0; 4]));
            });
            assert_eq!((arguments.text(), arguments.is_whole()), (text, expected));
        }
    }

    /// Scanning the whole text for each piece would take hours.
    #[test]
    fn a_piece_costs_what_it_holds() {
        const PIECES: usize = 1024 * 1024;
        let long = format!(r#"{{"a":"{}"}}"#, "b".repeat(PIECES));
        for (first, piece, is_whole) in [
            (&[" "][..], " ", false),
            (&[r#"{"a":[{}"#], ",{}", false),
            (&["{}"], " ", true),
            (&[r#"{"a":"b"#, &long], "}", true),
        ] {
            let mut arguments = Arguments::default();
            for piece in first.iter().chain(std::iter::repeat_n(&piece, PIECES)) {
                arguments.add(piece);
                assert_eq!(arguments.is_whole(), is_whole && arguments.text().len() >= first[first.len() - 1].len());
            }
        }
    }
}
