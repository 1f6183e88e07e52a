//! Entries that clients add besides messages: labels, custom data, names and model changes.
//!
//! Each becomes the new leaf, like any other entry. None of them is sent to the model.

use crate::agent_loop::checks::{check_custom_type, check_name, check_word};
use crate::agent_loop::{io::Caller, ledger::Ledger, prompt::info::usage_ratio, records::appended};
use reseed_protocol::{
    EntryData, ErrorBody,
    command::{AppendCustom, SetLabel, SetModel},
    entry::{Custom, Label, ModelChange, SessionInfo, ThinkingLevelChange},
    event::{ContextWarning, ContextWarningCode, EphemeralEvent, Event},
    reply::{Done, Reply},
};

/// The reasoning level recorded when the choice is left to the provider.
const DEFAULT_LEVEL: &str = "default";

impl Ledger {
    /// Sets the model and its reasoning effort. Returns true if it is another model.
    pub(crate) fn on_set_model(&mut self, caller: &Caller, set: SetModel) -> Result<bool, ErrorBody> {
        for (field, text) in [("model", Some(&set.model)), ("reasoningEffort", set.reasoning_effort.as_ref())] {
            if let Some(text) = text {
                check_word(field, text)?;
            }
        }
        self.deployment.check_model(&set.model)?;
        if let Some(message) =
            self.deployment.windows.warning(&set.model).filter(|_| set.model != self.session.state.model)
        {
            let tokens = self.count(&self.context()).tokens;
            let usage_ratio = usage_ratio(tokens, self.deployment.windows.tokens(&set.model));
            self.emit(EphemeralEvent::ContextWarning(ContextWarning {
                usage_ratio,
                message,
                code: Some(ContextWarningCode::WindowUnknown),
            }));
        }
        let mut settings = self.session.state.settings.clone();
        let mut records = Vec::new();
        let is_other = set.model != self.session.state.model;
        // Choosing the model anew, even the same one, forgets what was learnt of its window.
        settings.learned_window_tokens = None;
        if is_other {
            let change = ModelChange { provider: None, model: set.model.clone() };
            records.push(self.record(caller, EntryData::ModelChange(change)));
        }
        if set.reasoning_effort != settings.reasoning_effort {
            let thinking_level = set.reasoning_effort.clone().unwrap_or_else(|| DEFAULT_LEVEL.to_owned());
            let mut record =
                self.record(caller, EntryData::ThinkingLevelChange(ThinkingLevelChange { thinking_level }));
            hang_from(&mut record, records.last());
            records.push(record);
        }
        settings.reasoning_effort = set.reasoning_effort;
        self.update(caller, records, |updated| {
            updated.model = Some(set.model);
            updated.settings = Some(settings);
        });
        Ok(is_other)
    }

    /// Labels an entry; the caller has checked that it exists.
    pub(crate) fn on_set_label(&mut self, caller: &Caller, set: SetLabel) -> Result<(), ErrorBody> {
        let label = set.label.map(|label| check_name("label", &label)).transpose()?;
        self.annotate(caller, EntryData::Label(Label { target_id: set.entry_id, label }));
        Ok(())
    }

    pub(crate) fn on_append_custom(&mut self, caller: &Caller, custom: AppendCustom) -> Result<(), ErrorBody> {
        check_custom_type(&custom.custom_type)?;
        let AppendCustom { custom_type, data } = custom;
        // An absent field and `null` are stored alike.
        let data = Some(data).filter(|data| !data.is_null());
        self.annotate(caller, EntryData::Custom(Custom { custom_type, data }));
        Ok(())
    }

    /// Appends one entry and replies with its id.
    fn annotate(&mut self, caller: &Caller, data: EntryData) {
        let as_of_seq = Some(self.session.state.seq);
        let entry_id: reseed_protocol::EntryId = self.new_id();
        let event = appended(self.entry(entry_id.clone(), data), None, Some(caller.id.clone()));
        let reply = Reply::Ok(Done { entry_id: Some(entry_id), as_of_seq, ..Done::default() });
        self.append(vec![event], vec![caller.mark(reply)]);
    }

    pub(crate) fn on_rename(&mut self, caller: &Caller, name: &str) -> Result<(), ErrorBody> {
        let name = check_name("name", name)?;
        let entry = self.record(caller, EntryData::SessionInfo(SessionInfo { name: name.clone() }));
        self.update(caller, vec![entry], |updated| updated.name = Some(name));
        Ok(())
    }

    fn record(&mut self, caller: &Caller, data: EntryData) -> Event {
        let id = self.new_id();
        appended(self.entry(id, data), None, Some(caller.id.clone()))
    }
}

/// Makes the second entry of a step a child of the first.
fn hang_from(event: &mut Event, before: Option<&Event>) {
    if let (Event::EntryAppended(appended), Some(Event::EntryAppended(before))) = (event, before) {
        appended.entry.parent_id = Some(before.entry.entry_id.clone());
    }
}
