//! A response that is being made: its session, and what was written of it.

use super::{Forget, create::stored_in, ids::ResponseId, items::Calls, resource::Resource, writer::Writer};
use crate::exchange::{Exchange, Step, joins_input, steer_of};
use reseed_protocol::{
    Entry, EntryId, ErrorBody,
    command::{Command, Empty},
};
use std::time::Duration;
use tokio::time::timeout;

/// A response that is being made.
pub(super) struct Running {
    pub(super) exchange: Exchange,
    pub(super) writer: Writer,
    pub(super) id: ResponseId,
    /// Deletes the session, if it was created for this response and is not stored.
    pub(super) forget: Option<Forget>,
    /// The entry of words that were added to this response. The response to them follows it.
    successor: Option<Box<Entry>>,
    /// The ids of words that were said, or taken out of the queue.
    pub(super) told: Vec<(String, bool)>,
}

impl Running {
    pub(super) fn new(exchange: Exchange, writer: Writer, id: ResponseId, forget: Option<Forget>) -> Self {
        Self { exchange, writer, id, forget, successor: None, told: Vec::new() }
    }

    /// Takes the next step of the turn. If calls must be allowed, the response asks for all of them together, and the
    /// turn goes on with the next response. Words that were added to the response end it, and begin the next.
    ///
    /// # Errors
    /// Why the turn can no longer be followed. It may go on.
    pub(super) async fn step(&mut self) -> Result<(), ErrorBody> {
        if !self.writer.is_asking() {
            let step = self.exchange.next().await;
            self.write(step)?;
        }
        if self.writer.is_asking() {
            // What was stored together with the first is known once a later command is answered.
            self.exchange.request(&Command::GetContextInfo(Empty {})).await?;
            while !self.writer.is_over()
                && let Ok(step) = timeout(Duration::ZERO, self.exchange.next()).await
            {
                self.write(step)?;
            }
            self.writer.ends_without_answer();
        }
        Ok(())
    }

    fn write(&mut self, step: Step) -> Result<(), ErrorBody> {
        match step {
            Step::Failed(error) => return Err(error),
            Step::Unsaid(id) => self.told.push((id, false)),
            Step::Entry(entry) if steer_of(&entry).is_some() && stored_in(&entry).is_some() => {
                self.told.extend(steer_of(&entry).map(|id| (id.to_owned(), true)));
                if !(joins_input(&entry) && self.writer.is_empty()) {
                    self.writer.ends_for_words();
                    self.successor = Some(entry);
                }
            }
            step => self.writer.step(step),
        }
        Ok(())
    }

    /// Goes on with the response to the words that were added to this one, if they were said.
    pub(super) fn succeed(&mut self) -> bool {
        let Some(entry) = self.successor.take() else { return false };
        let Some(stored) = stored_in(&entry) else { return false };
        self.id = ResponseId { entry: entry.entry_id.clone(), ..self.id.clone() };
        let resource = Resource {
            id: self.id.clone(),
            created_at: entry.timestamp,
            model: self.exchange.snapshot().model.clone(),
            stored,
            output: Vec::new(),
            usage: None,
            ended: None,
        };
        self.writer = Writer::new(resource, None);
        // Its turn may have begun with the response before it.
        self.writer.goes_on(Calls::new());
        true
    }

    /// Takes the steps that are known, without waiting.
    pub(super) fn catch_up(&mut self) {
        while !self.writer.is_over()
            && let Some(step) = self.exchange.ready()
        {
            // A turn that cannot be followed is shown as one that was interrupted.
            if let Err(error) = self.write(step) {
                self.writer.step(Step::Failed(error));
            }
        }
        if self.writer.is_asking() {
            self.writer.ends_without_answer();
        }
    }

    /// Returns the last entry of the response so far.
    ///
    /// # Errors
    /// Why the session cannot be read.
    pub(super) async fn last_entry(&mut self) -> Result<EntryId, ErrorBody> {
        let answer = self.exchange.answer_to(&self.id.entry, &self.writer.names().joined()).await?;
        Ok(answer.last().map_or(&self.id.entry, |entry| &entry.entry_id).clone())
    }
}
