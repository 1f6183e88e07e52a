//! Masks secrets: keys, passwords and tokens are replaced with [`MASK`] before a model summarises a text.
//!
//! Invariants:
//! - a secret is recognised by its form (`ghp_…`, a JWT, a PEM block) or by the word before it (`password=`), never by
//!   randomness alone: hashes, UUIDs, paths and numbers are what conversations are about;
//! - the surrounding text stays, so that the reader knows there was a secret;
//! - masking is idempotent, and the work is linear.

mod forms;

pub use forms::MASK;

use forms::{Strength, is_bearer, known, strength};
use std::borrow::Cow;

/// Maximum bytes of a word that is checked as the name of a secret.
const NAME_BYTES_MAX: usize = 64;
/// Maximum bytes, within a sentence, between a word such as "token" and something that looks like one.
const NEAR_BYTES: usize = 48;
/// The length in bytes of a string that counts as a secret because such a word is near.
const NEAR_SECRET_BYTES: std::ops::RangeInclusive<usize> = 20..=512;
/// Maximum bytes of a value that is examined. A longer one without a space is not code, so it is masked.
const VALUE_BYTES_MAX: usize = 1_024;
/// Maximum bytes of a private key: twice the longest in use.
const PEM_BYTES_MAX: usize = 32_768;
const PEM_DASHES: &str = "-----BEGIN";
const PEM_BEGIN: &str = "-----BEGIN ";
const PEM_END: &str = "-----END ";

/// Masks every secret in a text.
#[must_use]
pub fn mask_secrets(text: &str) -> Cow<'_, str> {
    let mut masked = Masked { text, done: 0, masked: String::new(), pem_end: 0 };
    let mut at = 0;
    let mut token_end = 0;
    let mut last_word = 0;
    // The end of the last word that announces a secret on the current line.
    let mut announced: Option<usize> = None;
    loop {
        let rest = &text[at..];
        let Some(c) = rest.chars().next() else { break };
        if !is_word(c) {
            let is_mask = c == '[' && rest.starts_with(MASK);
            at += if is_mask { MASK.len() } else { c.len_utf8() };
            if is_mask || c == '\n' {
                announced = None;
            }
            if c == '\n' {
                last_word = at;
            }
            continue;
        }
        let ascii = rest.bytes().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let more = rest[ascii..].find(|c| !is_word(c)).unwrap_or(rest.len() - ascii);
        let mut word = &rest[..ascii + more];
        // After a line break written as `\n`, the letter is attached to the dashes.
        if let Some(dashes) = word.find(PEM_DASHES).filter(|dashes| rest[*dashes..].starts_with(PEM_BEGIN)) {
            if dashes == 0 {
                at = masked.pem_block(at);
                announced = None;
                continue;
            }
            word = &word[..dashes];
        }
        if at >= token_end {
            token_end = at + token_bytes(rest);
        }
        let token = &text[at..token_end.max(at)];
        let found = known(token).map(|bytes| (at, at + bytes)).or_else(|| {
            let is_near = announced.is_some_and(|end| at - end <= NEAR_BYTES);
            (is_near && is_mixed(token)).then_some((at, token_end))
        });
        let word_end = at + word.len();
        let found = found.or_else(|| is_bearer(word).then(|| bearer(text, word_end)).flatten());
        if let Some((start, end)) = found {
            at = masked.mask(start, end);
            announced = None;
            continue;
        }
        at = word_end;
        if text[word_end..].starts_with("://") {
            at = masked.url(word_end + 3);
            continue;
        }
        let is_second = word.eq_ignore_ascii_case("key") && text[..word_end - word.len()].ends_with(' ');
        let start = if is_second { last_word } else { word_end - word.len() };
        last_word = word_end - word.len();
        let name = text.get(start.max(word_end.saturating_sub(NAME_BYTES_MAX))..word_end).unwrap_or_default();
        if let Some(strength) = strength(name) {
            announced = Some(word_end);
            if let Some((start, end)) = assigned(text, word_end, strength, word.starts_with("--")) {
                at = masked.mask(start, end);
                announced = None;
            }
        }
    }
    masked.finish()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

/// Returns the bytes of a run of key characters.
fn token_bytes(rest: &str) -> usize {
    let is_token =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'+' | b'/' | b'=' | b'~');
    let bytes = rest.bytes().position(|byte| !is_token(byte)).unwrap_or(rest.len());
    // The full stop of a sentence is not part of a key.
    rest[..bytes].trim_end_matches('.').len()
}

/// Returns true for upper- and lower-case letters and digits in one word, without the marks of a path or version.
/// Neither a name nor a hash looks like that.
fn is_mixed(token: &str) -> bool {
    let has = |is: fn(&u8) -> bool| token.bytes().any(|byte| is(&byte));
    let digits = token.bytes().filter(u8::is_ascii_digit).count();
    NEAR_SECRET_BYTES.contains(&token.len())
        && !token.contains(['.', '~'])
        && token.matches('/').count() <= 2
        && !token.starts_with('/')
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && digits >= 2
        && !token.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// Returns the span of the token after `Bearer `.
fn bearer(text: &str, word_end: usize) -> Option<(usize, usize)> {
    let rest = text[word_end..].strip_prefix(' ')?.trim_start_matches(' ');
    let start = text.len() - rest.len();
    let bytes = token_bytes(rest);
    let token = &rest[..bytes];
    let is_secret = bytes >= 12 && token.bytes().any(|byte| byte.is_ascii_digit());
    is_secret.then_some((start, start + bytes))
}

/// Returns the span of the value assigned to the name that ends here.
fn assigned(text: &str, name_end: usize, strength: Strength, is_option: bool) -> Option<(usize, usize)> {
    let mut rest = text[name_end..].trim_start_matches(['"', '\'', '`', '*', ']', ')', '\\']);
    let spaced = rest;
    rest = rest.trim_start_matches([' ', '\t']);
    let sign = ["=>", ":=", "==", "=", ":", "："].into_iter().find(|sign| rest.starts_with(sign));
    let is_tight = match sign {
        // `==` compares, and `::` is a path separator.
        Some("==") => return None,
        Some(sign) => {
            rest = &rest[sign.len()..];
            if rest.starts_with([':', '=']) {
                return None;
            }
            sign.contains('=') || !rest.starts_with(' ')
        }
        None if is_option && spaced.starts_with(' ') => true,
        None => return None,
    };
    rest = rest.trim_start_matches([' ', '\t', '*']);
    let quote = rest.trim_start_matches('\\').chars().next().filter(|c| matches!(c, '"' | '\'' | '`'));
    if quote.is_some() {
        rest = &rest.trim_start_matches('\\')[1..];
    }
    let start = text.len() - rest.len();
    let bytes = match quote {
        Some(quote) => rest.find([quote, '\n', '\\']).unwrap_or(rest.len()),
        None => {
            let end = |c: char| {
                c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ',' | ';' | '&' | ')' | '}' | ']' | '<' | '>' | '|')
            };
            rest.find(end).unwrap_or(rest.len())
        }
    };
    let value = if quote.is_some() { &rest[..bytes] } else { without_punctuation(&rest[..bytes]) };
    let is_prose = !is_tight && quote.is_none() && {
        let behind = rest[value.len()..].trim_start_matches(' ');
        value.chars().all(char::is_alphabetic)
            && behind.len() < rest.len() - value.len()
            && behind.starts_with(char::is_alphabetic)
    };
    let is_secret = !is_prose && (value.len() > VALUE_BYTES_MAX || forms::is_secret(value, strength, quote.is_some()));
    is_secret.then_some((start, start + value.len()))
}

/// Returns a value without the punctuation after it, but with the `=` that pads Base64.
fn without_punctuation(value: &str) -> &str {
    let bare = value.trim_end_matches(['.', '*', ':', '=']);
    let padding = value[bare.len()..].bytes().take_while(|byte| *byte == b'=').count();
    &value[..bare.len() + padding]
}

/// A text being masked.
struct Masked<'a> {
    text: &'a str,
    done: usize,
    masked: String,
    /// Position of the next private key's end. A single search serves all keys before it.
    pem_end: usize,
}

impl<'a> Masked<'a> {
    /// Masks a span; returns where to continue.
    fn mask(&mut self, start: usize, end: usize) -> usize {
        self.masked.push_str(&self.text[self.done..start]);
        self.masked.push_str(MASK);
        self.done = end;
        end
    }

    /// Masks the private key that starts here. If the end marker is missing, masks everything that looks like a key.
    fn pem_block(&mut self, start: usize) -> usize {
        let label_start = start + PEM_BEGIN.len();
        let label = &self.text[label_start..];
        let label = &label[..label.bytes().take(64).position(|byte| byte == b'-').unwrap_or(0)];
        if !label.ends_with("PRIVATE KEY") && !label.ends_with("PRIVATE KEY BLOCK") {
            return label_start;
        }
        if self.pem_end < label_start {
            self.pem_end = self.text[label_start..].find(PEM_END).map_or(usize::MAX, |at| label_start + at);
        }
        let end = if self.pem_end.saturating_sub(label_start) <= PEM_BYTES_MAX {
            let behind = self.pem_end + PEM_END.len();
            let tail = &self.text[behind..];
            let dashes = tail.bytes().take(64).position(|byte| byte == b'-').unwrap_or(0);
            behind + dashes + tail[dashes..].bytes().take_while(|byte| *byte == b'-').count()
        } else {
            let in_key = |c: char| c.is_ascii_alphanumeric() || "+/=-\n \\:,".contains(c);
            self.text[label_start..].find(|c| !in_key(c)).map_or(self.text.len(), |at| label_start + at)
        };
        self.mask(start, end)
    }

    /// Masks the password in the URL whose authority starts here; returns where to continue.
    fn url(&mut self, start: usize) -> usize {
        let rest = &self.text[start..];
        let ends = |c: char| {
            c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'' | '`' | '<' | '>' | ')' | ']' | '}' | ',')
        };
        // A longer text is not an authority.
        let Some((bytes, _)) = rest
            .char_indices()
            .take(512)
            .find(|(_, c)| ends(*c))
            .or_else(|| (rest.len() <= 512).then_some((rest.len(), ' ')))
        else {
            return start;
        };
        let authority = &rest[..bytes];
        let Some(at) = authority.rfind('@') else { return start };
        let Some(colon) = authority[..at].find(':') else { return start };
        let password = &authority[colon + 1..at];
        if password.is_empty() || password.starts_with(['$', '{', '<', '*']) {
            return start;
        }
        self.mask(start + colon + 1, start + at)
    }

    fn finish(mut self) -> Cow<'a, str> {
        if self.masked.is_empty() {
            return Cow::Borrowed(self.text);
        }
        self.masked.push_str(&self.text[self.done..]);
        Cow::Owned(self.masked)
    }
}

#[cfg(test)]
mod tests;
