//! Remembers the counts of texts. Sessions offer the same tools and instructions with every request, and counting them
//! again would take more time than the rest of a turn.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::{Mutex, PoisonError},
};

/// Shorter texts are counted as fast as they are found.
const BYTES_MIN: usize = 128;

/// Maximum texts of a generation, at about 32 bytes each. A deployment with 1,000 tools fills half of it.
const TEXTS_MAX: usize = 2_048;

/// The counts of one way of counting. Two texts with equal hashes would have one count; the hash has 64 bits and a key
/// that nobody knows, so that nobody can find such texts.
#[derive(Debug, Default)]
pub(super) struct Lately {
    key: RandomState,
    generations: Mutex<Generations>,
}

/// When the new generation is full, it replaces the old one. So a text that is counted again and again stays.
#[derive(Debug, Default)]
struct Generations {
    new: HashMap<u64, u64>,
    old: HashMap<u64, u64>,
}

impl Lately {
    /// Returns the count of this text, which `count` determines if it is not remembered.
    pub(super) fn count(&self, text: &str, count: impl FnOnce(&str) -> u64) -> u64 {
        if text.len() < BYTES_MIN {
            return count(text);
        }
        let hash = self.key.hash_one(text);
        let lock = || self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(hash) {
            return known;
        }
        let counted = count(text);
        lock().insert(hash, counted);
        counted
    }
}

impl Generations {
    fn get(&mut self, hash: u64) -> Option<u64> {
        if let Some(known) = self.new.get(&hash) {
            return Some(*known);
        }
        let known = self.old.get(&hash).copied()?;
        self.insert(hash, known);
        Some(known)
    }

    fn insert(&mut self, hash: u64, tokens: u64) {
        if self.new.len() >= TEXTS_MAX {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(hash, tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_counted_once_while_it_is_used() {
        let lately = Lately::default();
        let mut counted = 0;
        let mut count = |text: &str| {
            lately.count(text, |text| {
                counted += 1;
                text.len() as u64
            })
        };
        let text = |number: usize| format!("{number}{}", "x".repeat(BYTES_MIN));
        for number in 0..3 * TEXTS_MAX {
            assert_eq!(count(&text(number)), text(number).len() as u64);
            assert_eq!(count(&text(0)), text(0).len() as u64);
        }
        // Short texts are counted each time.
        assert_eq!((count("one"), count("one")), (3, 3));
        assert_eq!(counted, 3 * TEXTS_MAX + 2);
        let generations = lately.generations.lock().unwrap();
        assert!(generations.new.len() <= TEXTS_MAX && generations.old.len() <= TEXTS_MAX);
    }
}
