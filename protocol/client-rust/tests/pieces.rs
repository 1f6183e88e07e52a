//! The text of an answer is the same however it is cut into pieces, and wherever the connection is lost.

use proptest::prelude::*;
use reseed_client::fold::Snapshot;
use reseed_protocol::{EntryId, content::utf16_len, event::EphemeralEvent, session::SessionOpened, turn::ItemDelta};
use serde_json::Value;

/// A cut: how many characters of what was sent come again, how many new ones follow, and what is not as it should be.
#[derive(Debug, Clone)]
struct Cut {
    again: usize,
    new: usize,
    also: Also,
}

/// What happens beside a piece.
#[derive(Debug, Clone, Copy)]
enum Also {
    Nothing,
    /// The piece comes twice.
    Twice,
    /// A piece comes ahead of its time, so that there is a hole before it.
    Ahead,
    /// The connection is lost: the server goes on from where this client says it is.
    Resume,
}

fn cuts() -> impl Strategy<Value = Vec<Cut>> {
    let also = prop_oneof![Just(Also::Nothing), Just(Also::Twice), Just(Also::Ahead), Just(Also::Resume)];
    let cut = (0..6_usize, 0..6_usize, also).prop_map(|(again, new, also)| Cut { again, new, also });
    prop::collection::vec(cut, 0..40)
}

/// A session in which nothing has happened, and the text of one answer in it.
struct Told {
    snapshot: Snapshot,
    item_id: EntryId,
    text: Vec<char>,
}

impl Told {
    fn new(text: &str) -> Self {
        let frame = include_str!("../../examples/v2/replies/session_opened.json");
        let mut frame: Value = serde_json::from_str(frame).expect("the example is JSON");
        let opened: SessionOpened = serde_json::from_value(frame["payload"].take()).expect("it is a `session_opened`");
        let item_id = "w6hd4zt9cb5e".parse().expect("it is an id");
        Self { snapshot: Snapshot::opened(opened), item_id, text: text.chars().collect() }
    }

    /// Sends the characters from one position to another; positions beyond the end are the end.
    fn send(&mut self, from: usize, to: usize) {
        let [from, to] = [from, to].map(|position| position.min(self.text.len()));
        let (item_id, text) = (self.item_id.clone(), self.text[from..to].iter().collect());
        let delta = ItemDelta { item_id, part: 0, offset: self.units(from), kind: None, text };
        self.snapshot.apply_ephemeral(&EphemeralEvent::ItemDelta(delta));
    }

    /// Returns the UTF-16 code units of so many characters.
    fn units(&self, characters: usize) -> u64 {
        utf16_len(&self.text[..characters].iter().collect::<String>())
    }

    /// Returns the number of characters before the offset that a resume would name.
    fn resumed(&self) -> usize {
        let items = self.snapshot.resume_point().items.unwrap_or_default();
        let offset = items.first().map_or(0, |item| item.offset);
        (0..=self.text.len()).find(|characters| self.units(*characters) == offset).expect("a character begins there")
    }

    fn shown(&self) -> String {
        let part = self.snapshot.item(&self.item_id).and_then(|item| item.parts().first());
        part.map(|part| part.text().to_owned()).unwrap_or_default()
    }
}

proptest! {
    #[test]
    fn any_cutting_gives_the_same_text(text in "[a-c é🐈\u{10ffff}]{0,80}", cuts in cuts()) {
        let mut told = Told::new(&text);
        let mut sent = 0_usize;
        for Cut { again, new, also } in cuts {
            let from = sent.saturating_sub(again);
            let to = (sent + new).min(told.text.len());
            match also {
                Also::Ahead => told.send(to + 1, to + 1 + new),
                Also::Resume => prop_assert_eq!(told.resumed(), sent),
                Also::Nothing | Also::Twice => {}
            }
            told.send(from, to);
            if matches!(also, Also::Twice) {
                told.send(from, to);
            }
            sent = to;
            prop_assert_eq!(told.shown(), told.text[..sent].iter().collect::<String>());
        }
        let from = told.resumed();
        told.send(from, usize::MAX);
        prop_assert_eq!(told.shown(), text);
    }
}
