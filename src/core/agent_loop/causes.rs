//! Causes: why a request does not start like the previous one. The ledger notes each event that may change the start,
//! as it is appended. When the prompt sends a request, it uses these causes to explain the difference.

use crate::{
    context::{area::Area, envelope::BASE_PART, node::Node, patch::StoredPatch, prefix::Divergence},
    session::{
        SessionState,
        state::{Unseen, UnseenChange},
    },
};
use reseed_protocol::{EntryData, context::PatchOp, event::Event, receipt::BreakReason, tree::Kept};
use std::sync::Arc;

/// Maximum causes remembered between two requests: more than are ever needed. The bound keeps a client that makes many
/// changes without asking the model from filling memory.
const CAUSES_MAX: usize = 32;

/// An event that can change how the next request starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The context was compacted.
    Compaction,
    /// A compaction was undone.
    CompactionUndone,
    /// The session moved to another point of its tree.
    Navigation,
    /// The pinned entries changed.
    Pins,
    /// The offered tools changed.
    Tools,
    /// The instructions changed: a hook's, for one turn, or the session's.
    Instructions(Option<String>),
    /// This strategy was selected.
    Strategy(String),
    /// A patch changed something.
    Patch {
        /// The changed area.
        area: Area,
        /// Name of the transformer that made it.
        transformer: String,
        /// The reason that it gave.
        reason: String,
        /// True if it was for one request only.
        once: bool,
    },
    /// A change for one request only has ended.
    Past(Area),
    /// The session was read from the store. The deployment's instructions and the client's tools may have changed
    /// unnoticed.
    Restart,
}

/// The causes noted since the last request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Causes {
    noted: Vec<Cause>,
}

impl Causes {
    /// Reconstructs the causes of a session read from the store: those that its path shows after the newest answer, and
    /// the changes that no entry shows.
    #[must_use]
    pub(crate) fn read(path: &[Arc<Node>], unseen: &[UnseenChange]) -> Self {
        let mut this = Self::default();
        this.add(Cause::Restart);
        for change in unseen {
            this.add(match &change.what {
                Unseen::Pins => Cause::Pins,
                Unseen::Strategy(name) => Cause::Strategy(name.clone()),
                Unseen::Navigation => Cause::Navigation,
            });
        }
        let is_answer = |node: &Arc<Node>| node.entry.message().is_some_and(|said| said.receipt.is_some());
        let answered = path.iter().rposition(is_answer);
        if path.iter().any(|node| node.undone) {
            this.add(Cause::CompactionUndone);
        }
        if let Some(answered) = answered {
            // Changes made only for that answer's request have ended.
            let before = path[..answered].iter().rposition(is_answer).map_or(0, |at| at + 1);
            let mut then = Self::default();
            path[before..answered].iter().for_each(|node| then.entry(&node.entry.data));
            this.follow(then.past());
        }
        for node in &path[answered.map_or(0, |at| at + 1)..] {
            match (&node.entry.data, &node.patch) {
                // Its ops are stored beside the entry, already counted.
                (EntryData::ContextTransform(kept), Some(patch)) => {
                    if let Kept::Known(transform) = &**kept {
                        this.stored(&transform.transformer_name, patch);
                    }
                }
                (data, _) if !node.undone => this.entry(data),
                _ => {}
            }
        }
        this
    }

    /// Notes an event of the log. Must be called before the session applies it.
    pub(crate) fn note(&mut self, event: &Event, before: &SessionState) {
        match event {
            Event::EntryAppended(appended) => {
                if appended.entry.parent_id != before.leaf {
                    self.add(Cause::Navigation);
                }
                self.entry(&appended.entry.data);
            }
            Event::CompactionUndone(_) => self.add(Cause::CompactionUndone),
            Event::SessionUpdated(updated) => {
                if updated.leaf_id.as_ref().is_some_and(|leaf| *leaf != before.leaf) {
                    self.add(Cause::Navigation);
                }
                if updated.pins.is_some() {
                    self.add(Cause::Pins);
                }
                if let Some(strategy) = updated.strategy.as_ref().filter(|strategy| **strategy != before.strategy) {
                    self.add(Cause::Strategy(strategy.clone()));
                }
                let settings = updated.settings.as_ref();
                if settings.is_some_and(|settings| settings.instructions != before.settings.instructions) {
                    self.add(Cause::Instructions(None));
                }
            }
            _ => {}
        }
    }

    fn entry(&mut self, data: &EntryData) {
        match data {
            EntryData::Compaction(_) => self.add(Cause::Compaction),
            EntryData::ContextTransform(kept) => {
                if let Kept::Known(transform) = &**kept {
                    self.patch(&transform.transformer_name, &transform.patch, false);
                }
            }
            EntryData::Ephemeral(kept) => {
                if let Kept::Known(change) = &**kept {
                    self.patch(&change.transformer_name, &change.patch, true);
                }
            }
            _ => {}
        }
    }

    /// Notes a patch that was read from the store.
    fn stored(&mut self, transformer: &str, patch: &StoredPatch) {
        self.patch(transformer, &patch.others, false);
        if let Some(reason) = &patch.messages_reason {
            let (transformer, reason) = (transformer.to_owned(), reason.trim().to_owned());
            self.add(Cause::Patch { area: Area::Messages, transformer, reason, once: false });
        }
    }

    /// Notes a patch, either permanent or for the next request only.
    pub(crate) fn patch(&mut self, transformer: &str, patch: &[PatchOp], once: bool) {
        for op in patch {
            let Some(area) = Area::of(op) else { continue };
            let reason = op.invalidate_cache_reason().unwrap_or_default().trim().to_owned();
            self.add(Cause::Patch { area, transformer: transformer.to_owned(), reason, once });
        }
    }

    /// Notes a cause; if an equal cause exists, only the newer one is kept.
    pub(crate) fn add(&mut self, cause: Cause) {
        self.noted.retain(|noted| *noted != cause);
        if self.noted.len() == CAUSES_MAX {
            self.noted.remove(0);
        }
        // An opened session always has one.
        self.noted.reserve_exact(usize::from(self.noted.is_empty()));
        self.noted.push(cause);
    }

    /// Returns true if no request was sent since the session was read.
    #[must_use]
    pub(crate) fn is_restart(&self) -> bool {
        self.noted.contains(&Cause::Restart)
    }

    /// Returns the causes that remain after a request was sent: only that changes for this single request have ended.
    #[must_use]
    pub(crate) fn past(self) -> Self {
        let past = |cause: Cause| match cause {
            Cause::Patch { area, once: true, .. } => Some(Cause::Past(area)),
            _ => None,
        };
        Self { noted: self.noted.into_iter().filter_map(past).collect() }
    }

    /// Inserts earlier causes before these.
    pub(crate) fn follow(&mut self, earlier: Self) {
        let later = std::mem::replace(self, earlier);
        later.noted.into_iter().for_each(|cause| self.add(cause));
    }

    /// Returns why two requests diverge at `place`, with details. `model` is the model of the earlier one.
    #[must_use]
    pub(crate) fn of(&self, place: &Divergence, model: &str) -> (BreakReason, Option<String>) {
        match place {
            Divergence::Model => return (BreakReason::Model, Some(model.to_owned())),
            Divergence::Uncached => return (BreakReason::Uncached, None),
            Divergence::Tools | Divergence::System(_) | Divergence::Message(_) => {}
        }
        // The cause that changes most wins; among equals, the newest.
        let fitting = self.noted.iter().rev().filter_map(|cause| cause.fits(place));
        fitting.min_by_key(|fit| fit.rank).map_or((BreakReason::Unknown, None), |fit| (fit.reason, fit.detail))
    }
}

/// A cause that explains the divergence.
struct Fit {
    /// The lowest rank wins.
    rank: u8,
    reason: BreakReason,
    detail: Option<String>,
}

impl Cause {
    fn fits(&self, place: &Divergence) -> Option<Fit> {
        let fit = |rank, reason| Some(Fit { rank, reason, detail: None });
        let on_messages = matches!(place, Divergence::Message(_));
        match self {
            Self::Patch { area, transformer, reason, .. } if area.holds(place) => {
                let detail = Some(format!("{transformer}: {reason}"));
                Some(Fit { rank: if on_messages { 3 } else { 0 }, reason: BreakReason::Patch, detail })
            }
            Self::Compaction if on_messages => fit(0, BreakReason::Compaction),
            Self::CompactionUndone if on_messages => fit(1, BreakReason::CompactionUndone),
            // Another branch has its own patches, including those of tools and instructions.
            Self::Navigation => fit(2, BreakReason::Navigation),
            Self::Tools if *place == Divergence::Tools => fit(1, BreakReason::Tools),
            Self::Instructions(hook) if place.is_base() => {
                Some(Fit { rank: 1, reason: BreakReason::Instructions, detail: hook.clone() })
            }
            Self::Past(area) if area.holds(place) => fit(4, BreakReason::Uncached),
            Self::Pins if on_messages => fit(5, BreakReason::Pins),
            Self::Strategy(name) if on_messages => {
                Some(Fit { rank: 6, reason: BreakReason::Strategy, detail: Some(name.clone()) })
            }
            Self::Restart if *place == Divergence::Tools => fit(7, BreakReason::Tools),
            Self::Restart if place.is_base() => fit(7, BreakReason::Instructions),
            // A compaction carries the patches before it; so does undoing one.
            Self::Compaction => fit(8, BreakReason::Compaction),
            Self::CompactionUndone => fit(8, BreakReason::CompactionUndone),
            _ => None,
        }
    }
}

impl Divergence {
    /// Returns true if the session's or the deployment's instructions are here.
    fn is_base(&self) -> bool {
        matches!(self, Self::System(name) if name == BASE_PART)
    }
}

#[cfg(test)]
mod tests;
