//! Shows the events of the session.

use super::{
    dialogue::{Asked, Dialogue},
    streamed::{Rest, Streamed},
};
use crate::cli::terminal::clean;
use reseed_client::fold::SUMMARISING_BRANCH;
use reseed_protocol::{
    EntryData, JobId, Role,
    event::{CompactionPrepared, DeltaKind, EntryAppended, EphemeralEvent, Event, ItemDelta, TurnFinished, TurnStatus},
    reply::{Resumed, RunningPart, SessionOpened},
};

impl Dialogue {
    /// Handles an opened session: shows what is new in it.
    pub(super) fn on_opened(&mut self, opened: &SessionOpened) {
        let resumed = opened.resumed.is_some();
        self.opened_once = true;
        self.caught_up_at = opened.as_of_seq;
        self.turn = opened.turn.as_ref().map(|turn| turn.turn_id.clone());
        let (leaving, jobs): (Vec<_>, Vec<_>) =
            opened.compaction.iter().partition(|job| job.phase == SUMMARISING_BRANCH);
        self.jobs = jobs.into_iter().map(|job| job.job_id.clone()).collect();
        self.leaving = leaving.first().map(|job| job.job_id.clone());
        if resumed {
            self.progress("connected again");
        } else {
            self.line(&self.screen.opened(opened));
        }
        if opened.resumed != Some(Resumed::Replay) {
            self.show_snapshot(opened);
        }
        match &opened.held {
            // What was shown before the connection was lost is not shown again.
            Some(held) if self.held.as_ref() == Some(&held.job_id) => {}
            Some(held) => self.on_prepared(held),
            None => self.held = None,
        }
        if !resumed {
            self.forget_questions();
            self.calls.clear();
        }
        self.show_question();
    }

    /// Shows the entries that were not shown yet, and the answers being streamed.
    fn show_snapshot(&mut self, opened: &SessionOpened) {
        let entries = opened.entries.as_deref().unwrap_or_default();
        let seen = entries.iter().position(|entry| Some(&entry.entry_id) == self.last_entry.as_ref());
        for entry in &entries[seen.map_or(0, |at| at + 1)..] {
            if let Some(text) = self.screen.entry(entry) {
                self.line(&text);
            }
            self.last_entry = Some(entry.entry_id.clone());
        }
        self.items.clear();
        for item in opened.turn.iter().flat_map(|turn| &turn.items) {
            self.items.insert(item.item_id.clone(), Streamed::default());
            for (part, content) in (0..).zip(&item.parts) {
                let kind = match content {
                    RunningPart::Text { .. } => None,
                    RunningPart::Reasoning { .. } => Some(DeltaKind::Reasoning),
                    RunningPart::ToolCall { .. } => Some(DeltaKind::Arguments),
                };
                let text = content.text().to_owned();
                self.on_delta(&ItemDelta { item_id: item.item_id.clone(), part, offset: 0, kind, text });
            }
        }
        let info = &opened.context_info;
        if opened.resumed.is_none() && info.transcript_length > 0 {
            self.line(&self.screen.usage(info));
        }
    }

    fn on_prepared(&mut self, prepared: &CompactionPrepared) {
        self.held = Some(prepared.job_id.clone());
        self.line(&self.screen.compaction_prepared(prepared));
    }

    /// Handles the end of a turn.
    pub(super) fn on_turn_finished(&mut self, end: &TurnFinished) {
        if self.turn.as_ref() == Some(&end.turn_id) {
            self.turn = None;
        }
        self.has_failed |= end.status != TurnStatus::Completed;
        self.items.clear();
        self.calls.clear();
        let text = self.screen.turn_finished(end);
        if text.is_empty() { self.end_line() } else { self.line(&text) }
    }

    /// Handles a durable event.
    pub(super) fn on_event(&mut self, event: &Event) {
        match event {
            Event::EntryAppended(appended) => self.on_entry(appended),
            Event::TurnStarted(started) => self.turn = Some(started.turn_id.clone()),
            Event::ContextCompacted(compacted) => {
                self.end_job(&compacted.job_id);
                self.line(&self.screen.compacted(compacted));
            }
            // The error that answers the command says the same.
            Event::CompactionFailed(failed) if self.awaits(failed.command_id.as_ref(), Asked::Go) => {
                self.leaving = None;
            }
            Event::CompactionFailed(failed) => {
                self.leaving = None;
                self.end_job(&failed.job_id);
                self.line(&self.screen.compaction_failed(failed));
            }
            Event::CompactionUndone(undone) => {
                let tokens = undone.context_info.token_count;
                let text = format!("the compaction was taken back; the next request has about {tokens} tokens");
                self.line(&self.screen.note(&text));
            }
            Event::ToolCall(call) => {
                self.progress(&format!("waiting for the tool {}", clean(&call.name)));
            }
            Event::ApprovalRequest(_) => self.show_question(),
            Event::CallResolved(resolved) => self.on_decided(resolved),
            Event::SessionUpdated(updated) => {
                if let Some(leaf) = &updated.leaf_id {
                    self.last_entry.clone_from(leaf);
                    self.leaving = None;
                    let mine = updated.command_id.as_ref().is_some_and(|id| id.as_str().starts_with(&self.prefix));
                    if !mine {
                        let moved = "the session goes on from elsewhere now; /tree shows where";
                        self.line(&self.screen.note(moved));
                    }
                }
                if let Some(pins) = &updated.pins {
                    self.line(&self.screen.pins(pins));
                }
                if let Some(model) = &updated.model {
                    self.line(&self.screen.note(&format!("the model is {model}")));
                }
                if let Some(strategy) = &updated.strategy {
                    self.line(&self.screen.note(&format!("the strategy is {strategy}")));
                }
            }
            // `/queue` shows the queue.
            Event::QueueItemAdded(_)
            | Event::QueueItemRemoved(_)
            | Event::QueueReordered(_)
            | Event::QueueReleased(_)
            | Event::QueueChanged(_) => {}
            Event::TurnFinished(_) | Event::Unknown(_) => {}
        }
    }

    fn on_entry(&mut self, appended: &EntryAppended) {
        let entry = &appended.entry;
        self.last_entry = Some(entry.entry_id.clone());
        let streamed = self.items.remove(&entry.entry_id);
        match &entry.data {
            EntryData::Message(message) if message.role == Role::Assistant => {
                match streamed.unwrap_or_default().finish(message) {
                    Rest::Tail(tail) => self.piece(clean(&tail).into_owned()),
                    Rest::Whole(text) => {
                        self.end_line();
                        self.piece(clean(&text).into_owned());
                    }
                }
                self.end_line();
                self.calls.made(entry, message);
                for part in &message.content {
                    if let Some(call) = self.screen.call(part) {
                        self.line(&call);
                    }
                }
            }
            EntryData::Message(message) if message.role == Role::User => {
                let mine = appended.command_id.as_ref().is_some_and(|id| id.as_str().starts_with(&self.prefix));
                if let Some(text) = self.screen.entry(entry).filter(|_| !mine) {
                    self.line(&text);
                }
            }
            EntryData::Message(message) if message.role == Role::Tool => {
                for line in self.calls.ended(entry, message, self.screen) {
                    self.line(&line);
                }
            }
            // A compaction is shown by its event, which says more.
            EntryData::Compaction(_) => {}
            // Whoever has given a name is told by the reply.
            EntryData::Label(_)
                if appended.command_id.as_ref().is_some_and(|id| id.as_str().starts_with(&self.prefix)) => {}
            _ => {
                if let Some(text) = self.screen.entry(entry) {
                    self.line(&text);
                }
            }
        }
    }

    /// Handles an ephemeral event.
    pub(super) fn on_ephemeral(&mut self, event: &EphemeralEvent) {
        match event {
            EphemeralEvent::RequestDelayed(delayed) => self.line(&self.screen.delayed(delayed)),
            EphemeralEvent::ItemStarted(started) if self.last_entry.as_ref() == Some(&started.item_id) => {}
            EphemeralEvent::ItemStarted(started) => match &started.name {
                // Its arguments come with its entry.
                Some(name) => self.progress(&format!("writing a call of the tool {}", clean(name))),
                None => {
                    self.items.insert(started.item_id.clone(), Streamed::default());
                }
            },
            EphemeralEvent::ItemDelta(delta) => self.on_delta(delta),
            EphemeralEvent::ItemAborted(aborted) => {
                if self.items.remove(&aborted.item_id).is_some_and(|streamed| streamed.was_shown()) {
                    self.end_line();
                    let void = format!("this answer broke off and is not stored ({})", aborted.reason);
                    self.line(&self.screen.warning(&void));
                }
            }
            // The entry that follows shows all of it.
            EphemeralEvent::ItemFinished(_) => {}
            // Only to clients that offer hooks.
            EphemeralEvent::HookCall(_) | EphemeralEvent::HookCancelled(_) => {}
            // Its result, which says so, is an entry.
            EphemeralEvent::ToolCancelled(_) => {}
            EphemeralEvent::HookFailed(failed) => {
                self.end_line();
                self.line(
                    &self.screen.warning(&format!("the hook `{}` failed: {}", failed.hook, failed.error.message)),
                );
            }
            EphemeralEvent::CallProgressed(progressed) => {
                if let Some(message) = &progressed.message {
                    self.progress(message);
                }
            }
            EphemeralEvent::CompactionStarted(started) if self.ended_job.as_ref() == Some(&started.job_id) => {}
            EphemeralEvent::CompactionStarted(started) => {
                self.jobs.insert(started.job_id.clone());
                self.progress("compacting the context");
            }
            EphemeralEvent::CompactionPrepared(prepared) => {
                self.end_job(&prepared.job_id);
                self.on_prepared(prepared);
            }
            EphemeralEvent::ContextWarning(warning) => self.line(&self.screen.warning(&warning.message)),
            // The client reopens the session, or reports its end.
            EphemeralEvent::SessionClosed(_) => {}
            EphemeralEvent::CompactionProgress(progress) => {
                if progress.phase == SUMMARISING_BRANCH && self.leaving.as_ref() != Some(&progress.job_id) {
                    self.leaving = Some(progress.job_id.clone());
                    self.progress("summarising the branch that is left");
                }
            }
            // The end of the turn tells it in a line; a line after every tool would hide the answer.
            EphemeralEvent::ContextUpdated(_)
            | EphemeralEvent::SessionChanged(_)
            | EphemeralEvent::TokenExpiring(_) => {}
            // The terminal hosts no tools, and shows no windows.
            EphemeralEvent::RunTool(_) | EphemeralEvent::HostChanged(_) | EphemeralEvent::PresenceChanged(_) => {}
            EphemeralEvent::Unknown(_) => {}
        }
    }

    fn end_job(&mut self, job_id: &JobId) {
        self.jobs.remove(job_id);
        self.ended_job = Some(job_id.clone());
    }

    fn on_delta(&mut self, delta: &ItemDelta) {
        let Some(piece) = self.items.get_mut(&delta.item_id).and_then(|streamed| streamed.take(delta)) else { return };
        if piece.thought && !self.watched {
            return;
        }
        if piece.breaks {
            self.end_line();
        }
        let text = if piece.thought { self.screen.thought(&piece.text) } else { clean(&piece.text).into_owned() };
        self.piece(text);
    }
}
