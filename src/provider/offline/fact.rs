//! Recognises facts that the user will want remembered.
//!
//! Nothing is understood here. A few words in a few languages distinguish personal facts from small talk, and names
//! from passing remarks.

use super::words::{Listed, Words, is_question};

static OWN: Listed =
    Listed::new("my our mein meine meinen unser unsere mon ma mes notre mi mis nuestro nuestra mio mia 我 私");
static ARTICLES: Listed = Listed::new("the this that a an der die das ein eine le la les el il 的 们 們 の");
/// Words that precede a claim and are not part of it.
static LEADING: Listed = Listed::new(
    "please remember note and but also now actually by way oh well so btw fyi hi hello hey ok okay for record user",
);
static IS: Listed = Listed::new("is are ist sind est sont es son è 是 は lautet");
static IS_CALLED: Listed = Listed::new("called named heißt heisst heiße appelle llama chiama 叫");
static CHANGE: Listed = Listed::new("now actually anymore longer changed correction renamed moved jetzt inzwischen");
/// Subjects whose meaning differs from sentence to sentence.
static PRONOUNS: Listed = Listed::new("it there here he she they we you who what es er sie i");
/// Subjects that have one value at a time.
static ONE_VALUED: Listed = Listed::new(
    "name number address colour color code password passphrase port deadline birthday date budget age city language \
     version email url path goal job size price limit timeout status id key token word branch host hostname phone food \
     drink region model database directory title time hometown",
);
/// Beginnings of statements about oneself.
const ABOUT_ONESELF: [&str; 33] = [
    "i live",
    "i work",
    "i was born",
    "i am from",
    "i m from",
    "i come from",
    "i moved",
    "i study",
    "i studied",
    "i speak",
    "i own",
    "i have a",
    "i have an",
    "i have two",
    "i have three",
    "i am allergic",
    "i m allergic",
    "i am a ",
    "i m a ",
    "i am an ",
    "i m an ",
    "call me",
    "i am called",
    "i use",
    "we use",
    "we deploy",
    "we live",
    "we have",
    "ich heiße",
    "ich wohne",
    "ich arbeite",
    "ich habe",
    "j habite",
];
/// Requests to remember something.
const KEEP: [&str; 12] = [
    "remember",
    "don t forget",
    "do not forget",
    "keep in mind",
    "note that",
    "for the record",
    "merk dir",
    "denk daran",
    "vergiss nicht",
    "记住",
    "别忘",
    "覚えて",
];

/// Returns true if a sentence states a fact that the user will want remembered.
pub(super) fn is_told(sentence: &str) -> bool {
    let words = Words::of(sentence);
    let spaced = words.spaced();
    let words = words.list();
    if words.is_empty() || is_question(sentence, &words) {
        return false;
    }
    // Characters of scripts without spaces are separated by spaces here, so they are compared without spaces.
    let padded = format!(" {spaced} ");
    let keeps = KEEP
        .iter()
        .any(|phrase| padded.contains(&format!(" {phrase} ")) || !phrase.is_ascii() && sentence.contains(phrase));
    keeps
        || claim(&words).is_some_and(|claim| claim.is_own || claim.is_one_valued)
        || ABOUT_ONESELF.iter().any(|start| spaced.starts_with(start))
        || names_oneself(sentence, &words)
}

/// Returns the subject of a sentence that claims something.
pub(super) fn subject(sentence: &str) -> Option<String> {
    claim(&Words::of(sentence).list()).map(|claim| claim.subject)
}

/// Recognises "I am Anna". The capital letter distinguishes a name from a mood.
pub(super) fn names_oneself(sentence: &str, words: &[&str]) -> bool {
    let begins =
        |start: &[&str]| words.len() > start.len() && words.iter().zip(start).all(|(word, start)| word == start);
    let at = [&["i", "am"][..], &["i", "m"], &["call", "me"], &["ich", "bin"], &["ich", "heiße"]]
        .into_iter()
        .find(|start| begins(start))
        .map(<[_]>::len);
    let Some(at) = at else { return false };
    sentence
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .nth(at)
        .is_some_and(|word| word.starts_with(char::is_uppercase))
}

/// What a sentence claims about a subject.
struct Claim {
    /// The subject, without "my" and "the".
    subject: String,
    /// True if it is about something that belongs to the user.
    is_own: bool,
    /// True if it names a value of which the subject has only one, such as a name, a number or a place.
    is_one_valued: bool,
}

/// Splits a claim into a subject, a verb such as "is", and a value.
fn claim(words: &[&str]) -> Option<Claim> {
    // With a longer subject, the sentence is a story that happens to contain "is".
    const SUBJECT_WORDS_MAX: usize = 10;
    let verb = words
        .iter()
        .take(SUBJECT_WORDS_MAX + 1)
        .position(|word| IS.has(word) || IS_CALLED.has(word))
        .filter(|at| *at > 0)?;
    let lead =
        words[..verb].iter().take_while(|word| LEADING.has(word) || ARTICLES.has(word) || CHANGE.has(word)).count();
    // "My cat is Miso", and "Miso is my cat".
    let is_own = [words.get(lead), words.get(verb + 1)].into_iter().flatten().any(|word| OWN.has(word));
    let mut subject: Vec<&str> = words[lead..verb]
        .iter()
        .copied()
        .filter(|word| !OWN.has(word) && !ARTICLES.has(word) && !CHANGE.has(word) && *word != "s")
        .collect();
    let mut value: Vec<&str> = words[verb + 1..].to_vec();
    value.retain(|word| !CHANGE.has(word) && !matches!(*word, "no" | "not"));
    let mut is_name = IS_CALLED.has(words[verb]);
    if value.first().is_some_and(|word| IS_CALLED.has(word)) {
        value.remove(0);
        is_name = true;
    }
    if subject.len() > 1 && matches!(subject.last(), Some(&("name" | "名" | "字"))) {
        subject.pop();
        is_name = true;
    }
    if value.is_empty() {
        return None;
    }
    let is_one_valued = is_name
        || subject.iter().any(|word| ONE_VALUED.has(word) || word.starts_with("favo"))
        || value.iter().any(|word| word.contains(char::is_numeric));
    let subject = subject.join(" ");
    if subject.is_empty() && !(is_own && is_name) || PRONOUNS.has(&subject) {
        return None;
    }
    Some(Claim { subject, is_own, is_one_valued })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_told_from_small_talk() {
        for (sentence, expected) in [
            ("My cat is called Miso.", true),
            ("By the way, my sister's name is Paula", true),
            ("Please remember: pineapple.", true),
            ("Miso is my cat", true),
            ("The wifi password is hunter2", true),
            ("I have a cat called Miso", true),
            ("I live in Ulm", true),
            ("I'm Anna", true),
            ("我的猫叫咪咪。", true),
            ("请记住，密码是菠萝。", true),
            ("Mein Hund heißt Rex.", true),
            ("We met in Paris", false),
            ("look at src/main.rs", false),
            ("I'm tired", false),
            ("nice weather today", false),
            ("that is funny", false),
            ("What is my cat called?", false),
            ("!!!", false),
        ] {
            assert_eq!(is_told(sentence), expected, "{sentence}");
        }
    }
}
