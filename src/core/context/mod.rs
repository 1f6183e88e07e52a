//! The model's view of a session, and its cost: the context is built from the tree and counted against the window.

pub mod area;
pub mod arguments;
pub mod build;
pub mod count;
pub mod counter;
pub mod envelope;
pub mod messages;
pub mod node;
pub mod pairing;
pub mod patch;
pub mod prefix;
pub(crate) mod replay;
pub mod seed;
pub mod verdict;
pub mod window;
pub mod windows;

#[cfg(test)]
pub(crate) mod testing;

pub use build::build_context;
pub use count::RequestCount;
pub use messages::Context;
