//! The context of a session: its size, exactly what the next request would send, and changes to it.

mod answer;
mod envelope;
mod frames;
pub(crate) mod info;
pub(crate) mod patch;

pub use self::{answer::*, envelope::*, frames::*, info::*, patch::*};
