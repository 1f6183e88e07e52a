//! The wire of reseed: everything that crosses the socket, as plain data.
//!
//! Your client is a fold: take the snapshot, apply events in `seq` order, and live, replayed and reloaded views are
//! identical. Every command gets one reply; everything that happens is an event; losing the socket loses neither.
//! Only frames with `seq` are history; everything else is decoration that you may miss.
//!
//! - [`frame`]: one JSON object a text frame; how a frame is checked and parsed
//! - [`command`]: client → server; [`reply`]: the one answer a command gets; [`event`]: what happened
//! - [`entry`], [`content`]: the nodes of a session's tree and what they say; stored as they are sent
//! - [`context`]: how full the window is, and exactly what the next request would send; [`patch`]: changes of it;
//!   [`receipt`]: how much of a request the provider could have had in its cache
//! - [`hook`]: code of others' that is asked at defined points
//! - [`error`]: error codes and close codes, each with cause and remedy
//! - [`v1`]: the older dialect, spoken until a client opts into v2
//!
//! The feature `codegen` adds the module that writes the JSON Schema, the TypeScript and the page of error codes from
//! these types.

#[cfg(feature = "codegen")]
pub mod codegen;
pub mod command;
pub mod content;
pub mod context;
pub mod entry;
pub mod error;
pub mod event;
pub mod frame;
pub mod hook;
pub mod ids;
pub mod patch;
pub mod receipt;
pub mod reply;
pub mod time;
pub mod v1;

pub use content::{Message, Part, Role, StopReason, Usage, UsageSource};
pub use entry::{Entry, EntryData};
pub use error::{CloseCode, ErrorBody, ErrorCode};
pub use ids::{CallId, CommandId, EntryId, JobId, SessionId, TurnId};
pub use time::Timestamp;

/// The protocol version that `hello` must name.
pub const PROTOCOL_VERSION: u32 = 2;

/// The WebSocket subprotocol that opts into v2.
pub const SUBPROTOCOL_V2: &str = "reseed.v2";
