//! What the loop is told, and what it wants done.

use super::Tools;
use crate::{
    context::counter::Report,
    hook::{HookFault, HookPlace},
    model::{Answer, ModelFault, ModelRequest},
    session::Place,
};
use reseed_protocol::{
    CallId, CommandId, EntryId, ErrorBody, Part, TurnId,
    command::Command,
    event::{EphemeralEvent, Event},
    hook::{HookAnswer, HookCall},
    reply::Reply,
};
use std::fmt;

/// A request to a model, within one loop and its successors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// The connection that a command came from: where its reply goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(pub u64);

impl Origin {
    /// A hook of the server's own: it may write whoever owns the session. No connection has this number.
    pub const HOOK: Self = Self(u64::MAX);
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The loop was seeded by its predecessor: go on where the tree stands.
    Seeded,
    /// The session was read from the store: whatever was running is no more.
    Recovered,
    /// A client's command, checked and not a duplicate.
    Command {
        /// Who sent it.
        origin: Origin,
        /// Its id.
        id: CommandId,
        /// A hash of its content.
        fingerprint: u64,
        /// The command.
        command: Box<Command>,
        /// What was read from the store for it: where it goes, for commands that go elsewhere in the tree (`navigate`,
        /// `user_input` with a `parentId`), and what the model does not see any more, for those that bring it back
        /// (`undo_compaction`, `pin_entry`) or summarise it anew (`rebuild`).
        place: Option<Box<Place>>,
    },
    /// A request was answered.
    Answered {
        /// Which.
        request: RequestId,
        /// The whole answer.
        answer: Answer,
    },
    /// A request failed.
    Failed {
        /// Which.
        request: RequestId,
        /// Why.
        fault: ModelFault,
    },
    /// A request is stopped, as [`Effect::CancelModel`] asked.
    Cancelled {
        /// Which.
        request: RequestId,
        /// What of its answer had been shown.
        shown: Vec<Part>,
    },
    /// A hook of the server's has answered, or failed; or the client is away whose hook was called
    /// ([`ErrorCode::HookUnavailable`](reseed_protocol::ErrorCode)).
    HookAnswered {
        /// Which call.
        call_id: CallId,
        /// What it said.
        answer: Box<Result<HookAnswer, HookFault>>,
    },
    /// Another client owns the session from now on, and the hooks of the one before went with it. What was begun under
    /// those that are required still needs them.
    HostLeft,
    /// The client that hosts hooks has come or has left, or offers other hooks: what they are asked is sent to whoever
    /// is here now.
    AskAgain {
        /// Only that whose client was away.
        only_away: bool,
    },
    /// The owner's client offers these tools as it opens the session, in place of those that were offered before.
    ToolsOffered(Tools),
    /// Time has passed: a deadline may be over.
    Tick,
    /// The server will stop, or the session is damaged: finish the running turn, begin no other. What waits in the
    /// queue is durable; inputs that are not accepted yet are refused with this error.
    Hold(Box<ErrorBody>),
    /// End the running turn now, keep what was shown, and begin no other: the server is stopping, the session is being
    /// deleted, or nobody has been here for too long. Every command that still waits is refused with this error.
    Stop(Box<ErrorBody>),
    /// Someone is here again: what waits may begin.
    Go,
}

/// Something that should now be done. Effects are carried out in order, each to its end: an [`Effect::Append`] holds
/// back everything behind it until it is durable, so nothing is announced before.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Write these events as one step; then send the replies; then publish the events.
    Append(Append),
    /// Answer a command.
    Reply {
        /// Who asked.
        origin: Origin,
        /// The command.
        id: CommandId,
        /// The answer.
        reply: Reply,
    },
    /// Tell whoever listens; nothing is kept.
    Emit(EphemeralEvent),
    /// Ask the model.
    CallModel(Box<CallModel>),
    /// Stop asking, and say what was shown ([`Input::Cancelled`]).
    CancelModel(RequestId),
    /// Ask a hook. Where an answer is awaited it comes as [`Input::HookAnswered`], or, from a client's, as its
    /// `hook_result`.
    CallHook(Box<CallHook>),
    /// Nobody waits for that hook's answer any more.
    CancelHook(CallId),
    /// A report came in: correct the estimates of this model, here and in sessions to come.
    Calibrate {
        /// The model.
        model: String,
        /// What was estimated and what the provider counted.
        report: Box<Report>,
    },
    /// This loop is done: seed the next one from what the tree says and tell it [`Input::Seeded`].
    Reseed,
}

/// One durable step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Append {
    /// The events, in order; may be empty when only a command is to be remembered.
    pub events: Vec<Event>,
    /// The commands that caused it, with the replies they get.
    pub marks: Vec<Mark>,
}

/// A command that is remembered with what it wrote.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Who sent it.
    pub origin: Origin,
    /// Its id.
    pub id: CommandId,
    /// A hash of its content.
    pub fingerprint: u64,
    /// Its reply, sent once the step is durable.
    pub reply: Reply,
}

/// A question to a hook.
#[derive(Debug, Clone, PartialEq)]
pub struct CallHook {
    /// Who is asked.
    pub place: HookPlace,
    /// What.
    pub call: HookCall,
    /// Whether anybody waits for an answer.
    pub awaited: bool,
}

/// A request to the model.
#[derive(Debug, Clone, PartialEq)]
pub struct CallModel {
    /// Names it.
    pub request: RequestId,
    /// What is sent.
    pub body: ModelRequest,
    /// Where its answer is shown while it arrives; absent for summaries, which are not.
    pub shown_as: Option<(EntryId, TurnId)>,
    /// It is shown only once it is whole: a hook may change it first.
    pub withheld: bool,
}
