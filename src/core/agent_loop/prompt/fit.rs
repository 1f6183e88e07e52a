//! The limits that the window sets for additions: a patch, an input, a tool's output.

use super::Prompt;
use crate::agent_loop::ledger::Ledger;
use crate::{
    context::{Context, counter::Mix},
    text::clip::{clip, head_and_tail},
};
use reseed_protocol::{Cut, EntryId, ErrorBody, ErrorCode, Message, Part, Role, content::utf16_len};

impl Prompt {
    /// Checks that a patch leaves room for a conversation. It applies to every later request, and no compaction removes
    /// a system prompt or tools. The error states the excess.
    pub(crate) fn check_patch_fits(&self, ledger: &Ledger, patched: &Context) -> Result<(), String> {
        let (half, now) = (ledger.window_tokens() / 2, ledger.context());
        let fixed = |context: &Context| self.in_tokens(self.compiled(ledger.counter(), context).fixed.total());
        let (before, after) = (fixed(&now), fixed(patched));
        if after > half && after > before {
            return Err(format!(
                "with its patch the system prompt and the tools have about {after} tokens, more than half of the \
                 model's window"
            ));
        }
        let added = self.count(ledger, patched).tokens.saturating_sub(self.count(ledger, &now).tokens);
        if added > half {
            return Err(format!("its patch adds about {added} tokens, more than half of the model's window"));
        }
        Ok(())
    }

    /// Refuses input for which no compaction could make room: together with the system prompt, the tools and the
    /// reserve for the answer, it must fit the window. The plain estimate counts, without its error bound. Once stored,
    /// an input that does not fit would be in every later request.
    pub(crate) fn check_input_fits(&self, ledger: &Ledger, parts: &[Part]) -> Result<(), ErrorBody> {
        let message = Message::new(Role::User, parts.to_vec());
        let mut mix = Mix::default();
        mix.add_message(&ledger.counter().message(&message));
        let tokens = self.calibration.tokens(&mix);
        let window = ledger.window_tokens();
        let (fixed, reserved) = (self.in_tokens(self.fixed().total()), self.manager().reserved_tokens(window));
        let room = window.saturating_sub(fixed).saturating_sub(reserved);
        if tokens > room {
            let text = format!(
                "the input has about {tokens} tokens, and at most {room} fit: the window of `{}` has {window}, the \
                 system prompt and the tools take {fixed}, and {reserved} are reserved for the answer; send less",
                ledger.state().model
            );
            return Err(ErrorBody::new(ErrorCode::InputTooLarge, text).with_field("input"));
        }
        Ok(())
    }

    /// Cuts the output of a message with a tool's result, if it is too large, and tells the model how to read on.
    pub(crate) fn fit_result(&self, ledger: &Ledger, entry_id: &EntryId, message: &mut Message) {
        let Some(Part::ToolResult { output, .. }) = message.content.first_mut() else { return };
        let (fitting, cut) = self.fitting_output(ledger, std::mem::take(output));
        *output = fitting;
        if let Some(more) = cut.as_deref().and_then(|cut| self.how_to_read_on(entry_id, cut.from)) {
            output.push_str(&more);
        }
        message.cut = cut;
    }

    /// Cuts a tool's output to a quarter of the window, because no compaction could make room for output that fills it
    /// alone. The beginning and the end are kept with a note between them; the omitted part is returned as well.
    fn fitting_output(&self, ledger: &Ledger, output: String) -> (String, Option<Box<Cut>>) {
        let tokens_max = (ledger.window_tokens() / 4).max(1);
        let tokens = self.calibration.tokens(&Mix::of_text(&ledger.counter().scripts(&output)));
        if tokens <= tokens_max {
            return (output, None);
        }
        let chars = output.chars().count() as u64;
        let chars_max = usize::try_from(chars.saturating_mul(tokens_max) / tokens).unwrap_or(usize::MAX);
        let Some((head, tail, _)) = head_and_tail(&output, chars_max) else { return (output, None) };
        let from = utf16_len(head);
        let (characters, shown) = (utf16_len(&output), from + utf16_len(tail));
        let clipped = clip(&output, chars_max).into_owned();
        (clipped, Some(Box::new(Cut { characters, shown, from, whole: Some(output) })))
    }
}
