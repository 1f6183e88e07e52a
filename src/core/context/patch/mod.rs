//! Patches: recorded changes to the model's context.
//!
//! A patch is a list of ops, applied in order, all or nothing ([`Context::apply`]). A submitted patch is checked
//! strictly, once. From then on, the stored patch is replayed leniently, because entries that it names may no longer be
//! visible.

mod apply;
pub(crate) mod carried;
mod check;
pub(crate) mod counted;
pub(crate) mod list;
mod read;
mod rules;

pub use apply::{Applied, Around};
pub use carried::CarriedOps;
pub use counted::StoredPatch;
pub use read::read;
pub use rules::{
    Boundary, CARRIED_OPS_MAX, MESSAGES_MAX, OPS_MAX, PART_NAME_CHARS_MAX, PARTS_MAX, PATCH_BYTES_MAX, PatchRefused,
    REASON_CHARS_MAX, SYSTEM_BYTES_MAX, SYSTEM_PARTS_MAX, TOOLS_MAX,
};

#[cfg(doc)]
use super::messages::Context;

#[cfg(test)]
mod tests;
