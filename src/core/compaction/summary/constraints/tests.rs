//! Fifty conversations in eighteen languages: no constraint is lost or invented, whatever the model writes.

use super::*;
use serde::Deserialize;

/// A conversation, and what a model wrote under "Constraints & Preferences".
#[derive(Deserialize)]
struct Conversation {
    name: String,
    language: String,
    says: Vec<String>,
    /// Its constraints that rules recognise.
    constraints: Vec<String>,
    lines: Vec<String>,
    /// Lines of the model that nobody said.
    inferred: Vec<String>,
    /// The system prompt and the tools' descriptions.
    rules: Vec<String>,
    /// Other sentences kept verbatim because the model took them for constraints.
    keeps: Vec<String>,
}

fn conversations() -> Vec<Conversation> {
    let text = std::fs::read_to_string("../../tests/fixtures/constraints/conversations.json").unwrap();
    serde_json::from_str(&text).unwrap()
}

fn summary(lines: &[String]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| format!("- {line}")).collect();
    let mut sections = Sections::default();
    sections.push_item(Slot::Goal, "talk");
    sections.set_lines(Slot::Constraints, lines);
    sections.to_string()
}

fn count(text: &str) -> u64 {
    text.len() as u64 / 4
}

const BOUNDS: RepairBounds<'_> = RepairBounds { tokens_max: 500, count: &count };

/// Returns the lines of the section without bullets.
fn section(text: &str) -> Vec<String> {
    Sections::parse(text).lines(Slot::Constraints).iter().map(|line| item_text(line).to_owned()).collect()
}

/// Checks the section: every constraint verbatim, every other line marked or said.
#[track_caller]
fn check(talk: &Conversation, round: &str, settled: &Settled) {
    let name = format!("{} ({}), {round}: {}", talk.name, talk.language, settled.text);
    let lines = section(&settled.text);
    let users = talk.constraints.iter().chain(talk.keeps.iter().filter(|kept| talk.says.contains(kept)));
    for constraint in users.clone() {
        assert!(lines.contains(constraint), "{constraint} is lost: {name}");
        assert!(settled.constraints.contains(constraint), "{constraint} is not noted: {name}");
    }
    assert_eq!(settled.constraints.len(), users.count(), "{:?} {name}", settled.constraints);
    let said = |line: &String| {
        talk.says.contains(line) || talk.rules.iter().any(|rules| whole_sentences(rules).contains(&line.as_str()))
    };
    for line in &lines {
        assert!(line.starts_with(INFERRED) || said(line), "{line} is invented: {name}");
    }
}

#[test]
fn none_is_lost_and_none_is_invented() {
    let talks = conversations();
    let languages: BTreeSet<&str> = talks.iter().map(|talk| talk.language.as_str()).collect();
    assert!(talks.len() >= 50 && languages.len() >= 15, "{} in {}", talks.len(), languages.len());
    for talk in talks {
        let messages: Vec<Message> = talk.says.iter().map(|text| Message::user(text.as_str())).collect();
        let messages: Vec<&Message> = messages.iter().collect();
        let rules = talk.rules.as_slice();
        let first = ConstraintSources { messages: &messages, kept: &[], noted: &[], rules, previous: None };
        let settled = settle(&summary(&talk.lines), first, BOUNDS);
        check(&talk, "first", &settled);
        let marked: Vec<String> = talk.inferred.iter().map(|line| format!("{INFERRED}{line}")).collect();
        let found: Vec<String> = section(&settled.text).into_iter().filter(|line| line.starts_with(INFERRED)).collect();
        assert_eq!(found, marked, "{}", talk.name);
        for kept in &talk.keeps {
            assert!(section(&settled.text).contains(kept), "{}: {}", talk.name, settled.text);
        }
        assert_eq!(stated(first).iter().filter(|text| !talk.constraints.contains(text)).count(), 0, "{}", talk.name);

        // Later summaries are about other things; the model drops the section, repeats it in other words, or writes
        // prose.
        let chatter = Message::user("Now to something else.");
        let mut before = settled;
        for (round, text) in [
            ("dropped", summary(&[])),
            ("said again", summary(&talk.lines)),
            ("marked lines without their mark", summary(&talk.inferred)),
            ("in prose", "The user talks about something else.".to_owned()),
            ("dropped after prose", summary(&[])),
        ] {
            let said = ConstraintSources {
                messages: &[&chatter],
                kept: &[],
                noted: &before.constraints,
                rules,
                previous: Some(&before.text),
            };
            let settled = settle(&text, said, BOUNDS);
            check(&talk, round, &settled);
            before = settled;
        }
    }
}

#[test]
fn a_paraphrase_gives_way_to_what_was_said_once() {
    let user = Message::user("Never push directly to main. Use oak.");
    let said = ConstraintSources { messages: &[&user], kept: &[], noted: &[], rules: &[], previous: None };
    let lines = ["No direct pushes to main", "Direct pushes to main are forbidden", "Oak must be used", "Be quick"];
    let settled = settle(&summary(&lines.map(str::to_owned)), said, BOUNDS);
    assert_eq!(section(&settled.text)[0], "Never push directly to main.");
    assert_eq!(section(&settled.text).iter().filter(|line| line.contains("push")).count(), 1, "{}", settled.text);
    assert!(section(&settled.text).contains(&"(inferred) Be quick".to_owned()), "{}", settled.text);
}

#[test]
fn a_record_of_a_branch_and_what_is_kept_are_sources_that_are_not_noted() {
    let branch =
        Message::user(crate::core::context::seed::branch_text(&summary(&["Use oak for the keel.".to_owned()])));
    let tail = Message::user("Never paint it red.");
    let said = ConstraintSources { messages: &[&branch], kept: &[&tail], noted: &[], rules: &[], previous: None };
    let lines = ["Oak for the keel", "Never red paint it"].map(str::to_owned);
    let settled = settle(&summary(&lines), said, BOUNDS);
    assert_eq!(section(&settled.text), ["Use oak for the keel.", "Never paint it red."]);
    assert_eq!(settled.constraints, <[String; 0]>::default());
}

#[test]
fn what_has_no_room_is_counted_and_stays_noted() {
    let orders: Vec<String> = (0..40).map(|n| format!("Never touch the file number {n} of the archive.")).collect();
    let user = Message::user(orders.join("\n"));
    let said = ConstraintSources { messages: &[&user], kept: &[], noted: &[], rules: &[], previous: None };
    let bounds = RepairBounds { tokens_max: 100, count: &count };
    let settled = settle(&summary(&[]), said, bounds);
    assert_eq!(settled.constraints, orders);
    assert!(settled.added_tokens <= 110, "{} {}", settled.added_tokens, settled.text);
    let lines = section(&settled.text);
    assert!(lines.contains(&orders[0]) && lines.contains(&orders[39]), "{lines:?}");
    assert!(lines.last().unwrap().starts_with("(and "), "{lines:?}");
}

#[test]
fn a_section_in_prose_is_written_anew() {
    let user = Message::user("Bitte keine Emojis.");
    let said = ConstraintSources { messages: &[&user], kept: &[], noted: &[], rules: &[], previous: None };
    let text = "Der Nutzer baut ein Boot.\n## Einschränkungen\n- Keine Emojis\n- Nur Eiche\n## Sonst\nNichts.";
    let settled = settle(text, said, BOUNDS);
    assert!(settled.text.starts_with("Der Nutzer baut ein Boot."), "{}", settled.text);
    let expected = "## Constraints & Preferences\n- Bitte keine Emojis.\n- (inferred) Nur Eiche";
    assert!(settled.text.contains(expected) && settled.text.contains("## Sonst\nNichts."), "{}", settled.text);
    // What the prose says verbatim is not repeated.
    let settled = settle("The user asks: Bitte keine Emojis.", said, BOUNDS);
    assert_eq!(settled.text, "The user asks: Bitte keine Emojis.");
    assert_eq!(settled.constraints, ["Bitte keine Emojis."]);
}

#[test]
fn a_list_of_rules_is_kept_whole() {
    let user = Message::user(
        "Here are my rules:\n- never use tabs\n- max. 80 columns\n1. Tests first\n\n* no unwrap()\nThanks",
    );
    let said = ConstraintSources { messages: &[&user], kept: &[], noted: &[], rules: &[], previous: None };
    assert_eq!(stated(said), ["never use tabs", "max. 80 columns", "Tests first", "no unwrap()"]);
    let shopping = Message::user("I bought these things:\n- oak\n- pine");
    assert_eq!(stated(ConstraintSources { messages: &[&shopping], ..said }), <[String; 0]>::default());
}

#[test]
fn what_is_said_otherwise_or_in_another_language_is_not_said_twice() {
    let user = Message::user("Nenne mich niemals Bob. We can't exceed 40 kg. I would rather not use React.");
    let said = ConstraintSources { messages: &[&user], kept: &[], noted: &[], rules: &[], previous: None };
    let lines =
        ["Never call the user Bob", "Weight limit 40 kg", "Prefers not to use React", "Never call the user Tom"];
    let settled = settle(&summary(&lines.map(str::to_owned)), said, BOUNDS);
    assert_eq!(
        section(&settled.text),
        [
            "Nenne mich niemals Bob.",
            "We can't exceed 40 kg.",
            "I would rather not use React.",
            "(inferred) Never call the user Tom"
        ]
    );
}

#[test]
fn a_line_of_constraints_in_prose_ends_where_it_ends() {
    let user = Message::user("Never mention sharks.");
    let said = ConstraintSources { messages: &[&user], kept: &[], noted: &[], rules: &[], previous: None };
    let text = "Ann builds a boat.\n\nConstraints: no sharks, 9000 EUR.\nNext: mast.\n\nThe keel is laid.";
    let settled = settle(text, said, BOUNDS);
    assert_eq!(
        settled.text,
        "Ann builds a boat.\n\nNext: mast.\n\nThe keel is laid.\n\n## Constraints & Preferences\n- Never mention sharks.\n- \
         (inferred) no sharks, 9000 EUR."
    );
}

#[test]
fn long_orders_are_kept_whole_and_the_newest_of_too_many() {
    let long = format!("You must never {}.", "paint plank number seven in red or ".repeat(40).trim());
    let orders: Vec<String> = (0..300).map(|n| format!("Never touch the file number {n}.")).collect();
    for (said, first, count) in [(std::slice::from_ref(&long), &long, 1), (&orders, &orders[44], CONSTRAINTS_MAX)] {
        let messages: Vec<Message> = said.iter().map(|text| Message::user(text.as_str())).collect();
        let messages: Vec<&Message> = messages.iter().collect();
        let stated =
            stated(ConstraintSources { messages: &messages, kept: &[], noted: &[], rules: &[], previous: None });
        assert_eq!((&stated[0], stated.len()), (first, count));
    }
}
