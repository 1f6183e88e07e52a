//! Random patches on random trees. Memory, store and whole history give the same context; a rejected patch changes
//! nothing; and nothing that a patch hid returns.
//!
//! A failure prints its seed; `SEED=72 cargo test -p reseed-core random_patches` replays it alone.

mod checks;
mod ops;

use super::{Session, SessionTree, carry::carried_patch, tree::PathReader};
use crate::{
    compaction::{cut::cut_from, structure::Structure},
    context::{
        counter::Counter,
        messages::{Context, Kind},
        node::Node,
        patch::{Applied, Around, Boundary, PatchRefused},
        testing::printed,
    },
};
use fastrand::Rng;
use reseed_protocol::{
    CallId, Entry, EntryData, EntryId, Message, Part, Role, SessionId, Timestamp,
    compaction::{Compaction, Pin},
    context::{ContextTransform, PATCH_VERSION, PatchOp, SystemPart, ToolDefinition},
    event::Event,
    session::SessionUpdated,
    tree::{EntryAppended, Kept},
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

const WORLDS: u64 = 100;
const OPERATIONS: usize = 60;

struct World {
    seed: u64,
    rng: Rng,
    counter: Counter,
    session: Session,
    entries: Vec<Entry>,
    places: HashMap<EntryId, usize>,
    parts: Vec<SystemPart>,
    offered: Vec<ToolDefinition>,
    /// Counts of each operation, so that a test that does nothing is noticed.
    done: HashMap<&'static str, u64>,
}

impl World {
    fn new(seed: u64) -> Self {
        let tool = |name: &str| ToolDefinition {
            name: name.to_owned(),
            description: String::new(),
            parameters: serde_json::json!({}),
        };
        let part = |name: &str| SystemPart { name: name.to_owned(), text: format!("base {name}") };
        Self {
            seed,
            rng: Rng::with_seed(seed),
            counter: Counter::for_model("test"),
            session: Session::new("session".parse::<SessionId>().unwrap(), Timestamp(0)),
            entries: Vec::new(),
            places: HashMap::new(),
            parts: vec![part("base"), part("p1")],
            offered: ["t0", "t1", "t2"].map(tool).to_vec(),
            done: HashMap::new(),
        }
    }

    fn did(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    fn next_id(&self) -> EntryId {
        format!("e{}", self.entries.len()).parse().unwrap()
    }

    fn entry(&self, data: EntryData) -> Entry {
        let parent_id = self.session.state.leaf.clone();
        Entry { entry_id: self.next_id(), parent_id, timestamp: Timestamp(0), imported: None, data }
    }

    fn append(&mut self, data: EntryData) {
        let entry = self.entry(data);
        self.places.insert(entry.entry_id.clone(), self.entries.len());
        self.entries.push(entry.clone());
        let appended = EntryAppended { entry, turn_id: None, command_id: None };
        self.session.apply(&Event::EntryAppended(Box::new(appended)), &self.counter);
    }

    /// Walks from an entry to its root.
    fn way_back(&self, leaf: Option<&EntryId>) -> impl Iterator<Item = &Entry> {
        let entry = |id: Option<&EntryId>| id.map(|id| &self.entries[self.places[id]]);
        std::iter::successors(entry(leaf), move |from| entry(from.parent_id.as_ref()))
    }

    /// Reads the path to an entry as the store would.
    fn read(&self, leaf: Option<&EntryId>) -> SessionTree {
        let mut reader = PathReader::new(&self.session.state, &self.counter);
        for entry in self.way_back(leaf) {
            if !reader.take(entry.clone()) {
                break;
            }
        }
        reader.finish()
    }

    /// Returns the whole path, with results cleared as its compactions say.
    fn whole(&self) -> Vec<Arc<Node>> {
        let cleared: HashSet<EntryId> =
            self.session.tree.path().iter().filter(|node| node.cleared).map(|node| node.id().clone()).collect();
        let cleared: Vec<EntryId> = cleared.into_iter().collect();
        let mut tree = SessionTree::default();
        let mut path: Vec<&Entry> = self.way_back(self.session.state.leaf.as_ref()).collect();
        path.reverse();
        for entry in path {
            tree.append(Arc::new(Node::counted(entry.clone(), &self.counter).marked(&self.session.state)));
        }
        tree.clear(&cleared, &self.counter);
        tree.path().to_vec()
    }

    fn text(&mut self) -> String {
        // Each text has a unique number, so that a returning text is recognised.
        format!("word{} ", self.rng.u32(..)).repeat(self.rng.usize(1..20))
    }

    fn says(&mut self, role: Role) -> Message {
        let text = self.text();
        Message::new(role, vec![Part::Text { text }])
    }

    /// Returns a replacement for a message with none of its content.
    fn redacted(&mut self, there: &Message) -> Message {
        let mut message = Message::new(there.role, there.content.clone());
        for part in &mut message.content {
            match part {
                Part::Text { text }
                | Part::ToolCall { arguments: text, .. }
                | Part::ToolResult { output: text, .. } => {
                    *text = format!("redacted {}", self.rng.u32(..));
                }
                _ => {}
            }
        }
        message
    }

    fn apply(&self, context: &mut Context, ops: &[PatchOp]) -> Result<Applied, PatchRefused> {
        let around = Around { parts: &self.parts, offered: &self.offered, counter: &self.counter };
        context.apply(ops, Boundary::Durable, &around)
    }

    /// Submits a patch, and stores it if accepted.
    fn patch(&mut self) {
        let seed = self.seed;
        let before = Context::clone(&self.session.tree.context());
        let mut ops = Vec::new();
        let mut shown = before.clone();
        for _ in 0..self.rng.usize(1..4) {
            let op = self.op(&shown);
            // Each later op sees the result of the earlier ones.
            let _ = self.apply(&mut shown, std::slice::from_ref(&op));
            ops.push(op);
        }
        let (mut at_once, mut one_by_one) = (before.clone(), before.clone());
        let applied = self.apply(&mut at_once, &ops);
        let singly = ops.iter().try_for_each(|op| self.apply(&mut one_by_one, std::slice::from_ref(op)).map(|_| ()));
        assert_eq!(applied.is_ok(), singly.is_ok(), "seed {seed}: {applied:?} at once, {singly:?} one by one");
        let Ok(applied) = applied else {
            assert_eq!(at_once, before, "seed {seed}: what was refused changed something");
            self.did("refused");
            return;
        };
        assert_eq!(at_once, one_by_one, "seed {seed}: splitting a patch changes what it makes");
        assert!(applied.changed || at_once.to_messages() == before.to_messages(), "seed {seed}: changed, and not told");
        let mut again = at_once.clone();
        if self.apply(&mut again, &[]).is_ok() {
            assert_eq!(again, at_once, "seed {seed}: an empty patch changes something");
        }
        let transform = ContextTransform {
            schema_version: PATCH_VERSION,
            transformer_name: "random".into(),
            patch: applied.ops,
            display: None,
        };
        self.append(EntryData::ContextTransform(Box::new(Kept::Known(transform))));
        assert_eq!(*self.session.tree.context(), at_once, "seed {seed}: what was applied is not what is replayed");
        self.did("patched");
    }

    fn compact(&mut self) {
        let seed = self.seed;
        let before = self.session.tree.context();
        let structure = Structure::of(&before);
        if structure.units.len() < 2 {
            return;
        }
        let from = self.rng.usize(1..=structure.units.len());
        let Some(cut) = cut_from(&before, &structure, from) else { return };
        let gone: HashSet<usize> = cut.summarised.iter().chain(&cut.previous).copied().collect();
        let stays: Vec<_> =
            before.messages.iter().enumerate().filter(|(at, _)| !gone.contains(at)).map(|(_, sent)| sent).collect();
        // Pinned entries that are not visible stay kept, as in the agent loop.
        let path = self.session.tree.path();
        let tail = cut.first_kept.as_ref().and_then(|first| path.iter().position(|node| node.id() == first));
        let older = path[..tail.unwrap_or(path.len())].iter();
        let kept = older.filter(|node| node.message.is_some() && (node.pinned || cut.kept.contains(node.id())));
        // Cleared results that stay are still notes.
        let earlier = path.iter().rev().find_map(|node| node.compaction());
        let earlier: HashSet<&EntryId> = earlier.iter().flat_map(|earlier| &earlier.cleared_entry_ids).collect();
        let was_cleared = |id: &Option<EntryId>| id.as_ref().is_some_and(|id| earlier.contains(id));
        let results = stays.iter().filter(|counted| counted.is_result);
        let results = results.filter(|counted| was_cleared(&counted.entry_id) || self.rng.u8(..3) == 0);
        let mut compaction = Compaction {
            summary: format!("summary {}", self.entries.len()),
            first_kept_entry_id: cut.first_kept.clone(),
            kept_entry_ids: kept.map(|node| node.id().clone()).collect(),
            cleared_entry_ids: results.filter_map(|counted| counted.entry_id.clone()).collect(),
            ..Compaction::default()
        };
        let mut tree = self.session.tree.clone();
        let entry = self.entry(EntryData::Compaction(compaction.clone()));
        tree.append(Arc::new(Node::counted(entry, &self.counter)));
        tree.clear(&compaction.cleared_entry_ids, &self.counter);
        compaction.carried_patch = carried_patch(&self.session.tree, &tree, &compaction);
        let expected = Context { messages: stays.into_iter().cloned().collect(), ..Context::default() };
        let carried = self.session.tree.carried().clone();
        if compaction.carried_patch.iter().any(|op| matches!(op, PatchOp::MessagesCachedReplace { .. })) {
            self.did("carried insertions");
        } else if compaction.carried_patch.iter().any(|op| matches!(op, PatchOp::MessagesCachedEdit { .. })) {
            self.did("carried edits");
        }
        let cleared: HashSet<EntryId> = compaction.cleared_entry_ids.iter().cloned().collect();
        self.append(EntryData::Compaction(compaction));
        let after = self.session.tree.context();
        assert_eq!(*self.session.tree.carried(), carried, "seed {seed}: a compaction forgot what patches came to");
        let seen = after.messages.iter().filter(|counted| counted.kind != Kind::Summary).cloned().collect();
        let mut seen = Context { messages: seen, ..Context::default() };
        for (seen, expected) in seen.messages.iter_mut().zip(&expected.messages) {
            if seen.entry_id == expected.entry_id && seen.entry_id.as_ref().is_some_and(|id| cleared.contains(id)) {
                seen.message = expected.message.clone();
            }
        }
        assert_eq!(
            printed(&seen),
            printed(&expected),
            "seed {seed}: the newest keeps something else:\n{}",
            self.told()
        );
        self.did("compacted");
    }

    /// Undoes the newest compaction, rereading the path as a session does.
    fn undo(&mut self) {
        let newest = self.session.tree.path().iter().rev().find(|node| node.compaction().is_some());
        if let Some(newest) = newest.map(|node| node.id().clone()) {
            self.session.state_mut().undone.push(newest);
            self.session.tree = self.read(self.session.state.leaf.as_ref());
            self.did("undone");
        }
    }

    /// Pins an entry of the path, unless it is hidden and message patches came before that.
    fn pin(&mut self) {
        let leaf = self.session.state.leaf.clone();
        let may_pin = |entry: &&Entry| matches!(entry.data, EntryData::Message(_));
        let path: Vec<EntryId> =
            self.way_back(leaf.as_ref()).filter(may_pin).map(|entry| entry.entry_id.clone()).collect();
        let Some(id) = self.rng.choice(&path).cloned() else { return };
        let is_in_memory = self.session.tree.path().iter().any(|node| *node.id() == id);
        let newest = self.session.tree.path().iter().rev().find(|node| node.compaction().is_some());
        if !is_in_memory && newest.is_some_and(|newest| newest.settles_messages()) {
            self.did("not pinned");
            return;
        }
        let under = newest.map(|node| node.id().clone()).filter(|_| !is_in_memory);
        if !self.session.state.pins.iter().any(|pin| pin.entry_id == id) {
            self.session.state_mut().pins.push(Pin { entry_id: id, with: None, under });
        }
        self.session.tree = self.read(leaf.as_ref());
        self.did("pinned");
    }

    fn move_to(&mut self, leaf: Option<EntryId>) {
        self.session.tree = self.read(leaf.as_ref());
        let moved = SessionUpdated { leaf_id: Some(leaf), ..SessionUpdated::default() };
        self.session.apply(&Event::SessionUpdated(Box::new(moved)), &self.counter);
    }

    fn operate(&mut self) {
        match self.rng.u8(..100) {
            0..22 => {
                let said = self.says(Role::User);
                self.append(EntryData::message(said));
            }
            22..36 => {
                let said = self.says(Role::Assistant);
                self.append(EntryData::message(said));
            }
            36..46 => {
                let ids: Vec<CallId> = (0..self.rng.usize(1..3))
                    .map(|at| format!("c{}-{at}", self.entries.len()).parse().unwrap())
                    .collect();
                let call = |call_id: &CallId| {
                    let (name, arguments) = ("look".to_owned(), format!("{{\"secret\":\"{call_id}\"}}"));
                    Part::ToolCall { call_id: call_id.clone(), name, arguments }
                };
                let calls = ids.iter().map(call).collect();
                self.append(EntryData::message(Message::new(Role::Assistant, calls)));
                for call_id in ids.into_iter().filter(|_| self.rng.u8(..8) > 0).collect::<Vec<_>>() {
                    let result = Part::ToolResult { call_id, output: self.text(), is_error: false };
                    self.append(EntryData::message(Message::new(Role::Tool, vec![result])));
                }
            }
            46..76 => self.patch(),
            76..86 => self.compact(),
            86..89 => self.undo(),
            89..92 => self.pin(),
            92..93 => {
                self.session.state_mut().pins.pop();
                self.session.tree = self.read(self.session.state.leaf.as_ref());
            }
            93..94 => self.session.tree.recount(&self.counter),
            _ => {
                let at = self.rng.usize(..self.entries.len().max(1));
                let leaf = self.entries.get(at).map(|entry| entry.entry_id.clone());
                self.move_to(leaf);
            }
        }
    }
}

#[test]
fn history_with_any_patches_is_replayed_the_same() {
    let seeds = crate::seeds::seeds("WORLDS", WORLDS);
    let is_whole_run = seeds.clone().count() > 1;
    let mut done: HashMap<&str, u64> = HashMap::new();
    for seed in seeds {
        let mut world = World::new(seed);
        for _ in 0..OPERATIONS {
            world.operate();
            world.check();
        }
        for (what, times) in world.done {
            *done.entry(what).or_default() += times;
        }
    }
    for what in [
        "patched",
        "refused",
        "compacted",
        "carried edits",
        "carried insertions",
        "undone",
        "pinned",
        "not pinned",
        "moved",
    ] {
        assert!(!is_whole_run || done.get(what).is_some_and(|times| *times > 5), "{what}: {done:?}");
    }
}
