//! Draws a tree as `git log --graph` does: one line per entry, oldest first, indented only where it branches. Of
//! several branches the one that leads to the leaf, or else the newest, continues straight; the others come before it,
//! beside it.

use reseed_protocol::EntryId;
use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

/// Most columns of indentation; deeper branches are not indented further.
const INDENT_MAX: usize = 48;

/// An entry to draw.
#[derive(Debug)]
pub(super) struct Drawn {
    pub(super) id: EntryId,
    pub(super) parent: Option<EntryId>,
    /// The text of its line.
    pub(super) text: String,
}

/// Draws entries, given in log order, and calls `line` for each line.
pub(super) fn draw(entries: &[Drawn], leaf: Option<&EntryId>, mut line: impl FnMut(&str, &Drawn)) {
    let place: HashMap<&EntryId, usize> = entries.iter().enumerate().map(|(at, entry)| (&entry.id, at)).collect();
    let parent = |at: usize| entries[at].parent.as_ref().and_then(|parent| place.get(parent).copied());
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); entries.len()];
    let mut roots = Vec::new();
    for at in 0..entries.len() {
        match parent(at) {
            Some(above) => children[above].push(at),
            None => roots.push(at),
        }
    }
    let mut straight = HashSet::new();
    let mut at = leaf.and_then(|leaf| place.get(leaf).copied());
    while let Some(here) = at.filter(|here| straight.insert(*here)) {
        at = parent(here);
    }
    let mut drawn = vec![false; entries.len()];
    let none: Rc<str> = "".into();
    // Entries that are each other's ancestors have no root; they are drawn starting from the first.
    for root in roots.into_iter().chain(0..entries.len()) {
        let mut waiting = vec![(root, none.clone(), false)];
        while let Some((at, prefix, beside)) = waiting.pop() {
            if std::mem::replace(&mut drawn[at], true) {
                continue;
            }
            line(&format!("{prefix}{}", if beside { "|-* " } else { "* " }), &entries[at]);
            let indented = beside && prefix.len() < INDENT_MAX;
            let prefix: Rc<str> = if indented { format!("{prefix}| ").into() } else { prefix };
            let below = &children[at];
            let on = below.iter().find(|child| straight.contains(child)).or(below.last()).copied();
            waiting.extend(on.map(|on| (on, prefix.clone(), false)));
            let others = below.iter().rev().filter(|child| Some(**child) != on);
            waiting.extend(others.map(|child| (*child, prefix.clone(), true)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws entries given as `id<parent` words.
    fn drawn(words: &str, leaf: &str) -> Vec<String> {
        let entry = |word: &str| {
            let (id, parent) = word.split_once('<').unwrap();
            let parent = Some(parent).filter(|parent| !parent.is_empty()).map(|parent| parent.parse().unwrap());
            Drawn { id: id.parse().unwrap(), parent, text: id.to_owned() }
        };
        let entries: Vec<Drawn> = words.split(' ').map(entry).collect();
        let leaf: Option<EntryId> = leaf.parse().ok();
        let mut lines = Vec::new();
        draw(&entries, leaf.as_ref(), |prefix, entry| lines.push(format!("{prefix}{}", entry.text)));
        lines
    }

    #[test]
    fn only_branches_are_indented_and_the_leaf_is_straight_below_its_root() {
        let table: [(&str, &str, &[&str]); 7] = [
            ("a< b<a c<b", "c", &["* a", "* b", "* c"]),
            ("a< b<a c<b d<a e<d", "e", &["* a", "|-* b", "| * c", "* d", "* e"]),
            ("a< b<a c<b d<a e<d", "c", &["* a", "|-* d", "| * e", "* b", "* c"]),
            ("a< b<a c<a d<a", "", &["* a", "|-* b", "|-* c", "* d"]),
            ("a< b<a c<b d<b e<a f<e", "f", &["* a", "|-* b", "| |-* c", "| * d", "* e", "* f"]),
            ("a< b<gone c<a", "c", &["* a", "* c", "* b"]),
            ("x<z y<x z<y a<", "y", &["* a", "* x", "* y", "* z"]),
        ];
        for (words, leaf, expected) in table {
            assert_eq!(drawn(words, leaf), expected, "{words}");
        }
    }

    #[test]
    fn however_deep_it_ends_and_stays_narrow() {
        let mut words = vec!["e0<".to_owned()];
        for n in 1..20_000 {
            words.push(format!("e{n}<e{}", n - 1));
            words.push(format!("s{n}<e{}", n - 1));
        }
        let lines = drawn(&words.join(" "), "");
        assert_eq!(lines.len(), words.len());
        assert!(lines.iter().all(|line| line.len() < INDENT_MAX + 16));
    }
}
