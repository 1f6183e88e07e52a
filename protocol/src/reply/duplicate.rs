//! The mark of a reply to a command that was sent again.

use super::Reply;

impl Reply {
    /// Returns the mark that tells a reply to a command that was sent again. `None` for replies without it: those to
    /// commands that do not write, and errors.
    pub fn duplicate_mut(&mut self) -> Option<&mut Option<bool>> {
        match self {
            Self::Accepted(accepted) => Some(&mut accepted.duplicate),
            Self::Ok(done) => Some(&mut done.duplicate),
            Self::Navigated(navigated) => Some(&mut navigated.duplicate),
            Self::Forked(forked) => Some(&mut forked.duplicate),
            Self::Welcome(_)
            | Self::SessionOpened(_)
            | Self::Sessions(_)
            | Self::Models(_)
            | Self::Entries(_)
            | Self::Pong(_)
            | Self::ContextInfo(_)
            | Self::Context(_)
            | Self::Tools(_)
            | Self::CompactionPreview(_)
            | Self::Tree(_)
            | Self::HistoryHits(_)
            | Self::Error(_)
            | Self::Unknown(_) => None,
        }
    }
}
