//! Compactions as a person decides about them: looking at one first, taking one back, pins, and the strategy.

use super::{
    dialogue::{Asked, Dialogue},
    screen::{Screen, number, rung},
};
use crate::cli::terminal::clean;
use reseed_protocol::{
    command::{Command, PinEntry, PreviewCompaction, SetContextStrategy, StartCompaction, UndoCompaction},
    event::FailedRung,
    reply::{CompactionPreview, Pin, Stretch},
};

impl Dialogue {
    pub(super) fn preview(&mut self, instructions: Option<String>) {
        self.progress("making the summary; nothing changes yet");
        let preview = PreviewCompaction { instructions, ..PreviewCompaction::default() };
        self.ask(Asked::Other, Command::PreviewCompaction(preview));
    }

    /// A preview is made: it is what `/apply` applies.
    pub(super) fn on_preview(&mut self, preview: &CompactionPreview) {
        self.previewed = Some(preview.preview_id.clone());
        self.line(&self.screen.preview(preview));
    }

    pub(super) fn apply(&mut self) {
        match self.previewed.take() {
            Some(preview_id) => {
                let compact = StartCompaction { preview_id: Some(preview_id), ..StartCompaction::default() };
                self.ask(Asked::Other, Command::StartCompaction(compact));
            }
            None => self.line(&self.screen.warning("there is nothing to apply; /preview shows a compaction first")),
        }
    }

    pub(super) fn undo(&mut self) {
        self.ask(Asked::Undo, Command::UndoCompaction(UndoCompaction::default()));
    }

    pub(super) fn pin(&mut self, which: &str, pinned: bool) {
        let Some(entry_id) = self.entry(which) else { return };
        let pin = PinEntry { entry_id };
        self.ask(Asked::Other, if pinned { Command::PinEntry(pin) } else { Command::UnpinEntry(pin) });
    }

    pub(super) fn strategy(&mut self, strategy: String) {
        self.ask(Asked::Other, Command::SetContextStrategy(SetContextStrategy { strategy, settings: None }));
    }
}

impl Screen {
    /// What a compaction would do.
    fn preview(self, preview: &CompactionPreview) -> String {
        let mut lines = Vec::new();
        if !preview.summary.is_empty() {
            lines.push(clean(&preview.summary).into_owned());
        }
        let stretch = |stretch: &Stretch| format!("{} messages of {} tokens", stretch.count, number(stretch.tokens));
        let mut told = vec![
            format!("drops {}, keeps {}", stretch(&preview.dropped), stretch(&preview.kept)),
            format!("{} tokens now, {} then", number(preview.tokens_before), number(preview.tokens_after)),
            rung(preview.rung).to_owned(),
        ];
        if !preview.cleared_entry_ids.is_empty() {
            told.push(format!("{} tool results cleared", preview.cleared_entry_ids.len()));
        }
        told.extend(how(&preview.failed_rungs));
        lines.push(self.note(&told.join("; ")));
        lines.push(self.note("nothing is changed; /apply does it"));
        lines.join("\n")
    }

    /// The entries that every compaction keeps.
    pub(super) fn pins(self, pins: &[Pin]) -> String {
        let ids: Vec<&str> = pins.iter().filter(|pin| pin.with.is_none()).map(|pin| pin.entry_id.as_str()).collect();
        match ids.as_slice() {
            [] => self.note("nothing is pinned"),
            ids => self.note(&format!("pinned: {}", ids.join(", "))),
        }
    }
}

/// What did not do before.
pub(super) fn how(failed: &[FailedRung]) -> impl Iterator<Item = String> {
    failed.iter().map(|failed| format!("not {} ({})", rung(failed.rung), clean(&failed.reason)))
}
