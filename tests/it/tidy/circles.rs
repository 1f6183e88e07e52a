//! Finds files of the protocol that use each other in a circle.

use crate::source::{code, paths, without_tests};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the files, by module path, that are in a circle or use one.
fn circles(sources: &[(String, String)]) -> Vec<String> {
    let name = |path: &str| path.trim_start_matches("protocol/src/").trim_end_matches(".rs").replace('/', "::");
    let names: BTreeSet<String> = sources.iter().map(|(path, _)| name(path)).collect();
    let used_by = |own: &str, path: &[String]| {
        let ups = path.iter().take_while(|word| *word == "super").count();
        let own: Vec<&str> = own.split("::").filter(|word| *word != "lib").collect();
        let from = if path[0] == "crate" { &[] } else { &own[..own.len() - ups] };
        let skipped = ups.max(usize::from(matches!(&*path[0], "crate" | "self")));
        let full: Vec<&str> = from.iter().copied().chain(path[skipped..].iter().map(String::as_str)).collect();
        let file = (1..=full.len()).rev().map(|len| full[..len].join("::")).find(|file| names.contains(file));
        file.or_else(|| (path[0] == "crate").then(|| "lib".to_owned()))
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
fn no_files_of_the_protocol_use_each_other_in_a_circle() {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let sources = super::files("protocol/src").into_iter().map(|(path, bytes)| (path, text(bytes)));
    assert_eq!(circles(&sources.collect::<Vec<_>>()), Vec::<String>::new());
    let of = |(path, text): (&str, &str)| (format!("protocol/src/{path}.rs"), text.to_owned());
    let open = [("a", "use crate::b::C;"), ("b", "mod c;"), ("b/c", "use super::super::a;")].map(of);
    assert_eq!(circles(&open), Vec::<String>::new(), "`mod` is no use");
    let closed = [("a", "use crate::b::C;"), ("b", "pub use self::c::C;"), ("b/c", "use crate::a::D;")].map(of);
    assert_eq!(circles(&closed), ["a", "b", "b::c"]);
}
