//! Folds look-alike characters into one, and detects texts that lack certain characters.

/// The bytes that are examined together.
const PIECE_BYTES: usize = 64;

/// Returns true if any byte of a text satisfies the predicate.
pub(super) fn any_byte(text: &str, is_wanted: impl Fn(u8) -> bool) -> bool {
    // There is no early exit within a piece, so that many bytes are compared at once.
    let has_any = |piece: &[u8]| piece.iter().fold(false, |any, byte| any | is_wanted(*byte));
    text.as_bytes().chunks(PIECE_BYTES).any(has_any)
}

/// Folds a character: lower case, without width, weight, or the script of a look-alike.
#[inline]
pub(super) fn fold(c: char) -> char {
    if c.is_ascii() { c.to_ascii_lowercase() } else { fold_wide(c) }
}

fn fold_wide(c: char) -> char {
    match c {
        '\u{ff01}'..='\u{ff5e}' => {
            char::from_u32(u32::from(c) - 0xff01 + 0x21).map_or(c, |plain| plain.to_ascii_lowercase())
        }
        // Mathematical bold, italic and so on: consecutive alphabets of 52 letters.
        '\u{1d400}'..='\u{1d6a3}' => {
            let letter = u8::try_from((u32::from(c) - 0x1d400) % 52 % 26).unwrap_or(0);
            char::from(b'a' + letter)
        }
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        '【' | '〔' | '〖' | '❲' | '⟦' | '⟬' | '⁅' | '﹝' => '[',
        '】' | '〕' | '〗' | '❳' | '⟧' | '⟭' | '⁆' | '﹞' => ']',
        '﹤' | '⟨' | '〈' | '❮' | '˂' => '<',
        '﹥' | '⟩' | '〉' | '❯' | '˃' => '>',
        '∣' | 'ǀ' | '│' | '❘' => '|',
        '⁄' | '∕' => '/',
        '‐' | '‑' | '−' | '﹣' => '-',
        '﹟' => '#',
        '∗' | '﹡' => '*',
        'а' | 'А' | 'α' | 'Α' => 'a',
        'В' | 'Β' => 'b',
        'с' | 'С' | 'ϲ' => 'c',
        'е' | 'Е' | 'Ε' => 'e',
        'Н' | 'Η' => 'h',
        'і' | 'І' | 'ι' | 'Ι' | 'ı' => 'i',
        'ј' | 'Ј' => 'j',
        'к' | 'К' | 'Κ' => 'k',
        'м' | 'М' | 'Μ' => 'm',
        'Ν' | 'ո' => 'n',
        'о' | 'О' | 'ο' | 'Ο' => 'o',
        'р' | 'Р' | 'ρ' | 'Ρ' => 'p',
        'ѕ' | 'Ѕ' => 's',
        'т' | 'Т' | 'Τ' => 't',
        'υ' | 'ս' => 'u',
        'х' | 'Х' | 'Χ' => 'x',
        'у' | 'У' | 'Υ' => 'y',
        _ => c,
    }
}
