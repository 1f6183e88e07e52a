//! The sections of a summary: parsed from any Markdown, written in one form.
//!
//! Parsing is lenient, because small models are sloppy ([`headings`]). Writing is strict: every section in order, `-
//! none` in empty ones, followed by restored facts if there are any.

use super::{
    headings,
    slot::{PROGRESS, SECTIONS, Slot},
};
use std::fmt;

/// The heading of facts that the summary had lost and that were restored verbatim; an optional section.
pub const RESTORED: &str = "Restored Facts";

/// Characters of a summary in which every section says `- none`; no summary is shorter.
pub const SKELETON_CHARS: usize = 197;

/// The lines of a summary by slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sections {
    slots: [Vec<String>; 9],
    seen: [bool; 7],
    /// The lines before the first heading.
    before: Vec<String>,
}

impl Sections {
    /// Parses a summary. A repeated section is joined. A section whose own name is missing is looked for under other
    /// names and in other languages.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let own = Self::read(text, headings::named);
        if own.missing().is_none() {
            return own;
        }
        let wanted = |slot: Slot| !own.seen[slot.section()];
        Self::read(text, |line| headings::named(line).or_else(|| headings::named_otherwise(line, wanted)))
    }

    fn read<'a>(text: &'a str, named: impl Fn(&'a str) -> Option<(Slot, &'a str)>) -> Self {
        let mut sections = Self::default();
        let mut place: Option<Slot> = None;
        for line in text.lines() {
            let within_progress = place.is_some_and(|slot| slot.section() == PROGRESS);
            let heading = named(line).or_else(|| within_progress.then(|| headings::named_in_progress(line)).flatten());
            match (heading, place) {
                (Some((slot, rest)), _) => {
                    place = Some(slot);
                    sections.seen[slot.section()] = true;
                    sections.push_line(slot, rest);
                }
                (None, Some(slot)) => sections.push_line(slot, line),
                (None, None) if says_nothing(line) => {}
                (None, None) => sections.before.push(line.trim_end().to_owned()),
            }
        }
        sections
    }

    /// Returns the lines before the first heading: an introduction, or a whole summary in another form.
    #[must_use]
    pub fn before(&self) -> &[String] {
        &self.before
    }

    /// Returns the lines of a slot.
    #[must_use]
    pub fn lines(&self, slot: Slot) -> &[String] {
        &self.slots[slot as usize]
    }

    /// Replaces the lines of a slot.
    pub(crate) fn set_lines(&mut self, slot: Slot, lines: Vec<String>) {
        self.slots[slot as usize] = lines;
    }

    /// Appends an item to a slot; it must be a single line.
    pub fn push_item(&mut self, slot: Slot, item: &str) {
        self.slots[slot as usize].push(format!("- {item}"));
    }

    /// Returns the first section whose heading was not found.
    #[must_use]
    pub fn missing(&self) -> Option<&'static str> {
        SECTIONS.into_iter().zip(self.seen).find(|(_, seen)| !seen).map(|(name, _)| name)
    }

    /// Returns the sections whose headings were not found, in order.
    #[must_use]
    pub fn lacking(&self) -> Vec<&'static str> {
        SECTIONS.into_iter().zip(self.seen).filter(|(_, seen)| !seen).map(|(name, _)| name).collect()
    }

    /// Takes from another summary every section that is missing or empty here.
    pub(crate) fn complete_with(&mut self, other: Self) {
        for section in 0..=SECTIONS.len() {
            let slots = || Slot::ALL.into_iter().filter(move |slot| slot.section() == section);
            if !other.seen[section] || slots().any(|slot| !self.lines(slot).is_empty()) {
                continue;
            }
            self.seen[section] = true;
            slots().for_each(|slot| self.slots[slot as usize].clone_from(&other.slots[slot as usize]));
        }
    }

    /// Returns true if every section is empty.
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

/// Returns the slot that this line opens, if it is the heading of a whole section.
pub(crate) fn opens(line: &str) -> Option<Slot> {
    headings::named(line).map(|(slot, _)| slot)
}

/// Returns the text of a bullet without the bullet.
pub fn item_text(line: &str) -> &str {
    let line = line.trim();
    let text = line.strip_prefix(['-', '*', '•', '+']).unwrap_or(line).trim_start();
    ["[x]", "[X]", "[ ]"].iter().find_map(|mark| text.strip_prefix(mark)).unwrap_or(text).trim()
}

/// Returns true if a line only says that there is nothing to say.
pub(crate) fn says_nothing(line: &str) -> bool {
    let text = item_text(line).trim_matches(['(', ')', '.', '*', '_', '-']).to_ascii_lowercase();
    matches!(text.as_str(), "" | "none" | "n/a" | "nothing" | "none yet" | "nothing yet" | "none so far")
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_stands_before_the_first_heading_is_not_lost() {
        let sections = Sections::parse("The boat is green.\n\nIt is long.\n## Restored Facts\n- 12 m");
        assert_eq!(sections.before(), ["The boat is green.", "It is long."]);
        assert_eq!(sections.lines(Slot::Restored), ["- 12 m"]);
        assert_eq!(Sections::parse("- none\n## Goal\n- x").before(), <[String; 0]>::default());
    }

    #[test]
    fn another_name_does_not_take_lines_from_a_section_that_is_there() {
        let german = "## Ziel\n- Boot\n## Einschränkungen & Präferenzen\n- keine Nägel\n## Stand\n### Erledigt\n- Kiel\n\
                      ## Entscheidungen\n- Eiche\n## Nächste Schritte\n- Mast\n## Wichtiger Kontext\n- 12 m";
        let sections = Sections::parse(german);
        assert_eq!(sections.lacking(), <[&str; 0]>::default());
        assert_eq!(sections.lines(Slot::Done), ["- Kiel"]);
        assert_eq!(sections.lines(Slot::Context), ["- 12 m"]);
        let english = "## Goal\n- boat\n## Constraints & Preferences\n## Progress\n**Status:** fine\n## Key Decisions\n## \
                       Next Steps\n## Critical Context\n**Requirements:** oak";
        assert_eq!(Sections::parse(english).lines(Slot::Context), ["**Requirements:** oak"]);
    }

    #[test]
    fn a_summary_is_completed_with_the_sections_of_another() {
        let mut one = Sections::parse("## Goal\n- boat\n## Next Steps\n- none");
        assert_eq!(one.lacking(), ["Constraints & Preferences", "Progress", "Key Decisions", "Critical Context"]);
        let other = "## Goal\n- house\n## Constraints & Preferences\n- oak\n## Progress\n### Done\n- keel\n## Key \
                     Decisions\n- none\n## Next Steps\n- mast\n## Critical Context\n- 12 m";
        one.complete_with(Sections::parse(other));
        assert_eq!(one.lacking(), <[&str; 0]>::default());
        assert_eq!(
            (one.lines(Slot::Goal), one.lines(Slot::Done)),
            (&["- boat".to_owned()][..], &["- keel".to_owned()][..])
        );
        assert_eq!(
            (one.lines(Slot::NextSteps), one.lines(Slot::Context)),
            (&["- mast".to_owned()][..], &["- 12 m".to_owned()][..])
        );
    }

    #[test]
    fn the_skeleton_has_its_length() {
        assert_eq!(Sections::default().to_string().chars().count(), SKELETON_CHARS);
    }
}
