//! A user's input or a custom message, before it is accepted.

use crate::agent_loop::{io::Caller, ledger::Ledger};
use crate::session::Destination;
use reseed_protocol::{
    Entry, EntryData, EntryId, Message, Part, Role,
    hooks::HookEvent,
    tree::{Navigate, NavigatePosition},
    turn::{QueuedCustom, WhenBusy},
};

/// A user's input or a custom message, as changed by hooks so far.
#[derive(Debug)]
pub(crate) struct ProposedInput {
    pub(crate) caller: Caller,
    pub(crate) said: Said,
    /// The place of the message that hooks are inspecting: they inspect one after another.
    pub(crate) at: usize,
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
        let (entry_id, message) = &self.said.messages[self.at];
        // Programs' own data is not theirs to inspect: no model gets it.
        let message = Message::new(message.role, message.content.clone());
        HookEvent::Message { entry_id: entry_id.clone(), message }
    }
}

/// The messages of an input, each with the id of the entry that will hold it: the history that came with it, and last
/// the input itself.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) messages: Vec<(EntryId, Message)>,
}

impl Said {
    /// Returns a user's message without history.
    pub(crate) fn one(entry_id: EntryId, parts: Vec<Part>) -> Self {
        Self { messages: vec![(entry_id, Message::new(Role::User, parts))] }
    }

    /// Returns the content of the first message of the user, from which an unnamed session gets its name.
    pub(crate) fn first_of_user(&self) -> &[Part] {
        let mut messages = self.messages.iter().map(|(_, message)| message);
        messages.find(|message| message.role == Role::User).map_or(&[], |message| &message.content)
    }

    /// Returns the entries of the input, in order. They continue from `parent_id`.
    pub(crate) fn into_entries(self, ledger: &mut Ledger, parent_id: Option<EntryId>) -> Vec<Entry> {
        let mut parent_id = parent_id;
        let entry = |(entry_id, message): (EntryId, Message)| {
            let mut entry = ledger.entry(entry_id, EntryData::message(message));
            entry.parent_id = parent_id.replace(entry.entry_id.clone());
            entry
        };
        self.messages.into_iter().map(entry).collect()
    }
}

/// The options of an input.
#[derive(Debug)]
pub(crate) struct InputOptions {
    pub(crate) parent_id: Option<Option<EntryId>>,
    pub(crate) when_busy: Option<WhenBusy>,
    pub(crate) if_leaf: Option<Option<EntryId>>,
    /// False if the model is not asked.
    pub(crate) generates: bool,
    /// True if messages came with it that must stand right before it.
    pub(crate) has_history: bool,
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
