//! What the model is sent, compared with what follows from the log alone. The rules are written down here once more, from
//! DESIGN: the path to the leaf; the newest compaction on it puts its summary first, then what it keeps, then what followed.

use crate::history::{History, What};
use reseed_protocol::{
    CallId, Entry, EntryData, EntryId, Message, Part, Role, SessionId,
    command::{Command, ForkPosition},
    context::ContextMessage,
    event::Event,
    reply::Reply,
};
use std::collections::{BTreeMap, BTreeSet};

/// A log, so that it can be asked what the context was at each of its places.
struct Log<'a> {
    events: &'a [Event],
    entries: BTreeMap<&'a EntryId, (u64, &'a Entry)>,
    /// The leaf and the model after so many events.
    stands: Vec<(Option<&'a EntryId>, &'a str)>,
}

impl<'a> Log<'a> {
    fn read(events: &'a [Event]) -> Self {
        let mut entries = BTreeMap::new();
        let (mut leaf, mut model): (Option<&EntryId>, &str) = (None, "");
        let mut stands = vec![(leaf, model)];
        for (seq, event) in (1..).zip(events) {
            match event {
                Event::EntryAppended(appended) => {
                    entries.insert(&appended.entry.entry_id, (seq, &appended.entry));
                    leaf = Some(&appended.entry.entry_id);
                }
                Event::SessionUpdated(updated) => {
                    leaf = updated.leaf_id.as_ref().map_or(leaf, Option::as_ref);
                    model = updated.model.as_deref().unwrap_or(model);
                }
                _ => {}
            }
            stands.push((leaf, model));
        }
        Self { events, entries, stands }
    }

    /// The entries that the model sees after so many events, in order.
    fn seen(&self, seq: u64) -> Vec<&'a Entry> {
        self.seen_from(self.stands[place(seq)].0, seq)
    }

    /// The entries that the model would see from this one on.
    fn seen_from(&self, leaf: Option<&'a EntryId>, seq: u64) -> Vec<&'a Entry> {
        let mut path: Vec<&Entry> = Vec::new();
        let mut next = leaf;
        while let Some((at, entry)) = next.and_then(|id| self.entries.get(id)).filter(|(at, _)| *at <= seq) {
            assert!(*at <= seq && path.len() <= self.events.len(), "a path goes back in time");
            path.push(entry);
            next = entry.parent_id.as_ref();
        }
        path.reverse();
        let newest = path.iter().rposition(|entry| matches!(entry.data, EntryData::Compaction(_)));
        let mut seen: Vec<&Entry> = Vec::new();
        let mut after = 0;
        if let Some(newest) = newest
            && let EntryData::Compaction(compaction) = &path[newest].data
        {
            seen.push(path[newest]);
            let first_kept = compaction.first_kept_entry_id.as_ref();
            let from = path[..newest].iter().position(|entry| Some(&entry.entry_id) == first_kept).unwrap_or(newest);
            let kept = |entry: &&&Entry| compaction.kept_entry_ids.contains(&entry.entry_id);
            let older = path[..from].iter().filter(kept);
            let said = |entry: &&&Entry| !matches!(entry.data, EntryData::Compaction(_));
            seen.extend(older.chain(&path[from..newest]).filter(said));
            after = newest + 1;
        }
        seen.extend(&path[after..]);
        seen.retain(|entry| is_sent(entry));
        seen
    }

    /// Whether these messages are what follows from the log after so many events; what differs otherwise.
    fn compare(&self, seq: u64, messages: &[&ContextMessage]) -> Result<(), String> {
        let mut seen = self.seen(seq);
        let mut sent: Vec<&ContextMessage> =
            messages.iter().copied().filter(|message| message.entry_id.is_some()).collect();
        // The results of one answer's calls come in the order of the log, or in that of the calls where one has no result.
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
            return Err(format!("the log after {seq} says {want:?}, the request {have:?}"));
        }
        for (entry, sent) in seen.iter().zip(&sent) {
            let same = match &entry.data {
                EntryData::Message(message) => *message == *sent.message,
                EntryData::Compaction(compaction) => {
                    sent.message.role == Role::User && sent.message.text().contains(compaction.summary.trim())
                }
                EntryData::CustomMessage(custom) => {
                    sent.message.role == Role::User && sent.message.content == custom.content
                }
                EntryData::BranchSummary(branch) => sent.message.text().contains(branch.summary.trim()),
                _ => true,
            };
            if !same {
                return Err(format!("entry `{}` is sent otherwise than the log after {seq} has it", entry.entry_id));
            }
        }
        paired(messages)
    }
}

fn place(seq: u64) -> usize {
    usize::try_from(seq).unwrap_or(usize::MAX)
}

/// Whether an entry is something that a model is sent.
fn is_sent(entry: &Entry) -> bool {
    match &entry.data {
        EntryData::Message(_) | EntryData::CustomMessage(_) | EntryData::Compaction(_) => true,
        EntryData::BranchSummary(branch) => !branch.summary.is_empty(),
        _ => false,
    }
}

/// Every call has its result right behind it, and there is no result without a call.
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

/// Events that change neither what the model sees nor which model: they may be written between the moment in which a
/// request is made and the moment in which it is asked.
fn is_beside(event: &Event) -> bool {
    match event {
        Event::QueueChanged(_) => true,
        Event::EntryAppended(appended) => !is_sent(&appended.entry),
        Event::SessionUpdated(updated) => updated.leaf_id.is_none() && updated.generation.is_none(),
        _ => false,
    }
}

/// Each request is exactly what the log said when it was made, to the model that the log said: exactly the old context or
/// exactly the new one around every compaction, navigation and change.
pub(crate) fn requests_are_what_the_log_says(history: &History) -> Result<(), String> {
    let log = Log::read(&history.events);
    for asked in history.asked.iter().filter(|asked| asked.is_turn()) {
        let messages: Vec<&ContextMessage> = asked.request.messages().collect();
        let mut seq = asked.as_of.min(history.events.len() as u64);
        let first = log.compare(seq, &messages);
        let mut found = first.is_ok() && log.stands[place(seq)].1 == asked.request.model;
        while !found && seq > 0 && is_beside(&history.events[place(seq) - 1]) {
            seq -= 1;
            found = log.compare(seq, &messages).is_ok() && log.stands[place(seq)].1 == asked.request.model;
        }
        if !found {
            let why = first.err().unwrap_or_else(|| format!("it asks model {}", asked.request.model));
            return Err(format!("the request of server {} as of {}: {why}", asked.node, asked.as_of));
        }
    }
    Ok(())
}

/// What a client is told of the next request is exactly what the log said at some moment up to then.
pub(crate) fn reports_are_what_the_log_says(history: &History) -> Result<(), String> {
    let log = Log::read(&history.events);
    for given in &history.given {
        let What::Reply(id, reply) = &given.what else { continue };
        let Reply::Context(context) = &**reply else { continue };
        let Some(envelope) = &context.envelope else { continue };
        let messages: Vec<&ContextMessage> =
            envelope.messages.cached.iter().chain(&envelope.messages.uncached).collect();
        let latest = given.durable.min(history.events.len() as u64);
        // A call whose result is not there yet is told with a note in its place, so only entries are compared.
        let known = (0..=latest).rev().any(|seq| log.compare(seq, &messages).is_ok());
        if !known {
            let why = log.compare(latest, &messages).err().unwrap_or_default();
            return Err(format!("client {} is told a context under `{id}` that never was: {why}", given.client));
        }
    }
    Ok(())
}

/// A fork that was acknowledged is listed, once, and the model sees in it what it saw at the entry where it was made; one that
/// was not is listed once at most.
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
        let want: Vec<_> = log.seen_from(end, latest).iter().map(told).collect();
        let have: Vec<_> = copy.seen(events.len() as u64).iter().map(told).collect();
        if want != have {
            return Err(format!("the fork of `{id}` says {have:?}, its source {want:?}"));
        }
    }
    match history.forks.len() {
        listed if listed <= asked.len() => Ok(()),
        listed => Err(format!("{listed} forks are listed, {} were asked for", asked.len())),
    }
}
