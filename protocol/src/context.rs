//! The context of a session: its size, exactly what the next request would send, and changes to it.

mod envelope;
mod frames;
pub(crate) mod info;
pub(crate) mod patch;

pub use self::{envelope::*, frames::*, info::*, patch::*};
