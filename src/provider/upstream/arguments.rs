//! The arguments of a call, assembled from pieces.
//!
//! Most servers send consecutive pieces. Some repeat everything written so far in each piece, or once more at the end.
//! If a piece begins with everything before it, it can be either. What decides is whether the joined pieces can still
//! become JSON. Until that is known, such pieces are kept and not shown.

use serde::de::IgnoredAny;
use std::ops::Range;

/// Arguments that are being written. The result of [`Arguments::text`] only ever grows.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    text: String,
    pieces: Pieces,
}

/// The kind of pieces that the server sends.
#[derive(Debug, Default)]
enum Pieces {
    /// Each piece follows the one before.
    #[default]
    Following,
    /// It is not known yet, because each piece began with the one before.
    Doubtful {
        /// All pieces joined.
        joined: String,
        /// The last piece.
        last: String,
    },
    /// Each piece repeats everything written so far.
    Repeating,
}

impl Arguments {
    /// Returns the text that is certain so far.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the arguments as they would be if no piece followed.
    pub(crate) fn so_far(&self) -> &str {
        match &self.pieces {
            Pieces::Doubtful { joined, last } => either(joined, last),
            _ => &self.text,
        }
    }

    /// Adds a piece. Returns the range of the text that became certain.
    pub(crate) fn add(&mut self, piece: &str) -> Range<usize> {
        let from = self.text.len();
        match &mut self.pieces {
            Pieces::Following if repeats(&self.text, piece) => {
                self.doubt([&self.text, piece].concat(), piece);
            }
            Pieces::Following => self.text.push_str(piece),
            Pieces::Doubtful { joined, last } if piece.starts_with(last.as_str()) => {
                let joined = [joined, piece].concat();
                self.doubt(joined, piece);
            }
            Pieces::Doubtful { joined, .. } => {
                self.text = [joined, piece].concat();
                self.pieces = Pieces::Following;
            }
            Pieces::Repeating if piece.starts_with(&self.text) => piece.clone_into(&mut self.text),
            // A part of the complete arguments, sent again.
            Pieces::Repeating if is_whole(&self.text) => {}
            Pieces::Repeating => self.text.push_str(piece),
        }
        from..self.text.len()
    }

    /// Ends the arguments. Returns the range of the text that became certain.
    pub(crate) fn end(&mut self) -> Range<usize> {
        let from = self.text.len();
        if let Pieces::Doubtful { joined, last } = std::mem::take(&mut self.pieces) {
            either(&joined, &last).clone_into(&mut self.text);
        }
        from..self.text.len()
    }

    fn doubt(&mut self, joined: String, last: &str) {
        self.pieces = if can_become_json(&joined) {
            Pieces::Doubtful { joined, last: last.to_owned() }
        } else {
            last.clone_into(&mut self.text);
            Pieces::Repeating
        };
    }
}

/// Returns true if a piece begins with everything before it.
fn repeats(text: &str, piece: &str) -> bool {
    !text.is_empty() && piece.starts_with(text)
}

/// Returns the joined pieces if they are complete, or if the last piece is not complete either.
fn either<'a>(joined: &'a str, last: &'a str) -> &'a str {
    if is_whole(last) && !is_whole(joined) { last } else { joined }
}

/// Returns true if this is a complete JSON object.
pub(crate) fn is_whole(text: &str) -> bool {
    let text = text.trim();
    text.starts_with('{') && text.ends_with('}') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

fn can_become_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).err().is_none_or(|error| error.is_eof())
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
            // pieces that only look like that
            (&[r#"{"a":"#, r#"{"a":"#, "1}}"], r#"{"a":{"a":1}}"#),
            (&[r#"{"a":"#, r#"{"a":1}"#, "}"], r#"{"a":{"a":1}}"#),
            (&[r#"{"a":"#, r#"{"a":{}}"#, "}"], r#"{"a":{"a":{}}}"#),
            (&["{", "\"a\":[{", "}]}"], r#"{"a":[{}]}"#),
            (&[" ", " {", "}"], "  {}"),
            // malformed or truncated output of the model
            (&[r#"{"a":1}"#, r#"{"b":2}"#], r#"{"a":1}{"b":2}"#),
            (&[r#"{"a"#], r#"{"a"#),
            (&[], ""),
        ] {
            let (mut arguments, mut shown) = (Arguments::default(), String::new());
            for piece in pieces {
                let certain = arguments.add(piece);
                shown.push_str(&arguments.text()[certain]);
            }
            assert_eq!(arguments.so_far(), expected, "{pieces:?}");
            let certain = arguments.end();
            shown.push_str(&arguments.text()[certain]);
            assert_eq!((arguments.text(), shown.as_str()), (expected, expected), "{pieces:?}");
        }
    }
}
