//! The part of the fold about answers that are being written: their text, and their tool calls.
//!
//! An answer arrives in thousands of pieces. A piece costs the same however long the answer is. Its text grows in
//! place, and its length in UTF-16 code units, the unit of positions on the wire, is kept beside it.

use super::Snapshot;
use reseed_protocol::{
    EntryId, TurnId,
    content::utf16_len,
    turn::{DeltaKind, ItemAborted, ItemDelta, ItemFinished, ItemStarted, RunningItem, RunningPart},
};

/// Maximum number of an item's parts that are shown. This is four times as many as the server lets a model write, and
/// the entry contains all of them. A part that is named before its predecessors takes memory for them too, so a single
/// wrong number must not take all memory.
pub const PARTS_MAX: usize = 4096;

/// Maximum number of aborted answers whose text is kept. As many failed turns are kept.
const LOST_MAX: usize = 16;

/// An answer that is not an entry yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    item_id: EntryId,
    turn_id: Option<TurnId>,
    parts: Vec<RunningPart>,
    /// The number of UTF-16 code units of each part.
    units: Vec<u64>,
    aborted: Option<Aborted>,
}

/// Why an item will not become an entry, and where it was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Aborted {
    reason: String,
    /// The entry after which it was shown; `None` at the beginning.
    after: Option<EntryId>,
}

impl Item {
    fn new(item_id: EntryId, turn_id: Option<TurnId>) -> Self {
        Self { item_id, turn_id, parts: Vec::new(), units: Vec::new(), aborted: None }
    }

    /// Creates an item from a snapshot of the server.
    pub(super) fn running(RunningItem { item_id, parts }: RunningItem, turn_id: TurnId) -> Self {
        let units = parts.iter().map(|part| utf16_len(part.text())).collect();
        Self { item_id, turn_id: Some(turn_id), parts, units, aborted: None }
    }

    /// Returns the id that its entry will have.
    #[must_use]
    pub fn item_id(&self) -> &EntryId {
        &self.item_id
    }

    /// Returns its turn; `None` if the item began before this client knew of a running turn.
    #[must_use]
    pub fn turn_id(&self) -> Option<&TurnId> {
        self.turn_id.as_ref()
    }

    /// Returns its parts so far.
    #[must_use]
    pub fn parts(&self) -> &[RunningPart] {
        &self.parts
    }

    /// Returns how many UTF-16 code units of a part were received; 0 if the part does not exist yet.
    #[must_use]
    pub fn offset(&self, part: usize) -> u64 {
        self.units.get(part).copied().unwrap_or(0)
    }

    /// Returns an error code if it will not become an entry. The text that was shown is then not stored.
    #[must_use]
    pub fn aborted(&self) -> Option<&str> {
        self.aborted.as_ref().map(|aborted| aborted.reason.as_str())
    }

    /// Returns the entry after which an aborted item was shown; `None` at the beginning of the session.
    #[must_use]
    pub fn after(&self) -> Option<&EntryId> {
        self.aborted.as_ref().and_then(|aborted| aborted.after.as_ref())
    }

    /// Returns how many UTF-16 code units of all its parts were received.
    pub(super) fn length(&self) -> u64 {
        self.units.iter().sum()
    }

    /// Adds a piece. Text that is already there is not added twice. Text after a gap is left to the complete entry.
    fn grow(&mut self, delta: &ItemDelta) {
        let Some(part) = place(delta.part) else { return };
        let Some(known) = self.offset(part).checked_sub(delta.offset) else { return };
        let Some(fresh) = behind(&delta.text, known).filter(|_| self.aborted.is_none()) else { return };
        let shown = self.part_mut(part);
        let mut text = std::mem::take(text_mut(shown));
        text.push_str(fresh);
        grown(shown, delta.kind, text);
        self.units[part] += utf16_len(fresh);
    }

    /// Begins a tool call. If the call is known from the snapshot, this changes nothing. If its arguments have come
    /// first, it gets its name.
    fn begin_call(&mut self, part: usize, name: &str) {
        if let Some(RunningPart::ToolCall { name: known, .. }) = self.parts.get_mut(part) {
            if known.is_empty() {
                name.clone_into(known);
            }
            return;
        }
        let call = RunningPart::ToolCall { name: name.to_owned(), arguments: String::new(), finished: false };
        *self.part_mut(part) = call;
        self.units[part] = 0;
    }

    /// Returns a part, which may be new. Unknown parts before it are created as empty texts.
    fn part_mut(&mut self, part: usize) -> &mut RunningPart {
        if self.parts.len() <= part {
            self.parts.resize(part + 1, RunningPart::Text { text: String::new() });
            self.units.resize(part + 1, 0);
        }
        &mut self.parts[part]
    }
}

impl Snapshot {
    /// Applies `item_started`, which is about a message or a tool call in it.
    pub(super) fn item_started(&mut self, started: &ItemStarted) {
        let Some(item) = self.item_mut(&started.item_id, Some(&started.turn_id)) else { return };
        if let Some(part) = started.part.and_then(place) {
            item.begin_call(part, started.name.as_deref().unwrap_or_default());
        }
    }

    /// Applies `item_delta`.
    pub(super) fn item_delta(&mut self, delta: &ItemDelta) {
        if let Some(item) = self.item_mut(&delta.item_id, None) {
            item.grow(delta);
        }
    }

    /// Applies `item_finished`. The complete message is the entry that follows.
    pub(super) fn item_finished(&mut self, done: &ItemFinished) {
        let Some(part) = done.part.and_then(place) else { return };
        let item = self.items.iter_mut().find(|item| item.item_id == done.item_id);
        if let Some(RunningPart::ToolCall { finished, .. }) = item.and_then(|item| item.parts.get_mut(part)) {
            *finished = true;
        }
    }

    /// Applies `item_aborted`. An item that showed nothing is removed. Otherwise, its text stays and is marked as not
    /// stored.
    pub(super) fn item_aborted(&mut self, aborted: &ItemAborted) {
        let after = self.leaf_id.clone();
        lose(&mut self.items, |item| item.item_id == aborted.item_id, &aborted.reason, after.as_ref());
    }

    /// Returns an item, which may begin here; `None` if it is already an entry.
    fn item_mut(&mut self, id: &EntryId, turn_id: Option<&TurnId>) -> Option<&mut Item> {
        let known = self.items.iter().position(|item| item.item_id == *id);
        // An ephemeral event may arrive after the durable event that settles the item.
        if known.is_none() && self.entries.contains(id) {
            return None;
        }
        let place = known.unwrap_or_else(|| {
            let turn_id = turn_id.or(self.turn.as_ref().map(|turn| &turn.turn_id)).cloned();
            self.items.push(Item::new(id.clone(), turn_id));
            self.items.len() - 1
        });
        self.items.get_mut(place)
    }
}

/// Marks items as aborted. Their text stays after the entry where it was shown, because a person may be reading it. At
/// most the newest [`LOST_MAX`] stay.
pub(super) fn lose(items: &mut Vec<Item>, is_lost: impl Fn(&Item) -> bool, reason: &str, after: Option<&EntryId>) {
    for item in items.iter_mut().filter(|item| item.aborted.is_none() && is_lost(item)) {
        item.aborted = Some(Aborted { reason: reason.to_owned(), after: after.cloned() });
    }
    items.retain(|item| item.aborted.is_none() || item.length() > 0);
    let mut surplus = items.iter().filter(|item| item.aborted.is_some()).count().saturating_sub(LOST_MAX);
    items.retain(|item| {
        let goes = item.aborted.is_some() && surplus > 0;
        surplus -= usize::from(goes);
        !goes
    });
}

/// Returns the index of a part, unless it is beyond [`PARTS_MAX`].
fn place(part: u32) -> Option<usize> {
    usize::try_from(part).ok().filter(|part| *part < PARTS_MAX)
}

/// Returns the text after this many UTF-16 code units. `None` if there is no such position, or if it is within a
/// character, because then the delta does not belong to this text.
fn behind(text: &str, mut units: u64) -> Option<&str> {
    for (place, character) in text.char_indices() {
        if units == 0 {
            return text.get(place..);
        }
        units = units.checked_sub(character.len_utf16() as u64)?;
    }
    None
}

/// Returns the text of a part. For a tool call, these are its arguments.
fn text_mut(part: &mut RunningPart) -> &mut String {
    match part {
        RunningPart::Text { text } | RunningPart::Reasoning { text } => text,
        RunningPart::ToolCall { arguments, .. } => arguments,
    }
}

/// Sets the longer text of a part. A tool call keeps its kind, and a piece without a kind continues the part.
fn grown(part: &mut RunningPart, kind: Option<DeltaKind>, text: String) {
    match (&mut *part, kind) {
        (RunningPart::ToolCall { arguments, .. }, _) => *arguments = text,
        (_, Some(DeltaKind::Arguments)) => {
            *part = RunningPart::ToolCall { name: String::new(), arguments: text, finished: false };
        }
        (_, Some(DeltaKind::Reasoning)) | (RunningPart::Reasoning { .. }, None) => {
            *part = RunningPart::Reasoning { text };
        }
        (RunningPart::Text { .. }, None) | (_, Some(DeltaKind::Text)) => *part = RunningPart::Text { text },
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Told, id, snapshot};
    use super::*;
    use serde_json::{Value, json};

    /// Returns a session that is running the turn `turn`.
    fn running() -> Told {
        let mut told = Told::by(snapshot());
        told.durable("turn_started", json!({"turnId": "turn", "commandIds": [], "generation": 1}));
        told
    }

    fn delta(told: &mut Told, part: u32, offset: u64, text: &str, kind: Option<&str>) {
        told.ephemeral(
            "item_delta",
            json!({"itemId": "item", "part": part, "offset": offset, "text": text, "kind": kind}),
        );
    }

    fn started(part: Option<u32>) -> Value {
        let kind = if part.is_some() { "tool_call" } else { "message" };
        json!({"itemId": "item", "turnId": "turn", "kind": kind, "part": part, "name": part.map(|_| "weather")})
    }

    /// Returns a short description of the item's parts: `r` for reasoning, `t` for text, the name for a tool call,
    /// which ends with `.` when it is complete.
    fn shown(told: &Told) -> String {
        let Some(item) = told.snapshot.item(&id("item")) else { return "nothing".to_owned() };
        let parts = item.parts().iter().enumerate().map(|(part, content)| {
            assert_eq!(item.offset(part), utf16_len(content.text()), "the length that is kept is that of the text");
            match content {
                RunningPart::Text { text } => format!("t:{text}"),
                RunningPart::Reasoning { text } => format!("r:{text}"),
                RunningPart::ToolCall { name, arguments, finished } => {
                    format!("{name}:{arguments}{}", if *finished { "." } else { "" })
                }
            }
        });
        parts.collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn pieces_may_overlap_repeat_or_leave_a_hole() {
        // The cat has two UTF-16 code units.
        for (offset, text, after) in [
            (5, "now", "t:a🐈b now"),
            (4, " now", "t:a🐈b now"),
            (3, "b now", "t:a🐈b now"),
            (1, "🐈b now", "t:a🐈b now"),
            (0, "a🐈b now", "t:a🐈b now"),
            (0, "a🐈b ", "t:a🐈b "),
            (0, "a", "t:a🐈b "),
            (1, "🐈", "t:a🐈b "),
            (5, "", "t:a🐈b "),
            (6, "behind a hole", "t:a🐈b "),
            (u64::MAX, "behind a hole", "t:a🐈b "),
            // This offset claims that the text ends within a cat, which it does not.
            (4, "🐈", "t:a🐈b "),
        ] {
            let mut told = running();
            delta(&mut told, 0, 0, "a🐈b ", None);
            delta(&mut told, 0, offset, text, None);
            assert_eq!(shown(&told), after, "{text:?} at {offset}");
        }
    }

    #[test]
    fn parts_are_text_reasoning_or_tool_calls() {
        let mut told = running();
        told.ephemeral("item_started", started(None));
        assert_eq!(shown(&told), "");
        delta(&mut told, 0, 0, "why", Some("reasoning"));
        delta(&mut told, 0, 3, "?", None);
        assert_eq!(shown(&told), "r:why?", "a piece without a kind goes on with what is there");
        delta(&mut told, 2, 0, "x", None);
        assert_eq!(shown(&told), "r:why? | t: | t:x", "a part that nothing is known of is an empty text");
        delta(&mut told, 1, 0, "{", Some("arguments"));
        assert_eq!(shown(&told), "r:why? | :{ | t:x", "the beginning of a call may be missed");
        told.ephemeral("item_started", started(Some(1)));
        assert_eq!(shown(&told), "r:why? | weather:{ | t:x", "or come late");
        told.ephemeral("item_started", started(Some(3)));
        delta(&mut told, 3, 0, "{}", Some("arguments"));
        told.ephemeral("item_started", started(Some(3)));
        assert_eq!(shown(&told), "r:why? | weather:{ | t:x | weather:{}", "a call that has begun does not begin again");
        for part in [json!(3), json!(2), json!(9), Value::Null] {
            told.ephemeral("item_finished", json!({"itemId": "item", "part": part}));
        }
        assert_eq!(shown(&told), "r:why? | weather:{ | t:x | weather:{}.", "only a tool call is complete by itself");
        delta(&mut told, PARTS_MAX as u32, 0, "beyond", None);
        told.ephemeral("item_started", started(Some(u32::MAX)));
        assert_eq!(shown(&told), "r:why? | weather:{ | t:x | weather:{}.", "the number of parts has a bound");
    }

    #[test]
    fn an_item_is_void_vanishes_or_becomes_an_entry() {
        let abort = json!({"itemId": "item", "reason": "upstream_error"});
        let mut told = running();
        told.ephemeral("item_started", started(None));
        told.ephemeral("item_aborted", abort.clone());
        assert_eq!(told.snapshot.items, [], "it showed nothing");

        delta(&mut told, 0, 0, "void", None);
        told.ephemeral("item_aborted", abort);
        delta(&mut told, 0, 4, " more", None);
        assert_eq!(shown(&told), "t:void");
        assert_eq!(told.snapshot.item(&id("item")).and_then(Item::aborted), Some("upstream_error"));
        assert_eq!(told.snapshot.resume_point().items, None, "the server is not asked to go on with it");
        let size = serde_json::to_value(&told.snapshot.context_info).unwrap();
        told.durable("turn_finished", json!({"turnId": "turn", "status": "failed", "contextInfo": size}));
        told.durable("turn_started", json!({"turnId": "next", "commandIds": [], "generation": 1}));
        assert_eq!(shown(&told), "t:void", "the next turn does not take it away");
        assert_eq!(told.snapshot.items[0].after(), told.snapshot.leaf_id.as_ref());
        told.snapshot.items.clear();

        delta(&mut told, 0, 0, "valid", None);
        assert_eq!(told.snapshot.items[0].turn_id().map(TurnId::as_str), Some("next"), "it belongs to what runs");
        told.appended("item", None);
        delta(&mut told, 0, 5, " too late", None);
        told.ephemeral("item_started", started(None));
        assert_eq!(told.snapshot.items, []);
    }

    #[test]
    fn a_piece_costs_the_same_however_long_the_answer_is() {
        let mut told = running();
        let mut moves = 0;
        let mut last = std::ptr::null();
        for place in 0..10_000 {
            delta(&mut told, 0, place * 10, "ten units.", None);
            // The text is copied only when its buffer grows.
            let buffer = told.snapshot.items[0].parts()[0].text().as_ptr();
            moves += usize::from(buffer != last);
            last = buffer;
        }
        assert_eq!(told.snapshot.items[0].offset(0), 100_000);
        assert!(moves < 32, "the buffer of the text was replaced {moves} times");
    }
}
