//! A preview of the next request: nothing is changed and no hook is called.

use super::{Prompt, request::outgoing};
use crate::agent_loop::ledger::Ledger;
use crate::context::envelope::markdown;
use reseed_protocol::{
    ErrorBody, ErrorCode,
    context::{Context, ContextEnvelope, ContextFormat, GetContext},
};
use std::sync::Arc;

/// Maximum bytes of a context shown in one frame: more than the text of the largest windows of 2026. Only images exceed
/// it.
const CONTEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Prompt {
    /// Returns the envelope of the next request as it is now, and whether it does not begin with the last one.
    pub(crate) fn prewarming(&self, ledger: &Ledger) -> (ContextEnvelope, bool) {
        let context = ledger.context();
        let count = self.count(ledger, &context);
        let compiled = self.compiled(ledger.counter(), &context);
        let outgoing = outgoing(ledger, &compiled, &context, count.tokens);
        let is_new = self.carried.receipts.of(&outgoing, &ledger.causes, 1, Vec::new()).broke.is_some();
        (self.envelope(ledger, &context, count.tokens, count.error_bound_tokens), is_new)
    }

    /// Returns what the next request would send. During a turn, that is the request after the one in flight, as far as
    /// it is known. Additions for a single request are included only on demand; they are then those that hooks made for
    /// the last one.
    ///
    /// # Errors
    /// `invalid_field`: the context is too large to show in the requested format.
    pub(crate) fn next_request(
        &self,
        ledger: &Ledger,
        get: &GetContext,
        is_asking: bool,
    ) -> Result<Context, ErrorBody> {
        let mut context = ledger.context();
        if get.ephemeral == Some(true) {
            self.carried.added.put_on(Arc::make_mut(&mut context), &self.around(ledger.counter()));
        }
        let as_markdown = get.format == Some(ContextFormat::Markdown);
        let bytes = context.bytes(!as_markdown);
        if bytes > CONTEXT_BYTES_MAX {
            let instead = if as_markdown {
                "page through it with get_entries"
            } else {
                "ask for `markdown`, which leaves pictures out"
            };
            let message = format!("the context has {bytes} bytes, at most {CONTEXT_BYTES_MAX} are shown; {instead}");
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("format"));
        }
        let mut envelope = self.shown_envelope(ledger, &context);
        if is_asking {
            envelope.meta.request += 1;
        }
        let tokens = envelope.meta.tokens;
        let compiled = self.compiled(ledger.counter(), &context);
        let outgoing = outgoing(ledger, &compiled, &context, tokens);
        let receipt =
            || self.carried.receipts.of(&outgoing, &ledger.causes, envelope.meta.request, compiled.notes.clone());
        let receipt = (!self.carried.receipts.lacks_tools(&outgoing, &ledger.causes)).then(receipt);
        let answered = ledger.path().iter().rev().find_map(|node| node.entry.message()?.receipt.as_deref().cloned());
        Ok(if as_markdown {
            Context { envelope: None, markdown: Some(markdown(&envelope)), tokens, receipt, answered }
        } else {
            Context { envelope: Some(envelope), markdown: None, tokens, receipt, answered }
        })
    }
}
