//! What pi summarises of a branch that is left.

use super::{
    estimate,
    files::Files,
    json::{Json, Object},
    message,
};

/// What of a branch fits into a budget. Places are places in the list of its entries.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prepared {
    /// The entries whose messages are summarised, oldest first.
    pub messages: Vec<usize>,
    /// What they cost.
    pub tokens: u64,
    /// Files touched.
    pub files: Files,
}

/// The deepest entry that two paths share, and the rest of the first: what is left by going from its end to the other's.
/// Places in `left`.
#[must_use]
pub fn parting<T: PartialEq>(left: &[T], target: &[T]) -> (Option<usize>, std::ops::Range<usize>) {
    let shared = left.iter().zip(target).take_while(|(a, b)| a == b).count();
    (shared.checked_sub(1), shared..left.len())
}

/// Takes entries, lines of pi's form, newest first while they fit into `budget_tokens`; 0 is no bound.
#[must_use]
pub fn prepare(entries: &[Object], budget_tokens: u64) -> Prepared {
    let mut prepared = Prepared::default();
    for line in entries.iter().filter(|line| line.text("type") == Some("branch_summary")) {
        prepared.files.add_noted(line);
    }
    for (at, line) in entries.iter().enumerate().rev() {
        let Some(message) = said(line) else { continue };
        prepared.files.add_calls(&message);
        let tokens = estimate::tokens(&message);
        let fits = budget_tokens == 0 || prepared.tokens + tokens <= budget_tokens;
        let is_summary = matches!(line.text("type"), Some("compaction" | "branch_summary"));
        // A summary stands for much: it is taken even if it does not fit, unless the budget is as good as used.
        if fits || (is_summary && prepared.tokens * 10 < budget_tokens * 9) {
            prepared.messages.insert(0, at);
            prepared.tokens += tokens;
        }
        if !fits {
            break;
        }
    }
    prepared
}

/// What an entry says to the summary; results of tools are left out.
fn said(line: &Object) -> Option<Object> {
    let is_result =
        line.get("message").and_then(Json::as_object).is_some_and(|message| message.text("role") == Some("toolResult"));
    if is_result { None } else { message::of_line(line, 0) }
}
