//! What the server decides. Pure: no async, no clock, no randomness, no files; time and ids come in as arguments.
//!
//! - [`session`]: the tree of entries, and the fold of the log that says where the session stands
//! - [`context`]: what the model sees of it, counted against the window, compacted when it is full
//! - [`agent_loop`]: one total function from what happened to what should now be done
//! - [`hook`]: where hooks are asked, and how they can fail
//! - [`model`]: the words between the loop and the providers
//! - [`pi`]: the session files of pi, and its arithmetic
//! - [`prices`]: what a request came to
//! - `schema`: what a tool's schema may be, and what checks a call's arguments by it

pub mod agent_loop;
pub mod context;
pub mod hook;
pub mod model;
pub mod pi;
pub mod prices;
mod schema;
pub mod session;

// The rooms name each other by the path that the server has for them.
use crate as core;
