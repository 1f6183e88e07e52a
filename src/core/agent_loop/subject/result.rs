//! A tool's answer, before it is stored.

use crate::agent_loop::{checks::ANOTHER_ROLE, io::Caller, subject::answer::MESSAGE_BYTES_MAX};
use crate::{hook::HookFault, tool::Output};
use reseed_protocol::{
    EntryId, Message, Part, Role,
    hooks::{HookAnswer, HookEvent},
    tools::PendingCall,
};

/// A tool's answer, as changed by hooks so far.
#[derive(Debug)]
pub(crate) struct ToolAnswer {
    /// The client's command; `None` if the server ran the tool.
    pub(crate) caller: Option<Caller>,
    pub(crate) call: PendingCall,
    /// Fingerprint of the answer as the tool gave it.
    pub(crate) sent: u64,
    pub(crate) output: String,
    pub(crate) is_error: bool,
    /// Images, as `data:` URLs.
    pub(crate) images: Vec<String>,
    /// The entry that will hold it, once it is inspected as a message.
    pub(crate) as_message: Option<EntryId>,
}

impl ToolAnswer {
    pub(crate) fn new(caller: Option<Caller>, call: PendingCall, sent: u64, output: Output) -> Self {
        let Output { text, images, is_error } = output;
        Self { caller, call, sent, output: text, is_error, images, as_message: None }
    }

    pub(crate) fn event(&self) -> HookEvent {
        if let Some(entry_id) = self.as_message.clone() {
            return HookEvent::Message { entry_id, message: self.message() };
        }
        HookEvent::ToolResult {
            tool_call_id: self.call.call_id.clone(),
            name: self.call.name.clone(),
            arguments: self.call.arguments.clone(),
            output: self.output.clone(),
            is_error: self.is_error,
        }
    }

    fn message(&self) -> Message {
        let (call_id, output) = (self.call.call_id.clone(), self.output.clone());
        let images = self.images.iter().map(|url| Part::Image { url: url.clone(), detail: None });
        let result = Part::ToolResult { call_id, output, is_error: self.is_error };
        Message::new(Role::Tool, std::iter::once(result).chain(images).collect())
    }

    pub(crate) fn take(&mut self, answer: HookAnswer) -> Result<bool, HookFault> {
        let (output, is_error) = match answer.message {
            Some(message) => self.result_of(message)?,
            None => (answer.output, answer.is_error),
        };
        let output = output.unwrap_or_else(|| self.output.clone());
        if output.len() > MESSAGE_BYTES_MAX {
            let bytes = output.len();
            return Err(HookFault::failed(format!(
                "its output has {bytes} bytes; at most {MESSAGE_BYTES_MAX} are allowed"
            )));
        }
        let is_error = is_error.unwrap_or(self.is_error);
        let changed = (&output, is_error) != (&self.output, self.is_error);
        (self.output, self.is_error) = (output, is_error);
        if changed {
            self.caller = self.caller.as_ref().map(|caller| caller.without_content("tool_result"));
        }
        Ok(changed)
    }

    /// Returns the output and error flag of a message that replaces this result.
    fn result_of(&self, message: Message) -> Result<(Option<String>, Option<bool>), HookFault> {
        if message.role != Role::Tool {
            return Err(HookFault::failed(ANOTHER_ROLE));
        }
        // Images stay unchanged: a hook returns only the result, or everything that it received.
        let mut parts = message.content.into_iter().filter(|part| !matches!(part, Part::Image { .. }));
        match (parts.next(), parts.next()) {
            (Some(Part::ToolResult { call_id, output, is_error }), None) if call_id == self.call.call_id => {
                Ok((Some(output), Some(is_error)))
            }
            _ => Err(HookFault::failed("its message is not one result of the same call")),
        }
    }
}
