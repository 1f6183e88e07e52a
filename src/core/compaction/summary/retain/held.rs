//! Checks whether a text contains an identifier, in whatever spelling.

use crate::core::text::words::{Words, is_unspaced};
use ahash::AHashMap;
use std::{borrow::Cow, cell::OnceCell};

use super::identify::IdentifierKind;

/// Minimum percentage of a task's words that a line about it must contain.
const TASK_WORDS_PERCENT: usize = 70;

/// A text indexed for lookups.
pub(super) struct IndexedText<'a> {
    text: &'a str,
    /// Built on the first lookup of a task; most texts never have one.
    lines: OnceCell<Lines>,
    normal: String,
    /// The words in `normal`.
    starts: Starts,
}

impl<'a> IndexedText<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let normal = normal(text).into_owned();
        let starts = Starts::of(&normal);
        Self { text, lines: OnceCell::new(), normal, starts }
    }

    /// Returns true if the text contains this identifier as a whole; `normal` is its normal form.
    pub(super) fn has(&self, identifier: &str, normal: &str, kind: IdentifierKind) -> bool {
        if kind == IdentifierKind::Task {
            return self.has_words(identifier);
        }
        let is_number = normal.starts_with(|c: char| c.is_ascii_digit());
        self.has_spelling(normal.trim(), kind)
            || is_number && spellings(normal).iter().any(|spelling| self.has_spelling(spelling, kind))
    }

    fn has_spelling(&self, spelling: &str, kind: IdentifierKind) -> bool {
        let Some(lead) = spelling.find(char::is_alphanumeric) else { return self.normal.contains(spelling) };
        let first = first_word(&spelling[lead..]);
        self.starts.like(first).filter(|start| first_word(&self.normal[*start..]) == first).any(|start| {
            let Some(begin) = start.checked_sub(lead) else { return false };
            let rest = self.normal.get(begin..).unwrap_or_default();
            rest.strip_prefix(spelling).is_some_and(|after| ends_before(after, spelling, kind))
                && begins_after(&self.normal[..begin], spelling, kind)
        })
    }

    /// Returns true if a line of the text is about this task.
    pub(super) fn has_words(&self, task: &str) -> bool {
        self.lines.get_or_init(|| Lines::of(self.text.lines())).have(task)
    }
}

/// Positions of the words of a text, by hash. It holds no copies of the words: the text is at hand.
struct Starts {
    /// For each hash, one more than the number of the newest word with it; 0 if there is none.
    newest: Vec<u32>,
    /// For each word its position, and one more than the number of the word before it with the same hash.
    words: Vec<(usize, u32)>,
}

impl Starts {
    fn of(normal: &str) -> Self {
        let mut words = Vec::new();
        let mut is_start = true;
        for (at, c) in normal.char_indices() {
            let is_part = c.is_alphanumeric();
            if is_start && is_part {
                words.push((at, 0));
            }
            is_start = !is_part || is_unspaced(c);
        }
        let mut starts = Self { newest: vec![0; words.len().next_power_of_two()], words };
        for nth in 0..starts.words.len() {
            let at = starts.words[nth].0;
            let place = starts.place(first_word(&normal[at..]));
            let number = u32::try_from(nth + 1).unwrap_or(0);
            starts.words[nth].1 = std::mem::replace(&mut starts.newest[place], number);
        }
        starts
    }

    fn place(&self, word: &str) -> usize {
        let hash =
            word.bytes().fold(0_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x9e37_79b1).rotate_left(13));
        hash as usize & (self.newest.len() - 1)
    }

    /// Iterates over the positions of words with the hash of this one.
    fn like(&self, word: &str) -> impl Iterator<Item = usize> {
        let mut next = self.newest[self.place(word)];
        std::iter::from_fn(move || {
            let (at, before) = *self.words.get((next as usize).checked_sub(1)?)?;
            next = before;
            Some(at)
        })
    }
}

/// Lines indexed by their words.
pub(super) struct Lines {
    count: usize,
    /// The lines that contain each word with meaning.
    by_word: AHashMap<String, Vec<usize>>,
}

impl Lines {
    pub(super) fn of<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let mut by_word = AHashMap::new();
        let mut count = 0;
        for line in lines {
            Content::of(line).iter().for_each(|word| push(&mut by_word, word, count));
            count += 1;
        }
        Self { count, by_word }
    }

    /// Returns true if a line contains enough words of the task, and every number: the roof of house 12 is not that of
    /// house 14.
    pub(super) fn have(&self, task: &str) -> bool {
        // Most tasks that no line is about: a number of theirs is nowhere.
        if Content::any(task, |word| word.contains(char::is_numeric) && !self.by_word.contains_key(word)) {
            return false;
        }
        let wanted = Content::of(task);
        let mut words: Vec<&str> = wanted.iter().collect();
        words.sort_unstable();
        words.dedup();
        let mut numbers = 0;
        let mut places = Vec::with_capacity(words.len());
        for word in &words {
            let is_number = word.contains(char::is_numeric);
            places.extend(self.by_word.get(*word).map(|lines| (lines, is_number)));
            numbers += usize::from(is_number);
        }
        let least = (words.len() * TASK_WORDS_PERCENT).div_ceil(100).max(1);
        // Most others: all lines together have too few of the words.
        if places.len() < least {
            return false;
        }
        // Only the lines with the rarest number can have all of them.
        let rarest = places.iter().filter(|(_, is_number)| *is_number).min_by_key(|(lines, _)| lines.len());
        if let Some((candidates, _)) = rarest {
            let is_about = |line: &usize| {
                let has = |(lines, _): &&(&Vec<usize>, bool)| lines.binary_search(line).is_ok();
                let found = places.iter().filter(has);
                let (all, of_numbers) =
                    found.fold((0, 0), |(all, of), (_, is_number)| (all + 1, of + usize::from(*is_number)));
                of_numbers == numbers && all >= least
            };
            return candidates.iter().any(is_about);
        }
        // For each line, how many of the words it has.
        let mut found = vec![0_u32; self.count];
        for (lines, _) in places {
            for line in lines {
                found[*line] += 1;
            }
        }
        found.into_iter().any(|words| words as usize >= least)
    }
}

/// The words of a text that carry its meaning.
pub(super) struct Content(Words);

impl Content {
    pub(super) fn of(text: &str) -> Self {
        Self(Words::of(text))
    }

    /// Returns true if one of these words of a text fits; `fits` is called in their order, up to the first that does.
    /// For most texts the words are not copied.
    pub(super) fn any(text: &str, mut fits: impl FnMut(&str) -> bool) -> bool {
        if !text.is_ascii() {
            return Self::of(text).iter().any(fits);
        }
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let mut words = words.filter(|word| word.len() > 3 || word.bytes().any(|byte| byte.is_ascii_digit()));
        let mut lower = String::new();
        words.any(|word| {
            lower.clear();
            lower.push_str(word);
            lower.make_ascii_lowercase();
            fits(&lower)
        })
    }

    /// Iterates over these words in order: short ones are grammar in languages that use spaces.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        let counts = |word: &str| {
            word.chars().nth(3).is_some() || word.starts_with(is_unspaced) || word.contains(char::is_numeric)
        };
        self.0.iter().filter(move |word| counts(word))
    }
}

/// Adds a position of a word, copying the word only if it is new; repeated positions are stored once.
fn push(places: &mut AHashMap<String, Vec<usize>>, word: &str, at: usize) {
    match places.get_mut(word) {
        Some(places) if places.last() == Some(&at) => {}
        Some(places) => places.push(at),
        None => drop(places.insert(word.to_owned(), vec![at])),
    }
}

/// Returns true if what follows does not extend the spelling to a longer word.
fn ends_before(after: &str, spelling: &str, kind: IdentifierKind) -> bool {
    let mut chars = after.chars();
    let (next, second) = (chars.next(), chars.next());
    let Some(next) = next else { return true };
    let goes_on = second.is_some_and(|c| c.is_alphanumeric() && !is_unspaced(c));
    match next {
        next if is_unspaced(next) => true,
        next if next.is_alphanumeric() => !spelling.ends_with(|c: char| c.is_alphanumeric() && !is_unspaced(c)),
        '_' => false,
        '.' | ',' if kind == IdentifierKind::Number => !second.is_some_and(|c| c.is_ascii_digit()),
        '.' | '/' | '-' if matches!(kind, IdentifierKind::Path | IdentifierKind::Url) => !goes_on,
        _ => true,
    }
}

fn begins_after(before: &str, spelling: &str, kind: IdentifierKind) -> bool {
    let mut chars = before.chars().rev();
    let (last, second) = (chars.next(), chars.next());
    match last {
        Some(last) if is_unspaced(last) => true,
        Some(last) if last.is_alphanumeric() || last == '_' => !spelling.starts_with(char::is_alphanumeric),
        Some('.' | ',') if kind == IdentifierKind::Number => !second.is_some_and(|c| c.is_ascii_digit()),
        _ => true,
    }
}

/// Normalises a text for comparison: lower case, single spaces, no emphasis or escape marks.
pub(in crate::compaction::summary) fn normal(text: &str) -> Cow<'_, str> {
    let is_normal =
        |byte: &u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase() && !matches!(byte, b'\\' | b'`' | b'*');
    if text.as_bytes().iter().all(is_normal) {
        return Cow::Borrowed(text);
    }
    let mut normal = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' => {}
            c if c.is_whitespace() => {
                if !normal.ends_with(' ') {
                    normal.push(' ');
                }
            }
            c if c.is_ascii() => normal.push(c.to_ascii_lowercase()),
            '‘' | '’' => normal.push('\''),
            '“' | '”' | '„' | '«' | '»' => normal.push('"'),
            '–' | '‑' | '−' => normal.push('-'),
            c => normal.extend(c.to_lowercase()),
        }
    }
    Cow::Owned(normal)
}

/// Returns other spellings of something that starts with a number: with or without a space before the unit, and without
/// thousands separators.
fn spellings(number: &str) -> Vec<String> {
    let mut spellings = Vec::new();
    if let Some((number, unit)) = number.split_once(' ') {
        spellings.push(format!("{number}{unit}"));
        spellings.push(format!("{number}-{unit}"));
    } else if let Some(at) = number.find(char::is_alphabetic) {
        spellings.push(format!("{} {}", &number[..at], &number[at..]));
    }
    if number.contains(',') {
        let all: Vec<String> = std::iter::once(number.trim().to_owned()).chain(spellings.iter().cloned()).collect();
        spellings
            .extend(all.iter().filter(|spelling| spelling.contains(',')).map(|spelling| spelling.replace(',', "")));
    }
    spellings
}

fn first_word(text: &str) -> &str {
    let mut chars = text.char_indices();
    let Some((_, first)) = chars.next() else { return "" };
    if is_unspaced(first) {
        return &text[..first.len_utf8()];
    }
    let end = chars.find(|(_, c)| !c.is_alphanumeric() || is_unspaced(*c)).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_is_held_however_it_is_spelt() {
        for (text, identifier, kind, expected) in [
            ("- port 8443.", "8443", IdentifierKind::Number, true),
            ("- port 18443.", "8443", IdentifierKind::Number, false),
            ("- 8443.5", "8443", IdentifierKind::Number, false),
            ("it has 16GB", "16 GB", IdentifierKind::Number, true),
            ("it has 16 GB", "16GB", IdentifierKind::Number, true),
            ("1200 rows", "1,200 rows", IdentifierKind::Number, true),
            ("see **src/Main.rs**", "src/main.rs", IdentifierKind::Path, true),
            ("see src/main.rs.bak", "src/main.rs", IdentifierKind::Path, false),
            ("see src/main.rs.", "src/main.rs", IdentifierKind::Path, true),
            ("see app/src/main.rs", "src/main.rs", IdentifierKind::Path, true),
            ("call `parse_line`", "parse_line", IdentifierKind::Symbol, true),
            ("call parse_line_2", "parse_line", IdentifierKind::Symbol, false),
            ("the “Blue  Moon”", "blue moon", IdentifierKind::Quoted, true),
            ("端口是8443。", "8443", IdentifierKind::Number, true),
            ("名字是蓝月亮", "蓝月", IdentifierKind::Quoted, true),
            ("<\\|x|> C:\\a\\b", "C:\\a\\b", IdentifierKind::Path, true),
            ("done: the parser was rewritten in Rust", "rewrite? parser in rust", IdentifierKind::Task, false),
            ("done: rewrite of the parser in Rust", "rewrite the parser in Rust", IdentifierKind::Task, true),
            (
                "roof house garden kitchen window door",
                "very very very roof house garden kitchen door",
                IdentifierKind::Task,
                true,
            ),
            ("重写\n我们决定重写解析器", "我们决定重写解析器", IdentifierKind::Task, true),
            ("repaint the roof of house 14", "repaint the roof of house 12", IdentifierKind::Task, false),
            ("", "x", IdentifierKind::Id, false),
        ] {
            assert_eq!(
                IndexedText::new(text).has(identifier, &normal(identifier), kind),
                expected,
                "{identifier} in {text}"
            );
        }
    }

    #[test]
    fn texts_of_one_line_are_read_once() {
        // Each of these would take minutes if a line were read again for each of its words.
        for (line, task) in
            [("决定我们重写解析器", "我们决定重写解析器吧"), ("roof house garden ", "door window kitchen roof ")]
        {
            let (line, task) = (line.repeat(4_000), task.repeat(40));
            let held = IndexedText::new(&line);
            for _ in 0..200 {
                held.has(&task, &task, IdentifierKind::Task);
            }
        }
    }
}
