//! Which sentences of a user say what must and must not be.
//!
//! Nothing is understood: a sentence is taken for an order by the phrases in it. What is missed here is found by the model
//! that summarises, and then taken word for word from what was said.

use super::phrases::{AS_WRITTEN, CONTAINS, LEADING, NEGATIONS, NEGATIONS_UNSPACED, NONE, STARTS};
use crate::core::context::extract::{among, contains_words, is_question, is_unspaced, words};
use std::{collections::BTreeMap, sync::LazyLock};

/// Characters of a sentence that is taken whole. What is longer is no order but a document.
const SENTENCE_CHARS_MAX: usize = 600;

/// Phrases by their first word, so that a sentence is held against few of them.
static BY_WORD: LazyLock<BTreeMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let mut by_word: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for phrase in CONTAINS {
        by_word.entry(phrase.split(' ').next().unwrap_or(phrase)).or_default().push(phrase);
    }
    by_word
});

/// Phrases as written, by their first character.
static BY_CHAR: LazyLock<BTreeMap<char, Vec<&str>>> = LazyLock::new(|| {
    let mut by_char: BTreeMap<char, Vec<&str>> = BTreeMap::new();
    for phrase in AS_WRITTEN {
        by_char.entry(phrase.chars().next().unwrap_or(' ')).or_default().push(phrase);
    }
    by_char
});

/// Returns true if a sentence of the user says what must or must not be.
pub(super) fn is_constraint(sentence: &str) -> bool {
    let chars = sentence.chars().count();
    if !(4..=SENTENCE_CHARS_MAX).contains(&chars) || is_output(sentence) {
        return false;
    }
    let words = words(sentence);
    if is_question(sentence, &words) {
        return false;
    }
    if !sentence.is_ascii() && is_ordered_as_written(sentence) {
        return true;
    }
    let lead = words.iter().take_while(|word| among(LEADING, word)).count();
    // At the beginning "also" and "please" are no part of the order; elsewhere they may be.
    let whole = words.join(" ");
    let rest = words[lead..].join(" ") + " ";
    let is_none = || NONE.iter().any(|none| contains_words(&whole, none));
    let starts = STARTS
        .iter()
        .any(|start| rest.strip_prefix(start).is_some_and(|after| start.ends_with(' ') || after.starts_with(' ')));
    let contains = || {
        let phrases = words.iter().filter_map(|word| BY_WORD.get(word.as_str())).flatten();
        phrases.into_iter().any(|phrase| contains_words(&whole, phrase))
    };
    (starts || contains()) && !is_none()
}

fn is_ordered_as_written(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    lower.char_indices().any(|(at, c)| {
        // In scripts with spaces a phrase begins a word.
        let before = lower[..at].chars().next_back();
        let begins = is_unspaced(c) || before.is_none_or(|before| !before.is_alphabetic());
        begins && BY_CHAR.get(&c).is_some_and(|phrases| phrases.iter().any(|phrase| lower[at..].starts_with(phrase)))
    })
}

/// Returns true for a line that a program wrote, as in a log that the user pasted.
fn is_output(sentence: &str) -> bool {
    let begin = sentence.trim_start();
    let lower: String = begin.chars().take(24).flat_map(char::to_lowercase).collect();
    ["error", "warning", "exception", "traceback", "panicked", "//", "/*", "# ", ">", "$ ", "|", "```"]
        .iter()
        .any(|start| lower.starts_with(start))
        || ["error:", "Error:", "Exception:", "error["].iter().any(|mark| begin.contains(mark))
}

/// Returns true if a sentence says that something must not be. A bound is none: "no more than 3" is "at most 3".
pub(super) fn is_negated(sentence: &str) -> bool {
    const BOUNDS: [&str; 8] = [
        "no more than",
        "not more than",
        "no longer than",
        "no fewer than",
        "nicht mehr als",
        "pas plus de",
        "no más de",
        "не более",
    ];
    let lower = sentence.to_lowercase().replace(['’', '\''], " ");
    let lower = BOUNDS.iter().fold(lower, |text, bound| text.replace(bound, " "));
    NEGATIONS_UNSPACED.iter().any(|negation| lower.contains(negation))
        || words(&lower).iter().any(|word| among(NEGATIONS, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_told_from_talk() {
        for sentence in [
            "Never push to main.",
            "Please don't use any external crates.",
            "And also always answer in English!",
            "The binary must not exceed 5 MB",
            "You may only touch files below src/.",
            "I'd rather have short answers.",
            "From now on, use tabs.",
            "Use spaces instead of tabs",
            "It has to be done by Friday.",
            "At most 3 files per commit.",
            "Bitte keine Emojis.",
            "Die Antwort darf nicht länger als zwei Sätze sein.",
            "Niemals auf main pushen!",
            "Il ne faut jamais toucher au dossier prod.",
            "Je préfère le tutoiement.",
            "Nunca borres los archivos de prueba.",
            "La respuesta debe ser corta.",
            "Non usare mai librerie esterne.",
            "Não use bibliotecas externas.",
            "Никогда не трогай ветку main.",
            "Отвечай только по-русски.",
            "不要修改测试文件。",
            "回答最多三句话。",
            "テストファイルは変更しないでください。",
            "必ず日本語で答えて。",
            "테스트 파일은 절대 수정하지 마세요.",
            "لا تستخدم مكتبات خارجية",
            "हमेशा हिंदी में जवाब दें।",
        ] {
            assert!(is_constraint(sentence), "{sentence}");
        }
        for sentence in [
            "My cat is called Miso.",
            "I don't know.",
            "Don't worry about it.",
            "That should be fine.",
            "I must go now.",
            "Should I never push to main?",
            "What must be done?",
            "error: lifetime must outlive 'static",
            "// never call this",
            "The weather was nice.",
            "我的猫叫咪咪。",
            "Keine Ahnung.",
            "ok",
            "",
        ] {
            assert!(!is_constraint(sentence), "{sentence}");
        }
    }

    #[test]
    fn an_order_is_told_from_its_opposite() {
        for (sentence, expected) in [
            ("Never use tabs", true),
            ("Always use tabs", false),
            ("Don't use tabs", true),
            ("No more than 3 files", false),
            ("不要使用制表符", true),
            ("请使用制表符", false),
            ("Keine Tabs", true),
        ] {
            assert_eq!(is_negated(sentence), expected, "{sentence}");
        }
    }
}
