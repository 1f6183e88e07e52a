//! Previews: showing a compaction before it is committed, with `preview_compaction`, then
//! `start_compaction { previewId }`.

use crate::{
    agent_loop::{io::Caller, ledger::Ledger, prompt::Prompt, records::done},
    compaction::machine::{
        Compacting, Compactor,
        commit::{keep_what_came, still_holds},
        memory::Prepared,
        plan::Planner,
        work::{JobPurpose, Ready},
    },
};
use crate::{
    compaction::{Basis, Order, Outcome, Raw},
    context::{Context, messages::Kind},
    session::Lookup,
};
use reseed_protocol::{
    EntryId, ErrorBody, ErrorCode, JobId,
    compaction::{CompactionPreview, CompactionTrigger, PreviewCompaction, StartCompaction, Stretch},
    reply::Reply,
};
use std::{collections::HashSet, sync::Arc};

/// Milliseconds for which a preview can be applied, so that a person can think about it.
pub const PREVIEW_MILLIS: u64 = 600_000;

impl Compacting<'_> {
    pub(crate) fn on_manual_compact(
        &mut self,
        caller: &Caller,
        compact: StartCompaction,
        lookup: Option<Lookup>,
    ) -> Result<(), ErrorBody> {
        let StartCompaction { instructions, replace_instructions, preview_id, strategy, rebuild } = compact;
        if let Some(preview) = preview_id {
            if instructions.is_some() || replace_instructions.is_some() || strategy.is_some() || rebuild.is_some() {
                let message = "a preview is applied as it was shown; leave out instructions, strategy and rebuild";
                return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("previewId"));
            }
            return self.apply_preview(caller, &preview);
        }
        let raw = lookup.filter(|_| rebuild == Some(true));
        let wanted = self.planner().wanted(instructions, replace_instructions)?;
        let order = self.ordered_by(caller, wanted, strategy.as_deref(), raw)?;
        if self.planner().is_plain(&order)
            && let Some((mut basis, outcome)) = self.held_for_person()
        {
            self.void_running("the compaction prepared earlier is committed");
            answer_job(self.ledger, caller, basis.order.job_id.clone());
            self.compaction.carried.breaker = self.compaction.carried.breaker.ordered();
            basis.order.command_id = Some(caller.id.clone());
            self.compaction.work.wait(Ready { basis, outcome, background: true, waited_since: None });
            self.proceed_if_idle();
            return Ok(());
        }
        self.planner().check_worth(&order)?;
        answer_job(self.ledger, caller, order.job_id.clone());
        self.compaction.carried.breaker = self.compaction.carried.breaker.ordered();
        self.compaction.work.ordered = Some(order);
        // During a turn it runs before the next request, so that the order is not lost and the answer is not
        // interrupted.
        self.proceed_if_idle();
        Ok(())
    }

    pub(crate) fn on_preview_compact(
        &mut self,
        caller: &Caller,
        preview: PreviewCompaction,
        lookup: Option<Lookup>,
    ) -> Result<(), ErrorBody> {
        let PreviewCompaction { instructions, replace_instructions, strategy, rebuild } = preview;
        let raw = lookup.filter(|_| rebuild == Some(true));
        let wanted = self.planner().wanted(instructions, replace_instructions)?;
        let order = self.ordered_by(caller, wanted, strategy.as_deref(), raw)?;
        if self.planner().is_plain(&order)
            && let Some((basis, outcome)) = self.held_for_person()
        {
            self.compaction.show_preview(self.ledger, self.prompt, caller, basis, outcome);
            return Ok(());
        }
        self.planner().check_worth(&order)?;
        self.void_running("a preview was requested");
        self.start_job(order, JobPurpose::Preview(caller.clone()), true)
    }

    fn apply_preview(&mut self, caller: &Caller, preview: &JobId) -> Result<(), ErrorBody> {
        let found = self.compaction.carried.preview.take_if(|prepared| *prepared.id() == *preview);
        let Some(prepared) = found.filter(|prepared| self.ledger.now < prepared.expires_at) else {
            let message = format!("there is no preview `{preview}`, or it has expired");
            return Err(ErrorBody::new(ErrorCode::PreviewNotFound, message).with_field("previewId"));
        };
        if !still_holds(self.ledger.path(), &prepared.basis, &prepared.outcome) {
            let message = "the history moved on since the preview: what it shows is no longer what the model sees";
            return Err(ErrorBody::new(ErrorCode::HistoryMoved, message).with_field("previewId"));
        }
        self.void_running("a preview is applied");
        answer_job(self.ledger, caller, prepared.id().clone());
        self.compaction.carried.breaker = self.compaction.carried.breaker.ordered();
        let Prepared { basis, outcome, expires_at: _ } = *prepared;
        let mut basis = *basis;
        basis.order.command_id = Some(caller.id.clone());
        basis.order.trigger = CompactionTrigger::Manual;
        // The work was done earlier: applying it takes no time.
        (basis.started_at, basis.ended_at) = (self.ledger.now, None);
        // If the preview shows the held compaction, it is that compaction, which was prepared in the background.
        let background = self.ledger.session.is_held(&basis.order.job_id);
        self.compaction.work.wait(Ready { basis, outcome, background, waited_since: None });
        self.proceed_if_idle();
        Ok(())
    }

    /// Returns the order of a client.
    fn ordered_by(
        &mut self,
        caller: &Caller,
        (instructions, free_form): (Option<String>, bool),
        strategy: Option<&str>,
        raw: Option<Lookup>,
    ) -> Result<Order, ErrorBody> {
        let strategy = match strategy {
            Some(name) => Some(self.ledger.deployment.strategies.resolve(name, "strategy")?),
            None => None,
        };
        // Naming the session's own strategy is the same as naming none.
        let strategy = strategy.filter(|name| *name != self.prompt.manager().name());
        let rebuild = raw.and_then(|raw| match raw {
            Lookup::Entries { entries, is_cut } => Some(Arc::new(Raw::of(entries, !is_cut))),
            Lookup::Path(_) | Lookup::Destination(_) | Lookup::EndedCall(_) | Lookup::Approval { .. } => None,
        });
        Ok(Order {
            command_id: Some(caller.id.clone()),
            instructions,
            free_form,
            strategy,
            rebuild,
            ..Order::automatic(self.ledger.new_id(), CompactionTrigger::Manual)
        })
    }
}

impl Compactor {
    /// Shows a finished preview as it would be committed now, and keeps it while it may be applied.
    pub(crate) fn show_preview(
        &mut self,
        ledger: &mut Ledger,
        prompt: &Prompt,
        caller: &Caller,
        basis: Basis,
        outcome: Box<Outcome>,
    ) {
        let mut as_of_now = Outcome::clone(&outcome);
        keep_what_came(ledger.path(), &basis, &mut as_of_now);
        let context = ledger.context();
        let before = prompt.count(ledger, &context);
        let tokens_after = Planner { ledger, prompt }.would_leave(&basis, &as_of_now, before.tokens);
        let expires_at = ledger.now.plus_millis(PREVIEW_MILLIS);
        let (dropped, kept) = parted(prompt, &context, &as_of_now);
        let shown = CompactionPreview {
            preview_id: basis.order.job_id.clone(),
            expires_at,
            summary: as_of_now.summary,
            form: as_of_now.form,
            rung: as_of_now.rung,
            failed_rungs: as_of_now.failed,
            first_kept_entry_id: as_of_now.first_kept,
            kept_entry_ids: as_of_now.kept,
            cleared_entry_ids: as_of_now.cleared,
            dropped,
            kept,
            tokens_before: before.tokens,
            tokens_after,
            retained: None,
            summary_usage: as_of_now.usage,
        };
        self.carried.preview = Some(Box::new(Prepared { basis: Box::new(basis), outcome, expires_at }));
        ledger.reply(caller, Reply::CompactionPreview(Box::new(shown)));
    }
}

impl Planner<'_> {
    /// Returns true if an order has no special wishes, so that the held compaction satisfies it.
    pub(crate) fn is_plain(&self, order: &Order) -> bool {
        let own_strategy = order.strategy.is_none_or(|name| name == self.prompt.manager().name());
        own_strategy && order.instructions.is_none() && order.rebuild.is_none()
    }
}

fn answer_job(ledger: &mut Ledger, caller: &Caller, job_id: JobId) {
    let mut reply = done(Some(ledger.state().seq));
    if let Reply::Ok(done) = &mut reply {
        done.job_id = Some(job_id);
    }
    ledger.append(Vec::new(), vec![caller.mark(reply)]);
}

/// Returns the messages that the model would no longer see, and those that it would still see, without summaries.
fn parted(prompt: &Prompt, context: &Context, outcome: &Outcome) -> (Stretch, Stretch) {
    let one_by_one: HashSet<&EntryId> = outcome.kept.iter().collect();
    let (mut dropped, mut kept) = (Stretch::default(), Stretch::default());
    let mut in_tail = false;
    for counted in context.messages.iter().filter(|counted| counted.kind != Kind::Summary) {
        let id = counted.entry_id.as_ref();
        in_tail |= id.is_some() && id == outcome.first_kept.as_ref();
        let stays = in_tail || id.is_some_and(|id| one_by_one.contains(id));
        let stretch = if stays { &mut kept } else { &mut dropped };
        stretch.count += 1;
        stretch.tokens += prompt.in_tokens(counted.tokens.total());
        if let Some(id) = id {
            stretch.from.get_or_insert_with(|| id.clone());
            stretch.to = Some(id.clone());
        }
    }
    (dropped, kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        agent_loop::{AgentLoop, Deployment, Effect, Input, Origin, Seed},
        context::{
            counter::{Calibration, Counter},
            testing::path,
            windows::Windows,
        },
        model::ModelFault,
        session::{IdSource, Session},
    };
    use reseed_protocol::{
        Timestamp, command::SessionCommand, content::Input as Said, event::Event, tree::EntryAppended, turn::UserInput,
    };

    const NOW: Timestamp = Timestamp(1_000_000);

    /// A loop whose session is larger than what a compaction keeps, and the number of the next command.
    struct World(AgentLoop, u32);

    impl World {
        fn new() -> Self {
            Self::with("manual")
        }

        fn with(strategy: &str) -> Self {
            let counter = Counter::for_model("test");
            let mut session = Session::new("session".parse().unwrap(), Timestamp(0));
            session.state_mut().model = "test".into();
            session.state_mut().strategy = strategy.into();
            let long = "The harbour lies to the west. ".repeat(60);
            let lines: Vec<String> =
                (0..8).map(|n| format!("e{n}:{} {n} {long}", ["user", "assistant"][n % 2])).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            for node in path(&lines, &counter) {
                let entry = node.entry.clone();
                let appended = EntryAppended { entry, turn_id: None, command_id: None };
                session.apply(&Event::EntryAppended(Box::new(appended)), &counter);
            }
            let windows = Windows::new(Some(8_000), Vec::new());
            let deployment = Deployment { model: "test".into(), windows, ..Deployment::default() };
            let calibration = Calibration::new(counter.method());
            let seed = Seed::new(session, Arc::new(deployment), calibration, IdSource::seeded(1));
            Self(AgentLoop::seeded(1, seed), 0)
        }

        fn ask(&mut self, now: Timestamp, command: SessionCommand) -> Vec<Effect> {
            self.1 += 1;
            let (id, command) = (format!("command-{:012}", self.1).parse().unwrap(), Box::new(command));
            self.0.handle(now, Input::Command { origin: Origin(1), id, fingerprint: 0, command, lookup: None })
        }

        fn apply(&mut self, now: Timestamp, preview_id: JobId) -> Vec<Effect> {
            let preview_id = Some(preview_id);
            self.ask(now, SessionCommand::StartCompaction(StartCompaction { preview_id, ..StartCompaction::default() }))
        }

        /// Requests a preview. The model fails, so the preview is made without it.
        fn preview(&mut self) -> CompactionPreview {
            let asked = self.ask(NOW, SessionCommand::PreviewCompaction(PreviewCompaction::default()));
            let request = asked.iter().find_map(|effect| match effect {
                Effect::CallModel(call) => Some(call.request),
                _ => None,
            });
            let fault = ModelFault::new(ErrorCode::UpstreamError, "no");
            let shown = self.0.handle(NOW, Input::Failed { request: request.unwrap(), fault, shown: Vec::new() });
            let shown = shown.into_iter().find_map(|effect| match effect {
                Effect::Reply { reply: Reply::CompactionPreview(preview), .. } => Some(*preview),
                _ => None,
            });
            shown.expect("a preview is shown")
        }
    }

    fn refusal(effects: &[Effect]) -> Option<ErrorCode> {
        effects.iter().find_map(|effect| match effect {
            Effect::Reply { reply: Reply::Error(error), .. } => Some(error.code),
            _ => None,
        })
    }

    #[test]
    fn a_preview_can_be_applied_until_it_expires() {
        for (after, expected) in [(PREVIEW_MILLIS - 1, None), (PREVIEW_MILLIS, Some(ErrorCode::PreviewNotFound))] {
            let mut world = World::new();
            let preview = world.preview();
            assert_eq!(preview.expires_at, NOW.plus_millis(PREVIEW_MILLIS));
            let effects = world.apply(NOW.plus_millis(after), preview.preview_id);
            assert_eq!(refusal(&effects), expected, "{after}");
            let compacts = effects.iter().any(|effect| {
                let Effect::Append(append) = effect else { return false };
                append.events.iter().any(|event| matches!(event, Event::ContextCompacted(_)))
            });
            assert_eq!(compacts, expected.is_none(), "{after}");
        }
    }

    #[test]
    fn applying_a_preview_during_a_turn_makes_room_for_a_refused_request() {
        let mut world = World::with("threshold");
        let preview = world.preview();
        let text = "How far is it?".to_owned();
        let asked = world.ask(NOW, SessionCommand::UserInput(UserInput::plain(Said::Text(text))));
        let request = asked.iter().find_map(|effect| match effect {
            Effect::CallModel(call) => Some(call.request),
            _ => None,
        });
        assert_eq!(refusal(&world.apply(NOW, preview.preview_id.clone())), None);
        let fault = ModelFault::new(ErrorCode::ContextOverflow, "too large");
        let effects = world.0.handle(NOW, Input::Failed { request: request.unwrap(), fault, shown: Vec::new() });
        let jobs = effects.iter().filter_map(|effect| match effect {
            Effect::Append(append) => Some(&append.events),
            _ => None,
        });
        let compacted = jobs.flatten().find_map(|event| match event {
            Event::ContextCompacted(compacted) => Some(&compacted.job_id),
            _ => None,
        });
        assert_eq!(compacted, Some(&preview.preview_id), "{effects:#?}");
    }
}
