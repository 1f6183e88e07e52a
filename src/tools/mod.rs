//! Tools that the server runs: the trait that each implements, and what a call gets and returns.
//!
//! A tool of the server is offered to the model like a client's: its arguments are checked against the schema that was
//! sent, it has one time limit, and its result has one bound. The runtime does all of that; a tool only does its work.
//!
//! Invariant: a tool never sees arguments that its schema, as it was sent, does not allow.

pub mod history;
pub mod mcp;
mod toolset;

pub use crate::core::tool::Output;
pub use toolset::Toolset;

use reseed_protocol::{CallId, EntryId, SessionId, tools::ToolOffer};
use std::{fmt, future::Future, pin::Pin, sync::Arc};

/// The future that [`Tool::call`] returns.
pub type CallFuture<'a> = Pin<Box<dyn Future<Output = Output> + Send + 'a>>;

/// The future that [`Tool::forget`] returns.
pub type ForgetFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A tool that the server runs.
///
/// Every tool must keep this contract:
/// - `offer` returns the same value each time: it is sent with every request, and a change breaks the provider's cache;
/// - dropping the future cancels the call at once and frees what it holds, and there is no other way to cancel;
/// - a call must not block its thread: work that takes processor time belongs on a thread of its own;
/// - failing is a result too ([`Output::error`]): the model reads it and can do better.
///
/// ```
/// use reseed::tools::{Call, CallFuture, Output, Tool};
/// use reseed_protocol::tools::{ToolAnnotations, ToolOffer};
///
/// /// Adds two numbers.
/// struct Add;
///
/// impl Tool for Add {
///     fn offer(&self) -> ToolOffer {
///         let number = serde_json::json!({ "type": "number" });
///         let parameters = serde_json::json!({
///             "type": "object",
///             "properties": { "a": number, "b": number },
///             "required": ["a", "b"],
///         });
///         let annotations = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
///         ToolOffer { annotations: Some(annotations), ..ToolOffer::new("add", "Adds two numbers.", parameters) }
///     }
///
///     fn call(&self, call: Call) -> CallFuture<'_> {
///         Box::pin(async move {
///             let number = |name: &str| call.arguments[name].as_f64().unwrap_or_default();
///             Output::text((number("a") + number("b")).to_string())
///         })
///     }
/// }
///
/// let tool: Box<dyn Tool> = Box::new(Add);
/// assert_eq!(tool.offer().name, "add");
/// ```
pub trait Tool: Send + Sync {
    /// Returns the tool's name, description, schema and annotations, as the model gets them.
    fn offer(&self) -> ToolOffer;

    /// Runs one call.
    fn call(&self, call: Call) -> CallFuture<'_>;

    /// Frees what the tool keeps for a session that was deleted. Most tools keep nothing.
    fn forget<'a>(&'a self, session: &'a SessionId) -> ForgetFuture<'a> {
        let _ = session;
        Box::pin(std::future::ready(()))
    }
}

/// One call of a tool.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its id, unique within the session.
    pub call_id: CallId,
    /// The session that it belongs to.
    pub session: SessionId,
    /// The session's leaf when the call was made: the entry with the call is on its path.
    pub leaf: Option<EntryId>,
    /// The arguments, an object that the tool's schema allows.
    pub arguments: serde_json::Value,
    /// Reports that the call is still at work.
    pub progress: Progress,
}

/// Reports a call's progress: its time limit starts again, up to a hard cap, and clients see the message.
#[derive(Clone)]
pub struct Progress(Arc<dyn Fn(Option<String>) + Send + Sync>);

impl Progress {
    /// Creates a reporter that passes each message on. It must not block.
    #[must_use]
    pub fn new(report: impl Fn(Option<String>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(report))
    }

    /// Reports progress, with a message for people if there is one.
    pub fn report(&self, message: Option<String>) {
        (self.0)(message);
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}
