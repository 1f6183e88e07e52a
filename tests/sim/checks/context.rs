//! Checks what the model is sent against what follows from the log alone. The rules are restated here independently:
//! the path to the leaf; the newest compaction on it that was not undone puts its summary first, then the kept and
//! pinned entries, then what followed; cleared tool results are shown as a note with their beginning. Patches are
//! applied at their positions, and those for a single request at the end.

use crate::history::{History, What};
use reseed::core::{context::arguments::sent_arguments, session::tree::CLEARED};
use reseed_protocol::{
    CallId, Entry, EntryData, EntryId, Message, Part, Role, SessionId,
    command::Command,
    compaction::Pin,
    context::{ContextMessage, PatchOp},
    event::Event,
    reply::Reply,
    tree::ForkPosition,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// Returns a message with its calls' arguments as requests send them.
fn as_sent(message: &Message) -> Message {
    let mut message = message.clone();
    for part in &mut message.content {
        if let Part::ToolCall { arguments, .. } = part {
            *arguments = sent_arguments(arguments).into_owned();
        }
    }
    message
}

/// A log that returns the context at each of its positions.
pub(super) struct Log<'a> {
    events: &'a [Event],
    entries: BTreeMap<&'a EntryId, (u64, &'a Entry)>,
    /// The state after each event.
    stands: Vec<Stand<'a>>,
}

/// The state of a session, as far as the model's context depends on it.
#[derive(Debug, Clone, Default)]
pub(super) struct Stand<'a> {
    pub(super) leaf: Option<&'a EntryId>,
    model: &'a str,
    marks: Marks<'a>,
}

/// The pins and the undone compactions.
#[derive(Debug, Clone, Default)]
pub(super) struct Marks<'a> {
    pins: &'a [Pin],
    undone: Rc<BTreeSet<&'a EntryId>>,
}

impl Marks<'_> {
    pub(super) fn is_pinned(&self, id: &EntryId) -> bool {
        self.pins.iter().any(|pin| pin.entry_id == *id)
    }

    /// Returns true if an entry is a compaction that was not undone.
    fn compacts(&self, entry: &Entry) -> bool {
        matches!(entry.data, EntryData::Compaction(_)) && !self.undone.contains(&entry.entry_id)
    }
}

/// The model's view.
#[derive(Debug, Default)]
pub(super) struct Seen<'a> {
    /// In order.
    pub(super) entries: Vec<&'a Entry>,
    /// Tool results that show only their beginning.
    pub(super) cleared: BTreeSet<&'a EntryId>,
    /// Messages replaced by hooks.
    edited: BTreeMap<&'a EntryId, &'a Message>,
    /// Patches for single requests since the last entry of another kind.
    ephemeral: Vec<&'a [PatchOp]>,
}

impl<'a> Seen<'a> {
    /// Applies an op to the messages that exist. Messages without an entry are ignored.
    fn apply(&mut self, op: &'a PatchOp) {
        match op {
            PatchOp::MessagesCachedEdit { edits, .. } => {
                for edit in edits {
                    match &edit.message {
                        Some(message) => drop(self.edited.insert(&edit.entry_id, message)),
                        None => self.entries.retain(|entry| entry.entry_id != edit.entry_id),
                    }
                }
            }
            PatchOp::MessagesCachedReplace { messages, .. } => {
                let before = std::mem::take(&mut self.entries);
                for item in messages {
                    let Some(id) = &item.entry_id else { continue };
                    let Some(entry) = before.iter().find(|entry| entry.entry_id == *id) else { continue };
                    self.entries.push(*entry);
                    self.edited.extend(item.message.as_ref().map(|message| (id, message)));
                }
            }
            PatchOp::CompactionApply { first_kept_entry_id, kept_entry_ids, .. } => {
                let first = first_kept_entry_id.as_ref();
                let from = self.entries.iter().position(|entry| Some(&entry.entry_id) == first);
                let from = from.unwrap_or(self.entries.len());
                let tail = self.entries.split_off(from);
                self.entries.retain(|entry| kept_entry_ids.contains(&entry.entry_id));
                self.entries.extend(tail);
            }
            _ => {}
        }
    }
}

/// Returns true if an op changes messages that a compaction keeps.
fn settles(op: &PatchOp) -> bool {
    matches!(op, PatchOp::MessagesCachedEdit { .. } | PatchOp::MessagesCachedReplace { .. })
}

impl<'a> Log<'a> {
    pub(super) fn read(events: &'a [Event]) -> Self {
        let mut entries = BTreeMap::new();
        let mut stand = Stand::default();
        let mut stands = vec![stand.clone()];
        for (seq, event) in (1..).zip(events) {
            match event {
                Event::EntryAppended(appended) => {
                    entries.insert(&appended.entry.entry_id, (seq, &appended.entry));
                    stand.leaf = Some(&appended.entry.entry_id);
                }
                Event::SessionUpdated(updated) => {
                    stand.leaf = updated.leaf_id.as_ref().map_or(stand.leaf, Option::as_ref);
                    stand.model = updated.model.as_deref().unwrap_or(stand.model);
                    stand.marks.pins = updated.pins.as_deref().unwrap_or(stand.marks.pins);
                }
                Event::CompactionUndone(undone) => {
                    Rc::make_mut(&mut stand.marks.undone).insert(&undone.entry_id);
                }
                _ => {}
            }
            stands.push(stand.clone());
        }
        Self { events, entries, stands }
    }

    /// Returns the state after this many events.
    pub(super) fn stand(&self, seq: u64) -> &Stand<'a> {
        &self.stands[place(seq)]
    }

    /// Returns true if the next event may change the marks.
    fn is_marked_at(&self, seq: u64) -> bool {
        match self.events.get(place(seq)) {
            Some(Event::SessionUpdated(updated)) => updated.pins.is_some(),
            Some(Event::CompactionUndone(_)) => true,
            _ => false,
        }
    }

    /// Returns the marks after this many events.
    pub(super) fn marks(&self, seq: u64) -> &Marks<'a> {
        &self.stand(seq).marks
    }

    /// Returns what the model sees after this many events.
    pub(super) fn seen(&self, seq: u64) -> Seen<'a> {
        self.seen_from(self.stand(seq).leaf, seq, self.marks(seq))
    }

    /// Returns what the model would see from this entry on, with these marks.
    fn seen_from(&self, leaf: Option<&'a EntryId>, seq: u64, marks: &Marks<'a>) -> Seen<'a> {
        let mut path: Vec<&Entry> = Vec::new();
        let mut next = leaf;
        while let Some((at, entry)) = next.and_then(|id| self.entries.get(id)).filter(|(at, _)| *at <= seq) {
            assert!(*at <= seq && path.len() <= self.events.len(), "a path goes back in time");
            path.push(entry);
            next = entry.parent_id.as_ref();
        }
        path.reverse();
        let newest = path.iter().rposition(|entry| marks.compacts(entry));
        let mut seen = Seen::default();
        let mut after = 0;
        if let Some(newest) = newest
            && let EntryData::Compaction(compaction) = &path[newest].data
        {
            seen.entries.push(path[newest]);
            seen.cleared.extend(&compaction.cleared_entry_ids);
            let first_kept = compaction.first_kept_entry_id.as_ref();
            let from = path[..newest].iter().position(|entry| Some(&entry.entry_id) == first_kept).unwrap_or(newest);
            // If patches had changed messages, a pinned entry that was replaced does not come back in its original
            // form.
            let settled = compaction.carried_patch.iter().any(settles);
            let kept = |entry: &&&Entry| {
                compaction.kept_entry_ids.contains(&entry.entry_id) || !settled && marks.is_pinned(&entry.entry_id)
            };
            let older = path[..from].iter().filter(kept);
            let said = |entry: &&&Entry| !matches!(entry.data, EntryData::Compaction(_));
            seen.entries.extend(older.chain(&path[from..newest]).filter(said));
            seen.entries.retain(|entry| is_sent(entry) && !marks.undone.contains(&entry.entry_id));
            compaction.carried_patch.iter().for_each(|op| seen.apply(op));
            after = newest + 1;
        }
        for entry in &path[after..] {
            match &entry.data {
                EntryData::ContextTransform(kept) => {
                    kept.known().into_iter().flat_map(|transform| &transform.patch).for_each(|op| seen.apply(op));
                }
                EntryData::Ephemeral(kept) => seen.ephemeral.extend(kept.known().map(|change| &change.patch[..])),
                _ if is_sent(entry) && !marks.undone.contains(&entry.entry_id) => seen.entries.push(entry),
                _ => {}
            }
            if !matches!(entry.data, EntryData::Ephemeral(_)) {
                seen.ephemeral.clear();
            }
        }
        seen
    }

    /// Compares messages with what follows from the log after this many events, and returns the difference. Of patches
    /// for single requests the newest applies: an earlier request may have failed.
    fn compare(&self, seq: u64, messages: &[&ContextMessage]) -> Result<(), String> {
        let newest = self.seen(seq).ephemeral.len();
        let mut compared = self.compare_with(seq, messages, newest);
        for count in (0..newest).rev() {
            compared = compared.or_else(|_| self.compare_with(seq, messages, count));
        }
        compared
    }

    /// Like [`Self::compare`], with this many of the newest patches for single requests.
    fn compare_with(&self, seq: u64, messages: &[&ContextMessage], newest: usize) -> Result<(), String> {
        let mut seen = self.seen(seq);
        let ephemeral = std::mem::take(&mut seen.ephemeral);
        ephemeral[ephemeral.len() - newest..].iter().copied().flatten().for_each(|op| seen.apply(op));
        let Seen { entries: mut seen, cleared, edited, ephemeral: _ } = seen;
        let mut sent: Vec<&ContextMessage> =
            messages.iter().copied().filter(|message| message.entry_id.is_some()).collect();
        // The results of one answer's calls come in log order, or in the order of the calls if one has no result.
        let is_result =
            |entry: &&Entry| matches!(&entry.data, EntryData::Message(message) if message.role == Role::Tool);
        for results in seen.chunk_by_mut(|a, b| is_result(a) && is_result(b)) {
            results.sort_by_key(|entry| &entry.entry_id);
        }
        for results in sent.chunk_by_mut(|a, b| a.message.role == Role::Tool && b.message.role == Role::Tool) {
            results.sort_by_key(|message| &message.entry_id);
        }
        let want: Vec<&EntryId> = seen.iter().map(|entry| &entry.entry_id).collect();
        let have: Vec<&EntryId> = sent.iter().filter_map(|message| message.entry_id.as_ref()).collect();
        if want != have {
            let lacking = seen.iter().find(|entry| !have.contains(&&entry.entry_id));
            let pins = self.marks(seq).pins;
            return Err(format!(
                "the log after {seq} says {want:?}, the request {have:?}; lacking is {lacking:?}, pinned is {pins:?}"
            ));
        }
        for (entry, sent) in seen.iter().zip(&sent) {
            let same = match &entry.data {
                _ if edited.contains_key(&entry.entry_id) => {
                    let edited = edited[&entry.entry_id];
                    edited.role == sent.message.role && edited.content == sent.message.content
                }
                EntryData::Message(message) if message.role == Role::Tool && cleared.contains(&entry.entry_id) => {
                    is_cleared(message, &sent.message)
                }
                EntryData::Message(message) => as_sent(message) == *sent.message,
                EntryData::Compaction(compaction) => {
                    sent.message.role == Role::User && holds(&sent.message, &compaction.summary)
                }
                EntryData::CustomMessage(custom) => {
                    sent.message.role == Role::User && sent.message.content == custom.content
                }
                EntryData::BranchSummary(branch) => holds(&sent.message, &branch.summary),
                _ => true,
            };
            if !same {
                let (id, was, sent) = (&entry.entry_id, &entry.data, &sent.message);
                return Err(format!(
                    "entry `{id}` is sent otherwise than the log after {seq} has it: {sent:?}, not {was:?}"
                ));
            }
        }
        paired(messages)
    }
}

/// Returns true if a message contains this summary. Text that would end it early is escaped.
fn holds(message: &Message, summary: &str) -> bool {
    message.text().replace("<\\", "<").contains(summary.trim())
}

/// Returns true if this is a tool result replaced by a note and its beginning.
fn is_cleared(was: &Message, sent: &Message) -> bool {
    let same = |(was, sent): (&Part, &Part)| match (was, sent) {
        (
            Part::ToolResult { call_id, output, is_error },
            Part::ToolResult { call_id: sent_id, output: sent, is_error: sent_error },
        ) => {
            let shown = sent.strip_prefix(CLEARED).and_then(|rest| rest.trim_start().strip_suffix('…'));
            let right =
                shown.is_some_and(|shown| output.trim_start().starts_with(shown) && shown.chars().count() <= 160);
            call_id == sent_id && is_error == sent_error && right
        }
        (was, sent) => was == sent,
    };
    was.content.len() == sent.content.len() && was.content.iter().zip(&sent.content).all(same)
}

fn place(seq: u64) -> usize {
    usize::try_from(seq).unwrap_or(usize::MAX)
}

/// Returns true if an entry is sent to the model.
fn is_sent(entry: &Entry) -> bool {
    match &entry.data {
        EntryData::Message(_) | EntryData::CustomMessage(_) => true,
        EntryData::Compaction(compaction) => !compaction.summary.is_empty(),
        EntryData::BranchSummary(branch) => !branch.summary.is_empty(),
        _ => false,
    }
}

/// Every call is followed by its result, and there is no result without a call.
fn paired(messages: &[&ContextMessage]) -> Result<(), String> {
    let mut open: BTreeSet<&CallId> = BTreeSet::new();
    let mut told: BTreeSet<&CallId> = BTreeSet::new();
    let spoken: Vec<&Message> = messages.iter().map(|message| &*message.message).collect();
    for message in spoken {
        if message.role != Role::Tool && !open.is_empty() {
            return Err(format!("calls without results: {open:?}"));
        }
        for part in &message.content {
            match part {
                Part::ToolCall { call_id, .. } if !told.insert(call_id) => {
                    return Err(format!("call `{call_id}` twice"));
                }
                Part::ToolCall { call_id, .. } => drop(open.insert(call_id)),
                Part::ToolResult { call_id, .. } if !open.remove(call_id) => {
                    return Err(format!("a result without its call `{call_id}`"));
                }
                _ => {}
            }
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("calls without results at the end: {open:?}")) }
}

/// Returns true for events that change neither what the model sees nor the model: they may be written between the
/// moment when a request is built and the moment when it is sent.
fn is_beside(event: &Event) -> bool {
    match event {
        // A compaction that is given up changes nothing: a change of model gives up the running one.
        Event::CompactionFailed(_)
        | Event::QueueItemAdded(_)
        | Event::QueueItemRemoved(_)
        | Event::QueueReordered(_)
        | Event::QueueReleased(_) => true,
        Event::EntryAppended(appended) => !is_sent(&appended.entry),
        Event::SessionUpdated(updated) => updated.leaf_id.is_none() && updated.generation.is_none(),
        _ => false,
    }
}

/// Returns the entries that the model would see in the end.
pub(crate) fn seen_in_the_end(events: &[Event]) -> Vec<EntryId> {
    let seen = Log::read(events).seen(events.len() as u64);
    seen.entries.iter().map(|entry| entry.entry_id.clone()).collect()
}

/// Each request is exactly what the log said when it was made, to the model in the log: exactly the old or exactly the
/// new context around every compaction, navigation and change.
pub(crate) fn requests_are_what_the_log_says(history: &History) -> Result<(), String> {
    let log = Log::read(&history.events);
    for asked in history.asked.iter().filter(|asked| asked.is_turn()) {
        let messages: Vec<&ContextMessage> = asked.request.messages().collect();
        let mut seq = asked.as_of.min(history.events.len() as u64);
        let first = log.compare(seq, &messages);
        let mut found = first.is_ok() && log.stand(seq).model == asked.request.model;
        while !found && seq > 0 && is_beside(&history.events[place(seq) - 1]) {
            seq -= 1;
            found = log.compare(seq, &messages).is_ok() && log.stand(seq).model == asked.request.model;
        }
        if !found {
            let why = first.err().unwrap_or_else(|| format!("it asks model {}", asked.request.model));
            return Err(format!("the request of server {} as of {}: {why}", asked.node, asked.as_of));
        }
    }
    Ok(())
}

/// Checks that every report of the next request is exactly what the log said at some earlier moment.
pub(crate) fn reports_are_what_the_log_says(history: &History) -> Result<(), String> {
    let log = Log::read(&history.events);
    for given in &history.given {
        let What::Reply(id, reply) = &given.what else { continue };
        let Reply::Context(context) = &**reply else { continue };
        let Some(envelope) = &context.envelope else { continue };
        let messages: Vec<&ContextMessage> =
            envelope.messages.cached.iter().chain(&envelope.messages.uncached).collect();
        let latest = given.durable.min(history.events.len() as u64);
        // A call without a result yet is shown with a placeholder, so only entries are compared.
        let known = (0..=latest).rev().any(|seq| log.compare(seq, &messages).is_ok());
        if !known {
            let why = log.compare(latest, &messages).err().unwrap_or_default();
            return Err(format!("client {} is told a context under `{id}` that never was: {why}", given.client));
        }
    }
    Ok(())
}

/// An acknowledged fork is listed once, and the model sees in it what it saw at the forked entry; an unacknowledged one
/// is listed at most once.
pub(crate) fn forks_are_whole(history: &History) -> Result<(), String> {
    let log = Log::read(&history.events);
    let latest = history.events.len() as u64;
    let asked: BTreeMap<_, _> = history
        .sent
        .iter()
        .filter_map(|sent| match &sent.command {
            Command::ForkSession(fork) => Some((&sent.id, fork)),
            _ => None,
        })
        .collect();
    let mut made: BTreeSet<&SessionId> = BTreeSet::new();
    for given in &history.given {
        let What::Reply(id, reply) = &given.what else { continue };
        let (Reply::Forked(forked), Some(fork)) = (&**reply, asked.get(id)) else { continue };
        if !made.insert(&forked.session_id) {
            continue;
        }
        let Some(events) = history.forks.get(&forked.session_id) else {
            return Err(format!("`{id}` was acknowledged, and its fork `{}` is not listed", forked.session_id));
        };
        let Some((_, entry)) = log.entries.get(&fork.entry_id) else {
            return Err(format!("`{id}` was made at `{}`, which is not there", fork.entry_id));
        };
        let end = match fork.position {
            ForkPosition::At => Some(&entry.entry_id),
            ForkPosition::Before => entry.parent_id.as_ref(),
        };
        let copy = Log::read(events);
        let told = |entry: &&Entry| (entry.entry_id.to_string(), format!("{:?}", entry.timestamp));
        let want =
            |marked| -> Vec<_> { log.seen_from(end, latest, log.marks(marked)).entries.iter().map(told).collect() };
        let have: Vec<_> = copy.seen(events.len() as u64).entries.iter().map(told).collect();
        // Made at some moment, with the pins and undone compactions at that time.
        let right = want(latest) == have || (0..latest).any(|marked| log.is_marked_at(marked) && want(marked) == have);
        if !right {
            return Err(format!("the fork of `{id}` says {have:?}, its source {:?}", want(latest)));
        }
    }
    match history.forks.len() {
        listed if listed <= asked.len() => Ok(()),
        listed => Err(format!("{listed} forks are listed, {} were asked for", asked.len())),
    }
}
