//! Finds files that use each other in a circle.

use crate::source::{code, paths, without_tests};
use std::collections::{BTreeMap, BTreeSet};

/// The folders without circles. Where `true`, a file and the folder of its name are one part, because a type may be
/// implemented in several files of its folder.
const ROOMS: [(&str, bool); 4] =
    [("protocol/src/", false), ("src/runtime/", true), ("src/server/", true), ("src/provider/", true)];

/// Returns the parts of a folder, by module path, that are in a circle or use one.
fn circles((folder, by_part): (&str, bool), sources: &[(String, String)]) -> Vec<String> {
    let room = folder.trim_start_matches("protocol").trim_start_matches("/src/").trim_start_matches("src/");
    let name = |path: &str| {
        path.trim_start_matches(folder).trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::")
    };
    let part = |file: &str| file.split("::").next().filter(|_| by_part).unwrap_or(file).to_owned();
    let names: BTreeSet<String> = sources.iter().map(|(path, _)| name(path)).collect();
    let root = if names.contains("mod") { "mod" } else { "lib" };
    let used_by = |own: &str, path: &[String]| {
        let ups = path.iter().take_while(|word| *word == "super").count();
        let own: Vec<&str> = own.split("::").filter(|word| *word != root).collect();
        let mut from: Vec<&str> =
            if path[0] == "crate" { Vec::new() } else { own.get(..own.len().checked_sub(ups)?)?.to_vec() };
        let skipped = ups.max(usize::from(matches!(&*path[0], "crate" | "self")));
        let mut inner = path[skipped..].iter().map(String::as_str).peekable();
        if path[0] == "crate" && !room.is_empty() {
            inner.next_if(|first| *first == room.trim_end_matches('/'))?;
            // A visibility, as in `pub(in crate::runtime)`, uses nothing.
            inner.peek()?;
        }
        from.extend(inner);
        let file = (1..=from.len()).rev().map(|len| from[..len].join("::")).find(|file| names.contains(file));
        file.or_else(|| matches!(&*path[0], "crate" | "super").then(|| root.to_owned()))
    };
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in sources {
        let (own, of_part) = (name(path), part(&name(path)));
        let used = paths(&without_tests(&code(text))).into_iter().filter_map(|path| used_by(&own, &path));
        let used: Vec<String> = used.map(|file| part(&file)).filter(|used| *used != of_part).collect();
        uses.entry(of_part).or_default().extend(used);
    }
    while let Some((free, _)) = uses.iter().find(|(_, used)| !used.iter().any(|file| uses.contains_key(file))) {
        uses.remove(&free.clone());
    }
    uses.into_keys().collect()
}

#[test]
fn no_files_of_a_room_use_each_other_in_a_circle() {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    for room in ROOMS {
        let sources = super::files(room.0.trim_end_matches('/')).into_iter().map(|(path, bytes)| (path, text(bytes)));
        assert_eq!(circles(room, &sources.collect::<Vec<_>>()), Vec::<String>::new());
    }
    let protocol = |(path, text): (&str, &str)| (format!("protocol/src/{path}.rs"), text.to_owned());
    let open = [("a", "use crate::b::C;"), ("b", "mod c;"), ("b/c", "use super::super::a;")].map(protocol);
    assert_eq!(circles(ROOMS[0], &open), Vec::<String>::new(), "`mod` is no use");
    let closed = [("a", "use crate::b::C;"), ("b", "pub use self::c::C;"), ("b/c", "use crate::a::D;")].map(protocol);
    assert_eq!(circles(ROOMS[0], &closed), ["a", "b", "b::c"]);
    let runtime = |(path, text): (&str, &str)| (format!("src/runtime/{path}.rs"), text.to_owned());
    let open = [("a", "use crate::{core::b::C, runtime::b::C};"), ("b", "use self::c::C;"), ("b/c", "use super::D;")];
    assert_eq!(circles(ROOMS[1], &open.map(runtime)), Vec::<String>::new(), "a folder is one part");
    let closed = [("mod", "use a::C;"), ("a", "use crate::runtime::b::C;"), ("b", ""), ("b/c", "use super::super::C;")];
    assert_eq!(circles(ROOMS[1], &closed.map(runtime)), ["a", "b", "mod"]);
}
