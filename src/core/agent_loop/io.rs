//! Inputs, which tell the loop what happened, and effects, which say what to do.

use crate::agent_loop::{deployment::Deployment, tools::Tools};
use crate::{
    context::counter::{Calibration, Report},
    fingerprint::withheld,
    hook::{HookFault, HookPlace, HookSpec},
    model::{Answer, ModelFault, ModelRequest},
    session::Lookup,
    tool::{Output, ToolPlace},
};
use reseed_protocol::{
    CallId, CommandId, EntryId, ErrorBody, Part, TurnId,
    command::Command,
    event::{EphemeralEvent, Event},
    hook::{HookAnswer, HookCall},
    reply::Reply,
};
use std::{fmt, sync::Arc};

/// The id of a request to a model, unique within a loop and its successors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// The connection that a command came from and its reply goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(pub u64);

impl Origin {
    /// A server hook, which may write whoever owns the session. No connection has this number.
    pub const HOOK: Self = Self(u64::MAX);
}

/// A command's sender, id and content hash, from which its mark is made.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) origin: Origin,
    pub(crate) id: CommandId,
    pub(crate) fingerprint: u64,
}

impl Caller {
    /// Returns the caller with a fingerprint that reveals nothing of the content, for commands that hooks have changed
    /// or whose content is not kept. It is the same for every command of this type.
    pub(crate) fn without_content(&self, command: &str) -> Self {
        Self { fingerprint: withheld(command), ..self.clone() }
    }

    pub(crate) fn mark(&self, reply: Reply) -> Mark {
        Mark { origin: self.origin, id: self.id.clone(), fingerprint: self.fingerprint, reply }
    }
}

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// The loop was seeded by its predecessor and continues from the tree.
    Seeded,
    /// The session was read from the store: whatever was running was interrupted.
    Recovered,
    /// A client's command, checked and not a duplicate.
    Command {
        /// The connection that sent it.
        origin: Origin,
        /// Its id.
        id: CommandId,
        /// A hash of its content.
        fingerprint: u64,
        /// The command itself.
        command: Box<Command>,
        /// The data that the runtime read from the store for it, if it needs any.
        lookup: Option<Box<Lookup>>,
    },
    /// A request was answered.
    Answered {
        /// The request.
        request: RequestId,
        /// The whole answer.
        answer: Answer,
    },
    /// A request failed.
    Failed {
        /// The request.
        request: RequestId,
        /// The reason.
        fault: ModelFault,
        /// What was shown of the answer.
        shown: Vec<Part>,
    },
    /// A background summary makes way for users' requests: it is not asked for until they are answered. Its time limit
    /// stands still.
    MadeWay {
        /// The request.
        request: RequestId,
    },
    /// A background summary that made way is asked for now.
    AskedAgain {
        /// The request.
        request: RequestId,
    },
    /// The running turn's request waited behind a summary of this session at the model server.
    WaitedBehindSummary {
        /// How long.
        millis: u64,
    },
    /// A request was stopped, as [`Effect::CancelModel`] asked.
    Cancelled {
        /// The request.
        request: RequestId,
        /// The part of its answer that had been shown.
        shown: Vec<Part>,
    },
    /// A server hook answered or failed, or the client of a called hook is away
    /// ([`ErrorCode::HookUnavailable`](reseed_protocol::ErrorCode)).
    HookAnswered {
        /// The hook call.
        call_id: CallId,
        /// The answer or the failure.
        answer: Box<Result<HookAnswer, HookFault>>,
    },
    /// Another client hosts the session from now on, or none; the hooks of the previous host are gone. Work started
    /// under its required hooks still needs them.
    HostLeft,
    /// The client that hosts hooks has connected, disconnected or changed its hooks: pending calls are sent to the
    /// connected client.
    AskAgain {
        /// Sends only the calls whose client was away.
        only_away: bool,
    },
    /// Prices and hooks of the deployment have changed; everything else in it is as before. What runs goes on, and a
    /// hook that was asked may still answer.
    Reconfigured(Arc<Deployment>),
    /// The host offers these tools. They replace the earlier ones.
    ToolsOffered(Tools),
    /// A tool that the server runs has answered.
    ToolAnswered {
        /// The call.
        call_id: CallId,
        /// The result.
        output: Output,
    },
    /// A tool that the server runs is still at work.
    ToolProgressed {
        /// The call.
        call_id: CallId,
        /// Its current activity, for people.
        message: Option<String>,
    },
    /// The host offers these hooks, in the order in which they are asked. They replace the earlier ones.
    HooksOffered(Arc<[HookSpec]>),
    /// Time has passed: a deadline may have expired.
    Tick,
    /// The server will stop, or the session is damaged: finish the running turn and start no other. The queue is
    /// durable; inputs that are not accepted yet are refused with this error.
    Hold(Box<ErrorBody>),
    /// End the running turn now as `interrupted`, keep what was shown, and start no other: the server is stopping, or
    /// the session is being deleted. Every pending command is refused with this error.
    Stop(Box<ErrorBody>),
    /// Nobody has been connected for too long: as `Stop`, but the turn ends as `cancelled`.
    Abandon(Box<ErrorBody>),
    /// Somebody is connected again: queued work may start.
    Go,
}

/// Something to do. Effects are executed in order, each to completion: an [`Effect::Append`] holds back everything
/// behind it until it is durable, so nothing is announced before.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Write these events as one step; then send the replies; then publish the events.
    Append(Append),
    /// Answer a command.
    Reply {
        /// The connection that sent it.
        origin: Origin,
        /// The command.
        id: CommandId,
        /// The reply.
        reply: Reply,
    },
    /// Publish a transient event; it is not stored.
    Emit(EphemeralEvent),
    /// Send a request to the model.
    CallModel(Box<CallModel>),
    /// Somebody waits for this summary from now on: it makes way no more.
    Hurry(RequestId),
    /// Stop a request and report what was shown of its answer ([`Input::Cancelled`]).
    CancelModel(RequestId),
    /// Call a hook. An awaited answer arrives as [`Input::HookAnswered`], or, from a client's hook, as its
    /// `hook_result`.
    CallHook(Box<CallHook>),
    /// Cancel a hook call whose answer is no longer needed.
    CancelHook(CallId),
    /// Run a tool call. A call of the server's arrives as [`Input::ToolAnswered`]; a client's is one that waited until
    /// now, and is answered by its `tool_result`.
    CallTool(Box<CallTool>),
    /// Cancel a call that the server runs: its answer is no longer needed.
    CancelTool(CallId),
    /// This model has refused a request because it offered tools: offer it none, in any session.
    ToolsRefused(String),
    /// Tells the operator that the server of this model seems to leave out what is beyond its window.
    ContextCut {
        /// The model.
        model: String,
        /// The most tokens that its server reported to have read.
        read_tokens: u64,
        /// The estimated tokens of the request.
        sent_tokens: u64,
    },
    /// This model has written a call as text: offer it no tools that search the history, in any session.
    CallWritten(String),
    /// Correct this model's token estimates, for this session and later ones.
    Calibrate {
        /// The model.
        model: String,
        /// The estimate and the provider's count.
        report: Box<Report>,
        /// What this session's counter has learned with it, if this is the session's model: stored with the next
        /// append.
        own: Option<Calibration>,
    },
    /// This loop has ended: seed the next one from the tree and send it [`Input::Seeded`].
    Reseed,
}

/// One durable step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Append {
    /// The events, in order; empty if only a command is to be remembered.
    pub events: Vec<Event>,
    /// The commands that caused them, with their replies.
    pub marks: Vec<Mark>,
}

/// A command that is remembered together with its events.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// The connection that sent it.
    pub origin: Origin,
    /// Its id.
    pub id: CommandId,
    /// A hash of its content.
    pub fingerprint: u64,
    /// Its reply, sent once the step is durable.
    pub reply: Reply,
}

/// A tool call that starts.
#[derive(Debug, Clone, PartialEq)]
pub struct CallTool {
    /// Who runs it.
    pub place: ToolPlace,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub name: String,
    /// The arguments, JSON text that the tool's schema allows.
    pub arguments: String,
    /// The session's leaf.
    pub leaf: Option<EntryId>,
}

/// A call to a hook.
#[derive(Debug, Clone, PartialEq)]
pub struct CallHook {
    /// The hook.
    pub place: HookPlace,
    /// The call.
    pub call: HookCall,
    /// True if its answer is awaited.
    pub awaited: bool,
}

/// A request to the model.
#[derive(Debug, Clone, PartialEq)]
pub struct CallModel {
    /// Its id.
    pub request: RequestId,
    /// The request itself.
    pub body: ModelRequest,
    /// The entry and turn under which the answer is streamed; absent for summaries, which are not shown.
    pub shown_as: Option<(EntryId, TurnId)>,
    /// True if the answer is shown only once it is complete: a hook may change it first.
    pub withheld: bool,
    /// True if nobody waits for the answer: the request makes way for those of users.
    pub makes_way: bool,
}
