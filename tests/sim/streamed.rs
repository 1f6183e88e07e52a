//! An answer being streamed, as a client has folded it.

use reseed_protocol::{
    EntryId, Message, Part,
    content::utf16_len,
    turn::{DeltaKind, ItemDelta, ItemFinished, ItemStarted, RunningItem, RunningPart},
};
use std::collections::BTreeMap;

/// An answer being streamed: its parts so far, except for those that show nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Streamed {
    pub(crate) item: EntryId,
    pub(crate) parts: BTreeMap<u32, RunningPart>,
}

impl Streamed {
    /// Returns an answer that has just started.
    pub(crate) fn new(item: EntryId) -> Self {
        Self { item, parts: BTreeMap::new() }
    }

    /// Returns the answer in a snapshot.
    pub(crate) fn of(item: &RunningItem) -> Self {
        let is_shown = |part: &RunningPart| matches!(part, RunningPart::ToolCall { .. }) || !part.text().is_empty();
        let parts = (0..).zip(&item.parts).filter(|(_, part)| is_shown(part));
        Self { item: item.item_id.clone(), parts: parts.map(|(at, part)| (at, part.clone())).collect() }
    }

    /// Starts the answer, or a tool call in it, which may be repeated after a resume. `None`: it is another answer's.
    ///
    /// # Errors
    /// Another part is there, or the answer begins again.
    pub(crate) fn started(&mut self, started: &ItemStarted) -> Option<Result<(), String>> {
        if self.item != started.item_id {
            return None;
        }
        let (Some(at), Some(name)) = (started.part, &started.name) else {
            let again = format!("text of `{}`, which begins again", self.item);
            return Some(if self.parts.is_empty() { Ok(()) } else { Err(again) });
        };
        let new = || RunningPart::ToolCall { name: name.clone(), arguments: String::new(), finished: false };
        let known = self.parts.entry(at).or_insert_with(new);
        let is_same = matches!(known, RunningPart::ToolCall { name: known, .. } if known == name);
        Some(if is_same { Ok(()) } else { Err(format!("a call of `{name}` begins in part {at} of `{}`", self.item)) })
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// It does not continue where the part ends, or is of another kind.
    pub(crate) fn delta(&mut self, delta: &ItemDelta) -> Result<(), String> {
        let (item, at, offset) = (&delta.item_id, delta.part, delta.offset);
        if self.item != *item {
            return Err(format!("text of `{item}`, of which no beginning was given"));
        }
        let part = match (self.parts.get_mut(&at), delta.kind) {
            (Some(part), _) => part,
            (None, Some(DeltaKind::Arguments)) => {
                return Err(format!("arguments in part {at} of `{item}`, of whose call no beginning was given"));
            }
            (None, Some(DeltaKind::Reasoning)) => {
                self.parts.entry(at).or_insert(RunningPart::Reasoning { text: String::new() })
            }
            (None, None | Some(DeltaKind::Text)) => {
                self.parts.entry(at).or_insert(RunningPart::Text { text: String::new() })
            }
        };
        let end = utf16_len(part.text());
        if offset != end {
            return Err(format!("text for place {offset} of part {at} of `{item}`, which ends at {end}"));
        }
        match (part, delta.kind) {
            (RunningPart::ToolCall { finished: true, .. }, _) => {
                return Err(format!("arguments for part {at} of `{item}`, which is complete"));
            }
            (RunningPart::ToolCall { arguments: text, .. }, Some(DeltaKind::Arguments))
            | (RunningPart::Reasoning { text }, Some(DeltaKind::Reasoning))
            | (RunningPart::Text { text }, None) => text.push_str(&delta.text),
            (part, kind) => return Err(format!("a piece of {kind:?} for part {at} of `{item}`, which is {part:?}")),
        }
        Ok(())
    }

    /// Ends a tool call, or the answer.
    ///
    /// # Errors
    /// Its beginning was not given.
    pub(crate) fn finished(&mut self, ended: &ItemFinished) -> Result<(), String> {
        if self.item != ended.item_id {
            return Err(format!("the end of `{}`, of which no beginning was given", ended.item_id));
        }
        let Some(at) = ended.part else { return Ok(()) };
        match self.parts.get_mut(&at) {
            Some(RunningPart::ToolCall { finished, .. }) => {
                *finished = true;
                Ok(())
            }
            other => Err(format!("the end of a call in part {at} of `{}`, which is {other:?}", self.item)),
        }
    }

    /// Returns true if an entry continues each part where that ends.
    pub(crate) fn is_beginning_of(&self, message: &Message) -> bool {
        self.parts.iter().all(|(at, shown)| {
            let whole = usize::try_from(*at).ok().and_then(|at| message.content.get(at));
            match (shown, whole) {
                (RunningPart::Text { text }, Some(Part::Text { text: whole }))
                | (RunningPart::Reasoning { text }, Some(Part::Reasoning { text: whole, .. })) => {
                    whole.starts_with(text)
                }
                (
                    RunningPart::ToolCall { name, arguments, .. },
                    Some(Part::ToolCall { name: whole, arguments: all, .. }),
                ) => name == whole && all.starts_with(arguments),
                // The calls of a cancelled answer are not made.
                (RunningPart::ToolCall { .. }, _) => message.incomplete,
                _ => false,
            }
        })
    }
}
