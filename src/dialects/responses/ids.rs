//! Ids of responses and conversations. They name a place in a session's tree, so nothing needs to be kept to find it.

use super::request::Invalid;
use reseed_protocol::{EntryId, SessionId};
use std::fmt;

/// The id of a response: its session, and the entry of its input.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ResponseId {
    pub(super) session: SessionId,
    pub(super) entry: EntryId,
}

impl ResponseId {
    /// Reads an id.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (session, entry) = text.strip_prefix("resp_")?.split_once('_')?;
        Some(Self { session: session.parse().ok()?, entry: entry.parse().ok()? })
    }
}

impl fmt::Display for ResponseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "resp_{}_{}", self.session, self.entry)
    }
}

/// Returns the id of a conversation, which is a session.
pub(super) fn conversation_id(session: &SessionId) -> String {
    format!("conv_{session}")
}

/// Reads the id of a conversation.
///
/// # Errors
/// The field, if it is not one.
pub(super) fn conversation(text: &str) -> Result<SessionId, Invalid> {
    let session = text.strip_prefix("conv_").and_then(|session| session.parse().ok());
    session.ok_or_else(|| Invalid::at("conversation", "it is not the id of a conversation of this server"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written() {
        let id = ResponseId { session: "abc123".parse().unwrap(), entry: "e1.2".parse().unwrap() };
        assert_eq!(ResponseId::parse(&id.to_string()), Some(id));
        for text in ["", "resp_", "resp_abc", "resp_abc_", "abc_e1", "resp_abc_é"] {
            assert_eq!(ResponseId::parse(text), None, "{text}");
        }
        assert_eq!(conversation("conv_abc").unwrap(), "abc".parse().unwrap());
        assert!(conversation("resp_abc").is_err());
    }
}
