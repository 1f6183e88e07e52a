//! Joins characters that arrive in halves.
//!
//! A server that cuts text between UTF-16 units may split an escaped pair: `\ud83d` in one event, `\udea2` in the next.
//! Neither half is text, and a JSON parser rejects both. So a half is replaced by a mark before the event is parsed,
//! and joined with the other half where the pieces of a part meet. A half without its counterpart becomes U+FFFD.
//!
//! Nearly every event has no halves, and is neither changed nor copied.

use std::{borrow::Cow, ops::Range};

/// The first of the characters that mark halves: one for each, at the end of Unicode's last private area. They are read
/// as marks only in an event in which [`marked`] put some.
const MARKS: u32 = 0x10_F800;

/// The first halves of pairs, and all halves.
const HIGH: Range<u16> = 0xD800..0xDC00;
const HALVES: Range<u16> = 0xD800..0xE000;

/// Returns the event as text with marks for halves, and whether there are any.
pub(crate) fn marked(event: &[u8]) -> (Cow<'_, str>, bool) {
    let text = String::from_utf8_lossy(event);
    match with_marks(&text) {
        Some(marked) => (Cow::Owned(marked), true),
        None => (text, false),
    }
}

/// Returns the JSON text with marks for escaped halves; `None` if it has none.
fn with_marks(text: &str) -> Option<String> {
    let mut marked: Option<String> = None;
    let (mut from, mut at) = (0, 0);
    while let Some(found) = text[at..].find('\\') {
        at += found;
        let Some(unit) = escaped_unit(&text[at..]) else {
            // The next character is escaped, even if it is a backslash.
            at += 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8);
            continue;
        };
        let next = escaped_unit(&text[at + 6..]);
        if HIGH.contains(&unit) && next.is_some_and(|next| HALVES.contains(&next) && !HIGH.contains(&next)) {
            at += 12;
        } else if HALVES.contains(&unit) {
            let marked = marked.get_or_insert_default();
            marked.push_str(&text[from..at]);
            marked.extend(char::from_u32(MARKS + u32::from(unit - HALVES.start)));
            at += 6;
            from = at;
        } else {
            at += 6;
        }
    }
    marked.map(|marked| marked + &text[from..])
}

/// Returns the number in `\uXXXX` at the beginning of a text.
fn escaped_unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok())?
}

/// Joins the half at the end of the previous piece with a piece that may contain marks. Returns the text, and the half
/// at its own end.
pub(super) fn joined(left: Option<u16>, piece: &str) -> (String, Option<u16>) {
    let mut units: Vec<u16> = left.into_iter().collect();
    for c in piece.chars() {
        match u32::from(c).checked_sub(MARKS).and_then(|half| u16::try_from(half).ok()) {
            Some(half) => units.push(HALVES.start + half),
            None => units.extend_from_slice(c.encode_utf16(&mut [0; 2])),
        }
    }
    let left = units.pop_if(|unit| HIGH.contains(unit));
    (char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect(), left)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text that results from these JSON strings of one part.
    fn read(pieces: &[&str]) -> String {
        let (mut whole, mut left) = (String::new(), None);
        for piece in pieces {
            let (event, has_marks) = marked(piece.as_bytes());
            let piece: String = serde_json::from_str(&event).unwrap_or_else(|error| panic!("{error}: {event}"));
            let (text, rest) = if has_marks || left.is_some() { joined(left, &piece) } else { (piece, None) };
            whole.push_str(&text);
            left = rest;
        }
        if left.is_none() { whole } else { whole + "\u{fffd}" }
    }

    #[test]
    fn halves_are_joined_and_lone_ones_replaced() {
        for (pieces, expected) in [
            (&[r#""a \ud83d""#, r#""\udea2 b""#][..], "a 🚢 b"),
            (&[r#""\uD83D\uDEA2""#], "🚢"),
            (&[r#""\ud83d""#, r#""""#, r#""\udea2""#], "🚢"),
            (&[r#""a \ud99c b""#], "a \u{fffd} b"),
            (&[r#""a \udea2 b""#], "a \u{fffd} b"),
            (&[r#""a \ud83d""#, r#""b""#], "a \u{fffd}b"),
            (&[r#""a \ud83d""#], "a \u{fffd}"),
            (&[r#""\ud83d\ud83d\udea2\udea2""#], "\u{fffd}🚢\u{fffd}"),
            // An escaped backslash before a `u` is not part of an escape.
            (&[r#""\\ud83d \\\ud83d""#, r#""\udea2""#], "\\ud83d \\🚢"),
            // A character that looks like a mark stays if there are no halves.
            (&["\"\u{10ffd0}\""], "\u{10ffd0}"),
        ] {
            assert_eq!(read(pieces), expected, "{pieces:?}");
        }
    }

    #[test]
    fn an_event_without_halves_is_not_copied() {
        for event in [r#"{"a":"plain é 🚢 \n \u00e9 \ud83d\udea2"}"#, "[DONE]", ""] {
            assert!(matches!(marked(event.as_bytes()), (Cow::Borrowed(_), false)), "{event}");
        }
    }
}
