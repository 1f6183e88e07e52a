//! The sections of a summary, read from Markdown of any make and written in one.
//!
//! Reading is lenient, because small models are sloppy: any depth of `#`, bold, numbers, case, a colon, words behind it.
//! Writing is strict: every section, in order, `- none` where there is nothing; then, if there are any, the facts that were
//! put back.

use std::fmt;

/// The sections that every summary has, in order. `Progress` is divided into Done, In Progress and Blocked.
pub const SECTIONS: [&str; 6] =
    ["Goal", "Constraints & Preferences", "Progress", "Key Decisions", "Next Steps", "Critical Context"];

/// The heading of what the summary had lost and was put back word for word: a section that need not be there.
pub const RESTORED: &str = "Restored Facts";

/// Characters of a summary in which every section says `- none`; no summary is shorter.
pub const SKELETON_CHARS: usize = 197;

/// A place in a summary where lines can stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// What the user wants.
    Goal,
    /// How the user wants it.
    Constraints,
    /// What is finished.
    Done,
    /// What is being worked on.
    InProgress,
    /// What cannot go on, and why.
    Blocked,
    /// What was decided.
    Decisions,
    /// What comes next.
    NextSteps,
    /// Facts that must not get lost.
    Context,
    /// Facts that the summary had lost and that were put back.
    Restored,
}

impl Slot {
    /// Every place, in the order of a summary.
    pub const ALL: [Self; 9] = [
        Self::Goal,
        Self::Constraints,
        Self::Done,
        Self::InProgress,
        Self::Blocked,
        Self::Decisions,
        Self::NextSteps,
        Self::Context,
        Self::Restored,
    ];

    /// The section it belongs to, as an index into [`SECTIONS`], or behind them.
    fn section(self) -> usize {
        match self {
            Self::Goal => 0,
            Self::Constraints => 1,
            Self::Done | Self::InProgress | Self::Blocked => PROGRESS,
            Self::Decisions => 3,
            Self::NextSteps => 4,
            Self::Context => 5,
            Self::Restored => SECTIONS.len(),
        }
    }

    /// Its heading within the section, where the section is divided.
    fn sub_heading(self) -> Option<&'static str> {
        match self {
            Self::Done => Some("Done"),
            Self::InProgress => Some("In Progress"),
            Self::Blocked => Some("Blocked"),
            _ => None,
        }
    }
}

const PROGRESS: usize = 2;

/// How models write the headings, and where the lines below them go. Lines right under `Progress` are in progress.
const HEADINGS: [(&str, Slot); 13] = [
    ("goals", Slot::Goal),
    ("goal", Slot::Goal),
    ("constraints & preferences", Slot::Constraints),
    ("constraints and preferences", Slot::Constraints),
    ("constraints", Slot::Constraints),
    ("progress", Slot::InProgress),
    ("key decisions", Slot::Decisions),
    ("decisions", Slot::Decisions),
    ("next steps", Slot::NextSteps),
    ("next step", Slot::NextSteps),
    ("critical context", Slot::Context),
    ("critical information", Slot::Context),
    ("restored facts", Slot::Restored),
];

/// Headings that count within Progress only: elsewhere `Done:` is a word like any other.
const SUB_HEADINGS: [(&str, Slot); 5] = [
    ("done", Slot::Done),
    ("completed", Slot::Done),
    ("in progress", Slot::InProgress),
    ("blocked", Slot::Blocked),
    ("blockers", Slot::Blocked),
];

/// The lines of a summary by place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sections {
    slots: [Vec<String>; 9],
    seen: [bool; 7],
}

impl Sections {
    /// Reads a summary. Text before the first heading is left out; a section that comes twice is joined.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut sections = Self::default();
        let mut place: Option<Slot> = None;
        for line in text.lines() {
            let within_progress = place.is_some_and(|slot| slot.section() == PROGRESS);
            let heading = heading(line, &HEADINGS)
                .or_else(|| within_progress.then(|| self::heading(line, &SUB_HEADINGS)).flatten());
            match heading {
                Some((slot, rest)) => {
                    place = Some(slot);
                    sections.seen[slot.section()] = true;
                    sections.push_line(slot, rest);
                }
                None => {
                    if let Some(slot) = place {
                        sections.push_line(slot, line);
                    }
                }
            }
        }
        sections
    }

    /// The lines at this place.
    #[must_use]
    pub fn lines(&self, slot: Slot) -> &[String] {
        &self.slots[slot as usize]
    }

    /// Adds an item at this place; it must be a single line.
    pub fn push_item(&mut self, slot: Slot, item: &str) {
        self.slots[slot as usize].push(format!("- {item}"));
    }

    /// The first section whose heading was not found.
    #[must_use]
    pub fn missing(&self) -> Option<&'static str> {
        SECTIONS.into_iter().zip(self.seen).find(|(_, seen)| !seen).map(|(name, _)| name)
    }

    /// Whether no section says anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(Vec::is_empty)
    }

    fn push_line(&mut self, slot: Slot, line: &str) {
        if !says_nothing(line) {
            self.slots[slot as usize].push(line.trim_end().to_owned());
        }
    }
}

impl fmt::Display for Sections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (section, name) in SECTIONS.iter().enumerate() {
            let gap = if section == 0 { "" } else { "\n\n" };
            write!(f, "{gap}## {name}")?;
            for slot in Slot::ALL.into_iter().filter(|slot| slot.section() == section) {
                if let Some(sub_heading) = slot.sub_heading() {
                    write!(f, "\n### {sub_heading}")?;
                }
                match self.lines(slot) {
                    [] => write!(f, "\n- none")?,
                    lines => lines.iter().try_for_each(|line| write!(f, "\n{line}"))?,
                }
            }
        }
        match self.lines(Slot::Restored) {
            [] => Ok(()),
            lines => {
                write!(f, "\n\n## {RESTORED}")?;
                lines.iter().try_for_each(|line| write!(f, "\n{line}"))
            }
        }
    }
}

/// The place that this line opens, if it is a heading of a whole section.
pub(super) fn opens(line: &str) -> Option<Slot> {
    heading(line, &HEADINGS).map(|(slot, _)| slot)
}

/// Whether this text, in lower case and without marks in front, begins with a heading of a summary.
pub(super) fn is_heading(bare: &str) -> bool {
    let bare = bare.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(['.', ')', ' ', '*', '_']);
    HEADINGS
        .iter()
        .chain(&SUB_HEADINGS)
        .any(|(name, _)| bare.strip_prefix(name).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric)))
}

/// A bullet's text without its bullet.
pub(crate) fn item_text(line: &str) -> &str {
    let line = line.trim();
    let text = line.strip_prefix(['-', '*', '•', '+']).unwrap_or(line).trim_start();
    ["[x]", "[X]", "[ ]"].iter().find_map(|mark| text.strip_prefix(mark)).unwrap_or(text).trim()
}

/// Whether a line only says that there is nothing to say.
pub(crate) fn says_nothing(line: &str) -> bool {
    let text = item_text(line).trim_matches(['(', ')', '.', '*', '_', '-']).to_ascii_lowercase();
    matches!(text.as_str(), "" | "none" | "n/a" | "nothing" | "none yet" | "nothing yet" | "none so far")
}

/// The place that a heading opens, and what stands behind it on the same line.
fn heading<'a>(line: &'a str, headings: &[(&str, Slot)]) -> Option<(Slot, &'a str)> {
    let line = line.trim();
    let bare = line.trim_start_matches('#').trim_start();
    let has_marks = bare.len() < line.len();
    let bare = bare.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(['.', ')']).trim_start();
    let bare = bare.strip_prefix("**").or_else(|| bare.strip_prefix("__")).unwrap_or(bare);
    headings.iter().find_map(|(name, slot)| {
        let found = bare.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        if !found {
            return None;
        }
        let after = &bare[name.len()..];
        let rest = after.trim_start_matches(['*', '_', ':', '：', ' ', '\t', '#']);
        let gap = &after[..after.len() - rest.len()];
        let ends = rest.is_empty() || gap.contains([':', '：']) || (has_marks && !gap.is_empty());
        ends.then_some((*slot, rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_is_found_however_it_is_written() {
        for (line, expected) in [
            ("## Goal", Some((Slot::Goal, ""))),
            ("#### goals ##", Some((Slot::Goal, ""))),
            ("**Goal**: build it", Some((Slot::Goal, "build it"))),
            ("1. Goal: build it", Some((Slot::Goal, "build it"))),
            ("Goal", Some((Slot::Goal, ""))),
            ("## Progress (so far)", Some((Slot::InProgress, "(so far)"))),
            ("Goalkeeper: none", None),
            ("Goal of the game", None),
            ("- Goal: none", None),
            ("", None),
            ("#", None),
            ("目标", None),
        ] {
            assert_eq!(heading(line, &HEADINGS), expected, "{line}");
        }
    }

    #[test]
    fn what_was_put_back_is_read_and_written_again() {
        let text = format!("{}\n\n## Restored Facts\n- port 8443", Sections::default());
        let sections = Sections::parse(&text);
        assert_eq!(sections.lines(Slot::Restored), ["- port 8443"]);
        assert_eq!((sections.missing(), sections.to_string()), (None, text));
        assert_eq!(Sections::parse("## Restored Facts\n- x").missing(), Some("Goal"));
    }

    #[test]
    fn done_is_a_heading_within_progress_only() {
        let sections = Sections::parse("## Goal\nDone: that\n## Progress\nDone:\n- this\n## Next Steps\nBlocked: no");
        assert_eq!(sections.lines(Slot::Goal), ["Done: that"]);
        assert_eq!(sections.lines(Slot::Done), ["- this"]);
        assert_eq!(sections.lines(Slot::NextSteps), ["Blocked: no"]);
    }

    #[test]
    fn the_skeleton_has_its_length() {
        assert_eq!(Sections::default().to_string().chars().count(), SKELETON_CHARS);
    }
}
