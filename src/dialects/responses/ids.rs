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

/// The id of an item: its kind, its session and entry, and its number among the items of the entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ItemId {
    pub(super) prefix: String,
    pub(super) session: SessionId,
    pub(super) entry: EntryId,
    pub(super) place: usize,
}

impl ItemId {
    /// Reads an id. Older ones do not name their session: these are of `within`.
    pub(super) fn parse(text: &str, within: Option<&SessionId>) -> Option<Self> {
        let (prefix, rest) = text.split_once('_')?;
        let (rest, place) = rest.rsplit_once('_')?;
        let (prefix, place) = (prefix.to_owned(), place.parse().ok()?);
        let (session, entry) = match rest.split_once('_') {
            Some((session, entry)) => (session.parse().ok()?, entry.parse().ok()?),
            None => (within?.clone(), rest.parse().ok()?),
        };
        Some(Self { prefix, session, entry, place })
    }
}

/// Returns the id of an item.
pub(super) fn item_id(session: &SessionId, entry: &EntryId, place: usize, prefix: &str) -> String {
    format!("{prefix}_{session}_{entry}_{place}")
}

/// Returns the id of an item of this session in the form that names the session.
pub(super) fn normal(session: &SessionId, text: &str) -> String {
    match ItemId::parse(text, Some(session)) {
        Some(ItemId { prefix, session, entry, place }) => item_id(&session, &entry, place, &prefix),
        None => text.to_owned(),
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
        assert_eq!(ResponseId::parse(&id.to_string()), Some(id.clone()));
        for text in ["", "resp_", "resp_abc", "resp_abc_", "abc_e1", "resp_abc_é"] {
            assert_eq!(ResponseId::parse(text), None, "{text}");
        }
        let text = item_id(&id.session, &id.entry, 2, "msg");
        let item = ItemId { prefix: "msg".to_owned(), session: id.session.clone(), entry: id.entry, place: 2 };
        assert_eq!(ItemId::parse(&text, None).as_ref(), Some(&item));
        assert_eq!(ItemId::parse("msg_e1.2_2", Some(&id.session)), Some(item), "an older id names no session");
        assert_eq!(normal(&id.session, "msg_e1.2_2"), text);
        for text in ["", "msg", "msg_e1.2_2", "msg_abc123_e1.2_x", "msg_abc_é_0"] {
            assert_eq!(ItemId::parse(text, None), None, "{text}");
        }
        assert_eq!(conversation("conv_abc").unwrap(), "abc".parse().unwrap());
        assert!(conversation("resp_abc").is_err());
    }
}
