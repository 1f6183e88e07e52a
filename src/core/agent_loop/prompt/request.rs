//! The session's next request: its context, envelope and count.

use super::{Prompt, TurnPrompt, receipts::Sent};
use crate::agent_loop::{causes::Cause, io::Effect, ledger::Ledger, tools::Tools};
use crate::tool::ToolPlace;
use crate::{
    context::seed::{searchable_seed_text, seed_text},
    context::{
        Context, RequestCount,
        count::{Freshness, count, sent_key},
        counter::Report,
        envelope::{Compiled, envelope, tokens_by_part},
        prefix::PlannedRequest,
        window::limit_answer,
    },
};
use reseed_protocol::{
    EntryId,
    context::{ContextEnvelope, EnvelopeMeta, ToolChoice},
    tools::{self, SessionTool},
};

/// The tools with which a model finds and reads what it no longer sees.
pub(crate) const HISTORY_TOOLS: [&str; 2] = ["history_search", READ_ON];
const READ_ON: &str = "history_read";

impl Prompt {
    /// Replaces the system prompt until the turn ends, as this hook requested.
    pub(crate) fn set_turn_prompt(&mut self, ledger: &mut Ledger, text: String, hook: String) {
        ledger.causes.add(Cause::Instructions(Some(hook.clone())));
        self.carried.of_turn = Some(TurnPrompt { text, hook });
        self.refresh(ledger);
    }

    /// Restores the session's system prompt at the end of a turn that had its own.
    pub(crate) fn drop_turn_prompt(&mut self, ledger: &mut Ledger) {
        if let Some(prompt) = self.carried.of_turn.take() {
            ledger.causes.add(Cause::Instructions(Some(prompt.hook)));
            self.refresh(ledger);
        }
    }

    /// Calibrates token estimates from a report, for this session and later ones.
    pub(crate) fn calibrate(&mut self, ledger: &mut Ledger, model: &str, report: Report) {
        if ledger.counter().trusts_reports() {
            return;
        }
        let own = (model == ledger.state().model).then(|| {
            self.calibration.observe(&report);
            self.calibration.clone()
        });
        ledger.push(Effect::Calibrate { model: model.to_owned(), report: Box::new(report), own });
    }

    /// Returns the whole envelope of a request with this context. The request has `tokens` tokens, and may have
    /// `error_bound_tokens` more. The answer's limit is the requested one, or the rest of the window.
    pub(crate) fn envelope(
        &self,
        ledger: &Ledger,
        context: &Context,
        tokens: u64,
        error_bound_tokens: u64,
    ) -> ContextEnvelope {
        let state = ledger.state();
        let meta = EnvelopeMeta {
            model: state.model.clone(),
            window_tokens: ledger.window_tokens(),
            turn_id: ledger.turn_id(),
            request: state.turn.as_ref().map_or(1, |turn| turn.answers + 1),
            tokens,
            parts: None,
        };
        let mut envelope = envelope(&self.compiled(ledger.counter(), context), context, &ledger.options(), meta);
        // A model that is forced to call a tool after every result would never answer.
        if let Some(answer) = &mut envelope.options.answer
            && envelope.meta.request > 1
            && answer.tool_choice.as_ref().is_some_and(ToolChoice::is_forced)
        {
            answer.tool_choice = None;
        }
        let asked = envelope.options.max_output_tokens;
        envelope.options.max_output_tokens = ledger.deployment.output_tokens(asked);
        limit_answer(&mut envelope.options, tokens.saturating_add(error_bound_tokens), ledger.window_tokens());
        envelope
    }

    /// Returns the envelope in the form shown to hooks and people.
    pub(crate) fn shown_envelope(&self, ledger: &Ledger, context: &Context) -> ContextEnvelope {
        let count = self.count(ledger, context);
        let mut envelope = self.envelope(ledger, context, count.tokens, count.error_bound_tokens);
        let compiled = self.compiled(ledger.counter(), context);
        let counted = (count.tokens, count.usage_tokens > 0);
        envelope.meta.parts = Some(tokens_by_part(&compiled, context, ledger.counter(), counted));
        envelope
    }

    /// Returns the count of the next request as the session is now.
    pub(crate) fn count_now(&self, ledger: &Ledger) -> RequestCount {
        self.count(ledger, &ledger.context())
    }

    /// Returns the count of a request with this context.
    pub(crate) fn count(&self, ledger: &Ledger, context: &Context) -> RequestCount {
        let compiled = self.compiled(ledger.counter(), context);
        let fresh = Freshness { model: &ledger.state().model, envelope_key: &compiled.key };
        count(context, compiled.fixed, fresh, ledger.counter(), &self.calibration)
    }

    /// Returns the count of the next request with this context, which a compaction leaves. From then on, the session
    /// may offer the tools that search its history.
    pub(crate) fn count_compacted(&self, ledger: &Ledger, context: &Context) -> RequestCount {
        let state = ledger.state();
        let tools = self.tools_once_compacted(ledger);
        if tools.definitions() == self.carried.tools.definitions() {
            return self.count(ledger, context);
        }
        let counter = ledger.counter();
        let compiled = Compiled::of(&self.parts, tools.definitions(), &context.carried, counter);
        let fresh = Freshness { model: &state.model, envelope_key: &compiled.key };
        count(context, compiled.fixed, fresh, counter, &self.calibration)
    }

    fn tools_once_compacted(&self, ledger: &Ledger) -> Tools {
        let state = ledger.state();
        self.tools_without(ledger, &state.settings.tools_off, state.compactions + 1)
    }

    /// Returns true if the session offers the server's tools that search its history once it is compacted. The text
    /// around the summary then names them. The log decides this for as long as that summary is shown, so that the
    /// prefix of requests is stable when tools come and go.
    pub(crate) fn searches_once_compacted(&self, ledger: &Ledger) -> bool {
        let tools = self.tools_once_compacted(ledger);
        let has = |name| tools.offers().any(|(offer, place)| offer.name == name && place == ToolPlace::Server);
        HISTORY_TOOLS.into_iter().all(has)
    }

    /// Returns the estimated tokens that a compaction adds besides its summary: the tools that the session offers from
    /// then on, and the text that names them.
    pub(crate) fn added_once_compacted(&self, ledger: &Ledger) -> u64 {
        let counter = ledger.counter();
        let tokens = |tools: &Tools| tools.definitions().iter().map(|tool| counter.tool(tool)).sum::<u64>();
        let tools = tokens(&self.tools_once_compacted(ledger)).saturating_sub(tokens(&self.carried.tools));
        let named = if self.searches_once_compacted(ledger) {
            counter.text(&searchable_seed_text("")).saturating_sub(counter.text(&seed_text("")))
        } else {
            0
        };
        tools + named
    }

    /// Records that a request with this context and `tokens` tokens is sent, with this number in its turn.
    pub(crate) fn sent(&mut self, ledger: &mut Ledger, context: &Context, tokens: u64, number: u64) -> Sent {
        self.request_failed(ledger);
        let compiled = self.compiled(ledger.counter(), context);
        let outgoing = outgoing(ledger, &compiled, context, tokens);
        let sent = Sent {
            key: sent_key(&compiled.key, context),
            receipt: self.carried.receipts.of(
                &outgoing,
                &ledger.causes,
                number,
                compiled.notes.iter().cloned().chain(self.notes_on_tools(ledger)).collect(),
            ),
            tools: self.carried.tools.sent(&compiled.tools),
        };
        let request = outgoing.sent();
        self.carried.receipts.sent(request, std::mem::take(&mut ledger.causes));
        sent
    }

    /// Replaces the host's tools.
    pub(crate) fn offer_tools(&mut self, ledger: &mut Ledger, tools: Tools) {
        self.carried.client_tools = tools;
        self.adopt_tools(ledger);
    }

    /// Returns a note for the model on how to read the omitted part of this entry, if the model has the tool for it.
    pub(crate) fn how_to_read_on(&self, entry: &EntryId, from: u64) -> Option<String> {
        let has_tool = self.carried.tools.has(READ_ON);
        has_tool.then(|| format!("\n[{READ_ON} with entryId {entry} and offset {from} reads what was left out]"))
    }

    /// Offers no more tools to the session's model, which refuses requests because of them.
    pub(crate) fn go_on_without_tools(&mut self, ledger: &mut Ledger) {
        if self.carried.tools.is_empty() {
            return;
        }
        let model = ledger.state().model.clone();
        ledger.push(Effect::ToolsRefused(model.clone()));
        self.carried.refused_tools = Some(model);
        self.adopt_tools(ledger);
    }

    /// From the next turn on, does not offer this model the tools that search the history: it writes calls as text,
    /// which nobody executes, so the tools only invite such answers. The host's tools stay, since only the host knows
    /// whether it parses such texts itself.
    pub(crate) fn go_on_without_history(&mut self, ledger: &mut Ledger, model: &str) {
        if !self.writes_calls(ledger, model) {
            ledger.push(Effect::CallWritten(model.to_owned()));
            self.carried.writes_calls = Some(model.to_owned());
        }
    }

    fn writes_calls(&self, ledger: &Ledger, model: &str) -> bool {
        self.carried.writes_calls.as_deref() == Some(model) || ledger.deployment.models_writing_calls.contains(model)
    }

    /// Returns the notes for people about the tools of this request.
    fn notes_on_tools(&self, ledger: &Ledger) -> Option<String> {
        let history = &ledger.deployment.history_tools;
        let would_be = history.are_offered(ledger.state().compactions, 0, u64::MAX);
        let is_withheld = would_be && !history.tools.is_empty() && self.writes_calls(ledger, &ledger.state().model);
        is_withheld
            .then(|| "the tools that search the history are not offered: the model writes calls as text".to_owned())
    }

    /// Adopts the tools that the server has now, in addition to the host's. Each change of the list breaks the
    /// provider's cache, so the server's tools are adopted only when a turn or a loop begins.
    pub(crate) fn adopt_tools(&mut self, ledger: &mut Ledger) {
        let state = ledger.state();
        let tools = self.tools_without(ledger, &state.settings.tools_off, state.compactions);
        if tools.definitions() != self.carried.tools.definitions() {
            ledger.causes.add(Cause::Tools);
        }
        self.carried.tools = tools;
        self.refresh(ledger);
    }

    /// Returns the tools that the session has after this many compactions, except those with these names.
    fn tools_without(&self, ledger: &Ledger, off: &[String], compactions: u64) -> Tools {
        let (deployment, model) = (&ledger.deployment, &ledger.state().model);
        let refused = self.carried.refused_tools.as_ref() == Some(model);
        if deployment.tools_are_off || refused || deployment.models_without_tools.contains(model) {
            return Tools::default();
        }
        let history = &deployment.history_tools;
        let tokens: u64 = history.tools.definitions().iter().map(|tool| ledger.counter().tool(tool)).sum();
        let has_history =
            history.are_offered(compactions, tokens, ledger.window_tokens()) && !self.writes_calls(ledger, model);
        let history = has_history.then_some(&history.tools);
        let server: Vec<&Tools> = std::iter::once(&deployment.server_tools).chain(history).collect();
        Tools::offered(&server, &self.carried.client_tools, off)
    }

    /// Returns the session's current tools with the tokens of each, including those that are switched off. The shell
    /// adds the MCP servers.
    pub(crate) fn listed_tools(&self, ledger: &Ledger) -> tools::Tools {
        let off = &ledger.state().settings.tools_off;
        let tools = self.tools_without(ledger, &[], ledger.state().compactions);
        let items = tools.offers().map(|(offer, place)| SessionTool {
            name: offer.name.clone(),
            description: offer.description.clone(),
            place,
            tokens: ledger.counter().tool(&offer.definition()),
            off: off.contains(&offer.name),
            annotations: offer.annotations,
        });
        let items: Vec<SessionTool> = items.collect();
        let tokens = items.iter().filter(|tool| !tool.off).map(|tool| tool.tokens).sum();
        tools::Tools { items, tokens, servers: Vec::new() }
    }
}

/// Returns what a provider's cache sees of a request with this context, which has `tokens` tokens.
pub(super) fn outgoing<'a>(
    ledger: &'a Ledger,
    compiled: &'a Compiled,
    context: &'a Context,
    tokens: u64,
) -> PlannedRequest<'a> {
    let Compiled { system, tools, fixed, .. } = compiled;
    let outgoing = PlannedRequest::new(&ledger.state().model, system, tools, *fixed);
    outgoing.with_messages(&context.messages, &context.uncached).counted_at(tokens)
}
