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
        kind: Kind::Error,
        what: "idempotency_conflict",
        why: "the test of every command has no open approval, and a refusal is not remembered; `sim` repeats answers",
    },
    Unreached {
        command: "withdraw_approval",
        kind: Kind::Error,
        what: "idempotency_conflict",
        why: "the test of every command has no lasting answer, and a refusal is not remembered",
    },
    Unreached {
        command: "search_history",
        kind: Kind::Error,
        what: "session_damaged",
        why: "a damaged record is met only where its index says that it has the words; the store's tests show it",
    },
];
