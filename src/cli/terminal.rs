//! Text from others on a terminal: it must not control the terminal, and must read as it is written.

use crate::core::session::preview;
use std::borrow::Cow;

/// Returns true for a character that controls a terminal or changes the direction of writing, other than newline and
/// tab.
fn steers(c: char) -> bool {
    c != '\n' && c != '\t' && preview::steers(c)
}

/// Returns the text with a mark in place of each such character.
pub(super) fn marked(text: &str) -> Cow<'_, str> {
    if text.contains(steers) { text.replace(steers, "\u{fffd}").into() } else { text.into() }
}

/// Returns the text without such characters.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    if text.contains(steers) { text.replace(steers, "").into() } else { text.into() }
}

/// Returns JSON of the same value in which each such character is escaped.
pub(super) fn escaped(json: &str) -> Cow<'_, str> {
    if !json.contains(steers) {
        return json.into();
    }
    // All of them have at most 16 bits, and JSON contains them only in strings.
    let escape = |c: char| if steers(c) { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
    json.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_steer_is_marked_taken_out_or_escaped() {
        for (text, shown, without, json) in [
            ("plain\n\ttext, é 🦀", "plain\n\ttext, é 🦀", "plain\n\ttext, é 🦀", r"plain\n\ttext, é 🦀"),
            ("\u{1b}[2J", "\u{fffd}[2J", "[2J", r"\u001b[2J"),
            ("\u{9b}1m\u{7f}", "\u{fffd}1m\u{fffd}", "1m", r"\u009b1m\u007f"),
            ("a\u{202e}gpj.exe", "a\u{fffd}gpj.exe", "agpj.exe", r"a\u202egpj.exe"),
            ("\u{2066}x\u{2069}", "\u{fffd}x\u{fffd}", "x", r"\u2066x\u2069"),
            // Marks that only give the direction of a letter are part of Hebrew and Arabic texts.
            ("\u{200f}שלום", "\u{200f}שלום", "\u{200f}שלום", "\u{200f}שלום"),
        ] {
            assert_eq!((marked(text), clean(text)), (shown.into(), without.into()), "{text:?}");
            let written = serde_json::to_string(text).unwrap();
            assert_eq!(escaped(&written), format!("\"{json}\""), "{text:?}");
            assert_eq!(serde_json::from_str::<String>(&escaped(&written)).unwrap(), text);
        }
    }
}
