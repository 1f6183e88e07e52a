//! Extracts the part of a sentence that gives an identifier its meaning, in few words.

use crate::core::text::words::{Listed, is_unspaced};

/// Maximum characters of a sentence that is kept whole.
const WHOLE_CHARS_MAX: usize = 110;
/// Words kept before and after what must stay, in a longer sentence.
const NEAR_WORDS: (usize, usize) = (9, 4);
/// Meaningful words kept when there is little room, and when there is hardly any.
const TIGHT_WORDS: (usize, usize) = (4, 1);
const BARE_WORDS: (usize, usize) = (2, 0);
/// Meaningful words kept when very many lines must fit.
const LEAST_WORDS: (usize, usize) = (1, 0);
/// Characters kept on each side in a script without spaces.
const NEAR_CHARS: usize = 16;

/// Words that carry no meaning.
static FILLERS: Listed = Listed::new(
    "a an the please remember note that this also just really my our we you i it its will would can could of so well \
     ok okay hi hello btw fyi there has have had been be der die das ein eine den dem bitte",
);
/// Words before the statement itself.
static LEADING: Listed =
    Listed::new("please remember note that also just so well ok okay hi hello btw fyi and but bitte");

/// How much of a sentence is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Width {
    /// What must stay, and the one word that identifies it.
    Least,
    /// The fewest words that can mean something.
    Bare,
    /// The fewest words that make sense.
    Tight,
    /// The whole sentence, unless it is long.
    Whole,
}

/// Appends a sentence to a line, shortened to the words around these spans.
pub(super) fn push_clause(
    line: &mut String,
    sentence: &str,
    spans: impl Iterator<Item = (usize, usize)> + Clone,
    width: Width,
) {
    let tight = width < Width::Whole;
    let chars = sentence.chars().count();
    let is_short = chars <= WHOLE_CHARS_MAX;
    let is_spaceless = !sentence.is_ascii() && sentence.chars().filter(|c| is_unspaced(*c)).count() * 2 > chars;
    if is_spaceless {
        let whole = is_short && !tight;
        line.push_str(tidied(if whole { sentence } else { around(sentence, spans) }.trim()));
        return;
    }
    let words = words(sentence);
    let is_in = |list: &Listed, at: usize| among(list, &sentence[words[at].0..words[at].1]);
    let is_must = |at: &usize| spans.clone().any(|span| words[*at].0 < span.1 && span.0 < words[*at].1);
    let mut keep = vec![false; words.len()];
    let musts = || (0..words.len()).filter(is_must);
    if is_short && !tight {
        musts().for_each(|at| keep[at] = true);
        let first = musts().next().unwrap_or(0);
        let from = (0..first).find(|at| !is_in(&LEADING, *at)).unwrap_or(first);
        keep[from..].fill(true);
    } else {
        let (before, behind) = match width {
            Width::Whole => NEAR_WORDS,
            Width::Tight => TIGHT_WORDS,
            Width::Bare => BARE_WORDS,
            Width::Least => LEAST_WORDS,
        };
        let says = |at: &usize| !tight || !is_in(&FILLERS, *at);
        for at in musts() {
            keep[at] = true;
            (0..at).rev().filter(says).take(before).for_each(|near| keep[near] = true);
            (at + 1..words.len()).filter(says).take(behind).for_each(|near| keep[near] = true);
        }
    }
    let begin = line.len();
    for (start, end) in words.iter().zip(keep).filter(|(_, keep)| *keep).map(|(word, _)| *word) {
        if line.len() > begin {
            line.push(' ');
        }
        line.push_str(&sentence[start..end]);
    }
    // Words have no spaces around them.
    line.truncate(begin + tidied(&line[begin..]).len());
}

fn tidied(text: &str) -> &str {
    text.trim_end_matches(['.', ',', ';', ':', '。', '，'])
}

/// Returns the text from shortly before the first span to shortly after the last.
fn around(sentence: &str, spans: impl Iterator<Item = (usize, usize)> + Clone) -> &str {
    let start = spans.clone().map(|span| span.0).min().unwrap_or(0);
    let end = spans.map(|span| span.1).max().unwrap_or(sentence.len());
    let from = sentence[..start].char_indices().rev().nth(NEAR_CHARS - 1).map_or(0, |(at, _)| at);
    let to = sentence[end..].char_indices().nth(NEAR_CHARS).map_or(sentence.len(), |(at, _)| end + at);
    &sentence[from..to]
}

/// Returns the spans of the words between spaces.
fn words(sentence: &str) -> Vec<(usize, usize)> {
    let base = sentence.as_ptr() as usize;
    let word = |word: &str| {
        let start = word.as_ptr() as usize - base;
        (start, start + word.len())
    };
    sentence.split_whitespace().map(word).collect()
}

/// Returns true if a word is in a list, ignoring its case and trailing punctuation.
fn among(list: &Listed, word: &str) -> bool {
    list.has_any_case(word.trim_end_matches([',', '.', ':', ';']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sentence: &str, identifiers: &[&str], whole: &str, tight: &str) {
        let spans: Vec<(usize, usize)> = identifiers
            .iter()
            .map(|identifier| sentence.find(identifier).map(|at| (at, at + identifier.len())).unwrap())
            .collect();
        let clause = |width| {
            let mut line = String::from("- ");
            push_clause(&mut line, sentence, spans.iter().copied(), width);
            line
        };
        assert_eq!((clause(Width::Whole), clause(Width::Tight)), (format!("- {whole}"), format!("- {tight}")));
    }

    #[test]
    fn a_sentence_is_shortened_around_what_matters() {
        check(
            "Please remember that the staging database listens on port 5433 now.",
            &["5433"],
            "the staging database listens on port 5433 now",
            "database listens on port 5433 now",
        );
        check(
            "Well, in case you wonder about it some day, the backup job of the office in Lisbon has always been \
             started at 03:30 by a script that nobody dares to touch",
            &["03:30"],
            "the office in Lisbon has always been started at 03:30 by a script that",
            "Lisbon always started at 03:30 by",
        );
        check("Do not restart web-7", &["web-7"], "Do not restart web-7", "Do not restart web-7");
        check(
            "我们的数据库端口是8443，请记住不要随便更改它。",
            &["8443"],
            "我们的数据库端口是8443，请记住不要随便更改它",
            "我们的数据库端口是8443，请记住不要随便更改它",
        );
    }
}
