//! Writes the new session: what every session starts with, the path, the labels of its entries, and its name.

use super::{
    CopyOf, ORIGIN_MARK, PIECE_ENTRIES_MAX, check_awaited,
    source::{ForkSource, Path},
};
use crate::{
    core::session::{
        SessionState,
        fork::{PathCopy, fork_name, marks_mention, marks_of, mentions},
    },
    runtime::{
        errors::store_error, labels::newest_labels, load::stored_state, outbox::Outbox, registry::Registry,
        stored_calibration::StoredCalibration, whole,
    },
    store::{Append, CommandMark, EntryColumns, EntryQuery, Head, Lease, NewRecord, UNFINISHED},
};
use reseed_protocol::{
    Entry, ErrorBody, compaction::CompactionUndone, event::Event, session::SessionUpdated, tree::EntryAppended,
};
use serde::Serialize;
use std::sync::Arc;

/// Maximum bytes of entries that are loaded to count the next request. This exceeds the text of most windows.
const COUNTED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The new session while it is being written.
pub(super) struct Copy<'a> {
    source: &'a ForkSource<'a>,
    registry: &'a Registry,
    pub(super) lease: Lease,
    pub(super) next_seq: u64,
    state: SessionState,
    pub(super) head: Head,
    chain: PathCopy,
    /// What the source's counter has learned, so that the copy counts as the source does.
    calibration: Option<StoredCalibration>,
}

impl<'a> Copy<'a> {
    /// Writes what every session starts with, copied from the source.
    pub(super) async fn begin(
        registry: &'a Registry,
        source: &'a ForkSource<'a>,
        lease: Lease,
        copy_of: CopyOf,
        of: &SessionState,
        calibration: Option<StoredCalibration>,
    ) -> Result<Self, ErrorBody> {
        let head = Head { created_at: UNFINISHED, updated_at: UNFINISHED, ..Head::default() };
        let (next_seq, state, chain) = (lease.next_seq, SessionState::default(), PathCopy::default());
        let mut this = Self { source, registry, lease, next_seq, state, head, chain, calibration };
        let founding = SessionUpdated {
            model: Some(of.model.clone()),
            strategy: Some(of.strategy.clone()),
            settings: Some(of.settings.clone()),
            generation: Some(1),
            ..SessionUpdated::default()
        };
        let reply = json(&copy_of);
        let mark = CommandMark { command_id: ORIGIN_MARK.to_owned(), fingerprint: 0, reply };
        this.append(vec![Event::SessionUpdated(Box::new(founding))], vec![mark]).await?;
        Ok(this)
    }

    /// Copies the path while the client waits.
    pub(super) async fn path(&mut self, path: &Path, outgoing: &Outbox) -> Result<(), ErrorBody> {
        for (from, limit) in path.pieces.iter().rev() {
            self.registry.check_running()?;
            check_awaited(outgoing)?;
            let piece = self.source.read(EntryQuery::Path { from: from.clone(), limit: *limit }).await?;
            let mut events = Vec::with_capacity(piece.len());
            for (_, entry, _) in piece.into_iter().rev() {
                let there = self.source.on_path(path, mentions(&entry)).await?;
                events.extend(self.chain.take(entry, &there).map(appended));
            }
            let cut = events.iter().filter_map(shown_cut).collect::<Vec<Entry>>();
            self.append(events, Vec::new()).await?;
            for mut entry in cut {
                // One at a time, because each may be as large as a frame.
                let restored = whole::restore(&**self.registry.store(), self.source.id, &mut entry).await;
                restored.map_err(|error| store_error(&error))?;
                if let Some(mark) = whole::take(&mut entry) {
                    self.write(Vec::new(), vec![mark]).await?;
                }
            }
        }
        Ok(())
    }

    /// Copies the labels that entries of the path received on other branches. An entry's newest label applies, so these
    /// labels come after the path.
    pub(super) async fn labels(&mut self, path: &Path) -> Result<(), ErrorBody> {
        let newest = newest_labels(&**self.registry.store(), self.source.id, |_| true).await;
        let newest = newest.map_err(|error| store_error(&error))?;
        let mut events = Vec::new();
        for (target, label) in newest {
            let there = self.source.on_path(path, vec![target.clone(), label.entry_id.clone()]).await?;
            if there.contains(&target) && !there.contains(&label.entry_id) {
                events.extend(self.chain.take_label(label).map(appended));
            }
            if events.len() >= PIECE_ENTRIES_MAX as usize {
                self.append(std::mem::take(&mut events), Vec::new()).await?;
            }
        }
        self.append(events, Vec::new()).await
    }

    /// Writes the name, pins and undone compactions, and what lists show. If the next request is too large to be
    /// counted here, lists show the source's count until the first turn. Undone compactions need a count in any case.
    pub(super) async fn end(&mut self, path: &Path, of: &SessionState, source: &Head) -> Result<(), ErrorBody> {
        let there = self.source.on_path(path, marks_mention(of)).await?;
        let (pins, undone) = marks_of(of, &there);
        let name = Some(fork_name(&of.name)).filter(|name| *name != self.state.name);
        let pins = Some(pins).filter(|pins| !pins.is_empty());
        if name.is_some() || pins.is_some() {
            let updated = SessionUpdated { name, pins, ..SessionUpdated::default() };
            self.append(vec![Event::SessionUpdated(Box::new(updated))], Vec::new()).await?;
        }
        if path.visible_bytes > COUNTED_BYTES_MAX && undone.is_empty() {
            self.head.token_count = source.token_count;
            self.head.window_tokens = source.window_tokens;
            return Ok(());
        }
        let mut head = self.registry.store().head(&self.lease.session).await.map_err(|error| store_error(&error))?;
        head.head.state = Some(stored_state(
            &SessionState { undone: undone.clone(), ..self.state.clone() },
            self.calibration.as_ref(),
        ));
        let info = self.registry.snapshot_of(&head).await?.context_info;
        self.head.token_count = info.token_count;
        self.head.window_tokens = info.max_tokens;
        let undo = |entry_id| {
            let (generation, context_info) = (self.state.generation, info.clone());
            let undone = CompactionUndone { entry_id, command_id: None, generation, context_info };
            Event::CompactionUndone(Box::new(undone))
        };
        let events = undone.into_iter().map(undo).collect();
        self.append(events, Vec::new()).await
    }

    async fn append(&mut self, events: Vec<Event>, marks: Vec<CommandMark>) -> Result<(), ErrorBody> {
        if events.is_empty() {
            return Ok(());
        }
        events.iter().for_each(|event| self.state.apply(event));
        self.head.name.clone_from(&self.state.name);
        self.head.entries = self.state.entries;
        self.head.state = Some(stored_state(&self.state, self.calibration.as_ref()));
        self.write(events.iter().map(record).collect(), marks).await
    }

    async fn write(&mut self, records: Vec<NewRecord>, marks: Vec<CommandMark>) -> Result<(), ErrorBody> {
        let (first_seq, count) = (self.next_seq, records.len() as u64);
        let append = Append { records, marks, usage: Vec::new(), head: self.head.clone() };
        let written = self.registry.store().append(&self.lease, first_seq, append).await;
        written.map_err(|error| store_error(&error))?;
        self.next_seq += count;
        Ok(())
    }
}

/// Returns the entry of a truncated tool result.
fn shown_cut(event: &Event) -> Option<Entry> {
    match event {
        Event::EntryAppended(appended) => {
            let is_cut = appended.entry.message().is_some_and(|message| message.cut.is_some());
            is_cut.then(|| appended.entry.clone())
        }
        _ => None,
    }
}

/// Returns the event that copies an entry. The turn and the command that wrote it belong to the source's log.
fn appended(entry: Entry) -> Event {
    Event::EntryAppended(Box::new(EntryAppended { entry, turn_id: None, command_id: None }))
}

fn record(event: &Event) -> NewRecord {
    NewRecord { body: json(event), entry: EntryColumns::of(event) }
}

fn json<T: Serialize>(value: &T) -> Arc<str> {
    serde_json::to_string(value).expect("wire types have text keys and finite numbers").into()
}
