//! Makes text visible that a person decides about: nothing in it may hide, or change the reading direction.

use std::{borrow::Cow, fmt::Write as _};

/// Returns the text with every character that is invisible, or that reorders others, written as `⟨U+202E⟩`. Tabs and
/// line ends stay, because they are visible.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(hides) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hides(c) {
            let _ = write!(shown, "⟨U+{:04X}⟩", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Returns true if this character is invisible or changes the order in which others are shown: Unicode's control,
/// format and default-ignorable characters, spaces other than the plain one, and fillers that look empty.
fn hides(c: char) -> bool {
    if matches!(c, '\n' | '\t') {
        return false;
    }
    c.is_control()
        || matches!(c,
            '\u{00a0}' | '\u{00ad}' | '\u{034f}' | '\u{0600}'..='\u{0605}' | '\u{061c}' | '\u{06dd}' | '\u{070f}' | '\u{08e2}'
            | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1d159}' | '\u{115f}'..='\u{1160}' | '\u{1680}'
            | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}'
            | '\u{205f}'..='\u{206f}' | '\u{2800}' | '\u{3000}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::visible;

    #[test]
    fn hidden_and_direction_changing_characters_are_made_visible() {
        let table = [
            ("rm -rf build\n\tdone", "rm -rf build\n\tdone"),
            ("größe 日本語 ไทย 🙂", "größe 日本語 ไทย 🙂"),
            ("a\u{202e}gpj.exe", "a⟨U+202E⟩gpj.exe"),
            ("rm\u{00a0}-rf", "rm⟨U+00A0⟩-rf"),
            ("zero\u{200b}width", "zero⟨U+200B⟩width"),
            ("tag\u{e0041}", "tag⟨U+E0041⟩"),
            ("bell\u{7}\r", "bell⟨U+0007⟩⟨U+000D⟩"),
            ("x\u{2066}y\u{2069}", "x⟨U+2066⟩y⟨U+2069⟩"),
        ];
        for (text, expected) in table {
            assert_eq!(visible(text), expected, "{text:?}");
        }
    }
}
