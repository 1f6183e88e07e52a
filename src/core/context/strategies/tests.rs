//! What each strategy decides, and its compaction steps: tables with one helper each.

use crate::core::context::{
    Decision, RequestCount,
    build::build_context,
    count::{Fixed, Freshness, count},
    counter::{Calibration, Counter},
    cut::{Cut, Keep},
    factory::Strategies,
    strategy::{Options, Planning, Step},
    structure::Structure,
    testing::path,
};
use reseed_protocol::command::StrategySettings;

/// Returns two hundred tokens of text for the test model.
fn big() -> String {
    "apple ".repeat(200)
}

fn settings(keep_turns: u64, keep_tool_results: u64, summarise: bool, steps: &[&str]) -> StrategySettings {
    StrategySettings {
        keep_turns: Some(keep_turns),
        keep_tool_results: Some(keep_tool_results),
        summarise: Some(summarise),
        steps: (!steps.is_empty()).then(|| steps.iter().map(|step| (*step).to_owned()).collect()),
        ..StrategySettings::default()
    }
}

/// Prints the steps: what they remove, by entry letters; `clear!` accepts any gain.
fn steps(name: &str, settings: &StrategySettings, lines: &[&str], keep: Keep) -> Vec<String> {
    let big = big();
    let lines: Vec<String> = lines.iter().map(|line| line.replace("BIG", &big)).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let context = build_context(&path(&lines, &Counter::for_model("test")));
    let structure = Structure::of(&context);
    let summary_tokens = 100;
    let target_tokens = keep.tokens_max + summary_tokens;
    let planning = Planning { context: &context, structure: &structure, keep, target_tokens, summary_tokens };
    let manager = Strategies::default().make(name, Some(settings), &Options::default()).unwrap();
    let ids = |places: &[usize]| -> String {
        places.iter().map(|at| context.messages[*at].entry_id.as_ref().unwrap().as_str()).collect()
    };
    let cut = |cut: &Cut| ids(&cut.summarised);
    let printed = |step: &Step| match step {
        Step::Clear { results, any_gain: false } => format!("clear {}", ids(results)),
        Step::Clear { results, any_gain: true } => format!("clear! {}", ids(results)),
        Step::Summarise(taken) => format!("summarise {}", cut(taken)),
        Step::Truncate(taken) => format!("truncate {}", cut(taken)),
    };
    manager.steps(&planning).iter().map(printed).collect()
}

const TURNS: &[&str] = &[
    "a:user BIG",
    "b:assistant BIG",
    "c:user BIG",
    "d:assistant BIG",
    "e:user BIG",
    "f:assistant BIG",
    "g:user BIG",
    "h:assistant BIG",
];

const CALLS: &[&str] = &[
    "a:user x",
    "b:call p",
    "c:result p BIG",
    "d:call q",
    "e:result q BIG",
    "f:call r",
    "g:result r BIG",
    "h:call s",
    "i:result s BIG",
];

#[test]
fn each_strategy_makes_room_in_its_own_steps() {
    let roomy = Keep { tokens: 400, tokens_max: 1_300 };
    let tight = Keep { tokens: 250, tokens_max: 500 };
    let tiny = Keep { tokens: 50, tokens_max: 150 };
    /// Name, turns kept, results kept, summarise, budget, path, steps.
    type Case<'a> = (&'a str, u64, u64, bool, Keep, &'a [&'a str], &'a [&'a str]);
    let table: &[Case<'_>] = &[
        ("threshold", 8, 4, true, roomy, TURNS, &["summarise abcdef", "truncate ab"]),
        ("threshold", 8, 1, true, tight, CALLS, &["clear ceg", "summarise bcdefg", "truncate bcde"]),
        ("manual", 8, 1, true, tight, CALLS, &["summarise bcdefg"]),
        // As many whole turns as are wanted, or as fit; otherwise part of the last one; a few tokens are left alone.
        ("sliding_window", 3, 4, true, roomy, TURNS, &["summarise ab", "truncate ab"]),
        ("sliding_window", 1, 4, true, roomy, TURNS, &["summarise abcdef", "truncate ab"]),
        ("sliding_window", 3, 4, true, tight, TURNS, &["summarise abcdef", "truncate abcdef"]),
        ("sliding_window", 3, 4, true, tiny, TURNS, &["summarise abcdefh", "truncate abcdefh"]),
        ("sliding_window", 8, 4, true, roomy, &TURNS[..4], &["summarise ab"]),
        ("sliding_window", 3, 4, true, tight, CALLS, &["summarise bcdefg", "truncate bcde"]),
        // The oldest until the target is met, none below it, and never what the model has not read.
        ("tool_results", 8, 2, true, roomy, CALLS, &["summarise bcde"]),
        ("tool_results", 8, 2, true, tight, CALLS, &["clear! ce", "summarise bcdefg", "truncate bcde"]),
        ("tool_results", 8, 0, true, tight, CALLS, &["clear! ceg", "summarise bcdefg", "truncate bcde"]),
        ("truncate", 8, 4, true, roomy, TURNS, &["truncate ab"]),
        ("truncate", 8, 4, true, tight, TURNS, &["truncate abcdef"]),
        ("truncate", 8, 4, true, tight, CALLS, &["truncate bcde"]),
        ("truncate", 8, 4, true, roomy, &TURNS[..4], &[]),
        // The newest up to the budget, then questions before answers.
        ("importance", 8, 4, true, roomy, TURNS, &["summarise bd", "truncate ab"]),
        ("importance", 8, 4, false, tight, TURNS, &["truncate abcdef"]),
        ("importance", 8, 4, false, roomy, &TURNS[..4], &[]),
    ];
    let mut wrong = Vec::new();
    for (name, keep_turns, keep_results, summarise, keep, lines, expected) in table {
        let found = steps(name, &settings(*keep_turns, *keep_results, *summarise, &[]), lines, *keep);
        if found != *expected {
            wrong.push(format!("{name} {keep_turns} {keep_results} {keep:?}: {found:?}, not {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_pipeline_takes_each_step_once_and_the_last_resort_last() {
    let keep = Keep { tokens: 250, tokens_max: 500 };
    let table: &[(&[&str], &[&str])] = &[
        (&["threshold"], &["clear ceg", "summarise bcdefg", "truncate bcde"]),
        (&["tool_results", "threshold"], &["clear! ceg", "summarise bcdefg", "truncate bcde"]),
        (&["threshold", "tool_results"], &["clear ceg", "summarise bcdefg", "clear! ceg", "truncate bcde"]),
        (
            &["tool_results", "importance", "truncate"],
            &["clear! ceg", "summarise bcdefg", "summarise bcde", "truncate bcde"],
        ),
    ];
    for (parts, expected) in table {
        let found = steps("pipeline", &settings(2, 1, true, parts), CALLS, keep);
        assert_eq!(found, *expected, "{parts:?}");
    }
}

/// Builds the count of a request with this many turns of this size.
fn counted(turns: u64, tokens_each: usize) -> RequestCount {
    let said = "apple ".repeat(tokens_each);
    let lines: Vec<String> = (0..turns).map(|turn| format!("e{turn}:user {said}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let context = build_context(&path(&lines, &Counter::for_model("test")));
    let fresh = Freshness { model: "test", envelope_key: "" };
    let counter = Counter::for_model("test");
    count(&context, Fixed::default(), fresh, &counter, &Calibration::new(counter.method()))
}

#[test]
fn a_strategy_acts_by_tokens_and_the_sliding_window_by_turns_too() {
    use Decision::{Compact, Due, Prepare, Ready, Warn};
    // In a window of 10,000 tokens: prepared from 6,800, due at 8,000, and 512 reserved for an answer.
    let table: &[(&str, u64, usize, Decision)] = &[
        ("threshold", 40, 100, Ready),
        ("threshold", 40, 190, Prepare),
        ("threshold", 40, 260, Compact),
        ("manual", 40, 220, Ready),
        ("manual", 40, 240, Warn),
        ("tool_results", 40, 190, Prepare),
        ("truncate", 40, 260, Compact),
        ("importance", 40, 260, Compact),
        // Eight are kept, and four more may accumulate.
        ("sliding_window", 12, 400, Ready),
        ("sliding_window", 13, 400, Due),
        ("sliding_window", 13, 780, Compact),
        // Thirteen turns of a few words are not worth a summary.
        ("sliding_window", 13, 20, Ready),
        ("pipeline", 13, 400, Due),
        ("pipeline", 12, 400, Ready),
        ("pipeline", 12, 840, Compact),
    ];
    for (name, turns, tokens, expected) in table {
        let settings = settings(8, 4, true, &["threshold", "sliding_window"]);
        let manager = Strategies::default().make(name, Some(&settings), &Options::default()).unwrap();
        let count = counted(*turns, *tokens);
        assert_eq!(manager.before_request(&count, 10_000), *expected, "{name}, {turns} turns, {} tokens", count.tokens);
    }
}
