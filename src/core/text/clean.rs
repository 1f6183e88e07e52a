//! Removes invisible characters, which can hide an instruction from a person and show it to a model.
//!
//! Invariants:
//! - invisible and direction-changing characters, control codes and terminal colours are removed; every kind of line
//!   break becomes `\n`, so that lines mean the same to a reader and to the model;
//! - characters that a person would miss stay: joiners within emoji, and those in the spelling of Persian and the
//!   scripts of India;
//! - cleaning is idempotent, and the work is linear.

use super::fold::any_byte;
use std::borrow::Cow;

/// Maximum characters of a terminal command's parameters; a longer sequence is not a command.
const TERMINAL_CHARS_MAX: usize = 64;

/// The flags written with tag characters that Unicode recommends. Any other run of tags is hidden text.
const TAG_FLAGS: [&str; 3] = ["gbeng", "gbsct", "gbwls"];

const ZWNJ: char = '\u{200c}';
const ZWJ: char = '\u{200d}';
const TAG_END: char = '\u{e007f}';

/// Removes invisible characters from a text.
#[must_use]
pub fn clean(text: &str) -> Cow<'_, str> {
    if !any_byte(text, |byte| !matches!(byte, b'\n' | b'\t' | b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text.chars();
    let mut last = None;
    while let Some(c) = rest.next() {
        let kept = match c {
            ' '..='~' | '\n' | '\t' => Some(c),
            '\r' if rest.as_str().starts_with('\n') => None,
            '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => Some('\n'),
            '\u{1b}' => {
                rest = after_terminal_command(rest.as_str()).chars();
                None
            }
            '\u{1f3f4}' => {
                cleaned.push(c);
                let flag = flag_tags(rest.as_str());
                cleaned.push_str(flag);
                rest = rest.as_str()[flag.len()..].chars();
                last = Some(c);
                continue;
            }
            ZWNJ | ZWJ => joins(last, c, rest.as_str().chars().next()).then_some(c),
            '\u{fe0e}' | '\u{fe0f}' => selects(last, rest.as_str().chars().next()).then_some(c),
            '\u{180b}'..='\u{180f}' => last.is_some_and(is_mongolian).then_some(c),
            _ if is_invisible(c) => None,
            _ => Some(c),
        };
        if let Some(kept) = kept {
            cleaned.push(kept);
            last = Some(kept);
        }
    }
    if cleaned == text { Cow::Borrowed(text) } else { Cow::Owned(cleaned) }
}

/// Returns true for characters that are invisible everywhere. Those that depend on their neighbours are handled before.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fdd0}'..='\u{fdef}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
        || u32::from(c) & 0xfffe == 0xfffe
}

/// Returns true if a joiner or non-joiner between these two belongs to the spelling.
fn joins(last: Option<char>, joiner: char, next: Option<char>) -> bool {
    let Some(last) = last else { return false };
    if joiner == ZWJ && (is_pictograph(last) || last == '\u{fe0f}') && next.is_some_and(is_pictograph) {
        return true;
    }
    // A half form of a consonant may end a word.
    if joiner == ZWJ && is_virama(last) {
        return true;
    }
    is_joining_letter(last) && next.is_some_and(is_joining_letter)
}

/// Returns true if a variation selector after this character chooses between emoji and text form.
fn selects(last: Option<char>, next: Option<char>) -> bool {
    match last {
        Some('0'..='9' | '#' | '*') => next == Some('\u{20e3}'),
        Some(last) => is_pictograph(last),
        None => false,
    }
}

fn is_pictograph(c: char) -> bool {
    matches!(c, '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{2194}'..='\u{21aa}'
        | '\u{231a}'..='\u{23ff}' | '\u{24c2}' | '\u{25aa}'..='\u{25fe}' | '\u{2600}'..='\u{27bf}' | '\u{2934}'
        | '\u{2935}' | '\u{2b05}'..='\u{2b55}' | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}'
        | '\u{1f000}'..='\u{1faff}')
}

/// Returns true for letters whose form depends on their neighbours, so that joiners are spelling: Arabic, Syriac, N'Ko,
/// Mongolian, the scripts of India and those derived from them.
fn is_joining_letter(c: char) -> bool {
    let in_script = matches!(c, '\u{620}'..='\u{6ff}' | '\u{700}'..='\u{77f}' | '\u{7c0}'..='\u{7ff}'
        | '\u{8a0}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{1a20}'..='\u{1aad}' | '\u{1b00}'..='\u{1bff}'
        | '\u{a980}'..='\u{a9df}' | '\u{fb50}'..='\u{fdcf}' | '\u{fe70}'..='\u{fefc}' | '\u{11000}'..='\u{11fff}');
    // Vowel signs count as letters here: most are alphabetic, viramas are not.
    (in_script && (c.is_alphabetic() || is_virama(c) || matches!(c, '\u{64b}'..='\u{65f}' | '\u{93c}' | '\u{9bc}')))
        || is_mongolian(c)
}

fn is_virama(c: char) -> bool {
    matches!(
        c,
        '\u{94d}'
            | '\u{9cd}'
            | '\u{a4d}'
            | '\u{acd}'
            | '\u{b4d}'
            | '\u{bcd}'
            | '\u{c4d}'
            | '\u{ccd}'
            | '\u{d4d}'
            | '\u{dca}'
            | '\u{1039}'
            | '\u{17d2}'
    )
}

fn is_mongolian(c: char) -> bool {
    matches!(c, '\u{1820}'..='\u{18aa}')
}

/// Returns the tags after a black flag that form a country's flag; empty if they do not.
fn flag_tags(rest: &str) -> &str {
    let tags = rest.char_indices().take_while(|(_, c)| matches!(c, '\u{e0020}'..='\u{e007f}')).take(6);
    let mut letters = String::new();
    for (at, tag) in tags {
        if tag == TAG_END {
            return if TAG_FLAGS.contains(&letters.as_str()) { &rest[..at + tag.len_utf8()] } else { "" };
        }
        letters.extend(char::from_u32(u32::from(tag) - 0xe0000));
    }
    ""
}

/// Returns the text after a terminal command, given the text after its escape character.
fn after_terminal_command(rest: &str) -> &str {
    let Some(parameters) = rest.strip_prefix('[') else { return rest };
    let mut chars = parameters.char_indices().take(TERMINAL_CHARS_MAX);
    match chars.find(|(_, c)| !matches!(c, ' '..='?')) {
        Some((at, '@'..='~')) => &parameters[at + 1..],
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invisible_characters_are_removed() {
        for (text, expected) in [
            ("plain text,\n\tindented", "plain text,\n\tindented"),
            ("ig\u{200b}no\u{2060}re", "ignore"),
            ("a\u{202e}b\u{2066}c\u{2069}d\u{200e}e\u{200f}f\u{61c}g", "abcdefg"),
            ("soft\u{ad}hyphen \u{feff}mark \u{fff9}x\u{fffa}y\u{fffb}", "softhyphen mark xy"),
            ("tags\u{e0041}\u{e0042}\u{e007f}.", "tags."),
            ("byte\u{fe00}by\u{fe0f}byte\u{e0100}", "bytebybyte"),
            ("nul\0bell\u{7}del\u{7f}c1\u{9b}", "nulbelldelc1"),
            ("one\r\ntwo\rthree\u{2028}four\u{85}five", "one\ntwo\nthree\nfour\nfive"),
            ("\u{1b}[1;31mred\u{1b}[0m \u{1b}]0;title\u{7}", "red ]0;title"),
            ("\u{1b}[", "["),
            ("a\u{200d}b\u{200c}c 猫\u{200d}狗", "abc 猫狗"),
            ("\u{3164}\u{115f}filler\u{ffa0}", "filler"),
        ] {
            assert_eq!(clean(text), expected, "{text:?}");
        }
    }

    #[test]
    fn joiners_that_belong_to_the_spelling_stay() {
        for text in [
            "👩\u{200d}💻 👨\u{200d}👩\u{200d}👧\u{200d}👦",
            "🏳\u{fe0f}\u{200d}🌈 🏴\u{200d}☠\u{fe0f} ❤\u{fe0f}\u{200d}🔥",
            "👍🏽 🧑🏿\u{200d}🚀 1\u{fe0f}\u{20e3} #\u{fe0f}\u{20e3} ☎\u{fe0e} ©\u{fe0f} 🇩🇪",
            "🏴\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}",
            "می\u{200c}خواهم خانه\u{200c}ها",
            "क्\u{200d}ष क्\u{200c}ष ක්\u{200d}ර ന്\u{200d} ",
            "é ñ ü Ελλάδα русский 日本語 한국어 العربية",
        ] {
            assert_eq!(clean(text), text, "{text:?}");
        }
    }

    #[test]
    fn a_joiner_hides_nothing() {
        for (text, expected) in [
            ("می\u{200c}\u{200c}\u{200d}خواهم", "می\u{200d}خواهم"),
            ("👩\u{200d}\u{200d}💻", "👩\u{200d}💻"),
            ("👩\u{200d} 💻", "👩 💻"),
            ("👍\u{fe0f}\u{fe0f}\u{fe0e}", "👍\u{fe0f}"),
            ("🏴\u{e0069}\u{e0067}\u{e006e}\u{e006f}\u{e0072}\u{e0065}\u{e007f}", "🏴"),
            ("7\u{fe0f}", "7"),
        ] {
            assert_eq!(clean(text), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn cleaning_is_idempotent(text in "(\\PC|[\u{200b}-\u{200f}\u{1b}\\[\r\n👩💻\u{fe0f}\u{e0062}\u{e007f}🏴1\u{20e3}می क्]){0,60}") {
            let once = clean(&text).into_owned();
            prop_assert_eq!(clean(&once).into_owned(), once.clone());
            let hidden = once.contains(['\u{200b}', '\u{202e}', '\r', '\u{1b}']);
            prop_assert!(!hidden, "{:?}", once);
        }

        #[test]
        fn any_text_is_cleaned(text in any::<String>()) {
            let once = clean(&text).into_owned();
            prop_assert_eq!(clean(&once).into_owned(), once);
        }
    }
}
