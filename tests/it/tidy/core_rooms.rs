//! The rule that the rooms of the core do not import each other in a circle. They are modules of one crate, so neither
//! Cargo nor the compiler holds it.

use super::modules;
use crate::source::{code, paths, without_tests};

/// Folders of the core with the paths in the core that their files never import.
const BARRED: &[(&str, &[&str])] = &[
    ("src/core/text/", &["agent_loop", "compaction", "context", "session"]),
    ("src/core/context/", &["agent_loop", "compaction", "session"]),
    ("src/core/context/patch/", &["context::replay"]),
    ("src/core/compaction/", &["agent_loop", "session"]),
    ("src/core/compaction/extract/", &["compaction::job", "compaction::ask", "compaction::summary"]),
    ("src/core/compaction/summary/", &["compaction::job", "compaction::ask"]),
    ("src/core/session/", &["agent_loop"]),
    // Machines and values do not know the kernel.
    (MACHINE, KERNEL),
    ("src/core/agent_loop/hooks/", KERNEL),
    ("src/core/agent_loop/navigation/", KERNEL),
    ("src/core/agent_loop/subject/", KERNEL),
    ("src/core/agent_loop/turn/", KERNEL),
    // Shared parts know no machine, and the ledger knows none of the other parts.
    ("src/core/agent_loop/prompt/", KERNEL),
    ("src/core/agent_loop/prompt/", MACHINES),
    ("src/core/agent_loop/roster.rs", KERNEL),
    ("src/core/agent_loop/roster.rs", MACHINES),
    ("src/core/agent_loop/ledger.rs", KERNEL),
    ("src/core/agent_loop/ledger.rs", MACHINES),
    ("src/core/agent_loop/ledger.rs", &["agent_loop::prompt", "agent_loop::roster"]),
];

/// What belongs to the kernel of the agent loop.
const KERNEL: &[&str] = &["agent_loop::AgentLoop", "agent_loop::kernel"];

/// The machines of the agent loop.
const MACHINES: &[&str] = &["agent_loop::hooks", "agent_loop::navigation", "agent_loop::turn", "compaction::machine"];

/// The machine of the agent loop that is in the folder of compaction, below the session.
const MACHINE: &str = "src/core/compaction/machine/";

/// Checks that the rooms of the core import one way.
pub(super) fn core_rooms(path: &str, text: &str) -> Vec<String> {
    let modules = modules(path);
    let barred: Vec<&str> =
        BARRED.iter().filter(|(folder, _)| is_under(path, folder)).flat_map(|(_, barred)| *barred).copied().collect();
    let mut violations = Vec::new();
    for used in paths(&without_tests(&code(text))) {
        let Some(used) = in_core(&modules, &used) else { continue };
        for room in barred.iter().filter(|room| is_in(&used, room)) {
            violations.push(format!("{path}: imports `{used}`, and must not import `{room}`"));
        }
    }
    violations
}

/// Returns true if a rule for a folder applies to a file.
fn is_under(path: &str, folder: &str) -> bool {
    path.starts_with(folder) && (folder == MACHINE || !path.starts_with(MACHINE))
}

/// Returns a path of a file of the core with these modules, from the root of the core; `None` if it is relative to the
/// file or leads elsewhere.
fn in_core(modules: &[String], path: &[String]) -> Option<String> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    let inner = match path.first()?.as_str() {
        "crate" if path.get(1).is_some_and(|name| name == "core") => path[2..].to_vec(),
        "crate" => path[1..].to_vec(),
        "super" => [modules.get(1..modules.len().checked_sub(supers)?)?, &path[supers..]].concat(),
        _ => return None,
    };
    Some(inner.join("::"))
}

/// Returns true if a path leads into a room.
fn is_in(path: &str, room: &str) -> bool {
    path.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}
