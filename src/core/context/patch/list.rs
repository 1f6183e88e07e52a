//! The list of messages that ops modify.
//!
//! A message that a patch added has no entry. It stays or is removed together with the next entry; a tool result
//! without an entry, together with the previous one. The same holds for a message that a replacement moved, because
//! compactions cut along the path, and its position says nothing about its entry's position there.

use super::counted::{CountedMessage, MessageItem, MessageOp};
use crate::context::messages::{Counted, GoesWith, Kind};
use reseed_protocol::{EntryId, Role};
use std::collections::{HashMap, HashSet, VecDeque};

/// The fate of an entry's message when older ones are replaced by a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Removed: the summary covers it.
    Gone,
    /// Kept individually, before the tail.
    Beside,
    /// Kept in the tail.
    Tail,
}

/// Maps an undone compaction to the entries that it stood for.
pub(crate) type StandFor = HashMap<EntryId, HashSet<EntryId>>;

/// Messages in order, with an index built on first use.
#[derive(Debug, Clone, Default)]
pub(crate) struct List {
    messages: Vec<Counted>,
    places: Option<HashMap<EntryId, usize>>,
    /// Indexes of removed messages that are still in the list.
    out: HashSet<usize>,
}

impl List {
    pub(crate) fn of(messages: Vec<Counted>) -> Self {
        Self { messages, ..Self::default() }
    }

    pub(crate) fn push(&mut self, counted: Counted) {
        if let (Some(places), Some(id)) = (&mut self.places, counted.shown_id()) {
            places.insert(id.clone(), self.messages.len());
        }
        self.messages.push(counted);
    }

    /// Returns the messages without the removed ones.
    pub(crate) fn settled(&mut self) -> &[Counted] {
        self.settle();
        &self.messages
    }

    pub(crate) fn into_messages(mut self) -> Vec<Counted> {
        self.settle();
        self.messages
    }

    fn settle(&mut self) {
        if self.out.is_empty() {
            return;
        }
        let out = std::mem::take(&mut self.out);
        let mut at = 0;
        self.messages.retain(|_| {
            at += 1;
            !out.contains(&(at - 1))
        });
        self.places = None;
    }

    fn set(&mut self, messages: Vec<Counted>) {
        *self = Self::of(messages);
    }

    /// Returns the index of an entry's message.
    pub(crate) fn place(&mut self, id: &EntryId) -> Option<usize> {
        let messages = &self.messages;
        let places = self.places.get_or_insert_with(|| {
            let ids = messages.iter().enumerate().filter_map(|(at, counted)| Some((counted.shown_id()?.clone(), at)));
            ids.collect()
        });
        places.get(id).copied().filter(|at| !self.out.contains(at))
    }

    pub(crate) fn at(&self, place: usize) -> &Counted {
        &self.messages[place]
    }

    /// Applies an op, ignoring entries that are not here.
    pub(crate) fn apply(&mut self, op: &MessageOp, stand_for: &StandFor) {
        match op {
            MessageOp::Replace(items) => self.replace(items, stand_for),
            MessageOp::Edit(items) => self.edit(items),
            MessageOp::Compact { summary, first_kept, kept } => {
                let kept: HashSet<&EntryId> = kept.iter().collect();
                self.settle();
                let first = first_kept.as_ref().and_then(|first| self.place(first)).unwrap_or(usize::MAX);
                let tail = self.messages.iter().skip(first).filter_map(|counted| counted.entry_id.clone());
                let tail: HashSet<EntryId> = tail.collect();
                let summary = summary.as_ref().map(|said| Counted { kind: Kind::Summary, ..said.inserted() });
                self.compact(summary, |id| match () {
                    () if tail.contains(id) => Fate::Tail,
                    () if kept.contains(id) => Fate::Beside,
                    () => Fate::Gone,
                });
            }
            // This op is not about messages that a provider can cache.
            MessageOp::Append(_) => {}
        }
    }

    fn edit(&mut self, items: &[MessageItem]) {
        for MessageItem { entry_id, said } in items {
            let Some(at) = entry_id.as_ref().and_then(|id| self.place(id)) else { continue };
            match said {
                Some(said) => self.messages[at] = said.instead_of(&self.messages[at]),
                None => {
                    let results = self.messages[at + 1..].iter();
                    let results = results.take_while(|after| after.goes_with() == GoesWith::Before).count();
                    self.out.extend(at..=at + results);
                }
            }
        }
    }

    fn replace(&mut self, items: &[MessageItem], stand_for: &StandFor) {
        let named: HashSet<&EntryId> = items.iter().filter_map(|item| item.entry_id.as_ref()).collect();
        self.settle();
        let places: Vec<Option<usize>> =
            items.iter().map(|item| item.entry_id.as_ref().and_then(|id| self.place(id))).collect();
        // A message that was moved before no longer has a position of its own.
        let own = |place: &Option<usize>| place.filter(|at| self.messages[*at].entry_id.is_some());
        let mut in_order = longest_rise(&places.iter().map(own).collect::<Vec<_>>()).into_iter().peekable();
        let mut next = Replacement::default();
        for (item, MessageItem { entry_id, said }) in items.iter().enumerate() {
            let Some(id) = entry_id else {
                next.inserted(said.iter().map(CountedMessage::inserted));
                continue;
            };
            match (places[item], stand_for.get(id)) {
                (Some(at), _) => {
                    let counted = &self.messages[at];
                    let counted = said.as_ref().map_or_else(|| counted.clone(), |said| said.instead_of(counted));
                    if in_order.next_if_eq(&item).is_some() {
                        next.kept(at, counted);
                    } else {
                        next.inserted(std::iter::once(counted.moved()));
                    }
                }
                (None, Some(others)) => {
                    let stays = |counted: &Counted| match &counted.entry_id {
                        Some(id) if others.contains(id) && !named.contains(id) => Fate::Tail,
                        _ => Fate::Gone,
                    };
                    let messages = self.settled();
                    let fates = fates(messages, stays);
                    let stays = messages.iter().cloned().enumerate().zip(fates);
                    next.stood_for(stays.filter(|(_, fate)| *fate != Fate::Gone).map(|(placed, _)| placed));
                }
                (None, None) => next.gone(),
            }
        }
        self.set(next.finish());
    }

    /// Inserts a summary before the messages that stay, and removes the others. An older summary is merged into the new
    /// one.
    pub(crate) fn compact(&mut self, summary: Option<Counted>, fate: impl Fn(&EntryId) -> Fate) {
        self.settle();
        let messages = std::mem::take(&mut self.messages);
        let fate = |counted: &Counted| match &counted.entry_id {
            Some(id) if counted.kind != Kind::Summary => fate(id),
            _ => Fate::Gone,
        };
        let stays = part(messages, fate).map(|(counted, fate)| {
            let kind = if fate == Fate::Beside { Kind::Beside } else { Kind::Kept };
            Counted { kind, ..counted }
        });
        self.set(summary.into_iter().chain(stays).collect());
    }
}

/// Returns the longest list of items with ascending indexes. These stay in place when a replacement lists entries in a
/// different order, so that the fewest messages move.
fn longest_rise(places: &[Option<usize>]) -> Vec<usize> {
    let place = |item: usize| places[item].unwrap_or_default();
    // For each length, the item with the lowest index that ends such a list.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = vec![None; places.len()];
    for item in (0..places.len()).filter(|item| places[*item].is_some()) {
        let length = ends.partition_point(|end| place(*end) < place(item));
        before[item] = length.checked_sub(1).map(|shorter| ends[shorter]);
        if length == ends.len() {
            ends.push(item);
        } else if place(item) < place(ends[length]) {
            ends[length] = item;
        }
    }
    let mut rise: Vec<usize> = std::iter::successors(ends.last().copied(), |item| before[*item]).collect();
    rise.reverse();
    rise
}

/// Returns the fate of every message, given the fates of messages with entries.
pub(crate) fn fates(messages: &[Counted], fate: impl Fn(&Counted) -> Fate) -> Vec<Fate> {
    let mut fates = vec![Fate::Gone; messages.len()];
    let mut last = Fate::Gone;
    let mut waiting: Option<usize> = None;
    for (at, counted) in messages.iter().enumerate() {
        match counted.goes_with() {
            GoesWith::Before if waiting.is_none() => fates[at] = last,
            GoesWith::Before | GoesWith::Next => {
                waiting.get_or_insert(at);
            }
            GoesWith::Itself => {
                last = fate(counted);
                fates[waiting.take().unwrap_or(at)..=at].fill(last);
            }
        }
    }
    if let Some(from) = waiting {
        fates[from..].fill(last);
    }
    fates
}

/// Returns the messages that stay, with their fates, given the fates of messages with entries.
pub(crate) fn part(messages: Vec<Counted>, fate: impl Fn(&Counted) -> Fate) -> impl Iterator<Item = (Counted, Fate)> {
    let fates = fates(&messages, fate);
    messages.into_iter().zip(fates).filter(|(_, fate)| *fate != Fate::Gone)
}

/// A replacement in progress.
#[derive(Default)]
struct Replacement {
    messages: Vec<Counted>,
    /// Added messages whose following entry is not known yet.
    waiting: Vec<Counted>,
    /// The messages that an entry represented, with their former indexes. Each precedes the same message as before.
    queued: VecDeque<(usize, Counted)>,
    /// True if the previous entry does not exist here.
    is_gone: bool,
}

impl Replacement {
    fn inserted(&mut self, messages: impl Iterator<Item = Counted>) {
        for counted in messages {
            if counted.message.role != Role::Tool || !self.waiting.is_empty() {
                self.waiting.push(counted);
            } else if !self.is_gone {
                let kind = self.kind_behind();
                self.messages.push(Counted { kind, ..counted });
            }
        }
    }

    /// Takes an entry's message, formerly at this index.
    fn kept(&mut self, at: usize, counted: Counted) {
        self.flush_before(at);
        let kind = beside(counted.kind);
        self.messages.extend(self.waiting.drain(..).map(|waiting| Counted { kind, ..waiting }));
        self.messages.push(counted);
        self.is_gone = false;
    }

    /// Takes the messages that one entry represented, with their former indexes.
    fn stood_for(&mut self, messages: impl Iterator<Item = (usize, Counted)>) {
        let mut messages = messages.peekable();
        if let Some((first, counted)) = messages.peek() {
            let (first, kind) = (*first, beside(counted.kind));
            self.queued.extend(self.waiting.drain(..).map(|waiting| (first, Counted { kind, ..waiting })));
        }
        self.queued.extend(messages);
        self.queued.make_contiguous().sort_by_key(|(at, _)| *at);
        self.is_gone = false;
    }

    fn gone(&mut self) {
        self.waiting.clear();
        self.is_gone = true;
    }

    fn flush_before(&mut self, place: usize) {
        while let Some((_, counted)) = self.queued.pop_front_if(|(at, _)| *at < place) {
            self.messages.push(counted);
        }
    }

    fn kind_behind(&self) -> Kind {
        self.messages.last().map_or(Kind::Recent, |last| beside(last.kind))
    }

    fn finish(mut self) -> Vec<Counted> {
        self.flush_before(usize::MAX);
        let kind = self.kind_behind();
        self.messages.extend(self.waiting.into_iter().map(|counted| Counted { kind, ..counted }));
        self.messages
    }
}

/// Returns the kind of a message added next to one of this kind: never a summary.
fn beside(kind: Kind) -> Kind {
    if kind == Kind::Summary { Kind::Kept } else { kind }
}
