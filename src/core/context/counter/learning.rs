//! Measures how well the counter corrects itself: the error for messages added since the last reported usage, after ten
//! turns, with o200k as the reference. Checks the table in `README.md`.
//!
//! A conversation is played through the same count that the server makes before each request. It learns from one text
//! and is measured on another: `tests/fixtures/counting/unseen/` if that has one, otherwise the other half of the
//! sample.

use super::{Calibration, Counter, Method, measured::check_table, tokenizer::Vocabulary};
use crate::context::{
    build_context,
    count::{Fixed, Freshness, RequestCount, answer_report, count, sent_key},
    node::Node,
};
use reseed_protocol::{
    Entry, EntryData, Message, Part, Role, Timestamp, Usage, UsageSource, content::utf16_len, context::CountSource,
};
use std::{fmt::Write as _, fs, path::Path, sync::Arc};

/// Turns before measuring.
const TURNS: usize = 10;
/// Tokens of a user message or tool result.
const SAID_TOKENS: usize = 100;
/// Tokens of an answer.
const ANSWER_TOKENS: usize = 180;
/// The scripts with guaranteed limits.
const PROMISED: [&str; 7] = ["arabic", "chinese", "code", "emoji", "english", "japanese", "json"];
/// Maximum error at the 95th percentile, with the tokenizer.
const TOKENIZER_ERROR_MAX: f64 = 0.02;
/// Maximum error at the 95th percentile, with character weights, for the guaranteed scripts.
const CHARACTERS_ERROR_MAX: f64 = 0.15;

/// The tokens that the provider adds, unknown to the counter.
#[derive(Clone, Copy)]
struct Template {
    /// Tokens around each message.
    message: u64,
    /// Tokens that start the answer.
    start: u64,
    /// Tokens of a hidden prompt.
    hidden: u64,
}

/// The templates are our own assumption, that of some open models, and a server that counts nothing but text.
const TEMPLATES: [Template; 3] = [
    Template { message: 4, start: 3, hidden: 0 },
    Template { message: 7, start: 5, hidden: 40 },
    Template { message: 0, start: 0, hidden: 0 },
];

/// Cuts a text into pieces of about `tokens` tokens, `apart` of a piece's length apart.
fn pieces(text: &str, tokens: usize, apart: f64) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let long = (chars.len() * tokens / usize::try_from(Vocabulary::O200k.count(text)).unwrap()).clamp(1, chars.len());
    let step = ((long as f64 * apart) as usize).max(1);
    (0..=chars.len() - long).step_by(step).map(|at| chars[at..at + long].iter().collect()).collect()
}

struct Conversation {
    path: Vec<Arc<Node>>,
    counter: Counter,
    calibration: Calibration,
    model: &'static str,
    /// The server's tokenizer.
    truth: Vocabulary,
    template: Template,
    sent: u64,
}

impl Conversation {
    fn new(model: &'static str, truth: Vocabulary, template: Template) -> Self {
        let counter = Counter::for_model(model);
        let calibration = Calibration::new(counter.method());
        let sent = template.hidden + template.start;
        Self { path: Vec::new(), counter, calibration, model, truth, template, sent }
    }

    fn append(&mut self, message: Message) {
        let entry = Entry {
            entry_id: format!("e{}", self.path.len()).parse().unwrap(),
            parent_id: self.path.last().map(|node| node.id().clone()),
            timestamp: Timestamp(0),
            data: EntryData::message(message),
            imported: None,
        };
        self.path.push(Arc::new(Node::counted(entry, &self.counter)));
    }

    fn count(&self) -> RequestCount {
        let fresh = Freshness { model: self.model, envelope_key: "k" };
        let fixed = Fixed::counted(&self.counter, "", &[]);
        count(&build_context(&self.path), fixed, fresh, &self.counter, &self.calibration)
    }

    /// Plays a turn and learns from its usage.
    fn turn(&mut self, said: &str, answer: &str) {
        self.append(Message::user(said));
        self.sent += self.truth.count(said) + self.template.message;
        let count = self.count();
        let mut message = Message::new(Role::Assistant, vec![Part::Text { text: answer.to_owned() }]);
        message.model = Some(self.model.to_owned());
        message.envelope_key = Some(sent_key("k", &build_context(&self.path)));
        message.usage = Some(Usage {
            input_tokens: self.sent,
            cached_tokens: 0,
            cache_write_tokens: None,
            cache_write_hour_tokens: None,
            output_tokens: self.truth.count(answer),
            reasoning_tokens: None,
            prefix_tokens: None,
            further: None,
            cost_nano_usd: None,
            source: UsageSource::Reported,
        });
        self.calibration.observe(&count.basis.report(self.sent));
        answer_report(&message, &self.counter).iter().for_each(|report| self.calibration.observe(report));
        self.append(message);
        self.sent += self.truth.count(answer) + self.template.message;
    }

    /// Returns the estimate for a message after the last report, its error bound, and the true count.
    fn added(&mut self, said: &str) -> (u64, u64, u64) {
        let last = self.path.last().and_then(|node| node.message.clone()).and_then(|message| message.usage.clone());
        self.append(Message::user(said));
        let count = self.count();
        self.path.pop();
        let reported = last.map_or(0, |usage| usage.total_tokens());
        assert_eq!(count.usage_tokens, reported);
        assert_eq!(count.source, if reported == 0 { CountSource::Estimated } else { CountSource::Mixed });
        (
            count.trailing_tokens,
            count.error_bound_tokens,
            self.sent + self.truth.count(said) + self.template.message - reported,
        )
    }
}

/// Errors of many pieces, as fractions.
#[derive(Default)]
struct Errors {
    /// Before any report.
    first: Vec<f64>,
    /// After ten turns.
    learnt: Vec<f64>,
    /// A quarter of the UTF-16 length.
    quarter: Vec<f64>,
    /// Error bounds claimed before any report, and after ten turns.
    bounds: (Vec<f64>, Vec<f64>),
}

impl Errors {
    /// Plays conversations that learn from `seen` and measures them on `unseen`. Each of these holds two texts, the
    /// user's and the model's; a piece comes from either.
    fn measure(&mut self, model: &'static str, truth: Vocabulary, seen: [&str; 2], unseen: [&str; 2]) {
        let said = pieces(seen[0], SAID_TOKENS, 0.7);
        let answers = pieces(seen[1], ANSWER_TOKENS, 0.6);
        for template in TEMPLATES {
            let mut conversation = Conversation::new(model, truth, template);
            let mut fresh = Conversation::new(model, truth, TEMPLATES[0]);
            for turn in 0..TURNS {
                conversation.turn(&said[turn % said.len()], &answers[turn % answers.len()]);
            }
            for piece in unseen.iter().flat_map(|text| pieces(text, SAID_TOKENS, 0.25)) {
                let (estimated, bound, added) = conversation.added(&piece);
                let share = |tokens: u64| tokens as f64 / added as f64;
                self.learnt.push((share(estimated) - 1.0).abs());
                self.bounds.1.push(share(bound));
                self.quarter.push((share(utf16_len(&piece).div_ceil(4)) - 1.0).abs());
                let (estimated, bound, added) = fresh.added(&piece);
                self.first.push((estimated as f64 / added as f64 - 1.0).abs());
                self.bounds.0.push(bound as f64 / added as f64);
            }
        }
    }

    /// Returns the fraction of pieces within the bound claimed for them.
    fn kept(&self) -> f64 {
        let kept = self.learnt.iter().zip(&self.bounds.1).filter(|(error, bound)| error <= bound).count();
        kept as f64 / self.learnt.len() as f64
    }
}

/// Returns the 95th percentile.
fn p95(errors: &[f64]) -> f64 {
    let mut sorted = errors.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() * 95).div_ceil(100) - 1]
}

fn mean(shares: &[f64]) -> f64 {
    shares.iter().sum::<f64>() / shares.len() as f64
}

/// A name, and pairs of texts to learn from and to measure on.
type Case = (String, Vec<([String; 2], [String; 2])>);

fn cases() -> Vec<Case> {
    let folder = Path::new("../../tests/fixtures/counting");
    let read = |name: &str| fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap();
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    let both = |text: &str| [text.to_owned(), text.to_owned()];
    let mut cases: Vec<Case> = names
        .into_iter()
        .map(|name| {
            let sample = read(&name);
            let pairs = if PROMISED.contains(&name.as_str()) {
                vec![(both(&sample), both(&read(&format!("unseen/{name}"))))]
            } else {
                let middle = sample.floor_char_boundary(sample.len() / 2);
                let (first, second) = sample.split_at(middle);
                vec![(both(first), both(second)), (both(second), both(first))]
            };
            (name, pairs)
        })
        .collect();
    for [said, answered] in [["english", "code"], ["chinese", "json"], ["japanese", "english"], ["arabic", "code"]] {
        let seen = [read(said), read(answered)];
        let unseen = [said, answered].map(|name| read(&format!("unseen/{name}")));
        cases.push((format!("{said} with {answered}"), vec![(seen, unseen)]));
    }
    cases
}

fn measured(model: &'static str, truth: Vocabulary, case: &Case) -> Errors {
    let mut errors = Errors::default();
    for (seen, unseen) in &case.1 {
        errors.measure(model, truth, [&seen[0], &seen[1]], [&unseen[0], &unseen[1]]);
    }
    errors
}

#[test]
fn added_messages_are_counted_within_the_limits_after_ten_turns() {
    assert_eq!(Counter::for_model("gpt-4o").method(), Method::Tokenizer("o200k"));
    assert_eq!(Counter::for_model("a model nobody knows").method(), Method::Characters);
    let heads = [
        "what is added",
        "tokenizer",
        "bound",
        "character weights, first",
        "bound",
        "after ten turns",
        "bound",
        "kept",
        "characters / 4",
        "cl100k: weights, first",
        "after ten turns",
        "characters / 4",
    ];
    let mut table = format!("| {} |\n| ---{} |\n", heads.join(" | "), " | ---:".repeat(heads.len() - 1));
    let mut beyond = Vec::new();
    for case in cases() {
        let exact = measured("gpt-4o", Vocabulary::O200k, &case);
        let weighed = measured("a model nobody knows", Vocabulary::O200k, &case);
        let other = measured("a model nobody knows", Vocabulary::Cl100k, &case);
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let cells = [
            percent(p95(&exact.learnt)),
            percent(mean(&exact.bounds.1)),
            percent(p95(&weighed.first)),
            percent(mean(&weighed.bounds.0)),
            percent(p95(&weighed.learnt)),
            percent(mean(&weighed.bounds.1)),
            format!("{:.0} %", 100.0 * weighed.kept()),
            percent(p95(&weighed.quarter)),
            percent(p95(&other.first)),
            percent(p95(&other.learnt)),
            percent(p95(&other.quarter)),
        ];
        let _ = writeln!(table, "| {} | {} |", case.0, cells.join(" | "));
        let promised = case.0.split(" with ").all(|name| PROMISED.contains(&name));
        if p95(&exact.learnt) > TOKENIZER_ERROR_MAX || promised && p95(&weighed.learnt) > CHARACTERS_ERROR_MAX {
            beyond.push(case.0.clone());
        }
        assert!(mean(&exact.bounds.1) < mean(&exact.bounds.0), "{}", case.0);
        assert!(mean(&weighed.bounds.1) < mean(&weighed.bounds.0), "{}", case.0);
        assert!(p95(&weighed.learnt) < p95(&weighed.quarter), "{}", case.0);
        // If a vocabulary is far from the weights, reports correct most of the difference.
        let (first, learnt) = (p95(&other.first), p95(&other.learnt));
        assert!(learnt < if first > 0.2 { 0.6 * first } else { 0.2 }, "{}: {first} became {learnt}", case.0);
    }
    check_table("learning", &table);
    assert!(beyond.is_empty(), "beyond the limits: {beyond:?}\n{table}");
}
