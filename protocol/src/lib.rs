//! The wire protocol of reseed: everything that crosses the socket, as plain data.
//!
//! A client is a fold: take the snapshot, apply events in `seq` order, and live, replayed and reloaded views are
//! identical. Every command gets one reply; everything that happens is an event; losing the socket loses neither. Only
//! frames with `seq` are history; everything else is decoration that a client may miss.
//!
//! - [`frame`]: one JSON object per text frame; how a frame is checked and parsed
//! - by subject, each with its commands, replies, events and entries: [`session`], [`turn`], [`hooks`], [`tools`],
//!   [`tree`], [`compaction`], [`context`]; no file imports one that imports it
//! - [`command`], [`reply`], [`event`]: the lists of all commands, replies and events
//! - [`content`]: messages and input; [`receipt`]: how much of a request the provider could have cached
//! - [`error`]: error codes and close codes, each with cause and remedy
//! - [`tagged`]: messages of a type that this version does not know
//! - [`v1`]: the older version, used until a client opts into v2
//!
//! The crate `reseed-protocol-codegen` generates the JSON Schema, the AsyncAPI document, the TypeScript, the page of
//! error codes and the table of commands from these types. The feature `codegen` derives what it needs.

#[macro_use]
mod declare;
#[macro_use]
pub mod tagged;

pub mod command;
pub mod compaction;
pub mod content;
pub mod context;
pub mod error;
pub mod event;
pub mod frame;
pub mod hooks;
pub mod ids;
pub mod leaf;
pub mod receipt;
pub mod reply;
pub mod session;
pub mod time;
pub mod tools;
pub mod tree;
pub mod turn;
pub mod v1;

pub use content::{
    CallPayload, Cut, FurtherUsage, Message, NativeCompaction, Part, Payload, Role, StopReason, Usage, UsageSource,
};
pub use error::{CloseCode, ErrorBody, ErrorCode};
pub use ids::{ApprovalId, CallId, CommandId, ConnectionId, EntryId, JobId, SessionId, TurnId};
pub use time::Timestamp;
pub use tree::{Entry, EntryData};

/// The protocol version that `hello` must name.
pub const PROTOCOL_VERSION: u32 = 2;

/// The WebSocket subprotocol that opts into v2.
pub const SUBPROTOCOL_V2: &str = "reseed.v2";
