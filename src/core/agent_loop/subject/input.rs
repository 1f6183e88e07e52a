//! A user's input or a custom message, before it is accepted.

use crate::{agent_loop::io::Caller, session::Destination};
use reseed_protocol::{
    EntryId, Message, Part, Role,
    command::{Navigate, NavigatePosition, WhenBusy},
    hook::HookEvent,
    reply::QueuedCustom,
};

/// A user's input or a custom message, as changed by hooks so far.
#[derive(Debug)]
pub(in crate::agent_loop) struct ProposedInput {
    pub(in crate::agent_loop) caller: Caller,
    pub(in crate::agent_loop) entry_id: EntryId,
    pub(in crate::agent_loop) parts: Vec<Part>,
    pub(in crate::agent_loop) what: InputKind,
    /// True if the session was idle when the input arrived: it does nothing else meanwhile.
    pub(in crate::agent_loop) holds: bool,
}

/// The use of the input once hooks have passed it.
#[derive(Debug)]
pub(in crate::agent_loop) enum InputKind {
    /// It starts a turn, or is queued for one.
    Said(Box<InputOptions>),
    /// A client's custom message: the model gets it, but no answer is requested.
    Custom(Box<QueuedCustom>),
}

impl InputKind {
    /// Returns the type of the command that sent it.
    pub(in crate::agent_loop) fn command(&self) -> &'static str {
        match self {
            Self::Said(_) => "user_input",
            Self::Custom(_) => "append_custom_message",
        }
    }
}

impl ProposedInput {
    pub(in crate::agent_loop) fn event(&self) -> HookEvent {
        let message = Message::new(Role::User, self.parts.clone());
        HookEvent::Message { entry_id: self.entry_id.clone(), message }
    }
}

/// A user's input and the id of the entry that will hold it.
#[derive(Debug)]
pub(in crate::agent_loop) struct Said {
    pub(in crate::agent_loop) entry_id: EntryId,
    pub(in crate::agent_loop) parts: Vec<Part>,
}

/// The options of an input.
#[derive(Debug)]
pub(in crate::agent_loop) struct InputOptions {
    pub(in crate::agent_loop) parent_id: Option<Option<EntryId>>,
    pub(in crate::agent_loop) when_busy: Option<WhenBusy>,
    pub(in crate::agent_loop) if_leaf: Option<Option<EntryId>>,
    /// The entry to continue from, if it is not the current leaf.
    pub(in crate::agent_loop) destination: Option<Destination>,
    /// True if the abandoned branch is summarised; the next two fields say how.
    pub(in crate::agent_loop) summarize: bool,
    pub(in crate::agent_loop) instructions: Option<String>,
    pub(in crate::agent_loop) replace_instructions: Option<bool>,
}

impl InputOptions {
    /// Returns the move that the input asks for.
    pub(in crate::agent_loop) fn navigate(&self, entry_id: Option<EntryId>) -> Navigate {
        Navigate {
            entry_id,
            position: Some(NavigatePosition::At),
            summarize: Some(self.summarize),
            instructions: self.instructions.clone(),
            replace_instructions: self.replace_instructions,
            label: None,
        }
    }
}
