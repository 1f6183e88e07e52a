//! What is restored, in which order and within which bound, and what remains after ten compactions.

use super::*;
use crate::core::{
    compaction::{extract::extract, summary::check},
    context::counter::Counter,
};
use proptest::prelude::*;
use reseed_protocol::{Part, Role};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

const EMPTY: &str = "## Goal\n- build the boat\n\n## Constraints & Preferences\n- none\n\n## Progress\n### Done\n- none\n### In \
                     Progress\n- none\n### Blocked\n- none\n\n## Key Decisions\n- none\n\n## Next Steps\n- none\n\n## \
                     Critical Context\n- none";

fn user(text: &str) -> Message {
    Message::user(text)
}

fn assistant(text: &str) -> Message {
    Message::new(Role::Assistant, vec![Part::Text { text: text.into() }])
}

fn result(text: &str) -> Message {
    let call_id = "c".parse().unwrap();
    Message::new(Role::Tool, vec![Part::ToolResult { call_id, output: text.into(), is_error: false }])
}

/// Counts one token per four characters, rounded.
fn quarter(text: &str) -> u64 {
    text.chars().count().div_ceil(4) as u64
}

fn repaired(summary: &str, messages: &[Message], previous: Option<&str>, tokens_max: u64) -> Repaired {
    let messages: Vec<&Message> = messages.iter().collect();
    repair(summary, &messages, previous, SummaryKind::Chat, RepairBounds { tokens_max, count: &quarter })
}

/// Checks the lines restored to an empty summary, or to `body`.
#[track_caller]
fn check_lines(body: &str, messages: &[Message], previous: Option<&str>, expected: &[&str]) {
    let repaired = repaired(body, messages, previous, 1_000);
    let (_, lines) = without_restored(&repaired.text);
    assert_eq!(lines, expected, "{}", repaired.text);
    assert_eq!(check(&repaired.text).as_deref(), Ok(repaired.text.as_str()), "it is a summary");
}

#[test]
fn what_is_missing_is_put_back_with_its_clause() {
    check_lines(
        EMPTY,
        &[
            user("Please remember that the staging port is 5433. Nice weather!"),
            assistant("I changed src/boat.rs as you said."),
            result("{\"id\": \"x\", \"order\": \"A-4711\"}"),
            user("My cat is called Miso."),
        ],
        None,
        &[
            "- the staging port is 5433",
            "- Assistant: I changed src/boat.rs as you said",
            "- Tool: {\"id\": \"x\", \"order\": \"A-4711\"}",
            "- My cat is called Miso",
        ],
    );
}

#[test]
fn what_is_there_is_not_put_back() {
    let body =
        EMPTY.replace("## Critical Context\n- none", "## Critical Context\n- staging: port 5433, the cat **Miso**");
    let messages = [user("The staging port is 5433."), user("My cat is called Miso."), user("The dog is called Rex.")];
    check_lines(&body, &messages, None, &["- The dog is called Rex"]);
    let nothing = repaired(&body, &messages[..2], None, 1_000);
    assert_eq!(nothing, Repaired { text: body, checked: 2, restored: 0 });
}

#[test]
fn a_newer_claim_takes_the_place_of_an_older_one() {
    check_lines(
        EMPTY,
        &[user("The staging port is 5433."), user("The staging port is now 6544.")],
        None,
        &["- The staging port is now 6544"],
    );
}

#[test]
fn the_summary_before_counts() {
    let previous = format!(
        "{}\n\n## Restored Facts\n- Tool: host db-7\n- blue harbour lamp",
        EMPTY
            .replace("## Critical Context\n- none", "## Critical Context\n- User: The key cabinet is A-12\n- port 8443")
            .replace("## Next Steps\n- none", "## Next Steps\n- paint the hull")
            .replace("### Done\n- none", "### Done\n- [x] bought 30 planks")
    );
    let expected = [
        "- Assistant: bought 30 planks",
        "- Open: paint the hull",
        "- The key cabinet is A-12",
        "- port 8443",
        "- Tool: host db-7",
        "- blue harbour lamp",
    ];
    let first = repaired(EMPTY, &[], Some(&previous), 1_000);
    let (_, lines) = without_restored(&first.text);
    let told: Vec<&str> = lines.iter().map(String::as_str).filter(|line| *line != "- bought 30 planks").collect();
    assert_eq!(told, expected[1..], "{}", first.text);
    // Even if only the section itself is left.
    let second = repaired(EMPTY, &[], Some(&first.text), 1_000);
    assert_eq!(without_restored(&second.text).1, lines);
}

#[test]
fn what_was_to_be_done_and_is_done_is_not_put_back() {
    let messages = [
        user("TODO: paint the hull\n- [ ] sand the deck"),
        assistant("I still need to varnish the mast."),
        assistant("Painting the hull: the paint on the hull is finished."),
    ];
    check_lines(EMPTY, &messages, None, &["- Open: sand the deck", "- Open: I still need to varnish the mast"]);
}

#[test]
fn what_matters_most_goes_in_first() {
    let messages = [
        result("disk /dev/sda1 at 91 %"),
        assistant("The build took 340 seconds on runner-3 today, as always"),
        user("We decided to go with libfoo-2"),
        user("My server is called Kestrel"),
        user("What is next?"),
    ];
    for (tokens_max, expected) in [
        (8, vec![]),
        (16, vec!["- My server is called Kestrel"]),
        (25, vec!["- decided to go with libfoo-2", "- My server is called Kestrel"]),
    ] {
        let repaired = repaired(EMPTY, &messages, None, tokens_max);
        let (_, lines) = without_restored(&repaired.text);
        let tight: Vec<String> =
            lines.iter().map(|line| line.replace("We ", "").replace("- server", "- My server")).collect();
        assert_eq!(tight, expected, "{tokens_max}");
        let section = repaired.text[repaired.text.find("\n\n## Restored").unwrap_or(repaired.text.len())..].to_owned();
        assert!(quarter(&section) <= tokens_max, "{section}");
    }
}

#[test]
fn no_secret_is_put_back() {
    let messages = [user("password=hunter2xyz and the key sk-abcdefghij1234567890 for host db-7")];
    let text = repaired(EMPTY, &messages, None, 1_000).text;
    assert!(text.contains("db-7") && !text.contains("hunter2") && !text.contains("sk-abc"), "{text}");
}

#[test]
fn a_section_of_the_models_own_is_written_anew() {
    let body = format!("{EMPTY}\n\n## Restored Facts\n- port 8443\n- port 8443\n- the mast is 12 m");
    check_lines(&body, &[user("The mast is 12 m long.")], None, &["- port 8443", "- The mast is 12 m long"]);
}

/// Returns 200 facts of known kinds, each with the identifier that must survive.
fn planted() -> Vec<(&'static str, String, String)> {
    let colours = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "islet", "jetty"];
    let mut facts = Vec::new();
    for n in 0..200 {
        let (colour, other) = (colours[n % 10], colours[n / 20]);
        let (kind, fact, identifier) = match n % 10 {
            0 => (
                "path",
                format!("The config of {colour}{n} is in /srv/{other}/app-{n}.toml."),
                format!("/srv/{other}/app-{n}.toml"),
            ),
            1 => (
                "url",
                format!("Service {colour} {other} answers at https://{other}.example.org/v{n}."),
                format!("https://{other}.example.org/v{n}"),
            ),
            2 => ("number", format!("The {colour} {other} queue holds {} items.", 1000 + n), (1000 + n).to_string()),
            3 => {
                let date = format!("{}-{:02}-{:02}", 2026 + n / 100, n / 10 % 10 + 1, n % 28 + 1);
                ("date", format!("The {other}{n} release is planned for {date}."), date)
            }
            4 => (
                "quoted",
                format!("The {other} banner says \"{colour} {other} {n}\"."),
                format!("{colour} {other} {n}"),
            ),
            5 => ("symbol", format!("We parse {other} with parse_{colour}_{n}()."), format!("parse_{colour}_{n}")),
            6 => ("email", format!("Ask {colour}{n}@example.org about {other}."), format!("{colour}{n}@example.org")),
            7 => (
                "id",
                format!("The {other}{n} ticket is {}-{n}.", colour.to_uppercase()),
                format!("{}-{n}", colour.to_uppercase()),
            ),
            8 => ("port", format!("Port of {colour} {other}{n} is {}.", 8000 + n), (8000 + n).to_string()),
            _ => (
                "constant",
                format!("The {other} limit stands in MAX_{}_{n}.", colour.to_uppercase()),
                format!("MAX_{}_{n}", colour.to_uppercase()),
            ),
        };
        facts.push((kind, fact, identifier));
    }
    facts
}

/// Plays 300 turns with ten compactions; returns the percentage retained by kind, and overall.
fn retained(
    tokens_max: u64,
    summarise: &dyn Fn(&[&Message], Option<&str>) -> String,
) -> (BTreeMap<&'static str, f64>, f64, u64) {
    let counter = Counter::for_model("gpt-4o");
    let count = |text: &str| counter.text(text);
    let facts = planted();
    let mut previous: Option<String> = None;
    let mut section_tokens = 0;
    for round in 0..10 {
        let mut messages = Vec::new();
        for turn in 0..30 {
            let n = round * 30 + turn;
            let told = if n % 3 == 2 { None } else { facts.get(n / 3 * 2 + n % 3) };
            messages.push(user(
                &told.map_or_else(|| format!("How is the weather on day {n}?"), |(_, fact, _)| fact.clone()),
            ));
            messages.push(assistant("I see. Shall we go on with it?"));
        }
        let messages: Vec<&Message> = messages.iter().collect();
        let summary = check(&summarise(&messages, previous.as_deref())).unwrap();
        let bounds = RepairBounds { tokens_max, count: &count };
        let repaired = repair(&summary, &messages, previous.as_deref(), SummaryKind::Chat, bounds);
        let section = repaired.text.find("\n\n## Restored Facts").map_or("", |at| &repaired.text[at..]);
        section_tokens = section_tokens.max(counter.text(section));
        previous = Some(repaired.text);
    }
    let held = IndexedText::new(previous.as_deref().unwrap_or_default());
    let mut by_kind: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for (kind, _, identifier) in &facts {
        let (kept, all) = by_kind.entry(kind).or_default();
        *kept += u32::from(held.has(identifier, &normal(identifier), IdentifierKind::Id));
        *all += 1;
    }
    let share = |(kept, all): (u32, u32)| f64::from(kept) * 100.0 / f64::from(all);
    let total = by_kind.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (by_kind.into_iter().map(|(kind, counts)| (kind, share(counts))).collect(), share(total), section_tokens)
}

/// Drops every second line.
fn forgetful(summary: &str) -> String {
    let mut nth = 0;
    let kept = summary.lines().filter(|line| {
        nth += usize::from(line.starts_with("- "));
        !line.starts_with("- ") || nth % 2 == 0
    });
    kept.collect::<Vec<_>>().join("\n").replace("## Goal\n\n", "## Goal\n- go on\n\n")
}

#[test]
fn ten_compactions_keep_what_was_told() {
    // A summary in a window of 16,000 tokens has 2,000, about 1,200 words.
    let honest = |messages: &[&Message], previous: Option<&str>| extract(messages, previous, None, 7_000);
    let lossy = |messages: &[&Message], previous: Option<&str>| forgetful(&extract(messages, previous, None, 14_000));
    println!("summariser  section of  retained  by kind");
    for (name, summarise, tokens_max, least) in [
        ("honest", &honest as &dyn Fn(&[&Message], Option<&str>) -> String, 0, 0.0),
        ("honest", &honest, 800, 97.0),
        ("honest", &honest, 1_600, 99.0),
        ("lossy", &lossy, 0, 0.0),
        ("lossy", &lossy, 800, 65.0),
        ("lossy", &lossy, 1_600, 99.0),
    ] {
        let (by_kind, all, tokens) = retained(tokens_max, summarise);
        println!("{name:<11} {tokens:>4}/{tokens_max:<5} {all:>8.1}%  {by_kind:.0?}");
        assert!(tokens <= tokens_max, "{tokens} of {tokens_max}");
        assert!(all >= least, "{name} with {tokens_max}: {all} {by_kind:?}");
    }
}

#[test]
fn a_hundred_thousand_words_are_read_once() {
    let messages: Vec<Message> = (0..1_000)
        .map(|n| {
            user(&format!("The value {n} of part_{n} is in src/part_{n}.rs and weighs {n} kg, as told. ").repeat(8))
        })
        .collect();
    let words: usize = messages.iter().map(|message| message.text().split(' ').count()).sum();
    assert!(words > 100_000, "{words}");
    let started = Instant::now();
    let repaired = repaired(EMPTY, &messages, None, 1_600);
    let took = started.elapsed();
    println!("{words} words: {took:?}, {} looked for, {} put back", repaired.checked, repaired.restored);
    // Under a second on an idle machine; anything not linear takes minutes.
    assert!(repaired.checked <= IDENTIFIERS_MAX as u64 && took < Duration::from_secs(20), "{took:?}");
}

proptest! {
    #[test]
    fn any_text_is_repaired_within_its_bound(
        body in "(\\PC|\n|# ){0,80}",
        texts in prop::collection::vec("(\\PC|\n|`|/|[0-9]|port ){0,80}", 0..4),
        previous in prop::option::of("(\\PC|\n){0,80}"),
        tokens_max in 0u64..200,
    ) {
        let summary = format!("{EMPTY}\n{body}");
        let summary = check(&summary).unwrap();
        let messages: Vec<Message> = texts.iter().map(|text| user(text)).collect();
        let once = repaired(&summary, &messages, previous.as_deref(), tokens_max);
        prop_assert!(once.restored <= once.checked);
        let (body, lines) = without_restored(&once.text);
        let (before, _) = without_restored(&summary);
        prop_assert_eq!(&body, &before);
        let cost: u64 = lines.iter().map(|line| quarter(line)).sum();
        prop_assert!(cost <= tokens_max, "{}", once.text);
        // What was restored is present, so nothing more is missing.
        let again = repaired(&once.text, &messages, previous.as_deref(), tokens_max);
        prop_assert_eq!(again.checked >= once.checked, true);
    }
}
