//! Finds phrases in a long text: thousands of them in the time of a few searches.
//!
//! An index holds the positions of every word. A phrase is looked up at the positions of its rarest inner word; its
//! first and last word may be parts of words in the text.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
};

/// A text, line by line, and the positions of its words.
#[derive(Debug, Clone, Default)]
pub(super) struct Phrases {
    text: String,
    places: HashMap<u64, Vec<usize>>,
    hasher: RandomState,
}

impl Phrases {
    /// Creates the index from lines whose words are separated by single spaces.
    pub(super) fn new(lines: impl Iterator<Item = impl AsRef<str>>) -> Self {
        let mut phrases = Self::default();
        for line in lines {
            let line = line.as_ref();
            let mut at = phrases.text.len();
            for word in line.split(' ') {
                phrases.places.entry(phrases.hasher.hash_one(word)).or_default().push(at);
                at += word.len() + 1;
            }
            phrases.text.push_str(line);
            phrases.text.push('\n');
        }
        phrases
    }

    /// Returns true if a line contains this phrase, whose words are separated by single spaces.
    pub(super) fn has(&self, phrase: &str) -> bool {
        let inner = phrase.match_indices(' ').map(|(at, _)| at + 1).zip(phrase.match_indices(' ').skip(1));
        let words = inner.map(|(from, (to, _))| (from, &phrase[from..to]));
        let places = words.map(|(from, word)| {
            let places = self.places.get(&self.hasher.hash_one(word));
            (from, places.map_or(&[][..], Vec::as_slice))
        });
        let Some((from, places)) = places.min_by_key(|(_, places)| places.len()) else {
            // The phrase has one or two words; each may be a part of a word.
            return self.text.contains(phrase);
        };
        let starts = places.iter().filter_map(|at| at.checked_sub(from));
        starts.into_iter().any(|at| self.text.as_bytes()[at..].starts_with(phrase.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::Phrases;

    #[test]
    fn a_phrase_is_found_where_a_search_finds_it() {
        let lines = ["the cat is called Miso.", "", "été: a cat (the other one) is", "cat"];
        let phrases = Phrases::new(lines.iter());
        let joined = lines.join("\n");
        for phrase in [
            "the cat is called Miso.",
            "at is called Mis",
            "cat is",
            "Miso",
            "",
            "té: a cat (th",
            "one) is",
            "is cat",
            "the dog is called",
            "called Miso. ",
            "a cat (the other one) is cat",
        ] {
            assert_eq!(phrases.has(phrase), joined.contains(phrase), "{phrase}");
        }
    }
}
