//! The text of a patch.
//!
//! ```text
//! Patch  := "*** Begin Patch" Change* "*** End Patch"
//! Change := "*** Add File: " path ("+" line)*
//!         | "*** Delete File: " path
//!         | "*** Update File: " path ["*** Move to: " path] Hunk*
//! Hunk   := ("@@" [" " line])* ((" " | "-" | "+") line)* ["*** End of File"]
//! ```
//!
//! Models are not exact, so some of what deviates is understood: the first hunk needs no `@@`, an empty line in a hunk
//! is an empty line that stays, blanks around markers do not count, and the patch may stand in a shell's here-document.

/// What happens to one file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It is created.
    Add { path: String, text: String },
    /// It is removed.
    Delete { path: String },
    /// It is changed, and perhaps renamed.
    Update { path: String, moved: Option<String>, hunks: Vec<Hunk> },
}

/// A place in a file, and the changes there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hunk {
    /// Lines above it, from the top down.
    pub(super) above: Vec<String>,
    /// The lines.
    pub(super) lines: Vec<Line>,
    /// True if its lines are the last of the file.
    pub(super) is_at_end: bool,
}

/// A line of a hunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// It stays.
    Stays(String),
    /// It goes.
    Goes(String),
    /// It comes.
    Comes(String),
}

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
const UPDATE: &str = "*** Update File:";
const MOVE: &str = "*** Move to:";
const END_OF_FILE: &str = "*** End of File";

/// Reads a patch.
///
/// # Errors
/// The line that does not fit, and what is expected there.
pub(super) fn parse(text: &str) -> Result<Vec<Change>, String> {
    let mut lines: Vec<(usize, &str)> =
        text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_end_matches('\r'))).collect();
    trim_blank(&mut lines);
    if let [(_, first), .., (_, last)] = lines[..]
        && let Some(word) = here_document(first)
        && last.trim() == word
    {
        lines.pop();
        lines.remove(0);
        trim_blank(&mut lines);
    }
    let [(_, first), inner @ .., (_, last)] = &lines[..] else {
        return Err(format!("the patch must begin with `{BEGIN}` and end with `{END}`"));
    };
    if first.trim() != BEGIN {
        return Err(format!("the patch must begin with `{BEGIN}`"));
    }
    if last.trim() != END {
        return Err(format!("the patch must end with `{END}`"));
    }
    let mut changes: Vec<Change> = Vec::new();
    for (number, line) in inner {
        let began = begun(line);
        match (began, changes.last_mut()) {
            (Some(change), _) => changes.push(change),
            (None, Some(change)) => {
                continued(change, line).map_err(|fault| format!("line {number} of the patch: {fault}"))?;
            }
            (None, None) if line.trim().is_empty() => {}
            (None, None) => {
                return Err(format!(
                    "line {number} of the patch: expected `{ADD} PATH`, `{DELETE} PATH` or `{UPDATE} PATH`"
                ));
            }
        }
    }
    for change in &changes {
        if let Change::Update { path, moved: None, hunks } = change
            && hunks.iter().all(|hunk| hunk.lines.is_empty())
        {
            return Err(format!("the update of `{}` changes nothing", path.escape_debug()));
        }
    }
    if changes.is_empty() { Err("the patch changes nothing".to_owned()) } else { Ok(changes) }
}

fn trim_blank(lines: &mut Vec<(usize, &str)>) {
    while lines.last().is_some_and(|(_, line)| line.trim().is_empty()) {
        lines.pop();
    }
    let blank = lines.iter().take_while(|(_, line)| line.trim().is_empty()).count();
    lines.drain(..blank);
}

/// Returns the word that ends the here-document that this line begins.
fn here_document(line: &str) -> Option<&str> {
    let word = line.trim().strip_prefix("apply_patch").unwrap_or(line).trim().strip_prefix("<<")?.trim();
    Some(word.trim_matches(['\'', '"'])).filter(|word| !word.is_empty())
}

/// Returns the change that a line begins.
fn begun(line: &str) -> Option<Change> {
    // A marker is at the beginning of a line, where a line of a file has another character.
    let named = |marker: &str| line.strip_prefix(marker).map(|path| path.trim().to_owned());
    if let Some(path) = named(ADD) {
        return Some(Change::Add { path, text: String::new() });
    }
    if let Some(path) = named(DELETE) {
        return Some(Change::Delete { path });
    }
    named(UPDATE).map(|path| Change::Update { path, moved: None, hunks: Vec::new() })
}

/// Adds a line to the change that it belongs to.
fn continued(change: &mut Change, line: &str) -> Result<(), String> {
    match change {
        Change::Add { text, .. } => match line.strip_prefix('+') {
            Some(line) => {
                text.push_str(line);
                text.push('\n');
                Ok(())
            }
            None => Err("each line of a new file begins with `+`".to_owned()),
        },
        Change::Delete { .. } if line.trim().is_empty() => Ok(()),
        Change::Delete { .. } => Err("nothing follows the name of a file to delete".to_owned()),
        Change::Update { moved, hunks, .. } => match line.strip_prefix(MOVE) {
            Some(path) if moved.is_none() && hunks.is_empty() => {
                *moved = Some(path.trim().to_owned());
                Ok(())
            }
            Some(_) => Err(format!("`{MOVE}` follows `{UPDATE}` once")),
            None => in_hunk(hunks, line),
        },
    }
}

/// Adds a line to the last hunk, or begins another.
fn in_hunk(hunks: &mut Vec<Hunk>, line: &str) -> Result<(), String> {
    if let Some(above) = line.strip_prefix("@@") {
        // Several in a row lead to one place.
        if hunks.last().is_none_or(|hunk| !hunk.lines.is_empty() || hunk.is_at_end) {
            hunks.push(Hunk::default());
        }
        let above = above.strip_prefix(' ').unwrap_or(above);
        // A unified diff ends the line with the marker too: `@@ -1,2 +1,2 @@`. Line numbers are not used.
        let is_numbers = above.trim_start().starts_with('-') && above.trim_end().ends_with("@@");
        if let Some(hunk) = hunks.last_mut()
            && !above.trim().is_empty()
            && !is_numbers
        {
            hunk.above.push(above.to_owned());
        }
        return Ok(());
    }
    if hunks.is_empty() {
        hunks.push(Hunk::default());
    }
    let Some(hunk) = hunks.last_mut() else { return Ok(()) };
    if line.trim_end() == END_OF_FILE {
        hunk.is_at_end = true;
        return Ok(());
    }
    if hunk.is_at_end {
        return if line.trim().is_empty() { Ok(()) } else { Err(format!("a hunk ends with `{END_OF_FILE}`")) };
    }
    let mut chars = line.chars();
    let first = chars.next();
    let rest = chars.as_str().to_owned();
    hunk.lines.push(match first {
        None => Line::Stays(String::new()),
        Some(' ') => Line::Stays(rest),
        Some('-') => Line::Goes(rest),
        Some('+') => Line::Comes(rest),
        Some(_) => {
            return Err("each line of a hunk begins with a space, `-` or `+`, and a hunk with `@@`".to_owned());
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        match text.split_at(1) {
            (" ", rest) => Line::Stays(rest.to_owned()),
            ("-", rest) => Line::Goes(rest.to_owned()),
            (_, rest) => Line::Comes(rest.to_owned()),
        }
    }

    fn hunk(above: &[&str], lines: &[&str], is_at_end: bool) -> Hunk {
        let above = above.iter().map(|above| (*above).to_owned()).collect();
        Hunk { above, lines: lines.iter().map(|text| line(text)).collect(), is_at_end }
    }

    fn update(hunks: Vec<Hunk>) -> Change {
        Change::Update { path: "a.py".to_owned(), moved: None, hunks }
    }

    #[test]
    fn each_form_is_understood() {
        let add = || Change::Add { path: "n.txt".to_owned(), text: "one\n\n+two\n".to_owned() };
        for (inner, expected) in [
            ("*** Add File: n.txt\n+one\n+\n++two", vec![add()]),
            ("*** Add File: empty", vec![Change::Add { path: "empty".to_owned(), text: String::new() }]),
            (
                "*** Delete File: b\n*** Add File: n.txt\n+one\n+\n++two",
                vec![Change::Delete { path: "b".to_owned() }, add()],
            ),
            ("*** Update File: a.py\n@@\n x\n-y\n+z", vec![update(vec![hunk(&[], &[" x", "-y", "+z"], false)])]),
            ("*** Update File: a.py\n x\n-y", vec![update(vec![hunk(&[], &[" x", "-y"], false)])]),
            (
                "*** Update File: a.py\n@@ class A\n@@ def b\n+z\n\n@@\n-q\n*** End of File",
                vec![update(vec![hunk(&["class A", "def b"], &["+z", " "], false), hunk(&[], &["-q"], true)])],
            ),
            ("*** Update File: a.py\n@@ -1,2 +1,3 @@\n+z", vec![update(vec![hunk(&[], &["+z"], false)])]),
            (
                "*** Update File: a.py\n*** Move to: c.py",
                vec![Change::Update { path: "a.py".to_owned(), moved: Some("c.py".to_owned()), hunks: Vec::new() }],
            ),
            // This looks like a marker, but is a line of the file.
            (
                "*** Update File: a.py\n@@\n-*** End Patch\n+*** Delete File: x",
                vec![update(vec![hunk(&[], &["-*** End Patch", "+*** Delete File: x"], false)])],
            ),
        ] {
            let patch = format!("*** Begin Patch\n{inner}\n*** End Patch");
            for text in [
                patch.clone(),
                format!("\n{patch}\n\n"),
                patch.replace('\n', "\r\n"),
                format!("<<'EOF'\n{patch}\nEOF\n"),
                format!("apply_patch <<EOF\n{patch}\nEOF"),
            ] {
                assert_eq!(parse(&text).as_ref(), Ok(&expected), "{text}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_line() {
        for (text, expected) in [
            ("", "must begin with"),
            ("*** Begin Patch", "must begin with"),
            ("*** Begin Patch\n*** End Patch", "changes nothing"),
            ("*** Begin Patch\n*** Add File: a\n+b", "must end with"),
            ("*** Add File: a\n+b\n*** End Patch", "must begin with"),
            ("*** Begin Patch\nhello\n*** End Patch", "line 2 of the patch: expected"),
            ("*** Begin Patch\n*** Add File: a\nb\n*** End Patch", "line 3 of the patch: each line of a new file"),
            ("*** Begin Patch\n*** Delete File: a\n-b\n*** End Patch", "line 3 of the patch: nothing follows"),
            ("*** Begin Patch\n*** Update File: a\n*** End Patch", "the update of `a` changes nothing"),
            ("*** Begin Patch\n*** Update File: a\n@@\n*** End Patch", "the update of `a` changes nothing"),
            ("*** Begin Patch\n*** Update File: a\n@@\nx\n*** End Patch", "line 4 of the patch: each line of a hunk"),
            ("*** Begin Patch\n*** Update File: a\n@@\n-x\n*** Move to: b\n*** End Patch", "follows"),
            (
                "*** Begin Patch\n*** Update File: a\n-x\n*** End of File\n-y\n*** End Patch",
                "line 5 of the patch: a hunk",
            ),
        ] {
            let fault = parse(text).expect_err(text);
            assert!(fault.contains(expected), "{text}: {fault}");
        }
    }
}
