//! Detects which sentences of a user state constraints.
//!
//! Nothing is understood: a sentence is an order if it contains certain phrases. What is missed here is found by the
//! summarising model, and then taken verbatim from what was said.

use super::phrases::{
    ADVERBS, AS_WRITTEN, CHOOSING, CONTAINS, LEADING, LIST_HEADS, LIST_HEADS_UNSPACED, NARRATING, NEGATIONS,
    NEGATIONS_UNSPACED, NO_BEHIND, NO_WITHIN, NONE, REPORTERS, REPORTING, STARTS,
};
use crate::core::text::{
    clip::prefix,
    words::{Listed, Phrases, Words, is_question, is_unspaced},
};
use std::{collections::BTreeMap, sync::LazyLock};

/// Maximum characters of a sentence to check. A longer one is a document, not an order.
pub(super) const SENTENCE_CHARS_MAX: usize = 2_000;
/// Maximum words of a sentence that forbids with "no" alone; a longer one states something.
const NO_WORDS_MAX: usize = 8;

/// Phrases matched as written, by their first character.
static BY_CHAR: LazyLock<BTreeMap<char, Vec<&str>>> = LazyLock::new(|| {
    let mut by_char: BTreeMap<char, Vec<&str>> = BTreeMap::new();
    for phrase in AS_WRITTEN {
        by_char.entry(phrase.chars().next().unwrap_or(' ')).or_default().push(phrase);
    }
    by_char
});

/// Returns true if a user's sentence, with these words, states a constraint.
pub(super) fn is_constraint(sentence: &str, words: &Words) -> bool {
    let chars = sentence.chars().count();
    if !(4..=SENTENCE_CHARS_MAX).contains(&chars) || is_output(sentence) {
        return false;
    }
    let whole = words.spaced();
    let words = words.list();
    if is_question(sentence, &words) {
        return false;
    }
    if !sentence.is_ascii() && is_ordered_as_written(sentence) {
        return true;
    }
    let lead = words.iter().take_while(|word| LEADING.has(word)).count();
    // At the beginning "also" and "please" are not part of the order; elsewhere they may be.
    let skipped: usize = words[..lead].iter().map(|word| word.len() + 1).sum();
    let rest = whole.get(skipped..).unwrap_or_default();
    let is_none = || NONE.any_among(whole) || is_reported(&words) || is_guess(&words);
    let begins = |start| rest.strip_prefix(start).is_some_and(|after| after.is_empty() || after.starts_with(' '));
    let words = &words[lead..];
    (STARTS.any_in(rest) && STARTS.iter().any(begins)
        || CONTAINS.any_among(whole)
        || chooses(words)
        || is_exclusive(words)
        || forbids(sentence, words)
        || is_habit(words)
        || is_bound(words))
        && !is_none()
}

/// Returns true if a line introduces a list of rules.
pub(super) fn opens_rules(line: &str) -> bool {
    let line = line.trim_end().trim_end_matches(['*', '_']);
    line.ends_with([':', '：'])
        && (Words::of(line).iter().any(|word| LIST_HEADS.has(word)) || LIST_HEADS_UNSPACED.any_in(line))
}

/// Returns true if the sentence quotes something, such as a document: a statement, not an order.
fn is_reported(words: &[&str]) -> bool {
    words.windows(2).any(|pair| REPORTERS.has(pair[0]) && REPORTING.has(pair[1]))
}

/// Returns true for guesses such as "it must have rained".
fn is_guess(words: &[&str]) -> bool {
    static IRREGULAR: Listed =
        Listed::new("been gone done come left lost made said seen got had put run broken fallen forgotten taken felt");
    words
        .windows(3)
        .any(|three| three[0] == "must" && three[1] == "have" && (three[2].ends_with("ed") || IRREGULAR.has(three[2])))
}

/// Returns true for "use this, not that".
fn chooses(words: &[&str]) -> bool {
    static OTHERWISE: Listed = Listed::new("not never instead nicht statt pas jamais nunca mai niet");
    words.first().is_some_and(|first| CHOOSING.has(first)) && words.iter().any(|word| OTHERWISE.has(word))
}

/// Returns true for "only Anna may see it".
fn is_exclusive(words: &[&str]) -> bool {
    static ONLY: Listed = Listed::new("only nur solo sólo seulement alleen apenas");
    static MAY: Listed = Listed::new(
        "may can should must darf dürfen kann soll puede pueden peut peuvent può possono pode podem mag mogen",
    );
    words.first().is_some_and(|first| ONLY.has(first)) && words.iter().any(|word| MAY.has(word))
}

/// Returns true for "no emojis", and not for "no problem" or "no, thanks".
fn forbids(sentence: &str, words: &[&str]) -> bool {
    let Some((first, rest)) = words.split_first() else { return false };
    let is_joined = || {
        let lower = sentence.to_lowercase();
        lower.split_once("no").is_some_and(|(_, after)| after.starts_with(' '))
    };
    *first == "no"
        && is_joined()
        && (2..=NO_WORDS_MAX).contains(&words.len())
        && !rest.first().is_some_and(|next| NO_BEHIND.has(next))
        && !rest.iter().any(|word| NO_WITHIN.has(word))
}

/// Returns true if a sentence without a leading subject says what is always or never done.
fn is_habit(words: &[&str]) -> bool {
    words.len() >= 3 && words[1..].iter().any(|word| ADVERBS.has(word)) && !words.iter().any(|word| NARRATING.has(word))
}

/// Returns true for "max. 80 columns".
fn is_bound(words: &[&str]) -> bool {
    static BOUNDS: Listed = Listed::new("max min maximum minimum maximal minimal");
    words.len() <= NO_WORDS_MAX
        && words.windows(2).any(|pair| BOUNDS.has(pair[0]) && pair[1].starts_with(|c: char| c.is_ascii_digit()))
}

fn is_ordered_as_written(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    lower.char_indices().any(|(at, c)| {
        // In scripts with spaces a phrase must start a word.
        let before = lower[..at].chars().next_back();
        let begins = is_unspaced(c) || before.is_none_or(|before| !before.is_alphabetic());
        begins && BY_CHAR.get(&c).is_some_and(|phrases| phrases.iter().any(|phrase| lower[at..].starts_with(phrase)))
    })
}

/// Returns true for a line written by a program, as in a pasted log.
fn is_output(sentence: &str) -> bool {
    static MARKS: Phrases = Phrases::new(&["error:", "Error:", "Exception:", "error["]);
    const STARTS: [&str; 12] =
        ["error", "warning", "exception", "traceback", "panicked", "//", "/*", "# ", ">", "$ ", "|", "```"];
    let begin = sentence.trim_start();
    let head = prefix(begin, 24);
    let lower = || head.chars().flat_map(char::to_lowercase).collect::<String>();
    let starts = |start: &str| match head.as_bytes().get(..start.len()) {
        Some(bytes) if head.is_ascii() => bytes.eq_ignore_ascii_case(start.as_bytes()),
        _ => !head.is_ascii() && lower().starts_with(start),
    };
    STARTS.into_iter().any(starts) || MARKS.any_in(begin)
}

/// Returns true if a sentence forbids something. Bounds do not count: "no more than 3" means "at most 3".
pub(super) fn is_negated(sentence: &str) -> bool {
    static BOUNDS: Phrases = Phrases::new(&[
        "not exceed",
        "t exceed",
        "cannot exceed",
        "no more than",
        "not more than",
        "no longer than",
        "no fewer than",
        "nicht mehr als",
        "pas plus de",
        "no más de",
        "не более",
    ]);
    let mut lower = sentence.to_lowercase().replace(['’', '\''], " ");
    if BOUNDS.any_in(&lower) {
        lower = BOUNDS.iter().fold(lower, |text, bound| text.replace(bound, " "));
    }
    NEGATIONS_UNSPACED.any_in(&lower) || Words::of(&lower).iter().any(|word| NEGATIONS.has(word))
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
            "No nuts, I am allergic.",
            "No external crates",
            "I'm vegetarian.",
            "Use Postgres, not MySQL.",
            "Nenne mich niemals Bob.",
            "Call me Bob, never Robert.",
            "No puedes usar Docker.",
            "We can't exceed 40 kg.",
            "I would rather not use React.",
            "Leave the header as it is.",
            "max. 80 columns",
            "Only Anna may see the report.",
            "I want it in blue, nothing else.",
            "The app must have a dark mode.",
            "As I said, you must not push to main.",
        ] {
            assert!(is_constraint(sentence, &Words::of(sentence)), "{sentence}");
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
            "You must be kidding!",
            "Never mind.",
            "It must have rained.",
            "In the story the knight must not speak.",
            "The error says the key must not be empty.",
            "The function must not return null, according to the docs.",
            "Don't get me wrong, I like it.",
            "No, I was at home.",
            "No problem at all.",
            "No decision on the mast yet.",
            "No sé qué hacer.",
            "We never went there again.",
            "I always forget my keys.",
            "Ich war nie in Bremen.",
            "The sign said: never feed the ducks.",
            "ok",
            "",
        ] {
            assert!(!is_constraint(sentence, &Words::of(sentence)), "{sentence}");
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
