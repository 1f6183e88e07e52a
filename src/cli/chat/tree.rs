//! The tree as lines of text, like the graph of a version history; pure.
//!
//! An entry's main child goes on in the same lane; the other branches come before it, one lane further to the right, so
//! that every lane to the left of a line passes by it. The middle of a long stretch without branches is left out.

use super::screen::{Ink, Screen, one_line};
use reseed_protocol::{
    EntryId,
    reply::{Tree, TreeNode},
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Entries that have no line: they say nothing, or say it beside another entry.
const HIDDEN: &[&str] = &[
    "label",
    "session_info",
    "custom",
    "model_change",
    "thinking_level_change",
    "foreign",
    "ephemeral",
    "context_transform",
];

/// Lines of a stretch without branches that are shown at each of its ends.
const ENDS_SHOWN: usize = 3;

/// Fewer lines than this are not worth leaving out.
const LEFT_OUT_MIN: usize = 5;

/// A line of the tree.
struct Row<'a> {
    node: &'a TreeNode,
    lane: usize,
    /// It begins a branch beside the lane to its left.
    begins: bool,
    /// Nothing branches off here, and its line comes from above and goes on below.
    plain: bool,
}

/// A tree by what hangs from what.
struct Shape<'a> {
    nodes: BTreeMap<&'a EntryId, &'a TreeNode>,
    children: BTreeMap<&'a EntryId, Vec<&'a TreeNode>>,
    path: BTreeSet<&'a EntryId>,
}

impl Screen {
    /// The tree, and the entries of its numbered lines in their order.
    pub(super) fn tree(self, tree: &Tree) -> (String, Vec<EntryId>) {
        let shape = Shape::of(tree);
        let rows = shape.rows(tree);
        let here = shape.shown_above(tree.leaf_id.as_ref());
        let mut numbered = Vec::new();
        let mut out = String::new();
        let mut at = 0;
        while at < rows.len() {
            let stretch = rows[at..].iter().take_while(|row| row.plain && row.lane == rows[at].lane).count();
            let left_out = stretch.saturating_sub(2 * ENDS_SHOWN);
            if left_out < LEFT_OUT_MIN {
                for row in &rows[at..at + stretch.max(1)] {
                    self.tree_line(&mut out, row, &shape, here, &mut numbered);
                }
            } else {
                for row in &rows[at..at + ENDS_SHOWN] {
                    self.tree_line(&mut out, row, &shape, here, &mut numbered);
                }
                let _ = writeln!(out, "      {}: {left_out} more", "| ".repeat(rows[at].lane));
                for row in &rows[at + stretch - ENDS_SHOWN..at + stretch] {
                    self.tree_line(&mut out, row, &shape, here, &mut numbered);
                }
            }
            at += stretch.max(1);
        }
        if rows.is_empty() {
            out.push_str("nothing was said yet\n");
        }
        out.push_str(&self.note(if tree.more {
            "there is more below; /go takes an id too"
        } else {
            "/go N goes on from a line, /fork N makes a session of it, /label N NAME names it"
        }));
        (out, numbered)
    }

    fn tree_line(
        self,
        out: &mut String,
        row: &Row<'_>,
        shape: &Shape<'_>,
        here: Option<&EntryId>,
        numbered: &mut Vec<EntryId>,
    ) {
        let node = row.node;
        numbered.push(node.entry_id.clone());
        let lanes = if row.begins { format!("{}\\ ", "| ".repeat(row.lane - 1)) } else { "| ".repeat(row.lane) };
        let who = match node.kind.as_str() {
            "message:user" => "> ",
            "message:assistant" => "",
            "message:tool" => "tool: ",
            "compaction" => "compacted: ",
            "branch_summary" => "left branch: ",
            _ => "note: ",
        };
        let text = format!("{who}{}", one_line(&node.preview));
        let ink = if shape.path.contains(&node.entry_id) { Ink::Bold } else { Ink::Dim };
        let _ = write!(out, "{:>4}  {lanes}* {}", numbered.len(), self.ink(ink, &text));
        if let Some(label) = &node.label {
            let _ = write!(out, " {}", self.ink(Ink::Yellow, &format!("[{}]", one_line(label))));
        }
        out.push_str(if here == Some(&node.entry_id) { "  <- here\n" } else { "\n" });
    }
}

impl<'a> Shape<'a> {
    fn of(tree: &'a Tree) -> Self {
        let nodes: BTreeMap<&EntryId, &TreeNode> = tree.nodes.iter().map(|node| (&node.entry_id, node)).collect();
        let mut children: BTreeMap<&EntryId, Vec<&TreeNode>> = BTreeMap::new();
        for node in &tree.nodes {
            if let Some(parent) = &node.parent_id {
                children.entry(parent).or_default().push(node);
            }
        }
        let mut path = BTreeSet::new();
        let mut at = tree.leaf_id.as_ref();
        // A place that was seen would be a circle, which no tree of the server's has.
        while let Some(id) = at.filter(|id| path.insert(*id)) {
            at = nodes.get(id).and_then(|node| node.parent_id.as_ref());
        }
        Self { nodes, children, path }
    }

    /// The entry itself, or the nearest above it that has a line.
    fn shown_above(&self, entry: Option<&'a EntryId>) -> Option<&'a EntryId> {
        let mut at = entry;
        while let Some(node) = at.and_then(|id| self.nodes.get(id)) {
            if !is_hidden(node) {
                return Some(&node.entry_id);
            }
            at = node.parent_id.as_ref();
        }
        None
    }

    /// The entries themselves, or, where one has no line, those below it that have.
    fn shown(&self, nodes: impl DoubleEndedIterator<Item = &'a TreeNode>) -> Vec<&'a TreeNode> {
        let mut open: Vec<&TreeNode> = nodes.rev().collect();
        let mut found = Vec::new();
        while let Some(node) = open.pop() {
            if is_hidden(node) {
                open.extend(self.children_of(node).iter().rev());
            } else {
                found.push(node);
            }
        }
        found
    }

    fn children_of(&self, node: &TreeNode) -> &[&'a TreeNode] {
        self.children.get(&node.entry_id).map_or(&[], Vec::as_slice)
    }

    /// The one that goes on in its parent's lane: on the path, or else the newest.
    fn main_of(&self, nodes: &[&'a TreeNode]) -> Option<&'a TreeNode> {
        nodes.iter().find(|node| self.path.contains(&node.entry_id)).or(nodes.last()).copied()
    }

    fn rows(&self, tree: &'a Tree) -> Vec<Row<'a>> {
        let tops = tree.nodes.iter().filter(|node| {
            let parent = node.parent_id.as_ref();
            parent.is_none_or(|parent| !self.nodes.contains_key(parent))
        });
        let tops = self.shown(tops);
        let main = self.main_of(&tops).map(|node| &node.entry_id);
        // What is to be drawn, the next last: what the session is on comes at the end, nearest to what is said next.
        let mut open: Vec<(&TreeNode, usize, bool, bool)> = Vec::new();
        open.extend(tops.iter().filter(|node| Some(&node.entry_id) == main).map(|node| (*node, 0, false, false)));
        open.extend(tops.iter().rev().filter(|node| Some(&node.entry_id) != main).map(|node| (*node, 0, false, false)));
        let mut rows = Vec::new();
        while let Some((start, lane, begins, continues)) = open.pop() {
            let (mut at, mut first) = (Some(start), true);
            while let Some(node) = at {
                let children = self.shown(self.children_of(node).iter().copied());
                let next = self.main_of(&children);
                let above = continues || !first;
                let marked = node.label.is_some() || !node.kind.starts_with("message:");
                let leaf = Some(&node.entry_id) == self.shown_above(tree.leaf_id.as_ref());
                let plain = above && children.len() == 1 && !marked && !leaf;
                rows.push(Row { node, lane, begins: begins && first, plain });
                first = false;
                at = next;
                if let Some(next) = next.filter(|_| children.len() > 1) {
                    open.push((next, lane, false, true));
                    let sides = children.iter().rev().filter(|child| child.entry_id != next.entry_id);
                    open.extend(sides.map(|side| (*side, lane + 1, true, false)));
                    at = None;
                }
            }
        }
        rows
    }
}

fn is_hidden(node: &TreeNode) -> bool {
    HIDDEN.contains(&node.kind.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A tree of `ID PARENT KIND PREVIEW [LABEL]` lines, drawn.
    fn drawn(leaf: Option<&str>, lines: &[&str]) -> String {
        let nodes: Vec<_> = lines
            .iter()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                let parent = (words[1] != "-").then_some(words[1]);
                let mut node = json!({
                    "entryId": words[0], "parentId": parent, "type": words[2], "preview": words[3],
                    "timestamp": "2026-11-21T09:00:00.000Z", "childCount": 0,
                });
                if let Some(label) = words.get(4) {
                    node["label"] = json!(label);
                }
                node
            })
            .collect();
        let tree = json!({ "nodes": nodes, "leafId": leaf, "asOfSeq": 1, "more": false });
        let (text, numbered) = Screen { color: false }.tree(&serde_json::from_value(tree).unwrap());
        let (lines, _) = text.rsplit_once('\n').unwrap();
        assert_eq!(lines.lines().filter(|line| line.contains('*')).count(), numbered.len());
        lines.to_owned()
    }

    #[test]
    fn branches_come_beside_the_path_and_what_says_nothing_has_no_line() {
        let lines = [
            "a - message:user one",
            "b a message:assistant two start",
            "c b message:user three",
            "l b label start",
            "d l message:user four",
            "e d compaction five",
            "f c message:assistant six",
            "g c message:tool seven",
        ];
        assert_eq!(
            drawn(Some("e"), &lines),
            "   1  * > one\n   2  * two [start]\n   3  \\ * > three\n   4  | \\ * six\n   5  | * tool: seven\n   \
             6  * > four\n   7  * compacted: five  <- here"
        );
        assert_eq!(drawn(Some("l"), &lines[..4]), "   1  * > one\n   2  * two [start]  <- here\n   3  * > three");
        assert_eq!(drawn(None, &[]), "nothing was said yet");
    }

    #[test]
    fn the_middle_of_a_long_stretch_is_left_out() {
        let lines: Vec<String> = (0..30)
            .map(|n| {
                let parent = if n == 0 { "-".to_owned() } else { format!("e{}", n - 1) };
                format!("e{n} {parent} message:user m{n}")
            })
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let drawn = drawn(Some("e29"), &lines);
        let expected = ["m0", "m1", "m2", "m3", ": 22 more", "m26", "m27", "m28", "m29"];
        assert_eq!(drawn.lines().count(), expected.len(), "{drawn}");
        for (line, part) in drawn.lines().zip(expected) {
            assert!(line.contains(part), "{line} has no {part}");
        }
    }
}
