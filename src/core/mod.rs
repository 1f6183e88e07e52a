//! What the server decides. Pure: no async, no clock, no randomness, no files; time and ids come in as arguments.

pub mod context;
pub mod model;
