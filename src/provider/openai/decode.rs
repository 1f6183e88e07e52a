//! What the two dialects of a streamed answer have in common for the one that reads them.

use super::assembly::{Assembly, Ending};
use crate::core::model::ModelFault;

/// What an event did to the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// The answer goes on.
    More,
    /// Nothing follows.
    Done,
}

/// Reads the events of one answer.
pub(super) trait Decoder: Send {
    /// Takes one event's data.
    fn event(&mut self, data: &str, assembly: &mut Assembly<'_>) -> Result<Progress, ModelFault>;

    /// How the answer ended, once its terminal event has come. Until then, a stream that stops is cut off.
    fn ending(&self) -> Option<Ending>;
}
