//! Inputs, which report what happened, and effects, which request actions.

use crate::agent_loop::{deployment::Deployment, tools::Tools};
use crate::{
    context::counter::{Calibration, Report},
    fingerprint::withheld,
    hook::{HookFault, HookPlace, HookSpec},
    model::{Answer, ModelFault, ModelRequest},
    session::Lookup,
    tool::{Output, ToolPlace},
    usage_row::UsagePurpose,
};
use reseed_protocol::{
    CallId, CommandId, EntryId, ErrorBody, Part, TurnId,
    command::SessionCommand,
    event::{EphemeralEvent, Event},
    hooks::{HookAnswer, HookCall},
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

/// The connection that sent a command and gets its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(pub u64);

impl Origin {
    /// A server hook, which may write to any session. No connection has this number.
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
    /// Returns the caller with a fingerprint that reveals nothing of the content, for commands whose content hooks
    /// changed or did not let through. It is the same for every command of this type.
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
    /// The session was read from the store: anything that was running was interrupted.
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
        command: Box<SessionCommand>,
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
        /// The part of the answer that was shown.
        shown: Vec<Part>,
    },
    /// A background summary yields to users' requests: it is sent only after they are answered. Its time limit is
    /// paused.
    MadeWay {
        /// The request.
        request: RequestId,
    },
    /// A background summary that had yielded is sent now.
    AskedAgain {
        /// The request.
        request: RequestId,
    },
    /// The running turn's request waited at the model server behind a summary of this session.
    WaitedBehindSummary {
        /// The waiting time.
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
    /// Another client hosts the session from now on, or none. The previous host's hooks are gone, but work started
    /// under its required hooks still needs them.
    HostLeft,
    /// The client that hosts hooks has connected, disconnected or changed its hooks: pending calls are sent to the
    /// connected client.
    AskAgain {
        /// Sends only the calls whose client was away.
        only_away: bool,
    },
    /// The deployment's prices and hooks have changed; everything else in it is unchanged. Running work continues, and
    /// a hook that was called may still answer.
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
    /// A tool that the server runs is still running.
    ToolProgressed {
        /// The call.
        call_id: CallId,
        /// Its current activity, for people.
        message: Option<String>,
    },
    /// The host offers these hooks, in the order in which they are called. They replace the earlier ones.
    HooksOffered(Arc<[HookSpec]>),
    /// Time has passed, and a deadline may have expired.
    Tick,
    /// The server will stop, or the session is damaged. The loop finishes the running turn and starts no other. The
    /// queue is durable; inputs that are not yet accepted are refused with this error.
    Hold(Box<ErrorBody>),
    /// The server is stopping, or the session is being deleted. The loop ends the running turn now as `interrupted`,
    /// keeps what was shown, and starts no other. Every pending command is refused with this error.
    Stop(Box<ErrorBody>),
    /// No client has been connected for too long. Same as `Stop`, but the turn ends as `cancelled`.
    Abandon(Box<ErrorBody>),
    /// A client is connected again: queued work may start.
    Go,
}

/// An action for the runtime. Effects are executed in order, each to completion: an [`Effect::Append`] delays
/// everything after it until it is durable, so nothing is announced early.
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
    /// This summary is awaited from now on, so it no longer yields.
    Hurry(RequestId),
    /// Stop a request and report the part of its answer that was shown ([`Input::Cancelled`]).
    CancelModel(RequestId),
    /// Call a hook. An awaited answer arrives as [`Input::HookAnswered`], or, from a client's hook, as its
    /// `hook_result`.
    CallHook(Box<CallHook>),
    /// Cancel a hook call whose answer is no longer needed.
    CancelHook(CallId),
    /// Run a tool call. The result of a call in the server arrives as [`Input::ToolAnswered`]. A client's call is one
    /// that waited until now; its `tool_result` answers it.
    CallTool(Box<CallTool>),
    /// Cancel a call that the server runs, because its answer is no longer needed.
    CancelTool(CallId),
    /// This model refused a request because tools were offered: offer it none, in any session.
    ToolsRefused(String),
    /// Warn the operator that this model's server seems to drop whatever is beyond its window.
    ContextCut {
        /// The model.
        model: String,
        /// The most tokens that its server reported as read.
        read_tokens: u64,
        /// The estimated tokens of the request.
        sent_tokens: u64,
    },
    /// This model wrote a call as text: do not offer it the tools that search the history, in any session.
    CallWritten(String),
    /// Correct this model's token estimates, for this session and later ones.
    Calibrate {
        /// The model.
        model: String,
        /// The estimate and the provider's count.
        report: Box<Report>,
        /// The updated calibration of this session's counter, if this is the session's model. It is stored with the
        /// next append.
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
    /// The side that runs the tool.
    pub place: ToolPlace,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub name: String,
    /// The arguments: JSON text that matches the tool's schema.
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
    /// True if the answer is not awaited: the request yields to those of users.
    pub makes_way: bool,
    /// What its cost is recorded for.
    pub spent_on: UsagePurpose,
}
