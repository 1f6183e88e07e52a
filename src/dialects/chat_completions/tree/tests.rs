//! Tests of finding places, and of what is new there.

use super::{
    super::said::{Call, chains},
    *,
};
use reseed_protocol::{EntryData, Timestamp};

/// A tree whose entries have numbers as ids.
#[derive(Default)]
struct World {
    tree: Tree,
    entries: Vec<Entry>,
}

impl World {
    fn add(&mut self, parent: Option<usize>, message: Message) -> usize {
        let id = |number: usize| -> EntryId { format!("e{number}").parse().unwrap() };
        let number = self.entries.len();
        let entry = Entry {
            entry_id: id(number),
            parent_id: parent.map(id),
            timestamp: serde_json::from_str::<Timestamp>("\"2026-11-29T12:00:00.000Z\"").unwrap(),
            imported: None,
            data: EntryData::message(message),
        };
        self.tree.add(&entry);
        self.entries.push(entry);
        number
    }

    /// Returns how many messages of a list are known at the newest entry's leaf, and the entry if it is not the leaf.
    fn place(&self, list: &[Said], leaf: usize) -> (usize, Option<String>) {
        let leaf = self.entries[leaf].entry_id.clone();
        match self.tree.place(&chains(list), Some(&leaf)) {
            (known, Place::Leaf) => (known, None),
            (known, Place::At(entry)) => (known, Some(entry.map_or_else(|| "root".into(), |id| id.to_string()))),
        }
    }

    fn history(&self, list: &[Said], leaf: usize) -> Result<Vec<Message>, usize> {
        let (leaf, chains) = (self.entries[leaf].entry_id.clone(), chains(list));
        let (known, place) = self.tree.place(&chains, Some(&leaf));
        self.tree.history(list, &chains, known, &place, Some(&leaf))
    }
}

fn user(text: &str) -> Said {
    Said::User(vec![Part::Text { text: text.into() }])
}

fn said(text: &str) -> Said {
    Said::Answer { text: text.into(), calls: Vec::new() }
}

fn calling(text: &str, calls: &[(&str, &str)]) -> Said {
    let call = |(id, name): &(&str, &str)| Call { id: (*id).into(), name: (*name).into(), arguments: "{}".into() };
    Said::Answer { text: text.into(), calls: calls.iter().map(call).collect() }
}

fn result(call: &str, output: &str) -> Said {
    Said::Result { call: call.into(), output: output.into() }
}

/// An input that ends this list, of a client with the tool `look`.
fn input(list: &[Said], text: &str) -> Message {
    let chain = chains(list).last().unwrap().hex();
    let mark = Mark { chain, functions: vec!["look".into()], key: Some("k".into()) };
    Message { details: Some(Box::new(mark.details())), ..Message::user(text) }
}

fn answer(text: &str, calls: &[(&str, &str)]) -> Message {
    let call = |(id, name): &(&str, &str)| Part::ToolCall {
        call_id: id.parse().unwrap(),
        name: (*name).into(),
        arguments: "{ }".into(),
    };
    let content = std::iter::once(Part::Text { text: text.into() }).chain(calls.iter().map(call)).collect();
    Message { model: Some("m".into()), ..Message::new(Role::Assistant, content) }
}

fn output(call: &str, text: &str, is_error: bool) -> Message {
    let result = Part::ToolResult { call_id: call.parse().unwrap(), output: text.into(), is_error };
    Message::new(Role::Tool, vec![result])
}

#[test]
fn a_list_goes_on_at_the_leaf_and_branches_elsewhere() {
    let mut world = World::default();
    let list = [user("a"), said("A"), user("b"), said("B"), user("c")];
    let first = world.add(None, input(&list[..1], "a"));
    let first = world.add(Some(first), answer("A ", &[]));
    let second = world.add(Some(first), input(&list[..3], "b"));
    let leaf = world.add(Some(second), answer("B", &[]));
    assert_eq!(world.place(&list, leaf), (4, None));
    assert_eq!(world.place(&list[..3], leaf), (2, Some("e1".into())), "the same request again");
    let edited = [user("a"), said("A"), user("x"), said("X"), user("c")];
    assert_eq!(world.place(&edited, leaf), (2, Some("e1".into())));
    assert_eq!(world.history(&edited, leaf).unwrap().len(), 3);
    assert_eq!(world.place(&list[2..], leaf), (0, Some("root".into())), "without its oldest messages it is another");
    assert_eq!(world.tree.input_of("k"), Some(&world.entries[second].entry_id));
}

#[test]
fn what_was_stored_in_another_form_is_known_by_the_mark() {
    let mut world = World::default();
    let list = [user("a"), said("A"), user("b")];
    let first = world.add(None, input(&list[..1], "[a, as a hook has changed it]"));
    let leaf = world.add(Some(first), answer("A", &[]));
    assert_eq!(world.place(&list, leaf), (2, None));
}

#[test]
fn an_imported_history_is_known_afterwards() {
    let mut world = World::default();
    let list =
        [user("a"), calling("A", &[("x", "look")]), result("x", "1"), said("B"), user("c"), said("C"), user("d")];
    let chains = chains(&list[..5]);
    let history = world.tree.history(&list[..5], &chains, 0, &Place::Leaf, None).unwrap();
    let mut last = None;
    for (at, mut message) in history.into_iter().enumerate() {
        if at == 4 {
            message = input(&list[..5], "c");
        }
        last = Some(world.add(last, message));
    }
    let leaf = world.add(last, answer("C", &[]));
    assert_eq!(world.place(&list, leaf), (6, None));
    assert_eq!(world.place(&list[..4], leaf), (3, Some("e2".into())));
}

#[test]
fn calls_of_the_server_are_not_seen() {
    let mut world = World::default();
    let list = [user("a"), calling("Let me see.\n\nNow you.", &[("x", "look")]), result("x", "1")];
    let mut at = world.add(None, input(&list[..1], "a"));
    for message in [
        answer("Let me see.", &[("s1", "search")]),
        output("s1", "found", false),
        answer("Now you.", &[("c1", "look"), ("s2", "search"), ("c2", "look")]),
        output("s2", "found", false),
        output("c2", "its arguments are invalid", true),
    ] {
        at = world.add(Some(at), message);
    }
    assert_eq!(world.place(&list, at), (2, None));
    let history = world.history(&list, at).unwrap();
    assert_eq!(history, [output("c1", "1", false)]);
}

#[test]
fn results_find_their_calls_by_id_and_else_by_place() {
    let mut world = World::default();
    let ask = [user("a")];
    let first = world.add(None, input(&ask, "a"));
    let leaf = world.add(Some(first), answer("", &[("c1", "look"), ("c2", "look")]));
    let with = |ids: [&str; 2], results: [&str; 2]| {
        let calls = calling("", &[(ids[0], "look"), (ids[1], "look")]);
        vec![user("a"), calls, result(results[0], "1"), result(results[1], "2")]
    };
    let expected = |calls: [&str; 2]| [output(calls[0], "1", false), output(calls[1], "2", false)];
    let own = world.history(&with(["c1", "c2"], ["c2", "c1"]), leaf);
    assert_eq!(own.unwrap(), expected(["c2", "c1"]));
    let others = world.history(&with(["p", "q"], ["q", "p"]), leaf);
    assert_eq!(others.unwrap(), expected(["c2", "c1"]));
    let lost = world.history(&with(["p", "q"], ["x", "y"]), leaf);
    assert_eq!(lost.unwrap(), expected(["c1", "c2"]));
    let too_many = [with(["p", "q"], ["p", "q"]), vec![result("p", "3")]].concat();
    assert_eq!(world.history(&too_many, leaf), Err(4));
}

#[test]
fn ids_from_elsewhere_may_come_twice() {
    let world = World::default();
    let call = calling("", &[("same", "look")]);
    let list = [user("a"), call.clone(), result("same", "1"), call, result("same", "2")];
    let history = world.tree.history(&list, &chains(&list), 0, &Place::Leaf, None).unwrap();
    let id = |at: usize| history[at].tool_calls().next().unwrap().0.to_string();
    assert_ne!(id(1), id(3));
    assert_eq!((&history[2], &history[4]), (&output(&id(1), "1", false), &output(&id(3), "2", false)));
}
