//! Hooks: external code called at fixed extension points. Calls and answers are the same for Rust code, webhooks and a
//! client over its own socket.
//!
//! Several hooks of one point are called in the order of registration; each sees the result of the earlier ones, and
//! what an answer leaves out stays unchanged: an empty answer changes nothing.

mod answer;
mod answered;
mod call;
mod offer;

pub use self::{answer::*, call::*, offer::*};
