//! What is printed from the settings' declaration equals the committed files. `UPDATE=1 cargo test` prints them again.

use crate::strategies;
use reseed::internals;
use std::fs;

/// Compares a file of the tree with the current print, or writes it if `UPDATE` is set. cargo runs tests in the folder
/// of their crate.
fn printed(file: &str, text: &str) {
    if std::env::var_os("UPDATE").is_some() {
        fs::write(file, text).unwrap();
    }
    let found = fs::read_to_string(file).unwrap_or_default();
    assert!(found == text, "{file} is not what is printed from src/config/declared.rs: run `UPDATE=1 cargo test`");
}

#[test]
fn the_example_is_printed_from_the_declaration() {
    printed(".env.example", &internals::env_example());
}

#[test]
fn the_documents_hold_the_tables() {
    let tables = [
        ("src/config/README.md", "settings", internals::settings_table()),
        ("src/core/compaction/README.md", "strategies", strategies::strategies_table()),
        ("src/core/compaction/README.md", "strategy settings", strategies::settings_table()),
    ];
    for (file, name, table) in tables {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
        let document = fs::read_to_string(file).unwrap();
        let parts = document.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
        let (before, after) = parts.unwrap_or_else(|| panic!("{file} lacks the lines `{begin}` and `{end}`"));
        printed(file, &format!("{before}{begin}{table}{end}{after}"));
    }
}

#[test]
fn help_and_table_name_every_setting() {
    let (help, table) = (internals::help(), internals::settings_table());
    for declared in internals::declared() {
        assert!(help.contains(&format!("\n  {} [", declared.variable)), "{} is not in the help", declared.variable);
        assert!(
            table.contains(&format!("\n| `{}` | ", declared.variable)),
            "{} is not in the table",
            declared.variable
        );
    }
    let widest = help.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "a line of the help has {widest:?} columns");
}
