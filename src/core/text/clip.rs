//! Clips long texts; never splits a character.

use std::borrow::Cow;

/// Returns the text, or its head and tail with a note of how many characters were left out. Never splits a character.
#[must_use]
pub fn clip(text: &str, chars_max: usize) -> Cow<'_, str> {
    match head_and_tail(text, chars_max) {
        Some((head, tail, left_out)) => Cow::Owned(format!("{head}\n[… {left_out} characters left out …]\n{tail}")),
        None => Cow::Borrowed(text),
    }
}

/// Returns the head and the tail of a longer text and the number of characters between them. Never splits a character.
pub fn head_and_tail(text: &str, chars_max: usize) -> Option<(&str, &str, usize)> {
    if text.len() <= chars_max {
        return None;
    }
    let chars = text.chars().count();
    if chars <= chars_max {
        return None;
    }
    let tail_chars = chars_max / 3;
    let head = prefix(text, chars_max - tail_chars);
    let tail = suffix(text, tail_chars);
    Some((head, tail, chars - chars_max))
}

/// Returns the first `chars` characters.
pub fn prefix(text: &str, chars: usize) -> &str {
    if text.as_bytes().get(..chars).is_some_and(<[u8]>::is_ascii) {
        return &text[..chars];
    }
    text.char_indices().nth(chars).map_or(text, |(at, _)| &text[..at])
}

/// Returns the last `chars` characters.
pub fn suffix(text: &str, chars: usize) -> &str {
    if let Some(start) = text.len().checked_sub(chars)
        && text.as_bytes()[start..].is_ascii()
    {
        return &text[start..];
    }
    text.char_indices().rev().nth(chars.saturating_sub(1)).map_or(text, |(at, _)| &text[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_pieces_keep_head_and_tail() {
        assert_eq!(clip("abcdefghijkl", 6), "abcd\n[… 6 characters left out …]\nkl");
        assert_eq!(clip("猫猫猫狗狗狗", 3), "猫猫\n[… 3 characters left out …]\n狗");
        assert_eq!(clip("猫猫猫", 3), "猫猫猫");
        assert_eq!(clip("ab", 0), "\n[… 2 characters left out …]\n");
    }
}
