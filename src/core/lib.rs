//! The server's decisions. The crate is pure: no async, no clock, no randomness, no files; time and ids are arguments.
//!
//! - [`session`]: the tree of entries, and the session state folded from the log
//! - [`context`]: the model's view of the session, counted against the window
//! - [`compaction`]: when and how the context is shortened: strategies, cuts, summaries, and their machine
//! - [`text`]: cleaning, masking, escaping and clipping of texts, and the files that tool calls name
//! - [`agent_loop`]: one total function from inputs to effects
//! - [`fingerprint`], [`usage`]: a stable hash, and sums of usage
//! - [`usage_row`], [`budget`]: the operator's account of a request, and how much may be spent
//! - [`tool`], [`approval`]: tools, and which of their calls a person must allow
//! - [`hook`]: hook specifications and faults
//! - [`model`]: the types that the agent loop and the providers exchange
//! - [`need`]: the changes to requests that a model needs
//! - [`prices`]: the cost of requests
//! - `schema`: limits on tool schemas, and validators for call arguments

pub mod agent_loop;
pub mod approval;
pub mod budget;
pub mod compaction;
pub mod context;
pub mod fingerprint;
pub mod hook;
pub mod model;
pub mod need;
pub mod prewarm;
pub mod prices;
mod schema;
#[cfg(test)]
mod seeds;
pub mod session;
pub mod text;
pub mod tool;
pub mod usage;
pub mod usage_row;
