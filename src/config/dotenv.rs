//! Reads files like `.env` in the same way as docker compose and dotenv for Node.
//!
//! - The form is `NAME=value`, with optional spaces around `=` and an optional `export` before it, or `NAME: value`. If
//!   a name occurs several times, its last line counts.
//! - A value without quotes is the rest of its line, including spaces, up to ` #`, which starts a comment.
//! - A value in quotes ends at the closing quote and can span lines. In double quotes, `\n`, `\r`, `\t`, `\\`, `\"` and
//!   `\$` are escapes. In single quotes, only `\'` is. Only a comment may follow.
//! - A `$` stands for itself, because an API key or a password may contain one.
//!
//! Invariant: an error names the line and repeats nothing of it, because it may contain a secret.

use std::collections::BTreeMap;

/// A line that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} {what}")]
pub(super) struct Unreadable {
    line: usize,
    what: &'static str,
}

/// Parses the text of a file.
pub(super) fn parse(text: &str) -> Result<BTreeMap<String, String>, Unreadable> {
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n").replace('\r', "\n");
    let mut variables = BTreeMap::new();
    let (mut rest, mut line) = (text.as_str(), 1);
    while !rest.is_empty() {
        let at = |what| Unreadable { line, what };
        let (first, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let Some((name, start)) = assigned(first).map_err(at)? else {
            (rest, line) = (after, line + 1);
            continue;
        };
        let value = &rest[start..];
        let (value, after) = match value.chars().next().filter(|mark| matches!(mark, '\'' | '"' | '`')) {
            Some(mark) => {
                let (value, after) = quoted(&value[1..], mark).ok_or_else(|| at("opens a quote that is not closed"))?;
                let (behind, after) = after.split_once('\n').unwrap_or((after, ""));
                if !matches!(behind.trim_start().chars().next(), None | Some('#')) {
                    return Err(at("has text behind the closing quote; quote the value as a whole, or not at all"));
                }
                (value, after)
            }
            None => (without_comment(&first[start..]).to_owned(), after),
        };
        line += rest[..rest.len() - after.len()].matches('\n').count();
        rest = after;
        variables.insert(name.to_owned(), value);
    }
    Ok(variables)
}

/// Returns the name that a line assigns to, and where its value starts. `None` for a line that assigns nothing: a blank
/// line, a comment, or a name alone, which compose takes from the environment.
fn assigned(line: &str) -> Result<Option<(&str, usize)>, &'static str> {
    let trimmed = line.trim_start();
    if trimmed.is_empty() || trimmed.starts_with('#') {
        return Ok(None);
    }
    let exported = trimmed.strip_prefix("export").filter(|rest| rest.starts_with([' ', '\t']));
    let statement = exported.map_or(trimmed, str::trim_start);
    let end = statement.find(|c: char| !(c.is_ascii_alphanumeric() || "_.-".contains(c))).unwrap_or(statement.len());
    let (name, rest) = statement.split_at(end);
    let spaced = rest.trim_start();
    if name.is_empty() {
        return Err("is not NAME=value");
    }
    let value = match spaced.chars().next() {
        None | Some('#') => return Ok(None),
        Some('=') => &spaced[1..],
        Some(':') if spaced[1..].starts_with([' ', '\t']) => &spaced[1..],
        Some(_) => return Err("is not NAME=value"),
    };
    Ok(Some((name, line.len() - value.trim_start_matches([' ', '\t']).len())))
}

/// Returns the text up to the closing quote, with its escapes resolved, and what follows the quote.
fn quoted(text: &str, mark: char) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == mark {
            return Some((value, &text[at + 1..]));
        }
        let escaped = chars.peek().filter(|_| c == '\\').and_then(|(_, next)| match (mark, next) {
            ('"', 'n') => Some('\n'),
            ('"', 'r') => Some('\r'),
            ('"', 't') => Some('\t'),
            ('"', '\\' | '$') => Some(*next),
            (mark, next) if mark == *next => Some(mark),
            _ => None,
        });
        if escaped.is_some() {
            chars.next();
        }
        value.push(escaped.unwrap_or(c));
    }
    None
}

/// Returns an unquoted value up to a `#` that is at its start or follows a space.
fn without_comment(value: &str) -> &str {
    let is_comment = |(at, _): &(usize, &str)| *at == 0 || value[..*at].ends_with([' ', '\t']);
    let end = value.match_indices('#').find(is_comment).map_or(value.len(), |(at, _)| at);
    value[..end].trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_docker_compose_and_node_read_them() {
        let table: [(&str, &[(&str, &str)]); 31] = [
            ("INSTRUCTIONS=Your custom instructions here", &[("INSTRUCTIONS", "Your custom instructions here")]),
            ("A=one\nB=two\n", &[("A", "one"), ("B", "two")]),
            ("A = spaced out  \n", &[("A", "spaced out")]),
            ("  export A=1\nexport\tB=2", &[("A", "1"), ("B", "2")]),
            ("exported=1", &[("exported", "1")]),
            ("export A\nB", &[]),
            ("# A=1\n\n   # B=2\n \t \nC=3", &[("C", "3")]),
            ("A=one # a comment\nB=two\t# another", &[("A", "one"), ("B", "two")]),
            ("A=pass#word\nB=a#b # c#d", &[("A", "pass#word"), ("B", "a#b")]),
            ("A=#nothing\nB= # nothing\nC=", &[("A", ""), ("B", ""), ("C", "")]),
            ("A=''\nB=\"\"", &[("A", ""), ("B", "")]),
            ("A='one two' # c\nB=\"three # four\"#c", &[("A", "one two"), ("B", "three # four")]),
            (r#"A="say \"no\"\n\tor\\and\q""#, &[("A", "say \"no\"\n\tor\\and\\q")]),
            (r"A='C:\new\table'", &[("A", r"C:\new\table")]),
            (r"A='Let\'s go'", &[("A", "Let's go")]),
            ("A=`say \"no\" and 'yes'`", &[("A", "say \"no\" and 'yes'")]),
            (r"A=C:\new # a folder", &[("A", r"C:\new")]),
            ("A=don't do \"that\"", &[("A", "don't do \"that\"")]),
            ("A=\"one\n# two\n\nthree=3\"\nB=4", &[("A", "one\n# two\n\nthree=3"), ("B", "4")]),
            ("A='one\r\ntwo'\r\nB=3\r\n", &[("A", "one\ntwo"), ("B", "3")]),
            ("A=1\rB=2", &[("A", "1"), ("B", "2")]),
            ("\u{feff}A=1", &[("A", "1")]),
            (
                "A=pa$$word$1\nB=$HOME\nC=\"$HOME\"\nD='$HOME'",
                &[("A", "pa$$word$1"), ("B", "$HOME"), ("C", "$HOME"), ("D", "$HOME")],
            ),
            (r#"A="cost: \$5""#, &[("A", "cost: $5")]),
            ("A=1\nA=2", &[("A", "2")]),
            ("A=a=b&c=d==", &[("A", "a=b&c=d==")]),
            ("A: one two\nB:\tthree", &[("A", "one two"), ("B", "three")]),
            ("URL=http://a.example:1/b?c=d#e", &[("URL", "http://a.example:1/b?c=d#e")]),
            (r#"A={"hello": "json"}"#, &[("A", r#"{"hello": "json"}"#)]),
            ("A=日本 語 # c", &[("A", "日本 語")]),
            ("a.b-c=1", &[("a.b-c", "1")]),
        ];
        for (text, expected) in table {
            let expected = expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(parse(text), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named_by_its_number() {
        let table = [
            ("A=1\nsk-hunter2 is the key", 2, "NAME=value"),
            ("=hunter2", 1, "NAME=value"),
            ("A:hunter2", 1, "NAME=value"),
            ("\n\nA=\"hunter2\nB=2", 3, "not closed"),
            ("A='one\ntwo'\nB='hunter2' three", 3, "behind the closing quote"),
        ];
        for (text, line, what) in table {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}: {error}");
            assert!(error.to_string().contains(what) && !error.to_string().contains("hunter2"), "{text:?}: {error}");
        }
    }
}
