//! The rule for the width of comments, in every language of the tree. rustfmt wraps code only, and other formatters are
//! not used.

use super::{TOP, TOP_IGNORED, files, none};
use std::{fs, path::Path};

/// Maximum columns of a line of a comment, as in `.rustfmt.toml`.
const COLUMNS_MAX: usize = 120;

/// Folders whose files are data: recorded, never edited.
const DATA: &[&str] = &["tests/fixtures/", "protocol/examples/", "protocol/schema/"];

/// The marks that begin a comment line, by the end of the file's name.
const MARKS: &[(&[&str], &[&str])] = &[
    (&[".rs"], &["//"]),
    (&[".js", ".mjs", ".ts", ".mts"], &["//", "/*", "*"]),
    (&[".css"], &["/*", "*"]),
    (&[".html", ".svg"], &["<!--"]),
    (&[".py", ".sh", ".toml", ".yaml", ".yml", "Dockerfile"], &["#"]),
    (&[".sql"], &["--"]),
];

/// Returns the marks that begin a comment line in this file; `None` if its language is not listed.
fn marks(path: &str, text: &str) -> Option<&'static [&'static str]> {
    let named = MARKS.iter().find(|(ends, _)| ends.iter().any(|end| path.ends_with(end)));
    // A script that is run by its name has no extension.
    named.map(|(_, marks)| *marks).or_else(|| text.starts_with("#!").then_some(&["#"]))
}

/// Returns true if the line is a comment and nothing else; a type before an expression is code.
fn is_comment(line: &str, marks: &[&str]) -> bool {
    let line = line.trim();
    let has_code_behind = line.starts_with("/*") && line.find("*/").is_some_and(|end| end + "*/".len() < line.len());
    marks.iter().any(|mark| line.starts_with(mark)) && !has_code_behind
}

/// Checks that no line of a comment is too wide.
fn width(path: &str, text: &str) -> Vec<String> {
    let Some(marks) = marks(path, text) else { return Vec::new() };
    let comments = text.lines().enumerate().filter(|(_, line)| is_comment(line, marks));
    let columns = comments.map(|(index, line)| (index + 1, line.chars().count()));
    columns
        .filter(|(_, columns)| *columns > COLUMNS_MAX)
        .map(|(line, columns)| format!("{path}:{line}: {columns} columns of comment, at most {COLUMNS_MAX}"))
        .collect()
}

/// Returns every text file of the tree that people edit, hidden ones at the top included.
fn texts() -> Vec<(String, String)> {
    let top = fs::read_dir(".").unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let top = top.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap()));
    let folders = TOP.iter().chain(&[".ci"]).filter(|name| Path::new(name).is_dir() && !TOP_IGNORED.contains(name));
    let all = top.chain(folders.flat_map(|name| files(name)));
    let edited = all.filter(|(path, _)| !DATA.iter().any(|folder| path.starts_with(folder)));
    edited.filter_map(|(path, bytes)| Some((path, String::from_utf8(bytes).ok()?))).collect()
}

#[test]
fn comments_end_at_the_last_column() {
    none(&texts().iter().flat_map(|(path, text)| width(path, text)).collect::<Vec<_>>());
}

#[test]
fn only_what_is_too_wide_and_a_comment_is_found() {
    let (fits, wide) = ("é".repeat(COLUMNS_MAX - 3), "é".repeat(COLUMNS_MAX));
    let cases = [
        ("src/a.rs", format!("// {fits}\n/// {fits}\n    // {fits}"), 2),
        ("src/a.rs", format!("let a = \"{wide}\";"), 0),
        ("src/server/web/a.js", format!("/**\n * {fits}\n * {wide}\n */"), 1),
        ("src/server/web/a.js", format!("/** {wide} */\n/** @type {{A}} */ (b).{wide}();\na * {wide}"), 1),
        ("src/server/web/a.css", format!("a {{ b: {wide}; }}\n/* {wide} */"), 1),
        ("tests/run", format!("#!/bin/sh\n# {wide}\necho {wide}"), 1),
        ("notes", format!("# {wide}"), 0),
        ("README.md", format!("# {wide}"), 0),
        ("tests/clients/a.py", format!("# {fits}\n# {wide}"), 1),
        ("a.sql", format!("-- {wide}\nSELECT '{wide}';"), 1),
    ];
    for (path, text, count) in cases {
        let found = width(path, &text);
        assert_eq!(found.len(), count, "{path}: {found:?}\n{text}");
    }
}
