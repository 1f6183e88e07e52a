//! Events and replies that several machines build in the same way.

use reseed_protocol::{
    CommandId, Entry, TurnId,
    event::Event,
    reply::{Done, Reply},
    session::SessionUpdated,
    tree::EntryAppended,
};

/// Returns the event for an appended entry.
pub(crate) fn appended(entry: Entry, turn_id: Option<TurnId>, command_id: Option<CommandId>) -> Event {
    Event::EntryAppended(Box::new(EntryAppended { entry, turn_id, command_id }))
}

/// Returns a session update with only the fields that `change` sets.
pub(crate) fn session_updated(change: impl FnOnce(&mut SessionUpdated)) -> Event {
    let mut updated = SessionUpdated::default();
    change(&mut updated);
    Event::SessionUpdated(Box::new(updated))
}

/// Returns the reply `ok`.
pub(crate) fn done(as_of_seq: Option<u64>) -> Reply {
    Reply::Ok(Done { as_of_seq, ..Done::default() })
}
