//! Does reseed read, count, cut and summarise pi's sessions as pi does? Runs recorded cases
//! (`tests/fixtures/pi/README.md`) through the server's own code, and prints for each group the cases that passed,
//! deviated and failed.
//!
//! `PI_CONFORMANCE_DIR` names another folder of such cases. Missing files fail. A case may deviate only for a reason in
//! `deviations.rs`, and then must show the better result named there.

#![expect(clippy::unwrap_used, reason = "a panic fails its case, and is told")]

mod arithmetic;
mod compaction;
mod context;
mod data;
mod deviations;
mod files;
mod patches;
mod script;
mod summaries;
mod tree;

use data::{Data, Outcome};
use deviations::{DEVIATIONS, Deviation};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    process::ExitCode,
};

/// The check of one case.
type Judge = fn(&Data, &Value) -> Outcome;

/// Every group, the file of its cases, and its check.
const GROUPS: &[(&str, Judge)] = &[
    ("a-token-estimates", arithmetic::token_estimates),
    ("b-context-tokens", arithmetic::context_tokens),
    ("c-cut-points", arithmetic::cut_points),
    ("d-built-context", context::built_context),
    ("e-compaction-preparation", summaries::preparation),
    ("h-migration", files::migration),
    ("i-compaction-result", compaction::result),
    ("j-overflow", files::overflow),
    ("k-tree", tree::shape),
    ("l-navigation", tree::navigation),
    ("m-life-cycle", compaction::life_cycle),
    ("n-context-patch", patches::patched),
    ("o-provider-replay", context::provider_replay),
    ("index", files::round_trip),
];

/// Groups of the collection, and kinds of cases, that are not run: the server has no such feature.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "f-serialization",
        "pi's text for its summariser; the server's is another: quoted, bounded, cut to the summariser's window",
    ),
    (
        "g-branch-summary",
        "pi's choice of what fits a budget of a branch that is left; what the server does when it leaves one, with and \
         without a summary, is group l",
    ),
    (
        "b-context-tokens: shouldCompact",
        "pi's threshold; the server's trigger is a rule of its own, and where it leads to is group m",
    ),
    ("o-provider-replay: types of blocks", "pi makes other models' thoughts texts; the server does not send them"),
];

/// The failures of one group that are printed; the rest is counted.
const TOLD_MAX: usize = 8;

fn main() -> ExitCode {
    // For a list, as `cargo test -- --list` asks for, there is one test.
    if env::args().any(|argument| argument == "--list") {
        print_line("pi_conformance: test");
        return ExitCode::SUCCESS;
    }
    let folder = env::var_os("PI_CONFORMANCE_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pi"), PathBuf::from);
    print_line(&format!("cases of {}", folder.display()));
    let data = match Data::open(&folder) {
        Ok(data) => data,
        Err(error) => {
            print_line(&format!("{error}\ntest result: FAILED. 0 passed; 1 failed; the cases cannot be read"));
            return ExitCode::FAILURE;
        }
    };
    std::panic::set_hook(Box::new(|_| {}));
    let mut totals = Counts::default();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for (group, judge) in GROUPS {
        let counts = run(&data, group, *judge, &mut reasons);
        print_line(&format!(
            "{group:<26} {:>5} passed {:>4} deviating {:>4} failed",
            counts.passed, counts.deviating, counts.failed
        ));
        totals.passed += counts.passed;
        totals.deviating += counts.deviating;
        totals.failed += counts.failed;
    }
    for (what, reason) in LEFT_OUT {
        print_line(&format!("left out: {what}: {reason}"));
    }
    for Deviation { name, reason } in DEVIATIONS {
        let cases = reasons.get(name).copied().unwrap_or(0);
        print_line(&format!("deviating: {cases:>4} {name}: {reason}"));
    }
    let Counts { passed, deviating, failed } = totals;
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    print_line(&format!("test result: {verdict}. {passed} passed; {failed} failed; {deviating} deviating"));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[derive(Default)]
struct Counts {
    passed: usize,
    deviating: usize,
    failed: usize,
}

fn run(data: &Data, group: &str, judge: Judge, reasons: &mut BTreeMap<&'static str, usize>) -> Counts {
    let mut counts = Counts::default();
    let cases = match data.cases(group) {
        Ok(cases) if !cases.is_empty() => cases,
        Ok(_) => {
            print_line(&format!("FAILED {group}: it has no cases"));
            return Counts { failed: 1, ..counts };
        }
        Err(error) => {
            print_line(&format!("FAILED {group}: {error}"));
            return Counts { failed: 1, ..counts };
        }
    };
    for (at, case) in cases.iter().enumerate() {
        let outcome = catch_unwind(AssertUnwindSafe(|| judge(data, case))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Outcome::Failed(text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned())
        });
        match outcome {
            Outcome::Passed => counts.passed += 1,
            Outcome::Deviating(name) => {
                assert!(DEVIATIONS.iter().any(|deviation| deviation.name == name), "{name} is not in the table");
                *reasons.entry(name).or_default() += 1;
                counts.deviating += 1;
            }
            Outcome::Failed(why) => {
                counts.failed += 1;
                if counts.failed <= TOLD_MAX {
                    print_line(&format!("FAILED {group} case {at} {}: {why}", data::title(case)));
                }
            }
        }
    }
    counts
}

fn print_line(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout(), "{text}");
}
