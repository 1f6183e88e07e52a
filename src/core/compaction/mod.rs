//! A compaction in progress: prepare, generate, check, apply.
//!
//! A [`Job`] walks a fallback chain, from gentle to drastic: clear old tool results, let the model summarise (in pieces
//! if one request cannot hold everything), extract by rule, drop. It offers the outcome of each step. Its caller
//! compares that with the target and either takes it or lets the job continue. Nothing in the session changes until an
//! [`Outcome`] is appended as one entry, so a crash, a cancellation or a failure leaves the old context intact.

mod ask;
pub mod branch;
pub mod breaker;
pub mod clearing;
pub mod cut;
pub mod cut_rules;
pub mod extract;
pub mod factory;
mod given;
mod held;
pub mod identifiers;
mod job;
pub(crate) mod machine;
mod order;
mod raw;
pub mod segments;
pub mod serialize;
pub mod strategies;
pub mod strategy;
pub mod structure;
pub mod summary;
pub mod written;

pub use ask::{Asking, summary_tokens_max};
pub use given::{HookRequests, HookSupply};
pub use held::{Basis, Held, read_key};
pub(crate) use job::summary_in;
pub use job::{Job, Next, SummaryAttempt, stage::Surroundings};
pub use order::{Order, Outcome, SummaryRequest, Writing};
pub use raw::Raw;
pub use strategy::{ContextManager, Decision};
