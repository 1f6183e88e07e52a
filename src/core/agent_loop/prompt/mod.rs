//! The prompt builder: the content of the session's next request, and its token count.
//!
//! The prompt is compiled from the instructions, the tools and the path's patches, and counted with the session's own
//! calibration. Only the workspace and the files in this folder change it; everything else reads it.

mod added;
mod info;
mod receipts;
mod shown;
mod tools;

pub(in crate::agent_loop) use added::Added;
pub use info::{Snapshot, usage_percent};
pub(in crate::agent_loop) use info::{done, session_updated};
pub(in crate::agent_loop) use receipts::Receipts;
pub(in crate::agent_loop) use tools::SentTools;
pub use tools::{TOOLS_MAX, Tools, check_offers};

use super::workspace::Workspace;
use crate::{
    context::{
        Context, RequestCount,
        count::{Freshness, count},
        counter::{Calibration, Counter},
        envelope::{Compiled, envelope, system_prompt, tokens_by_part},
        patch::{Around, CarriedOps},
        prefix::Outgoing,
        strategies::threshold::Threshold,
        strategy::Options,
    },
    session::Session,
};
use reseed_protocol::context::{ContextEnvelope, EnvelopeMeta, RequestOptions, SystemPart};
use std::{borrow::Cow, sync::Arc};

/// The parts of the next request.
#[derive(Debug)]
pub(in crate::agent_loop) struct Prompt {
    pub(in crate::agent_loop) carried: PromptMemory,
    pub(in crate::agent_loop) counter: Counter,
    pub(in crate::agent_loop) calibration: Calibration,
    /// The system prompt before any patch.
    pub(in crate::agent_loop) parts: Vec<SystemPart>,
    pub(in crate::agent_loop) compiled: Compiled,
}

/// The parts that are carried from one loop to the next.
#[derive(Debug, Default)]
pub(in crate::agent_loop) struct PromptMemory {
    /// The offered tools. They belong to the owner's client, which offers them again after a restart.
    pub(in crate::agent_loop) tools: Tools,
    /// The last request, and what happened since.
    pub(in crate::agent_loop) receipts: Receipts,
    /// The additions by hooks for the last request alone.
    pub(in crate::agent_loop) added: Added,
    /// The running turn's own system prompt, if a hook has set one.
    pub(in crate::agent_loop) of_turn: Option<TurnPrompt>,
}

/// A system prompt that applies to one turn.
#[derive(Debug)]
pub(in crate::agent_loop) struct TurnPrompt {
    pub(in crate::agent_loop) text: String,
    /// The hook that set it.
    pub(in crate::agent_loop) hook: String,
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
}

impl Workspace {
    /// Recompiles everything sent before the messages. Must be called when instructions, tools or their patches change.
    pub(in crate::agent_loop) fn refresh_fixed(&mut self) {
        let own = self.session.state.settings.instructions.as_deref();
        let own = self.prompt.carried.of_turn.as_ref().map(|prompt| prompt.text.as_str()).or(own);
        self.prompt.parts = system_prompt(own.unwrap_or(&self.deployment.instructions)).parts;
        self.prompt.compiled = self.compile(self.session.tree.carried());
    }

    /// Rebuilds the strategy from the settings. Must be called when they change, or the maximum answer length does.
    pub(in crate::agent_loop) fn refresh_manager(&mut self) {
        let (state, options) = (&self.session.state, self.strategy_options());
        let made =
            self.deployment.strategies.make(&state.strategy, state.settings.strategy_settings.as_ref(), &options);
        // A newer version's log may name a strategy unknown to this one; that must not close the session.
        self.manager = made.unwrap_or_else(|_| Box::new(Threshold::new(options)));
    }

    /// Returns the default strategy settings, for a session that has none of its own.
    pub(in crate::agent_loop) fn strategy_options(&self) -> Options {
        let max_output_tokens = self.session.tree.carried().options(&self.options()).max_output_tokens;
        Options { max_output_tokens, ..self.deployment.options.clone() }
    }

    pub(in crate::agent_loop) fn compile(&self, carried: &CarriedOps) -> Compiled {
        Compiled::of(&self.prompt.parts, self.prompt.carried.tools.definitions(), carried, &self.prompt.counter)
    }

    /// Returns everything sent before this context's messages. The context may hold patches for one request.
    pub(in crate::agent_loop) fn compiled(&self, context: &Context) -> Cow<'_, Compiled> {
        if context.carried == self.prompt.compiled.carried {
            Cow::Borrowed(&self.prompt.compiled)
        } else {
            Cow::Owned(self.compile(&context.carried))
        }
    }

    /// Returns the context that the model would see if nothing more were said.
    pub(in crate::agent_loop) fn context(&self) -> Arc<Context> {
        self.session.tree.context()
    }

    /// Returns what patches are checked against.
    pub(in crate::agent_loop) fn around(&self) -> Around<'_> {
        Around {
            parts: &self.prompt.parts,
            offered: self.prompt.carried.tools.definitions(),
            counter: &self.prompt.counter,
        }
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
        envelope(&self.compiled(context), context, &self.options(), meta)
    }

    /// Returns what a provider's cache sees of a request with this context, which has `tokens` tokens.
    pub(in crate::agent_loop) fn outgoing<'a>(
        &'a self,
        compiled: &'a Compiled,
        context: &'a Context,
        tokens: u64,
    ) -> Outgoing<'a> {
        let Compiled { system, tools, fixed, .. } = compiled;
        let outgoing = Outgoing::new(&self.session.state.model, system, tools, *fixed);
        outgoing.with_messages(&context.messages, &context.uncached).counted_at(tokens)
    }

    /// Returns the envelope as hooks and people see it.
    pub(in crate::agent_loop) fn shown_envelope(&self, context: &Context) -> ContextEnvelope {
        let tokens = self.count(context).tokens;
        let mut envelope = self.envelope(context, tokens);
        envelope.meta.parts = Some(tokens_by_part(&self.compiled(context), context, &self.prompt.counter, tokens));
        envelope
    }

    pub(in crate::agent_loop) fn count(&self, context: &Context) -> RequestCount {
        let compiled = self.compiled(context);
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
