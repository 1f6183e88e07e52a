//! Changes the text of a file by hunks.
//!
//! A hunk's place is the first position after the previous hunk where its old lines occur. If they occur nowhere,
//! blanks at the ends of lines are ignored, and then blanks at both ends. Lines that stay keep the file's own blanks.

use super::parse::{Hunk, Line};

/// Maximum comparisons of lines for one file. A file and a patch of nothing but equal lines would take hours.
const COMPARISONS_MAX: u64 = 5_000_000;

/// The ways to compare lines, from exact to lenient.
const COMPARED: [fn(&str) -> &str; 3] = [|line| line, str::trim_end, str::trim];

/// Returns the changed text. It ends with the end of a line.
///
/// # Errors
/// A hunk that has no place.
pub(super) fn change(text: &str, hunks: &[Hunk]) -> Result<String, String> {
    let ending = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let old: Vec<&str> = text.lines().collect();
    let mut search = Search { lines: &old, comparisons: 0 };
    let mut new: Vec<&str> = Vec::with_capacity(old.len());
    let mut done = 0;
    for (index, hunk) in hunks.iter().enumerate() {
        let place = search.place(done, hunk).map_err(|fault| format!("hunk {}: {fault}", index + 1))?;
        new.extend(&old[done..place]);
        done = place;
        for line in &hunk.lines {
            match line {
                Line::Stays(_) => {
                    new.push(old[done]);
                    done += 1;
                }
                Line::Goes(_) => done += 1,
                Line::Comes(line) => new.push(line),
            }
        }
    }
    new.extend(&old[done..]);
    let mut text = new.join(ending);
    if !new.is_empty() {
        text.push_str(ending);
    }
    Ok(text)
}

/// The lines of a file, and the effort of searching them so far.
struct Search<'a> {
    lines: &'a [&'a str],
    comparisons: u64,
}

impl Search<'_> {
    /// Returns the line at which a hunk begins, `from` or later.
    fn place(&mut self, from: usize, hunk: &Hunk) -> Result<usize, String> {
        let mut from = from;
        for above in &hunk.above {
            let found = self.find(from, &[above.as_str()], false)?;
            from =
                1 + found.ok_or_else(|| format!("the line `{}` is not in the file{}", shown(above), behind(from)))?;
        }
        let old: Vec<&str> = hunk.lines.iter().filter_map(Line::old).collect();
        if old.is_empty() {
            // Nothing determines the place, so it is below the named line, or otherwise at the end.
            return Ok(if hunk.above.is_empty() || hunk.is_at_end { self.lines.len() } else { from });
        }
        self.find(from, &old, hunk.is_at_end)?.ok_or_else(|| {
            let which = if hunk.is_at_end { " at the end of the file" } else { "" };
            format!("its old lines, which begin with `{}`, do not stand{which}{}", shown(old[0]), behind(from))
        })
    }

    /// Returns where these lines occur, `from` or later.
    fn find(&mut self, from: usize, wanted: &[&str], is_at_end: bool) -> Result<Option<usize>, String> {
        let Some(last) = self.lines.len().checked_sub(wanted.len()) else { return Ok(None) };
        let first = if is_at_end { from.max(last) } else { from };
        for compared in COMPARED {
            for place in first..=last {
                let mut equal = 0;
                while equal < wanted.len() && compared(self.lines[place + equal]) == compared(wanted[equal]) {
                    equal += 1;
                }
                self.comparisons += equal as u64 + 1;
                if equal == wanted.len() {
                    return Ok(Some(place));
                }
                if self.comparisons > COMPARISONS_MAX {
                    return Err("too many lines are alike; use smaller hunks".to_owned());
                }
            }
        }
        Ok(None)
    }
}

impl Line {
    /// Returns the line if the file has it before the change.
    fn old(&self) -> Option<&str> {
        match self {
            Self::Stays(line) | Self::Goes(line) => Some(line),
            Self::Comes(_) => None,
        }
    }
}

/// Shortens a line for a message.
fn shown(line: &str) -> String {
    line.chars().take(80).collect()
}

fn behind(from: usize) -> String {
    if from == 0 { String::new() } else { format!(" behind line {from}") }
}

#[cfg(test)]
mod tests {
    use super::{super::parse, change};

    /// Changes a text by the inner lines of a patch.
    fn changed(text: &str, hunks: &str) -> Result<String, String> {
        let patch = format!("*** Begin Patch\n*** Update File: a\n{hunks}\n*** End Patch");
        match &parse::parse(&patch).expect("a patch")[..] {
            [parse::Change::Update { hunks, .. }] => change(text, hunks),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn hunks_change_the_lines_that_they_name() {
        for (text, hunks, expected) in [
            ("a\nb\nc\n", "@@\n a\n-b\n+B\n c", "a\nB\nc\n"),
            ("a\nb\nc\n", "@@\n-b", "a\nc\n"),
            ("a\nb\na\nb\n", "@@\n-b\n+1\n@@\n-b\n+2", "a\n1\na\n2\n"),
            ("a\nb\na\nb\n", "@@\n-b\n+2\n*** End of File", "a\nb\na\n2\n"),
            ("x:\n b\ny:\n b\n", "@@ y:\n- b\n+ c", "x:\n b\ny:\n c\n"),
            ("A\n f\nB\n f\n", "@@ B\n@@  f\n+ g", "A\n f\nB\n f\n g\n"),
            ("a\n", "@@\n+b", "a\nb\n"),
            ("a", "@@\n-a\n+b", "b\n"),
            ("", "@@\n+b", "b\n"),
            ("a\n", "@@\n-a", ""),
            // The file's own blanks stay.
            ("a  \n\tb\n", "@@\n a\n-b\n+c", "a  \nc\n"),
            ("a\r\nb\r\n", "@@\n a\n-b\n+c", "a\r\nc\r\n"),
            ("a\n\nb\n", "@@\n a\n\n-b\n+c", "a\n\nc\n"),
            ("日本\n", "@@\n-日本\n+日本語", "日本語\n"),
        ] {
            assert_eq!(changed(text, hunks).as_deref(), Ok(expected), "{text:?} {hunks:?}");
        }
    }

    #[test]
    fn a_hunk_without_a_place_is_named() {
        for (text, hunks, expected) in [
            ("a\nb\n", "@@\n-c", "hunk 1: its old lines, which begin with `c`, do not stand"),
            ("a\nb\n", "@@\n-b\n+c\n@@\n-a", "hunk 2: its old lines, which begin with `a`, do not stand behind line 2"),
            ("a\nb\n", "@@ x\n-b", "hunk 1: the line `x` is not in the file"),
            ("a\nb\n", "@@\n-a\n*** End of File", "at the end of the file"),
            ("", "@@\n-a", "hunk 1"),
        ] {
            let fault = changed(text, hunks).expect_err(hunks);
            assert!(fault.contains(expected), "{fault}");
        }
    }

    #[test]
    fn lines_that_are_all_alike_do_not_take_for_ever() {
        let text = "\n".repeat(100_000);
        let hunks = format!("@@\n{}-x", " \n".repeat(10_000));
        assert!(changed(&text, &hunks).expect_err("refused").contains("alike"));
    }
}
