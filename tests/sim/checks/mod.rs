//! The server's guarantees, each a function of a run's history. `Err` says where it was violated.
//!
//! - `log`: the log by itself
//! - `clients`: what clients receive, and their final state
//! - `commands`: replies and effects of commands
//! - `context`: what the model is sent
//! - `receipts`: the cache diagnostics of answers
//! - `compactions`: what compactions leave, and that there is one where one is needed

mod clients;
mod commands;
mod compactions;
mod context;
mod log;
mod receipts;

pub(crate) use context::seen_in_the_end;

use crate::history::History;

/// A guarantee.
pub(crate) type Check = fn(&History) -> Result<(), String>;

/// Every guarantee by name.
pub(crate) const CHECKS: &[(&str, Check)] = &[
    ("nothing panics", log::nothing_panics),
    ("the log is what was written", log::what_was_written),
    ("the tree is well formed", log::tree_is_well_formed),
    ("every turn ends once", log::turns_end_once),
    ("the queue keeps its order", log::queue_keeps_its_order),
    ("one writer, one live loop", log::one_live_loop),
    ("a hook that ends a turn is named", log::hooks_are_named),
    ("nothing is published before it is written", clients::published_after_written),
    ("events have no gap", clients::events_have_no_gap),
    ("clients are given what the log says", clients::given_what_the_log_says),
    ("a tool runs once", clients::tools_run_once),
    ("a tool of the server's runs once, and only what was made", log::server_tools_run_once),
    ("streamed text goes on where it was", clients::streams_go_on),
    ("clients that were cut off end like the one that was not", clients::end_alike),
    ("a reply precedes its events", commands::replies_precede_events),
    ("every command is answered once", commands::answered_once),
    ("a repeated command is answered as before", commands::repeats_are_answered_alike),
    ("nothing acknowledged is lost or doubled", commands::nothing_acknowledged_is_lost),
    ("the model sees exactly what the log says", context::requests_are_what_the_log_says),
    ("receipts say what was asked", receipts::receipts_are_what_was_asked),
    ("the context is reported as the log says", context::reports_are_what_the_log_says),
    ("a compaction is made once, where one is needed", compactions::made_once),
    ("what is held is committed or dropped", compactions::what_is_held_is_committed_or_dropped),
    ("what came to nothing leaves nothing", compactions::nothing_is_left_of_what_failed),
    ("a compaction keeps pins and the last input", compactions::keep_what_must_stay),
    ("a fork is whole, and made once", context::forks_are_whole),
    ("the session comes to rest", log::comes_to_rest),
    ("a session is opened again as it was left", log::opened_as_it_was_left),
];

/// Returns the guarantees that a run violated, with the position.
pub(crate) fn broken(history: &History) -> Vec<(&'static str, String)> {
    CHECKS.iter().filter_map(|(name, check)| Some((*name, check(history).err()?))).collect()
}
