//! Protocol v2, the server's own vocabulary: commands, replies and events are written as they are.

use reseed_protocol::{CommandId, ErrorBody, SessionId, frame::encode_reply, reply::Reply};

/// Returns the frame that refuses a command.
pub(super) fn refusal(session: Option<&SessionId>, id: Option<&CommandId>, error: ErrorBody) -> String {
    encode_reply(id, session, &Reply::Error(error))
}

/// Returns the frame of a session's reply.
pub(super) fn reply(session: &SessionId, id: &CommandId, reply: &Reply) -> String {
    encode_reply(Some(id), Some(session), reply)
}
