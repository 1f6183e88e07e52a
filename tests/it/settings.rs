//! What is printed from the settings' declaration is what stands in the tree. `UPDATE=1 cargo test` prints it again.

use crate::strategies;
use reseed::config;
use std::fs;

/// Compares a file of the tree with what is printed now, or writes it where `UPDATE` is set. cargo runs tests in the
/// folder of their crate.
fn printed(file: &str, text: &str) {
    if std::env::var_os("UPDATE").is_some() {
        fs::write(file, text).unwrap();
    }
    let found = fs::read_to_string(file).unwrap_or_default();
    assert!(found == text, "{file} is not what is printed from src/config/declared.rs: run `UPDATE=1 cargo test`");
}

#[test]
fn the_example_is_printed_from_the_declaration() {
    printed(".env.example", &config::env_example());
}

#[test]
fn the_readme_holds_the_tables() {
    for (name, table) in [("settings", config::settings_table()), ("strategy settings", strategies::settings_table())] {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
        // The README is the last thing to be written.
        let Ok(readme) = fs::read_to_string("README.md") else { return };
        let parts = readme.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
        let (before, after) = parts.unwrap_or_else(|| panic!("README.md has the lines `{begin}` and `{end}`"));
        printed("README.md", &format!("{before}{begin}{table}{end}{after}"));
    }
}

#[test]
fn help_and_table_name_every_setting() {
    let (help, table) = (config::help(), config::settings_table());
    for declared in config::declared() {
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
