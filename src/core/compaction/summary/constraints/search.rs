//! Finding the source of each line of a model's section.

use super::{
    detect::is_negated,
    sentence::{INFERRED, Sentence},
};
use crate::core::text::{
    clip::prefix,
    sections::item_text,
    words::{Listed, Words, is_unspaced},
};
use std::collections::{BTreeMap, BTreeSet};

/// Words of a line that are compared.
const WORDS_MAX: usize = 64;
/// Minimum percentage of a line's words that its source must contain.
const SHARED_PERCENT_MIN: usize = 50;
/// Letters of a word that are compared, so that "pushing" matches "push".
const STEM_CHARS: usize = 4;
/// Words that name the speaker, which are not part of what was said.
static SPEAKERS: Listed = Listed::new("user users nutzer nutzerin benutzer utilisateur usuario utente usuário");

/// The speaker of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    User,
    Other,
}

/// A line of the model's section.
pub(super) struct SectionLine {
    pub(super) text: String,
    stems: Vec<String>,
    numbers: Vec<String>,
    words: Vec<String>,
    names: BTreeSet<String>,
    is_negated: bool,
    is_unspaced: bool,
}

impl SectionLine {
    pub(super) fn of(line: &str) -> Self {
        let mut text = item_text(line);
        while let Some(rest) = text.strip_prefix(INFERRED.trim_end()) {
            text = rest.trim_start();
        }
        let mut stems: Vec<String> = Vec::new();
        let found = Words::of(text);
        for stem in found.iter().filter(|word| !SPEAKERS.has(word)).filter_map(stem) {
            if stems.len() < WORDS_MAX && !stems.iter().any(|seen| seen == stem) {
                stems.push(stem.to_owned());
            }
        }
        let found: Vec<String> = found.iter().map(str::to_owned).collect();
        let numbers = found.iter().filter(|word| word.contains(char::is_numeric)).cloned().collect();
        let is_unspaced = text.chars().filter(|c| is_unspaced(*c)).count() * 2 > text.chars().count();
        let (names, is_negated) = (names(text).collect(), is_negated(text));
        Self { text: text.to_owned(), stems, numbers, words: found, names, is_negated, is_unspaced }
    }
}

/// Returns words with a digit, and words with a capital letter that does not start a sentence, in lower case. A
/// translation preserves them.
fn names(text: &str) -> impl Iterator<Item = String> {
    text.split_whitespace().enumerate().filter_map(|(at, word)| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        let inner = word.chars().skip(usize::from(at == 0)).any(char::is_uppercase);
        let counts = word.contains(char::is_numeric) || inner && word.chars().count() > 1;
        counts.then(|| word.to_lowercase())
    })
}

/// Returns the part of a word that is compared; short words are grammar.
fn stem(word: &str) -> Option<&str> {
    if word.contains(char::is_numeric) {
        return Some(word);
    }
    let counts = word.starts_with(is_unspaced) || word.chars().count() > 3;
    counts.then(|| prefix(word, STEM_CHARS))
}

#[derive(Debug, Clone)]
pub(super) struct LineSource {
    pub(super) text: String,
    pub(super) origin: Speaker,
    shared_percent: usize,
}

/// Finds the source of each line in one pass over what was said.
pub(super) struct Search<'a> {
    lines: &'a [SectionLine],
    by_stem: BTreeMap<&'a str, Vec<(usize, u64)>>,
    pub(super) best: Vec<Option<LineSource>>,
}

impl<'a> Search<'a> {
    pub(super) fn new(lines: &'a [SectionLine]) -> Self {
        let mut by_stem: BTreeMap<&str, Vec<(usize, u64)>> = BTreeMap::new();
        for (at, line) in lines.iter().enumerate() {
            for (nth, stem) in line.stems.iter().enumerate() {
                by_stem.entry(stem).or_default().push((at, 1 << nth));
            }
        }
        Self { lines, by_stem, best: vec![None; lines.len()] }
    }

    /// Considers a sentence as a source; `is_order` is true if a rule recognises it as a constraint.
    pub(super) fn look_at(&mut self, sentence: &Sentence, origin: Speaker, is_order: bool) {
        if self.lines.is_empty() {
            return;
        }
        let Sentence { text: sentence, words, .. } = sentence;
        let mut shared: BTreeMap<usize, u64> = BTreeMap::new();
        for stem in words.iter().filter_map(stem) {
            for (at, bit) in self.by_stem.get(stem).into_iter().flatten() {
                *shared.entry(*at).or_default() |= bit;
            }
        }
        for (at, mask) in shared {
            let line = &self.lines[at];
            let count = mask.count_ones() as usize;
            let shared_percent = count * 100 / line.stems.len();
            // A character carries less information than a word.
            let least = if line.is_unspaced { SHARED_PERCENT_MIN + 10 } else { SHARED_PERCENT_MIN };
            let is_enough = shared_percent >= least && (count >= 2 || line.stems.len() == 1);
            let is_better = self.best[at].as_ref().is_none_or(|best| {
                (shared_percent, origin == Speaker::User) > (best.shared_percent, best.origin == Speaker::User)
            });
            if is_enough
                && is_better
                && line.numbers.iter().all(|number| has(words, number))
                && line.is_negated == is_negated(sentence)
            {
                let text = item_text(sentence).to_owned();
                self.best[at] = Some(LineSource { text, origin, shared_percent });
            }
        }
        if is_order {
            self.look_for_names(sentence, words);
        }
    }

    /// Matches an order to lines in other words or another language by the names and numbers that they share.
    fn look_for_names(&mut self, sentence: &str, words: &Words) {
        let named: BTreeSet<String> = names(sentence).collect();
        let is_negated = is_negated(sentence);
        for (at, line) in self.lines.iter().enumerate().filter(|(_, line)| line.is_negated == is_negated) {
            let shares =
                line.names.iter().any(|name| has(words, name)) || line.words.iter().any(|word| named.contains(word));
            let has_numbers = line.numbers.iter().all(|number| has(words, number));
            if shares && has_numbers && self.best[at].is_none() {
                let text = item_text(sentence).to_owned();
                self.best[at] = Some(LineSource { text, origin: Speaker::User, shared_percent: 0 });
            }
        }
    }
}

fn has(words: &Words, wanted: &str) -> bool {
    words.iter().any(|word| word == wanted)
}
