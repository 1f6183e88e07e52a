//! The hash chain of the audit log: one JSON object per line, each with the SHA-256 of the line before it. So a line
//! that is changed, removed, inserted or moved shows.
//!
//! - The hash is that of a line's bytes without its line break.
//! - `seq` grows by one. Each file begins with a line [`BEGIN`]. In the first file it has `seq` 1 and the hash
//!   [`Head::default`]; in later ones it continues the file before.
//! - Bytes that a killed server has not written to their end stay. The next line has their hash in `torn`.

use reseed_protocol::Timestamp;
use serde::{Deserialize, Serialize};
use std::iter::Peekable;

/// The first line of each file.
pub(super) const BEGIN: &str = "begin";

/// Maximum bytes of a line. The names in it have at most 256 bytes each.
pub(crate) const LINE_BYTES_MAX: usize = 16 * 1024;

/// Maximum unfinished bytes between two lines.
pub(super) const TORN_BYTES_MAX: usize = LINE_BYTES_MAX;

/// A line. Empty fields are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Line {
    pub(crate) seq: u64,
    pub(crate) time: Timestamp,
    /// What was done.
    pub(crate) what: String,
    /// The operator, service or user who did it; `server` for its own acts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) who: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    /// The user whom it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// The session that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
    /// The public id of a ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ticket: Option<String>,
    /// The kind of credentials.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) credential: String,
    /// What was read, or what credentials were for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) on: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) outcome: String,
    /// Lines of this kind that were left out before this one, because there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) left_out: u64,
    /// The hash of the unfinished bytes before this line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) torn: Option<String>,
    /// The hash of the line before.
    pub(crate) previous: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The end of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) seq: u64,
    /// The hash of the last line.
    pub(crate) hash: String,
}

impl Default for Head {
    /// Returns the head of a chain without lines.
    fn default() -> Self {
        Self { seq: 0, hash: "0".repeat(64) }
    }
}

impl Head {
    /// Returns the head after a line.
    pub(super) fn after(seq: u64, text: &[u8]) -> Self {
        Self { seq, hash: hash(text) }
    }

    /// Returns true if the line continues the chain.
    pub(super) fn precedes(&self, line: &Line) -> bool {
        line.seq == self.seq + 1 && line.previous == self.hash
    }
}

/// Returns a SHA-256 in hexadecimal digits.
pub(super) fn hash(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a line without its line break; `None` if it is not one.
pub(crate) fn read(text: &[u8]) -> Option<Line> {
    serde_json::from_slice(text).ok()
}

/// A line in a file, which may be damaged.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// The file and the number of the line, for people.
    pub(crate) place: String,
    /// The bytes without the line break.
    pub(crate) text: Vec<u8>,
}

/// The result of a verification.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    pub(crate) lines: u64,
    /// The place of unfinished bytes at the end.
    pub(crate) unfinished: Option<String>,
    /// The places of unfinished bytes that the next line declares.
    pub(crate) torn: Vec<String>,
    pub(crate) head: Head,
}

/// The first line that does not continue the chain, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Broken(String);

/// A line that was read.
struct Seen {
    place: String,
    line: Line,
    head: Head,
}

impl Seen {
    fn read(found: &Found) -> Option<Self> {
        let line = read(&found.text)?;
        let head = Head::after(line.seq, &found.text);
        Some(Self { place: format!("{} (seq {})", found.place, line.seq), line, head })
    }
}

/// Verifies the lines of one or more files, in the order in which they were written. Calls `each` with the head after
/// each line.
///
/// # Errors
/// [`Broken`].
pub(crate) fn verify(
    lines: impl IntoIterator<Item = Found>,
    mut each: impl FnMut(&Head, &str),
) -> Result<Verified, Broken> {
    let mut rest = lines.into_iter().peekable();
    let mut verified = Verified::default();
    let mut before: [Option<Seen>; 2] = [None, None];
    let mut unfinished: Option<Found> = None;
    while let Some(found) = rest.next() {
        let Some(at) = Seen::read(&found) else {
            let is_first = before[1].is_none();
            let mut torn = unfinished.take().unwrap_or(Found { text: Vec::new(), place: found.place.clone() });
            if !torn.text.is_empty() {
                torn.text.push(b'\n');
            }
            torn.text.extend(found.text);
            if is_first || torn.text.len() > TORN_BYTES_MAX {
                return Err(Broken(format!("{} is not a line of an audit log", torn.place)));
            }
            unfinished = Some(torn);
            continue;
        };
        let torn = unfinished.take();
        if at.line.torn != torn.as_ref().map(|torn| hash(&torn.text)) {
            return Err(Broken(match torn {
                Some(torn) => format!("{} was changed or inserted: it is not a line of an audit log", torn.place),
                None => format!("{} was changed, or the unfinished line before it was removed", at.place),
            }));
        }
        verified.torn.extend(torn.map(|torn| torn.place));
        let continues = match &before[1] {
            Some(last) => last.head.precedes(&at.line),
            None => at.line.what == BEGIN && (at.line.seq == 1) == Head::default().precedes(&at.line),
        };
        if !continues {
            return Err(Broken(explain(&before, &at, &mut rest)));
        }
        each(&at.head, &at.place);
        verified.lines += 1;
        verified.head = at.head.clone();
        before = [before[1].take(), Some(at)];
    }
    verified.unfinished = unfinished.map(|unfinished| unfinished.place);
    Ok(verified)
}

/// Says why a line does not continue the chain. One change is assumed: with several, the first place is right, and the
/// kind may not be.
fn explain(before: &[Option<Seen>; 2], at: &Seen, rest: &mut Peekable<impl Iterator<Item = Found>>) -> String {
    let (place, line) = (&at.place, &at.line);
    let [older, Some(last)] = before else {
        return format!(
            "{place} does not begin a file: the lines before it were removed, or it was changed or inserted"
        );
    };
    let next = rest.peek().and_then(Seen::read);
    let next_follows = |head: &Head| next.as_ref().is_some_and(|next| head.precedes(&next.line));
    if older.as_ref().is_some_and(|older| older.head.precedes(line)) {
        return format!("{} was inserted: {place} continues the line before it", last.place);
    }
    if next_follows(&last.head) {
        return format!("{place} was inserted: the line after it continues the line before it");
    }
    if line.previous == last.head.hash {
        return format!("{place} was changed: its `seq` must be {}", last.head.seq + 1);
    }
    if line.what == BEGIN && line.seq == 1 {
        return format!("{place} begins a new chain: it does not continue {}", last.place);
    }
    let wanted = last.head.seq + 1;
    if line.seq == wanted {
        return if next_follows(&at.head) {
            format!("{} was changed: its hash is not the one in {place}", last.place)
        } else {
            format!("{} or {place} was changed: the hash of the first is not the one in the second", last.place)
        };
    }
    let found = rest.find_map(|found| Seen::read(&found).filter(|seen| seen.line.seq == wanted));
    match found {
        Some(found) => format!("{place} was moved or inserted: seq {wanted} must be there, and is in {}", found.place),
        None if line.seq > wanted => {
            format!("lines were removed between {} and {place}: seq {wanted} to {}", last.place, line.seq - 1)
        }
        None => format!("{place} was moved or inserted after {}", last.place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a chain of this many lines.
    fn chain(count: u64) -> Vec<String> {
        let mut head = Head::default();
        let line = |seq| {
            let what = if seq == 1 { BEGIN } else { "sign_in" };
            let line = Line {
                seq,
                what: what.into(),
                who: format!("user {seq}"),
                previous: head.hash.clone(),
                ..Line::default()
            };
            let text = serde_json::to_string(&line).unwrap();
            head = Head::after(seq, text.as_bytes());
            text
        };
        (1..=count).map(line).collect()
    }

    fn check(lines: &[String]) -> Result<Verified, String> {
        let found = lines.iter().enumerate();
        let found =
            found.map(|(at, text)| Found { place: format!("line {}", at + 1), text: text.clone().into_bytes() });
        verify(found, |_, _| {}).map_err(|broken| broken.to_string())
    }

    /// Returns true if an error names one of these lines.
    fn names(error: &str, lines: impl IntoIterator<Item = usize>) -> bool {
        lines.into_iter().any(|line| {
            let name = format!("line {line}");
            error
                .match_indices(&name)
                .any(|(at, _)| !error[at + name.len()..].starts_with(|c: char| c.is_ascii_digit()))
        })
    }

    type Edit<'a> = &'a dyn Fn(&mut Vec<String>);

    #[test]
    fn a_chain_is_verified_to_its_head() {
        let lines = chain(5);
        let verified = check(&lines).unwrap();
        assert_eq!(verified.lines, 5);
        assert_eq!(verified.head, Head::after(5, lines[4].as_bytes()));
    }

    #[test]
    fn what_was_done_to_a_line_is_said() {
        let lines = chain(6);
        let edit = |edit: Edit| {
            let mut lines = lines.clone();
            edit(&mut lines);
            check(&lines).unwrap_err()
        };
        let forged = |seq: u64, text: &str| {
            let line = Line { seq, what: "read".into(), previous: hash(text.as_bytes()), ..Line::default() };
            serde_json::to_string(&line).unwrap()
        };
        let table: [(Edit, &str); 9] = [
            (&|lines| lines[2] = lines[2].replace("user 3", "user 9"), "line 3 (seq 3) was changed"),
            (
                &|lines| lines[2] = lines[2].replace(r#""seq":3"#, r#""seq":8"#),
                "line 3 (seq 8) was changed: its `seq` must be 3",
            ),
            (&|lines| lines[4] = lines[4].replace("user 5", "eve"), "line 5 (seq 5) or line 6 (seq 6) was changed"),
            (
                &|lines| drop(lines.remove(2)),
                "lines were removed between line 2 (seq 2) and line 3 (seq 4): seq 3 to 3",
            ),
            (&|lines| drop(lines.remove(0)), "line 1 (seq 2) does not begin a file"),
            (&|lines| lines.swap(2, 4), "line 3 (seq 5) was moved or inserted: seq 3 must be there, and is in line 5"),
            (&|lines| lines.insert(3, lines[1].clone()), "line 4 (seq 2) was inserted"),
            (&|lines| lines.insert(3, forged(4, &lines[2])), "line 4 (seq 4) was inserted"),
            (&|lines| lines[2].truncate(20), "line 3 was changed or inserted: it is not a line of an audit log"),
        ];
        for (change, expected) in table {
            let error = edit(change);
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn unfinished_bytes_are_accepted_only_as_the_next_line_declares_them() {
        let mut lines = chain(3);
        let head = Head::after(3, lines[2].as_bytes());
        lines.push(r#"{"seq":4,"ti"#.to_owned());
        assert_eq!(check(&lines).unwrap().unfinished.as_deref(), Some("line 4"));
        let torn = Some(hash(lines[3].as_bytes()));
        let line = Line { seq: 4, what: "start".into(), previous: head.hash, torn, ..Line::default() };
        lines.push(serde_json::to_string(&line).unwrap());
        assert_eq!(check(&lines).unwrap().torn, ["line 4"]);
        for (at, text) in [(3, r#"{"seq":4,"tI"#), (3, &lines[1]), (4, &lines[1])] {
            let mut changed = lines.clone();
            text.clone_into(&mut changed[at]);
            assert!(names(&check(&changed).unwrap_err(), [at, at + 1]), "{text}");
        }
        lines.remove(3);
        assert!(check(&lines).unwrap_err().starts_with("line 4 (seq 4) was changed, or the unfinished line before it"));
    }

    proptest! {
        #[test]
        fn a_change_of_any_line_is_found_and_named(
            count in 2_u64..30, at: prop::sample::Index, to: prop::sample::Index, byte: prop::sample::Index, kind in 0..4,
        ) {
            let mut lines = chain(count);
            let last = Head::after(count, lines[lines.len() - 1].as_bytes());
            let (at, to) = (at.index(lines.len()), to.index(lines.len()));
            match kind {
                0 => drop(lines.remove(at)),
                1 => {
                    let byte = byte.index(lines[at].len());
                    let mut text = lines[at].clone().into_bytes();
                    text[byte] = if text[byte] == b'7' { b'8' } else { b'7' };
                    lines[at] = String::from_utf8(text).unwrap();
                }
                2 => {
                    prop_assume!(at != to);
                    lines.swap(at, to);
                }
                _ => {
                    let copy = lines[to].clone();
                    lines.insert(at, copy);
                }
            }
            match check(&lines) {
                // Nothing follows the last line, so only a copy of its hash shows what was done to it.
                Ok(verified) => prop_assert_ne!(verified.head, last),
                // A line's number, and those beside it: the hash of one is in the other.
                Err(error) => {
                    let first = at.min(if kind == 2 { to } else { at });
                    prop_assert!(names(&error, first..=first + 2), "{kind} at {at}, {to}: {error}");
                }
            }
        }
    }
}
