//! Checks the receipts of answers against the requests that the model received.

use crate::history::{Asked, History};
use reseed_protocol::{
    Message, Role,
    event::Event,
    receipt::{BreakReason, Receipt},
};

/// Returns the answers of turns with their records.
fn answers(history: &History) -> impl Iterator<Item = (u64, &Message, &Receipt)> {
    (1..).zip(&history.events).filter_map(|(seq, event)| {
        let Event::EntryAppended(appended) = event else { return None };
        let message = appended.entry.message().filter(|message| message.role == Role::Assistant)?;
        Some((seq, message, message.receipt.as_deref()?))
    })
}

/// Returns true if a request starts with all of an earlier one, as a provider's cache compares them.
fn begins_with(request: &Asked, earlier: &Asked) -> bool {
    let (request, earlier) = (&request.request, &earlier.request);
    let says = |message: &Message| (message.role, message.content.clone());
    let mut messages = request.messages().map(|one| says(&one.message));
    request.model == earlier.model
        && request.envelope.tools == earlier.envelope.tools
        && request.envelope.system.compiled == earlier.envelope.system.compiled
        && earlier.messages().all(|one| messages.next() == Some(says(&one.message)))
}

/// Returns true if pins changed since the previous answer: after a restart removed pins are unknown.
fn lets_go_before(history: &History, seq: u64) -> bool {
    let before = answers(history).map(|(at, _, _)| at).take_while(|at| *at < seq).last().unwrap_or(0);
    let since = (1..).zip(&history.events).filter(|(at, _)| (before..seq).contains(at));
    since.into_iter().any(|(_, event)| matches!(event, Event::SessionUpdated(updated) if updated.pins.is_some()))
}

/// Each receipt states what its request shares with the previous one, and why not more.
///
/// The previous request is the last answered one, or after a restart that of the newest answer on the path: a receipt
/// must be right about one of the requests sent.
pub(super) fn receipts_are_what_was_asked(history: &History) -> Result<(), String> {
    let mut turns: Vec<&Asked> = history.asked.iter().filter(|asked| asked.is_turn()).collect();
    // A server that does not know yet that it was replaced may send a late request, about a much older state.
    turns.sort_by_key(|asked| asked.as_of);
    for (seq, _, receipt) in answers(history) {
        let Some(at) = turns.iter().rposition(|asked| asked.as_of < seq) else {
            return Err(format!("record {seq} answers what nobody asked"));
        };
        let (request, earlier) = (turns[at], &turns[..at]);
        let whole = |earlier: &&Asked| begins_with(request, earlier);
        match &receipt.broke {
            None if receipt.prefix_tokens > 0 && !earlier.iter().any(&whole) => {
                return Err(format!("the receipt of record {seq} shares a request that was never made: {receipt:?}"));
            }
            None => {}
            Some(broke) if earlier.iter().all(whole) => {
                return Err(format!("record {seq} begins with every request before it, and its receipt has {broke:?}"));
            }
            Some(broke) if broke.reason == BreakReason::Unknown && !lets_go_before(history, seq) => {
                return Err(format!("nobody knows why record {seq} parts from the one before it: {broke:?}"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}
