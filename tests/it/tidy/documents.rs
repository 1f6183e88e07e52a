//! The rules for documents: every link leads somewhere, the README is short, and versions that are pinned twice agree.

use super::{TOP, files, none};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

/// Maximum lines of README.md, so that a stranger reads it in five minutes.
const README_LINES_MAX: usize = 200;

/// Maximum bytes of a picture in a document.
const PICTURE_BYTES_MAX: u64 = 150 * 1024;

/// Every Markdown file of the tree with its text.
fn documents() -> Vec<(String, String)> {
    let (top, folders): (Vec<&str>, Vec<&str>) = TOP.iter().partition(|name| Path::new(name).is_file());
    let top = top.into_iter().map(|name| (name.to_owned(), fs::read(name).unwrap()));
    let all = top.chain(folders.into_iter().flat_map(files)).filter(|(path, _)| path.ends_with(".md"));
    all.map(|(path, bytes)| (path, String::from_utf8(bytes).unwrap())).collect()
}

/// The lines of a document outside its blocks of code, numbered from 1.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            lines.push((index + 1, line));
        }
    }
    lines
}

/// The targets of the links and pictures in a line, `[text](target)`. Those in `code` are not links.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("](") {
        let in_code = line[..at].matches('`').count() % 2 == 1 && line[at..].matches('`').count() % 2 == 1;
        let rest = &line[at + 2..];
        if let Some(end) = rest.find(')').filter(|_| !in_code) {
            found.push(&rest[..end]);
        }
    }
    found
}

/// The name that a heading has as the target of a link.
fn anchor(heading: &str) -> String {
    let letters = heading.trim_start_matches('#').trim().chars();
    let kept = letters.filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// Returns the target of a relative link in the document `path`, from the top of the tree.
fn resolved(path: &str, target: &str) -> PathBuf {
    if target.is_empty() {
        return PathBuf::from(path);
    }
    let mut place = PathBuf::new();
    let folder = Path::new(path).parent().unwrap_or(Path::new(""));
    for component in folder.join(target).components() {
        let is_inside = match component {
            Component::ParentDir => place.pop(),
            Component::Normal(name) => {
                place.push(name);
                true
            }
            _ => true,
        };
        if !is_inside {
            // The link leads out of the tree, where no file has this name.
            place.push("outside of the tree");
        }
    }
    place
}

/// The links of a document that lead to no file, or to no heading. `read` gives the text of a file of the tree, and an
/// empty one of a folder.
fn broken_links(path: &str, text: &str, read: &dyn Fn(&Path) -> Option<String>) -> Vec<String> {
    let mut violations = Vec::new();
    for (number, line) in prose(text) {
        for link in targets(line) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (target, heading) =
                link.split_once('#').map_or((link, None), |(target, heading)| (target, Some(heading)));
            let Some(found) = read(&resolved(path, target)) else {
                violations.push(format!("{path}:{number}: no file `{target}`"));
                continue;
            };
            let named =
                |heading: &str| prose(&found).iter().any(|(_, line)| line.starts_with('#') && anchor(line) == heading);
            if let Some(heading) = heading.filter(|heading| !named(heading)) {
                violations.push(format!("{path}:{number}: no heading `#{heading}` in `{target}`"));
            }
        }
    }
    violations
}

/// The value of `key = "value"` in a text.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='))?;
    line.trim().strip_prefix('"')?.split('"').next()
}

#[test]
fn every_link_in_a_document_leads_somewhere() {
    let read = |path: &Path| {
        let found = Path::new(".").join(path);
        if found.is_dir() {
            Some(String::new())
        } else {
            fs::read(found).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        }
    };
    let documents = documents();
    for needed in ["README.md", "CHANGELOG.md", "protocol/README.md", "src/README.md", "docker/README.md"] {
        assert!(documents.iter().any(|(path, _)| path == needed), "{needed} is there");
    }
    none(&documents.iter().flat_map(|(path, text)| broken_links(path, text, &read)).collect::<Vec<_>>());
}

#[test]
fn every_document_is_reached_from_the_readme() {
    let documents: BTreeMap<String, String> = documents().into_iter().collect();
    let (mut reached, mut open) = (BTreeSet::new(), vec!["README.md".to_owned()]);
    while let Some(path) = open.pop() {
        let Some(text) = documents.get(&path).filter(|_| reached.insert(path.clone())) else { continue };
        let links = prose(text).into_iter().flat_map(|(_, line)| targets(line));
        let links = links.map(|link| resolved(&path, link.split('#').next().unwrap_or(link)));
        open.extend(links.map(|link| link.to_str().unwrap().to_owned()));
    }
    let lost = documents.keys().filter(|path| !reached.contains(*path));
    none(&lost.map(|path| format!("{path}: no link leads here from README.md")).collect::<Vec<_>>());
}

#[test]
fn the_readme_takes_five_minutes() {
    let readme = fs::read_to_string("README.md").unwrap();
    let lines = readme.lines().count();
    assert!(lines <= README_LINES_MAX, "README.md has {lines} lines, at most {README_LINES_MAX}");
    // What a stranger runs, what tests, and what CI runs.
    for command in ["\ncargo run --release\n", "\ntests/run\n"] {
        assert!(readme.contains(command), "README.md does not say `{}`", command.trim());
    }
    assert!(fs::read_to_string(".ci/run").unwrap().contains("tests/run"), "CI runs another command");
}

#[test]
fn pictures_are_small() {
    let pictures = TOP.iter().flat_map(|folder| files(folder)).filter(|(path, _)| path.ends_with(".png"));
    let large = pictures.filter(|(_, bytes)| bytes.len() as u64 > PICTURE_BYTES_MAX);
    none(
        &large
            .map(|(path, bytes)| format!("{path}: {} bytes, at most {PICTURE_BYTES_MAX}", bytes.len()))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn one_toolchain_is_named_everywhere() {
    let pinned = fs::read_to_string("rust-toolchain.toml").unwrap();
    let channel = value(&pinned, "channel").unwrap();
    let manifest = fs::read_to_string("Cargo.toml").unwrap();
    let least = value(&manifest, "rust-version").unwrap();
    assert!(channel.starts_with(&format!("{least}.")), "Cargo.toml needs Rust {least}, the checks run on {channel}");
    let image = fs::read_to_string("docker/Dockerfile").unwrap();
    for line in [format!("FROM rust:{channel}-"), format!("ENV RUSTUP_TOOLCHAIN={channel}\n")] {
        assert!(image.contains(&line), "docker/Dockerfile does not say `{}`", line.trim());
    }
}

#[test]
fn broken_links_are_found_and_no_others() {
    let read = |path: &Path| match path.to_str().unwrap() {
        "a/b.md" => Some("# One\n## Two words, and `three`\n```sh\n# four\n```\n".to_owned()),
        "a" => Some(String::new()),
        _ => None,
    };
    let cases = [
        ("a/c.md", "[b](b.md) [top](../a) ![p](b.md#one) [w](https://example.org/x.md) [m](mailto:a@example.org)", 0),
        ("a/c.md", "[b](b.md#two-words-and-three)", 0),
        ("a/b.md", "[b](#one)", 0),
        ("c.md", "[b](a/b.md) [gone](b.md)", 1),
        ("a/c.md", "[b](../b.md) and [up](../../a/b.md)", 2),
        ("a/c.md", "[b](b.md#four) [b](b.md#two)", 2),
        ("a/c.md", "`[b](gone.md)`\n```\n[b](gone.md)\n```", 0),
    ];
    for (path, text, count) in cases {
        let violations = broken_links(path, text, &read);
        assert_eq!(violations.len(), count, "{path}: {text}\n{violations:?}");
    }
}
