//! Detects where a model begins to repeat itself endlessly, while its answer arrives.
//!
//! Invariant: the text that is cut off was said before, verbatim, so nothing is lost. The text is divided into pieces:
//! lines and sentences. A single repeated piece is no sign, because lists and sections may share some. A sign is a long
//! run of pieces that all occur earlier, or one piece that runs in a short cycle.

use std::collections::HashSet;

/// The run of repeated pieces that ends an answer, in pieces and in letters: longer than anything that two sections of
/// a good summary share, and short enough to end a loop within some seconds.
const RUN: (usize, usize) = (8, 240);
/// The bytes at the end of an unfinished piece that are searched for a cycle, and the minimum number of repetitions.
const CIRCLE: (usize, usize) = (320, 4);
/// The bytes by which an unfinished piece grows between two searches.
const CIRCLE_STEP: usize = 64;

/// Watches an answer as it arrives.
#[derive(Debug, Default)]
pub struct Repetition {
    text: String,
    /// The number of bytes that have been read.
    read: usize,
    /// The start of the unfinished piece.
    begin: usize,
    /// The pieces so far.
    said: HashSet<String>,
    run: Run,
    /// A run ends the answer if it is longer than [`RUN`] by this factor plus one.
    patience: usize,
    /// The length of the unfinished piece when it was last searched for a cycle, and the position where the cycle's
    /// second round begins.
    searched: usize,
    circle_at: Option<usize>,
}

/// The run of repeated pieces at the end of the text.
#[derive(Debug, Default)]
struct Run {
    begin: usize,
    pieces: usize,
    letters: usize,
}

impl Repetition {
    /// Watches the reasoning before an answer. Models quote and draft there, so only a long run counts as a loop.
    #[must_use]
    pub fn of_reasoning() -> Self {
        Self { patience: 9, ..Self::default() }
    }

    /// Reads newly arrived text. Returns true if the model now only repeats itself.
    pub fn push(&mut self, arrived: &str) -> bool {
        self.text.push_str(arrived);
        while let Some(next) = self.text[self.read..].chars().next() {
            let at = self.read;
            self.read += next.len_utf8();
            let ends = match next {
                '\n' | '。' | '！' | '？' => true,
                next if next.is_whitespace() => self.text[self.begin..at].ends_with(['.', '!', '?']),
                _ => false,
            };
            if ends {
                self.end_piece();
            } else if self.read - self.begin >= CIRCLE.0.max(self.searched + CIRCLE_STEP) {
                self.search();
            }
        }
        self.begins_at().is_some()
    }

    /// Returns everything that has arrived.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the position where the repetition begins.
    fn begins_at(&self) -> Option<usize> {
        let times = 1 + self.patience;
        let is_long = self.run.pieces >= RUN.0 * times && self.run.letters >= RUN.1 * times;
        let run = Some(self.run.begin).filter(|_| is_long);
        self.circle_at.or(run)
    }

    fn end_piece(&mut self) {
        let piece = &self.text[self.begin..self.read];
        let letters = piece.chars().filter(|c| c.is_alphanumeric()).count();
        // Rules and blank lines neither begin nor end a run.
        if letters > 0 {
            if self.said.contains(unnumbered(piece)) {
                if self.run.pieces == 0 {
                    self.run.begin = self.begin;
                }
                self.run.pieces += 1;
                self.run.letters += letters;
            } else {
                self.said.insert(unnumbered(piece).to_owned());
                self.run = Run::default();
            }
        }
        self.begin = self.read;
        (self.searched, self.circle_at) = (0, None);
    }

    /// Searches the end of the unfinished piece for a cycle.
    fn search(&mut self) {
        let piece = &self.text.as_bytes()[self.begin..self.read];
        self.searched = piece.len();
        self.circle_at = None;
        if piece.len() < CIRCLE.0 {
            return;
        }
        let tail: Vec<u8> = piece.iter().rev().take(CIRCLE.0).copied().collect();
        let circle = tail.len() - border(&tail);
        let says_something = tail[..circle].iter().any(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii());
        if circle * CIRCLE.1 > tail.len() || !says_something {
            return;
        }
        let last = piece.len() - circle;
        let first = (0..last).rev().take_while(|at| piece[*at] == piece[at + circle]).last().unwrap_or(last);
        let second = self.begin + first + circle;
        self.circle_at = (second..=self.read).find(|at| self.text.is_char_boundary(*at));
    }
}

/// Returns the part of an answer before it begins to repeat itself; `None` if it does not end in a repetition.
#[must_use]
pub fn before_repetition(text: &str) -> Option<&str> {
    let mut repetition = Repetition::default();
    repetition.push(text);
    repetition.search();
    let begins_at = repetition.begins_at()?;
    // An answer may break off in the middle of a piece, or end with a new one.
    let last = unnumbered(&text[repetition.begin..]);
    let is_known = || repetition.said.iter().any(|said| said.starts_with(last));
    (repetition.circle_at.is_some() || is_known()).then(|| text[..begins_at].trim_end())
}

/// Returns a piece without its list marker or number.
fn unnumbered(piece: &str) -> &str {
    let text = piece.trim().trim_start_matches(['-', '*', '•', '+', ' ']);
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    match text[digits..].strip_prefix(['.', ')']) {
        Some(rest) if digits > 0 => rest.trim_start(),
        _ => text,
    }
}

/// Returns the length of the longest proper prefix of `bytes` that is also its end.
fn border(bytes: &[u8]) -> usize {
    let mut longest = vec![0; bytes.len()];
    for at in 1..bytes.len() {
        let mut length: usize = longest[at - 1];
        while length > 0 && bytes[at] != bytes[length] {
            length = longest[length - 1];
        }
        longest[at] = length + usize::from(bytes[at] == bytes[length]);
    }
    longest.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: &str = "## Goal\n- Reach the ferry at 17:40.\n- Ann pays for the tickets.\n\n## Progress\n- none\n";

    /// Returns an answer with this many lines.
    fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
        (0..count).map(|n| line(n) + "\n").collect()
    }

    #[test]
    fn a_draft_in_the_reasoning_is_no_loop() {
        let draft: String =
            (0..12).map(|n| format!("- The harbour has berth {n} for boats that come in winter.\n")).collect();
        let text = format!("Draft:\n{draft}Check and finalise:\n{draft}");
        assert!(Repetition::default().push(&text), "a summary that says all of it twice is cut off");
        assert!(!Repetition::of_reasoning().push(&text));
        assert!(Repetition::of_reasoning().push(&format!("Draft:\n{}", draft.repeat(20))));
    }

    #[test]
    fn an_answer_ends_where_it_only_repeats_itself() {
        let story = "The boat is red. It leaves at noon. Nobody has a ticket! Who pays for lunch? ";
        let half = lines(12, |n| format!("- Fact number {n} has a value of {}", n * 37));
        let kept = |text: &str| text.trim_end().to_owned();
        let words = "The user wants to know when the boat leaves and";
        for (name, text, expected) in [
            (
                "one line",
                format!("{FACTS}{}", "- The cat eats fish\n".repeat(40)),
                Some(format!("{FACTS}- The cat eats fish")),
            ),
            (
                "broken off",
                format!("{FACTS}{}- The c", "- The cat eats fish\n".repeat(40)),
                Some(format!("{FACTS}- The cat eats fish")),
            ),
            (
                "numbered",
                FACTS.to_owned() + &lines(40, |n| format!("{n}. Buy bread and butter")),
                Some(format!("{FACTS}0. Buy bread and butter")),
            ),
            ("several lines", format!("{half}{half}"), Some(kept(&half))),
            (
                "blank lines between",
                format!("{FACTS}{}", "- The cat eats fish\n\n---\n".repeat(40)),
                Some(format!("{FACTS}- The cat eats fish\n\n---")),
            ),
            ("sentences", story.repeat(9), Some(kept(story))),
            ("words", format!("{FACTS}{words}{}", " and so on".repeat(60)), Some(format!("{FACTS}{words} and so on"))),
            ("one letter", format!("{FACTS}{}", "a".repeat(900)), Some(format!("{FACTS}a"))),
            ("no spaces", format!("结论。{}", "重复".repeat(300)), Some("结论。重复".to_owned())),
            ("twice", format!("{FACTS}{FACTS}"), None),
            ("many files", lines(300, |n| format!("- src/part_{n}.rs is done")), None),
            ("a table", lines(30, |n| format!("| row {n} | yes | yes | yes |\n|---|---|---|---|")), None),
            ("a rule", format!("{FACTS}{}\n", "-".repeat(900)), None),
            ("a new end", format!("{half}{half}- And then something new was said"), None),
            ("more after it", format!("{half}{half}{}", FACTS), None),
            ("empty sections", lines(30, |n| format!("## Part {n}\n- none")), None),
            ("nothing", String::new(), None),
        ] {
            assert_eq!(before_repetition(&text), expected.as_deref(), "{name}");
        }
    }

    #[test]
    fn a_loop_is_noticed_early_however_the_text_is_cut() {
        let talk = format!("{FACTS}{}", "- The cat eats fish and bread\n".repeat(400));
        let circle = format!("{FACTS}so{}", " on and on and".repeat(400));
        for (text, bytes_max) in [(talk, FACTS.len() + 400), (circle, FACTS.len() + 520)] {
            for size in [1, 3, 7, 64] {
                let mut repetition = Repetition::default();
                let pieces: Vec<String> =
                    text.chars().collect::<Vec<_>>().chunks(size).map(|piece| piece.iter().collect()).collect();
                let noticed = pieces.iter().any(|piece| repetition.push(piece));
                assert!(noticed && repetition.text().len() <= bytes_max, "{size}: {}", repetition.text().len());
            }
        }
    }
}
