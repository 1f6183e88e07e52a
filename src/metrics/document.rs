//! Checks that `docker/README.md`, the page for operators, matches the actual metrics and alerts.

use super::{
    declared::{DECLARED, Row},
    tests::{record_all, rendered},
};
use std::{collections::BTreeMap, fmt::Write as _, fs};

/// The page. cargo runs tests in the directory of their crate.
const PAGE: &str = "docker/README.md";

/// Returns every metric with its labels and its help, as Markdown.
fn table() -> String {
    let text = rendered(record_all);
    let help: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' ')).collect();
    let mut table = "| metric | labels | what it says |\n| --- | --- | --- |\n".to_owned();
    for Row { name, labels, .. } in DECLARED {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(table, "| `{name}` | {} | {} |", labels.join(", "), help[name]);
    }
    table
}

#[test]
fn the_page_for_operators_lists_every_metric() {
    const BEGIN: &str = "<!-- metrics -->\n";
    const END: &str = "<!-- /metrics -->\n";
    let page = fs::read_to_string(PAGE).unwrap();
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.unwrap_or_else(|| panic!("{PAGE} lacks the lines `{BEGIN}` and `{END}`"));
    let printed = format!("{before}{BEGIN}{}{END}{after}", table());
    if std::env::var_os("UPDATE").is_some() {
        fs::write(PAGE, &printed).unwrap();
    }
    let found = fs::read_to_string(PAGE).unwrap();
    assert!(found == printed, "{PAGE} lacks a metric or its help: run `UPDATE=1 cargo test --lib metrics`");
}

#[test]
fn the_page_for_operators_says_what_to_do_about_every_alert() {
    let page = fs::read_to_string(PAGE).unwrap();
    let rules = fs::read_to_string("docker/observability/rules.yaml").unwrap();
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 3, "{alerts:?}");
    for alert in alerts {
        assert!(page.contains(&format!("`{alert}`")), "{PAGE} says nothing of the alert {alert}");
    }
}
