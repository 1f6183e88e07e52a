//! The limits of a patch, its lifetime, and the reasons for rejecting one.

use reseed_protocol::{ErrorBody, ErrorCode};

/// Maximum ops per patch. A hook that needs more replaces the whole region.
pub const OPS_MAX: usize = 64;

/// Maximum bytes of a patch as JSON. A stored patch is read whenever its session is opened, and 256 KiB is already more
/// text than most windows hold.
pub const PATCH_BYTES_MAX: usize = 256 * 1024;

/// Maximum parts of a system prompt, including the deployment's.
pub const SYSTEM_PARTS_MAX: usize = 64;

/// Maximum characters of a part's name.
pub const PART_NAME_CHARS_MAX: usize = 64;

/// Maximum bytes of a system prompt. It is sent with every request, so it has the same bound as a patch.
pub const SYSTEM_BYTES_MAX: usize = 256 * 1024;

/// Maximum tools of a request, as many as a client may offer.
pub const TOOLS_MAX: usize = 128;

/// Maximum messages that one op may name or carry: far more than in any context that a hook inspects before each
/// request.
pub const MESSAGES_MAX: usize = 10_000;

/// Maximum parts of one carried message.
pub const PARTS_MAX: usize = 256;

/// Maximum characters of a reason for invalidating the provider's cache, because receipts and dashboards show it.
pub const REASON_CHARS_MAX: usize = 500;

/// Maximum ops into which the patches of one path may combine, counting each removed tool as one, because every
/// compaction stores them again.
pub const CARRIED_OPS_MAX: usize = 256;

/// The lifetime of a patch's effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// Stored: it applies to every later request on the branch.
    Durable,
    /// It applies to one request only.
    Ephemeral,
}

/// The reason a patch was rejected. None of it was applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("op {index} of the patch, `{op}`: {why}")]
pub struct PatchRefused {
    /// Index of the op that cannot be applied.
    pub index: usize,
    /// The op's name; empty if it has none.
    pub op: String,
    /// The reason; quotes none of its content.
    pub why: String,
}

impl PatchRefused {
    /// Converts to the wire error.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        let details = serde_json::json!({ "index": self.index, "op": self.op });
        ErrorBody::new(ErrorCode::InvalidPatch, self.to_string()).with_field("patch").with_details(details)
    }
}
