//! How many sessions are kept for a user whose client never asked to keep any: `STATELESS_SESSIONS`.
//!
//! Each input of such a session says so in its details, so that this is known after a restart too, and on every server.
//! The mark names the session: a fork, which somebody has made, is not one of them. Once its newest input comes from
//! elsewhere, such as the page, a session is not one of them either.

use crate::exchange::{client, is_said, request};
use reseed_client::{Client, Connect, To};
use reseed_protocol::{
    Entry, ErrorBody, SessionId,
    command::{Command, Empty},
    reply::Reply,
    session::{ListSessions, SessionItem, SessionState},
    tree::GetEntries,
};
use serde_json::Value;
use std::{
    cmp::Reverse,
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// The field of an input's details that names the session.
const MARK: &str = "stateless";

/// Sessions of one page.
const PAGE: u32 = 200;

/// Pages that are read at a time. Older sessions come up once newer ones are gone.
const PAGES_MAX: usize = 50;

/// Sessions whose newest input is read at a time. After a restart, none is known; the rest is read next time.
const LOOKS_MAX: usize = 500;

/// Entries that are read of a session. There are fewer of one turn, unless the server runs many tools in it.
const ENTRIES: u32 = 50;

/// Sessions that are remembered, of all users together: some megabytes.
const KNOWN_MAX: usize = 100_000;

/// Marks the details of an input of a session that its client did not ask to keep.
pub(super) fn mark(details: &mut Value, session: &SessionId) {
    details[MARK] = session.as_str().into();
}

/// Returns true if the newest input among these entries has the mark of the session.
fn is_marked(entries: &[Entry], session: &SessionId) -> bool {
    let inputs = entries.iter().filter_map(Entry::message);
    let newest = inputs.rev().find(|message| is_said(message));
    newest.and_then(|message| message.details.as_ref()).is_some_and(|details| details[MARK] == session.as_str())
}

/// What is known of sessions.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    /// True for those that no client asked to keep.
    known: Mutex<HashMap<SessionId, bool>>,
}

impl Keeping {
    /// Deletes those of the user's sessions that no client asked to keep, beyond this many. Those that were used last
    /// stay, and so do all that are in use.
    ///
    /// # Errors
    /// Returns the first error. What is left is deleted next time.
    pub(super) async fn clear(&self, connect: Box<dyn Connect>, sessions_max: usize) -> Result<(), ErrorBody> {
        let mut client = client(connect);
        let cleared = self.clear_with(&mut client, sessions_max).await;
        client.close().await;
        cleared
    }

    async fn clear_with(&self, client: &mut Client, sessions_max: usize) -> Result<(), ErrorBody> {
        let mut sessions = list(client).await?;
        sessions.sort_by_key(|session| Reverse(session.updated_at.0));
        let (mut kept, mut looks) = (0, 0);
        for session in sessions {
            let id = &session.session_id;
            let is_one = match self.known(id) {
                Some(is_one) => is_one,
                None if looks < LOOKS_MAX => {
                    looks += 1;
                    self.look(client, id).await?
                }
                None => false,
            };
            if !is_one {
                continue;
            }
            kept += 1;
            // Somebody may have gone on with it elsewhere since.
            if kept > sessions_max && session.state == SessionState::Idle && self.look(client, id).await? {
                match request(client, To::Id(id.clone()), &Command::DeleteSession(Empty {})).await {
                    Err(error) if error.retriable => return Err(error),
                    _ => drop(self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(id)),
                }
            }
        }
        Ok(())
    }

    fn known(&self, session: &SessionId) -> Option<bool> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(session).copied()
    }

    /// Reads whether a session is one that no client asked to keep.
    async fn look(&self, client: &mut Client, session: &SessionId) -> Result<bool, ErrorBody> {
        let newest = GetEntries { before: None, after: None, limit: Some(ENTRIES), path: None, entry_id: None };
        let page = match request(client, To::Id(session.clone()), &Command::GetEntries(newest)).await {
            // One without an input is being made.
            Ok(Reply::Entries(page)) if !page.items.is_empty() => page,
            Err(error) if error.retriable => return Err(error),
            // It was deleted meanwhile, or cannot be read.
            _ => return Ok(false),
        };
        let is_one = is_marked(&page.items, session);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(session.clone(), is_one);
        Ok(is_one)
    }
}

/// Returns the user's sessions.
async fn list(client: &mut Client) -> Result<Vec<SessionItem>, ErrorBody> {
    let mut sessions = Vec::new();
    let mut cursor = None;
    for _ in 0..PAGES_MAX {
        let command = Command::ListSessions(ListSessions { cursor, limit: Some(PAGE), search: None, watch: None });
        let Reply::Sessions(page) = request(client, To::Server, &command).await? else { break };
        sessions.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    Ok(sessions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::{EntryData, Message, Part, Role, Timestamp};

    fn entry(message: Message) -> Entry {
        Entry {
            entry_id: "e1".parse().unwrap(),
            parent_id: None,
            timestamp: Timestamp(0),
            imported: None,
            data: EntryData::message(message),
        }
    }

    #[test]
    fn the_newest_input_decides_and_its_mark_names_the_session() {
        let (session, other) = ("s1".parse().unwrap(), "s2".parse().unwrap());
        let mut details = serde_json::json!({ "chatCompletions": {} });
        mark(&mut details, &session);
        let marked = Message { details: Some(Box::new(details)), ..Message::user("Hello") };
        let answer = Message::new(Role::Assistant, vec![Part::Text { text: "Hello!".to_owned() }]);
        let path = [entry(marked), entry(answer)];
        assert!(is_marked(&path, &session));
        assert!(!is_marked(&path, &other), "a fork has the same entries");
        let continued = [&path[..], &[entry(Message::user("And now, from the page"))]].concat();
        assert!(!is_marked(&continued, &session));
        assert!(!is_marked(&[], &session));
    }
}
