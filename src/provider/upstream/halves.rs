//! Joins characters that arrive in halves.
//!
//! A server that sends each token as it comes may cut a character in two. It may split an escaped pair (`\ud83d` in one
//! event, `\udea2` in the next) or the character's bytes. Neither half is text, and a JSON parser rejects both. So a
//! half is replaced by marks before the event is parsed, and joined with the other half where the pieces of a part
//! meet. A half without its counterpart becomes U+FFFD.
//!
//! Nearly every event has no halves, and is neither changed nor copied.

use std::borrow::Cow;

/// The first of the characters that mark bytes which are not text. The byte is added to this. The characters are in a
/// private area at the end of Unicode, and are read as marks only in an event in which [`marked`] put some.
const MARKS: u32 = 0x10_FF00;

/// Returns the event as text with marks for halves, and whether there are any.
pub(crate) fn marked(event: &[u8]) -> (Cow<'_, str>, bool) {
    let (text, broken) = match std::str::from_utf8(event) {
        Ok(text) => (Cow::Borrowed(text), false),
        Err(_) => (Cow::Owned(mark_bytes(event)), true),
    };
    match mark_escapes(&text) {
        Some(marked) => (Cow::Owned(marked), true),
        None => (text, broken),
    }
}

/// Returns the text with marks for the bytes that are not UTF-8.
fn mark_bytes(event: &[u8]) -> String {
    let mut text = String::with_capacity(event.len());
    for chunk in event.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|&byte| mark(byte)));
    }
    text
}

/// Returns the JSON text with marks for escaped halves; `None` if it has none.
fn mark_escapes(text: &str) -> Option<String> {
    let mut marked: Option<String> = None;
    let (mut from, mut at) = (0, 0);
    while let Some(found) = text[at..].find('\\') {
        at += found;
        let Some(unit) = escaped_unit(&text[at..]) else {
            // The next character is escaped, even if it is a backslash.
            at += 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8);
            continue;
        };
        let is_high = (0xD800..0xDC00).contains(&unit);
        let is_half = (0xD800..0xE000).contains(&unit);
        if is_high && escaped_unit(&text[at + 6..]).is_some_and(|next| (0xDC00..0xE000).contains(&next)) {
            at += 12;
        } else if is_half {
            let marked = marked.get_or_insert_default();
            marked.push_str(&text[from..at]);
            marked.extend(encoded(unit).map(mark));
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

/// Returns half of a surrogate pair in the form that UTF-8 would give it.
fn encoded(unit: u16) -> [u8; 3] {
    [0xE0 | (unit >> 12) as u8, 0x80 | (unit >> 6 & 0x3F) as u8, 0x80 | (unit & 0x3F) as u8]
}

fn mark(byte: u8) -> char {
    char::from_u32(MARKS + u32::from(byte)).expect("the last characters of Unicode")
}

/// Joins the rest of the previous piece with a piece that may contain marks. Returns the text, and its own rest: half
/// of a character at its end.
pub(super) fn joined(mut left: Vec<u8>, piece: &str, has_marks: bool) -> (String, Vec<u8>) {
    if has_marks {
        for c in piece.chars() {
            match u32::from(c).checked_sub(MARKS).map(u8::try_from) {
                Some(Ok(byte)) => left.push(byte),
                _ => left.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    } else {
        left.extend_from_slice(piece.as_bytes());
    }
    let mut text = String::with_capacity(left.len());
    let mut rest = left.as_slice();
    loop {
        let valid = match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return (text, Vec::new());
            }
            Err(error) => error.valid_up_to(),
        };
        text.push_str(&String::from_utf8_lossy(&rest[..valid]));
        rest = &rest[valid..];
        match character(rest) {
            Half::Pair(c) => {
                text.push(c);
                rest = &rest[6..];
            }
            Half::Open => return (text, rest.to_vec()),
            Half::Lone(bytes) => {
                text.push(char::REPLACEMENT_CHARACTER);
                rest = &rest[bytes..];
            }
        }
    }
}

/// How bytes that are not text begin.
enum Half {
    /// Both halves of a pair.
    Pair(char),
    /// The first half, at the end of the bytes.
    Open,
    /// A half of this many bytes that is not followed by its other half.
    Lone(usize),
}

fn character(bytes: &[u8]) -> Half {
    let is_half = |bytes: &[u8], second: std::ops::Range<u8>| {
        let expected: [std::ops::Range<u8>; 3] = [0xED..0xEE, second, 0x80..0xC0];
        bytes.iter().zip(expected).all(|(byte, range)| range.contains(byte))
    };
    let (first, second) = (&bytes[..bytes.len().min(3)], &bytes[bytes.len().min(3)..bytes.len().min(6)]);
    if is_half(first, 0xA0..0xB0) {
        return match second.len() {
            3 if is_half(second, 0xB0..0xC0) => pair(first, second).map_or(Half::Lone(3), Half::Pair),
            0..3 if is_half(second, 0xB0..0xC0) => Half::Open,
            _ => Half::Lone(first.len()),
        };
    }
    if first.len() == 3 && is_half(first, 0xB0..0xC0) {
        return Half::Lone(3);
    }
    match std::str::from_utf8(bytes).err().and_then(|error| error.error_len()) {
        Some(bytes) => Half::Lone(bytes),
        None => Half::Open,
    }
}

fn pair(high: &[u8], low: &[u8]) -> Option<char> {
    let unit = |bytes: &[u8]| u16::from(bytes[1] & 0x3F) << 6 | u16::from(bytes[2] & 0x3F) | 0xD000;
    char::decode_utf16([unit(high), unit(low)]).next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text that results from these JSON strings of one part.
    fn read(pieces: &[&[u8]]) -> String {
        let (mut whole, mut left) = (String::new(), Vec::new());
        for piece in pieces {
            let (event, has_marks) = marked(piece);
            let piece: String = serde_json::from_str(&event).unwrap_or_else(|error| panic!("{error}: {event}"));
            let (text, rest) = joined(left, &piece, has_marks);
            whole.push_str(&text);
            left = rest;
        }
        if left.is_empty() { whole } else { whole + "\u{fffd}" }
    }

    #[test]
    fn halves_are_joined_and_lone_ones_replaced() {
        let raw = |bytes: &[u8]| [b"\"", bytes, b"\""].concat();
        let ship = "🚢".as_bytes();
        let cesu = b"\xED\xA0\xBD\xED\xBA\xA2";
        for (pieces, expected) in [
            (vec![br#""a \ud83d""#.to_vec(), br#""\udea2 b""#.to_vec()], "a 🚢 b"),
            (vec![br#""\uD83D\uDEA2""#.to_vec()], "🚢"),
            (vec![br#""\ud83d""#.to_vec(), br#""""#.to_vec(), br#""\udea2""#.to_vec()], "🚢"),
            (vec![br#""a \ud99c b""#.to_vec()], "a \u{fffd} b"),
            (vec![br#""a \udea2 b""#.to_vec()], "a \u{fffd} b"),
            (vec![br#""a \ud83d""#.to_vec(), br#""b""#.to_vec()], "a \u{fffd}b"),
            (vec![br#""a \ud83d""#.to_vec()], "a \u{fffd}"),
            (vec![br#""\ud83d\ud83d\udea2\udea2""#.to_vec()], "\u{fffd}🚢\u{fffd}"),
            // An escaped backslash before a `u` is not part of an escape.
            (vec![br#""\\ud83d \\\ud83d""#.to_vec(), br#""\udea2""#.to_vec()], "\\ud83d \\🚢"),
            // As bytes: a character cut in two or four, and halves of a pair that were encoded directly.
            (vec![raw(&ship[..2]), raw(&ship[2..])], "🚢"),
            (ship.iter().map(|byte| raw(&[*byte])).collect(), "🚢"),
            (vec![raw(&cesu[..3]), raw(&cesu[3..])], "🚢"),
            (vec![raw(cesu)], "🚢"),
            (vec![raw(&cesu[..3]), br#""\udea2""#.to_vec()], "🚢"),
            (vec![raw(b"a\xFFb"), raw(b"\xC3"), raw(b"x")], "a\u{fffd}b\u{fffd}x"),
            // A character that looks like a mark stays if there are no halves.
            (vec!["\"\u{10ffd0}\"".as_bytes().to_vec()], "\u{10ffd0}"),
        ] {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            assert_eq!(read(&pieces), expected, "{pieces:?}");
        }
    }

    #[test]
    fn an_event_without_halves_is_not_copied() {
        for event in [r#"{"a":"plain é 🚢 \n \u00e9 \ud83d\udea2"}"#, "[DONE]", ""] {
            assert!(matches!(marked(event.as_bytes()), (Cow::Borrowed(_), false)), "{event}");
        }
    }
}
