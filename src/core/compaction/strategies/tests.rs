//! The decisions and compaction steps of each strategy, as tables with one helper each.

use crate::{
    compaction::{
        Decision,
        cut::{Cut, Keep},
        factory::Strategies,
        strategy::{FallbackStep, Options, Planning, Setting},
        structure::Structure,
    },
    context::{
        RequestCount,
        build::build_context,
        count::{Fixed, Freshness, count},
        counter::{Calibration, Counter},
        testing::path,
    },
};
use reseed_protocol::compaction::StrategySettings;

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
    let printed = |step: &FallbackStep| match step {
        FallbackStep::Clear { results, any_gain: false } => format!("clear {}", ids(results)),
        FallbackStep::Clear { results, any_gain: true } => format!("clear! {}", ids(results)),
        FallbackStep::Summarise(taken) => format!("summarise {}", cut(taken)),
        FallbackStep::Truncate(taken) => format!("truncate {}", cut(taken)),
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
    /// Each case has the name, the turns and results kept, summarise, the budget, the path, and the steps.
    type Case<'a> = (&'a str, u64, u64, bool, Keep, &'a [&'a str], &'a [&'a str]);
    let table: &[Case<'_>] = &[
        ("threshold", 8, 4, true, roomy, TURNS, &["summarise abcdef", "truncate ab"]),
        ("threshold", 8, 1, true, tight, CALLS, &["clear ceg", "summarise bcdefg", "truncate bcde"]),
        ("manual", 8, 1, true, tight, CALLS, &["summarise bcdefg"]),
        // It keeps as many whole turns as are wanted or as fit; otherwise part of the last one. A few tokens are left
        // alone.
        ("sliding_window", 3, 4, true, roomy, TURNS, &["summarise ab", "truncate ab"]),
        ("sliding_window", 1, 4, true, roomy, TURNS, &["summarise abcdef", "truncate ab"]),
        ("sliding_window", 3, 4, true, tight, TURNS, &["summarise abcdef", "truncate abcdef"]),
        ("sliding_window", 3, 4, true, tiny, TURNS, &["summarise abcdefh", "truncate abcdefh"]),
        ("sliding_window", 8, 4, true, roomy, &TURNS[..4], &["summarise ab"]),
        ("sliding_window", 3, 4, true, tight, CALLS, &["summarise bcdefg", "truncate bcde"]),
        // It clears the oldest until the target is met, none below it, and never results that the model has not read.
        ("tool_results", 8, 2, true, roomy, CALLS, &["summarise bcde"]),
        ("tool_results", 8, 2, true, tight, CALLS, &["clear! ce", "summarise bcdefg", "truncate bcde"]),
        ("tool_results", 8, 0, true, tight, CALLS, &["clear! ceg", "summarise bcdefg", "truncate bcde"]),
        ("truncate", 8, 4, true, roomy, TURNS, &["truncate ab"]),
        ("truncate", 8, 4, true, tight, TURNS, &["truncate abcdef"]),
        ("truncate", 8, 4, true, tight, CALLS, &["truncate bcde"]),
        ("truncate", 8, 4, true, roomy, &TURNS[..4], &[]),
        // It keeps the newest up to the budget, then answers, because the summary keeps the user's words.
        ("importance", 8, 4, true, roomy, TURNS, &["summarise ace", "truncate ab"]),
        ("importance", 8, 4, false, tight, TURNS, &["truncate abcdef"]),
        (
            "importance",
            8,
            4,
            true,
            Keep { tokens: 400, tokens_max: 0 },
            TURNS,
            &["summarise abcdef", "truncate abcdefh"],
        ),
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
    // If the summary does not keep them, questions come before answers.
    let no_words = StrategySettings { user_share: Some(0.0), ..settings(8, 4, true, &[]) };
    assert_eq!(steps("importance", &no_words, TURNS, roomy), ["summarise bd", "truncate ab"]);
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
    // In a window of 10,000 tokens, a compaction is prepared from 6,800 and due at 8,000, and 512 are reserved for an
    // answer.
    let table: &[(&str, u64, usize, Decision)] = &[
        ("threshold", 40, 100, Ready),
        ("threshold", 40, 190, Prepare),
        ("threshold", 40, 260, Compact),
        ("manual", 40, 220, Ready),
        ("manual", 40, 240, Warn),
        ("tool_results", 40, 190, Prepare),
        ("truncate", 40, 260, Compact),
        ("importance", 40, 260, Compact),
        // Eight turns are kept, and four more may accumulate.
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

#[test]
fn each_strategy_says_what_it_does_and_what_it_reads() {
    for offered in Strategies::default().offered() {
        assert!(offered.about.ends_with('.') && offered.about.len() < 100, "{}: {}", offered.name, offered.about);
        let settings = offered.settings;
        assert!(!settings.is_empty(), "{}", offered.name);
        for (at, setting) in settings.iter().enumerate() {
            assert!(!settings[..at].contains(setting), "{} lists {setting:?} twice", offered.name);
        }
    }
}

#[test]
fn the_settings_are_the_fields_of_the_wire() {
    let names: Vec<String> = Setting::ALL
        .iter()
        .map(|setting| serde_json::to_value(setting).unwrap().as_str().unwrap().to_owned())
        .collect();
    let options = Options { reserve_tokens: Some(1), ..Options::default() };
    let wire = serde_json::to_value(options.on_the_wire()).unwrap();
    let mut fields: Vec<&String> = wire.as_object().unwrap().keys().collect();
    let mut sorted: Vec<&String> = names.iter().collect();
    fields.sort();
    sorted.sort();
    assert_eq!(sorted, fields);
    let back = Strategies::default().options(Some(&options.on_the_wire()), &Options::default()).unwrap();
    assert_eq!(back, options);
}

/// Returns the settings with one of them changed in such a way that every strategy that reads it decides differently.
fn changed(setting: Setting) -> Options {
    let mut options = Options { keep_turns: 3, keep_tool_results: 3, ..Options::default() };
    match setting {
        // The threshold stays above the target, because a lower one caps the target, even for `manual`.
        Setting::Threshold => options.threshold = 0.9,
        Setting::ReserveTokens => options.reserve_tokens = Some(900),
        Setting::KeepRecentTokens => options.keep_recent_tokens = 50,
        Setting::Target => options.target = 0.1,
        Setting::Background => options.background = 0.5,
        Setting::MinGain => options.min_gain = 0.5,
        Setting::KeepTurns => options.keep_turns = 1,
        Setting::KeepToolResults => options.keep_tool_results = 0,
        Setting::Summarise => options.summarise = false,
        Setting::Steps => options.steps = vec!["truncate"],
        Setting::UserShare => options.user_share = 0.1,
        Setting::SummaryMode => options.summary_mode = reseed_protocol::compaction::SummaryMode::Rewrite,
        Setting::SummaryKind => options.summary_kind = reseed_protocol::compaction::SummaryKind::Code,
    }
    options
}

/// Returns all decisions of a strategy about two conversations, in a window that they fill and in one that they do not:
/// when it compacts, and in which steps.
fn decisions(name: &str, options: &Options) -> Vec<String> {
    [1_000, 3_000].into_iter().flat_map(|window| decisions_in(window, name, options)).collect()
}

fn decisions_in(window: u64, name: &str, options: &Options) -> Vec<String> {
    let manager = Strategies::default().make(name, None, options).unwrap();
    let big = big();
    let mut decided = Vec::new();
    for lines in [TURNS, CALLS] {
        let lines: Vec<String> = lines.iter().map(|line| line.replace("BIG", &big)).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let context = build_context(&path(&lines, &Counter::for_model("test")));
        let structure = Structure::of(&context);
        let target_tokens = manager.target_tokens(window);
        let keep = Keep { tokens: manager.keep_tokens(window), tokens_max: target_tokens.saturating_sub(100) };
        let planning = Planning { context: &context, structure: &structure, keep, target_tokens, summary_tokens: 100 };
        decided.push(format!("{:?}", manager.steps(&planning)));
    }
    decided.push(format!("{:?} {:?}", manager.compact_at_tokens(window), manager.prepare_at_tokens(window)));
    decided
}

#[test]
fn a_strategy_depends_only_on_the_settings_that_it_names() {
    let plain = Options { keep_turns: 3, keep_tool_results: 3, ..Options::default() };
    for offered in Strategies::default().offered() {
        for setting in Setting::ALL.iter().filter(|setting| !offered.settings.contains(setting)) {
            let (before, after) = (decisions(offered.name, &plain), decisions(offered.name, &changed(*setting)));
            assert_eq!(before, after, "`{}` does not say that it reads {setting:?}", offered.name);
        }
    }
    // The decisions reveal most of the named settings; the compaction itself reads the rest.
    for (name, setting) in [
        ("threshold", Setting::KeepToolResults),
        ("sliding_window", Setting::KeepTurns),
        ("importance", Setting::Summarise),
        ("pipeline", Setting::Steps),
        ("truncate", Setting::Target),
        ("truncate", Setting::Background),
    ] {
        assert_ne!(decisions(name, &plain), decisions(name, &changed(setting)), "`{name}` and {setting:?}");
    }
}
