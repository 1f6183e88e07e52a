//! Dialects: translate a client's frames to commands, and replies and events to its frames. A dialect knows nothing
//! else of the server.
//!
//! v2 is the vocabulary of the server itself, so its frames are those of [`reseed_protocol::frame`]. [`v1`] translates
//! the older protocol.

pub(super) mod v1;

use reseed_protocol::{CommandId, ErrorBody, SessionId, frame::encode_reply, reply::Reply};

/// The protocol version of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Speaks {
    /// No frame has been received yet.
    #[default]
    Undecided,
    V1,
    /// v2; `greeted` is true once `hello` was answered.
    V2 {
        greeted: bool,
    },
}

/// The dialect of a connection. Until it is decided, the client is answered as in v1.
#[derive(Default)]
pub(super) struct Dialect {
    pub(super) speaks: Speaks,
    pub(super) v1: v1::Translator,
}

impl Dialect {
    pub(super) fn is_v2(&self) -> bool {
        matches!(self.speaks, Speaks::V2 { .. })
    }

    pub(super) fn is_greeted(&self) -> bool {
        self.speaks == Speaks::V2 { greeted: true }
    }

    /// Returns the frame that refuses a command.
    pub(super) fn refusal(&self, session: Option<&SessionId>, id: Option<&CommandId>, error: ErrorBody) -> String {
        if self.is_v2() { encode_reply(id, session, &Reply::Error(error)) } else { v1::error_frame(error) }
    }

    /// Returns the frame of a session's reply, if the client gets one.
    pub(super) fn reply(&self, session: &SessionId, id: &CommandId, reply: &Reply) -> Option<String> {
        if self.is_v2() { Some(encode_reply(Some(id), Some(session), reply)) } else { v1::reply(id, reply) }
    }
}
