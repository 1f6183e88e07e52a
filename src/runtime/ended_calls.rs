//! Marks of finished tool calls. A mark is written with the step that resolves a call. It is read when somebody answers
//! the call again.

use crate::{
    core::session::ended::{EndedCall, ended_calls, mark_id},
    store::{CommandMark, Error, SessionStore},
};
use reseed_protocol::{CallId, SessionId, event::Event, tools::CallOutcome};
use serde::{Deserialize, Serialize};

/// What a call's mark stores in place of a command's reply.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    /// The outcome of the call; absent if this version does not know the value.
    #[serde(default, deserialize_with = "known_outcome")]
    outcome: Option<CallOutcome>,
}

fn known_outcome<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<CallOutcome>, D::Error> {
    Ok(serde_json::from_value(serde_json::Value::deserialize(deserializer)?).ok())
}

/// Returns the marks of the calls that these events resolve.
pub(super) fn marks(events: &[Event]) -> impl Iterator<Item = CommandMark> {
    ended_calls(events).into_iter().map(|(call, ended)| {
        let stored = Stored { outcome: ended.outcome };
        let reply = serde_json::to_string(&stored).expect("a word is JSON").into();
        CommandMark { command_id: mark_id(&call), fingerprint: ended.result, reply }
    })
}

/// Returns how a call ended, if its mark says so.
///
/// # Errors
/// The store's errors.
pub(super) async fn read(
    store: &dyn SessionStore,
    session: &SessionId,
    call: &CallId,
) -> Result<Option<EndedCall>, Error> {
    let Some(mark) = store.command(session, &mark_id(call)).await? else { return Ok(None) };
    let outcome = serde_json::from_str::<Stored>(&mark.reply).ok().and_then(|stored| stored.outcome);
    Ok(Some(EndedCall { outcome, result: mark.fingerprint }))
}
