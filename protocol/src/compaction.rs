//! Compaction: what replaces older entries in the context, how it is asked for, and what came of it.

pub(crate) mod compacted;
pub(crate) mod entry;
mod frames;
mod strategy;

pub use self::{compacted::*, entry::*, frames::*, strategy::*};
