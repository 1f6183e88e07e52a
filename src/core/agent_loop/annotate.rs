//! Entries that clients add besides messages: labels, custom data, names and model changes.
//!
//! Each becomes the new leaf, like any other entry. None of them is sent to the model.

use crate::agent_loop::checks::{check_custom_type, check_name, check_word};
use crate::agent_loop::{io::Caller, ledger::Ledger, prompt::Prompt, prompt::info::usage_ratio, records::appended};
use reseed_protocol::{
    EntryData, ErrorBody,
    context::{ContextWarning, ContextWarningCode},
    event::{EphemeralEvent, Event},
    reply::{Done, Reply},
    session::SetModel,
    tree::{AppendCustom, Custom, Label, ModelChange, SessionInfo, SetLabel, ThinkingLevelChange},
};

/// The reasoning level recorded when the choice is left to the provider.
const DEFAULT_LEVEL: &str = "default";

/// Makes the second entry of a step a child of the first.
fn hang_from(event: &mut Event, before: Option<&Event>) {
    if let (Event::EntryAppended(appended), Some(Event::EntryAppended(before))) = (event, before) {
        appended.entry.parent_id = Some(before.entry.entry_id.clone());
    }
}

/// Sets the model and its reasoning effort. Returns true if it is another model.
pub(crate) fn set_model(
    ledger: &mut Ledger,
    prompt: &Prompt,
    caller: &Caller,
    set: SetModel,
) -> Result<bool, ErrorBody> {
    for (field, text) in [("model", Some(&set.model)), ("reasoningEffort", set.reasoning_effort.as_ref())] {
        if let Some(text) = text {
            check_word(field, text)?;
        }
    }
    ledger.deployment.check_model(&set.model)?;
    if let Some(message) = ledger.deployment.windows.warning(&set.model).filter(|_| set.model != ledger.state().model) {
        let tokens = prompt.count_now(ledger).tokens;
        let usage_ratio = usage_ratio(tokens, ledger.deployment.windows.tokens(&set.model));
        ledger.emit(EphemeralEvent::ContextWarning(ContextWarning {
            usage_ratio,
            message,
            code: Some(ContextWarningCode::WindowUnknown),
        }));
    }
    let mut settings = ledger.state().settings.clone();
    let mut records = Vec::new();
    let is_other = set.model != ledger.state().model;
    // Choosing the model again, even the same one, discards the learned window.
    settings.learned_window_tokens = None;
    if is_other {
        let change = ModelChange { provider: None, model: set.model.clone() };
        records.push(record(ledger, caller, EntryData::ModelChange(change)));
    }
    if set.reasoning_effort != settings.reasoning_effort {
        let thinking_level = set.reasoning_effort.clone().unwrap_or_else(|| DEFAULT_LEVEL.to_owned());
        let mut record = record(ledger, caller, EntryData::ThinkingLevelChange(ThinkingLevelChange { thinking_level }));
        hang_from(&mut record, records.last());
        records.push(record);
    }
    settings.reasoning_effort = set.reasoning_effort;
    ledger.update(caller, records, |updated| {
        updated.model = Some(set.model);
        updated.settings = Some(settings);
    });
    Ok(is_other)
}

/// Labels an entry; the caller has checked that it exists.
pub(crate) fn set_label(ledger: &mut Ledger, caller: &Caller, set: SetLabel) -> Result<(), ErrorBody> {
    let label = set.label.map(|label| check_name("label", &label)).transpose()?;
    annotate(ledger, caller, EntryData::Label(Label { target_id: set.entry_id, label }));
    Ok(())
}

pub(crate) fn append_custom(ledger: &mut Ledger, caller: &Caller, custom: AppendCustom) -> Result<(), ErrorBody> {
    check_custom_type(&custom.custom_type)?;
    let AppendCustom { custom_type, data } = custom;
    // An absent field and `null` are stored in the same way.
    let data = Some(data).filter(|data| !data.is_null());
    annotate(ledger, caller, EntryData::Custom(Custom { custom_type, data }));
    Ok(())
}

/// Appends one entry and replies with its id.
fn annotate(ledger: &mut Ledger, caller: &Caller, data: EntryData) {
    let as_of_seq = Some(ledger.state().seq);
    let entry_id: reseed_protocol::EntryId = ledger.new_id();
    let event = appended(ledger.entry(entry_id.clone(), data), None, Some(caller.id.clone()));
    let reply = Reply::Ok(Done { entry_id: Some(entry_id), as_of_seq, ..Done::default() });
    ledger.append(vec![event], vec![caller.mark(reply)]);
}

pub(crate) fn rename(ledger: &mut Ledger, caller: &Caller, name: &str) -> Result<(), ErrorBody> {
    let name = check_name("name", name)?;
    let entry = record(ledger, caller, EntryData::SessionInfo(SessionInfo { name: name.clone() }));
    ledger.update(caller, vec![entry], |updated| updated.name = Some(name));
    Ok(())
}

fn record(ledger: &mut Ledger, caller: &Caller, data: EntryData) -> Event {
    let id = ledger.new_id();
    appended(ledger.entry(id, data), None, Some(caller.id.clone()))
}
