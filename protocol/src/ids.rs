//! Ids. Each id is checked where it enters ([`FromStr`]) and trusted afterwards.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr, sync::Arc};

/// Most characters of an id: the limit of command ids, applied to every id.
pub const ID_CHARS_MAX: usize = 64;
/// Fewest characters of a writing command's id, so that ids of two clients do not collide by chance.
pub const COMMAND_ID_CHARS_MIN: usize = 16;
/// The prefix of server-made frame ids, which clients must not use.
pub const SERVER_ID_PREFIX: &str = "s_";

/// The reason a text is not an id. Contains the length, never the text: it may be a megabyte long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// The text is empty.
    #[error("an id must not be empty")]
    Empty,
    /// The text is longer than [`ID_CHARS_MAX`].
    #[error("an id has at most {ID_CHARS_MAX} characters, this one has {0} bytes")]
    TooLong(usize),
    /// A character outside `A-Za-z0-9._:-` (and `_`).
    #[error("an id is made of A-Z a-z 0-9 . _ : -, this one has {0:?}")]
    Character(char),
}

/// Checks the rules common to all ids.
///
/// # Errors
/// The first rule that the text violates.
pub fn check_id(text: &str) -> Result<(), InvalidId> {
    if text.is_empty() {
        return Err(InvalidId::Empty);
    }
    if text.len() > ID_CHARS_MAX {
        return Err(InvalidId::TooLong(text.len()));
    }
    match text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-'))) {
        Some(c) => Err(InvalidId::Character(c)),
        None => Ok(()),
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
        #[cfg_attr(feature = "codegen", ts(type = "string"))]
        #[cfg_attr(feature = "codegen", schemars(with = "String", extend("pattern" = "^[A-Za-z0-9._:-]{1,64}$")))]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns the id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                check_id(text)?;
                Ok(Self(text.into()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "`{}`", self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id!(
    /// A session: one append-only tree of entries.
    SessionId
);
id!(
    /// An entry of a session's tree. Also the `itemId` of an answer being streamed.
    EntryId
);
id!(
    /// A turn: from a user message until the loop is idle again.
    TurnId
);
id!(
    /// A connection. Created by the server.
    ConnectionId
);
id!(
    /// A tool call. Created by the server, not by the upstream, which may reuse ids.
    CallId
);
id!(
    /// An approval: a tool call that a person must allow.
    ApprovalId
);
id!(
    /// A running compaction.
    JobId
);
id!(
    /// A frame that a client sent; the idempotency key of a writing command.
    CommandId
);
