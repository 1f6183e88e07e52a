//! House rules that the compiler does not check: which room may import which, what the core never uses, how long a file
//! may be and how it begins. Each rule is a function from a file to its violations, and is tested with one that it must
//! find.

mod absent;
mod circles;
mod comments;
mod core_rooms;
mod documents;

use crate::source::{code, paths, test_items, without_tests, words};
use absent::{absent, absent_in_tests};
use core_rooms::core_rooms;
use std::{fs, path::Path};

/// Maximum lines of a file; a longer one holds a second noun.
const LINES_MAX: usize = 600;

/// Each room of `src/` and those it may import. Imports point one way: a room is listed after those that it may import.
const ROOMS: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("pi", &["core"]),
    ("store", &["core"]),
    // The names of strategies belong to the core: a new one changes no setting. The store parses its own address.
    ("config", &["core", "store"]),
    ("clock", &[]),
    ("metrics", &["core"]),
    ("trace", &["config", "metrics"]),
    ("telemetry", &["config"]),
    ("provider", LEAVES),
    ("hooks", LEAVES),
    ("tools", &["core", "config", "clock", "metrics", "trace", "store"]),
    ("shares", &["core", "config", "clock", "metrics", "store"]),
    ("runtime", &["core", "config", "clock", "metrics", "trace", "provider", "store", "hooks", "tools", "shares"]),
    (
        "server",
        &["core", "config", "clock", "metrics", "trace", "provider", "store", "hooks", "tools", "shares", "runtime"],
    ),
    (
        "service",
        &[
            "core", "pi", "config", "clock", "metrics", "trace", "provider", "store", "hooks", "tools", "shares",
            "runtime", "server",
        ],
    ),
    ("replay", &["core", "pi", "config", "provider", "store", "tools", "runtime"]),
    (
        "cli",
        &[
            "core",
            "pi",
            "config",
            "clock",
            "metrics",
            "telemetry",
            "provider",
            "store",
            "hooks",
            "tools",
            "shares",
            "runtime",
            "server",
            "service",
            "replay",
        ],
    ),
];

/// Imports allowed to the rooms between core and runtime.
const LEAVES: &[&str] = &["core", "config", "clock", "metrics", "trace"];

/// Paths of the standard library that the pure crates never use: files, the network, the process, threads, clocks. They
/// cannot use other crates without naming them in their Cargo.toml.
const IMPURE: &[&[&str]] = &[
    &["std", "env"],
    &["std", "fs"],
    &["std", "net"],
    &["std", "process"],
    &["std", "thread"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
];

/// The top of the tree, without hidden files; more would bury the README.
const TOP: &[&str] = &[
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "docker",
    "protocol",
    "rust-toolchain.toml",
    "src",
    "tests",
];

/// Folders that tools create and `.gitignore` names.
const TOP_IGNORED: &[&str] = &["data", "node_modules", "target"];
/// Folders of what is built or installed; git ignores them too.
const BUILT: &[&str] = &["client/dist", "node_modules", "target"];

/// Calls that end the process where an error should be returned. (`expect` says why it cannot fail.)
const SHORTCUTS: &[&str] = &[".unwrap()", "panic!(", "todo!(", "unimplemented!(", "dbg!("];

/// A rule: the violations of the file `path`, which reads `text`.
type Rule = fn(path: &str, text: &str) -> Vec<String>;

/// Rules for the server's own code, by the folder that they apply to.
const RULES: &[(&str, Rule)] = &[
    ("src/", imports),
    ("src/", servers),
    ("src/", programs),
    ("src/core/", core_rooms),
    ("src/core/", purity),
    ("src/pi/", purity),
    ("src/", shortcuts),
    ("protocol/src/", shortcuts),
    ("protocol/codegen/src/", shortcuts),
    ("protocol/client-rust/src/", deciding),
    ("protocol/client-rust/src/", shortcuts),
];

/// The files of the Rust client that use a socket or a clock. All others decide.
const CLIENT_SHELL: &[&str] = &["client.rs", "driver.rs", "socket.rs", "transport.rs"];

/// Rules for files of tests.
const RULES_FOR_TESTS: &[Rule] = &[absent];

/// Rules for files with tests in them.
const RULES_FOR_TESTED: &[Rule] = &[absent_in_tests];

/// Rules for every Rust file, tests too.
const RULES_FOR_ALL: &[Rule] = &[head, length];

/// Checks that imports point one way.
fn imports(path: &str, text: &str) -> Vec<String> {
    let modules = modules(path);
    // The Cargo.toml of a crate says what the crate may use.
    let is_no_room = |room: &&String| !matches!(room.as_str(), "main" | "core" | "dialects" | "pi" | "shell" | "store");
    let Some(room) = modules.first().filter(is_no_room) else { return Vec::new() };
    let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| name == room) else {
        return vec![format!("{path}: room `{room}` is not in the order of rooms")];
    };
    let mut violations = Vec::new();
    for used in paths(&without_tests(&code(text))) {
        let Some(used) = within_crate(&modules, &used) else { continue };
        if ROOMS.iter().any(|(name, _)| *name == used) && used != *room && !allowed.contains(&used.as_str()) {
            violations.push(format!("{path}: `{room}` imports `{used}`"));
        }
    }
    violations
}

/// Checks that only the command line of the server and the dialects are clients. The server lets the latter in.
fn servers(path: &str, text: &str) -> Vec<String> {
    let is_client =
        modules(path).first().is_some_and(|room| room == "cli" || room == "dialects") || path == "src/server/inside.rs";
    let used = paths(&without_tests(&code(text))).into_iter().filter(|used| used[0] == "reseed_client");
    used.filter(|_| !is_client).map(|used| format!("{path}: the server imports `{}`", used.join("::"))).collect()
}

/// Checks that the server starts no program but MCP servers. Programs for the model are run by one of those.
fn programs(path: &str, text: &str) -> Vec<String> {
    if path.starts_with("src/shell/") || path == "src/tools/mcp/process.rs" {
        return Vec::new();
    }
    let used = paths(&without_tests(&code(text))).into_iter();
    let starting = used.filter(|used| used.ends_with(&["process".to_owned(), "Command".to_owned()]));
    starting.map(|used| format!("{path}: the server starts a program (`{}`)", used.join("::"))).collect()
}

/// Checks that the deciding part of the client waits for nothing and reads no clock.
fn deciding(path: &str, text: &str) -> Vec<String> {
    if CLIENT_SHELL.iter().any(|shell| path.ends_with(&format!("/src/{shell}"))) {
        return Vec::new();
    }
    let code = without_tests(&code(text));
    let waiting =
        ["async", "await", "tokio"].into_iter().filter(|word| words(&code).iter().any(|(found, _)| found == word));
    let clock = paths(&code).into_iter().any(|used| used.ends_with(&["Instant".to_owned(), "now".to_owned()]));
    let clock = clock.then(|| format!("{path}: what decides reads the clock"));
    waiting.map(|word| format!("{path}: what decides says `{word}`")).chain(clock).collect()
}

/// Checks that a pure crate waits for nothing and uses nothing of the machine. Its build script is exempt, because it
/// runs before the crate exists.
fn purity(path: &str, text: &str) -> Vec<String> {
    if path == "src/core/build.rs" {
        return Vec::new();
    }
    let code = without_tests(&code(text));
    let words = words(&code);
    let waiting = ["async", "await"].into_iter().filter(|word| words.iter().any(|(found, _)| found == word));
    let mut violations: Vec<String> = waiting.map(|word| format!("{path}: a pure crate says `{word}`")).collect();
    for used in paths(&code) {
        if IMPURE.iter().any(|impure| used.iter().map(String::as_str).take(impure.len()).eq(impure.iter().copied())) {
            violations.push(format!("{path}: a pure crate uses `{}`", used.join("::")));
        }
    }
    violations
}

/// Checks that errors are returned.
fn shortcuts(path: &str, text: &str) -> Vec<String> {
    let code = without_tests(&code(text));
    let lines = code.lines().enumerate();
    let calls = lines.flat_map(|(index, line)| {
        SHORTCUTS.iter().filter(|call| line.contains(**call)).map(move |call| (index + 1, *call))
    });
    calls.map(|(line, call)| format!("{path}:{line}: `{call}` outside tests")).collect()
}

/// Checks that a file begins with its purpose.
fn head(path: &str, text: &str) -> Vec<String> {
    if text.starts_with("//! ") { Vec::new() } else { vec![format!("{path}: does not open with `//!`")] }
}

/// Checks that a file is not too long.
fn length(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().count();
    if lines <= LINES_MAX { Vec::new() } else { vec![format!("{path}: {lines} lines, at most {LINES_MAX}")] }
}

/// Checks that the page requests nothing from other hosts. Names of XML vocabularies are not requests.
fn addresses(path: &str, text: &str) -> Vec<String> {
    let mut violations = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for scheme in ["http://", "https://", "src=\"//", "href=\"//", "url(//"] {
            for (at, _) in line.match_indices(scheme) {
                let address = &line[at + scheme.len()..];
                let names_host = address.starts_with(|letter: char| letter.is_ascii_alphanumeric());
                if names_host && !address.starts_with("www.w3.org/") {
                    violations.push(format!("{path}:{}: an address of another host", index + 1));
                }
            }
        }
    }
    violations
}

/// Returns the names that do not belong at the top of the tree.
fn strangers<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    names.filter(|name| !name.starts_with('.') && !TOP.contains(name) && !TOP_IGNORED.contains(name)).collect()
}

/// Returns the modules of a file of `src/`, outermost first.
fn modules(path: &str) -> Vec<String> {
    let inner = path.trim_start_matches("src/").trim_end_matches(".rs");
    let names = inner.split('/').filter(|name| *name != "mod" && *name != "lib");
    names.map(str::to_owned).collect()
}

/// Returns the files, and folders with a `/` at the end, that `path` mounts as modules of tests.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let code = code(text);
    let folder = match path.rsplit_once('/') {
        Some((folder, "mod.rs" | "lib.rs" | "main.rs")) => folder,
        _ => path.trim_end_matches(".rs"),
    };
    let items = test_items(&code).into_iter().map(|item| &code[item]).filter(|item| item.ends_with(';'));
    let names = items.filter_map(|item| {
        let words = words(item);
        let keyword = words.iter().position(|(word, _)| *word == "mod")?;
        words.get(keyword + 1).map(|(name, _)| *name)
    });
    names.flat_map(|name| [format!("{folder}/{name}.rs"), format!("{folder}/{name}/")]).collect()
}

/// Returns the room of a path, resolved from `modules`; `None` if it is outside the crate.
fn within_crate(modules: &[String], path: &[String]) -> Option<String> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    match path.first()?.as_str() {
        "crate" | "reseed" => path.get(1).cloned(),
        "super" if supers >= modules.len() => path.get(supers).cloned(),
        _ => None,
    }
}

/// Returns every file below a folder of the tree, by its path in the tree.
fn files(folder: &str) -> Vec<(String, Vec<u8>)> {
    // cargo runs tests in the folder of their crate.
    let root = Path::new(".");
    let mut found = Vec::new();
    let mut open = vec![root.join(folder)];
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                if !BUILT.iter().any(|built| path.ends_with(built)) {
                    open.push(path);
                }
            } else {
                found.push((name, fs::read(path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// Fails with all violations, one per line.
fn none(violations: &[String]) {
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn the_tree_keeps_the_house_rules() {
    let sources: Vec<(String, String)> = ["src", "protocol", "tests"]
        .into_iter()
        .flat_map(files)
        .filter(|(path, _)| path.ends_with(".rs"))
        .map(|(path, bytes)| (path, String::from_utf8(bytes).unwrap()))
        .collect();
    let of_tests: Vec<String> = sources.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let mut violations = Vec::new();
    for (path, text) in &sources {
        violations.extend(RULES_FOR_ALL.iter().flat_map(|rule| rule(path, text)));
        if path.starts_with("tests/") || of_tests.iter().any(|test| path.starts_with(test)) {
            violations.extend(RULES_FOR_TESTS.iter().flat_map(|rule| rule(path, text)));
        } else {
            let rules = RULES.iter().filter(|(folder, _)| path.starts_with(folder)).map(|(_, rule)| rule);
            violations.extend(rules.chain(RULES_FOR_TESTED).flat_map(|rule| rule(path, text)));
        }
    }
    none(&violations);
}

#[test]
fn the_page_asks_nothing_of_other_hosts() {
    let page = files("src/server/web");
    let texts = page.iter().filter_map(|(path, bytes)| Some((path, std::str::from_utf8(bytes).ok()?)));
    none(&texts.flat_map(|(path, text)| addresses(path, text)).collect::<Vec<_>>());
}

#[test]
fn only_what_belongs_there_stands_at_the_top() {
    let names: Vec<String> =
        fs::read_dir(".").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(strangers(names.iter().map(String::as_str)), Vec::<&str>::new());
}

#[test]
fn the_order_of_rooms_has_no_way_back() {
    for (index, (room, allowed)) in ROOMS.iter().enumerate() {
        for import in *allowed {
            let place = ROOMS.iter().position(|(name, _)| name == import);
            assert!(place.is_some_and(|place| place < index), "`{room}` may import `{import}`, which stands after it");
        }
    }
}

#[test]
fn each_rule_catches_what_it_is_for_and_nothing_else() {
    let long = "//! A file.\n".repeat(LINES_MAX + 1);
    let cases: &[(Rule, &str, &str, usize)] = &[
        (imports, "src/config/a.rs", "use crate::tools::Call;", 1),
        (imports, "src/config/a.rs", "use crate::{cli::Serve, metrics, core::model::Part};", 2),
        (imports, "src/config/a/b.rs", "use super::super::super::clock::Clock;", 1),
        (imports, "src/config/mod.rs", "fn a() { super::server::start() }", 1),
        (imports, "src/config/a.rs", "use super::model::Part; use crate::core::b; use self::c;", 0),
        (imports, "src/core/a.rs", "use crate::store::Lease;", 0),
        (imports, "src/server/a.rs", "use crate::pi::Importer;", 1),
        (
            imports,
            "src/config/a.rs",
            "// crate::tools\nconst A: &str = \"crate::tools\"; const B: &str = r#\"crate::tools\"#;",
            0,
        ),
        (imports, "src/config/a.rs", "#[cfg(test)]\nmod tests { use crate::tools::mcp; }\nfn a() {}", 0),
        (imports, "src/config/a.rs", "#[cfg(test)]\nmod tests { fn a() {} }\nuse crate::tools::mcp;", 1),
        (imports, "src/hooks/a.rs", "use crate::{core::{a, b}, provider::{self, c::{d, e}}};", 3),
        (imports, "src/hooks/webhook/a.rs", "use crate::{config::HookSettings, metrics}; use super::super::Hook;", 0),
        (
            imports,
            "src/runtime/a.rs",
            "use crate::server;fn a(b: crate::cli::C<'static>, c: char) -> bool { c == '\"' }",
            2,
        ),
        (imports, "src/main.rs", "use reseed::{cli, server};", 0),
        (imports, "src/attic.rs", "", 1),
        (servers, "src/server/a.rs", "use reseed_client::{Client, Update};", 2),
        (servers, "src/cli/chat.rs", "use reseed_client::Client;", 0),
        (programs, "src/hooks/a.rs", "use tokio::process::{Child, Command};", 1),
        (programs, "src/hooks/a.rs", "use std::process::ExitCode; enum Command { A }", 0),
        (programs, "src/shell/a.rs", "use std::process::Command;", 0),
        (deciding, "protocol/client-rust/src/machine/a.rs", "async fn a() { tokio::b(Instant::now()).await }", 4),
        (deciding, "protocol/client-rust/src/machine/a.rs", "use std::time::Instant; fn a(now: Instant) {}", 0),
        (deciding, "protocol/client-rust/src/socket.rs", "async fn a() { b().await }", 0),
        (core_rooms, "src/core/context/a.rs", "use crate::core::{context::b, session::{Node, state::add_usage}};", 2),
        (core_rooms, "src/core/context/a.rs", "use super::super::session; fn a() { crate::agent_loop::b() }", 2),
        (core_rooms, "src/core/context/a/mod.rs", "use super::super::session::Node; use super::b::session;", 1),
        (
            core_rooms,
            "src/core/context/a.rs",
            "#[cfg(test)]\nmod tests { use crate::session::Node; }\nuse crate::sessions;",
            0,
        ),
        (core_rooms, "src/core/compaction/a.rs", "use crate::core::{agent_loop::Step, context::Context};", 1),
        (core_rooms, "src/core/compaction/machine/a.rs", "use crate::agent_loop::{step::Step, kernel::b};", 1),
        (core_rooms, "src/core/session/a.rs", "use super::tree::Node; use crate::core::context::Context;", 0),
        (core_rooms, "src/core/agent_loop/turn/a.rs", "use crate::agent_loop::{AgentLoop, io::Input};", 1),
        (core_rooms, "src/core/agent_loop/kernel/a.rs", "use crate::agent_loop::{AgentLoop, io::Input};", 0),
        (
            core_rooms,
            "src/core/agent_loop/ledger.rs",
            "use crate::agent_loop::{prompt::Prompt, io::Mark, turn::Turn};",
            2,
        ),
        (core_rooms, "src/core/agent_loop/roster.rs", "use crate::agent_loop::{hooks::Hooks, ledger::Ledger};", 1),
        (purity, "src/core/a.rs", "async fn a() { b().await }", 2),
        (purity, "src/core/a.rs", "use std::{fmt, fs::File, time::{Duration, Instant}};", 2),
        (purity, "src/core/a.rs", "fn a() { std::env::var(\"A\"); std::thread::spawn(b); }", 2),
        (purity, "src/core/a.rs", "//! No async, no tokio::spawn.\nuse std::{fmt, time::Duration};", 0),
        (shortcuts, "src/a.rs", "fn a() { b.unwrap(); panic!(\"no\") }", 2),
        (
            shortcuts,
            "src/a.rs",
            "fn a() { b.expect(\"panic!(\"); c.unwrap_or(1) }\n#[cfg(test)]\nmod tests { fn a() { b.unwrap() } }",
            0,
        ),
        (shortcuts, "src/a.rs", "#[cfg(test)]\nconst A: [u8; 1] = [1];\nfn a() { b.unwrap() }", 1),
        (head, "src/a.rs", "use b;\n", 1),
        (head, "src/a.rs", "//! A file.\n", 0),
        (length, "src/a.rs", &long, 1),
        (addresses, "src/server/web/a.html", "<script src=\"https://cdn.example.org/a.js\"></script>", 1),
        (addresses, "src/server/web/a.html", "<link href=\"//cdn.example.org/a.css\">", 1),
        (addresses, "src/server/web/a.js", "text.startsWith('https://'); // xmlns=\"http://www.w3.org/2000/svg\"", 0),
    ];
    for (rule, path, text, count) in cases {
        let violations = rule(path, text);
        assert_eq!(violations.len(), *count, "{path}: {text}\n{violations:?}");
    }
    let mounts = "mod a;\n#[cfg(test)]\npub(crate) mod b;\n#[cfg(test)]\nmod c { mod d; }";
    assert_eq!(test_modules("src/core/mod.rs", mounts), ["src/core/b.rs", "src/core/b/"]);
    assert_eq!(test_modules("src/core/e.rs", mounts), ["src/core/e/b.rs", "src/core/e/b/"]);
    let names = ["src", ".ci", "target", "notes.md", "Makefile"];
    assert_eq!(strangers(names.into_iter()), ["notes.md", "Makefile"]);
}
