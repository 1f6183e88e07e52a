//! What the dialects over HTTP share: bodies of requests, errors in OpenAI's form, server-sent events.

pub mod body;
pub mod errors;
pub mod sse;

pub use errors::{Failure, unknown_address, wrong_method};
