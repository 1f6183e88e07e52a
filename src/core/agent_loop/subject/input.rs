//! A user's input or a custom message, before it is accepted.

use crate::agent_loop::io::Caller;
use crate::session::Destination;
use reseed_protocol::{
    EntryId, Message, Part, Role,
    hooks::HookEvent,
    tree::{Navigate, NavigatePosition},
    turn::{QueuedCustom, WhenBusy},
};

/// A user's input or a custom message, as changed by hooks so far.
#[derive(Debug)]
pub(crate) struct ProposedInput {
    pub(crate) caller: Caller,
    pub(crate) entry_id: EntryId,
    pub(crate) parts: Vec<Part>,
    pub(crate) what: InputKind,
    /// True if the session was idle when the input arrived; it then does nothing else meanwhile.
    pub(crate) holds: bool,
}

/// The purpose of the input once hooks have passed it.
#[derive(Debug)]
pub(crate) enum InputKind {
    /// It starts a turn, or is queued for one.
    Said(Box<InputOptions>),
    /// A client's custom message: the model gets it, but no answer is requested.
    Custom(Box<QueuedCustom>),
}

impl InputKind {
    /// Returns the type of the command that sent it.
    pub(crate) fn command(&self) -> &'static str {
        match self {
            Self::Said(_) => "user_input",
            Self::Custom(_) => "append_custom_message",
        }
    }
}

impl ProposedInput {
    pub(crate) fn event(&self) -> HookEvent {
        let message = Message::new(Role::User, self.parts.clone());
        HookEvent::Message { entry_id: self.entry_id.clone(), message }
    }
}

/// A user's input and the id of the entry that will hold it.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) entry_id: EntryId,
    pub(crate) parts: Vec<Part>,
}

/// The options of an input.
#[derive(Debug)]
pub(crate) struct InputOptions {
    pub(crate) parent_id: Option<Option<EntryId>>,
    pub(crate) when_busy: Option<WhenBusy>,
    pub(crate) if_leaf: Option<Option<EntryId>>,
    /// The entry to continue from, if it is not the current leaf.
    pub(crate) destination: Option<Destination>,
    /// True if the abandoned branch is summarised; the next two fields control how.
    pub(crate) summarize: bool,
    pub(crate) instructions: Option<String>,
    pub(crate) replace_instructions: Option<bool>,
}

impl InputOptions {
    /// Returns the move that the input requests.
    pub(crate) fn navigate(&self, entry_id: Option<EntryId>) -> Navigate {
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
