//! The count of the next request: which reports are valid for it, and what its own report teaches.

use super::*;
use crate::context::{build_context, counter::TokenEstimate, node::Node, testing::path};
use reseed_protocol::{EntryData, NativeCompaction, Usage};
use std::sync::Arc;

const MODEL: &str = "a model nobody knows";
const KEY: &str = "0a0b0c0d";

fn counter() -> Counter {
    Counter::for_model(MODEL)
}

fn fixed() -> Fixed {
    Fixed::counted(&counter(), "Be brief, be kind, and say so when you do not know.", &[])
}

/// How an answer was made and reported.
#[derive(Clone, Copy)]
struct Made<'a> {
    model: &'a str,
    key: &'a str,
    /// Reported tokens per 100 estimated tokens.
    percent: u64,
    /// True if the answer's key covers everything that was sent, as answers do since this version.
    names_messages: bool,
}

const AS_NOW: Made<'_> = Made { model: MODEL, key: KEY, percent: 100, names_messages: true };

/// Plays lines in the form of [`path`] one after another, and `undo ID`, which undoes that compaction. Each answer is
/// made for the context at that point.
fn played(lines: &[(&str, Made<'_>)]) -> Vec<Arc<Node>> {
    let mut played: Vec<Arc<Node>> = Vec::new();
    for (line, made) in lines {
        if let Some(undone) = line.strip_prefix("undo ") {
            played.retain(|node| node.id().as_str() != undone);
            continue;
        }
        let mut node = (*path(&[line], &counter())[0]).clone();
        let context = build_context(&played);
        if let EntryData::Message(message) = &mut node.entry.data
            && message.role == Role::Assistant
        {
            let sent: u64 = context.messages.iter().map(|counted| counted.tokens.total()).sum();
            let share = |tokens: u64| tokens * made.percent / 100;
            let message = Arc::make_mut(message);
            message.model = Some(made.model.to_owned());
            message.envelope_key =
                Some(if made.names_messages { sent_key(made.key, &context) } else { made.key.to_owned() });
            message.usage = Some(Usage {
                input_tokens: share(sent + fixed().system),
                cached_tokens: 0,
                cache_write_tokens: None,
                cache_write_hour_tokens: None,
                output_tokens: share(node.tokens.total()),
                reasoning_tokens: None,
                prefix_tokens: None,
                further: None,
                cost_nano_usd: None,
                source: UsageSource::Reported,
            });
            node.message = Some(Arc::new(message.clone()));
        }
        played.push(Arc::new(node));
    }
    played
}

fn counted(path: &[Arc<Node>]) -> RequestCount {
    let fresh = Freshness { model: MODEL, envelope_key: KEY };
    count(&build_context(path), fixed(), fresh, &counter(), &Calibration::new(counter().method()))
}

#[test]
fn a_report_is_valid_while_the_same_is_sent_before_it() {
    const OTHER_MODEL: Made<'_> = Made { model: "another", ..AS_NOW };
    const OTHER_KEY: Made<'_> = Made { key: "11111111", ..AS_NOW };
    const OLD: Made<'_> = Made { names_messages: false, ..AS_NOW };
    const ABSURD: Made<'_> = Made { percent: 2_000, ..AS_NOW };
    const NONE: Made<'_> = Made { percent: 0, ..AS_NOW };
    /// A name, the lines of the path with how each was made, and the entry whose report is valid.
    type Case<'a> = (&'a str, &'a [(&'a str, Made<'a>)], Option<&'a str>);
    let table: &[Case<'_>] = &[
        ("nothing was said", &[], None),
        ("no answer yet", &[("a:user one", AS_NOW)], None),
        ("the last answer's", &[("a:user one", AS_NOW), ("b:assistant two", AS_NOW)], Some("b")),
        (
            "the newest one's",
            &[
                ("a:user one", AS_NOW),
                ("b:assistant two", AS_NOW),
                ("c:user three", AS_NOW),
                ("d:assistant four", AS_NOW),
                ("e:user five", AS_NOW),
            ],
            Some("d"),
        ),
        ("of an older version", &[("a:user one", OLD), ("b:assistant two", OLD)], Some("b")),
        ("another model's", &[("a:user one", AS_NOW), ("b:assistant two", OTHER_MODEL)], None),
        ("with other tools", &[("a:user one", AS_NOW), ("b:assistant two", OTHER_KEY)], None),
        ("with other tools, of an older version", &[("b:assistant two", Made { key: "111", ..OLD })], None),
        ("invented", &[("a:user one", AS_NOW), ("b:assistant two", ABSURD)], None),
        ("of nothing", &[("a:user one", AS_NOW), ("b:assistant two", NONE)], None),
        (
            "before the model was changed and changed back",
            &[
                ("a:user one", AS_NOW),
                ("b:assistant two", AS_NOW),
                ("c:user three", AS_NOW),
                ("d:assistant four", OTHER_MODEL),
            ],
            Some("b"),
        ),
        (
            "from before a compaction, of an answer that it kept",
            &[
                ("a:user one", AS_NOW),
                ("b:assistant two", AS_NOW),
                ("c:user three", AS_NOW),
                ("d:compaction S first=b", AS_NOW),
                ("e:user four", AS_NOW),
            ],
            None,
        ),
        (
            "the same, of an older version",
            &[("a:user one", OLD), ("b:assistant two", OLD), ("c:user 3", OLD), ("d:compaction S first=b", OLD)],
            None,
        ),
        (
            "from after the compaction",
            &[
                ("a:user one", AS_NOW),
                ("b:assistant two", AS_NOW),
                ("d:compaction S first=b", AS_NOW),
                ("e:user four", AS_NOW),
                ("f:assistant five", AS_NOW),
            ],
            Some("f"),
        ),
        (
            "from after a compaction that was undone: the one before it holds again",
            &[
                ("a:user one", AS_NOW),
                ("b:assistant two", AS_NOW),
                ("c:user three", AS_NOW),
                ("d:compaction S first=c", AS_NOW),
                ("e:assistant four", AS_NOW),
                ("undo d", AS_NOW),
                ("f:user five", AS_NOW),
            ],
            Some("b"),
        ),
        (
            "from after the undoing",
            &[
                ("a:user one", AS_NOW),
                ("d:compaction S first=a", AS_NOW),
                ("e:assistant four", AS_NOW),
                ("undo d", AS_NOW),
                ("f:user five", AS_NOW),
                ("g:assistant six", AS_NOW),
                ("h:user seven", AS_NOW),
            ],
            Some("g"),
        ),
        (
            "of a call whose missing result was put in later",
            &[("a:user one", AS_NOW), ("b:call x", AS_NOW), ("c:assistant two", AS_NOW), ("d:result x 1", AS_NOW)],
            Some("b"),
        ),
    ];
    for (name, lines, expected) in table {
        let count = counted(&played(lines));
        assert_eq!(count.last_usage_entry_id.as_ref().map(EntryId::as_str), *expected, "{name}");
        let source = match (expected, count.trailing_tokens) {
            (None, _) => CountSource::Estimated,
            (Some(_), 0) => CountSource::Reported,
            (Some(_), _) => CountSource::Mixed,
        };
        assert_eq!(count.source, source, "{name}");
        assert_eq!(count.usage_tokens + count.trailing_tokens, count.tokens, "{name}");
        assert_eq!(count.breakdown.total(), count.tokens, "{name}");
        assert_eq!(count.error_bound_tokens == 0, source == CountSource::Reported, "{name}");
    }
}

fn said(id: &str, text: &str) -> String {
    format!("{id} {}", text.repeat(40))
}

#[test]
fn a_report_teaches_the_size_of_what_was_added() {
    let (question, answer) = (said("a:user", "a question "), said("b:assistant", "an answer "));
    let (second, note) = (said("c:user", "and another question "), said("d:user", "with a note "));
    let lines = [&question, &answer, &second, &note].map(|line| (line.as_str(), AS_NOW));
    let whole = counted(&played(&lines[..1])).basis;
    assert_eq!((whole.known_tokens, whole.report(500).of), (0, ReportScope::Whole));
    assert_eq!(whole.rest.total(), counted(&played(&lines[..1])).tokens);

    let path = played(&lines);
    let usage = path[1].message.as_ref().and_then(|message| message.usage.clone()).unwrap();
    let added = path[2].tokens.total() + path[3].tokens.total() + counter().request_overhead();
    let count = counted(&path);
    assert_eq!(count.basis.known_tokens, usage.total_tokens());
    assert_eq!((count.basis.rest.total(), count.trailing_tokens), (added, added));
    let report = count.basis.report(usage.total_tokens() + 300);
    assert_eq!((report.of, report.tokens, report.mix), (ReportScope::Added, 300, count.basis.rest));
    // The report is below the known part, so nothing is learned.
    assert_eq!(count.basis.report(usage.total_tokens() - 1).tokens, 0);

    // The server counts hidden reasoning in the answer: the answer then belongs to what was added.
    let mut thinking = path.clone();
    let mut node = (*thinking[1]).clone();
    let mut message = (*node.message.clone().unwrap()).clone();
    message.usage = Some(Usage { output_tokens: usage.output_tokens + 700, ..usage.clone() });
    node.message = Some(Arc::new(message));
    thinking[1] = Arc::new(node);
    let count = counted(&thinking);
    assert_eq!(count.usage_tokens, usage.total_tokens() + 700);
    assert_eq!(count.basis.known_tokens, usage.input_tokens);
    assert_eq!(count.basis.rest.total(), added + path[1].tokens.total());
}

#[test]
fn reasoning_that_is_not_sent_back_is_not_counted() {
    let thought = "I wonder what the person means by that. ".repeat(20);
    let shown = Part::Reasoning { text: thought.clone(), payload: None };
    let lines = [("a:user one", AS_NOW), ("b:assistant two", AS_NOW)];
    for (reasoning_tokens, parts, dropped) in [
        (Some(150), vec![], 150),
        (Some(150), vec![shown.clone()], 150),
        (None, vec![shown], counter().text(&thought)),
        (None, vec![], 0),
    ] {
        let mut path = played(&lines);
        let mut message = (*path[1].message.clone().unwrap()).clone();
        message.content.splice(0..0, parts);
        let usage = message.usage.as_mut().unwrap();
        usage.output_tokens += dropped;
        usage.reasoning_tokens = reasoning_tokens;
        let total = usage.total_tokens();
        let mut node = (*path[1]).clone();
        node.entry.data = EntryData::message(message.clone());
        let report = answer_report(&message, &counter()).unwrap();
        path[1] = Arc::new(Node::counted(node.entry, &counter()));
        assert_eq!(counted(&path).tokens, total - dropped, "{reasoning_tokens:?}");
        assert_eq!(report.tokens, message.usage.unwrap().output_tokens - dropped, "{reasoning_tokens:?}");
    }
}

/// An estimate that uses every report unchanged.
#[derive(Debug)]
struct Trusting;

impl TokenEstimate for Trusting {
    fn method(&self) -> Method {
        Method::Named("trusting")
    }

    fn text(&self, _: &str) -> u64 {
        1
    }

    fn trusts_reports(&self) -> bool {
        true
    }
}

#[test]
fn an_estimate_that_trusts_reports_uses_the_newest_one() {
    let made = Made { model: "another", key: "11111111", percent: 9_000, ..AS_NOW };
    let path = played(&[("a:user How are you?", made), ("b:assistant Fine, thanks.", made)]);
    let reported = path[1].entry.message().unwrap().usage.as_ref().unwrap().total_tokens();
    let fresh = Freshness { model: MODEL, envelope_key: KEY };
    let counted = |counter: &Counter| {
        let calibration = Calibration::new(counter.method());
        count(&build_context(&path), fixed(), fresh, counter, &calibration).last_usage_entry_id
    };
    assert_eq!(counted(&counter()), None);
    assert_eq!(counted(&Counter::by_rules_of(&Trusting)).map(|id| id.to_string()), Some("b".to_owned()));
    let calibration = Calibration::new(Method::Named("trusting"));
    let count = count(&build_context(&path), fixed(), fresh, &Counter::by_rules_of(&Trusting), &calibration);
    assert_eq!((count.tokens, count.source), (reported, CountSource::Reported));
}

#[test]
fn only_its_own_model_counts_the_providers_form_of_a_summary() {
    let summary = |tokens| {
        let mut node = (*path(&["a:user one", "b:compaction S first=zz"], &counter())[1]).clone();
        if let EntryData::Compaction(compaction) = &mut node.entry.data {
            let items = "x".repeat(100_000);
            compaction.native = Some(NativeCompaction { model: MODEL.into(), items, tokens, ..Default::default() });
        }
        Node::counted(node.entry, &counter())
    };
    let text = summary(Some(7_000)).tokens.total();
    for (tokens, model, expected) in [(Some(7_000), MODEL, 7_000), (Some(7_000), "x", text), (None, MODEL, text)] {
        let context = build_context(&[Arc::new(summary(tokens))]);
        let fresh = Freshness { model, envelope_key: KEY };
        let count = count(&context, fixed(), fresh, &counter(), &Calibration::new(counter().method()));
        assert_eq!(count.breakdown.summary, expected, "{tokens:?} {model}");
        assert_eq!(count.tokens, expected + fixed().total());
    }
}
