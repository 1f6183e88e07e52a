//! Finds what is exact in a sentence: paths, addresses, numbers with units, quotations, code symbols.
//!
//! Nothing is understood. When in doubt a word counts: one identifier too many costs a line, a missed one costs a fact.
//! The work is linear in the sentence.

mod found;
mod words;

pub(crate) use found::{Found, IdentifierKind};

use crate::core::text::words::Listed;
use words::split;

/// Maximum bytes of an identifier; anything longer is data.
const IDENTIFIER_BYTES_MAX: usize = 300;

/// Words before a small number that make it a name.
static LABELS: Listed = Listed::new(
    "port version room line lines issue ticket pr step chapter page gate flight no number nr build release floor \
     apartment seat table order invoice case section level node shard bus tram line track platform row version v eur \
     usd chf gbp zimmer raum seite gleis linie",
);
/// Words after a number that are not its unit.
static NO_UNITS: Listed = Listed::new(
    "a an and or of is are was were in on at to the by for from with as it its he she we you they i but if so than \
     then that this which who not und oder ist im am auf zu der die das",
);
/// Words before a name.
static NAMING: Listed = Listed::new(
    "called named nicknamed codenamed code-named dubbed titled heißt heisst heiße namens llama llamado appelle chiama",
);
/// Words before a name in a sentence that says what something is.
static IS: Listed = Listed::new("is are ist sind es est è = :");
/// First words of a sentence that says what something is.
static TELLING: Listed =
    Listed::new("my our the mein meine unser unsere der die das mi mis nuestra nuestro mon ma notre");

/// Returns the identifiers of a sentence, in order and without overlaps.
pub(crate) fn identify(sentence: &str) -> Vec<Found> {
    let words = split(sentence);
    let mut found: Vec<Found> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let word = words[at];
        if let Some(quoted) = word.quoted {
            let inner = &sentence[quoted.start..quoted.end];
            let kind = if quoted.kind == IdentifierKind::Symbol {
                classify(inner).unwrap_or(IdentifierKind::Symbol)
            } else {
                quoted.kind
            };
            found.push(Found { kind, ..quoted });
            at += 1;
            continue;
        }
        let text = &sentence[word.start..word.end];
        let before = at.checked_sub(1).map(|at| words[at].text(sentence)).unwrap_or_default();
        let after = words.get(at + 1).map(|word| word.text(sentence)).unwrap_or_default();
        let small = is_small_number(text);
        if small {
            if LABELS.has_any_case(before) || before.ends_with('#') {
                let start = words[at - 1].start;
                found.push(Found { kind: IdentifierKind::Number, start, end: word.end });
            } else if is_unit(after) {
                found.push(Found { kind: IdentifierKind::Number, start: word.start, end: words[at + 1].end });
                at += 1;
            }
        } else if let Some(kind) = classify(text) {
            let with_unit = kind == IdentifierKind::Number && is_plain_number(text) && is_unit(after);
            let end = if with_unit { words[at + 1].end } else { word.end };
            found.push(Found { kind, start: word.start, end });
            at += usize::from(with_unit);
        } else if is_capital(text) && names(sentence, before, at) {
            let more = words[at + 1..].iter().take(2).take_while(|next| is_capital(next.text(sentence))).count();
            found.push(Found { kind: IdentifierKind::Name, start: word.start, end: words[at + more].end });
            at += more;
        }
        at += 1;
    }
    found.retain(|found| found.end - found.start <= IDENTIFIER_BYTES_MAX);
    found
}

/// Classifies a word by its form; `None` for ordinary words, and for small numbers, which need a unit.
pub(super) fn classify(word: &str) -> Option<IdentifierKind> {
    let bytes = word.as_bytes();
    // Fast path: most words.
    if bytes.iter().all(u8::is_ascii_lowercase) {
        return None;
    }
    let has_letter =
        if word.is_ascii() { bytes.iter().any(u8::is_ascii_alphabetic) } else { word.contains(char::is_alphabetic) };
    let has_digit = bytes.iter().any(u8::is_ascii_digit);
    // Most others: capitalised words, and numbers.
    let is_plain = |byte: &u8| if has_digit { byte.is_ascii_digit() } else { byte.is_ascii_lowercase() };
    if bytes[0].is_ascii_alphanumeric() && bytes[1..].iter().all(is_plain) && has_digit != has_letter {
        return (has_digit && !is_small_number(word)).then_some(IdentifierKind::Number);
    }
    if holds(word, b"://") || word.starts_with("www.") {
        return Some(IdentifierKind::Url);
    }
    if let Some((name, host)) = word.split_once('@')
        && !name.is_empty()
        && host.contains('.')
    {
        return Some(IdentifierKind::Email);
    }
    if !has_letter {
        return (has_digit && !is_small_number(word)).then_some(IdentifierKind::Number);
    }
    if is_path(word, has_digit) {
        return Some(IdentifierKind::Path);
    }
    if is_symbol(word) {
        return Some(IdentifierKind::Symbol);
    }
    if has_digit {
        return Some(if is_number_with_unit(word) { IdentifierKind::Number } else { IdentifierKind::Id });
    }
    is_file_name(word).then_some(IdentifierKind::Path)
}

/// Returns true if a word contains these bytes. For something this short, setting up a search costs more than the
/// search.
fn holds(word: &str, bytes: &[u8]) -> bool {
    word.as_bytes().windows(bytes.len()).any(|window| window == bytes)
}

fn is_path(word: &str, has_digit: bool) -> bool {
    if word.contains('\\') {
        return true;
    }
    if !word.contains('/') {
        return false;
    }
    if ["/", "./", "../", "~/", "@"].iter().any(|root| word.starts_with(root)) {
        return word.len() > 2;
    }
    let pieces = word.split('/').filter(|piece| !piece.is_empty()).count();
    // `and/or` and `km/h` are not paths.
    pieces >= 3 || pieces == 2 && (has_digit || word.contains(['.', '_', '-']) || word.ends_with('/'))
}

/// Recognises a name with an extension: `main.rs`, `Dockerfile.dev`, `example.org`.
fn is_file_name(word: &str) -> bool {
    let Some((stem, extension)) = word.rsplit_once('.') else { return false };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    stem.len() + extension.len() > 3
        && !extension.is_empty()
        && extension.len() <= 10
        && extension.bytes().all(|byte| byte.is_ascii_lowercase())
        && word.chars().all(is_plain)
}

fn is_symbol(word: &str) -> bool {
    if holds(word, b"::") || holds(word, b"()") || holds(word, b"->") {
        return true;
    }
    if let Some(flag) = word.strip_prefix("--") {
        return flag.starts_with(|c: char| c.is_ascii_alphabetic());
    }
    let mut last = ' ';
    let mut humps = 0;
    for c in word.chars() {
        if c == '_' && last.is_alphanumeric() && !word.ends_with('_') {
            return true;
        }
        humps += usize::from(c.is_ascii_uppercase() && last.is_ascii_lowercase());
        last = c;
    }
    // `useState`, `ContextManager`; a name such as `McDonald` does little harm.
    humps > 0 && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
}

/// Recognises `16GB`, `250ms`, `v1.2.3`, `8pm`, `20€`.
fn is_number_with_unit(word: &str) -> bool {
    if word.strip_prefix(['v', 'V']).is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit())) {
        return true;
    }
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | ':' | '-' | '+'));
    unit.len() < word.len()
        && unit.chars().count() <= 4
        && unit.chars().all(|c| c.is_alphabetic() || matches!(c, '/' | '°' | '%'))
}

/// Recognises a number that means nothing alone: one or two digits.
fn is_small_number(word: &str) -> bool {
    (1..=2).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_plain_number(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','))
}

fn is_unit(word: &str) -> bool {
    let is_word = |c: char| c.is_alphabetic() || matches!(c, '%' | '°' | '/' | '€' | '$' | '£');
    !word.is_empty() && word.len() <= 20 && word.chars().all(is_word) && !NO_UNITS.has_any_case(word)
}

fn is_capital(word: &str) -> bool {
    word.starts_with(char::is_uppercase) && !matches!(word, "I" | "I'm" | "I'll" | "I've" | "I'd")
}

/// Returns true if the preceding words announce a name.
fn names(sentence: &str, before: &str, at: usize) -> bool {
    let first = || sentence.split_whitespace().next().unwrap_or_default();
    NAMING.has_any_case(before) || (2..=9).contains(&at) && IS.has_any_case(before) && TELLING.has_any_case(first())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(sentence: &str, expected: &[(IdentifierKind, &str)]) {
        let found: Vec<(IdentifierKind, &str)> =
            identify(sentence).iter().map(|found| (found.kind, &sentence[found.start..found.end])).collect();
        assert_eq!(found, expected, "{sentence}");
    }

    #[test]
    fn what_is_exact_is_found() {
        check(
            "Look at src/main.rs, and at ./a or /etc/app.conf.",
            &[
                (IdentifierKind::Path, "src/main.rs"),
                (IdentifierKind::Path, "./a"),
                (IdentifierKind::Path, "/etc/app.conf"),
            ],
        );
        check(
            "C:\\Users\\ann\\x.txt and main.rs (README.md)",
            &[
                (IdentifierKind::Path, "C:\\Users\\ann\\x.txt"),
                (IdentifierKind::Path, "main.rs"),
                (IdentifierKind::Path, "README.md"),
            ],
        );
        check(
            "see https://example.org:8443/a?b=1, www.x.de or mail ann@example.org!",
            &[
                (IdentifierKind::Url, "https://example.org:8443/a?b=1"),
                (IdentifierKind::Url, "www.x.de"),
                (IdentifierKind::Email, "ann@example.org"),
            ],
        );
        check(
            "It takes 250 ms, 16GB, 3 days, $5 and 20 % until 2026-03-15 at 14:30 on port 8443.",
            &[
                (IdentifierKind::Number, "250 ms"),
                (IdentifierKind::Number, "16GB"),
                (IdentifierKind::Number, "3 days"),
                (IdentifierKind::Number, "$5"),
                (IdentifierKind::Number, "20 %"),
                (IdentifierKind::Number, "2026-03-15"),
                (IdentifierKind::Number, "14:30"),
                (IdentifierKind::Number, "8443"),
            ],
        );
        check(
            "version 3 and v1.2.3 in room 12, 1,200 rows",
            &[
                (IdentifierKind::Number, "version 3"),
                (IdentifierKind::Number, "v1.2.3"),
                (IdentifierKind::Number, "room 12"),
                (IdentifierKind::Number, "1,200 rows"),
            ],
        );
        check(
            "call parse_line(), useState, MAX_SIZE, std::fs and `cargo test --lib` with --release",
            &[
                (IdentifierKind::Symbol, "parse_line()"),
                (IdentifierKind::Symbol, "useState"),
                (IdentifierKind::Symbol, "MAX_SIZE"),
                (IdentifierKind::Symbol, "std::fs"),
                (IdentifierKind::Symbol, "cargo test --lib"),
                (IdentifierKind::Symbol, "--release"),
            ],
        );
        check(
            "commit 9fceb02 is order tulip-77, id 123e4567-e89b-12d3-a456-426614174000",
            &[
                (IdentifierKind::Id, "9fceb02"),
                (IdentifierKind::Id, "tulip-77"),
                (IdentifierKind::Id, "123e4567-e89b-12d3-a456-426614174000"),
            ],
        );
        check(
            "it says \"Blue Moon\" and “left” and 'x y', don't",
            &[(IdentifierKind::Quoted, "Blue Moon"), (IdentifierKind::Quoted, "left"), (IdentifierKind::Quoted, "x y")],
        );
        check(
            "My cat is called Miso and our team is Red Falcon",
            &[(IdentifierKind::Name, "Miso"), (IdentifierKind::Name, "Red Falcon")],
        );
        check(
            "端口是8443，路径是/etc/app.conf，名字是「蓝月」。",
            &[
                (IdentifierKind::Number, "8443"),
                (IdentifierKind::Path, "/etc/app.conf"),
                (IdentifierKind::Quoted, "蓝月"),
            ],
        );
    }

    #[test]
    fn words_are_no_identifiers() {
        for sentence in [
            "",
            "Nice weather today, and/or tomorrow, he/she said.",
            "I have been there. We met in Paris e.g. twice",
            "chapter and verse... (really?) don't \"",
            "5 or 6, at 7",
        ] {
            check(sentence, &[]);
        }
    }

    proptest! {
        #[test]
        fn what_is_found_stands_there_in_order(sentence in "(\\PC|[\"'`“”a-z0-9 /.:]){0,120}") {
            let mut end = 0;
            for found in identify(&sentence) {
                prop_assert!(found.start >= end && found.start < found.end, "{:?}", found);
                prop_assert!(!sentence[found.start..found.end].trim().is_empty());
                end = found.end;
            }
        }
    }
}
