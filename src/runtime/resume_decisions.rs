//! Readers of a feed that disconnect and resume at random. Each ends with what an uninterrupted reader has.
//!
//! The message contains a failing seed. `SEED=72 cargo test resume_decisions` repeats only that one.

use super::{
    encoded::Frame,
    feed::{Cursor, Feed},
    live::ItemPosition,
};
use crate::core::model::Delta;
use fastrand::Rng;
use reseed_protocol::{
    EntryId,
    content::utf16_len,
    event::EphemeralEvent,
    frame::encode_stored,
    turn::{ItemAborted, RunningPart},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

const FEEDS: u64 = 300;
const STEPS: usize = 120;
const READERS: usize = 3;

type Texts = BTreeMap<u64, String>;

/// A client and what it has folded so far.
#[derive(Default)]
struct Client {
    cursor: Cursor,
    seq: u64,
    log: Vec<Arc<str>>,
    items: BTreeMap<String, Texts>,
    /// The calls that were reported to it, by item and part.
    calls: BTreeSet<(String, u64)>,
    /// The answers that were reported to it as complete.
    finished: BTreeSet<String>,
    resumed: u32,
    refused: u32,
}

struct World {
    seed: u64,
    rng: Rng,
    feed: Arc<Feed>,
    log: Vec<Arc<str>>,
    /// The answer being streamed, as it was shown.
    live: Option<(EntryId, Texts)>,
    answers: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let (rng, feed) = (Rng::with_seed(seed), Feed::new("session".parse().unwrap(), 0));
        Self { seed, rng, feed, log: Vec::new(), live: None, answers: 0 }
    }

    fn publish(&mut self, ends: Option<&EntryId>) {
        let (count, from) = (self.rng.usize(1..4), self.log.len());
        // Some are long, so that readers fall behind what is kept in memory.
        let fill = if self.rng.u8(..6) == 0 { 9_000 } else { 3 };
        let body = |n: usize| Arc::from(format!("{{\"n\":{},\"{}\":1}}", from + n, "x".repeat(fill)));
        self.log.extend((0..count).map(body));
        self.feed.publish(self.log.len() as u64, &self.log[from..], ends);
    }

    fn step(&mut self) {
        match self.rng.u8(..10) {
            0 | 1 => self.publish(None),
            2 if self.live.is_none() => {
                self.answers += 1;
                let item: EntryId = format!("item{}", self.answers).parse().unwrap();
                self.feed.begin_item(&item, &"turn".parse().unwrap());
                self.live = Some((item, Texts::new()));
            }
            3 if self.rng.bool() => {
                let Some((item, _)) = self.live.take() else { return };
                if self.rng.u8(..3) == 0 {
                    let reason = "interrupted".to_owned();
                    self.feed.emit(&EphemeralEvent::ItemAborted(ItemAborted { item_id: item, reason }));
                } else {
                    self.publish(Some(&item));
                }
            }
            _ => {
                let Some((item, texts)) = &mut self.live else { return };
                let piece = ["word ", "é", "🌍", "汉字", "a"][self.rng.usize(..5)].repeat(self.rng.usize(1..5));
                // Two texts and two calls, in any order.
                let part = self.rng.usize(..4);
                let text = texts.entry(part as u64).or_default();
                if part >= 2 && text.is_empty() {
                    self.feed.delta(item, Delta::Call { part, name: "look" });
                }
                let is_call = part >= 2;
                self.feed.delta(
                    item,
                    if is_call { Delta::Arguments { part, text: &piece } } else { Delta::Text { part, text: &piece } },
                );
                text.push_str(&piece);
            }
        }
    }

    /// Gives a client what it lacks, or a part of it.
    fn read(&mut self, client: &mut Client, all: bool) {
        let seed = self.seed;
        for _ in 0..10_000 {
            let frames = self.feed.next(&mut client.cursor, true, self.rng.usize(1..20_000));
            if frames.is_empty() {
                return;
            }
            for frame in frames {
                match frame {
                    Frame::Durable(seq, frame) => client.durable(seed, seq, frame.as_str().into()),
                    Frame::Ephemeral(frame) | Frame::Streamed(frame) => {
                        client.ephemeral(seed, &serde_json::from_str(&frame).unwrap());
                    }
                    Frame::Behind { after, up_to } => {
                        for seq in after + 1..=(after + 5).min(up_to) {
                            client.durable(seed, seq, self.frame(seq));
                            client.cursor.seq = seq;
                        }
                    }
                    Frame::Closed(code) => panic!("seed {seed}: closed with {code:?}"),
                }
            }
            if !all && self.rng.bool() {
                return;
            }
        }
        panic!("seed {seed}: there is always more");
    }

    /// Disconnects the client. It returns with its actual position, or with an impossible one.
    fn cut(&mut self, client: &mut Client) {
        let honest = self.rng.u8(..5) > 0;
        let mut seq = client.seq;
        let mut seen: Vec<ItemPosition> = Vec::new();
        for (item, texts) in &client.items {
            for (part, text) in texts {
                let (item, part) = (item.parse().unwrap(), u32::try_from(*part).unwrap());
                seen.push(ItemPosition { item, part, offset: utf16_len(text) });
            }
        }
        if !honest {
            match self.rng.u8(..3) {
                0 => seq = self.log.len() as u64 + self.rng.u64(1..9),
                1 => seen.iter_mut().for_each(|seen| seen.offset += 10_000),
                _ => seen.iter_mut().for_each(|seen| seen.part += 40),
            }
        }
        let cursor = self.feed.rejoin(seq, &seen);
        let future = seq > self.log.len() as u64;
        assert!(!future || cursor.is_none(), "seed {}: resumed from the future", self.seed);
        if honest {
            client.cursor = cursor.unwrap_or_else(|| panic!("seed {}: an honest client was refused", self.seed));
            client.resumed += 1;
            // Ends that were reported to it before it left are reported again.
            client.finished.clear();
            // The actor reports answers that were aborted while it was away.
            client.items.retain(|item, _| self.feed.holds(&item.parse().unwrap()));
            return;
        }
        client.refused += 1;
        let (cursor, items) = self.feed.join();
        let (resumed, refused) = (client.resumed, client.refused);
        *client = Client { cursor, resumed, refused, seq: self.log.len() as u64, ..Client::default() };
        client.log = self.frames();
        for item in items {
            let texts = client.items.entry(item.item_id.to_string()).or_default();
            for (part, said) in item.parts.iter().enumerate() {
                if let RunningPart::ToolCall { .. } = said {
                    client.calls.insert((item.item_id.to_string(), part as u64));
                }
                texts.insert(part as u64, said.text().to_owned());
            }
        }
    }

    /// Returns the frame of an event.
    fn frame(&self, seq: u64) -> Arc<str> {
        encode_stored(&"session".parse().unwrap(), seq, &self.log[seq as usize - 1]).into()
    }

    fn frames(&self) -> Vec<Arc<str>> {
        (1..=self.log.len() as u64).map(|seq| self.frame(seq)).collect()
    }

    fn check(&self, client: &Client) {
        let seed = self.seed;
        assert_eq!(client.log, self.frames(), "seed {seed}: another history");
        if let Some((item, texts)) = &self.live {
            let mut told = client.items.get(item.as_str()).cloned().unwrap_or_default();
            told.retain(|_, text| !text.is_empty());
            assert_eq!(told, *texts, "seed {seed}: another answer");
        }
    }
}

impl Client {
    fn durable(&mut self, seed: u64, seq: u64, body: Arc<str>) {
        assert_eq!(seq, self.seq + 1, "seed {seed}: an event is missing or came twice");
        self.seq = seq;
        self.log.push(body);
    }

    fn delta(&mut self, seed: u64, frame: &Value) {
        let payload = &frame["payload"];
        let item = payload["itemId"].as_str().unwrap().to_owned();
        let text = self.items.entry(item).or_default().entry(payload["part"].as_u64().unwrap()).or_default();
        assert_eq!(payload["offset"].as_u64(), Some(utf16_len(text)), "seed {seed}: a hole, or text told twice");
        text.push_str(payload["text"].as_str().unwrap());
    }

    fn ephemeral(&mut self, seed: u64, frame: &Value) {
        let payload = &frame["payload"];
        let item = payload["itemId"].as_str().unwrap().to_owned();
        match (frame["type"].as_str().unwrap(), payload["part"].as_u64()) {
            ("item_delta", Some(part)) => {
                let is_call = payload["kind"] == "arguments";
                let knows = self.calls.contains(&(item, part));
                assert_eq!(is_call, knows, "seed {seed}: arguments of a call that was not told of, or another kind");
                self.delta(seed, frame);
            }
            ("item_started", Some(part)) => {
                self.calls.insert((item, part));
            }
            ("item_finished", None) => assert!(self.finished.insert(item), "seed {seed}: finished twice"),
            ("item_aborted", _) => {
                self.items.remove(&item);
            }
            _ => {}
        }
    }
}

#[test]
fn whoever_comes_back_has_what_those_have_who_stayed() {
    let seeds = match std::env::var("SEED") {
        Ok(seed) => seed.parse().unwrap()..=seed.parse().unwrap(),
        Err(_) => 1..=FEEDS,
    };
    let (mut resumed, mut refused) = (0, 0);
    for seed in seeds.clone() {
        let mut world = World::new(seed);
        let mut clients: Vec<Client> = (0..READERS).map(|_| Client::default()).collect();
        for _ in 0..STEPS {
            world.step();
            for client in &mut clients {
                match world.rng.u8(..8) {
                    0..4 => world.read(client, false),
                    4 => world.read(client, true),
                    5 => world.cut(client),
                    6 => {
                        // Twice in a row.
                        world.cut(client);
                        world.cut(client);
                    }
                    _ => {}
                }
            }
        }
        for client in &mut clients {
            world.read(client, true);
            world.check(client);
            resumed += client.resumed;
            refused += client.refused;
        }
    }
    let enough = u64::from(resumed) > 10 * FEEDS && u64::from(refused) > FEEDS;
    assert!(enough || seeds.start() == seeds.end(), "{resumed} resumed, {refused} refused: too few to mean anything");
}
