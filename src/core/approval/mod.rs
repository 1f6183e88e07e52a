//! Approvals in the core: which calls need one, how a call is identified, and how it is shown to people.
//!
//! Invariant: an answer only ever runs the call that was shown. The record in the log is what runs; what a client sends
//! back is only compared with it.

mod policy;
mod visible;

pub use policy::{Policy, RULES_MAX};
pub use visible::visible;

use crate::tool::{Terms, ToolPlace};
use reseed_protocol::tools::ApprovalDecision;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// Returns the hash of a call: SHA-256 of where it runs, the tool's name and its arguments, in hexadecimal. Two calls
/// share a hash only if they have the same text and run in the same place.
#[must_use]
pub fn call_hash(place: ToolPlace, name: &str, arguments: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update([u8::from(place == ToolPlace::Server)]);
    hasher.update((name.len() as u64).to_be_bytes());
    hasher.update(name);
    hasher.update(arguments);
    hasher.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the decision on a call that no rule matches.
///
/// A client's tools run in the client's own program, under its user's eyes, so they need no approval here. The server's
/// tools run with the server's rights, so any tool not declared read-only needs approval.
#[must_use]
pub fn default_decision(terms: &Terms) -> ApprovalDecision {
    let is_free = terms.place == ToolPlace::Client || terms.annotations.read_only == Some(true);
    if is_free { ApprovalDecision::Auto } else { ApprovalDecision::Ask }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::tools::ToolAnnotations;

    #[test]
    fn calls_that_look_alike_when_joined_have_different_hashes() {
        let hash = |name, arguments| call_hash(ToolPlace::Server, name, arguments);
        assert_ne!(hash("ab", "c"), hash("a", "bc"));
        assert_eq!(hash("a", "{}"), hash("a", "{}"));
        assert_ne!(hash("a", "{}"), call_hash(ToolPlace::Client, "a", "{}"));
        assert_eq!(hash("a", "{}").len(), 64);
    }

    #[test]
    fn only_read_only_server_tools_run_without_approval() {
        let hints = |read_only| ToolAnnotations { read_only, ..ToolAnnotations::default() };
        let table = [
            (ToolPlace::Server, None, ApprovalDecision::Ask),
            (ToolPlace::Server, Some(false), ApprovalDecision::Ask),
            (ToolPlace::Server, Some(true), ApprovalDecision::Auto),
            (ToolPlace::Client, None, ApprovalDecision::Auto),
            (ToolPlace::Client, Some(false), ApprovalDecision::Auto),
        ];
        for (place, read_only, expected) in table {
            let annotations = hints(read_only);
            let terms = Terms { place, timeout_ms: None, sequential: false, ends_turn: false, annotations };
            assert_eq!(default_decision(&terms), expected, "{place:?} {read_only:?}");
        }
    }
}
