//! A response that is being made: its session, and what was written of it.

use super::{Forget, ids::ResponseId, writer::Writer};
use crate::exchange::{Exchange, Step};
use reseed_protocol::{
    EntryId, ErrorBody,
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
}

impl Running {
    /// Takes the next step of the turn. If calls must be allowed, the response asks for all of them together, and the
    /// turn goes on with the next response.
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
        if let Step::Failed(error) = step {
            return Err(error);
        }
        self.writer.step(step);
        Ok(())
    }

    /// Takes the steps that are known, without waiting.
    pub(super) fn catch_up(&mut self) {
        while let Some(step) = self.exchange.ready() {
            self.writer.step(step);
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
