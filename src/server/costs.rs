//! The cost of commands, in points of `RATE_LIMIT_PER_MINUTE`. A point is about the work of a ping. Commands that read
//! or copy history, or call the model, cost more. A test compares them with the table in docker/README.md.

use std::num::NonZeroU32;

/// The commands that cost more than one point.
const COSTS: &[(u32, &[&str])] = &[
    (
        10,
        &[
            "register_tools",
            "register_hooks",
            "rename_session",
            "set_label",
            "pin_entry",
            "append_custom",
            "set_instructions",
            "set_options",
            "set_context_strategy",
        ],
    ),
    (
        20,
        &["open_session", "list_sessions", "get_entries", "get_context", "get_context_info", "list_tools", "navigate"],
    ),
    (50, &["user_input", "retry_turn", "append_custom_message", "get_tree", "search_history"]),
    (100, &["start_compaction", "manual_compact", "undo_compaction", "delete_session"]),
    (500, &["fork_session"]),
];

/// Returns the cost of the command with this name. An unknown command costs one point.
pub(super) fn points(name: &str) -> NonZeroU32 {
    let found = COSTS.iter().find(|(_, names)| names.contains(&name)).map_or(1, |(points, _)| *points);
    NonZeroU32::new(found).unwrap_or(NonZeroU32::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::command::{Command, OTHER_NAMES};

    #[test]
    fn every_name_is_a_commands_and_costs_once() {
        let mut names: Vec<&str> = COSTS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let is_known =
            |name: &str| Command::NAMES.contains(&name) || OTHER_NAMES.iter().any(|(other, _)| *other == name);
        let unknown: Vec<&str> = names.iter().copied().filter(|name| !is_known(name)).collect();
        assert_eq!(unknown, Vec::<&str>::new());
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        assert_eq!((points("ping").get(), points("user_input").get(), points("nonsense").get()), (1, 50, 1));
    }

    #[test]
    fn the_documented_table_is_this_one() {
        let rows = COSTS.iter().map(|(points, names)| format!("| {points} | `{}` |\n", names.join("`, `")));
        let table = format!("| points | commands |\n| --- | --- |\n{}| 1 | all others |\n", rows.collect::<String>());
        let documented = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docker/README.md")).unwrap();
        assert!(documented.contains(&table), "docker/README.md must have this table:\n{table}");
    }
}
