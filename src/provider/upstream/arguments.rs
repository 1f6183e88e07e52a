//! The arguments of a call, assembled from pieces.
//!
//! Most servers send consecutive pieces. Some repeat everything written so far in each piece, or once more at the end.
//! A piece that begins with everything before it is a repetition: an object could only begin like that inside itself if
//! its first field had the same name and the first piece ended there.

use serde::de::IgnoredAny;
use std::ops::Range;

/// Arguments that are being written. They only ever grow.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    text: String,
    /// True once a piece has repeated what was written.
    is_repeating: bool,
}

impl Arguments {
    /// Returns the text so far.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Adds a piece. Returns the range of the text that is new.
    pub(crate) fn add(&mut self, piece: &str) -> Range<usize> {
        let from = self.text.len();
        let is_object = self.text.trim_start().starts_with('{');
        match piece.strip_prefix(self.text.as_str()).filter(|_| is_object) {
            Some(rest) => {
                self.is_repeating = true;
                self.text.push_str(rest);
            }
            // A part of the complete arguments, sent again.
            None if self.is_repeating && is_whole(&self.text) => {}
            None => self.text.push_str(piece),
        }
        from..self.text.len()
    }
}

/// Returns true if this is a complete JSON object.
pub(crate) fn is_whole(text: &str) -> bool {
    let text = text.trim();
    text.starts_with('{') && text.ends_with('}') && serde_json::from_str::<IgnoredAny>(text).is_ok()
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
            // malformed or truncated output of the model
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
}
