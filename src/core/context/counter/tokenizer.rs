//! Exact token counts of plain text with the published byte-pair vocabularies of OpenAI's models.
//!
//! The tables are part of the binary, packed by `build.rs`. Those of a vocabulary are unpacked on its first count and
//! shared by the whole process.

use super::lately::Lately;
use bpe::byte_pair_encoding::BytePairEncoding;
use flate2::read::ZlibDecoder;
use regex_automata::{Anchored, Input, meta::Regex};
use std::{io::Read, sync::LazyLock};

/// Maximum bytes of a word that is counted at once. The time for a word grows faster than its length: one mark repeated
/// over a megabyte would take seconds. Words of languages and programs are shorter. The limit is a multiple of every
/// character's length and of 64, the longest run of one mark in a token. So a repeated mark is cut into equal parts,
/// between tokens.
const COUNTED_BYTES_MAX: usize = 3 * 1024;

/// A published vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vocabulary {
    O200k,
    Cl100k,
}

/// Model families and their vocabulary. A family matches a name that ends there or continues with `-`, `.`, `:` or `@`.
/// The longest match wins, so `gpt-4.1` is not `gpt-4`.
static FAMILIES: [(&str, Vocabulary); 17] = [
    ("gpt-5", Vocabulary::O200k),
    ("gpt-4.5", Vocabulary::O200k),
    ("gpt-4.1", Vocabulary::O200k),
    ("gpt-4o", Vocabulary::O200k),
    ("chatgpt-4o", Vocabulary::O200k),
    ("gpt-oss", Vocabulary::O200k),
    ("codex-mini", Vocabulary::O200k),
    ("computer-use-preview", Vocabulary::O200k),
    ("o1", Vocabulary::O200k),
    ("o3", Vocabulary::O200k),
    ("o4", Vocabulary::O200k),
    ("o4-mini", Vocabulary::O200k),
    ("gpt-4", Vocabulary::Cl100k),
    ("gpt-3.5", Vocabulary::Cl100k),
    ("gpt-35", Vocabulary::Cl100k),
    ("text-embedding-3", Vocabulary::Cl100k),
    ("text-embedding-ada-002", Vocabulary::Cl100k),
];

impl Vocabulary {
    /// Returns the vocabulary of a model if its name is known.
    pub(super) fn of_model(model: &str) -> Option<&'static Self> {
        let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
        let name = name.strip_prefix("ft:").unwrap_or(&name);
        FAMILIES
            .iter()
            .filter(|(family, _)| {
                name.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.', ':', '@']))
            })
            .max_by_key(|(family, _)| family.len())
            .map(|(_, vocabulary)| vocabulary)
    }

    /// Returns its short name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::O200k => "o200k",
            Self::Cl100k => "cl100k",
        }
    }

    /// Counts the tokens of a text. Text that looks like a special token is counted as plain text, because it is sent
    /// as such.
    pub(super) fn count(self, text: &str) -> u64 {
        let tokenizer = match self {
            Self::O200k => &*O200K,
            Self::Cl100k => &*CL100K,
        };
        let count = |word: &str| count_long(word.as_bytes(), |part| tokenizer.tables.count(part)) as u64;
        tokenizer.lately.count(text, |text| tokenizer.split(text).map(count).sum())
    }
}

static O200K: LazyLock<Tokenizer> = LazyLock::new(|| {
    let words = [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
    ];
    Tokenizer::new(include_bytes!(concat!(env!("OUT_DIR"), "/o200k")), &words)
});

static CL100K: LazyLock<Tokenizer> = LazyLock::new(|| {
    let words = [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
    ];
    Tokenizer::new(include_bytes!(concat!(env!("OUT_DIR"), "/cl100k")), &words)
});

/// The pattern among those of [`Tokenizer::new`] whose last character belongs to the next word: white space before a
/// word ends one character earlier, which the published patterns say by looking ahead.
const SPACE_BEFORE: usize = 2;

/// A vocabulary in use.
struct Tokenizer {
    tables: BytePairEncoding,
    words: Regex,
    lately: Lately,
}

impl Tokenizer {
    /// Unpacks the tables. The patterns of words are those published with the vocabulary.
    fn new(packed: &[u8], words: &[&str]) -> Self {
        let mut unpacked = Vec::new();
        ZlibDecoder::new(packed).read_to_end(&mut unpacked).expect("build.rs packed it");
        let words = [&words.join("|"), r"\s+$", r"\s+\s", r"\s+"];
        Self {
            tables: rmp_serde::from_slice(&unpacked).expect("build.rs wrote tables of this version"),
            words: Regex::new_many(&words).expect("the patterns are valid"),
            lately: Lately::default(),
        }
    }

    /// Splits a text into the words that are counted each for itself.
    fn split<'a>(&self, mut rest: &'a str) -> impl Iterator<Item = &'a str> {
        std::iter::from_fn(move || {
            let found = self.words.find(Input::new(rest).anchored(Anchored::Yes))?;
            let mut end = found.end();
            if found.pattern().as_usize() == SPACE_BEFORE {
                end -= rest[..end].chars().next_back().map_or(0, char::len_utf8);
            }
            let (word, tail) = rest.split_at(end);
            rest = tail;
            Some(word)
        })
    }
}

/// Counts a word in parts; each part may add a difference of one token. A part equal to the previous one is not counted
/// again.
fn count_long(word: &[u8], count: impl Fn(&[u8]) -> usize) -> usize {
    if word.len() <= COUNTED_BYTES_MAX {
        return count(word);
    }
    let mut last: (&[u8], usize) = (&[], 0);
    word.chunks(COUNTED_BYTES_MAX)
        .map(|part| {
            if part != last.0 {
                last = (part, count(part));
            }
            last.1
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_vocabulary_follows_from_the_name() {
        use Vocabulary::{Cl100k, O200k};
        let cases = [
            ("gpt-4o", Some(O200k)),
            ("gpt-4o-mini-2024-07-18", Some(O200k)),
            ("GPT-4o", Some(O200k)),
            ("openai/gpt-4.1-nano", Some(O200k)),
            ("openrouter/openai/gpt-5.1-codex", Some(O200k)),
            ("ft:gpt-4o-mini:acme::abc", Some(O200k)),
            ("ft:gpt-3.5-turbo:acme::abc", Some(Cl100k)),
            ("o3", Some(O200k)),
            ("o4-mini", Some(O200k)),
            ("gpt-oss-20b", Some(O200k)),
            ("gpt-oss:20b", Some(O200k)),
            ("gpt-4", Some(Cl100k)),
            ("gpt-4-turbo", Some(Cl100k)),
            ("gpt-35-turbo", Some(Cl100k)),
            ("gpt-4x", None),
            ("o10", None),
            ("olmo-2", None),
            ("llama-3.1-8b-instruct", None),
            ("qwen2.5", None),
            ("", None),
            ("/", None),
        ];
        for (model, vocabulary) in cases {
            assert_eq!(Vocabulary::of_model(model), vocabulary.as_ref(), "{model}");
        }
    }

    #[test]
    fn long_words_are_counted_in_parts_close_to_the_whole() {
        for unit in ["!", "=", "-", "a", "語", "🦀", "é", "…", "Zq9/"] {
            let word = unit.repeat(9_000);
            let parts = std::cell::Cell::new(0);
            let whole = bpe_openai::o200k_base().bpe.count(word.as_bytes());
            let counted = count_long(word.as_bytes(), |part| {
                parts.set(parts.get() + 1);
                bpe_openai::o200k_base().bpe.count(part)
            });
            assert!(counted.abs_diff(whole) <= word.len() / COUNTED_BYTES_MAX + 1, "{unit}: {counted} for {whole}");
            let parts: usize = parts.into_inner();
            assert!(parts <= 2, "{unit}: {parts} parts are counted");
        }
    }

    #[test]
    fn every_text_is_counted_as_with_the_whole_tables() {
        let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/counting");
        let mut texts: Vec<String> = [samples.to_owned(), format!("{samples}/unseen")]
            .iter()
            .flat_map(|folder| std::fs::read_dir(folder).unwrap())
            .filter_map(|file| std::fs::read_to_string(file.unwrap().path()).ok())
            .flat_map(|text| text.lines().map(str::to_owned).chain([text.clone()]).collect::<Vec<_>>())
            .collect();
        let parts = [
            "don't",
            "WE'LL",
            "Ünï",
            "東京",
            "ひらがな",
            "한국어",
            "नमस्ते",
            "שלום",
            "🙂👩‍👧",
            "1234567",
            "٣٤٥",
            "fn a(b: &[u8]) {",
        ];
        let gaps = ["", " ", "  ", "\t", "\n", "\r\n\r\n", "   \n  ", "\u{3000}", "\u{a0} ", "/", "==", "\u{301}"];
        for (left, right) in parts.iter().flat_map(|left| parts.iter().map(move |right| (left, right))) {
            texts.extend(gaps.iter().map(|gap| format!("{gap}{left}{gap}{right}{gap}")));
        }
        // Some tokens of the whole range, each with the next one.
        let tokens = &bpe_openai::o200k_base().bpe;
        let ids = 0..u32::try_from(tokens.num_tokens()).unwrap();
        texts.extend(
            ids.step_by(97).map(|id| String::from_utf8_lossy(&tokens.decode_tokens(&[id, id + 1])).into_owned()),
        );
        assert!(texts.len() > 3_000, "{}", texts.len());
        for text in texts {
            let whole =
                [bpe_openai::o200k_base(), bpe_openai::cl100k_base()].map(|whole| whole.count(text.as_str()) as u64);
            assert_eq!(
                [Vocabulary::O200k, Vocabulary::Cl100k].map(|vocabulary| vocabulary.count(&text)),
                whole,
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_long_text_is_counted_as_with_the_whole_tables() {
        let sentence =
            "Let x = 3.14159; don't \"quote\" me,  please:\n\n\tindented\r\n    four spaces, 東京 タワー 🙂 ...\n";
        let text = sentence.repeat(2_000);
        for (vocabulary, whole) in
            [(Vocabulary::O200k, bpe_openai::o200k_base()), (Vocabulary::Cl100k, bpe_openai::cl100k_base())]
        {
            assert_eq!(vocabulary.count(&text), whole.count(text.as_str()) as u64, "{vocabulary:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_counted_as_with_the_whole_tables(text in "([a-c]{1,3}|[ A-Z0-9.,\n]|\\PC){0,60}") {
            for (vocabulary, whole) in
                [(Vocabulary::O200k, bpe_openai::o200k_base()), (Vocabulary::Cl100k, bpe_openai::cl100k_base())]
            {
                let tokens = whole.count(text.as_str()) as u64;
                prop_assert_eq!(vocabulary.count(&text), tokens, "{:?}", vocabulary);
            }
        }
    }

    #[test]
    fn cutting_one_endless_word_changes_the_count_by_little() {
        for text in ["a".repeat(150_000), "長".repeat(50_000), "=".repeat(150_000), " ".repeat(150_000)] {
            let whole = bpe_openai::o200k_base().count(text.as_str()) as u64;
            let cuts = (text.len() / COUNTED_BYTES_MAX) as u64;
            let counted = Vocabulary::O200k.count(&text);
            assert!(
                counted.abs_diff(whole) <= 2 * cuts && counted.abs_diff(whole) * 100 <= whole,
                "{counted} for {whole}"
            );
        }
    }

    proptest! {
        #[test]
        fn two_texts_joined_cost_about_what_they_cost_apart(a in any::<String>(), b in "[a-z0-9 \n,;語あ한яع🙂]{0,60}") {
            for vocabulary in [Vocabulary::O200k, Vocabulary::Cl100k] {
                let joined = vocabulary.count(&[a.as_str(), &b].concat());
                prop_assert!(joined.abs_diff(vocabulary.count(&a) + vocabulary.count(&b)) <= 8);
            }
        }
    }
}
