//! pi compatibility: reads and writes pi's session files, and counts, cuts and summarises by pi's rules.
//!
//! pi (npm `@mariozechner/pi-coding-agent`) stores a session as a file of JSON lines, a tree like ours. Conversion is
//! lossless both ways: data without a field in our entries goes into `Entry::imported`, and data without a field in
//! pi's lines goes into the line's field `reseed`.
//!
//! - `json`: JSON as JavaScript stores and prints it; `difference`: the difference between two JSON values
//! - `read`: lines of versions 1 to 3; `import`, `export`: lines to entries and back; `convert`: a single entry;
//!   `transform`: patches
//! - `message`: the messages of a path in pi's format; `estimate`, `usage`: their size by pi's rules
//! - `cut`, `prepare`, `files`: what pi chooses to summarise
//!
//! `estimate` and `cut` implement the core's `TokenEstimate` and `CutRules`; a deployment's `counter_of` and
//! `cut_rules` select them. They work on our entries in pi's format, so an imported session is measured exactly as pi
//! measures it.
//!
//! The crate is pure, like the core. The core knows nothing of pi.

mod convert;
mod difference;
mod places;
mod transform;

pub mod cut;
pub mod estimate;
pub mod export;
pub mod files;
pub mod import;
pub mod json;
pub mod message;
pub mod prepare;
pub mod read;
pub mod usage;

#[cfg(test)]
mod compactions;
#[cfg(test)]
mod round_trip;

pub use convert::call_id;
pub use export::Exporter;
pub use import::Importer;
pub use json::Json;
