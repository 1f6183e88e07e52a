//! The prompt builder: the content of the session's next request, and its token count.
//!
//! Inputs: each appended event; the tools that a client offers (`register_tools`, `ToolsOffered`); a turn's own system
//! prompt; what hooks added to one request; requests that were sent, answered or failed, with the reported usage; the
//! commands `get_context_info` and `get_context`.
//!
//! Outputs: the context, its envelope, count and receipt, for the machine that asks; the effect that stores a
//! calibration. It queues no step.
//!
//! The prompt is compiled from the instructions, the tools and the path's patches, and counted with the session's own
//! calibration. Its fields are private to this folder: other machines read it through methods and report what happened
//! (tools were offered, a hook set the turn's system prompt, a request was sent, answered or failed).
//!
//! - `tools`: the tools that the client offers, and how calls are checked against them
//! - `added`: what hooks added to the last request alone
//! - `receipts`: what consecutive requests share, and why it is not more
//! - `fit`: the limits that the window sets to what may be added
//! - `shown`: a preview of the next request; `info`: the meter and the session's snapshot

mod added;
mod fit;
mod info;
mod receipts;
mod shown;
mod tools;

pub use info::{Snapshot, usage_percent, usage_ratio};
pub(in crate::agent_loop) use info::{done, session_updated};
pub(in crate::agent_loop) use receipts::Sent;
pub(in crate::agent_loop) use tools::SentTools;
pub use tools::{TOOLS_MAX, Tools, check_offers};

use super::{Effect, workspace::Workspace};
use crate::{
    context::{
        Context, RequestCount,
        causes::Cause,
        count::{Fixed, Freshness, count},
        counter::{Calibration, Counter, Report},
        envelope::{Compiled, envelope, system_prompt, tokens_by_part},
        patch::{Around, CarriedOps},
        prefix::PlannedRequest,
    },
    session::Session,
};
use added::Added;
use receipts::Receipts;
use reseed_protocol::{
    context::{ContextEnvelope, EnvelopeMeta, RequestOptions, SystemPart},
    patch::EphemeralChange,
};
use std::{borrow::Cow, sync::Arc};

/// The parts of the next request.
#[derive(Debug)]
pub(in crate::agent_loop) struct Prompt {
    carried: PromptMemory,
    counter: Counter,
    calibration: Calibration,
    /// The system prompt before any patch.
    parts: Vec<SystemPart>,
    compiled: Compiled,
}

/// The parts that are carried from one loop to the next.
#[derive(Debug, Default)]
pub(in crate::agent_loop) struct PromptMemory {
    /// The offered tools. They belong to the host, which offers them again after a restart.
    tools: Tools,
    /// The last request, and what happened since.
    receipts: Receipts,
    /// The additions by hooks for the last request alone.
    added: Added,
    /// The running turn's own system prompt, if a hook has set one.
    of_turn: Option<TurnPrompt>,
}

/// A system prompt that applies to one turn.
#[derive(Debug)]
struct TurnPrompt {
    text: String,
    /// The hook that set it.
    hook: String,
}

impl PromptMemory {
    /// Returns the parts of a session that was read from the store.
    pub(in crate::agent_loop) fn read(session: &Session) -> Self {
        Self { receipts: Receipts::read(session), ..Self::default() }
    }
}

impl Prompt {
    pub(in crate::agent_loop) fn new(
        carried: PromptMemory,
        counter: Counter,
        calibration: Calibration,
        session: &mut Session,
    ) -> Self {
        if counter.method() != Counter::for_model(&session.state.model).method() {
            // The store's reader counted the path with the model's default counter.
            session.tree.recount(&counter);
        }
        Self { carried, counter, calibration, parts: Vec::new(), compiled: Compiled::default() }
    }

    /// Returns what the next loop inherits.
    pub(in crate::agent_loop) fn into_carried(self) -> (Calibration, PromptMemory) {
        (self.calibration, self.carried)
    }

    /// Returns the counter of the session's model.
    pub(in crate::agent_loop) fn counter(&self) -> &Counter {
        &self.counter
    }

    /// Returns the calibration of the counter's estimates.
    pub(in crate::agent_loop) fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// Returns the offered tools.
    pub(in crate::agent_loop) fn tools(&self) -> &Tools {
        &self.carried.tools
    }

    /// Returns the estimated tokens of everything sent before the messages.
    pub(in crate::agent_loop) fn fixed(&self) -> Fixed {
        self.compiled.fixed
    }

    /// Returns the text of the system prompt before any patch.
    pub(in crate::agent_loop) fn system_prompt(&self) -> String {
        self.parts.iter().map(|part| part.text.as_str()).collect()
    }

    /// Returns the texts of the system prompt and the tool descriptions, which may state constraints.
    pub(in crate::agent_loop) fn rules(&self) -> Vec<String> {
        let system = self.compiled.system.compiled.clone();
        let tools = self.compiled.tools.iter().map(|tool| tool.description.clone());
        std::iter::once(system).chain(tools).filter(|text| !text.is_empty()).collect()
    }

    /// Returns everything sent before this context's messages. The context may hold patches for one request.
    fn compiled(&self, context: &Context) -> Cow<'_, Compiled> {
        if context.carried == self.compiled.carried {
            Cow::Borrowed(&self.compiled)
        } else {
            Cow::Owned(self.compile(&context.carried))
        }
    }

    fn compile(&self, carried: &CarriedOps) -> Compiled {
        Compiled::of(&self.parts, self.carried.tools.definitions(), carried, &self.counter)
    }

    /// Returns what patches are checked against.
    pub(in crate::agent_loop) fn around(&self) -> Around<'_> {
        Around { parts: &self.parts, offered: self.carried.tools.definitions(), counter: &self.counter }
    }

    /// Returns the estimated tokens of a request with this context, without counting its texts again.
    pub(in crate::agent_loop) fn estimate(&self, context: &Context) -> u64 {
        let messages = context.messages.iter().chain(&context.uncached);
        self.compiled.fixed.total() + messages.map(|counted| counted.tokens.total()).sum::<u64>()
    }

    /// Converts the model's tokens to estimated tokens, the unit of message counts.
    pub(in crate::agent_loop) fn in_estimates(&self, tokens: u64) -> u64 {
        self.calibration.in_estimates(tokens)
    }

    /// Converts estimated tokens to the model's tokens.
    pub(in crate::agent_loop) fn in_tokens(&self, estimated: u64) -> u64 {
        self.calibration.in_tokens(estimated)
    }

    /// Remembers what hooks added to a request with this context.
    pub(in crate::agent_loop) fn keep_added(&mut self, changes: &[EphemeralChange], context: &Context) {
        self.carried.added = Added::of(changes, context);
    }

    /// Forgets what hooks added to the last request: they add nothing to the next one.
    pub(in crate::agent_loop) fn forget_added(&mut self) {
        self.carried.added = Added::default();
    }
}

impl Workspace {
    /// Recompiles everything sent before the messages. Must be called when the instructions change.
    pub(in crate::agent_loop) fn refresh_fixed(&mut self) {
        let own = self.session.state.settings.instructions.as_deref();
        let own = self.prompt.carried.of_turn.as_ref().map(|prompt| prompt.text.as_str()).or(own);
        self.prompt.parts = system_prompt(own.unwrap_or(&self.deployment.instructions)).parts;
        self.prompt.compiled = self.prompt.compile(self.session.tree.carried());
    }

    /// Recompiles everything sent before the messages, and rebuilds the strategy, if the path's patches have changed.
    pub(in crate::agent_loop) fn follow_patches(&mut self) {
        if *self.session.tree.carried() != self.prompt.compiled.carried {
            self.refresh_fixed();
            self.refresh_manager();
        }
    }

    /// Replaces the system prompt until the turn ends, as this hook decided.
    pub(in crate::agent_loop) fn set_turn_prompt(&mut self, text: String, hook: String) {
        self.prompt.carried.receipts.because(Cause::Instructions(Some(hook.clone())));
        self.prompt.carried.of_turn = Some(TurnPrompt { text, hook });
        self.refresh_fixed();
    }

    /// Restores the session's system prompt at the end of a turn that had its own.
    pub(in crate::agent_loop) fn drop_turn_prompt(&mut self) {
        if let Some(prompt) = self.prompt.carried.of_turn.take() {
            self.prompt.carried.receipts.because(Cause::Instructions(Some(prompt.hook)));
            self.refresh_fixed();
        }
    }

    /// Calibrates token estimates from a report, for this session and later ones.
    pub(in crate::agent_loop) fn calibrate(&mut self, model: &str, report: Report) {
        if self.prompt.counter.trusts_reports() {
            return;
        }
        if model == self.session.state.model {
            self.prompt.calibration.observe(&report);
        }
        self.push(Effect::Calibrate { model: model.to_owned(), report: Box::new(report) });
    }

    /// Returns the context that the model would see if nothing more were said.
    pub(in crate::agent_loop) fn context(&self) -> Arc<Context> {
        self.session.tree.context()
    }

    /// Returns the whole envelope of a request with this context, which has `tokens` tokens.
    pub(in crate::agent_loop) fn envelope(&self, context: &Context, tokens: u64) -> ContextEnvelope {
        let state = &self.session.state;
        let meta = EnvelopeMeta {
            model: state.model.clone(),
            window_tokens: self.window_tokens(),
            turn_id: state.turn.as_ref().map(|turn| turn.turn_id.clone()),
            request: state.turn.as_ref().map_or(1, |turn| turn.answers + 1),
            tokens,
            parts: None,
        };
        envelope(&self.prompt.compiled(context), context, &self.options(), meta)
    }

    /// Returns what a provider's cache sees of a request with this context, which has `tokens` tokens.
    fn outgoing<'a>(&'a self, compiled: &'a Compiled, context: &'a Context, tokens: u64) -> PlannedRequest<'a> {
        let Compiled { system, tools, fixed, .. } = compiled;
        let outgoing = PlannedRequest::new(&self.session.state.model, system, tools, *fixed);
        outgoing.with_messages(&context.messages, &context.uncached).counted_at(tokens)
    }

    /// Returns the envelope as hooks and people see it.
    pub(in crate::agent_loop) fn shown_envelope(&self, context: &Context) -> ContextEnvelope {
        let tokens = self.count(context).tokens;
        let mut envelope = self.envelope(context, tokens);
        let compiled = self.prompt.compiled(context);
        envelope.meta.parts = Some(tokens_by_part(&compiled, context, &self.prompt.counter, tokens));
        envelope
    }

    pub(in crate::agent_loop) fn count(&self, context: &Context) -> RequestCount {
        let compiled = self.prompt.compiled(context);
        let fresh = Freshness { model: &self.session.state.model, envelope_key: &compiled.key };
        count(context, compiled.fixed, fresh, &self.prompt.counter, &self.prompt.calibration)
    }

    pub(in crate::agent_loop) fn window_tokens(&self) -> u64 {
        let known = self.deployment.windows.tokens(&self.session.state.model);
        self.session.state.settings.learned_window_tokens.map_or(known, |learned| learned.min(known))
    }

    /// Returns the request options before any patch.
    pub(in crate::agent_loop) fn options(&self) -> RequestOptions {
        let settings = &self.session.state.settings;
        RequestOptions {
            temperature: settings.temperature,
            max_output_tokens: settings.max_output_tokens,
            reasoning_effort: settings.reasoning_effort.clone(),
        }
    }
}
