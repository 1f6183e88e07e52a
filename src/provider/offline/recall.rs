//! Recalls what the user said by finding the sentence of the context that shares the most words with a question.
//!
//! It searches only the request: the user's own words, summaries, tool results and the system prompt. It skips the
//! model's own answers, because it would otherwise quote itself.

use super::{
    fact::{is_told, names_oneself, subject},
    sentences::sentences,
    words::{Listed, Words, is_question, is_unspaced},
};
use crate::core::{
    compaction::{segments, summary::strip_files},
    context::seed::unseed,
    model::ModelRequest,
};
use reseed_protocol::{Part, Role};
use std::collections::BTreeSet;

/// The share of a question's words that a sentence must contain to count as a close match.
const COVERAGE_MIN: f64 = 0.6;
/// Maximum number of facts listed when the user asks for all.
const LISTED_MAX: usize = 8;

/// Words that carry no meaning in a question: English, some German, Chinese and Japanese.
static STOP_WORDS: Listed = Listed::new(
    "a an the this that these those is are was were be been am s m re ve ll d t do does did has have had can could \
     should would will shall may might must what who whom whose where when which why how i me my mine we us our you \
     your it its he she they them his her their of in on at to for from by with about and or but not no so if then as \
     there here please remember recall remind tell told say said know again earlier before ago still now just also \
     ever any some something anything thing exactly show mention mentioned think talk talked discuss discussed ask \
     asked conversation wie wo wer wann ist sind der die das mein meine meinen ich du mir hat habe ein eine und 我 的 你 \
     吗 什 么 是 了 谁 在 请",
);

/// Synonyms.
static SAME: [(&str, Listed); 7] = [
    ("name", Listed::new("called named names call heißt heisst heiße appelle llama 叫 名")),
    ("live", Listed::new("lives living address home hometown wohne 住")),
    ("age", Listed::new("old years alt 岁")),
    ("color", Listed::new("colour colours colors")),
    ("born", Listed::new("birthday birthdate")),
    ("work", Listed::new("works working job profession")),
    ("favorite", Listed::new("favourite prefer prefers")),
];
static COLORS: Listed = Listed::new("red blue green yellow black white grey gray brown orange purple pink");
/// Attributes of a thing. A sentence that shares only these with the question is about something else.
static ATTRIBUTES: Listed = Listed::new("name age color favorite number kind type many much");
const ATTRIBUTE_WEIGHT: f64 = 0.4;

/// The source of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The system prompt.
    System,
    /// A summary that names no speaker.
    Summary,
    /// A summary that attributes the sentence to the user.
    SummarisedUser,
    /// A tool result, possibly through a summary.
    Tool,
    /// The user's own message.
    User,
}

/// A sentence of the context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statement {
    /// Its source.
    pub(super) origin: Origin,
    /// Its text.
    pub(super) sentence: String,
}

/// The result of a recall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Recalled {
    /// This sentence contains every word of the question.
    Found(Statement),
    /// This sentence contains most words of the question.
    Close(Statement),
    /// The newest facts, because the question asks for everything that was said.
    Listed(Vec<Statement>),
    /// Nothing was found for these words.
    Nothing(Vec<String>),
}

/// Returns all statements in this request, oldest first.
pub(super) fn statements(request: &ModelRequest) -> Vec<Statement> {
    let mut statements = Vec::new();
    add(&mut statements, Origin::System, &request.envelope.system.compiled);
    for message in request.messages() {
        for part in &message.message.content {
            match part {
                Part::Text { text } if message.message.role == Role::User => match unseed(text) {
                    Some(summary) => add_summary(&mut statements, strip_files(&summary)),
                    None => add(&mut statements, Origin::User, text),
                },
                Part::ToolResult { output, .. } => add(&mut statements, Origin::Tool, output),
                _ => {}
            }
        }
    }
    statements
}

fn add(statements: &mut Vec<Statement>, origin: Origin, text: &str) {
    let sentences = sentences(text).into_iter().filter(|sentence| !is_question(sentence, &Words::of(sentence).list()));
    statements.extend(sentences.map(|sentence| Statement { origin, sentence: sentence.to_owned() }));
}

/// Adds the statements of a summary. The summary's form shows who said what.
fn add_summary(statements: &mut Vec<Statement>, summary: &str) {
    let mut speaker = Origin::Summary;
    for line in summary.lines() {
        if let Some(of_user) = segments::speaker(line) {
            speaker = if of_user { Origin::SummarisedUser } else { Origin::Summary };
            continue;
        }
        let text = line.trim_start().trim_start_matches(['-', '*', ' ']);
        // The summary may begin each line with the ids of messages.
        let text = text.strip_prefix('[').and_then(|rest| rest.split_once("] ")).map_or(text, |(_, said)| said);
        let (origin, text) = match text.split_once(": ") {
            Some(("User", said)) => (Origin::SummarisedUser, said),
            Some((head, said)) if head.starts_with("Tool") => (Origin::Tool, said),
            Some((head, _)) if head.starts_with("Assistant") => continue,
            _ if text.starts_with('#') => continue,
            _ => (speaker, text),
        };
        add(statements, origin, text);
    }
}

/// Answers a question from these statements.
pub(super) fn recall(question: &str, statements: &[Statement]) -> Recalled {
    let asked = terms(question);
    if asked.is_empty() {
        let facts = statements.iter().filter(|fact| fact.origin != Origin::System && is_told(&fact.sentence));
        let mut newest: Vec<Statement> = facts.rev().take(LISTED_MAX).cloned().collect();
        newest.reverse();
        return if newest.is_empty() { Recalled::Nothing(vec![]) } else { Recalled::Listed(newest) };
    }
    let total: f64 = asked.iter().map(|term| weight(term)).sum();
    // "What is my name?" names no thing, so a statement about a thing does not answer it.
    let is_about_oneself = asked.iter().all(|term| ATTRIBUTES.has(term));
    let is_about_a_thing = |sentence: &str| {
        let about = subject(sentence).map(|subject| terms(&subject)).unwrap_or_default();
        about.iter().any(|term| !ATTRIBUTES.has(term))
    };
    let mut best: Option<((u64, bool), &Statement)> = None;
    for candidate in statements {
        if is_about_oneself && is_about_a_thing(&candidate.sentence) {
            continue;
        }
        let has = terms(&candidate.sentence);
        let shared: f64 = asked.intersection(&has).map(|term| weight(term)).sum();
        // In thousandths, so that it can be compared.
        let coverage = (shared / total * 1_000.0).round() as u64;
        let rank = (coverage, is_told(&candidate.sentence));
        // Of equally good matches, the later one wins because it is newer.
        if shared / total >= COVERAGE_MIN && best.as_ref().is_none_or(|(best, _)| rank >= *best) {
            best = Some((rank, candidate));
        }
    }
    match best {
        Some(((1_000, _), fact)) => Recalled::Found(fact.clone()),
        Some((_, fact)) => Recalled::Close(fact.clone()),
        None => Recalled::Nothing(asked_in_order(question)),
    }
}

fn weight(term: &str) -> f64 {
    if ATTRIBUTES.has(term) { ATTRIBUTE_WEIGHT } else { 1.0 }
}

/// Returns the meaningful words, each in its normal form.
fn terms(sentence: &str) -> BTreeSet<String> {
    let words = Words::of(sentence);
    let mut terms: BTreeSet<String> = words.iter().filter_map(term).collect();
    if names_oneself(sentence, &words.list()) {
        terms.insert("name".to_owned());
    }
    if words.iter().any(|word| COLORS.has(word)) {
        terms.insert("color".to_owned());
    }
    terms
}

fn term(word: &str) -> Option<String> {
    if let Some((same, _)) = SAME.iter().find(|(same, words)| *same == word || words.has(word)) {
        return Some((*same).to_owned());
    }
    (!STOP_WORDS.has(word)).then(|| stem(word))
}

/// Strips the most common endings, so that "deploys" finds "deployed".
fn stem(word: &str) -> String {
    let endings = [("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", "")];
    for (ending, instead) in endings {
        match word.strip_suffix(ending) {
            // The rest must still be a word, and `ss` is not a plural.
            Some(stem) if stem.len() >= 3 && stem.is_ascii() && !stem.ends_with('s') => {
                return format!("{stem}{instead}");
            }
            _ => {}
        }
    }
    word.to_owned()
}

fn asked_in_order(question: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let words = Words::of(question);
    let named = words.iter().filter(|word| term(word).is_some_and(|term| seen.insert(term)));
    // Joins the characters of a script without spaces into one word again.
    named.fold(Vec::new(), |mut list: Vec<String>, word| {
        match list.last_mut() {
            Some(last) if word.starts_with(is_unspaced) && last.ends_with(is_unspaced) => last.push_str(word),
            _ => list.push(word.to_owned()),
        }
        list
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: [&str; 14] = [
        "My cat is called Miso.",
        "My dog is called Rex.",
        "I live in Ulm.",
        "My name is Anna.",
        "The deadline is 12 May.",
        "We deploy the orders service to eu-west-3.",
        "My car is red.",
        "My sister Paula is 31 years old.",
        "I told a friend the name of my cat.",
        "Our production database listens on port 5433.",
        "我的鸟叫花花。",
        "My favourite drink is mint tea.",
        "My favourite drink is now cocoa.",
        "Mein Hamster heißt Fritz.",
    ];

    fn answer(question: &str) -> String {
        let statements: Vec<Statement> =
            TOLD.iter().map(|text| Statement { origin: Origin::User, sentence: (*text).to_owned() }).collect();
        match recall(question, &statements) {
            Recalled::Found(fact) => fact.sentence,
            Recalled::Close(fact) => format!("close: {}", fact.sentence),
            Recalled::Listed(list) => format!("listed: {}", list.len()),
            Recalled::Nothing(words) => format!("nothing: {}", words.join(" ")),
        }
    }

    #[test]
    fn questions_find_what_was_told() {
        for (question, expected) in [
            ("What is my cat called?", "My cat is called Miso."),
            ("what's my cat's name?", "My cat is called Miso."),
            ("Do you remember the name of my dog?", "My dog is called Rex."),
            ("Where do I live?", "I live in Ulm."),
            ("What is my name?", "My name is Anna."),
            ("When is the deadline?", "The deadline is 12 May."),
            ("Where are the orders services deployed?", "We deploy the orders service to eu-west-3."),
            ("What colour is my car?", "My car is red."),
            ("How old is my sister?", "My sister Paula is 31 years old."),
            ("Which port does the database listen on?", "Our production database listens on port 5433."),
            ("我的鸟叫什么？", "我的鸟叫花花。"),
            ("What do I like to drink, my favourite?", "nothing: like drink favourite"),
            ("What is my favourite drink?", "My favourite drink is now cocoa."),
            ("Wie heißt mein Hamster?", "Mein Hamster heißt Fritz."),
            ("Which region is the orders service deployed to?", "close: We deploy the orders service to eu-west-3."),
            ("How old am I?", "nothing: old"),
            ("What is my rabbit called?", "nothing: rabbit called"),
            ("我的狗叫什么？", "nothing: 狗叫"),
            ("What do you know about me?", "listed: 8"),
        ] {
            assert_eq!(answer(question), expected, "{question}");
        }
    }
}
