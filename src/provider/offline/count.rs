//! The offline model's token count: simple, the same on every machine, and close to real tokenizers for prose.
//!
//! - a run of ASCII letters and digits: one token per 4 characters, rounded up
//! - a run of other letters (Cyrillic, Arabic, accented Latin): one per 2, rounded up
//! - a character of a script without spaces (Chinese, Japanese, Korean): one
//! - any other visible character: one
//! - white space: one per 8 characters of a run, so single spaces are free
//!
//! The count of a text is the sum over its [`pieces`]. These are also the units of streaming, so no token is counted
//! without being sent.

use super::words::is_unspaced;
use crate::core::model::ModelRequest;
use reseed_protocol::{Message, Part, context::ToolDefinition};

/// Tokens added per message, for its role and delimiters.
const MESSAGE_TOKENS: u64 = 4;
/// Tokens that open the answer.
const ANSWER_START_TOKENS: u64 = 3;
/// Tokens added per tool definition, call and result.
const TOOL_TOKENS: u64 = 8;
/// Tokens of an image, which the offline model cannot see. This is the cost of a medium image elsewhere, so that images
/// fill the window here too.
const IMAGE_TOKENS: u64 = 765;

/// Returns the tokens of a request as this model counts them.
pub(super) fn request_tokens(request: &ModelRequest) -> u64 {
    let system = match request.envelope.system.compiled.as_str() {
        "" => 0,
        text => MESSAGE_TOKENS + tokens(text),
    };
    let tools: u64 = request.envelope.tools.iter().map(tool_tokens).sum();
    let messages: u64 = request.messages().map(|message| message_tokens(&message.message)).sum();
    system + tools + messages + ANSWER_START_TOKENS
}

fn tool_tokens(tool: &ToolDefinition) -> u64 {
    TOOL_TOKENS + tokens(&tool.name) + tokens(&tool.description) + tokens(&tool.parameters.to_string())
}

fn message_tokens(message: &Message) -> u64 {
    MESSAGE_TOKENS + message.content.iter().map(part_tokens).sum::<u64>()
}

/// Returns the tokens of one part.
pub(super) fn part_tokens(part: &Part) -> u64 {
    match part {
        Part::Text { text } | Part::Reasoning { text, .. } => tokens(text),
        Part::Image { .. } => IMAGE_TOKENS,
        Part::ToolCall { name, arguments, .. } => TOOL_TOKENS + tokens(name) + tokens(arguments),
        Part::ToolResult { output, .. } => TOOL_TOKENS + tokens(output),
    }
}

/// Returns the tokens of a text.
pub(super) fn tokens(text: &str) -> u64 {
    pieces(text).map(piece_tokens).sum()
}

/// Splits a text into the pieces that are streamed. A piece is a word with the preceding white space, or a character of
/// a script without spaces. Joined, the pieces are the text.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let word_start = rest.find(|c: char| !c.is_whitespace()).unwrap_or(rest.len());
        let end = match rest[word_start..].chars().next() {
            None => rest.len(),
            Some(first) if is_unspaced(first) => word_start + first.len_utf8(),
            Some(_) => rest[word_start..]
                .char_indices()
                .take(PIECE_CHARS_MAX + 1)
                .enumerate()
                .find(|(count, (_, c))| *count == PIECE_CHARS_MAX || c.is_whitespace() || is_unspaced(*c))
                .map_or(rest.len(), |(_, (at, _))| word_start + at),
        };
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Maximum characters of a word in one piece, so that a text without spaces is streamed too.
const PIECE_CHARS_MAX: usize = 40;

/// Returns the tokens of one piece.
pub(super) fn piece_tokens(piece: &str) -> u64 {
    let mut tokens = 0;
    let mut run = Run::Space;
    let mut length = 0;
    for c in piece.chars() {
        let next = Run::of(c);
        if next != run {
            tokens += run.tokens(length);
            (run, length) = (next, 0);
        }
        length += 1;
    }
    tokens + run.tokens(length)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    Space,
    Ascii,
    Letters,
    Single,
}

impl Run {
    fn of(c: char) -> Self {
        if c.is_whitespace() {
            Self::Space
        } else if c.is_ascii_alphanumeric() {
            Self::Ascii
        } else if c.is_alphanumeric() && !is_unspaced(c) {
            Self::Letters
        } else {
            Self::Single
        }
    }

    fn tokens(self, length: u64) -> u64 {
        match self {
            Self::Space => length / 8,
            Self::Ascii => length.div_ceil(4),
            Self::Letters => length.div_ceil(2),
            Self::Single => length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_are_what_the_table_says() {
        for (text, expected) in [
            ("", 0),
            ("My cat is called Miso.", 7),
            ("internationalisation", 5),
            ("我的猫叫咪咪。", 7),
            ("Größe", 3),
            ("Привет", 3),
            ("a\n\n\n\n\n\n\n\nb", 3),
            ("🙂🙂", 2),
        ] {
            assert_eq!(tokens(text), expected, "{text}");
        }
    }

    #[test]
    fn pieces_are_words() {
        for (text, expected) in [
            ("one  two\n", vec!["one", "  two", "\n"]),
            ("我的cat", vec!["我", "的", "cat"]),
            ("", vec![]),
            (" ", vec![" "]),
        ] {
            assert_eq!(pieces(text).collect::<Vec<_>>(), expected, "{text:?}");
        }
        assert_eq!(pieces(&"x".repeat(100)).map(str::len).collect::<Vec<_>>(), [40, 40, 20]);
    }

    proptest! {
        #[test]
        fn pieces_joined_are_the_text(text in "(\\PC|\\s|猫){0,200}") {
            prop_assert_eq!(pieces(&text).collect::<String>(), text);
        }
    }
}
