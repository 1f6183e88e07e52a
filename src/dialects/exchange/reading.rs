//! Reads a session further back, waits for it, and follows what is already under way in it.

use super::{Exchange, PAGE, errors};
use reseed_client::{SessionEvent, Update, fold::Snapshot};
use reseed_protocol::{
    CommandId, Entry, EntryId, ErrorBody,
    command::Command,
    event::Event,
    reply::Reply,
    tree::GetEntries,
    turn::{RetryTurn, UserInput},
};
use std::sync::Arc;

impl Exchange {
    /// Waits until the session is as wanted. Steps of the turn that is followed are kept.
    ///
    /// # Errors
    /// Returns why the session can no longer be followed.
    pub async fn until(&mut self, wanted: impl Fn(&Snapshot) -> bool) -> Result<(), ErrorBody> {
        while !wanted(self.snapshot()) {
            self.receive().await?;
        }
        Ok(())
    }

    /// Reads the path back until an entry fulfils this, or to its beginning.
    ///
    /// # Errors
    /// Returns the server's error, or why there is no reply.
    pub async fn read_back(&mut self, wanted: impl Fn(&Entry) -> bool) -> Result<Option<Arc<Entry>>, ErrorBody> {
        loop {
            if let Some(found) = self.snapshot().path.iter().rev().find(|entry| wanted(entry)) {
                return Ok(Some(found.clone()));
            }
            if !self.read_older().await? {
                return Ok(None);
            }
        }
    }

    /// Reads a page of the path before what is known of it. Returns false at its beginning.
    ///
    /// # Errors
    /// As [`Self::read_back`].
    pub async fn read_older(&mut self) -> Result<bool, ErrorBody> {
        let path = &self.snapshot().path;
        let Some(before) = path.first().filter(|_| path.more()).map(|first| first.entry_id.clone()) else {
            return Ok(false);
        };
        let limit = Some(PAGE);
        let page = GetEntries { before: Some(before), path: Some(true), limit, after: None, entry_id: None };
        let Reply::Entries(page) = self.request(&Command::GetEntries(page)).await? else { return Ok(false) };
        let has_entries = !page.items.is_empty();
        if let Some(snapshot) = self.client.machine_mut().snapshot_mut(self.session) {
            snapshot.add_entries(page, true);
        }
        Ok(has_entries)
    }

    /// Sends input, waits until its turn comes, and follows it. Returns the input's entry; `None` if it was removed
    /// from the queue.
    ///
    /// # Errors
    /// Returns the server's error, or why there is no reply.
    pub async fn ask_in_turn(&mut self, input: UserInput) -> Result<Option<EntryId>, ErrorBody> {
        let sent = self.client.send(self.session, &Command::UserInput(input));
        let id = sent.map_err(|error| errors::error_of(error.into()))?;
        let reply = self.client.reply(&id).await.map_err(errors::error_of)?;
        let Reply::Accepted(accepted) = reply else { return Err(errors::of_reply(&reply)) };
        if let (Some(turn), Some(entry)) = (accepted.turn_id, &accepted.entry_id) {
            self.course.follow(turn, Some(entry));
            self.appended(entry).await?;
            // Whatever came before the input is not of its turn.
            while self.course.take().is_some() {}
            return Ok(accepted.entry_id);
        }
        let Some(entry) = self.dequeued(&id).await? else { return Ok(None) };
        let has_begun =
            |now: &Snapshot| now.turn.is_some() || now.last_turn.is_some() || now.leaf_id.as_ref() != Some(&entry);
        self.until(|now| now.entries.get(&entry).is_some() && has_begun(now)).await?;
        self.follow_after(&entry);
        Ok(Some(entry))
    }

    /// Waits until queued input becomes an entry. Returns `None` if it was removed.
    async fn dequeued(&mut self, command: &CommandId) -> Result<Option<EntryId>, ErrorBody> {
        loop {
            match self.client.next().await {
                Update::Event { event: SessionEvent::Durable(_, Event::QueueItemRemoved(removed)), .. }
                    if removed.command_id == *command =>
                {
                    return Ok(removed.entry_id);
                }
                update => self.take(update)?,
            }
        }
    }

    /// Asks once more for the answer to what was said last, and follows it.
    ///
    /// # Errors
    /// Returns `nothing_to_retry`, another error of the server, or why there is no reply.
    pub async fn retry(&mut self) -> Result<(), ErrorBody> {
        let reply = self.request(&Command::RetryTurn(RetryTurn { turn_id: None })).await?;
        let Reply::Accepted(accepted) = reply else { return Err(errors::of_reply(&reply)) };
        let snapshot = self.client.snapshot(self.session).expect("the session was opened");
        if let Some(turn) = accepted.turn_id {
            self.course.follow(turn, snapshot.leaf_id.as_ref());
        }
        Ok(())
    }

    /// Follows what comes after this entry of the path, whether it is running or over.
    pub fn follow_after(&mut self, entry: &EntryId) {
        let snapshot = self.client.snapshot(self.session).expect("the session was opened");
        let rest = snapshot.path.iter().skip_while(|of_path| of_path.entry_id != *entry).skip(1);
        let rest = rest.map(|entry| Entry::clone(entry)).collect();
        self.course.resume(snapshot, entry, rest);
    }
}
