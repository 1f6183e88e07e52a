//! Patches: changes of what the model sees, as data.
//!
//! A patch is a list of ops, applied in order, all or nothing ([`Context::apply`]). What is submitted is checked here,
//! strictly, once; what is stored is replayed leniently for ever after, because what it names may have left meanwhile.

mod apply;
mod carried;
mod check;
pub(crate) mod counted;
pub(crate) mod list;
mod read;

pub use apply::{Applied, Around};
pub use carried::Carried;
pub use counted::StoredPatch;
pub use read::read;

#[cfg(doc)]
use super::build::Context;
use reseed_protocol::{ErrorBody, ErrorCode};

/// Ops of one patch. A hook that has more to say replaces the region whole.
pub const OPS_MAX: usize = 64;

/// Bytes of one patch, as JSON: a stored one is read back at every open of its session, and 256 KiB is already more text
/// than most windows hold.
pub const PATCH_BYTES_MAX: usize = 256 * 1024;

/// Parts of a system prompt, those of the deployment counted in.
pub const SYSTEM_PARTS_MAX: usize = 64;

/// Longest name of a part, in characters.
pub const PART_NAME_CHARS_MAX: usize = 64;

/// Bytes of a whole system prompt: it is sent with every request, so it is bounded as the patch that makes it.
pub const SYSTEM_BYTES_MAX: usize = 256 * 1024;

/// Tools of a request, as many as a client may offer.
pub const TOOLS_MAX: usize = 128;

/// Messages that one op names or carries: far more than a context holds that is looked at by a hook before every
/// request.
pub const MESSAGES_MAX: usize = 10_000;

/// Parts of one carried message.
pub const PARTS_MAX: usize = 256;

/// Characters of a reason for giving up the provider's cache: it stands in receipts and on dashboards.
pub const REASON_CHARS_MAX: usize = 500;

/// Ops that the patches of one path come to, with each tool that is removed counted as one: they are stored again with
/// every compaction.
pub const CARRIED_OPS_MAX: usize = 256;

/// How long what a patch makes lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// It is stored, and every later request on the branch is made with it.
    Durable,
    /// It is for one request.
    Ephemeral,
}

/// Why a patch was refused: nothing of it was applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("op {index} of the patch, `{op}`: {why}")]
pub struct PatchRefused {
    /// The place of the op that cannot be applied, from 0.
    pub index: usize,
    /// Its name; empty where it has none.
    pub op: String,
    /// What is wrong with it; nothing of what it says.
    pub why: String,
}

impl PatchRefused {
    /// The refusal as the wire tells it.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        let details = serde_json::json!({ "index": self.index, "op": self.op });
        ErrorBody::new(ErrorCode::InvalidPatch, self.to_string()).with_field("patch").with_details(details)
    }
}

#[cfg(test)]
mod tests;
