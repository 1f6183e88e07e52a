//! Prints the settings for `.env.example`, for the tables of `README.md` beside this file, and for the help.

use super::declare::Declared;
use super::{declared, secret_files};
use std::fmt::Write;

/// Width of a comment in `.env.example` and of a line of the help.
const COLUMNS_MAX: usize = 100;

/// Returns the text of `.env.example`: every setting with its default, commented out.
#[must_use]
pub fn env_example() -> String {
    let mut text = "\
# The settings of reseed. Copy this file to `.env` and uncomment what you change. Environment variables
# override `.env`, and an empty one counts as unset. A value that contains ` #` or a line break needs 'single quotes'.
# Generated from src/config/declared.rs by `UPDATE=1 cargo test`.
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

/// Returns every setting as Markdown: one table per section.
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

/// Returns every setting as plain text, for `--help`.
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

/// Returns the settings, one list per section.
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

/// Returns the sentence that describes the allowed values of a setting.
fn allowed(setting: &Declared) -> String {
    let allowed = match setting.unit {
        "" => format!("Allowed: {}.", setting.allowed),
        unit => format!("In {unit}: {}.", setting.allowed),
    };
    let in_file = secret_files::variable_of(setting).map(|name| format!(" {name} can name a file that has it."));
    let reloaded = if setting.reloaded { " Reloaded on SIGHUP." } else { "" };
    format!("{allowed}{}{reloaded}", in_file.unwrap_or_default())
}

/// Quotes a default if `.env` requires it.
fn quoted(value: &str) -> String {
    if value.contains([' ', '#', '$', '"']) { format!("'{value}'") } else { value.to_owned() }
}

/// Wraps a text at spaces into lines of at most `columns` characters. A longer word gets its own line.
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
