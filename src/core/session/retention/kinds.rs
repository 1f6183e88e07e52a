//! What compactions preserve of conversations of each kind: code, debugging, research, people. Each conversation states
//! what its kind must keep, each fact once; the kind is recognised from the content. The table is in
//! `src/core/compaction/summary/README.md`.

use super::{Dice, Summariser, World, between, honest, lossy, world};
use crate::core::{compaction::summary::recognise, context::build::build_context};
use reseed_protocol::{CallId, Part, Role, command::SummaryKind};
use std::fmt::Write as _;

const TURNS: usize = 150;
/// Two of three turns state a fact.
const FACTS: usize = TURNS / 3 * 2;
const BEGIN: &str = "<!-- kinds: begin -->\n";
const END: &str = "<!-- kinds: end -->\n";
/// Minimum percentage of a kind's facts that survive with repair on.
const PERCENT_MIN: f64 = 95.0;

const KINDS: [(SummaryKind, &str, &[&str]); 4] = [
    (SummaryKind::Chat, "chat", &["names", "dates", "likes", "promises"]),
    (SummaryKind::Code, "code", &["files", "symbols", "signatures", "decisions"]),
    (SummaryKind::Debugging, "debugging", &["symptoms", "exact errors", "ruled out", "reproduction"]),
    (SummaryKind::Research, "research", &["sources", "claims", "open questions"]),
];

/// A fact that the kind must keep.
struct Fact {
    of: usize,
    sentence: String,
    /// The text that must be there in the end.
    exact: String,
    by_user: bool,
}

fn fact(kind: SummaryKind, n: usize, of: usize, dice: &mut Dice) -> Fact {
    let (one, other) = (dice.word(), dice.word());
    let (sentence, exact, by_user) = match (kind, of) {
        (SummaryKind::Chat | SummaryKind::Auto, 0) => {
            let name = format!("{}{}", one[..1].to_uppercase(), &one[1..]);
            (format!("My neighbour number {n} is called {name} Holm."), format!("{name} Holm"), true)
        }
        (SummaryKind::Chat | SummaryKind::Auto, 1) => {
            let date = format!("2026-{:02}-{:02}", n % 12 + 1, n % 28 + 1);
            (format!("The {one} evening with the {other} people is on {date} this time."), date, true)
        }
        (SummaryKind::Chat | SummaryKind::Auto, 2) => {
            (format!("I like {one} {other} tea number {n}."), format!("{one} {other} tea number {n}"), true)
        }
        (SummaryKind::Chat | SummaryKind::Auto, _) => {
            let exact = format!("{one} letter {n} to {other}");
            (format!("I promised to bring the {exact} soon."), exact, true)
        }
        (SummaryKind::Code, 0) => {
            let exact = format!("src/{one}/{other}_{n}.rs");
            (format!("I have changed {exact} as you said."), exact, false)
        }
        (SummaryKind::Code, 1) => {
            let exact = format!("{one}_{other}_{n}");
            (format!("All calls go through {exact} now."), exact, n.is_multiple_of(2))
        }
        (SummaryKind::Code, 2) => {
            let exact = format!("fn {one}_{n}(input: &str, {other}: usize) -> Result<Vec<u8>, Error>");
            (exact.clone(), exact, n.is_multiple_of(2))
        }
        (SummaryKind::Code, _) => {
            let exact = format!("{one} queue {n} instead of a {other}");
            (format!("We decided on a {exact}, since it is simpler."), exact, true)
        }
        (SummaryKind::Debugging, 0) => {
            let exact = format!("{one} service {n} hangs when the {other}");
            (format!("The {exact} is opened twice."), exact, true)
        }
        (SummaryKind::Debugging, 1) => {
            let exact = format!("error: cannot open {one} {n}: {other} is locked by another process");
            (exact.clone(), exact, true)
        }
        (SummaryKind::Debugging, 2) => {
            let exact = format!("the {one} cache {n} of the {other}");
            (format!("We ruled out {exact} as the cause."), exact, false)
        }
        (SummaryKind::Debugging, _) => {
            let exact = format!("./run.sh --{one} {n} --{other}");
            (format!("To reproduce it, start {exact} twice."), exact, true)
        }
        (SummaryKind::Research, 0) => {
            let exact = format!("https://{one}.example.org/{other}/{n}");
            (format!("The tables are at {exact} in full."), exact, false)
        }
        (SummaryKind::Research, 1) => {
            let exact = format!("the {one} tide of bay {n} rises with the {other}");
            (format!("According to the harbour's yearbook, {exact}."), exact, false)
        }
        (SummaryKind::Research, _) => {
            let exact = format!("the {one} of bay {n} moves the {other}");
            (format!("It is an open question whether {exact}."), exact, n.is_multiple_of(2))
        }
    };
    Fact { of, sentence, exact, by_user }
}

/// Plays all turns; returns the number of compactions and, for each sort, the facts that survived and those stated.
fn conversation(kind: SummaryKind, sorts: usize, summariser: Summariser, repairs: bool) -> (u32, Vec<(u32, u32)>) {
    let mut world = world("threshold", summariser, repairs);
    let (mut dice, mut telling) = (Dice(11), Dice(7));
    let facts: Vec<Fact> = (0..FACTS).map(|n| fact(kind, n, n % sorts, &mut telling)).collect();
    for turn in 0..TURNS {
        let told = (turn % 3 < 2).then(|| &facts[turn / 3 * 2 + turn % 3]);
        let by = |by_user: bool| told.filter(|fact| fact.by_user == by_user).map(|fact| format!("\n{}", fact.sentence));
        let text = format!("{}{}\nWhat next?", dice.chatter(10), by(true).unwrap_or_default());
        world.say(Role::User, vec![Part::Text { text }]);
        // Files are changed by calls.
        if let Some(fact) = told.filter(|fact| kind == SummaryKind::Code && fact.of == 0) {
            let call_id: CallId = format!("c{turn}").parse().unwrap();
            let arguments = format!(r#"{{"path":"{}"}}"#, fact.exact);
            world.say(
                Role::Assistant,
                vec![Part::ToolCall { call_id: call_id.clone(), name: "edit".into(), arguments }],
            );
            world.say(Role::Tool, vec![Part::ToolResult { call_id, output: "done".into(), is_error: false }]);
        }
        let text = format!("{}{}", dice.chatter(12), by(false).unwrap_or_default());
        world.say(Role::Assistant, vec![Part::Text { text }]);
        world.settle();
    }
    assert_eq!(recognised(&world), kind, "the kind is recognised from what was said");
    let context = build_context(world.tree.path());
    let seen: String = context.messages.iter().map(|sent| sent.message.text() + "\n").collect();
    let mut counts = vec![(0, 0); sorts];
    for fact in &facts {
        counts[fact.of].0 += u32::from(seen.contains(&fact.exact));
        counts[fact.of].1 += 1;
    }
    (world.compactions, counts)
}

fn recognised(world: &World) -> SummaryKind {
    recognise(world.tree.path().iter().filter_map(|node| node.entry.message()))
}

fn percent((kept, told): (u32, u32)) -> f64 {
    f64::from(kept) * 100.0 / f64::from(told)
}

#[test]
fn each_kind_of_conversation_keeps_what_it_must() {
    let mut table = "| kind | what it must keep | honest | honest, repaired | lossy | lossy, repaired |\n".to_owned();
    table += &format!("| --- | --- |{}\n", " ---: |".repeat(4));
    let mut missed = Vec::new();
    for (kind, name, sorts) in KINDS {
        let talks = std::thread::scope(|scope| {
            let of = |summariser, repairs| scope.spawn(move || conversation(kind, sorts.len(), summariser, repairs));
            [of(honest as Summariser, false), of(honest, true), of(lossy, false), of(lossy, true)]
                .map(|talk| talk.join().unwrap())
        });
        for (of, sort) in sorts.iter().enumerate() {
            let _ = write!(table, "| {name} | {sort} |");
            for (at, (compactions, counts)) in talks.iter().enumerate() {
                assert!(*compactions >= 3, "{name}: {compactions} compactions");
                let percent = percent(counts[of]);
                let _ = write!(table, " {percent:.1} % |");
                if at % 2 == 1 && percent < PERCENT_MIN {
                    missed.push(format!("{name}, {sort}: {percent:.1} %"));
                }
            }
            table.push('\n');
        }
    }
    println!("{table}");
    between(BEGIN, END, &table);
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
