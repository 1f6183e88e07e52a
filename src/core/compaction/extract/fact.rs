//! What a sentence claims, and how bad it would be to lose it.
//!
//! Nothing is understood here: a few words in a few languages tell personal facts from small talk, and names from
//! passing remarks. When in doubt a sentence is kept beside an older one instead of replacing it.

use crate::core::text::words::{Listed, Phrases, Words, is_question};

/// The weight of a sentence; when there is no room, the lightest go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// Said in passing.
    Passing,
    /// Names a value, but came from the model or a tool.
    Detail,
    /// The user named a value, a place or a person.
    Firm,
    /// The user stated a personal fact, or asked to remember it.
    Told,
    /// Like `Told`, and about what the user asked this summary to focus on.
    Asked,
}

/// What a sentence claims about a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The subject, without "my" and "the".
    pub(crate) subject: String,
    /// Claims with the same key contradict each other, and the newest holds. `None` if several may be true at once.
    pub(crate) key: Option<String>,
    /// True if it announces a change: older claims about the subject no longer hold.
    pub(crate) is_change: bool,
    /// True if it is about something of the user's.
    is_own: bool,
}

static OWN: Listed =
    Listed::new("my our mein meine meinen unser unsere mon ma mes notre mi mis nuestro nuestra mio mia 我 私");
static ARTICLES: Listed = Listed::new("the this that a an der die das ein eine le la les el il 的 们 們 の");
/// Words before a claim that are not part of it.
static LEADING: Listed = Listed::new(
    "please remember note and but also now actually by way oh well so btw fyi hi hello hey ok okay for record user",
);
static IS: Listed = Listed::new("is are ist sind est sont es son è 是 は lautet");
static IS_CALLED: Listed = Listed::new("called named heißt heisst heiße appelle llama chiama 叫");
static CHANGE: Listed = Listed::new("now actually anymore longer changed correction renamed moved jetzt inzwischen");
/// Subjects whose meaning differs from sentence to sentence.
static PRONOUNS: Listed = Listed::new("it there here he she they we you who what es er sie i");
/// Subjects with one value at a time.
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
static KEEP: Phrases = Phrases::new(&[
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
]);

/// Rates a user's sentence as a fact, and returns what it claims. Returns `None` for questions.
pub(crate) fn judge(sentence: &str) -> Option<(Weight, Option<Claim>)> {
    let words = Words::of(sentence);
    let spaced = words.spaced();
    let words = words.list();
    if words.is_empty() || is_question(sentence, &words) {
        return None;
    }
    let claim = claim(&words);
    // Scripts without spaces arrive as single characters separated by spaces: compare without them.
    let keeps = KEEP.any_among(spaced)
        || !sentence.is_ascii() && KEEP.iter().any(|phrase| !phrase.is_ascii() && sentence.contains(phrase));
    let is_told = claim.as_ref().is_some_and(|claim| claim.is_own || claim.key.is_some());
    let about_oneself = ABOUT_ONESELF.iter().any(|start| spaced.starts_with(start));
    let is_name = names_oneself(sentence, &words);
    let weight = if keeps || is_told || about_oneself || is_name {
        Weight::Told
    } else if has_value(sentence) {
        Weight::Firm
    } else {
        Weight::Passing
    };
    Some((weight, claim))
}

/// Returns true if a sentence states a fact that the user will want remembered.
pub fn is_told(sentence: &str) -> bool {
    judge(sentence).is_some_and(|(weight, _)| weight >= Weight::Told)
}

/// Returns the subject of a sentence that claims something.
pub fn subject(sentence: &str) -> Option<String> {
    claim(&Words::of(sentence).list()).map(|claim| claim.subject)
}

/// Recognises "I am Anna": the capital letter tells a name from a mood.
pub fn names_oneself(sentence: &str, words: &[&str]) -> bool {
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

/// Returns true if a sentence contains something exact: a number, a path, an identifier, a quotation, a name.
pub(crate) fn has_value(sentence: &str) -> bool {
    if sentence.contains(['"', '“', '”', '„', '«', '`', '「', '『', '@', '_', '\\']) {
        return true;
    }
    sentence.split_whitespace().enumerate().any(|(at, word)| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '/');
        let has_digit = word.contains(char::is_numeric);
        let is_joined = word.contains(['/', ':', '='])
            || word.split(['.', '-']).filter(|piece| !piece.is_empty()).count() > 1 && word.is_ascii();
        let is_name = at > 0 && word.starts_with(char::is_uppercase) && !matches!(word, "I" | "I'm" | "I'll" | "I've");
        has_digit || is_joined || is_name
    })
}

/// Splits a claim into a subject, a verb such as "is", and a value.
fn claim(words: &[&str]) -> Option<Claim> {
    // A longer subject is a story that happens to contain an "is".
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
    let is_change = words.iter().any(|word| CHANGE.has(word));
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
    let is_one_valued = subject.iter().any(|word| ONE_VALUED.has(word) || word.starts_with("favo"));
    let subject = subject.join(" ");
    if subject.is_empty() && !(is_own && is_name) || PRONOUNS.has(&subject) {
        return None;
    }
    let key = if is_name {
        Some(format!("name {subject}"))
    } else if is_one_valued {
        Some(format!("is {subject}"))
    } else {
        // The same sentence with another number is an updated number.
        let shape: Vec<String> = value
            .iter()
            .map(|word| if word.contains(char::is_numeric) { "#".to_owned() } else { (*word).to_owned() })
            .collect();
        shape.iter().any(|word| word == "#").then(|| format!("is {subject} {}", shape.join(" ")))
    };
    Some(Claim { subject, key, is_change, is_own })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_told_from_small_talk() {
        for (sentence, expected) in [
            ("My cat is called Miso.", Some(Weight::Told)),
            ("By the way, my sister's name is Paula", Some(Weight::Told)),
            ("Please remember: pineapple.", Some(Weight::Told)),
            ("Miso is my cat", Some(Weight::Told)),
            ("The wifi password is hunter2", Some(Weight::Told)),
            ("I have a cat called Miso", Some(Weight::Told)),
            ("I live in Ulm", Some(Weight::Told)),
            ("I'm Anna", Some(Weight::Told)),
            ("The deadline is next Friday", Some(Weight::Told)),
            ("我的猫叫咪咪。", Some(Weight::Told)),
            ("请记住，密码是菠萝。", Some(Weight::Told)),
            ("Mein Hund heißt Rex.", Some(Weight::Told)),
            ("We met in Paris", Some(Weight::Firm)),
            ("look at src/main.rs", Some(Weight::Firm)),
            ("it took 40 minutes", Some(Weight::Firm)),
            ("I'm tired", Some(Weight::Passing)),
            ("nice weather today", Some(Weight::Passing)),
            ("that is funny", Some(Weight::Passing)),
            ("It is 21 degrees", Some(Weight::Firm)),
            ("What is my cat called?", None),
            ("!!!", None),
        ] {
            assert_eq!(judge(sentence).map(|(weight, _)| weight), expected, "{sentence}");
        }
    }

    #[test]
    fn claims_about_the_same_share_a_key() {
        let key = |sentence: &str| judge(sentence).and_then(|(_, claim)| claim?.key);
        for (older, newer, is_same) in [
            ("My cat is called Miso", "Correction: my cat is named Luna", true),
            ("My cat is called Miso", "Actually my cat is now called Luna", true),
            ("My cat's name is Miso", "My cat is called Luna", true),
            ("My cat is called Miso", "My dog is called Rex", false),
            ("My favourite colour is blue", "My favourite colour is green", true),
            ("The port is 8080", "The port is 9090", true),
            ("My cat is 4 years old", "My cat is 5 years old", true),
            ("My cat is 4 years old", "My cat is called Miso", false),
            ("My name is Anna", "My dog's name is Rex", false),
            ("我的猫叫咪咪", "我的猫叫花花", true),
            ("我的猫叫咪咪", "我的狗叫花花", false),
        ] {
            assert!(key(older).is_some(), "{older}");
            assert_eq!(key(older) == key(newer), is_same, "{older} / {newer}");
        }
        assert_eq!(key("My cat is black"), None);
    }
}
