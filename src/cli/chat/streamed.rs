//! An answer while it is being streamed: what was shown of it, so that nothing is shown twice and nothing is left out.
//!
//! Deltas may overlap (after a resume) or have holes (they are decoration); the entry that follows has the whole text.

use reseed_protocol::{
    Message,
    content::utf16_len,
    event::{DeltaKind, ItemDelta},
};
use std::collections::BTreeMap;

/// Parts of one answer that are followed; what is beyond is shown when its entry comes. Answers have a handful.
const PARTS_MAX: usize = 256;

/// What was shown of one answer.
#[derive(Debug, Default)]
pub(super) struct Streamed {
    /// The text that was shown, parts joined by newlines as [`Message::text`] joins them.
    said: String,
    /// UTF-16 code units seen of each part.
    seen: BTreeMap<u32, u64>,
    /// The part that is being shown.
    part: Option<u32>,
}

/// What to show of a delta.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// True if it begins a part after another one.
    pub(super) breaks: bool,
    pub(super) thought: bool,
    pub(super) text: String,
}

/// What to show when the whole answer has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// This, right after what was shown; perhaps nothing.
    Tail(String),
    /// All of it: what was shown is another text.
    Whole(String),
}

impl Streamed {
    /// Takes a delta. `None`: nothing of it is new, or it waits for its entry, because it comes after a hole or belongs
    /// to a tool call.
    pub(super) fn take(&mut self, delta: &ItemDelta) -> Option<Piece> {
        if self.seen.len() >= PARTS_MAX && !self.seen.contains_key(&delta.part) {
            return None;
        }
        let seen = self.seen.entry(delta.part).or_default();
        let known = seen.checked_sub(delta.offset)?;
        let text = after_utf16(&delta.text, known);
        if text.is_empty() {
            return None;
        }
        *seen += utf16_len(text);
        if delta.kind == Some(DeltaKind::Arguments) {
            return None;
        }
        let thought = delta.kind == Some(DeltaKind::Reasoning);
        let breaks = self.part.is_some_and(|part| part != delta.part);
        self.part = Some(delta.part);
        if !thought {
            if breaks && !self.said.is_empty() {
                self.said.push('\n');
            }
            self.said.push_str(text);
        }
        Some(Piece { breaks, thought, text: text.to_owned() })
    }

    /// Takes the whole answer.
    pub(super) fn finish(self, message: &Message) -> Rest {
        let text = message.text();
        match text.strip_prefix(&self.said) {
            Some(tail) => Rest::Tail(tail.to_owned()),
            None => Rest::Whole(text),
        }
    }

    /// Returns true if any text of it was shown.
    pub(super) fn was_shown(&self) -> bool {
        self.part.is_some()
    }
}

/// What follows the first `units` UTF-16 code units of a text; positions on the wire never split a character.
fn after_utf16(text: &str, units: u64) -> &str {
    let mut left = units;
    for (at, c) in text.char_indices() {
        if left == 0 {
            return &text[at..];
        }
        left = left.saturating_sub(c.len_utf16() as u64);
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::{Part, Role};

    fn play(deltas: &[(u32, u64, &str)], whole: &[&str]) -> (String, Rest) {
        let mut streamed = Streamed::default();
        let mut shown = String::new();
        for (part, offset, text) in deltas {
            let item_id = "i".parse().unwrap();
            let delta = ItemDelta { item_id, part: *part, offset: *offset, kind: None, text: (*text).to_owned() };
            if let Some(piece) = streamed.take(&delta) {
                shown += if piece.breaks { "\n" } else { "" };
                shown += &piece.text;
            }
        }
        let parts = whole.iter().map(|text| Part::Text { text: (*text).to_owned() }).collect();
        (shown, streamed.finish(&Message::new(Role::Assistant, parts)))
    }

    #[test]
    fn the_arguments_of_a_call_are_followed_and_not_shown() {
        let mut streamed = Streamed::default();
        for (offset, text) in [(0, "{\"at\""), (5, ":\"🌍\"}")] {
            let (item_id, kind) = ("i".parse().unwrap(), Some(DeltaKind::Arguments));
            let delta = ItemDelta { item_id, part: 1, offset, kind, text: text.to_owned() };
            assert_eq!(streamed.take(&delta), None);
        }
        assert!(!streamed.was_shown());
        assert_eq!(streamed.seen[&1], 11);
    }

    #[test]
    fn whatever_comes_the_whole_text_is_shown_once() {
        let tail = |text: &str| Rest::Tail(text.to_owned());
        type Case<'a> = (&'a [(u32, u64, &'a str)], &'a [&'a str], &'a str, Rest);
        let table: Vec<Case> = vec![
            (&[], &["all of it"], "", tail("all of it")),
            (&[(0, 0, "all "), (0, 4, "of it")], &["all of it"], "all of it", tail("")),
            (&[(0, 0, "all "), (0, 0, "all of it")], &["all of it"], "all of it", tail("")),
            (&[(0, 0, "all "), (0, 0, "all ")], &["all of it"], "all ", tail("of it")),
            (&[(0, 0, "all "), (0, 6, " it")], &["all of it"], "all ", tail("of it")),
            (&[(0, 0, "🚢 a"), (0, 2, " and b")], &["🚢 and b"], "🚢 and b", tail("")),
            (&[(0, 0, "🚢 a"), (0, 3, "and b")], &["🚢 and b"], "🚢 and b", tail("")),
            (&[(0, 0, "one"), (1, 0, "two")], &["one", "two"], "one\ntwo", tail("")),
            (&[(0, 0, "first try")], &["second"], "first try", Rest::Whole("second".to_owned())),
        ];
        for (deltas, whole, shown, rest) in table {
            assert_eq!(play(deltas, whole), (shown.to_owned(), rest), "{deltas:?}");
        }
    }
}
