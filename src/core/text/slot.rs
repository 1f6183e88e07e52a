//! The sections of a summary.

/// The sections that every summary has, in order. `Progress` is divided into Done, In Progress and Blocked.
pub const SECTIONS: [&str; 6] =
    ["Goal", "Constraints & Preferences", "Progress", "Key Decisions", "Next Steps", "Critical Context"];

/// The section that is divided, as an index into [`SECTIONS`].
pub(super) const PROGRESS: usize = 2;

/// A section or subsection of a summary.
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
    /// What is blocked, and why.
    Blocked,
    /// What was decided.
    Decisions,
    /// What comes next.
    NextSteps,
    /// Facts that must not be lost.
    Context,
    /// Facts that the summary had lost and that were restored.
    Restored,
}

impl Slot {
    /// Every slot, in the order of a summary.
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

    /// Returns its section as an index into [`SECTIONS`], or the index after them.
    #[must_use]
    pub(crate) fn section(self) -> usize {
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

    /// Returns its heading within a divided section.
    #[must_use]
    pub(crate) fn sub_heading(self) -> Option<&'static str> {
        match self {
            Self::Done => Some("Done"),
            Self::InProgress => Some("In Progress"),
            Self::Blocked => Some("Blocked"),
            _ => None,
        }
    }
}
