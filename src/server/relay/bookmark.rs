//! A client's place in a session that another node holds: what is needed to open the session there once more, so that
//! its events go on where they stopped.
//!
//! It follows what is passed on to the client. The durable events are counted by their envelopes. Only the small frames
//! of the answer being streamed are read, for the position in each of its parts.

use super::peek::Peek;
use reseed_protocol::{
    CommandId, ConnectionId, SessionId,
    command::{Command, OpenSession, Resume, ResumeItem, SessionRole},
    content::utf16_len,
    event::{EphemeralEvent, Host, HostChanged, Participant, PresenceChanged},
    frame::{encode_command, encode_event},
    reply::{Resumed, RunningPart, RunningTurn},
};
use serde::Deserialize;
use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

/// Positions in items that are kept: as many as a session can be resumed from.
const PLACES_MAX: usize = 256;

/// Items that are kept. One answer is streamed at a time; the others have ended, and their entries are still to come.
const ITEMS_MAX: usize = 4;

/// Phases of compactions on the wire.
const SUMMARISING_BRANCH: &str = "summarising_branch";
const ORDERED: &str = "ordered";

/// A client's place in a session.
#[derive(Debug, PartialEq)]
pub(super) struct Bookmark {
    epoch: String,
    role: SessionRole,
    deltas: bool,
    /// The last durable event that was passed on.
    seq: u64,
    items: Vec<Item>,
    /// The host that the client knows.
    host: Option<Host>,
    /// The connections that it knows: at most as many as a session tells.
    presence: Vec<Known>,
    /// The compaction that it knows to be running, and the one that waits.
    compacts: Option<String>,
    holds: Option<String>,
    /// Why the session cannot be opened again without the client, if so.
    hindrance: Option<&'static str>,
    /// True once events come over another link than the one before.
    goes_on: bool,
}

/// A connection that the client knows. Each client of a session knows all of them, so little is kept of each.
#[derive(Debug, PartialEq)]
struct Known {
    connection_id: ConnectionId,
    role: SessionRole,
    /// Tells its states apart.
    digest: u64,
}

/// An item that is being streamed.
#[derive(Debug, PartialEq)]
struct Item {
    id: String,
    parts: Vec<Place>,
    /// All of it was passed on, and its entry follows.
    is_whole: bool,
}

/// A place in a part of an item.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Place {
    /// UTF-16 code units.
    offset: u64,
    /// The client knows that this part is a tool call.
    has_started: bool,
    /// It knows that this tool call is complete.
    has_finished: bool,
}

/// Says what becomes of an event on its way to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    On,
    /// The client has it.
    Again,
    /// One before it is missing.
    Gap,
}

/// Holds what is read of `session_opened`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Opened {
    epoch: String,
    role: SessionRole,
    as_of_seq: u64,
    resumed: Option<Resumed>,
    host: Option<Host>,
    #[serde(default)]
    presence: Vec<Participant>,
    turn: Option<RunningTurn>,
    compaction: Option<Job>,
    held: Option<Job>,
}

/// A compaction.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Job {
    job_id: String,
    phase: Option<String>,
}

/// A frame of which only the payload counts.
#[derive(Debug, Deserialize)]
struct Payload<T> {
    payload: T,
}

/// Holds what is read of an event about an item.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Streamed<'a> {
    #[serde(borrow)]
    item_id: Cow<'a, str>,
    part: Option<u32>,
    #[serde(default)]
    offset: u64,
    #[serde(borrow, default)]
    text: Cow<'a, str>,
}

fn opened(frame: &str) -> Option<Opened> {
    serde_json::from_str::<Payload<Opened>>(frame).ok().map(|frame| frame.payload)
}

impl Bookmark {
    /// Begins with the holder's answer to the client's `open_session`. `me` is the client's connection. `None`: the
    /// answer cannot be read, because a newer version has written it.
    pub(super) fn at(open: &OpenSession, answer: &str, me: &ConnectionId) -> Option<Self> {
        let Opened { epoch, role, as_of_seq, resumed, host, presence, turn, compaction, held } = opened(answer)?;
        let (mut seq, mut items) = (as_of_seq, Vec::new());
        match (&open.resume, resumed) {
            (Some(resume), Some(Resumed::Replay)) => {
                seq = resume.seq;
                for ResumeItem { item_id, part, offset } in resume.items.iter().flatten() {
                    let place = Place { offset: *offset, has_started: *offset > 0, has_finished: false };
                    *place_in(item_in(&mut items, item_id.as_str())?, *part)? = place;
                }
            }
            _ => {
                for item in turn.into_iter().flat_map(|turn| turn.items) {
                    let parts = item.parts.iter().map(Place::behind).collect();
                    items.push(Item { id: item.item_id.as_str().to_owned(), parts, is_whole: false });
                }
            }
        }
        let offers = open.tools.as_ref().is_some_and(|tools| !tools.is_empty())
            || open.hooks.as_ref().is_some_and(|hooks| !hooks.is_empty())
            || host.as_ref().is_some_and(|host| host.connection_id == *me);
        let deltas = open.deltas.unwrap_or(true);
        let (compacts, holds) = (compaction.map(|job| job.job_id), held.map(|job| job.job_id));
        let (hindrance, goes_on) = (None, false);
        let presence = presence.iter().map(Known::from).collect();
        let mut bookmark =
            Self { epoch, role, deltas, seq, items, host, presence, compacts, holds, hindrance, goes_on };
        if offers {
            bookmark.offers();
        }
        Some(bookmark)
    }

    /// Records that the client offers tools or hooks. A call that was on its way to it may be lost, and opening the
    /// session again is how it learns of that.
    pub(super) fn offers(&mut self) {
        self.hindrance = Some("its client offers tools or hooks");
    }

    /// Returns why the session cannot be opened again without the client, if so.
    pub(super) fn hindrance(&self) -> Option<&'static str> {
        let places: usize = self.items.iter().map(|item| item.parts.len().max(1)).sum();
        self.hindrance.or((places > PLACES_MAX).then_some("its answer has too many parts"))
    }

    /// Takes an event that the holder has sent.
    pub(super) fn passes(&mut self, peek: &Peek<'_>, frame: &str) -> Pass {
        let kind = peek.kind.as_deref().unwrap_or_default();
        if let Some(seq) = peek.seq {
            if seq <= self.seq {
                return Pass::Again;
            }
            if self.goes_on && seq > self.seq + 1 {
                return Pass::Gap;
            }
            self.seq = seq;
            match kind {
                "entry_appended" => self.items.retain(|item| !item.is_whole),
                "turn_finished" => self.items.clear(),
                _ => {}
            }
            return Pass::On;
        }
        match kind {
            "item_started" | "item_delta" | "item_finished" | "item_aborted" => {
                let Ok(Payload { payload }) = serde_json::from_str::<Payload<Streamed<'_>>>(frame) else {
                    self.hindrance = Some("an event of its answer cannot be read");
                    return Pass::On;
                };
                self.streamed(kind, &payload).unwrap_or_else(|| {
                    self.hindrance = Some("its answer has too many parts");
                    Pass::On
                })
            }
            "host_changed" => {
                match serde_json::from_str::<Payload<HostChanged>>(frame) {
                    Ok(Payload { payload }) => self.host = payload.host,
                    Err(_) => self.hindrance = Some("its host cannot be read"),
                }
                Pass::On
            }
            "presence_changed" => {
                match serde_json::from_str::<Payload<PresenceChanged>>(frame) {
                    Ok(Payload { payload }) => self.met(payload),
                    Err(_) => self.hindrance = Some("who is there cannot be read"),
                }
                Pass::On
            }
            "compaction_started" | "compaction_prepared" | "compaction_progress" => {
                match serde_json::from_str::<Payload<Job>>(frame) {
                    Ok(Payload { payload }) if kind == "compaction_started" => self.compacts = Some(payload.job_id),
                    Ok(Payload { payload }) if kind == "compaction_prepared" => self.holds = Some(payload.job_id),
                    // The summary of a branch that is left begins with its progress. Previews have progress, too.
                    Ok(Payload { payload }) if payload.phase.as_deref() == Some(SUMMARISING_BRANCH) => {
                        self.compacts = Some(payload.job_id);
                    }
                    Ok(_) => {}
                    Err(_) => self.hindrance = Some("its compaction cannot be read"),
                }
                Pass::On
            }
            _ => Pass::On,
        }
    }

    /// Follows the answer being streamed. `None` if it has too many parts.
    fn streamed(&mut self, kind: &str, event: &Streamed<'_>) -> Option<Pass> {
        if kind == "item_aborted" {
            self.items.retain(|item| item.id != event.item_id);
            return Some(Pass::On);
        }
        let item = item_in(&mut self.items, &event.item_id)?;
        let Some(part) = event.part else {
            // The beginning of the item, or its end.
            let is_known = kind == "item_finished" && std::mem::replace(&mut item.is_whole, true);
            return Some(if is_known { Pass::Again } else { Pass::On });
        };
        let place = place_in(item, part)?;
        let is_known = match kind {
            "item_started" => std::mem::replace(&mut place.has_started, true),
            "item_finished" => std::mem::replace(&mut place.has_finished, true),
            _ => {
                place.offset = place.offset.max(event.offset + utf16_len(&event.text));
                false
            }
        };
        Some(if is_known { Pass::Again } else { Pass::On })
    }

    /// Returns the command that opens the session again at this place.
    pub(super) fn open_again(&self, id: &CommandId, session: &SessionId) -> String {
        let place = |item: &Item, part: usize, offset| {
            let part = u32::try_from(part).unwrap_or(u32::MAX);
            // Checked already: the holder has sent it.
            item.id.parse().ok().map(|item_id| ResumeItem { item_id, part, offset })
        };
        let mut items = Vec::new();
        for item in &self.items {
            if item.parts.is_empty() {
                items.extend(place(item, 0, 0));
            }
            items.extend(item.parts.iter().enumerate().filter_map(|(part, at)| place(item, part, at.offset)));
        }
        let resume = Resume { epoch: self.epoch.clone(), seq: self.seq, items: Some(items) };
        let open = OpenSession {
            role: Some(self.role),
            resume: Some(resume),
            entries: Some(0),
            deltas: Some(self.deltas),
            tools: None,
            hooks: None,
        };
        encode_command(id, Some(session), &Command::OpenSession(open))
    }

    /// Takes who has come, changed or left.
    fn met(&mut self, PresenceChanged { connection, left }: PresenceChanged) {
        self.presence.retain(|known| !known.is(&connection));
        if !left {
            self.presence.push(Known::from(&connection));
        }
    }

    /// Goes on with the holder's answer to that command. Returns the events that the client has missed and that no
    /// later one repeats: durable events come again, and others may be missed.
    ///
    /// # Errors
    /// Why the client has to open the session itself.
    pub(super) fn go_on(&mut self, answer: &str, session: &SessionId) -> Result<Vec<String>, &'static str> {
        let now = opened(answer).ok_or("its answer cannot be read")?;
        if now.epoch != self.epoch {
            return Err("its log may be another one");
        }
        if now.resumed != Some(Resumed::Replay) {
            return Err("too much was missed, or the place is not known any more");
        }
        let is_new = |job: &Option<Job>, known: &Option<String>| {
            job.as_ref().is_some_and(|job| known.as_ref() != Some(&job.job_id))
        };
        // One that is only ordered is still to start.
        let begun = now.compaction.filter(|job| job.phase.as_deref() != Some(ORDERED));
        if is_new(&begun, &self.compacts) || is_new(&now.held, &self.holds) {
            return Err("a compaction has begun");
        }
        self.goes_on = true;
        let mut missed = Vec::new();
        let mut tell = |event: EphemeralEvent| missed.push(encode_event(Some(session), &event));
        if now.host != self.host {
            self.host.clone_from(&now.host);
            tell(EphemeralEvent::HostChanged(HostChanged { host: now.host }));
        }
        let here = now.presence.iter().map(Known::from).collect();
        let before = std::mem::replace(&mut self.presence, here);
        for known in before.iter().filter(|known| !now.presence.iter().any(|other| known.is(other))) {
            let connection = known.participant();
            tell(EphemeralEvent::PresenceChanged(PresenceChanged { connection, left: true }));
        }
        for (known, connection) in self.presence.iter().zip(now.presence) {
            if !before.contains(known) {
                tell(EphemeralEvent::PresenceChanged(PresenceChanged { connection, left: false }));
            }
        }
        Ok(missed)
    }
}

impl Known {
    fn is(&self, participant: &Participant) -> bool {
        self.connection_id == participant.connection_id
    }

    /// Returns what is known of a connection that has left.
    fn participant(&self) -> Participant {
        let connection_id = self.connection_id.clone();
        Participant { connection_id, client_id: None, client: None, role: self.role, offers: false }
    }
}

impl From<&Participant> for Known {
    fn from(participant: &Participant) -> Self {
        let mut hasher = DefaultHasher::new();
        participant.hash(&mut hasher);
        let connection_id = participant.connection_id.clone();
        Self { connection_id, role: participant.role, digest: hasher.finish() }
    }
}

impl Place {
    /// Returns the place behind what was shown of a part.
    fn behind(part: &RunningPart) -> Self {
        match part {
            RunningPart::Text { text } | RunningPart::Reasoning { text } => {
                Self { offset: utf16_len(text), ..Self::default() }
            }
            RunningPart::ToolCall { arguments, finished, .. } => {
                Self { offset: utf16_len(arguments), has_started: true, has_finished: *finished }
            }
        }
    }
}

/// Returns an item, added if it is new; `None` if there are too many.
fn item_in<'a>(items: &'a mut Vec<Item>, id: &str) -> Option<&'a mut Item> {
    if let Some(at) = items.iter().position(|item| item.id == id) {
        return items.get_mut(at);
    }
    if items.len() >= ITEMS_MAX {
        return None;
    }
    items.push(Item { id: id.to_owned(), parts: Vec::new(), is_whole: false });
    items.last_mut()
}

/// Returns the place in a part, with those before it added if it is new; `None` if there are too many.
fn place_in(item: &mut Item, part: u32) -> Option<&mut Place> {
    let at = usize::try_from(part).ok().filter(|at| *at < PLACES_MAX)?;
    if item.parts.len() <= at {
        item.parts.resize(at + 1, Place::default());
    }
    item.parts.get_mut(at)
}

#[cfg(test)]
mod tests;
