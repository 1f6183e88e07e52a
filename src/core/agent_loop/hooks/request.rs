//! Hooks around a request: at the start of its turn, and on the envelope before and after the request.

use crate::agent_loop::checks::{check_custom_type, custom_parts, refused};
use crate::agent_loop::subject::request::{Overlay, Start};
use crate::agent_loop::{ledger::Ledger, prompt::Prompt, records::appended, step::Step};
use crate::{
    context::{
        Context,
        patch::{self, Boundary},
    },
    hook::HookFault,
};
use reseed_protocol::{
    EntryData, EntryId, ErrorBody, ErrorCode,
    context::{ContextTransform, EphemeralChange, PATCH_VERSION},
    event::Event,
    hooks::HookAnswer,
    tree::{Custom, CustomMessage, Kept},
};
use std::sync::Arc;

/// Maximum number of entries that hooks may add at the start of a turn.
const ENTRIES_MAX: usize = 16;
/// Maximum bytes of one entry's data. It is for notes, not for storage.
const ENTRY_BYTES_MAX: usize = 64 * 1024;

/// Maximum bytes of a patch's display for people: a card in a chat.
const DISPLAY_BYTES_MAX: usize = 64 * 1024;

/// Checks that a patch leaves a message for the next request, because an empty request must not be sent.
fn says_something(patched: &Context) -> Result<(), HookFault> {
    if patched.messages.is_empty() && patched.uncached.is_empty() {
        return Err(HookFault::failed("its patch leaves no message for the request"));
    }
    Ok(())
}

fn transformer_name(given: Option<String>, hook: &str) -> Result<String, HookFault> {
    let name = given.unwrap_or_else(|| hook.to_owned());
    crate::hook::check_name(&name).map_err(HookFault::failed)?;
    Ok(name)
}

/// Converts a refused patch to a hook failure.
fn fault_of(refused: &patch::PatchRefused) -> HookFault {
    HookFault { code: ErrorCode::InvalidPatch, message: refused.body().message }
}

/// Returns the context after the answer's patch, and the entry of the patch, which applies to every later request on
/// this branch. Returns `None` if the patch changes nothing.
pub(crate) fn take_transform(
    ledger: &mut Ledger,
    prompt: &Prompt,
    hook: &str,
    answer: HookAnswer,
    is_sent_next: bool,
) -> Result<Option<(Context, Event)>, HookFault> {
    let ops = patch::read(answer.patch.unwrap_or_default()).map_err(|refused| fault_of(&refused))?;
    let name = transformer_name(answer.transformer_name, hook)?;
    let bytes = answer.display.as_ref().map_or(0, |shown| serde_json::to_vec(shown).map_or(0, |json| json.len()));
    if bytes > DISPLAY_BYTES_MAX {
        let message = format!("its `display` has {bytes} bytes; at most {DISPLAY_BYTES_MAX} are allowed");
        return Err(HookFault::failed(message));
    }
    if ops.is_empty() {
        return Ok(None);
    }
    let mut context = Context::clone(&ledger.context());
    let around = prompt.around(ledger.counter());
    let applied = context.apply(&ops, Boundary::Durable, &around).map_err(|refused| fault_of(&refused))?;
    if !applied.changed {
        // The patch is already in effect; storing it again would only lengthen the history.
        return Ok(None);
    }
    if is_sent_next {
        says_something(&context)?;
    }
    prompt.check_patch_fits(ledger, &context).map_err(HookFault::failed)?;
    let transform = ContextTransform {
        schema_version: PATCH_VERSION,
        transformer_name: name,
        patch: applied.ops,
        display: answer.display,
    };
    let turn_id = ledger.turn_id();
    let id = ledger.new_id();
    let entry = ledger.entry(id, EntryData::ContextTransform(Box::new(Kept::Known(transform))));
    Ok(Some((context, appended(entry, turn_id, None))))
}

/// Logs the request's additions, counts it again and sends it.
pub(crate) fn send_with_additions(ledger: &mut Ledger, prompt: &mut Prompt, overlay: Overlay) {
    let now_seen = ledger.context();
    let is_same = Arc::ptr_eq(&overlay.base, &now_seen) || overlay.base == now_seen;
    if ledger.is_reseed_due() || !is_same {
        // The model, the strategy or the visible entries have changed meanwhile. The hooks' additions were for a
        // request that will not be sent.
        ledger.then(Step::Proceed);
        return;
    }
    let Overlay { context, changes, base: _ } = overlay;
    prompt.keep_added(&changes, &ledger.context());
    let turn_id = ledger.turn_id();
    let names: Vec<String> = changes.iter().map(|change| change.transformer_name.clone()).collect();
    let mut parent = ledger.state().leaf.clone();
    let events: Vec<Event> = changes
        .into_iter()
        .map(|change| {
            let id: EntryId = ledger.new_id();
            let data = EntryData::Ephemeral(Box::new(Kept::Known(change)));
            let mut entry = ledger.entry(id.clone(), data);
            entry.parent_id = parent.replace(id);
            appended(entry, turn_id.clone(), None)
        })
        .collect();
    if events.is_empty() {
        ledger.then(Step::Send(Arc::new(context)));
        return;
    }
    ledger.append(events, Vec::new());
    let (count, window) = (prompt.count(ledger, &context), ledger.window_tokens());
    if count.tokens.saturating_sub(count.error_bound_tokens) > window {
        let hooks = names.join("`, `");
        let message = format!(
            "the request has about {} tokens with what the hook `{hooks}` added for it, the window {window}; the \
             hook must add less",
            count.tokens
        );
        let details = serde_json::json!({ "hooks": names, "tokens": count.tokens, "windowTokens": window });
        let error = ErrorBody::new(ErrorCode::ContextOverflow, message).with_details(details);
        ledger.then(Step::fail_turn(error));
        return;
    }
    ledger.then(Step::Send(Arc::new(context)));
}

pub(crate) fn take_start(
    ledger: &Ledger,
    prompt: &Prompt,
    start: &mut Start,
    hook: &str,
    answer: HookAnswer,
) -> Result<bool, HookFault> {
    // An answer is applied completely or not at all, because the turn may start without a hook that is not required.
    let mut adds = Vec::new();
    if let Some(message) = answer.custom_message {
        check_custom_type(&message.custom_type).map_err(refused)?;
        let content = custom_parts(message.content).map_err(refused)?;
        prompt.check_input_fits(ledger, &content).map_err(refused)?;
        let (custom_type, display) = (message.custom_type, message.display);
        adds.push(EntryData::CustomMessage(CustomMessage { custom_type, content, display, details: None }));
    }
    for entry in answer.entries.unwrap_or_default() {
        check_custom_type(&entry.custom_type).map_err(refused)?;
        let bytes = entry.data.to_string().len();
        if bytes > ENTRY_BYTES_MAX {
            let message = format!("the data of an entry has {bytes} bytes; at most {ENTRY_BYTES_MAX} are allowed");
            return Err(HookFault::failed(message));
        }
        let data = Some(entry.data).filter(|data| !data.is_null());
        adds.push(EntryData::Custom(Custom { custom_type: entry.custom_type, data }));
    }
    let count = start.adds.len() + adds.len();
    if count > ENTRIES_MAX {
        let message = format!("a turn begins with at most {ENTRIES_MAX} entries of hooks, not {count}");
        return Err(HookFault::failed(message));
    }
    let system_prompt = answer.system_prompt.filter(|text| *text != start.system_prompt);
    if system_prompt.as_ref().is_some_and(|text| !ledger.fits_as_system_prompt(text)) {
        return Err(HookFault::failed("the system prompt takes more than half of the model's window"));
    }
    let changes = system_prompt.is_some() || !adds.is_empty();
    start.adds.append(&mut adds);
    if let Some(system_prompt) = system_prompt {
        start.prompt_by = Some(hook.to_owned());
        start.system_prompt = system_prompt;
    }
    Ok(changes)
}

/// Starts the turn as its hooks changed it.
pub(crate) fn start_as_changed(ledger: &mut Ledger, prompt: &mut Prompt, start: Start) {
    let turn_id = ledger.turn_id();
    let mut parent = ledger.state().leaf.clone();
    let mut events = Vec::with_capacity(start.adds.len());
    for data in start.adds {
        let id: EntryId = ledger.new_id();
        let mut entry = ledger.entry(id.clone(), data);
        entry.parent_id = parent.replace(id);
        events.push(appended(entry, turn_id.clone(), None));
    }
    if !events.is_empty() {
        ledger.append(events, Vec::new());
    }
    if let Some(hook) = start.prompt_by {
        prompt.set_turn_prompt(ledger, start.system_prompt, hook);
    }
    ledger.then(Step::Proceed);
}

pub(crate) fn take_overlay(
    ledger: &Ledger,
    prompt: &Prompt,
    overlay: &mut Overlay,
    hook: &str,
    answer: HookAnswer,
) -> Result<bool, HookFault> {
    let ops = patch::read(answer.patch.unwrap_or_default()).map_err(|refused| fault_of(&refused))?;
    let transformer_name = transformer_name(answer.transformer_name, hook)?;
    if ops.is_empty() {
        return Ok(false);
    }
    let around = prompt.around(ledger.counter());
    let mut context = overlay.context.clone();
    let applied = context.apply(&ops, Boundary::Ephemeral, &around).map_err(|refused| fault_of(&refused))?;
    says_something(&context)?;
    overlay.context = context;
    overlay.changes.push(EphemeralChange { transformer_name, patch: applied.ops });
    Ok(true)
}
