//! The full text of truncated tool results. It is stored beside the log, under the id of the entry that shows a part of
//! it.
//!
//! Subscribers, pages of entries and the model get the truncated entry. The full text is read for one entry at a time.
//! It is no longer than the frame or the hook's answer that brought it.

use crate::store::{CommandMark, Error, SessionStore, whole_mark};
use reseed_protocol::{Entry, SessionId, event::Event};

/// Takes the full text out of an entry that is about to be stored. Returns its mark.
pub(crate) fn take(entry: &mut Entry) -> Option<CommandMark> {
    let reply = entry.take_whole()?.into();
    Some(CommandMark { command_id: whole_mark(&entry.entry_id), fingerprint: 0, reply })
}

/// Takes the full texts out of events that are about to be stored.
pub(super) fn take_all(events: &mut [Event]) -> impl Iterator<Item = CommandMark> {
    events.iter_mut().filter_map(|event| match event {
        Event::EntryAppended(appended) => take(&mut appended.entry),
        _ => None,
    })
}

/// Puts the full text back into a truncated entry, if the session has it.
///
/// # Errors
/// The store's errors.
pub(crate) async fn restore(store: &dyn SessionStore, session: &SessionId, entry: &mut Entry) -> Result<(), Error> {
    let id = whole_mark(&entry.entry_id);
    if let Some(cut) = entry.cut_mut() {
        cut.whole = store.command(session, &id).await?.map(|mark| mark.reply.to_string());
    }
    Ok(())
}
