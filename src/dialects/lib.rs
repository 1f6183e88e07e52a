//! Dialects: the protocols that clients speak. A dialect translates a client's frames to commands, and replies and
//! events to its frames, and knows nothing else of the server. No dialect knows another one.
//!
//! [`v2`] is the server's own vocabulary. [`v1`] translates the older protocol.

pub(crate) mod v1;
mod v2;

use crate::{core::agent_loop::Origin, runtime::encoded::FrameText};
use reseed_protocol::{CommandId, ErrorBody, SessionId, reply::Reply};

/// The protocol version of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Speaks {
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
pub(crate) struct Dialect {
    pub(crate) speaks: Speaks,
    pub(crate) v1: v1::Translator,
}

/// An event as a client gets it.
pub(crate) enum Translated {
    /// As it is.
    Same(FrameText),
    /// As these frames.
    Frames(Vec<String>),
}

impl Dialect {
    fn is_v2(&self) -> bool {
        matches!(self.speaks, Speaks::V2 { .. })
    }

    /// Returns true if a connection outlives its sessions. Otherwise it has one session, and ends with it.
    pub(crate) fn has_many_sessions(&self) -> bool {
        self.is_v2()
    }

    /// Returns true if the client gets events that are not stored.
    pub(crate) fn has_ephemeral_events(&self) -> bool {
        self.is_v2()
    }

    pub(crate) fn is_greeted(&self) -> bool {
        self.speaks == Speaks::V2 { greeted: true }
    }

    /// Returns the frame that refuses a command.
    pub(crate) fn refusal(&self, session: Option<&SessionId>, id: Option<&CommandId>, error: ErrorBody) -> String {
        if self.is_v2() { v2::refusal(session, id, error) } else { v1::error_frame(error) }
    }

    /// Returns the frame of a session's reply, if the client gets one.
    pub(crate) fn reply(&self, session: &SessionId, id: &CommandId, reply: &Reply) -> Option<String> {
        if self.is_v2() { Some(v2::reply(session, id, reply)) } else { v1::reply(id, reply) }
    }

    /// Translates the frame of a durable event, for the connection with this number.
    pub(crate) fn durable(&mut self, origin: Origin, frame: FrameText) -> Translated {
        if self.is_v2() { Translated::Same(frame) } else { Translated::Frames(self.v1.durable(origin, &frame)) }
    }
}
