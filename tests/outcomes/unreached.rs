//! What the table of commands claims and no test of `it` reaches, each with the reason.

use crate::notes::Kind;

/// A claim of the table that no test reaches.
pub(crate) struct Unreached {
    /// The command, or `*` for any.
    pub(crate) command: &'static str,
    pub(crate) kind: Kind,
    /// The reply's or event's type, or the error's code.
    pub(crate) what: &'static str,
    /// Why no test reaches it, and which other test shows it.
    pub(crate) why: &'static str,
}

/// Every claim that no test reaches. What a test does reach must not be here.
pub(crate) const UNREACHED: &[Unreached] = &[
    Unreached {
        command: "approval_response",
        kind: Kind::Reply,
        what: "ok",
        why: "approvals do not exist yet: every answer is refused",
    },
    Unreached {
        command: "approval_response",
        kind: Kind::Error,
        what: "idempotency_conflict",
        why: "approvals do not exist yet: every answer is refused, and a refusal is not remembered",
    },
];
