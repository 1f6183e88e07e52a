//! The next request of the session: its context, envelope and count.

use crate::agent_loop::{
    io::Effect,
    ledger::Ledger,
    prompt::{causes::Cause, receipts::Sent},
    tools::Tools,
};
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
    EntryId, Part, Role,
    context::{ContextEnvelope, EnvelopeMeta},
    reply::{self, SessionTool},
};
use std::sync::Arc;

/// The tools with which a model finds what it no longer sees, and reads it.
const FIND: &str = "history_search";
const READ_ON: &str = "history_read";

impl Ledger {
    /// Replaces the system prompt until the turn ends, as this hook decided.
    pub(crate) fn set_turn_prompt(&mut self, text: String, hook: String) {
        self.prompt.carried.receipts.because(Cause::Instructions(Some(hook.clone())));
        self.prompt.carried.of_turn = Some(super::TurnPrompt { text, hook });
        self.refresh_fixed();
    }

    /// Restores the session's system prompt at the end of a turn that had its own.
    pub(crate) fn drop_turn_prompt(&mut self) {
        if let Some(prompt) = self.prompt.carried.of_turn.take() {
            self.prompt.carried.receipts.because(Cause::Instructions(Some(prompt.hook)));
            self.refresh_fixed();
        }
    }

    /// Calibrates token estimates from a report, for this session and later ones.
    pub(crate) fn calibrate(&mut self, model: &str, report: Report) {
        if self.prompt.counter.trusts_reports() {
            return;
        }
        let own = (model == self.session.state.model).then(|| {
            self.prompt.calibration.observe(&report);
            self.prompt.calibration.clone()
        });
        self.push(Effect::Calibrate { model: model.to_owned(), report: Box::new(report), own });
    }

    /// Returns the context that the model would see if nothing more were said.
    pub(crate) fn context(&self) -> Arc<Context> {
        self.session.tree.context()
    }

    /// Returns the whole envelope of a request with this context, which has `tokens` tokens, and may have this many
    /// more. The answer's limit is what is asked for, or what is left in the window.
    pub(crate) fn envelope(&self, context: &Context, tokens: u64, error_bound_tokens: u64) -> ContextEnvelope {
        let state = &self.session.state;
        let meta = EnvelopeMeta {
            model: state.model.clone(),
            window_tokens: self.window_tokens(),
            turn_id: state.turn.as_ref().map(|turn| turn.turn_id.clone()),
            request: state.turn.as_ref().map_or(1, |turn| turn.answers + 1),
            tokens,
            parts: None,
        };
        let mut envelope = envelope(&self.prompt.compiled(context), context, &self.options(), meta);
        let asked = envelope.options.max_output_tokens;
        envelope.options.max_output_tokens = self.deployment.output_tokens(asked);
        limit_answer(&mut envelope.options, tokens.saturating_add(error_bound_tokens), self.window_tokens());
        envelope
    }

    /// Returns what a provider's cache sees of a request with this context, which has `tokens` tokens.
    pub(super) fn outgoing<'a>(
        &'a self,
        compiled: &'a Compiled,
        context: &'a Context,
        tokens: u64,
    ) -> PlannedRequest<'a> {
        let Compiled { system, tools, fixed, .. } = compiled;
        let outgoing = PlannedRequest::new(&self.session.state.model, system, tools, *fixed);
        outgoing.with_messages(&context.messages, &context.uncached).counted_at(tokens)
    }

    /// Returns the envelope as hooks and people see it.
    pub(crate) fn shown_envelope(&self, context: &Context) -> ContextEnvelope {
        let count = self.count(context);
        let mut envelope = self.envelope(context, count.tokens, count.error_bound_tokens);
        let compiled = self.prompt.compiled(context);
        let counted = (count.tokens, count.usage_tokens > 0);
        envelope.meta.parts = Some(tokens_by_part(&compiled, context, &self.prompt.counter, counted));
        envelope
    }

    pub(crate) fn count(&self, context: &Context) -> RequestCount {
        let compiled = self.prompt.compiled(context);
        let fresh = Freshness { model: &self.session.state.model, envelope_key: &compiled.key };
        count(context, compiled.fixed, fresh, &self.prompt.counter, &self.prompt.calibration)
    }

    /// Returns the count of the next request with this context, which a compaction leaves: from then on the session may
    /// offer the tools that search its history.
    pub(crate) fn count_compacted(&self, context: &Context) -> RequestCount {
        let state = &self.session.state;
        let tools = self.tools_once_compacted();
        if tools.definitions() == self.prompt.carried.tools.definitions() {
            return self.count(context);
        }
        let (prompt, counter) = (&self.prompt, &self.prompt.counter);
        let compiled = Compiled::of(&prompt.parts, tools.definitions(), &context.carried, counter);
        let fresh = Freshness { model: &state.model, envelope_key: &compiled.key };
        count(context, compiled.fixed, fresh, counter, &prompt.calibration)
    }

    fn tools_once_compacted(&self) -> Tools {
        let state = &self.session.state;
        self.tools_without(&state.settings.tools_off, state.compactions + 1)
    }

    /// Returns true if the session offers the server's tools that search its history once it is compacted: the text
    /// around the summary then names them. What the log says decides for as long as that summary is shown, so that the
    /// prefix of requests stays as it is when tools come and go.
    pub(crate) fn searches_once_compacted(&self) -> bool {
        let tools = self.tools_once_compacted();
        let has = |name| tools.offers().any(|(offer, place)| offer.name == name && place == ToolPlace::Server);
        has(FIND) && has(READ_ON)
    }

    /// Returns the estimated tokens that a compaction adds besides its summary: of the tools that the session offers
    /// from then on, and of the text that names them.
    pub(crate) fn added_once_compacted(&self) -> u64 {
        let counter = &self.prompt.counter;
        let tokens = |tools: &Tools| tools.definitions().iter().map(|tool| counter.tool(tool)).sum::<u64>();
        let tools = tokens(&self.tools_once_compacted()).saturating_sub(tokens(&self.prompt.carried.tools));
        let named = if self.searches_once_compacted() {
            counter.text(&searchable_seed_text("")).saturating_sub(counter.text(&seed_text("")))
        } else {
            0
        };
        tools + named
    }

    pub(crate) fn window_tokens(&self) -> u64 {
        let known = self.deployment.windows.tokens(&self.session.state.model);
        self.session.state.settings.learned_window_tokens.map_or(known, |learned| learned.min(known))
    }

    /// Records that a request with this context is sent, as this number of its turn, with `tokens` tokens.
    pub(crate) fn sent(&mut self, context: &Context, tokens: u64, number: u64) -> Sent {
        self.prompt.request_failed();
        let receipts = &self.prompt.carried.receipts;
        let compiled = self.prompt.compiled(context);
        let outgoing = self.outgoing(&compiled, context, tokens);
        let sent = Sent {
            key: sent_key(&compiled.key, context),
            receipt: receipts.of(
                &outgoing,
                number,
                compiled.notes.iter().cloned().chain(self.notes_on_tools()).collect(),
            ),
            tools: self.prompt.carried.tools.sent(&compiled.tools),
        };
        let request = outgoing.sent();
        self.prompt.carried.receipts.sent(request);
        sent
    }

    /// Replaces the host's tools.
    pub(crate) fn offer_tools(&mut self, tools: Tools) {
        self.prompt.carried.client_tools = tools;
        self.adopt_tools();
    }

    /// Returns a note for the model on how to read what was cut from this entry, if it has the tool for it.
    pub(crate) fn how_to_read_on(&self, entry: &EntryId, from: u64) -> Option<String> {
        let has_tool = self.prompt.carried.tools.has(READ_ON);
        has_tool.then(|| format!("\n[{READ_ON} with entryId {entry} and offset {from} reads what was left out]"))
    }

    /// Offers no tools to the session's model from now on, which refuses requests because of them.
    pub(crate) fn go_on_without_tools(&mut self) {
        if self.prompt.carried.tools.is_empty() {
            return;
        }
        let model = self.session.state.model.clone();
        self.push(Effect::ToolsRefused(model.clone()));
        self.prompt.carried.refused_tools = Some(model);
        self.adopt_tools();
    }

    /// Returns true if the user's last message names this tool.
    pub(crate) fn was_named(&self, tool: &str) -> bool {
        let path = self.session.tree.path();
        let mut messages = path.iter().rev().filter_map(|node| node.entry.message());
        let said = messages.find(|message| message.role == Role::User);
        let mut parts = said.iter().flat_map(|message| &message.content);
        parts.any(|part| matches!(part, Part::Text { text } if text.contains(tool)))
    }

    /// Offers no tools that search the history to this model from the next turn on: it writes calls as text, which
    /// nobody makes, so that they only invite such answers. The host's tools stay, since only the host knows whether it
    /// reads such texts itself.
    pub(crate) fn go_on_without_history(&mut self, model: &str) {
        if !self.writes_calls(model) {
            self.push(Effect::CallWritten(model.to_owned()));
            self.prompt.carried.writes_calls = Some(model.to_owned());
        }
    }

    fn writes_calls(&self, model: &str) -> bool {
        self.prompt.carried.writes_calls.as_deref() == Some(model)
            || self.deployment.models_writing_calls.contains(model)
    }

    /// Returns what people are told of the tools of this request.
    fn notes_on_tools(&self) -> Option<String> {
        let history = &self.deployment.history_tools;
        let would_be = history.are_offered(self.session.state.compactions, 0, u64::MAX);
        let is_withheld = would_be && !history.tools.is_empty() && self.writes_calls(&self.session.state.model);
        is_withheld
            .then(|| "the tools that search the history are not offered: the model writes calls as text".to_owned())
    }

    /// Takes up the tools that the server has now, beside the host's. Each change of the list breaks the provider's
    /// cache, so the server's are taken up only when a turn or a loop begins.
    pub(crate) fn adopt_tools(&mut self) {
        let state = &self.session.state;
        let tools = self.tools_without(&state.settings.tools_off, state.compactions);
        if tools.definitions() != self.prompt.carried.tools.definitions() {
            self.prompt.carried.receipts.because(Cause::Tools);
        }
        self.prompt.carried.tools = tools;
        self.refresh_fixed();
    }

    /// Returns the tools that the session has after so many compactions, except those of these names.
    fn tools_without(&self, off: &[String], compactions: u64) -> Tools {
        let (deployment, model) = (&self.deployment, &self.session.state.model);
        let refused = self.prompt.carried.refused_tools.as_ref() == Some(model);
        if deployment.tools_are_off || refused || deployment.models_without_tools.contains(model) {
            return Tools::default();
        }
        let history = &deployment.history_tools;
        let tokens: u64 = history.tools.definitions().iter().map(|tool| self.prompt.counter.tool(tool)).sum();
        let has_history = history.are_offered(compactions, tokens, self.window_tokens()) && !self.writes_calls(model);
        let history = has_history.then_some(&history.tools);
        let server: Vec<&Tools> = std::iter::once(&deployment.server_tools).chain(history).collect();
        Tools::offered(&server, &self.prompt.carried.client_tools, off)
    }

    /// Returns the tools that the session has now with the tokens of each, for people: also those that are switched
    /// off. MCP servers are the shell's, which adds them.
    pub(crate) fn listed_tools(&self) -> reply::Tools {
        let off = &self.session.state.settings.tools_off;
        let tools = self.tools_without(&[], self.session.state.compactions);
        let items = tools.offers().map(|(offer, place)| SessionTool {
            name: offer.name.clone(),
            description: offer.description.clone(),
            place,
            tokens: self.prompt.counter.tool(&offer.definition()),
            off: off.contains(&offer.name),
            annotations: offer.annotations,
        });
        let items: Vec<SessionTool> = items.collect();
        let tokens = items.iter().filter(|tool| !tool.off).map(|tool| tool.tokens).sum();
        reply::Tools { items, tokens, servers: Vec::new() }
    }
}
