//! What a request of this session is made of: compiled from the instructions, the tools and the patches of the path, and
//! counted.

use super::AgentLoop;
use crate::context::{
    Context, RequestCount,
    count::{Freshness, count},
    envelope::{Compiled, envelope, system_prompt, tokens_by_part},
    patch::{Around, Carried},
    prefix::Outgoing,
    strategies::threshold::Threshold,
    strategy::Options,
};
use reseed_protocol::context::{ContextEnvelope, EnvelopeMeta, RequestOptions};
use std::{borrow::Cow, sync::Arc};

impl AgentLoop {
    /// Compiles anew what is sent before the messages; due when instructions, tools or patches of them change.
    pub(super) fn refresh_fixed(&mut self) {
        let own = self.session.state.settings.instructions.as_deref();
        let own = self.turn_hooks.system_prompt.as_ref().map(|prompt| prompt.text.as_str()).or(own);
        self.parts = system_prompt(own.unwrap_or(&self.deployment.instructions)).parts;
        self.compiled = self.compile(self.session.tree.carried());
    }

    /// Makes the strategy anew from the settings; due when those change, or how long an answer may be.
    pub(super) fn refresh_manager(&mut self) {
        let (state, options) = (&self.session.state, self.strategy_options());
        let made =
            self.deployment.strategies.make(&state.strategy, state.settings.strategy_settings.as_ref(), &options);
        // A strategy that this version does not know, from a newer one's log, must not close the session.
        self.manager = made.unwrap_or_else(|_| Box::new(Threshold::new(options)));
    }

    /// The strategies' settings where the session has none of its own.
    pub(super) fn strategy_options(&self) -> Options {
        let max_output_tokens = self.session.tree.carried().options(&self.options()).max_output_tokens;
        Options { max_output_tokens, ..self.deployment.options.clone() }
    }

    pub(super) fn compile(&self, carried: &Carried) -> Compiled {
        Compiled::of(&self.parts, self.tools.definitions(), carried, &self.counter)
    }

    /// What is sent before the messages of this context, which may hold patches for one request.
    pub(super) fn compiled(&self, context: &Context) -> Cow<'_, Compiled> {
        if context.carried == self.compiled.carried {
            Cow::Borrowed(&self.compiled)
        } else {
            Cow::Owned(self.compile(&context.carried))
        }
    }

    /// What the model sees, as long as nothing more is said.
    pub(super) fn context(&self) -> Arc<Context> {
        self.session.tree.context()
    }

    /// What patches are checked against.
    pub(super) fn around(&self) -> Around<'_> {
        Around { parts: &self.parts, offered: self.tools.definitions(), counter: &self.counter }
    }

    /// All that a request of this context sends, which has so many tokens.
    pub(super) fn envelope(&self, context: &Context, tokens: u64) -> ContextEnvelope {
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

    /// What a provider's cache reads of a request of this context, which has so many tokens.
    pub(super) fn outgoing<'a>(&'a self, compiled: &'a Compiled, context: &'a Context, tokens: u64) -> Outgoing<'a> {
        let Compiled { system, tools, fixed, .. } = compiled;
        let outgoing = Outgoing::new(&self.session.state.model, system, tools, *fixed);
        outgoing.with_messages(&context.messages, &context.uncached).counted_at(tokens)
    }

    /// The envelope as hooks and people see it.
    pub(super) fn shown_envelope(&self, context: &Context) -> ContextEnvelope {
        let tokens = self.count(context).tokens;
        let mut envelope = self.envelope(context, tokens);
        envelope.meta.parts = Some(tokens_by_part(&self.compiled(context), context, &self.counter, tokens));
        envelope
    }

    pub(super) fn count(&self, context: &Context) -> RequestCount {
        let compiled = self.compiled(context);
        let fresh = Freshness {
            model: &self.session.state.model,
            envelope_key: &compiled.key,
            estimator: self.counter.estimator(),
        };
        count(context, compiled.fixed, fresh, &self.counter, &self.calibration)
    }

    pub(super) fn window_tokens(&self) -> u64 {
        let known = self.deployment.windows.tokens(&self.session.state.model);
        self.session.state.settings.learned_window_tokens.map_or(known, |learned| learned.min(known))
    }

    /// The options before any patch.
    pub(super) fn options(&self) -> RequestOptions {
        let settings = &self.session.state.settings;
        RequestOptions {
            temperature: settings.temperature,
            max_output_tokens: settings.max_output_tokens,
            reasoning_effort: settings.reasoning_effort.clone(),
        }
    }
}
