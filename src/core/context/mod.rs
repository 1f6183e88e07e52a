//! What the model sees: the context built from the tree, counted against the window, compacted when full.
//!
//! Before every request, including those between tool rounds, a [`ContextManager`] decides whether it may be sent as it
//! is. To add a strategy, write a new file in [`strategies`] and a line in [`factory`].

pub mod area;
pub mod arguments;
pub mod branch;
pub mod breaker;
pub mod build;
pub mod clearing;
pub mod compaction;
pub mod count;
pub mod counter;
pub mod cut;
pub mod cut_rules;
pub mod envelope;
pub mod extract;
pub mod factory;
pub mod messages;
pub mod node;
pub mod pairing;
pub mod patch;
pub mod prefix;
pub(crate) mod replay;
pub mod serialize;
pub mod strategies;
pub mod strategy;
pub mod structure;
pub mod summary;
pub mod text;
pub mod window;
pub mod windows;

#[cfg(test)]
pub(crate) mod testing;

pub use build::build_context;
pub use count::RequestCount;
pub use messages::Context;
pub use strategy::{ContextManager, Decision};
