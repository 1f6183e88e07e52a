//! Reads two numbers from a refusal: the tokens that were sent, and the maximum.

use crate::core::model::OverflowHint;

/// The smallest number that counts. Smaller ones are counts of messages, positions and codes.
const LEAST: u64 = 100;
/// The largest number that counts. Larger ones are times, ids and bytes.
const MOST: u64 = 100_000_000;
/// How many bytes before and after a number are searched for its meaning.
const REACH: usize = 56;

/// Words before a number that is a limit.
const FITS: &[&str] = &[
    "max",
    "limit",
    "context length",
    "context size",
    "window",
    "n_ctx",
    "at most",
    "up to",
    "allow",
    "support",
    "capacity",
    "less than",
    "fewer than",
    "smaller than",
    "shorter than",
    "longer than",
    "greater than",
    "larger than",
    "more than",
    "only",
    "range",
    "<=",
    "must be <",
    "configured",
    "exceed",
];
/// Words after a number that counts the input, next to a total that includes the answer.
const READ_AFTER: &[&str] =
    &["in the messages", "from the input", "of text input", "in your prompt", "in the prompt", "from the prompt"];
/// Words after a number that counts the answer.
const ANSWER_AFTER: &[&str] = &["completion", "output", "max_new", "`max_tokens", "`max_compl", "in the answer"];
/// Words after a number that is a limit.
const FITS_AFTER: &[&str] =
    &["maximum", "max ", "token limit", "limit", "allowed", "token context", "context", "-token"];

#[derive(Debug, Clone, Copy)]
struct Number {
    value: u64,
    begin: usize,
    end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// The input alone, where a total is also named.
    Read,
    /// Anything else, which was sent if a limit is named too.
    Sent,
    Fits,
    /// The answer's part.
    Answer,
}

/// Returns the numbers of a refusal in lower case. A text that does not count tokens has none, because bytes and
/// characters say nothing about a window.
pub(super) fn read(text: &str) -> OverflowHint {
    let counts_tokens = text.contains("token") || text.contains("length") || text.contains("n_ctx");
    let counts_else = text.contains("byte") || text.contains("character") || text.contains("string");
    if !counts_tokens || counts_else {
        return OverflowHint::default();
    }
    let numbers = numbers(text);
    if let Some(hint) = difference(text, &numbers) {
        return hint;
    }
    let meanings: Vec<Meaning> = (0..numbers.len()).map(|at| meaning(text, &numbers, at)).collect();
    if let ([one, other], [first, second]) = (numbers.as_slice(), meanings.as_slice())
        && one.value != other.value
        && !text[one.end..other.begin].contains('+')
        && *first != Meaning::Answer
        && *second != Meaning::Answer
    {
        // Of two numbers, the larger one was sent. Otherwise, the request would have fitted.
        let (fits, sent) = (one.value.min(other.value), one.value.max(other.value));
        return OverflowHint { prompt_tokens: Some(sent), window_tokens: Some(fits) };
    }
    let first = |wanted: Meaning| meanings.iter().position(|meaning| *meaning == wanted).map(|at| numbers[at].value);
    let window_tokens = first(Meaning::Fits);
    let sent = first(Meaning::Sent).filter(|_| window_tokens.is_some());
    OverflowHint { prompt_tokens: first(Meaning::Read).or(sent), window_tokens }
}

/// Reads "2048 > 4096 - 3000" in vLLM's form, which means that the requested answer does not fit beside the input.
fn difference(text: &str, numbers: &[Number]) -> Option<OverflowHint> {
    let between = |one: &Number, other: &Number| text[one.end..other.begin].trim();
    let three = numbers.windows(3).find(|three| {
        between(&three[0], &three[1]) == ">" && matches!(between(&three[1], &three[2]), "-" | "\u{2212}")
    })?;
    Some(OverflowHint { prompt_tokens: Some(three[2].value), window_tokens: Some(three[1].value) })
}

/// Returns true if the words before a number name only the limit of the answer.
fn names_answer(before: &str) -> bool {
    let names = ["max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens"];
    let names_it = names.iter().any(|name| before.contains(name));
    names_it && !["context", "input", "prompt", " and ", "+"].iter().any(|word| before.contains(word))
}

/// Returns the numbers of a text that can be counts. A number inside a name (`gpt-4`, an id) does not count.
fn numbers(text: &str) -> Vec<Number> {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !is_digit(at) {
            at += 1;
            continue;
        }
        let begin = at;
        let mut digits = String::new();
        // "1,048,576" and "1_048_576" are one number.
        while is_digit(at)
            || (at < bytes.len() && b",_".contains(&bytes[at]) && (1..=3).all(|next| is_digit(at + next)))
        {
            if is_digit(at) {
                digits.push(char::from(bytes[at]));
            }
            at += 1;
        }
        let before = begin.checked_sub(1).map(|at| bytes[at]);
        let is_of_name = before.is_some_and(|byte| byte.is_ascii_alphabetic() || b"-_.#".contains(&byte))
            || bytes.get(at).is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
            || (bytes.get(at) == Some(&b'.') && is_digit(at + 1));
        let is_of_id = text[..begin].trim_end_matches([':', '=', ' ']).ends_with(" id");
        let value = digits.parse().unwrap_or(u64::MAX);
        // "400 The prompt is…", "<400> …", "error code: 400": the number is the status.
        let before_it = text[..begin].trim_end_matches(|c: char| !c.is_alphanumeric());
        let names_status =
            before_it.is_empty() || ["code", "status", "error", "http"].iter().any(|word| before_it.ends_with(word));
        let is_status = (400..600).contains(&value) && names_status;
        if !is_status && !is_of_name && !is_of_id && !digits.starts_with('0') && (LEAST..=MOST).contains(&value) {
            found.push(Number { value, begin, end: at });
        }
    }
    found
}

fn meaning(text: &str, numbers: &[Number], at: usize) -> Meaning {
    let Number { begin, end, .. } = numbers[at];
    let from = at.checked_sub(1).map_or(0, |before| numbers[before].end);
    let until = numbers.get(at + 1).map_or(text.len(), |next| next.begin);
    let before = tail(&text[from..begin], REACH);
    // The next sentence is not about this number.
    let after = head(&text[end..until], REACH).split(". ").next().unwrap_or_default();
    // A comparison says more than any word: "5000 + 100 > 4096", "n_keep: 5000 >= n_ctx: 4096".
    let compares = |between: &str| between.contains('>') && !between.contains("=>");
    if at > 0 && compares(before) {
        return Meaning::Fits;
    }
    if at + 1 < numbers.len() && (compares(after) || after.trim() == "+") {
        return Meaning::Sent;
    }
    if names_answer(before) {
        return Meaning::Answer;
    }
    let is_near = |words: &[&str]| words.iter().filter_map(|word| after.find(word)).any(|place| place <= 24);
    if is_near(READ_AFTER) {
        return Meaning::Read;
    }
    if is_near(ANSWER_AFTER) {
        return Meaning::Answer;
    }
    let is_limit = FITS.iter().any(|word| before.contains(word)) || is_near(FITS_AFTER);
    if is_limit { Meaning::Fits } else { Meaning::Sent }
}

/// Returns about this many bytes from the end of a text.
fn tail(text: &str, bytes: usize) -> &str {
    let from = text.len().saturating_sub(bytes);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    &text[from..]
}

/// Returns about this many bytes from the beginning of a text.
fn head(text: &str, bytes: usize) -> &str {
    let until = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..until]
}
