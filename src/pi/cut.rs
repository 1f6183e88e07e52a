//! pi's cut rule: walks back from the newest entry until enough is kept.
//!
//! Only entries of type `message` count. A cut may fall before any message except a tool result. If the walk stops
//! within tool results and no cut point follows them, the cut falls before everything.

use super::{
    estimate, export,
    json::{Json, Object},
    prepare,
};
use reseed_core::{
    compaction::{
        cut::cut_entries,
        cut_rules::{CutRules, Ordered},
        strategy::FallbackStep,
    },
    session::Node,
};
use reseed_protocol::EntryId;
use std::{collections::HashSet, sync::Arc};

/// pi's rules: a single summary of everything before the cut, whatever the strategy.
///
/// The cut is found by walking back until the strategy's `keep_tokens` of messages are kept, by pi's estimate. The
/// beginning of a split turn is summarised together with what precedes it. Only the tail is kept. If nothing would be
/// summarised, there is no step; pi itself then requests an empty summary.
#[derive(Debug)]
pub struct Pi;

impl CutRules for Pi {
    fn name(&self) -> &'static str {
        "Pi"
    }

    fn keeps_words(&self) -> bool {
        false
    }

    fn steps(&self, ordered: &Ordered<'_>) -> Vec<FallbackStep> {
        let keep_tokens = ordered.calibration.in_estimates(ordered.manager.keep_tokens(ordered.window_tokens));
        let line = |node: &Arc<Node>| {
            let line = export::object(&node.entry);
            if node.undone { export::passed_over(line) } else { line }
        };
        let lines: Vec<Object> = ordered.path.iter().map(line).collect();
        let Some(prepared) = prepare::prepare(&lines, keep_tokens) else { return Vec::new() };
        let id = |at: usize| ordered.path[at].id();
        let removed: HashSet<&EntryId> =
            prepared.summarised.iter().chain(&prepared.turn_prefix).map(|at| id(*at)).collect();
        let cut = cut_entries(ordered.context, &removed, id(prepared.cut.first_kept).clone());
        cut.map(FallbackStep::Summarise).into_iter().collect()
    }
}

/// The place where a path is cut. Indexes refer to the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutPoint {
    /// The first entry kept verbatim.
    pub first_kept: usize,
    /// The start of the turn that the cut splits; `None` if it splits no turn.
    pub turn_start: Option<usize>,
}

/// Cuts the entries `start..end`, given as pi's lines, so that about `keep_tokens` are kept.
#[must_use]
pub fn find_cut_point(path: &[Object], start: usize, end: usize, keep_tokens: u64) -> CutPoint {
    let legal: Vec<usize> = (start..end).filter(|at| is_cut_point(&path[*at])).collect();
    let Some(mut cut) = legal.first().copied() else { return CutPoint { first_kept: start, turn_start: None } };
    let mut kept = 0;
    for at in (start..end).rev() {
        let Some(message) = message_of(&path[at]) else { continue };
        kept += estimate::tokens(message);
        if kept >= keep_tokens {
            cut = legal.iter().copied().find(|legal| *legal >= at).unwrap_or(cut);
            break;
        }
    }
    // Settings directly before the cut are kept together with the messages that they apply to.
    while cut > start && !matches!(path[cut - 1].text("type"), Some("message" | "compaction")) {
        cut -= 1;
    }
    let is_user = message_of(&path[cut]).is_some_and(|message| message.text("role") == Some("user"));
    let turn_start = if is_user { None } else { (start..=cut).rev().find(|at| begins_turn(&path[*at])) };
    CutPoint { first_kept: cut, turn_start }
}

fn message_of(line: &Object) -> Option<&Object> {
    if line.text("type") == Some("message") { line.get("message").and_then(Json::as_object) } else { None }
}

fn is_cut_point(line: &Object) -> bool {
    const ROLES: [&str; 6] = ["user", "assistant", "bashExecution", "custom", "branchSummary", "compactionSummary"];
    match line.text("type") {
        Some("branch_summary" | "custom_message") => true,
        _ => message_of(line).and_then(|message| message.text("role")).is_some_and(|role| ROLES.contains(&role)),
    }
}

fn begins_turn(line: &Object) -> bool {
    match line.text("type") {
        Some("branch_summary" | "custom_message") => true,
        _ => message_of(line).is_some_and(|message| matches!(message.text("role"), Some("user" | "bashExecution"))),
    }
}
