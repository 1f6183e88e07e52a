//! The conversation of the retention tables: what is said in each turn, the facts in it, and who summarises it.
//!
//! `tests/it/retention.rs` compiles this file too, and holds the same conversation with a server. So the file imports
//! what its parent module provides, and nothing else.

use super::{Message, ModelRequest, extract, read_prompt};
use std::fmt::Write as _;

pub(crate) const TURNS: usize = 300;
pub(crate) const FACTS: usize = 200;
/// A tool is called once in this many turns.
const CALL_EVERY: usize = 6;
/// Characters that the summariser by rule writes per requested word.
const CHARS_PER_WORD: usize = 6;

pub(crate) const KINDS: [&str; 6] = ["paths", "URLs", "numbers", "names", "symbols", "tasks"];

const WORDS: [&str; 40] = [
    "harbour", "lantern", "copper", "meadow", "engine", "window", "river", "paper", "winter", "garden", "signal",
    "bridge", "carpet", "mirror", "needle", "orange", "pillow", "rocket", "saddle", "timber", "walked", "painted",
    "carried", "waited", "slowly", "under", "behind", "gentle", "narrow", "golden", "morning", "evening", "music",
    "weather", "market", "kitchen", "forest", "island", "letter", "train",
];

/// Pseudo-random numbers from a fixed seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    pub(crate) fn word(&mut self) -> &'static str {
        WORDS[self.roll(WORDS.len())]
    }

    /// Returns sentences without anything exact in them.
    pub(crate) fn chatter(&mut self, sentences: usize) -> String {
        let mut text = String::new();
        for _ in 0..sentences {
            let words: Vec<&str> = (0..9 + self.roll(6)).map(|_| self.word()).collect();
            let _ = write!(text, "It {}. ", words.join(" "));
        }
        text.trim_end().to_owned()
    }
}

/// Something exact that is stated once.
pub(crate) struct Fact {
    pub(crate) kind: usize,
    pub(crate) sentence: String,
    /// The text that must be there in the end, letter by letter.
    pub(crate) exact: String,
    by_user: bool,
}

pub(crate) fn facts() -> Vec<Fact> {
    let mut dice = Dice(7);
    let fact = |n: usize| {
        let (one, other) = (dice.word(), dice.word());
        let kind = n % KINDS.len();
        let (sentence, exact) = match kind {
            0 => {
                let exact = format!("/srv/{one}/{other}-{n}.toml");
                (format!("The settings of the {other} service live in {exact} on every machine."), exact)
            }
            1 => {
                let exact = format!("https://{one}.example.org/{other}/{n}");
                (format!("You find the board of the {other} people at {exact} once you are logged in."), exact)
            }
            2 => {
                let exact = format!("{} litres", 1_000 + 7 * n);
                (format!("The {one} tank beside the {other} holds {exact} when it is full."), exact)
            }
            3 => {
                let exact = format!("{one} {other} {n}");
                (format!("The sign above the {other} door reads \"{exact}\" in white letters."), exact)
            }
            4 => {
                let exact = format!("parse_{one}_{n}");
                (format!("All rows of the {other} list go through {exact}() before anything else."), exact)
            }
            _ => {
                let exact = format!("repaint the {one} of house {n}");
                (format!("TODO: {exact}"), exact)
            }
        };
        // Open tasks are on lines of their own; of the others the model states every fourth.
        Fact { kind, sentence, exact, by_user: kind == 5 || n % 4 != 3 }
    };
    (0..FACTS).map(fact).collect()
}

/// Answers a request for a summary.
pub(crate) type Summariser = fn(&ModelRequest) -> String;

fn by_rule(request: &ModelRequest, times: usize) -> String {
    let text = request.messages().next().map(|sent| sent.message.text()).unwrap_or_default();
    let asked = read_prompt(&text).expect("the request is of the quoted form");
    let messages: Vec<&Message> = asked.messages.iter().collect();
    let chars_max = asked.words_max.unwrap_or(1_000) as usize * CHARS_PER_WORD * times;
    extract(&messages, asked.previous.as_deref(), None, chars_max)
}

/// Selects sentences by rule, up to the requested length.
pub(crate) fn honest(request: &ModelRequest) -> String {
    by_rule(request, 1)
}

/// Forgets every second line that it should keep.
pub(crate) fn lossy(request: &ModelRequest) -> String {
    let mut nth = 0;
    let kept = by_rule(request, 2);
    let kept = kept.lines().filter(|line| {
        nth += usize::from(line.starts_with("- "));
        !line.starts_with("- ") || nth % 2 == 0
    });
    kept.collect::<Vec<_>>().join("\n").replace("## Goal\n\n", "## Goal\n- go on\n\n")
}

/// What is said in one turn.
pub(crate) struct Said {
    pub(crate) user: String,
    /// The result of a call of the tool `look`, if there is one.
    pub(crate) looked: Option<String>,
    pub(crate) assistant: String,
}

/// Returns the turns of the conversation. Two of three state a fact.
pub(crate) fn turns(facts: &[Fact]) -> impl Iterator<Item = Said> {
    let mut dice = Dice(11);
    (0..TURNS).map(move |turn| {
        let told = (turn % 3 < 2).then(|| &facts[turn / 3 * 2 + turn % 3]);
        let by = |by_user: bool| told.filter(|fact| fact.by_user == by_user).map(|fact| format!("\n{}", fact.sentence));
        let user = format!("{}{}\nWhat next?", dice.chatter(8), by(true).unwrap_or_default());
        let looked = turn.is_multiple_of(CALL_EVERY).then(|| dice.chatter(8));
        let assistant = format!("{}{}", dice.chatter(10), by(false).unwrap_or_default());
        Said { user, looked, assistant }
    })
}
