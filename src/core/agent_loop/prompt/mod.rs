//! The prompt: the content of the session's next request, its token count, and the strategy that judges it.
//!
//! Inputs: the ledger's session, which is compiled and counted, and its settings; the tools that a client offers
//! (`register_tools`, `ToolsOffered`) and those of the server; a turn's own system prompt; hooks' additions to one
//! request; requests that were sent, answered or failed, with the reported usage; the commands `get_context_info` and
//! `get_context`.
//!
//! Outputs: the context, its envelope, count and receipt, for the requesting machine; the effect that stores a
//! calibration. It queues no steps.
//!
//! The prompt is compiled from the instructions, the tools and the path's patches, and counted with the session's own
//! calibration. Its fields are private to this folder: other machines read it through methods and report events (tools
//! were offered, a hook set the turn's system prompt, a request was sent, answered or failed). When an append has
//! changed the path's patches, the prompt is compiled again after the step ([`Prompt::follow`]). Until then, anything
//! that depends on a context's patches is compiled for that context.
//!
//! - `added`: hooks' additions to the last request alone
//! - `receipts`: the prefix that consecutive requests share, and why it is not longer
//! - `fit`: the limits that the window sets for additions
//! - `request`: the session's next request; `shown`: a preview of it; `info`: the context meter

mod added;
mod fit;
pub(super) mod info;
mod receipts;
mod request;
mod shown;

pub(crate) use receipts::Sent;
pub(crate) use request::HISTORY_TOOLS;

use crate::{
    agent_loop::{ledger::Ledger, tools::Tools},
    compaction::{ContextManager, strategies::threshold::Threshold, strategy::Options},
    context::{
        Context,
        count::Fixed,
        counter::{Calibration, Counter},
        envelope::{Compiled, system_prompt},
        patch::{Around, CarriedOps},
    },
    session::Session,
};
use added::Added;
use receipts::Receipts;
use reseed_protocol::{
    context::{EphemeralChange, SystemPart},
    receipt::ResponseId,
};
use std::borrow::Cow;

/// The parts of the next request.
#[derive(Debug)]
pub(crate) struct Prompt {
    carried: PromptMemory,
    calibration: Calibration,
    /// The system prompt before any patch.
    parts: Vec<SystemPart>,
    compiled: Compiled,
    /// The session's strategy, built from its settings.
    manager: Box<dyn ContextManager>,
}

/// The parts that are carried from one loop to the next.
#[derive(Debug, Default)]
pub(crate) struct PromptMemory {
    /// The host's tools. It must offer them again after a restart.
    client_tools: Tools,
    /// The tools that requests offer: the host's, and those of the server that the session has adopted.
    tools: Tools,
    /// The model that refused a request because tools were offered.
    refused_tools: Option<String>,
    /// The model that wrote a call as text.
    writes_calls: Option<String>,
    /// The last request.
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
    /// Returns the parts for a session that was read from the store.
    pub(crate) fn read(session: &Session) -> Self {
        Self { receipts: Receipts::read(session), ..Self::default() }
    }
}

impl Prompt {
    /// Builds the prompt of a loop.
    pub(crate) fn seeded(carried: PromptMemory, calibration: Calibration, ledger: &mut Ledger) -> Self {
        let (parts, compiled) = (Vec::new(), Compiled::default());
        // It is replaced below, once the path's patches are known.
        let manager = Box::new(Threshold::new(Options::default()));
        let mut this = Self { carried, calibration, parts, compiled, manager };
        this.adopt_tools(ledger);
        this.refresh_manager(ledger);
        this
    }

    /// Returns what the next loop inherits.
    pub(crate) fn into_carried(self) -> (Calibration, PromptMemory) {
        (self.calibration, self.carried)
    }

    /// Returns the session's strategy.
    pub(crate) fn manager(&self) -> &dyn ContextManager {
        &*self.manager
    }

    /// Rebuilds the strategy from the settings. Must be called when they or the maximum answer length change.
    pub(crate) fn refresh_manager(&mut self, ledger: &Ledger) {
        let (state, options) = (ledger.state(), ledger.strategy_options());
        let settings = state.settings.strategy_settings.as_ref();
        let made = ledger.deployment.strategies.make(&state.strategy, settings, &options);
        // A newer version's log may name a strategy unknown to this version; that must not close the session.
        self.manager = made.unwrap_or_else(|_| Box::new(Threshold::new(options)));
    }

    /// Returns the calibration of the counter's estimates.
    pub(crate) fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// Returns the offered tools.
    pub(crate) fn tools(&self) -> &Tools {
        &self.carried.tools
    }

    /// Returns the estimated tokens of everything sent before the messages.
    pub(crate) fn fixed(&self) -> Fixed {
        self.compiled.fixed
    }

    /// Returns the text of the system prompt before any patch.
    pub(crate) fn system_prompt(&self) -> String {
        self.parts.iter().map(|part| part.text.as_str()).collect()
    }

    /// Returns everything sent before this context's messages. The context may hold patches for a single request.
    fn compiled(&self, counter: &Counter, context: &Context) -> Cow<'_, Compiled> {
        if context.carried == self.compiled.carried {
            Cow::Borrowed(&self.compiled)
        } else {
            Cow::Owned(self.compile(counter, &context.carried))
        }
    }

    fn compile(&self, counter: &Counter, carried: &CarriedOps) -> Compiled {
        Compiled::of(&self.parts, self.carried.tools.definitions(), carried, counter)
    }

    /// Recompiles everything sent before the messages, with the path's patches and the session's instructions, unless
    /// the turn has its own. Must be called when the instructions change.
    pub(crate) fn refresh(&mut self, ledger: &Ledger) {
        let own = ledger.state().settings.instructions.as_ref();
        let instructions = own.unwrap_or(&ledger.deployment.instructions);
        let text = self.carried.of_turn.as_ref().map_or(instructions, |prompt| &prompt.text);
        self.parts = system_prompt(text).parts;
        let follows = self.follows(ledger);
        self.compiled = self.compile(ledger.counter(), ledger.session.tree.carried());
        if !follows {
            self.refresh_manager(ledger);
        }
    }

    /// Picks up the path's patches if they have changed. The kernel calls this after each step.
    pub(crate) fn follow(&mut self, ledger: &Ledger) {
        if !self.follows(ledger) {
            self.refresh(ledger);
        }
    }

    fn follows(&self, ledger: &Ledger) -> bool {
        *ledger.session.tree.carried() == self.compiled.carried
    }

    /// Returns the surroundings against which patches are checked.
    pub(crate) fn around<'a>(&'a self, counter: &'a Counter) -> Around<'a> {
        Around { parts: &self.parts, offered: self.carried.tools.definitions(), counter }
    }

    /// Returns the estimated tokens of a request with this context, without counting its texts again.
    pub(crate) fn estimate(&self, context: &Context) -> u64 {
        let messages = context.messages.iter().chain(&context.uncached);
        self.compiled.fixed.total() + messages.map(|counted| counted.tokens.total()).sum::<u64>()
    }

    /// Returns the estimated tokens of the text of a request with this context, without counting it again. Reasoning is
    /// left out, because many models' templates drop that of earlier turns. Images are left out, because one costs from
    /// 64 to some thousands of tokens.
    pub(crate) fn text_estimate(&self, context: &Context) -> u64 {
        let messages = context.messages.iter().chain(&context.uncached);
        self.compiled.fixed.total() + messages.map(|counted| counted.tokens.text).sum::<u64>()
    }

    /// Converts the model's tokens to estimated tokens, the unit of message counts.
    pub(crate) fn in_estimates(&self, tokens: u64) -> u64 {
        self.calibration.in_estimates(tokens)
    }

    /// Converts estimated tokens to the model's tokens.
    pub(crate) fn in_tokens(&self, estimated: u64) -> u64 {
        self.calibration.in_tokens(estimated)
    }

    /// Records that the request in flight was answered, with the input tokens and the id that its provider reported, if
    /// any.
    pub(crate) fn request_answered(
        &mut self,
        ledger: &mut Ledger,
        input_tokens: Option<u64>,
        response: Option<ResponseId>,
    ) {
        self.carried.receipts.answered(&mut ledger.causes, input_tokens, response);
    }

    /// Returns the provider's id of the answer to the request with which the next one is compared.
    pub(crate) fn compared_with(&self) -> Option<ResponseId> {
        self.carried.receipts.response().cloned()
    }

    /// Records that the request in flight, if any, failed or was stopped.
    pub(crate) fn request_failed(&mut self, ledger: &mut Ledger) {
        self.carried.receipts.failed(&mut ledger.causes);
    }

    /// Remembers the additions of hooks to a request with this context.
    pub(crate) fn keep_added(&mut self, changes: &[EphemeralChange], context: &Context) {
        self.carried.added = Added::of(changes, context);
    }

    /// Forgets the hooks' additions to the last request, because they do not apply to the next one.
    pub(crate) fn forget_added(&mut self) {
        self.carried.added = Added::default();
    }
}
