//! Checks of what clients receive, and of their final state.

use crate::{
    history::{History, What},
    streamed::Streamed,
    view::{View, difference},
};
use reseed_protocol::{
    CallId, EntryData,
    event::{EphemeralEvent, Event},
};
use std::collections::{BTreeMap, BTreeSet};

/// Events are persisted before they are published.
pub(crate) fn published_after_written(history: &History) -> Result<(), String> {
    for given in &history.given {
        if let What::Durable { seq, .. } = given.what
            && seq > given.durable
        {
            return Err(format!("client {} is given {seq} when {} are on the disk", given.client, given.durable));
        }
    }
    Ok(())
}

/// Each client receives every event after its position, once, in order; after a replay it continues where it was.
pub(crate) fn events_have_no_gap(history: &History) -> Result<(), String> {
    let mut last: BTreeMap<usize, u64> = BTreeMap::new();
    for given in &history.given {
        let client = given.client;
        let last = last.entry(client).or_default();
        match given.what {
            What::Opened { from, replay: true, .. } if from != *last => {
                return Err(format!("client {client} had seen {last} and goes on after {from}"));
            }
            What::Opened { from, .. } => *last = from,
            What::Durable { seq, .. } if seq != *last + 1 => {
                return Err(format!("client {client} is given {seq} after {last}"));
            }
            What::Durable { seq, .. } => *last = seq,
            _ => {}
        }
    }
    Ok(())
}

/// An event is the same for everyone, at all times.
pub(crate) fn given_what_the_log_says(history: &History) -> Result<(), String> {
    for given in &history.given {
        let What::Durable { seq, body } = &given.what else { continue };
        let stored = usize::try_from(*seq).ok().and_then(|seq| history.log.get(seq.checked_sub(1)?));
        if stored.is_none_or(|stored| stored.body != *body) {
            return Err(format!("client {} was given another event {seq} than the log has", given.client));
        }
    }
    Ok(())
}

/// One host is asked to run a call, which the log has; the same client is asked again once it is back.
pub(crate) fn tools_run_once(history: &History) -> Result<(), String> {
    let mut runs: BTreeMap<&CallId, usize> = BTreeMap::new();
    for given in &history.given {
        let What::Run(run) = &given.what else { continue };
        let (call_id, client) = (&run.tool_call_id, given.client);
        match runs.get(call_id) {
            // The first request was on its way to a connection that broke.
            None => drop(runs.insert(call_id, client)),
            Some(other) if *other != client => {
                return Err(format!("client {client} is asked to run `{call_id}`, and client {other} was"));
            }
            Some(_) if !run.again => return Err(format!("client {client} is asked twice to run `{call_id}`")),
            Some(_) => {}
        }
        let is_call = |event: &Event| matches!(event, Event::ToolCall(call) if call.call_id == *call_id);
        if !history.events.iter().any(is_call) {
            return Err(format!("client {client} is asked to run `{call_id}`, which the log does not have"));
        }
    }
    Ok(())
}

/// Text continues where it ended, across any number of connections, and is a prefix of its entry.
pub(crate) fn streams_go_on(history: &History) -> Result<(), String> {
    let mut streams: BTreeMap<usize, Option<Streamed>> = BTreeMap::new();
    for given in &history.given {
        let client = given.client;
        let stream = streams.entry(client).or_default();
        match &given.what {
            What::Opened { replay: false, state, .. } => stream.clone_from(&state.streamed),
            What::Ephemeral(EphemeralEvent::ItemStarted(started)) => {
                match stream.as_mut().and_then(|stream| stream.started(started)) {
                    Some(outcome) => outcome.map_err(|why| format!("client {client} is given {why}"))?,
                    None => *stream = Some(Streamed::new(started.item_id.clone())),
                }
            }
            What::Ephemeral(EphemeralEvent::ItemDelta(delta)) => {
                let Some(stream) = stream else {
                    return Err(format!("client {client} is given text of `{}` without its beginning", delta.item_id));
                };
                stream.delta(delta).map_err(|why| format!("client {client} is given {why}"))?;
            }
            What::Ephemeral(EphemeralEvent::ItemFinished(finished)) => {
                let Some(stream) = stream else {
                    return Err(format!("client {client} is given the end of `{}` alone", finished.item_id));
                };
                stream.finished(finished).map_err(|why| format!("client {client} is given {why}"))?;
            }
            What::Ephemeral(EphemeralEvent::ItemAborted(aborted)) => {
                stream.take_if(|stream| stream.item == aborted.item_id);
            }
            What::Durable { seq, .. } => {
                let event = usize::try_from(*seq).ok().and_then(|seq| history.events.get(seq.checked_sub(1)?));
                match event {
                    Some(Event::EntryAppended(appended)) => {
                        let id = &appended.entry.entry_id;
                        let Some(shown) = stream.take_if(|stream| stream.item == *id) else { continue };
                        let EntryData::Message(message) = &appended.entry.data else { continue };
                        if !shown.is_beginning_of(message) {
                            return Err(format!("client {client} was shown {shown:?}, and the entry says {message:?}"));
                        }
                    }
                    Some(Event::TurnFinished(_)) => *stream = None,
                    _ => {}
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// A client that was disconnected, however often, ends in exactly the state of one that never was, which is the log's.
pub(crate) fn end_alike(history: &History) -> Result<(), String> {
    let Some(undisturbed) = history.views.first() else { return Err("nobody was there".to_owned()) };
    let folded = View::of(&undisturbed.epoch, &history.events);
    let known: BTreeSet<_> = folded.entries.keys().collect();
    for (client, view) in history.views.iter().enumerate() {
        let stranger = view.entries.iter().find(|(id, entry)| folded.entries.get(*id) != Some(*entry));
        if let Some((id, _)) = stranger {
            let why = if known.contains(id) { "otherwise in" } else { "not in" };
            return Err(format!("client {client} knows an entry `{id}` that is {why} the log"));
        }
        for (other, name) in [(&folded, "the log"), (undisturbed, "the undisturbed client")] {
            if let Some(difference) = difference(view, other) {
                return Err(format!("client {client} ends otherwise than {name}: {difference}"));
            }
        }
    }
    Ok(())
}
