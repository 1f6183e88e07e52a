//! Instructions for summaries: accepted in full or refused, whatever their source.

use crate::agent_loop::checks::check_replaced;
use crate::compaction::machine::plan::Planner;
use crate::compaction::summary::INSTRUCTIONS_BYTES_MAX;
use reseed_protocol::{ErrorBody, ErrorCode};

/// Instructions may take at most one part in this many of the summariser's window; the rest is for the conversation and
/// the summary.
pub const INSTRUCTIONS_WINDOW_PART: u64 = 4;

impl Planner<'_> {
    /// Returns a command's instructions, and true if they replace the server's own prompt.
    ///
    /// # Errors
    /// `invalid_field` if they are too long, `missing_field` if they are to replace the prompt but are blank.
    pub(crate) fn wanted(
        &self,
        instructions: Option<String>,
        replace: Option<bool>,
    ) -> Result<(Option<String>, bool), ErrorBody> {
        let instructions = instructions.filter(|text| !text.trim().is_empty());
        check_replaced(instructions.as_deref(), replace)?;
        if let Some(message) = instructions.as_deref().and_then(|text| self.too_long(text)) {
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("instructions"));
        }
        Ok((instructions, replace == Some(true)))
    }

    /// Returns the reason if instructions are too long.
    pub(crate) fn too_long(&self, instructions: &str) -> Option<String> {
        let bytes = instructions.len();
        if bytes > INSTRUCTIONS_BYTES_MAX {
            return Some(format!("`instructions` has {bytes} bytes; at most {INSTRUCTIONS_BYTES_MAX} are allowed"));
        }
        let (model, window_tokens, counter) = self.summariser();
        let (tokens, tokens_max) = (counter.text(instructions), window_tokens / INSTRUCTIONS_WINDOW_PART);
        (tokens > tokens_max).then(|| {
            // The error uses the same unit as every other count that clients see.
            let (tokens, tokens_max) = (self.prompt.in_tokens(tokens), self.prompt.in_tokens(tokens_max));
            format!(
                "`instructions` has about {tokens} tokens; at most {tokens_max} are allowed, a quarter of the \
                 window of `{model}`, which summarises; shorten it"
            )
        })
    }
}
