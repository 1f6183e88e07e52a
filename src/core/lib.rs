//! What the server decides. Pure: no async, no clock, no randomness, no files; time and ids come in as arguments.
//!
//! - [`session`]: the tree of entries, and the session state folded from the log
//! - [`context`]: what the model sees of it, counted against the window
//! - [`compaction`]: when and how the context is shortened: strategies, cuts, summaries, and their machine
//! - [`text`]: how a text is cleaned, masked, escaped and clipped, and the files that tool calls name
//! - [`agent_loop`]: one total function from inputs to effects
//! - [`fingerprint`], [`usage`]: a stable hash, and sums of usage
//! - [`tool`], [`approval`]: tools, and which of their calls a person must allow
//! - [`hook`]: hook specifications and faults
//! - [`model`]: the types that the agent loop and the providers exchange
//! - [`need`]: what a model needs changed in requests
//! - [`prices`]: the cost of requests
//! - `schema`: limits on tool schemas, and validators for call arguments

pub mod agent_loop;
pub mod approval;
pub mod compaction;
pub mod context;
pub mod fingerprint;
pub mod hook;
pub mod model;
pub mod need;
pub mod prices;
mod schema;
#[cfg(test)]
mod seeds;
pub mod session;
pub mod text;
pub mod tool;
pub mod usage;

// The rooms name each other by the path that the server has for them.
use crate as core;
