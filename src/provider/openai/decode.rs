//! The interface of the two stream decoders.

use super::assembly::{Assembly, Ending};
use crate::core::model::ModelFault;

/// The effect of an event on the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// More events follow.
    More,
    /// Nothing follows.
    Done,
}

/// Decodes the events of one answer.
pub(super) trait Decoder: Send {
    /// Decodes one event.
    fn event(&mut self, data: &str, assembly: &mut Assembly<'_>) -> Result<Progress, ModelFault>;

    /// Returns how the answer ended, once its terminal event has arrived. A stream that stops before that is truncated.
    fn ending(&self) -> Option<Ending>;
}
