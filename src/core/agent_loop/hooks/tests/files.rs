//! Files named by tool calls, carried through repeated compactions and branch summaries.

use super::*;
use crate::text::files::FileTools;
use reseed_protocol::{
    EntryId,
    compaction::{CompactionDetails, StartCompaction},
    tree::{Navigate, NavigatePosition},
};

/// Returns a session in which `look` reads the file `where`, and `edit` writes the file `path`.
fn filing() -> World {
    let tool = |name: &str, path: &str| (name.to_owned(), path.to_owned());
    let mut world = World::with(Vec::new(), &["e0:user where is the harbour", "e1:assistant to the west"], |d, _| {
        d.file_tools = FileTools { reads: vec![tool("look", "where")], writes: vec![tool("edit", "path")] };
        // Everything before the last turn is summarised.
        d.options.keep_recent_tokens = 200;
    });
    world.offer_tool();
    world
}

impl World {
    /// Runs a turn in which the model reads a file and writes another.
    fn works_on(&mut self, reads: &str, writes: &str) {
        let call = |name: &str, arguments: Value| Part::ToolCall {
            call_id: "call_0".parse().unwrap(),
            name: name.into(),
            arguments: arguments.to_string(),
        };
        self.say("Mind the files.");
        self.model_says(vec![call("look", json!({ "where": reads })), call("edit", json!({ "path": writes }))]);
        // No client offers `edit`: a failed call names its file too.
        self.tool("read").model(&"The harbour lies to the west. ".repeat(40));
    }

    fn compacts(&mut self) {
        self.command(SessionCommand::StartCompaction(StartCompaction::default())).summary();
    }

    /// Returns the files noted by the newest entry of this kind, and its summary.
    fn noted(&self, kind: &str) -> (CompactionDetails, String) {
        match &self.newest(kind).data {
            EntryData::Compaction(entry) => (entry.details.clone().unwrap(), entry.summary.clone()),
            EntryData::BranchSummary(entry) => (entry.details.clone().unwrap(), entry.summary.clone()),
            other => panic!("another entry: {other:?}"),
        }
    }

    fn check_files(&self, kind: &str, read: &[&str], modified: &[&str]) {
        let (details, summary) = self.noted(kind);
        assert_eq!((details.read_files, details.modified_files), (owned(read), owned(modified)), "{kind}");
        let at = |tag: &str| summary.find(tag);
        let tags = [("<read-files>", read), ("<modified-files>", modified)];
        for (tag, files) in tags {
            assert_eq!(at(tag).is_some(), !files.is_empty(), "{kind}: {summary}");
        }
        if !read.is_empty() && !modified.is_empty() {
            assert!(at("<read-files>") < at("<modified-files>"), "{kind}: read before modified: {summary}");
        }
        assert_eq!(summary.matches("<modified-files>").count(), 1, "{kind}: once: {summary}");
    }
}

fn owned(files: &[&str]) -> Vec<String> {
    files.iter().map(|file| (*file).to_owned()).collect()
}

#[test]
fn files_are_carried_through_nested_compactions_and_branch_summaries() {
    let mut world = filing();
    world.works_on("a", "b");
    let fork = world.agent.session().state.leaf.clone().unwrap();
    world.say("more").model(&"And so on. ".repeat(200));
    world.compacts();
    world.check_files("compaction", &["a"], &["b"]);
    // A file that was read before and is written now is listed only as written.
    world.works_on("c", "a");
    world.say("more").model(&"And so on. ".repeat(200));
    world.compacts();
    world.check_files("compaction", &["c"], &["a", "b"]);
    world.say("more").model(&"And so on. ".repeat(400));
    world.compacts();
    world.check_files("compaction", &["c"], &["a", "b"]);

    // The abandoned branch notes its own files and those of its compactions.
    world.works_on("d", "e");
    let mut on_fork: Vec<Entry> = world.entries.iter().take_while(|entry| entry.entry_id != fork).cloned().collect();
    on_fork.extend(world.entries.iter().find(|entry| entry.entry_id == fork).cloned());
    let counter = Counter::for_model("test");
    let mut tree = crate::session::SessionTree::default();
    for entry in on_fork {
        tree.append(Arc::new(crate::session::Node::counted(entry, &counter)));
    }
    let left = world.entries.iter().rev().take_while(|entry| entry.entry_id != fork).cloned().collect();
    let place =
        Destination { leaf: Some(fork.clone()), tree, left, common: Some(fork.clone()), ..Destination::default() };
    let navigate = Navigate {
        entry_id: Some(EntryId::clone(&fork)),
        position: Some(NavigatePosition::At),
        summarize: Some(true),
        instructions: None,
        replace_instructions: None,
        label: None,
    };
    world.command_to(SessionCommand::Navigate(navigate), Some(place)).summary();
    world.check_files("branch_summary", &["c", "d"], &["a", "b", "e"]);

    // A compaction of that branch summary keeps them, and adds the files of this branch's own calls.
    world.works_on("e", "f");
    world.say("more").model(&"And so on. ".repeat(400));
    world.compacts();
    world.check_files("compaction", &["c", "d"], &["a", "b", "e", "f"]);
}
