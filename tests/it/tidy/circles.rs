//! Finds files of a room that use each other in a circle.

use crate::source::{code, paths, without_tests};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the files below `folder`, by module path, that are in a circle or use one. The folder is the module `room`.
fn circles(folder: &str, room: &[&str], sources: &[(String, String)]) -> Vec<String> {
    let name =
        |path: &str| path.trim_start_matches(folder).trim_end_matches(".rs").replace("/mod", "").replace('/', "::");
    let names: BTreeSet<String> = sources.iter().map(|(path, _)| name(path)).collect();
    let used_by = |own: &str, path: &[String]| {
        let ups = path.iter().take_while(|word| *word == "super").count();
        let own: Vec<&str> = own.split("::").filter(|word| !["lib", "mod"].contains(word)).collect();
        let is_absolute = path[0] == "crate";
        let from = if is_absolute { &[][..] } else { own.get(..own.len().checked_sub(ups)?)? };
        let inner = if is_absolute {
            path.iter().zip(room).all(|(word, room)| word == room).then(|| path.get(room.len()..))??
        } else {
            &path[ups.max(usize::from(path[0] == "self"))..]
        };
        let full: Vec<&str> = from.iter().copied().chain(inner.iter().map(String::as_str)).collect();
        let file = (1..=full.len()).rev().map(|len| full[..len].join("::")).find(|file| names.contains(file));
        file.or_else(|| (is_absolute && names.contains("lib")).then(|| "lib".to_owned()))
    };
    let uses = sources.iter().map(|(path, text)| {
        let own = name(path);
        let used = paths(&without_tests(&code(text))).into_iter().filter_map(|path| used_by(&own, &path));
        (own.clone(), used.filter(|file| *file != own).collect())
    });
    let mut uses: BTreeMap<String, Vec<String>> = uses.collect();
    while let Some((free, _)) = uses.iter().find(|(_, used)| !used.iter().any(|file| uses.contains_key(file))) {
        uses.remove(&free.clone());
    }
    uses.into_keys().collect()
}

#[test]
fn no_files_of_a_room_use_each_other_in_a_circle() {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let rooms: [(&str, &[&str]); 2] = [("protocol/src/", &["crate"]), ("src/server/", &["crate", "server"])];
    for (folder, room) in rooms {
        let sources = super::files(folder.trim_end_matches('/')).into_iter().map(|(path, bytes)| (path, text(bytes)));
        assert_eq!(circles(folder, room, &sources.collect::<Vec<_>>()), Vec::<String>::new());
        let of = |(path, text): (&str, &str)| (format!("{folder}{path}.rs"), text.replace("crate", &room.join("::")));
        let open = [("a", "use crate::b::C;"), ("b", "mod c;"), ("b/c", "use super::super::a;")].map(of);
        assert_eq!(circles(folder, room, &open), Vec::<String>::new(), "`mod` is no use");
        let closed = [("a", "use crate::b::C;"), ("b", "pub use self::c::C;"), ("b/c", "use crate::a::D;")].map(of);
        assert_eq!(circles(folder, room, &closed), ["a", "b", "b::c"]);
    }
}
