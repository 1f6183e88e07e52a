//! The settings as people read them: `.env.example`, the tables of `README.md` beside this file, and the help.

use super::declare::Declared;
use super::declared;
use std::fmt::Write;

/// Columns of a comment in `.env.example` and of a line of the help.
const COLUMNS_MAX: usize = 100;

/// The text of `.env.example`: every setting with its default, commented out.
#[must_use]
pub fn env_example() -> String {
    let mut text = "\
# The settings of reseed. Copy this file to `.env` and uncomment what you change. Variables of the environment
# win over `.env`, and one that is empty is not set. Values that hold spaces, `#` or `$` want 'single quotes'.
# Printed from src/config/declared.rs, where settings are declared: `UPDATE=1 cargo test` prints it again.
"
    .to_owned();
    for section in sections() {
        let _ = write!(text, "\n# == {} ==\n", section[0].section_about.trim_end_matches('.'));
        for setting in section {
            text.push('\n');
            for line in wrapped(&format!("{} {}", setting.about, allowed(&setting)), COLUMNS_MAX - 2) {
                let _ = writeln!(text, "# {line}");
            }
            let _ = writeln!(text, "#{}={}", setting.variable, quoted(setting.default));
        }
    }
    text
}

/// Every setting as Markdown: a table a section.
#[must_use]
pub fn settings_table() -> String {
    let mut text = String::new();
    for section in sections() {
        let _ = write!(text, "\n**{}**\n\n| variable | default | |\n| --- | --- | --- |\n", section[0].section_about);
        for setting in section {
            let default = if setting.default.is_empty() { String::new() } else { format!("`{}`", setting.default) };
            let about = format!("{} {}", setting.about, allowed(&setting)).replace('|', "\\|");
            let _ = writeln!(text, "| `{}` | {default} | {about} |", setting.variable);
        }
    }
    text.trim_start().to_owned()
}

/// Every setting as plain text, for `--help`.
#[must_use]
pub fn help() -> String {
    let mut text = "Settings, from the environment or from .env in the current directory:\n".to_owned();
    for section in sections() {
        let _ = write!(text, "\n{}\n", section[0].section_about);
        for setting in section {
            let default = if setting.default.is_empty() { "not set" } else { setting.default };
            let _ = writeln!(text, "  {} [{default}]", setting.variable);
            for line in wrapped(&format!("{} {}", setting.about, allowed(&setting)), COLUMNS_MAX - 6) {
                let _ = writeln!(text, "      {line}");
            }
        }
    }
    text
}

/// The settings, a list a section.
fn sections() -> Vec<Vec<Declared>> {
    let mut sections: Vec<Vec<Declared>> = Vec::new();
    for setting in declared() {
        match sections.last_mut() {
            Some(section) if section[0].section == setting.section => section.push(setting),
            _ => sections.push(vec![setting]),
        }
    }
    sections
}

/// The sentence that says what a setting takes.
fn allowed(setting: &Declared) -> String {
    match setting.unit {
        "" => format!("Allowed: {}.", setting.allowed),
        unit => format!("In {unit}: {}.", setting.allowed),
    }
}

/// A default as `.env` needs it.
fn quoted(value: &str) -> String {
    if value.contains([' ', '#', '$', '"']) { format!("'{value}'") } else { value.to_owned() }
}

/// A text in lines of at most `columns`, broken at spaces; a longer word has a line of its own.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
