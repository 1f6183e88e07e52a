//! Random operations on trees: the state in memory always matches the log, and gives the model the same context as the
//! whole history would.
//!
//! A failure prints its seed; `SEED=72 cargo test -p reseed-core random_trees` replays it alone.

use super::{Session, lookup::landing, state::SessionState, tree::PathReader};
use crate::context::{build_context, counter::Counter, node::Node};
use fastrand::Rng;
use reseed_protocol::{
    Entry, EntryData, EntryId, Message, Part, Role, SessionId, Timestamp,
    compaction::Compaction,
    event::Event,
    session::SessionUpdated,
    tree::{BranchSummary, Custom, CustomMessage, EntryAppended, Label, NavigatePosition, SessionInfo},
};
use std::{collections::HashMap, sync::Arc};

const TREES: u64 = 250;
const OPERATIONS: usize = 100;

struct World {
    seed: u64,
    rng: Rng,
    counter: Counter,
    session: Session,
    log: Vec<Event>,
    entries: Vec<Entry>,
    places: HashMap<EntryId, usize>,
}

impl World {
    fn new(seed: u64) -> Self {
        let id: SessionId = "session".parse().unwrap();
        Self {
            seed,
            rng: Rng::with_seed(seed),
            counter: Counter::for_model("test"),
            session: Session::new(id, Timestamp(0)),
            log: Vec::new(),
            entries: Vec::new(),
            places: HashMap::new(),
        }
    }

    fn apply(&mut self, event: Event) {
        self.session.apply(&event, &self.counter);
        self.log.push(event);
    }

    fn entry(&self, leaf: Option<&EntryId>) -> Option<&Entry> {
        leaf.map(|id| &self.entries[self.places[id]])
    }

    /// Walks from an entry to its root.
    fn way_back(&self, leaf: Option<&EntryId>) -> impl Iterator<Item = &Entry> {
        std::iter::successors(self.entry(leaf), |entry| self.entry(entry.parent_id.as_ref()))
    }

    fn append(&mut self, data: EntryData) {
        self.append_to(self.session.state.leaf.clone(), data);
    }

    fn append_to(&mut self, parent_id: Option<EntryId>, data: EntryData) {
        let entry_id: EntryId = format!("e{}", self.entries.len()).parse().unwrap();
        let entry = Entry { entry_id: entry_id.clone(), parent_id, timestamp: Timestamp(0), imported: None, data };
        self.places.insert(entry_id, self.entries.len());
        self.entries.push(entry.clone());
        self.apply(Event::EntryAppended(Box::new(EntryAppended { entry, turn_id: None, command_id: None })));
    }

    /// Reads the path to an entry as the store would.
    fn read(&self, leaf: Option<&EntryId>) -> super::SessionTree {
        let mut reader = PathReader::new(&self.session.state, &self.counter);
        for entry in self.way_back(leaf) {
            if !reader.take(entry.clone()) {
                break;
            }
        }
        reader.finish()
    }

    fn move_to(&mut self, leaf: Option<EntryId>) {
        self.session.tree = self.read(leaf.as_ref());
        self.apply(Event::SessionUpdated(Box::new(SessionUpdated {
            leaf_id: Some(leaf),
            ..SessionUpdated::default()
        })));
    }

    fn some_entry(&mut self) -> Option<Entry> {
        let at = self.rng.usize(..self.entries.len().max(1));
        self.entries.get(at).cloned()
    }

    fn text(&mut self) -> String {
        "word ".repeat(self.rng.usize(1..6))
    }

    fn compaction(&mut self) -> EntryData {
        // A compaction keeps only what the model saw.
        let path: Vec<EntryId> = self.session.tree.path().iter().map(|node| node.id().clone()).collect();
        // Its tail starts after the entries that an earlier compaction kept individually, because that compaction
        // removed the entries in between.
        let nodes = self.session.tree.path();
        let after = nodes.iter().rposition(|node| matches!(node.entry.data, EntryData::Compaction(_)));
        let tail = &path[after.map_or(0, |at| at + 1)..];
        // Sometimes the boundary is not on the path, as another program might write it.
        let first_kept_entry_id = match self.rng.u8(..10) {
            0 => Some("elsewhere".parse().unwrap()),
            1 => None,
            _ => self.rng.choice(tail).cloned(),
        };
        let kept_entry_ids = (0..self.rng.usize(..3)).filter_map(|_| self.rng.choice(&path).cloned()).collect();
        EntryData::Compaction(Compaction {
            summary: self.text(),
            first_kept_entry_id,
            kept_entry_ids,
            ..Compaction::default()
        })
    }

    fn operate(&mut self) {
        let text = self.text();
        let said = |text| vec![Part::Text { text }];
        match self.rng.u8(..100) {
            0..25 => self.append(EntryData::message(Message::user(text))),
            25..45 => self.append(EntryData::message(Message::new(Role::Assistant, said(text)))),
            45..55 => {
                let call_id: reseed_protocol::CallId = format!("c{}", self.entries.len()).parse().unwrap();
                let (name, arguments) = ("look".to_owned(), "{}".to_owned());
                let call = Part::ToolCall { call_id: call_id.clone(), name, arguments };
                self.append(EntryData::message(Message::new(Role::Assistant, vec![call])));
                if self.rng.u8(..4) > 0 {
                    let result = Part::ToolResult { call_id, output: text, is_error: false };
                    self.append(EntryData::message(Message::new(Role::Tool, vec![result])));
                }
            }
            55..60 => {
                let compaction = self.compaction();
                self.append(compaction);
            }
            60..64 => self.append(EntryData::Custom(Custom { custom_type: "mark".into(), data: None })),
            64..68 => {
                let (content, custom_type) = (said(text), "note".to_owned());
                self.append(EntryData::CustomMessage(CustomMessage {
                    custom_type,
                    content,
                    display: true,
                    details: None,
                }));
            }
            68..70 => self.append(EntryData::SessionInfo(SessionInfo { name: text })),
            70..74 => {
                if let Some(entry) = self.some_entry() {
                    self.append(EntryData::Label(Label { target_id: entry.entry_id, label: Some(text) }));
                }
            }
            74..84 => {
                if let Some(entry) = self.some_entry() {
                    let position = [NavigatePosition::At, NavigatePosition::Before][self.rng.usize(..2)];
                    let (leaf, _) = landing(&entry, position);
                    self.move_to(leaf);
                }
            }
            84..86 => self.move_to(None),
            86..93 => {
                let parent = self.some_entry().map(|entry| entry.entry_id);
                self.session.tree = self.read(parent.as_ref());
                self.append_to(parent, EntryData::message(Message::user(text)));
            }
            _ => {
                let left_leaf_id = self.session.state.leaf.clone();
                let leaf = self.some_entry().map(|entry| entry.entry_id);
                self.move_to(leaf.clone());
                let summary = text;
                self.append(EntryData::BranchSummary(BranchSummary {
                    from_id: leaf,
                    left_leaf_id,
                    summary,
                    ..BranchSummary::default()
                }));
            }
        }
    }

    fn check(&self) {
        let seed = self.seed;
        let leaf = self.session.state.leaf.as_ref();
        assert_eq!(leaf, self.session.tree.leaf(), "seed {seed}: the leaf in memory is another");
        let mut whole: Vec<Arc<Node>> =
            self.way_back(leaf).map(|entry| Arc::new(Node::counted(entry.clone(), &self.counter))).collect();
        whole.reverse();
        let told = build_context(self.session.tree.path());
        assert_eq!(told, build_context(&whole), "seed {seed}: the model sees something else than the history says");
        let read = self.read(leaf);
        assert_eq!(told, build_context(read.path()), "seed {seed}: reopened, the model sees something else");
        for (at, entry) in self.entries.iter().enumerate() {
            let parent = entry.parent_id.as_ref().map(|id| self.places[id]);
            assert!(parent.is_none_or(|parent| parent < at), "seed {seed}: an entry is older than its parent");
        }
    }
}

#[test]
fn the_state_in_memory_matches_the_log() {
    let seeds = crate::seeds::seeds("TREES", TREES);
    for seed in seeds {
        let mut world = World::new(seed);
        for _ in 0..OPERATIONS {
            world.operate();
            world.check();
        }
        let mut folded = SessionState::default();
        world.log.iter().for_each(|event| folded.apply(event));
        assert_eq!(folded, *world.session.state, "seed {seed}: the state is not the fold of the log");
        assert_eq!(folded.entries, world.entries.len() as u64);
    }
}
